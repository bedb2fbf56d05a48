"""Check how a robot stops: from any thread, at any time, until a reset clears it with a reason."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from hal import RobotError, RobotSpec, RobotState, RobotStopped
from hal.robot import is_driven, is_effort
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import RobotProbe, check_held, copied, pairs_of_speeds, span_of
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import difference

__all__ = ["away", "clear_stop", "refused", "stop_checks", "stop_early", "stop_reason"]

_STOP_S = 1.0
"""Longest duration of a stop: over a network it is confirmed."""

_WAITED_S = 0.15
"""Time by which a stop is too late if it comes back only after a reset that was in progress."""

_LATCHED_S = 1.0
"""Time after which a stop must still hold."""

_LEFT = 0.03
"""Distance from the way to the goal before a stop that counts as another motion, as a share of the range."""

_SETTLE_S = 0.5
"""Time in which a stopped robot comes to rest."""

_AT_REST = 0.02
"""Largest measured speed of a stopped robot, as a share of the command's range."""

_CREEPS = {True: 0.003, False: 0.01}
"""Smallest steady motion of a stopped robot that counts as creeping, as a share of the command's range."""

_NO_MOTION = ("K", "V", "A", "W", "J", "s", "ns", "Pa")
"""Units of quantities that go on changing at rest, such as temperatures and times."""


def stop_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return the checks of stops, and of how the robot holds still after them."""
    return declared(globals(), probe)


def stop_reason() -> str:
    """Return a random reason for a stop, which no robot can guess."""
    return f"conformance check {uuid.uuid4().hex[:12]}"


def clear_stop() -> dict[str, str]:
    """Return the options of a reset that clears a stop with a reason."""
    return {"clear_stop": f"the conformance check stopped it, {uuid.uuid4().hex[:12]}"}


def stop_early(probe: RobotProbe) -> None:
    """Stop before the first reset, and record whether a reset without a reason was accepted after that."""
    try:
        probe.stop_from_another_thread(stop_reason())
    except Exception:
        return  # the checks of stops after a reset say so
    try:
        probe.reset()
    except Exception:
        with suppress(Exception):  # the check of a stop makes a finding of it
            probe.reset(clear_stop())
    else:
        probe.forgot_early_stop = True


@check("stop early", "a stop before the first reset latches too", "robot", "too early", "stop again")
def _stopped_early(probe: RobotProbe) -> None:
    if probe.forgot_early_stop:
        raise Failed("a reset without a reason was accepted after a stop that came before the first reset",
                     "a stop holds until a reset clears it with a reason", how="stop, reset({'seed': 0})")  # fmt: skip


@check("stop", "a stop from another thread latches until it is cleared with a reason", "robot", "spec")
def _stop_alone(probe: RobotProbe) -> None:
    """Stop once, from another thread, with a reason that nobody could know."""
    robot_state = probe.reset()
    took = probe.stop_from_another_thread(stop_reason())
    _check_latched(probe, robot_state, clear_badly=True, hold_s=_LATCHED_S)
    _in_time(took, "stop")


@check("stop again", "a stop latches from any thread, once or twice", "robot", "stop")
def _stop_again(probe: RobotProbe) -> None:
    for stop in (probe.stop, probe.stop_from_another_thread):
        robot_state = probe.reset()
        robot_state = probe.step(probe.hold(robot_state))
        stop(stop_reason())
        _check_latched(probe, robot_state)
    robot_state = probe.reset()
    try:
        for _ in range(2):
            probe.stop(stop_reason())
    except Exception:
        probe.reset(clear_stop())
        raise
    _check_latched(probe, robot_state)


def _check_latched(probe: RobotProbe, robot_state: RobotState, clear_badly: bool = False, hold_s: float = 0.0) -> None:
    """Check that nothing moves until the stop is cleared with a reason, and that it moves then.

    Args:
        probe: the probe of the stopped robot.
        robot_state: before the stop.
        clear_badly: whether resets with empty reasons are tried.
        hold_s: time after which the stop must still hold.
    """
    command = probe.hold(robot_state)
    try:
        before = probe.read()
        for event in ("the first step after a stop", "the second step after a stop"):
            refused(probe, lambda: probe.step(command), RobotStopped, event)
        if hold_s:
            time.sleep(hold_s)
            refused(probe, lambda: probe.step(command), RobotStopped, f"a step {hold_s:g} s after a stop")
        check_held(probe.robot.spec, before, probe.read(), "while steps after a stop were refused", "it holds")
        refused(probe, probe.reset, RobotStopped, "a reset after a stop that does not clear it")
        if clear_badly:
            for empty in (" ", ""):
                refused(probe, partial(probe.reset, {"clear_stop": empty}), RobotStopped,
                         "a reset that clears a stop without a reason")  # fmt: skip
            refused(probe, lambda: probe.step(command), RobotStopped, "a step after such resets")
    finally:
        robot_state = probe.reset(clear_stop())
    probe.step(probe.hold(robot_state))


class _LateStop:
    """Stop the robot from another thread after a delay, while this thread goes on.

    Attributes:
        took: how long the call of stop took, seconds, or its exception; empty until it has returned.
        called_s, returned_s: monotonic time before and after the call.
    """

    def __init__(self, probe: RobotProbe, delay_s: float) -> None:
        self.took: list[float | Exception] = []
        self.called_s = self.returned_s = 0.0
        self._probe, self._delay_s = probe, delay_s
        self._thread = threading.Thread(target=self._stop, name="conformance stop", daemon=True)
        self._thread.start()

    def _stop(self) -> None:
        time.sleep(self._delay_s)
        self.called_s = time.monotonic()
        try:
            took = self._probe.stop_from_another_thread(stop_reason())
        except Exception as error:
            self.took.append(error)
        else:
            self.returned_s = self.called_s + took
            self.took.append(took)

    def check(self) -> None:
        """Wait for the stop to return, and check that it did in time; clear it if it did not."""
        self._thread.join(self._probe.log.deadlines.step)
        try:
            for entry in self.took:
                if isinstance(entry, Exception):
                    raise entry
                _in_time(entry, "stop")
            if not self.took:
                raise Failed("stop did not return", "it returns at once, from any thread")
        except Exception:
            self._probe.reset(clear_stop())
            raise


@check("stop at reset", "a stop during a reset returns at once, and holds", "robot", "stop again")
def _stop_during_reset(probe: RobotProbe) -> None:
    """Stop from another thread while a reset is in progress, from so far away that a robot that moves takes a while."""
    robot_state = away(probe, probe.reset())[-1]
    stop = _LateStop(probe, 0.02)
    came_back = False
    try:
        probe.reset()
        came_back = True
    except (RobotError, ValueError, RuntimeError) as error:
        if not isinstance(error, RobotStopped):
            probe.note(f"a reset that a stop interrupts raises {type(error).__name__}; here it is RobotStopped")
    ended = time.monotonic()
    stop.check()
    if not came_back:
        _check_held(probe)
    if came_back and stop.returned_s >= ended - 0.005 and ended - stop.called_s > _WAITED_S:
        probe.reset(clear_stop())
        raise Failed(f"a stop during a reset came back {stop.returned_s - stop.called_s:.2g} s later, after the reset",
                     "it returns at once, and the reset ends by it")  # fmt: skip
    _check_latched(probe, robot_state)


def _check_held(probe: RobotProbe) -> None:
    """Check that a robot whose reset was stopped on its way does not go on to the end of that way."""
    spec = probe.robot.spec
    at_stop = probe.read()
    if at_stop is None:
        return
    time.sleep(0 if probe.simulated else _SETTLE_S)
    later = probe.read()
    if later is None:
        return
    for name, sensor in spec.measured_by.items():
        if name not in spec.home or spec.commands[name].numpy_dtype.kind != "f" or is_driven(spec.commands[name]):
            continue  # a speed that falls to zero is a robot that holds
        home = np.asarray(spec.home[name], float)
        left, rest = (np.abs(np.asarray(state.sensors[sensor], float) - home) for state in (at_stop, later))
        if ((left > 0.02 * span_of(spec.commands[name])) & (rest < 0.1 * left)).any():
            probe.reset(clear_stop())
            raise Failed(f"{sensor} was {left.max():.4g} from home when a stop ended the reset, and still went home",
                         "a stopped robot holds")  # fmt: skip


def away(probe: RobotProbe, robot_state: RobotState) -> list[RobotState]:
    """Move every command away from its nearest limit for half a second; return copies of the states.

    A whole number, such as a gripper that is open or closed, is changed at once, in simulation alone.
    """
    spec = probe.robot.spec
    robot_states = [copied(robot_state)]
    whole = {field.name: next(probe.excursions(field, robot_state), robot_state.applied[field.name])
             for field in spec.commands if probe.simulated and field.numpy_dtype.kind in "iu"}  # fmt: skip
    most = 60 if probe.is_quick or not probe.simulated else 10
    for _ in range(int(np.clip(_SETTLE_S * spec.rate_hz, 3, most))):
        command = {**probe.hold(robot_state), **whole}
        for field in spec.commands:
            if field.numpy_dtype.kind == "f":
                command[field.name] = probe.onwards(field, robot_state)
        robot_state = probe.step(command)
        robot_states.append(copied(robot_state))
    return robot_states


@check("stop at step", "a stop while the robot steps returns at once, and holds", "robot", "stop at reset")
def _stop_during_step(probe: RobotProbe) -> None:
    """Stop from another thread while this one steps."""
    robot_state = probe.reset()
    stop = _LateStop(probe, min(3.5 * probe.robot.spec.period_s, 0.5))
    end, later = time.monotonic() + probe.log.deadlines.step, 0
    try:
        while later < 3 and time.monotonic() < end:
            later += bool(stop.took)  # a step that was under way when the stop came may return its state
            robot_state = probe.step(probe.hold(robot_state))
        stop.check()
        while later < 3:  # on a busy machine the stop may come after the steps
            later += 1
            robot_state = probe.step(probe.hold(robot_state))
        probe.reset(clear_stop())
        raise Failed(f"{later} steps were carried out after a stop from another thread", "a stop holds at once")
    except Failed:
        raise
    except Exception as error:
        if not isinstance(error, RobotStopped):
            probe.note(f"a step after a stop raises {type(error).__name__}; here it is RobotStopped")
    stop.check()
    _check_latched(probe, robot_state)


@check("stop in a step", "a stop during a step ends its motion", "robot", "stop at step", "follows")
def _stop_ends_the_step(probe: RobotProbe) -> None:
    """Stop in the middle of a step of a steady motion, and compare its way with that of the step before."""
    spec = probe.robot.spec
    if not probe.simulated or probe.read() is None:
        raise NotTried("only a simulation in real time that offers read shows this")
    later = 0
    for share in (0.2, 0.3, 0.4):
        robot_state = probe.reset()
        aim = probe.hold(robot_state)
        for field in spec.commands:
            if field.numpy_dtype.kind == "f" and not is_driven(field):
                aim[field.name] = next(probe.excursions(field, robot_state), aim[field.name])
        stop, states, began_s = _LateStop(probe, (2 + share) * spec.period_s), [copied(robot_state)], 0.0
        try:
            while not stop.took and len(states) < 40:
                began_s = time.monotonic()
                states.append(copied(probe.step(aim)))
        except Exception:
            pass  # other checks look at how a step ends that a stop came into
        took_s = time.monotonic() - began_s
        stop.check()
        stopped = probe.read()
        probe.reset(clear_stop())
        rest_s = began_s + took_s - stop.returned_s
        if stopped is None or len(states) < 3 or took_s < 0.5 * spec.period_s or rest_s < 0.4 * took_s:
            continue
        until = -2 if stopped.stamp_ns == states[-1].stamp_ns else -1
        before, last = states[until - 1], states[until]
        for name, sensor in spec.measured_by.items():
            usual, way = (np.abs(np.asarray(end.sensors[sensor], float) - np.asarray(begin.sensors[sensor], float))
                          for begin, end in ((before, last), (last, stopped)))  # fmt: skip
            share_s = 1 - rest_s / took_s
            later += bool(((way > (share_s + 0.3) * usual) & (usual > 0.002 * span_of(spec.commands[name]))).any())
    if later >= 2:
        raise Failed(
            "the motion of a step went on after a stop during it had returned", "a stopped robot holds at once"
        )


@check("rest", "a stopped robot comes to rest, and reading it moves nothing", "robot", "stop at step", "follows")
def _comes_to_rest(probe: RobotProbe) -> None:
    """Compare how fast each quantity changes at rest, in motion and after a stop, by readings that move nothing."""
    robot_state = probe.reset()
    if probe.read() is None:
        raise NotTried("nothing shows how a stopped robot moves, since it offers no read")
    period_s = probe.robot.spec.period_s
    rest = [copied(robot_state)]
    for _ in range(8):
        robot_state = probe.step(probe.hold(robot_state))
        rest.append(copied(robot_state))
    moving = away(probe, robot_state)
    probe.stop_from_another_thread(stop_reason())
    try:
        stopped: list[RobotState] = []
        for _ in range(int(np.clip(2 * _SETTLE_S / period_s, 16, 60))):
            time.sleep(0 if probe.simulated else min(period_s, 0.05))
            reading = probe.read()
            stopped += [] if reading is None else [reading]
        _check_way(probe.robot.spec, rest, moving[-1], stopped)
        _check_places(probe.robot.spec, rest, moving[-1], stopped)
        _check_speeds(probe, rest, moving, stopped[len(stopped) // 2 :])
        _check_no_speed(probe, rest)
        _check_no_effort(probe.robot.spec, rest[-1], moving[-1], stopped)
        command = probe.hold(robot_state)
        refused(probe, lambda: probe.step(command), RobotStopped, "a step after a stop in the midst of a motion")
    finally:
        probe.reset(clear_stop())


def _check_way(spec: RobotSpec, rest: list[RobotState], last: RobotState, stopped: list[RobotState]) -> None:
    """Check that what a command moves stays between where it was at the stop and the goal before it.

    A mass may run out on that way. Farther on, or back, is a motion that the stop itself caused.
    """
    for name, sensor in spec.measured_by.items():
        field = spec.commands[name]
        if is_effort(field):
            continue  # what holds a mass is another effort than the one before
        noise = np.ptp(np.array([state.sensors[sensor] for state in rest], float), axis=0)
        ends = np.array([last.sensors[sensor], last.applied[name]], float)
        if is_driven(field) or (field.unit == "1" and field.numpy_dtype.kind == "f"):  # it may have a speed in it
            ends = np.array([*ends, np.zeros(field.shape)])
        slack = _LEFT * span_of(field) + 2 * noise
        for robot_state in stopped:
            value = np.asarray(robot_state.sensors[sensor], float)
            past = np.maximum(ends.min(axis=0) - slack - value, value - ends.max(axis=0) - slack)
            if (past > 0).any():
                far = np.abs(value - np.asarray(last.sensors[sensor], float)).max()
                raise Failed(f"{sensor} moved by {far:.4g} {field.unit} after a stop, off the way to its last goal",
                             "a stopped robot holds")  # fmt: skip


def _check_places(spec: RobotSpec, rest: list[RobotState], last: RobotState, stopped: list[RobotState]) -> None:
    """Check that a place whose speed is measured goes no farther in a reading than that speed takes it."""
    for place, speed in pairs_of_speeds(spec):
        if place in spec.measured_by.values() or spec.sensors[place].numpy_dtype.kind != "f":
            continue
        noise = np.ptp([state.sensors[place] for state in rest], axis=0)
        was, began = np.asarray(last.sensors[place], float), np.abs(np.asarray(last.sensors[speed], float))
        for robot_state in stopped:
            passed_s = max((robot_state.stamp_ns - last.stamp_ns) / 1e9, 0.0) + 2 * spec.period_s
            moved = np.abs(np.asarray(robot_state.sensors[place], float) - was)
            if (moved > 1.2 * began * passed_s + 2 * noise + 0.02 + 1e-3 * np.abs(was)).any():
                raise Failed(f"{place} moved by {moved.max():.4g} {spec.sensors[place].unit} after a stop, in "
                             f"{passed_s:.2g} s, from {began.max():.4g} {spec.sensors[speed].unit}",
                             "a stopped robot holds")  # fmt: skip


def _check_speeds(
    probe: RobotProbe, rest: list[RobotState], moving: list[RobotState], stopped: list[RobotState]
) -> None:
    """Check that no quantity that was still at rest goes on changing after a stop.

    What measures a command has moved if it changed beyond the noise at rest and a fiftieth of the command's range. Any
    other sensor goes on if it changes as fast as in the motion before; that is a note, since a motor that holds a pose
    may warm up, give way or change its load.
    """
    if len(stopped) < 2:
        return
    spec = probe.robot.spec
    spans = {sensor: span_of(spec.commands[name]) for name, sensor in spec.measured_by.items()}
    for field in spec.sensors:
        if (
            field.is_text
            or is_effort(field)
            or field.unit in _NO_MOTION
            or (field.unit.endswith("/s") and field.name not in spans)
        ):
            continue
        parts = [np.array([state.sensors[field.name] for state in part], float) for part in (rest, moving, stopped)]
        noise, after = np.ptp(parts[0], axis=0), np.abs(parts[2][-1] - parts[2][0])
        speed = [np.abs(part[-1] - part[0]) / _duration_s(spec, states) for part, states in
                 zip(parts, (rest, moving, stopped), strict=True)]  # fmt: skip
        goes_on = (speed[2] > 0.8 * speed[1]) & (speed[1] > 0) & (speed[0] < 0.3 * speed[1])
        if field.name in spans:
            goes_on = after > 0.02 * spans[field.name]
            goes_on |= (after > _CREEPS[probe.simulated] * spans[field.name] + 4 * noise) & _undamped(parts[2])
        goes_on &= (after > 2 * noise + 1e-6) & _steady(parts[2])
        if not goes_on.any():
            continue
        moved = f"{field.name} changed by {after[goes_on].max():.4g} {field.unit} while the robot was stopped"
        if field.name in spans:
            raise Failed(moved, "a stopped robot comes to rest within half a second, and reading moves nothing")
        probe.note(f"{moved}; no command is measured by it, so that it may have another cause")


def _check_no_speed(probe: RobotProbe, rest: list[RobotState]) -> None:
    """Check that measured speeds are 0 after a stop, not merely lower than before."""
    spec = probe.robot.spec
    for name, sensor in spec.measured_by.items():
        field = spec.commands[name]
        if is_effort(field) or not is_driven(field):
            continue
        slack = _AT_REST * span_of(field) + 2 * np.ptp([state.sensors[sensor] for state in rest], axis=0)
        for wait_s in (0.0, _SETTLE_S):
            time.sleep(wait_s)
            reading = probe.read()
            speed = np.zeros(field.shape) if reading is None else np.abs(np.asarray(reading.sensors[sensor], float))
            if not (speed > slack).any():
                break
        else:
            raise Failed(f"{sensor} is still {speed.max():.4g} {field.unit} after a stop",
                         "a stopped robot comes to rest within half a second")  # fmt: skip


def _check_no_effort(spec: RobotSpec, rest: RobotState, last: RobotState, stopped: list[RobotState]) -> None:
    """Check that a commanded effort ended with the stop, and the speeds that it caused."""
    efforts = [field for field in spec.commands if is_effort(field)]
    if all(not difference(last.sensors, state.sensors) for state in stopped):
        return  # a simulation whose time stands still: the last motion is shown, and nothing moves
    for field in efforts:
        readings = [(f"applied {field.name}", field.name, "applied")]
        readings += [(spec.measured_by[field.name],) * 2 + ("sensors",)] if field.name in spec.measured_by else []
        for what, name, part in readings:
            was, before, *after = (np.asarray(getattr(state, part)[name], float) for state in (rest, last, *stopped))
            stays = (np.array(after) == before).all(axis=0) & (np.abs(before - was) > _AT_REST * span_of(field))
            if len(after) and stays.any():
                raise Failed(f"{what} is still {np.abs(before[stays]).max():.4g} {field.unit} after a stop",
                             "a stop ends the effort that was commanded")  # fmt: skip
    for place, speed in pairs_of_speeds(spec) if efforts and stopped else ():
        before, after = (np.abs(np.asarray(state.sensors[speed], float)) for state in (last, stopped[-1]))
        if ((after > 0.5 * before) & (after > 1e-3 * span_of(spec.sensors[speed]))).any():
            raise Failed(f"{speed} is still {after.max():.4g} {spec.sensors[speed].unit} after a stop, of {place}",
                         "a stopped robot comes to rest")  # fmt: skip


def _undamped(values: np.ndarray) -> np.ndarray:
    """Return where values change as fast in the second half of the time as in the first."""
    half = len(values) // 2
    first, second = np.abs(values[half] - values[0]), np.abs(values[-1] - values[half])
    return np.asarray((second > 0.7 * first) & (half > 2))


def _duration_s(spec: RobotSpec, part: list[RobotState]) -> float:
    """Return how long a part of the run took by its stamps, in seconds; by its periods, if the stamps do not rise."""
    took = (part[-1].stamp_ns - part[0].stamp_ns) / 1e9
    return took if took > 0 else (len(part) - 1) * spec.period_s


def _steady(values: np.ndarray) -> np.ndarray:
    """Return where values go on in one direction, over both halves of the time."""
    half = values[len(values) // 2] - values[0]
    return np.asarray(half * (values[-1] - values[len(values) // 2]) > 0)


def _in_time(took: float, what: str) -> None:
    if took > _STOP_S:
        raise Failed(f"{what} took {took:.2g} s", f"it returns at once, within {_STOP_S:g} s")


def refused(
    probe: RobotProbe, call: Callable[[], object], expected: type[RobotError], event: str, kind: str = ""
) -> None:
    """Check that a call is refused; note an exception of another type than expected.

    A stopped robot says so by `RobotStopped`, from which a caller knows that only a person may go on.

    Args:
        probe: takes the note.
        call: the call to make.
        expected: the exception that it must raise.
        event: a description of the call.
        kind: a description of the kind of call, for a note that is made once per kind; by default ``event``.
    """
    try:
        call()
    except expected:
        return
    except Failed as finding:
        raise Failed(f"{event}: {finding}", f"it must raise {expected.__name__}") from finding
    except Exception as error:
        text = f"{kind or event} raises {type(error).__name__}"
        if expected is RobotStopped and not kind:
            raise Failed(f"{text}: {error}", f"it must raise {expected.__name__}") from error
        probe.note(f"{text}; here it is {expected.__name__}")
        return
    raise Failed(f"{event} was accepted", f"it must raise {expected.__name__}")
