"""Faults of `Cisterns`, each one change."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import IllegalAction
from plugins.kit.faults.fault_set_f.common import NOTHING, fault
from plugins.kit.faults.fault_set_f.environments import Cisterns

PART = "environment"
Tables = tuple[dict[str, Any], dict[str, Any]]


@fault(PART, "6.2.3.1-T1.frame_no", "an action that is carried out adds 1 to frame_no")
class FrameByPump(Cisterns):
    """A step without the pump does not count as a frame."""

    def act(self, values: dict[str, np.ndarray], extra: dict[str, Any]) -> float:
        self.frame -= 1 - int(values["pump"])
        return super().act(values, extra)


@fault(PART, "6.2.1-6", "an illegal action is not executed")
class ValveIsClipped(Cisterns):
    """An opening out of range is brought into the range and executed."""

    def values(self, action: Any) -> dict[str, np.ndarray]:
        try:
            return super().values(action)
        except IllegalAction as refused:
            if refused.violation.code != "range" or "valve" not in refused.violation.field:
                raise
            valve = np.clip(np.asarray(action["action"]["valve"], float), 0, 1)
            return super().values({**action, "action": {**action["action"], "valve": valve}})


@fault(PART, "6.2.3.1-7", "after an illegal action, extra_info contains an error message")
class ErrorsOfValvesAlone(Cisterns):
    """A wrong value of the pump is refused without an error."""

    def refuse(self, error: dict[str, Any]) -> Tables:
        table, reward = super().refuse(error)
        if error["field"] == "action.pump":
            del table["extra_info"]["error"]
        return table, reward


@fault(PART, "6.4-b", "limit: steps after which the episode is truncated")
class LimitIsLate(Cisterns):
    """The limit is compared by > in place of >=, so an episode has a step too many."""

    def end(self) -> tuple[int, int]:
        over = int(bool((self.level >= 10).any()))
        return over, int(not over and self.frame > self.limit)


@fault(PART, "6.2.2.1-3", "seed fixes all that is drawn from this reset on")
class RainOfTheProcess(Cisterns):
    """The rain comes from the generator of the process, which no seed of a reset fixes."""

    def drops(self) -> float:
        return float(np.random.uniform(0, 0.5))


@fault(PART, "6.2.2.1-1", "reset brings the environment to its initial state")
class PumpRunsOn(Cisterns):
    """A reset leaves the pump at the speed that it had in the episode before."""

    def begin(self, options: Any) -> None:
        speed = getattr(self, "speed", 0.0)
        super().begin(options)
        self.speed = speed


@fault(PART, "6.4-b", "a number outside the range of an option is refused, not clipped")
class LevelOptionIsClipped(Cisterns):
    """A first level outside its range is brought into it without a word."""

    def check_options(self, options: Any) -> None:
        level = options.get("level", 5)
        kept = isinstance(level, int | float) and not isinstance(level, bool)
        super().check_options({k: v for k, v in options.items() if k != "level" or not kept})

    def begin(self, options: Any) -> None:
        if "level" in options:
            options = {**options, "level": min(max(options["level"], 1), 9)}
        super().begin(options)


@fault(PART, "contract", "a reset that is refused leaves the running episode alone or ends it, and begins no other one")
class RefusedResetBegins(Cisterns):
    """A reset with a wrong limit has drawn the new levels before it looks at the limit."""

    def check_options(self, options: Any) -> None:
        super().check_options({k: v for k, v in options.items() if k != "limit"})
        if "limit" in options:
            self.level = self.rng.uniform(3, 7, 2)
        super().check_options(options)


@fault(PART, "6.2.1-6", "a refused action has no effect on what follows")
class RefusalDrawsRain(Cisterns):
    """The rain of a step is drawn before the action is checked, so that refusals change the rain that follows."""

    def refuse(self, error: dict[str, Any]) -> Tables:
        self.drops()
        return super().refuse(error)


@fault(PART, "contract", "tables belong to their receiver; later steps do not change them")
class LevelIsShared(Cisterns):
    """The observed level is the environment's own array, which the next step overwrites."""

    def act(self, values: dict[str, np.ndarray], extra: dict[str, Any]) -> float:
        array = self.level
        reward = super().act(values, extra)
        array[:] = self.level
        self.level = array
        return reward

    def seen(self) -> dict[str, np.ndarray]:
        return {**super().seen(), "level": self.level}


@fault(PART, "contract", "the last observation of an episode is what its last action led to")
class LastIsNewFirst(Cisterns):
    """At the time limit the table shows newly drawn levels, those that a next episode would begin with."""

    def end(self) -> tuple[int, int]:
        ends = super().end()
        if ends[1]:
            self.level = self.rng.uniform(3, 7, 2)
        return ends


@fault(
    PART, "6.2.3.1-T1.truncated", "truncated tells an end by the time limit; truncated_by is in the last frame of such"
)
class LimitTerminates(Cisterns):
    """An end by the limit sets terminated in place of truncated."""

    def end(self) -> tuple[int, int]:
        over, late = super().end()
        return max(over, late), 0


@fault(PART, "6.2.2.1-2", "limit holds for this episode, by default it is 30")
class LimitStays(Cisterns):
    """The limit of a reset stays for later episodes whose reset names none."""

    limit = 30

    def begin(self, options: Any) -> None:
        super().begin({"limit": self.limit, **options})


@fault(PART, "6.2.2.3-5", "render takes no part in computing or simulating")
class RenderDraws(Cisterns):
    """The picture has grains of noise from the generator of the rain, so that rendering changes the episode."""

    def picture(self) -> dict[str, Any]:
        return {**super().picture(), "grain": float(self.rng.normal())}


@fault(PART, "6.2.2.3-4", "render returns nothing")
class RenderReturns(Cisterns):
    """render returns the picture that it shows on the monitor."""

    def render(self, options: Any = NOTHING) -> None:
        super().render(options)
        return self.shown or None  # type: ignore[return-value]


@fault(PART, "6.2.3.2-T2.frame_no", "an action that answers another frame than the present one is refused")
class OldFramesAreTaken(Cisterns):
    """An action that answers an earlier frame is executed."""

    def values(self, action: Any) -> dict[str, np.ndarray]:
        frame = action.get("frame_no") if isinstance(action, dict) else None
        if isinstance(frame, int) and not isinstance(frame, bool) and 0 <= frame < self.frame:
            action = {**action, "frame_no": self.frame}
        return super().values(action)


@fault(PART, "6.2.2.2-3", "gust is a number from 0 to 1; another one is refused")
class GustIsBounded(Cisterns):
    """A gust out of its range is brought into it, and the step is carried out."""

    def check_extra(self, extra_info: Any) -> dict[str, Any]:
        gust = extra_info.get("gust") if isinstance(extra_info, dict) else None
        if isinstance(gust, int | float) and not isinstance(gust, bool):
            extra_info = {**extra_info, "gust": min(max(gust, 0.0), 1.0)}
        return super().check_extra(extra_info)


@fault(PART, "contract", "an action is the caller's, and the environment keeps none of its arrays")
class AppliedIsCallers(Cisterns):
    """The table of a step holds the caller's own array of the valves, so that both see what either writes."""

    def step(self, action: Any, extra_info: Any = NOTHING) -> Tables:
        table, reward = super().step(action, extra_info)
        if "applied" in table["extra_info"]:
            table["extra_info"]["applied"]["valve"] = np.asarray(action["action"]["valve"], float)
        return table, reward
