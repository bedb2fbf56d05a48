"""Describe the frame row, which records one frame in memory, in the log and in the table (see docs/architecture.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from hal.field import Field, JsonDict, JsonObject
from hal.spec import Spec

__all__ = [
    "BEHAVIOUR_PREFIX",
    "EXTRA_PREFIX",
    "MASK_PREFIX",
    "POLICY_PREFIX",
    "PREFIXES",
    "FrameLayout",
    "reward_field",
    "used_field",
]

PREFIXES = ("observation", "action", "applied", "sensor")
"""Prefixes of the names of the frame row's grouped fields."""

POLICY_PREFIX = "policy_action"
"""Prefix of the names of the policy's actions, which a person may have replaced."""

EXTRA_PREFIX, BEHAVIOUR_PREFIX = "extra", "behaviour"
"""Prefixes of the names of a step's ``extra_info``: the world's fields, and the behaviour distribution's parameters."""

MASK_PREFIX = "mask"
"""Prefix of the names of the masks of legal actions in a frame."""

_HEAD = (
    Field("stamp_ns", (), "int64", unit="ns", meaning="robot's clock at capture"),
    Field("wall_ns", (), "int64", unit="ns", meaning="recording machine's clock, since 1970"),
    Field("frame_no", (), "int32", meaning="the frame's number in its episode"),
    Field("episode", (), "int32", meaning="the episode's number in this run"),
)
_TAIL = (
    Field("terminated", (), "uint8", 0, 1, meaning="the task ended here"),
    Field("truncated", (), "uint8", 0, 1, meaning="time, a fault or an interruption ended it here"),
    Field("acted", (), "uint8", 0, 1, meaning="an action was executed between the last frame and this one"),
    Field("log_probability", (), "float64", meaning="of the action under the behaviour policy; NaN if unknown"),
    Field("intervention", (), "uint8", 0, 1, meaning="a person chose the action"),
)
_ANSWERS = Field(
    "answers", (), "int32", -1, meaning="frame number of the observation that the action answers; -1: of none"
)
_TURN = Field("agent", (), "uint8", meaning="whose turn it is in this frame: its number in the list of agents")


def used_field(stream: str) -> str:
    """Return the name of the row's field with the sequence number of the sample that the frame used from a stream."""
    return f"used_{stream}"


def reward_field(agent: str = "") -> str:
    """Return the name of the row's reward field: ``reward``, or ``reward_<agent>`` with several agents."""
    return f"reward_{agent}" if agent else "reward"


@dataclass(frozen=True)
class FrameLayout:
    """Describe the fields of a frame row.

    Attributes:
        observation: the world's observation.
        action: the world's action.
        agents: names of the agents with separate rewards; empty for a single reward.
        applied: the robot's commands; empty for worlds without a robot.
        sensors: the robot's sensors; empty for worlds without a robot.
        streams: names of the native-rate streams for which each frame names the sample that it used.
        policy: the actions that a policy chose, recorded as ``policy_action_<name>`` beside the executed ones; empty
            if no person can take over.
        turns: whether the agents act one at a time. Then the field ``agent`` names the agent that sees the frame and
            acts in it, and the action in the next frame is that agent's.
        extra: the fields that the world takes in a step's ``extra_info``, recorded as ``extra_<name>``.
        behaviour: the parameters of the distribution that the action was drawn from, recorded as ``behaviour_<name>``;
            NaN where unknown.
        masks: for each whole-number field of the action that has rules, the mask of its legal values in the frame,
            recorded as ``mask_<name>``.
        answers: whether the field ``answers`` holds the frame number of the observation that the action answers, which
            is older than the frame before where a policy predicts slowly; -1 in row 0, where the robot was held, and
            where a person chose the action.
    """

    observation: Spec
    action: Spec
    agents: Sequence[str] = ()
    applied: Spec = field(default_factory=lambda: Spec("applied"))
    sensors: Spec = field(default_factory=lambda: Spec("sensors"))
    streams: Sequence[str] = ()
    policy: Spec = field(default_factory=lambda: Spec("policy"))
    turns: bool = False
    extra: Spec = field(default_factory=lambda: Spec("step_extra"))
    behaviour: Spec = field(default_factory=lambda: Spec("behaviour"))
    masks: Spec = field(default_factory=lambda: Spec("masks"))
    answers: bool = False

    @cached_property
    def spec(self) -> Spec:
        """The spec of all fields of the row, named ``frame``."""
        rewards = tuple(
            Field(reward_field(agent), (), "float64", meaning="of the action that led here")
            for agent in (self.agents or ("",))
        )
        used = tuple(
            Field(used_field(name), (), "int64", -1, meaning=f"sequence of the sample of /sensor/{name} used; -1: none")
            for name in self.streams
        )
        groups = (self.observation, self.action, self.applied, self.sensors)
        parts = [spec.prefixed(prefix) for prefix, spec in zip(PREFIXES, groups, strict=True)]
        parts.append(self.policy.prefixed(POLICY_PREFIX))
        parts += [self.extra.prefixed(EXTRA_PREFIX), self.behaviour.prefixed(BEHAVIOUR_PREFIX)]
        parts.append(self.masks.prefixed(MASK_PREFIX))
        turn = (_TURN,) if self.turns else ()
        answers = (_ANSWERS,) if self.answers else ()
        return Spec.joined(
            "frame", (Spec("head", _HEAD), *parts, Spec("tail", rewards + _TAIL + turn + answers + used))
        )

    @cached_property
    def without_step(self) -> dict[str, float]:
        """The fields of the step before a frame -> their values in a frame without a step before it."""
        groups = ((PREFIXES[1], self.action), (POLICY_PREFIX, self.policy), (EXTRA_PREFIX, self.extra))
        names = [f"{prefix}_{name}" for prefix, spec in groups for name in spec.names]
        names += [*map(reward_field, self.agents or ("",)), "acted", "intervention"]
        unknown = ["log_probability", *(f"{BEHAVIOUR_PREFIX}_{name}" for name in self.behaviour.names)]
        answers = {"answers": -1} if self.answers else {}
        return {**dict.fromkeys(names, 0), **dict.fromkeys(unknown, math.nan), **answers}

    def to_dict(self) -> JsonDict:
        """Return plain data, for the metadata of a log; optional parts that are empty are left out."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: _json(part) for name, part in parts.items() if part or name in _REQUIRED}

    @staticmethod
    def from_dict(plain: JsonObject) -> FrameLayout:
        """Make a layout from the plain data of `to_dict`.

        Raises:
            SpecError: a part is not a spec.
            KeyError: a part is missing.
        """
        names = [part.name for part in fields(FrameLayout) if part.name in _REQUIRED or part.name in plain]
        return FrameLayout(**{name: _READERS.get(name, Spec.from_dict)(plain[name]) for name in names})


_REQUIRED = ("observation", "action", "agents", "applied", "sensors")
_READERS: Mapping[str, Callable[[Any], Any]] = {
    "agents": tuple,
    "streams": tuple,
    "turns": bool,
    "answers": bool,
}
"""Readers of the parts that are not specs."""


def _json(part: Spec | Sequence[str] | bool) -> Any:
    if isinstance(part, Spec):
        return part.to_dict()
    return part if isinstance(part, bool) else list(part)
