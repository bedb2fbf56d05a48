"""How well a model of the dynamics predicts recorded episodes, and what a policy earns inside it (R6.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mujoco
import numpy as np

from hal import BatchState, SourceError, Spec
from hal.guard import CommandLimiter
from recorder.table.transitions import Transitions, columns
from rlenv_robot.tasks.task import Task
from sim.batch import SimBatch
from sim.model import Columns, SimModel, as_slice

__all__ = ["Model", "SimulatedDynamics", "model_error", "model_return"]

Named = Mapping[str, np.ndarray]
Model = Callable[[Named, Named], Mapping[str, Any]]
"""The next observation from observation and action; all fields with a leading axis (B,)."""


def model_error(transitions: Transitions, part: np.ndarray, model: Model, horizon: int) -> dict[str, Any]:
    """Root mean square of the prediction error of each field, open loop over ``horizon`` steps.

    The model starts at a recorded observation and is given the recorded actions; after the first step it
    works on its own predictions. Give it held-out episodes (``episodes``), or the figure says only how well it
    remembers.

    Args:
        transitions: all of them.
        part: (M,) positions from which it starts; those nearer to an end than the horizon are left out.
        model: see `Model`.
        horizon: number of steps, from 1.

    Returns:
        ``rms``: field -> list over the steps 1 to horizon; ``unchanged``: the same for the prediction that
        nothing changes, which a useful model must beat; ``starts``: from how many positions.

    Raises:
        SourceError: no run of transitions is that long, or the model does not return every field in its shape.
    """
    starts = part[part + horizon <= transitions.facts["stop"][part]]
    if not len(starts):
        raise SourceError(f"model_error: no {horizon} transitions follow one another there; take a smaller horizon")
    spec = transitions.table.layout.observation
    first = columns(transitions.rows(starts), spec, "observation")
    errors: dict[str, list[float]] = {name: [] for name in spec.names}
    unchanged: dict[str, list[float]] = {name: [] for name in spec.names}
    state: Named = first
    for k in range(horizon):
        following = transitions.next_rows(starts + k)
        state = _checked(model(state, columns(following, transitions.table.layout.action, "action")), state, "model")
        for name, truth in columns(following, spec, "observation").items():
            errors[name].append(_rms(state[name], truth))
            unchanged[name].append(_rms(first[name], truth))
    units = {field.name: field.unit for field in spec}
    return {
        "kind": "model_error", "horizon": horizon, "starts": len(starts),
        "rms": errors, "unchanged": unchanged, "units": units,
    }  # fmt: skip


def model_return(
    transitions: Transitions,
    part: np.ndarray,
    model: Model,
    agent: Callable[[Named], Mapping[str, Any]],
    reward: Callable[[Named, Named, Named], Any],
    horizon: int,
    discount: float,
) -> dict[str, Any]:
    """What a policy earns in the world that the model believes in, from the first observations of the episodes.

    Args:
        transitions, part: the episodes of these positions are the starts.
        model: see `Model`.
        agent: the policy: action from observation.
        reward: (B,) from observation, action and next observation.
        horizon: number of steps, from 1.
        discount: of one step.

    Returns:
        ``returns``, one a start, with ``mean`` and ``std``; ``horizon``, ``discount``.

    Raises:
        SourceError: a function does not return what it must.
    """
    layout = transitions.table.layout
    starts = transitions.first[np.unique(transitions.facts["episode"][part])]
    state: Named = columns(transitions.rows(starts), layout.observation, "observation")
    total = np.zeros(len(starts))
    for k in range(horizon):
        action = _checked(agent(state), _like(layout.action, len(starts)), "agent")
        following = _checked(model(state, action), state, "model")
        earned = np.asarray(reward(state, action, following), float)
        if earned.shape != total.shape:
            raise SourceError(f"reward returned shape {earned.shape}, wanted {total.shape}, one a start")
        total += discount**k * earned
        state = following
    return {
        "kind": "model_return", "horizon": horizon, "discount": discount,
        "returns": total.tolist(), "mean": float(total.mean()), "std": float(total.std()),
    }  # fmt: skip


def _like(spec: Spec, count: int) -> dict[str, np.ndarray]:
    return spec.view(spec.rows(count))


def _checked(answer: Mapping[str, Any], like: Named, function: str) -> dict[str, np.ndarray]:
    values = {}
    for name, wanted in like.items():
        if name not in answer or np.shape(answer[name]) != wanted.shape:
            got = f"shape {np.shape(answer[name])}" if name in answer else "nothing"
            raise SourceError(f"{function} returned {got} for {name!r}, wanted shape {wanted.shape}")
        values[name] = np.asarray(answer[name])
    return values


def _rms(guess: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(guess.astype(float) - truth))))


# -- The simulator as a model of the dynamics: how far it is from recorded reality, one step or some at a time (R3.6) --


_STATE = ("qpos", "qvel", "ctrl")


class SimulatedDynamics:
    """What the next observation would be in simulation; a `rlenv_robot.data.dynamics.Model`.

    The simulation is put where the observation says, the action is limited as the robot's guard would, and one control
    period is simulated for all observations at once. Fields of the observation that no sensor of the robot gives, as a
    goal, stay as they are.

    Args:
        sim_model: which simulation.
        task: turns actions into commands; None where they are the robot's commands.
        threads: native threads; 0 for one a processor.

    Raises:
        SourceError: called with an observation that does not tell all joint positions and velocities.
    """

    def __init__(self, sim_model: SimModel, task: Task | None = None, threads: int = 0) -> None:
        self._sim_model, self._task, self._threads = sim_model, task, threads
        self._batch: SimBatch | None = None

    def __call__(self, observation: Mapping[str, np.ndarray], action: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The next observation, with the leading axis (B,) of observation and action."""
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

    def _place(self, batch: SimBatch, observation: Mapping[str, np.ndarray]) -> None:
        """Write what is observed of the state back to where sensors read it from."""
        live = {name: batch.open_batch.bind(name) for name in _STATE}
        told = {name: np.zeros(array.shape[1], bool) for name, array in live.items()}
        for name, values in observation.items():
            reader = self._sim_model.sensors.get(name)
            if isinstance(reader, Columns) and reader.field in _STATE:
                columns = as_slice(reader.columns)
                index = columns if isinstance(columns, slice) else np.asarray(columns)
                live[reader.field][:, index] = np.asarray(values).reshape(len(values), -1)
                told[reader.field][index] = True
        for field in ("qpos", "qvel"):
            if not told[field].all():
                raise SourceError(
                    f"the observation tells {told[field].sum()} of the {len(told[field])} numbers of {field} of "
                    f"{self._sim_model.spec.name!r}, so the simulator can't be put there; record the missing sensors"
                )
        batch.open_batch.forward(None, mujoco.mjtStage.mjSTAGE_VEL.value)
