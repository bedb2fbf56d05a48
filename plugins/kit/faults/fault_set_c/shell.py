"""Adapters that owe nothing to `rr.Environment`, and the part that all environments of the set share."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

import rlenv_robot as rr
from rlenv_robot.rendering.show import show
from rlenv_robot.tables import StepExtra, check_action_table, check_options
from rlenv_robot.tasks.episode_rules import check_seed
from rlenv_robot.world import NOTHING

SEED = "whole number from 0: fixes the starts and the chances of the episodes from here on"


class Subject:
    """An environment of the set; ``make`` is its factory."""

    part = "environment"
    style: ClassVar[str]
    original: ClassVar[Any]
    options: ClassVar[tuple[dict[str, Any], ...]] = ()
    """Legal options of reset, for the scripts."""

    @classmethod
    def make(cls):
        return cls()


class WorldSubject(Subject, rr.World):
    """A world of the set, in an `rr.Environment` or a class that stands in for it."""

    shell: ClassVar[Any] = rr.Environment
    names: ClassVar[tuple[str, ...]] = ("seed",)

    def __init__(self) -> None:
        self.rng = np.random.default_rng()
        self.frame = 0

    @classmethod
    def make(cls):
        return cls.shell(cls())

    def check_reset(self, options: Mapping[str, Any]) -> None:
        check_options(options, "reset", '{"seed": 7}', self.names)
        if options.get("seed") is not None:
            check_seed(options["seed"])

    def reset(self, options: Mapping[str, Any]) -> rr.TimeStep:
        self.check_reset(options)
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])
        self.frame = 0
        self.begin(options)
        return self.seen(0.0)

    def begin(self, options: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def seen(self, reward) -> rr.TimeStep:
        raise NotImplementedError


class Shell(Subject):
    """A table adapter of its own: checks, counts, refuses; a subclass has the simulator."""

    observation: ClassVar[rr.Spec]
    action: ClassVar[rr.Spec]
    description: ClassVar[rr.EnvDescription]
    step_extra: ClassVar[StepExtra] = StepExtra()
    names: ClassVar[tuple[str, ...]] = ("seed",)
    steps = 15

    def __init__(self) -> None:
        self.env_id = uuid.uuid4().hex
        self.rng = np.random.default_rng()
        self.phase, self.frame, self.reward = "new", 0, 0.0
        self.terminated = self.truncated = False
        self.error: dict[str, object] | None = None

    # -- the interfaces

    def reset(self, options: Mapping[str, Any] = NOTHING):
        if self.phase == "closed":
            raise rr.EpisodeError("reset after close: make a new environment")
        self.check_options(options)
        self.seed(options)
        self.phase, self.frame, self.reward, self.error = "running", 0, 0.0, None
        self.terminated = self.truncated = False
        self.begin(options)
        return self.table(self.info())

    def step(self, action, extra_info=NOTHING):
        if self.phase != "running":
            raise rr.EpisodeError(f"step while the environment is {self.phase}: call reset first")
        try:
            values, extra = self.read(action), self.step_extra.read(extra_info)
            if "behaviour" in extra:
                words = "extra_info.behaviour is unknown here"
                raise rr.IllegalAction(rr.Violation("unknown", "extra_info.behaviour", (), words))
            self.rules(values)
        except rr.IllegalAction as refused:
            return self.refuse(refused.violation)
        self.error = None
        self.reward = self.advance(values, extra)
        self.frame += 1
        self.terminated, self.truncated = self.ends()
        if self.terminated or self.truncated:
            self.phase = "ended"
        return self.table(self.info()), self.paid(self.reward)

    def render(self, options: Mapping[str, Any] = NOTHING):
        check_options(options, "render", '{"mode": "file", "path": "state.png"}')
        shown = None
        if self.phase != "new":
            shown = rr.TimeStep(self.observe(), self.reward, self.terminated, self.truncated, self.info())
        show(self.env_id, self.frame, self, shown, options, self.error)  # type: ignore[arg-type]

    def close(self) -> None:
        self.phase = "closed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- parts, which a fault overrides

    def check_options(self, options) -> None:
        check_options(options, "reset", '{"seed": 7}', self.names)
        if options.get("seed") is not None:
            check_seed(options["seed"])

    def seed(self, options: Mapping[str, Any]) -> None:
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])

    def read(self, action) -> dict[str, np.ndarray]:
        return self.action.validate(check_action_table(action, self.env_id, self.frame), "action")

    def rules(self, values: Mapping[str, np.ndarray]) -> None:
        """Refuse what the simulator's rules forbid."""

    def refuse(self, violation: rr.Violation):
        self.error = violation.to_dict()
        return self.table({**self.info(), "error": violation.to_dict()}), self.paid(0.0)

    def table(self, info: dict[str, Any]) -> dict[str, Any]:
        return {
            "env_id": self.env_id, "frame_no": self.frame, "observation": self.observe(), "extra_info": info,
            "terminated": int(self.terminated), "truncated": int(self.truncated),
        }  # fmt: skip

    def paid(self, reward) -> dict[str, Any]:
        return {"env_id": self.env_id, "frame_no": self.frame, "reward": reward}

    def info(self) -> dict[str, Any]:
        return {"truncated_by": "time limit"} if self.truncated else {}

    def image(self, options: Mapping[str, Any]) -> np.ndarray:
        from rlenv_robot.world import NoImage

        raise NoImage(f"{type(self).__name__} has no image")

    # -- the simulator

    def begin(self, options: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def advance(self, values: Mapping[str, np.ndarray], extra: Mapping[str, Any]) -> float:
        raise NotImplementedError

    def observe(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def ends(self) -> tuple[bool, bool]:
        return False, self.frame >= self.steps
