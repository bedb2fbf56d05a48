"""Correct environments of several agents that are unusual."""

from __future__ import annotations

import numpy as np

import rlenv_robot as rr
from fault_set_a.plain import Plain, whole
from fault_set_a.registry import good
from rlenv_robot.tasks.agents import messages, observed_fields
from rlenv_robot.world import NOTHING


class Pool(rr.World):
    """Agents that put numbers from 0 to 3 into a pool; the reward is an agent's share."""

    part, style, names, limit = "environment", "unusual World of several agents", ("one", "two"), 6

    def __init__(self):
        self.rng, self.total, self.steps = np.random.default_rng(), 0, 0

    @classmethod
    def made(cls):
        return rr.make(cls())

    @property
    def agents(self):
        return tuple(rr.Agent(name, {"pool": "pool"}, {"put": f"put_{place}"}) for place, name in enumerate(self.names))

    @property
    def observation(self):
        return rr.Spec("pool_observation", (whole("pool", 0, 1000),))

    @property
    def action(self):
        return rr.Spec("pool_action", tuple(whole(f"put_{place}", 0, 3) for place in range(len(self.names))))

    @property
    def description(self):
        reward = rr.Field("reward", (), "float64", 0, 3, meaning="a dictionary from agent to what it has put")
        return rr.EnvDescription(
            type(self).__doc__, reward, {"seed": "whole number from 0: determines the first pool"},
            extra_info={"agents": "agent -> its own name -> name in this observation",
                        "messages": "receiver -> sender -> the message in the sender's last action"},
        )  # fmt: skip

    def reset(self, options):
        if set(options) - {"seed"}:
            raise ValueError(f"reset options are {sorted(options)}, allowed is seed")
        seed = options.get("seed")
        if seed is not None:
            if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
                raise ValueError(f"seed is {seed!r}, expected a whole number from 0")
            self.rng = np.random.default_rng(seed)
        self.total, self.steps = int(self.rng.integers(0, 100)), 0
        return self.seen(dict.fromkeys(self.names, 0.0), {})

    def step(self, action, extra_info):
        puts = [int(action[f"put_{place}"]) for place in range(len(self.names))]
        self.total, self.steps = self.total + sum(puts), self.steps + 1
        return self.seen(dict(zip(self.names, map(float, puts), strict=True)), messages(self.agents, action))

    def seen(self, reward, sent):
        extra = {"agents": observed_fields(self.agents)}
        if any(sent.values()):
            extra["messages"] = {to: {name: said.copy() for name, said in all.items()} for to, all in sent.items()}
        return rr.TimeStep({"pool": np.array(self.total, np.int32)}, reward, False, self.steps >= self.limit, extra)


@good
class Alone(Pool):
    """There is one agent, and its reward is still a dictionary."""

    names = ("one",)


@good
class Crowd(Pool):
    """There are twelve agents with names in other scripts, who all see the same field."""

    names = tuple(f"агент {letter}" for letter in "αβγδεζηθικλ机")


@good
class Letters(Pool):
    """The message is a text, for all others."""

    @property
    def agents(self):
        own = ({"put": f"put_{place}", "letter": f"letter_{place}"} for place in range(2))
        return tuple(
            rr.Agent(name, {"pool": "pool"}, does, "letter") for name, does in zip(self.names, own, strict=True)
        )

    @property
    def action(self):
        letters = (rr.Field(f"letter_{place}", (), "text", meaning="to the other", characters=20) for place in range(2))
        return rr.Spec("pool_action", (*super().action.fields, *letters))


@good
class PlainPair(Plain):
    """Two agents in a class without a World: the mapping is in extra_info, the rewards are in a dictionary."""

    style = "unusual class of several agents"
    more = {"agents": "agent -> its own name -> name in this observation"}  # noqa: RUF012
    names = ("left", "right")
    agents = tuple(rr.Agent(name, {"side": f"{name}_side"}, {"lift": f"{name}_lift"}) for name in names)
    observation = rr.Spec("beam", tuple(rr.Field(f"{name}_side", (), "float64", 0, 1, "m", "height") for name in names))
    action = rr.Spec(
        "beam_action", tuple(rr.Field(f"{name}_lift", (), "float64", -0.1, 0.1, "m", "lift") for name in names)
    )

    def begin(self):
        self.sides = self.rng.uniform(0.3, 0.7, 2)

    def act(self, values):
        self.sides = np.clip(self.sides + [float(values[f"{name}_lift"]) for name in self.names], 0, 1)
        return dict(zip(self.names, self.sides.tolist(), strict=True)), bool(abs(self.sides[0] - self.sides[1]) > 0.9)

    def see(self):
        return {f"{name}_side": np.array(side) for name, side in zip(self.names, self.sides, strict=True)}

    def table(self, terminated, truncated):
        return {**super().table(terminated, truncated), "extra_info": {"agents": observed_fields(self.agents)}}

    def step(self, action, extra_info=NOTHING):
        table, reward = super().step(action, extra_info)
        if "error" in table["extra_info"]:
            table["extra_info"]["agents"] = observed_fields(self.agents)
            reward["reward"] = dict.fromkeys(self.names, 0.0)
        return table, reward
