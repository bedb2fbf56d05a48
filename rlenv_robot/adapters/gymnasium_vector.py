"""Adapt a `VectorEnvironment` to `gymnasium.vector.VectorEnv`: one call steps the whole batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.adapters.gymnasium import (
    FieldSpace,
    Observed,
    action_space_of,
    check_flat,
    flat_spaces,
    scaled_action,
    space_of,
)
from rlenv_robot.tables import BatchObservationTable, ExtraInfo, FieldValues, Options, Rewards
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["GymnasiumVectorEnv", "to_gymnasium_vector"]

_MODES = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}


class GymnasiumVectorEnv(VectorEnv[Observed, Any, Any]):
    """Gymnasium's vector interface over a native batch; nothing is copied that the batch has not made for the caller.

    Without ``flat``, observation and action are as `GymnasiumEnv`'s with a leading axis: N of those in a
    `SyncVectorEnv` give the same numbers. With it they are its vectors.

    ``metadata["autoreset_mode"]`` is the batch's own. What was seen last is in ``info["final_obs"]`` (one a
    finished environment), its success, figures and images in ``info["final_info"]``, both with Gymnasium's masks.

    Args:
        envs: what is adapted; owned from now on.
        flat: observations and actions as vectors.
        normalise: without ``flat``: scale an only action field to [-1, 1].
    """

    def __init__(self, envs: VectorEnvironment, flat: FlattenObservation | None = None, normalise: bool = True) -> None:
        self.envs, self.flat, self.num_envs = envs, flat, envs.num_envs
        self.metadata = {"autoreset_mode": _MODES[envs.autoreset]}
        self._scaled = None
        self.single_observation_space: FieldSpace
        self.single_action_space: FieldSpace
        if flat is None:
            self.single_observation_space = space_of(envs.observation)
            self.single_action_space, self._scaled = action_space_of(envs.action, normalise)
        else:
            check_flat(flat, envs.observation, envs.action)
            self.single_observation_space, self.single_action_space = flat_spaces(flat)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._table: BatchObservationTable

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Options | None = None
    ) -> tuple[Observed, ExtraInfo]:
        """Begin an episode in all environments, or in those of ``options["reset_mask"]`` (bool, shape (N,)).

        Args:
            seed: one number: environment i draws from (seed, i, episode). A list is refused.
            options: no others are allowed.

        Raises:
            ValueError: a seed or an option that is not allowed.
        """
        if not (seed is None or isinstance(seed, int | np.integer)):
            raise ValueError(f"seed is {seed!r}: give one number, environment i draws from (seed, i, episode)")
        others = dict(options or {})
        mask = others.pop("reset_mask", None)
        if others:
            raise ValueError(f"reset option {min(others)!r} is unknown, allowed is reset_mask")
        request: dict[str, object] = {} if seed is None else {"seed": int(seed)}
        if mask is not None:
            if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (self.num_envs,):
                raise ValueError(f"reset_mask is {mask!r}, wanted is a bool array of shape ({self.num_envs},)")
            request["ids"] = np.flatnonzero(mask)
        self._table = self.envs.reset(request)
        return self._observation(self._table["observation"]), self._info(self._table["extra_info"])

    def step(
        self, actions: ArrayLike | Mapping[str, ArrayLike]
    ) -> tuple[Observed, Rewards, np.ndarray, np.ndarray, ExtraInfo]:
        """Step all environments; return observations, rewards (float64), terminated, truncated (bool) and info.

        Raises:
            IllegalAction: the batch as a whole is malformed. A single illegal action is told in ``info["error"]``.
        """
        return self.step_some(None, actions)

    def step_some(
        self, ids: np.ndarray | None, actions: ArrayLike | Mapping[str, ArrayLike]
    ) -> tuple[Observed, Rewards, np.ndarray, np.ndarray, ExtraInfo]:
        """Step some environments while the others stay. Actions and everything returned have all N rows.

        Args:
            ids: which, whole numbers; None is all.
            actions: with a leading axis of N; rows of the others are not looked at closely.
        """
        frame_no = self._table["frame_no"]
        if ids is not None:
            stay = np.ones(self.num_envs, bool)
            stay[ids] = False
            frame_no = np.where(stay, np.int32(-1), frame_no)  # a stale number: theirs is not carried out
        request = {"env_id": self.envs.env_ids, "frame_no": frame_no, "action": self._action(actions)}
        self._table, reward = self.envs.step(request)
        table = self._table
        ends = table["terminated"].astype(bool), table["truncated"].astype(bool)
        return self._observation(table["observation"]), reward["reward"], *ends, self._info(table["extra_info"])

    def _observation(self, observation: dict[str, np.ndarray]) -> Observed:
        return observation if self.flat is None else self.flat.observe(observation)

    def _action(self, actions: ArrayLike | Mapping[str, ArrayLike]) -> FieldValues:
        if self.flat is not None:
            return self.flat.act(np.asarray(actions), self._table["observation"])
        fields = self.envs.action.fields
        if len(fields) > 1:
            return dict(cast("Mapping[str, ArrayLike]", actions))  # anything else raises TypeError or ValueError
        if self._scaled is None:
            return {fields[0].name: cast("ArrayLike", actions)}
        return {fields[0].name: scaled_action(fields[0], np.asarray(actions))}

    def _info(self, extra: ExtraInfo) -> ExtraInfo:
        """Return ``info`` in Gymnasium's form: a value that not every environment has comes with a mask."""
        info = dict(extra)
        final = info.pop("final", None)
        if final is None:
            return info
        index, mask = final["index"], np.zeros(self.num_envs, bool)
        mask[index] = True
        observed = self._observation(final["observation"])
        info["final_obs"] = np.full(self.num_envs, None, object)
        for place, env in enumerate(index.tolist()):
            info["final_obs"][env] = (
                {name: value[place] for name, value in observed.items()}
                if isinstance(observed, dict)
                else observed[place]
            )
        facts = {"success": final["success"], "is_success": final["success"], "broken": final["broken"]}
        figures = {name: self._spread(index, value) for name, value in final["metrics"].items()}
        info["final_info"] = {name: self._spread(index, value) for name, value in facts.items()} | {"metrics": figures}
        if "images" in final:
            images = {name: self._spread(index, value) for name, value in final["images"].items()}
            info["final_info"]["images"] = images
        info["_final_obs"], info["_final_info"] = mask, mask.copy()
        return info

    def _spread(self, index: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Spread the values of some environments over an array of all; zero elsewhere."""
        everyone = np.zeros((self.num_envs, *values.shape[1:]), values.dtype)
        everyone[index] = values
        return everyone

    def close_extras(self, **kwargs: object) -> None:
        """Close the batch; Gymnasium calls this once from ``close``."""
        self.envs.close()


def to_gymnasium_vector(
    envs: VectorEnvironment, *, flat: FlattenObservation | None = None, normalise: bool = True
) -> GymnasiumVectorEnv:
    """Adapt a batch; the arguments are those of `GymnasiumVectorEnv`.

    Raises:
        TypeError: it is something else, such as a single environment.
    """
    if not isinstance(envs, VectorEnvironment):
        raise TypeError(f"to_gymnasium_vector takes what make_vector gives, not a {type(envs).__name__}")
    return GymnasiumVectorEnv(envs, flat, normalise)
