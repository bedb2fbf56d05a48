"""A batch that owes nothing to `rr.VectorEnvironment`: it checks, counts, refuses, and begins episodes anew."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

import rlenv_robot as rr
from rlenv_robot.tables import StepExtra, check_options
from rlenv_robot.tasks.agents import map_reward
from rlenv_robot.tasks.episode_rules import check_seed, random_seed
from rlenv_robot.vector.validate import check_batch, check_extra, check_ids
from rlenv_robot.world import NOTHING

Values = dict[str, np.ndarray]
SEED = "whole number from 0: restarts the episodes of all rows"


class Batch:
    """N rows, each with a generator of its own for each episode; a subclass has the simulators."""

    part = "vector"
    style: ClassVar[str]
    original: ClassVar[Any]
    observation: ClassVar[rr.Spec]
    action: ClassVar[rr.Spec]
    description: ClassVar[rr.EnvDescription]
    step_extra: ClassVar[StepExtra] = StepExtra()
    agents: ClassVar[tuple[rr.Agent, ...]] = ()
    arrays = "numpy"
    mode = "training"
    autoreset = "same_step"
    steps = 10

    def __init__(self, num: int) -> None:
        self.num_envs = num
        self.env_ids = self.name_rows()
        self.seed, self.began, self.closed = random_seed(), False, False
        self.episodes, self.frame = np.zeros(num, np.int64), np.zeros(num, np.int32)
        self.rngs = [np.random.default_rng() for _ in range(num)]
        self.over = np.ones(num, bool)
        self.terminated, self.truncated = np.zeros(num, bool), np.zeros(num, bool)
        self.build()

    @classmethod
    def make(cls, num_envs: int):
        return cls(num_envs)

    def name_rows(self) -> list[str]:
        return [uuid.uuid4().hex for _ in range(self.num_envs)]

    # -- the interfaces

    def reset(self, options: Mapping[str, Any] = NOTHING):
        if self.closed:
            raise rr.EpisodeError("reset after close: make new environments")
        check_options(options, "reset", '{"seed": 7}', ("ids", "seed"))
        rows = np.arange(self.num_envs) if options.get("ids") is None else self.ids(options["ids"])
        if options.get("ids") is not None and not self.began:
            raise rr.EpisodeError("reset of some before a reset of all: call reset without ids first")
        if options.get("seed") is not None:
            self.take_seed(check_seed(options["seed"]))
        self.began = True
        self.terminated, self.truncated = self.terminated & self.over, self.truncated & self.over
        self.begin(rows)
        return self.table(self.info())

    def step(self, action, extra_info: Mapping[str, Any] = NOTHING):
        if not self.began:
            raise rr.EpisodeError("step before reset: call reset first")
        waiting = self.over.copy() if self.autoreset == "next_step" else np.zeros(self.num_envs, bool)
        values, errors = self.read(action, self.over & ~waiting, waiting)
        extra, wrong = check_extra(self.step_extra, extra_info, self.num_envs, waiting)
        errors = {**wrong, **errors}
        for row in range(self.num_envs):
            if row not in errors and not waiting[row] and (refused := self.rule(row, values)) is not None:
                errors[row] = refused.to_dict()
        moved = ~waiting
        moved[list(errors)] = False
        reward = map_reward(self.advance(values, extra, moved), lambda value: np.where(moved, value, 0.0))
        self.frame = self.frame + moved.astype(np.int32)
        ended, late = (flags & moved for flags in self.ends())
        self.terminated, self.truncated = self.flags(ended, late & ~ended, moved)
        info = self.close_rows(ended | late, waiting)
        info = {**self.info(values, moved), **info, **self.reported(errors)}
        return self.table(info), self.paid(reward)

    def close(self) -> None:
        self.began, self.closed = False, True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- parts, which a fault overrides

    def ids(self, ids) -> np.ndarray:
        return check_ids(ids, self.num_envs)

    def take_seed(self, seed: int) -> None:
        self.seed = seed
        self.episodes[:] = 0

    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        return check_batch(self.action, action, self.env_ids, self.frame, over, waiting)

    def rule(self, row: int, values: Values) -> rr.Violation | None:
        """Return what the rules of a row's simulator forbid in its action."""

    def begin(self, rows: np.ndarray) -> None:
        for row in rows.tolist():
            self.rngs[row] = self.generator(row)
            self.episodes[row] += 1
            self.start(row)
        self.frame[rows] = 0
        self.over[rows] = self.terminated[rows] = self.truncated[rows] = False

    def generator(self, row: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, row, int(self.episodes[row])])

    def flags(self, ended: np.ndarray, late: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kept = self.over if self.autoreset == "disabled" else np.zeros_like(self.over)
        return ended | (self.terminated & kept), late | (self.truncated & kept)

    def close_rows(self, done: np.ndarray, waiting: np.ndarray) -> dict[str, Any]:
        rows = np.flatnonzero(done)
        info = {"final": self.final(rows)} if len(rows) else {}
        self.over = self.over | done
        fresh = done if self.autoreset == "same_step" else waiting
        flags = self.terminated.copy(), self.truncated.copy()
        if fresh.any():
            self.begin(np.flatnonzero(fresh))
        self.terminated, self.truncated = flags  # those of the step, also of rows that have begun anew
        return info

    def final(self, rows: np.ndarray) -> dict[str, Any]:
        last = {name: np.array(value[rows]) for name, value in self.observe().items()}
        return {"index": rows, "frame_no": self.frame[rows], "observation": last}

    def reported(self, errors: dict[int, Any]) -> dict[str, Any]:
        return {"error": errors} if errors else {}

    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        return {
            "env_id": list(self.env_ids), "frame_no": self.frame.copy(),
            "observation": self.observe(), "extra_info": info,
            "terminated": self.terminated.astype(np.int32), "truncated": self.truncated.astype(np.int32),
        }  # fmt: skip

    def paid(self, reward) -> dict[str, Any]:
        return {"env_id": list(self.env_ids), "frame_no": self.frame.copy(), "reward": reward}

    def info(self, values: Values | None = None, moved: np.ndarray | None = None) -> dict[str, Any]:
        return {}

    # -- the simulators

    def build(self) -> None:
        raise NotImplementedError

    def start(self, row: int) -> None:
        raise NotImplementedError

    def advance(self, values: Values, extra: Values, moved: np.ndarray):
        raise NotImplementedError

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(self.num_envs, bool), self.frame >= self.steps

    def observe(self) -> Values:
        raise NotImplementedError
