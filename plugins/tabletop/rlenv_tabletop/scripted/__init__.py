"""Solve tasks of SO-101 arms with scripted policies."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from rlenv_tabletop.scripted.arm import (
    STEP_RAD,
    ScriptedPairLift,
    ScriptedPickPlace,
    ScriptedPush,
    blend,
    coming_position,
    fingers_middle,
    grasp_and_carry,
    heading_to,
    holds,
    let_go,
    placed,
    ramp,
    roll_to,
    same_turn,
    toward,
    yaw_of,
)
from rlenv_tabletop.scripted.delay import DelayCompensation
from rlenv_tabletop.scripted.handle import ScriptedDrawer, ScriptedLid
from rlenv_tabletop.scripted.insert import ScriptedInsert
from rlenv_tabletop.scripted.table import ScriptedSort, ScriptedStack

__all__ = [
    "SCRIPTS", "STEP_RAD", "DelayCompensation", "Script", "ScriptedDrawer", "ScriptedInsert", "ScriptedLid",
    "ScriptedPairLift", "ScriptedPickPlace", "ScriptedPush", "ScriptedSort", "ScriptedStack", "blend",
    "coming_position", "fingers_middle", "grasp_and_carry", "heading_to", "holds", "let_go", "placed", "ramp",
    "roll_to", "same_turn", "toward", "yaw_of",
]  # fmt: skip


class Script(Protocol):
    """A policy without memory that solves a task."""

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the action for observations with any leading axes."""
        ...


SCRIPTS: Mapping[str, Callable[[], Script]] = {
    "so101-drawer": ScriptedDrawer,
    "so101-insert": ScriptedInsert,
    "so101-lid": ScriptedLid,
    "so101-pair-lift": ScriptedPairLift,
    "so101-pick-place": ScriptedPickPlace,
    "so101-push": ScriptedPush,
    "so101-sort": ScriptedSort,
    "so101-stack": ScriptedStack,
}
"""Task -> the class of the script that solves it."""
