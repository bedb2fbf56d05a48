"""Two runners with a baton in each row: several agents, notes; an ended row waits for its reset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import rlenv_robot as rr
from fault_set_c.batch_shell import SEED, Batch, Values
from fault_set_c.registry import fault, original
from rlenv_robot.tasks.agents import messages, observed_fields

F = rr.Field
RUNNERS = ("eva", "tom", "udo")


@original
class Relay(Batch):
    style = "own class, three agents, notes, disabled"
    autoreset = "disabled"
    steps = 7
    agents = tuple(
        rr.Agent(name, {"place": f"place_{name}", "wind": "wind"},
                 {"run": f"run_{name}", "note": f"note_{name}", "to": f"to_{name}"}, "note", "to")
        for name in RUNNERS
    )  # fmt: skip
    observation = rr.Spec("relay_observation", (
        *(F(f"place_{name}", (), "float32", 0, 20, "m", f"place of {name}") for name in RUNNERS),
        F("wind", (), "float32", -1, 1, "m", "wind of this step"),
    ))  # fmt: skip
    action = rr.Spec("relay_action", tuple(field for name in RUNNERS for field in (
        F(f"run_{name}", (), "float32", 0, 3, "m", f"what {name} runs"),
        F(f"note_{name}", (2,), "float32", -1, 1, "1", f"what {name} says"),
        F(f"to_{name}", (), "int32", -1, 2, "1", "index of the agent that the note is for, -1 for all"),
    )))  # fmt: skip
    description = rr.EnvDescription(
        "Run. The first one at 18 m ends the episode; 7 steps are the limit.",
        F("reward", (), "float64", -1, 4, "m", "of each agent: what it got ahead"),
        {"seed": SEED, "ids": "ascending numbers of the rows to reset"},
        extra_info={"final": "of the rows that ended", "error": "row -> error",
                    "agents": "agent -> local name -> name in the whole observation",
                    "messages": "receiver -> sender -> (N, 2)"},
    )  # fmt: skip

    def build(self) -> None:
        self.place, self.wind = np.zeros((self.num_envs, 3)), np.zeros(self.num_envs)

    def start(self, row: int) -> None:
        self.place[row], self.wind[row] = self.rngs[row].uniform(0, 3, 3), self.rngs[row].uniform(-1, 1)

    def advance(self, values: Values, extra: Values, moved: np.ndarray):
        before = self.place.copy()
        for row in np.flatnonzero(moved).tolist():
            self.wind[row] = self.rngs[row].uniform(-1, 1)
            run = np.array([values[f"run_{name}"][row] for name in RUNNERS])
            self.place[row] = np.clip(self.place[row] + run + self.wind[row], 0, 20)
        return self.pay(self.place - before)

    def pay(self, ahead: np.ndarray):
        return {name: ahead[:, place] for place, name in enumerate(RUNNERS)}

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        return (self.place >= 18).any(axis=1), self.frame >= self.steps

    def info(self, values: Values | None = None, moved: np.ndarray | None = None) -> dict[str, Any]:
        info: dict[str, Any] = {"agents": observed_fields(self.agents)}
        if values is not None and moved is not None:
            info["messages"] = self.post({name: value.copy() for name, value in values.items()}, moved)
        return info

    def post(self, values: Values, moved: np.ndarray) -> dict[str, Any]:
        for name in RUNNERS:
            values[f"note_{name}"][~moved] = 0
        return messages(self.agents, values, complete=True)

    def observe(self) -> Values:
        places = {f"place_{name}": self.place[:, place].astype(np.float32) for place, name in enumerate(RUNNERS)}
        return {**places, "wind": self.wind.astype(np.float32)}


@fault("6.2.3.1-3", "obvious", "extra_info has no mapping to the agents' observations")
class RelayNoMap(Relay):
    description = replace(Relay.description, extra_info={
        name: words for name, words in Relay.description.extra_info.items() if name != "agents"
    })  # fmt: skip

    def info(self, values: Values | None = None, moved: np.ndarray | None = None) -> dict[str, Any]:
        return {name: value for name, value in super().info(values, moved).items() if name != "agents"}


@fault("6.2.3.3-2", "obvious", "the reward is an array of (N, 3), and no dictionary")
class RelayArrayReward(Relay):
    def paid(self, reward) -> dict[str, Any]:
        return super().paid(np.stack(list(reward.values()), axis=1))


@fault("B.3.2-3", "ordinary", "notes arrive in the row beside")
class RelayWrongRow(Relay):
    def post(self, values: Values, moved: np.ndarray) -> dict[str, Any]:
        posted = super().post(values, moved)
        return {one: {by: np.roll(note, 1, axis=0) for by, note in notes.items()} for one, notes in posted.items()}


@fault("B.3.2-3", "subtle", "the addressee in the first row counts for all rows")
class RelayFirstAddressee(Relay):
    def post(self, values: Values, moved: np.ndarray) -> dict[str, Any]:
        first = {f"to_{name}": np.full_like(values[f"to_{name}"], values[f"to_{name}"][0]) for name in RUNNERS}
        return super().post({**values, **first}, moved)


@fault("contract", "subtle", "the notes of a refused row arrive")
class RelayPostsRefused(Relay):
    def post(self, values: Values, moved: np.ndarray) -> dict[str, Any]:
        return super().post(values, np.ones_like(moved))


@fault("6.2.3.1-T1.terminated", "ordinary", "the flags of an ended row are gone after one step")
class RelayForgetsFlags(Relay):
    def flags(self, ended: np.ndarray, late: np.ndarray, moved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return ended, late


@fault("6.2.1-2", "ordinary", "a row that has ended goes on to move")
class RelayRunsOn(Relay):
    def read(self, action, over: np.ndarray, waiting: np.ndarray) -> tuple[Values, dict[int, Any]]:
        return super().read(action, np.zeros_like(over), waiting)


@fault("6.2.2.1-2", "ordinary", "a reset of some rows begins an episode in all")
class RelayResetsAll(Relay):
    def ids(self, ids) -> np.ndarray:
        super().ids(ids)
        return np.arange(self.num_envs)
