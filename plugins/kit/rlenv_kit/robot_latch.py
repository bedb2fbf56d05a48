"""Check that a stop holds: no command is carried out under it, and only a reset with a reason clears it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np

from hal import RobotError, RobotState, RobotStopped
from hal.robot import PRESENT, is_driven, is_effort
from rlenv_kit.illegal import illegal_values
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import RobotProbe, check_held, copied, pairs_of_speeds, span_of
from rlenv_kit.robot_stops import away, clear_stop, refused, stop_reason
from rlenv_kit.spoilt_commands import halves_of
from rlenv_kit.supervisor import PlannedCheck, check, declared

__all__ = ["latch_checks"]

_SETTLE_S = 0.5
"""Time in which a stopped robot comes to rest."""

_READINGS = 8
"""Readings of a robot at rest, which show its noise."""

_SHOWS = 0.05
"""Change of a sensor that measures no command which counts as caused by one, as a share of the sensor's range."""

_STAYS = 0.05
"""Largest change of a measured value after a cleared stop while the robot holds, as a share of the command's range."""

_REFUSALS_S = 1.0
"""Control time for which a stopped robot is sent commands, which shows what goes on with them."""

_MOST_REFUSALS = 60
"""Largest number of commands that are sent to a stopped robot in a row."""

_NO_REASONS: tuple[Any, ...] = (True, 1, 1.5, None, ["a reason"], {"reason": "it is free"}, "\t\n")
"""Values of ``clear_stop`` that are no texts, or blank ones."""


def latch_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return the checks of a stop's latch."""
    return declared(globals(), probe)


def _reasons() -> dict[str, str]:
    """Return reasons of unusual lengths and characters, each with random digits that no robot can guess."""
    text = stop_reason()
    return {
        "60 characters": f"{text:.<60}",
        "400 characters": f"{text:.<400}",
        "5000 characters": f"{text:.<5000}",
        "two lines": f"{text}\nsecond line",
        "Chinese characters and an emoji": f"{text} 急停 🛑",
    }


def _stop_and_settle(probe: RobotProbe) -> list[RobotState]:
    """Stop from another thread, wait until the robot is at rest, and return readings; none if it can't be read."""
    probe.stop_from_another_thread(stop_reason())
    if probe.read() is None:
        return []
    readings = []
    for _ in range(2 * _READINGS):
        time.sleep(0 if probe.simulated else _SETTLE_S / _READINGS)
        reading = probe.read()
        readings += [] if reading is None else [reading]
    return readings[_READINGS:]


def _check_unchanged(probe: RobotProbe, readings: list[RobotState], command: dict[str, np.ndarray], what: str) -> None:
    """Check that a command which was refused changed nothing that is measured or applied.

    Args:
        probe: the probe of the stopped robot.
        readings: at rest, before the command.
        command: the refused command.
        what: the command, for the message.
    """
    after = probe.read() if readings else None
    if after is None:
        return
    spec, before = probe.robot.spec, readings[-1]
    check_held(spec, before, after, f"with {what}", "a stopped robot holds")
    for field in spec.sensors:
        if field.is_text or field.name in spec.measured_by.values():
            continue
        values = np.array([state.sensors[field.name] for state in readings], float)
        moved = np.abs(np.asarray(after.sensors[field.name], float) - values[-1])
        if not np.ptp(values, axis=0).any() and (moved > _SHOWS * span_of(field)).any():
            raise Failed(f"{field.name} changed by {moved.max():.4g} with {what}", "a stopped robot holds")
    for name, value in command.items():
        told, was = (np.asarray(state.applied[name]) for state in (after, before))
        if np.array_equal(told, value) and not np.array_equal(told, was):
            raise Failed(f"applied {name} is the value of {what}", "a stopped robot applies no command")


@check("stop commands", "a stopped robot carries out no command, of no joint, wheel or gripper", "robot", "rest")
def _no_command_under_a_stop(probe: RobotProbe) -> None:
    """Send every command by itself to a stopped robot: each is refused, none moves anything, then or later."""
    for field in probe.robot.spec.commands:
        robot_state = probe.reset()
        for _ in range(3):
            robot_state = probe.step(probe.hold(robot_state))
        hold = probe.hold(robot_state)
        readings = _stop_and_settle(probe)
        what = f"a command of {field.name} after a stop"
        try:
            for value in probe.excursions(field, robot_state):
                command = {**hold, field.name: value}
                refused(probe, partial(probe.step, command), RobotStopped, what, "a step after a stop")
                _check_unchanged(probe, readings, {field.name: value}, what)
        finally:
            robot_state = probe.reset(clear_stop())
        _check_stays(probe, robot_state)


def _check_stays(probe: RobotProbe, robot_state: RobotState) -> None:
    """Check that a robot whose stop was cleared stays where the reset ended: no command was kept for later."""
    first, spec = copied(robot_state), probe.robot.spec
    for _ in range(3):
        robot_state = probe.step(probe.hold(first))
        for field in spec.commands:
            sensor = spec.measured_by.get(field.name)
            pairs = [(f"applied {field.name}", robot_state.applied[field.name], first.applied[field.name])]
            pairs += [] if sensor is None else [(sensor, robot_state.sensors[sensor], first.sensors[sensor])]
            for what, now, was in pairs if not field.is_text else ():
                moved = np.abs(np.asarray(now, float) - np.asarray(was, float))
                if (moved > _STAYS * span_of(field)).any():
                    raise Failed(f"{what} changed by {moved.max():.4g} while the robot held still after a cleared stop",
                                 "a command that was refused is not carried out later")  # fmt: skip


@check("stop left", "a robot whose stop is cleared where it stands is where the stop found it, at rest", "robot",
       "present", "stop commands")  # fmt: skip
def _is_where_the_stop_found_it(probe: RobotProbe) -> None:
    """Stop at rest and in motion, send commands, and begin an episode where the robot stands, which shows both.

    So it is seen without ``read`` too what a stop itself moved, and what went on while commands were refused.
    """
    spec = probe.robot.spec
    quiet: RobotState | None = None  # after a stop without commands
    for in_motion, sends in ((False, False), (False, True), (True, True)):
        robot_state = away(probe, probe.reset())[-1]
        if not in_motion:
            hold = probe.hold(robot_state)
            hold.update({field.name: np.zeros_like(hold[field.name]).clip(*field.bounds) for field in spec.commands
                         if is_driven(field)})  # fmt: skip
            rest = [copied(probe.step(hold)) for _ in range(int(np.clip(_SETTLE_S * spec.rate_hz, 8, 60)))][-_READINGS:]
        elif any(is_effort(field) for field in spec.commands) or not any(map(is_driven, spec.commands)):
            return  # a mass runs out on its way
        else:
            rest = [copied(robot_state)]
        probe.stop_from_another_thread(stop_reason())
        try:
            if sends:
                _send_refused(probe, rest[-1])
            after = copied(probe.reset({"start": PRESENT, **clear_stop()}))
        except Failed:
            raise
        except Exception as error:
            raise NotTried(f"a reset with the start {PRESENT!r} raises {type(error).__name__}") from error
        finally:
            probe.reset(clear_stop())
        _check_place(probe, rest, after, in_motion)
        _check_rest(probe, rest, after)
        if quiet is not None and not in_motion:
            _check_switches(probe, quiet, after)
        quiet = after


def _send_refused(probe: RobotProbe, robot_state: RobotState) -> None:
    """Send commands of every kind to a stopped robot for a while, each of which it refuses."""
    hold = probe.hold(robot_state)
    ways = [{**hold, field.name: value} for field in probe.robot.spec.commands
            for value in probe.excursions(field, robot_state, most=2)]  # fmt: skip
    count = min(max(len(ways), int(_REFUSALS_S * probe.robot.spec.rate_hz)), _MOST_REFUSALS)
    ways.append({**hold, **{name: way[name] for way in ways for name in way if way[name] is not hold[name]}})
    for number in range(count, 0, -1):  # all together last, since a command may undo another one
        command = ways[-number % len(ways)]
        refused(probe, partial(probe.step, command), RobotStopped, "a step after a stop", "a step after a stop")


def _check_place(probe: RobotProbe, rest: list[RobotState], after: RobotState, in_motion: bool) -> None:
    """Check that places, grippers and lamps are as they were, apart from what a moving part needs to come to rest."""
    spec, last = probe.robot.spec, rest[-1]
    driven = {spec.measured_by.get(field.name) for field in spec.commands if is_driven(field)}
    speeds = dict(pairs_of_speeds(spec))
    spans = {sensor: span_of(spec.commands[name]) for name, sensor in spec.measured_by.items()}
    for field in spec.sensors:
        if field.is_text or field.name in driven or field.unit.endswith("/s"):
            continue
        values = np.array([state.sensors[field.name] for state in rest], float)
        moved, noise = np.abs(np.asarray(after.sensors[field.name], float) - values[-1]), np.ptp(values, axis=0)
        if field.name in spans and not in_motion:
            slack = _STAYS * spans[field.name]
        elif field.name in speeds:
            speed = np.abs(np.asarray(last.sensors[speeds[field.name]], float))
            slack = _SETTLE_S * speed + 0.02 + 1e-3 * np.abs(values[-1])
        else:
            continue
        if (moved > slack + 4 * noise).any():
            raise Failed(f"{field.name} changed by {moved.max():.4g} {field.unit} from the stop to a reset with the "
                         f"start {PRESENT!r}", "a stopped robot holds, and such a reset moves nothing")  # fmt: skip


def _check_switches(probe: RobotProbe, quiet: RobotState, after: RobotState) -> None:
    """Check that lamps, valves and contacts which no command is measured by are as after a stop without commands."""
    spec = probe.robot.spec
    for field in spec.sensors:
        if field.name in spec.measured_by.values() or field.is_text or field.numpy_dtype.kind not in "iu":
            continue
        now, due = (np.asarray(state.sensors[field.name]).tolist() for state in (after, quiet))
        if np.all(span_of(field) <= 1) and now != due:
            raise Failed(f"{field.name} is {now} after refused commands, and {due} after none", "a stopped robot holds")


def _check_rest(probe: RobotProbe, rest: list[RobotState], after: RobotState) -> None:
    """Check that a commanded speed ended."""
    spec = probe.robot.spec
    for name, sensor in spec.measured_by.items():
        field = spec.commands[name]
        if is_driven(field) and not is_effort(field):
            noise = np.ptp([state.sensors[sensor] for state in rest], axis=0)
            speed = np.abs(np.asarray(after.sensors[sensor], float))
            if (speed > _STAYS * span_of(field) + 2 * noise).any():
                raise Failed(f"{sensor} is {speed.max():.4g} {field.unit} after a stop and a reset with the start "
                             f"{PRESENT!r}", "a stop ends the speed that was commanded")  # fmt: skip


@check("stop clearing", "only a reason, a text that says something, clears a stop", "robot", "stop again")
def _only_a_reason_clears(probe: RobotProbe) -> None:
    robot_state = probe.reset(clear_stop())  # nothing is stopped: this clears no stop that comes later
    hold = probe.hold(robot_state)
    readings = _stop_and_settle(probe)
    try:
        refused(
            probe, probe.reset, RobotStopped, "a reset without a reason, after a stop that came after a reset with one"
        )
        for value in _NO_REASONS:
            what = f"a reset with clear_stop {value!r}"
            refused(probe, partial(probe.reset, {"clear_stop": value}), RobotStopped, what,
                    "a reset with a clear_stop that is no text")  # fmt: skip
            refused(probe, partial(probe.step, hold), RobotStopped, f"a step after {what}", "a step after such a reset")
            _check_unchanged(probe, readings, {}, what)
    finally:
        robot_state = probe.reset(clear_stop())
    probe.step(probe.hold(robot_state))
    for length, reason in _reasons().items():
        probe.stop(stop_reason())
        try:
            robot_state = probe.reset({"clear_stop": reason})
        except Failed:
            raise
        except Exception as error:
            probe.note(f"a reset with a reason of {length} raises {type(error).__name__}")
            robot_state = probe.reset(clear_stop())
        probe.step(probe.hold(robot_state))


@check("stop reasons", "a stop holds whatever its reason is", "robot", "stop again")
def _every_reason_stops(probe: RobotProbe) -> None:
    for length, reason in {"no character": "", **_reasons()}.items():
        robot_state = probe.reset()
        try:
            try:
                probe.stop(reason)
            except (ValueError, TypeError, RobotError) as error:
                if reason:
                    raise Failed(f"a stop with a reason of {length} raises {type(error).__name__}: {error!s:.120}",
                                 "a stop holds, whatever its reason is") from error  # fmt: skip
                probe.note(f"a stop with a reason of {length} raises {type(error).__name__}")
                continue
            what = f"a step after a stop with a reason of {length}"
            try:
                probe.step(probe.hold(robot_state))
            except RobotStopped as error:
                if reason and reason not in str(error):
                    probe.note(f"the error of {what} does not tell the whole reason")
            except Failed as finding:
                raise Failed(f"{what}: {finding}", "it must raise RobotStopped") from finding
            except Exception as error:
                probe.note(f"{what} raises {type(error).__name__}; here it is RobotStopped")
            else:
                raise Failed(f"{what} was carried out", "a stop holds, or is refused with an error")
            refused(probe, probe.reset, RobotStopped, f"a reset after a stop with a reason of {length}")
        finally:
            probe.reset(clear_stop())


@check(
    "stop illegal",
    "an illegal command or reset clears no stop, and moves nothing",
    "robot",
    "stop clearing",
    "refusals",
)
def _illegal_clears_nothing(probe: RobotProbe) -> None:
    spec, robot_state = probe.robot.spec, probe.reset()
    hold = probe.hold(robot_state)
    readings = _stop_and_settle(probe)

    def check_stopped(what: str) -> None:
        refused(probe, partial(probe.step, hold), RobotStopped, f"a step after a stop and {what}",
                "a step after a stop and an illegal call")  # fmt: skip
        _check_unchanged(probe, readings, {}, f"{what} after a stop")

    try:
        for case in illegal_values(spec.commands, hold, "command"):
            _refused_somehow(partial(probe.step, case.value), f"{case.name} after a stop")
            check_stopped(case.name)
        for name, command in halves_of(probe, robot_state):
            _refused_somehow(partial(probe.step, command), f"{name} after a stop")
            check_stopped(name)
        resets: tuple[dict[str, Any], ...] = (
            {"start": {"no_such_command": 0}}, {"seed": -1}, {"clear": "a reason"}, {"reason": "a reason"},
            {"clear_stop": ""}, {"CLEAR_STOP": "a reason"},
        )  # fmt: skip
        for options in resets:
            _refused_somehow(partial(probe.reset_with, options), f"a reset with {options} after a stop")
            check_stopped(f"a reset with {options}")
    finally:
        robot_state = probe.reset(clear_stop())
    probe.step(probe.hold(robot_state))


def _refused_somehow(call: Any, what: str) -> None:
    """Check that a call raises an exception; a stopped robot may name the stop or what is illegal."""
    try:
        call()
    except Failed as finding:
        raise Failed(f"{what}: {finding}", "it must raise an exception") from finding
    except Exception:
        return
    raise Failed(f"{what} was carried out", "it must raise an exception")
