"""Slides in MuJoCo: the project's own batch with a task, and classes that derive from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from rlenv_robot.tasks.free import Free
from rlenv_robot.world import NOTHING
from sim.batch import SimBatch


def parts(num: int) -> tuple[SimBatch, Free]:
    """Return the robots and the task: a slide without a goal, rewarded by its place, which starts anywhere."""
    task = Free(str(Path(__file__).with_name("slide.xml")), "slide_position[0]", start_noise=0.5, steps=9)
    return SimBatch(task.robot_model.make_sim_model(looks=False), num), task


@original
class Slides(rr.VectorEnvironment):
    part = "vector"
    style = "derived from the project's batch, MuJoCo, same_step"
    original: ClassVar[Any]

    def __init__(self, num: int) -> None:
        super().__init__(*parts(num))

    @classmethod
    def make(cls, num_envs: int):
        return cls(num_envs)


@fault("6.2.3.1-T1.observation", "obvious", "observations are of float64, and their description says float32")
class SlidesWiden(Slides):
    def _table(self, *args, **flags):
        seen = super()._table(*args, **flags)
        return {**seen, "observation": {name: value.astype(float) for name, value in seen["observation"].items()}}


@fault("6.2.3.1-T1.truncated", "obvious", "rows begin anew at their limit of steps, and truncated stays 0")
class SlidesSilentEnds(Slides):
    def _table(self, *args, **flags):
        seen = super()._table(*args, **flags)
        return {**seen, "truncated": np.zeros_like(seen["truncated"])}


@fault("6.2.2.2-4", "obvious", "step returns the five values of Gymnasium's vector environments")
class SlidesFive(Slides):
    def step(self, action, extra_info=NOTHING, **more):
        seen, paid = super().step(action, extra_info, **more)
        return seen["observation"], paid["reward"], seen["terminated"] > 0, seen["truncated"] > 0, seen["extra_info"]


@fault("6.2.3.1-T1.extra_info", "obvious", "extra_info has a list of dictionaries with None for rows without any")
class SlidesInfos(Slides):
    def _table(self, *args, **flags):
        seen = super()._table(*args, **flags)
        return {**seen, "extra_info": {**seen["extra_info"], "infos": [None] * self.num_envs}}


@fault("6.2.3.3-T3.frame_no", "ordinary", "Table 3 has the frame numbers of the actions")
class SlidesPayOldFrames(Slides):
    def step(self, action, extra_info=NOTHING, **more):
        before = self._frame_no.copy()
        seen, paid = super().step(action, extra_info, **more)
        return seen, {**paid, "frame_no": before}


@fault("6.2.2.1-4", "ordinary", "a reset of some rows returns a table of these rows alone")
class SlidesPartOfTable(Slides):
    def reset(self, options=NOTHING, **keywords: object):
        seen = super().reset(options, **keywords)
        rows = np.asarray(options.get("ids") if options.get("ids") is not None else range(self.num_envs), int)
        own = {name: value[rows] for name, value in seen["observation"].items()}
        numbers = {name: seen[name][rows] for name in ("frame_no", "terminated", "truncated")}
        return {**seen, **numbers, "observation": own, "env_id": [self.env_ids[row] for row in rows]}


@fault("contract", "subtle", "frame_no is the batch's own array, so that those of earlier tables count on")
class SlidesLiveNumbers(Slides):
    def _table(self, *args, **flags):
        return {**super()._table(*args, **flags), "frame_no": self._frame_no}
