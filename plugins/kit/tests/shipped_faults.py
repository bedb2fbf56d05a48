"""Faults around environments that ship: each wraps one of them around it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np

import rlenv_robot as rr
from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
CHILDREN: list[subprocess.Popen[bytes]] = []


fault, _, replaces = planters(FAULTS)


class Around:
    """Pass everything on to a shipped environment; ``seen`` and ``answer`` may change its tables."""

    def __init__(self):
        self.env = self.made()
        self.env_id, self.observation, self.action = self.env.env_id, self.env.observation, self.env.action
        self.description, self.frame = self.env.description, 0

    def made(self):
        return rr.make("so101-reach", steps=40)

    def reset(self, options=NOTHING):
        table = self.env.reset(options)
        self.frame = 0
        return self.seen(table)

    def step(self, action, extra_info=NOTHING):
        table, reward = self.env.step(action, extra_info)
        self.frame = table["frame_no"]
        return self.answer(self.seen(table), reward)

    def seen(self, table):
        return table

    def answer(self, table, reward):
        return table, reward

    def render(self, options=NOTHING):
        self.env.render(options)

    def stop(self, reason):
        self.env.stop(reason)

    def close(self):
        self.env.close()


class AroundGo(Around):
    def made(self):
        return rr.make("go", size=3)


class AroundPair(Around):
    def made(self):
        return rr.make("so101-pair-lift", steps=30)


class AroundLong(Around):
    def made(self):
        return rr.make("so101-reach", steps=700)


# -- tables ----------------------------------------------------------------------------------------------


@fault("refusals", "A refused action is answered with the observation of the frame before.")
class RefusalShowsBefore(Around):
    now = before = None

    def seen(self, table):
        if "error" in table["extra_info"]:
            return {**table, "observation": self.before or table["observation"]}
        self.before, self.now = self.now, table["observation"]
        return table


@fault("frames", "frame_no is kept in a byte, and is 0 after 255.")
class ByteFrames(AroundLong):
    def step(self, action, extra_info=NOTHING):
        table, reward = self.env.step({**action, "frame_no": self.wide(action)}, extra_info)
        self.frame = table["frame_no"]
        return {**table, "frame_no": self.frame % 256}, {**reward, "frame_no": self.frame % 256}

    def wide(self, action):
        number = action.get("frame_no")
        ours = isinstance(number, int) and number == self.frame % 256
        return self.frame if ours else -1 if number == self.frame else number


@fault("frames", "The last joint velocity is beyond its range at frame 37.")
class OneElementOut(Around):
    def seen(self, table):
        if table["frame_no"] == 37:
            table["observation"]["joint_velocity"][-1] = 51
        return table


@fault("frames", "All observation tables are one dictionary.")
class SharedTable(Around):
    def __init__(self):
        super().__init__()
        self.table = {}

    def seen(self, table):
        self.table.clear()
        self.table.update(table)
        return self.table


@fault("kept tables", "All reward tables are one dictionary.")
class SharedReward(Around):
    def __init__(self):
        super().__init__()
        self.table = {}

    def answer(self, table, reward):
        self.table.update(reward)
        return table, self.table


@fault("error passes", "The first table of an episode shows the last error of the one before.")
class ErrorAfterReset(Around):
    last = None

    def seen(self, table):
        error = table["extra_info"].get("error")
        if table["frame_no"] == 0 and error is None and self.last is not None:
            return {**table, "extra_info": {**table["extra_info"], "error": self.last}}
        self.last = error or self.last
        return table


@fault("options", "The caller's extra_info is the table's from then on.")
class ExtraGivenBack(Around):
    def step(self, action, extra_info=NOTHING):
        table, reward = super().step(action, extra_info)
        if isinstance(extra_info, dict) and "error" not in table["extra_info"]:
            extra_info.update(table["extra_info"])
            table["extra_info"] = extra_info
        return table, reward


@fault("reset", "The board is a nested mapping of rows instead of an array.")
class ScalarBoard(AroundGo):
    def seen(self, table):
        board = table["observation"]["board"]
        return {**table, "observation": {**table["observation"], "board": dict(enumerate(board))}}


@fault("frames", "The board is int64 from the third move on.")
class BoardInt64(AroundGo):
    def seen(self, table):
        if table["frame_no"] >= 3:
            table["observation"]["board"] = table["observation"]["board"].astype(np.int64)
        return table


replaces(AroundGo, "answer", {
    # The reward at the end of a game is the winner's name.
    "GoRewardText -> frames":
        lambda self, table, reward: (table, {**reward, "reward": "black"} if table["terminated"] else reward),
})  # fmt: skip


@fault("agents", "The agents' names change places at frame 15, in rewards alone.")
class PairMappingSwapped(AroundPair):
    def answer(self, table, reward):
        if table["frame_no"] == 15:
            reward = {**reward, "reward": {"arm_a": 0.1, "arm_b": 0.2}}
        return table, reward


@fault("agents", "The right agent's own observation is None at frame 9.")
class PairOwnMissing(AroundPair):
    def seen(self, table):
        if table["frame_no"] == 9:
            agents = {**table["extra_info"]["agents"], "right": None}
            return {**table, "extra_info": {**table["extra_info"], "agents": agents}}
        return table


replaces(Around, "seen", {
    # truncated is -1 at the end.
    "NegativeZeroFlags -> frames": lambda self, table: {**table, "truncated": -table["truncated"]},
})  # fmt: skip


@fault("frames", "The target is NaN at frame 500.")
class NanAtFrame500(AroundLong):
    def seen(self, table):
        if table["frame_no"] == 500:
            table["observation"]["target_position"][1] = np.nan
        return table


# -- what is legal ---------------------------------------------------------------------------------------


class Forgiving(Around):
    """Carry out an action that the inner environment would refuse, made legal."""

    def step(self, action, extra_info=NOTHING):
        made = self.made_legal(action)
        return super().step(action if made is None else made, extra_info)

    def made_legal(self, action):
        return None

    def goal(self, action):
        try:
            return action["action"]["joint_target"]
        except (KeyError, TypeError, IndexError):
            return None

    def bounds(self):
        return self.action["joint_target"].bounds

    def clipped(self, action, value):
        value = np.clip(np.nan_to_num(np.asarray(value, np.float32)), *self.bounds()).astype(np.float32)
        return {**action, "action": {**action["action"], "joint_target": value}}


@fault("refusals", "The last joint is clipped.")
class LastJointClipped(Forgiving):
    def made_legal(self, action):
        goal = self.goal(action)
        if isinstance(goal, np.ndarray) and goal.shape == (6,) and goal.dtype == np.float32 and np.isfinite(goal).all():
            clipped = np.clip(goal, *self.bounds())
            return self.clipped(action, goal) if (clipped != goal)[5] and (clipped == goal)[:5].all() else None
        return None


@fault("refusals", "Up to a thousandth beyond the range is taken.")
class ToleranceAtBorder(Forgiving):
    def made_legal(self, action):
        goal = self.goal(action)
        if isinstance(goal, np.ndarray) and goal.shape == (6,) and goal.dtype == np.float32 and np.isfinite(goal).all():
            clipped = np.clip(goal, *self.bounds())
            return self.clipped(action, goal) if 0 < np.abs(clipped - goal).max() < 1e-3 else None
        return None


@fault("refusals", "A text is parsed as numbers, an unreadable one is 0.")
class TextParsed(Forgiving):
    def made_legal(self, action):
        goal = self.goal(action)
        is_text = isinstance(goal, str) or (isinstance(goal, np.ndarray) and goal.dtype.kind in "US")
        return self.clipped(action, np.zeros(6)) if is_text else None


@fault("refusals", "None holds the arm.")
class NoneIsHold(Forgiving):
    def made_legal(self, action):
        known = isinstance(action, dict) and isinstance(action.get("action"), dict)
        if known and "joint_target" in action["action"] and self.goal(action) is None:
            return self.clipped(action, np.zeros(6))
        return None


@fault("refusals", "frame_no may be missing.")
class WithoutFrame(Forgiving):
    def made_legal(self, action):
        if isinstance(action, dict) and "frame_no" not in action and "env_id" in action:
            return {**action, "frame_no": self.frame}
        return None


@fault("refusals", "An array of shape (6, 1) or (1, 6) is flattened.")
class ColumnFlattened(Forgiving):
    def made_legal(self, action):
        goal = self.goal(action)
        fits = isinstance(goal, np.ndarray) and goal.ndim == 2 and goal.size == 6 and goal.dtype.kind == "f"
        return self.clipped(action, goal.ravel()) if fits else None


@fault("refusals", "Elements beyond the sixth are ignored.")
class LongerCut(Forgiving):
    def made_legal(self, action):
        goal = self.goal(action)
        fits = isinstance(goal, np.ndarray) and goal.ndim == 1 and goal.size > 6 and goal.dtype.kind == "f"
        return self.clipped(action, goal[:6]) if fits else None


@fault("refusals", "The second illegal action in a row is clipped and carried out.")
class SecondTry(Forgiving):
    tries = 0

    def step(self, action, extra_info=NOTHING):
        goal = self.goal(action)
        shaped = isinstance(goal, np.ndarray) and goal.shape == (6,) and goal.dtype.kind == "f"
        current = isinstance(action, dict) and action.get("frame_no") == self.frame
        if self.tries and shaped and current and action.get("env_id") == self.env_id:
            action = self.clipped(action, goal)
        table, reward = Around.step(self, action, extra_info)
        self.tries = self.tries + 1 if "error" in table["extra_info"] else 0
        return table, reward


@fault("refusals late", "At frame 0 infinity is the end of the range.")
class InfinityAtReset(Forgiving):
    def made_legal(self, action):
        goal = self.goal(action)
        if self.frame == 0 and isinstance(goal, np.ndarray) and goal.shape == (6,) and np.isinf(goal).any():
            return self.clipped(action, goal)
        return None


@fault("refusals", "True is the move 1.")
class BoolMove(AroundGo):
    def step(self, action, extra_info=NOTHING):
        move = action["action"].get("move") if isinstance(action.get("action"), dict) else None
        if isinstance(move, bool | np.bool_) or (isinstance(move, np.ndarray) and move.dtype == bool):
            action = {**action, "action": {"move": np.asarray(move).astype(np.int32)}}
        return super().step(action, extra_info)


@fault("refusals late", "A move of 1.7 is 1.")
class FloatMove(AroundGo):
    def step(self, action, extra_info=NOTHING):
        inner = action.get("action") if isinstance(action, dict) else None
        move = inner.get("move") if isinstance(inner, dict) else None
        is_float = isinstance(move, float) or (isinstance(move, np.ndarray) and move.dtype.kind == "f")
        if is_float and np.shape(move) == () and np.isfinite(move):
            action = {**action, "action": {"move": np.asarray(move).astype(np.int32)}}
        return super().step(action, extra_info)


# -- seeds, instances, the process -----------------------------------------------------------------------


@fault("equal starts", "The observation has noise of a billionth that no seed sets.")
class TinyNoise(Around):
    rng = np.random.default_rng()

    def made(self):
        return rr.make("so101-reach", steps=40)

    def seen(self, table):
        table["observation"]["joint_position"] += np.float32(1e-6) * self.rng.random(6, np.float32)
        return table


@fault("equal starts", "A seed counts at the first reset of an instance only.")
class SecondResetOtherSeed(Around):
    resets = 0

    def reset(self, options=NOTHING):
        self.resets += 1
        if self.resets > 1:
            options = {name: value for name, value in options.items() if name != "seed"}
        return super().reset(options)


@fault("two instances", "The seed is mixed with the number of the instance.")
class InstanceNumber(Around):
    made_so_far = 0

    def __init__(self):
        super().__init__()
        type(self).made_so_far += 1
        self.number = self.made_so_far

    def reset(self, options=NOTHING):
        if options.get("seed") is not None and isinstance(options["seed"], int) and options["seed"] >= 0:
            options = {**options, "seed": options["seed"] + self.number}
        return super().reset(options)


@fault("two instances or closed", "Closing an instance closes all that were made.")
class ClosesAll(Around):
    everyone: list[Around] = []  # noqa: RUF012 (the fault)

    def __init__(self):
        super().__init__()
        self.everyone.append(self)

    def close(self):
        for one in self.everyone:
            one.env.close()


@fault("leftovers", "A child process runs on after close.")
class LeavesProcess(Around):
    child = None

    def reset(self, options=NOTHING):
        if self.child is None:
            self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"])
            CHILDREN.append(self.child)
        return super().reset(options)


@fault("reset", "A reset takes SIGINT's handler.")
class TakesInterrupts(Around):
    def reset(self, options=NOTHING):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return super().reset(options)


@fault("", "The constructor sets an environment variable.")
class SetsEnvironment(Around):
    def __init__(self):
        super().__init__()
        os.environ["LANDER_SEED"] = "1"


@fault("reset", "A reset in a running episode raises.")
class ResetNeedsEnd(Around):
    running = False

    def reset(self, options=NOTHING):
        if self.running:
            raise RuntimeError("the episode is not over")
        table = super().reset(options)
        self.running = True
        return table

    def answer(self, table, reward):
        self.running = not (table["terminated"] or table["truncated"])
        return table, reward


@fault("two instances", "close hangs.")
class CloseHangs(Around):
    def close(self):
        self.env.close()
        time.sleep(3600)


@fault("render", "render counts a frame.")
class RenderEnds(Around):
    def render(self, options=NOTHING):
        self.env.render(options)
        if self.env._phase == "running":
            goal = self.env.world.action.sample(np.random.default_rng(0))
            self.env.step({"env_id": self.env_id, "frame_no": self.frame, "action": goal})
            self.frame += 1
