"""Convert recorded data to a Tianshou `ReplayBuffer` in memory."""

from __future__ import annotations

import numpy as np
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer

from hal.frame_layout import FrameLayout
from recorder.formats.runs import Run
from recorder.table.table import Table
from rlenv_robot.adapters.columns import joined, runs_for
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.source import SourceData

__all__ = ["to_replay_buffer"]


def to_replay_buffer(
    source: SourceData | Table,
    *,
    vector: bool = True,
    flat: FlattenObservation | None = None,
    best: float = 1.0,
    alpha: float | None = None,
    beta: float = 0.4,
    seed: int = 42,
) -> ReplayBuffer:
    """Convert all transitions, episode after episode, with their true next observations.

    Args:
        source: recorded data.
        vector: several observation fields become one float32 vector, as networks want; False keeps them as a
            `Batch` of fields. Several action fields always become a vector.
        flat: observations and actions as its vectors, as `to_tianshou` gives them to those who train online.
        best: only this share of the episodes, at least one: those of the highest return.
        alpha: makes a `PrioritizedReplayBuffer` with this exponent; all priorities start alike.
        beta: its importance exponent.
        seed: of what the buffer draws; by default Tianshou's own, the same for every buffer.

    Returns:
        A full buffer. ``terminated`` and ``truncated`` are apart, so a truncated end is bootstrapped; the last
        index is set, which ``ReplayBuffer.from_data`` leaves at 0, so that ``prev``, ``next`` and n-step returns
        stop at the ends of episodes.

    Raises:
        SourceError: there is no step, or several agents are rewarded one by one.
        ValueError: ``best`` is not above 0 and at most 1.
    """
    if not 0 < best <= 1:
        raise ValueError(f"best is {best}, it must be above 0 and at most 1")
    table, runs = runs_for(source, "a Tianshou buffer")
    if best < 1:
        runs = sorted(runs, key=lambda run: -float(run.came["reward"].sum()))[: max(1, round(best * len(runs)))]
    layout = table.layout
    observed = [run.group("observation", layout.observation) for run in runs]
    came = np.concatenate([run.came for run in runs])
    size = len(came)
    ends = np.cumsum([len(run) for run in runs]) - 1
    flags = {"terminated": np.zeros(size, bool), "truncated": np.zeros(size, bool)}
    for name, flag in flags.items():
        flag[ends] = [getattr(run, name) for run in runs]
    batch = Batch(
        obs=_observation([{k: v[:-1] for k, v in one.items()} for one in observed], vector, flat),
        act=np.concatenate([_action(run, layout, flat) for run in runs]),
        rew=came["reward"].astype(np.float64),
        done=flags["terminated"] | flags["truncated"],
        obs_next=_observation([{k: v[1:] for k, v in one.items()} for one in observed], vector, flat),
        info=Batch(),
        **flags,
    )
    buffer = (
        ReplayBuffer(size, random_seed=seed)
        if alpha is None
        else PrioritizedReplayBuffer(size, alpha, beta, random_seed=seed)
    )
    buffer.set_batch(batch)
    buffer._size = size  # as ReplayBuffer.from_data does
    buffer.last_index[0] = size - 1
    if isinstance(buffer, PrioritizedReplayBuffer):
        buffer.init_weight(np.arange(size))
    return buffer


def _action(run: Run, layout: FrameLayout, flat: FlattenObservation | None) -> np.ndarray:
    actions = run.group("action", layout.action)
    if flat is None:
        return joined(actions, len(run))
    observed = run.group("observation", layout.observation)
    return flat.vector_of(actions, {name: value[:-1] for name, value in observed.items()})


def _observation(
    parts: list[dict[str, np.ndarray]], vector: bool, flat: FlattenObservation | None
) -> np.ndarray | Batch:
    if flat is not None:
        return np.concatenate([flat.observe(part) for part in parts])
    if vector or len(parts[0]) == 1:
        return np.concatenate([joined(part, len(next(iter(part.values())))) for part in parts])
    return Batch({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
