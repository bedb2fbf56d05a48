"""Train a policy from recorded data by IQL, AWAC, CQL, TD3+BC or cloning, and write it with its learning curve."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hal.field import JsonObject
from rlenv_learn.offline.methods import METHODS, OfflineSettings, layers_of, offline_settings, updates_of
from rlenv_learn.offline.transitions import OfflineTransitions, offline_transitions, rewarded_runs, vectors_for
from rlenv_learn.policies.flat import ScaledDifferences
from rlenv_learn.policies.network import Layer, NetworkPolicy
from rlenv_learn.policies.saving import save_network
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.policies.lineage import LINEAGE, Lineage
from rlenv_robot.registry import TaskLike, make_vector
from rlenv_robot.source import SourceData
from rlenv_robot.training.rollout import Point, evaluate
from rlenv_robot.training.trackers import open_tracker

__all__ = ["OfflineTraining", "awac", "bc", "cql", "iql", "td3bc", "train_offline"]

_UPDATES, _TRIALS = 20_000, 10
_TRIAL_EPISODES, _TRIAL_SEED = 100, 1_000_000
_LOGGED = 200
"""Updates between two entries of a tracker."""


@dataclass(frozen=True)
class OfflineTraining:
    """The result of an offline training.

    Attributes:
        policy: the last policy, with averaged weights. The trials do not choose it, since a log alone can't.
        steps: number of updates.
        seconds: wall time without trials, seconds.
        points: the learning curve over updates; empty without a task.
        transitions: number of transitions that it learned from.
        episodes: number of their episodes.
    """

    policy: NetworkPolicy
    steps: int
    seconds: float
    points: list[Point]
    transitions: int
    episodes: int


def train_offline(
    method: str,
    source: SourceData,
    out: Path | None,
    *,
    task: TaskLike | None = None,
    updates: int | None = None,
    seconds: float = np.inf,
    seed: int = 0,
    settings: JsonObject | None = None,
    options: Mapping[str, Any] | None = None,
    track: str | None = None,
    trials: int = _TRIALS,
    progress: Callable[[int, int, Point | None], None] = lambda done, total, point: None,
) -> OfflineTraining:
    """Train a policy from recorded data, and write it with its learning curve (``.csv``).

    The same seed gives the same policy on the same machine, without a limit in ``seconds``.

    Args:
        method: one of `rlenv_learn.offline.methods.METHODS`.
        source: recorded data with rewards (`rlenv_robot.open_source`).
        out: the file, ending in ``.npz`` or ``.onnx``; None writes nothing.
        task: the task whose observations and actions the data have. Its simulation is used for trials only. None
            learns from any data, without trials.
        updates: number of updates; None for 20,000.
        seconds: wall time after which no further update begins.
        seed: seed of networks and batches.
        settings: the task's own settings, and others of `rlenv_robot.make_vector`.
        options: changed settings of the method (`rlenv_learn.offline.methods.offline_settings`).
        track: tracker that also gets losses and trials (`rlenv_robot.training.trackers.open_tracker`).
        trials: number of evaluations in 100 episodes during the training.
        progress: called after every update with the updates so far, all updates, and the newest evaluation.

    Raises:
        ValueError: an option is unknown or has another type, or the task is unknown.
        SourceError: the data have no step, no rewards, or actions that do not vary continuously.
        RobotError: a package is missing.
    """
    chosen, total = offline_settings(method, options or {}), _UPDATES if updates is None else updates
    layout, runs = source.table.layout, rewarded_runs(source.table, chosen.best)
    with ExitStack() as opened:
        tested = None
        if task is not None:
            made = make_vector(task, _TRIAL_EPISODES, seed=_TRIAL_SEED, autoreset="disabled", **(settings or {}))
            tested = opened.enter_context(made)
        flat = vectors_for(layout, runs, None if tested is None else tested.task)
        data, shift = _scaled(offline_transitions(runs, layout, flat, chosen.n_step, chosen.gamma), chosen)
        name = "unknown" if tested is None else tested.task.name
        about = {"trained": METHODS[method][1], "seed": seed, "settings": _json(chosen)}
        tracker = opened.enter_context(closing(open_tracker(track, name, about)))
        robot = None if tested is None else tested.batch.spec
        points, begun, paused = list[Point](), time.perf_counter(), 0.0
        for update, losses, network in updates_of(method, data, chosen, total, seed):
            elapsed = time.perf_counter() - begun - paused
            last = update == total or elapsed >= seconds
            if update % _LOGGED == 0 or last:
                tracker.add(update, {f"learning/{key}": value for key, value in losses.items()})
            if last or (tested is not None and update % max(1, total // max(1, trials)) == 0):
                policy = _policy(layers_of(network, len(chosen.hidden)), shift, flat, name, robot)
            if tested is not None and trials and (last or update % max(1, total // trials) == 0):
                paused -= time.perf_counter()
                points.append(_trial(tested, policy, update, elapsed))
                tracker.add(update, points[-1].metrics)
                paused += time.perf_counter()
            progress(update, total, points[-1] if points else None)
            if last:
                break
    if out is not None:
        lineage = Lineage.of(source, sorted({run.episode for run in runs})).to_dict()
        save_network(policy, out, {**about, "updates": update, "transitions": len(data), LINEAGE: lineage})
        if points:
            _write_curve(out.with_suffix(".csv"), points)
    return OfflineTraining(policy, update, elapsed, points, len(data), len(runs))


def _json(settings: OfflineSettings) -> JsonObject:
    return {**asdict(settings), "hidden": list(settings.hidden)}


def _trial(envs: Any, policy: NetworkPolicy, update: int, seconds: float) -> Point:
    outcomes = evaluate(envs, policy, _TRIAL_SEED)
    success, returns = (float(np.mean([getattr(one, key) for one in outcomes])) for key in ("success", "total"))
    return Point(update, seconds, success, returns)


def _write_curve(path: Path, points: list[Point]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["updates", "seconds", "success", "mean_return"])
        lines.writerows([one.steps, f"{one.seconds:.3f}", one.success, one.returns] for one in points)


def _scaled(
    data: OfflineTransitions, settings: OfflineSettings
) -> tuple[OfflineTransitions, tuple[np.ndarray, np.ndarray]]:
    """Return transitions with scaled rewards and observations, and the latter's mean and standard deviation."""
    factor = settings.reward_scale
    if factor is None:
        spread = float(data.rewards.std())
        factor = 1 / spread if spread > 0 else 1.0
    width = data.observations.shape[1]
    middle, spreads = np.zeros(width, np.float32), np.ones(width, np.float32)
    if settings.normalise:
        middle = data.observations.mean(axis=0)
        spreads = np.maximum(data.observations.std(axis=0), 1e-3)  # of about unit size; a constant stays small
    before, after = ((one - middle) / spreads for one in (data.observations, data.next_observations))
    return replace(data, rewards=data.rewards * np.float32(factor), observations=before, next_observations=after), (
        middle,
        spreads,
    )


def _policy(
    layers: list[Layer], shift: tuple[np.ndarray, np.ndarray], flat: FlattenObservation, task: str, robot: Any
) -> NetworkPolicy:
    """Return the policy, whose first layer takes observations that are not normalised."""
    (weights, bias), (middle, spreads) = layers[0], shift
    weights = weights / spreads[:, None]
    first = (weights, bias - middle @ weights)
    magnified = ScaledDifferences.MAGNIFIED if flat.difference_size else 0.0
    return NetworkPolicy([first, *layers[1:]], flat, task, robot, magnified, "relu", squashed=True)


awac, bc, cql, iql, td3bc = (partial(train_offline, method) for method in sorted(METHODS))
