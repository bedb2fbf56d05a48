"""Faults of how a robot stops, moves and ends: each class is the `Gantry` with the one that its docstring names."""

from __future__ import annotations

import threading
import time

import numpy as np

from plugins.kit.tests.gantry import PERIOD_NS, Gantry
from plugins.kit.tests.planting import entry

FAULTS: dict[str, type[Gantry]] = {}
fault = entry(FAULTS)


# -- stops -----------------------------------------------------------------------------------------------


@fault
class StopIgnored(Gantry):
    """stop does nothing."""

    def stop(self, reason):
        return None


@fault
class StopKnowsWords(Gantry):
    """stop works for reasons that the robot knows."""

    def stop(self, reason):
        if "emergency" in reason.lower():
            super().stop(reason)


@fault
class StopNeedsSameThread(Gantry):
    """stop raises when it is called from another thread."""

    def stop(self, reason):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("stop: another thread")
        super().stop(reason)


@fault
class StopBlocks(Gantry):
    """stop waits for ten seconds."""

    def stop(self, reason):
        super().stop(reason)
        time.sleep(10)


@fault
class StopOnce(Gantry):
    """A second stop raises."""

    def stop(self, reason):
        if self.stopped is not None:
            raise RuntimeError("stopped already")
        super().stop(reason)


@fault
class StopForgotten(Gantry):
    """A refused step clears the stop."""

    def step(self, command):
        try:
            return super().step(command)
        finally:
            self.stopped = None


@fault
class StopClearedByReset(Gantry):
    """Any reset clears the stop."""

    def unlatch(self, options):
        self.stopped = None


@fault
class StopClearedByEmptyText(Gantry):
    """An empty reason clears the stop."""

    def unlatch(self, options):
        if "clear_stop" in options:
            self.stopped = None
        super().unlatch(options)


@fault
class StopNeverCleared(Gantry):
    """A stop can't be cleared."""

    def unlatch(self, options):
        super().unlatch({})


@fault
class StopMoves(Gantry):
    """A refused step moves the axes towards their last goal."""

    def step(self, command):
        if self.stopped is not None and self.ready:
            self.goal = self.goal + 0.02
            self.tick()
        return super().step(command)


# -- motion ----------------------------------------------------------------------------------------------


@fault
class NanMoves(Gantry):
    """NaN is taken for the present place."""

    def values(self, command):
        if isinstance(command, dict) and np.isnan(np.asarray(command.get("goal", 0), float)).any():
            command = {**command, "goal": self.place.astype(np.float32)}
        return super().values(command)


@fault
class ClipsCommands(Gantry):
    """Commands out of range are clipped."""

    def values(self, command):
        if isinstance(command, dict) and np.shape(command.get("goal")) == (2,):
            command = {**command, "goal": np.clip(np.asarray(command["goal"]), -1, 1)}
        return super().values(command)


@fault
class RefusedMoves(Gantry):
    """A refused command moves the first axis a little."""

    def values(self, command):
        try:
            return super().values(command)
        except Exception:
            self.place = self.place + np.array((0.01, 0))
            raise


@fault
class RefusedRemembered(Gantry):
    """A refused command shows as the gripper's goal in the next step."""

    late = 0.0

    def values(self, command):
        try:
            values = super().values(command)
        except Exception:
            self.late = 0.1
            raise
        goal = np.clip(np.asarray(values["goal"]) + np.float32(self.late), -1, 1)
        self.late = 0.0
        return {**values, "goal": goal}


@fault
class FastAxis(Gantry):
    """The axes jump to their goal at once, at 25 times max_velocity."""

    def tick(self):
        before = self.place
        super().tick()
        self.place = self.goal.copy()
        self.speed = np.clip((self.place - before) * 50, -5, 5)


@fault
class ResetJumps(Gantry):
    """A reset is a jump that the clock does not show."""

    def go(self, goal, open_):
        self.goal, self.open = goal, open_
        self.place, self.grip = goal.copy(), open_
        self.now += PERIOD_NS


@fault
class IgnoresStart(Gantry):
    """The reset goes home, whatever start says."""

    def go(self, goal, open_):
        super().go(np.array(self.spec.home["goal"]), self.spec.home["open"])


@fault
class IgnoresHome(Gantry):
    """A reset stays where the robot is."""

    def go(self, goal, open_):
        self.goal, self.open = self.place.copy(), self.grip
        self.tick()


@fault
class AcceptsAnyStart(Gantry):
    """A start out of range is clipped."""

    def check(self, options):
        return None

    def go(self, goal, open_):
        super().go(np.clip(goal, -1, 1), float(np.clip(open_, 0, 1)))


@fault
class SecondResetElsewhere(Gantry):
    """The second reset ends 0.1 m beside the first."""

    number = 0

    def go(self, goal, open_):
        self.number += 1
        super().go(goal + 0.1 * (self.number > 1), open_)


@fault
class StepBeforeReset(Gantry):
    """A step before the first reset moves."""

    def __init__(self):
        super().__init__()
        self.ready = True


@fault
class MovesAfterClose(Gantry):
    """A step after close moves."""

    def close(self):
        return None


@fault
class CloseOnce(Gantry):
    """The second close raises."""

    def close(self):
        if self.closed:
            raise OSError("closed")
        super().close()


@fault
class MovesInConstructor(Gantry):
    """A thread creeps the gripper while nobody commands."""

    def state(self):
        self.grip = min(self.grip + 0.03, 1.0)
        return super().state()


@fault
class TupleState(Gantry):
    """step returns a plain tuple of three."""

    def state(self):
        return tuple(super().state())[:3]


@fault
class FaultsAsText(Gantry):
    """faults are texts."""

    def state(self):
        return super().state()._replace(faults=("warm",))


@fault
class SpecLater(Gantry):
    """The spec can't be read before the first reset."""

    @property
    def spec(self):
        if not self.ready and not getattr(self, "opening", False):
            raise RuntimeError("not open yet")
        return Gantry.spec

    def reset(self, options):
        self.opening = True
        return super().reset(options)


@fault
class HangsInStep(Gantry):
    """The seventh step hangs."""

    count = 0

    def tick(self):
        super().tick()
        self.count += self.ready
        if self.count == 7:
            time.sleep(3600)


@fault
class LeavesThread(Gantry):
    """A thread runs on after close."""

    def reset(self, options):
        if not self.ready:
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        return super().reset(options)


@fault
class CommandsLost(Gantry):
    """Every fourth command is not carried out."""

    count = 0

    def step(self, command):
        self.count += 1
        kept = self.goal.copy(), self.open
        state = super().step(command)
        if self.count % 4 == 0:
            self.goal, self.open = kept
        return state

    def tick(self):
        if self.ready and self.count % 4 == 0:
            self.now += PERIOD_NS
            return
        super().tick()


@fault
class StartOfOneMovesBoth(Gantry):
    """A start that names the axes closes the gripper."""

    def reset(self, options):
        start = options.get("start", {})
        return super().reset({**options, "start": {"open": 0.0, **start}} if "goal" in start else options)


@fault
class ClearedStopStaysAway(Gantry):
    """A reset that clears a stop stays where the robot was stopped."""

    clears = False

    def unlatch(self, options):
        self.clears = self.stopped is not None
        super().unlatch(options)

    def go(self, goal, open_):
        if self.clears and self.ready:
            goal, open_ = self.place.copy(), self.grip
        super().go(goal, open_)
