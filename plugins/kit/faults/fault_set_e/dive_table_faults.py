"""Faults of the tables and statistics of the dives."""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import NOTHING, fault
from .dives import Dives


@fault("source", "6.3.3.1-T5.next_observation", "the next observation of an episode's last step is its own")
class NextOfTheNextEpisode(Dives):
    """The next observation of a last step is the first one of the episode behind it."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        if not {"n_step", "stack"} & set(options):
            rows = self.row[np.minimum(index + 1, self.count - 1)]
            table["next_observation"] = {"depth": self.depth[rows], "speed": self.speed[rows]}
        return table


@fault("source", "6.3.3.1-T5.done", "done is 1 if the trajectory has ended")
class CutIsNotDone(Dives):
    """A step at which an episode was cut off is not done."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        table["done"] = table["extra_info"]["terminated"].copy()
        return table


@fault("source", "contract", "discount is 0 only if terminated")
class CutsDoNotBootstrap(Dives):
    """The factor of the next value is 0 at an end by time too."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        table["extra_info"]["discount"][table["done"] == 1] = 0
        return table


@fault("source", "contract", "an n-step reward is the discounted sum")
class PlainSums(Dives):
    """The rewards of n steps are added without a discount."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        spans = table["extra_info"]["steps"]
        table["reward"] = np.array([self.reward[i : i + m].sum() for i, m in zip(index, spans, strict=True)])
        return table


@fault("source", "contract", "done belongs to the last of the n steps")
class DoneOfTheFirst(Dives):
    """The end of an n-step transition is that of its first step."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        table["done"] = super().steps(index, weights, NOTHING)["done"]
        return table


@fault("source", "contract", "no window crosses the end of an episode")
class SumsCrossTheEnd(Dives):
    """An n-step reward near an end holds rewards of the next episode."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table, n = super().steps(index, weights, options), options.get("n_step", 1)
        powers = self.discount ** np.arange(n)
        padded = np.concatenate([self.reward, np.zeros(n)])
        table["reward"] = np.array([(padded[i : i + n] * powers).sum() for i in index])
        return table


@fault("source", "contract", "discount is discount**steps")
class DiscountOfOneStep(Dives):
    """The factor of the next value after n steps is that of one step."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        factor = table["extra_info"]["discount"]
        factor[factor > 0] = self.discount
        return table


@fault("source", "contract", "the step's own frame is the last one of a stack")
class StacksBackwards(Dives):
    """A stack begins with the step's own frame."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        if "stack" in options:
            table["observation"] = {name: value[:, ::-1] for name, value in table["observation"].items()}
        return table


@fault("source", "contract", "no window crosses the end of an episode")
class StacksCross(Dives):
    """A stack at an episode's start holds the last frames of the episode before it."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        if "stack" in options:
            frames = np.maximum(self.row[index][:, None] - np.arange(options["stack"])[::-1], 0)
            table["observation"] = {"depth": self.depth[frames], "speed": self.speed[frames]}
        return table


@fault("source", "contract", "missing positions' mask is False")
class MasksAreFull(Dives):
    """The mask of a stack is True for repeated frames too."""

    def steps(self, index: np.ndarray, weights: np.ndarray, options: Any) -> dict[str, Any]:
        table = super().steps(index, weights, options)
        if "stack" in options:
            table["extra_info"]["stack_mask"][:] = True
        return table


@fault("source", "contract", "the next observation is what the action led to, stacked too")
class NextStacksStandStill(Dives):
    """The stack of the next observation is the step's own."""

    def stacked(self, rows: np.ndarray, e: np.ndarray, stack: int) -> dict[str, np.ndarray]:
        return super().stacked(rows - 1, e, stack)


@fault("source", "contract", "an index stands for one step, for update_priorities")
class IndexWithinTheFilter(Dives):
    """The index counts the steps that pass the filters."""

    def sample_steps(self, batch_size: int, extra_info: Any = NOTHING) -> dict[str, Any]:
        table = super().sample_steps(batch_size, extra_info)
        table["extra_info"]["index"] = np.searchsorted(self.select(extra_info), table["extra_info"]["index"])
        return table


@fault("source", "6.3.3.2-T6.trajectory_id", "trajectory_id is the episode's number")
class NumberedByTheDraw(Dives):
    """Trajectories are numbered from 0 in each draw."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        drawn = super().sample_trajectories(trajectory_size, extra_info)
        return [table | {"trajectory_id": i} for i, table in enumerate(drawn)]


@fault("source", "B.2.2.2-1", "the end itself is excluded")
class EndIsTheLast(Dives):
    """The end of a trajectory is the position of its last step."""

    def trajectory(self, e: int, weight: float, part: slice | None = None) -> dict[str, Any]:
        table = super().trajectory(e, weight, part)
        table["extra_info"]["end"] -= 1
        return table


@fault("source", "B.2.2.1-2", "a piece's return is that of the piece")
class ReturnOfTheWhole(Dives):
    """The return of a piece is the whole episode's."""

    def trajectory(self, e: int, weight: float, part: slice | None = None) -> dict[str, Any]:
        table = super().trajectory(e, weight, part)
        table["extra_info"]["return"] = float(self.returns()[e])
        return table


@fault("source", "contract", "every step that passes the filters is equally likely as the first of a piece")
class PiecesSideBySide(Dives):
    """Pieces begin at multiples of their length alone."""

    def pieces(self, size: int, length: Any, options: Any) -> list[dict[str, Any]]:
        drawn = super().pieces(size, length, options)
        kept = []
        for table in drawn:
            e, start = table["trajectory_id"], table["extra_info"]["start"]
            begin = int(self.starts[e]) + (start - int(self.starts[e])) // length * length
            kept.append(self.trajectory(e, table["extra_info"]["weight"], slice(begin, begin + length)))
        return kept


@fault("source", "B.4.2-4", "the margin is the difference of the returns")
class MarginPerStep(Dives):
    """The margin of a pair is that of the mean rewards."""

    def sample_pairs(self, pair_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        pairs = super().sample_pairs(pair_size, extra_info)
        for pair in pairs:
            pair["margin"] /= pair["chosen"]["extra_info"]["length"]
        return pairs


@fault("source", "B.4.2-4", "pairs by success are of verdicts; an unknown one is no failure")
class UnknownIsAFailure(Dives):
    """An episode without a verdict is paired as a failure."""

    def successes(self) -> np.ndarray:
        return np.nan_to_num(super().successes())


@fault("source", "B.4.2-4", "of a pair the chosen one is better")
class TheShorterIsBetter(Dives):
    """Of two episodes the one with fewer steps is chosen."""

    def sample_pairs(self, pair_size: int, extra_info: Any = NOTHING) -> list[dict[str, Any]]:
        pairs = super().sample_pairs(pair_size, extra_info)
        for pair in pairs:
            two = sorted((pair["chosen"], pair["rejected"]), key=lambda table: table["extra_info"]["length"])
            pair["chosen"], pair["rejected"] = two
        return pairs


@fault("source", "contract", "nothing that is written into a table reaches the data")
class TrajectoriesAreViews(Dives):
    """The rewards of a trajectory are a view of the data."""

    def trajectory(self, e: int, weight: float, part: slice | None = None) -> dict[str, Any]:
        table = super().trajectory(e, weight, part)
        table["steps_set"]["reward"] = self.reward[table["extra_info"]["start"] : table["extra_info"]["end"]]
        return table


@fault("source", "contract", "all tables are the caller's")
class BuffersAreReused(Dives):
    """A batch of the same size is written into the arrays of the one before it."""

    buffers: Any = None

    def sample_steps(self, batch_size: int, extra_info: Any = NOTHING) -> dict[str, Any]:
        table = super().sample_steps(batch_size, extra_info)
        self.buffers = self.buffers or {}
        kept = self.buffers.setdefault(batch_size, table["reward"])
        kept[:] = table["reward"]
        table["reward"] = kept
        return table


@fault("source", "contract", "std divides by the number of values")
class StdOfASample(Dives):
    """Standard deviations divide by one less than the number of values."""

    @staticmethod
    def moments(values: np.ndarray) -> dict[str, Any]:
        spread = values.astype(float).std(0, ddof=1 if len(values) > 1 else 0)
        return Dives.moments(values) | {"std": spread.tolist()}


@fault("source", "6.3.2.5-1", "filters select the described part")
class RewardsOfAll(Dives):
    """A histogram of rewards is of all steps, whatever the filter."""

    def histogram(self, positions: np.ndarray, extra_info: Any) -> dict[str, Any]:
        whole = extra_info.get("field") == "reward"
        return super().histogram(np.arange(self.count) if whole else positions, extra_info)


@fault("source", "contract", "a histogram has edges (elements, bins + 1)")
class LeftEdgesAlone(Dives):
    """A histogram has one edge for each bin."""

    def histogram(self, positions: np.ndarray, extra_info: Any) -> dict[str, Any]:
        drawn = super().histogram(positions, extra_info)
        return drawn | {"edges": [edges[:-1] for edges in drawn["edges"]]}


@fault("source", "6.3.2.5-1", "statistics are of the episodes that they name")
class ReturnsOutOfOrder(Dives):
    """The returns are sorted, and no longer those of the episodes beside them."""

    def statistics(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        found = super().statistics(extra_info)
        return found | {"return": sorted(found["return"])} if "return" in found else found


@fault("source", "6.3.2.4-1", "all distinct actions that occur in the data in the present state")
class ActionsOfThisEpisode(Dives):
    """Only the present episode's actions are given, not those at equal states of others."""

    def near(self, positions: np.ndarray, here: dict[str, Any], tolerance: float) -> np.ndarray:
        return super().near(positions, here, tolerance) & (self.episode[positions] == self.state[0])


@fault("source", "contract", "tolerance is the largest difference of each element")
class ToleranceOfTheSpeedAlone(Dives):
    """With a tolerance, the depth is not compared."""

    def near(self, positions: np.ndarray, here: dict[str, Any], tolerance: float) -> np.ndarray:
        if not tolerance:
            return super().near(positions, here, tolerance)
        return np.abs(self.speed[self.row[positions]] - here["speed"]).max(1) <= tolerance


@fault("source", "6.3.2.4-1", "the actions are those of the present state")
class ActionsOfTheFirstFrame(Dives):
    """The frame that init sets is not looked at."""

    def get_all_actions(self, extra_info: Any = NOTHING) -> dict[str, Any]:
        kept = self.state
        self.state = kept[0], 0
        try:
            return super().get_all_actions(extra_info) | {"frame_no": kept[1]}
        finally:
            self.state = kept
