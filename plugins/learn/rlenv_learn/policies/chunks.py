"""Execute action chunks: several future actions that a network predicts at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from hal import RobotError, Spec
from hal.field import JsonDict
from recorder.json_data import JsonObject
from rlenv_robot.policies.chunks import ChunkContext
from rlenv_robot.policies.policy import SavedPolicy

__all__ = ["ChunkExecution", "ChunkPolicy", "NetworkPredictor"]

_MOST = 1000
"""Most frames in a history, and most actions in a chunk."""


@dataclass(frozen=True, slots=True)
class ChunkExecution:
    """The shape of a chunk, and how its actions are executed.

    Attributes:
        length: K, the number of actions in a chunk. The first answers the newest observation.
        history: H, the number of observations that the network takes, the oldest first. At the beginning of an episode
            the first observation is repeated, as `rlenv_robot.source.SourceData.sample_steps` does with ``stack``.
        execute: number of actions of a chunk that are executed before the network predicts the next one (receding
            horizon; Chi et al. 2023). 0: the network predicts in every step, and the action is the mean of all
            predictions for this step (temporal ensembling; Zhao et al. 2023).
        decay: the decay of temporal ensembling. Chunk i, counted from the oldest one, has the weight ``exp(-decay i)``:
            above 0 older chunks have more weight, below 0 newer ones.

    Raises:
        ValueError: a number is out of range; the message names it.
    """

    length: int
    history: int = 1
    execute: int = 0
    decay: float = 0.01

    def __post_init__(self) -> None:
        for name, low, high in (("length", 1, _MOST), ("history", 1, _MOST), ("execute", 0, self.length)):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"chunk: {name} is {value}, allowed are {low} to {high}")
        if not np.isfinite(self.decay):
            raise ValueError(f"chunk: decay is {self.decay}, it must be finite")

    def to_dict(self) -> JsonDict:
        """Return JSON data for a policy's file."""
        return asdict(self)

    @staticmethod
    def from_dict(plain: JsonObject) -> ChunkExecution:
        """Return the settings of `to_dict`.

        Raises:
            ValueError: a number is missing or out of range.
        """
        try:
            sizes = {name: int(plain[name]) for name in ("length", "history", "execute")}
            return ChunkExecution(**sizes, decay=float(plain["decay"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"chunk: {error!r}, expected length, history, execute and decay") from error


class ChunkPolicy:
    """A `rlenv_robot.policies.policy.EpisodicPolicy` that executes the chunks of a network.

    The policy stores observations and chunks, so `reset` must be called at the beginning of an episode, as
    `rlenv_robot.training.rollout` does. In a batch, all episodes begin together.

    Args:
        predict: the network, from observations, name -> (batch, H, ...), to actions, name -> (batch, K, ...).
        observation: the spec of one observation.
        action: the spec of one action. Executed actions are clipped to its bounds.
        execution: shape and execution of the chunks.
    """

    def __init__(
        self,
        predict: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]],
        observation: Spec,
        action: Spec,
        execution: ChunkExecution,
    ) -> None:
        self.observation, self.action, self.execution = observation, action, execution
        self._predict = predict
        self._frames: deque[dict[str, np.ndarray]] = deque(maxlen=execution.history)
        self._chunks: deque[Mapping[str, np.ndarray]] = deque(maxlen=1 if execution.execute else execution.length)
        self._used = 0

    def reset(self) -> None:
        """Discard all observations and chunks, at the beginning of an episode."""
        self._frames.clear()
        self._chunks.clear()
        self._used = 0

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action of the present step, with the leading axes of the observation.

        Raises:
            ValueError: the leading axes differ from those of the last step, without `reset` in between.
        """
        frame, leading = self._frame(observation)
        self._frames.append(frame)
        while len(self._frames) < self.execution.history:
            self._frames.append(frame)
        if not self._chunks or not self.execution.execute or self._used == self.execution.execute:
            stacked = {name: np.stack([one[name] for one in self._frames], axis=1) for name in frame}
            self._chunks.append(self._predict(stacked))
            self._used = 0
        self._used += 1
        return {name: self._chosen(name).reshape((*leading, *self.action[name].shape)) for name in self.action.names}

    def _frame(self, observation: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], tuple[int, ...]]:
        """Return a copy of the observation with one leading axis, and the original leading axes."""
        first = self.observation.fields[0]
        leading = np.shape(observation[first.name])[: np.ndim(observation[first.name]) - len(first.shape)]
        frame = {
            field.name: np.array(observation[field.name], field.numpy_dtype).reshape((-1, *field.shape))
            for field in self.observation
        }
        if self._frames and len(self._frames[-1][first.name]) != len(frame[first.name]):
            raise ValueError(
                f"the policy chose for {len(self._frames[-1][first.name])} robots, now {len(frame[first.name])}; "
                "call reset() at the beginning of an episode"
            )
        return frame, leading

    def _chosen(self, name: str) -> np.ndarray:
        """Return the action field of the present step, (batch, ...)."""
        field = self.action[name]
        if self.execution.execute:
            value = self._chunks[-1][name][:, self._used - 1]
        else:
            ages = range(len(self._chunks) - 1, -1, -1)  # of each chunk, the oldest first
            predicted = np.stack([chunk[name][:, age] for chunk, age in zip(self._chunks, ages, strict=True)])
            weights = np.exp(-self.execution.decay * np.arange(len(predicted)))
            value = np.tensordot(weights / weights.sum(), predicted.astype(np.float64), 1)
        low, high = field.bounds
        return np.asarray(np.clip(value, low, high), field.numpy_dtype)


class NetworkPredictor:
    """A `rlenv_robot.policies.chunks.ChunkPredictor` of a network, so that frames may pass while it predicts.

    Args:
        predict: the network, as for `ChunkPolicy`.
        policy: the policy from the network's file, which knows its specs.
        observation: the spec of the fields that the network takes.
        action: the spec of one action. Predicted actions are clipped to its bounds.
        execution: shape of the chunks; how many are executed is decided by the queue.

    Raises:
        RobotError: the network needs a history of observations, which a predictor does not get.
    """

    def __init__(
        self,
        predict: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]],
        policy: SavedPolicy,
        observation: Spec,
        action: Spec,
        execution: ChunkExecution,
    ) -> None:
        if execution.history > 1:
            raise RobotError(
                f"the network takes the last {execution.history} observations, and while it predicts, frames pass "
                "without it: train it with history=1, or run it without --delay and --asynchronous"
            )
        self._predict, self._policy = predict, policy
        self._observation, self._action, self.length = observation, action, execution.length

    def check(self, observation: Spec, action: Spec) -> None:
        """Refuse specs of observations or actions that differ from the policy's."""
        self._policy.check(observation, action)

    def reset(self) -> None:
        """Do nothing: a prediction depends on its observation alone."""

    def predict(self, observation: Mapping[str, np.ndarray], context: ChunkContext) -> dict[str, np.ndarray]:
        """Return a chunk: field -> actions of shape (K, *field shape)."""
        stacked = {
            field.name: np.array(observation[field.name], field.numpy_dtype).reshape((1, 1, *field.shape))
            for field in self._observation
        }
        predicted = self._predict(stacked)
        return {
            field.name: np.asarray(np.clip(predicted[field.name][0], *field.bounds), field.numpy_dtype)
            for field in self._action
        }

    def close(self) -> None:
        """Do nothing: there is no session to close."""
