"""Adapt an `Environment` to `gymnasium.Env`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast, get_args

import gymnasium
import numpy as np
from gymnasium import spaces

from hal import Field, IllegalAction, Spec, SpecMismatch, Violation
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.env import Environment
from rlenv_robot.tables import ExtraInfo, ObservationTable, Options
from rlenv_robot.tasks.agents import agents_of
from rlenv_robot.vector.env import VectorEnvironment
from rlenv_robot.world import ACTION_MASK

__all__ = [
    "FieldSpace", "GymnasiumEnv", "Observed", "OutOfRange", "action_space_of", "check_flat", "clipped", "flat_spaces",
    "is_clip", "is_number", "observation_space_of", "scaled_action", "space_of", "spaces_of", "to_gymnasium",
]  # fmt: skip

FieldSpace: TypeAlias = spaces.Box | spaces.Discrete | spaces.Dict | spaces.Text
"""The spaces of observations and actions."""

Observed: TypeAlias = np.ndarray | dict[str, np.ndarray]
"""An observation: a vector with ``flat``, else fields by name."""

OutOfRange: TypeAlias = Literal["refuse", "clip"]
"""The response to elements of a vector or scaled action outside [-1, 1]."""


def space_of(spec: Spec) -> spaces.Dict:
    """Return a `Dict` space with a `Box` in the range and dtype of each field, or a `Text` for a text.

    Raises:
        ValueError: a field is an array of texts, which no space describes.
    """
    return spaces.Dict({field.name: _text(field) if field.is_text else _box(field) for field in spec})


class _AnyText(spaces.Text):
    """Texts of any characters; Gymnasium's own space needs a list of them."""

    def contains(self, x: object) -> bool:
        """Return whether a value is a text that is not too long."""
        return isinstance(x, str) and len(x) <= self.max_length


def _text(field: Field) -> _AnyText:
    if field.shape:
        raise ValueError(f"{field.name!r} is an array of texts, of which Gymnasium has no space; use the tables")
    return _AnyText(field.characters, min_length=0)


def observation_space_of(spec: Spec) -> spaces.Dict:
    """Return the space of an observation: as `space_of`, with a `Box` of shape (1,) for a single number.

    Stable-Baselines3 takes no `Box` of shape ().

    Raises:
        ValueError: as for `space_of`.
    """
    numbers = {field.name: _box(replace(field, shape=(1,))) for field in spec if is_number(field)}
    return spaces.Dict({**space_of(spec).spaces, **numbers})


def is_number(field: Field) -> bool:
    """Return whether a field is a single number, which becomes a `Box` of shape (1,)."""
    return not field.shape and not field.is_text


def _box(field: Field) -> spaces.Box:
    low, high = (bound.copy() for bound in field.bounds)
    if field.numpy_dtype.kind == "f":  # the field's bounds are finite; an open side is infinite in a Box
        low[np.isinf(_spread(field, field.low))] = -np.inf
        high[np.isinf(_spread(field, field.high))] = np.inf
    return spaces.Box(low, high, field.shape, np.dtype(field.dtype).type)


def _spread(field: Field, bound: float | tuple[float, ...]) -> np.ndarray:
    return np.broadcast_to(np.reshape(bound, field.shape if np.ndim(bound) else ()), field.shape)


def action_space_of(spec: Spec, normalise: bool = True) -> tuple[FieldSpace, Field | None]:
    """Return the space of an action, and its only field if it is scaled to [-1, 1].

    Raises:
        ValueError: the action must be scaled, but its range is not finite.
    """
    if len(spec) > 1:
        return space_of(spec), None
    field = spec.fields[0]
    if field.is_text:
        return _text(field), None
    if normalise and field.numpy_dtype.kind == "f":
        if not np.isfinite([*np.ravel(field.low), *np.ravel(field.high)]).all():
            raise ValueError(f"action {field.name!r} has no finite range to scale; use normalise=False")
        scaled = replace(field, low=-1.0, high=1.0, unit="1")
        return spaces.Box(-1.0, 1.0, field.shape, np.dtype(field.dtype).type), scaled
    if field.shape == () and field.numpy_dtype.kind != "f":
        low, high = (int(bound) for bound in field.bounds)
        return spaces.Discrete(high - low + 1, start=low), None
    return _box(field), None


def scaled_action(field: Field, action: np.ndarray) -> np.ndarray:
    """Scale an action from [-1, 1] to its field's range, with any leading axes; values outside stay out of range."""
    share = (action.astype(np.float64) + 1) / 2
    low, high = field.bounds
    value = (low * (1 - share) + high * share).astype(field.numpy_dtype)  # so that -1 and 1 hit the ends exactly
    return np.where((share >= 0) & (share <= 1), np.clip(value, low, high), value)


def flat_spaces(flat: FlattenObservation) -> tuple[spaces.Box, spaces.Box]:
    """Return the spaces of a `FlattenObservation`'s vectors: observation and action."""
    observed = spaces.Box(-flat.LIMIT, flat.LIMIT, (flat.size,), np.float32)
    return observed, spaces.Box(-1.0, 1.0, (flat.action_size,), np.float32)


def spaces_of(
    env: Environment | VectorEnvironment, flat: FlattenObservation | None, normalise: bool
) -> tuple[spaces.Box | spaces.Dict, FieldSpace, Field | None]:
    """Return the spaces of one environment's observation and action, and a vector's or a scaled action's field."""
    if flat is None:
        return observation_space_of(env.observation), *action_space_of(env.action, normalise)
    check_flat(flat, env.observation, env.action)
    return *flat_spaces(flat), Field("vector", (flat.action_size,), "float32", -1.0, 1.0)


def check_flat(flat: FlattenObservation, observation: Spec, action: Spec) -> None:
    """Refuse a `FlattenObservation` that was made for another environment.

    Raises:
        SpecMismatch: the specs differ; the error lists every difference.
        TypeError: ``flat`` is not a `FlattenObservation`.
    """
    if not isinstance(flat, FlattenObservation):
        raise TypeError(f"flat is a {type(flat).__name__}, allowed is a FlattenObservation: flat_for(task)")
    lines = [f"observation.{line}" for line in flat.observation.difference(observation)]
    lines += [f"action.{line}" for line in flat.action.difference(action)]
    if lines:
        raise SpecMismatch("these vectors (flat, here) are not of this environment (there)", lines)


class GymnasiumEnv(gymnasium.Env[Any, Any]):
    """Adapt an environment to Gymnasium. Further contents of its tables are in ``info``.

    With ``flat``, observations and actions are its vectors. Without it, the observation is a dictionary of fields, and
    the action space is one `Box` in [-1, 1] that is scaled to the range of the only action field (``normalise=True``,
    which trainers expect), one `Discrete` for a single integer, or a `Dict`.
    An action of a wrong shape or type, or with a NaN, raises an error, since training on it would fail silently. An
    action out of range is answered according to the standard: same observation, reward 0, ``info["error"]``. It counts
    towards the task's time limit, so that an episode of such actions ends. The first one of an episode causes a
    warning, and from then on ``info["illegal_share"]`` is the share of such actions in the episode.

    Args:
        env: the environment to adapt, which the adapter owns from now on.
        normalise: scale actions to [-1, 1]; needs one float field with a finite range.
        flat: converts observations and actions to vectors.
        out_of_range: ``clip`` clips vectors and scaled actions to [-1, 1], for a learner that draws from an unbounded
            distribution without clipping.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012  (Gymnasium's own declaration)

    def __init__(
        self,
        env: Environment,
        normalise: bool = True,
        render_mode: str | None = None,
        flat: FlattenObservation | None = None,
        out_of_range: OutOfRange = "refuse",
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode is {render_mode!r}, allowed are None and 'rgb_array'")
        if agents_of(env.world):
            raise ValueError(f"{env.world.name!r} has several agents: use to_pettingzoo")
        self.env, self.render_mode, self.flat = env, render_mode, flat
        self._clips = is_clip(out_of_range)
        self._texts = {field.name for field in env.observation if field.is_text}
        self._numbers = {field.name for field in env.observation if is_number(field)}
        self._only = env.action.fields[0] if len(env.action) == 1 else None
        self._observed: Mapping[str, np.ndarray] = {}
        self.observation_space, self.action_space, self._scaled = spaces_of(env, flat, normalise)
        self._frame_no = 0
        self._refused = 0
        self._mask: object = None
        self._limit: int | None = getattr(getattr(env.world, "task", None), "steps", None)

    def _action(self, action: object) -> object:
        """Return the action of Table 2.

        Raises:
            IllegalAction: it is to be scaled, and no array in [-1, 1] of the right shape.
        """
        if self._scaled is None:
            return action if self._only is None else {self._only.name: action}
        scaled = self._scaled.validate(clipped(action) if self._clips else action, "action")
        if self.flat is not None:
            return self.flat.act(scaled, self._observed)
        assert self._only is not None  # or there would be nothing to scale
        return {self._only.name: scaled_action(self._only, scaled)}

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> tuple[Observed, ExtraInfo]:
        """Reset the environment; ``options`` are the environment's options."""
        super().reset(seed=seed)
        table = self.env.reset({**(options or {}), **({} if seed is None else {"seed": seed})})
        self._frame_no, self._refused = table["frame_no"], 0
        return self._observation(table), self._info(table)

    def _observation(self, table: ObservationTable) -> Observed:
        self._observed = table["observation"]
        if self.flat is not None:
            return self.flat.observe(self._observed)
        return {
            name: value.item() if name in self._texts else value.reshape(1) if name in self._numbers else value
            for name, value in self._observed.items()
        }

    def step(self, action: object) -> tuple[Observed, float, bool, bool, ExtraInfo]:
        """Step the environment.

        Raises:
            IllegalAction: the shape or type is wrong, or a value is not finite; nothing moved.
        """
        try:
            values = self._action(action)
        except IllegalAction as refused:  # in the scaled units that the caller knows
            _raise_if_malformed(refused.violation.code, refused.violation.message)
            table, reward = self.env.refuse(refused.violation)
        else:
            request = {"env_id": self.env.env_id, "frame_no": self._frame_no, "action": values}
            table, reward = self.env.step(request)
        self._frame_no = table["frame_no"]
        ends, info = (bool(table["terminated"]), bool(table["truncated"])), self._info(table)
        if "error" in info or self._refused:
            ends = self._count_refused(ends, info)
        number = cast("float", reward["reward"])  # several agents, whose reward is a mapping, were refused
        return self._observation(table), number, *ends, info

    def _count_refused(self, ends: tuple[bool, bool], info: ExtraInfo) -> tuple[bool, bool]:
        """Count an action that was refused against the time limit; return the ends of the step."""
        error = info.get("error")
        if error is not None:
            _raise_if_malformed(error["code"], error["message"])
            if not self._refused:
                warnings.warn(f"an illegal action was refused, nothing moved: {error['message']}", stacklevel=3)
            self._refused += 1
        steps = self._frame_no + self._refused
        info["illegal_share"] = self._refused / steps
        if self._limit is not None and steps >= self._limit and not any(ends):
            info.setdefault("truncated_by", "time")
            return False, True
        return ends

    def action_masks(self) -> np.ndarray:
        """Return the legal actions, bool (n,), as MaskablePPO of SB3-Contrib requires.

        Raises:
            ValueError: the environment has no mask for a `Discrete` action.
        """
        if not isinstance(self._mask, np.ndarray):
            raise ValueError(f"{self.env.world.name!r} has no mask of a single Discrete action")
        return self._mask.astype(bool)

    def _info(self, table: ObservationTable) -> ExtraInfo:
        info = dict(table["extra_info"])
        if ACTION_MASK in info:
            if isinstance(self.action_space, spaces.Discrete):
                info[ACTION_MASK] = next(iter(info[ACTION_MASK].values())).astype(np.int8)  # as Gymnasium's own have it
            self._mask = info[ACTION_MASK]
        if "success" in info:
            info["is_success"] = info["success"]
        return info

    def render(self) -> np.ndarray | None:
        """Return an image of the present state if made with ``render_mode="rgb_array"``, else None."""
        return self.env.world.image({}) if self.render_mode else None

    def close(self) -> None:
        """Close the adapted environment."""
        self.env.close()


_MALFORMED = frozenset({"dtype", "shape", "not_finite", "missing", "unknown"})
"""Codes of violations that no legal policy commits."""


def _raise_if_malformed(code: str, message: str) -> None:
    if code in _MALFORMED:
        raise IllegalAction(Violation(code, "action", (), message))


def is_clip(out_of_range: str) -> bool:
    """Return whether elements out of range are clipped.

    Raises:
        ValueError: the name is unknown.
    """
    if out_of_range not in get_args(OutOfRange):
        raise ValueError(f"out_of_range is {out_of_range!r}, allowed are 'refuse' and 'clip'")
    return out_of_range == "clip"


def clipped(action: object) -> object:
    """Cut numbers off at -1 and 1; what is not finite, or no array of floats, stays to be refused."""
    array = np.asarray(action)
    return np.where(np.isfinite(array), np.clip(array, -1.0, 1.0), array) if array.dtype.kind == "f" else action


def to_gymnasium(
    env: Environment,
    *,
    normalise: bool = True,
    render_mode: str | None = None,
    flat: FlattenObservation | None = None,
    out_of_range: OutOfRange = "refuse",
) -> GymnasiumEnv:
    """Adapt an environment; the arguments are those of `GymnasiumEnv`.

    Raises:
        TypeError: ``env`` is something else, such as a batch.
    """
    if not isinstance(env, Environment):
        raise TypeError(
            f"to_gymnasium got a {type(env).__name__}, expected an Environment (make); "
            "for a batch use to_gymnasium_vector"
        )
    return GymnasiumEnv(env, normalise, render_mode, flat, out_of_range)
