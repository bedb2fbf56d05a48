"""A correct environment with two agents, and the faults of several agents: two carts push a ball along a line."""

from __future__ import annotations

import numpy as np

from hal import Field, Spec
from plugins.kit.tests.lander import Lander
from plugins.kit.tests.planting import Planted, planters
from rlenv_robot.world import NOTHING, EnvDescription

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


class Carts(Lander):
    """Each agent sees its own cart and the ball, and is paid by the ball's distance from its end of the line."""

    agents = ("left", "right")
    observation = Spec(
        "carts_observation",
        (
            Field("left_place", (), "float32", -5, 5, "m", "of the left cart"),
            Field("right_place", (), "float32", -5, 5, "m", "of the right cart"),
            Field("ball", (), "float32", -5, 5, "m", "place of the ball"),
        ),
    )
    action = Spec(
        "carts_action",
        (
            Field("left_push", (), "float32", -1, 1, "m", "of the left cart"),
            Field("right_push", (), "float32", -1, 1, "m", "of the right cart"),
        ),
    )
    description = EnvDescription(
        "Two carts and a ball.",
        Field("reward", (), "float64", -10, 10, "m", "of each agent: how near the ball is to the other's end"),
        {"seed": "whole number from 0"},
        {},
        {"agents": "agent -> its own observation: place, ball"},
    )

    def begin(self):
        self.left, self.right, self.ball = -2.0, 2.0, float(self.rng.uniform(-1, 1))

    def advance(self, values):
        self.left = float(np.clip(self.left + 0.2 * values["left_push"], -5, 5))
        self.right = float(np.clip(self.right + 0.2 * values["right_push"], -5, 5))
        drift = 0.1 * (self.left + self.right) + 0.05 * self.rng.normal()
        self.ball = float(np.clip(self.ball + drift, -5, 5))

    def ends(self):
        out = int(abs(self.ball) >= 5)
        return out, int(not out and self.frame_no >= 40)

    def reward(self):
        return {"left": self.ball, "right": -self.ball}

    def refusal(self, problem):
        table, _ = super().refusal(problem)
        return table, self.reward_table({"left": 0.0, "right": 0.0})

    def seen(self):
        places = {"left_place": self.left, "right_place": self.right, "ball": self.ball}
        return {name: np.array(value, np.float32) for name, value in places.items()}

    def own(self):
        return {
            name: {"place": np.array(place, np.float32), "ball": np.array(self.ball, np.float32)}
            for name, place in (("left", self.left), ("right", self.right))
        }

    def extra(self):
        return {"agents": self.own()}

    def render(self, options=NOTHING):
        return None


replaces(Carts, "extra", {
    # No table has the mapping to the agents' own observations.
    "NoMapping -> agents": lambda self: {},
    # The last table lacks the mapping.
    "NoMappingAtEnd -> last frame": lambda self: {} if any(self.ended) else Carts.extra(self),
})  # fmt: skip


changes(Carts, "own", {
    # The mapping has the left agent alone from frame 5 on.
    "OneAgentMissing -> agents": lambda self, own: own if self.frame_no < 5 else {"left": own["left"]},
})  # fmt: skip


replaces(Carts, "reward", {
    # The rewards' agents have other names than the mapping's.
    "OtherNames -> agents": lambda self: {"agent_0": self.ball, "agent_1": -self.ball},
    # The last reward lacks the right agent.
    "RewardLacksAgent -> agents": lambda self: {"left": self.ball} if any(self.ended) else Carts.reward(self),
    # The reward of two agents is their sum, a number, from frame 10 on.
    "SumReward -> agents": lambda self: sum(Carts.reward(self).values()) if self.frame_no >= 10 else Carts.reward(self),
})  # fmt: skip


changes(Carts, "reward", {
    # The right agent's reward is NaN at frame 20.
    "OneAgentNan -> frames": lambda self, right: right | ({"right": float("nan")} if self.frame_no == 20 else {}),
})  # fmt: skip


@fault("agents", "The right agent's own ball is NaN from frame 12 on.")
class OwnNan(Carts):
    def own(self):
        own = super().own()
        own["right"]["ball"] = np.array(np.nan if self.frame_no >= 12 else self.ball, np.float32)
        return own


@fault("agents", "The left agent's own place becomes a vector at frame 7.")
class OwnChangesShape(Carts):
    def own(self):
        own = super().own()
        if self.frame_no >= 7:
            own["left"]["place"] = own["left"]["place"][None]
        return own


@fault("agents", "The left agent's own observation has no ball at the end.")
class OwnLosesField(Carts):
    def own(self):
        own = super().own()
        if any(self.ended):
            del own["left"]["ball"]
        return own


@fault("kept tables", "The agents' own observations are the same arrays in every table.")
class OwnShared(Carts):
    def begin(self):
        super().begin()
        self.out = super().own()

    def own(self):
        for name, values in super().own().items():
            for key, value in values.items():
                self.out[name][key][...] = value
        return self.out


@fault("refusals", "If the right agent's action is illegal, the left agent's is executed.")
class RefusalForOne(Carts):
    def step(self, action, extra_info=NOTHING):
        problem = self.phase == "running" and self.problem(action)
        if problem and problem["field"].endswith("right_push"):
            self.left = float(np.clip(self.left + 0.2, -5, 5))
        return super().step(action, extra_info)


@fault("refusals", "The reward of a refused joint action is a number.")
class RefusalIsNumber(Carts):
    def refusal(self, problem):
        table, _ = super().refusal(problem)
        return table, self.reward_table(0.0)


@fault("refusals", "The table of a refused joint action lacks the mapping.")
class RefusalWithoutMapping(Carts):
    def refusal(self, problem):
        table, reward = super().refusal(problem)
        return {**table, "extra_info": {"error": problem}}, reward


@fault("refusals", "The right agent's range is not checked.")
class RightIgnored(Carts):
    def broken_rule(self, action):
        problem = super().broken_rule(action)
        return None if problem and problem["code"] == "range" and "right" in problem["field"] else problem

    def values(self, action):
        return {name: np.clip(np.asarray(value), -1, 1) for name, value in action.items()}
