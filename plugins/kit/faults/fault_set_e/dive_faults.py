"""Faults of the dives."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlenv_robot as rr

from .common import NOTHING, fault
from .dives import DRAWS, FILTERS, Dives

# -- Draws


@fault("source", "B.2.2.2-2", "probabilities are priorities to the power alpha")
class AlphaIsOne(Dives):
    """The exponent of the priorities is ignored."""

    @staticmethod
    def powers(priorities: Any, n: int, options: Any) -> np.ndarray:
        kept = {**options, "alpha": 1} if options.get("alpha") not in (None, 1) else options
        Dives.powers(None, n, options)
        return Dives.powers(priorities, n, kept)


@fault("source", "B.2.2.2-2", "a draw by TD error within a filter goes by the errors of the steps that it leaves")
class ErrorsFromTheFront(Dives):
    """Under a filter the first steps' TD errors are taken for those of the steps that are left."""

    def chances(self, positions: np.ndarray, options: Any) -> np.ndarray:
        if options.get("priority") == "td_error":
            positions = np.arange(len(positions))
        return super().chances(positions, options)


@fault("source", "6.3.2.2-3", "priority return is the discounted return from the step on")
class ReturnsRunOn(Dives):
    """The return from a step on goes on into the next episode."""

    def to_go(self) -> np.ndarray:
        sums, total = np.zeros(self.count), 0.0
        for position in reversed(range(self.count)):
            sums[position] = total = self.reward[position] + self.discount * total
        return sums


@fault("source", "6.3.2.2-3", "priority return is the return from the step on")
class ReturnsUpToHere(Dives):
    """The priority by return sums the rewards before the step, not those from it on."""

    def to_go(self) -> np.ndarray:
        return np.concatenate([np.cumsum(self.reward[self.part(e)]) for e in range(self.number)])


@fault("source", "6.3.2.2-3", "priority reward is the step's own reward")
class RewardOfTheNextStep(Dives):
    """The priority by reward is the next step's reward."""

    def chances(self, positions: np.ndarray, options: Any) -> np.ndarray:
        if options.get("priority") == "reward":
            return self.powers(np.roll(self.reward, -1)[positions], len(positions), options)
        return super().chances(positions, options)


@fault("source", "B.2.2.2-2", "the size of a TD error counts, whatever its sign")
class NegativeErrorsAreNone(Dives):
    """A negative TD error counts as 0."""

    def update_priorities(self, index: Any, td_error: Any) -> None:
        super().update_priorities(index, td_error)
        super().update_priorities(index, np.maximum(td_error, 0))


@fault("source", "B.2.2.2-2", "a step without a TD error gets the largest one set so far")
class NewStepsAreUnwanted(Dives):
    """A step without a TD error gets the smallest one set so far."""

    def sizes(self) -> np.ndarray:
        least = np.nanmin(self.errors) if not np.isnan(self.errors).all() else 1.0
        return np.where(np.isnan(self.errors), least, self.errors)


@fault("source", "B.2.2.2-2", "after update_priorities the next batch uses the new errors")
class ErrorsAreRemembered(Dives):
    """Draws go by the TD errors of the first draw until the next init."""

    def init(self, options: Any = NOTHING) -> None:
        super().init(options)
        self.remembered: Any = None

    def sizes(self) -> np.ndarray:
        if getattr(self, "remembered", None) is None:
            self.remembered = super().sizes()
        return self.remembered


@fault("source", "6.3.2.1-1", "init discards all TD errors")
class ErrorsOutliveInit(Dives):
    """TD errors are still used after an init."""

    def init(self, options: Any = NOTHING) -> None:
        kept = self.errors.copy()
        super().init(options)
        self.errors = kept


@fault("source", "contract", "if an index is repeated, its last error counts")
class FirstErrorCounts(Dives):
    """If an index is repeated, its first error counts."""

    def update_priorities(self, index: Any, td_error: Any) -> None:
        super().update_priorities(np.asarray(index)[::-1], np.asarray(td_error)[::-1])


@fault("source", "contract", "a refused update changes nothing")
class RefusedUpdatesStay(Dives):
    """The errors before one that is not finite have been set when the update is refused."""

    def update_priorities(self, index: Any, td_error: Any) -> None:
        for i, size in zip(index, td_error, strict=False):
            super().update_priorities([i], [size])
        super().update_priorities(index, td_error)


@fault("source", "B.2.2.2-2", "priority advantage is the positive part of the advantage")
class AdvantageOfBothSigns(Dives):
    """The size of the advantage counts, so the worst steps are drawn often."""

    def advantages(self) -> np.ndarray:
        to_go = self.to_go()
        mean = np.array([to_go[self.frame == frame].mean() for frame in range(int(self.frame.max()) + 1)])
        return np.abs(to_go - mean[self.frame])


@fault("source", "contract", "beta corrects the weights: 0 all 1, 1 entirely")
class WeightsUpsideDown(Dives):
    """Likely steps have the large weights."""

    @staticmethod
    def weights(chances: np.ndarray, options: Any) -> np.ndarray:
        return (chances / chances.max()) ** float(options.get("beta", 0))


@fault("source", "contract", "a weight belongs to its step")
class WeightsInOrder(Dives):
    """The weights of a batch are sorted, and no longer those of its steps."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        return super().steps(index, np.sort(weights), options)


@fault("source", "contract", "beta is how far the weights compensate, from 0 to 1")
class BetaAlwaysWhole(Dives):
    """Any beta above 0 compensates entirely."""

    @staticmethod
    def weights(chances: np.ndarray, options: Any) -> np.ndarray:
        return Dives.weights(chances, {"beta": float(bool(options.get("beta", 0)))})


@fault("source", "contract", "replace False draws each at most once")
class AlwaysReplaced(Dives):
    """Steps are drawn with replacement where none was asked for."""

    def draw(self, n: int, size: int, chances: np.ndarray, options: Any) -> np.ndarray:
        super().draw(n, min(size, 1), chances, options)
        return self.rng.choice(n, size, True, chances)


@fault("source", "6.3.2.2-1", "each step that passes the filters can be drawn")
class LastStepIsLeftOut(Dives):
    """The last step that passes the filters is never drawn without priorities."""

    def draw(self, n: int, size: int, chances: np.ndarray, options: Any) -> np.ndarray:
        drawn = super().draw(n, size, chances, options)
        if "priority" in options or not options.get("replace", True) or n == 1:
            return drawn
        return drawn % (n - 1)


@fault("source", "6.3.2.1-2", "seed determines all sampling that follows")
class TrajectoriesUnseeded(Dives):
    """The seed governs draws of steps alone."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        kept, self.rng = self.rng, np.random.default_rng()
        try:
            return super().sample_trajectories(trajectory_size, extra_info)
        finally:
            self.rng = kept


# -- State, options, filters


@fault("source", "6.3.2.1-1", "without options init sets the first state again")
class StateStays(Dives):
    """An init without a state keeps the one set before."""

    def init(self, options: Any = NOTHING) -> None:
        before = self.state
        super().init(options)
        if not {"episode", "frame"} & set(options):
            self.state = before


@fault("source", "contract", "a refused init changes nothing")
class RefusedInitMoves(Dives):
    """The episode is set when a wrong frame is refused."""

    def init(self, options: Any = NOTHING) -> None:
        e = options.get("episode")
        if type(e) is int and 0 <= e < self.number:
            self.state = e, 0
        super().init(options)


@fault("source", "contract", "a filter holds for its own call alone")
class FiltersStay(Dives):
    """A filter of a source holds for the next draw without filters too."""

    kept: Any = None

    def select(self, options: Any) -> np.ndarray:
        if "source" in options:
            self.kept = options["source"]
        elif self.kept is not None and not FILTERS & set(options):
            options, self.kept = {**options, "source": self.kept}, None
        return super().select(options)


@fault("source", "6.3.2.3-3", "min_return is a return that passes")
class ThresholdIsExcluded(Dives):
    """An episode with exactly the smallest return is left out."""

    def bounded(self, options: Any) -> np.ndarray:
        left = super().bounded(options)
        return left & (self.returns() != options["min_return"]) if "min_return" in options else left


@fault("source", "6.3.2.3-3", "min_return is undiscounted, of the episode")
class ThresholdOfTheDiscounted(Dives):
    """The threshold is compared with the discounted return."""

    def bounded(self, options: Any) -> np.ndarray:
        left = super().bounded(options)
        return left & (self.to_go()[self.starts] >= options["min_return"]) if "min_return" in options else left


@fault("source", "contract", "top_fraction is of the remaining episodes")
class TopOfAll(Dives):
    """The best episodes are chosen among all, not among those that other filters leave."""

    def top(self, left: np.ndarray, fraction: Any) -> np.ndarray:
        return super().top(np.ones_like(left), fraction)


@fault("source", "contract", "top_fraction is by return")
class TopIsTheWorst(Dives):
    """The worst episodes are taken for the best."""

    def top(self, left: np.ndarray, fraction: Any) -> np.ndarray:
        self.reward = -self.reward
        try:
            return super().top(left, fraction)
        finally:
            self.reward = -self.reward


@fault("source", "contract", "episodes is a list or a slice")
class SlicesWithTheirEnd(Dives):
    """A slice of episodes includes its end."""

    def listed(self, episodes: Any) -> np.ndarray:
        if isinstance(episodes, slice) and episodes.stop is not None:
            episodes = slice(episodes.start, episodes.stop + 1, episodes.step)
        return super().listed(episodes)


@fault("source", "contract", "a label's filter is a value or a list of values")
class FirstLabelCounts(Dives):
    """Of a list of labels only the first one passes."""

    def labelled(self, name: str, wanted: Any) -> np.ndarray:
        return super().labelled(name, wanted[:1] if isinstance(wanted, list) else wanted)


@fault("source", "B.2.2.1-3", "expert False draws the others")
class FalseIsNoFilter(Dives):
    """The filters expert and success are ignored where they are False."""

    def select(self, options: Any) -> np.ndarray:
        return super().select({name: value for name, value in options.items() if value is not False})


@fault("source", "contract", "if filters leave nothing, that is an error")
class NothingMeansAll(Dives):
    """If the filters leave nothing, all steps are drawn."""

    def select(self, options: Any) -> np.ndarray:
        try:
            return super().select(options)
        except rr.SourceError as error:
            if "leave nothing" not in str(error):
                raise
            return np.arange(self.count)


@fault("source", "contract", "min_steps and max_steps count frames after the first one")
class FramesCountAsSteps(Dives):
    """The filters of length count an episode's first frame too."""

    def bounded(self, options: Any) -> np.ndarray:
        self.lengths = self.lengths + 1
        try:
            return super().bounded(options)
        finally:
            self.lengths = self.lengths - 1


@fault("source", "contract", "an unknown option is refused in all draws")
class UnknownStepsOptions(Dives):
    """Draws of steps ignore unknown options, which the others refuse."""

    def sample_steps(self, batch_size: int, extra_info: Any = NOTHING) -> dict[str, Any]:
        names = FILTERS | DRAWS | {"n_step", "stack"}
        return super().sample_steps(batch_size, {name: extra_info[name] for name in extra_info if name in names})
