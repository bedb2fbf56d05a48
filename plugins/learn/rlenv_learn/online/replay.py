"""Read steps from logs as they grow, and draw batches of which half are demonstrations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from hal import SourceError
from recorder.json_data import JsonObject
from recorder.table.combine import subset
from recorder.table.load import load_runs
from recorder.table.table import Table
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.source import SourceData
from rlenv_robot.tasks.agents import mean_reward
from rlenv_robot.tasks.task import Task

__all__ = ["LogFollower", "Replay", "Reward", "Steps", "held", "recorded_frames", "steps_of", "symmetric"]

Reward = Literal["task", "verdict"]
"""``task``: the task's reward; ``verdict``: 1 for the last step of an episode that a person judged a success."""

_UNFINISHED = "torn"


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of a policy that holds each action for several control periods.

    Attributes:
        observation: vectors before the step, (B, D).
        action: vectors, (B, A).
        reward: discounted sum of rewards over the control periods, (B,).
        next_observation: vectors after the step, (B, D).
        discount: discount factor of the next value, (B,); 0 where the episode terminated.
    """

    observation: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    discount: torch.Tensor
    next_observation: torch.Tensor

    def __len__(self) -> int:
        return len(self.reward)

    def first(self, count: int) -> Steps:
        """Return the first ``count`` steps."""
        return Steps(*(getattr(self, name)[:count] for name in self.__slots__))

    def chosen(self, mask: np.ndarray) -> Steps:
        """Return the steps where a mask (B,) is True."""
        rows = torch.from_numpy(np.flatnonzero(mask))
        return Steps(*(getattr(self, name)[rows] for name in self.__slots__))


def held(flat: FlattenObservation, hold: int) -> FlattenObservation:
    """Return the vectors for actions held for ``hold`` control periods, which move goals ``hold`` times as far."""
    return replace(flat, stride=flat.stride * hold)


def steps_of(
    source: SourceData, flat: FlattenObservation, hold: int, reward: Reward = "task", n_step: int = 1
) -> tuple[Steps, np.ndarray]:
    """Return a step from every recorded frame to the one ``n_step * hold`` control periods later.

    The action is the last one executed in the first ``hold`` periods, so a step may begin at any frame, not only where
    a policy chose. Choices that truncation or a lost frame cuts short are left out: near such an end a step has fewer
    than ``n_step`` choices, and the discount is that of their number. A choice in which a person takes over from the
    policy counts as the end of the episode (RLIF; Luo et al. 2023, arXiv:2311.12996): otherwise the policy's choice
    would be credited with the person's success. For the same reason no policy's step includes a person's choices.

    Args:
        source: recorded episodes.
        flat: vectors of one control period.
        hold: control periods of a choice.
        reward: see `Reward`; episodes without a person's verdict, and discarded ones, then have no steps.
        n_step: choices whose rewards a step sums.

    Returns:
        The steps, and a mask of those whose actions were all chosen by a person, (B,) bool.
    """
    table = source.steps_at(np.arange(len(source)), {"n_step": hold, "chunk": hold})
    extra, step_flat = table["extra_info"], held(flat, hold)
    steps, discount = np.asarray(extra["steps"]), np.asarray(extra["discount"])
    terminated = np.asarray(extra["terminated"]) > 0
    rewards = np.asarray(mean_reward(table["reward"]), np.float64)
    usable = (steps == hold) | terminated
    if reward == "verdict":
        verdicts = np.array([info.get("verdict") for info in source.table.episodes], object)[extra["episode"]]
        ends = np.asarray(table["done"]) > 0
        usable = np.isin(verdicts, ("success", "failure")) & ((steps == hold) | ends)
        rewards = np.where(ends & (verdicts == "success"), source.discount ** (steps - 1.0), 0.0)
        discount = np.where(ends, 0.0, discount)
    last = {name: value[:, -1] for name, value in table["action"].items()}
    begun = np.asarray(extra["intervention"]) > 0
    ended = begun[np.minimum(np.arange(len(source)) + steps - 1, len(source) - 1)]
    by_person, discount = begun & ended, np.where(ended & ~begun, 0.0, discount)
    frame, episode = np.asarray(table["frame_no"]), np.asarray(extra["episode"])
    rewards, discount, end = _summed(rewards, discount, _following(frame, episode, usable, begun, hold), n_step)
    made_steps = Steps(
        _tensor(flat.observe(table["observation"])),
        _tensor(step_flat.vector_of(last, table["observation"])),
        _tensor(rewards),
        _tensor(discount),
        _tensor(flat.observe(table["next_observation"])[end]),
    )
    return made_steps.chosen(usable), by_person[usable]


def _following(
    frame: np.ndarray, episode: np.ndarray, usable: np.ndarray, by_person: np.ndarray, hold: int
) -> np.ndarray:
    """Return the row of the choice after that of each row, (N,) int; -1 where none is usable, or a person took over."""
    rows = np.arange(len(frame))
    after = np.minimum(rows + hold, len(frame) - 1)
    follows = usable[after] & (episode[after] == episode) & (frame[after] == frame + hold)
    follows &= by_person | ~by_person[after]
    return np.where(follows, after, -1)


def _summed(
    reward: np.ndarray, discount: np.ndarray, following: np.ndarray, n_step: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the discounted rewards of up to ``n_step`` choices, the discount after them, and the row of the last one.

    Args:
        reward: of each choice, (N,).
        discount: discount factor of the value after each choice, (N,); 0 where it is an end.
        following: row of the following choice, (N,); -1 where there is none.
        n_step: largest number of choices.
    """
    total, factor, last = reward.copy(), discount.copy(), np.arange(len(reward))
    for _ in range(n_step - 1):
        goes_on = (following[last] >= 0) & (factor > 0)
        after = np.where(goes_on, following[last], 0)
        total += np.where(goes_on, factor * reward[after], 0.0)
        factor = np.where(goes_on, factor * discount[after], factor)
        last = np.where(goes_on, after, last)
    return total, factor, last


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))


class Replay:
    """A replay buffer that grows as steps are added."""

    def __init__(self) -> None:
        self._steps: Steps | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, steps: Steps) -> None:
        """Add steps, doubling the memory when it is full."""
        if not len(steps):
            return
        count = self._count + len(steps)
        if self._steps is None or count > len(self._steps):
            self._steps = self._larger(steps, max(1024, 2 * count))
        for name in Steps.__slots__:
            getattr(self._steps, name)[self._count : count] = getattr(steps, name)
        self._count = count

    def _larger(self, like: Steps, size: int) -> Steps:
        made = Steps(*(torch.zeros((size, *getattr(like, name).shape[1:])) for name in Steps.__slots__))
        if self._steps is not None:
            for name in Steps.__slots__:
                getattr(made, name)[: self._count] = getattr(self._steps, name)[: self._count]
        return made

    def draw(self, count: int, random: torch.Generator) -> Steps:
        """Draw steps with replacement.

        Raises:
            ValueError: the memory is empty.
        """
        if self._steps is None:
            raise ValueError("there are no steps to draw from; add some first")
        rows = torch.randint(self._count, (count,), generator=random)
        return Steps(*(getattr(self._steps, name)[rows] for name in Steps.__slots__))


def symmetric(demonstrations: Replay, recorded: Replay, batch: int, random: torch.Generator) -> Steps:
    """Draw a batch, half of it from each of two memories (RLPD's symmetric sampling).

    Args:
        demonstrations: demonstrations and corrections.
        recorded: all steps of the actor's episodes. While one of the two memories is empty, the whole batch comes from
            the other.
        batch: an even number of steps.
        random: generator of the draws.

    Returns:
        The steps, demonstrations first.

    Raises:
        ValueError: both memories are empty.
    """
    count = batch if not len(recorded) else 0 if not len(demonstrations) else batch // 2
    if count in (0, batch):
        return (demonstrations if count else recorded).draw(batch, random)
    halves = demonstrations.draw(count, random), recorded.draw(batch - count, random)
    return Steps(*(torch.cat([getattr(half, name) for half in halves]) for name in Steps.__slots__))


# -- logs that grow ----------------------------------------------------------------------------------------------------


class LogFollower:
    """Read each episode of a folder of runs once, after it has ended.

    An episode that a killed program left unfinished is read as soon as there is a newer run.

    Args:
        folder: folder of the runs; it may be missing or empty at first.
        task: computes the rewards; None takes the recorded ones.
        discount: discount factor per control period.
        reward: see `Reward`. With ``verdict``, an episode is read once it has a verdict.
    """

    def __init__(self, folder: Path, task: Task | None, discount: float, reward: Reward = "task") -> None:
        self._folder, self._task, self._discount, self._reward = folder, task, discount, reward
        self._read: set[tuple[str, int, int]] = set()
        self.frames = 0

    def new(self) -> SourceData | None:
        """Return the episodes that have ended since the last call, or None if there are none.

        The attribute ``frames`` counts the control periods of all episodes returned so far.
        """
        try:
            table = load_runs(self._folder)
        except SourceError:
            return None
        chosen = list(self._new_in(table))
        if not chosen:
            return None
        part = subset(table, chosen)
        self._read.update(_key(info) for info in part.episodes)
        self.frames += int((part.stops - part.starts - 1).sum())
        try:
            return SourceData(part, self._task, discount=self._discount)
        except SourceError:  # episodes of a single frame
            return None

    def _new_in(self, table: Table) -> Iterator[int]:
        newest = max((str(info["run"]) for info in table.episodes), default="")
        for number, info in enumerate(table.episodes):
            running = info["end"] == _UNFINISHED and str(info["run"]) == newest
            unjudged = self._reward == "verdict" and info.get("verdict") is None
            if not (running or unjudged or _key(info) in self._read):
                yield number


def recorded_frames(folder: Path) -> int:
    """Return the number of control periods of all episodes in a folder of runs; 0 without the folder."""
    follower = LogFollower(folder, None, 0.0)
    follower.new()
    return follower.frames


def _key(info: JsonObject) -> tuple[str, int, int]:
    return str(info["run"]), int(info["episode"]), int(info.get("part", 0))
