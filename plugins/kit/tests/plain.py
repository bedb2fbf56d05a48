"""An environment by the standard that owes nothing to this project's own, in parts that a fault can spoil."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import EpisodeError, Field, Spec
from rlenv_robot.world import EnvDescription

OBSERVATION = Spec(
    "sled_observation",
    (
        Field("position", (3,), "float32", -50, 50, "m", "where the sleds are"),
        Field("velocity", (3,), "float32", -5, 5, "m/s", "how fast they are"),
        Field("left", (), "int32", 0, 20, "1", "frames until the end"),
    ),
)
ACTION = Spec(
    "sled_action",
    (
        Field("force", (3,), "float32", -1, 1, "N", "on each sled"),
        Field("gear", (), "int8", 0, 2, "1", "multiplies"),
    ),
)
DESCRIPTION = EnvDescription("Three sleds.", Field("reward", (), "float64", -40, 0, meaning="minus the speed"))

_numbers = itertools.count()


class Sleds:
    """Three sleds that are pushed; an episode has 20 frames."""

    observation, action, description = OBSERVATION, ACTION, DESCRIPTION
    horizon = 20
    agents: Mapping[str, Mapping[str, str]] = {}

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.env_id = f"sleds-{self.number}"
        self.phase = "new"
        self.rng = np.random.default_rng()

    # -- the interfaces --------------------------------------------------------------------------------

    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        if self.phase == "closed":
            raise EpisodeError("closed")
        unknown = options.keys() - {"seed"}
        if unknown:
            raise ValueError(f"unknown: {unknown}")
        self.seed(options)
        self.frame_no, self.phase = 0, "running"
        self.start()
        return self.table()

    def step(self, action: Any, extra_info: Mapping[str, Any] = {}) -> Any:
        if self.phase != "running":
            raise EpisodeError(self.phase)
        error = self.error(action)
        if error:
            return self.refusal(error)
        self.advance(self.taken(action["action"]))
        self.frame_no += 1
        terminated, truncated = self.ends()
        if terminated or truncated:
            self.phase = "ended"
        return self.table(terminated, truncated), self.rewarded()

    def render(self, options: Mapping[str, Any] = {}) -> Any:
        str(self.position)

    def close(self) -> None:
        self.phase = "closed"

    # -- the parts -------------------------------------------------------------------------------------

    def seed(self, options: Mapping[str, Any]) -> None:
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])

    def start(self) -> None:
        self.position = self.rng.normal(size=3).astype(np.float32)
        self.velocity = np.zeros(3, np.float32)

    def taken(self, action: Mapping[str, Any]) -> tuple[np.ndarray, int]:
        return np.array(action["force"], np.float32), int(action["gear"])

    def advance(self, taken: tuple[np.ndarray, int]) -> None:
        force, gear = taken
        noise = self.rng.normal(size=3).astype(np.float32) * np.float32(0.01)
        push = np.float32(0.1) * force * np.float32(gear + 1) + noise
        self.velocity = np.clip(self.velocity + push, -5, 5).astype(np.float32)
        self.position = np.clip(self.position + np.float32(0.1) * self.velocity, -50, 50).astype(np.float32)

    def ends(self) -> tuple[int, int]:
        return 0, int(self.frame_no >= self.horizon)

    def observed(self) -> dict[str, np.ndarray]:
        left = np.array(max(0, 20 - self.frame_no), np.int32)
        return {"position": self.position.copy(), "velocity": self.velocity.copy(), "left": left}

    def extra(self) -> dict[str, Any]:
        return {"heat": np.abs(self.velocity)}

    def value(self) -> Any:
        return -float(np.abs(self.velocity).sum())

    def table(self, terminated: int = 0, truncated: int = 0) -> dict[str, Any]:
        return {"env_id": self.env_id, "frame_no": self.frame_no, "observation": self.observed(),
                "extra_info": self.extra(), "terminated": terminated, "truncated": truncated}  # fmt: skip

    def rewarded(self) -> dict[str, Any]:
        return {"env_id": self.env_id, "frame_no": self.frame_no, "reward": self.value()}

    def error(self, request: Any) -> str:
        """Return what is wrong with a Table 2; empty if nothing is."""
        try:
            if set(request) != {"env_id", "frame_no", "action"}:
                return "its keys are wrong"
            env_id, frame_no, action = request["env_id"], request["frame_no"], request["action"]
            if type(env_id) is not str or env_id != self.env_id:
                return "it is another environment's"
            if type(frame_no) is not int or frame_no != self.frame_no:
                return "it answers another frame"
            if not isinstance(action, Mapping) or set(action) != set(self.action.names):
                return "its fields are wrong"
            for field in self.action:
                problem = self.wrong(field, np.asarray(action[field.name]))
                if problem:
                    return f"{field.name} {problem}"
        except Exception as error:
            return f"it can't be read: {error!r}"
        return ""

    def wrong(self, field: Field, value: np.ndarray) -> str:
        if value.shape != field.shape:
            return "has the wrong shape"
        if value.dtype.kind not in ("fiu" if field.numpy_dtype.kind == "f" else "iu"):
            return "has the wrong type"
        low, high = field.bounds
        return "" if ((value >= low) & (value <= high)).all() else "is out of range"

    def refusal(self, error: Any) -> tuple[Any, Any]:
        table = self.table()
        table["extra_info"] = {**table["extra_info"], "error": error}
        return table, {**self.rewarded(), "reward": 0.0}


class Pair(Sleds):
    """The sleds of two agents: each sees its own position, and is rewarded for itself."""

    agents: Mapping[str, Mapping[str, str]] = {
        "left": {"own": "position", "left": "left"},
        "right": {"own": "velocity", "left": "left"},
    }

    def extra(self) -> dict[str, Any]:
        return {**super().extra(), "agents": {agent: dict(names) for agent, names in self.agents.items()}}

    def value(self) -> Any:
        return {"left": -float(abs(self.velocity[0])), "right": -float(abs(self.velocity[1]))}

    def refusal(self, error: Any) -> tuple[Any, Any]:
        table, reward = super().refusal(error)
        return table, {**reward, "reward": dict.fromkeys(self.agents, 0.0)}
