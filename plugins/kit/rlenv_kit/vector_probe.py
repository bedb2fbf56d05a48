"""Drive a batch of environments through seeded walks of legal actions, for its checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol

import numpy as np

from hal import Field, Spec
from rlenv_kit.report import Failed, Note
from rlenv_kit.supervisor import CallLog
from rlenv_kit.tables import Unchecked, copied_values, deep_difference, difference, digest_of
from rlenv_kit.vector_ledger import RowLedger, Rows

__all__ = [
    "Answer", "StandardVector", "VectorProbe", "check_axes", "check_rows", "compare_rows", "described",
    "is_over", "left_difference", "parts_of_row", "reward_of", "row_difference",
]  # fmt: skip

Table = Mapping[str, Unchecked]

Answer = tuple[Table, Table]
"""Tables 1 and 3 of a batch."""


class StandardVector(Protocol):
    """Declare the interfaces of a batch of N environments."""

    num_envs: int
    env_ids: list[str]

    @property
    def observation(self) -> Spec:
        """The spec of one environment's observation."""
        ...

    @property
    def action(self) -> Spec:
        """The spec of one environment's action."""
        ...

    def reset(self, options: Mapping[str, object] = ...) -> Unchecked:
        """Begin an episode in all environments; return Table 1 with a leading axis."""
        ...

    def step(self, action: Mapping[str, object]) -> tuple[Unchecked, Unchecked]:
        """Step all environments; take Table 2 and return Tables 1 and 3, each with a leading axis."""
        ...

    def close(self) -> None:
        """Close the batch. Safe to call more than once."""
        ...


class VectorProbe:
    """Drive a batch under test through seeded walks.

    Args:
        envs: the batch under test.
        steps: the usual length of a walk.
        seed: the seed of the resets and of the walks' actions.
        log: records the calls.
        ledger: keeps the answers of rows, of several batches alike; None makes one.

    Attributes:
        ledger: as above.
        rows: follows the rows of this batch.
        first_entries: keys of ``extra_info`` in the first table; None before it.
    """

    def __init__(
        self, envs: StandardVector, steps: int, seed: int, log: CallLog, ledger: RowLedger | None = None
    ) -> None:
        self.ledger = ledger or RowLedger()
        self.rows = Rows(self.ledger, envs.num_envs)
        self._frame_no: Unchecked = None
        self._drawn: list[tuple[np.random.Generator, list[dict[str, np.ndarray]]]] = []
        self.envs, self.num, self.seed, self.log, self.length = envs, envs.num_envs, seed, log, steps
        self.mode: object = getattr(envs, "autoreset", None)
        self.notes: dict[tuple[str, str], Note] = {}
        self.first_entries: frozenset[str] | None = None

    def note(self, clause: str, text: str) -> None:
        """Record a remark on something that the standard leaves open, once."""
        self.notes.setdefault((clause, text), Note(clause, text))

    def reset(self, **options: object) -> Table:
        """Reset the batch, with the probe's seed unless ``ids`` selects some environments."""
        chosen = options if "ids" in options else {"seed": self.seed, **options}
        table: Table = self._arrays(self.log.call("reset", self.envs.reset, chosen))
        self._follow_reset(chosen, table)
        if self.first_entries is None and isinstance(table, Mapping):
            self.first_entries = frozenset(table.get("extra_info", ()))
        return table

    def plain_reset(self) -> Table:
        """Reset the batch without an option."""
        table: Table = self._arrays(self.log.call("reset", self.envs.reset))
        self.rows.forget()
        self._keep_frame(table)
        return table

    def step(self, request: object) -> Answer:
        """Send Table 2, or any other value in its place."""
        answer: Unchecked = self.log.call("step", self.envs.step, request)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise Failed(f"step returned {answer!r:.80}", "it must return two tables, 1 and 3")
        read = self._arrays(answer[0]), self._arrays(answer[1])
        self.rows.act(request, self._frame_no, read)
        self._keep_frame(read[0])
        return read

    def _follow_reset(self, options: Mapping[str, object], table: Unchecked) -> None:
        self.rows.forget(options["ids"] if "ids" in options and "seed" not in options else None)
        if "ids" not in options and isinstance(table, Mapping):
            with suppress(TypeError, KeyError, IndexError, ValueError, AttributeError):  # malformed: others see it
                self.rows.begin(options["seed"], table)
        self._keep_frame(table)

    def _keep_frame(self, table: Unchecked) -> None:
        self._frame_no = copied_values(table.get("frame_no")) if isinstance(table, Mapping) else None

    def _arrays(self, table: Unchecked) -> Unchecked:
        """Return a table with arrays in place of lists of numbers, which the standard allows as well."""
        if not isinstance(table, Mapping):
            return table
        spec, changed = self.envs.observation, dict[str, Unchecked]()
        for key in ("frame_no", "terminated", "truncated", "reward"):
            if isinstance(table.get(key), list | tuple):
                value = np.asarray(table[key])
                changed[key] = value.astype(np.int32) if key != "reward" and value.dtype.kind in "iu" else value
        seen = table.get("observation")
        if isinstance(seen, Mapping) and any(isinstance(value, list | tuple) for value in seen.values()):
            changed["observation"] = {
                name: np.asarray(value, spec[name].numpy_dtype)
                if isinstance(value, list | tuple) and name in spec else value
                for name, value in seen.items()
            }  # fmt: skip
        if changed:
            self.note("6.4-b", f"{', '.join(changed)} of a batch hold lists, not arrays; their dtypes can't be checked")
        return {**table, **changed} if changed else table

    def request(self, table: Table, action: object) -> dict[str, object]:
        """Return the Table 2 that answers a Table 1."""
        return {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action}

    def actions(self, steps: int, num: int | None = None) -> list[dict[str, np.ndarray]]:
        """Return legal actions of all rows; the actions of row i don't depend on the number of rows."""
        return list(self.each_action(steps, num))

    def each_action(self, steps: int, num: int | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Yield what `actions` returns, as far as it is asked for."""
        count = self.num if num is None else num
        while len(self._drawn) < count:
            self._drawn.append((np.random.default_rng([self.seed, len(self._drawn)]), []))
        for step in range(steps):
            for rng, samples in self._drawn[:count]:
                if len(samples) <= step:
                    samples.append(self.envs.action.sample(rng))
            yield _stacked([samples[step] for _, samples in self._drawn[:count]])

    @property
    def declared_reward(self) -> Field | None:
        """The reward's description, if the batch has one."""
        reward = getattr(getattr(self.envs, "description", None), "reward", None)
        return reward if isinstance(reward, Field) else None

    def walk(
        self,
        actions: list[dict[str, np.ndarray]],
        envs: StandardVector | None = None,
        between: Callable[[], object] = tuple,
    ) -> list[Answer]:
        """Reset, send the actions, and return copies of all answers; the answer to the reset has an empty Table 3.

        Args:
            actions: of all rows, for each step.
            envs: the batch to walk; by default the one under test.
            between: called before each step.
        """
        kept = self if envs is None else VectorProbe(envs, self.length, self.seed, self.log, self.ledger)
        table = kept.reset()
        frames: list[Answer] = [(copied_values(table), {})]
        for action in actions:
            between()
            table, reward = kept.step(kept.request(table, {name: value.copy() for name, value in action.items()}))
            frames.append((copied_values(table), copied_values(reward)))
        return frames

    def digests(self) -> list[str]:
        """Walk, and return a digest of each answer, without the names of the environments."""
        return [
            digest_of([{key: value for key, value in part.items() if key not in ("env_id", "extra_info")}
                       for part in answer])
            for answer in self.walk(self.actions(self.length))
        ]  # fmt: skip

    def row(self, table: Table, row: int) -> dict[str, Unchecked]:
        """Return Table 1 of one row, without extra information."""
        return {
            "env_id": table["env_id"][row],
            "frame_no": int(table["frame_no"][row]),
            "observation": {name: np.array(value[row]) for name, value in table["observation"].items()},
            "terminated": int(table["terminated"][row]),
            "truncated": int(table["truncated"][row]),
        }


def _stacked(actions: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.stack([action[name] for action in actions]) for name in actions[0]}


def described(envs: StandardVector, key: str) -> Mapping[str, object]:
    """Return a mapping under a key of a batch's description; empty if there is none."""
    entries = getattr(getattr(envs, "description", None), key, {})
    return entries if isinstance(entries, Mapping) else {}


def reward_of(table: Table, row: int) -> Unchecked:
    """Return the reward of one row of Table 3: a number, or one for each agent."""
    reward = table["reward"]
    if isinstance(reward, Mapping):
        return {agent: float(value[row]) for agent, value in reward.items()}
    return float(reward[row])


def row_difference(one: Table, other: Table, row: int) -> str:
    """Describe the difference between a row of two Tables 1; empty if there is none."""
    name = difference({key: np.asarray(value)[row] for key, value in one["observation"].items()},
                      {key: np.asarray(value)[row] for key, value in other["observation"].items()})  # fmt: skip
    if name:
        return name
    for key in ("frame_no", "terminated", "truncated"):
        if one[key][row] != other[key][row]:
            return key
    return ""


def is_over(table: Table, row: int) -> bool:
    """Return whether a row's episode ended with this frame."""
    return bool(table["terminated"][row] or table["truncated"][row])


def parts_of_row(table: Table, row: int) -> dict[str, Unchecked]:
    """Return what ``extra_info`` tells of one row: the agents' observations, the state, what was applied, the masks.

    Also the row's part of ``final``, if the row has ended. Values without a leading axis are left out.
    """
    extra, count = table.get("extra_info", {}), len(table["frame_no"])

    def part(value: Unchecked, place: int, length: int) -> Unchecked:
        if isinstance(value, Mapping):
            return {key: part(item, place, length) for key, item in value.items()}
        return value[place] if isinstance(value, np.ndarray) and value.shape[:1] == (length,) else None

    parts = {key: part(extra[key], row, count) for key in _OF_ROWS if key in extra}
    final = extra.get("final")
    index = np.ravel(final["index"]).tolist() if isinstance(final, Mapping) and "index" in final else []
    if row in index and isinstance(final, Mapping):
        parts["final"] = part(final.get("observation"), index.index(row), len(index))
    return parts


_OF_ROWS = ("agents", "agent", "state", "applied", "action_mask")
"""Entries of ``extra_info`` whose arrays have a leading axis."""


def left_difference(one: Table, other: Table, row: int, mode: object) -> str:
    """Describe the difference of a row that should stand still; empty if there is none.

    Args:
        one: a Table 1.
        other: a later one.
        row: the row to compare.
        mode: how a row goes on after its end; with "same_step" the flag is in the table of that step alone.
    """
    ended = mode == "same_step" and (one["terminated"][row] or one["truncated"][row])
    flags = {key: other[key] for key in ("terminated", "truncated")} if ended else {}
    return row_difference({**one, **flags}, other, row)


def check_axes(answer: Answer, count: int) -> None:
    """Check that each value of Tables 1 and 3 has a leading axis of the number of rows.

    Raises:
        Failed: one has not.
    """
    table, reward = answer
    given = reward.get("reward")
    values = {
        **{key: table.get(key) for key in ("env_id", "frame_no", "terminated", "truncated")}, **table["observation"],
        **(given if isinstance(given, Mapping) else {"reward": given} if reward else {}),
    }  # fmt: skip
    for name, value in values.items():
        if np.shape(value)[:1] != (count,):
            raise Failed(f"{name} of a batch of {count} has shape {np.shape(value)}", f"its leading axis is {count}")


def check_rows(one: Table, other: Table, rows: Iterable[int], when: str, allowed: str = "") -> None:
    """Check that rows of two Tables 1 are equal.

    Args:
        one: a Table 1.
        other: a Table 1 of another walk.
        rows: the rows to compare.
        when: when they differ, for the message.
        allowed: what is allowed, for the message.

    Raises:
        Failed: they differ.
    """
    for row in rows:
        problem = row_difference(one, other, row)
        if problem:
            raise Failed(f"{problem} of row {row} differs {when}", allowed)


def compare_rows(first: list[Answer], second: list[Answer], rows: Iterable[int], reason: str) -> None:
    """Check that rows of two walks are equal.

    Args:
        first: a walk.
        second: a walk of the same actions.
        rows: the rows to compare.
        reason: what happened between the walks, for the message.

    Raises:
        Failed: they differ.
    """
    for number, ((one, gained), (other, other_gained)) in enumerate(zip(first, second, strict=True)):
        for row in rows:
            problem = row_difference(one, other, row)
            if not problem and gained and reward_of(gained, row) != reward_of(other_gained, row):
                problem = "reward"
            problem = problem or deep_difference(parts_of_row(one, row), parts_of_row(other, row), "extra_info")
            if problem:
                raise Failed(f"frame {number}: {problem} of row {row} differs {reason}")
