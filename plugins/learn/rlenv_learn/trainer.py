"""Train a task's policy by PPO into a file, with its learning curve and its checkpoints beside it; needs PyTorch."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.field import JsonObject
from rlenv_learn.imitation.cloning import demonstrated
from rlenv_learn.ppo import improve_by_ppo, ppo_settings
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.network import NetworkPolicy
from rlenv_robot.registry import TaskLike, make_vector
from rlenv_robot.source import SourceData
from rlenv_robot.training.rollout import Point, evaluate
from rlenv_robot.training.trackers import Tracker, open_tracker
from rlenv_robot.training.trials import CONDITIONS, conditions
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["NetworkTraining", "save_network", "train_network"]

_TRIAL_EPISODES, _TRIAL_SEED = 100, 1_000_000


@dataclass(frozen=True)
class NetworkTraining:
    """A policy and how it came about.

    Attributes:
        policy: the best of those that were tried, by success and then by return.
        steps: control steps of the whole training.
        seconds: wall time, without trials.
        points: the learning curve: trials on episodes that training does not use, drawn as in training.
        varied: whether the episodes were drawn from a range of robots, rather than from the nominal one.
    """

    policy: NetworkPolicy
    steps: int
    seconds: float
    points: list[Point]
    varied: bool


def train_network(
    name: TaskLike,
    out: Path,
    *,
    steps: int | None = None,
    seconds: float = np.inf,
    seed: int = 0,
    nominal: bool = False,
    settings: JsonObject | None = None,
    track: str | None = None,
    demonstrations: SourceData | None = None,
    trials: int = 12,
    progress: Callable[[int, int, Point | None], None] = lambda done, total, point: None,
) -> NetworkTraining:
    """Train a policy in simulation, from nothing or from demonstrations, and write it with its curve and checkpoints.

    Beside ``policy.npz`` are ``policy.csv``, the learning curve, and ``policy.checkpoints/``, the policies that were
    tried, named by their steps. Without ``seconds`` the same seed gives the same policy on the same machine.

    Args:
        name: what `rlenv_robot.make_vector` takes.
        out: the file, ending in ``.npz`` or ``.onnx``.
        steps: control steps of all environments together; None takes the task's (`ppo_settings`).
        seconds: wall time after which no update begins, in addition.
        seed: of the network, the exploration and the episodes.
        nominal: whether to train on the nominal robot alone. Otherwise, and without a profile in the settings, each
            episode draws a robot from the range of its model (`RobotModel.variation`), if that has one; only the first
            updates are made on the nominal robot, which is learned faster (`PpoSettings.nominal_share`).
        settings: the task's own settings, and others of `rlenv_robot.make_vector`.
        track: where the figures of updates and trials go besides (`open_tracker`).
        demonstrations: recorded episodes of the task, of any robot of the kind (`rlenv_robot.open_source`). Those that
            succeeded are cloned, and PPO goes on from the clone; the first trial is that of the clone, after 0 steps.
        trials: number of the trials of the policy during the training; the best of them is the result.
        progress: called after every update with steps so far, all steps, and the newest trial.

    Raises:
        ValueError: the task is unknown, has no simulated robot, or has actions without a finite range, or ``track``
            names no place.
        RobotError: a package that ``track`` needs is missing.
        SourceError: no recorded episode succeeded.
    """
    made, varied = conditions(name, nominal, settings or {})
    folder = out.with_suffix(".checkpoints")
    with ExitStack() as opened:
        tested = opened.enter_context(
            make_vector(name, _TRIAL_EPISODES, seed=_TRIAL_SEED, autoreset="disabled", **made)
        )
        chosen = ppo_settings(tested.task)
        total = chosen.steps if steps is None else steps
        shown = None if demonstrations is None else demonstrated(demonstrations, flat_for(tested.task))
        if chosen.episode and "steps" not in made:
            made = {**made, "steps": chosen.episode}
        envs = opened.enter_context(make_vector(name, chosen.num_envs, seed=seed, **made))
        first = None
        if varied:
            own = {key: value for key, value in made.items() if key not in CONDITIONS}
            first = opened.enter_context(make_vector(name, chosen.num_envs, seed=seed, **own))
        about = {"task": tested.task.name, "seed": seed, **asdict(chosen), "steps": total}
        tracker = opened.enter_context(closing(open_tracker(track, tested.task.name, about)))
        course = _Course(tested, folder, out.with_suffix(".csv"), seed, tracker)
        updates = max(1, total // (chosen.num_envs * chosen.horizon))
        begun = time.perf_counter()
        learning = improve_by_ppo(envs, chosen, total, seed, first, shown)
        for update, (done, policy, figures) in enumerate(learning, 1 if shown is None else 0):
            elapsed = time.perf_counter() - begun
            tracker.add(done, figures)
            last = update == updates or elapsed >= seconds
            if last or update % max(1, updates // trials) == 0:
                begun += course.try_out(done, elapsed, policy)
            progress(done, total, course.points[-1] if course.points else None)
            if last:
                break
    assert course.best is not None
    how = "PPO" if shown is None else "PPO from demonstrations"
    save_network(course.best, out, {"trained": how, "steps": done, "seed": seed})
    return NetworkTraining(course.best, done, elapsed, course.points, varied)


class _Course:
    """The trials of a training: curve, checkpoints, and the best policy."""

    def __init__(self, trials: VectorEnvironment, folder: Path, curve: Path, seed: int, tracker: Tracker) -> None:
        self._trials, self._folder, self._curve, self._seed, self._tracker = trials, folder, curve, seed, tracker
        self.points: list[Point] = []
        self.best: NetworkPolicy | None = None
        folder.mkdir(exist_ok=True)

    def try_out(self, steps: int, seconds: float, policy: NetworkPolicy) -> float:
        """Try a policy, keep it, and return how long that took, seconds."""
        begun = time.perf_counter()
        outcomes = evaluate(self._trials, policy, _TRIAL_SEED)
        success, returns = (float(np.mean([getattr(one, key) for one in outcomes])) for key in ("success", "total"))
        point = Point(steps, seconds, success, returns)
        if all((success, returns) > (earlier.success, earlier.returns) for earlier in self.points):
            self.best = policy
        self.points.append(point)
        self._tracker.add(steps, point.figures)
        policy.save(self._folder / f"{steps:010d}.npz", {"trained": "PPO", "steps": steps, "seed": self._seed})
        with self._curve.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["steps", "seconds", "success", "mean_return"])
            lines.writerows([one.steps, f"{one.seconds:.3f}", one.success, one.returns] for one in self.points)
        return time.perf_counter() - begun


def save_network(policy: NetworkPolicy, out: Path, about: JsonObject) -> None:
    """Write a policy as ``.npz``, or as ``.onnx`` with the scaling in its graph.

    Raises:
        RobotError: the packages that ONNX needs are missing, or the policy's vectors have no graph.
    """
    if out.suffix == ".npz":
        policy.save(out, about)
        return
    import torch
    from torch import nn

    from rlenv_robot.adapters.flat import FlattenObservation
    from rlenv_robot.policies.flat import FlatPolicy, ScaledDifferences

    if not isinstance(policy.vectors, FlattenObservation):
        raise RobotError(f"{out}: a policy of {type(policy.vectors).__name__} has no ONNX graph; write .npz")
    parts: list[nn.Module] = [ScaledDifferences(policy.vectors)] if policy.magnified else []
    for weights, bias in policy.layers:
        layer = nn.Linear(*weights.shape)
        layer.load_state_dict({"weight": torch.from_numpy(weights.T.copy()), "bias": torch.from_numpy(bias)})
        parts += [layer, nn.Tanh() if policy.activation == "tanh" else nn.ReLU()]
    FlatPolicy(nn.Sequential(*parts[:-1]), policy.vectors).save_onnx(out, policy.task, about, policy.robot)
