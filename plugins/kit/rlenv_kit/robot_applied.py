"""Check commands that no small motion tries: jumps, whole numbers, the start of each command, and single periods."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np

from hal import Field, RobotState
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import RobotProbe, copied, span_of
from rlenv_kit.supervisor import PlannedCheck, check, declared

__all__ = ["applied_checks"]

_FOLLOW_S = 2.0
"""Time in which a whole number is applied and measured."""

_JUMP_S = 0.5
"""Time after a jump in which applied values are compared."""

_AHEAD = 0.08
"""Largest way of a measured value beyond the applied one after a jump, as a share of the range: it may overshoot."""

_SLACK = 5e-3
"""Rounding of an applied value, as a share of the range."""

_AT_START = 0.03
"""Largest distance of an applied value from the start that was asked for, as a share of the range."""

_UNEVEN = 0.25
"""Largest deviation of one period of a simulation's clock, as a share of the period."""

_LATE = (1.8, 2.2)
"""Duration of a step that took two periods, in periods."""

_MEAN = 0.04
"""Largest deviation of the mean period of a robot with a clock of its own, as a share of the period."""


def applied_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return the checks of jumps, whole numbers, starts and single periods."""
    return declared(globals(), probe)


def _whole(field: Field) -> bool:
    return not field.is_text and field.numpy_dtype.kind != "f"


def _periods(probe: RobotProbe, seconds: float) -> int:
    return int(np.clip(seconds * probe.robot.spec.rate_hz, 8, 120))


# -- jumps -----------------------------------------------------------------------------------------------------


@check("jumps", "applied is what the actuators received, after a jump of the command too", "robot", "follows", "legal")
def _jumps(probe: RobotProbe) -> None:
    """Send each element far away at once, and compare applied with the command and with what is measured."""
    fields = [field for field in probe.robot.spec.commands if not field.is_text]
    if not probe.simulated:
        for field in filter(_whole, fields):
            if not any(True for _ in probe.excursions(field, probe.reset())):
                probe.note(f"{field.name} is a whole number, and was not changed: a step of 1 exceeds --travel")
        raise NotTried("a real robot is not sent jumps")
    with probe.tolerating("range"):  # a jump may leave the sensors' ranges for a moment
        for field in fields:
            for value in list(probe.excursions(field, probe.reset(), most=4)):
                _check_jump(probe, field, value)


def _check_jump(probe: RobotProbe, field: Field, value: np.ndarray) -> None:
    spec = probe.robot.spec
    robot_state = probe.reset()
    for _ in range(2):
        robot_state = probe.step(probe.hold(robot_state))
    start, hold = copied(robot_state), probe.hold(robot_state)
    sensor = spec.measured_by.get(field.name)
    span, ends = span_of(field), [np.asarray(hold[field.name], float), np.asarray(value, float)]
    low, high = np.minimum(*ends), np.maximum(*ends)
    for _ in range(_periods(probe, _FOLLOW_S if _whole(field) else _JUMP_S)):
        robot_state = probe.step({**hold, field.name: value})
        told = np.asarray(robot_state.applied[field.name], float)
        slack = 0.0 if _whole(field) else _SLACK * span
        if (told < low - slack).any() or (told > high + slack).any():
            raise Failed(f"applied {field.name} is {told} after a command of {ends[1]}, and {ends[0]} before",
                         "what the actuators received lies between the two")  # fmt: skip
        for other in spec.commands:
            if other is field or other.is_text:
                continue
            moved = np.abs(np.asarray(robot_state.applied[other.name], float)
                           - np.asarray(start.applied[other.name], float))  # fmt: skip
            if (moved > _SLACK * span_of(other) + 1e-9).any():
                raise Failed(f"applied {other.name} changed by {moved.max():.4g} with a command of {field.name} alone",
                             "each command is its own actuator's")  # fmt: skip
        if sensor is not None and field.numpy_dtype.kind == "f":
            _check_ahead(field, sensor, start, robot_state, ends[1] - ends[0])
    if _whole(field):
        _check_whole(field, sensor, robot_state, value)


def _check_ahead(field: Field, sensor: str, start: RobotState, now: RobotState, asked: np.ndarray) -> None:
    """Check that what is measured does not run ahead of what applied says, as if more had been applied."""
    told = np.asarray(now.applied[field.name], float) - np.asarray(start.applied[field.name], float)
    moved = np.asarray(now.sensors[sensor], float) - np.asarray(start.sensors[sensor], float)
    towards = np.sign(asked)
    ahead = np.minimum(towards * moved, np.abs(asked)) - towards * told - _AHEAD * span_of(field)  # it may overshoot
    if (ahead[asked != 0] > 0).any():
        raise Failed(f"{sensor} moved by {np.abs(moved).max():.4g} {field.unit} with a command, and applied "
                     f"{field.name} by {np.abs(told).max():.4g}", "it is what the actuators received")  # fmt: skip


def _check_whole(field: Field, sensor: str | None, robot_state: RobotState, value: np.ndarray) -> None:
    """Check that a whole number was applied and measured in the end."""
    told = np.asarray(robot_state.applied[field.name])
    if not np.array_equal(told, value):
        raise Failed(f"applied {field.name} is {told.tolist()} after {_FOLLOW_S:g} s with a command of "
                     f"{value.tolist()}", "a legal command is applied, and applied says so")  # fmt: skip
    if sensor is None:
        return
    missed = np.abs(np.asarray(robot_state.sensors[sensor], float) - np.asarray(value, float))
    if (missed > np.maximum(0.3, 0.05 * span_of(field))).any():
        measured = np.asarray(robot_state.sensors[sensor]).tolist()
        raise Failed(f"{sensor} is {measured} after {_FOLLOW_S:g} s with {field.name} at {value.tolist()}",
                     "each measured value follows its own command")  # fmt: skip


# -- starts ----------------------------------------------------------------------------------------------------


@check("starts", "a reset begins at the start that it is given for each command", "robot", "places", "jumps")
def _starts(probe: RobotProbe) -> None:
    """Try what `places` leaves out: whole numbers, commands that no sensor measures, and all commands at once."""
    spec = probe.robot.spec
    if not probe.simulated or not probe.reset_moves:
        raise NotTried("a reset of this robot is tried for its measured float commands alone")
    fields = [field for field in spec.commands if field.name in spec.home and not field.is_text]
    rest = [field for field in fields if _whole(field) or field.name not in spec.measured_by]
    _check_start(probe, {})
    for field in rest:
        for value in list(probe.excursions(field, probe.reset(), most=3)):
            _check_start(probe, {field.name: value})
            _check_start(probe, {}, f"the start of the reset before was of {field.name}; ")
        for what, wrong in _illegal_starts(field):
            try:
                probe.reset({"start": {field.name: wrong}})
            except Failed:
                raise
            except Exception:
                continue
            raise Failed(f"a reset with a start of {field.name} {what} was accepted", "it is refused")
    if len(fields) > 1:
        robot_state = probe.reset()
        _check_start(probe, {field.name: next(probe.excursions(field, robot_state), robot_state.applied[field.name])
                             for field in fields})  # fmt: skip


def _illegal_starts(field: Field) -> Iterator[tuple[str, object]]:
    high = int(np.max(field.bounds[1])) if _whole(field) else 0
    if _whole(field) and high < 2**31:
        yield "above its range", np.full(field.shape, high + 1, np.int64)
        yield "with a fraction", np.full(field.shape, float(np.max(field.bounds[0])) + 0.5)
    elif not _whole(field):
        yield "that is not a number", np.full(field.shape, np.nan, field.numpy_dtype)


def _check_start(probe: RobotProbe, start: Mapping[str, np.ndarray], before: str = "") -> None:
    """Reset with a start, and check that each command's applied and measured values are there, or at home."""
    spec = probe.robot.spec
    options = {"start": {name: np.array(value) for name, value in start.items()}} if start else {}
    robot_state = copied(probe.reset(options))
    for name, home in spec.home.items():
        field = spec.commands[name]
        if field.is_text:
            continue
        asked = np.broadcast_to(np.asarray(start.get(name, home), float), field.shape)
        word = "its start" if name in start else "home"
        allowed = f"{before}{word} is {asked.tolist()}"
        if field.name in spec.measured_by and field.numpy_dtype.kind == "f" and name not in start:
            continue  # where it goes without a start is the business of another check
        told = np.asarray(robot_state.applied[name], float)
        if (np.abs(told - asked) > (0 if _whole(field) else _AT_START * span_of(field) + 1e-9)).any():
            raise Failed(f"after a reset applied {name} is {told.tolist()}", allowed)
        sensor = spec.measured_by.get(name)
        if sensor is None or not _whole(field):
            continue
        measured = np.asarray(robot_state.sensors[sensor], float)
        if (np.abs(measured - asked) > np.maximum(0.3, 0.05 * span_of(field))).any():
            raise Failed(f"after a reset {sensor} is {measured.tolist()}", allowed)


# -- single periods --------------------------------------------------------------------------------------------


@check("every period", "each step takes one control period, and none takes two", "robot", "periods")
def _every_period(probe: RobotProbe) -> None:
    """Compare each step with the period: by the stamps, and where time passes, by the clock of this process."""
    period_s = probe.robot.spec.period_s
    robot_state = probe.reset()
    stamps, walls = [robot_state.stamp_ns], [time.monotonic()]
    for _ in range(60):
        robot_state = probe.step(probe.hold(robot_state))
        stamps.append(robot_state.stamp_ns)
        walls.append(time.monotonic())
    passed, wall = np.diff(stamps) / 1e9 / period_s, np.diff(walls) / period_s
    allowed = f"each step takes {period_s:.3g} s, the control period"
    if abs(float(np.median(passed)) - 1) > _UNEVEN:
        return  # the clock is another one, of which the check of the period has made a note
    if wall.sum() < 0.5 * passed.sum():  # a clock of its own, which no busy machine delays
        worst = int(np.abs(passed - 1).argmax())
        uneven = probe.simulated and abs(passed[worst] - 1) > _UNEVEN
        if uneven or abs(float(passed.mean()) - 1) > _MEAN:
            raise Failed(f"step {worst + 1} took {passed[worst]:.3g} periods by its stamps, and {passed.mean():.3g} is "
                         "the mean", allowed)  # fmt: skip
        return
    late = np.flatnonzero((passed > _LATE[0]) & (passed < _LATE[1]))
    gaps = np.diff(late)
    others = np.delete(passed, late)
    if len(late) >= 3 and not np.ptp(gaps) and (np.abs(others - 1) < _UNEVEN).all():
        raise Failed(f"every {gaps[0]}th step takes {passed[late].mean():.3g} periods, and the others one", allowed)
