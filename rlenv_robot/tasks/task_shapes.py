"""Compare what the functions of a task return with its specs, once before the first step of an environment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from hal import Field, RobotSpec, Spec, SpecError
from rlenv_robot.tables import step_extra_of
from rlenv_robot.tasks.agents import agents_of
from rlenv_robot.tasks.task import Arrays, AveragedTask, Episode, PeakTask, Task

__all__ = ["check_goal", "check_results"]

_KINDS = {"f": "fiu", "i": "iub", "u": "iub", "b": "b", "U": "U"}
"""Kind of a field's dtype -> the kinds that a task may return for it."""
_NUMBERS, _FLAGS = ("fiub", "numbers"), ("b", "bool")


def check_goal(task: Task, episode: object) -> None:
    """Refuse what a task's ``begin`` returned unless it is an `Episode` whose goal fits ``task.goal``.

    Raises:
        SpecError: naming the task's class, the method, the field, and what was got and expected.
    """
    where = f"{type(task).__name__}.begin"
    if not isinstance(episode, Episode):
        raise SpecError(f"{where} returned a {type(episode).__name__}, expected an Episode(goal, start)")
    _Checker(task, ()).fields("begin", episode.goal, task.goal, "goal")


def check_results(
    task: Task, robot: RobotSpec, sensors: Arrays, goal: Arrays, action: Arrays | None, with_state: bool
) -> None:
    """Call each function of a task with a reading and an action, and check what it returns.

    The functions of a task are pure, so these calls change nothing, and no command of them is carried out.

    Args:
        task: whose functions are called.
        robot: whose commands ``task.command`` returns.
        sensors: name -> (..., n), a reading; with a leading axis of N for a batch.
        goal: name -> (..., n), of the episodes.
        action: name -> (..., n), with the values of ``step_extra``; None draws one from the specs.
        with_state: whether to call ``task.privileged``, which an environment for inference never does.

    Raises:
        SpecError: a returned value has another name, shape or kind than its spec; the message names the task's class,
            the method, the field, what was got and expected, and the likely cause.
    """
    leading = _leading_axes(robot.sensors, sensors)
    if action is None:
        rng = np.random.default_rng(0)
        action = {**task.action.sample(rng, leading), **step_extra_of(task).fields.sample(rng, leading)}
    _check_with(task, robot, sensors, goal, action, with_state, leading)
    if leading and leading[0] > 1:  # where N is the length of a vector, as 3, a mistaken axis shows in one row alone
        one = [{name: value[:1] for name, value in values.items()} for values in (sensors, goal, action)]
        _check_with(task, robot, one[0], one[1], one[2], with_state, (1, *leading[1:]))


def _leading_axes(spec: Spec, sensors: Arrays) -> tuple[int, ...]:
    for field in spec:
        if field.name in sensors:
            shape = tuple(sensors[field.name].shape)
            return shape[: len(shape) - len(field.shape)]
    return ()


def _check_with(
    task: Task, robot: RobotSpec, sensors: Arrays, goal: Arrays, action: Arrays, with_state: bool,
    leading: tuple[int, ...],
) -> None:  # fmt: skip
    checker = _Checker(task, leading)
    observation = task.observe(sensors, goal)
    added = [name for name in observation if name in sensors] if isinstance(observation, Mapping) else []
    checker.fields("observe", observation, task.observation, "observation", added)  # sensors that a profile added pass
    if with_state:
        checker.fields("privileged", task.privileged(sensors, goal), task.state, "state")
    checker.fields("command", task.command(action, sensors), robot.commands, "the robot's commands")
    reward = task.reward(sensors, action, sensors, goal)
    agents = [agent.name for agent in agents_of(task)]
    if agents:
        checker.names("reward", reward, agents, "its agents")
    for agent, value in reward.items() if isinstance(reward, Mapping) else [("", reward)]:
        checker.value("reward", agent, value, (), *_NUMBERS)
    checker.value("terminated", "", task.terminated(sensors, goal), (), *_FLAGS)
    metrics = task.metrics(sensors, goal)
    checker.names("metrics", metrics, None, "figures")
    for name, value in metrics.items():
        checker.value("metrics", name, value, (), *_NUMBERS)
    if isinstance(task, PeakTask):
        peaks = task.peaks(sensors)
        checker.names("peaks", peaks, (), "the metrics", metrics)
        for name, value in peaks.items():
            checker.value("peaks", name, value, (), *_NUMBERS)
    if isinstance(task, AveragedTask):
        checker.value("average_success", "", task.average_success(metrics, sensors, goal), (), *_FLAGS)
    else:
        checker.value("success", "", task.success(sensors, goal), (), *_FLAGS)


class _Checker:
    """Check the returned values of one task for readings with some leading axes."""

    def __init__(self, task: Task, leading: tuple[int, ...]) -> None:
        self._task, self._leading = task, leading

    def fields(self, method: str, values: Any, spec: Spec, what: str, allowed: Collection[str] = ()) -> None:
        """Check the names and values of a mapping against a spec; names of ``allowed`` may be there too."""
        self.names(method, values, spec.names, what, allowed)
        for field in spec:
            self.value(method, field.name, values[field.name], field.shape, *_kinds(field))

    def names(
        self, method: str, values: Any, expected: Collection[str] | None, what: str, allowed: Collection[str] = ()
    ) -> None:
        """Check that a value is a mapping with exactly the expected names; None allows any."""
        if not isinstance(values, Mapping):
            raise self._error(method, "", f"returned a {type(values).__name__}, expected a mapping from name to value")
        if expected is None:
            return
        missing = [name for name in expected if name not in values]
        extra = [name for name in values if name not in expected and name not in allowed]
        if missing or extra:
            problems = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has unknown {', '.join(extra)}"] * bool(
                extra
            )
            listed = ", ".join(expected) or "no field"
            raise self._error(method, "", f"returned a mapping that {' and '.join(problems)}; {what}: {listed}")

    def value(self, method: str, field: str, value: Any, shape: tuple[int, ...], kinds: str, expected: str) -> None:
        """Check the shape and the kind of one value."""
        if not shape and type(value) in (bool, int, float):  # a constant, which is the same for every reading
            shape_fits, kind = True, np.asarray(value).dtype.kind
            got: tuple[int, ...] = ()
        elif value is None:
            raise self._error(method, field, "returned None, expected a value; is a return missing?")
        else:
            value = value if hasattr(value, "dtype") and hasattr(value, "shape") else np.asarray(value)
            got, kind = tuple(value.shape), value.dtype.kind
            shape_fits = got == (*self._leading, *shape)
        if not shape_fits:
            cause = self._cause(got, shape)
            where = f" for {self._leading[0]} environments" if self._leading else ""
            raise self._error(
                method, field, f"returned shape {got}{where}, expected {(*self._leading, *shape)}; {cause}"
            )
        if kind not in kinds:
            raise self._error(method, field, f"returned values of type {value.dtype}, expected {expected}")

    def _cause(self, got: tuple[int, ...], shape: tuple[int, ...]) -> str:
        wanted = (*self._leading, *shape)
        if got == (*wanted, 1):
            return "write value[..., 0] to take the single element"
        if self._leading and got == shape:
            return "the value lacks the leading axes: reduce over the last axis alone (axis=-1), or broadcast it"
        if self._leading and len(got) == len(wanted):
            return "write value[..., 0] instead of value[0], which takes the first environment"
        return "all functions of a task keep the leading axes of the sensors: index as value[..., 0], reduce by axis=-1"

    def _error(self, method: str, field: str, problem: str) -> SpecError:
        part = f", {field!r}" if field else ""
        return SpecError(f"{type(self._task).__name__}.{method}{part}: {problem}")


def _kinds(field: Field) -> tuple[str, str]:
    kind = field.numpy_dtype.kind
    return _KINDS.get(kind, kind), f"{field.dtype} or a kind of it"
