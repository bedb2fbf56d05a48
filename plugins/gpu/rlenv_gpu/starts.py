"""Draw episodes and compute their first states on the host, as packed rows for a device."""

from __future__ import annotations

from collections.abc import Mapping

import mujoco
import numpy as np

from hal import Spec
from rlenv_gpu.packed import PackedRows
from rlenv_robot.tasks.episode_rules import EpisodeRules
from rlenv_robot.vector.episodes import draw_episodes
from sim.batch import SimBatch
from sim.model import SimModel
from sim.randomize.randomise import Randomise

__all__ = ["STARTED", "EpisodeMaker", "StartWriter", "goal_rows"]

STARTED = ("qpos", "qvel", "act", "ctrl")
"""The fields of the state that differ between starts; the others of `rlenv_gpu.STATE` are 0 at a start."""

_DERIVED = ("body_invweight0", "body_subtreemass", "dof_invweight0", "actuator_acc0", "tendon_invweight0")
"""Fields of the model that MuJoCo computes from others (``mj_setConst``) and that a step reads."""

_STAGED = 64
"""Number of robots whose starts are computed at once."""


class StartWriter:
    """Compute the first states of robots with `SimBatch`, so that they equal those of the CPU.

    Args:
        sim_model: the simulated robot.
        num: the largest number of starts that are asked for at once.
        randomise: the parts of the model that are drawn for each episode; None for no parts.
        threads: as for `SimBatch`.

    Attributes:
        models: the fields of the model in which robots differ, ``load.`` and its name for a term of friction.
        layout: the fields of a row: ``model.`` and a name, the names of `STARTED`, ``sensor.`` and ``applied.`` and a
            name, in this order.

    Raises:
        SpecError: the randomisation does not fit the model.
    """

    def __init__(self, sim_model: SimModel, num: int, randomise: Randomise | None = None, threads: int = 0) -> None:
        self._sim_model, self._randomise = sim_model, randomise
        self.host = SimBatch(sim_model, min(num, _STAGED), threads, randomise=randomise)
        model, spec = sim_model.model, sim_model.spec
        names = [*self.host.models, *(name for name in _DERIVED if name not in self.host.models)]
        self.models = [name for name in names if _size(model, name)] if self.host.models else []
        single = np.dtype(np.float32)
        sizes = {"qpos": model.nq, "qvel": model.nv, "act": model.na, "ctrl": model.nu}
        self.layout = PackedRows(
            {f"model.{name}": (single, (_size(model, name),)) for name in self.models}
            | {name: (single, (sizes[name],)) for name in STARTED}
            | {f"sensor.{field.name}": (field.numpy_dtype, field.shape) for field in spec.sensors}
            | {f"applied.{field.name}": (field.numpy_dtype, field.shape) for field in spec.commands}
        )

    def again(self) -> StartWriter:
        """Return another writer of the same starts, for another process, with one thread."""
        return StartWriter(self._sim_model, _STAGED, self._randomise, threads=1)

    def rows(self, seeds: np.ndarray, starts: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the packed first states of robots, int64 (n, width).

        Args:
            seeds: the seed of each start, (n,).
            starts: as for `sim.batch.SimBatch.reset`, (n, ...).
        """
        parts = [
            self._some(seeds[first : first + self.host.num], {
                name: value[first : first + self.host.num] for name, value in starts.items()
            })
            for first in range(0, len(seeds), self.host.num)
        ]  # fmt: skip
        return np.concatenate(parts) if parts else np.zeros((0, self.layout.width), np.int64)

    def _some(self, seeds: np.ndarray, starts: Mapping[str, np.ndarray]) -> np.ndarray:
        slots = np.arange(len(seeds))
        state = self.host.reset(slots, seeds, starts)
        batch = self.host.open_batch
        values: dict[str, np.ndarray] = {name: batch.bind(name)[slots] for name in STARTED}
        values |= {f"model.{name}": self._model_rows(name, slots) for name in self.models}
        values |= {f"sensor.{name}": value for name, value in state.sensors.items()}
        values |= {f"applied.{name}": value for name, value in state.applied.items()}
        return self.layout.pack(values, len(slots))

    def _model_rows(self, name: str, slots: np.ndarray) -> np.ndarray:
        live = self.host.models[name] if name in self.host.models else self.host.open_batch.expand(name)
        rows: np.ndarray = np.asarray(live).reshape(self.host.num, -1)[slots]
        return rows

    def close(self) -> None:
        """Free the simulations. Safe to call more than once."""
        self.host.close()


def _size(model: mujoco.MjModel, field: str) -> int:
    owner, _, name = field.rpartition(".")
    if owner == "load":
        return int(model.nv)
    return int(np.size(getattr(model.opt if owner == "opt" else model, name)))


def goal_rows(goal: Spec) -> PackedRows:
    """Return the layout of an episode's goal."""
    return PackedRows({field.name: (field.numpy_dtype, field.shape) for field in goal})


class EpisodeMaker:
    """Draw the episodes of environments, with the start of the robot and the goal in one packed row.

    Args:
        rules: the rules of the task.
        streams: the random stream of each environment, (N,).
        writer: computes the starts.
    """

    def __init__(self, rules: EpisodeRules, streams: np.ndarray, writer: StartWriter) -> None:
        self._rules, self._streams, self._writer = rules, streams, writer
        self._goal = goal_rows(rules.task.goal)
        self.width = writer.layout.width + self._goal.width

    def again(self) -> EpisodeMaker:
        """Return another maker of the same episodes, for another process."""
        return EpisodeMaker(self._rules, self._streams, self._writer.again())

    def rows(self, seed: int, envs: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return packed episodes, int64 (n, width).

        Args:
            seed: the seed of all random draws.
            envs: the environments, (n,).
            numbers: the number of each one's episode, from 0, (n,).
        """
        seeds, starts, goals = draw_episodes(self._rules, seed, self._streams[envs], numbers)
        return np.concatenate([self._writer.rows(seeds, starts), self._goal.pack(goals, len(envs))], axis=1)
