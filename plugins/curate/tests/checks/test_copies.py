from __future__ import annotations

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_curate.checks.camera_signals import signals_of
from rlenv_curate.checks.cameras import Camera
from rlenv_curate.checks.copies import check_copies
from rlenv_curate.checks.table import DataSet
from rlenv_curate.checks.thumbnails import HEIGHT, WIDTH, Strip

pytest.importorskip("cv2")

FRAMES, PERIOD_S = 60, 1 / 30
LAYOUT = FrameLayout(Spec("o", (Field("joint_position", (2,)),)), Spec("a", (Field("joint_target", (2,)),)))


def made(noise: float) -> Table:
    """Three episodes of a path each; the last one is the first one with noise."""
    rng = np.random.default_rng(0)
    rows = LAYOUT.spec.rows(3 * FRAMES)
    for episode in range(3):
        part = rows[episode * FRAMES : (episode + 1) * FRAMES]
        path = np.sin(np.arange(FRAMES)[:, None] / [15, 11] + [[0.3, 2.0], [1.1, 4.0], [0.3, 2.0]][episode])
        part["observation_joint_position"] = path + rng.normal(0, noise, path.shape) * (episode == 2)
        part["action_joint_target"][1:] = path[1:]
        part["stamp_ns"] = (np.arange(FRAMES) * PERIOD_S * 1e9).astype(np.int64)
        part["acted"] = np.arange(FRAMES) > 0
    starts = np.arange(3) * FRAMES
    return Table(LAYOUT, rows, starts, starts + FRAMES, ({}, {}, {}))


def filmed(episodes: range, block: int = 0, edge: int = 0) -> list[Camera]:
    """A camera that sees the episodes, or none; the last one has a block of another grey, or an odd image."""
    rng = np.random.default_rng(1)
    signals = {}
    for episode in episodes:
        pixels = np.full((FRAMES, HEIGHT, WIDTH, 3), 90.0)
        pixels[:, 20:26, 30:36] += block * (episode == 2)
        pixels[0, 40:46, 60:66] += edge * (episode == 2)
        pixels = np.clip(pixels + rng.normal(0, 2, pixels.shape), 0, 255).astype(np.uint8)
        signals[episode] = signals_of(Strip(np.arange(FRAMES), pixels, np.full(FRAMES, np.nan)), PERIOD_S)
    return [Camera("top", signals, {}, PERIOD_S)] if signals else []


@pytest.mark.parametrize(
    ("noise", "episodes", "change", "copied"),
    [
        (6e-3, range(3), {}, True),
        (6e-3, range(3), {"edge": 60}, True),
        (6e-3, range(3), {"block": 60}, False),
        (6e-3, range(2), {}, False),
        (6e-3, range(0), {}, False),
        (1e-3, range(0), {}, True),
        (3e-2, range(3), {}, False),
    ],
    ids=["noise", "one_image", "other_thing", "unseen", "no_camera", "rounding", "another_time"],
)
def test_a_noisy_copy_is_found_where_the_images_are_alike(
    noise: float, episodes: range, change: dict[str, int], copied: bool
) -> None:
    findings = check_copies(DataSet(made(noise)), filmed(episodes, **change))
    assert [(finding.kind, finding.episode) for finding in findings] == [("copy", 2)] * copied
