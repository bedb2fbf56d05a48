"""Check how a robot handles commands: array ownership, acceptance of legal commands, refusal of illegal ones."""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from hal import EpisodeError, Field, IllegalAction, RobotState
from rlenv_kit.illegal import IllegalCase, illegal_values
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import RobotProbe, check_held, copied, pairs_of_speeds, span_of
from rlenv_kit.robot_stops import away, clear_stop, refused, stop_reason
from rlenv_kit.spoilt_commands import halves_of
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import difference, elements_of

__all__ = ["check_command_kept", "check_not_read", "check_same", "command_checks"]

_MOST_LIMITS = 12
"""Elements of a command that are sent to both their limits one by one; of a larger one, as many spread over it."""


_PLACES = 2.5
"""Range that a place counts as having which no command is measured by, in its unit."""

_LATER = 30
"""Steps of an episode after which a simulation is sent illegal commands once more."""


def command_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return the checks of legal and of illegal commands."""
    return declared(globals(), probe)


# -- legal -----------------------------------------------------------------------------------------------------


@check("command", "a command stays the caller's: it is neither changed nor kept", "robot", "states")
def check_command_kept(probe: RobotProbe) -> None:
    """Write into a command after its step."""
    rng = np.random.default_rng(probe.seed)
    robot_state = probe.reset()
    command = probe.nearby_command(robot_state, rng)
    asked = {name: np.array(value) for name, value in command.items()}
    robot_state = probe.step(command)
    if command.keys() != asked.keys() or difference(command, asked):
        raise Failed("step changed the caller's command")
    copy = copied(robot_state)
    asked_of = {name: np.asarray(value, float) for name, value in asked.items()}
    for field in probe.robot.spec.commands:
        command[field.name][...] = field.bounds[1]
    check_same(robot_state, copy, "is the caller's own command array")
    check_not_read(probe, command, copy, "an old command")
    after = probe.step(probe.hold(copy))
    for field in probe.robot.spec.commands:
        step = np.abs(np.asarray(after.applied[field.name], float) - np.asarray(copy.applied[field.name], float))
        span = span_of(field)
        if (step > 0.25 * span).any():
            raise Failed(f"{field.name} went to what was written into an old command", "a command is read once")
        sensor = probe.robot.spec.measured_by.get(field.name)
        if sensor is None or field.numpy_dtype.kind != "f":
            continue
        moved = np.abs(np.asarray(after.sensors[sensor], float) - np.asarray(copy.sensors[sensor], float))
        asked = np.abs(asked_of[field.name] - np.asarray(copy.sensors[sensor], float))
        if (moved > asked + 0.05 * span).any():
            raise Failed(f"{sensor} moved by {moved.max():.4g} {field.unit} after an old command was written into",
                         "a command is read once")  # fmt: skip


def check_not_read(probe: RobotProbe, written: Mapping[str, np.ndarray], before: RobotState, what: str) -> None:
    """Check that a reading does not apply what was written into arrays that the robot had been given.

    Args:
        probe: reads the robot.
        written: command name -> the array, as it is now.
        before: the state that came of the array as it was.
        what: the arrays, for the message.
    """
    reading = probe.read()
    for name, value in written.items() if reading is not None else ():
        assert reading is not None
        told = reading.applied[name]
        if np.array_equal(told, value) and not np.array_equal(told, before.applied[name]):
            raise Failed(f"applied {name} is what was written into {what}", "it is read once")


def check_same(robot_state: RobotState, copy: RobotState, problem: str) -> None:
    """Check that a state still equals its copy.

    Args:
        robot_state: the state as the robot returned it.
        copy: a copy of the state, made on return.
        problem: what happened to the state if they differ, for the message.
    """
    name = difference(copy.sensors, robot_state.sensors) or difference(copy.applied, robot_state.applied)
    if not name and dict(robot_state.age_ns) != dict(copy.age_ns):
        name = "age_ns"
    if name:
        raise Failed(f"{name} of a state {problem}")


@check("unmeasured", "applied follows commands that no sensor measures, too", "robot", "applied")
def _unmeasured(probe: RobotProbe) -> None:
    """Move each command that no sensor measures: the applied values move with it."""
    spec = probe.robot.spec
    fields = [field for field in spec.commands if field.name not in spec.measured_by and not field.is_text]
    if not fields:
        raise NotTried("each command is measured")
    for field in fields:
        robot_state = probe.reset()
        asked, told = set(), set()
        for _ in range(12):
            value = probe.onwards(field, robot_state)
            robot_state = probe.step({**probe.hold(robot_state), field.name: value})
            asked.add(np.asarray(value).tobytes())
            told.add(np.asarray(robot_state.applied[field.name]).tobytes())
            if value.tobytes() == np.asarray(robot_state.applied[field.name]).tobytes():
                break
        else:
            if len(told) == 1 and not asked <= told:
                raise Failed(f"applied {field.name} never changed, and its command did",
                             "it is what the actuators received")  # fmt: skip


@check("legal", "each legal command is accepted, at its limits and in any array", "robot", "follows")
def _legal(probe: RobotProbe) -> None:
    rng, robot_state = np.random.default_rng(probe.seed), probe.reset()
    asked: list[Mapping[str, np.ndarray]] = []
    for name, form in (("read-only arrays", _read_only), ("arrays with strides", _strided)):
        command, before = probe.nearby_command(robot_state, rng), copied(robot_state)
        asked.append({field: np.array(value) for field, value in command.items()})
        robot_state = _accepted(probe, {field: form(value) for field, value in command.items()}, f"a command of {name}")
        for field in probe.robot.spec.commands:
            if field.name in probe.robot.spec.measured_by and field.numpy_dtype.kind == "f":
                _check_between(field, before, asked, robot_state, name)
    if probe.simulated:
        with probe.tolerating("range"):  # a jump to a limit may leave the sensors' ranges for a moment
            for field in probe.robot.spec.commands:
                if not field.is_text:
                    _check_limits(probe, field)


def _read_only(value: np.ndarray) -> np.ndarray:
    value = np.array(value)
    value.setflags(write=False)
    return value


def _strided(value: np.ndarray) -> np.ndarray:
    """Return a view whose elements do not lie side by side, between zeros."""
    base = np.zeros((*value.shape, 2), value.dtype)
    base[..., 0] = value
    return base[..., 0]


def _accepted(probe: RobotProbe, command: dict[str, np.ndarray], what: str) -> RobotState:
    try:
        return probe.step(command)
    except Failed:
        raise
    except Exception as error:
        raise Failed(
            f"{what} was refused: {type(error).__name__}: {error}", "a legal command is carried out"
        ) from error


def _check_between(
    field: Field, before: RobotState, asked: list[Mapping[str, np.ndarray]], after: RobotState, what: str
) -> None:
    """Check that what was applied lies between the value before and the commands."""
    ends = np.array([before.applied[field.name], *(command[field.name] for command in asked)], float)
    slack = 5e-3 * span_of(field)
    value = np.asarray(after.applied[field.name], float)
    if ((value < ends.min(axis=0) - slack) | (value > ends.max(axis=0) + slack)).any():
        raise Failed(f"applied {field.name} is {value} after a command of {ends[-1]} in {what}",
                     "its values count, however they lie in memory")  # fmt: skip


def _check_limits(probe: RobotProbe, field: Field) -> None:
    """Send single elements to both their limits, a step each."""
    limits = [np.broadcast_to(np.asarray(bound), field.shape) for bound in field.bounds]
    for index in elements_of(field, _MOST_LIMITS):
        for limit in limits:
            if not np.isfinite(float(limit[index])) or abs(float(limit[index])) > 1e6:
                continue  # the field has no range of its own
            robot_state = probe.reset()
            value = np.array(probe.hold(robot_state)[field.name])
            value[index] = limit[index]
            what = f"{field.name}{list(index) if index else ''} at its limit {float(limit[index]):.6g}"
            _accepted(probe, {**probe.hold(robot_state), field.name: value}, what)


# -- illegal ---------------------------------------------------------------------------------------------------


def _gentle(probe: RobotProbe, robot_state: RobotState) -> list[IllegalCase]:
    """Return illegal commands of which every legal part holds still."""
    return list(illegal_values(probe.robot.spec.commands, probe.hold(robot_state), "command"))


@check("refusals", "illegal commands are refused, and the refusal names what is wrong", "robot", "states")
def _illegal_commands(probe: RobotProbe) -> None:
    robot_state = probe.reset()
    _check_refusals(probe, robot_state)
    if probe.is_quick:
        robot_state = probe.reset()
        for _ in range(_LATER):
            robot_state = probe.step(probe.hold(robot_state))
        _check_refusals(probe, robot_state)
    probe.step(probe.hold(robot_state))


def _check_refusals(probe: RobotProbe, robot_state: RobotState) -> None:
    for case in _gentle(probe, robot_state):
        try:
            probe.step(case.value)
        except IllegalAction as refusal:
            violation = refusal.violation
            named, wrong = violation.field.rpartition(".")[2], case.field.rpartition(".")[2]
            if "." in case.field and named != wrong:
                raise Failed(f"{case.name}: the refusal names the field {named!r}", f"wrong is {wrong!r}") from refusal
            if (violation.code, violation.index) != (case.code, case.index):
                named = f"code {violation.code!r} and index {violation.index}"
                raise Failed(
                    f"{case.name}: the refusal names {named}", f"it must name {case.code!r} and {case.index}"
                ) from refusal
        except Failed as finding:
            raise Failed(f"{case.name}: {finding}", "an illegal command raises IllegalAction") from finding
        except Exception as error:
            wrong = case.field.rpartition(".")[2]
            if isinstance(error, AssertionError) or ("." in case.field and wrong not in str(error)):
                raise Failed(f"{case.name}: raised {type(error).__name__}: {error!s:.120}",
                             f"a refusal is an IllegalAction, or at least names {wrong!r}") from error  # fmt: skip
            probe.note(f"an illegal command raises {type(error).__name__}; here it is IllegalAction")
        else:
            probe.stop(stop_reason())
            probe.reset(clear_stop())
            raise Failed(f"{case.name}: was carried out", "it must raise IllegalAction")


@check("unmoved", "illegal commands move nothing", "robot", "equal", "refusals")
def _illegal_moves_nothing(probe: RobotProbe) -> None:
    probe.walk()
    first = [copied(robot_state) for robot_state in probe.walk()]

    def disturb(robot_state: RobotState) -> None:
        for case in _gentle(probe, robot_state):
            refused(probe, partial(probe.step, case.value), IllegalAction, case.name, "an illegal command")

    probe.compare(first, probe.walk(disturb), "after illegal commands")


@check("measured unmoved", "illegal commands move nothing that is measured", "robot", "unmoved")
def _illegal_moves_nothing_measured(probe: RobotProbe) -> None:
    """Hold still, send illegal commands, and measure; real machines are tried in this way too."""
    spec = probe.robot.spec
    robot_state = probe.reset()
    held: list[Mapping[str, np.ndarray]] = []
    command = probe.hold(robot_state)
    for _ in range(10):
        robot_state = probe.step(command)
        held.append(copied(robot_state).sensors)
    told = copied(robot_state).applied
    stamp_ns, began = robot_state.stamp_ns, time.monotonic()
    for case in _gentle(probe, robot_state):
        refused(probe, partial(probe.step, case.value), IllegalAction, case.name, "an illegal command")
    robot_state = probe.step(command)
    _check_clock(probe, (robot_state.stamp_ns - stamp_ns) / 1e9, time.monotonic() - began)
    robot_state = probe.step(command)
    for name, sensor in spec.measured_by.items():
        field = spec.commands[name]
        before = np.array([sensors[sensor] for sensors in held], float)
        slack = 2 * np.ptp(before, axis=0) + 0.01 * span_of(field)
        moved = np.abs(np.asarray(robot_state.sensors[sensor], float) - before[-1])
        if (moved > slack).any():
            probe.stop(stop_reason())
            probe.reset(clear_stop())
            raise Failed(f"{sensor} moved by {moved.max():.4g} {field.unit} over illegal commands",
                         "nothing moves")  # fmt: skip
    applied = {name: np.asarray(value) for name, value in robot_state.applied.items()}
    for field in spec.commands:
        if field.name in spec.measured_by and not np.allclose(applied[field.name], told[field.name], atol=1e-5):
            raise Failed(f"applied {field.name} changed over illegal commands", "nothing is applied")


@check("halves", "the legal part of an illegal command moves nothing either", "robot", "measured unmoved")
def _halves(probe: RobotProbe) -> None:
    """Send illegal commands with a legal part that would move something, and measure at once and after holding."""
    spec = probe.robot.spec
    allowed = "of an illegal command nothing is carried out"
    with probe.tolerating("age"):  # a sensor that is slow may be older after so many readings than between steps
        first = _at_rest(probe)
        for name, group in itertools.groupby(halves_of(probe, first), key=operator.itemgetter(0)):
            before = probe.read()
            for _, half in group:
                refused(probe, partial(probe.step, half), IllegalAction, name, "an illegal command")
                after = probe.read()
                _stopping(probe, partial(check_held, spec, before, after, f"with {name}", allowed))
                if before is not None and after is not None:
                    _stopping(probe, partial(_check_applied, probe, before, after, name))
                if probe.simulated:  # a real one obeys stride by stride, which a legal command would undo
                    _check_at_rest(probe, first, name)
            try:
                _check_at_rest(probe, first, name)
            except EpisodeError as error:  # the watchdog of a server counts legal commands alone
                probe.note(f"after illegal commands for a while a step raises EpisodeError: {error}")
                first = _at_rest(probe)
        _check_moving(probe)
    if probe.repeatable is False or not probe.simulated:
        return
    probe.walk()
    walk = [copied(state) for state in probe.walk()]
    count = 0

    def disturb(robot_state: RobotState) -> None:
        nonlocal count
        count += 1
        for name, half in list(halves_of(probe, robot_state))[count % 5 :: 5]:
            refused(probe, partial(probe.step, half), IllegalAction, name, "an illegal command")

    probe.compare(walk, probe.walk(disturb), "after illegal commands with a legal part", slack=1e-9)


def _check_moving(probe: RobotProbe) -> None:
    """Refuse commands while everything moves, and compare readings before and after."""
    if not probe.is_quick:
        return
    robot_state = probe.reset()
    if probe.read() is None:
        return
    spec = probe.robot.spec
    spans = {speed: span_of(spec.sensors[speed]) for _, speed in pairs_of_speeds(spec)}
    spans |= {place: np.array(_PLACES) for place, _ in pairs_of_speeds(spec)}
    spans |= {sensor: span_of(spec.commands[name]) for name, sensor in spec.measured_by.items()}
    hold = probe.hold(away(probe, robot_state)[-1])
    for case in [*illegal_values(spec.commands, hold, "command")][:: max(1, len(hold))]:
        first, before = probe.read(), probe.read()
        refused(probe, partial(probe.step, case.value), IllegalAction, case.name, "an illegal command")
        after = probe.read()
        if first is None or before is None or after is None:
            return
        for name, span in spans.items():
            if spec.sensors[name].is_text:
                continue
            drift, change = (np.abs(np.asarray(end.sensors[name], float) - np.asarray(begin.sensors[name], float))
                             for begin, end in ((first, before), (before, after)))  # fmt: skip
            if (change > 2 * drift + 0.02 * span + 1e-6).any():
                raise Failed(f"{name} changed by {change.max():.4g} with {case.name}, while the robot moved",
                             "a refused command changes nothing")  # fmt: skip


def _at_rest(probe: RobotProbe) -> RobotState:
    """Reset, hold still for a moment, and return a copy of the state."""
    robot_state = probe.reset()
    command = probe.hold(robot_state)
    for _ in range(5):
        robot_state = probe.step(command)
    return copied(robot_state)


def _check_at_rest(probe: RobotProbe, first: RobotState, name: str) -> None:
    """Hold still for a step, and check that the robot is and applies what it did before an illegal command."""
    robot_state = probe.step(probe.hold(first))
    _stopping(probe, partial(_check_applied, probe, first, robot_state, name))
    _stopping(probe, partial(check_held, probe.robot.spec, first, robot_state, f"with {name}",
                             "of an illegal command nothing is carried out"))  # fmt: skip


def _stopping(probe: RobotProbe, check_state: Callable[[], None]) -> None:
    """Make a comparison; if it fails, stop the robot before the finding is passed on, since it moves."""
    try:
        check_state()
    except Failed:
        probe.stop(stop_reason())
        probe.reset(clear_stop())
        raise


def _check_applied(probe: RobotProbe, before: RobotState, after: RobotState, name: str) -> None:
    for field in probe.robot.spec.commands:
        told, was = (np.asarray(state.applied[field.name]) for state in (after, before))
        if not field.is_text and not np.allclose(told, was, atol=1e-5):
            raise Failed(f"applied {field.name} went from {was.tolist()} to {told.tolist()} with {name}",
                         "of an illegal command nothing is applied")  # fmt: skip


def _check_clock(probe: RobotProbe, stamps_s: float, wall_s: float) -> None:
    """Check that the clock of a simulation did not go on by itself over illegal commands and one legal step."""
    period_s = probe.robot.spec.period_s
    if probe.simulated and wall_s < 0.5 * stamps_s and stamps_s > 1.5 * period_s:
        raise Failed(f"the clock advanced by {stamps_s / period_s:.3g} periods over illegal commands and one step",
                     "a refused command takes no time")  # fmt: skip
