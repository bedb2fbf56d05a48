"""Define the contracts of a world, the content of an environment, such as a robot with a task or a board game."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Never, Protocol, TypeGuard, cast, runtime_checkable

import numpy as np

from hal import Field, RobotError, Spec
from hal.field import JsonDict
from hal.robot import SampleSink, StreamSpec
from hal.wrapper import pass_on, streams_of
from recorder.frame_layout import FrameLayout
from rlenv_robot.tables import ExtraInfo, Options, Reward, StepExtra, step_extra_of

__all__ = [
    "ACTION_MASK", "NOTHING", "CheckingWorld", "EnvDescription", "MaskedWorld", "NoImage", "OrderlyWorld", "TimeStep",
    "TurnBasedWorld", "World", "WorldWrapper", "check_members", "check_reset", "first_part", "is_orderly", "masks_of",
]  # fmt: skip

_NEARLY = 0.85
"""Likeness of two names, as `difflib` measures it, from which one of them is a slip."""

NOTHING: Mapping[str, Never] = MappingProxyType({})
"""An empty, immutable mapping."""


class NoImage(RobotError):
    """Say that a world has no image; the agent's observation can still be shown."""


class TimeStep(NamedTuple):
    """The result of resetting or stepping a world.

    Attributes:
        observation: by the names in the world's observation spec.
        reward: a number, or a mapping from agent to number.
        terminated: whether the task ended the episode.
        truncated: whether a time limit, a fault or an interruption ended it.
        extra_info: the extra information of Table 1; a new dictionary that the receiver owns.
        stamp_ns: capture time on the world's clock, nanoseconds.
        applied: a robot's applied command, for the record, by the names in the layout.
        sensors: a robot's measured values, for the record, by the names in the layout.
        acted: False if it is unknown whether the action was executed (the robot was lost), so that the step is not used
            as training data.
    """

    observation: Mapping[str, np.ndarray]
    reward: Reward
    terminated: bool
    truncated: bool
    extra_info: ExtraInfo
    stamp_ns: int = 0
    applied: Mapping[str, np.ndarray] = NOTHING
    sensors: Mapping[str, np.ndarray] = NOTHING
    acted: bool = True


@dataclass(frozen=True)
class EnvDescription:
    """The description of a world beyond its specs (clause 6.4). Each mapping is from a name to a sentence.

    Attributes:
        about: the purpose of the environment, in Markdown.
        reward: type, range and meaning of the reward; with several agents, of each.
        reset_options: the options of ``reset``.
        step_extra: the entries of ``extra_info`` in ``step``, besides ``log_probability`` and ``intervention``; for
            values that fields describe, a world is also a `rlenv_robot.tables.HasStepExtra`.
        extra_info: the possible entries of ``extra_info`` in Table 1, besides ``error``.
        error_codes: those of the world's rules, besides those of `hal.Violation`.
        conditions: properties that differ between episodes, besides the start: kind (``timing``, ``randomise``) ->
            lines with path, distribution and unit.
    """

    about: str
    reward: Field
    reset_options: Mapping[str, str] = field(default_factory=dict)
    step_extra: Mapping[str, str] = field(default_factory=dict)
    extra_info: Mapping[str, str] = field(default_factory=dict)
    error_codes: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Sequence[tuple[str, str, str]]] = field(default_factory=dict)


def first_part(of: object) -> str:
    """Return the docstring of an object's class up to its first section (``Args:``, ``Attributes:``, ...)."""
    text = inspect.getdoc(type(of)) or ""
    return re.split(r"^[A-Z][a-z]+:$", text, maxsplit=1, flags=re.MULTILINE)[0].strip()


@runtime_checkable
class World(Protocol):
    """The content of an `Environment`, without tables, frame numbers and recording.

    A class that inherits from this one must define ``observation``, ``action``, ``description``, ``reset`` and
    ``step``; the other members have defaults.
    """

    @property
    def name(self) -> str:
        """The name of the environment in `rlenv_robot.make`; by default the class's name in lower case."""
        return type(self).__name__.lower()

    @property
    def observation(self) -> Spec:
        """The spec of the agent's observation."""
        ...

    @property
    def action(self) -> Spec:
        """The spec of the agent's action."""
        ...

    @property
    def description(self) -> EnvDescription:
        """The description of the world beyond its specs."""
        ...

    @property
    def layout(self) -> FrameLayout:
        """The fields of a recorded frame; by default observation and action."""
        return FrameLayout(self.observation, self.action)

    def reset(self, options: Options) -> TimeStep:
        """Begin an episode.

        Raises:
            ValueError: an option is unknown, or its value is wrong.
        """
        ...

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Execute an action that fits the spec ``action``.

        Raises:
            IllegalAction: the action violates a rule that the spec can't express; nothing changed.
        """
        ...

    def episode_info(self) -> JsonDict:
        """Return the running episode's metadata for the record, JSON data (goal, seed, ...); by default the name."""
        return {"task": self.name}

    def image(self, options: Options) -> np.ndarray:
        """Draw the present state for people: uint8 of shape (height, width, 3), RGB.

        Raises:
            RobotError: no image can be made here; the message says why. This is the default.
        """
        raise NoImage(f"{self.name!r} has no image")

    def stop(self, reason: str) -> None:
        """Stop all motion, from any thread. By default there is none."""
        return

    def close(self) -> None:
        """Release everything. Safe to call more than once. By default there is nothing to release."""
        return


@runtime_checkable
class TurnBasedWorld(World, Protocol):
    """A `World` of players who act one after the other.

    Each time step gives the player to move in ``extra_info["agent"]``. A class that inherits from this one must define
    ``players``; the other members have defaults.
    """

    players: tuple[str, ...]
    """The players' names, in the order of their turns."""

    zero_sum: bool = False
    """Whether a reward that is a single number, for the player who moved, is the other players' loss."""

    def legal(self) -> Mapping[str, np.ndarray] | None:
        """Return the legal actions: field of the action -> bool for each value; None if all are legal."""
        return None

    def seen_by(self, player: str) -> Mapping[str, np.ndarray] | None:
        """Return a player's observation by the player's local names; None if all players share the time step's.

        The arrays are the caller's, who may write into them.

        Raises:
            KeyError: the player is unknown.
        """
        return None


ACTION_MASK = "action_mask"
"""The entry of ``extra_info`` with the legal actions: field of the action -> uint8, 1 for legal.

`rlenv_robot.to_gymnasium` and `rlenv_robot.to_pettingzoo_aec` return the array itself for a `Discrete` action.
"""


@runtime_checkable
class MaskedWorld(World, Protocol):
    """A `World` with ``extra_info["action_mask"]`` in every time step; the mask is recorded and is in Table 5."""

    @property
    def masks(self) -> Spec:
        """The masks by the names of the action's fields: uint8, 0 or 1, one element per value from the lowest."""
        ...


def masks_of(world: object) -> Spec:
    """Return the spec of a world's masks; empty if it has none."""
    return cast("MaskedWorld", world).masks if _has(world, "masks") else Spec("masks")


@runtime_checkable
class OrderlyWorld(World, Protocol):
    """A `World` that reports a result when the agent ends an episode in an orderly way."""

    def end(self, reason: str) -> ExtraInfo:
        """End the running episode in an orderly way, and return its result (``success``, ``metrics``)."""
        ...


@runtime_checkable
class CheckingWorld(World, Protocol):
    """A `World` that checks the options of a reset before the running episode ends."""

    def check_reset(self, options: Options) -> None:
        """Check the options of a reset without any effect; a refused option leaves the running episode as it is.

        Raises:
            ValueError: an option is unknown, or its value is wrong.
            IllegalAction: a value does not fit its field.
        """
        ...


def check_reset(world: World, options: Options) -> None:
    """Let a `CheckingWorld` check the options of a reset; any other world checks them in its ``reset``.

    Raises:
        ValueError: an option is unknown, or its value is wrong.
        IllegalAction: a value does not fit its field.
    """
    if _has(world, "check_reset"):
        cast("CheckingWorld", world).check_reset(options)


def is_orderly(world: World) -> TypeGuard[OrderlyWorld]:
    """Return whether a world is an `OrderlyWorld`.

    In Python 3.11 ``isinstance`` would evaluate every property, and the spec of a robot on the network takes a message
    there and back.
    """
    return _has(world, "end")


class WorldWrapper:
    """Forward all calls to an inner world; a subclass overrides the members that it changes.

    Args:
        world: the inner world, which the wrapper owns from now on.
    """

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def unwrapped(self) -> World:
        """The innermost world."""
        return self._world.unwrapped if isinstance(self._world, WorldWrapper) else self._world

    @property
    def name(self) -> str:
        """The inner world's name."""
        return self._world.name

    @property
    def observation(self) -> Spec:
        """The inner world's observation spec."""
        return self._world.observation

    @property
    def action(self) -> Spec:
        """The inner world's action spec."""
        return self._world.action

    @property
    def description(self) -> EnvDescription:
        """The inner world's description."""
        return self._world.description

    @property
    def step_extra(self) -> StepExtra:
        """The inner world's description of the entries in ``step``'s ``extra_info``."""
        return step_extra_of(self._world)

    @property
    def masks(self) -> Spec:
        """The inner world's masks of legal actions."""
        return masks_of(self._world)

    @property
    def layout(self) -> FrameLayout:
        """The inner world's layout of a recorded frame."""
        return self._world.layout

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The inner world's streams of samples; empty if it has none."""
        return streams_of(self._world)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Connect the inner world's streams to these sinks."""
        pass_on(self._world, sinks)

    def check_reset(self, options: Options) -> None:
        """Let the inner world check the options of a reset."""
        check_reset(self._world, options)

    def reset(self, options: Options) -> TimeStep:
        """Reset the inner world."""
        return self._world.reset(options)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Step the inner world."""
        return self._world.step(action, extra_info)

    def episode_info(self) -> JsonDict:
        """Return the inner world's information on the running episode."""
        return self._world.episode_info()

    def end(self, reason: str) -> ExtraInfo:
        """End the inner world's episode in an orderly way; return an empty mapping if that world has no `end`."""
        return self._world.end(reason) if is_orderly(self._world) else {}

    def image(self, options: Options) -> np.ndarray:
        """Draw the inner world."""
        return self._world.image(options)

    def stop(self, reason: str) -> None:
        """Stop the inner world."""
        self._world.stop(reason)

    def close(self) -> None:
        """Close the inner world."""
        self._world.close()


def check_members(subject: object, contract: type, optional: Sequence[type] = ()) -> None:
    """Refuse an object that lacks a member of a contract, or has a member with a name that seems misspelt.

    Args:
        subject: a user's world or task.
        contract: the Protocol that it must fulfil.
        optional: Protocols that it may fulfil; a method with a name close to one of theirs counts as misspelt.

    Raises:
        TypeError: the object is refused; the message names the class, the member and the contract.
    """
    name, members = type(subject).__name__, _members(contract)
    missing = [member for member in members if not _has(subject, member)]
    if missing:
        raise TypeError(
            f"{name!r} is not a {contract.__name__}: it has no {', '.join(missing)}; "
            f"a {contract.__name__} has {', '.join(members)}"
        )
    for other in optional:
        for member in _members(other):
            if not _has(subject, member):
                _check_spelling(subject, member, other)


def _has(subject: object, member: str) -> bool:
    """Say whether an object has a member, without asking a property for its value.

    Not by ``dir``, which would make Python 3.11 keep the object's attributes in a slower way from then on: a simulated
    step would take 2 % longer.
    """
    return any(member in vars(base) for base in type(subject).__mro__) or hasattr(subject, member)


def _check_spelling(subject: object, member: str, contract: type) -> None:
    defined = [name for name in vars(type(subject)) if not name.startswith("_")]
    for near in difflib.get_close_matches(member, defined, cutoff=_NEARLY):
        raise TypeError(
            f"{type(subject).__name__}.{near} is unknown, did you mean {member!r} of a {contract.__name__}? "
            "If not, give it another name"
        )


def _members(contract: type) -> list[str]:
    """Return the public members that a Protocol and its bases declare, in their order."""
    names: dict[str, None] = {}
    for base in reversed(contract.__mro__):
        if base.__module__ != "typing" and base is not object:
            names |= dict.fromkeys((*vars(base).get("__annotations__", {}), *vars(base)))
    return [name for name in names if not name.startswith("_")]
