"""Adapt a native batch to Stable-Baselines3's `VecEnv`: one call steps all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.adapters.gymnasium import GymnasiumVectorEnv, OutOfRange
from rlenv_robot.tables import ExtraInfo
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["StableBaselinesVecEnv", "to_stable_baselines3"]

Indices = int | Iterable[int] | None
"""Numbers of the requested environments; None for all."""


class StableBaselinesVecEnv(VecEnv):
    """Stable-Baselines3's interface. Episodes that end begin anew within the step, as it wants.

    ``infos`` at an end: ``terminal_observation`` (what was seen last), ``TimeLimit.truncated``, ``is_success``,
    and ``episode`` with return ``r`` and length ``l``, as its `Monitor` gives them; ``illegal_share``, the share of the
    episode's actions that were out of range, if there was any in the batch.

    Actions beyond -1 and 1 are refused (`GymnasiumVectorEnv`); Stable-Baselines3's own algorithms choose none, since
    they cut off at the ends of the action space, or squash. ``infos`` name each in ``error``.

    Args:
        envs: a batch with ``autoreset="same_step"``; owned from now on.
        flat: what its vectors are.
        out_of_range: as `rlenv_robot.adapters.gymnasium.GymnasiumEnv`'s.

    Raises:
        ValueError: the batch resets otherwise.
    """

    def __init__(self, envs: VectorEnvironment, flat: FlattenObservation, out_of_range: OutOfRange = "refuse") -> None:
        if envs.autoreset != "same_step":
            raise ValueError(f"autoreset is {envs.autoreset!r}: Stable-Baselines3 wants 'same_step'")
        self.envs = GymnasiumVectorEnv(envs, flat, out_of_range=out_of_range)
        self.render_mode = None
        super().__init__(envs.num_envs, self.envs.single_observation_space, self.envs.single_action_space)
        self._actions = np.zeros(0, np.float32)
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, int)

    @property
    def illegal_share(self) -> float:
        """The share of all actions since it was made that were out of range."""
        return self.envs.illegal_share

    def reset(self) -> np.ndarray:
        """Begin an episode in all environments, with the seed given to ``seed`` before, if any."""
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
        """Step all environments; return observations (N, D), rewards (float32), ends (bool) and infos."""
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
        """Close the batch."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[object]:
        """Return an attribute of the whole batch, once for each requested environment."""
        return [getattr(self.envs, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: object, indices: Indices = None) -> None:
        """Refuse: a row of a batch is no environment of its own.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{attr_name!r} can't be set: the batch has no single environments")

    def env_method(
        self, method_name: str, *method_args: object, indices: Indices = None, **method_kwargs: object
    ) -> list[object]:
        """Refuse, as `set_attr` does.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{method_name!r} can't be called: the batch has no single environments")

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        """Return whether the batch does the work of a wrapper: it keeps the records of `Monitor`."""
        return [wrapper_class.__name__ == "Monitor"] * self._count(indices)

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return no images: render one `Environment`, or replay a log."""
        return [None] * self.num_envs

    def _count(self, indices: Indices) -> int:
        return len(list(self._get_indices(indices)))


def to_stable_baselines3(
    envs: VectorEnvironment, flat: FlattenObservation, out_of_range: OutOfRange = "refuse"
) -> StableBaselinesVecEnv:
    """Adapt a batch; the arguments are those of `StableBaselinesVecEnv`."""
    return StableBaselinesVecEnv(envs, flat, out_of_range)
