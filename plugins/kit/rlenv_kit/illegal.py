"""Generate illegal actions of every kind from an action's spec, and check their refusals (R4.3, R1.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hal import Field, Spec
from rlenv_kit.probe import Frame, Probe, Table, error_of, frame_of, is_over, refused_entry
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import STANDARD_CODES, Noter, check_observation, difference, elements_of

__all__ = ["IllegalCase", "check_refusal", "illegal_tables", "illegal_values", "refusal_checks"]

_MOST_ELEMENTS = 64
"""Elements of a field that are all made illegal one by one; of a larger field, as many spread over it."""

Values = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class IllegalCase:
    """An illegal value to send, and what its refusal must contain.

    Attributes:
        name: a few words for the report.
        value: the value to send.
        code: the code of the refusal, as in `hal.Violation`.
        field: dotted name of the wrong field, as in `hal.Violation`.
        index: the index of the wrong element, as in `hal.Violation`.
        others: the correct fields of the structure.
    """

    name: str
    value: Any
    code: str
    field: str
    index: tuple[int, ...] = ()
    others: tuple[str, ...] = ()


def illegal_tables(spec: Spec, legal: Values, env_id: str, frame_no: int) -> Iterator[IllegalCase]:
    """Yield illegal forms of Table 2.

    Args:
        spec: the spec of the action.
        legal: an action that is legal now.
        env_id: the environment id of a legal table.
        frame_no: the frame number of a legal table.
    """
    table = {"env_id": env_id, "frame_no": frame_no, "action": legal}
    yield IllegalCase("None instead of a mapping", None, "dtype", "")
    yield IllegalCase("a list instead of a mapping", [env_id, frame_no, legal], "dtype", "")
    for key in table:
        rest = {name: value for name, value in table.items() if name != key}
        yield IllegalCase(f"without {key}", rest, "missing", key)
    yield IllegalCase("with an unknown key", {**table, "colour": 1}, "unknown", "colour")
    ids = ("", env_id + "x", f" {env_id} ", env_id.swapcase(), env_id.encode(errors="replace"), [env_id], 7, None)
    for other_id in (one for one in ids if one != env_id):
        yield IllegalCase(f"env_id {other_id!r}", {**table, "env_id": other_id}, "env_id", "env_id")
    stale: tuple[object, ...] = (frame_no - 1, frame_no + 1, str(frame_no), frame_no + 0.5, None, [frame_no] * 2)
    stale = (*stale, int(frame_no) + 2**32, int(frame_no) - 2**32)  # equal in 32 bits
    stale = (*stale, *((True,) if frame_no != 1 else ()))  # True equals 1 in Python
    for wrong in (*stale, np.full(2, frame_no)):
        yield IllegalCase(f"frame_no {wrong!r}", {**table, "frame_no": wrong}, "frame_no", "frame_no")
    for case in illegal_values(spec, legal, "action"):
        yield IllegalCase(case.name, {**table, "action": case.value}, case.code, case.field, case.index, case.others)


def illegal_values(spec: Spec, legal: Values, where: str) -> Iterator[IllegalCase]:
    """Yield illegal forms of a structure.

    Args:
        spec: the spec of the structure.
        legal: a legal structure.
        where: the name of the structure in messages (``action`` or ``command``).
    """
    yield IllegalCase(f"{where} None", None, "dtype", where)
    yield IllegalCase(f"{where} a list", list(legal.values()), "dtype", where)
    yield IllegalCase("an unknown field", {**legal, "no_such_field": 0.0}, "unknown", f"{where}.no_such_field")
    for field in spec:
        rest = {name: value for name, value in legal.items() if name != field.name}
        dotted = f"{where}.{field.name}"
        others = tuple(name for name in spec.names if name != field.name)
        yield IllegalCase(f"{field.name} missing", rest, "missing", dotted, (), others)
        for problem, value, code, index in _illegal_arrays(field, np.asarray(legal[field.name])):
            yield IllegalCase(f"{field.name} {problem}", {**legal, field.name: value}, code, dotted, index, others)


def _illegal_arrays(field: Field, legal: np.ndarray) -> Iterator[tuple[str, object, str, tuple[int, ...]]]:
    if field.is_text:
        yield from _illegal_texts(field, legal)
        return
    yield "with an extra axis", legal[None], "shape", ()
    if field.shape:
        yield "as one number", legal.ravel()[0], "shape", ()
        yield "one element short", legal[..., :-1], "shape", ()
        yield "one element long", np.concatenate([legal, legal[..., -1:]], axis=-1), "shape", ()
        yield "ragged", [[0.0], [0.0, 0.0]], "shape", ()
    yield "None", None, "dtype", ()
    yield "a word", "far", "dtype", ()
    yield "as text", legal.astype(str).tolist(), "dtype", ()
    yield "in a mapping", {"value": legal}, "dtype", ()
    yield "a number of 401 digits", np.full(field.shape, 10**400, object).tolist(), "dtype", ()
    yield "complex", legal.astype(complex), "dtype", ()
    yield "true or false", np.ones(field.shape, bool), "dtype", ()
    if field.numpy_dtype.kind != "f":
        yield "with a fraction", legal + 0.5, "dtype", ()
    yield from _illegal_numbers(field, legal)


def _illegal_texts(field: Field, legal: np.ndarray) -> Iterator[tuple[str, object, str, tuple[int, ...]]]:
    yield "with an extra axis", legal[None], "shape", ()
    first = (0,) * len(field.shape)
    for problem, text, code in (
        ("too long", "x" * (field.characters + 1), "range"),
        ("with a zero character", "\0x"[: field.characters + 1], "range"),
        ("half a surrogate pair", "\ud800", "range"),
        ("None", None, "dtype"),
        ("a number", 1.5, "dtype"),
        ("bytes", b"x", "dtype"),
    ):
        value = np.array(legal, object)
        value[first] = text
        yield problem, value.tolist(), code, first


def _illegal_numbers(field: Field, legal: np.ndarray) -> Iterator[tuple[str, object, str, tuple[int, ...]]]:
    for index in elements_of(field, _MOST_ELEMENTS):
        for problem, number, code in _numbers_outside(field, index):
            value = np.array(legal, legal.dtype if field.numpy_dtype.kind == "f" else object)
            value[index] = number
            if field.numpy_dtype.kind != "f":
                value = np.array(value.tolist())  # as Python's integers arrive: int64, or wider
            yield f"{problem} at {list(index)}" if index else problem, value, code, index


def _numbers_outside(field: Field, index: tuple[int, ...]) -> Iterator[tuple[str, ArrayLike, str]]:
    low, high = (bound[index] for bound in field.bounds)
    if field.numpy_dtype.kind != "f":
        # At the limits of int64 there is no number beyond to send.
        if int(low) > np.iinfo(np.int64).min:
            yield "one below the range", int(low) - 1, "range"
        if int(high) < np.iinfo(np.int64).max:
            yield "one above the range", int(high) + 1, "range"
        bits = 8 * field.numpy_dtype.itemsize
        if bits < 64:
            yield f"a number that {bits} bits make legal", int(low) + 2**bits, "range"
        return
    yield "not a number", np.nan, "not_finite"
    yield "infinite", np.inf, "not_finite"
    yield "minus infinite", -np.inf, "not_finite"
    limits = np.finfo(field.dtype)
    with np.errstate(over="ignore"):
        if low > limits.min:
            yield "just below the range", np.nextafter(low, low.dtype.type(-np.inf)), "range"
            yield "far below the range", _within(low - 1000 * max(1.0, abs(float(low))), limits), "range"
        if high < limits.max:
            yield "just above the range", np.nextafter(high, high.dtype.type(np.inf)), "range"
            yield "far above the range", _within(high + 1000 * max(1.0, abs(float(high))), limits), "range"


def _within(number: float, limits: np.finfo) -> float:
    return min(max(float(number), float(limits.min)), float(limits.max))


# -- The answer to an illegal action (R1.2) --------------------------------------------------------------------

_ERROR_KEYS = {"code", "field", "index", "message"}


def check_refusal(
    case: IllegalCase, answer: tuple[Table, Table], before: Frame, note: Noter, exact: bool = False
) -> None:
    """Check that the answer repeats the frame, with reward 0 and an error.

    An error that is text, or a mapping of any form, is allowed with a note; but if it names a field or an element, that
    must be the wrong one.

    Args:
        case: the case that was sent.
        answer: Tables 1 and 3, as `step` returned them.
        before: the frame before the case was sent.
        note: takes remarks.
        exact: whether the error must have the form that this project's protocol pages specify.

    Raises:
        Failed: the answer is wrong.
    """
    table, reward = answer
    _check_same_frame(table, before)
    extra = table.get("extra_info", {})
    error = extra.get("error") if isinstance(extra, Mapping) else None
    if not error:
        raise Failed(f"extra_info['error'] is {error!r}", "it must say what is wrong with the action")
    _check_no_reward(reward["reward"], before.kept_reward)
    _check_error(case, error, note, exact)


def _check_no_reward(reward: Any, usual: Any) -> None:
    """Check that a refused action earns 0, of the same agents as a frame."""
    if isinstance(reward, Mapping) != isinstance(usual, Mapping):
        one, each = "a number", "a mapping by agent"
        raise Failed(
            f"reward is {reward!r:.80}", f"it is {each if isinstance(usual, Mapping) else one} in other tables"
        )
    if isinstance(reward, Mapping) and reward.keys() != usual.keys():
        raise Failed(f"reward is of the agents {sorted(map(str, reward))}", f"frames have {sorted(map(str, usual))}")
    if any(number != 0 for number in (reward.values() if isinstance(reward, Mapping) else [reward])):
        raise Failed(f"reward is {reward}", "it must be 0")


def _check_same_frame(table: Table, before: Frame) -> None:
    for key in ("env_id", "frame_no", "terminated", "truncated"):
        if key not in table or table[key] != before.kept[key]:
            raise Failed(f"{key} is {table.get(key)!r}, it was {before.kept[key]!r}: was the action executed?")
    name = difference(before.observation, table["observation"])
    if name:
        raise Failed(f"observation {name} changed: was the action executed?")
    key = refused_entry(before.kept.get("extra_info", {}), table.get("extra_info", {}))
    if key:
        raise Failed(f"extra_info[{key!r}] of the refusal differs from that of the frame before",
                     "nothing is carried out, and no message is sent")  # fmt: skip


def _check_error(case: IllegalCase, error: object, note: Noter, exact: bool) -> None:
    if isinstance(error, str):
        if not error.strip():
            raise Failed("the error is an empty text", "it must say what is wrong with the action")
        note("contract", "extra_info['error'] is a text; programs can't read code, field and index from it")
        return
    if not isinstance(error, Mapping):
        note(
            "contract",
            f"extra_info['error'] is a {type(error).__name__}, not a mapping with code, field, index, message",
        )
        return
    if not {"code", "field"} <= error.keys():
        if not any(isinstance(value, str) and value.strip() for value in error.values()):
            raise Failed(f"extra_info['error'] is {error!r:.120}", "it must say what is wrong with the action")
        note("contract", f"extra_info['error'] has the keys {sorted(map(str, error))}, not code, field, index, message")
        return
    if exact and error.keys() != _ERROR_KEYS:
        raise Failed(f"extra_info['error'] has the keys {sorted(map(str, error))}",
                     f"it must have {', '.join(sorted(_ERROR_KEYS))}")  # fmt: skip
    index = error.get("index")
    place = list(index) if isinstance(index, tuple | list | np.ndarray) else index
    named, wrong = str(error["field"]).rpartition(".")[2], case.field.rpartition(".")[2]
    if place and case.index and named == wrong and place != list(case.index):
        raise Failed(f"the index of the error is {place}, the wrong element is {list(case.index)}",
                     "an error names what is wrong")  # fmt: skip
    if named != wrong and named in case.others:
        raise Failed(f"the error names the field {named!r}, wrong is {wrong!r}", "an error names what is wrong")
    has_message = isinstance(error.get("message"), str) and bool(error["message"].strip())
    came, due = (error["code"], error["field"], place), (case.code, case.field, list(case.index))
    if exact and error["code"] in STANDARD_CODES and (came != due or not has_message):
        found = f"code, field and index of the error are {came}" if came != due else "the error has no message"
        raise Failed(found, f"the protocol page promises {due} and a message")
    if error.keys() != _ERROR_KEYS or came != due or not has_message:
        note("contract", "errors have another form: keys, code, field or index are not those of this project")


# -- The checks -------------------------------------------------------------------------------------------------

_FRAMES = 12
"""Frames of an episode at which illegal actions are tried."""


def refusal_checks(probe: Probe) -> list[PlannedCheck]:
    """Return the checks of illegal actions."""
    return declared(vars(_Refusals), _Refusals(probe), probe)


class _Refusals:
    """Send illegal tables to running episodes."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._exact = hasattr(probe.env, "world")  # this project's Environment, with a protocol page

    @check("error passes", "an error is reported for its own action only", "6.2.3.1-7", "frames")
    def passes(self, probe: Probe) -> None:
        """Check that the error of an illegal action is in no later table; how it is refused, other checks look at."""
        before = self._begin()
        try:
            refused, _ = probe.step({"env_id": probe.env.env_id, "frame_no": before.kept["frame_no"]})
        except Exception:
            return
        if is_over(refused) or refused["frame_no"] != before.kept["frame_no"]:
            return
        answer, _ = probe.send(refused, {name: np.array(value) for name, value in before.action.items()})
        if answer["frame_no"] != refused["frame_no"] and error_of(answer) is not None:
            raise Failed("a legal action after an illegal one was carried out, and its table has an error",
                         "an error is reported for its own action")  # fmt: skip
        if not is_over(answer) and error_of(probe.reset()) is not None:
            raise Failed("the first table of an episode has the error of the one before", "an error is reported once")

    def _begin(self) -> Frame:
        """Begin an episode, and take one legal step if that does not end it, so that frame 0 is stale."""
        frames = self._probe.walk(1)
        if frames and is_over(frames[-1].kept):
            frames = [frame_of(frames[-1].action, self._probe.reset(), frames[-1].reward)]
        if not frames or is_over(frames[-1].kept):
            raise NotTried("an episode is over with its first frame")
        return frames[-1]

    def _cases(self, frame: Frame) -> list[IllegalCase]:
        env = self._probe.env
        return list(illegal_tables(env.action, frame.action, env.env_id, frame.kept["frame_no"]))

    @check(
        "refusals",
        "every kind of illegal action is refused, and the refusal says why",
        "6.2.1-7 6.2.3.1-7",
        "agents",
        "equal starts",
        "error passes",
    )
    def every_kind(self, probe: Probe) -> None:
        """Check each kind once, in an episode that no failed case has disturbed."""
        problems, how = [], ""
        frame = self._begin()
        cases = self._cases(frame)
        for case in cases:
            try:
                answer = probe.step(case.value)
                check_refusal(case, answer, frame, probe.note, self._exact)
                check_observation(answer[0], probe.env.observation)
            except Failed as finding:
                problems.append(f"{case.name}: {finding}")
            except Exception as error:
                problems.append(f"{case.name}: step raised {type(error).__name__} ({error}), "
                                "it must return the frame with extra_info['error']")  # fmt: skip
            else:
                continue
            how = how or probe.log.how()
            frame = self._begin()
        _raise(problems, len(cases), how)

    @check(
        "refusals late",
        "illegal actions are refused in every element, at every frame",
        "6.2.1-7",
        "equal episodes",
        "refusals",
    )
    def at_frames(self, probe: Probe) -> None:
        """Check values out of range, each at another frame, up to the end of an episode."""
        problems, how, tried = [], "", 0
        end = probe.clock() + 10.0
        rng = np.random.default_rng(probe.seed)
        frames = probe.walk()
        marks = set(np.unique(np.linspace(0, len(frames) - 1, _FRAMES).astype(int)).tolist())
        table = probe.reset()
        for number, frame in enumerate(frames):
            if number in marks and probe.clock() < end:
                cases = list(illegal_tables(probe.env.action, frame.action, probe.env.env_id, table["frame_no"]))
                before = frame_of(frame.action, table, {"reward": frame.kept_reward})
                for index in rng.permutation(len(cases))[:16]:
                    case, tried = cases[index], tried + 1
                    try:
                        check_refusal(case, probe.step(case.value), before, probe.note, self._exact)
                    except Failed as finding:
                        problems.append(f"frame {number}, {case.name}: {finding}")
                        how = how or probe.log.how()
                        break
            if problems:
                break
            table, _ = probe.send(table, frame.action)
        _raise(problems, tried, how)

    @check(
        "refusals change nothing",
        "illegal actions change nothing, and no hidden clock advances",
        "6.2.1-6",
        "clock",
        "refusals late",
    )
    def change_nothing(self, probe: Probe) -> None:
        """Compare an episode with one that illegal actions disturb, up to its end."""
        first, count = probe.walk(_LATE), [0]

        def disturb(table: Table) -> None:
            number = count[0]
            count[0] += 1
            cases = list(illegal_tables(probe.env.action, first[min(number, len(first) - 1)].action,
                                        probe.env.env_id, table["frame_no"]))  # fmt: skip
            for case in cases if number < 2 else cases[number % 7 :: max(1, len(cases) // 4)]:
                probe.step(case.value)

        probe.compare(first, probe.repeat(first, disturb), "after illegal actions before each frame")


_LATE = 400
"""Frames of an episode that illegal actions disturb."""


def _raise(problems: Sequence[str], tried: int, how: str) -> None:
    if problems:
        more = f" (and {len(problems) - 1} more of {tried} illegal actions)" if len(problems) > 1 else ""
        raise Failed(problems[0] + more, how=how)
