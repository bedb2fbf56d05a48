"""The base class of robot wrappers, and the optional members of a robot beyond `Robot`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hal.errors import StopReason
from hal.field import JsonObject
from hal.reset.confirmation import Answer
from hal.reset.record import ResetRecord
from hal.robot import Robot, RobotSpec, RobotState, SampleSink, StreamSpec

__all__ = ["OPTIONAL_MEMBERS", "RobotWrapper", "Streaming", "inner_robots", "pass_on", "robot_that_steps", "streams_of"]

_REQUIRED_MEMBERS = ("spec", "reset", "step", "stop", "close")

OPTIONAL_MEMBERS = (
    "streams", "stream_to", "about", "arm_watchdog", "disarm_watchdog", "simulated", "guarded", "last_reset",
    "cancel_reset", "judge", "cancel_judge", "damp", "read", "end_episode",
    "hold_on_close",
)  # fmt: skip
"""The members that a robot may offer beyond `hal.Robot`; `RobotWrapper` documents each and has its default."""

_PAIRS = (("streams", "stream_to"), ("arm_watchdog", "disarm_watchdog"))
"""Members that are of use only together."""

_SIMILAR = 0.85
"""Least similarity (`difflib`) of a name to a missing member's name at which it counts as a misspelling of it."""


class RobotWrapper:
    """A robot that passes every call on to an inner robot. Subclasses override what they change.

    A robot must have the members of `hal.Robot` and may have `OPTIONAL_MEMBERS`. The wrapper has all of them, with a
    default where the inner robot leaves one out: ``RobotWrapper(robot).simulated`` answers for any robot.

    Args:
        robot: the inner robot.

    Raises:
        TypeError: the robot lacks a member of `hal.Robot`, has one member of a pair without the other, or has a public
            member with a name like a misspelled optional one; the message names class and member.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        _check_spelling(cls, vars(cls), (*_REQUIRED_MEMBERS, *OPTIONAL_MEMBERS))

    def __init__(self, robot: Robot) -> None:
        _check_members(robot)
        self._robot = robot

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._robot!r}>"

    @property
    def unwrapped(self) -> Robot:
        """The innermost robot, which is not a wrapper."""
        robot = self._robot
        while isinstance(robot, RobotWrapper):
            robot = robot._robot
        return robot

    # -- the members of every robot ----------------------------------------------------------------------

    @property
    def spec(self) -> RobotSpec:
        """The inner robot's description."""
        return self._robot.spec

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset the inner robot."""
        return self._robot.reset(options)

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the inner robot."""
        return self._robot.step(command)

    def stop(self, reason: str | StopReason) -> None:
        """Stop the inner robot. Wrappers hand the `StopReason` on; a driver receives its text."""
        if isinstance(self._robot, RobotWrapper):
            self._robot.stop(reason)
        else:
            self._robot.stop(str(reason))

    def close(self) -> None:
        """Close the inner robot."""
        self._robot.close()

    # -- the members that a robot may leave out ----------------------------------------------------------

    def _offered(self, member: str, default: Any = None) -> Any:
        """Return an optional member of the inner robot, or the default. Its type is the contract of that member."""
        return getattr(self._robot, member, default)

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The sensors that the robot samples at their own rates. They never change, and are readable before opening.

        The robot's thread reads such a sensor, hands each sample with its capture time to the sink, and keeps the
        number that the sink returns. `step` fills a sensor from the latest sample and names it in ``RobotState.used``.
        """
        streams: tuple[StreamSpec, ...] = self._offered("streams", ())
        return streams

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Send the samples of these streams to sinks until `close`. Called once, before the first reset.

        Args:
            sinks: stream name -> its sink; a stream without a sink sends its samples nowhere.
        """
        stream_to = self._offered("stream_to")
        if stream_to is not None:
            stream_to(sinks)

    def about(self) -> JsonObject:
        """Return a report on the robot beyond its measurements, as plain data for the log and for people.

        It takes no longer than a step and raises nothing. Default: an empty mapping.
        """
        about = self._offered("about")
        report: JsonObject = {} if about is None else about()
        return report

    def arm_watchdog(self, timeout_s: float) -> bool:
        """Let the motors hold or go limp by themselves if nothing is written to them for ``timeout_s``.

        This is a watchdog in the device, which acts even if the controller's software has died: a Dynamixel's Bus
        Watchdog (address 98 of the X series' control table), a CAN drive's heartbeat. Called on the thread that steps,
        between two steps; the next step comes within a fraction of the time.

        Args:
            timeout_s: longest silence, seconds; a device with fixed choices takes the next longer one.

        Returns:
            Whether the device has a watchdog and it is armed. Default: False.
        """
        arm_watchdog = self._offered("arm_watchdog")
        return arm_watchdog is not None and bool(arm_watchdog(timeout_s))

    def disarm_watchdog(self) -> None:
        """Disarm the device's watchdog before a pause in the writes, and clear it if it has acted.

        Called on the thread that steps.
        """
        disarm_watchdog = self._offered("disarm_watchdog")
        if disarm_watchdog is not None:
            disarm_watchdog()

    def damp(self) -> bool:
        """Let the motors give way under damping, instead of holding, until the next reset.

        For robots that holding a pose endangers, such as one on legs. Called on the thread that steps, between two
        steps, if a server's ``on_silence`` is ``damp``; no step follows before a reset.

        Returns:
            Whether the motors give way. Default: False.
        """
        damp = self._offered("damp")
        return damp is not None and bool(damp())

    def hold_on_close(self) -> None:
        """Let the next `close` leave the motors as they are, holding or damped, instead of letting the robot down.

        A guard calls this before it closes a stopped robot, since the person who stopped it may have a hand in the
        way. If the stop comes while `close` lets the robot down, the guard calls this from another thread, and the
        robot holds where it is. A person must then cut the motors' power. Default: do nothing, which suits a robot
        that does not move in ``close``.
        """
        hold_on_close = self._offered("hold_on_close")
        if hold_on_close is not None:
            hold_on_close()

    def read(self) -> RobotState | None:
        """Read the robot without commanding it: nothing moves, and a stop stays.

        A server calls this ten times a second while it takes no steps: before the first reset, after a stop, between
        episodes, and while a reset waits for its confirmation. Called on the thread that steps, between two steps.
        Before the first reset it opens the devices that it needs and enables no motor; an error then stops nothing.

        Returns:
            A reading like that of a step; None if the robot can't be read now. Default: None, for a robot that can be
            read only by steps.
        """
        read = self._offered("read")
        robot_state: RobotState | None = None if read is None else read()
        return robot_state

    @property
    def simulated(self) -> bool:
        """Whether the robot is simulated, so that time may stand still and no watchdog is needed. Default: False."""
        return bool(self._offered("simulated", False))

    @property
    def guarded(self) -> bool:
        """Whether a guard next to the motors limits the commands, such as a remote robot's server. Default: False.

        An outer guard then leaves the judgement of time and following error to the inner one.
        """
        return bool(self._offered("guarded", False))

    @property
    def last_reset(self) -> ResetRecord | None:
        """The record of the robot's last reset. Default: None."""
        record = self._offered("last_reset")
        return record if isinstance(record, ResetRecord) else None

    def cancel_reset(self, why: str) -> None:
        """Cancel a reset in progress, as `hal.Homing.cancel_reset` does; from any thread. Default: do nothing."""
        cancel_reset = self._offered("cancel_reset")
        if cancel_reset is not None:
            cancel_reset(why)

    def end_episode(self, reason: str) -> None:
        """Report that the episode ended normally: no command will come before the next reset. Default: do nothing.

        The robot holds the command applied last, and no stop has to be cleared.

        Args:
            reason: one sentence, for logs.

        Raises:
            RobotError: the report did not reach the robot, such as over a lost connection.
        """
        end_episode = self._offered("end_episode")
        if end_episode is not None:
            end_episode(reason)

    def judge(self, message: str, deadline_s: float) -> Answer | None:
        """Ask a person how the last episode went, as `hal.Homing.judge`. Default: None, since nobody can be asked."""
        judge = self._offered("judge")
        answer: Answer | None = None if judge is None else judge(message, deadline_s)
        return answer

    def cancel_judge(self) -> None:
        """Cancel the open question of `judge`, which then raises; from any thread. Default: do nothing."""
        cancel_judge = self._offered("cancel_judge")
        if cancel_judge is not None:
            cancel_judge()


def robot_that_steps(robot: Robot) -> Robot:
    """Return the outermost robot that overrides `step`, so that a loop skips wrappers that only pass it on."""
    while isinstance(robot, RobotWrapper) and type(robot).step is RobotWrapper.step:
        robot = robot._robot
    return robot


def inner_robots(robot: Robot) -> Iterator[Robot]:
    """Yield the robots inside a wrapper, from the outermost inwards; nothing for a robot that is not a wrapper."""
    while isinstance(robot, RobotWrapper):
        robot = robot._robot
        yield robot


# -- The check of a robot's members ----------------------------------------------------------------------------


def _check_members(robot: object) -> None:
    if isinstance(robot, RobotWrapper):
        return  # it has all members, and its class was checked when it was defined
    kind, members = type(robot), set(dir(robot))
    for member in _REQUIRED_MEMBERS:
        if member not in members:
            raise TypeError(
                f"{_name(kind)} is no hal.Robot: it has no {member!r}; a robot has {', '.join(_REQUIRED_MEMBERS)}"
            )
    for pair in _PAIRS:
        if len(members.intersection(pair)) == 1:
            present, missing = sorted(pair, key=lambda member: member not in members)
            raise TypeError(f"{_name(kind)} has {present!r} but no {missing!r}; a robot has both of them or neither")
    _check_spelling(kind, members, (member for member in OPTIONAL_MEMBERS if member not in members))


def _check_spelling(kind: type, names: Iterable[str], members: Iterable[str]) -> None:
    """Refuse a public name that resembles a member's; an ending added to a member's name (``steps``) is none."""
    members = tuple(members)
    for name in names:
        if name.startswith("_") or name in members:
            continue
        for member in difflib.get_close_matches(name, members, 1, _SIMILAR):
            if not name.startswith(member):
                raise TypeError(
                    f"{_name(kind)} has {name!r}, which no one calls; did you mean {member!r}? If not, rename it, "
                    "for example with an underscore in front"
                )


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# -- Streams of worlds as of robots ------------------------------------------------------------------------------


@runtime_checkable
class Streaming(Protocol):
    """A robot or a world with sensors that are sampled at their own rates; see `RobotWrapper.streams`."""

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The streams on offer."""
        ...

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Send the samples of these streams to sinks until `close`."""
        ...


def streams_of(source: object) -> tuple[StreamSpec, ...]:
    """Return the streams of a robot or a world; none if it offers none."""
    return source.streams if isinstance(source, Streaming) else ()


def pass_on(source: object, sinks: Mapping[str, SampleSink]) -> None:
    """Pass the sinks to a robot or a world, if it offers streams."""
    if isinstance(source, Streaming):
        source.stream_to(sinks)
