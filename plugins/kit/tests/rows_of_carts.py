"""A correct batch of environments with two agents each, and faults of such batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from plugins.kit.tests.carts import Carts
from plugins.kit.tests.planting import Planted, planters
from plugins.kit.tests.rows_of_landers import Landers, RowSeeds, SeedsOfRowZero

FAULTS: dict[str, Planted] = {}
fault, changes, _ = planters(FAULTS)


class SeededCarts(RowSeeds, Carts):
    """Carts that a batch seeds."""


class AloneCarts(SeedsOfRowZero, Carts):
    """Carts whose episodes are those of row 0."""


class RowsOfCarts(Landers):
    """N pairs of carts; rewards and own observations are by agent, with a leading axis."""

    observation, action, description = Carts.observation, Carts.action, Carts.description
    agents = Carts.agents
    row = SeededCarts

    def nothing(self):
        return {"left": 0.0, "right": 0.0}

    def rewards(self, stacked, rewards):
        by_agent = {agent: np.array([reward[agent] for reward in rewards], float) for agent in self.agents}
        return {"env_id": list(self.env_ids), "frame_no": stacked["frame_no"].copy(), "reward": by_agent}

    def stack(self, tables, flags=True):
        table = super().stack(tables, flags)
        table["extra_info"] = {"agents": self.own(tables)}
        return table

    def own(self, tables) -> Any:
        return {
            agent: {
                name: np.stack([table["extra_info"]["agents"][agent][name] for table in tables])
                for name in ("place", "ball")
            }
            for agent in self.agents
        }


@fault("frames", "The rewards name the left agent alone, from frame 8 on.")
class RewardsOfOne(RowsOfCarts):
    def rewards(self, stacked, rewards):
        table = super().rewards(stacked, rewards)
        if stacked["frame_no"].max() >= 8:
            del table["reward"]["right"]
        return table


@fault("single", "The agents' rewards are exchanged in row 0: for `single=`.")
class RewardsExchanged(RowsOfCarts):
    def rewards(self, stacked, rewards):
        table = super().rewards(stacked, rewards)
        left, right = table["reward"]["left"], table["reward"]["right"]
        left[0], right[0] = right[0], left[0]
        return table


changes(RowsOfCarts, "rewards", {
    # The rewards are sums over the agents.
    "RewardsSummed -> single": lambda self, table: table | {"reward": sum(table["reward"].values())},
})  # fmt: skip


@fault("frames", "The right agent of the last row earns NaN at frame 9.")
class RewardNanOfOne(RowsOfCarts):
    def rewards(self, stacked, rewards):
        table = super().rewards(stacked, rewards)
        if stacked["frame_no"][-1] == 9:
            table["reward"]["right"][-1] = np.nan
        return table


changes(RowsOfCarts, "stack", {
    # The tables have no mapping to the agents' own observations.
    "NoMapping -> frames": lambda self, right: right | {"extra_info": {}},
})  # fmt: skip


@fault("frames", "The mapping lacks the right agent from frame 5 on.")
class MappingOfOne(RowsOfCarts):
    def own(self, tables):
        own = super().own(tables)
        return own if tables[0]["frame_no"] < 5 else {"left": own["left"]}


@fault("frames", "The right agent's own ball lacks the last row.")
class MappingShort(RowsOfCarts):
    def own(self, tables):
        own = super().own(tables)
        own["right"]["ball"] = own["right"]["ball"][:-1]
        return own


@fault("rows apart", "The right agents of all rows follow that of row 0.")
class OneAgentMovesAll(RowsOfCarts):
    def step(self, action):
        if isinstance(action, dict) and isinstance(action.get("action"), dict) and "right_push" in action["action"]:
            push = np.array(action["action"]["right_push"])
            if push.shape == (self.num_envs,):
                push[:] = push[0]
                action = action | {"action": action["action"] | {"right_push": push}}
        return super().step(action)
