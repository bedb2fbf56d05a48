"""A grid of faults of robots: each part of a driver's interface, perverted in each way, at each occasion.

A cell is a correct robot (`BENCHES`) with one method changed. `NO_FAULT` names the cells that break no rule, or that no
caller can see, and says why.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hal import EpisodeError, Field, IllegalAction, RobotStopped, Violation, check_clears
from plugins.kit.tests.robot_bench import BENCHES, Bench, Cell, Change, Row
from plugins.kit.tests.robot_grid_states import meta_cells, motion_cells, reading_cells

__all__ = ["cells", "why_no_fault"]

# -- refusals ------------------------------------------------------------------------------------------------------


def _mended(mend: Callable[[Any, Any], Any]) -> Change:
    """Mend an illegal command in one way before it is checked."""

    def changed(robot: Any, right: Callable[..., Any], command: Any) -> Any:
        try:
            return right()
        except IllegalAction:
            return right(mend(robot, command))

    return changed


def _each(change: Callable[[Field, Any], Any]) -> Callable[[Any, Any], Any]:
    def mend(robot: Any, command: Any) -> Any:
        if not isinstance(command, dict):
            return command
        return {name: change(robot.spec.commands[name], value) if name in robot.spec.commands.names else value
                for name, value in command.items()}  # fmt: skip

    return mend


def _as_numbers(field: Field, value: Any) -> Any:
    try:
        return np.asarray(value, float).astype(field.numpy_dtype)
    except (TypeError, ValueError, OverflowError):
        return value


def _clipped(field: Field, value: Any) -> Any:
    array = np.asarray(value)
    return array.clip(*field.bounds).astype(array.dtype) if array.dtype.kind in "fiu" else value


def _broadcast(field: Field, value: Any) -> Any:
    try:
        return np.array(np.broadcast_to(np.asarray(value), field.shape))
    except ValueError:
        return value


MENDED: dict[str, Callable[[Any, Any], Any]] = {
    "fields may be missing": lambda robot, command: {
        **{name: value.astype(robot.spec.commands[name].numpy_dtype) for name, value in robot.told.items()}, **command,
    } if isinstance(command, dict) else command,
    "unknown fields are left out": lambda robot, command: {
        name: value for name, value in command.items() if name in robot.spec.commands.names
    } if isinstance(command, dict) else command,
    "values are clipped": _each(_clipped),
    "NaN is zero": _each(lambda field, value: np.nan_to_num(value) if np.asarray(value).dtype.kind == "f" else value),
    "NaN is the last value": lambda robot, command: {
        name: np.where(np.isfinite(value), value, robot.told.get(name, 0)).astype(np.float32)
        if np.asarray(value).dtype.kind == "f" else value for name, value in command.items()
    } if isinstance(command, dict) else command,
    "one number is for all": _each(_broadcast),
    "an axis more is dropped": _each(
        lambda field, value: value[0] if np.ndim(value) == len(field.shape) + 1 and len(value) == 1 else value),
    "a longer one is cut": _each(lambda field, value: value[: field.shape[0]] if field.shape and np.ndim(value) == 1
                                 and len(value) > field.shape[0] else value),
    "texts are numbers": _each(_as_numbers),
    "None is the last command": lambda robot, command: {
        name: value.astype(robot.spec.commands[name].numpy_dtype) for name, value in robot.told.items()
    } if command is None else command,
    "a list is in order": lambda robot, command: dict(zip(robot.spec.commands.names, command, strict=False))
    if isinstance(command, list) else command,
}  # fmt: skip
ERRORS: dict[str, Callable[[IllegalAction], Exception]] = {
    "an assertion": lambda error: AssertionError(),
    "a KeyError of nothing": lambda error: KeyError("bad"),
    "without a word": lambda error: ValueError(),
    "of another field": lambda error: IllegalAction(replace(error.violation, field="command.other")),
    "of another code": lambda error: IllegalAction(replace(error.violation, code="colour")),
    "of another index": lambda error: IllegalAction(replace(error.violation, index=(7,))),
    "a RobotStopped": lambda error: RobotStopped("illegal"),
    "an empty violation": lambda error: IllegalAction(Violation("", "", (), "")),
}


def _refusal_cells() -> Iterator[Row]:
    for base in BENCHES:
        for way, mend in MENDED.items():
            yield base, "command", way, "legal", _mended(mend)
        for way, error in ERRORS.items():
            yield base, "refusal", way, "refusal", lambda robot, right, wrong, error=error: error(wrong)
        yield base, "refusal", "moves", "refusal", _moves
        yield base, "refusal", "takes a tick", "refusal", lambda robot, right, wrong: (robot.advance(), wrong)[1]
        yield base, "refusal", "clears a stop", "refusal", lambda robot, right, wrong: (robot.unlatch(), wrong)[1]
        yield base, "refusal", "latches a stop", "refusal", lambda robot, right, wrong: (robot.latch("x"), wrong)[1]
        yield base, "refusal", "brakes", "refusal", lambda robot, right, wrong: (robot.brake(), wrong)[1]
        yield base, "refusal", "keeps the goal", "legal", _keeps_refused
        yield base, "refusal", "of legal limits", "legal", _refuses_limits
        yield base, "refusal", "of read-only arrays", "legal", _refuses_read_only
        yield base, "refusal", "after sixty steps", "legal", _refuses_late


def _moving(robot: Any, right: Callable[..., Any], *arguments: Any) -> None:
    right()
    _moves(robot, right)


def _moves(robot: Any, right: Callable[..., Any], wrong: Any = None) -> Any:
    robot.place = robot.place + (0.2 if robot.main == "goal" else 1.0)
    return wrong


def _keeps_refused(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    try:
        return right()
    except IllegalAction:
        goal = command.get(robot.main) if isinstance(command, dict) else None
        field = robot.spec.commands[robot.main]
        if np.shape(goal) == field.shape and np.asarray(goal).dtype.kind == "f" and np.isfinite(goal).all():
            robot.told[robot.main] = np.clip(np.asarray(goal, float), *field.bounds)
        raise


def _refuses_limits(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    values, field = right(), robot.spec.commands[robot.main]
    if (values[robot.main] >= field.bounds[1]).any():
        raise IllegalAction(Violation("range", f"command.{robot.main}", (0,), "at its limit"))
    return values


def _refuses_read_only(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    for value in right().values():
        if value.ndim:
            value.flags.writeable = value.flags.writeable
            value[...] = value
    return right()


def _refuses_late(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    if robot.frame > 60:
        raise IllegalAction(Violation("range", f"command.{robot.main}", (0,), "tired"))
    return right()


# -- resets --------------------------------------------------------------------------------------------------------


def _reset_cells() -> Iterator[Row]:
    def checks(change: Callable[[Any, Any], Any]) -> Change:
        """Change the options before they are checked."""
        return lambda robot, right, options: right(change(robot, options))

    def dropped(*names: str) -> Change:
        return checks(lambda robot, options: {key: value for key, value in options.items() if key not in names})

    for base in BENCHES:
        main = base.main
        zeros = np.zeros(base.spec.commands[main].shape)
        yield base, "reset.check", "nothing", "check", lambda robot, right, options: check_clears(robot.why, options)
        yield base, "reset.check", "no start", "check", dropped("start")
        yield base, "reset.check", "no seed", "check", dropped("seed")
        yield base, "reset.check", "the stop last", "check", _clears_first
        yield base, "reset.check", "any clear_stop", "check", lambda robot, right, options: right(
            {**options, "clear_stop": "x"} if "clear_stop" in options else options)  # fmt: skip
        yield base, "reset.check", "any reset clears", "check", lambda robot, right, options: right(
            {**options, "clear_stop": "x"})  # fmt: skip
        yield base, "reset.check", "refuses every start", "check", _refuses_starts
        yield base, "reset.check", "takes from the options", "check", _pops
        yield base, "reset.check", "moves when it refuses", "check", _moves_when_refused
        yield base, "reset.check", "needs a dict", "check", lambda robot, right, options: right({}.__or__(options) or 1)
        yield base, "reset.unlatch", "not", "unlatch", lambda robot, right: None
        yield base, "reset.start", "ignored", "start", lambda robot, right, options: right({})
        yield base, "reset.start", "at zero where left out", "start", lambda robot, right, options, zeros=zeros: {
            **right(), robot.main: options.get("start", {}).get(robot.main, zeros)}  # fmt: skip
        yield base, "reset.start", "the last ignored", "start", _last_start
        yield base, "reset.start", "of the reset before", "start", _start_before
        yield base, "reset.start", "kept live", "begin", _keeps_start
        yield base, "reset.start", "halfway", "begin", _half_way
        yield base, "reset.start", "keeps the speed", "begin", _keeps_speed
        yield base, "reset.start", "keeps the last place", "begin", _keeps_last
        yield base, "reset.start", "all but the main command", "begin", lambda robot, right, start: right(
            {**start, robot.main: robot.told[robot.main]})  # fmt: skip
        yield base, "reset.start", "the main command alone", "begin", lambda robot, right, start: right(
            {**robot.told, robot.main: start[robot.main]})  # fmt: skip
        yield base, "reset.present", "goes home", "stay", lambda robot, right: robot.begin(dict(robot.spec.home))
        yield base, "reset.present", "opens the rest", "stay", lambda robot, right: (right(), robot.obey(
            {**{name: np.array(value) for name, value in robot.spec.home.items()}, robot.main: robot.told[robot.main]},
        ))[0]  # fmt: skip
        yield base, "reset.present", "jumps", "stay", _moving
        yield base, "reset.present", "moves on", "stay", lambda robot, right: None
        yield (
            base,
            "reset",
            "takes a motion",
            "begin",
            lambda robot, right, start: (right(), _moves(robot, right, None))[0],
        )
        yield base, "reset", "sets the clock back", "begin", lambda robot, right, start: (
            right(), setattr(robot, "ticks", 50))[0]  # fmt: skip
        yield base, "reset", "raises", "begin", _raises_in_reset
        yield base, "reset", "returns the last state", "reset", lambda robot, right, options: (
            robot.before, right())[0] or robot.before  # fmt: skip
        yield base, "reset", "returns None", "reset", lambda robot, right, options: (right(), None)[1]
    for name, value in {"claw": 1, "lamp": 0.9}.items():
        yield Bench, f"reset.{name}", "not at home", "start", lambda robot, right, options, name=name, value=value: {
            **right(), name: options.get("start", {}).get(name, value)}  # fmt: skip
        yield Bench, f"reset.{name}", "stays", "start", lambda robot, right, options, name=name: {
            **right(), name: options.get("start", {}).get(name, robot.told[name])}  # fmt: skip


def _clears_first(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    check_clears(robot.why, options)
    robot.why = None
    return right()


def _refuses_starts(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    right()
    if options.get("start") and robot.main in options["start"]:
        raise ValueError("no start")


def _pops(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    right()
    if isinstance(options, dict):
        options.pop("clear_stop", None)


def _moves_when_refused(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    try:
        right()
    except IllegalAction:
        robot.place = robot.place + 0.2
        raise


def _last_start(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    start = right()
    value = np.array(start[robot.main], float)
    value[-1] = np.asarray(robot.spec.home[robot.main])[-1]
    return {**start, robot.main: value}


def _start_before(robot: Any, right: Callable[..., Any], options: Any) -> Any:
    before, robot.started = getattr(robot, "started", None), right()
    return before or robot.started


def _keeps_start(robot: Any, right: Callable[..., Any], start: Any) -> None:
    right()
    robot.told[robot.main] = np.asarray(start[robot.main], dtype=getattr(start[robot.main], "dtype", float))


def _half_way(robot: Any, right: Callable[..., Any], start: Any) -> None:
    before, told = robot.place, {name: value.copy() for name, value in robot.told.items()}
    right()
    robot.place = (before + robot.place) / 2
    if robot.main != "goal":
        robot.told[robot.main] = (told[robot.main] + robot.told[robot.main]) / 2


def _keeps_speed(robot: Any, right: Callable[..., Any], start: Any) -> None:
    before = robot.speed
    right()
    robot.speed = before


def _keeps_last(robot: Any, right: Callable[..., Any], start: Any) -> None:
    before, told = robot.place, robot.told[robot.main]
    right()
    robot.place[-1], robot.told[robot.main][-1] = before[-1], told[-1]


def _raises_in_reset(robot: Any, right: Callable[..., Any], start: Any) -> None:
    raise OSError("bus")


# -- stops, ends and readings --------------------------------------------------------------------------------------


def _stop_cells() -> Iterator[Row]:
    def fades(seconds: int) -> Change:
        """Forget the stop after some refused steps."""

        def changed(robot: Any, right: Callable[[], Exception]) -> Exception:
            robot.asked = getattr(robot, "asked", 0) + 1
            if robot.asked % seconds == 0:
                robot.why = None
            return right()

        return changed

    for base in BENCHES:
        yield base, "stop", "not latched", "latch", lambda robot, right, reason: None
        yield base, "stop", "the first alone", "latch", lambda robot, right, reason: (
            right(reason) if not robot.cleared else None)  # fmt: skip
        yield base, "stop", "not in the first episode", "latch", lambda robot, right, reason: (
            right(reason) if robot.begun else None)  # fmt: skip
        yield base, "stop", "toggles", "latch", lambda robot, right, reason: (
            right(reason) if robot.why is None else setattr(robot, "why", None))  # fmt: skip
        yield (
            base,
            "stop",
            "not without a reason",
            "latch",
            lambda robot, right, reason: right(reason) if reason else None,
        )
        yield base, "stop", "not with a long reason", "latch", lambda robot, right, reason: (
            right(reason) if len(reason) < 100 else None)  # fmt: skip
        yield base, "stop", "needs ASCII", "latch", lambda robot, right, reason: right(reason.encode("ascii").decode())
        yield base, "stop", "by the main thread alone", "latch", lambda robot, right, reason: (
            right(reason) if threading.current_thread() is threading.main_thread() else None)  # fmt: skip
        yield base, "stop", "raises", "latch", lambda robot, right, reason: [][0]
        yield base, "stop", "takes two seconds", "latch", lambda robot, right, reason: (_slow(2.0), right(reason))[0]
        yield base, "stop", "for one refused step", "stopped_error", fades(1)
        yield base, "stop", "for three refused steps", "stopped_error", fades(3)
        yield base, "stop", "another error", "stopped_error", lambda robot, right: ValueError("stopped")
        yield base, "stop", "called illegal", "stopped_error", lambda robot, right: IllegalAction(
            Violation("range", "command", (), "stopped"))  # fmt: skip
        yield base, "stop", "an end", "stopped_error", lambda robot, right: EpisodeError("stopped")
        yield base, "stop", "runs on", "hold", lambda robot, right: None
        yield base, "stop", "moves", "hold", _moving
        yield base, "stop", "goes home", "hold", lambda robot, right: robot.begin(dict(robot.spec.home))
        yield base, "stop", "the last runs on", "hold", _last_runs_on
        yield base, "stop", "obeys when read", "look", lambda robot, right: (
            robot.drive(robot.told) if robot.why is not None else None, right())[1]  # fmt: skip
        yield base, "stop", "obeys commands", "stopped_error", lambda robot, right: (robot.advance(), right())[1]
        yield base, "close", "raises the second time", "close", _close_once
        yield base, "close", "raises before a reset", "close", _close_begun
        yield base, "close", "ends nothing", "close", lambda robot, right: None
        yield base, "close", "runs on", "close", lambda robot, right: setattr(robot, "closed", True)
        yield base, "close", "moves", "close", _moving
        yield base, "close", "leaves a thread", "close", _leaves_thread
        yield base, "close", "steps follow", "step", _opens
        yield base, "close", "resets follow", "reset", _opens
        yield base, "too early", "another error", "ended", lambda robot, right, call: AttributeError("None")
        yield base, "read", "moves", "look", lambda robot, right: (_moves(robot, right), right())[1]
        yield base, "read", "takes a tick", "look", lambda robot, right: (robot.advance(), right())[1]
        yield base, "read", "clears a stop", "look", lambda robot, right: (robot.unlatch(), right())[1]
        yield base, "read", "shows the state before", "look", lambda robot, right: robot.before
        yield base, "read", "a mapping", "look", lambda robot, right: right()._asdict()
        yield base, "read", "of the beginning", "look", _first_look
        yield base, "read", "draws", "look", lambda robot, right: (robot.rng.random(), right())[1]
        yield base, "read", "seeds", "look", lambda robot, right: (robot.seed({"seed": 0}), right())[1]
        yield base, "read", "raises", "look", lambda robot, right: [][0]
        yield base, "read", "is None", "look", lambda robot, right: None


def _opens(robot: Any, right: Callable[..., Any], argument: Any) -> Any:
    robot.closed = False
    return right()


def _slow(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def _last_runs_on(robot: Any, right: Callable[[], None]) -> None:
    speed, told = robot.speed.copy(), robot.told[robot.main].copy()
    right()
    robot.speed[-1], robot.told[robot.main][-1] = speed[-1], told[-1]


def _close_once(robot: Any, right: Callable[[], None]) -> None:
    if robot.closed:
        raise OSError("closed")
    right()


def _close_begun(robot: Any, right: Callable[[], None]) -> None:
    if not robot.begun:
        raise OSError("not open")
    right()


def _leaves_thread(robot: Any, right: Callable[[], None]) -> None:
    right()
    threading.Thread(target=threading.Event().wait, args=(30,), daemon=True).start()


def _first_look(robot: Any, right: Callable[[], Any]) -> Any:
    robot.looked = getattr(robot, "looked", None) or right()
    return robot.looked


# -- descriptions and seeds ----------------------------------------------------------------------------------------


def _other_spec(**changes: Any) -> Change:
    def changed(robot: Any, right: Callable[..., Any], *arguments: Any) -> Any:
        result = right()
        robot.spec = replace(type(robot).spec, **changes)
        return result

    return changed


def _spec_cells() -> Iterator[Row]:
    for base in BENCHES:
        for method in ("begin", "unlatch", "obey"):
            yield base, "spec", f"another rate after {method}", method, _other_spec(rate_hz=40.0)
            yield base, "spec", f"another home after {method}", method, _other_spec(home={})
    yield Bench, "seed", "ignored", "seed", lambda robot, right, options: None
    yield Bench, "seed", "added up", "seed", lambda robot, right, options: right(
        {**options, "seed": (options.get("seed") or 0) + robot.resets})  # fmt: skip
    yield Bench, "seed", "of the process", "seed", _global_seed
    yield Bench, "seed", "of the process is drawn", "measure", lambda robot, right: (
        right(), setattr(robot, "place", robot.place + np.random.normal(0, 1e-3, 3)))[0]  # fmt: skip


def _global_seed(robot: Any, right: Callable[..., Any], options: Any) -> None:
    if options.get("seed") is not None:
        np.random.seed(options["seed"])
    robot.rng = np.random


# -- the grid ------------------------------------------------------------------------------------------------------

ALWAYS = ("always",)
LATER = ("from the second episode", "after a cleared stop", "after a refusal", "late in an episode", "late in its life")
STATES = (*ALWAYS, *LATER, "each third tick", "near a limit", "in the first state")
GROUPS: dict[Callable[[], Iterator[Row]], tuple[str, ...]] = {
    reading_cells: (*STATES, "while read"), meta_cells: STATES,
    motion_cells: (*ALWAYS, *LATER, "each third tick", "near a limit"),
    _refusal_cells: (*ALWAYS, *LATER, "while stopped"), _reset_cells: (*ALWAYS, *LATER), _stop_cells: (*ALWAYS, *LATER),
    _spec_cells: (*ALWAYS, *LATER),
}  # fmt: skip


def cells() -> dict[str, Cell]:
    """Return the cells of the grid by their names."""
    made = {}
    for group, occasions in GROUPS.items():
        for base, part, way, method, change in group():
            for when in occasions:
                name = f"{base.__name__} {part} {way}, {when}"
                if name in made:
                    raise ValueError(f"there are two cells {name!r}, expected one of each name")
                made[name] = Cell(name, base, method, change, when)
    return made


NO_FAULT = {
    r"claw_state five ticks old": "a gripper may be slow",
    r"ages growing": "a sample may be taken ever farther before its state",
    r"image missing, (always|in the first state)": "a simulation renders the cameras that were asked for",
    r"image with the state's stamp, (?!always)": "now and then a coarse image is equal by chance",
    r"(angle_rate|press_speed|press_force) .*, in the first state": "it is 0 then, however it is changed",
    r"(Wagon|Press) (sensors|applied).* (in another order|as the first), in the first": "it is 0, in either order",
    r"wheel_place (the last )?with an offset": "an odometer may begin anywhere",
    r"Press motor.force (halved|in steps|saturated|the first takes|the last halved|three periods)": "a load may be any",
    r"Wagon motor.speed in steps": "a motor may have a dead zone of this size",
    r"Bench step moves twice": "a servo that is faster",
    r"Bench refusal brakes": "it is at rest, and its next goal is another",
    r"(Wagon|Press) reset takes a motion": "the description says nothing of where a place begins",
    r"reset.present moves on": "a simulation may go on as it is",
    r"reset.present opens the rest": "what nothing measures may begin anew",
    r"(Wagon|Press) reset.start (at zero|the main command alone)": "home is zero, and there is no other command",
    r"close (moves|runs on)": "an arm may be let down, and a closed robot shows nothing",
    r"Bench stop (runs on|the last runs on|obeys)|(Press|Wagon) stop obeys": "a stop brakes, and nothing is left",
    r"Press stop runs on": "the time of a simulation may stand still while it is stopped",
    r"read (draws|seeds)": "nothing moves by chance",
    r"read takes a tick": "time passes while a robot is read",
    r"read is None": "a robot may have nothing to read",
    r"too early another error": "a note: it is refused",
    r"(command|refusal) .*, while stopped": "a stopped robot carries out nothing, and says that it is stopped",
}
"""Cells, as patterns of their names -> why they are no faults that a caller could see."""


def why_no_fault(name: str) -> str:
    """Return why a cell is no fault that a caller could see; empty if it is one."""
    return next((why for pattern, why in NO_FAULT.items() if re.search(pattern, name)), "")
