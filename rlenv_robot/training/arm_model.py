"""Fit a model of the SO-101's joints to recorded trajectories, and simulate the arm with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hal import BatchState, RobotSpec, SourceError
from hal.robots.so101 import SO101, forward_kinematics
from rlenv_robot.tables import TrajectoryTable
from rlenv_robot.tasks.task import Arrays

__all__ = ["ArmModel", "LearnedBatch", "fit", "open_loop_error"]

_GOALS = 6
"""Number of past goals on which the next position depends: 200 ms at 30 Hz, more than a servo's usual lag."""

_RIDGE = 1e-4
_SETTLE = 45
"""Periods after which an arm that got no new goal counts as settled (1.5 s)."""


def _inputs(position: np.ndarray, before: np.ndarray, goals: Sequence[np.ndarray]) -> np.ndarray:
    """Return the regressors, shape (..., joints, k): differences to past goals and position, and levers of gravity.

    Args:
        position: joint angles now, rad, shape (..., 6).
        before: joint angles one period ago, likewise.
        goals: past goals, the newest first, likewise.
    """
    lift = position[..., 1]
    elbow, wrist = lift + position[..., 2], lift + position[..., 2] + position[..., 3]
    levers = np.stack([np.sin(lift), np.cos(elbow), np.cos(wrist), np.ones_like(lift)], axis=-1)
    motion = np.stack([position - before, *(goal - position for goal in goals)], axis=-1)
    return np.concatenate(
        [motion, np.broadcast_to(levers[..., None, :], (*motion.shape[:-1], levers.shape[-1]))], axis=-1
    )


@dataclass(frozen=True)
class ArmModel:
    """An ensemble of linear models of the joints' response to goals and gravity.

    Attributes:
        weights: shape (members, 6, k). Each member is fitted to its own draw of the trajectories, so that a policy
            can't exploit the errors of one model.
    """

    weights: np.ndarray

    def next_position(
        self, position: np.ndarray, before: np.ndarray, goals: Sequence[np.ndarray], member: np.ndarray
    ) -> np.ndarray:
        """Predict joint angles one period later, rad, shape (n, 6), with ensemble member ``member[i]`` for row i."""
        return np.asarray(position + np.einsum("njk,njk->nj", _inputs(position, before, goals), self.weights[member]))


def _regression(trajectory: TrajectoryTable) -> tuple[np.ndarray, np.ndarray]:
    """Return regressors and changes of position of a trajectory, shapes (T - 1, 6, k) and (T - 1, 6)."""
    steps = trajectory["steps_set"]
    now, after = steps["observation"], steps["next_observation"]
    position = np.asarray(now["joint_position"], float)
    following = np.asarray(after["joint_position"], float)
    goals = np.concatenate([now["joint_goal"][:1], after["joint_goal"]]).astype(float)  # goal 0 held before the start
    count = len(position)
    past = [goals[np.maximum(np.arange(count) + 1 - delays, 0)] for delays in range(_GOALS)]
    before = np.concatenate([position[:1], position[:-1]])
    return _inputs(position, before, past), following - position


def fit(trajectories: Sequence[TrajectoryTable], members: int = 4, seed: int = 0) -> ArmModel:
    """Fit by ridge regression to trajectories with observations ``joint_position`` and ``joint_goal``.

    Args:
        trajectories: Table 6 from `SourceData.sample_trajectories`.
        members: size of the ensemble. Each member is fitted to a bootstrap sample of the trajectories.
        seed: the seed of those draws.

    Raises:
        SourceError: there are no trajectories.
    """
    if not trajectories:
        raise SourceError("there is no trajectory to fit a model to")
    pairs = [_regression(trajectory) for trajectory in trajectories]
    rng = np.random.default_rng(seed)
    weights = []
    for _ in range(members):
        drawn = rng.integers(len(pairs), size=len(pairs))
        inputs = np.concatenate([pairs[place][0] for place in drawn])
        change = np.concatenate([pairs[place][1] for place in drawn])
        weights.append([_ridge(inputs[:, joint], change[:, joint]) for joint in range(inputs.shape[1])])
    return ArmModel(np.array(weights))


def _ridge(inputs: np.ndarray, target: np.ndarray) -> np.ndarray:
    penalty = _RIDGE * len(inputs) * np.eye(inputs.shape[1])
    return np.asarray(np.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ target))


class LearnedBatch:
    """Move N arms according to a model, with the members of `sim.batch.SimBatch`.

    Args:
        model: the model.
        num: N. Ensemble member ``i % members`` moves arm i.
    """

    def __init__(self, model: ArmModel, num: int) -> None:
        self._model, self.num = model, num
        self._member = np.arange(num) % len(model.weights)
        self._position = np.zeros((num, 6))
        self._before = np.zeros((num, 6))
        self._goals: deque[np.ndarray] = deque(maxlen=_GOALS)
        self.broken: np.ndarray = np.zeros(num, bool)
        self._stamp = 0

    @property
    def spec(self) -> RobotSpec:
        """The SO-101's spec."""
        return SO101

    def reset(self, ids: np.ndarray | None, seeds: np.ndarray | None, starts: Arrays | None) -> BatchState:
        """Start all arms at their initial joint angles, at rest.

        Raises:
            ValueError: only some arms would be reset.
        """
        if ids is not None:
            raise ValueError("arms of a learned model begin together: use autoreset='disabled' and reset all")
        home = np.tile(np.asarray(SO101.home["joint_target"]), (self.num, 1))
        goal = np.asarray((starts or {}).get("joint_target", home), float)
        self._position, self._before = goal.copy(), goal.copy()
        self._goals.extend([goal] * _GOALS)
        for _ in range(_SETTLE):
            self._advance(goal)
        self.broken = np.asarray(~np.isfinite(self._position).all(axis=1))
        return self._batch_state()

    def step(self, commands: Arrays, ids: np.ndarray | None = None) -> BatchState:
        """Advance all arms by one control period."""
        self._advance(np.asarray(commands["joint_target"], float))
        return self._batch_state()

    def _advance(self, goal: np.ndarray) -> None:
        self._goals.appendleft(goal)
        following = self._model.next_position(self._position, self._before, list(self._goals), self._member)
        # The model has no joint limits, and may diverge beyond them.
        low, high = SO101.commands["joint_target"].bounds
        self._before, self._position = self._position, np.clip(following, low - 0.1, high + 0.1)

    def _batch_state(self) -> BatchState:
        self._stamp += round(1e9 * SO101.period_s)
        position = self._position.astype(np.float32)
        goal = self._goals[0].astype(np.float32)
        velocity = ((self._position - self._before) * SO101.rate_hz).astype(np.float32)
        sensors = {
            "joint_position": position,
            "joint_velocity": velocity,
            "joint_goal": goal,
            "gripper_position": forward_kinematics(position),
        }
        return BatchState(sensors, {"joint_target": goal.copy()}, np.full(self.num, self._stamp))

    def close(self) -> None:
        """Do nothing, since the model holds no resources."""


def open_loop_error(model: ArmModel, trajectories: Sequence[TrajectoryTable]) -> tuple[np.ndarray, np.ndarray]:
    """Measure the model's open-loop error along trajectories, given their goals only.

    Returns:
        Root mean square errors over all joints but the gripper after 1, 2, ... T - 1 steps, degrees, shape (T - 1,),
        where T is the shortest trajectory's length: of the model (mean of the ensemble), and of the prediction that
        nothing moves.
    """
    members = np.arange(len(model.weights))
    horizon = min(len(trajectory["steps_set"]["frame_no"]) for trajectory in trajectories)
    errors, still = [], []
    for trajectory in trajectories:
        steps = trajectory["steps_set"]
        truth = np.concatenate(
            [steps["observation"]["joint_position"][:1], steps["next_observation"]["joint_position"]]
        ).astype(float)
        goals = np.concatenate([steps["observation"]["joint_goal"][:1], steps["next_observation"]["joint_goal"]])
        position = before = np.tile(truth[0], (len(members), 1))
        held: deque[np.ndarray] = deque([np.tile(goals[0].astype(float), (len(members), 1))] * _GOALS, maxlen=_GOALS)
        gap = []
        for now in range(1, horizon):
            held.appendleft(np.tile(goals[now].astype(float), (len(members), 1)))
            following = model.next_position(position, before, list(held), members)
            before, position = position, following
            gap.append(position.mean(axis=0)[:5] - truth[now, :5])
        errors.append(gap)
        still.append(truth[0, :5] - truth[1:horizon, :5])
    return _rms_degrees(np.array(errors)), _rms_degrees(np.array(still))


def _rms_degrees(gaps: np.ndarray) -> np.ndarray:
    """Return the root mean square in degrees over episodes and joints of gaps (episodes, steps, joints), rad."""
    return np.asarray(np.degrees(np.sqrt(np.square(gaps).mean(axis=(0, 2)))))
