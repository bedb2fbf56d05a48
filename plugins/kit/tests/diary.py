"""Correct source data held in lists of episodes, and faults of source data."""

from __future__ import annotations

import numpy as np

from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.world import NOTHING

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


def pendulums(count=6):
    """Make episodes of unequal lengths: dictionaries of arrays along time, observations one longer than actions."""
    rng = np.random.default_rng(4)
    episodes = []
    for number in range(count):
        steps = 5 + 2 * number
        angle = np.cumsum(rng.normal(0, 0.2, steps + 1)).astype(np.float32)
        torque = rng.uniform(-1, 1, (steps, 2)).astype(np.float32)
        episodes.append(
            {
                "angle": angle,
                "grip": rng.integers(0, 3, steps + 1).astype(np.int32),
                "torque": torque,
                "reward": -np.abs(angle[1:].astype(float)) + number,
                "terminated": number % 2 == 0,
            }
        )
    return episodes


class Diary:
    """Six episodes. Priorities: return; filters: min_return."""

    def __init__(self):
        self.episodes = pendulums()
        self.flat = [(e, t) for e, one in enumerate(self.episodes) for t in range(len(one["torque"]))]
        self.init()

    def init(self, options=NOTHING):
        if set(options) - {"seed", "episode", "frame"}:
            raise ValueError(f"options {sorted(options)}")
        self.rng = np.random.default_rng(options.get("seed", 0))
        self.now = options.get("episode", 0), options.get("frame", 0)

    def __len__(self):
        return len(self.flat)

    # -- draws -------------------------------------------------------------------------------------------

    def total(self, e):
        return float(self.episodes[e]["reward"].sum())

    def chances(self, extra_info, flat):
        if extra_info.get("priority") is None:
            return np.full(len(flat), 1 / len(flat))
        if extra_info["priority"] != "return":
            raise ValueError("the only priority is return")
        to_go = np.array([self.episodes[e]["reward"][t:].sum() for e, t in flat])
        weight = np.maximum(to_go - to_go.min(), 0) + 1e-6
        return weight / weight.sum()

    def pick(self, extra_info):
        if set(extra_info) - {"priority", "min_return", "replace"}:
            raise ValueError(f"{sorted(extra_info)} is unknown")
        low = extra_info.get("min_return", -np.inf)
        flat = [(e, t) for e, t in self.flat if self.total(e) >= low]
        if not flat:
            raise ValueError("nothing is left")
        return flat

    def sample_steps(self, batch_size, extra_info=NOTHING):
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError("batch_size: from 1")
        flat = self.pick(extra_info)
        chances = self.chances(extra_info, flat)
        once = extra_info.get("replace") is False
        if once and batch_size > len(flat):
            raise ValueError(f"{batch_size} of {len(flat)} steps without replacement")
        drawn = self.rng.choice(len(flat), batch_size, p=chances, replace=not once)
        table = self.table([flat[i] for i in drawn])
        table["extra_info"]["weights"] = np.ones(batch_size)
        return table

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        if isinstance(trajectory_size, bool) or not isinstance(trajectory_size, int) or trajectory_size < 1:
            raise ValueError("trajectory_size: from 1")
        if "replace" in extra_info:
            raise ValueError("trajectories are drawn with replacement")
        numbers = sorted({e for e, _ in self.pick(extra_info)})
        chances = self.episode_chances(extra_info, numbers)
        return [self.trajectory(int(e)) for e in self.rng.choice(numbers, trajectory_size, p=chances)]

    def episode_chances(self, extra_info, numbers):
        if extra_info.get("priority") is None:
            return np.full(len(numbers), 1 / len(numbers))
        totals = np.array([self.total(e) for e in numbers])
        weight = totals - totals.min() + 1e-6
        return weight / weight.sum()

    def trajectory(self, e):
        steps = self.table([(e, t) for t in range(len(self.episodes[e]["torque"]))])
        return {
            "env_id": f"diary-{e}", "trajectory_id": e, "steps_set": steps,
            "extra_info": {"return": self.total(e), "length": len(steps["reward"])},
        }  # fmt: skip

    # -- tables ------------------------------------------------------------------------------------------

    def seen(self, places):
        return {
            name: np.array([self.episodes[e][name][t] for e, t in places], self.episodes[0][name].dtype)
            for name in ("angle", "grip")
        }

    def table(self, places):
        ends = np.array([t == len(self.episodes[e]["torque"]) - 1 for e, t in places])
        final = np.array([self.episodes[e]["terminated"] for e, _ in places])
        return {
            "env_id": np.array([f"diary-{e}" for e, _ in places]),
            "frame_no": np.array([t for _, t in places], np.int32),
            "observation": self.seen(places),
            "action": {"torque": np.array([self.episodes[e]["torque"][t] for e, t in places], np.float32)},
            "reward": np.array([self.episodes[e]["reward"][t] for e, t in places], float),
            "next_observation": self.seen([(e, t + 1) for e, t in places]),
            "done": ends.astype(np.int32),
            "extra_info": {
                "index": np.array([self.flat.index(place) for place in places]),
                "episode": np.array([e for e, _ in places]),
                "terminated": (ends & final).astype(np.int32),
                "truncated": (ends & ~final).astype(np.int32),
            },
        }

    def get_all_actions(self, extra_info=NOTHING):
        e, t = self.now
        here = self.seen([(e, t)])
        same = [
            place
            for place in self.flat
            if all(np.array_equal(self.seen([place])[name], here[name]) for name in ("angle", "grip"))
        ]
        return {
            "env_id": f"diary-{e}", "frame_no": t,
            "action": {"torque": np.array([self.episodes[a]["torque"][b] for a, b in same], np.float32)},
        }  # fmt: skip

    def statistics(self, extra_info=NOTHING):
        if "min_return" in extra_info:
            raise ValueError("statistics are of all episodes")
        lengths = [len(one["torque"]) for one in self.episodes]
        returns = [self.total(e) for e in range(len(self.episodes))]
        return {
            "episodes": len(lengths), "steps": sum(lengths),
            "return": {"mean": float(np.mean(returns)), "min": min(returns), "max": max(returns)},
        }  # fmt: skip

    def close(self):
        return None


@fault("last steps", "next_observation is the observation of the same step, at ends.")
class NextIsSame(Diary):
    def table(self, places):
        table = super().table(places)
        last = table["done"] == 1
        for name, value in table["next_observation"].items():
            value[last] = table["observation"][name][last]
        return table


@fault("last steps", "next_observation at an end is the next episode's first.")
class NextOfNextEpisode(Diary):
    def table(self, places):
        table = super().table(places)
        for row, (e, _) in enumerate(places):
            if table["done"][row]:
                for name in ("angle", "grip"):
                    table["next_observation"][name][row] = self.episodes[(e + 1) % 6][name][0]
        return table


changes(Diary, "table", {
    # done is 0 everywhere.
    "DoneNever -> steps": lambda self, table: table | {"done": np.zeros_like(table["done"])},
    # done is float.
    "FloatDone -> steps": lambda self, table: table | {"done": table["done"].astype(float)},
})  # fmt: skip


@fault("steps", "done is 1 one step before the end.")
class DoneEarly(Diary):
    def table(self, places):
        early = [t == len(self.episodes[e]["torque"]) - 2 for e, t in places]
        return super().table(places) | {"done": np.array(early, np.int32)}


@fault("same steps", "The reward in steps is that of the step before; trajectories are right.")
class RewardShifted(Diary):
    def sample_steps(self, batch_size, extra_info=NOTHING):
        table = super().sample_steps(batch_size, extra_info)
        for row, (e, t) in enumerate(zip(table["extra_info"]["episode"], table["frame_no"], strict=True)):
            table["reward"][row] = self.episodes[e]["reward"][max(t - 1, 0)]
        return table


@fault("trajectories", "A trajectory's return leaves out the last step.")
class WrongReturn(Diary):
    def trajectory(self, e):
        trajectory = super().trajectory(e)
        trajectory["extra_info"]["return"] -= float(self.episodes[e]["reward"][-1])
        return trajectory


changes(Diary, "pick", {
    # The last episode is never drawn.
    "LastEpisodeNever -> statistics": lambda self, right: [place for place in right if place[0] < 5],
    # The first step of an episode is never drawn.
    "FirstStepsNever -> every step": lambda self, right: [place for place in right if place[1] > 0],
})  # fmt: skip


@fault("priority", "priority is accepted and changes nothing.")
class PriorityIgnored(Diary):
    def chances(self, extra_info, flat):
        super().chances(extra_info, flat)
        return np.full(len(flat), 1 / len(flat))

    def episode_chances(self, extra_info, numbers):
        return super().episode_chances({}, numbers)


@fault("priority", "Low returns are drawn more often.")
class PriorityReversed(Diary):
    def chances(self, extra_info, flat):
        right = super().chances(extra_info, flat)
        if extra_info.get("priority") is None:
            return right
        wrong = right.max() - right + 1e-9
        return wrong / wrong.sum()

    def episode_chances(self, extra_info, numbers):
        right = super().episode_chances(extra_info, numbers)
        wrong = right.max() - right + 1e-9
        return wrong / wrong.sum()


replaces(Diary, "pick", {
    # min_return is accepted and changes nothing.
    "ThresholdIgnored -> threshold": lambda self, extra_info: (Diary.pick(self, {name: value for name, value in
        extra_info.items() if name != "min_return"})),
})  # fmt: skip


replaces(Diary, "sample_steps", {
    # A batch has at most 100 steps.
    "SmallBatch -> same steps":
        lambda self, batch_size, extra_info=NOTHING: Diary.sample_steps(self, min(batch_size, 100), extra_info),
})  # fmt: skip


@fault("seed", "init accepts a seed and does not use it.")
class SeedForgotten(Diary):
    def init(self, options=NOTHING):
        super().init(options)
        self.rng = np.random.default_rng()


@fault("trajectories", "The steps of a trajectory run backwards.")
class TrajectoryOutOfOrder(Diary):
    def trajectory(self, e):
        trajectory = super().trajectory(e)
        return trajectory | {
            "steps_set": self.table([(e, t) for t in reversed(range(len(self.episodes[e]["torque"])))])
        }


replaces(Diary, "trajectory", {
    # trajectory_id is text.
    "TrajectoryIdText -> trajectories":
        lambda self, e: Diary.trajectory(self, e) | {"trajectory_id": f"trajectory {e}"},
})  # fmt: skip


changes(Diary, "get_all_actions", {
    # get_all_actions returns the actions of the whole data set.
    "WrongActions -> actions":
        lambda self, table: table | {"action": {"torque": np.concatenate([one["torque"] for one in self.episodes])}},
})  # fmt: skip


@fault("statistics", "The mean return in the statistics is that of the first five episodes.")
class WrongMean(Diary):
    def statistics(self, extra_info=NOTHING):
        figures = super().statistics(extra_info)
        figures["return"]["mean"] = float(np.mean([self.total(e) for e in range(5)]))
        return figures


changes(Diary, "statistics", {
    # The statistics count observations as steps.
    "WrongCount -> statistics": lambda self, figures: figures | {"steps": figures["steps"] + 6},
})  # fmt: skip


@fault("ownership", "Two batches share their rewards' memory.")
class SharedBatch(Diary):
    out = np.zeros(4096)

    def sample_steps(self, batch_size, extra_info=NOTHING):
        table = super().sample_steps(batch_size, extra_info)
        self.out[:batch_size] = table["reward"]
        return table | {"reward": self.out[:batch_size]}


@fault("ownership", "Writing into a trajectory's action changes the data.")
class DataWritten(Diary):
    def trajectory(self, e):
        trajectory = super().trajectory(e)
        trajectory["steps_set"]["action"]["torque"] = self.episodes[e]["torque"]
        return trajectory


@fault("seed", "Draws take NumPy's global generator.")
class GlobalDraws(Diary):
    def sample_steps(self, batch_size, extra_info=NOTHING):
        self.rng = np.random.mtrand._rand
        return super().sample_steps(batch_size, extra_info)
