"""Keep what each row of a batch answered to its actions, and tell where another walk answers otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from rlenv_kit.tables import Unchecked

__all__ = ["RowLedger", "Rows"]

_OF_ROWS = ("agents", "agent", "state", "applied", "action_mask", "images")
"""Entries of ``extra_info`` whose arrays have a leading axis."""

_OF_FINAL = ("observation", "success", "frame_no")
"""Entries of ``extra_info["final"]`` with a leading axis of the ended rows."""

_MOST = 200_000
"""Answers that are kept."""


class RowLedger:
    """Compare the answers of rows with the same seed, number and actions, whichever walk they are of.

    Attributes:
        problem: the first difference, in words; empty if there is none.
    """

    def __init__(self) -> None:
        self.problem = ""
        self._known: dict[bytes, tuple[dict[str, bytes], str]] = {}

    def take(self, key: bytes, answer: dict[str, bytes], words: str, row: int) -> None:
        """Take a row's answer.

        Args:
            key: of the row's seed, number and actions so far.
            answer: name of an entry -> its bytes.
            words: what happened in this walk, for the message.
            row: its number.
        """
        if len(self._known) >= _MOST:
            return
        known, before = self._known.setdefault(key, (answer, words))
        if known is answer or known == answer or self.problem:
            return
        name = next(name for name in sorted(known.keys() | answer.keys()) if known.get(name) != answer.get(name))
        self.problem = f"{name} of row {row} differs between two walks of its seed and actions: {before}, and {words}"


class Rows:
    """Follow the rows of one batch for a ledger.

    Args:
        ledger: keeps the answers.
        num: number of rows.
    """

    def __init__(self, ledger: RowLedger, num: int) -> None:
        self._ledger, self._num = ledger, num
        self._keys: list[bytes | None] = [None] * num  # None while a row's history is not known
        self.words = "a walk"

    def forget(self, ids: Unchecked = None) -> None:
        """Forget all rows, or some: what follows has no seed of its own."""
        numbers = np.ravel(np.asarray(ids)) if ids is not None else np.arange(self._num)
        if numbers.dtype.kind not in "iu":
            numbers = np.arange(self._num)
        for row in numbers.tolist():
            self._keys[row % self._num] = None

    def begin(self, seed: object, table: Unchecked) -> None:
        """Take the answer to a reset of all with a seed."""
        self._keys = [f"{seed} {row}".encode() for row in range(self._num)]
        self._take(table, None)

    def act(self, request: Unchecked, before: Unchecked, answer: Unchecked) -> None:
        """Take the answer to a step.

        Args:
            request: Table 2.
            before: the Table 1 that it answers.
            answer: Tables 1 and 3.
        """
        if not any(self._keys):
            return
        try:
            table, reward = answer
            error = table.get("extra_info", {}).get("error") or {}
            stale = np.asarray(request["frame_no"]) - np.asarray(before)
            fields = [(name, np.asarray(request["action"][name])) for name in sorted(request["action"])]
            for row in range(self._num):
                mark = b"refused" if row in error else b""
                key = self._keys[row]
                if key is not None:
                    parts = (b"%s %d" % (mark, stale[row]), *(self._bytes(value[row]) for _, value in fields))
                    self._keys[row] = blake2b(b"\0".join((key, *parts)), digest_size=12).digest()
            self._take(table, reward)
        except (TypeError, KeyError, IndexError, ValueError, AttributeError):  # a malformed table: others see it
            self.forget()

    @staticmethod
    def _bytes(value: Unchecked) -> bytes:
        array = np.asarray(value)
        return (array.astype(float) + 0.0).tobytes() if array.dtype.kind in "biuf" else str(array.tolist()).encode()

    def _take(self, table: Unchecked, reward: Unchecked) -> None:
        columns = {name: np.asarray(value) for name, value in table["observation"].items()}
        columns |= {name: np.asarray(table[name]) for name in ("frame_no", "terminated", "truncated")}
        extra = table.get("extra_info", {})
        for name in _OF_ROWS:
            if name in extra:
                columns |= self._leaves(extra[name], f"extra_info.{name}", self._num)
        if reward is not None:
            columns |= self._leaves(reward["reward"], "reward", self._num)
        final = extra.get("final")
        index = np.ravel(final["index"]).tolist() if isinstance(final, Mapping) and "index" in final else []
        last: dict[str, np.ndarray] = {}
        for name in _OF_FINAL if index else ():
            if isinstance(final, Mapping) and name in final:
                last |= self._leaves(final[name], f"final {name}", len(index))
        for row, key in enumerate(self._keys):
            if key is None:
                continue
            answer = {name: column[row].tobytes() if column.dtype.kind != "U" else str(column[row].tolist()).encode()
                      for name, column in columns.items()}  # fmt: skip
            if row in index:
                answer |= {name: column[index.index(row)].tobytes() for name, column in last.items()}
            self._ledger.take(key, answer, self.words, row)

    def _leaves(self, value: Unchecked, where: str, count: int) -> dict[str, np.ndarray]:
        if isinstance(value, Mapping):
            leaves: dict[str, np.ndarray] = {}
            for key, item in value.items():
                leaves |= self._leaves(item, f"{where}.{key}", count)
            return leaves
        array = np.asarray(value) if isinstance(value, np.ndarray | list) else None
        fits = array is not None and array.shape[:1] == (count,) and array.dtype != object
        return {where: array} if fits and array is not None else {}
