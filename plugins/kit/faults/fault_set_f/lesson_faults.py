"""Faults of `Lessons`, each one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import SourceError, Spec
from plugins.kit.faults.fault_set_f.common import NOTHING, fault
from plugins.kit.faults.fault_set_f.source_good import Lessons
from plugins.kit.faults.fault_set_f.sources import Options

PART = "source"


@fault(PART, "6.3.3.2-T6.steps_set", "steps_set holds the steps along time")
class LessonsRunBack(Lessons):
    """The steps of a trajectory begin with the last one."""

    def along(self, episode: int) -> list[int]:
        return super().along(episode)[::-1]


@fault(PART, "6.3.2.3-1", "sample_trajectories returns whole trajectories")
class LongLessonsAreCut(Lessons):
    """A trajectory holds at most six steps, although its length says more."""

    def along(self, episode: int) -> list[int]:
        return super().along(episode)[:6]


@fault(PART, "contract", "the return of a trajectory is the undiscounted sum of its rewards")
class ReturnIsMean(Lessons):
    """The return of a trajectory is the mean of its rewards."""

    def trajectory(self, episode: int, weight: float) -> dict[str, Any]:
        trajectory = super().trajectory(episode, weight)
        trajectory["extra_info"]["return"] /= trajectory["extra_info"]["length"]
        return trajectory


@fault(PART, "6.3.2.4-1", "get_all_actions returns all actions of the state, each once")
class ActionsAreRepeated(Lessons):
    """An action that was taken twice in a state is returned twice."""

    def distinct(self, actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return actions


@fault(PART, "6.3.2.4-1", "get_all_actions returns all actions that occur in the data in the present state")
class ActionsOfOneLesson(Lessons):
    """The actions of a state are those of the current lesson alone."""

    def among(self, options: Options) -> list[int]:
        return [p for p in super().among(options) if self.steps[p].episode == self.current[0]]


@fault(PART, "6.3.2.1-1", "the frame of init is by default the first one")
class FrameStays(Lessons):
    """A given episode without a frame keeps the frame that was given before, where the episode has one."""

    def given(self, options: Options) -> tuple[int, int]:
        episode, frame = super().given(options)
        before = getattr(self, "current", (0, 0))[1]
        has = episode < len(self.info) and before < self.stop[episode] - self.first[episode]
        return episode, before if "episode" in options and "frame" not in options and has else frame


@fault(PART, "6.3.2.1-1", "init without options sets the first state again")
class InitKeepsState(Lessons):
    """init without a state keeps the one that was given before."""

    def given(self, options: Options) -> tuple[int, int]:
        given = super().given(options)
        return given if "episode" in options or "frame" in options else getattr(self, "current", given)


@fault(PART, "6.3.2.1-1", "a state that the data lack is refused")
class LaterFramesAreLast(Lessons):
    """A frame behind the end of an episode is taken for its last one."""

    def given(self, options: Options) -> tuple[int, int]:
        episode, frame = super().given(options)
        return episode, min(frame, self.stop[episode] - self.first[episode] - 1) if episode < len(self.info) else frame


@fault(PART, "6.3.2.4-1", "the option state asks for the actions of a given state, for its own call")
class AskedStateStays(Lessons):
    """A state that get_all_actions was asked for is the present state from then on."""

    def get_all_actions(self, extra_info: Options = NOTHING) -> dict[str, Any]:
        answer = super().get_all_actions(extra_info)
        for step in self.steps if isinstance(extra_info, dict) and "state" in extra_info else ():
            if self.is_near(step.observation, extra_info["state"], 0.0):
                self.current = (step.episode, step.frame)
                break
        return answer


@fault(PART, "6.3.2.5-2", "filters select the described part")
class StatisticsOfAll(Lessons):
    """Statistics check the filters and describe all lessons."""

    def described(self, options: Options) -> list[int]:
        super().described(options)
        return list(range(len(self.info)))


@fault(PART, "6.3.2.5-1", "std divides by the number of values")
class SpreadOfSample(Lessons):
    """std divides by the number of values minus 1."""

    def spread(self, array: np.ndarray) -> float:
        return float(array.std(ddof=1)) if len(array) > 1 else 0.0


@fault(PART, "contract", "if a filter leaves nothing, statistics are refused or differ from those without it")
class NothingIsAll(Lessons):
    """Statistics of a filter that leaves nothing are those of all lessons."""

    def described(self, options: Options) -> list[int]:
        try:
            return super().described(options)
        except SourceError:
            return list(range(len(self.info)))


@fault(PART, "B.4.2-4", "chosen is the trajectory that is preferred")
class PairsAreSwapped(Lessons):
    """The lesson with the lower return is the chosen one; the margin is right."""

    def pair(self, better: int, worse: int) -> dict[str, Any]:
        pair = super().pair(better, worse)
        return {**pair, "chosen": pair["rejected"], "rejected": pair["chosen"]}


@fault(PART, "contract", "all filters apply to pairs")
class PairsOfAll(Lessons):
    """The filters of pairs are checked, and pairs of all lessons are drawn."""

    def compared(self, options: Options) -> list[int]:
        super().compared(options)
        return list(range(len(self.info)))


@fault(PART, "B.2.2.3-2", "trajectories have the label of their own source")
class LabelsByDraw(Lessons):
    """The label of a trajectory goes by its place in the batch."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Options = NOTHING) -> list[dict[str, Any]]:
        drawn = super().sample_trajectories(trajectory_size, extra_info)
        for place, trajectory in enumerate(drawn):
            trajectory["extra_info"]["source"] = self.info[place % len(self.info)]["source"]
        return drawn


@fault(PART, "6.3.3.2-T6.trajectory_id", "trajectory_id is unique among the trajectories")
class IdsByDraw(Lessons):
    """The trajectory_id is the place in the batch, so that one lesson has many."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Options = NOTHING) -> list[dict[str, Any]]:
        drawn = super().sample_trajectories(trajectory_size, extra_info)
        return [{**trajectory, "trajectory_id": place} for place, trajectory in enumerate(drawn)]


@fault(PART, "6.3.2.2-2", "a size that is not a whole number from 1 is refused")
class NoStepsAreGiven(Lessons):
    """A batch of 0 steps is answered with an empty table."""

    def check_size(self, size: Any, call: str) -> None:
        if not (call == "sample_steps" and isinstance(size, int) and not isinstance(size, bool) and size == 0):
            super().check_size(size, call)


@fault(PART, "6.3.2.2-2", "batch_size is the number of steps, also above what the data hold")
class NoMoreThanThere(Lessons):
    """A batch has at most as many steps as the filters leave."""

    def draw(self, count: int, size: int, scores: np.ndarray | None, options: Options) -> tuple[Any, Any]:
        return super().draw(count, min(size, count), scores, options)


@fault(PART, "contract", "steps and trajectories show the same data")
class TextsAreStripped(Lessons):
    """Texts of single steps lose the spaces at their ends, and those of trajectories keep them."""

    def sample_steps(self, batch_size: int, extra_info: Options = NOTHING) -> dict[str, Any]:
        table = super().sample_steps(batch_size, extra_info)
        for part, name in (("observation", "question"), ("next_observation", "question"), ("action", "answer")):
            table[part][name] = [text.strip() for text in table[part][name]]
        return table


@fault(PART, "contract", "success False: the lessons that failed, not those without a judgement")
class UnknownIsFailure(Lessons):
    """A lesson without a judgement passes the filter success False."""

    def passing(self, name: str, value: Any, left: list[int]) -> list[int]:
        return (
            [e for e in left if bool(self.info[e]["success"]) is value]
            if name == "success"
            else super().passing(name, value, left)
        )


@fault(PART, "6.3.2.1-3", "init returns nothing")
class InitReturnsSelf(Lessons):
    """init returns the source data."""

    def init(self, options: Options = NOTHING) -> None:
        super().init(options)
        return self  # type: ignore[return-value]


@fault(PART, "6.3.2.3-1", "each trajectory can be drawn")
class LastIsNeverDrawn(Lessons):
    """The last lesson of the data is never drawn as a trajectory."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Options = NOTHING) -> list[dict[str, Any]]:
        count = len(self.info) - 1
        whole = isinstance(extra_info, dict) and "episodes" in extra_info
        return super().sample_trajectories(
            trajectory_size, extra_info if whole or not isinstance(extra_info, dict | type(NOTHING))
            else {**extra_info, "episodes": list(range(count))}
        )  # fmt: skip


@fault(PART, "6.3.2.3-3", "a threshold of the return holds for trajectories too")
class ThresholdOfStepsAlone(Lessons):
    """sample_trajectories takes min_return and draws all lessons."""

    def sample_trajectories(self, trajectory_size: int, extra_info: Options = NOTHING) -> list[dict[str, Any]]:
        if isinstance(extra_info, dict) and isinstance(extra_info.get("min_return"), int | float):
            extra_info = {name: value for name, value in extra_info.items() if name != "min_return"}
        return super().sample_trajectories(trajectory_size, extra_info)


@fault(PART, "6.3.3.1-T5.action", "all fields of a step are of the same step")
class PauseOfStepBefore(Lessons):
    """In batches of several steps the pause before an answer is that of the draw before it."""

    def fields(self, spec: Spec, values: list[dict[str, Any]]) -> dict[str, Any]:
        fields = super().fields(spec, values)
        if "pause" in fields and len(values) > 1:
            fields["pause"] = fields["pause"][-1:] + fields["pause"][:-1]
        return fields
