"""Hints belong to the task, so that a user's own task can give them too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlenv_robot.adapters.flat import Difference, flat_for
from rlenv_robot.tasks.flat_hints import FlatHints, HasFlatHints
from rlenv_robot.tasks.free import Free
from rlenv_robot.tasks.reach import Reach


@dataclass(frozen=True)
class Nearer(Reach):
    """A user's task with scales of its own."""

    name = "my-reach"

    def flat_hints(self) -> FlatHints:
        return FlatHints({"joint_position": 0.5}, (Difference("joint_goal", "joint_position", 0.2),))


def test_a_users_task_gives_its_own_scales() -> None:
    flat = flat_for(Nearer())
    np.testing.assert_array_equal(flat.scale[:6], np.float32(0.5))
    np.testing.assert_array_equal(flat.scale[-6:], np.float32(0.2))
    assert not flat.held


def test_a_task_without_hints_is_scaled_by_its_ranges() -> None:
    assert isinstance(Reach(), HasFlatHints)
    assert not issubclass(Free, HasFlatHints)
