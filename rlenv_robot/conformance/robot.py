"""Test the contract of a robot (`hal.Robot`) by seeded walks of small commands, in whatever world it is."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from hal import EpisodeError, Fault, IllegalAction, Robot, RobotError, RobotSpec, RobotState, RobotStopped
from rlenv_robot.conformance.illegal import illegal_values
from rlenv_robot.conformance.report import Failed, NotTried, Report, run_check
from rlenv_robot.conformance.tables import check_structure, difference

__all__ = ["RobotProbe", "check_robot", "copied"]

_STEP_SHARE = 0.02
"""A step of a walk as a share of the command's range; small, because the robot may be real."""


class RobotProbe:
    """Drive a robot under test.

    Args:
        robot: under test.
        steps: the length of a walk.
        seed: of resets and commands.
        repeatable: whether equal seeds must give equal states; False on a real machine.
    """

    def __init__(self, robot: Robot, steps: int, seed: int, repeatable: bool) -> None:
        self.robot, self.steps, self.seed, self.repeatable = robot, steps, seed, repeatable
        self.spec: RobotSpec | None = None

    def reset(self, options: Mapping[str, object] | None = None) -> RobotState:
        """Reset the robot with the seed."""
        return self.robot.reset({"seed": self.seed, **(options or {})})

    def nearby_command(self, robot_state: RobotState, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return a legal command close to the applied one."""
        command = {}
        for field in self.robot.spec.commands:
            low, high = (np.asarray(bound, float) for bound in field.bounds)
            applied = np.asarray(robot_state.applied[field.name], float)
            change = rng.uniform(-_STEP_SHARE, _STEP_SHARE, field.shape) * np.minimum(high - low, 1e3)
            command[field.name] = np.clip(applied + change, low, high).astype(field.numpy_dtype).clip(*field.bounds)
        return command

    def walk(
        self,
        between: Callable[[RobotState], None] = lambda robot_state: None,
        step: Callable[[Mapping[str, np.ndarray]], RobotState] | None = None,
    ) -> list[RobotState]:
        """Reset, step, and return the states.

        Args:
            between: called with each state before the next step, to disturb the walk.
            step: called instead of the robot's own.
        """
        step = step or self.robot.step
        rng, robot_states = np.random.default_rng(self.seed), [self.reset()]
        for _ in range(self.steps):
            command = self.nearby_command(robot_states[-1], rng)
            between(robot_states[-1])
            robot_states.append(step(command))
        return robot_states

    def compare(self, first: Sequence[RobotState], second: Sequence[RobotState]) -> None:
        """Check that two walks are equal.

        Raises:
            NotTried: the robot isn't repeatable.
            Failed: the walks differ.
        """
        if not self.repeatable:
            raise NotTried("equal seeds need not give equal states here")
        for number, (before, after) in enumerate(zip(first, second, strict=True)):
            name = difference(before.sensors, after.sensors) or difference(before.applied, after.applied)
            if name:
                raise Failed(f"state {number} differs in {name}")


def copied(robot_state: RobotState) -> RobotState:
    """Return a copy of a state with its own arrays."""
    return robot_state._replace(
        sensors={name: np.array(value) for name, value in robot_state.sensors.items()},
        applied={name: np.array(value) for name, value in robot_state.applied.items()},
    )


_CLEAR = {"clear_stop": "the conformance check stopped it"}


def check_robot(robot: Robot, *, steps: int = 10, seed: int = 0, repeatable: bool = True) -> Report:
    """Test a robot against its contract. The robot moves by small steps around its start.

    Args:
        robot: new and not yet reset; it is closed at the end.
        steps: the length of the walks.
        seed: of everything random.
        repeatable: False for a real machine, where equal seeds need not give equal states.

    Returns:
        The report of all checks. A broken robot raises nothing.
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
        raise Failed(f"spec is a {type(spec).__name__}, it must be a RobotSpec")
    for part in (spec.sensors, spec.commands):
        for field in part:
            if not field.meaning.strip() or not field.unit.strip():
                raise Failed(f"{part.name}.{field.name} has no meaning or no unit")


def _spec_travels(probe: RobotProbe) -> None:
    again = RobotSpec.from_dict(probe.robot.spec.to_dict())
    if again != probe.robot.spec or again.digest != probe.robot.spec.digest:
        raise Failed(f"to_dict and from_dict change it: {probe.robot.spec.difference(again)}")


def _spec_stays(probe: RobotProbe) -> None:
    if probe.robot.spec != probe.spec:
        raise Failed("spec changed with the reset")


# -- states --------------------------------------------------------------------------------------------------


def _step_before_reset(probe: RobotProbe) -> None:
    command = probe.robot.spec.commands.sample(np.random.default_rng(probe.seed))
    _refused(lambda: probe.robot.step(command), EpisodeError, "a step before the first reset")


def _robot_states(probe: RobotProbe) -> None:
    spec = probe.robot.spec
    for number, robot_state in enumerate(probe.walk()):
        if not isinstance(robot_state, RobotState):
            raise Failed(f"state {number} is a {type(robot_state).__name__}, it must be a RobotState")
        check_structure(robot_state.sensors, spec.sensors, "sensors")
        check_structure(robot_state.applied, spec.commands, "applied")
        _check_optional_parts(robot_state, spec)


def _check_optional_parts(robot_state: RobotState, spec: RobotSpec) -> None:
    unknown = robot_state.age_ns.keys() - set(spec.sensors.names)
    if unknown:
        raise Failed(f"age_ns names {sorted(unknown)}, which are not sensors")
    if any(age < 0 for age in robot_state.age_ns.values()):
        raise Failed(f"age_ns is {dict(robot_state.age_ns)}, an age can't be negative")
    unknown = robot_state.images.keys() - {camera.name for camera in spec.cameras}
    if unknown:
        raise Failed(f"images are of {sorted(unknown)}, which are not cameras of the spec")
    if not isinstance(robot_state.faults, tuple) or not all(isinstance(fault, Fault) for fault in robot_state.faults):
        raise Failed(f"faults are {robot_state.faults!r}, they must be a tuple of hal.Fault(code, subject, message)")


def _stamps(probe: RobotProbe) -> None:
    stamps = [robot_state.stamp_ns for robot_state in probe.walk()]
    if not all(isinstance(stamp, int | np.integer) for stamp in stamps):
        raise Failed(f"stamp_ns is a {type(stamps[0]).__name__}, it must be whole nanoseconds")
    if any(later <= earlier for earlier, later in itertools.pairwise(stamps)):
        raise Failed(f"stamp_ns does not rise from step to step: {stamps}")


def _own_arrays(probe: RobotProbe) -> None:
    copies: list[RobotState] = []
    robot_states = probe.walk(lambda robot_state: copies.append(copied(robot_state)))
    for robot_state, copy in zip(robot_states, copies, strict=False):  # no step follows the last state
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
    command = probe.nearby_command(robot_state, rng)
    robot_state = probe.robot.step(command)
    copy = copied(robot_state)
    for value in command.values():
        value[...] = 0
    _same(robot_state, copy, "is the caller's own command array")


def _same(robot_state: RobotState, copy: RobotState, problem: str) -> None:
    name = difference(copy.sensors, robot_state.sensors) or difference(copy.applied, robot_state.applied)
    if name:
        raise Failed(f"{name} of a state {problem}")


def _equal_seeds(probe: RobotProbe) -> None:
    probe.compare(probe.walk(), probe.walk())


# -- refusals --------------------------------------------------------------------------------------------------


def _illegal_commands(probe: RobotProbe) -> None:
    robot_state = probe.reset()
    legal = probe.nearby_command(robot_state, np.random.default_rng(probe.seed))
    for case in illegal_values(probe.robot.spec.commands, legal, "command"):
        try:
            probe.robot.step(case.value)
        except IllegalAction as refusal:
            violation = refusal.violation
            if (violation.code, violation.index) != (case.code, case.index):
                named = f"code {violation.code!r} and index {violation.index}"
                raise Failed(
                    f"{case.name}: the refusal names {named}, it must name {case.code!r} and {case.index}"
                ) from refusal
        except Exception as error:
            raise Failed(
                f"{case.name}: raised {type(error).__name__} ({error}), it must raise IllegalAction"
            ) from error
        else:
            raise Failed(f"{case.name}: was carried out, it must raise IllegalAction")
    probe.robot.step(legal)


def _illegal_moves_nothing(probe: RobotProbe) -> None:
    first = probe.walk()

    def disturb(robot_state: RobotState) -> None:
        for case in illegal_values(probe.robot.spec.commands, robot_state.applied, "command"):
            _refused(partial(probe.robot.step, case.value), IllegalAction, case.name)

    probe.compare(first, probe.walk(disturb))


def _stop_latches(probe: RobotProbe) -> None:
    robot_state = probe.reset()
    stopper = threading.Thread(target=probe.robot.stop, args=("the conformance check asks for it",))
    stopper.start()
    stopper.join()
    probe.robot.stop("once more")
    command = probe.nearby_command(robot_state, np.random.default_rng(probe.seed))
    try:
        for event in ("the first step", "the second step"):
            _refused(lambda: probe.robot.step(command), RobotStopped, f"{event} after a stop")
        _refused(probe.reset, RobotStopped, "a reset after a stop that does not clear it")
        _refused(lambda: probe.reset({"clear_stop": " "}), RobotStopped, "a reset that clears a stop without a reason")
    finally:
        robot_state = probe.reset(_CLEAR)
    probe.robot.step(probe.nearby_command(robot_state, np.random.default_rng(probe.seed)))


def _closed(probe: RobotProbe) -> None:
    command = probe.nearby_command(probe.reset(), np.random.default_rng(probe.seed))
    probe.robot.close()
    probe.robot.close()
    _refused(lambda: probe.robot.step(command), RobotError, "a step after close")


def _refused(call: Callable[[], object], expected: type[RobotError], event: str) -> None:
    try:
        call()
    except expected:
        return
    except Exception as error:
        raise Failed(f"{event} raised {type(error).__name__} ({error}), it must raise {expected.__name__}") from error
    raise Failed(f"{event} was accepted, it must raise {expected.__name__}")


_CHECKS: tuple[tuple[str, Callable[[RobotProbe], None]], ...] = (
    ("the spec is complete before the robot is opened", _spec_before_opening),
    ("the spec survives a conversion to plain data", _spec_travels),
    ("a step before the first reset is refused", _step_before_reset),
    ("states match the spec", _robot_states),
    ("the spec does not change", _spec_stays),
    ("time stamps rise", _stamps),
    ("a returned state never changes", _own_arrays),
    ("writing into a state changes nothing", _overwritten),
    ("the robot keeps no reference to a command", _command_is_the_callers),
    ("equal seeds and commands give equal states", _equal_seeds),
    ("illegal commands are refused, and the refusal names what is wrong", _illegal_commands),
    ("illegal commands move nothing", _illegal_moves_nothing),
    ("a stop from any thread latches until it is cleared with a reason", _stop_latches),
    ("close may be called twice, and no step follows it", _closed),
)
