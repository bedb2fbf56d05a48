"""Check the rows of a batch against illegal actions of single rows, and malformed batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from rlenv_kit.report import Failed
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import STANDARD_CODES, Unchecked, copied_values, deep_difference
from rlenv_kit.vector_probe import VectorProbe, check_rows, is_over, left_difference, reward_of, row_difference

__all__ = ["illegal_rows", "row_checks"]


def row_checks(probe: VectorProbe) -> list[PlannedCheck]:
    """Return the checks of refused rows and of malformed batches."""
    return declared(vars(_Refusals), _Refusals(probe), probe)


def illegal_rows(probe: VectorProbe, row: int) -> Iterator[tuple[str, Callable[[dict[str, Unchecked]], None]]]:
    """Yield ways to make a row of Table 2 illegal: words for the report, and a function that changes the table."""
    for field in (one for one in probe.envs.action if not one.is_text):
        whole = field.numpy_dtype.kind != "f"
        low, high = field.bounds
        for what, bound, sign in (("below", low, -1), ("above", high, 1)):
            limits = np.iinfo(field.dtype) if whole else np.finfo(field.dtype)
            if bound.ravel()[0] in (limits.min, limits.max):
                continue

            def beyond(
                request: dict[str, Unchecked],
                name: str = field.name,
                bound: np.ndarray = bound,
                sign: int = sign,
                whole: bool = whole,
            ) -> None:
                last = bound.ravel()[-1].item()
                number = last + sign * (1 if whole else 0.01 + abs(last) * 1e-3)
                values = np.array(request["action"][name])
                if whole and not np.iinfo(values.dtype).min <= number <= np.iinfo(values.dtype).max:
                    values = values.astype(np.int64)
                flat = values[row : row + 1].reshape(-1)
                flat[-1] = number
                values[row] = flat.reshape(values[row].shape)
                request["action"] = {**request["action"], name: values}

            yield f"{field.name} {what} its range", beyond
        if not whole:

            def not_a_number(request: dict[str, Unchecked], name: str = field.name) -> None:
                values = np.array(request["action"][name])
                values[row] = np.nan
                request["action"] = {**request["action"], name: values}

            yield f"{field.name} not a number", not_a_number

    def stale(request: dict[str, Unchecked]) -> None:
        numbers = np.array(request["frame_no"])
        numbers[row] += 1
        request["frame_no"] = numbers

    yield "another frame_no", stale

    def old(request: dict[str, Unchecked]) -> None:
        numbers = np.array(request["frame_no"])
        numbers[row] -= 1
        request["frame_no"] = numbers

    yield "another frame_no, of the frame before", old


_CODES: Mapping[str, frozenset[str]] = {
    "its range": frozenset({"range", "dtype"}), "not a number": frozenset({"not_finite", "range", "dtype"}),
    "another frame_no": frozenset({"frame_no"}),
}  # fmt: skip
"""Words of an illegal action -> the standard codes that its error may have."""


class _Refusals:
    def __init__(self, probe: VectorProbe) -> None:
        self._probe = probe
        self._errors: dict[str, tuple[int, Mapping[str, Unchecked]]] = {}

    @check(
        "refusals", "an illegal action is refused in its own row, and the others move", "6.2.1-6 6.2.1-7", "rows apart"
    )
    def refusals(self, probe: VectorProbe) -> None:
        """Make one row's action illegal in the midst of a walk, and compare with an undisturbed one."""
        actions = probe.actions(6)
        for row in (0, probe.num - 1):
            for what, break_it in illegal_rows(probe, row):
                self._refuse(actions, row, what, break_it)
        self._refuse_all(actions)

    def _refuse(
        self,
        actions: list[dict[str, np.ndarray]],
        row: int,
        what: str,
        break_it: Callable[[dict[str, Unchecked]], None],
    ) -> None:
        probe = self._probe
        others = [other for other in range(probe.num) if other != row]
        straight = probe.walk(actions[:3])
        at = max(number for number, (frame, _) in enumerate(straight[:3]) if not number or not is_over(frame, row))
        table = probe.reset()
        for action in actions[:at]:
            table, _ = probe.step(probe.request(table, action))
        before, request = copied_values(table), probe.request(table, dict(actions[at]))
        break_it(request)
        table, reward = probe.step(request)
        where = f"{what} in row {row}"
        moved = left_difference(before, table, row, probe.mode)
        if moved:
            raise Failed(f"{where}: {moved} of the row changed", "an illegal action is not carried out")
        given = reward_of(reward, row)
        if any(given.values()) if isinstance(given, dict) else given:
            raise Failed(f"{where}: the row's reward is {given}", "it must be 0")
        error = table.get("extra_info", {}).get("error")
        told = (isinstance(error, Mapping) and row in error) or (
            isinstance(error, list | tuple | np.ndarray) and len(error) == probe.num and bool(error[row])
        )  # fmt: skip
        if not told:
            raise Failed(f"{where}: extra_info['error'] is {error!r:.80}", f"it must report row {row}")
        for other in others:
            usual = straight[at + 1][0].get("extra_info", {}).get("error") or {}  # such as a move that its game forbids
            if isinstance(error, Mapping) and other in error and other not in usual:
                raise Failed(f"{where}: extra_info['error'] reports row {other}")
            problem = row_difference(straight[at + 1][0], table, other)
            if not problem and reward_of(reward, other) != reward_of(straight[at + 1][1], other):
                problem = "reward"
            if problem:
                raise Failed(f"{where}: {problem} of row {other} differs", "the other rows move as usual")
        self._check_named(error[row], what, where)
        self._check_error(error[row], what, row, where)
        table, reward = probe.step(probe.request(table, actions[at]))
        if row in (table.get("extra_info", {}).get("error") or {}):
            raise Failed(f"{where}: the legal action after it has an error", "an error is reported for its own action")
        problem = row_difference(straight[at + 1][0], table, row)
        if not problem and reward_of(reward, row) != reward_of(straight[at + 1][1], row):
            problem = "reward"
        if problem:
            raise Failed(f"{where}: {problem} of the row differs in its next frame", "a refused action changes nothing")

    def _check_named(self, error: Unchecked, what: str, where: str) -> None:
        """Check that an error which names a field names the wrong one."""
        named = str(error.get("field", "")).rpartition(".")[2] if isinstance(error, Mapping) else ""
        wrong = what.partition(" ")[0]
        names = self._probe.envs.action.names
        if named in names and wrong in names and named != wrong:
            raise Failed(f"{where}: the error names the field {named!r}", "an error names what is wrong")

    def _check_error(self, error: Unchecked, what: str, row: int, where: str) -> None:
        """Check the code and the message of an error, which are the same in each row."""
        if isinstance(error, str) and not error.strip():
            raise Failed(f"{where}: the error is an empty text", "an error says what is wrong")
        if not isinstance(error, Mapping):
            return
        text = error.get("message", "?")
        if not isinstance(text, str) or not text.strip():
            raise Failed(f"{where}: the error's message is {text!r:.60}", "an error says what is wrong")
        due = next((codes for words, codes in _CODES.items() if words in what), frozenset[str]())
        code = error.get("code")
        if code in STANDARD_CODES and due and code not in due:
            raise Failed(f"{where}: the error's code is {code!r}", f"it is {' or '.join(sorted(due))}")
        number, before = self._errors.setdefault(what, (row, error))
        for key in ("code", "field", "index"):
            if deep_difference(before.get(key), error.get(key), key):
                raise Failed(f"{what}: the error's {key} is {before.get(key)!r} in row {number}, and "
                             f"{error.get(key)!r} in row {row}",
                             "code, field and index are the same in each row")  # fmt: skip

    def _refuse_all(self, actions: list[dict[str, np.ndarray]]) -> None:
        """Make the actions of all rows but one illegal at once."""
        probe = self._probe
        for spared in range(probe.num):
            table = probe.reset()
            before, request = copied_values(table), probe.request(table, dict(actions[0]))
            rows = [row for row in range(probe.num) if row != spared]
            for row in rows:
                ways = list(illegal_rows(probe, row))
                ways[row % len(ways)][1](request)
            after, reward = probe.step(request)
            error = after.get("extra_info", {}).get("error") or {}
            for row in rows:
                told = row in error if isinstance(error, Mapping) else len(error) == probe.num and bool(error[row])
                given = reward_of(reward, row)
                if not told:
                    raise Failed(f"the actions of the rows {rows} were illegal, and row {row} has no error",
                                 "each refused row is reported")  # fmt: skip
                if left_difference(before, after, row, probe.mode) or (
                    any(given.values()) if isinstance(given, dict) else given
                ):
                    raise Failed(f"the actions of the rows {rows} were illegal, and row {row} moved or earned {given}",
                                 "an illegal action is not carried out")  # fmt: skip

    @check("malformed", "a malformed batch raises an error, and no row moves", "6.2.1-6", "equal episodes")
    def malformed(self, probe: VectorProbe) -> None:
        actions = probe.actions(4)
        straight = probe.walk(actions)
        table = probe.reset()
        for number, action in enumerate(actions):
            for what, request in self._broken(probe.request(table, action)):
                try:
                    probe.step(request)
                except Failed:
                    raise
                except Exception:
                    continue
                raise Failed(f"{what} was accepted", "a malformed batch raises IllegalAction, and no row moves")
            table, _ = probe.step(probe.request(table, action))
            check_rows(straight[number + 1][0], table, range(probe.num), "after malformed batches", "they move nobody")

    def _broken(self, request: dict[str, Unchecked]) -> Iterator[tuple[str, object]]:
        yield "a list instead of Table 2", list(request.values())
        for key in request:
            yield f"Table 2 without {key}", {name: value for name, value in request.items() if name != key}
        yield "an unknown key", {**request, "colour": 1}
        yield "env_ids in another order", {**request, "env_id": list(request["env_id"])[::-1]}
        yield "one frame_no for all", {**request, "frame_no": int(request["frame_no"][0])}
        yield "a row short of frame_no", {**request, "frame_no": request["frame_no"][:-1]}
        for name, value in request["action"].items():
            action = request["action"]
            yield f"a row short of {name}", {**request, "action": {**action, name: value[:-1]}}
            yield f"{name} with an extra axis", {**request, "action": {**action, name: value[None]}}
            yield f"one row of {name} for all", {**request, "action": {**action, name: value[:1]}}
            yield f"{name} without the leading axis", {**request, "action": {**action, name: value[0]}}
            yield f"without {name}", {**request, "action": {k: v for k, v in action.items() if k != name}}
            if value.dtype.kind != "U":
                yield f"{name} as text", {**request, "action": {**action, name: value.astype(str)}}
        unknown = {**request["action"], "no_such_field": np.zeros(self._probe.num)}
        yield "an unknown field", {**request, "action": unknown}
