"""Declare the tasks' scripts as policies with `DelayCompensation`, for `rlenv_robot.policies.scripts`."""

from __future__ import annotations

from functools import partial

from rlenv_tabletop.scripted import SCRIPTS, DelayCompensation

__all__ = [
    "DRAWER", "INSERT", "LID", "PAIR_LIFT", "PICK_PLACE", "PUSH", "SORT", "STACK",
]  # fmt: skip


def _compensated(task: str) -> DelayCompensation:
    """Return a task's script, which sees its arms as if their commands arrived at once."""
    return DelayCompensation(SCRIPTS[task]())


DRAWER = partial(_compensated, "so101-drawer")
INSERT = partial(_compensated, "so101-insert")
LID = partial(_compensated, "so101-lid")
PAIR_LIFT = partial(_compensated, "so101-pair-lift")
PICK_PLACE = partial(_compensated, "so101-pick-place")
PUSH = partial(_compensated, "so101-push")
SORT = partial(_compensated, "so101-sort")
STACK = partial(_compensated, "so101-stack")
