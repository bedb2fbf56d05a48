"""Drives a robot for the checks: seeded walks by small commands."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hal import EpisodeError, Fault, IllegalAction, Robot, RobotError, RobotSpec, RobotState, RobotStopped
from rlenv_robot.conformance.illegal import illegal_values
from rlenv_robot.conformance.report import Failed, NotTried, Report, run_check
from rlenv_robot.conformance.tables import check_structure, same_values

__all__ = ["RobotProbe", "check_robot", "copied"]

_SHARE = 0.02
"""A step of a walk, as a share of the command's range: what is checked may be real."""


class RobotProbe:
    """A robot under test.

    Args:
        robot: what is tested.
        steps: how long a walk is.
        seed: of resets and commands.
        repeatable: whether equal seeds must give equal readings: not on a real machine.
    """

    def __init__(self, robot: Robot, steps: int, seed: int, repeatable: bool) -> None:
        self.robot, self.steps, self.seed, self.repeatable = robot, steps, seed, repeatable
        self.spec: RobotSpec | None = None

    def reset(self, options: Mapping[str, Any] | None = None) -> RobotState:
        """A seeded reset."""
        return self.robot.reset({"seed": self.seed, **(options or {})})

    def near(self, robot_state: RobotState, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """A legal command close to the one applied last."""
        command = {}
        for field in self.robot.spec.commands:
            low, high = (np.asarray(bound, float) for bound in field.bounds)
            here = np.asarray(robot_state.applied[field.name], float)
            change = rng.uniform(-_SHARE, _SHARE, field.shape) * np.minimum(high - low, 1e3)
            command[field.name] = np.clip(here + change, low, high).astype(field.numpy_dtype).clip(*field.bounds)
        return command

    def walk(
        self,
        between: Callable[[RobotState], None] = lambda robot_state: None,
        step: Callable[[Any], RobotState] | None = None,
    ) -> list[RobotState]:
        """The readings of a seeded reset and of steps near it.

        Args:
            between: called before each step, to disturb.
            step: instead of the robot's own.
        """
        step = step or self.robot.step
        rng, robot_states = np.random.default_rng(self.seed), [self.reset()]
        for _ in range(self.steps):
            command = self.near(robot_states[-1], rng)
            between(robot_states[-1])
            robot_states.append(step(command))
        return robot_states

    def compare(self, first: Sequence[RobotState], second: Sequence[RobotState]) -> None:
        """Refuse two walks that should be one.

        Raises:
            NotTried: the robot isn't repeatable.
            Failed: they differ.
        """
        if not self.repeatable:
            raise NotTried("not where equal seeds need not give equal readings")
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            name = same_values(one.sensors, other.sensors) or same_values(one.applied, other.applied)
            if name:
                raise Failed(f"reading {number} differs in {name}")


def copied(robot_state: RobotState) -> RobotState:
    """With arrays of its own."""
    return robot_state._replace(
        sensors={name: np.array(value) for name, value in robot_state.sensors.items()},
        applied={name: np.array(value) for name, value in robot_state.applied.items()},
    )


# -- The contract of a robot (`hal.Robot`), whatever world it is in ------------------------------------------


_CLEAR = {"clear_stop": "the conformance check stopped it"}


def check_robot(robot: Robot, *, steps: int = 10, seed: int = 0, repeatable: bool = True) -> Report:
    """Test a robot against its contract. It moves, by small steps around its start.

    Args:
        robot: new, not yet reset; it is closed in the end.
        steps: how long the walks are.
        seed: of everything random.
        repeatable: False for a real machine, where equal seeds need not give equal readings.

    Returns:
        Every check, passed or not. Nothing is raised for a broken robot.
    """
    probe = RobotProbe(robot, steps, seed, repeatable)
    return Report(
        f"robot {type(robot).__name__}",
        tuple(run_check(name, "robot", partial(check, probe)) for name, check in _CHECKS),
    )


# -- description -----------------------------------------------------------------------------------------------


def _spec_before_opening(probe: RobotProbe) -> None:
    probe.spec = spec = probe.robot.spec
    if not isinstance(spec, RobotSpec):
        raise Failed(f"spec is a {type(spec).__name__}, wanted a RobotSpec")
    for part in (spec.sensors, spec.commands):
        for field in part:
            if not field.meaning.strip() or not field.unit.strip():
                raise Failed(f"{part.name}.{field.name} has no meaning or no unit")


def _spec_travels(probe: RobotProbe) -> None:
    again = RobotSpec.from_dict(probe.robot.spec.to_dict())
    if again != probe.robot.spec or again.digest != probe.robot.spec.digest:
        raise Failed(f"to_plain and from_plain change it: {probe.robot.spec.difference(again)}")


def _spec_stays(probe: RobotProbe) -> None:
    if probe.robot.spec != probe.spec:
        raise Failed("spec is another after the reset than before")


# -- readings --------------------------------------------------------------------------------------------------


def _step_before_reset(probe: RobotProbe) -> None:
    command = probe.robot.spec.commands.sample(np.random.default_rng(probe.seed))
    _refused(lambda: probe.robot.step(command), EpisodeError, "a step before the first reset")


def _robot_states(probe: RobotProbe) -> None:
    spec = probe.robot.spec
    for number, robot_state in enumerate(probe.walk()):
        if not isinstance(robot_state, RobotState):
            raise Failed(f"reading {number} is a {type(robot_state).__name__}, wanted a RobotState")
        check_structure(robot_state.sensors, spec.sensors, "sensors")
        check_structure(robot_state.applied, spec.commands, "applied")
        _check_rest(robot_state, spec)


def _check_rest(robot_state: RobotState, spec: RobotSpec) -> None:
    unknown = robot_state.age_ns.keys() - set(spec.sensors.names)
    if unknown:
        raise Failed(f"age_ns names {sorted(unknown)}, which are no sensors")
    if any(age < 0 for age in robot_state.age_ns.values()):
        raise Failed(f"age_ns is {dict(robot_state.age_ns)}: no sample comes from the future")
    unknown = robot_state.images.keys() - {camera.name for camera in spec.cameras}
    if unknown:
        raise Failed(f"images are of {sorted(unknown)}, which are no cameras of the spec")
    if not isinstance(robot_state.faults, tuple) or not all(isinstance(fault, Fault) for fault in robot_state.faults):
        raise Failed(f"faults are {robot_state.faults!r}, they must be a tuple of hal.Fault(code, subject, message)")


def _stamps(probe: RobotProbe) -> None:
    stamps = [robot_state.stamp_ns for robot_state in probe.walk()]
    if not all(isinstance(stamp, int | np.integer) for stamp in stamps):
        raise Failed(f"stamp_ns is a {type(stamps[0]).__name__}, wanted whole nanoseconds")
    if any(later <= earlier for earlier, later in itertools.pairwise(stamps)):
        raise Failed(f"stamp_ns does not rise from step to step: {stamps}")


def _own_arrays(probe: RobotProbe) -> None:
    kept: list[RobotState] = []
    robot_states = probe.walk(lambda robot_state: kept.append(copied(robot_state)))
    for robot_state, copy in zip(robot_states, kept, strict=False):  # the last is nowhere disturbed
        _same(robot_state, copy, "changed after it was returned")


def _overwritten(probe: RobotProbe) -> None:
    first = [copied(robot_state) for robot_state in probe.walk()]
    second: list[RobotState] = []
    spec = probe.robot.spec

    def overwrite(robot_state: RobotState) -> None:
        second.append(copied(robot_state))
        for part, values in ((spec.sensors, robot_state.sensors), (spec.commands, robot_state.applied)):
            for name, value in values.items():
                if value.flags.writeable:
                    value[...] = part[name].bounds[0]

    last = probe.walk(overwrite)[-1]
    probe.compare(first, [*second, last])


def _command_is_the_callers(probe: RobotProbe) -> None:
    rng = np.random.default_rng(probe.seed)
    robot_state = probe.reset()
    command = probe.near(robot_state, rng)
    robot_state = probe.robot.step(command)
    kept = copied(robot_state)
    for value in command.values():
        value[...] = 0
    _same(robot_state, kept, "is the caller's own command array")


def _same(robot_state: RobotState, kept: RobotState, problem: str) -> None:
    name = same_values(kept.sensors, robot_state.sensors) or same_values(kept.applied, robot_state.applied)
    if name:
        raise Failed(f"{name} of a reading {problem}")


def _equal_seeds(probe: RobotProbe) -> None:
    probe.compare(probe.walk(), probe.walk())


# -- refusals --------------------------------------------------------------------------------------------------


def _illegal_commands(probe: RobotProbe) -> None:
    robot_state = probe.reset()
    legal = probe.near(robot_state, np.random.default_rng(probe.seed))
    for case in illegal_values(probe.robot.spec.commands, legal, "command"):
        try:
            probe.robot.step(case.value)
        except IllegalAction as refused:
            violation = refused.violation
            if (violation.code, violation.index) != (case.code, case.index):
                got = f"code {violation.code!r} and index {violation.index}"
                raise Failed(f"{case.name}: {got}, wanted {case.code!r} and {case.index}") from refused
        except Exception as error:
            raise Failed(f"{case.name}: {type(error).__name__} ({error}), wanted IllegalAction") from error
        else:
            raise Failed(f"{case.name}: was carried out, wanted IllegalAction")
    probe.robot.step(legal)


def _illegal_moves_nothing(probe: RobotProbe) -> None:
    first = probe.walk()

    def disturb(robot_state: RobotState) -> None:
        for case in illegal_values(probe.robot.spec.commands, robot_state.applied, "command"):
            _refused(lambda value=case.value: probe.robot.step(value), IllegalAction, case.name)  # type: ignore[misc]

    probe.compare(first, probe.walk(disturb))


def _stop_latches(probe: RobotProbe) -> None:
    robot_state = probe.reset()
    stopper = threading.Thread(target=probe.robot.stop, args=("the conformance check asks for it",))
    stopper.start()
    stopper.join()
    probe.robot.stop("once more")
    command = probe.near(robot_state, np.random.default_rng(probe.seed))
    try:
        for what in ("the first step", "the second step"):
            _refused(lambda: probe.robot.step(command), RobotStopped, f"{what} after a stop")
        _refused(probe.reset, RobotStopped, "a reset after a stop that does not clear it")
        _refused(lambda: probe.reset({"clear_stop": " "}), RobotStopped, "a reset that clears a stop for no reason")
    finally:
        robot_state = probe.reset(_CLEAR)
    probe.robot.step(probe.near(robot_state, np.random.default_rng(probe.seed)))


def _closed(probe: RobotProbe) -> None:
    command = probe.near(probe.reset(), np.random.default_rng(probe.seed))
    probe.robot.close()
    probe.robot.close()
    _refused(lambda: probe.robot.step(command), RobotError, "a step after close")


def _refused(call: Callable[[], object], wanted: type[RobotError], what: str) -> None:
    try:
        call()
    except wanted:
        return
    except Exception as error:
        raise Failed(f"{what} raised {type(error).__name__} ({error}), wanted {wanted.__name__}") from error
    raise Failed(f"{what} was accepted, wanted {wanted.__name__}")


_CHECKS: tuple[tuple[str, Callable[[RobotProbe], None]], ...] = (
    ("its spec is readable and complete before anything is opened", _spec_before_opening),
    ("its spec travels as plain data", _spec_travels),
    ("a step before the first reset is refused", _step_before_reset),
    ("readings are as the spec says", _robot_states),
    ("its spec stays what it was", _spec_stays),
    ("stamps rise", _stamps),
    ("a reading never changes once it is returned", _own_arrays),
    ("writing into a reading changes nothing", _overwritten),
    ("a command stays the caller's", _command_is_the_callers),
    ("equal seeds and commands, equal readings", _equal_seeds),
    ("illegal commands are refused and named", _illegal_commands),
    ("illegal commands move nothing", _illegal_moves_nothing),
    ("a stop from any thread latches until it is cleared with a reason", _stop_latches),
    ("close twice; then no step", _closed),
)
