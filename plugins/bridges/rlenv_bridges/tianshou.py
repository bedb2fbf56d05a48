"""Adapt a native batch to Tianshou's vector environment, and recorded data to its `ReplayBuffer`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tianshou.data import Batch, PrioritizedReplayBuffer, ReplayBuffer
from tianshou.env import BaseVectorEnv

from hal.errors import wrong_type
from recorder.formats.runs import Run
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_bridges.columns import joined, runs_for
from rlenv_robot.adapters.flat import FlattenObservation
from rlenv_robot.adapters.gymnasium import OutOfRange
from rlenv_robot.adapters.gymnasium_vector import GymnasiumVectorEnv
from rlenv_robot.source import SourceData
from rlenv_robot.tables import ExtraInfo
from rlenv_robot.vector.env import VectorEnvironment

__all__ = ["TianshouVectorEnv", "to_replay_buffer", "to_tianshou"]


def to_replay_buffer(
    source: SourceData | Table,
    *,
    vector: bool = True,
    flat: FlattenObservation | None = None,
    best: float = 1.0,
    alpha: float | None = None,
    beta: float = 0.4,
    seed: int = 42,
    stack: int = 1,
) -> ReplayBuffer:
    """Convert all transitions to a `ReplayBuffer`, episode after episode, with their true next observations.

    Args:
        source: recorded data.
        vector: whether several observation fields become one float32 vector for networks; otherwise they stay a `Batch`
            of fields. Several action fields always become a vector.
        flat: vectors for observations and actions, as `to_tianshou` uses for online training.
        best: share of the episodes to use, those with the highest returns, at least one episode.
        alpha: exponent of a `PrioritizedReplayBuffer` with equal initial priorities; None makes a `ReplayBuffer`.
        beta: importance-sampling exponent of a `PrioritizedReplayBuffer`.
        seed: seed of the buffer's draws; by default Tianshou's own seed, the same for every buffer.
        stack: number of observations in a sample, the newest last; an episode's first observation is repeated for those
            before it.

    Returns:
        A full buffer. ``info`` has the ``episode`` and the ``frame_no`` of every transition, the ``log_probability`` of
        its action (NaN where unknown), and whether it was an ``intervention`` of a person. ``terminated`` and
        ``truncated`` are separate, so that truncated episodes are bootstrapped. The last index, which
        ``ReplayBuffer.from_data`` leaves at 0, is set, so that ``prev``, ``next`` and n-step returns stop at the ends
        of episodes.

    Raises:
        SourceError: there is no step, or agents have separate rewards.
        ValueError: ``best`` is not above 0 and at most 1.
    """
    if isinstance(source, str | Path):
        raise wrong_type("source", source, "a SourceData: rlenv_robot.open_source('runs')")
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
        info=_info(runs),
        **flags,
    )
    buffer = (
        ReplayBuffer(size, stack_num=stack, random_seed=seed)
        if alpha is None
        else PrioritizedReplayBuffer(size, alpha, beta, stack_num=stack, random_seed=seed)
    )
    buffer.set_batch(batch)
    buffer._size = size  # as ReplayBuffer.from_data does
    buffer.last_index[0] = size - 1
    if isinstance(buffer, PrioritizedReplayBuffer):
        buffer.init_weight(np.arange(size))
    return buffer


def _info(runs: Sequence[Run]) -> Batch:
    came = np.concatenate([run.came for run in runs])
    known = {
        name: came[name] for name in ("frame_no", "log_probability", "intervention") if name in (came.dtype.names or ())
    }
    if "intervention" in known:
        known["intervention"] = known["intervention"].astype(bool)
    return Batch(episode=np.repeat([run.episode for run in runs], [len(run) for run in runs]), **known)


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


# -- A batch -------------------------------------------------------------------------------------------------


Ids = int | Sequence[int] | np.ndarray | None
"""Numbers of environments; None for all."""


class TianshouVectorEnv(BaseVectorEnv):
    """A batch with Tianshou's interface, without workers, for `Collector` and the vector buffers.

    Tianshou handles the end of an episode and resets the environments that it chooses. A step of some environments does
    not affect the others. The observation is a float32 vector (D,), the action a vector (A,) in [-1, 1]. ``info`` has
    ``env_id``, and at the end of an episode ``success``, the task's metrics and, if any action in the batch was out of
    range, ``illegal_share``, the share of such actions in the episode. Such actions are refused (`GymnasiumVectorEnv`);
    a Tianshou policy chooses none with ``action_bound_method`` ``clip`` or ``tanh``.

    Args:
        envs: a batch with ``autoreset="disabled"``, which is closed with this object.
        flat: the vectors of observations and actions.
        out_of_range: as for `rlenv_robot.adapters.gymnasium.GymnasiumEnv`.

    Raises:
        ValueError: the batch resets itself.
    """

    def __init__(self, envs: VectorEnvironment, flat: FlattenObservation, out_of_range: OutOfRange = "refuse") -> None:
        if envs.autoreset != "disabled":
            raise ValueError(f"autoreset is {envs.autoreset!r}: Tianshou resets by itself, make it with 'disabled'")
        self.envs, self._flat = GymnasiumVectorEnv(envs, flat, out_of_range=out_of_range), flat
        self.env_num = self.wait_num = envs.num_envs
        self.workers: list[object] = []
        self.is_async, self.is_closed, self.timeout = False, False, None
        self.waiting_id: list[int] = []
        self.ready_id = list(range(self.env_num))
        self._seed: int | None = None

    def get_env_attr(self, key: str, id: Ids = None) -> list[object]:
        """Return a space, once for each requested environment.

        Raises:
            AttributeError: the key is not a space.
        """
        attributes: dict[str, object] = {
            "observation_space": self.envs.single_observation_space,
            "action_space": self.envs.single_action_space,
            "metadata": {},
            "spec": None,
        }
        if key not in attributes:
            raise AttributeError(f"{key!r} is unknown, there are {', '.join(attributes)}")
        return [attributes[key]] * len(self._wrap_id(id))

    def set_env_attr(self, key: str, value: object, id: Ids = None) -> None:
        """Refuse the call, since the environments of a batch have no separate attributes.

        Raises:
            AttributeError: always.
        """
        raise AttributeError(f"{key!r} can't be set: the batch has no single environments")

    @property
    def illegal_share(self) -> float:
        """The share of out-of-range actions among all actions so far."""
        return self.envs.illegal_share

    def reset(self, env_id: Ids = None, **kwargs: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Begin an episode in all or some environments, and return first observations (K, D) and infos (K,)."""
        self._assert_is_not_closed()
        seed, self._seed = kwargs.pop("seed", self._seed), None
        if kwargs:
            raise ValueError(f"reset option {min(kwargs)!r} is unknown, allowed is seed")
        if env_id is None:
            observation, _ = self.envs.reset(seed=seed)
            assert isinstance(observation, np.ndarray)  # since flat makes vectors
            return observation, np.array([{} for _ in range(self.env_num)])
        ids, mask = self._wrap_id(env_id), np.zeros(self.env_num, bool)
        mask[ids] = True
        observation, _ = self.envs.reset(options={"reset_mask": mask})
        assert isinstance(observation, np.ndarray)
        return observation[ids], np.array([{} for _ in ids])

    def step(self, action: np.ndarray, id: Ids = None) -> tuple[np.ndarray, ...]:
        """Step all or some environments; return observations (K, D), rewards, terminated, truncated and infos (K,)."""
        self._assert_is_not_closed()
        ids = np.asarray(self._wrap_id(id))
        everyone = len(ids) == self.env_num
        actions = np.zeros((self.env_num, self._flat.action_size), np.float32)
        actions[ids] = action
        observation, rewards, terminated, truncated, info = self.envs.step_some(None if everyone else ids, actions)
        infos = np.array([{"env_id": env} for env in ids.tolist()])
        if "final_info" in info:
            self._tell(ids, info, infos)
        assert isinstance(observation, np.ndarray)
        assert isinstance(rewards, np.ndarray)  # of a single agent
        return observation[ids], rewards[ids], terminated[ids], truncated[ids], infos

    @staticmethod
    def _tell(ids: np.ndarray, info: ExtraInfo, infos: np.ndarray) -> None:
        facts = info["final_info"]
        for place, env in enumerate(ids.tolist()):
            infos[place]["success"] = bool(facts["success"][env])
            if "illegal_share" in facts:
                infos[place]["illegal_share"] = float(facts["illegal_share"][env])
            infos[place] |= {name: float(values[env]) for name, values in facts["metrics"].items()}

    def seed(self, seed: int | list[int] | None = None) -> list[list[int] | None]:
        """Set one seed for the next reset of all environments."""
        if isinstance(seed, list):
            raise ValueError("give one number: environment i draws from (seed, i, episode)")
        self._seed = seed
        return [None if seed is None else [seed]] * self.env_num

    def render(self, **kwargs: object) -> list[object]:
        """Refuse the call. To see the robot, render a single `Environment`, or replay a recorded run.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("a batch draws no images; render one environment, or replay its log")

    def close(self) -> None:
        """Close the batch. Safe to call more than once."""
        if not self.is_closed:
            self.envs.close()
        self.is_closed = True


def to_tianshou(
    envs: VectorEnvironment, flat: FlattenObservation, out_of_range: OutOfRange = "refuse"
) -> TianshouVectorEnv:
    """Adapt a batch to Tianshou; see `TianshouVectorEnv`."""
    return TianshouVectorEnv(envs, flat, out_of_range)
