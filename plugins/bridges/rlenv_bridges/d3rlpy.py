"""Convert recorded data to a d3rlpy `MDPDataset` in memory."""

from __future__ import annotations

import numpy as np
from d3rlpy.dataset import MDPDataset

from hal import SourceError
from recorder.formats.runs import Run
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_bridges.columns import joined, runs_for
from rlenv_robot.source import SourceData

__all__ = ["to_mdp_dataset"]


def to_mdp_dataset(source: SourceData | Table, *, truncated: str = "append", **options: object) -> MDPDataset:
    """Convert all episodes to an `MDPDataset`. Several fields become one float32 vector.

    d3rlpy has T observations for T actions. It therefore never uses the last transition of a truncated episode, whose
    next observation is missing.

    Args:
        source: recorded data.
        truncated: ``append`` adds the last observation of such an episode as one more frame, with reward 0 and a
            repeated action, so that all T transitions are used; algorithms that read the next action (SARSA) see the
            repeated one. ``drop`` lets d3rlpy lose the last transition.
        options: options of `MDPDataset`, such as ``action_space``.

    Raises:
        SourceError: there is no step, several agents are rewarded, or ``truncated`` has another value.
    """
    if truncated not in ("append", "drop"):
        raise SourceError(f"truncated is {truncated!r}, allowed are 'append' and 'drop'")
    table, runs = runs_for(source, "a d3rlpy data set")
    parts = [_frames(run, table.layout, truncated == "append" and run.truncated) for run in runs]
    observations, actions, rewards = (np.concatenate([part[k] for part in parts]) for k in range(3))
    ends = np.cumsum([len(part[2]) for part in parts]) - 1
    flags = np.zeros((2, len(rewards)), np.float32)
    flags[0, ends] = [run.terminated for run in runs]
    flags[1, ends] = [run.truncated for run in runs]
    return MDPDataset(observations, actions, rewards, *flags, **options)


def _frames(run: Run, layout: FrameLayout, append: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return observations, actions and rewards: T of each, or T + 1."""
    count = len(run)
    observations = joined(run.group("observation", layout.observation), count + 1)
    actions = joined(run.group("action", layout.action), count)
    rewards = run.came["reward"].astype(np.float32)
    if not append:
        return observations[:-1], actions, rewards
    return observations, np.concatenate([actions, actions[-1:]]), np.append(rewards, np.float32(0))
