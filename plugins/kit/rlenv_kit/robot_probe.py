"""Drive a robot under test by small, slow, bounded motions, on hardware or in simulation."""

from __future__ import annotations

import itertools
import operator
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hal import Field, Robot, RobotSpec, RobotState, RobotStopped, Spec
from hal.wrapper import RobotWrapper
from rlenv_kit.report import Failed, Note, NotTried
from rlenv_kit.robot_states import state_problem
from rlenv_kit.supervisor import CallLog
from rlenv_kit.tables import difference, elements_of

__all__ = [
    "BoundedRobot", "Command", "MotionBounds", "RobotProbe", "check_held", "copied", "is_simulated",
    "pairs_of_speeds", "resolution", "span_of", "write_into",
]  # fmt: skip

Command = dict[str, np.ndarray]

_ROUNDING = 1e-6
"""Relative difference of two measured values that counts as rounding."""

_FAR = 0.4
"""Distance of a far command of a simulated robot, as a share of the command's range."""

_QUICK_S = 0.008
"""Mean time of a step up to which a simulation is tried for longer, in seconds."""

_FEW = 8
"""Range of a whole number up to which both its ends are tried."""

_MOST_STRIDES = 30
"""Strides of a real robot's command away from its start."""

_GRID = 0.05
"""Largest deviation of a coarse sensor's changes from whole steps of its encoder, in steps."""

_OPEN_RANGE = 1e3
"""The range, in its unit, that a command counts as having where it has no bounds."""


@dataclass(frozen=True)
class MotionBounds:
    """Bounds on every motion that the checks command.

    Attributes:
        travel: largest distance of a command from its value at the start of an episode, as a share of its range.
        speed: largest rate of change of a command, as a share of its range per second. It is never more than half of
            the spec's ``max_velocity``.
    """

    travel: float = 0.05
    speed: float = 0.1

    def stride(self, spec: RobotSpec, field: Field) -> np.ndarray:
        """Return the largest change in one control period, in the unit and shape of the command."""
        stride = self.speed * span_of(field) * spec.period_s
        limit = spec.limits.max_velocity.get(field.name)
        if limit is not None:
            stride = np.minimum(stride, 0.5 * np.asarray(limit, float) * spec.period_s)
        return np.broadcast_to(stride, field.shape)

    def distance(self, field: Field) -> np.ndarray:
        """Return the largest distance from the start, in the unit and shape of the command."""
        return self.travel * span_of(field)

    def describe(self, spec: RobotSpec) -> list[str]:
        """Return a line for each command that says how far and how fast it will move."""
        return [
            f"{field.name}: at most {_number(self.distance(field).max())} {field.unit} from its start, at most "
            f"{_number(self.stride(spec, field).max() * spec.rate_hz)} {field.unit}/s"
            for field in spec.commands
        ]


SIMULATED = MotionBounds(travel=0.25, speed=1.0)
"""Bounds for a robot that moves no hardware."""


def span_of(field: Field) -> np.ndarray:
    """Return the range of a command in its unit, at most 1,000, also without bounds; in the shape of its bounds."""
    low, high = (np.asarray(bound, float) for bound in field.bounds)
    with np.errstate(over="ignore"):
        return np.asarray(np.minimum(high - low, _OPEN_RANGE))


def pairs_of_speeds(spec: RobotSpec) -> list[tuple[str, str]]:
    """Return pairs of sensors: a place, and its speed, by unit, shape and the first word of their names.

    Where one place and one speed have such a unit and shape, their names may be any. A place that measures a command
    comes before a goal of the same first word.
    """
    pairs, measured = list[tuple[str, str]](), set(spec.measured_by.values())
    for speed in spec.sensors:
        alike = [other for other in spec.sensors if other.shape == speed.shape]
        places = [other.name for other in alike if f"{other.unit}/s" == speed.unit]
        near = max((_shared(name, speed.name) for name in places), default=0)
        if len(places) > 1 or sum(other.unit == speed.unit for other in alike) > 1:
            places = [name for name in places if "_" in speed.name[:near] and _shared(name, speed.name) == near]
        best = [name for name in places if name in measured] or places
        pairs += [(best[0], speed.name)] if len(best) == 1 else []
    return [pair for pair in pairs if [place for place, _ in pairs].count(pair[0]) == 1]


def _shared(one: str, other: str) -> int:
    """Return the length of the common beginning of two names."""
    return sum(itertools.takewhile(bool, itertools.starmap(operator.eq, zip(one, other, strict=False))))


def _number(value: float) -> str:
    return f"{value:.3g}"


def is_simulated(robot: object) -> bool:
    """Return whether a robot reports that it moves no hardware."""
    return bool(getattr(robot, "simulated", False))


class BoundedRobot(RobotWrapper):
    """Keep every legal command within `MotionBounds` around the pose after a reset.

    Args:
        robot: the robot to bound.
        bounds: limits on its motion.
    """

    def __init__(self, robot: Robot, bounds: MotionBounds) -> None:
        super().__init__(robot)
        self._bounds = bounds
        self._start: Mapping[str, np.ndarray] = {}
        self._last: Mapping[str, np.ndarray] = {}

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset the inner robot, and centre the bounds on its pose after that."""
        robot_state = self._robot.reset({key: value for key, value in options.items() if key != "start"})
        self._start = self._last = {name: np.array(value) for name, value in robot_state.applied.items()}
        return robot_state

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the inner robot by the nearest command within the bounds.

        Raises:
            IllegalAction: the command violates the spec; it is passed on unchanged.
        """
        spec = self.spec
        values = spec.commands.validate(command, "command")
        bounded = {}
        for field in spec.commands:
            stride, distance = self._bounds.stride(spec, field), self._bounds.distance(field)
            value = np.clip(values[field.name], self._start[field.name] - distance, self._start[field.name] + distance)
            value = np.clip(value, self._last[field.name] - stride, self._last[field.name] + stride)
            bounded[field.name] = value.astype(field.numpy_dtype).clip(*field.bounds)
        robot_state = self._robot.step(bounded)
        self._last = {name: np.array(value) for name, value in robot_state.applied.items()}
        return robot_state


class RobotProbe:
    """Drive a robot under test.

    Args:
        robot: the robot under test.
        steps: the length of a walk.
        seed: the seed of resets and commands.
        repeatable: whether equal seeds must give equal states; None finds out.
        log: records the calls.
        bounds: limits on all motions.

    Attributes:
        problem: the first error found in any state of the run; empty if there was none.
        forgot_early_stop: whether a stop before the first reset was cleared without a reason.
        reset_moves: False once a reset was found to leave the robot where it is.
    """

    def __init__(
        self, robot: Robot, steps: int, seed: int, repeatable: bool | None, log: CallLog, bounds: MotionBounds
    ) -> None:
        self.robot, self.steps, self.seed, self.repeatable = robot, steps, seed, repeatable
        self.log, self.bounds = log, bounds
        self.simulated = is_simulated(robot)
        self.spec: RobotSpec | None = None
        self.problem = ""
        self.forgot_early_stop = False
        self.reset_moves = True
        self._stamp_ns: int | np.integer[Any] | None = None
        self._tolerated = ""
        self._stepped_s, self._steps = 0.0, 0
        self._cameras: set[str] = set()
        self._first: RobotState | None = None
        self._start: Mapping[str, np.ndarray] = {}
        self._notes: dict[str, Note] = {}

    # -- notes -----------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        """Record a remark on something that the contract leaves open, once."""
        self._notes.setdefault(text, Note("robot", text))

    @property
    def notes(self) -> tuple[Note, ...]:
        """The remarks made so far."""
        return tuple(self._notes.values())

    # -- calls -----------------------------------------------------------------------------------------

    def reset(self, options: Mapping[str, object] | None = None) -> RobotState:
        """Reset the robot with the seed."""
        return self.reset_with({"seed": self.seed, **(options or {})})

    def reset_with(self, options: Mapping[str, object]) -> RobotState:
        """Reset the robot with exactly these options."""
        robot_state = self.log.call("reset", self.robot.reset, options)
        _check_state(robot_state)
        self._look_at(robot_state)
        self._start = {name: np.array(value) for name, value in robot_state.applied.items()}
        return robot_state

    def step(self, command: Any) -> RobotState:
        """Step the robot."""
        began = time.monotonic()
        robot_state = self.log.call("step", self.robot.step, command)
        self._stepped_s, self._steps = self._stepped_s + time.monotonic() - began, self._steps + 1
        _check_state(robot_state)
        self._look_at(robot_state)
        return robot_state

    def _look_at(self, robot_state: RobotState) -> None:
        """Remember what is wrong with a state, in whichever check it comes."""
        stamp_ns, before_ns = robot_state.stamp_ns, self._stamp_ns
        if isinstance(stamp_ns, int | np.integer) and before_ns is not None and stamp_ns < before_ns:
            self._remember(f"stamp_ns fell from {before_ns} to {stamp_ns}")
        self._stamp_ns = stamp_ns if isinstance(stamp_ns, int | np.integer) else None
        self._remember(state_problem(self.robot.spec, robot_state, self.streams, self._tolerated, self._cameras))
        lost = self._cameras - set(robot_state.images)
        if lost and not robot_state.faults:
            self._remember(f"a state has no image of {', '.join(sorted(lost))} and no fault, and one before had")
        self._cameras |= set(robot_state.images)
        if self._first is None:
            self._first = copied(robot_state)

    def _remember(self, problem: str) -> None:
        if problem and not self.problem:
            self.problem = f"{problem} ({self.log.how()})"

    @contextmanager
    def tolerating(self, what: str) -> Iterator[None]:
        """Overlook one kind of problem of `state_problem` inside the block."""
        before, self._tolerated = self._tolerated, what
        try:
            yield
        finally:
            self._tolerated = before

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of the robot's streams."""
        return tuple(stream.name for stream in getattr(self.robot, "streams", ()))

    def stop(self, reason: str) -> None:
        """Stop the robot from this thread."""
        self.log.call("stop", self.robot.stop, reason)

    def stop_from_another_thread(self, reason: str) -> float:
        """Stop the robot from another thread; return how long the call took, in seconds.

        Raises:
            Failed: the call raised an exception, or did not return.
        """
        errors: list[BaseException] = []
        took: list[float] = []

        def stop() -> None:
            began = time.monotonic()
            try:
                self.robot.stop(reason)
            except BaseException as error:
                errors.append(error)
            took.append(time.monotonic() - began)

        thread = threading.Thread(target=stop, daemon=True, name="conformance stop")
        thread.start()
        thread.join(self.log.deadlines.step)
        if errors:
            raise Failed(f"stop raised {type(errors[0]).__name__}: {errors[0]}", how=f"stop({reason!r}) from a thread")
        if not took:
            raise Failed(f"stop did not return within {self.log.deadlines.step:g} s",
                         "it returns at once, from any thread", how=f"stop({reason!r}) from a thread")  # fmt: skip
        return took[0]

    def read(self) -> RobotState | None:
        """Return what the robot measures while it is stopped; None if it has no ``read``, or can't read now."""
        robot_state = self.read_itself()
        return None if robot_state is None else copied(robot_state)

    def read_itself(self) -> RobotState | None:
        """Return the robot's own reading, as `read` does, and remember what is wrong with it."""
        call = getattr(self.robot, "read", None)
        if not callable(call):
            return None
        try:
            robot_state: object = self.log.call("read", call)
        except RobotStopped:
            self._remember("read raised RobotStopped; it tells what is measured while the robot is stopped too")
            return None
        except Exception:
            return None
        if robot_state is None:
            return None
        if not isinstance(robot_state, RobotState):
            self._remember(f"read returned a {type(robot_state).__name__}; it returns a state or None")
            return None
        # samples may grow old while nothing steps
        self._remember(state_problem(self.robot.spec, robot_state, self.streams, "age"))
        return robot_state

    def close(self) -> None:
        """Close the robot."""
        self.log.call("close", self.robot.close)

    @property
    def is_quick(self) -> bool:
        """Whether it is a simulation whose steps take so little time that further ones cost nothing."""
        return self.simulated and self._stepped_s < _QUICK_S * max(self._steps, 1)

    # -- walks -----------------------------------------------------------------------------------------

    def nearby_command(self, robot_state: RobotState, rng: np.random.Generator) -> Command:
        """Return a random legal command near the applied one, within the bounds."""
        command = {}
        for field in self.robot.spec.commands:
            stride = self.bounds.stride(self.robot.spec, field)
            stride = np.minimum(stride, 0.02 * span_of(field)) if field.numpy_dtype.kind == "f" else np.ceil(stride)
            command[field.name] = self.towards(
                field, robot_state, robot_state.applied[field.name] + rng.uniform(-1, 1, field.shape) * stride
            )
        return command

    def towards(self, field: Field, robot_state: RobotState, target: np.ndarray) -> np.ndarray:
        """Return the legal value nearest to a target, within the bounds around the start and the applied value."""
        applied = np.asarray(robot_state.applied[field.name], float)
        stride, distance = self.bounds.stride(self.robot.spec, field), self.bounds.distance(field)
        start = np.asarray(self._start.get(field.name, applied), float)
        value = np.clip(np.clip(target, start - distance, start + distance), applied - stride, applied + stride)
        if field.numpy_dtype.kind != "f":
            value = np.round(value)
        low, high = (np.asarray(bound, float) for bound in field.bounds)
        return np.asarray(np.clip(value, low, high).astype(field.numpy_dtype).clip(*field.bounds))

    def onwards(self, field: Field, robot_state: RobotState) -> np.ndarray:
        """Return a command one stride further, away from the limit that was nearest at the start."""
        low, high = (np.asarray(bound, float) for bound in field.bounds)
        now = np.asarray(robot_state.applied[field.name], float)
        start = np.asarray(self._start.get(field.name, now), float)
        return self.towards(field, robot_state, now + np.where(start <= (low + high) / 2, 1, -1) * 1e6)

    def excursions(self, field: Field, robot_state: RobotState, most: int = 12) -> Iterator[np.ndarray]:
        """Yield legal values of a command away from the applied one, each in a single element.

        A simulated robot gets values far away on both sides. A real one gets a stride more with each value, up to the
        bound of its motions, a control period apart, so that it stays within the bounds even if it obeys.

        Args:
            field: the command; one of texts has no such values.
            robot_state: the state whose applied values are left.
            most: the number of elements that are tried.
        """
        if field.is_text:
            return
        now = self.hold(robot_state)[field.name]
        low, high = (np.asarray(bound, float) for bound in field.bounds)
        for index in elements_of(field, most):
            if not self.simulated:
                yield from self._strides(field, robot_state, index)
                continue
            far = _FAR * span_of(field)[index]
            steps = (far, -far)
            if field.numpy_dtype.kind != "f":
                few = span_of(field)[index] <= _FEW
                ends = ((bound - now)[index] for bound in (high, low) if few)
                steps = tuple(dict.fromkeys((1, -1, round(far), -round(far), *ends)))
            for step in steps:
                value = np.array(now)
                value[index] = np.clip(float(now[index]) + step, low[index], high[index])
                if value[index] != now[index]:
                    yield value

    def _strides(self, field: Field, robot_state: RobotState, index: tuple[int, ...]) -> Iterator[np.ndarray]:
        now = np.array(self.hold(robot_state)[field.name])
        far = self.towards(field, robot_state, self.onwards(field, robot_state))
        side = np.sign(float(far[index]) - float(now[index]))
        stride = self.bounds.stride(self.robot.spec, field)[index]
        distance = np.broadcast_to(self.bounds.distance(field), field.shape)[index]
        low, high = (float(bound[index]) for bound in field.bounds)
        for count in range(1, _MOST_STRIDES + 1):
            value, step = np.array(now), min(count * stride, distance)
            value[index] = np.clip(float(now[index]) + side * step, low, high)
            if value[index] != now[index]:
                time.sleep(self.robot.spec.period_s)
                yield value

    def hold(self, robot_state: RobotState) -> Command:
        """Return the last applied command, clipped to its range."""
        return {
            field.name: np.asarray(robot_state.applied[field.name], field.numpy_dtype).clip(*field.bounds)
            for field in self.robot.spec.commands
        }

    def walk(
        self, between: Callable[[RobotState], None] = lambda robot_state: None, steps: int | None = None
    ) -> list[RobotState]:
        """Reset, step, and return the states.

        Args:
            between: called with each state before the next step, to disturb the walk.
            steps: by default the probe's.
        """
        rng, robot_states = np.random.default_rng(self.seed), [self.reset()]
        for _ in range(self.steps if steps is None else steps):
            command = self.nearby_command(robot_states[-1], rng)
            between(robot_states[-1])
            robot_states.append(self.step(command))
        return robot_states

    def aged(self, newer: RobotState, older: RobotState) -> set[str]:
        """Return the sensors that a reset leaves to the robot's age, such as the charge of a battery.

        Args:
            newer: the first state of another instance.
            older: a state after a reset of this one, which has lived longer.
        """
        if self._first is None:
            return set()
        began, now, other = (robot_state.sensors for robot_state in (self._first, older, newer))
        names = (began.keys() & now.keys() & other.keys()) - set(self.robot.spec.measured_by.values())
        return {
            name
            for name in names
            if np.array_equal(began[name], other[name]) and not np.array_equal(now[name], other[name])
        }

    def compare(
        self,
        first: Sequence[RobotState],
        second: Sequence[RobotState],
        reason: str = "",
        slack: float = 0.0,
        apart: Collection[str] = (),
    ) -> None:
        """Check that two walks are equal, apart from rounding in a reset that moves to its start.

        Args:
            first: the states of a walk.
            second: the states of a walk of the same commands.
            reason: what happened between the walks, for the message.
            slack: allowed difference, as a share of a field's range.
            apart: sensors that may differ.

        Raises:
            NotTried: the robot isn't repeatable.
            Failed: the walks differ.
        """
        if self.repeatable is False:
            raise NotTried("equal seeds need not give equal states here")
        spec = self.robot.spec
        counters = {name for name in spec.sensors.names if name in apart or _counts([*first, *second], name)}
        for name in counters:
            self.note(f"sensor {name} goes on over resets")
        for number, (before, after) in enumerate(zip(first, second, strict=True)):
            measured = [{name: value for name, value in state.sensors.items() if name not in counters}
                        for state in (before, after)]  # fmt: skip
            parts: list[tuple[Spec, Mapping[str, np.ndarray], Mapping[str, np.ndarray]]] = [
                (spec.sensors, measured[0], measured[1]),
                (spec.commands, before.applied, after.applied),
            ]
            for fields, one, other in parts:
                name = difference(one, other) and _far_apart(fields, one, other, slack)
                if name:
                    raise Failed(f"state {number} differs in {name} {reason}".rstrip())


def _counts(walks: Sequence[RobotState], sensor: str) -> bool:
    """Return whether a sensor counts over the robot's life, such as steps or a way: in two walks it never fell.

    A number that is no whole one must go on within a walk too, since one that is drawn at each reset stays in it. A
    whole number that falls by 1 between the walks, such as a charge in percent, counts as well.
    """
    values = np.array([state.sensors[sensor] for state in walks if sensor in state.sensors])
    if values.dtype.kind not in "fiu":
        return False
    half = len(values) // 2
    rises = half > 1 and bool((np.diff(values.astype(float), axis=0) >= 0).all() and (values[half] > values[0]).any())
    if values.dtype.kind == "f":
        return rises and bool((values[half - 1] > values[0]).any())
    return rises or bool(
        half > 1 and int(np.ptp(values)) == 1 and np.abs(np.diff(values.astype(float), axis=0)).sum() == 1
    )


def _far_apart(fields: Spec, one: Mapping[str, Any], other: Mapping[str, Any], slack: float) -> str:
    """Return the first field in which two structures differ by more than rounding and ``slack``; empty if none does."""
    if one.keys() != other.keys():
        return ", ".join(sorted(one.keys() ^ other.keys()))
    for name, value in one.items():
        first, second = (np.asarray(part) for part in (value, other[name]))
        if first.shape != second.shape or first.dtype.kind not in "fiu":
            return name
        first, second = first.astype(float), second.astype(float)
        allowed = _ROUNDING * np.maximum(1.0, np.abs(first)) + slack * span_of(fields[name])
        if fields[name].numpy_dtype.kind != "f":
            allowed = np.floor(slack * span_of(fields[name]))
        if not (np.abs(first - second) <= allowed).all():  # False for NaN too
            return name
    return ""


def _check_state(robot_state: object) -> None:
    if not isinstance(robot_state, RobotState):
        raise Failed(f"a {type(robot_state).__name__} came", "reset and step return a RobotState")
    for part in ("sensors", "applied"):
        if not isinstance(getattr(robot_state, part), Mapping):
            raise Failed(f"{part} is a {type(getattr(robot_state, part)).__name__}", "it must be a mapping")


def copied(robot_state: RobotState) -> RobotState:
    """Return a copy of a state with its own arrays."""
    return robot_state._replace(
        sensors={name: np.array(value) for name, value in robot_state.sensors.items()},
        applied={name: np.array(value) for name, value in robot_state.applied.items()},
        age_ns=dict(robot_state.age_ns),
    )


def write_into(spec: RobotSpec, robot_state: RobotState) -> None:
    """Write other values into the arrays of a state, where they can be written into."""
    for part, values in ((spec.sensors, robot_state.sensors), (spec.commands, robot_state.applied)):
        for name, value in values.items():
            if isinstance(value, np.ndarray) and value.flags.writeable:
                value[...] = "?" if part[name].is_text else part[name].bounds[0]


def resolution(values: np.ndarray) -> float:
    """Return the step of an encoder that values are read by, in their unit; 0 if they are no whole steps of one."""
    gaps = np.diff(np.unique(np.ravel(values)))
    gaps = gaps[gaps > 1e-9 * max(1.0, float(np.abs(values).max()))]
    if not len(gaps):
        return 0.0
    steps = gaps / gaps.min()
    return float(gaps.min()) if (np.abs(steps - np.round(steps)) < _GRID).all() and steps.max() < 50 else 0.0


def check_held(spec: RobotSpec, before: RobotState | None, after: RobotState | None, when: str, allowed: str) -> None:
    """Check that no sensor of a commanded quantity changed between two readings. If one is None, nothing is checked.

    Args:
        spec: the spec of the robot.
        before: the first reading.
        after: the second reading.
        when: when the readings were made, for the message.
        allowed: what the robot must do, for the message.

    Raises:
        Failed: a sensor changed by more than a fiftieth of its command's range.
    """
    if before is None or after is None:
        return
    for command, sensor in spec.measured_by.items():
        moved = np.abs(np.asarray(after.sensors[sensor], float) - np.asarray(before.sensors[sensor], float))
        if (moved > 0.02 * span_of(spec.commands[command])).any():
            raise Failed(f"{sensor} moved by {moved.max():.4g} {when}", allowed)
