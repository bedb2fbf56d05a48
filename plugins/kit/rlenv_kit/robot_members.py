"""Check the members that a robot may offer: a watchdog in the device, and motors that give way."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from hal import RobotState
from hal.robot import is_driven
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import Command, RobotProbe, copied, span_of
from rlenv_kit.robot_stops import away, clear_stop
from rlenv_kit.supervisor import PlannedCheck, check, declared

__all__ = ["member_checks"]

_TIMEOUT_S = 0.2
"""Silence after which a watchdog is to act."""

_LONGEST_S = 5 * _TIMEOUT_S + 0.3
"""Silence in which it has acted: a device with fixed choices takes the next longer one, and wheels run out."""

_READ_S = 0.02
"""Time between two readings."""

_GOES_ON = 0.5
"""Share of a measured speed or effort from which on its motion has not ended."""

_AT_GOAL = 0.02
"""Distance from a goal at which a joint has arrived, as a share of the command's range."""

Readings = list[tuple[float, RobotState]]
"""Readings without a command between them, each with the seconds since the last one."""


def member_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return the checks of optional members."""
    return declared(globals(), probe)


class _Motion:
    """A motion that a robot was told, and readings of it.

    Every command goes away from its start; in simulation, joints then go to their farther limit at once.
    """

    def __init__(self, probe: RobotProbe) -> None:
        self._probe, spec = probe, probe.robot.spec
        state = away(probe, probe.reset(clear_stop()))[-1]
        self.command: Command = probe.hold(state)
        for name in spec.measured_by if probe.simulated else ():
            field = spec.commands[name]
            low, high = (np.broadcast_to(np.asarray(bound, float), field.shape) for bound in field.bounds)
            if field.numpy_dtype.kind == "f" and not is_driven(field) and np.isfinite([low, high]).all():
                farther = np.where(self.command[name] > (low + high) / 2, low, high)
                self.command[name] = farther.astype(field.numpy_dtype).clip(*field.bounds)
        self.begin = self.last = copied(probe.step(self.command))

    def step(self) -> None:
        self.last = copied(self._probe.step(self.command))

    def silence(self, seconds: float, until: Callable[[RobotState], bool] = lambda state: False) -> Readings:
        """Read without a command, until so many seconds passed by the robot's clock and by this process's.

        The list is empty if the robot can't be read, and ends early if the robot's clock stands still.
        """
        began, readings = time.monotonic(), Readings()
        while time.monotonic() - began < 1.5 * seconds + 0.2:
            time.sleep(_READ_S)
            reading = self._probe.read()
            if reading is None:
                return []
            passed = min(time.monotonic() - began, (reading.stamp_ns - self.last.stamp_ns) / 1e9)
            readings.append((passed, reading))
            if passed >= seconds or until(reading):
                break
        return readings

    def driven(self, state: RobotState) -> set[str]:
        """Return the sensors of commanded speeds and efforts that are as they were, in some element."""
        return {sensor for sensor, share in self._shares(state).items() if (share > _GOES_ON).any()}

    def is_slower_than(self, other: _Motion) -> set[str]:
        """Return the sensors of speeds and efforts that another motion reached and this one did not."""
        return {sensor for sensor, share in other._shares(self.begin).items() if (share < _GOES_ON / 2).any()}

    def _shares(self, state: RobotState) -> dict[str, np.ndarray]:
        """Return what is left of each speed and effort at the begin, for its elements that moved."""
        spec, shares = self._probe.robot.spec, dict[str, np.ndarray]()
        for name, sensor in spec.measured_by.items():
            field = spec.commands[name]
            if not is_driven(field) or field.numpy_dtype.kind != "f":
                continue
            before, now = (np.asarray(one.sensors[sensor], float).ravel() for one in (self.begin, state))
            moves = np.abs(before) > 0.02 * np.broadcast_to(span_of(field), field.shape).ravel()
            if moves.any():
                shares[sensor] = now[moves] / before[moves]
        return shares

    def arrived(self, state: RobotState) -> set[str]:
        """Return the sensors of joints that were on their way and stand at their goals."""
        spec, at_goal = self._probe.robot.spec, set[str]()
        for name, sensor in spec.measured_by.items():
            field = spec.commands[name]
            if is_driven(field) or field.numpy_dtype.kind != "f":
                continue
            goal, span = np.asarray(self.command[name], float), span_of(field)
            left, now = (np.abs(np.asarray(one.sensors[sensor], float) - goal) for one in (self.last, state))
            if ((left > 5 * _AT_GOAL * span) & (now < _AT_GOAL * span)).any():
                at_goal.add(sensor)
        return at_goal


def _may_give_way(probe: RobotProbe) -> None:
    """Raise `NotTried` for a real robot that would fall, or that motions within the bounds would not show."""
    joints = [name for name in probe.robot.spec.measured_by if not is_driven(probe.robot.spec.commands[name])
              and probe.robot.spec.commands[name].numpy_dtype.kind == "f"]  # fmt: skip
    if joints and not probe.simulated:
        raise NotTried(f"motors that give way may let {joints[0]} fall; that is tried in simulation alone")


def _passed(readings: Readings) -> float:
    return readings[-1][0] if readings else 0.0


# -- a watchdog in the device ----------------------------------------------------------------------------------


@check("watchdog", "a watchdog that is armed ends the motion of a silent controller", "robot", "states")
def _watchdog(probe: RobotProbe) -> None:
    """Move and fall silent: without a watchdog, with one, and once it is disarmed."""
    arm, disarm = (getattr(probe.robot, name, None) for name in ("arm_watchdog", "disarm_watchdog"))
    if not callable(arm) and not callable(disarm):
        raise NotTried("the robot offers no watchdog in its device")
    if not callable(arm) or not callable(disarm):
        raise Failed("it offers one of arm_watchdog and disarm_watchdog", "a robot has both of them or neither")
    _may_give_way(probe)
    free = _Motion(probe)
    readings = free.silence(_LONGEST_S)
    if _passed(readings) < _LONGEST_S:
        raise NotTried("its time stands still while it takes no steps, or nothing can be read then")
    driven = free.driven(readings[-1][1])
    late = {sensor for passed, state in readings if passed > _LONGEST_S - 0.3 for sensor in free.arrived(state)}
    late -= {sensor for passed, state in readings if passed <= _LONGEST_S - 0.3 for sensor in free.arrived(state)}
    if not driven and not late:
        raise NotTried("its motions end while it takes no steps, without a watchdog too")
    try:
        motion = _Motion(probe)
        if not probe.log.call("arm_watchdog", arm, _TIMEOUT_S):
            raise NotTried("arm_watchdog answers that there is none")
        _check_waits(motion, driven)
        _check_acts(motion, driven, late)
        probe.log.call("disarm_watchdog", disarm)
        motion = _Motion(probe)
        slower = motion.is_slower_than(free) & driven
        if slower:
            raise Failed(f"{_listed(slower)} stays low after a watchdog that had acted was disarmed",
                         "disarm_watchdog clears it")  # fmt: skip
        probe.log.call("arm_watchdog", arm, _TIMEOUT_S)
        probe.log.call("disarm_watchdog", disarm)
        readings = motion.silence(_LONGEST_S)
        ended = driven - motion.driven(readings[-1][1]) if readings else set()
        if ended:
            raise Failed(f"{_listed(ended)} fell in a silence of {_passed(readings):.2g} s after disarm_watchdog",
                         "a watchdog that is disarmed does not act")  # fmt: skip
    finally:
        probe.log.call("disarm_watchdog", disarm)
        probe.reset(clear_stop())


def _check_waits(motion: _Motion, driven: set[str]) -> None:
    """Check that steps in time keep the watchdog from acting, if this process came to make them in time."""
    began = before = time.monotonic()
    while time.monotonic() - began < 1.5 * _TIMEOUT_S:
        time.sleep(_READ_S)
        motion.step()
        now = time.monotonic()
        if now - before > _TIMEOUT_S / 2:
            return
        before = now
        ended = driven - motion.driven(motion.last)
        if ended:
            raise Failed(f"{_listed(ended)} fell {now - began:.2g} s after arm_watchdog({_TIMEOUT_S:g}), with a step "
                         f"each {_READ_S:g} s", "its time begins anew with each command")  # fmt: skip
    readings = motion.silence(_READ_S)
    if not readings or time.monotonic() - before > _TIMEOUT_S / 2:
        return
    ended = driven - motion.driven(readings[-1][1])
    if ended:
        raise Failed(f"{_listed(ended)} fell {time.monotonic() - before:.2g} s after the last command, with a watchdog "
                     f"of {_TIMEOUT_S:g} s", "its time begins anew with each command")  # fmt: skip


def _check_acts(motion: _Motion, driven: set[str], late: set[str]) -> None:
    """Check that silence ends the motion."""
    readings = motion.silence(_LONGEST_S, lambda state: not late and not driven & motion.driven(state))
    if not readings:
        return
    goes_on = driven & motion.driven(readings[-1][1]) | late & motion.arrived(readings[-1][1])
    if goes_on:
        raise Failed(f"{_listed(goes_on)} goes on after a silence of {_passed(readings):.2g} s, with a watchdog of "
                     f"{_TIMEOUT_S:g} s that arm_watchdog called armed", "it ends the motion")  # fmt: skip


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


# -- motors that give way --------------------------------------------------------------------------------------


@check("damp", "motors that give way drive nothing, until the next reset", "robot", "states")
def _damp(probe: RobotProbe) -> None:
    """Move, let the motors give way, and read; after a reset they move again."""
    damp = getattr(probe.robot, "damp", None)
    if not callable(damp):
        raise NotTried("the robot offers no damp")
    _may_give_way(probe)
    ways = away(probe, probe.reset())
    motion = _Motion(probe)
    if not probe.log.call("damp", damp):
        probe.reset(clear_stop())
        raise NotTried("damp answers that the motors do not give way")
    readings = motion.silence(_LONGEST_S)
    again = away(probe, probe.reset(clear_stop()))
    for sensor in probe.robot.spec.measured_by.values():
        first, second = (np.abs(_floats(states[-1], sensor) - _floats(states[0], sensor)) for states in (ways, again))
        if ((second < 0.3 * first) & (first > 0.02 * span_of(probe.robot.spec.sensors[sensor]))).any():
            raise Failed(f"{sensor} changes by {second.max():.4g} in the episode after damp, and by {first.max():.4g} "
                         "in one before it", "the motors give way until the next reset")  # fmt: skip
    if _passed(readings) < _LONGEST_S:
        raise NotTried("its time stands still while it takes no steps, or nothing can be read then")
    late = {sensor for passed, state in readings if passed > 0.2 for sensor in motion.arrived(state)}
    late -= {sensor for passed, state in readings if passed <= 0.2 for sensor in motion.arrived(state)}
    goes_on = motion.driven(readings[-1][1]) | (late & motion.arrived(readings[-1][1]))
    if goes_on:
        raise Failed(f"{_listed(goes_on)} goes on {_passed(readings):.2g} s after damp answered True",
                     "the motors give way under damping, instead of holding")  # fmt: skip


def _floats(robot_state: RobotState, sensor: str) -> np.ndarray:
    return np.asarray(robot_state.sensors[sensor], float)
