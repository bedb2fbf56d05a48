"""A batch of duels as a list of single simulators, of two agents each with messages; and faults of it."""

from __future__ import annotations

import uuid

import numpy as np

import rlenv_robot as rr
from fault_set_a.registry import base, fault
from rlenv_robot.tables import StepExtra, check_options
from rlenv_robot.tasks.agents import observed_fields
from rlenv_robot.tasks.episode_rules import check_seed, random_seed
from rlenv_robot.vector.validate import check_batch, check_extra, check_ids
from rlenv_robot.world import NOTHING


class Duel:
    """Two players on a ring of nine places; left catches right."""

    def __init__(self, seed, row, episode):
        self.rng = np.random.default_rng([seed, row, episode])
        self.left, self.right = self.rng.integers(0, 9, 2).tolist()
        self.steps = 0

    def move(self, left, right):
        self.left = (self.left + left) % 9
        self.right = (self.right + right + int(self.rng.random() < 0.1)) % 9
        self.steps += 1

    @property
    def caught(self):
        return self.left == self.right

    def seen(self):
        return {"left_place": self.left, "right_place": self.right, "steps": self.steps}


@base
class Duels:
    """Duels of two agents each, with the next episode of a row in the same step."""

    part = "vector"
    style = "list of simulators, two agents, autoreset same_step"
    autoreset, mode, simulator = "same_step", "training", Duel
    agents = tuple(
        rr.Agent(name, {"place": f"{name}_place", "steps": "steps"}, {"go": f"{name}_go", "say": f"{name}_say"}, "say")
        for name in ("left", "right")
    )
    observation = rr.Spec(
        "duel_observation",
        (
            rr.Field("left_place", (), "int32", 0, 8, meaning="of left"),
            rr.Field("right_place", (), "int32", 0, 8, meaning="of right"),
            rr.Field("steps", (), "int32", 0, 10, meaning="of the episode"),
        ),
    )
    action = rr.Spec(
        "duel_action",
        tuple(
            field
            for name in ("left", "right")
            for field in (
                rr.Field(f"{name}_go", (), "int32", -1, 1, meaning="step"),
                rr.Field(f"{name}_say", (2,), "float32", -1, 1, meaning="message to the other"),
            )
        ),
    )
    description = rr.EnvDescription(
        "Left catches right. An episode ends there, or after 10 steps.",
        rr.Field(
            "reward", (), "float64", -1, 1, meaning="a dictionary: 1 for left and -1 for right at a catch, else 0"
        ),
        {"seed": "whole number from 0", "ids": "ascending numbers of the environments to reset; by default all"},
        extra_info={
            "agents": "agent -> its own name -> name in this observation",
            "messages": "receiver -> sender -> the message in the sender's last action; 0 where it was refused",
            "final": "of the episodes that ended in this step: index, frame_no, observation, success, metrics",
        },
    )

    def __init__(self, num_envs):
        self.num_envs, self.seed = num_envs, random_seed()
        self.env_ids = [str(uuid.uuid4()) for _ in range(num_envs)]
        self.episodes, self.duels = [0] * num_envs, [None] * num_envs
        self.closed = False

    @classmethod
    def made(cls, num_envs):
        return cls(num_envs)

    def reset(self, options=NOTHING):
        if self.closed:
            raise rr.EpisodeError("reset after close: make new duels")
        check_options(options, "reset", '{"seed": 7}', ("ids", "seed"))
        ids = options.get("ids")
        if ids is not None and None in self.duels:
            raise rr.EpisodeError("reset of some before a reset of all: reset all first")
        rows = range(self.num_envs) if ids is None else check_ids(ids, self.num_envs).tolist()
        if options.get("seed") is not None:
            self.seed, self.episodes = check_seed(options["seed"]), [0] * self.num_envs
        for row in rows:
            self.begin(row)
        return self.table({}, [0] * self.num_envs, [0] * self.num_envs)

    def begin(self, row):
        self.duels[row] = self.simulator(self.seed, row, self.episodes[row])
        self.episodes[row] += 1

    def frames(self):
        return np.array([duel.steps for duel in self.duels], np.int32)

    def step(self, action, extra_info=NOTHING, *, refused=None):
        if None in self.duels or self.closed:
            raise rr.EpisodeError("step before reset or after close")
        values, errors = check_batch(self.action, action, self.env_ids, self.frames(), np.zeros(self.num_envs, bool))
        check_extra(StepExtra(), extra_info, self.num_envs)
        errors = {**{row: one.to_dict() for row, one in (refused or {}).items()}, **errors}
        reward = {agent.name: np.zeros(self.num_envs) for agent in self.agents}
        terminated, truncated, last = [0] * self.num_envs, [0] * self.num_envs, {}
        for row, duel in enumerate(self.duels):
            if row in errors:
                continue
            self.act(duel, values, row)
            terminated[row], truncated[row] = int(duel.caught), int(not duel.caught and duel.steps >= 10)
            reward["left"][row], reward["right"][row] = float(duel.caught), -float(duel.caught)
            if terminated[row] or truncated[row]:
                last[row] = duel
                self.begin(row)
        said = np.array([row not in errors for row in range(self.num_envs)])[:, None]
        heard = {name: np.where(said, values[name], np.float32(0)) for name in ("left_say", "right_say")}
        extra = {"messages": self.sent(heard)}
        if last:
            extra["final"] = self.final(last)
        if errors:
            extra["error"] = errors
        return self.table(extra, terminated, truncated), self.paid(reward)

    def act(self, duel, values, row):
        duel.move(int(values["left_go"][row]), int(values["right_go"][row]))

    def sent(self, values):
        return {"left": {"right": values["right_say"].copy()}, "right": {"left": values["left_say"].copy()}}

    def final(self, last):
        return {
            "index": np.array(list(last)), "frame_no": np.array([duel.steps for duel in last.values()], np.int32),
            "observation": self.stacked(last.values()), "metrics": {},
            "success": np.array([duel.caught for duel in last.values()]),
        }  # fmt: skip

    def stacked(self, duels):
        seen = [duel.seen() for duel in duels]
        return {name: np.array([one[name] for one in seen], np.int32) for name in self.observation.names}

    def told(self):
        return {"agents": observed_fields(self.agents)}

    def table(self, extra, terminated, truncated):
        return {
            "env_id": self.env_ids, "frame_no": self.frames(), "observation": self.stacked(self.duels),
            "extra_info": {**self.told(), **extra},
            "terminated": np.array(terminated, np.int32), "truncated": np.array(truncated, np.int32),
        }  # fmt: skip

    def paid(self, reward):
        return {"env_id": self.env_ids, "frame_no": self.frames(), "reward": reward}

    def close(self):
        self.closed = True


@fault("6.2.3.3-2", "steps")
class RewardsOfLeft(Duels):
    """The reward is left's alone, an array instead of a dictionary from agent to one."""

    def paid(self, reward):
        return super().paid(reward["left"])


@fault("6.2.3.3-2", "steps")
class RewardsByRow(Duels):
    """The reward is a list with a dictionary for each row instead of a dictionary of arrays."""

    def paid(self, reward):
        return super().paid(
            [{name: float(value[row]) for name, value in reward.items()} for row in range(self.num_envs)]
        )


@fault("B.3.2-3", "steps")
class MessagesOfTheFirstRow(Duels):
    """All rows receive the message of the first row."""

    def sent(self, values):
        return super().sent({name: np.repeat(value[:1], self.num_envs, 0) for name, value in values.items()})


@fault("B.3.2-3", "steps")
class MessagesToOneself(Duels):
    """Each agent receives its own message instead of the other's."""

    def sent(self, values):
        return {"left": {"left": values["left_say"].copy()}, "right": {"right": values["right_say"].copy()}}


@fault("6.2.3.1-3", "reset")
class NoMappingOfDuels(Duels):
    """extra_info has no mapping from the observation to the agents' own."""

    def told(self):
        return {}


@fault("contract", "rows")
class NextRowsAction(Duels):
    """A row executes the action of the row after it."""

    def act(self, duel, values, row):
        super().act(duel, values, (row + 1) % self.num_envs)


class SharedPlace(Duel):
    """Keep left's place for all duels."""

    left_of_all = [0]  # noqa: RUF012
    left = property(lambda self: self.left_of_all[0], lambda self, place: self.left_of_all.__setitem__(0, place))


@fault("contract", "rows")
class LeftIsEverywhere(Duels):
    """The place of left is an attribute of the class, so all rows share it."""

    simulator = SharedPlace


@fault("contract", "reset")
class FinalWithoutEnd(Duels):
    """Each table has final, with no rows where none has ended and zeros as their observations."""

    def told(self):
        nothing = {name: np.zeros(self.num_envs, np.int32) for name in self.observation.names}
        return {**super().told(), "final": {"index": np.arange(self.num_envs), "observation": nothing}}
