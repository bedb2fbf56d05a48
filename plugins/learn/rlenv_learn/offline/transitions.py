"""Turn recorded data into arrays of transitions for offline learning."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from hal import Field, SourceError, Spec
from recorder.formats.runs import Run, runs_of, single_reward
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_learn.policies.flat import ScaledDifferences
from rlenv_robot.adapters.flat import FlattenObservation, flat_for
from rlenv_robot.tasks.task import Task

__all__ = ["OfflineTransitions", "magnified_vectors", "offline_transitions", "rewarded_runs", "vectors_for"]


@dataclass(frozen=True)
class OfflineTransitions:
    """N transitions of n steps, each with its true next observation.

    Attributes:
        observations: observation vectors, float32 (N, D).
        actions: action vectors, float32 (N, A), from -1 to 1.
        rewards: discounted sums of the steps' rewards, float32 (N, 1).
        next_observations: the vectors after the last of the n steps, float32 (N, D).
        terminals: float32 (N, 1). 1 where the task ended there. Where anything else ended the episode it is 0, so that
            the value of the next observation counts.
        intervals: number of steps of each transition, float32 (N, 1): n, or fewer before an end.
    """

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminals: np.ndarray
    intervals: np.ndarray

    def __len__(self) -> int:
        return len(self.rewards)


def rewarded_runs(table: Table, best: float = 1.0) -> list[Run]:
    """Return the unbroken episodes of a table, or those with the highest returns.

    Args:
        table: recorded data.
        best: share of the episodes to return, at least one episode.

    Raises:
        SourceError: there is no step, agents have separate rewards, or a reward is missing.
        ValueError: ``best`` is not above 0 and at most 1.
    """
    if not 0 < best <= 1:
        raise ValueError(f"best is {best}, it must be above 0 and at most 1")
    single_reward(table, "offline learning")
    runs, _ = runs_of(table)
    if not runs:
        raise SourceError(f"{table.origin} has no step to learn from")
    unknown = sum(int((~np.isfinite(run.came["reward"])).sum()) for run in runs)
    if unknown:
        raise SourceError(
            f"{unknown} steps of {table.origin} have no finite reward: name a task of its robot, which computes "
            "rewards from its sensors, or imitate the data, which needs none (docs/trainers.md)"
        )
    runs.sort(key=lambda run: -float(run.came["reward"].sum()))
    return runs[: max(1, round(best * len(runs)))]


def vectors_for(layout: FrameLayout, runs: list[Run], task: Task | None = None) -> FlattenObservation:
    """Return the conversion to vectors: the task's, with what it leaves open taken from the data.

    An observation field without a scale and a finite range is divided by its root mean square. Without a task, an
    action that has no finite range gets the range of the recorded actions.

    Args:
        layout: the fields of the data.
        runs: the episodes.
        task: the task; None for that of the data, which need not be known.

    Raises:
        SourceError: an action is not a number that varies continuously.
    """
    if task is None:
        chosen = FlattenObservation(_numbers(layout.observation), _bounded(layout.action, runs))
    else:
        chosen = flat_for(task)
    scales = {
        name: max(1e-6, float(np.sqrt(np.mean([_mean_square(run.observed[f"observation_{name}"]) for run in runs]))))
        for name in chosen.unscaled
    }
    return replace(chosen, scales={**chosen.scales, **scales}, around=dict(chosen.held))


def _mean_square(values: np.ndarray) -> float:
    return float(np.mean(np.square(values, dtype=np.float64)))


def _numbers(observation: Spec) -> Spec:
    texts = [part.name for part in observation if part.is_text]
    if texts:
        raise SourceError(f"the observation has a text, {texts[0]!r}; offline learning takes numbers alone")
    return observation


def _bounded(action: Spec, runs: list[Run]) -> Spec:
    fields = (_bounded_field(part, [run.came[f"action_{part.name}"] for run in runs]) for part in action)
    return Spec(action.name, tuple(fields))


def _bounded_field(part: Field, recorded: list[np.ndarray]) -> Field:
    if part.is_text or part.numpy_dtype.kind != "f":
        raise SourceError(
            f"action {part.name!r} is {part.dtype}; offline learning takes continuous actions (float32, float64) alone"
        )
    if np.isfinite([*np.ravel(part.low), *np.ravel(part.high)]).all():
        return part
    extremes = [(values.min(axis=0), values.max(axis=0)) for values in recorded]
    low, high = np.min([one[0] for one in extremes], axis=0), np.max([one[1] for one in extremes], axis=0)
    return replace(part, low=tuple(np.ravel(low).tolist()), high=tuple(np.ravel(high).tolist()))


def magnified_vectors(flat: FlattenObservation, vectors: np.ndarray) -> np.ndarray:
    """Return observation vectors with their magnified differences, as `ScaledDifferences` does, (..., D + gaps)."""
    gaps = flat.difference_size
    if not gaps:
        return vectors
    closer = np.tanh(np.float32(ScaledDifferences.MAGNIFIED) * vectors[..., -gaps:])
    return np.concatenate([vectors, closer], axis=-1)


def offline_transitions(
    runs: list[Run], layout: FrameLayout, flat: FlattenObservation, n_step: int = 1, gamma: float = 0.99
) -> OfflineTransitions:
    """Return all transitions of episodes, in vectors.

    Args:
        runs: the episodes.
        layout: their fields.
        flat: the conversion to vectors.
        n_step: number of steps of a transition, from 1.
        gamma: discount factor per step, within the n steps.

    Raises:
        ValueError: ``n_step`` is below 1.
    """
    if n_step < 1:
        raise ValueError(f"n_step is {n_step}, it must be at least 1")
    parts = [_of_run(run, layout, flat, n_step, gamma) for run in runs]
    return OfflineTransitions(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _of_run(
    run: Run, layout: FrameLayout, flat: FlattenObservation, n_step: int, gamma: float
) -> tuple[np.ndarray, ...]:
    count, observed = len(run), run.group("observation", layout.observation)
    vectors = magnified_vectors(flat, flat.observe(observed))
    actions = flat.vector_of(run.group("action", layout.action), {name: value[:-1] for name, value in observed.items()})
    steps = np.minimum(n_step, count - np.arange(count))
    padded = np.append(run.came["reward"].astype(np.float64), np.zeros(n_step - 1))
    rewards = np.sum([gamma**ahead * padded[ahead : ahead + count] for ahead in range(n_step)], axis=0)
    terminals = run.terminated & (np.arange(count) + steps == count)
    after = vectors[np.arange(count) + steps]
    return vectors[:-1], actions, _column(rewards), after, _column(terminals), _column(steps)


def _column(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32)[:, None]
