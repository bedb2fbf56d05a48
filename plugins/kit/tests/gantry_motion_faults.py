"""Faults of how a robot stops, moves and ends: each is the `Gantry` with one of them."""

from __future__ import annotations

import threading
import time

import numpy as np

from plugins.kit.tests.gantry import PERIOD_NS, Gantry
from plugins.kit.tests.planting import Planted, planters

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- stops -----------------------------------------------------------------------------------------------


replaces(Gantry, "stop", {
    # stop does nothing.
    "StopIgnored -> stop": lambda self, reason: None,
})  # fmt: skip


@fault("stop", "stop works for reasons that the robot knows.")
class StopKnowsWords(Gantry):
    def stop(self, reason):
        if "emergency" in reason.lower():
            super().stop(reason)


@fault("stop", "stop raises when it is called from another thread.")
class StopNeedsSameThread(Gantry):
    def stop(self, reason):
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("stop: another thread")
        super().stop(reason)


@fault("stop", "stop waits for ten seconds.")
class StopBlocks(Gantry):
    def stop(self, reason):
        super().stop(reason)
        time.sleep(10)


@fault("stop again", "A second stop raises.")
class StopOnce(Gantry):
    def stop(self, reason):
        if self.stopped is not None:
            raise RuntimeError("stopped already")
        super().stop(reason)


@fault("stop", "A refused step clears the stop.")
class StopForgotten(Gantry):
    def step(self, command):
        try:
            return super().step(command)
        finally:
            self.stopped = None


@fault("stop", "Any reset clears the stop.")
class StopClearedByReset(Gantry):
    def unlatch(self, options):
        self.stopped = None


@fault("stop", "An empty reason clears the stop.")
class StopClearedByEmptyText(Gantry):
    def unlatch(self, options):
        if "clear_stop" in options:
            self.stopped = None
        super().unlatch(options)


replaces(Gantry, "unlatch", {
    # A stop can't be cleared.
    "StopNeverCleared -> stop": lambda self, options: Gantry.unlatch(self, {}),
})  # fmt: skip


@fault("", "A refused step moves the axes towards their last goal.")
class StopMoves(Gantry):
    def step(self, command):
        if self.stopped is not None and self.ready:
            self.goal = self.goal + 0.02
            self.tick()
        return super().step(command)


# -- motion ----------------------------------------------------------------------------------------------


@fault("refusals", "NaN is taken for the present place.")
class NanMoves(Gantry):
    def values(self, command):
        if isinstance(command, dict) and np.isnan(np.asarray(command.get("goal", 0), float)).any():
            command = {**command, "goal": self.place.astype(np.float32)}
        return super().values(command)


@fault("refusals", "Commands out of range are clipped.")
class ClipsCommands(Gantry):
    def values(self, command):
        if isinstance(command, dict) and np.shape(command.get("goal")) == (2,):
            command = {**command, "goal": np.clip(np.asarray(command["goal"]), -1, 1)}
        return super().values(command)


@fault("unmoved", "A refused command moves the first axis a little.")
class RefusedMoves(Gantry):
    def values(self, command):
        try:
            return super().values(command)
        except Exception:
            self.place = self.place + np.array((0.01, 0))
            raise


@fault("unmoved", "A refused command shows as the gripper's goal in the next step.")
class RefusedRemembered(Gantry):
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


@fault("", "The axes jump to their goal at once, at 25 times max_velocity.")
class FastAxis(Gantry):
    def tick(self):
        before = self.place
        super().tick()
        self.place = self.goal.copy()
        self.speed = np.clip((self.place - before) * 50, -5, 5)


@fault("equal", "A reset is a jump that the clock does not show.")
class ResetJumps(Gantry):
    def go(self, goal, open_):
        self.goal, self.open = goal, open_
        self.place, self.grip = goal.copy(), open_
        self.now += PERIOD_NS


replaces(Gantry, "go", {
    # The reset goes home, whatever start says.
    "IgnoresStart -> places":
        lambda self, goal, open_: Gantry.go(self, np.array(self.spec.home["goal"]), self.spec.home["open"]),
})  # fmt: skip


@fault("equal", "A reset stays where the robot is.")
class IgnoresHome(Gantry):
    def go(self, goal, open_):
        self.goal, self.open = self.place.copy(), self.grip
        self.tick()


@fault("places", "A start out of range is clipped.")
class AcceptsAnyStart(Gantry):
    def check(self, options):
        return None

    def go(self, goal, open_):
        super().go(np.clip(goal, -1, 1), float(np.clip(open_, 0, 1)))


@fault("places", "The second reset ends 0.1 m beside the first.")
class SecondResetElsewhere(Gantry):
    number = 0

    def go(self, goal, open_):
        self.number += 1
        super().go(goal + 0.1 * (self.number > 1), open_)


@fault("too early", "A step before the first reset moves.")
class StepBeforeReset(Gantry):
    def __init__(self):
        super().__init__()
        self.ready = True


replaces(Gantry, "close", {
    # A step after close moves.
    "MovesAfterClose -> closed": lambda self: None,
})  # fmt: skip


@fault("closed", "The second close raises.")
class CloseOnce(Gantry):
    def close(self):
        if self.closed:
            raise OSError("closed")
        super().close()


@fault("follows", "A thread creeps the gripper while nobody commands.")
class MovesInConstructor(Gantry):
    def state(self):
        self.grip = min(self.grip + 0.03, 1.0)
        return super().state()


changes(Gantry, "state", {
    # step returns a plain tuple of three.
    "TupleState -> stop": lambda self, right: tuple(right)[:3],
    # faults are texts.
    "FaultsAsText -> states": lambda self, right: right._replace(faults=("warm",)),
})  # fmt: skip


@fault("spec", "The spec can't be read before the first reset.")
class SpecLater(Gantry):
    @property
    def spec(self):
        if not self.ready and not getattr(self, "opening", False):
            raise RuntimeError("not open yet")
        return Gantry.spec

    def reset(self, options):
        self.opening = True
        return super().reset(options)


@fault("stop again", "The seventh step hangs.")
class HangsInStep(Gantry):
    count = 0

    def tick(self):
        super().tick()
        self.count += self.ready
        if self.count == 7:
            time.sleep(3600)


@fault("left", "A thread runs on after close.")
class LeavesThread(Gantry):
    def reset(self, options):
        if not self.ready:
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        return super().reset(options)


@fault("equal", "Every fourth command is not carried out.")
class CommandsLost(Gantry):
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


@fault("places", "A start that names the axes closes the gripper.")
class StartOfOneMovesBoth(Gantry):
    def reset(self, options):
        start = options.get("start", {})
        return super().reset({**options, "start": {"open": 0.0, **start}} if "goal" in start else options)


@fault("places", "A reset that clears a stop stays where the robot was stopped.")
class ClearedStopStaysAway(Gantry):
    clears = False

    def unlatch(self, options):
        self.clears = self.stopped is not None
        super().unlatch(options)

    def go(self, goal, open_):
        if self.clears and self.ready:
            goal, open_ = self.place.copy(), self.grip
        super().go(goal, open_)
