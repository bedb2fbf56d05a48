"""Call batches by scripts, and write down what they answer, so that two batches can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fault_set_a.calls import LEAST, Record, plain
from rlenv_robot import Violation

Make = Callable[[int], Any]


class BatchCaller:
    """Calls one batch, and keeps the record.

    Args:
        envs: the batch.
    """

    def __init__(self, envs: Any) -> None:
        self.envs, self.record = envs, Record()
        self.rng = np.random.default_rng(7)
        self.frame = np.zeros(envs.num_envs, np.int32)
        self.flags = np.zeros(envs.num_envs, bool)
        self.last: Any = None

    def call(self, function: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        """Call a function, and write down its answer or the type of what it raises."""
        try:
            answer = function(*args, **keywords)
        except Exception as error:
            self.record.append(f"raised {type(error).__name__}")
            return None
        self.record.append(plain(answer, self.envs.env_ids))
        table = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(table, Mapping):
            self.last = table
            self.frame = np.array(table["frame_no"]).astype(np.int32)
            self.flags = (np.asarray(table["terminated"]) > 0) | (np.asarray(table["truncated"]) > 0)
        return answer

    def reset(self, **options: Any) -> Any:
        """Reset, with these options."""
        return self.call(self.envs.reset, options)

    def values(self) -> dict[str, np.ndarray]:
        """Draw legal actions, a row at a time, so that they do not depend on the number of rows."""
        seed = int(self.rng.integers(2**31))
        rows = [self.envs.action.sample(np.random.default_rng([seed, row])) for row in range(self.envs.num_envs)]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def act(self, change: Callable[[dict[str, Any]], None] | None = None, *args: Any, **keywords: Any) -> Any:
        """Step with drawn actions, after a change of the table."""
        table = {"env_id": self.envs.env_ids, "frame_no": self.frame.copy(), "action": self.values()}
        if change is not None:
            change(table)
        return self.call(self.envs.step, table, *args, **keywords)

    def full(self) -> None:
        """Step with the highest actions."""
        self.act(lambda table: [value.fill(1) for value in table["action"].values()] and None)


def _reset(make: Make) -> Record:
    caller = BatchCaller(make(3))
    caller.reset(seed=LEAST)
    ids = caller.envs.env_ids
    caller.record.append([len(ids), len(set(ids)), [type(one).__name__ for one in ids]])
    caller.envs.close()
    return caller.record


def _steps(make: Make) -> Record:
    caller = BatchCaller(make(3))
    kept = []
    caller.reset(seed=LEAST)
    for _ in range(30):
        kept.append((caller.last, plain(caller.last)))
        caller.act()
    caller.record.append([plain(table) == before for table, before in kept])
    caller.envs.close()
    return caller.record


def _one(make: Make) -> Record:
    caller = BatchCaller(make(1))
    caller.reset(seed=LEAST)
    for _ in range(5):
        caller.act()
    caller.envs.close()
    return caller.record


def _numbers(make: Make) -> Record:
    record = Record()
    for num in (2, 5):
        caller = BatchCaller(make(num))
        caller.reset(seed=LEAST)
        for _ in range(4):
            caller.act()
        caller.envs.close()
        record.append(caller.record)
    return record


def _seeds(make: Make) -> Record:
    caller = BatchCaller(make(3))
    for seed in (LEAST, LEAST, 0, 0, 5):
        caller.rng = np.random.default_rng(7)
        caller.reset(seed=seed)
        for _ in range(3):
            caller.act()
    caller.envs.close()
    return caller.record


def _spoil(row: int, value: float) -> Callable[[dict[str, Any]], None]:
    def change(table: dict[str, Any]) -> None:
        for array in table["action"].values():
            if array.dtype.kind == ("f" if np.isnan(value) else array.dtype.kind):
                array[row] = value

    return change


def _refusals(make: Make) -> Record:
    caller = BatchCaller(make(4))
    stale = lambda table: table["frame_no"].__setitem__(1, 77)  # noqa: E731
    both = lambda table: [_spoil(row, 9)(table) for row in (1, 3)] and None  # noqa: E731
    for change in (_spoil(2, 1.5), _spoil(1, 9), _spoil(2, np.nan), stale, both):
        caller.reset(seed=LEAST)
        caller.act()
        caller.act(change)
        for _ in range(3):
            caller.act()
    caller.act(refused={2: Violation("own", "action", (), "refused by an adapter")})
    caller.act()
    caller.envs.close()
    return caller.record


def _malformed(make: Make) -> Record:
    caller = BatchCaller(make(3))
    for change in (
        lambda table: table.pop("action"),
        lambda table: table.update(env_id=["a", "b", "c"]),
        lambda table: table.update(frame_no=table["frame_no"][:1]),
        lambda table: table.update(action={name: value[:1] for name, value in table["action"].items()}),
        lambda table: table["action"].update(more=np.zeros(3)),
    ):
        caller.reset(seed=LEAST)
        caller.act(change)
        caller.act()
    caller.reset(seed=LEAST)
    caller.act(None, {"bogus": np.zeros(3)})
    caller.act()
    caller.envs.close()
    return caller.record


def _partial(make: Make) -> Record:
    caller = BatchCaller(make(4))
    caller.reset(seed=LEAST)
    for _ in range(14):
        caller.act()
    for ids in ([1], [0, 2], [], [-1], [2, 1], [4]):
        caller.reset(ids=ids)
        caller.act()
    caller.envs.close()
    return caller.record


def _order(make: Make) -> Record:
    caller = BatchCaller(make(3))
    caller.act()
    caller.reset(ids=[1])
    caller.act()
    caller.reset(seed=LEAST)
    caller.act()
    caller.call(caller.envs.close)
    caller.call(caller.envs.close)
    return caller.record


def _ends(make: Make) -> Record:
    caller = BatchCaller(make(3))
    caller.reset(seed=LEAST)
    for place in range(40):
        if place % 3:
            caller.full()
        else:
            caller.act()
    if caller.flags.any():
        caller.reset(ids=np.flatnonzero(caller.flags).tolist())
        caller.act()
    if caller.envs.autoreset == "next_step":  # illegal actions while a row waits
        for _ in range(14):
            caller.act(_spoil(int(np.argmax(caller.flags)), 9) if caller.flags.any() else None)
    caller.envs.close()
    return caller.record


def _caller(make: Make) -> Record:
    caller = BatchCaller(make(3))
    caller.reset(seed=LEAST)
    for _ in range(3):
        values = caller.values()
        before = plain(values)
        caller.act(lambda table: table.update(action=values))  # noqa: B023
        caller.record.append(plain(values) == before)
    caller.envs.close()
    return caller.record


VECTOR: Mapping[str, Callable[[Make], Record]] = {
    "reset": _reset, "steps": _steps, "rows": _steps, "one": _one, "numbers": _numbers, "seeds": _seeds,
    "refusals": _refusals, "malformed": _malformed, "partial": _partial, "order": _order, "ends": _ends,
    "caller": _caller,
}  # fmt: skip
"""Section -> the script of calls that it makes."""
