"""Make Tables 5 and 6 from the positions of transitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cached_property, lru_cache

import numpy as np

from recorder.frame_layout import BEHAVIOUR_PREFIX, EXTRA_PREFIX, MASK_PREFIX, reward_field
from recorder.json_data import JsonDict, JsonObject
from recorder.log.labels import is_success
from recorder.table.memory import chosen_scratch, scratch_folder
from recorder.table.sampler import n_step
from recorder.table.training_rows import TrainingRows
from recorder.table.transitions import Transitions
from rlenv_robot.data.episode_records import is_expert
from rlenv_robot.data.messages import RecordedMessages, message_fields_of
from rlenv_robot.data.sampling import Sample
from rlenv_robot.tables import Reward, Rewards, StepTable, TrajectoryTable

__all__ = ["Batches", "Privileged"]

Privileged = Callable[[np.ndarray, np.ndarray], dict[str, np.ndarray]]
"""Return the hidden state for frame rows (B,) and their episodes (B,), as fields with a leading axis (B,)."""


_SIZES = 8
"""Batch sizes for which shared arrays are kept."""


class Batches:
    """Make the standard's tables. A batch gathers neighbouring rows once, and its fields are views of them.

    Args:
        transitions: the recorded transitions.
        discount: the discount of one step.
        privileged: returns the hidden state, see `Privileged`.
    """

    def __init__(self, transitions: Transitions, discount: float, privileged: Privileged) -> None:
        self._transitions, self._discount, self._privileged = transitions, discount, privileged
        self._scratch = chosen_scratch()
        layout = transitions.table.layout
        self._observation = [(name, f"observation_{name}") for name in layout.observation.names]
        self._action = [(name, f"action_{name}") for name in layout.action.names]
        groups = (("step_extra", EXTRA_PREFIX, layout.extra), ("behaviour", BEHAVIOUR_PREFIX, layout.behaviour))
        self._given = [
            (key, [(name, f"{prefix}_{name}") for name in spec.names]) for key, prefix, spec in groups if len(spec)
        ]
        self._masks = [(name, f"{MASK_PREFIX}_{name}") for name in layout.masks.names]
        self._turns, self._answers = layout.turns, layout.answers
        self._agents = [(agent, reward_field(agent)) for agent in layout.agents]
        # What the next value counts after a transition that is not terminated, and after one that is.
        self._factors = np.array([discount, 0.0])
        records = transitions.table.episodes
        mappings = [record.get("agents") for record in records]
        self._mapping = mappings[0] if mappings and all(one == mappings[0] for one in mappings) else None
        fields = message_fields_of(records, layout)
        self._messages = RecordedMessages(transitions, fields) if fields else None
        self._env_ids = np.array([_env_id(record, e) for e, record in enumerate(records)], object)
        self._alike = len(set(self._env_ids)) == 1
        # Batches of one size share their names, read-only: size -> (size,).
        self._shared_ids: dict[int, np.ndarray] = {}

    @cached_property
    def rows(self) -> TrainingRows:
        """The rows from which batches are gathered, made for the first batch."""
        with scratch_folder(self._scratch):
            return TrainingRows(self._transitions)

    def plan(self, index: np.ndarray, n: int = 1) -> tuple[np.ndarray, ...]:
        """Compute the indices and factors of a batch of transitions before its rows are gathered.

        Args:
            index: (B,) positions.
            n: number of steps in an n-step transition.

        Returns:
            The row numbers, (B, 2). If ``n`` is above 1: the row numbers, (B, 3), the third that of the row after the
            last step; then arrays of shape (B,): the position of the last step, the number of steps, the factor of the
            next value, and one array of summed rewards for each agent.
        """
        numbers = self.rows.numbers(index)
        if n == 1:
            return (numbers,)
        sums = n_step(self._transitions, index, n, self._discount)
        following = self._transitions.row(sums.last) + 1
        numbers = np.concatenate([numbers, following[:, None]], axis=1)
        return (numbers, sums.last, sums.steps, sums.discount, *sums.rewards.values())

    def steps(self, sample: Sample, n: int = 1, privileged: bool = False) -> StepTable:
        """Return Table 5 with a leading axis; see `rlenv_robot.source.SourceData.sample_steps`."""
        index, weights, plan = sample
        numbers, *more = self.plan(index, n) if plan is None else plan
        rows = self.rows.rows(numbers)
        before, after, ends = rows[:, 0], rows[:, 1], rows[:, -1]
        episode, done, terminated, truncated = self.rows.flags(more[0] if more else index, ends)
        intervention = after["intervention"]
        table: StepTable = {
            "env_id": self._ids(index, episode),
            "frame_no": before["frame_no"],
            "observation": {name: before[field] for name, field in self._observation},
            "action": {name: after[field] for name, field in self._action},
            "reward": self._rewards(after, more[3:]),
            "next_observation": {name: ends[field] for name, field in self._observation},
            "done": done,
            "extra_info": {
                "index": index,
                "weights": weights,
                "episode": episode,
                "terminated": terminated,
                "truncated": truncated,
                "discount": more[2] * (1 - terminated) if more else self._factors.take(terminated),
                "steps": more[1] if more else _ones(len(index)),
                "log_probability": after["log_probability"],
                "intervention": intervention if self.rows.packed else intervention.astype(np.int32),
            },
        }
        for key, fields in self._given:
            table["extra_info"][key] = {name: after[field] for name, field in fields}
        if self._masks:
            table["extra_info"]["action_mask"] = {name: before[field] for name, field in self._masks}
            table["extra_info"]["next_action_mask"] = {name: ends[field] for name, field in self._masks}
        if self._mapping:
            table["extra_info"]["agents"] = _own(self._mapping)
        if self._messages is not None:
            table["extra_info"]["messages"] = self._messages.at(numbers[:, 0])
            table["extra_info"]["next_messages"] = self._messages.at(numbers[:, -1])
        if self._turns:
            table["extra_info"]["agent"] = before["agent"].astype(np.int32)
        if self._answers:
            table["extra_info"]["answers"] = after["answers"].astype(np.int32)
        if privileged:
            self._add_privileged(table, index)
        return table

    def _rewards(self, after: np.ndarray, sums: list[np.ndarray]) -> Rewards:
        """Return the rewards of transitions from the rows at which they end, or from sums, one for each agent."""
        if not self._agents:
            return sums[0] if sums else after["reward"]
        if sums:
            return {agent: reward for (agent, _), reward in zip(self._agents, sums, strict=True)}
        return {agent: after[field] for agent, field in self._agents}

    def _ids(self, index: np.ndarray, episode: np.ndarray) -> np.ndarray:
        """Return the names of the environments, (B,) of str."""
        if not self._alike:
            return np.asarray(self._env_ids.take(episode))
        size = len(index)
        if size not in self._shared_ids:
            if len(self._shared_ids) >= _SIZES:
                self._shared_ids.clear()
            self._shared_ids[size] = _read_only(np.full(size, self._env_ids[0], object))
        return self._shared_ids[size]

    def _add_privileged(self, table: StepTable, index: np.ndarray) -> None:
        extra, transitions = table["extra_info"], self._transitions
        last = index + extra["steps"] - 1
        extra["state"] = self._privileged(transitions.rows(index), extra["episode"])
        extra["next_state"] = self._privileged(transitions.next_rows(last), extra["episode"])

    def trajectory(self, episode: int, weight: float, privileged: bool = False) -> TrajectoryTable:
        """Return a whole episode as Table 6; see `rlenv_robot.source.SourceData.sample_trajectories`."""
        first, last = int(self._transitions.first[episode]), int(self._transitions.last[episode])
        return self._between(first, last, episode, weight, privileged)

    def piece(self, start: int, length: int, weight: float, privileged: bool = False) -> TrajectoryTable:
        """Return consecutive transitions of an episode as Table 6."""
        episode = int(self._transitions.places(np.array([start])).episode[0])
        return self._between(start, start + length, episode, weight, privileged)

    def _between(self, first: int, last: int, episode: int, weight: float, privileged: bool) -> TrajectoryTable:
        transitions, index = self._transitions, np.arange(first, last)
        steps = self.steps(Sample(index, np.ones(len(index)), None), 1, privileged)
        return {
            "env_id": str(self._env_ids[episode]),
            "trajectory_id": episode,
            "steps_set": steps,
            "extra_info": {
                "start": first,
                "end": last,
                "length": last - first,
                "return": self._return(first, last),
                "terminated": int(steps["extra_info"]["terminated"][-1]),
                "truncated": int(steps["extra_info"]["truncated"][-1]),
                "lost": int(transitions.lost[episode]),
                "weight": weight,
                **_episode_facts(transitions.table.episodes[episode]),
            },
        }

    def _return(self, first: int, last: int) -> Reward:
        rewards = self._transitions.rewards_at(np.arange(first, last))
        sums = {agent: float(reward.sum()) for agent, reward in rewards.items()}
        return sums if self._agents else sums[""]

    def env_id(self, episode: int) -> str:
        """Return the recorded name of an episode's environment, or one derived from the episode's number."""
        return str(self._env_ids[episode])


@lru_cache(_SIZES)
def _ones(size: int) -> np.ndarray:
    return _read_only(np.ones(size, np.int64))


def _read_only(values: np.ndarray) -> np.ndarray:
    values.setflags(write=False)
    return values


def _own(mapping: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return a copy of the agents' mapping, since a table is the receiver's."""
    return {agent: dict(names) for agent, names in mapping.items()}


def _env_id(record: JsonObject, episode: int) -> str:
    return str(record.get("env_id") or f"episode-{episode}")


def _episode_facts(record: JsonObject) -> JsonDict:
    """Return what a record says of its episode, None where it says nothing."""
    plain = deepcopy({key: record.get(key) for key in ("source", "policy", "verdict", "goal", "seed", "task")})
    if record.get("agents"):
        plain["agents"] = _own(record["agents"])
    return {**plain, "end_reason": record.get("end"), "expert": is_expert(record), "success": is_success(record)}
