"""Small layouts and rows whose content tells whether they are right."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.writer import LogWriter

JOINTS = ("pan", "lift")


def small_layout() -> FrameLayout:
    position = Field("joint_position", (2,), unit="rad", meaning="measured", elements=JOINTS)
    return FrameLayout(
        Spec("o", (position,)),
        Spec("a", (Field("joint_target", (2,), unit="rad", elements=JOINTS),)),
        sensors=Spec("s", (position, Field("proof", (), "uint32"))),
    )


def proven_row(layout: FrameLayout, episode: int, frame: int) -> np.ndarray:
    """A row with pseudo-random content and a checksum of it: a wrong row can't go unseen."""
    rng = np.random.default_rng([episode, frame])
    row = layout.spec.rows()
    row["episode"], row["frame_no"], row["reward"] = episode, frame, rng.normal()
    row["observation_joint_position"] = row["sensor_joint_position"] = rng.normal(size=2)
    row["action_joint_target"] = rng.normal(size=2) if frame else 0
    row["acted"] = frame > 0
    row["sensor_proof"] = proof(row)
    return row


def proof(row: np.ndarray | np.void) -> int:
    return zlib.crc32(b"".join(row[name].tobytes() for name in row.dtype.names or () if name != "sensor_proof"))


def record(folder: Path, episodes: list[int], **options: object) -> FrameLayout:
    """A log with episodes of the given numbers of rows."""
    layout = small_layout()
    with LogWriter(folder, layout, {"task": "reach"}, **options) as log:  # type: ignore[arg-type]
        for count in episodes:
            number = log.begin({"env_id": "e", "goal": {"target": np.arange(3.0)}, "seed": 5})
            for frame in range(count):
                log.frame(proven_row(layout, number, frame))
            log.end({"end": "time", "return": 1.5})
    return layout


@pytest.fixture
def layout() -> FrameLayout:
    return small_layout()


@pytest.fixture
def make_row() -> Callable[[FrameLayout, int, int], np.ndarray]:
    return proven_row


@pytest.fixture
def is_right() -> Callable[[np.ndarray | np.void], bool]:
    return lambda row: proof(row) == int(row["sensor_proof"])


@pytest.fixture
def make_log() -> Callable[..., FrameLayout]:
    return record
