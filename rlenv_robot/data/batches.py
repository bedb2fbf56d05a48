"""Tables 5 and 6 made from positions of transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from recorder.sampling import n_step
from recorder.transitions import Transitions, columns
from rlenv_robot.data.filters import is_expert, is_success
from rlenv_robot.protocol import StepTable, TrajectoryTable

__all__ = ["Batches", "Privileged"]

Privileged = Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
"""The hidden state from frame rows (B,) and their episodes (B,); fields with a leading axis (B,)."""


class Batches:
    """Makes the standard's tables; each batch costs one gather of facts, one of rows and one of next rows.

    Args:
        transitions: all of them.
        discount: of one step.
        privileged: see `Privileged`.
    """

    def __init__(self, transitions: Transitions, discount: float, privileged: Privileged) -> None:
        self._transitions, self._discount, self._privileged = transitions, discount, privileged
        self._rows = np.asarray(transitions.table.rows)
        records = transitions.table.episodes
        self._env_ids = np.array([_env_id(record, e) for e, record in enumerate(records)], object)

    def steps(self, index: np.ndarray, weights: np.ndarray, n: int = 1, privileged: bool = False) -> StepTable:
        """Table 5 with a leading axis; see `rlenv_robot.source.SourceData.sample_steps`."""
        facts = self._transitions.facts.take(index)
        ending = facts
        rewards: Mapping[str, np.ndarray]
        if n > 1:
            sums = n_step(self._transitions, index, n, self._discount)
            ending = self._transitions.facts.take(sums.last)
            rewards, steps, discount = sums.rewards, sums.steps, sums.discount
        else:
            rewards = self._one_step(index, facts)
            steps, discount = np.ones(len(index), np.int64), self._discount * (1.0 - facts["terminated"])
        here, there = self._rows.take(facts["row"]), self._rows.take(facts["row"] + 1)
        following = there if n == 1 else self._rows.take(ending["row"] + 1)
        layout = self._transitions.table.layout
        table: StepTable = {
            "env_id": self._env_ids[facts["episode"]],
            "frame_no": facts["frame_no"],
            "observation": columns(here, layout.observation, "observation"),
            "action": columns(there, layout.action, "action"),
            "reward": rewards if layout.agents else rewards[""],
            "next_observation": columns(following, layout.observation, "observation"),
            "done": ending["done"],
            "extra_info": {
                "index": index,
                "weights": weights,
                "episode": facts["episode"],
                "terminated": ending["terminated"],
                "truncated": ending["truncated"],
                "discount": discount,
                "steps": steps,
                "log_probability": facts["log_probability"],
                "intervention": facts["intervention"],
            },
        }
        if privileged:
            table["extra_info"]["state"] = self._privileged(here, facts["episode"])
            table["extra_info"]["next_state"] = self._privileged(following, facts["episode"])
        return table

    def _one_step(self, index: np.ndarray, facts: np.ndarray) -> Mapping[str, np.ndarray]:
        if not self._transitions.table.layout.agents:
            return {"": facts["reward"]}
        return {agent: reward[index] for agent, reward in self._transitions.rewards.items()}

    def trajectory(self, episode: int, weight: float, privileged: bool = False) -> TrajectoryTable:
        """Table 6; see `rlenv_robot.source.SourceData.sample_trajectories`."""
        transitions = self._transitions
        first, last = int(transitions.first[episode]), int(transitions.last[episode])
        index = np.arange(first, last)
        steps = self.steps(index, np.ones(len(index)), 1, privileged)
        ends = transitions.facts[last - 1]
        return {
            "env_id": str(self._env_ids[episode]),
            "trajectory_id": episode,
            "steps_set": steps,
            "extra_info": {
                "start": first,
                "end": last,
                "length": last - first,
                "return": self._return(episode),
                "terminated": int(ends["terminated"]),
                "truncated": int(ends["truncated"]),
                "lost": int(transitions.lost[episode]),
                "weight": weight,
                **_said(transitions.table.episodes[episode]),
            },
        }

    def _return(self, episode: int) -> Any:
        if not self._transitions.table.layout.agents:
            return float(self._transitions.returns[episode])
        cut = slice(self._transitions.first[episode], self._transitions.last[episode])
        return {agent: float(reward[cut].sum()) for agent, reward in self._transitions.rewards.items()}

    def env_id(self, episode: int) -> str:
        """The recorded name of an episode's environment, or one made of its number."""
        return str(self._env_ids[episode])


def _env_id(record: Mapping[str, Any], episode: int) -> str:
    return str(record.get("env_id") or f"episode-{episode}")


def _said(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the record says of its episode; None where it does not."""
    plain = {key: record.get(key) for key in ("source", "policy", "verdict", "goal", "seed", "task")}
    return {**plain, "end_reason": record.get("end"), "expert": is_expert(record), "success": is_success(record)}
