"""Adapt a native batch to Stable-Baselines3's `VecEnv`, so that one call steps all environments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.adapters.gymnasium import OutOfRange
from rlenv_robot.adapters.gymnasium_vector import GymnasiumVectorEnv
from rlenv_robot.tables import ExtraInfo
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["StableBaselinesVecEnv", "to_stable_baselines3"]

Indices = int | Iterable[int] | None
"""Numbers of the requested environments; None for all."""


class StableBaselinesVecEnv(VecEnv):
    """A batch with Stable-Baselines3's interface. An environment that ends begins a new episode within the step.

    At an episode's end ``infos`` has ``terminal_observation``, ``TimeLimit.truncated``, ``is_success``, and ``episode``
    with return ``r`` and length ``l``, as from `Monitor`. If any action in the batch was out of range, it has
    ``illegal_share``, the share of such actions in the episode.

    Actions beyond -1 and 1 are refused (`GymnasiumVectorEnv`) and reported as ``error`` in ``infos``.
    Stable-Baselines3's own algorithms choose none, since they clip to the action space or squash.

    Args:
        envs: a batch with ``autoreset="same_step"``, which is closed with this object.
        flat: the vectors of observations and actions.
        out_of_range: as for `rlenv_robot.adapters.gymnasium.GymnasiumEnv`.

    Raises:
        ValueError: the batch has another ``autoreset``.
    """

    def __init__(self, envs: VectorEnvironment, flat: FlattenObservation, out_of_range: OutOfRange = "refuse") -> None:
        if envs.autoreset != "same_step":
            raise ValueError(f"autoreset is {envs.autoreset!r}: Stable-Baselines3 needs 'same_step'")
        self.envs = GymnasiumVectorEnv(envs, flat, out_of_range=out_of_range)
        self.render_mode = None
        super().__init__(envs.num_envs, self.envs.single_observation_space, self.envs.single_action_space)
        self._actions = np.zeros(0, np.float32)
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, int)

    @property
    def illegal_share(self) -> float:
        """The share of out-of-range actions among all actions so far."""
        return self.envs.illegal_share

    def reset(self) -> np.ndarray:
        """Begin an episode in all environments, with the seed from an earlier call of ``seed``, if any."""
        observation, _ = self.envs.reset(seed=self._seeds[0])
        self._reset_seeds()
        self._reset_options()
        self._returns[:], self._lengths[:] = 0, 0
        self.reset_infos: list[ExtraInfo] = [{} for _ in range(self.num_envs)]
        return np.asarray(observation)

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[ExtraInfo]]:
        """Step all environments, and return observations (N, D), rewards, float32 (N,), ends, bool (N,), and infos."""
        observation, rewards, terminated, truncated, info = self.envs.step(self._actions)
        assert isinstance(observation, np.ndarray)  # since flat makes vectors
        assert isinstance(rewards, np.ndarray)  # of a single agent
        done = terminated | truncated
        self._returns += rewards
        self._lengths += 1
        infos: list[ExtraInfo] = [{} for _ in range(self.num_envs)]
        for env, error in info.get("error", {}).items():
            infos[env]["error"] = error
        for env in np.flatnonzero(done).tolist():
            infos[env] |= {
                "terminal_observation": info["final_obs"][env],
                "TimeLimit.truncated": bool(truncated[env]),
                "is_success": bool(info["final_info"]["success"][env]),
                "episode": {"r": float(self._returns[env]), "l": int(self._lengths[env])},
            }
            if "illegal_share" in info["final_info"]:
                infos[env]["illegal_share"] = float(info["final_info"]["illegal_share"][env])
        self._returns[done], self._lengths[done] = 0, 0
        return observation, rewards.astype(np.float32), done, infos

    def close(self) -> None:
        """Close the batch of environments."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[object]:
        """Return an attribute of the whole batch, once for each requested environment."""
        return [getattr(self.envs, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: object, indices: Indices = None) -> None:
        """Refuse the call, since the environments of a batch have no separate attributes.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{attr_name!r} can't be set: the batch has no single environments")

    def env_method(
        self, method_name: str, *method_args: object, indices: Indices = None, **method_kwargs: object
    ) -> list[object]:
        """Refuse the call, as `set_attr` does.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{method_name!r} can't be called: the batch has no single environments")

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        """Return whether the batch does the work of a wrapper, which is so for `Monitor`."""
        return [wrapper_class.__name__ == "Monitor"] * self._count(indices)

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return no images. To see the robot, render a single `Environment`, or replay a log."""
        return [None] * self.num_envs

    def _count(self, indices: Indices) -> int:
        return len(list(self._get_indices(indices)))


def to_stable_baselines3(
    envs: VectorEnvironment, flat: FlattenObservation, out_of_range: OutOfRange = "refuse"
) -> StableBaselinesVecEnv:
    """Adapt a batch to Stable-Baselines3; see `StableBaselinesVecEnv`."""
    return StableBaselinesVecEnv(envs, flat, out_of_range)
