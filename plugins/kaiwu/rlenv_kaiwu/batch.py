"""Batches of `go2-walk` with the tensors of Kaiwu's legged-robot track of 2026."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from hal import EpisodeError
from hal.robots.go2 import HIGH, LOW, STANCE
from rlenv_kaiwu.agent import Counter
from rlenv_kaiwu.lab import LabView, Processors, Signals
from rlenv_robot.registry import make_vector, task
from rlenv_robot.tables import BatchObservationTable
from rlenv_robot.vector.env import VectorEnvironment

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile

__all__ = ["ACTION_SCALE", "CRITIC_SIZE", "POLICY_SIZE", "Go2Batch"]

_log = logging.getLogger(__name__)

ACTION_SCALE = 0.25
"""Change of a joint's goal for an action of 1, rad (the track's data protocol)."""

SCAN = 16 * 16
"""Number of points of the height scan."""

POLICY_SIZE, CRITIC_SIZE = 45 + SCAN, 60 + SCAN
"""Sizes of the policy's and of the critic's observation."""

_OURS = 0.9
"""``action_scale`` of `go2-walk`: an action can set goals within 0.9 rad of the stance."""

_ORDER = np.array([3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8])
"""Permutation between the track's joints (front left, front right, rear left, rear right) and ours (the maker's order);
it is its own inverse."""

_FEET_ORDER = _ORDER[::3] // 3
_FEET = ("FR_foot", "FL_foot", "RR_foot", "RL_foot")

_SCANNED = (31, 16)
"""Points of our scan around the trunk. The track uses its front half: 0 to 1.5 m ahead, up to 0.75 m to each side."""

_OFFSET_M, _SCAN_LIMIT = 0.5, 5.0
"""The offset subtracted from the scanned heights, and the bound to which the result is clipped, m."""

_NOISE = np.repeat(np.array([0.25 * 0.2, 0.05, 0.0, 0.01, 0.05 * 1.5, 0.0], np.float32), [3, 3, 3, 12, 12, 12])
_SCAN_NOISE_M = 0.1
"""Half widths of the uniform noise in the policy's observation, from the track's configuration of the Go2, with its
scales. The critic's observation has no noise."""

_RATE_HZ = 50.0
_RANGES = {"lin_vel_x": "forward", "lin_vel_y": "sideways", "ang_vel_yaw": "turning"}
_OWN = "go2_walk"
"""The table of ``usr_conf`` with settings of `go2-walk`, under the task's names."""

_FIXED = ("action_scale", "torques", "height_scan", "height_scan_in")
"""Settings of `go2-walk` that the layout of the observations fixes."""

_HONOURED = (
    "env.num_envs", "env.episode_length_s", "env_conf.seed", *(f"commands.ranges.{name}" for name in _RANGES),
    "commands.resampling_time", "noise.add_noise", "domain_rand.enable_domain_rand", "domain_rand.push_robots",
    "domain_rand.push_interval_s", "domain_rand.max_push_vel_xy", "domain_rand.randomize_friction",
    "domain_rand.friction_range",
)  # fmt: skip
Answer = tuple[int, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, tuple[dict[str, object], torch.Tensor]]
"""Frame number, observation, reward, terminated, truncated, and a pair of the infos and the critic's observation."""


class Go2Batch:
    """A batch of Go2 on flat ground or on a course, with the track's ``reset(usr_conf)`` and ``step(actions)``.

    The policy's observation has 301 numbers: angular velocity (times 0.25), the gravity vector, the three commands,
    joint angles minus the stance, joint velocities (times 0.05), the last action, and a height scan of 16 by 16 points
    (the trunk's height above the ground minus 0.5 m, times 2.5). The scan reaches from the trunk's middle to 1.5 m
    ahead and 0.75 m to each side, row by row from the right, each row from the trunk forward. On flat ground all points
    are equal. The critic's observation has 316 numbers: also the trunk's velocity, which comes first, and joint torques
    (times 0.01), before the last action; it has no noise.

    These keys of ``usr_conf`` have an effect: ``env.num_envs``, ``env.episode_length_s``, ``env_conf.seed``,
    ``commands.ranges`` and ``commands.resampling_time``; ``noise.add_noise``, with the track's ranges; in
    ``domain_rand`` the pushes (a push adds up to ``max_push_vel_xy`` in a random direction, once every
    ``push_interval_s``) and the friction of the feet, drawn for each episode. The table ``go2_walk`` has settings of
    the task `go2-walk` under its names, such as ``terrain = "stairs"``. With a project's ``processors``, its code makes
    the observations, and the reward from the terms of the table ``rewards``; else the reward is that of `go2-walk`.
    All other keys (the track's terrains, ...) are reported in the log and ignored.

    An environment that ends begins its next episode in the same step. ``infos["time_outs"]`` marks truncated episodes,
    and ``infos["episode"]`` has the mean metrics of the episodes that ended.

    Args:
        counter: counts steps.
        seed: seed of the episodes, if ``usr_conf`` gives none.
        num_envs: number of robots, if ``usr_conf`` gives none.
        most_envs: upper limit on the number of robots in ``usr_conf``; None sets no limit.
        threads: as for `rlenv_robot.make_vector`.
        profile: settings of the task, timing and randomisation that ``usr_conf`` does not give.
        processors: returns the project's observation and reward code, called at each reset.
    """

    def __init__(
        self, counter: Counter | None = None, seed: int | None = None, num_envs: int = 64,
        most_envs: int | None = None, threads: int = 0, profile: Profile | None = None,
        processors: Callable[[], Processors] | None = None,
    ) -> None:  # fmt: skip
        self._counter, self._seed, self._threads = counter or Counter(), seed, threads
        self._num, self._most = num_envs, most_envs
        self._profile = profile
        self._envs: VectorEnvironment | None = None
        self._noise: np.random.Generator | None = None
        self._scans = False
        self._frame_no = 0
        self._make_processors, self._processors = processors, Processors()
        self._view = LabView(*(torch.tensor(np.array(one, np.float32)[_ORDER]) for one in (STANCE, LOW, HIGH)))

    @property
    def agents(self) -> Sequence[str]:
        """The names of the agents: empty, since one agent controls all robots."""
        return ()

    @property
    def num_envs(self) -> int:
        """The number of robots."""
        return self._num

    def reset(self, usr_conf: Mapping[str, object] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Create the robots that a configuration requests, and begin an episode of each.

        Returns:
            The observations of policy and critic, float32 of shapes (N, 301) and (N, 316).

        Raises:
            ValueError: a setting has a wrong value.
        """
        conf = _flat(usr_conf or {})
        self._processors = Processors() if self._make_processors is None else self._make_processors()
        self._processors.begin(usr_conf or {}, self._view)
        own = (f"{_OWN}.", "rewards.") if self._processors.has_reward else (f"{_OWN}.",)
        unknown = {key for key in conf if key not in _HONOURED and not key.startswith(own)}
        if unknown:
            names = sorted({key.rpartition(".")[0] or key for key in unknown})
            _log.warning(
                "usr_conf: go2-walk has no %s; it has %s, and its own settings in the table %s",
                ", ".join(names), ", ".join(_HONOURED), _OWN,
            )  # fmt: skip
        num = int(_number(conf, "env.num_envs", self._num))
        self._num = num if self._most is None else min(num, self._most)
        settings = self._settings(conf)
        self._scans = settings.get("terrain", "flat") != "flat"
        if self._scans:
            settings |= {"height_scan": _SCANNED, "height_scan_in": "state"}
        seed = int(_number(conf, "env_conf.seed", self._seed or 0))
        self._noise = np.random.default_rng([seed, 1]) if _flag(conf, "noise.add_noise") else None
        self.close()
        self._counter.began_episode()
        self._envs = make_vector(
            task("go2-walk", **settings, action_scale=_OURS, torques=True), self._num, seed=seed,
            threads=self._threads, profile=self._profile, randomise=self._randomise(conf),
        )  # fmt: skip
        self._frame_no = 1
        nobody = np.zeros(self._num, bool)
        return self._observations(self._envs.reset(), torch.zeros(self._num, 12), nobody, nobody)

    def _settings(self, conf: Mapping[str, object]) -> dict[str, object]:
        """Return the settings of our task: those of the profile, then the track's, then our own."""
        settings: dict[str, object] = {} if self._profile is None else dict(self._profile.task.options)
        for key, name in _RANGES.items():
            if f"commands.ranges.{key}" in conf:
                settings[name] = _pair(conf, f"commands.ranges.{key}")
        if "env.episode_length_s" in conf:
            settings["steps"] = max(1, round(_number(conf, "env.episode_length_s", 0) * _RATE_HZ))
        if "commands.resampling_time" in conf:
            settings["command_hold_s"] = _pair(conf, "commands.resampling_time")
        if _enabled(conf, "push_robots"):
            settings["push_speed"] = (0.0, _number(conf, "domain_rand.max_push_vel_xy", 0.5))
            settings["push_every_s"] = _number(conf, "domain_rand.push_interval_s", 15.0)
        options = {key.removeprefix(f"{_OWN}."): value for key, value in conf.items() if key.startswith(f"{_OWN}.")}
        for name in options.keys() & set(_FIXED):
            raise ValueError(f"usr_conf: {_OWN}.{name} can't be set, since the layout of the observations fixes it")
        return {name: value for name, value in (settings | options).items() if name not in _FIXED}

    def _randomise(self, conf: Mapping[str, object]) -> dict[str, object] | None:
        """Return what each episode draws, or None to leave that to the profile."""
        if not _enabled(conf, "randomize_friction"):
            return None
        low, high = _pair(conf, "domain_rand.friction_range", (0.3, 1.5))
        drawn = {f"geom.{foot}.friction[0]": {"uniform": [low, high], "unit": "1"} for foot in _FEET}
        return {**({} if self._profile is None else self._profile.randomise), **drawn}

    def step(self, actions: torch.Tensor) -> Answer | None:
        """Step all robots by one control period.

        Args:
            actions: offsets from the stance in units of 0.25 rad, float (N, 12); offsets beyond 0.9 rad are clipped.

        Raises:
            EpisodeError: the batch was not reset.
        """
        envs = self._envs
        if envs is None:
            raise EpisodeError("step before reset: call reset first")
        self._counter.stepped(self._num)
        offsets = actions.detach().cpu().numpy()[:, _ORDER] * (ACTION_SCALE / _OURS)
        request = {
            "env_id": envs.env_ids, "frame_no": self._table["frame_no"],
            "action": {"joint_offset": np.clip(offsets, -1.0, 1.0).astype(np.float32)},
        }  # fmt: skip
        table, reward = envs.step(request)
        if "error" in table["extra_info"]:
            self._counter.refused(len(table["extra_info"]["error"]))
        self._frame_no += 1
        ends = table["terminated"].astype(bool), table["truncated"].astype(bool)
        policy, critic = self._observations(table, actions.detach().cpu().float(), *ends)
        truncated = torch.from_numpy(table["truncated"].astype(bool))
        infos: dict[str, object] = {"time_outs": truncated}
        final = table["extra_info"].get("final")
        if final is not None:
            infos["episode"] = episode = {name: float(np.mean(values)) for name, values in final["metrics"].items()}
        rewards = torch.from_numpy(np.asarray(reward["reward"], np.float32))
        if self._processors.has_reward:
            rewards, terms = self._processors.rewards()
            if final is not None:
                episode |= terms
        terminated = torch.from_numpy(table["terminated"].astype(bool))
        return self._frame_no, policy, rewards, terminated, truncated, (infos, critic)

    def _observations(
        self, table: BatchObservationTable, action: torch.Tensor, terminated: np.ndarray, truncated: np.ndarray
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self._table = table
        obs, state = table["observation"], table["extra_info"]["state"]
        command = np.concatenate([obs["commanded_velocity"], obs["commanded_turning"]], axis=1)
        last = obs["last_action"][:, _ORDER] * (_OURS / ACTION_SCALE)
        body = [0.25 * obs["angular_velocity"], obs["projected_gravity"], command]
        joints = [obs["joint_deviation"][:, _ORDER], 0.05 * obs["joint_velocity"][:, _ORDER]]
        scan = self._scan(state) - _OFFSET_M
        if self._make_processors is not None:
            names = ("linear_velocity", "angular_velocity", "gravity", "command", "joint_deviation", "joint_velocity",
                     "joint_torque", "height", "scan", "foot_force")  # fmt: skip
            values = (
                state["linear_velocity"], obs["angular_velocity"], obs["projected_gravity"], command,
                obs["joint_deviation"][:, _ORDER], obs["joint_velocity"][:, _ORDER], state["joint_torque"][:, _ORDER],
                state["height"], scan + _OFFSET_M, state["foot_force"][:, _FEET_ORDER],
            )  # fmt: skip
            tensors = {
                name: torch.from_numpy(np.asarray(one, np.float32)) for name, one in zip(names, values, strict=True)
            }
            ends = {"terminated": torch.from_numpy(terminated), "truncated": torch.from_numpy(truncated)}
            self._view.update(Signals(**tensors, action=action, **ends))
        critic = [
            state["linear_velocity"], *body, *joints, 0.01 * state["joint_torque"][:, _ORDER], last, _scaled(scan),
        ]  # fmt: skip
        policy = np.concatenate([*body, *joints, last], axis=1)
        if self._noise is not None:
            policy = policy + _NOISE * self._noise.uniform(-1.0, 1.0, policy.shape)
            scan = scan + _SCAN_NOISE_M * self._noise.uniform(-1.0, 1.0, (len(policy), SCAN))
        return self._processors.observations(_tensor([policy, _scaled(scan)]), _tensor(critic))

    def _scan(self, state: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the trunk's height over the track's 256 points, (N, 256)."""
        if not self._scans:
            return np.repeat(state["height"], SCAN, axis=1)
        ahead = state["height_scan"][:, _SCANNED[0] // 2 :]
        return ahead.transpose(0, 2, 1).reshape(-1, SCAN)

    def close(self) -> None:
        """Close the batch. Safe to call more than once."""
        if self._envs is not None:
            self._envs.close()
        self._envs = None


def _scaled(scan: np.ndarray) -> np.ndarray:
    clipped: np.ndarray = 2.5 * np.clip(scan, -_SCAN_LIMIT, _SCAN_LIMIT)
    return clipped


def _tensor(parts: Sequence[np.ndarray]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(parts, axis=1).astype(np.float32))


def _flat(conf: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return the values of nested tables by their dotted keys."""
    flat: dict[str, object] = {}
    for key, value in conf.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _number(conf: Mapping[str, object], key: str, default: float) -> float:
    value = conf.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"usr_conf: {key} is {value!r}, it must be a number from 0")
    return value


def _flag(conf: Mapping[str, object], key: str, default: bool = False) -> bool:
    value = conf.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"usr_conf: {key} is {value!r}, it must be true or false")
    return value


def _enabled(conf: Mapping[str, object], name: str) -> bool:
    """Return whether a part of the track's domain randomisation is on, and all of it."""
    return _flag(conf, f"domain_rand.{name}") and _flag(conf, "domain_rand.enable_domain_rand", True)


def _pair(conf: Mapping[str, object], key: str, default: tuple[float, float] | None = None) -> tuple[float, float]:
    value = conf.get(key, default)
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(end, int | float) for end in value):
        return float(value[0]), float(value[1])
    raise ValueError(f"usr_conf: {key} is {value!r}, it must be a pair of numbers [low, high]")
