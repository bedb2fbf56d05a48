"""What a request for samples draws from: filters and priorities made into chances, and remembered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hal import SourceError
from recorder.sampling import Draw, advantages, priorities, returns_to_go, td_priorities
from recorder.transitions import Transitions
from rlenv_robot.data.filters import need_rewards, select
from rlenv_robot.data.options import STEPS, TRAJECTORIES, read

__all__ = ["Draws"]

_REMEMBERED = 4
"""Requests whose selection is kept, since training asks the same thing over and over."""


class Draws:
    """Draws positions and episodes.

    Args:
        transitions: all of them.
        discount: of one step.
        seed: of all drawing; None for another chance each time.
    """

    def __init__(self, transitions: Transitions, discount: float, seed: int | None) -> None:
        self._transitions, self._discount = transitions, discount
        self._rng = np.random.default_rng(seed)
        self._td_error = np.full(len(transitions), np.nan)
        self._kept: dict[Any, tuple[dict[str, Any], Draw]] = {}

    def steps(self, size: int, extra_info: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Positions (B,), weights (B,), and the checked options.

        Raises:
            SourceError: an option is unknown or wrong, needs what was not recorded, or leaves nothing.
        """
        return self._take("sample_steps", size, extra_info, self._make_steps)

    def episodes(self, size: int, extra_info: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Episodes' numbers (B,), weights (B,), and the checked options.

        Raises:
            SourceError: as `steps`.
        """
        return self._take("sample_trajectories", size, extra_info, self._make_episodes)

    def _take(
        self,
        function: str,
        size: int,
        extra_info: Mapping[str, Any],
        make: Callable[[Mapping[str, Any]], tuple[dict[str, Any], Draw]],
    ) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        key = (function, _frozen(extra_info))
        if key not in self._kept:
            made = make(extra_info)
            while len(self._kept) >= _REMEMBERED:
                self._kept.pop(next(iter(self._kept)))
            self._kept[key] = made
        options, draw = self._kept[key]
        replace = options.get("replace", True)
        if not replace and size > len(draw.positions):
            raise SourceError(
                f"{function}: replace is False, {size} were asked for and there are {len(draw.positions)}"
            )
        index, weights = draw.take(self._rng, size, options.get("beta", 0.0), replace)
        return index, weights, options

    def _make_steps(self, extra_info: Mapping[str, Any]) -> tuple[dict[str, Any], Draw]:
        options = read(extra_info, STEPS, "sample_steps")
        part = select(self._transitions, options)
        score = self._score(options.get("priority"))
        alpha = options.get("alpha", 1.0)
        if score is None:
            return options, Draw(part)
        chances = td_priorities if options["priority"] == "td_error" else priorities
        return options, Draw(part, chances(score[part], alpha))

    def _score(self, priority: str | None) -> np.ndarray | None:
        """What the chances of all transitions follow, (N,)."""
        if priority is None:
            return None
        if priority == "td_error":
            return self._td_error
        need_rewards(self._transitions, f"priority={priority!r}")
        if priority == "reward":
            return np.asarray(self._transitions.facts["reward"])
        if priority == "return":
            return returns_to_go(self._transitions, self._discount)
        return np.asarray(np.maximum(advantages(self._transitions, self._discount), 0.0))

    def _make_episodes(self, extra_info: Mapping[str, Any]) -> tuple[dict[str, Any], Draw]:
        options = read(extra_info, TRAJECTORIES, "sample_trajectories")
        numbers = np.unique(self._transitions.facts["episode"][select(self._transitions, options)])
        if options.get("priority") is None:
            return options, Draw(numbers)
        need_rewards(self._transitions, "priority='return'")
        return options, Draw(numbers, priorities(self._transitions.returns[numbers], options.get("alpha", 1.0)))

    def update(self, index: Any, td_error: Any) -> None:
        """See `rlenv_robot.source.SourceData.update_priorities`."""
        where, errors = np.asarray(index), np.asarray(td_error, float)
        if where.ndim != 1 or where.shape != errors.shape or where.dtype.kind not in "iu":
            raise SourceError(
                f"update_priorities: index is {where.dtype} of shape {where.shape}, td_error has shape "
                f"{errors.shape}; wanted are whole numbers and numbers of one shape (B,)"
            )
        if not np.isfinite(errors).all():
            raise SourceError(f"update_priorities: {np.sum(~np.isfinite(errors))} TD errors are NaN or infinite")
        wrong = where[(where < 0) | (where >= len(self._td_error))]
        if len(wrong):
            raise SourceError(f"update_priorities: index {wrong[0]}, allowed are 0 to {len(self._td_error) - 1}")
        self._td_error[where] = np.abs(errors)
        self._kept = {key: kept for key, kept in self._kept.items() if kept[0].get("priority") != "td_error"}


def _frozen(value: Any) -> Any:
    """Something hashable that is equal where the options are equal."""
    if isinstance(value, Mapping):
        return tuple((name, _frozen(one)) for name, one in value.items())
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_frozen(one) for one in value)
    if value is None or isinstance(value, str | int | float | np.number):
        return (type(value), value)
    return repr(value)
