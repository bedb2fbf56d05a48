"""Three couriers on a line, who move at once and send notes, as a world with hidden state in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.registry import fault, original
from fault_set_c.shell import SEED, WorldSubject
from rlenv_robot.tasks.agents import messages, observed_fields

F = rr.Field
NAMES = ("cat", "ant", "bee")


@original
class Couriers(WorldSubject):
    style = "world, three agents at once, messages, hidden state"
    mode = "training"
    limit = 8
    agents = tuple(
        rr.Agent(name, {"place": f"place_{name}", "goal": f"goal_{name}"},
                 {"move": f"move_{name}", "note": f"note_{name}", "to": f"to_{name}"}, "note", "to")
        for name in NAMES
    )  # fmt: skip
    observation = rr.Spec("couriers_observation", tuple(
        F(f"{what}_{name}", (), "float32", 0, 10, "m", f"{what} of {name}")
        for name in NAMES for what in ("place", "goal")
    ))  # fmt: skip
    action = rr.Spec("couriers_action", tuple(field for name in NAMES for field in (
        F(f"move_{name}", (), "float32", -1, 1, "m", f"what {name} moves"),
        F(f"note_{name}", (), "text", meaning=f"what {name} says", characters=12),
        F(f"to_{name}", (), "int32", -1, 2, "1", "index of the agent that the note is for, -1 for all"),
    )))  # fmt: skip
    description = rr.EnvDescription(
        "Each courier goes to a goal of its own. All at their goals ends the episode; 8 steps are the limit.",
        F("reward", (), "float64", -10, 0, "m", "of each agent: minus its distance from its goal"),
        {"seed": SEED},
        extra_info={
            "agents": "agent -> local name -> name in the whole observation",
            "messages": "receiver -> sender -> note, after a step", "state": "hidden: wind, in m, in training",
            "truncated_by": "time limit",
        },
    )  # fmt: skip

    def begin(self, options: Mapping[str, Any]) -> None:
        draw = self.rng.uniform(0, 10, (2, 3))
        self.place, self.goal = (dict(zip(NAMES, row.tolist(), strict=True)) for row in draw)
        self.wind = np.zeros(())
        self.sent: dict[str, Any] | None = None

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        self.wind = np.array(self.rng.normal(0, 0.05))
        for name in NAMES:
            self.place[name] = min(max(self.place[name] + float(action[f"move_{name}"]) + float(self.wind), 0.0), 10.0)
        self.sent, self.frame = self.post(action), self.frame + 1
        return self.seen(self.pay())

    def pay(self):
        return {name: -abs(self.place[name] - self.goal[name]) for name in NAMES}

    def post(self, action: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return messages(self.agents, {name: np.array(value) for name, value in action.items()})

    def seen(self, reward) -> rr.TimeStep:
        if self.frame == 0:
            reward = dict.fromkeys(NAMES, 0.0)
        seen = {f"{what}_{name}": np.array(value[name], np.float32)
                for name in NAMES for what, value in (("place", self.place), ("goal", self.goal))}  # fmt: skip
        home = self.frame > 0 and all(abs(self.place[name] - self.goal[name]) < 0.4 for name in NAMES)
        late = self.frame >= self.limit and not home
        return rr.TimeStep(seen, reward, home, late, self.info(late))

    def info(self, late: bool) -> dict[str, Any]:
        info: dict[str, Any] = {"agents": observed_fields(self.agents)}
        if self.mode == "training":
            info["state"] = {"wind": self.wind.copy()}
        if self.sent is not None:
            info["messages"] = self.sent
        return {**info, **({"truncated_by": "time limit"} if late else {})}


@fault("6.2.3.1-3", "obvious", "the mapping to each agent's observation is in the first table alone")
class CouriersMapOnce(Couriers):
    def info(self, late: bool) -> dict[str, Any]:
        return {name: value for name, value in super().info(late).items() if name != "agents" or self.frame == 0}


@fault("B.3.2-1", "ordinary", "the mapping gives each agent the place of the agent before it")
class CouriersMapShifted(Couriers):
    def info(self, late: bool) -> dict[str, Any]:
        info = super().info(late)
        turned = dict(zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True))
        own = {name: {"place": f"place_{turned[name]}", "goal": f"goal_{name}"} for name in NAMES}
        return {**info, "agents": own}


@fault("6.2.3.3-2", "obvious", "the reward is the sum of those of the agents")
class CouriersTeamReward(Couriers):
    def pay(self):
        return max(sum(super().pay().values()), -10.0)


@fault("6.2.3.3-2", "ordinary", "an agent that is at its goal is no longer in the reward")
class CouriersDropsDone(Couriers):
    def pay(self):
        return {name: value for name, value in super().pay().items() if value < -1.5}


@fault("B.3.2-3", "ordinary", "a note for one agent reaches all")
class CouriersShout(Couriers):
    def post(self, action: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return super().post({**action, **{f"to_{name}": np.array(-1) for name in NAMES}})


@fault("B.3.2-3", "subtle", "notes of more than 8 characters arrive cut, where 12 are allowed")
class CouriersCutNotes(Couriers):
    def post(self, action: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return super().post({**action, **{f"note_{name}": action[f"note_{name}"].astype("<U8") for name in NAMES}})


@original
class CouriersInInference(Couriers):
    mode = "inference"


@fault("6.2.3.1-5", "ordinary", "in inference the hidden state is in extra_info too")
class CouriersShowsState(CouriersInInference):
    def info(self, late: bool) -> dict[str, Any]:
        return {**super().info(late), "state": {"wind": self.wind.copy()}}


@fault("B.3.2-2", "ordinary", "the joint action is read in alphabetical order: agents carry out each other's moves")
class CouriersMixed(Couriers):
    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> rr.TimeStep:
        mixed = {f"move_{name}": action[f"move_{other}"] for name, other in zip(NAMES, sorted(NAMES), strict=True)}
        return super().step({**action, **mixed}, extra_info)
