"""Check resets that no walk tries: the start ``present``, refused resets, and options that stay their caller's."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from hal import EpisodeError, IllegalAction, RobotState, RobotStopped
from hal.robot import PRESENT, is_driven, is_effort
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_commands import check_command_kept, check_not_read
from rlenv_kit.robot_probe import RobotProbe, check_held, copied, pairs_of_speeds, span_of
from rlenv_kit.robot_stops import away, clear_stop, refused, stop_reason
from rlenv_kit.spoilt_commands import partly_spoilt, spoilt
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import difference

__all__ = ["reset_checks"]

_STAYS = 0.03
"""Largest change of a measured value by a reset that moves nothing, as a share of the command's range."""

_RUNS_ON = 0.2
"""Share of a measured speed before a reset that moves nothing, from which on the robot moves after it."""


def reset_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return the checks of resets."""
    return declared(globals(), probe)


@check("present", "a reset with the start 'present' moves nothing", "robot", "places", "overwritten")
def _present(probe: RobotProbe) -> None:
    """Move away, and begin an episode there: the robot stays where it is, and rests."""
    spec = probe.robot.spec
    robot_state = away(probe, probe.reset())[-1]
    if not any(is_driven(field) for field in spec.commands):  # it may still be on its way
        hold = probe.hold(robot_state)
        for _ in range(max(3, int(0.3 * spec.rate_hz))):
            robot_state = probe.step(hold)
    before = copied(robot_state)
    try:
        after = copied(probe.reset({"start": PRESENT}))
    except Failed:
        raise
    except Exception as error:
        probe.note(f"a reset with the start {PRESENT!r} raises {type(error).__name__}; it is to begin where it stands")
        return
    allowed = f"the start {PRESENT!r} begins where the robot is, and nothing moves"
    held = {sensor for name, sensor in spec.measured_by.items() if not is_driven(spec.commands[name])}
    pushed = any(is_effort(field) for field in spec.commands)  # a mass that an effort moved may run out
    for _ in range(1 if pushed else 4):
        for name, sensor in spec.measured_by.items():
            field = spec.commands[name]
            moved = np.abs(_floats(after, sensor) - _floats(before, sensor))
            if not is_driven(field) and not field.is_text and (moved > _STAYS * span_of(field) + 1e-9).any():
                raise Failed(f"{sensor} moved by {moved.max():.4g} {field.unit} with such a reset", allowed)
        for place, speed in pairs_of_speeds(spec):
            was, now = np.abs(_floats(before, speed)), np.abs(_floats(after, speed))
            noise = 1e-3 * span_of(spec.sensors[speed]) + 1e-6
            if not pushed and any(map(is_driven, spec.commands)) and ((now > _RUNS_ON * was) & (now > noise)).any():
                raise Failed(f"{speed} is {now.max():.4g} {spec.sensors[speed].unit} after such a reset, and was "
                             f"{was.max():.4g} before", allowed)  # fmt: skip
            moved = np.abs(_floats(after, place) - _floats(before, place))
            far = np.maximum(3 * was * spec.period_s, 0.02) + 1e-3 * np.abs(_floats(before, place))
            if place not in held and (moved > far).any() and spec.sensors[place].numpy_dtype.kind == "f":
                raise Failed(
                    f"{place} moved by {moved.max():.4g} {spec.sensors[place].unit} with such a reset", allowed
                )
        after = probe.step(probe.hold(after))


def _floats(robot_state: RobotState, sensor: str) -> np.ndarray:
    return np.asarray(robot_state.sensors[sensor], float)


# -- refused resets --------------------------------------------------------------------------------------------


def _wrong_options(probe: RobotProbe, robot_state: RobotState) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield options that `hal.robot.check_reset_options` refuses; a real robot gets none that would move it."""
    yield "a start of an unknown command", {"start": {"no_such_command": 0}}
    yield "the seed -1", {"seed": -1}
    yield "a seed that is a word", {"seed": "one"}
    if not probe.simulated:
        return
    yield "a start that is a number", {"start": 3}
    yield "a start that is an unknown word", {"start": "no such place"}
    for field in probe.robot.spec.commands:
        if field.numpy_dtype.kind == "f":
            yield f"a start of {field.name} that is not a number", {"start": {field.name: np.full(field.shape, np.nan)}}
        for value in probe.excursions(field, robot_state, most=1):
            start = {field.name: value}
            yield f"a start of {field.name} beside an unknown command", {"start": {**start, "no_such_command": 0}}
            yield f"a start of {field.name} beside the seed -1", {"start": start, "seed": -1}
            break


@check(
    "refused resets",
    "a reset that is refused clears no stop, and moves nothing",
    "robot",
    "overwritten",
    "stop clearing",
)
def _refused_resets(probe: RobotProbe) -> None:
    robot_state = probe.reset()
    hold, wrong = probe.hold(robot_state), list(_wrong_options(probe, robot_state))
    refusing: list[tuple[str, dict[str, Any]]] = []
    probe.stop(stop_reason())
    try:
        for what, options in wrong:
            reading = probe.read()
            try:
                probe.reset({**options, **clear_stop()})
            except Failed:
                raise
            except Exception:
                event = f"after a reset with {what}, which was refused"
                check_held(probe.robot.spec, reading, probe.read(), event, "a reset that is refused moves nothing")
                refused(probe, partial(probe.step, hold), RobotStopped, f"a step {event}")
                refused(probe, probe.reset, RobotStopped, f"a reset without a reason {event}")
                refusing.append((what, options))
            else:
                probe.note(f"a reset with {what} is accepted")
                probe.stop(stop_reason())
    finally:
        probe.reset(clear_stop())
    if not refusing:
        return
    probe.walk()
    first = [copied(state) for state in probe.walk()]

    def disturb(state: RobotState) -> None:
        for what, options in refusing:
            try:
                probe.reset(options)
            except Failed:
                raise
            except Exception:
                continue
            raise Failed(f"a reset with {what} was refused while the robot was stopped, and accepted later")

    try:
        second = probe.walk(disturb)
    except EpisodeError as error:
        probe.note(f"after a refused reset a step raises EpisodeError: {error}")
        return
    if probe.repeatable is not False and probe.simulated:
        probe.compare(first, second, "after resets that were refused", slack=0.01)


def _illegal_starts(probe: RobotProbe, robot_state: RobotState) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield starts that break the spec: each command by itself, and beside another one that is legal and far away."""
    spec = probe.robot.spec
    hold, fields = probe.hold(robot_state), [spec.commands[name] for name in spec.home]
    for field in fields:
        for what, wrong in spoilt(field, hold):
            name = f"a start of {field.name} {what}"
            yield name, {field.name: wrong}
            for other in fields:
                for far in probe.excursions(other, robot_state, most=1) if other is not field else ():
                    yield f"{name} beside a legal {other.name}", {other.name: far, field.name: wrong}
                    yield f"{name} before a legal {other.name}", {field.name: wrong, other.name: far}
                    break
        for what, mixed in partly_spoilt(probe, field, robot_state, most=2):
            yield f"a start with one element of {field.name} {what}", {field.name: mixed}


@check("illegal starts", "a start that breaks the spec is refused before anything moves", "robot", "starts",
       "refused resets")  # fmt: skip
def _illegal_starts_move_nothing(probe: RobotProbe) -> None:
    """Hold still, ask for illegal starts, and measure: at once, and in a step that holds."""
    if not probe.simulated or not probe.reset_moves:
        raise NotTried("a reset of this robot is not moved by its start, or it may be real")
    spec, allowed = probe.robot.spec, "a start that breaks the spec is refused, and nothing moves"
    first = copied(probe.reset())
    hold = probe.hold(first)
    for _ in range(3):
        first = copied(probe.step(hold))
    cases = list(_illegal_starts(probe, first))
    if not cases:
        raise NotTried("the spec has no home")
    for what, start in cases:
        before = probe.read()
        try:
            probe.reset({"start": start})
        except Failed:
            raise
        except IllegalAction:
            pass
        except Exception as error:
            if isinstance(error, AssertionError) or not any(name in str(error) for name in start):
                raise Failed(f"a reset with {what} raises {type(error).__name__}: {error!s:.120}",
                             "it raises IllegalAction, or at least names the command") from error  # fmt: skip
            probe.note(f"a reset with an illegal start raises {type(error).__name__}; here it is IllegalAction")
        else:
            raise Failed(f"a reset with {what} was accepted", allowed)
        check_held(spec, before, probe.read(), f"with {what}, which was refused", allowed)
        try:
            after = copied(probe.step(hold))
        except EpisodeError as error:
            probe.note(f"after a refused reset a step raises EpisodeError: {error}")
            first = copied(probe.reset())
            continue
        check_held(spec, first, after, f"with {what}, which was refused", allowed)


# -- options ---------------------------------------------------------------------------------------------------


@check("kept options", "a start stays the caller's, in any mapping and type", "robot", "options", "places")
def _kept_options(probe: RobotProbe) -> None:
    """Write into a start after the reset, and give options that cannot be written into."""
    if probe.is_quick:
        check_command_kept(probe)  # once more, late in the robot's life
    spec = probe.robot.spec
    home = {name: np.array(np.broadcast_to(value, spec.commands[name].shape), spec.commands[name].numpy_dtype)
            for name, value in spec.home.items() if not spec.commands[name].is_text}  # fmt: skip
    if not home:
        raise NotTried("the spec has no home")
    robot_state = probe.reset({"start": home})
    copy, hold = copied(robot_state), probe.hold(robot_state)
    hold = {name: np.array(value) for name, value in hold.items()}
    for name, value in home.items():
        value[...] = spec.commands[name].bounds[1 if np.all(np.isfinite(spec.commands[name].bounds[1])) else 0]
    name = difference(copy.applied, robot_state.applied) or difference(copy.sensors, robot_state.sensors)
    if name:
        raise Failed(f"{name} of a state changed when its caller wrote into the start", "a start is read once")
    check_not_read(probe, home, copy, "a start")
    check_held(spec, copy, probe.step(hold), "when the caller wrote into the start", "a start is read once")
    options: Mapping[str, object] = types.MappingProxyType({"seed": np.int64(probe.seed)})
    try:
        again = copied(probe.reset_with(options))
    except Failed:
        raise
    except Exception as error:
        raise Failed(f"a reset raises {type(error).__name__} for options that are no dict, or a seed of NumPy: {error}",
                     "options are any mapping, and a seed is a whole number") from error  # fmt: skip
    if probe.repeatable is not False and probe.simulated:
        probe.compare([copied(probe.reset())], [again], "with a seed of NumPy", slack=0.01)
