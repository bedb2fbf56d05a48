"""Test the contract of a robot (`hal.Robot`) by seeded walks of small commands, on hardware or in simulation."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from functools import partial
from typing import cast

import numpy as np

from hal import EpisodeError, Image, Robot, RobotError, RobotSpec, RobotState
from hal.errors import wrong_type
from hal.robot import CLOSE_S, is_driven, is_effort
from hal.wrapper import RobotWrapper
from rlenv_kit.instances import Leftovers
from rlenv_kit.report import Failed, NotTried, Report
from rlenv_kit.robot_applied import applied_checks
from rlenv_kit.robot_commands import check_same, command_checks
from rlenv_kit.robot_latch import latch_checks
from rlenv_kit.robot_members import member_checks
from rlenv_kit.robot_motion import motion_checks
from rlenv_kit.robot_probe import (
    SIMULATED,
    MotionBounds,
    RobotProbe,
    check_held,
    copied,
    is_simulated,
    span_of,
    write_into,
)
from rlenv_kit.robot_readings import content_of, reading_checks
from rlenv_kit.robot_resets import reset_checks
from rlenv_kit.robot_states import IMAGE_AGE_S, check_image, check_parts
from rlenv_kit.robot_stops import away, refused, stop_checks, stop_early
from rlenv_kit.robot_streams import stream_checks
from rlenv_kit.supervisor import CallLog, Deadlines, PlannedCheck, Supervisor, Witness, check, declared, in_order
from rlenv_kit.tables import check_structure, difference

__all__ = ["check_robot"]

_FROM_ELSEWHERE = 0.01
"""Largest share of a field's range by which a state may depend on where a reset came from."""

_CLOSED_S = 0.3
"""Time in which a closed robot is watched, where it can still be read."""

_LONG_WALK = 40
"""Steps of a simulation in which arrays are watched: some are made anew in the first ones alone."""

_MOST_IMAGES = 600
"""States in which images are looked at."""


def check_robot(
    robot: Robot | Callable[[], Robot],
    *,
    steps: int = 10,
    seed: int = 0,
    repeatable: bool | None = None,
    bounds: MotionBounds | None = None,
    deadlines: Deadlines | None = None,
    only: int | str = 0,
    witness: Witness | None = None,
) -> Report:
    """Test a robot against its contract. The robot moves by small steps around its start.

    A stop from another thread is tested first; a robot that can't be stopped is not moved any further. However the run
    ends (an interruption, a call that hangs, an exception), the robot is stopped and closed.

    Args:
        robot: a robot that has not been reset, which is closed at the end; or a function that makes one.
        steps: the length of the walks.
        seed: seeds all random draws.
        repeatable: whether equal seeds must give equal states. By default this is required of a robot that reports
            ``simulated``; for another robot, repetitions are compared only if it proves repeatable.
        bounds: limits on all motions; by default slow and small, and wider for a robot that reports ``simulated``.
        deadlines: limits on single calls and on the whole run.
        only: number (from 1) or key of the only check to run, after the checks that it needs; 0 runs all.
        witness: receives the progress of the run, for another process.

    Returns:
        The report of all checks. A broken robot raises nothing.

    Raises:
        KeyboardInterrupt: the run was interrupted; the robot was stopped and closed first.
    """
    if not hasattr(robot, "reset") and not callable(robot):
        raise wrong_type("robot", robot, "a Robot, or a function that makes one: lambda: rlenv_robot.robot('so101')")
    began = time.monotonic()
    made = hasattr(robot, "reset") and not isinstance(robot, type)
    make = None if made else cast("Callable[[], Robot]", robot)
    log, probes = CallLog(deadlines or Deadlines(), witness), list[RobotProbe]()
    supervisor = Supervisor(log)

    def prepare() -> list[PlannedCheck]:
        left.begin_thread()
        subject = cast("Robot", robot) if make is None else log.call("make", make)
        supervisor.stop, supervisor.close = subject.stop, subject.close
        simulated = is_simulated(subject)
        supervisor.cautious = not simulated
        probe = RobotProbe(
            subject, steps, seed, repeatable, log, bounds or (SIMULATED if simulated else MotionBounds())
        )
        probes.append(probe)
        return _plan(probe, left, make)

    with Leftovers() as left:
        checks = supervisor.run(prepare, only)
    seconds = time.monotonic() - began
    if not probes:  # making it hung, or ended the process
        return Report("robot that was not made", checks, (), seconds)
    (probe,) = probes
    return Report(f"robot {type(probe.robot).__name__}", checks, probe.notes, seconds, _digest(probe.robot),
                  steps=log.steps)  # fmt: skip


def _digest(robot: Robot) -> str:
    """Return the digest of a robot's description; empty where it has none that can be read."""
    try:
        return str(robot.spec.digest)
    except Exception:  # a checked robot may raise anything
        return ""


_ORDER = (
    "spec", "travels", "streams open", "too early", "stop", "stop again", "stop early", "stop at reset",
    "stop at step", "states", "spec stays", "own arrays", "command", "stamps", "periods", "applied", "follows",
    "speed", "places", "still", "reset speed", "images", "equal", "streams", "rest", "instances", "overwritten",
    "options", "unmeasured", "legal", "refusals", "unmoved", "measured unmoved", "halves", "jumps", "starts",
    "every period", "stop commands", "stop clearing", "stop reasons", "stop illegal", "stop in a step", "present",
    "refused resets", "kept options", "rates", "efforts", "ages", "fresh", "reads", "chance",
    "watchdog", "damp", "illegal starts", "places of speeds", "stop left",
    "all states", "closed", "left",
)  # fmt: skip
"""Keys of the checks by their number, from 1. A new one comes before the last three, since users reproduce findings by
number, and those three end the run."""


def _plan(probe: RobotProbe, left: Leftovers, make: Callable[[], Robot] | None) -> list[PlannedCheck]:
    return in_order(_ORDER, [
        *declared(globals(), probe), *stop_checks(probe), *latch_checks(probe), *motion_checks(probe),
        *command_checks(probe), *applied_checks(probe), *stream_checks(probe), *reset_checks(probe),
        *reading_checks(probe), *member_checks(probe),
        *declared(vars(_Lifetime), _Lifetime(probe, left, make), probe),
    ])  # fmt: skip


# -- description -----------------------------------------------------------------------------------------------


@check("spec", "the spec is complete before the robot is opened", "robot")
def _spec_before_opening(probe: RobotProbe) -> None:
    probe.spec = spec = probe.robot.spec
    if not isinstance(spec, RobotSpec):
        raise Failed(f"spec is a {type(spec).__name__}", "it must be a RobotSpec")
    for part in (spec.sensors, spec.commands):
        for field in part:
            if not field.meaning.strip() or not field.unit.strip():
                raise Failed(f"{part.name}.{field.name} has no meaning or no unit")
    for name, sensor in spec.measured_by.items():
        units = spec.commands[name].unit, spec.sensors[sensor].unit
        if units[0] != units[1]:
            raise Failed(f"{sensor} is in {units[1]} and measures the command {name}, which is in {units[0]}",
                         "measured_by names a sensor of the same quantity")  # fmt: skip


@check("travels", "the spec survives a conversion to plain data", "robot", "spec")
def _spec_travels(probe: RobotProbe) -> None:
    again = RobotSpec.from_dict(probe.robot.spec.to_dict())
    if again != probe.robot.spec or again.digest != probe.robot.spec.digest:
        raise Failed(f"to_dict and from_dict change it: {probe.robot.spec.difference(again)}")


@check("spec stays", "the spec does not change", "robot", "spec")
def _spec_stays(probe: RobotProbe) -> None:
    if probe.spec is None:
        raise NotTried("the spec was not read at the beginning")
    if probe.robot.spec != probe.spec:
        raise Failed("spec changed with the reset")


@check("too early", "a step before the first reset is refused", "robot", "spec")
def _step_before_reset(probe: RobotProbe) -> None:
    spec = probe.robot.spec
    command = {field.name: np.clip(np.zeros(field.shape, field.numpy_dtype), *field.bounds) for field in spec.commands}
    for name, value in spec.home.items():
        command[name] = np.broadcast_to(np.asarray(value, spec.commands[name].numpy_dtype), spec.commands[name].shape)
    refused(probe, lambda: probe.step(command), EpisodeError, "a step before the first reset")
    stop_early(probe)


# -- states --------------------------------------------------------------------------------------------------


@check("states", "states match the spec", "robot", "stop")
def _robot_states(probe: RobotProbe) -> None:
    spec = probe.robot.spec
    walk = [*probe.walk(), *probe.walk(steps=3)]
    for number, robot_state in enumerate(walk):
        check_structure(robot_state.sensors, spec.sensors, f"state {number}: sensors", _note(probe))
        check_structure(robot_state.applied, spec.commands, f"state {number}: applied", _note(probe))
        check_parts(spec, robot_state, probe.streams)
        if robot_state.faults:
            probe.note(f"the robot reports the fault: {robot_state.faults[0]}")
    for field in spec.sensors:
        values = {np.asarray(robot_state.sensors[field.name]).tobytes() for robot_state in walk}
        if len(values) == 1:
            probe.note(f"sensor {field.name} never changed in {len(walk)} states")


def _note(probe: RobotProbe) -> Callable[[str, str], None]:
    return lambda clause, text: probe.note(text.split(": ", 1)[-1])


@check("images", "images are live, and as their cameras describe them", "robot", "periods")
def _images(probe: RobotProbe) -> None:
    spec = probe.robot.spec
    walk = probe.walk()
    seen = [name for robot_state in walk for name in robot_state.images]
    for camera in spec.cameras:
        if camera.name not in seen:
            probe.note(f"no state has an image of camera {camera.name!r}")
    if not seen:
        raise NotTried("no state has images")
    while (walk[-1].stamp_ns - walk[0].stamp_ns) / 1e9 <= 1.5 * IMAGE_AGE_S and len(walk) < _MOST_IMAGES:
        walk.append(probe.step(probe.hold(walk[-1])))  # until a frozen image is too old
    for number, robot_state in enumerate(walk):
        for name, image in robot_state.images.items():
            camera = next(camera for camera in spec.cameras if camera.name == name)
            size, what = (camera.height, camera.width), f"state {number}: image {name!r}"
            check_image(what, image, size, robot_state.stamp_ns, is_first=number == 0)
    if any(later.stamp_ns < earlier.stamp_ns for earlier, later in itertools.pairwise(walk)):
        raise NotTried("the stamps of the states fall, which another check looks at")
    for name in dict.fromkeys(seen):
        stamps = [robot_state.images[name].stamp_ns for robot_state in walk if name in robot_state.images]
        first = next(number for number, robot_state in enumerate(walk) if name in robot_state.images)
        for number, robot_state in enumerate(walk[first:], first):
            if name not in robot_state.images and not robot_state.faults:
                raise Failed(f"state {number} has no image of camera {name!r}, and no fault; state {first} had one",
                             "each state has each camera's newest image, an old one where none is newer")  # fmt: skip
        contents = {(image.stamp_ns, content_of(image)) for image in (
            robot_state.images[name] for robot_state in walk if name in robot_state.images)}  # fmt: skip
        if len(contents) > len(set(stamps)):
            raise Failed(
                f"two images {name!r} differ and have one stamp", "an image's stamp is the time of its capture"
            )
        if any(later < earlier for earlier, later in itertools.pairwise(stamps)):
            raise Failed(f"stamps of image {name!r} fall: {stamps}", "a later state has the same image or a newer one")
        newest = max(robot_state.stamp_ns for robot_state in walk if name in robot_state.images)
        if walk[-1].stamp_ns - newest > IMAGE_AGE_S * 1e9:
            raise Failed(f"camera {name!r} gave an image, and then none for {IMAGE_AGE_S:g} s",
                         "a camera that is lost is a fault of the robot")  # fmt: skip
        if len(contents) > 2 and len({content for _, content in contents}) == 1:
            _check_frozen(probe, name, contents.pop()[1])
        span_s = (walk[-1].stamp_ns - walk[0].stamp_ns) / 1e9
        if len(set(stamps)) == 1 and span_s > IMAGE_AGE_S:
            raise Failed(f"image {name!r} is the same one for {span_s:.2g} s", "a camera gives new images")


def _check_frozen(probe: RobotProbe, name: str, content: int) -> None:
    """Check that images change at least once when everything moves, since all before were the same."""
    robot_state = probe.reset()
    states = away(probe, robot_state)
    for field in probe.robot.spec.commands if probe.simulated else ():
        for value in list(probe.excursions(field, robot_state, most=4)):
            states.append(probe.step({**probe.hold(robot_state), field.name: value}))
    images = [state.images[name] for state in states if name in state.images]
    if all(content_of(image) == content for image in images):
        raise Failed(f"every image of camera {name!r} is the same while everything moves, and their stamps are not",
                     "images are live")  # fmt: skip


# -- ownership, equal seeds ------------------------------------------------------------------------------------


@check("own arrays", "a returned state never changes", "robot", "states")
def _own_arrays(probe: RobotProbe) -> None:
    copies: list[tuple[RobotState, dict[str, int]]] = []

    def keep(robot_state: RobotState) -> None:
        images = {name: content_of(image) for name, image in robot_state.images.items() if isinstance(image, Image)}
        copies.append((copied(robot_state), images))

    robot_states = probe.walk(keep, steps=_LONG_WALK if probe.is_quick else None)
    keep(robot_states[-1])

    def begin_elsewhere() -> None:
        start = {name: value for name, value in probe.hold(away(probe, copies[-1][0])[-1]).items()
                 if name in probe.robot.spec.home and probe.simulated}  # fmt: skip
        with suppress(Exception):  # another check looks at this start
            probe.reset({"start": start} if start else {})

    if not probe.is_quick:
        probe.step(probe.hold(copies[-1][0]))
    for go_on in (partial(away, probe, copies[-1][0]), begin_elsewhere, probe.reset)[0 if probe.is_quick else 2 :]:
        go_on()
        for robot_state, (copy, images) in zip(robot_states, copies, strict=True):
            check_same(robot_state, copy, "changed after it was returned")
            for name, content in images.items():
                if content_of(robot_state.images[name]) != content:
                    raise Failed(f"image {name!r} of a state changed after it was returned")


@check("overwritten", "writing into a state changes nothing", "robot", "equal")
def _overwritten(probe: RobotProbe) -> None:
    if probe.is_quick:
        _own_arrays(probe)  # once more, late in the robot's life
    probe.walk()
    first = [copied(robot_state) for robot_state in probe.walk()]
    second: list[RobotState] = []
    spec = probe.robot.spec

    def overwrite(robot_state: RobotState) -> None:
        second.append(copied(robot_state))
        write_into(spec, robot_state)

    last = probe.walk(overwrite)[-1]
    probe.compare(first, [*second, last], "after states before were written into")


@check("options", "reset neither changes nor keeps its options", "robot", "equal")
def _options(probe: RobotProbe) -> None:
    spec = probe.robot.spec
    home = {name: np.array(np.broadcast_to(value, spec.commands[name].shape), spec.commands[name].numpy_dtype)
            for name, value in spec.home.items()}  # fmt: skip
    for more in ({}, {"start": home}, {"clear_stop": "nothing is stopped"}):
        options: dict[str, object] = {"seed": probe.seed, **deepcopy(more)}
        try:
            probe.reset_with(options)
        except Exception as error:
            if not more:
                raise
            probe.note(f"a reset with {', '.join(more)} raises {type(error).__name__}")
        start = options.get("start")
        if options.keys() != {"seed", *more} or (isinstance(start, dict) and difference(home, start)):
            raise Failed(f"reset changed the caller's options to {options}")
    try:
        probe.reset_with({})
    except Exception as error:
        probe.note(f"a reset without options raises {type(error).__name__}; the options may be left out here")
    _check_illegal_seeds(probe)
    try:
        probe.reset({"no_such_option": 1})
    except Failed:
        raise
    except Exception:
        return
    probe.note("an unknown reset option is ignored, so a misspelt name goes unnoticed")


def _check_illegal_seeds(probe: RobotProbe) -> None:
    """Check that a robot which a seed changes refuses values that are no seeds; another robot may ignore them."""
    first, other = (copied(probe.reset_with({"seed": seed})) for seed in (probe.seed, probe.seed + 1))
    matters = bool(difference(first.sensors, other.sensors)) and probe.repeatable is not False and probe.simulated
    for seed in (-1, "one", 1.5):
        try:
            probe.reset_with({"seed": seed})
        except Failed:
            raise
        except Exception:
            continue
        text = f"a reset with the seed {seed!r} was accepted"
        if matters:
            raise Failed(text, "a seed is a whole number of at least 0")
        probe.note(f"{text}; a seed is a whole number of at least 0")


@check("equal", "equal seeds and commands give equal states", "robot", "still")
def _equal_seeds(probe: RobotProbe) -> None:
    """Compare walks of one seed; the first reset starts from another pose, so its walk may differ a little."""
    steps = None if probe.repeatable is False else 3 * probe.steps
    first, second, third = ([copied(state) for state in probe.walk(steps=steps)] for _ in range(3))
    try:
        probe.compare(first, second, "in a second walk of the same seed and commands", slack=_FROM_ELSEWHERE)
        probe.compare(second, third, "in a third walk of the same seed and commands")
    except Failed as finding:
        if probe.repeatable or probe.simulated:
            raise
        probe.note(f"it is not repeatable: {finding}")
        probe.repeatable = False
        raise NotTried("equal seeds need not give equal states on a real robot") from finding


# -- ends ------------------------------------------------------------------------------------------------------


@check("closed", "close may be called twice, and no step follows it", "robot", "stop")
def _closed(probe: RobotProbe) -> None:
    robot_state = away(probe, probe.reset())[-1]
    command = probe.hold(robot_state)
    for _ in range(2):
        began = time.monotonic()
        probe.close()
        if time.monotonic() - began > CLOSE_S:
            raise Failed(f"close took {time.monotonic() - began:.3g} s", f"it returns within {CLOSE_S:g} s")
    _check_rest_after_close(probe)
    refused(probe, lambda: probe.step(command), RobotError, "a step after close")
    try:
        probe.reset()
    except Exception:
        return
    probe.close()
    raise Failed("a reset after close was accepted", "it raises EpisodeError; a robot is made anew")


def _check_rest_after_close(probe: RobotProbe) -> None:
    """Check that nothing moves any more, where a closed robot can still be read."""
    before = probe.read()
    time.sleep(0 if probe.simulated or before is None else _CLOSED_S)
    after = None if before is None else probe.read()
    spec = probe.robot.spec
    check_held(spec, before, after, "after close", "a closed robot moves nothing")
    if after is None:
        return
    for name, sensor in spec.measured_by.items():
        field = spec.commands[name]
        if is_driven(field) and not is_effort(field):
            speed = np.abs(np.asarray(after.sensors[sensor], float))
            if (speed > 0.02 * span_of(field)).any():
                raise Failed(
                    f"{sensor} is still {speed.max():.4g} {field.unit} after close", "a closed robot moves nothing"
                )


@check(
    "all states",
    "each state of the run matches the spec, and stamps never fall",
    "robot",
    "images",
    "legal",
    "measured unmoved",
    "every period",
)
def _all_states(probe: RobotProbe) -> None:
    if probe.spec is not None and probe.robot.spec != probe.spec:
        raise Failed("spec changed during the run", "a robot has one spec", how="the whole run")
    if probe.problem:
        raise Failed(probe.problem, "every state keeps its description", how="the whole run")


class _Lifetime:
    """Check that another robot is one of its own, and what is left at the end."""

    def __init__(self, probe: RobotProbe, left: Leftovers, make: Callable[[], Robot] | None) -> None:
        self._probe, self._left, self._make = probe, left, make

    @check("instances", "a second instance is a separate robot", "robot", "equal", "stop again")
    def second_instance(self, probe: RobotProbe) -> None:
        """Move a second instance between the steps of the first."""
        make = self._make
        if make is None:
            raise NotTried("it needs a function that makes robots, and was given a robot")
        if not probe.simulated or RobotWrapper(probe.robot).guarded:
            raise NotTried("two instances may move one robot")
        spare = make()
        try:
            spare.close()
        except Exception as error:
            raise Failed(f"close before the first reset raises {type(error).__name__}: {error}",
                         "it may be called at any time", how="make, close") from error  # fmt: skip
        probe.walk()
        first = [copied(robot_state) for robot_state in probe.walk()]
        other = make()
        try:
            rng, same = np.random.default_rng(probe.seed), [copied(other.reset({"seed": probe.seed}))]
            for _ in first[1:]:
                same.append(copied(other.step(probe.nearby_command(same[-1], rng))))
            apart = probe.aged(same[0], first[0])
            what = "of a second instance with the same seed and commands"
            probe.compare(same, first, what, slack=_FROM_ELSEWHERE, apart=apart)
            other_state = other.reset({"seed": probe.seed + 1})

            def disturb(robot_state: RobotState) -> None:
                nonlocal other_state
                other_state = other.step(probe.hold(other_state))

            probe.compare(first, probe.walk(disturb), "while a second instance moves")

            def stop(robot_state: RobotState) -> None:
                other.stop("the conformance check stops a second instance")

            probe.compare(first, probe.walk(stop), "while a second instance is stopped")
        finally:
            other.close()

    @check("left", "no thread and no file is left after close", "robot")
    def left(self, probe: RobotProbe) -> None:
        problem = self._left.problem()
        if problem:
            raise Failed(problem, "close releases everything", how="the whole run, then close")
