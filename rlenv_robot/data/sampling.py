"""The TD errors that a training has told, and the chances that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hal import SourceError
from recorder.table.sampler import Draw, PrioritizedSampler, advantages, priorities, returns_to_go, td_priorities
from recorder.table.transitions import Transitions
from rlenv_robot.data.filters import has_discarded, need_rewards, select
from rlenv_robot.data.options import FILTERS, STEPS, TRAJECTORIES, read

__all__ = ["Ahead", "Draws", "Picked", "TdErrors"]


class TdErrors:
    """One error a transition, in single precision.

    A transition without one counts as the largest error that was told since the start, or 1 before any: so
    each is seen soon (Schaul et al. 2016, algorithm 1).

    Args:
        count: number of transitions, N.
    """

    def __init__(self, count: int) -> None:
        # Made when it is needed: 4 bytes a transition, NaN where none was told.
        self._count = count
        self._error: np.ndarray | None = None
        self._largest = 1.0
        self._unseen = count

    def update(self, where: np.ndarray, errors: np.ndarray) -> bool:
        """Remember errors from 0 at positions, (B,) each; of a position that comes twice, the last counts.

        Returns:
            Whether the chances of transitions without an error changed by that.
        """
        known = self._known()
        if not self._unseen:
            known[where] = errors
            return False
        first = self._unseen == self._count
        self._unseen -= len(np.unique(where[np.isnan(known[where])]))
        known[where] = errors
        before, highest = self._largest, float(errors.max())
        self._largest = highest if first else max(before, highest)
        return self._unseen > 0 and self._largest != before

    def chances(self, part: np.ndarray | range, alpha: float) -> PrioritizedSampler:
        """The chances of positions, in order, or of all."""

        def some(begin: int, end: int) -> np.ndarray:
            if self._error is None:
                return self.priorities(np.full(end - begin, np.nan), alpha)
            known = self._error[begin:end] if isinstance(part, range) else self._error[part[begin:end]]
            return self.priorities(known, alpha)

        return PrioritizedSampler(len(part), some)

    def priorities(self, errors: np.ndarray, alpha: float) -> np.ndarray:
        """Chances of errors from 0, (B,); NaN where there is none yet."""
        if not self._unseen:
            return td_priorities(np.asarray(errors, float), alpha)
        known = errors.astype(float)
        known[np.isnan(known)] = self._largest
        return td_priorities(known, alpha)

    def _known(self) -> np.ndarray:
        if self._error is None:
            self._error = np.full(self._count, np.nan, np.float32)
        return self._error


# -- Draws made many at a time and handed out batch by batch, since a draw's fixed cost is most of its cost --


_LARGEST = 1 << 14


class Picked(NamedTuple):
    """What was drawn; each with a leading axis (B,).

    Attributes:
        positions: of transitions, or numbers of episodes.
        weights: importance weights.
        extra: what the function given to `Ahead` made of the positions, or None.
    """

    positions: np.ndarray
    weights: np.ndarray
    extra: np.ndarray | None


class Ahead:
    """Hands out draws with replacement.

    A block of draws is made at a time, twice as large each time, so that a request that comes once costs no more
    than it must.

    Args:
        draw: what is drawn from.
        rng: where chance comes from.
        beta: see `recorder.table.sampler.Draw.take`.
        prepare: made of the positions of a block at once, (B,) to (B, ...); None for nothing.
    """

    def __init__(
        self,
        draw: Draw,
        rng: np.random.Generator,
        beta: float,
        prepare: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self._draw, self._rng, self._beta, self._prepare = draw, rng, beta, prepare
        self._at, self._block = 0, 0
        self._made = Picked(np.empty(0, np.int64), np.empty(0), None)

    def take(self, size: int) -> Picked:
        """The next ``size`` draws."""
        begin = self._at
        end = self._at = begin + size
        if end > self._block:
            self._refill(size)
            begin, end = 0, size
        index, weights, extra = self._made
        return Picked(index[begin:end], weights[begin:end], None if extra is None else extra[begin:end])

    def forget(self) -> None:
        """Hand out nothing more of what was drawn before the chances changed."""
        self._at = self._block = 0

    def _refill(self, size: int) -> None:
        block = max(size, min(2 * self._block, _LARGEST))
        index, weights = self._draw.take(self._rng, block, self._beta)
        extra = None if self._prepare is None else self._prepare(index)
        self._made, self._block, self._at = Picked(index, weights, extra), block, size


# -- What a request for samples draws from: filters and priorities made into chances, and remembered ---------


_highest = np.maximum.reduce  # what the method of that name calls, at two thirds of its time

_REMEMBERED = 4
"""Requests whose selection is kept, since training asks the same thing over and over."""


class _Kept(NamedTuple):
    """A request that was understood: its options, what it draws from, and draws made ahead."""

    options: dict[str, Any]
    draw: Draw
    ahead: Ahead


class Draws:
    """Draws positions and episodes.

    Args:
        transitions: all of them.
        discount: of one step.
        seed: of all drawing; None for another chance each time.
        prepare: made of the positions of steps, see `rlenv_robot.data.sampling.Ahead`.
    """

    def __init__(
        self,
        transitions: Transitions,
        discount: float,
        seed: int | None,
        prepare: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self._transitions, self._discount, self._prepare = transitions, discount, prepare
        self._rng = np.random.default_rng(seed)
        self._errors = TdErrors(len(transitions))
        self._kept: dict[Any, _Kept] = {}

    def steps(self, size: int, extra_info: Mapping[str, Any]) -> tuple[Picked, dict[str, Any]]:
        """What was drawn, and the checked options.

        Raises:
            SourceError: an option is unknown or wrong, needs what was not recorded, or leaves nothing.
        """
        return self._take("sample_steps", size, extra_info, self._make_steps)

    def episodes(self, size: int, extra_info: Mapping[str, Any]) -> tuple[Picked, dict[str, Any]]:
        """Episodes' numbers and weights, and the checked options.

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
    ) -> tuple[Picked, dict[str, Any]]:
        key = (function, _key(extra_info) if extra_info else ())
        kept = self._kept.get(key)
        if kept is None:
            kept = self._keep(key, *make(extra_info))
        if kept.options.get("replace", True):
            return kept.ahead.take(size), kept.options
        if size > len(kept.draw.positions):
            raise SourceError(
                f"{function}: replace is False, {size} were asked for and there are {len(kept.draw.positions)}"
            )
        index, weights = kept.draw.take(self._rng, size, kept.options.get("beta", 0.0), replace=False)
        return Picked(index, weights, None), kept.options

    def _keep(self, key: Any, options: dict[str, Any], draw: Draw) -> _Kept:
        while len(self._kept) >= _REMEMBERED:
            self._kept.pop(next(iter(self._kept)))
        prepare = self._prepare if key[0] == "sample_steps" else None
        kept = self._kept[key] = _Kept(options, draw, Ahead(draw, self._rng, options.get("beta", 0.0), prepare))
        return kept

    def _make_steps(self, extra_info: Mapping[str, Any]) -> tuple[dict[str, Any], Draw]:
        options = read(extra_info, STEPS, "sample_steps")
        part = self._part(options)
        priority, alpha = options.get("priority"), options.get("alpha", 1.0)
        if priority is None:
            return options, Draw(part)
        if priority == "td_error":
            return options, Draw(part, self._errors.chances(part, alpha))
        score = self._score(priority)
        return options, Draw(part, priorities(score if isinstance(part, range) else score[part], alpha))

    def _part(self, options: Mapping[str, Any]) -> np.ndarray | range:
        """What passes the filters; without one, all transitions, whose list need not be written down."""
        if any(name in options for name in FILTERS) or has_discarded(self._transitions):
            return select(self._transitions, options)
        return range(len(self._transitions))

    def _score(self, priority: str) -> np.ndarray:
        """What the chances of all transitions follow, (N,)."""
        need_rewards(self._transitions, f"priority={priority!r}")
        if priority == "reward":
            return np.asarray(self._transitions.facts["reward"])
        if priority == "return":
            return returns_to_go(self._transitions, self._discount)
        return np.asarray(np.maximum(advantages(self._transitions, self._discount), 0.0))

    def _make_episodes(self, extra_info: Mapping[str, Any]) -> tuple[dict[str, Any], Draw]:
        options = read(extra_info, TRAJECTORIES, "sample_trajectories")
        if "length" in options:
            return options, self._pieces(options)
        numbers = np.unique(self._transitions.facts["episode"][select(self._transitions, options)])
        if options.get("priority") is None:
            return options, Draw(numbers)
        need_rewards(self._transitions, "priority='return'")
        return options, Draw(numbers, priorities(self._transitions.returns[numbers], options.get("alpha", 1.0)))

    def _pieces(self, options: Mapping[str, Any]) -> Draw:
        """Positions at which a piece may begin: as many transitions follow one another from there on."""
        part = np.asarray(self._part(options))
        starts = part[part + options["length"] <= self._transitions.spans(part)[1]]
        if not len(starts):
            raise SourceError(
                f"sample_trajectories: no {options['length']} steps follow one another in "
                f"{self._transitions.table.origin}, as length asks; the longest episode among them has "
                f"{self._transitions.lengths.max()}"
            )
        if options.get("priority") is None:
            return Draw(starts)
        need_rewards(self._transitions, "priority='return'")
        returns = self._transitions.returns[self._transitions.places(starts).episode]
        return Draw(starts, priorities(returns, options.get("alpha", 1.0)))

    @property
    def rng(self) -> np.random.Generator:
        """Where all chance comes from."""
        return self._rng

    def update(self, index: Any, td_error: Any) -> None:
        """See `rlenv_robot.source.SourceData.update_priorities`."""
        where, errors = np.asarray(index), np.asarray(td_error, float)
        if where.ndim != 1 or where.shape != errors.shape or where.dtype.kind not in "iu":
            raise SourceError(
                f"update_priorities: index is {where.dtype} of shape {where.shape}, td_error has shape "
                f"{errors.shape}; wanted are whole numbers and numbers of one shape (B,)"
            )
        # A sum of squares is finite only if all are, at a quarter of the cost; a finite one may still overflow.
        if not errors.dot(errors) < np.inf and not np.isfinite(errors).all():
            raise SourceError(f"update_priorities: {np.sum(~np.isfinite(errors))} TD errors are NaN or infinite")
        if not len(where):
            return
        size, where = len(self._transitions), where.astype(np.int64, copy=False)
        if _highest(where.view(np.uint64)) >= size:  # a negative one is larger than any size
            wrong = where[(where < 0) | (where >= size)]
            raise SourceError(f"update_priorities: index {wrong[0]}, allowed are 0 to {size - 1}")
        self._tell(where, np.abs(errors))

    def _tell(self, where: np.ndarray, errors: np.ndarray) -> None:
        """Remember errors, and change the chances of all that draws by them."""
        grown = self._errors.update(where, errors)
        for key, kept in list(self._kept.items()):
            if kept.options.get("priority") != "td_error":
                continue
            if grown:  # what has no error yet counts as the largest one: all of that changes
                del self._kept[key]
            else:
                kept.draw.update(where, self._errors.priorities(errors, kept.options.get("alpha", 1.0)))
                kept.ahead.forget()


def _key(extra_info: Mapping[str, Any]) -> Any:
    """What a request is remembered by; mostly a few words and numbers."""
    try:
        values = tuple(extra_info.values())
        if all(value.__class__ in _PLAIN for value in values):
            return (tuple(extra_info), values, tuple(map(type, values)))  # since 1 == 1.0 == True
    except AttributeError:  # no mapping: whoever reads the options says so
        pass
    return _frozen(extra_info)


_PLAIN = frozenset({str, int, float, bool, type(None)})


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
