"""Faults of `Crossings`, each one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import Field
from plugins.kit.faults.fault_set_f.common import NOTHING, fault
from plugins.kit.faults.fault_set_f.source_good import Crossings
from plugins.kit.faults.fault_set_f.sources import DISCOUNT, FILTERS, Options, Step

PART = "source"


@fault(PART, "6.3.3.1-T5.next_observation", "next_observation is what was observed in the next frame")
class NextIsPresent(Crossings):
    """The next observation of a step is the one before its action."""

    def following(self, position: int) -> dict[str, Any]:
        return self.steps[position].observation


@fault(PART, "6.3.3.1-T5.next_observation", "the next observation of a last step is not the first of another episode")
class NextIsNextRow(Crossings):
    """The next observation is that of the next row, also where another episode begins there."""

    def following(self, position: int) -> dict[str, Any]:
        return self.steps[(position + 1) % len(self.steps)].observation


@fault(PART, "6.3.3.1-T5.done", "done is 1 if the trajectory has ended, terminated or truncated")
class DoneIsTerminated(Crossings):
    """A step that was truncated is not done."""

    def is_done(self, step: Step) -> int:
        return step.terminated


@fault(PART, "contract", "discount is 0 only if terminated, so a truncated end still bootstraps")
class TruncatedIsNothing(Crossings):
    """The factor of the next value is 0 after a truncated end too."""

    def factor(self, step: Step, count: int) -> float:
        return 0.0 if self.is_done(step) else DISCOUNT**count


@fault(PART, "contract", "n_step: the discounted sum of rewards")
class SumWithoutDiscount(Crossings):
    """The reward of n steps is their sum without the discount."""

    def summed(self, position: int, last: int) -> float:
        return sum(self.steps[p].reward for p in range(position, last + 1))


@fault(PART, "contract", "no window crosses the end of an episode")
class StepsCrossEnds(Crossings):
    """n steps go on in the next episode of the file."""

    def last(self, position: int, n: int) -> int:
        return min(position + n, len(self.steps)) - 1


@fault(PART, "contract", "n_step: next_observation and done of the last step")
class NextOfFirstStep(Crossings):
    """The next observation of n steps is that of the first of them."""

    def table(self, positions: list[int], weights: np.ndarray, options: Options) -> dict[str, Any]:
        table = super().table(positions, weights, options)
        if "n_step" in options and "stack" not in options:
            seen = [self.steps[p].next_observation for p in positions]
            table["next_observation"] = self.fields(self.observation, seen)
        return table


@fault(PART, "contract", "weights with beta undo the chances of the draws")
class WeightsOfRanks(Crossings):
    """The weights are made of the priorities' order in place of their sizes."""

    def weights(self, chances: np.ndarray, beta: float) -> np.ndarray:
        ranks = np.argsort(np.argsort(chances)) + 1.0
        return super().weights(ranks / ranks.sum() if np.ptp(chances) else chances, beta)


@fault(PART, "6.3.2.2-3", "priority return draws by the discounted return from the step on")
class ReturnIsReward(Crossings):
    """The priority by return goes by the reward of the step alone."""

    def to_go(self, position: int) -> float:
        return self.steps[position].reward


@fault(PART, "6.3.2.2-3", "min_return goes by the undiscounted return of the episode, and is included")
class ReturnAboveThreshold(Crossings):
    """An episode whose return equals min_return does not pass."""

    def passing(self, name: str, value: Any, left: list[int]) -> list[int]:
        passed = super().passing(name, value, left)
        return [e for e in passed if self.returns[e] > value] if name == "min_return" else passed


@fault(PART, "contract", "a filter holds for its own call alone")
class FilterStays(Crossings):
    """The filter by source holds until another one is given."""

    def select(self, options: Options) -> list[int]:
        self.kept = {name: options[name] for name in ("source",) if name in options} or getattr(self, "kept", {})
        return super().select({**self.kept, **options})


@fault(PART, "contract", "the size of a TD error counts, whatever its sign")
class NegativeErrorsAreSmall(Crossings):
    """A negative TD error counts as 0."""

    def error_sizes(self) -> np.ndarray:
        sizes = super().error_sizes()
        return sizes if self.errors is None else np.where(self.errors < 0, 0.0, sizes)


@fault(PART, "contract", "a step without a TD error gets the largest one set so far")
class NewErrorsAreSmall(Crossings):
    """A step without a TD error has the smallest one that was set."""

    def error_sizes(self) -> np.ndarray:
        sizes = super().error_sizes()
        return sizes if self.errors is None else np.where(np.isnan(self.errors), np.nanmin(np.abs(self.errors)), sizes)


@fault(PART, "contract", "a refused call does not change the draws that follow")
class RefusedCallsDraw(Crossings):
    """A call that a filter leaves nothing for has drawn before."""

    def select(self, options: Options) -> list[int]:
        if not options.keys().isdisjoint(FILTERS):
            before = self.rng.bit_generator.state
            self.rng.random()
            left = super().select(options)
            self.rng.bit_generator.state = before
            return left
        return super().select(options)


@fault(PART, "6.3.2.1-2", "the seed of init determines all sampling that follows")
class TrajectoriesOfChance(Crossings):
    """Trajectories are drawn by a generator of their own, which no seed reaches."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Options = NOTHING) -> list[dict[str, Any]]:
        rng, self.rng = self.rng, np.random.default_rng()
        try:
            return super().sample_trajectories(trajectory_size, extra_info)
        finally:
            self.rng = rng


@fault(PART, "contract", "statistics draw nothing from the generator of the samples")
class StatisticsDraw(Crossings):
    """Statistics shuffle the episodes before they are described."""

    def described(self, options: Options) -> list[int]:
        return list(self.rng.permutation(self.select(options)))


@fault(PART, "contract", "a stack does not cross the beginning of an episode")
class StackCrossesBegin(Crossings):
    """The oldest frames of a stack are from the episode before, and the mask says that they exist."""

    def span(self, position: int) -> tuple[int, int]:
        return 0, super().span(position)[1]


@fault(PART, "contract", "stack_mask is False for a missing position")
class MaskIsTrue(Crossings):
    """The masks of stacks and of future frames are True throughout."""

    def exists(self, mask: list[list[bool]]) -> np.ndarray:
        return np.ones_like(np.array(mask))


@fault(PART, "contract", "future_observation: the frames after the step's own")
class FutureBeginsNow(Crossings):
    """The first future frame is the present one."""

    def ahead(self, count: int) -> np.ndarray:
        return np.arange(count)


@fault(PART, "contract", "the step's own action is the first of a chunk")
class ChunkBeginsLater(Crossings):
    """A chunk begins with the action after the step's own."""

    def chunks(self, positions: list[int], size: int) -> tuple[Any, np.ndarray]:
        later = [min(p + 1, self.span(p)[1] - 1) for p in positions]
        return super().chunks(later, size)[0], super().chunks(positions, size)[1]


@fault(PART, "contract", "with replace False each is drawn at most once")
class ReplaceIsIgnored(Crossings):
    """Draws without replacement repeat steps."""

    def draw(self, count: int, size: int, scores: np.ndarray | None, options: Options) -> tuple[Any, Any]:
        options = {name: value for name, value in options.items() if name != "replace" or size > count}
        return super().draw(count, size, scores, options)


@fault(PART, "contract", "top_fraction is of the episodes that the other filters leave")
class TopOfAll(Crossings):
    """The best episodes are chosen among all, before the other filters."""

    def passing(self, name: str, value: Any, left: list[int]) -> list[int]:
        if name != "top_fraction":
            return super().passing(name, value, left)
        best = super().passing(name, value, list(range(len(self.info))))
        return [e for e in left if e in best]


@fault(PART, "contract", "nothing that is written into a batch reaches the data")
class PlacesAreShared(Crossings):
    """A batch of one step holds the recorded place itself, in place of a copy."""

    def stacked(self, field: Field | None, values: list[Any]) -> Any:
        if field is not None and field.name == "place" and len(values) == 1:
            return np.asarray(values[0])[None]
        return super().stacked(field, values)
