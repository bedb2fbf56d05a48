"""Scripts of calls whose answers tell a faulty batch from the correct one."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from fault_set_c.scripts import Script, called, guarded, plain, table_of

ROWS = 4


class Driver:
    """Play legal actions in all rows, and keep what was answered."""

    def __init__(self, envs, log: list[Any], seed: int = 0) -> None:
        self.envs, self.log, self.rng, self.seen = envs, log, np.random.default_rng(seed), {}

    def reset(self, *options):
        answer = self.envs.reset(*options)
        self.seen = table_of(answer)
        self.log.append(plain(answer, self.envs))
        return answer

    def action(self, **fixed) -> dict[str, Any]:
        num = self.envs.num_envs
        values = {name: np.array(value) for name, value in self.envs.action.sample(self.rng, (num,)).items()}
        for name, mask in self.seen["extra_info"].get("action_mask", {}).items():
            values[name] = np.array([self.rng.choice(np.flatnonzero(row)) for row in mask], np.int32)
        values |= {name: np.array(value) for name, value in fixed.items()}
        return {"env_id": self.seen["env_id"], "frame_no": np.array(self.seen["frame_no"]), "action": values}

    def step(self, action=None, *extra):
        answer = self.envs.step(self.action() if action is None else action, *extra)
        if isinstance(answer[0], dict) and "frame_no" in answer[0]:
            self.seen = answer[0]
        self.log.append(plain(answer, self.envs))
        return answer

    def over(self) -> np.ndarray:
        return np.flatnonzero(np.asarray(self.seen["terminated"]) | np.asarray(self.seen["truncated"]))


@guarded
def episodes(envs, log: list[Any]) -> None:
    """Play through the ends of episodes, and the same seed again."""
    for number, options in enumerate(({"seed": 3}, {"seed": 3}, {"seed": 11})):
        driver = Driver(envs, log, number)
        driver.reset(options)
        for _ in range(14):
            driver.step()
            if envs.autoreset == "disabled" and len(driver.over()) > 2:
                driver.reset({"ids": driver.over()})


@guarded
def some_rows(envs, log: list[Any]) -> None:
    """Reset some rows in the middle of episodes, with right and wrong numbers."""
    log.append(called(envs, lambda: envs.reset({"ids": [0]})))
    driver = Driver(envs, log)
    driver.reset({"seed": 5})
    for ids in ([1], [0, 3]):
        driver.step()
        driver.reset({"ids": ids})
    for wrong in ({"ids": [-1]}, {"ids": [ROWS]}, {"ids": [1, 0]}, {"unknown": 1}, {"seed": -2}):
        log.append(called(envs, lambda wrong=wrong: envs.reset(wrong)))
    for _ in range(9):
        driver.step()


@guarded
def refusals(envs, log: list[Any]) -> None:
    """Send illegal rows beside legal ones, and malformed batches."""
    driver = Driver(envs, log)
    driver.reset({"seed": 2})
    first = next(iter(envs.action))
    for rows in ([1], [0, 2], [3]):
        action = driver.action()
        value = action["action"][first.name]
        if first.is_text:
            value = value.astype("<U20")
        value[rows] = "x" * 20 if first.is_text else 99
        wrong = {**action, "action": {**action["action"], first.name: value}}
        log.append(called(envs, lambda wrong=wrong: driver.step(wrong)))
    action = driver.action()
    late = np.array(action["frame_no"])
    late[1] -= 1
    one = action["action"][first.name][0]
    for wrong in (
        {**action, "frame_no": late}, {**action, "env_id": ["a"] * ROWS}, {**action, "action": {}}, 7,
        {name: action[name] for name in ("env_id", "frame_no")}, {**action, "more": 1},
        {**action, "action": {**action["action"], first.name: np.array(one)}},
    ):  # fmt: skip
        if isinstance(wrong, dict) and "frame_no" in wrong and wrong["frame_no"] is not late:
            wrong["frame_no"] = np.array(driver.seen["frame_no"])
        log.append(called(envs, lambda wrong=wrong: driver.step(wrong)))
    for _ in range(12):  # illegal after the ends of episodes alone
        action = driver.action()
        value = action["action"][first.name].astype("<U20" if first.is_text else action["action"][first.name].dtype)
        value[driver.over()] = "x" * 20 if first.is_text else 99
        driver.step({**action, "action": {**action["action"], first.name: value}})


@guarded
def extra(envs, log: list[Any]) -> None:
    """Give each row another value beside its action."""
    driver = Driver(envs, log)
    driver.reset({"seed": 6})
    fields = getattr(getattr(envs, "step_extra", None), "fields", ())
    given = {one.name: np.linspace(one.bounds[0], one.bounds[1], ROWS).astype(one.dtype) for one in fields}
    for values in (given, {}, {"unknown": 1}):
        log.append(called(envs, lambda values=values: driver.step(None, values)))


@guarded
def tables(envs, log: list[Any]) -> None:
    """Keep tables and actions, and see whether later calls change them."""
    driver = Driver(envs, [])
    answer = driver.reset({"seed": 4})
    shown = [(answer, copy.deepcopy(answer))]
    for _ in range(11):
        action = driver.action()
        before = plain(action)
        answer = driver.step(action)
        shown.append((answer, copy.deepcopy(answer)))
        log.append(before == plain(action))
    log += [plain(one) == plain(kept) for one, kept in shown]


@guarded
def order(envs, log: list[Any]) -> None:
    """Step before a reset, and close twice."""
    values = envs.action.sample(np.random.default_rng(0), (ROWS,))
    action = {"env_id": envs.env_ids, "frame_no": np.zeros(ROWS, int), "action": values}
    log.append(called(envs, lambda: envs.step(action)))
    Driver(envs, log).reset({"seed": 1})
    log += [called(envs, envs.close), called(envs, envs.close)]


def instances(make: Callable[[], Any]) -> list[Any]:
    """Make two batches, and compare the names of their rows."""
    one, other = make(), make()
    log: list[Any] = [len(set(one.env_ids)), len(set(one.env_ids) & set(other.env_ids)), plain(one.env_ids, one)]
    for envs in (one, other):
        with contextlib.suppress(Exception):
            envs.close()
    return log


BATCH_SCRIPTS: tuple[Script, ...] = (episodes, some_rows, refusals, extra, tables, order, instances)
