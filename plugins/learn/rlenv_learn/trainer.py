"""Train a policy by PPO, and write it with its learning curve and checkpoints. Needs PyTorch."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hal import RobotError
from hal.field import JsonDict, JsonObject
from rlenv_learn.imitation.cloning import demonstrated
from rlenv_learn.policies.network import NetworkPolicy
from rlenv_learn.policies.saving import save_network
from rlenv_learn.ppo import PpoTraining, ppo_settings
from rlenv_learn.training_state import TrainingState
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.registry import TaskLike, make_vector
from rlenv_robot.source import SourceData
from rlenv_robot.training.rollout import Point, evaluate
from rlenv_robot.training.trackers import Tracker, open_tracker
from rlenv_robot.training.trials import CONDITIONS, conditions
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["NetworkTraining", "train_network"]

_TRIAL_EPISODES, _TRIAL_SEED = 100, 1_000_000
_SAVE_S = 5.0
"""Time after which the state of a training is written anew, seconds: what a killed process loses at most."""


@dataclass(frozen=True)
class NetworkTraining:
    """The result of a training run.

    Attributes:
        policy: the best evaluated policy, by success and then by return.
        steps: control steps of the whole training.
        seconds: wall time without evaluations, seconds.
        points: the learning curve: evaluations on episodes that training does not use, drawn as in training.
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
    resume: bool = False,
    progress: Callable[[int, int, Point | None], None] = lambda done, total, point: None,
) -> NetworkTraining:
    """Train a policy in simulation, and write it with its learning curve and its checkpoints.

    The learning curve is written to ``policy.csv`` beside ``policy.npz``, and each evaluated policy to
    ``policy.checkpoints/``, named by its steps. Without a limit in ``seconds``, the same seed gives the same policy on
    the same machine.

    The training's state is in ``policy.state`` until the training ends: networks, optimiser, random generator, counters
    and learning curve. It is written after Ctrl-C, and every 5 s.

    Args:
        name: the task, as for `rlenv_robot.make_vector`.
        out: the file, ending in ``.npz`` or ``.onnx``.
        steps: total control steps of all environments; None takes the task's setting (`ppo_settings`).
        seconds: wall time after which no further update begins.
        seed: seed of the network, the exploration and the episodes.
        nominal: whether to train on the nominal robot alone. Otherwise, and without a profile in the settings, each
            episode draws a robot from the range of its model (`RobotModel.variation`), if it has one. The first updates
            still use the nominal robot, with which learning is faster (`PpoSettings.nominal_share`).
        settings: the task's own settings, and others of `rlenv_robot.make_vector`.
        track: tracker that also gets the metrics of updates and evaluations (`open_tracker`).
        demonstrations: recorded episodes of the task, with any robot of its model (`rlenv_robot.open_source`). The
            policy clones the successful ones, is evaluated after 0 steps, and then trained by PPO.
        trials: number of evaluations during the training; the best evaluated policy is the result.
        resume: whether to go on from ``policy.state``, after the last update that it holds and in new episodes, so that
            the policy differs from that of a training without an interruption. ``seconds`` counts from the beginning.
        progress: called after every update with the steps so far, the total steps, and the newest evaluation; a
            training that goes on first reports the evaluations that were made before.

    Raises:
        ValueError: the task is unknown, has no simulated robot or has actions without a finite range, or ``track`` is
            unknown.
        RobotError: a package that ``track`` needs is missing, or there is no state to go on from, or it is of another
            training.
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
        demos = None if demonstrations is None else demonstrated(demonstrations, flat_for(tested.task))
        if chosen.episode and "steps" not in made:
            made = {**made, "steps": chosen.episode}
        envs = opened.enter_context(make_vector(name, chosen.num_envs, seed=seed, **made))
        nominal_envs = None
        if varied:
            task_settings = {key: value for key, value in made.items() if key not in CONDITIONS}
            nominal_envs = opened.enter_context(make_vector(name, chosen.num_envs, seed=seed, **task_settings))
        about = {"task": tested.task.name, "seed": seed, **asdict(chosen), "steps": total}
        tracker = opened.enter_context(closing(open_tracker(track, tested.task.name, about)))
        evaluation = _Evaluation(tested, folder, out.with_suffix(".csv"), seed, tracker)
        learning = PpoTraining(envs, chosen, total, seed, nominal_envs, demos)
        origin = None if demonstrations is None else demonstrations.table.origin
        identity = {**about, "nominal": nominal, "demonstrations": origin, "settings": settings or {}}
        kept = _Kept(out.with_suffix(".state"), json.loads(json.dumps(identity, default=_text)))
        spent = 0.0
        if resume:
            spent = kept.restore(learning, evaluation)
            for point in evaluation.points:
                progress(point.steps, total, point)
        else:
            kept.path.unlink(missing_ok=True)
        folder.mkdir(exist_ok=True)  # not before: a refused call writes nothing
        begun = time.perf_counter() - spent
        first = learning.done + (demos is None or resume)
        try:
            for update, (done, policy, metrics) in enumerate(learning, first):
                elapsed = time.perf_counter() - begun
                tracker.add(done, metrics)
                last = update == learning.updates or elapsed >= seconds
                if last or update % max(1, learning.updates // trials) == 0:
                    begun += evaluation.run(done, elapsed, policy)
                if update and not last:  # before it is reported, so that what was reported is kept
                    kept.keep(learning, evaluation, elapsed)
                progress(done, total, evaluation.points[-1] if evaluation.points else None)
                if last:
                    break
        except BaseException:
            kept.write()
            raise
    assert evaluation.best is not None
    how = "PPO" if demos is None else "PPO from demonstrations"
    save_network(evaluation.best, out, {"trained": how, "steps": done, "seed": seed})
    kept.path.unlink(missing_ok=True)
    return NetworkTraining(evaluation.best, done, elapsed, evaluation.points, varied)


def _text(value: object) -> object:
    """Return what tells a setting that is no JSON data from others, such as a profile: its data, or its name."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


class _Kept:
    """The state of a training in its file.

    Args:
        path: the file.
        identity: what tells this training from others, JSON data.
    """

    def __init__(self, path: Path, identity: JsonDict) -> None:
        self.path, self._identity = path, identity
        self._newest: TrainingState | None = None
        self._written_s = -np.inf

    def keep(self, learning: PpoTraining, evaluation: _Evaluation, seconds: float) -> None:
        """Take the state after an update, and write it where the file is older than `_SAVE_S`."""
        curve = [[one.steps, one.seconds, one.success, one.returns] for one in evaluation.points]
        more = {"curve": curve, "best_steps": evaluation.best_steps, "seconds": seconds}
        self._newest = TrainingState(self._identity, {**learning.state(), **more})
        if time.monotonic() - self._written_s >= _SAVE_S:
            self.write()

    def write(self) -> None:
        """Write the newest state, if there is one that the file does not have."""
        if self._newest is not None:
            self._newest.save(self.path)
            self._newest, self._written_s = None, time.monotonic()

    def restore(self, learning: PpoTraining, evaluation: _Evaluation) -> float:
        """Let a training go on from the file, and return the seconds that it took before.

        Raises:
            RobotError: there is no such file, it is damaged, or it is of another training.
        """
        state = TrainingState.load(self.path)
        state.check(self._identity, self.path)
        try:
            learning.restore(state.tensors)
            points = [Point(*point) for point in state.tensors["curve"]]
            evaluation.restore(points, int(state.tensors["best_steps"]))
            return float(state.tensors["seconds"])
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise RobotError(f"{self.path} is damaged: {error}; leave out --resume to begin anew") from error


class _Evaluation:
    """The evaluations of a training: learning curve, checkpoints, and the best policy."""

    def __init__(self, trials: VectorEnvironment, folder: Path, curve: Path, seed: int, tracker: Tracker) -> None:
        self._trials, self._folder, self._curve, self._seed, self._tracker = trials, folder, curve, seed, tracker
        self.points: list[Point] = []
        self.best: NetworkPolicy | None = None
        self.best_steps = 0

    def restore(self, points: Sequence[Point], best_steps: int) -> None:
        """Go on with a learning curve, whose best policy is among the checkpoints.

        Raises:
            RobotError: that checkpoint is missing or damaged.
        """
        self.points, self.best_steps = list(points), best_steps
        if points:
            self.best = NetworkPolicy.load(self._checkpoint(best_steps))

    def _checkpoint(self, steps: int) -> Path:
        return self._folder / f"{steps:010d}.npz"

    def run(self, steps: int, seconds: float, policy: NetworkPolicy) -> float:
        """Evaluate a policy, write it as a checkpoint, and return how long that took, in seconds."""
        begun = time.perf_counter()
        outcomes = evaluate(self._trials, policy, _TRIAL_SEED)
        success, returns = (float(np.mean([getattr(one, key) for one in outcomes])) for key in ("success", "total"))
        point = Point(steps, seconds, success, returns)
        if all((success, returns) > (earlier.success, earlier.returns) for earlier in self.points):
            self.best, self.best_steps = policy, steps
        self.points.append(point)
        self._tracker.add(steps, point.metrics)
        policy.save(self._checkpoint(steps), {"trained": "PPO", "steps": steps, "seed": self._seed})
        with self._curve.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["steps", "seconds", "success", "mean_return"])
            lines.writerows([one.steps, f"{one.seconds:.3f}", one.success, one.returns] for one in self.points)
        return time.perf_counter() - begun
