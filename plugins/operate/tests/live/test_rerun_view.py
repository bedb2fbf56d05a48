"""The live view in Rerun, read back by Rerun's own tools."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Image
from real import RemoteRobot, Server
from rlenv_operate.live.session import LiveSession
from rlenv_robot.robot_models import find_robot_model
from tests.fakes import until

pytestmark = pytest.mark.skipif(importlib.util.find_spec("rerun") is None, reason="pip install rlenv-robot[rerun]")

LINK = [0.0304, 0.0, 0.0542]
"""Place of the upper arm on the shoulder in the maker's model, metres."""


@pytest.fixture
def session() -> Iterator[tuple[Server, LiveSession]]:
    robot = find_robot_model("so101").make_served_simulation("sim")
    with (
        Server(robot, telemetry="tcp://127.0.0.1:*", telemetry_hz=50, watchdog_s=5.0, paced_by_robot=True) as server,
        closing(LiveSession(server.address)) as session,
    ):
        yield server, session


def play(server: Server, session: LiveSession, target: str) -> None:
    """Show a few steps, an image and a stop."""
    from recorder.log.image_codec import encoded
    from rlenv_operate.live.rerun_view import RerunView

    with closing(RerunView(session, target)) as view, closing(RemoteRobot(server.address)) as remote:
        taken = []
        session.start(lambda kind: (view.take(kind), taken.append(kind)))  # type: ignore[func-returns-value]
        start = remote.reset({})
        for _ in range(5):
            remote.step({"joint_target": start.sensors["joint_position"] + np.float32(0.02)})
        picture = Image(np.full((48, 64, 3), 200, np.uint8), "rgb8", time.monotonic_ns())
        session.feed._images["top"] = encoded(picture, "top")
        view.take("image")
        session.stop("enough")
        until(lambda: session.feed.look.snapshot is not None and session.feed.look.snapshot.state == "stopped")
        count = len(taken)
        until(lambda: len(taken) > count + 2)
        session.close()


def check(path: Path) -> None:
    """Read a file by Rerun's own reader."""
    from rerun.chunk import RrdReader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a viewer saves has no footer, and is read all the same
        chunks = list(RrdReader(path).stream())
    entities: dict[str, list[Any]] = {}
    for chunk in chunks:
        entities.setdefault(str(chunk.entity_path), []).append(chunk.to_record_batch())
    arm = "/world/base/shoulder/upper_arm"
    jaw = f"{arm}/lower_arm/wrist/gripper/jaw"
    assert {"/sensors/joint_position", "/commands/joint_target", "/cameras/top", "/lifecycle", jaw} <= entities.keys()
    (place,) = entities[arm][-1].column("Transform3D:translation").to_pylist()[-1]
    assert place == pytest.approx(LINK, abs=1e-6)
    texts = [text for batch in entities["/lifecycle"] for text in batch.column("TextLog:text").to_pylist()]
    assert texts[-1] == ["stopped: enough"]
    assert {"wall", "robot"} <= set(entities["/cameras/top"][-1].schema.names)


def rerun_command() -> list[str]:
    return [sys.executable, "-m", "rerun"] if shutil.which("rerun") is None else ["rerun"]


@pytest.mark.process
def test_a_file_holds_states_body_images_and_the_end(session: tuple[Server, LiveSession], tmp_path: Path) -> None:
    path = tmp_path / "session.rrd"
    play(*session, str(path))
    check(path)
    verify = [*rerun_command(), "rrd", "verify", str(path)]
    verified = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stderr
    with pytest.raises(ValueError, match="nothing is overwritten"):
        play(*session, str(path))


@pytest.mark.process
@pytest.mark.slow
def test_a_viewer_that_runs_gets_the_same(session: tuple[Server, LiveSession], tmp_path: Path) -> None:
    """Rerun's own server takes the place of its viewer, and saves what it receives."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    path = tmp_path / "received.rrd"
    command = [*rerun_command(), "--bind", "127.0.0.1", "--port", str(port), "--save", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as viewer:
        try:
            until(lambda: listens(port), 30.0)
            play(*session, f"rerun+http://127.0.0.1:{port}/proxy")
            time.sleep(1.0)
        finally:
            viewer.send_signal(2)
            viewer.wait(20)
    check(path)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_target_that_is_neither_url_nor_file_is_refused(session: tuple[Server, LiveSession]) -> None:
    from rlenv_operate.live.rerun_view import RerunView

    with pytest.raises(ValueError, match=r"\.rrd"):
        RerunView(session[1], "http://127.0.0.1:9876")
