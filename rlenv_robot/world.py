"""The contracts of a world, the inside of an environment: a robot with a task is one, a board game is another."""

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
    "ACTION_MASK", "NOTHING", "EnvDescription", "MaskedWorld", "NoImage", "OrderlyWorld", "TimeStep", "TurnBasedWorld",
    "World", "WorldWrapper", "check_members", "first_part", "is_orderly", "masks_of",
]  # fmt: skip

_NEARLY = 0.85
"""Likeness of two names, as `difflib` measures it, from which one of them is a slip."""

NOTHING: Mapping[str, Never] = MappingProxyType({})
"""An empty mapping that nobody can write into."""


class NoImage(RobotError):
    """A world has no picture of its own; what the agent saw can be shown all the same."""


class TimeStep(NamedTuple):
    """A world's answer to a reset or an action.

    Attributes:
        observation: by the names in the world's observation spec.
        reward: a number, or a mapping from agent to number.
        terminated: the task's own end.
        truncated: an end by time, fault or interruption.
        extra_info: what Table 1 calls extra information; a new dictionary that the receiver owns.
        stamp_ns: capture time on the world's clock.
        applied, sensors: a robot's own values for the record, by the names in the layout.
        acted: False where nobody knows whether the action was carried out (the robot was lost): no training
            data is made of it.
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
    """The description of a world beyond its specs (clause 6.4). Names map to a sentence each.

    Attributes:
        about: what it is about, in Markdown.
        reward: the reward's type, range and meaning; with several agents, of each.
        reset_options: what ``reset`` takes.
        step_extra: what ``step`` takes in ``extra_info``, besides ``log_probability`` and ``intervention``; for values
            that fields describe, a world is also a `rlenv_robot.tables.HasStepExtra`.
        extra_info: what Table 1's ``extra_info`` may hold, besides ``error``.
        error_codes: of the world's own rules, besides those of `hal.Violation`.
        conditions: what differs from episode to episode beside the start: kind (``timing``, ``randomise``) -> lines of
            path, what it is drawn from, and unit.
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
    """The inside of an `Environment`: it knows no tables, no frame numbers and no recorder.

    A class that inherits from this one must bring ``observation``, ``action``, ``description``, ``reset`` and ``step``;
    the other members have defaults.
    """

    @property
    def name(self) -> str:
        """The name by which `rlenv_robot.make` makes it; by default that of its class in lower case."""
        return type(self).__name__.lower()

    @property
    def observation(self) -> Spec:
        """The spec of what the agent observes."""
        ...

    @property
    def action(self) -> Spec:
        """The spec of what the agent may do."""
        ...

    @property
    def description(self) -> EnvDescription:
        """The description beyond the specs."""
        ...

    @property
    def layout(self) -> FrameLayout:
        """The fields of a recorded frame; by default observation and action."""
        return FrameLayout(self.observation, self.action)

    def reset(self, options: Options) -> TimeStep:
        """Begin an episode.

        Raises:
            ValueError: an option that the world does not know, or with a wrong value.
        """
        ...

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Carry out an action that fits ``action``.

        Raises:
            IllegalAction: it breaks a rule that the spec can't express; nothing changed.
        """
        ...

    def episode_info(self) -> JsonDict:
        """Return what the record keeps of the running episode, as plain data (goal, seed, ...); by default the name."""
        return {"task": self.name}

    def image(self, options: Options) -> np.ndarray:
        """Draw the present state for people: uint8 of shape (height, width, 3), RGB.

        Raises:
            RobotError: no image can be made here, with the reason; by default always.
        """
        raise NoImage(f"{self.name!r} has no image")

    def stop(self, reason: str) -> None:
        """Stop all motion; from any thread. By default nothing moves."""
        return

    def close(self) -> None:
        """Release everything. Calling it twice is allowed. By default there is nothing to release."""
        return


@runtime_checkable
class TurnBasedWorld(World, Protocol):
    """A `World` whose players act one after the other.

    Each time step says whose turn it is in ``extra_info["agent"]``. A class that inherits from this one must bring
    ``players``; the other members have defaults.
    """

    players: tuple[str, ...]
    """The players' names, in the order of their turns."""

    zero_sum: bool = False
    """Whether a single number as reward, which is the mover's, is the other players' loss."""

    def legal(self) -> Mapping[str, np.ndarray] | None:
        """Return which actions the rules allow now: field of the action -> bool for each value; None for all."""
        return None

    def seen_by(self, player: str) -> Mapping[str, np.ndarray] | None:
        """Return a player's own observation by its own names; None where all see the time step's.

        Raises:
            KeyError: there is no such player.
        """
        return None


ACTION_MASK = "action_mask"
"""The entry of ``extra_info`` that says which actions are legal now: field of the action -> uint8, 1 where legal.

`rlenv_robot.to_gymnasium` and `rlenv_robot.to_pettingzoo_aec` give the array itself for a `Discrete` action.
"""


@runtime_checkable
class MaskedWorld(World, Protocol):
    """A `World` whose every time step holds ``extra_info["action_mask"]``; it is recorded and in Table 5."""

    @property
    def masks(self) -> Spec:
        """The masks by the names of the action's fields: uint8, 0 or 1, an element for each value from the lowest."""
        ...


def masks_of(world: object) -> Spec:
    """Return the description of a world's masks; empty where it has none."""
    return cast("MaskedWorld", world).masks if _has(world, "masks") else Spec("masks")


@runtime_checkable
class OrderlyWorld(World, Protocol):
    """A `World` that has something to say where the agent ends an episode in good order."""

    def end(self, reason: str) -> ExtraInfo:
        """End the running episode without an emergency, and return how it went (``success``, ``metrics``)."""
        ...


def is_orderly(world: World) -> TypeGuard[OrderlyWorld]:
    """Return whether a world is an `OrderlyWorld`.

    ``isinstance`` would ask for the value of every property in Python 3.11; the description of a robot on the network
    takes a message there and back.
    """
    return _has(world, "end")


class WorldWrapper:
    """Pass everything on to an inner world; a class that wraps a world overrides what it changes.

    Args:
        world: the inner world, owned from now on.
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
        """The inner world's description of what ``step`` takes in ``extra_info``."""
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
        """The inner world's streams of samples; none where it has none."""
        return streams_of(self._world)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Hand the inner world's samples over to these sinks."""
        pass_on(self._world, sinks)

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
        """End the inner world's episode in good order; an inner world without an `end` has nothing to add."""
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
    """Refuse an object that lacks a member of a contract, or has one whose name looks like a slip.

    Args:
        subject: a user's world or task.
        contract: the Protocol that it must fulfil.
        optional: Protocols that it may fulfil; a method that nearly bears the name of one of theirs is a slip.

    Raises:
        TypeError: naming the class, the member and the contract.
    """
    name, members = type(subject).__name__, _members(contract)
    missing = [member for member in members if not _has(subject, member)]
    if missing:
        raise TypeError(
            f"{name!r} is no {contract.__name__}: it has no {', '.join(missing)}; "
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
