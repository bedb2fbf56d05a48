"""Adapt a native batch to Tianshou's vector environment: its collectors step all of it with one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tianshou.env import BaseVectorEnv

from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.adapters.gymnasium_vector import GymnasiumVectorEnv
from rlenv_robot.tables import ExtraInfo
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["TianshouVectorEnv", "to_tianshou"]

Ids = int | Sequence[int] | np.ndarray | None
"""Numbers of environments; None is all."""


class TianshouVectorEnv(BaseVectorEnv):
    """Tianshou's interface without its workers, for `Collector` and the vector buffers.

    The end of an episode is Tianshou's to handle: it resets whom it wants to. A step of some leaves the others where
    they are. The observation is one float32 vector of shape (D,), the action one in [-1, 1] of shape (A,).
    ``info`` has ``env_id``, and at the end of an episode ``success`` and the task's figures.

    Args:
        envs: a batch with ``autoreset="disabled"``; owned from now on.
        flat: what its vectors are.

    Raises:
        ValueError: the batch resets itself.
    """

    def __init__(self, envs: VectorEnvironment, flat: FlattenObservation) -> None:
        if envs.autoreset != "disabled":
            raise ValueError(f"autoreset is {envs.autoreset!r}: Tianshou resets by itself, make it with 'disabled'")
        self.envs, self._flat = GymnasiumVectorEnv(envs, flat), flat
        self.env_num = self.wait_num = envs.num_envs
        self.workers: list[object] = []
        self.is_async, self.is_closed, self.timeout = False, False, None
        self.waiting_id: list[int] = []
        self.ready_id = list(range(self.env_num))
        self._seed: int | None = None

    def get_env_attr(self, key: str, id: Ids = None) -> list[object]:
        """Return the spaces, one for each requested environment.

        Raises:
            AttributeError: anything else.
        """
        attributes: dict[str, object] = {
            "observation_space": self.envs.single_observation_space,
            "action_space": self.envs.single_action_space,
            "metadata": {},
            "spec": None,
        }
        if key not in attributes:
            raise AttributeError(f"{key!r} is unknown, there are {', '.join(attributes)}")
        return [attributes[key]] * len(self._wrap_id(id))

    def set_env_attr(self, key: str, value: object, id: Ids = None) -> None:
        """Refuse: a row of a batch is no environment of its own.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{key!r} can't be set: the batch has no single environments")

    def reset(self, env_id: Ids = None, **kwargs: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Begin an episode in all or some environments; return first observations (K, D) and infos (K,)."""
        self._assert_is_not_closed()
        seed, self._seed = kwargs.pop("seed", self._seed), None
        if kwargs:
            raise ValueError(f"reset option {min(kwargs)!r} is unknown, allowed is seed")
        if env_id is None:
            observation, _ = self.envs.reset(seed=seed)
            assert isinstance(observation, np.ndarray)  # since flat makes vectors
            return observation, np.array([{} for _ in range(self.env_num)])
        ids, mask = self._wrap_id(env_id), np.zeros(self.env_num, bool)
        mask[ids] = True
        observation, _ = self.envs.reset(options={"reset_mask": mask})
        assert isinstance(observation, np.ndarray)
        return observation[ids], np.array([{} for _ in ids])

    def step(self, action: np.ndarray, id: Ids = None) -> tuple[np.ndarray, ...]:
        """Step all or some environments; return (K, D), rewards, terminated, truncated and infos (K,)."""
        self._assert_is_not_closed()
        ids = np.asarray(self._wrap_id(id))
        everyone = len(ids) == self.env_num
        actions = np.zeros((self.env_num, self._flat.action_size), np.float32)
        actions[ids] = action
        observation, rewards, terminated, truncated, info = self.envs.step_some(None if everyone else ids, actions)
        infos = np.array([{"env_id": env} for env in ids.tolist()])
        if "final_info" in info:
            self._tell(ids, info, infos)
        assert isinstance(observation, np.ndarray)
        assert isinstance(rewards, np.ndarray)  # of a single agent
        return observation[ids], rewards[ids], terminated[ids], truncated[ids], infos

    @staticmethod
    def _tell(ids: np.ndarray, info: ExtraInfo, infos: np.ndarray) -> None:
        facts = info["final_info"]
        for place, env in enumerate(ids.tolist()):
            infos[place]["success"] = bool(facts["success"][env])
            infos[place] |= {name: float(values[env]) for name, values in facts["metrics"].items()}

    def seed(self, seed: int | list[int] | None = None) -> list[list[int] | None]:
        """Set the seed of the next reset of all environments; one number."""
        if isinstance(seed, list):
            raise ValueError("give one number: environment i draws from (seed, i, episode)")
        self._seed = seed
        return [None if seed is None else [seed]] * self.env_num

    def render(self, **kwargs: object) -> list[object]:
        """Refuse: render one `Environment`, or replay a recorded run.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("a batch draws no images; render one environment, or replay its log")

    def close(self) -> None:
        """Close the batch. Calling it twice is allowed."""
        if not self.is_closed:
            self.envs.close()
        self.is_closed = True


def to_tianshou(envs: VectorEnvironment, flat: FlattenObservation) -> TianshouVectorEnv:
    """Adapt a batch; the arguments are those of `TianshouVectorEnv`."""
    return TianshouVectorEnv(envs, flat)
