"""A table with everything in it that a format may lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from tests.recorder.conftest import *  # noqa: F403
from tests.rlenv_robot.adapters.conftest import table  # noqa: F401
from tests.rlenv_robot.cli.test_data import made, runs  # noqa: F401

JOINTS = ("pan", "lift")


def rich_layout() -> FrameLayout:
    joints = Field("joint_position", (2,), "float32", -3, 3, unit="rad", meaning="measured", elements=JOINTS)
    return FrameLayout(
        Spec("o", (joints, Field("goal", (3,), "float64", unit="m"), Field("phase", (), "uint8", 0, 4))),
        Spec("a", (Field("joint_target", (2,), "float32", -3, 3, unit="rad", elements=JOINTS),)),
        applied=Spec("applied", (Field("joint_target", (2,), "float32", unit="rad"),)),
        sensors=Spec("s", (joints,)),
    )


def rich_table(
    lengths: tuple[int, ...] = (5, 1, 4), ends: str = "tdt", layout: FrameLayout | None = None, refused: bool = False
) -> Table:
    """Episodes of so many steps; ``ends`` says of each whether it was terminated (d) or truncated (t)."""
    layout = layout or rich_layout()
    rng = np.random.default_rng(7)
    episodes = []
    for number, steps in enumerate(lengths):
        rows = layout.spec.rows(steps + 1)
        for group, spec in (("observation", layout.observation), ("sensor", layout.sensors)):
            for name, value in spec.sample(rng, (steps + 1,)).items():
                rows[f"{group}_{name}"] = value
        for group, spec in (("action", layout.action), ("applied", layout.applied)):
            for name, value in spec.sample(rng, (steps,)).items():
                rows[f"{group}_{name}"][1:] = value
        rows["stamp_ns"] = 10**12 * number + np.arange(steps + 1) * 20_000_000
        rows["wall_ns"] = rows["stamp_ns"] + 1_700_000_000_000_000_000
        rows["frame_no"], rows["episode"] = np.arange(steps + 1), number
        for name in [name for name in layout.spec.names if name.startswith("reward")]:
            rows[name][1:] = rng.normal(size=steps).astype(np.float32)
        rows["acted"][1:] = 1
        rows["log_probability"] = np.nan
        rows["log_probability"][1:] = rng.normal(size=steps).astype(np.float32)
        rows["intervention"][1:] = np.arange(steps) % 2
        rows["terminated"][-1], rows["truncated"][-1] = ends[number] == "d", ends[number] == "t"
        if refused and steps > 2:  # an illegal action: its frame comes twice
            again = rows[2:3].copy()
            again["acted"], again["reward"], again["action_joint_target"] = 0, 0, 9
            rows = np.concatenate([rows[:3], again, rows[3:]])
        episodes.append(rows)
    stops = np.cumsum([len(rows) for rows in episodes], dtype=np.int64)
    infos: tuple[dict[str, Any], ...] = tuple(
        {"episode": n, "task": "reach", "goal": {"place": [0.0, 1.0]}, "seed": 40 + n, "success": ends[n] == "d"}
        for n in range(len(lengths))
    )
    rows = np.concatenate(episodes)
    return Table(layout, rows, np.asarray(np.r_[0, stops[:-1]], np.int64), stops, infos, "there", ("an old note",))


@pytest.fixture(scope="session")
def make_table() -> Callable[..., Table]:
    return rich_table
