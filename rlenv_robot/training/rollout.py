"""Run episodes of one policy or of a population, and record learning curves."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import IllegalAction, RobotSpec, Violation
from hal.field import JsonObject
from hal.guarding.limit_cycle import WINDOW_S, joint_targets, limit_cycle
from rlenv_robot.env import Environment
from rlenv_robot.policies.chunked_policy import ChunkedPolicy
from rlenv_robot.policies.feedback import SearchedPolicy
from rlenv_robot.policies.policy import Policy, StochasticPolicy, begin_episode
from rlenv_robot.registry import make_vector
from rlenv_robot.tables import Options
from rlenv_robot.tasks.agents import mean_reward
from rlenv_robot.tasks.task import task_world
from rlenv_robot.training.trackers import open_tracker
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["LearningCurve", "Outcome", "Point", "evaluate", "population_returns", "run_episode"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one episode.

    Attributes:
        total: the return; with several agents, the mean of theirs.
        metrics: the task's metrics at the end, by name including the unit; empty if the robot was lost.
        success: whether the task was fulfilled at the end.
        frames: number of steps.
        end: why the episode ended.
        illegal: share of the policy's actions that were refused, 0 to 1.
        limit_cycle_deg: amplitude with which the applied joint targets oscillated in the last second
            (`hal.guarding.limit_cycle`), of the joint with the largest one, degrees; NaN if no command is in rad.
    """

    total: float
    metrics: Mapping[str, float]
    success: bool
    frames: int
    end: str
    illegal: float = 0.0
    limit_cycle_deg: float = math.nan

    @property
    def distance_mm(self) -> float:
        """Return the distance at the end, millimetres; NaN for a task without a distance."""
        return self.metrics.get("distance_mm", math.nan)


def population_returns(
    envs: VectorEnvironment, population: SearchedPolicy, seed: int, steps: int, smoothness: float = 0.0
) -> np.ndarray:
    """Return the mean return of each candidate over the same episodes, minus a penalty for oscillating actions.

    Args:
        envs: environments, candidates x episodes, without automatic resets.
        population: the candidates; its parameters have the shape (candidates, parameters).
        seed: the seed of the episodes.
        steps: largest number of steps of an episode that count.
        smoothness: penalty on the squared difference between the action vectors of two successive steps, in the unit of
            the reward, which alone does not penalise oscillating targets if the robot lags.

    Returns:
        Shape (candidates,); with several agents, from their mean reward.
    """
    count = len(population.parameters)
    table = envs.reset({"seed": seed})
    total, over = np.zeros(envs.num_envs), np.zeros(envs.num_envs, bool)
    before: np.ndarray | None = None
    for _ in range(steps):
        folded = {name: value.reshape(count, -1, *value.shape[1:]) for name, value in table["observation"].items()}
        vector = population.action_vector(folded)
        action = {
            name: value.reshape(envs.num_envs, *value.shape[2:])
            for name, value in population.vectors.act(vector, folded).items()
        }
        table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        total += mean_reward(reward["reward"])
        vector = vector.reshape(envs.num_envs, -1)
        if smoothness and before is not None:
            total -= smoothness * np.where(over, 0.0, np.square(vector - before).sum(axis=1))
        before = vector
        over |= (table["terminated"] | table["truncated"]).astype(bool)
        if over.all():
            break
    return np.asarray(total.reshape(count, -1).mean(axis=1))


def evaluate(envs: VectorEnvironment, policy: Policy, seed: int) -> list[Outcome]:
    """Run one episode of a policy in each environment, and return the outcomes in the environments' order.

    Args:
        envs: environments without automatic resets.
        policy: chooses actions for all of them at once.
        seed: the seed of the episodes.
    """
    envs.count_refusals = True  # or an episode of illegal actions would never end
    table = envs.reset({"seed": seed})
    begin_episode(policy)
    total, outcomes = np.zeros(envs.num_envs), {}
    targets = _RecentTargets(envs.batch.spec)
    for _ in range(envs.task.steps):
        action = policy.act(table["observation"])
        table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": action})
        total += mean_reward(reward["reward"])
        targets.add(table["extra_info"]["applied"])
        final = table["extra_info"].get("final")
        if final is None:
            continue
        limit_cycles = np.broadcast_to(targets.limit_cycle_deg(), envs.num_envs)
        for place, env in enumerate(final["index"].tolist()):
            outcomes[env] = Outcome(
                float(total[env]),
                {name: float(value[place]) for name, value in final["metrics"].items()},
                bool(final["success"][place]),
                int(final["frame_no"][place]),
                "terminated" if table["terminated"][env] else "time",
                float(final["refusals"][place] / max(1, final["refusals"][place] + final["frame_no"][place])),
                float(limit_cycles[env]),
            )
    return [outcomes[env] for env in sorted(outcomes)]


class _RecentTargets:
    """The joint targets applied in the last second of one episode or of a batch.

    Args:
        spec: the spec of the robot; None for a world without one.
    """

    def __init__(self, spec: RobotSpec | None) -> None:
        self._names = [] if spec is None else [field.name for field in joint_targets(spec.commands)]
        self._period_s = 0.0 if spec is None else spec.period_s
        self._recent: deque[np.ndarray] = deque(maxlen=1 if spec is None else round(WINDOW_S * spec.rate_hz))

    def add(self, applied: Mapping[str, np.ndarray]) -> None:
        """Add the commands of one step, each of shape (..., n)."""
        if self._names:
            self._recent.append(np.concatenate([np.array(applied[name]) for name in self._names], axis=-1))

    def limit_cycle_deg(self) -> np.ndarray:
        """Return the largest limit cycle among each robot's joints, degrees, with the shape of the leading axes."""
        if not self._recent:
            return np.array(math.nan)
        return np.asarray(np.degrees(limit_cycle(np.array(self._recent), self._period_s).max(axis=-1)))


def run_episode(env: Environment, policy: Policy, options: Options) -> Iterator[Outcome | None]:
    """Run one episode through the standard's interface.

    A `StochasticPolicy` draws its actions. The recording includes their probabilities, and their distributions if the
    environment was made with the policy's ``behaviour``. With a `ChunkedPolicy` it includes the frame that each action
    answers, if the environment was made with ``answers``.

    Yields:
        None after every step, and the outcome at the end.

    Raises:
        IllegalAction: the policy chose an illegal action, which was not executed. The policy would choose it again, so
            the episode can't continue.
    """
    table = env.reset(options)
    begin_episode(policy)
    inner = task_world(env.world)
    total, targets = 0.0, _RecentTargets(None if inner is None else inner.robot.spec)
    while not (table["terminated"] or table["truncated"]):
        extra_info: dict[str, object] = {}
        if isinstance(policy, StochasticPolicy):
            action, extra_info["log_probability"], behaviour = policy.draw(table["observation"])
            if len(env.behaviour):
                extra_info["behaviour"] = behaviour
        else:
            action = policy.act(table["observation"])
        if isinstance(policy, ChunkedPolicy):
            extra_info["answers"] = policy.answers
        request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": action}
        table, reward = env.step(request, extra_info)
        if "error" in table["extra_info"]:
            raise _refused(table["extra_info"]["error"], table["frame_no"])
        total += float(mean_reward(reward["reward"]))
        targets.add(table["extra_info"].get("applied", {}))
        yield None
    extra = table["extra_info"]
    end = "terminated" if table["terminated"] else str(extra.get("truncated_by", "truncated"))
    success, turned_deg = bool(extra.get("success", False)), float(targets.limit_cycle_deg())
    yield Outcome(total, extra.get("metrics", {}), success, table["frame_no"], end, limit_cycle_deg=turned_deg)


def _refused(error: JsonObject, frame_no: int) -> IllegalAction:
    message = f"in frame {frame_no} the policy chose an illegal action, which was not executed: {error['message']}"
    return IllegalAction(Violation(error["code"], error["field"], tuple(error["index"]), message))


# -- The learning curve of a policy --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Point:
    """The result of an evaluation after some steps and seconds of learning: success rate, 0 to 1, and mean return."""

    steps: int
    seconds: float
    success: float
    returns: float

    @property
    def metrics(self) -> dict[str, float]:
        """Return the evaluation as metrics for a tracker."""
        return {"trial/success": self.success, "trial/return": self.returns, "trial/seconds": self.seconds}


class LearningCurve:
    """A learning curve: evaluations of a policy on the same test episodes. Their time does not count as learning.

    Args:
        name: the task.
        episodes: number of episodes in each evaluation.
        seed: the seed of these episodes; training should not use it.
        quiet: whether to print nothing.
        track: where to write the metrics as well (`rlenv_robot.training.trackers.open_tracker`); None uses the
            environment variable ``RLENV_ROBOT_TRACK``.
        envs: the test environments, one for each episode, without automatic resets; the curve closes them. None creates
            them from ``episodes`` and ``settings``.
        settings: the settings of the test environments, as for `rlenv_robot.make_vector`: the task's settings, or
            ``profile``.

    Raises:
        ValueError: the task is unknown, or ``track`` names no known destination.
        RobotError: a package that ``track`` needs is missing.
    """

    def __init__(
        self,
        name: str,
        *,
        episodes: int = 100,
        seed: int = 1_000_000,
        quiet: bool = False,
        track: str | None = None,
        envs: VectorEnvironment | None = None,
        **settings: Any,
    ) -> None:
        self.name, self.points = name, list[Point]()
        self._seed, self._quiet = seed, quiet
        self._tracker = open_tracker(track, name)
        self._envs = envs or make_vector(name, episodes, seed=seed, autoreset="disabled", **settings)
        self._begun = time.perf_counter()

    def add(self, steps: int, policy: Policy, illegal_share: float = 0.0) -> Point:
        """Evaluate a policy, and return its point of the curve.

        Args:
            steps: control steps of learning so far.
            policy: the policy to evaluate.
            illegal_share: share of the actions in training that were refused, 0 to 1; the progress line shows it
                unless it is 0.
        """
        now = time.perf_counter()
        outcomes = evaluate(self._envs, policy, self._seed)
        success = float(np.mean([outcome.success for outcome in outcomes]))
        point = Point(steps, now - self._begun, success, float(np.mean([outcome.total for outcome in outcomes])))
        self.points.append(point)
        illegal = float(np.mean([outcome.illegal for outcome in outcomes]))
        self._tracker.add(
            steps, {**point.metrics, "trial/illegal_actions": illegal, "learning/illegal_actions": illegal_share}
        )
        if not self._quiet:
            print(
                f"{point.steps:9,} steps {point.seconds:7.1f} s   success {point.success:5.0%}   "
                f"return {point.returns:7.2f}"
                + (f"   illegal actions {illegal:.1%}" if illegal else "")
                + (f"   in learning {illegal_share:.1%} illegal" if illegal_share else ""),
                flush=True,
            )
        self._begun += time.perf_counter() - now
        return point

    def first(self, success: float) -> Point | None:
        """Return the first point with at least this success rate, 0 to 1, or None."""
        return next((point for point in self.points if point.success >= success), None)

    def save(self, path: str | Path, about: JsonObject) -> None:
        """Write all points as JSON, with JSON data about the run."""
        plain = {"task": self.name, **about, "points": [asdict(point) for point in self.points]}
        Path(path).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")

    def save_checkpoint(self, policy: str | Path | None, done: int, *parts: Any) -> None:
        """Write a checkpoint of a training, and the points, beside a policy's file; requires PyTorch.

        Args:
            policy: the policy's file. The checkpoint has its name with ``.pt``, the points have it with ``.json``. None
                writes nothing.
            done: number of updates made so far.
            parts: objects with ``state_dict``, such as networks and optimisers of PyTorch.
        """
        import torch

        if policy is not None:
            torch.save((done, *(part.state_dict() for part in parts)), Path(policy).with_suffix(".pt"))
            self.save(Path(policy).with_suffix(".json"), {})

    def load_checkpoint(self, policy: str | Path | None, *parts: Any) -> int:
        """Restore the parts and the points of a checkpoint; seconds are counted from its last point.

        Args:
            policy: the policy's file, as for `save_checkpoint`. If it has no checkpoint, nothing changes.
            parts: as for `save_checkpoint`, with ``load_state_dict``.

        Returns:
            The number of updates made before the checkpoint; 0 without one.
        """
        import torch

        if policy is None or not Path(policy).with_suffix(".pt").exists():
            return 0
        done, *states = torch.load(Path(policy).with_suffix(".pt"), map_location="cpu")
        for part, state in zip(parts, states, strict=True):
            part.load_state_dict(state)
        points = json.loads(Path(policy).with_suffix(".json").read_text(encoding="utf-8"))["points"]
        self.points = [Point(**point) for point in points]
        self._begun = time.perf_counter() - self.points[-1].seconds
        return int(done)

    def close(self) -> None:
        """Close the test environments, and write the remaining metrics."""
        self._tracker.close()
        self._envs.close()
