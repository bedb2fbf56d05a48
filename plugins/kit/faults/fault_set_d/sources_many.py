"""Source data of two agents, and text files through the project's own class."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np

import rlenv_robot as rr
from plugins.kit.faults.fault_set_d.common import NOTHING, source_fault, source_good
from plugins.kit.faults.fault_set_d.sources import ArrayLog, walk

TEAM = {"left": {"place": "left_place"}, "right": {"place": "right_place"}}


class TwoAgents(ArrayLog):
    """Two walkers: the reward is a dictionary by agent, and extra_info has what each of them observes."""

    lengths = (3, 7, 5, 6, 8)

    def load(self):
        self.seen, self.done_here, self.team = {}, {}, {}
        for seed, agent in enumerate(TEAM):
            place, push, reward = walk(self.lengths, 11 + seed)
            self.seen[f"{agent}_place"], self.done_here[f"{agent}_push"], self.team[agent] = place, push, reward

    def reward_at(self, index):
        return {agent: reward[self.row(index)] for agent, reward in self.team.items()}

    def add(self, reward, later, factor):
        return {agent: value + factor * later[agent] for agent, value in reward.items()}

    def single_rewards(self):
        return sum(self.reward_at(np.arange(self.total)).values())

    def episode_return(self, first, stop):
        return {agent: float(value.sum()) for agent, value in self.reward_at(np.arange(first, stop)).items()}

    def returns(self):
        return np.array([sum(TwoAgents.episode_return(self, a, b).values())
                         for a, b in zip(self.first[:-1], self.first[1:], strict=True)])  # fmt: skip

    def mapping(self):
        return {agent: dict(names) for agent, names in TEAM.items()}

    def table(self, index, n=1):
        table = super().table(index, n)
        table["extra_info"]["agents"] = self.mapping()
        return table


@source_fault("6.2.3.3-2", "reward is a dictionary by agent", "whole")
class AgtSummed(TwoAgents):
    """The reward is the sum over the agents, one number a step."""

    def table(self, index, n=1):
        table = super().table(index, n)
        return {**table, "reward": sum(table["reward"].values())}


@source_fault("6.2.3.1-3", "extra_info maps the observation to the agents", "whole")
class AgtNoMapping(TwoAgents):
    """The mapping of the agents is missing."""

    def table(self, index, n=1):
        table = super().table(index, n)
        del table["extra_info"]["agents"]
        return table


@source_fault("6.3.3.1-T5.reward", "the reward of this step", "whole")
class AgtSwapped(TwoAgents):
    """In trajectories the agents have each other's rewards."""

    def piece(self, first, stop):
        plain = super().piece(first, stop)
        left, right = plain["steps_set"]["reward"].values()
        return {**plain, "steps_set": {**plain["steps_set"], "reward": {"left": right, "right": left}}}


@source_fault("6.3.3.1-T5.env_id", "env_id has 1 to 36 characters", "whole")
class AgtPathName(TwoAgents):
    """Env_id is the path of the file, of 44 characters."""

    def env(self, episode):
        return f"/data/recordings/2025/june/two-agents/run{episode:03d}"


@source_good
class AgtQuiet(TwoAgents):
    """Two agents, of which one is never rewarded, and a truncated episode of one step."""

    lengths = (1, 4, 2)

    def load(self):
        super().load()
        self.team["right"] = np.zeros_like(self.team["right"])


# -- text files ---------------------------------------------------------------------------------------------

HEAD = ("episode", "angle", "rate", "torque", "motor", "reward", "terminated")


def write_runs(path, lengths=(7, 5, 9, 5, 8, 6), same=False):
    rng = np.random.default_rng(8)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(HEAD)
        for episode, length in enumerate(lengths):
            for k in range(length + 1):
                angle = 0.5 if same else round(float(rng.normal()), 3)
                reward = 0.25 if same else round(-abs(angle), 3)
                out.writerow([episode, angle, k, round(float(rng.normal()), 1) if not same else 1, 2, reward,
                              int(episode % 2 == 0 and k == length)])  # fmt: skip


class FileLog(rr.SourceData):
    """A text file with a line a frame, read through the project's own source data with all of their options."""

    same = False

    def __init__(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "runs.csv"
            write_runs(path, same=self.same)
            data = np.genfromtxt(path, delimiter=",", names=True)
        infos = [
            {"source": "expert" if k % 3 == 0 else "random", "policy": f"p{k}", "success": k % 2 == 0} for k in range(6)
        ]
        table = rr.table(
            observation={name: data[name].astype(np.float32)[:, None] for name in ("angle", "rate")},
            action={name: data[name].astype(kind)[:, None] for name, kind in (("torque", "f4"), ("motor", "i8"))},
            episode=data["episode"].astype(int), reward=data["reward"], terminated=data["terminated"] == 1,
            infos=infos, origin="runs.csv",
        )  # fmt: skip
        super().__init__(table, discount=0.95)


@source_fault("6.3.3.1-T5.observation", "the observation of this frame", "whole")
class FilLacksRate(FileLog):
    """The steps of trajectories lack one field of the observation."""

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        drawn = super().sample_trajectories(trajectory_size, extra_info)
        for one in drawn:
            one["steps_set"]["observation"] = {"angle": one["steps_set"]["observation"]["angle"]}
        return drawn


@source_fault("contract", "weights undo the priorities", "weights")
class FilWeightsTurned(FileLog):
    """With beta, steps of a large priority weigh more."""

    def sample_steps(self, batch_size, extra_info=NOTHING):
        table = super().sample_steps(batch_size, extra_info)
        weights = 1 / table["extra_info"]["weights"]
        table["extra_info"]["weights"] = weights / weights.max()
        return table


@source_fault("contract", "a histogram has bins counts and one edge more", "figures")
class FilMiddles(FileLog):
    """A histogram's edges are the middles of its bins."""

    def statistics(self, extra_info=NOTHING):
        figures = super().statistics(extra_info)
        if "edges" in figures:
            edges = np.array(figures["edges"])
            figures["edges"] = ((edges[:, 1:] + edges[:, :-1]) / 2).tolist()
        return figures


@source_fault("contract", "a filter selects what it names", "filters")
class FilExpertTurned(FileLog):
    """Expert True draws the episodes that are no expert's."""

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        options = dict(extra_info)
        if "expert" in options:
            options["expert"] = not options["expert"]
        return super().sample_trajectories(trajectory_size, options)


@source_fault("contract", "a window has its own frame last, and its mask", "stacks")
class FilStackTurned(FileLog):
    """A stack has the newest frame first."""

    def sample_steps(self, batch_size, extra_info=NOTHING):
        table = super().sample_steps(batch_size, extra_info)
        if "stack" in extra_info:
            table["observation"] = {name: values[:, ::-1] for name, values in table["observation"].items()}
        return table


@source_fault("6.3.3.1-T5.action", "the action of this frame", "whole")
class FilActionLate(FileLog):
    """In trajectories the action is that of the step before, at the first step its own."""

    def sample_trajectories(self, trajectory_size, extra_info=NOTHING):
        drawn = super().sample_trajectories(trajectory_size, extra_info)
        for one in drawn:
            action = one["steps_set"]["action"]
            one["steps_set"]["action"] = {name: np.concatenate([v[:1], v[:-1]]) for name, v in action.items()}
        return drawn


@source_fault("contract", "statistics are JSON data", "figures")
class FilArrays(FileLog):
    """The statistics hold NumPy arrays."""

    def statistics(self, extra_info=NOTHING):
        figures = super().statistics(extra_info)
        return {name: np.asarray(value) if isinstance(value, list) else value for name, value in figures.items()}


@source_fault("6.3.2.4-1", "all actions of the present state", "states")
class FilStateIgnored(FileLog):
    """The option state is taken, and the actions are those of the current one."""

    def get_all_actions(self, extra_info=NOTHING):
        return super().get_all_actions({name: value for name, value in extra_info.items() if name != "state"})


@source_fault("6.3.2.5-1", "statistics describe the data that are asked for", "figures")
class FilFrameLengths(FileLog):
    """The length of an episode counts its last observation as a step."""

    def statistics(self, extra_info=NOTHING):
        figures = super().statistics(extra_info)
        for one in figures.get("episodes", []) if figures["kind"] == "episodes" else []:
            one["length"] += 1
        return figures


@source_good
class FilAllEqual(FileLog):
    """A file in which all frames are equal."""

    same = True
