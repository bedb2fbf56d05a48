"""A served, simulated SO-101 that keeps real time, for the tests of sessions and leaders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import cv2
import numpy as np
import pytest

from real.server.server import Server
from rlenv_robot.config.profile import load_profile
from rlenv_robot.serving.robot_server import build_server

PROFILE = """
[robot]
kind = "so101"
where = "twin"
[serve]
address = "tcp://127.0.0.1:*"
"""


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Serve a twin; ``more`` are further lines of its profile's section ``[serve]``, and sections behind it."""
    with ExitStack() as ends:

        def served(more: str = "") -> Server:
            (tmp_path / "lab.toml").write_text(PROFILE + more)
            return ends.enter_context(build_server(load_profile(tmp_path / "lab.toml")))

        yield served


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with 30 images of 64 x 48, which differ from one another."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(30):
        image = np.full((48, 64, 3), (0, 0, 200), np.uint8)  # red, in OpenCV's order
        image[:, : 2 * number] = (200, 0, 0)
        cv2.imwrite(str(folder / f"{number:02}.png"), image)
    return folder
