"""Use the simulator as a dynamics model, to measure how far it is from recorded reality (R3.6)."""

from __future__ import annotations

import mujoco
import numpy as np

from hal import BatchState, SourceError
from hal.guarding.command_limiter import CommandLimiter
from rlenv_robot.tasks.task import Arrays, Task
from sim.batch import SimBatch
from sim.model import Columns, SimModel, as_slice

__all__ = ["SimulatedDynamics"]

_STATE = ("qpos", "qvel", "ctrl")


class SimulatedDynamics:
    """Predict the next observation by simulation; a `rlenv_curate.dynamics.Model`.

    The simulation is set to the observed state, the action is limited as by the robot's guard, and one control period
    is simulated for all observations at once. Observation fields that are not sensors of the robot, such as a goal,
    keep their values.

    Args:
        sim_model: the simulated robot.
        task: converts actions to commands; None if the actions are the robot's commands.
        threads: number of native threads; 0 for one per processor.

    Raises:
        SourceError: the observation of a call lacks joint positions or velocities.
    """

    def __init__(self, sim_model: SimModel, task: Task | None = None, threads: int = 0) -> None:
        self._sim_model, self._task, self._threads = sim_model, task, threads
        self._batch: SimBatch | None = None

    def __call__(self, observation: Arrays, action: Arrays) -> dict[str, np.ndarray]:
        """Return the next observation, with the leading axis (B,) of observation and action."""
        count = len(next(iter(observation.values())))
        if self._batch is None or self._batch.num != count:
            self._batch = SimBatch(self._sim_model, count, self._threads)
        batch = self._batch
        batch.reset()
        self._place(batch, observation)
        asked = action if self._task is None else self._task.command(action, observation)
        last = BatchState(observation, batch.held(), np.zeros(batch.num, np.int64))
        commands = {name: np.asarray(value) for name, value in asked.items()}
        sensors = batch.step(CommandLimiter(self._sim_model.spec).apply(commands, last)).sensors
        return {**observation, **{name: sensors[name] for name in observation if name in sensors}}

    def _place(self, batch: SimBatch, observation: Arrays) -> None:
        """Write the observed part of the state to where the sensors read it from."""
        live = {name: batch.open_batch.bind(name) for name in _STATE}
        observed = {name: np.zeros(array.shape[1], bool) for name, array in live.items()}
        for name, values in observation.items():
            reader = self._sim_model.sensors.get(name)
            if isinstance(reader, Columns) and reader.field in _STATE:
                columns = as_slice(reader.columns)
                index = columns if isinstance(columns, slice) else np.asarray(columns)
                live[reader.field][:, index] = np.asarray(values).reshape(len(values), -1)
                observed[reader.field][index] = True
        for field in ("qpos", "qvel"):
            part = observed[field]
            if not part.all():
                raise SourceError(
                    f"the observation holds {part.sum()} of the {len(part)} numbers of {field} of "
                    f"{self._sim_model.spec.name!r}, so the simulator can't be put there; record the missing sensors"
                )
        batch.open_batch.forward(None, mujoco.mjtStage.mjSTAGE_VEL.value)
