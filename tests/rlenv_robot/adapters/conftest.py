"""A small table with both kinds of ends, a refused action, and more than one observation field."""

from __future__ import annotations

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table


@pytest.fixture
def table() -> Table:
    layout = FrameLayout(
        Spec("o", (Field("place", (2,)), Field("speed"))),
        Spec("a", (Field("push", (2,), "float32", -1, 1),)),
    )
    rng = np.random.default_rng(3)
    episodes = []
    for number, (steps, end) in enumerate(((4, "truncated"), (3, "terminated"), (1, "truncated"))):
        rows = layout.spec.rows(steps + 1)
        for name, value in layout.observation.sample(rng, (steps + 1,)).items():
            rows[f"observation_{name}"] = value
        rows["action_push"][1:] = rng.uniform(-1, 1, (steps, 2))
        rows["reward"][1:] = 10 * number + np.arange(steps)
        rows["frame_no"], rows["episode"] = np.arange(steps + 1), number
        rows["acted"][1:] = 1
        rows["log_probability"] = np.nan
        rows[end][-1] = 1
        if number == 0:
            refused = rows[2:3].copy()
            refused["acted"] = 0
            rows = np.concatenate([rows[:3], refused, rows[3:]])
        episodes.append(rows)
    stops = np.cumsum([len(rows) for rows in episodes], dtype=np.int64)
    return Table(layout, np.concatenate(episodes), np.append(0, stops)[:-1], stops, ({}, {}, {}))
