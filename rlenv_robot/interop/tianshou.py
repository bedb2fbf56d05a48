"""Recorded data as a Tianshou `ReplayBuffer`, in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer

from recorder.table import Table
from rlenv_robot.interop.columns import joined, runs_for
from rlenv_robot.source import SourceData

__all__ = ["to_replay_buffer"]


def to_replay_buffer(
    source: SourceData | Table, *, vector: bool = True, alpha: float | None = None, beta: float = 0.4
) -> ReplayBuffer:
    """All transitions, episode after episode, with their true next observations.

    Args:
        source: recorded data.
        vector: several observation fields become one float32 vector, as networks want; False keeps them as a
            `Batch` of fields. Several action fields always become a vector.
        alpha: makes a `PrioritizedReplayBuffer` with this exponent; all priorities start alike.
        beta: its importance exponent.

    Returns:
        A full buffer. ``terminated`` and ``truncated`` are apart, so a truncated end is bootstrapped; the last
        index is set, which ``ReplayBuffer.from_data`` leaves at 0, so that ``prev``, ``next`` and n-step returns
        stop at the ends of episodes.

    Raises:
        SourceError: there is no step, or several agents are rewarded one by one.
    """
    table, runs = runs_for(source, "a Tianshou buffer")
    layout = table.layout
    seen = [run.group("observation", layout.observation) for run in runs]
    came = np.concatenate([run.came for run in runs])
    size = len(came)
    ends = np.cumsum([len(run) for run in runs]) - 1
    flags = {"terminated": np.zeros(size, bool), "truncated": np.zeros(size, bool)}
    for name, flag in flags.items():
        flag[ends] = [getattr(run, name) for run in runs]
    batch = Batch(
        obs=_observation([{k: v[:-1] for k, v in one.items()} for one in seen], vector),
        act=np.concatenate([joined(run.group("action", layout.action), len(run)) for run in runs]),
        rew=came["reward"].astype(np.float64),
        done=flags["terminated"] | flags["truncated"],
        obs_next=_observation([{k: v[1:] for k, v in one.items()} for one in seen], vector),
        info=Batch(),
        **flags,
    )
    buffer = ReplayBuffer(size) if alpha is None else PrioritizedReplayBuffer(size, alpha, beta)
    buffer.set_batch(batch)
    buffer._size = size  # as ReplayBuffer.from_data does
    buffer.last_index[0] = size - 1
    if isinstance(buffer, PrioritizedReplayBuffer):
        buffer.init_weight(np.arange(size))
    return buffer


def _observation(parts: list[dict[str, np.ndarray]], vector: bool) -> Any:
    if vector or len(parts[0]) == 1:
        return np.concatenate([joined(part, len(next(iter(part.values())))) for part in parts])
    return Batch({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
