"""Make setpoints from messages: joint trajectories, joint positions and velocities of a base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hal import Field, RobotError, RobotSpec, Spec
from hal.joints import JointCommands
from hal.robot import elements_of

__all__ = [
    "MAX_POINTS",
    "MAX_SECONDS",
    "CommandRefused",
    "JointPath",
    "Positions",
    "Setpoint",
    "TwistMap",
    "Velocities",
]

MAX_POINTS = 10_000
"""Largest number of points of a trajectory."""

MAX_SECONDS = 3600.0
"""Longest trajectory, and latest start after its arrival, seconds."""

_LATE_S = 0.5
"""Longest time by which a trajectory's start may lie in the past, seconds."""

_SAMPLES = 8
"""Places in each interval of a cubic path at which its range and speed are checked."""

_START_PERIODS = 2
"""Control periods at full speed by which a trajectory may begin beside the command."""

_ROUNDING = 1e-6
_SHOWN = 5


class CommandRefused(RobotError):
    """A command is not legal, or comes at a time when no command is accepted. Nothing moves because of it."""


class Setpoint(Protocol):
    """Decide a part of the robot's command, by this machine's monotonic clock."""

    def at(self, now_s: float, applied: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the part of the robot's command that this setpoint decides; empty holds the robot.

        Args:
            now_s: monotonic clock, seconds.
            applied: the command that was applied last, by the names of the robot's commands.
        """
        ...


@dataclass(frozen=True)
class JointPath:
    """A joint trajectory from the command at its arrival through its points; at its end the last point holds.

    Between two points the positions are linear in time, or cubic where both points have velocities, as
    ``joint_trajectory_controller`` does. A joint that the message does not name keeps its command.

    Attributes:
        joints: the robot's joints.
        times_s: times of the points on the monotonic clock, ascending, (k,); the first is that of the beginning.
        positions: (k, n).
        velocities: (k, n), or None.
    """

    joints: JointCommands
    times_s: np.ndarray
    positions: np.ndarray
    velocities: np.ndarray | None

    @staticmethod
    def of(
        message: Any,
        joints: JointCommands,
        applied: Mapping[str, np.ndarray],
        now_s: float,
        wall_ns: int,
        period_s: float,
    ) -> JointPath:
        """Make a path from a ``trajectory_msgs/JointTrajectory``.

        Args:
            message: the decoded message. ``header.stamp`` 0 starts at once.
            joints: the robot's joints.
            applied: the command that was applied last.
            now_s: monotonic clock, seconds.
            wall_ns: wall clock at the same time, nanoseconds since 1970.
            period_s: the robot's control period.

        Raises:
            CommandRefused: joints are unknown, named twice or missing; points are missing, too many, of another
                length, not finite, out of range, not ascending in time, too fast for the robot's limits, or have
                efforts; or the start is not near.
        """
        columns = _columns(list(message.joint_names), joints)
        points = list(message.points)
        if not 0 < len(points) <= MAX_POINTS:
            raise CommandRefused(f"the trajectory has {len(points)} points, allowed are 1 to {MAX_POINTS}")
        delay_s = 0.0
        if stamp_ns := _nanoseconds(message.header.stamp):
            delay_s = (stamp_ns - wall_ns) / 1e9
            if not -_LATE_S <= delay_s <= MAX_SECONDS:
                raise CommandRefused(
                    f"the trajectory starts {delay_s:.1f} s from now by its header.stamp, allowed are {-_LATE_S} to "
                    f"{MAX_SECONDS:g} s: compare the clocks of both machines, or leave the stamp 0 to start at once"
                )
        positions = np.tile(joints.vector(applied), (len(points) + 1, 1))
        velocities, times_s = np.zeros_like(positions), np.zeros(len(points) + 1)
        has_velocities = all(len(point.velocities) for point in points)
        for number, point in enumerate(points, 1):
            if len(point.effort):
                raise CommandRefused(f"point {number} has efforts, which this robot does not take: leave them out")
            positions[number, columns] = _values(point.positions, f"positions of point {number}", len(columns))
            if has_velocities:
                velocities[number, columns] = _values(point.velocities, f"velocities of point {number}", len(columns))
            times_s[number] = _nanoseconds(point.time_from_start) / 1e9
        _check_times(times_s[1:])
        times_s[1:] += delay_s
        slack = _START_PERIODS * period_s * joints.max_velocity
        if times_s[1] <= 0 and np.all(np.abs(positions[1] - positions[0]) <= slack):
            times_s[1] = period_s  # the robot is at the first point
            if len(points) > 1:
                times_s, positions, velocities = (np.delete(part, 1, 0) for part in (times_s, positions, velocities))
        if np.any(np.diff(times_s) <= 0):
            raise CommandRefused("it begins in the past, or away from the robot's present command: give it more time")
        path = JointPath(joints, times_s + now_s, positions, velocities if has_velocities else None)
        path._check_motion(slack)
        return path

    def _check_motion(self, slack: np.ndarray) -> None:
        """Refuse a path that leaves the joints' ranges, or is faster than the robot's limits, also between points.

        Args:
            slack: what the way to the first point may be longer, (n,): a path planned from a measured pose begins
                beside the command, which leads or lags.
        """
        joints, times_s, positions, first = self.joints, self.times_s, self.positions, 1
        if self.velocities is not None:
            first = _SAMPLES
            between = np.linspace(times_s[:-1], times_s[1:], _SAMPLES, endpoint=False, axis=1).ravel()
            times_s = np.append(between, times_s[-1])
            positions = self._positions_at(times_s)
        _check_range(positions[1:], joints)
        allowed = joints.max_velocity * np.diff(times_s)[:, None] * (1 + _ROUNDING) + _ROUNDING
        allowed[:first] += slack
        moves = np.abs(np.diff(positions, axis=0))
        if np.any(moves > allowed):
            row, column = np.unravel_index(np.argmax(moves - allowed), moves.shape)
            raise CommandRefused(
                f"{joints.names[column]} would move by {moves[row, column]:.3g} in {np.diff(times_s)[row]:.3g} s, "
                f"allowed are {joints.max_velocity[column]:g} a second: give the points more time"
            )

    def at(self, now_s: float, applied: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the positions at a time; see `Setpoint.at`."""
        return self.joints.command(self._positions_at(np.array([now_s]))[0])

    def _positions_at(self, times_s: np.ndarray) -> np.ndarray:
        """Return the positions at times, (m, n); before the first point and after the last one they stay."""
        after = np.clip(np.searchsorted(self.times_s, times_s, side="right"), 1, len(self.times_s) - 1)
        first, last = self.positions[after - 1], self.positions[after]
        span_s = (self.times_s[after] - self.times_s[after - 1])[:, None]
        share = np.clip((times_s - self.times_s[after - 1])[:, None] / span_s, 0.0, 1.0)
        if self.velocities is None:
            return first + share * (last - first)
        start, end = span_s * self.velocities[after - 1], span_s * self.velocities[after]
        square, cube = share**2, share**3  # the cubic Hermite polynomial
        return (
            (2 * cube - 3 * square + 1) * first + (3 * square - 2 * cube) * last
            + (cube - 2 * square + share) * start + (cube - square) * end
        )  # fmt: skip


@dataclass(frozen=True)
class Positions:
    """Goals of all joints, which hold until a deadline; then the robot holds where its command is.

    Attributes:
        joints: the robot's joints.
        goal: (n,).
        until_s: monotonic clock, seconds.
    """

    joints: JointCommands
    goal: np.ndarray
    until_s: float

    @staticmethod
    def of(message: Any, joints: JointCommands, now_s: float, deadline_s: float) -> Positions:
        """Make goals from a ``std_msgs/Float64MultiArray`` with one number for each joint, in the joints' order.

        Raises:
            CommandRefused: there are more or fewer numbers, or one is not finite or out of range.
        """
        goal = _values(message.data, "data", len(joints.names))
        _check_range(goal[None], joints)
        return Positions(joints, goal, now_s + deadline_s)

    def at(self, now_s: float, applied: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the goals until the deadline; see `Setpoint.at`."""
        return self.joints.command(self.goal) if now_s <= self.until_s else {}


class TwistMap:
    """Map the axes of a ``geometry_msgs/Twist`` to elements of a robot's commands.

    Args:
        text: such as ``linear.x=twist.forward,angular.z=twist.turn``: axis = element (`hal.elements_of`), in m/s and
            rad/s.
        spec: the robot's description.

    Raises:
        ValueError: the text is not understood, or an axis or element is unknown or named twice.
    """

    AXES = tuple(f"{part}.{axis}" for part in ("linear", "angular") for axis in "xyz")

    def __init__(self, text: str, spec: RobotSpec) -> None:
        fields = [(field, elements_of(Spec("command", (field,)))) for field in spec.commands]
        places = {name: (field, index) for field, names in fields for index, name in enumerate(names)}
        self._places: dict[str, tuple[Field, int]] = {}
        for pair in text.split(","):
            axis, _, element = (part.strip() for part in pair.partition("="))
            if axis not in self.AXES or element not in places or axis in self._places:
                raise ValueError(
                    f"{pair!r} maps no axis: write AXIS=ELEMENT with an axis of {', '.join(self.AXES)} and an element "
                    f"of {', '.join(places)}, separated by commas, each axis once"
                )
            self._places[axis] = places[element]

    def velocities(self, message: Any, now_s: float, deadline_s: float) -> Velocities:
        """Make velocities from a Twist.

        Raises:
            CommandRefused: a number is not finite or out of range, or an axis that the robot lacks is not 0.
        """
        values = []
        for axis in self.AXES:
            part, _, letter = axis.partition(".")
            value, place = float(getattr(getattr(message, part), letter)), self._places.get(axis)
            low, high = (0.0, 0.0) if place is None else (_at(bound, *place) for bound in place[0].bounds)
            if not low <= value <= high:  # also where it is NaN
                raise CommandRefused(f"{axis} is {value:g}, allowed are {low:g} to {high:g}")
            if place is not None:
                values.append((place[0].name, place[1], value))
        return Velocities(tuple(values), now_s + deadline_s)


@dataclass(frozen=True)
class Velocities:
    """Velocities of a base until a deadline, and 0 after it.

    Attributes:
        values: name of a command, index of its element, value.
        until_s: monotonic clock, seconds.
    """

    values: tuple[tuple[str, int, float], ...]
    until_s: float

    def at(self, now_s: float, applied: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the commands with these velocities; see `Setpoint.at`."""
        command: dict[str, np.ndarray] = {}
        for name, index, value in self.values:
            array = command.setdefault(name, np.array(applied[name]))
            array.flat[index] = value if now_s <= self.until_s else 0.0
        return command


def _nanoseconds(stamp: Any) -> int:
    """Return the nanoseconds of a ``builtin_interfaces`` Time or Duration."""
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def _at(bound: Any, field: Field, index: int) -> float:
    return float(np.broadcast_to(bound, field.shape).flat[index])


def _columns(names: list[str], joints: JointCommands) -> list[int]:
    """Return the places of a trajectory's joints in the vector of the robot's joints."""
    allowed = f"allowed are {', '.join(joints.names) or 'none: this robot takes no joint positions'}"
    unknown = [name for name in names if name not in joints.names]
    if unknown:
        shown = ", ".join(repr(name[:60]) for name in unknown[:_SHOWN])
        raise CommandRefused(f"{len(unknown)} of the trajectory's joints are unknown, such as {shown}; {allowed}")
    if not names or len(set(names)) != len(names):
        raise CommandRefused(f"the trajectory names {'a joint twice' if names else 'no joint'}; {allowed}")
    return [joints.names.index(name) for name in names]


def _values(values: Any, what: str, size: int) -> np.ndarray:
    array = np.asarray(values, float)
    if array.shape != (size,):
        raise CommandRefused(f"{what}: {array.size} numbers, there must be {size}, one for each joint")
    if not np.isfinite(array).all():
        raise CommandRefused(f"{what}: a number is NaN or infinite")
    return array


def _check_times(times_s: np.ndarray) -> None:
    if times_s[0] < 0 or np.any(np.diff(times_s) <= 0) or times_s[-1] > MAX_SECONDS:
        raise CommandRefused(
            f"time_from_start must begin at 0 or later, ascend from point to point and end within {MAX_SECONDS:g} s"
        )


def _check_range(positions: np.ndarray, joints: JointCommands) -> None:
    wrong = np.argwhere((positions < joints.low - _ROUNDING) | (positions > joints.high + _ROUNDING))
    if len(wrong):
        row, column = wrong[0]
        raise CommandRefused(
            f"{joints.names[column]} would be {positions[row, column]:.4g}, allowed are {joints.low[column]:.4g} to "
            f"{joints.high[column]:.4g}"
        )
