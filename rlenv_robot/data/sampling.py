"""Draw transitions and episodes for `rlenv_robot.source.SourceData`.

The algorithm, for M transitions that pass the filters and batches of B:

1. **Request.** The options of a request are checked, its filters select M of the N positions, and its priority is
   converted to unnormalised probabilities. The result is a `SampleRequest`. The last four are cached by their options,
   since training repeats the same requests, so this O(N) step happens once.
2. **Draw.** Without priorities, positions are uniform integers. With priorities, `PrioritizedSampler`
   (`recorder.table.sampler`) draws in proportion: by rejection in O(1) per draw (von Neumann 1951), or by a sum tree in
   O(log M) if a few priorities outweigh all others (Schaul et al. 2016, "Prioritized Experience Replay",
   arXiv:1511.05952). Without replacement: exponential keys (Efraimidis and Spirakis 2006), O(M log M).
3. **Prefetch.** Most of a draw's cost is fixed, so `Prefetch` draws blocks ahead, each twice as large as the previous
   one up to 16,384, and returns slices. Everything that depends on positions only (the rows to gather) is computed for
   the whole block.
4. **Weights.** ``(M * P(i)) ** -beta`` divided by the largest such weight (Schaul et al. 2016, section 3.4).
5. **Feedback.** `RequestSampler.update` stores absolute TD errors and their probabilities, O(B), and discards the draws
   made ahead with the old ones. A transition without an error counts as the largest one so far (algorithm 1 there);
   when that grows, the requests that draw by TD errors are rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from hal import SourceError
from recorder.table.sampler import (
    Distribution,
    PrioritizedSampler,
    advantages,
    priorities,
    returns_to_go,
    score_sampler,
    td_priorities,
)
from recorder.table.selection import Selection, within
from recorder.table.transitions import Transitions
from rlenv_robot.data.filters import episodes_of, need_rewards, select
from rlenv_robot.data.options import STEPS, TRAJECTORIES, CheckedOptions, read
from rlenv_robot.tables import Options, TrajectoryTable

__all__ = [
    "PreferencePair", "Prefetch", "RequestSampler", "Sample", "SampleRequest", "TdErrors",
]  # fmt: skip

_REMEMBERED = 4
"""Requests that are remembered."""

_LARGEST_BLOCK = 1 << 14

_LATER = 64
"""Updates of TD errors after which they are stored; until then they only count in the samplers there are."""


class Sample(NamedTuple):
    """A drawn batch; each field has a leading axis (B,).

    Attributes:
        positions: the positions of transitions, or numbers of episodes; int64.
        weights: importance weights, float64.
        plan: result of the function given to `Prefetch` for these positions, or None.
    """

    positions: np.ndarray
    weights: np.ndarray
    plan: tuple[np.ndarray, ...] | None


class Prefetch:
    """Draw with replacement in blocks, and return slices of a block.

    Args:
        distribution: the distribution to draw from.
        rng: the random generator.
        beta: see `recorder.table.sampler.Distribution.sample`.
        prepare: computes arrays (B, ...) from a block's positions; None for none.
    """

    def __init__(
        self,
        distribution: Distribution,
        rng: np.random.Generator,
        beta: float,
        prepare: Callable[[np.ndarray], tuple[np.ndarray, ...]] | None = None,
    ) -> None:
        self._distribution, self._rng, self._beta, self._prepare = distribution, rng, beta, prepare
        self._next, self._size = 0, 0
        self._block = Sample(np.empty(0, np.int64), np.empty(0), None)

    def take(self, size: int) -> Sample:
        """Return the next ``size`` draws."""
        begin = self._next
        end = self._next = begin + size
        if end > self._size:
            self._refill(size)
            begin, end = 0, size
            if self._size == size:
                return self._block
        positions, weights, plan = self._block
        part = None if plan is None else tuple([array[begin:end] for array in plan])
        return Sample(positions[begin:end], weights[begin:end], part)

    def discard(self) -> None:
        """Discard the draws that were made before the probabilities changed."""
        self._next = self._size = 0

    def _refill(self, size: int) -> None:
        """Draw a block, twice as large as the last one: a request that comes once costs no more than it must."""
        count = max(size, min(2 * self._size, _LARGEST_BLOCK))
        positions, weights = self._distribution.sample(self._rng, count, self._beta)
        plan = None if self._prepare is None else self._prepare(positions)
        self._block, self._size, self._next = Sample(positions, weights, plan), count, size


class _Prepare(Protocol):
    """Computes arrays (B, ...) of positions (B,) of transitions, each of which stands for n steps."""

    def __call__(self, index: np.ndarray, /, n: int) -> tuple[np.ndarray, ...]:
        """Return the arrays."""
        ...


_Key = tuple[str, Hashable]
"""The called function, and its options in a hashable form."""


class SampleRequest(NamedTuple):
    """A request with checked options, the distribution that it draws from, and draws made ahead."""

    options: CheckedOptions
    distribution: Distribution
    prefetch: Prefetch


class RequestSampler:
    """Draw positions of transitions, and episodes, as requests specify.

    Args:
        transitions: the recorded transitions.
        discount: the discount of one step.
        seed: the seed of all draws; None for an unpredictable one.
        prepare: computes arrays for `Prefetch` from the positions of steps and the number of steps in each transition.
    """

    def __init__(
        self,
        transitions: Transitions,
        discount: float,
        seed: int | None,
        prepare: _Prepare | None = None,
    ) -> None:
        self._transitions, self._discount, self._prepare = transitions, discount, prepare
        self._rng = np.random.default_rng(seed)
        self._errors = TdErrors(len(transitions))
        self._requests: dict[_Key, SampleRequest] = {}

    @property
    def rng(self) -> np.random.Generator:
        """The generator of all draws."""
        return self._rng

    def steps(self, size: int, extra_info: Options) -> tuple[Sample, CheckedOptions]:
        """Draw transitions, and return them with the checked options.

        Raises:
            SourceError: an option is unknown or wrong, needs data that were not recorded, or leaves nothing.
        """
        return self._sample("sample_steps", size, extra_info, self._step_distribution)

    def episodes(self, size: int, extra_info: Options) -> tuple[Sample, CheckedOptions]:
        """Draw episodes, or the first positions of pieces with ``length``, and return them with the checked options.

        Raises:
            SourceError: an option is unknown or wrong, needs data that were not recorded, or leaves nothing.
        """
        return self._sample("sample_trajectories", size, extra_info, self._episode_distribution)

    def _sample(
        self,
        function: str,
        size: int,
        extra_info: Options,
        make: Callable[[Options], tuple[CheckedOptions, Distribution]],
    ) -> tuple[Sample, CheckedOptions]:
        key = (function, _request_key(extra_info))
        request = self._requests.get(key)
        if request is None:
            request = self._remember(key, *make(extra_info))
        if request.options.get("replace", True):
            return request.prefetch.take(size), request.options
        count = len(request.distribution.positions)
        if size > count:
            raise SourceError(f"{function}: replace is False, {size} were requested, {count} exist")
        beta = request.options.get("beta", 0.0)
        positions, weights = request.distribution.sample(self._rng, size, beta, replace=False)
        return Sample(positions, weights, None), request.options

    def _remember(self, key: _Key, options: CheckedOptions, distribution: Distribution) -> SampleRequest:
        while len(self._requests) >= _REMEMBERED:
            self._requests.pop(next(iter(self._requests)))
        prepare = None
        if key[0] == "sample_steps" and self._prepare is not None:
            prepare = partial(self._prepare, n=options.get("n_step", 1))
        prefetch = Prefetch(distribution, self._rng, options.get("beta", 0.0), prepare)
        request = self._requests[key] = SampleRequest(options, distribution, prefetch)
        return request

    # -- what a request draws from ---------------------------------------------------------------------------

    def _step_distribution(self, extra_info: Options) -> tuple[CheckedOptions, Distribution]:
        options = read(extra_info, STEPS, "sample_steps")
        positions = select(self._transitions, options)
        priority, alpha = options.get("priority"), options.get("alpha", 1.0)
        if priority is None:
            return options, Distribution(positions)
        if priority == "td_error":
            return options, Distribution(positions, self._errors.sampler(positions, alpha))
        score = self._score(priority, positions)

        def block(begin: int, end: int) -> np.ndarray:
            return np.asarray(score[positions.block(begin, end)])

        return options, Distribution(positions, score_sampler(len(positions), block, alpha))

    def _score(self, priority: str, positions: Selection) -> np.ndarray:
        """Return the score of every transition from which its priority follows, (N,); it counts at ``positions``."""
        need_rewards(self._transitions, f"priority={priority!r}", positions)
        if priority == "reward":
            return np.concatenate([reward for reward, _ in self._transitions.reward_blocks()])
        if priority == "return":
            return returns_to_go(self._transitions, self._discount)
        score = advantages(self._transitions, self._discount)
        return np.asarray(np.maximum(score, 0.0, out=score))

    def _episode_distribution(self, extra_info: Options) -> tuple[CheckedOptions, Distribution]:
        options = read(extra_info, TRAJECTORIES, "sample_trajectories")
        selection = select(self._transitions, options)
        if "length" in options:
            return options, self._piece_distribution(selection, options)
        numbers = episodes_of(self._transitions, selection)
        if options.get("priority") is None:
            return options, Distribution(numbers)
        return options, Distribution(numbers, self._by_return(numbers, options)[numbers])

    def _piece_distribution(self, selection: Selection, options: CheckedOptions) -> Distribution:
        """Return where pieces may begin: positions that at least ``length`` transitions follow without a break."""
        runs = self._transitions.stretches.runs
        starts = selection & Selection(runs[:-1], runs[1:] - options["length"] + 1)
        if not len(starts):
            raise SourceError(
                f"sample_trajectories: no {options['length']} steps follow one another in "
                f"{self._transitions.table.origin}, as length asks; the longest episode among them has "
                f"{self._transitions.lengths.max()}"
            )
        if options.get("priority") is None:
            return Distribution(starts)
        chances = self._by_return(episodes_of(self._transitions, starts), options)

        def block(begin: int, end: int) -> np.ndarray:
            return np.asarray(chances[self._transitions.episodes(starts.block(begin, end))])

        return Distribution(starts, PrioritizedSampler(len(starts), block))

    def _by_return(self, numbers: np.ndarray, options: CheckedOptions) -> np.ndarray:
        """Return the priority of each episode, (E,), by its return; it counts for those with these numbers."""
        need_rewards(self._transitions, "priority='return'", numbers)
        chances = np.ones(len(self._transitions.first))
        chances[numbers] = priorities(self._transitions.returns[numbers], options.get("alpha", 1.0))
        return chances

    # -- feedback --------------------------------------------------------------------------------------------

    def update(self, index: ArrayLike, td_error: ArrayLike) -> None:
        """Store TD errors; see `rlenv_robot.source.SourceData.update_priorities`."""
        positions, errors = np.asarray(index), np.asarray(td_error, float)
        if positions.ndim != 1 or positions.shape != errors.shape or positions.dtype.kind not in "iu":
            raise SourceError(
                f"update_priorities: index is {positions.dtype} of shape {positions.shape}, td_error has shape "
                f"{errors.shape}; expected whole numbers and numbers of one shape (B,)"
            )
        if not len(positions):
            return
        sizes = np.abs(errors)
        largest = sizes.item(sizes.argmax())  # NaN if one is; a tenth of the time of `max`
        if not largest < np.inf:
            raise SourceError(f"update_priorities: {np.sum(~np.isfinite(errors))} TD errors are NaN or infinite")
        count, positions = len(self._transitions), positions.astype(np.int64, copy=False)
        if not within(positions, count):
            wrong = positions[(positions < 0) | (positions >= count)]
            raise SourceError(f"update_priorities: index {wrong[0]}, allowed are 0 to {count - 1}")
        self._store(positions, sizes, largest)

    def _store(self, positions: np.ndarray, errors: np.ndarray, largest: float) -> None:
        largest_grew = self._errors.update(positions, errors, largest)
        if largest_grew:  # the probabilities of all transitions without an error change
            self._requests = {
                key: request for key, request in self._requests.items() if request.options.get("priority") != "td_error"
            }
            return
        for request in self._requests.values():
            if request.options.get("priority") == "td_error":
                values = self._errors.priorities(errors, request.options.get("alpha", 1.0))
                whole = len(request.distribution.positions) == len(self._transitions)
                request.distribution.update(positions, values, whole)
                request.prefetch.discard()


class TdErrors:
    """One absolute TD error per transition, in single precision.

    A transition without an error counts as the largest error since the start, or 1 before any, so that each is drawn
    soon (Schaul et al. 2016, algorithm 1).

    Args:
        count: number of transitions, N.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._errors: np.ndarray | None = None  # made when it is needed: 4 bytes a transition, NaN where unknown
        self._largest = 1.0
        self._unknown = count
        self._later: list[tuple[np.ndarray, np.ndarray]] = []  # updates that nothing has asked for yet

    def update(self, positions: np.ndarray, errors: np.ndarray, largest: float) -> bool:
        """Store errors of 0 or more at positions, (B,) each; if a position is repeated, the last error counts.

        Args:
            positions: the positions.
            errors: their errors.
            largest: the largest of the errors.

        Returns:
            Whether the priorities of transitions without an error changed.
        """
        if not self._unknown:
            self._later.append((positions.copy(), errors))
            if len(self._later) >= _LATER:
                self._store_later()
            return False
        stored = self._stored()
        first = self._unknown == self._count
        self._unknown -= len(np.unique(positions[np.isnan(stored[positions])]))
        stored[positions] = errors
        before = self._largest
        self._largest = largest if first else max(before, largest)
        return self._unknown > 0 and self._largest != before

    def _store_later(self) -> None:
        """Store the updates so far, in one go."""
        if self._later:
            positions, errors = zip(*self._later, strict=True)
            self._later = []
            self._stored()[np.concatenate(positions)] = np.concatenate(errors)

    def sampler(self, positions: Selection, alpha: float) -> PrioritizedSampler:
        """Return a sampler of these positions, in their order."""
        self._store_later()

        def block(begin: int, end: int) -> np.ndarray:
            if self._errors is None:
                return self.priorities(np.full(end - begin, np.nan), alpha)
            return self.priorities(self._errors.take(positions.block(begin, end)), alpha)

        return PrioritizedSampler(len(positions), block)

    def priorities(self, errors: np.ndarray, alpha: float) -> np.ndarray:
        """Return the priorities of non-negative errors, (B,); NaN for an unknown error."""
        if not self._unknown:
            return td_priorities(np.asarray(errors, float), alpha)
        filled = errors.astype(float)
        filled[np.isnan(filled)] = self._largest
        return td_priorities(filled, alpha)

    def _stored(self) -> np.ndarray:
        if self._errors is None:
            self._errors = np.full(self._count, np.nan, np.float32)
        return self._errors


# -- The key by which a request is remembered ----------------------------------------------------------------


_PLAIN = frozenset({str, int, float, bool, type(None)})
_EMPTY = (dict, MappingProxyType)


def _request_key(extra_info: Options) -> Hashable:
    """Return what a request is remembered by; its options are mostly a few words and numbers."""
    if not extra_info and isinstance(extra_info, _EMPTY):
        return ()
    try:
        values = tuple(extra_info.values())
        kinds = tuple(map(type, values))  # since 1 == 1.0 == True
        if _PLAIN.issuperset(kinds):
            return (tuple(extra_info), values, kinds)
    except AttributeError:  # no mapping, which `read` refuses
        pass
    return _hashable(extra_info)


def _hashable(value: object) -> Hashable:
    """Return something hashable that is equal where the options are equal."""
    if isinstance(value, Mapping):
        return tuple((name, _hashable(part)) for name, part in value.items())
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ("sequence", *(_hashable(part) for part in value))
    if value is None or isinstance(value, str | int | float | np.number):
        return (type(value), value)
    return repr(value)


# -- pairs -----------------------------------------------------------------------------------------------------------


class PreferencePair(TypedDict):
    """Two trajectories, each a Table 6, of which the first is preferred.

    Attributes:
        chosen: the preferred trajectory.
        rejected: the other trajectory.
        margin: size of the preference, above 0.
    """

    chosen: TrajectoryTable
    rejected: TrajectoryTable
    margin: float
