"""Adapt a Functional Mock-up Unit (FMI 2.0, co-simulation) to the standard's contract (R6.5)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from fmpy import extract, instantiate_fmu, read_model_description
from fmpy.model_description import ScalarVariable

from hal import Field, RobotError, SourceError, Spec
from rlenv_bridges.from_gymnasium import field_name
from rlenv_robot.env import Environment
from rlenv_robot.tables import Options, check_options
from rlenv_robot.world import EnvDescription, TimeStep, World

__all__ = ["FmuWorld", "Judge", "Values", "from_fmu"]

Values = Mapping[str, float]
"""Field -> value, of observation and action together."""

Judge = Callable[[Values], float]
"""A function of the values of a step: its reward, or whether the episode ends (0 or 1)."""

_OPTIONS = {
    "seed": "whole number: taken and without effect, as a model draws nothing by itself",
    "start": "field of the observation or parameter of the model -> value before the first step",
}
_REWARD = Field("reward", (), "float64", meaning="as the reward function gives it")


class FmuWorld(World):
    """A world around an FMU, with the FMU's inputs as the action and its outputs as the observation.

    Names, units and ranges come from the model's description; a variable without a range may have any finite value. An
    output beyond its range raises RobotError, as does a status other than OK.

    Args:
        path: the ``.fmu`` file.
        reward: function from observation and action by field to the step's reward.
        step_s: length of a step in model time, seconds.
        steps: number of steps after which an episode is truncated.
        terminated: function of the same values that returns whether the episode ends; None never terminates.

    Raises:
        SourceError: the file is not an FMU of FMI 2.0 for co-simulation, has no real inputs or outputs, or has inputs
            or outputs of another type.
    """

    name: str = ""
    observation: Spec = Spec("fmu_observation")
    action: Spec = Spec("fmu_action")

    def __init__(
        self, path: str | Path, reward: Judge, step_s: float, steps: int, terminated: Judge | None = None
    ) -> None:
        self._folder = ""
        try:
            described = read_model_description(str(path))
        except Exception as error:
            raise SourceError(f"{path} can't be read as an FMU: {error}") from error
        if described.fmiVersion != "2.0" or described.coSimulation is None:
            raise SourceError(f"{path} is of FMI {described.fmiVersion}, expected FMI 2.0 for co-simulation")
        self.name, self._reward, self._terminated = str(described.modelName), reward, terminated
        self._step_s, self._steps, self._step_no, self._started = step_s, steps, 0, False
        variables = described.modelVariables
        inputs, self._input_references = _chosen(variables, "input", path)
        outputs, self._output_references = _chosen(variables, "output", path)
        self.observation, self.action = Spec("fmu_observation", outputs), Spec("fmu_action", inputs)
        self._settable = {field_name(v.name): v.valueReference for v in variables
                          if v.type == "Real" and (v.causality == "parameter" or v.initial == "exact")}  # fmt: skip
        self._settable = dict(zip(self.observation.names, self._output_references, strict=True)) | self._settable
        # Plain floats: NumPy's scalars would cost more than the step of a small model.
        self._ranges = [(field.name, float(field.bounds[0]), float(field.bounds[1])) for field in outputs]
        self._folder = extract(str(path))
        try:
            self._fmu = instantiate_fmu(self._folder, described, "CoSimulation")
        except Exception as error:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SourceError(f"{path} can't be loaded on this machine: {error}") from error

    @property
    def description(self) -> EnvDescription:
        """The model's name and step, and the options of a reset."""
        about = f"The model {self.name} of an FMU. A step takes {self._step_s:g} s, an episode has {self._steps} steps."
        return EnvDescription(about, _REWARD, _OPTIONS)

    def check_reset(self, options: Options) -> None:
        """Check the options of a reset without any effect.

        Raises:
            ValueError: an option, or a name in ``start``, is unknown, or a value is not a number.
        """
        self._start(options)

    def _start(self, options: Options) -> dict[str, float]:
        check_options(options, "reset", '{"seed": 7}', _OPTIONS)
        start = options.get("start") or {}
        if not isinstance(start, Mapping):
            raise ValueError(f"reset option 'start' is {start!r:.80}, expected a mapping from name to value")
        for name, value in start.items():
            if name not in self._settable:
                raise ValueError(f"start {name!r} is unknown, allowed are {', '.join(self._settable)}")
            if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
                raise ValueError(f"start {name!r} is {value!r:.80}, expected a number")
        return {name: float(value) for name, value in start.items()}

    def reset(self, options: Options) -> TimeStep:
        """Reset the model, set the values of ``start``, and initialise it.

        Raises:
            ValueError: as for `check_reset`.
        """
        start = self._start(options)
        if self._started:
            self._fmu.reset()
        self._started, self._step_no = True, 0
        self._fmu.setupExperiment(startTime=0.0)
        if start:
            self._fmu.setReal([self._settable[name] for name in start], list(start.values()))
        self._fmu.enterInitializationMode()
        self._fmu.exitInitializationMode()
        return self._timestep({}, 0.0)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Set the inputs, and advance the model by one step."""
        done = {name: float(action[name]) for name in self.action.names}
        self._fmu.setReal(self._input_references, list(done.values()))
        self._fmu.doStep(self._step_no * self._step_s, self._step_s)
        self._step_no += 1
        return self._timestep(done, None)

    def _timestep(self, done: Values, reward: float | None) -> TimeStep:
        numbers = self._fmu.getReal(self._output_references)
        seen: dict[str, float] = {}
        for (name, low, high), number in zip(self._ranges, numbers, strict=True):
            if not low <= number <= high:  # False for NaN too
                raise RobotError(f"{self.name} gave {name} = {number}, its description allows {low:g} to {high:g}")
            seen[name] = number
        observation = {name: np.array(value) for name, value in seen.items()}
        earned = float(self._reward({**seen, **done})) if reward is None else reward
        over = reward is None and self._terminated is not None and bool(self._terminated(seen))
        return TimeStep(observation, earned, over, not over and self._step_no >= self._steps, {})

    def close(self) -> None:
        """Free the model, and delete the folder into which it was extracted. Safe to call more than once."""
        if not self._folder:
            return
        folder, self._folder = self._folder, ""
        try:
            if self._started:
                self._fmu.terminate()
            self._fmu.freeInstance()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _chosen(
    variables: Sequence[ScalarVariable], causality: str, path: str | Path
) -> tuple[tuple[Field, ...], list[int]]:
    """Return the model's variables of a causality, as fields, and their references."""
    chosen = [variable for variable in variables if variable.causality == causality]
    wrong = next((variable for variable in chosen if variable.type != "Real" or variable.dimensions), None)
    if wrong is not None or not chosen:
        found = f"{causality} {wrong.name!r} of type {wrong.type}" if wrong is not None else f"no {causality}"
        raise SourceError(f"{path} has {found}; expected {causality}s that are single real numbers")
    return tuple(_field(variable) for variable in chosen), [variable.valueReference for variable in chosen]


def _field(variable: ScalarVariable) -> Field:
    declared = variable.declaredType

    def first(name: str) -> str | None:
        value = getattr(variable, name) or getattr(declared, name, None)
        return None if value is None else str(value)

    low, high = float(first("min") or -np.inf), float(first("max") or np.inf)
    meaning = variable.description or f"{variable.name} of the model"
    return Field(field_name(variable.name), (), "float64", low, high, first("unit") or "1", meaning)


def from_fmu(
    path: str | Path,
    reward: Judge,
    *,
    step_s: float,
    steps: int,
    terminated: Judge | None = None,
    env_id: str | None = None,
) -> Environment:
    """Adapt an FMU to the standard's contract; see `FmuWorld`. ``env_id`` is the environment's id.

    Raises:
        SourceError: as for `FmuWorld`.
    """
    return Environment(FmuWorld(path, reward, step_s, steps, terminated), env_id)
