"""An `Environment` as a `gymnasium.Env`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from hal import Field, IllegalAction, Spec
from rlenv_robot.environment import Environment

__all__ = ["GymnasiumEnv", "space_of", "to_gymnasium"]


def space_of(spec: Spec) -> spaces.Dict:
    """A `Dict` space with a `Box` for every field, in the field's own range and dtype."""
    return spaces.Dict({field.name: _box(field) for field in spec})


def _box(field: Field) -> spaces.Box:
    low, high = (bound.copy() for bound in field.bounds)
    if field.numpy_dtype.kind == "f":  # the field's bounds are finite; an open side is infinite in a Box
        low[np.isinf(_spread(field, field.low))] = -np.inf
        high[np.isinf(_spread(field, field.high))] = np.inf
    return spaces.Box(low, high, field.shape, np.dtype(field.dtype).type)


def _spread(field: Field, bound: Any) -> np.ndarray:
    return np.broadcast_to(np.reshape(bound, field.shape if np.ndim(bound) else ()), field.shape)


class GymnasiumEnv(gymnasium.Env[Any, Any]):
    """Gymnasium's interface. What the tables carry beyond it is in ``info``.

    The action space is one `Box` in [-1, 1] that is scaled to the range of the only action field
    (``normalise=True``, what trainers expect), one `Discrete` for a single whole number, or a `Dict`.
    An illegal action is answered as the standard says: same observation, reward 0, ``info["error"]``.

    Args:
        env: what is adapted; owned from now on.
        normalise: scale actions to [-1, 1]; needs one float field with finite ends.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  (Gymnasium's own declaration)

    def __init__(self, env: Environment, normalise: bool = True, render_mode: str | None = None) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}, allowed are None and 'rgb_array'")
        self.env, self.render_mode = env, render_mode
        self.observation_space = space_of(env.observation)
        self._only = env.action.fields[0] if len(env.action) == 1 else None
        self._scaled = bool(normalise and self._only is not None and self._only.numpy_dtype.kind == "f")
        self.action_space = self._action_space()
        if self._scaled and self._only is not None:
            self._only_scaled = replace(self._only, low=-1.0, high=1.0, unit="1")
        self._frame_no = 0

    def _action_space(self) -> spaces.Space[Any]:
        field = self._only
        if field is None:
            return space_of(self.env.action)
        if self._scaled:
            if not np.isfinite([*np.ravel(field.low), *np.ravel(field.high)]).all():
                raise ValueError(f"action {field.name!r} has no finite range to scale; use normalise=False")
            return spaces.Box(-1.0, 1.0, field.shape, np.dtype(field.dtype).type)
        if field.shape == () and field.numpy_dtype.kind != "f":
            low, high = (int(bound) for bound in field.bounds)
            return spaces.Discrete(high - low + 1, start=low)
        return _box(field)

    def _action(self, action: Any) -> Any:
        """Table 2's action.

        Raises:
            IllegalAction: it is to be scaled, and no array in [-1, 1] of the right shape.
        """
        field = self._only
        if field is None:
            return action
        if not self._scaled:
            return {field.name: action}
        share = (self._only_scaled.validate(action, "action").astype(np.float64) + 1) / 2
        low, high = field.bounds
        value = (low * (1 - share) + high * share).astype(field.numpy_dtype)  # so that -1 and 1 hit the ends exactly
        return {field.name: np.clip(value, low, high)}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Gymnasium's reset; ``options`` are the environment's own."""
        super().reset(seed=seed)
        wanted = dict(options or {})
        if seed is not None:
            wanted["seed"] = seed
        table = self.env.reset(wanted)
        self._frame_no = table["frame_no"]
        return dict(table["observation"]), self._info(table)

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Gymnasium's step."""
        try:
            values = self._action(action)
        except IllegalAction as refused:  # in the scaled units that the caller knows
            table, reward = self.env.refuse(refused.violation)
        else:
            request = {"env_id": self.env.env_id, "frame_no": self._frame_no, "action": values}
            table, reward = self.env.step(request)
        self._frame_no = table["frame_no"]
        ends = bool(table["terminated"]), bool(table["truncated"])
        return dict(table["observation"]), reward["reward"], *ends, self._info(table)

    @staticmethod
    def _info(table: Any) -> dict[str, Any]:
        info = dict(table["extra_info"])
        if "success" in info:
            info["is_success"] = info["success"]
        return info

    def render(self) -> Any:
        """The picture of the present state, if made with ``render_mode="rgb_array"``."""
        return self.env.world.picture({}) if self.render_mode else None

    def close(self) -> None:
        """Close the adapted environment."""
        self.env.close()


def to_gymnasium(env: Environment, *, normalise: bool = True, render_mode: str | None = None) -> GymnasiumEnv:
    """See `GymnasiumEnv`."""
    return GymnasiumEnv(env, normalise, render_mode)
