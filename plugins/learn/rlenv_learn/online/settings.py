"""The settings that the methods of online learning share: RLPD, and imitation of corrections (HG-DAgger)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

__all__ = ["LOG_STD_RANGE", "OnlineSettings", "View"]

View = Literal["vector", "gripper"]
"""``vector``: the task's vector with magnified differences; ``gripper``: the vector relative to an SO-101's heading and
gripper (`rlenv_learn.gripper_view.GripperView`), or ``vector`` where the task has no such arm."""

LOG_STD_RANGE = (-5.0, 0.0)
"""Smallest and largest log_std of actions before tanh."""


@dataclass(frozen=True, slots=True)
class OnlineSettings:
    """The settings of actor and learner.

    With critics the method is RLPD (Ball et al. 2023, arXiv:2302.02948), and the defaults are that paper's. Without
    critics (``critics=0``) the actor imitates demonstrations and corrections alone: HG-DAgger (Kelly et al. 2019,
    arXiv:1810.02890).

    Attributes:
        hold: control periods for which the robot holds one choice of the policy. 3 periods of an arm at 30 Hz are the
            10 Hz of HIL-SERL (Luo et al. 2024, arXiv:2410.21845).
        discount: discount factor per control period.
        n_step: choices whose rewards a target sums before it takes the critics' value.
        critics: number of critics in the ensemble; 0 for imitation alone.
        subset: number of target critics drawn for each update; the smallest of their values is the target.
        hidden: units of each hidden layer of a critic.
        actor_hidden: units of each hidden layer of the actor.
        view: input of actor and critics, see `View`.
        average: share of the newest weights in the running average of the actor's weights, at each update. The averaged
            weights act, and are saved as the policy; 1 uses the newest weights.
        batch: steps in one update. With critics half of them are demonstrations and corrections, without critics all.
        rate: step size of Adam.
        target_rate: share of the critics' weights in the running average that forms the target critics, at each update
            (tau).
        ratio: updates for each choice of the policy (update-to-data ratio).
        actor_every: number of critic updates for one update of the actor and of the temperature.
        entropy: target entropy of actions, for each element of the action vector.
        temperature: initial weight of the entropy in the actor's loss.
        noise: initial standard deviation of the actor's actions before tanh.
        cloning: updates that imitate the demonstrations before any other learning; 0 for random initial weights, as in
            RLPD.

    Raises:
        ValueError: a setting is out of range; the message names it.
    """

    hold: int = 1
    discount: float = 0.99
    n_step: int = 1
    critics: int = 10
    subset: int = 2
    hidden: tuple[int, ...] = (256, 256)
    actor_hidden: tuple[int, ...] = (256, 256)
    view: View = "vector"
    average: float = 1.0
    batch: int = 256
    rate: float = 3e-4
    target_rate: float = 0.005
    ratio: float = 20.0
    actor_every: int = 20
    entropy: float = -0.5
    temperature: float = 1.0
    noise: float = 0.9
    cloning: int = 0

    def __post_init__(self) -> None:
        counts = {"hold": self.hold, "n_step": self.n_step, "subset": self.subset, "actor_every": self.actor_every}
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"{name} is {value}, it must be at least 1")
        if self.critics < 0:
            raise ValueError(f"critics is {self.critics}, it must be at least 0, which is imitation alone")
        if 0 < self.critics < self.subset:
            raise ValueError(f"subset is {self.subset}, it must be at most critics, {self.critics}")
        if self.batch < 2 or self.batch % 2:
            raise ValueError(f"batch is {self.batch}, it must be an even number from 2, for two halves")
        if not 0 < self.average <= 1:
            raise ValueError(
                f"average is {self.average}, it must be above 0 and at most 1, which is the newest weights"
            )
        low, high = np.exp(LOG_STD_RANGE)
        if not low < self.noise < high:
            raise ValueError(f"noise is {self.noise}, it must be above {low:.4f} and below {high:g}")
        if self.view not in get_args(View):
            raise ValueError(f"view is {self.view!r}, allowed are {', '.join(map(repr, get_args(View)))}")
        if not 0 <= self.discount < 1:
            raise ValueError(f"discount is {self.discount}, it must be from 0 to below 1")

    @property
    def method(self) -> str:
        """Return the name of the method: RLPD with critics, HG-DAgger without."""
        return "RLPD" if self.critics else "HG-DAgger"
