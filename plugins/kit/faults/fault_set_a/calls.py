"""Call subjects by scripts, and write down what they answer, so that two subjects can be compared."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import rlenv_robot as rr

Record = list[Any]
LEAST = 3
"""The seed of the scripts."""


def plain(value: Any, own: Any = None) -> Any:
    """Return a value as plain data that shows types and shapes, with the subject's own ids as ``<own>``."""
    if isinstance(value, np.ndarray) and value.size > 64 and value.dtype.kind != "O":
        return ["array", value.dtype.str, list(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
    if isinstance(value, np.ndarray):
        return ["array", value.dtype.str, list(value.shape), [plain(one, own) for one in value.ravel().tolist()]]
    if isinstance(value, np.generic):
        return ["scalar", value.dtype.str, repr(value.item())]
    if isinstance(value, Mapping):
        return {str(key): plain(one, own) for key, one in value.items()}
    if isinstance(value, list) and value and value == own:
        return "<own>"
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(plain(one, own) for one in value)]
    if isinstance(value, str):
        return "<own>" if value == own else value.replace(own, "<own>") if isinstance(own, str) else value
    return (
        [type(value).__name__, repr(value)] if isinstance(value, int | float | None | bytes) else type(value).__name__
    )


class Caller:
    """Calls one environment, and keeps the record.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self.env, self.record, self.frame, self.over = env, Record(), 0, True
        self.rng = np.random.default_rng(7)
        self.last: Any = None

    def note(self, value: Any) -> None:
        """Write a value down."""
        own = getattr(self.env, "env_id", None)
        self.record.append(plain(value, own))

    def call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Call a function, and write down its answer or the type of what it raises."""
        try:
            answer = function(*args, **keywords)
        except Exception as error:
            self.record.append(f"raised {type(error).__name__}")
            return None
        self.note(answer)
        table = answer[0] if isinstance(answer, tuple) and answer else answer
        if isinstance(table, Mapping):
            self.last = table
            if isinstance(table.get("frame_no"), int | float):
                self.frame = int(table["frame_no"])
            self.over = bool(table.get("terminated")) or bool(table.get("truncated"))
        return answer

    def reset(self, **options: Any) -> Any:
        """Reset, with these options."""
        self.frame, self.over = 0, False
        return self.call(self.env.reset, options)

    def act(self, values: Any = None, extra: Any = None, **heading: Any) -> Any:
        """Step with these values, or with drawn ones."""
        values = self.env.action.sample(self.rng) if values is None else values
        table = {"env_id": self.env.env_id, "frame_no": self.frame, "action": values, **heading}
        return self.call(self.env.step, table) if extra is None else self.call(self.env.step, table, extra)

    def run(self, most: int = 60) -> None:
        """Step until the end."""
        for _ in range(most):
            if self.over or self.record[-1] in ("raised EpisodeError", "raised StopIteration"):
                return
            self.act()


def low(env: Any) -> dict[str, Any]:
    """Return the lowest action."""
    return {
        field.name: np.zeros(field.shape, "<U1") if field.is_text else field.bounds[0].copy() for field in env.action
    }


def high(env: Any) -> dict[str, Any]:
    """Return the highest action; a text has letters of several scripts."""
    return {
        field.name: "\u00e4\u0416\u673a\U0001f916" if field.is_text else field.bounds[1].copy() for field in env.action
    }


def wrong_values(env: Any) -> Iterator[Any]:
    """Yield illegal values of ``action``."""
    right = low(env)
    yield {**right, "boost": 1}
    yield None
    yield 3
    for field in env.action:
        yield {name: value for name, value in right.items() if name != field.name}
        yield {**right, field.name: None}
        if field.is_text:
            yield {**right, field.name: "x" * (field.characters + 1)}
            yield {**right, field.name: b"x"}
            continue
        lowest, highest = field.bounds
        wide = "float64" if field.numpy_dtype.kind == "f" else "int64"
        yield {**right, field.name: highest.astype(wide) + 1}
        yield {**right, field.name: np.zeros((*field.shape, 2), field.dtype)}
        if field.shape:
            yield {**right, field.name: np.array(0, field.dtype)}
            late = lowest.astype(wide)
            late[-1] = highest.astype(wide)[-1] + 1
            yield {**right, field.name: late}
        if field.numpy_dtype.kind == "f":
            yield {**right, field.name: np.full(field.shape, np.nan, field.dtype)}
        else:
            yield {**right, field.name: np.full(field.shape, 0.7).tolist()}


# -- sections of environments -----------------------------------------------------------------------------------------


def _reset(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    caller.reset(seed=LEAST)
    caller.record.append([type(caller.env.env_id).__name__, len(str(caller.env.env_id))])
    caller.env.close()
    return caller.record


def _steps(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    for seed in range(1, 7):
        caller.reset(seed=seed)
        caller.run()
    caller.note(getattr(getattr(caller.env, "description", None), "extra_info", None))
    caller.env.close()
    return caller.record


def _calls(make: Callable[[], Any]) -> Record:
    env, record = make(), Record()
    for arguments in ((), ({},)):
        record.append(_outcome(lambda: env.reset(*arguments)))  # noqa: B023
    record.append(_outcome(lambda: env.reset(options={})))
    for keywords in ({}, {"extra_info": {}}):
        act = {"env_id": env.env_id, "frame_no": 0, "action": low(env)}
        record.append(_outcome(lambda: (env.reset({"seed": LEAST}), env.step(act, **keywords))))  # noqa: B023
        record.append(_outcome(lambda: (env.reset({"seed": LEAST}), env.step(action=act, **keywords))))  # noqa: B023
    env.close()
    return record


def _outcome(call: Callable[[], Any]) -> str:
    try:
        return type(call()).__name__
    except Exception as error:
        return f"raised {type(error).__name__}"


def _borders(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    for values in (low(caller.env), high(caller.env)):
        caller.reset(seed=LEAST)
        for _ in range(4):
            if not caller.over:
                caller.act(copy.deepcopy(values))
    caller.env.close()
    return caller.record


def _refusals(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    for place, wrong in enumerate([*wrong_values(caller.env), high(caller.env)]):
        caller.reset(seed=place)
        caller.act()
        if not caller.over:
            caller.act(wrong)
        caller.run(6)
    for heading in ({"frame_no": 0}, {"frame_no": 9}, {"env_id": "another"}, {"more": 1}):
        caller.reset(seed=LEAST)
        caller.act()
        caller.act(**heading)
        caller.run(6)
    caller.reset(seed=LEAST)
    for table in (None, {"env_id": caller.env.env_id, "frame_no": 0}, {"frame_no": 0, "action": low(caller.env)}):
        caller.call(caller.env.step, table)
    for _ in range(20):  # until the time limit, if refusals count
        caller.act({})
    caller.run()
    caller.env.close()
    return caller.record


def _replay(make: Callable[[], Any], seed: int = LEAST) -> Record:
    caller = Caller(make())
    for most in (2, 60, 60, 5, 60):
        caller.rng = np.random.default_rng(7)
        caller.reset(seed=seed)
        caller.run(most)
    caller.env.close()
    return caller.record


def _zero(make: Callable[[], Any]) -> Record:
    return _replay(make, 0)


def _instances(make: Callable[[], Any]) -> Record:
    one, two = Caller(make()), Caller(make())
    record = [one.env.env_id == two.env.env_id]
    one.reset(seed=LEAST)
    one.act()
    two.reset(seed=LEAST)
    for _ in range(10):
        for caller in (one, two):
            if not caller.over:
                caller.act()
    one.env.close()
    two.reset(seed=LEAST)
    two.act()
    two.env.close()
    return [record, one.record, two.record]


def _order(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    caller.act()
    caller.reset(seed=LEAST)
    caller.run()
    for _ in range(3):
        caller.act()
    caller.call(caller.env.close)
    caller.call(caller.env.reset)
    caller.act()
    caller.call(caller.env.close)
    return caller.record


def _keeping(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    kept = []
    caller.reset(seed=LEAST)
    for number in range(30):
        kept.append((caller.last, plain(caller.last)))
        if caller.over:
            caller.reset(seed=number)
        caller.act()
    record = [plain(table) == before for table, before in kept]
    caller.reset(seed=LEAST)
    for _ in range(5):  # write into what was returned
        for part in (caller.last["observation"], caller.last.get("extra_info", {}).get("agents", {})):
            for value in part.values():
                if isinstance(value, np.ndarray) and value.dtype.kind in "iuf" and value.flags.writeable:
                    value[...] = 0
                if isinstance(value, dict):
                    value.clear()
        if not caller.over:
            caller.act()
    caller.env.close()
    return [record, caller.record]


def _caller(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    options, extra = {"seed": LEAST}, {"log_probability": -1.0}
    caller.call(caller.env.reset, options)
    caller.note(options)
    values = caller.env.action.sample(caller.rng)
    for _ in range(4):
        values.update({name: value.copy() for name, value in caller.env.action.sample(caller.rng).items()})
        before = plain(values)
        caller.act(values, extra)
        caller.record += [plain(values) == before, plain(extra)]
        for value in values.values():
            if value.dtype.kind in "iuf":
                value[...] = 0
        if caller.over:
            break
    caller.env.close()
    return caller.record


def _render(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    shown: list[Any] = []
    caller.reset(seed=LEAST)
    options = ({"mode": "call", "to": shown.append},) if isinstance(caller.env, rr.Environment) else ()
    kept = []
    for _ in range(5):
        if not caller.over:
            caller.call(caller.env.render, *options)
            kept += [plain(table, caller.env.env_id) for table in shown[len(kept) :]]
            caller.act()
    caller.env.close()
    return [caller.record, kept, [plain(table, caller.env.env_id) for table in shown] == kept]


def _options(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    for options in ({"bogus": 1}, {"level": 0.7}, {"level": 99.0}, {"seed": "x"}, {"seed": -1}, "text", None):
        caller.call(caller.env.reset, options if not isinstance(options, dict) else {"seed": LEAST, **options})
        caller.reset(seed=LEAST)
    caller.env.close()
    return caller.record


def _extra(make: Callable[[], Any]) -> Record:
    caller = Caller(make())
    caller.reset(seed=LEAST)
    for extra in ({"bogus": 1}, {"rain": 5.0}, {"log_probability": "x"}, {"answers": 99}, {"rain": 0.05}, {}):
        caller.act(None, extra)
    caller.env.close()
    return caller.record


ENVIRONMENT: Mapping[str, Callable[[Callable[[], Any]], Record]] = {
    "reset": _reset, "steps": _steps, "calls": _calls, "borders": _borders, "refusals": _refusals, "replay": _replay,
    "zero": _zero, "instances": _instances, "order": _order, "keeping": _keeping, "caller": _caller, "render": _render,
    "options": _options, "extra": _extra,
}  # fmt: skip
"""Section -> the script of calls that it makes."""
