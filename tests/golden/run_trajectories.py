"""Seeded runs of every shipped environment: what it answers to the same random actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import rlenv_robot as rr
from hal import Robot, Spec
from rlenv_robot.registry import robot
from sim.robot import SimRobot
from sim.robots.twin import so101_twin
from tests.shipped import SHIPPED_ROBOTS

ROOT = Path(__file__).resolve().parents[2]
SEED, STEPS, NUM = 7, 30, 3
EVERY, EVERY_OF_BATCH = 10, 15
"""Of so many tables one is kept."""

TASKS = (
    "go2-walk", "so101-drawer", "so101-insert", "so101-lid", "so101-pair-lift", "so101-pick-place",
    "so101-push", "so101-reach", "so101-sort", "so101-stack",
)  # fmt: skip
LATE: Mapping[str, Any] = {
    "command_delay": {"uniform": [0.0, 0.03]},
    "command_jitter": {"uniform": [0.0, 0.01]},
    "command_loss": 0.1,
    "reading_delay": 0.01,
    "reading_jitter": {"uniform": [0.0, 0.02]},
    "reading_loss": 0.05,
    "sensor_delay": {"joint_position": 0.004},
    "sensor_rate": {"joint_velocity": 60.0},
    "quantisation": {"joint_position": 0.0015},
    "backlash": {"joint_target": 0.01},
}
"""Everything that `sim.latency.DelayModel` knows, at once."""


def random_action(spec: Spec, rng: np.random.Generator, *leading: int) -> dict[str, np.ndarray]:
    """Values within the spec's bounds, drawn by numpy alone, so that they do not depend on `Spec.sample`."""
    action = {}
    for field in spec:
        low, high = field.bounds
        shape = (*leading, *field.shape)
        if field.numpy_dtype.kind == "f":
            drawn = rng.uniform(low.astype(float), high.astype(float), shape).astype(field.numpy_dtype)
            action[field.name] = np.clip(drawn, low, high)
        else:
            action[field.name] = rng.integers(low, high, shape, field.numpy_dtype, endpoint=True)
    return action


def types(values: Mapping[str, Any]) -> dict[str, str]:
    """Name -> type and shape."""
    return {name: f"{np.asarray(value).dtype}{list(np.shape(value))}" for name, value in values.items()}


def _without(table: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in keys}


def _without_message(error: Mapping[Any, Any]) -> dict[Any, Any]:
    """An error, or in a batch those of each environment, without the sentence for people."""
    return {
        key: _without_message(value) if isinstance(value, Mapping) else value
        for key, value in error.items()
        if key != "message"
    }


class Telling:
    """Collect an environment's answers: some tables whole, and the rewards, flags and keys of all.

    Args:
        table: Table 1 of the first reset.
        every: whole tables are kept of one step in so many.
    """

    def __init__(self, table: Mapping[str, Any], every: int) -> None:
        self.every = every
        self.types = types(table["observation"])
        self.tables: dict[str, Any] = {"0": _without(table, "env_id")}
        self.told: dict[str, Any] = {}
        self.rewards: list[Any] = []
        self.frames: list[Any] = []
        self.ends: dict[str, Any] = {}
        self.keys: dict[str, list[str]] = {"0": sorted(table["extra_info"])}

    def add(self, step: int, table: Mapping[str, Any], reward: Mapping[str, Any]) -> None:
        """Add the answer to one step."""
        self.rewards.append(reward["reward"])
        self.frames.append(table["frame_no"])
        over = bool(np.any(table["terminated"]) or np.any(table["truncated"]))
        if over:
            self.ends[str(step)] = {key: table[key] for key in ("terminated", "truncated")}
        keys = sorted(table["extra_info"])
        if keys != list(self.keys.values())[-1]:
            self.keys[str(step)] = keys
        extra_info = _without(table["extra_info"], "agents")  # a constant, which the first table has
        if "error" in extra_info:
            extra_info["error"] = _without_message(extra_info["error"])
        if step % self.every == 0:
            self.tables[str(step)] = {**_without(table, "env_id"), "extra_info": extra_info}
        elif over or "error" in extra_info:
            told = _without(extra_info, "applied", "state", "randomisation")
            if "final" in told:
                told["final"] = _without(told["final"], "randomisation")
            self.told[str(step)] = told

    def to_dict(self) -> dict[str, Any]:
        """Return the collected answers as plain data.

        ``keys`` are those of ``extra_info`` from a step on; ``told`` is what it says where an episode ends or an action
        is refused.
        """
        return {
            "observation types": self.types, "keys": self.keys, "tables": self.tables, "told": self.told,
            "rewards": self.rewards, "frame_no": self.frames, "ends": self.ends,
        }  # fmt: skip


def single(name: str, every: int = EVERY, wrong_at: int = 0, **settings: Any) -> dict[str, Any]:
    """One environment; the next episode goes on with the seed's draws. One action may be out of its range."""
    rng = np.random.default_rng(SEED)
    with rr.make(name, env_id="golden", **settings) as env:
        table: Any = env.reset({"seed": SEED})
        telling = Telling(table, every)
        for step in range(1, STEPS + 1):
            action = random_action(env.action, rng)
            if step == wrong_at:
                action = {key: value + np.float32(100) for key, value in action.items()}
            table, reward = env.step({"env_id": "golden", "frame_no": table["frame_no"], "action": action})
            telling.add(step, table, reward)
            if table["terminated"] or table["truncated"]:
                table = env.reset({})
        return telling.to_dict()


def batch(name: str, every: int = EVERY_OF_BATCH, wrong_at: int = 0, **settings: Any) -> dict[str, Any]:
    """Three environments that step together and begin anew when they end; one action of one may be out of range."""
    rng = np.random.default_rng(SEED)
    with rr.make_vector(name, NUM, seed=SEED, threads=2, **settings) as envs:
        table: Any = envs.reset()
        telling = Telling(table, every)
        for step in range(1, STEPS + 1):
            action = random_action(envs.action, rng, NUM)
            if step == wrong_at:
                for value in action.values():
                    value[1] += np.float32(100)
            sent = {"env_id": envs.env_ids, "frame_no": table["frame_no"], "action": action}
            table, reward = envs.step(sent)
            telling.add(step, table, reward)
            over = np.flatnonzero(table["terminated"] | table["truncated"])
            if envs.autoreset == "disabled" and len(over):
                table = envs.reset({"ids": over})
        return telling.to_dict()


def robot_states(make: Callable[[], Robot]) -> dict[str, Any]:
    """A robot without a task, under random commands: readings with their stamps and ages."""
    rng, made = np.random.default_rng(SEED), make()
    told = {"0": made.reset({"seed": SEED})._asdict()}
    for step in range(1, STEPS + 1):
        robot_state = made.step(random_action(made.spec.commands, rng))
        if step % EVERY == 0:
            told[str(step)] = robot_state._asdict()
    made.close()
    return told


def any_so101() -> dict[str, Any]:
    """The randomised arm of ``launch/any_so101.toml``, alone and in a batch."""
    profile = rr.load_profile(ROOT / "launch" / "any_so101.toml")
    return {
        "single": single("so101-reach", profile=profile, steps=25),
        "batch": batch("so101-reach", profile=profile, steps=12),
    }


def late() -> dict[str, Any]:
    """An arm with everything that timing can do to it: late, lost, coarse, and with play."""
    return {
        "single": single("so101-reach", timing=LATE, steps=25),
        "batch": batch("so101-reach", timing=LATE, steps=12),
        "readings": robot_states(lambda: robot("so101", timing=LATE)),
    }


def special_cases() -> dict[str, Any]:
    """Illegal actions, the other ways of beginning anew, shared draws, messages between agents, and inference."""
    return {
        "an illegal action": single("so101-reach", STEPS, wrong_at=5, steps=25),
        "an illegal action in a batch": batch("so101-reach", STEPS, wrong_at=5, steps=12),
        "autoreset in the next step": batch("so101-reach", STEPS, autoreset="next_step", steps=12),
        "autoreset disabled": batch("so101-reach", STEPS, autoreset="disabled", steps=12),
        "shared streams": batch("so101-push", STEPS, streams=np.array([4, 4, 0]), steps=12),
        "inference": single("go2-walk", STEPS, mode="inference"),
        "messages": single("so101-pair-lift", STEPS, message_size=2, steps=25),
    }


def robots() -> dict[str, Any]:
    """Every kind of robot, simulated, and the arm's twin with the faults of seed 3."""
    kinds = {name: robot_states(partial(robot, name)) for name in SHIPPED_ROBOTS}
    return {**kinds, "so101 twin": robot_states(lambda: SimRobot(so101_twin(3)))}


def go() -> dict[str, Any]:
    """Go on small boards, where captures, illegal moves and the end come soon."""
    return {"9": single("go", size=9), "5": single("go", size=5), "2": single("go", size=2)}


FILES: dict[str, Callable[[], Any]] = {
    **{f"single_{name}": partial(single, name, steps=25) for name in TASKS},
    **{f"batch_{name}": partial(batch, name, steps=20) for name in TASKS},
    "go": go,
    "any_so101": any_so101,
    "late": late,
    "special_cases": special_cases,
    "robots": robots,
}
