"""Call a legged-robot project's own observation and reward code, over the part of Isaac Lab's environment it reads.

Projects of the track compute observations in ``feature/policy_observation_process.py`` and
``feature/critic_observation_process.py`` (class method ``process``) and rewards in ``feature/reward_process.py`` (a
method ``_reward_<term>`` for each table ``[rewards.<term>]`` of ``usr_conf``). They read tensors of Isaac Lab's
environment, which `LabView` has as far as `go2-walk` measures them. A reward term that reads another one is left out,
and the log names it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

__all__ = ["LabView", "MissingSignalError", "Processors", "SceneEntityCfg", "Signals"]

_log = logging.getLogger(__name__)

FEET = ("FL_foot", "FR_foot", "RL_foot", "RR_foot")
"""The bodies whose contacts are measured, in the track's order."""

STEP_S = 0.02
_CONTACT_N = 1.0
"""Force from which on a foot touches the ground, as in the track's configuration of its contact sensor."""

_SOFT = 0.9
"""The share of a joint's range inside its soft limits (Isaac Lab's ``soft_joint_pos_limit_factor`` of the Go2)."""


class MissingSignalError(AttributeError):
    """A project reads a tensor of Isaac Lab's environment that `go2-walk` does not measure."""


class _Part(SimpleNamespace):
    """A part of the environment that names what it lacks."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise MissingSignalError(f"go2-walk has no {name}; it has {', '.join(sorted(vars(self)))}")


class _Sensors(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise MissingSignalError(f"go2-walk has no sensor {name}; it has {', '.join(sorted(self))}")


class SceneEntityCfg:
    """A choice of bodies or joints by patterns of their names, as ``isaaclab.managers.SceneEntityCfg``.

    Args:
        name: the sensor or the robot.
        body_names: patterns of bodies.
        joint_names: patterns of joints; all joints have numbers 0 to 11.
    """

    def __init__(
        self, name: str, body_names: str | Sequence[str] | None = None, joint_names: str | Sequence[str] | None = None,
        **more: object,
    ) -> None:  # fmt: skip
        self.name, self._bodies = name, [body_names] if isinstance(body_names, str) else list(body_names or ())
        self.body_ids: list[int] = []
        self.joint_ids = list(range(12))

    def resolve(self, scene: object) -> None:
        """Find the bodies.

        Raises:
            MissingSignalError: the contacts of no such body are measured.
        """
        matching = (any(re.fullmatch(pattern, foot) for pattern in self._bodies) for foot in FEET)
        self.body_ids = [number for number, matches in enumerate(matching) if matches]
        if self._bodies and not self.body_ids:
            raise MissingSignalError(f"go2-walk measures contacts of {', '.join(FEET)} alone, not of {self._bodies}")


@dataclass(frozen=True)
class Signals:
    """Tensors of N robots after a step, joints and feet in the track's order.

    Attributes:
        linear_velocity: of the trunk in its own frame, m/s, (N, 3).
        angular_velocity: likewise, rad/s, (N, 3).
        gravity: direction of gravity in the trunk's frame, (N, 3).
        command: forward, sideways and turning velocity, m/s and rad/s, (N, 3).
        joint_deviation: joint angles minus the stance, rad, (N, 12).
        joint_velocity: rad/s, (N, 12).
        joint_torque: N m, (N, 12).
        height: of the trunk above the ground, m, (N, 1).
        scan: height of the trunk above 16 by 16 points, m, (N, 256).
        foot_force: N, (N, 4).
        action: as the project gave it, (N, 12).
        terminated: whether an episode ended by the task, bool (N,).
        truncated: whether it ended by its limit, bool (N,).
    """

    linear_velocity: torch.Tensor
    angular_velocity: torch.Tensor
    gravity: torch.Tensor
    command: torch.Tensor
    joint_deviation: torch.Tensor
    joint_velocity: torch.Tensor
    joint_torque: torch.Tensor
    height: torch.Tensor
    scan: torch.Tensor
    foot_force: torch.Tensor
    action: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor


class LabView(_Part):
    """The part of Isaac Lab's environment that observation and reward code of the track reads.

    Heights are above the ground, whose height is 0 below each robot. Forces are vertical. ``goal_positions`` and
    positions in the plane are not measured, so code that asks ``hasattr(env, "goal_positions")`` finds none.

    Args:
        stance: joint angles of the stance in the track's order, rad, (12,).
        low: lower ends of the joints' ranges, (12,).
        high: upper ends, (12,).
    """

    def __init__(self, stance: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> None:
        super().__init__(num_envs=0, device=torch.device("cpu"), step_dt=STEP_S)
        middle, half = (low + high) / 2, _SOFT * (high - low) / 2
        self._stance, self._soft = stance, torch.stack([middle - half, middle + half], dim=-1)
        self._last: Signals | None = None
        self._air = self._ground = self._last_air = self._last_ground = torch.zeros(0, 4)

    def update(self, now: Signals) -> None:
        """Take the tensors after a step, or after a reset where the number of robots differs from the last one."""
        last = self._last
        if last is None or len(last.action) != len(now.action):
            last = now
            self._air, self._ground, self._last_air, self._last_ground = (
                torch.zeros(len(now.action), 4) for _ in "1234"
            )
            self.num_envs = len(now.action)
        self._times(now.foot_force > _CONTACT_N, now.terminated | now.truncated)
        default = self._stance.expand(self.num_envs, -1)
        position = torch.cat([torch.full((self.num_envs, 2), torch.nan), now.height], dim=1)
        force = torch.zeros(self.num_envs, 4, 3)
        force[..., 2] = now.foot_force
        hits = torch.full((self.num_envs, now.scan.shape[1], 3), torch.nan)
        hits[..., 2] = now.height - now.scan
        robot = _Part(data=_Part(
            root_lin_vel_b=now.linear_velocity, root_ang_vel_b=now.angular_velocity, projected_gravity_b=now.gravity,
            root_pos_w=position, default_joint_pos=default, joint_pos=default + now.joint_deviation,
            joint_vel=now.joint_velocity, joint_acc=(now.joint_velocity - last.joint_velocity) / STEP_S,
            applied_torque=now.joint_torque, soft_joint_pos_limits=self._soft.expand(self.num_envs, -1, -1),
        ))  # fmt: skip
        contacts = _Part(cfg=_Part(track_air_time=True), data=_Part(
            net_forces_w=force, net_forces_w_history=force.unsqueeze(1), current_air_time=self._air,
            last_air_time=self._last_air, current_contact_time=self._ground, last_contact_time=self._last_ground,
        ))  # fmt: skip
        scanner = _Part(data=_Part(pos_w=position, ray_hits_w=hits))
        self.scene = _Scene(robot, _Sensors(contact_forces=contacts, height_scanner=scanner))
        self.command_manager = _Part(get_command=lambda name="base_velocity": now.command)
        self.action_manager = _Part(action=now.action, prev_action=last.action)
        self.termination_manager = _Part(
            terminated=now.terminated, time_outs=now.truncated, dones=now.terminated | now.truncated, active_terms=(),
        )  # fmt: skip
        self._last = now

    def _times(self, touching: torch.Tensor, over: torch.Tensor) -> None:
        """Count how long each foot has been in the air and on the ground, s."""
        landed, lifted = touching & (self._air > 0), ~touching & (self._ground > 0)
        self._last_air = torch.where(landed, self._air, self._last_air)
        self._last_ground = torch.where(lifted, self._ground, self._last_ground)
        self._air = torch.where(touching, 0.0, self._air + STEP_S)
        self._ground = torch.where(touching, self._ground + STEP_S, 0.0)
        for times in (self._air, self._ground, self._last_air, self._last_ground):
            times[over] = 0.0


class _Scene:
    def __init__(self, robot: Any, sensors: _Sensors) -> None:
        self.sensors, self._parts = sensors, {"robot": robot}

    def __getitem__(self, name: str) -> Any:
        return self.sensors[name] if name not in self._parts else self._parts[name]


class Processors:
    """A project's observation and reward code.

    Args:
        policy: an object with ``process()``, or None for the track's own observation.
        critic: likewise.
        reward: an object with a method ``_reward_<term>`` for each term, or None for the reward of `go2-walk`.
    """

    def __init__(self, policy: Any = None, critic: Any = None, reward: Any = None) -> None:
        self._policy, self._critic, self._reward = policy, critic, reward
        self._terms: dict[str, tuple[float, Callable[[], torch.Tensor]]] = {}

    def begin(self, conf: Mapping[str, object], view: LabView) -> None:
        """Take the weights of ``usr_conf``'s table ``rewards``, and the environment.

        Raises:
            ValueError: a term has no method, or a weight is no number.
        """
        self._terms = {}
        for part in (self._policy, self._critic, self._reward):
            if part is not None:
                part.env = view
        rewards = conf.get("rewards")
        if self._reward is None or not isinstance(rewards, Mapping):
            return
        for term, given in rewards.items():
            method = getattr(self._reward, f"_reward_{term}", None)
            weight = given.get("weight", 1.0) if isinstance(given, Mapping) else given
            if method is None:
                raise ValueError(f"usr_conf: rewards.{term} has no method _reward_{term} in feature/reward_process.py")
            if isinstance(weight, bool) or not isinstance(weight, int | float):
                raise ValueError(f"usr_conf: rewards.{term}.weight is {weight!r}, it must be a number")
            params = dict(given.get("params", {})) if isinstance(given, Mapping) else {}
            self._terms[term] = float(weight), partial(method, **params)

    @property
    def has_reward(self) -> bool:
        """Whether the project's code makes the reward."""
        return bool(self._terms)

    def observations(self, policy: torch.Tensor, critic: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what the project makes of the track's observations."""
        made = []
        for process, default in ((self._policy, policy), (self._critic, critic)):
            if process is not None:
                process._default_compute_observations = lambda default=default: default
                default = process.process()
            made.append(default.float())
        return made[0], made[1]

    def rewards(self) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the sum of the weighted terms times the step's 0.02 s, (N,), and each term's mean.

        A term that reads a missing tensor, or is not finite, is left out from then on.
        """
        total, means = torch.zeros(0), dict[str, float]()
        for term, (weight, compute) in list(self._terms.items()):
            try:
                value = weight * STEP_S * compute().float()
                lacking = "" if bool(torch.isfinite(value).all()) else "it is not finite (positions in the plane?)"
            except MissingSignalError as error:
                lacking = str(error)
            if lacking:
                _log.warning("reward term %s is left out: %s", term, lacking)
                del self._terms[term]
                continue
            total = value if not len(total) else total + value
            means[term] = float(value.mean())
        return total, means
