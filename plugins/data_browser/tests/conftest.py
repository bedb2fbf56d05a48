"""Recorded runs with two cameras whose images tell their episode and frame, and the page that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, Image, Spec
from recorder.frame_layout import FrameLayout
from recorder.log.mcap_writer import McapWriter

FRAMES, PERIOD = 25, 40_000_000
LAYOUT = FrameLayout(Spec("o", (Field("place", (2,)),)), Spec("a", (Field("push", (2,)),)))
TASKS = ("lift the cup", "wipe the table")


def colour(episode: int, frame: int) -> tuple[int, int, int]:
    """Return blue, green and red of an image, which tell its episode and frame."""
    return 20 + 40 * episode, 10 * frame, 200


def record(folder: Path, episodes: int = 4, cameras: tuple[str, ...] = ("top", "wrist")) -> Path:
    """Record episodes of one second, of which each second one fails."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    sink = McapWriter(folder, LAYOUT, {})
    for episode in range(episodes):
        task = TASKS[episode % 2]
        sink.episode("begin", episode, f'{{"task": "{task}", "source": "{"expert" if episode else "random"}"}}', 0)
        for frame in range(FRAMES):
            row = LAYOUT.spec.rows()
            row["episode"], row["frame_no"], row["stamp_ns"], row["acted"] = episode, frame, frame * PERIOD, frame > 0
            row["wall_ns"] = (1_700_000_000 + 86_400 * episode) * 10**9 + frame * PERIOD
            row["observation_place"], row["action_push"] = (episode, frame), (np.sin(frame / 4), frame)
            row["reward"] = frame == FRAMES - 1
            sink.frame(row.tobytes(), int(row["wall_ns"]))
            for camera in cameras:
                image = np.full((24, 32, 3), colour(episode, frame), np.uint8)
                data = cv2.imencode(".png", 255 - image if camera == "wrist" else image)[1].tobytes()
                sink.image(camera, Image(data, "png", frame * PERIOD), int(row["wall_ns"]))
        sink.episode("end", episode, f'{{"end": "time", "success": {"true" if episode % 2 == 0 else "false"}}}', 0)
    sink.close()
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return record(tmp_path / "runs" / "first")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Serve the page of some paths; the index, the tiles and the selections lie in the test's folder."""
    server = pytest.importorskip("rlenv_data_browser.server", reason="the extra 'console' is not installed")
    page_server = pytest.importorskip("rlenv_operate.console.page_server")
    opened = []

    def serving(*paths: Path, **access: Any) -> Any:
        one = server.BrowseServer(
            paths, page_server.PageSettings(port=0, **access), index=tmp_path / "index.sqlite",
            tiles=tmp_path / "tiles", selections=tmp_path / "selections",
        )  # fmt: skip
        opened.append(one)
        return one.start()

    yield serving
    for one in opened:
        one.close()
