"""Adapt a `VectorEnvironment` to `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

try:
    from gymnasium.vector import AutoresetMode, VectorEnv
except ImportError:
    from rlenv_robot.adapters.gymnasium_version import check_version

    check_version(gymnasium.__version__)  # names the version that is needed
    raise

from hal import Field, IllegalAction, Violation
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.adapters.gymnasium import Observed, OutOfRange, clipped, is_clip, is_number, scaled_action, spaces_of
from rlenv_robot.tables import BatchObservationTable, ExtraInfo, FieldValues, Options, Rewards
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["GymnasiumVectorEnv", "to_gymnasium_vector"]

_MODES = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}


class GymnasiumVectorEnv(VectorEnv[Observed, Any, Any]):
    """Adapt a native batch to Gymnasium's vector interface, without copying what the batch made for the caller.

    Without ``flat``, observation and action are as in `GymnasiumEnv` with a leading axis: N of those in a
    `SyncVectorEnv` give the same numbers. With it they are its vectors.
    ``metadata["autoreset_mode"]`` is that of the batch. A finished environment's last observation is in
    ``info["final_obs"]``; its success, metrics and images are in ``info["final_info"]``, both with Gymnasium's masks.

    An action out of range is refused as in `GymnasiumEnv`: it counts towards the time limit, and the first one causes a
    warning. From then on ``info["illegal_share"]``, (N,), is the share of such actions in each running episode; that of
    a finished episode is in ``info["final_info"]``.

    Args:
        envs: the batch to adapt, which the adapter owns from now on.
        flat: converts observations and actions to vectors.
        normalise: without ``flat``: scale a single action field to [-1, 1].
        out_of_range: as for `GymnasiumEnv`.
    """

    def __init__(
        self,
        envs: VectorEnvironment,
        flat: FlattenObservation | None = None,
        normalise: bool = True,
        out_of_range: OutOfRange = "refuse",
    ) -> None:
        self.envs, self.flat, self.num_envs = envs, flat, envs.num_envs
        self._clips = is_clip(out_of_range)
        self._actions = self._illegal = 0
        envs.count_refusals, self._warned = True, False
        self.metadata = {"autoreset_mode": _MODES[envs.autoreset]}
        self.single_observation_space, self.single_action_space, self._scaled = spaces_of(envs, flat, normalise)
        self._numbers = {field.name for field in envs.observation if is_number(field)}
        texts = [field.name for spec in (envs.observation, envs.action) for field in spec if field.is_text]
        if flat is None and texts:
            raise ValueError(f"{texts[0]!r} is a text, of which Gymnasium has no batch; use the tables of the batch")
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._table: BatchObservationTable

    @property
    def illegal_share(self) -> float:
        """The share of out-of-range actions among all actions since the adapter was made."""
        return self._illegal / max(self._actions, 1)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: Options | None = None
    ) -> tuple[Observed, ExtraInfo]:
        """Begin an episode in all environments, or in those of ``options["reset_mask"]`` (bool, shape (N,)).

        Args:
            seed: one number; environment i draws from (seed, i, episode). A list is refused.
            options: ``reset_mask`` only.

        Raises:
            ValueError: the seed or an option is not allowed.
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
                raise ValueError(f"reset_mask is {mask!r}, expected a bool array of shape ({self.num_envs},)")
            request["ids"] = np.flatnonzero(mask)
        self._table = self.envs.reset(request)
        return self._observation(self._table["observation"]), self._info(self._table["extra_info"])

    def step(
        self, actions: ArrayLike | Mapping[str, ArrayLike]
    ) -> tuple[Observed, Rewards, np.ndarray, np.ndarray, ExtraInfo]:
        """Step all environments; return observations, rewards (float64), terminated, truncated (bool) and info.

        Raises:
            IllegalAction: the batch as a whole is malformed. ``info["error"]`` names a single illegal action.
        """
        return self.step_some(None, actions)

    def step_some(
        self, ids: np.ndarray | None, actions: ArrayLike | Mapping[str, ArrayLike]
    ) -> tuple[Observed, Rewards, np.ndarray, np.ndarray, ExtraInfo]:
        """Step some environments while the others stay. Actions and all results have N rows.

        Args:
            ids: numbers of the environments to step; None for all.
            actions: with a leading axis of N; rows of other environments are ignored, but must have the right shape.

        Raises:
            IllegalAction: an action of the stepped environments is not finite; nothing moved.
        """
        if self._clips and self._scaled is not None:
            actions = cast("ArrayLike", clipped(actions))
        refused = (
            {} if self.flat is None or self._scaled is None else self._beyond(np.asarray(actions), self._scaled, ids)
        )
        frame_no, values = self._table["frame_no"], self._action(actions)
        for name, value in values.items():
            _check_finite(name, np.asarray(value), ids)
        if ids is not None:
            stay = np.ones(self.num_envs, bool)
            stay[ids] = False
            frame_no = np.where(stay, np.int32(-1), frame_no)  # a stale number: theirs is not carried out
        request = {"env_id": self.envs.env_ids, "frame_no": frame_no, "action": values}
        self._table, reward = self.envs.step(request, refused=refused)
        self._actions += self.num_envs if ids is None else len(ids)
        table = self._table
        ends = table["terminated"].astype(bool), table["truncated"].astype(bool)
        info = self._info(table["extra_info"])
        self._tell_refusals(info)
        return self._observation(table["observation"]), reward["reward"], *ends, info

    def _beyond(self, vectors: np.ndarray, vector: Field, ids: np.ndarray | None) -> dict[int, Violation]:
        """Return what is wrong with each vector that is not in [-1, 1], by row; `flat` alone would cut it off."""
        if vectors.shape != (self.num_envs, *vector.shape):
            expected = f"expected {(self.num_envs, *vector.shape)}"
            raise IllegalAction(Violation("shape", "action", (), f"action has shape {vectors.shape}, {expected}"))
        _check_finite("vector", vectors, ids)
        beyond = np.abs(vectors.astype(np.float32, copy=False)).max(axis=1) > 1.0
        rows = np.flatnonzero(beyond) if ids is None else ids[beyond[ids]]
        return {row: _violation(vector, vectors[row]) for row in rows.tolist()}

    def _tell_refusals(self, info: ExtraInfo) -> None:
        """Warn of the first action out of range, and add the share of such actions to ``info``."""
        errors = {row: error for row, error in info.get("error", {}).items() if error["code"] == "range"}
        self._illegal += len(errors)
        if errors and not self._warned:
            self._warned = True
            row, error = next(iter(errors.items()))
            warnings.warn(f"an illegal action of environment {row} was refused, it did not move: {error['message']}",
                          stacklevel=4)  # fmt: skip
        refusals = self.envs.refusals
        if refusals.any():
            info["illegal_share"] = refusals / np.maximum(self._table["frame_no"] + refusals, 1)

    def _observation(self, observation: dict[str, np.ndarray]) -> Observed:
        if self.flat is not None:
            return self.flat.observe(observation)
        return {name: value[:, None] if name in self._numbers else value for name, value in observation.items()}

    def _action(self, actions: ArrayLike | Mapping[str, ArrayLike]) -> FieldValues:
        if self.flat is not None:
            return self.flat.act(np.asarray(actions), self._table["observation"])  # a row beyond 1 is refused
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
        if final["refusals"].any():
            facts["illegal_share"] = final["refusals"] / np.maximum(final["frame_no"] + final["refusals"], 1)
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
    envs: VectorEnvironment,
    *,
    flat: FlattenObservation | None = None,
    normalise: bool = True,
    out_of_range: OutOfRange = "refuse",
) -> GymnasiumVectorEnv:
    """Adapt a batch; the arguments are those of `GymnasiumVectorEnv`.

    Raises:
        TypeError: ``envs`` is something else, such as a single environment.
    """
    if not isinstance(envs, VectorEnvironment):
        raise TypeError(f"to_gymnasium_vector got a {type(envs).__name__}, expected a VectorEnvironment (make_vector)")
    return GymnasiumVectorEnv(envs, flat, normalise, out_of_range)


def _check_finite(name: str, values: np.ndarray, ids: np.ndarray | None) -> None:
    """Refuse actions that no legal policy chooses: a policy of NaN would train in silence."""
    if values.dtype.kind != "f" or not values.ndim:
        return
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if finite.all() or (ids is not None and finite[ids].all()):
        return
    broken = np.flatnonzero(~finite) if ids is None else np.asarray(ids)[~finite[ids]]
    message = f"action.{name} of environment {int(broken[0])} is not a finite number; nothing moved"
    raise IllegalAction(Violation("not_finite", f"action.{name}", (int(broken[0]),), message))


def _violation(field: Field, value: np.ndarray) -> Violation:
    try:
        field.validate(value, "action")
    except IllegalAction as refused:
        return refused.violation
    raise AssertionError(f"{field.name} was refused without a reason")
