"""The controller keeps a log of its own: every tick, order, state and stop, while its client sees a part of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import rlenv_robot as rr
from hal import EpisodeError, Guard, ResetFailed, RobotState, RobotStopped
from hal.robots.so101 import SO101
from real import RemoteRobot, Server
from recorder.log.rotation import Limits
from recorder.read.reader import LogReader
from recorder.read.recover import recover
from rlenv_operate.controller_log import ControllerLog, ServerWatch
from rlenv_robot.robot_models import find_robot_model
from tests.fakes import Fader, until


def target(*values: float) -> dict[str, np.ndarray]:
    return {"target": np.array(values, np.float32)}


Serve = Callable[..., tuple[Server, RemoteRobot, ControllerLog]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as ends:

        def start(robot: Any, folder: Path, **settings: Any) -> tuple[Server, RemoteRobot, ControllerLog]:
            log = ControllerLog(folder, **settings)
            server = Server(Guard(log.wrap(robot)), control_hz=50, watchdog_s=2.0, observer=log)
            ends.callback(ServerWatch(server, log).start().close)
            ends.enter_context(server)
            remote = RemoteRobot(server.address)
            ends.callback(remote.close)
            return server, remote, log

        yield start


def only_run(folder: Path) -> LogReader:
    (run,) = (path for path in folder.iterdir() if path.is_dir())  # a killed server leaves its stop's lock
    return LogReader(run)


class Session(NamedTuple):
    """A served session that was recorded: an episode that ends in silence, a refused step, and a stop."""

    reader: LogReader
    robot: Fader
    robot_states: list[RobotState]
    """Of the five steps of the first episode."""


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder, robot = tmp_path_factory.mktemp("controller"), Fader()
    with ExitStack() as ends:
        log = ControllerLog(folder, control_hz=50)
        server = Server(Guard(log.wrap(robot)), control_hz=50, watchdog_s=0.2, observer=log)
        watch = ServerWatch(server, log).start()
        ends.callback(watch.close)
        ends.enter_context(server)
        remote = RemoteRobot(server.address)
        ends.callback(remote.close)
        remote.reset({})
        robot_states = [remote.step(target(0.5, at / 10)) for at in range(5)]
        until(lambda: server.broken)
        with pytest.raises(EpisodeError):
            remote.step(target(0, 0))
        remote.reset({})
        remote.step(target(-0.5, 0))
        remote.stop("a test")
        with pytest.raises(RobotStopped):
            remote.step(target(0, 0))
    return Session(only_run(folder), robot, robot_states)


def test_the_log_is_complete_and_names_its_streams(session: Session) -> None:
    reader = session.reader
    assert reader.complete
    assert reader.notes == ()
    assert reader.metadata["controller"] is True
    assert {name: stream.rate_hz for name, stream in reader.streams.items()} == {
        "tick": 200, "order": 50, "cadence": 1, "taps": 200,
    }  # fmt: skip
    assert reader.samples("cadence")["periods"][-1] > 20


def test_every_tick_is_in_it(session: Session) -> None:
    ticks = session.reader.samples("tick")
    assert [tuple(row) for row in ticks["applied_target"].tolist()] == session.robot.told, "every one, and in order"
    assert (ticks["stamp_ns"] >= ticks["began_ns"]).all()
    assert np.array_equal(ticks["sequence"], np.arange(len(ticks)))
    assert len(session.reader.samples("taps")) == len(ticks) + 2, "the robot's own stream, of its two resets too"


def test_every_order_is_in_it(session: Session) -> None:
    orders = session.reader.samples("order")
    assert (np.diff(orders["came_ns"]) > 0).all()
    done = orders[orders["reading_ns"] > 0]
    assert len(done) == 8
    assert len(orders) == 9, "the refused one too"
    assert orders["reading_ns"][1:6].tolist() == [robot_state.stamp_ns for robot_state in session.robot_states]
    sent = orders["sent_ns"] > 0
    assert sent[1:6].all()


def test_every_frame_is_in_it(session: Session) -> None:
    frames = session.reader.frames()
    assert frames["frame_no"].tolist() == [0, 1, 2, 3, 4, 5, 0, 1]
    assert frames["acted"].tolist() == [0, 1, 1, 1, 1, 1, 0, 1]
    assert np.allclose(frames["action_target"][1:6, 1], np.arange(5) / 10)
    noise = [robot_state.sensors["noise"] for robot_state in session.robot_states]
    assert np.array_equal(frames["sensor_noise"][1:6], noise)


def test_every_state_stop_and_end_is_in_it(session: Session) -> None:
    reader = session.reader
    first, second = reader.episodes()
    assert first.end is not None
    assert first.end["end"] == "held: no valid command for 0.2 s"
    assert first.end["cadence"]["periods"] > 20
    assert second.end is not None
    assert second.end["end"] == "a test"
    kinds = [event.kind for event in reader.events()]
    assert kinds.count("holder") == 2, "taken, and given back"
    (refused,) = (event.detail for event in reader.events() if event.kind == "refused")
    assert refused["type"] == "EpisodeError"
    stops = [event.detail["reason"] for event in reader.events() if event.kind == "stop"]
    assert stops == ["a test", "the server was closed"]
    states = [event.detail["after"] for event in reader.events() if event.kind == "life"]
    assert states == ["arming", "ready", "running", "holding", "resetting", "ready", "running", "stopped"]


def test_without_room_the_robot_goes_on_and_the_client_is_told(tmp_path: Path, serve: Serve) -> None:
    """The budget of the run is reached in mid-episode."""
    server, remote, log = serve(Fader(), tmp_path, limits=Limits(run_bytes=200_000, reserve_bytes=0))
    remote.reset({})
    until(lambda: remote.step(target(0.1, 0)) and log.failure)
    assert remote.step(target(0.2, 0)).applied["target"][0] == np.float32(0.2)
    recording = server.about()["recording"]
    assert recording["on"] is False
    assert "may have 200000; recording stops" in recording["why"]
    assert remote.about()["server"]["recording"] == recording
    remote.reset({})
    reader = only_run(tmp_path)
    (episode,) = reader.episodes()
    assert episode.end is not None
    assert episode.end["end"] == "disk"
    assert len(reader.samples("tick")) > 5


@pytest.mark.process
def test_a_disk_that_is_really_full(tmp_path: Path, serve: Serve) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], capture_output=True).returncode:
        pytest.skip("no right to mount a small disk")
    try:
        _, remote, log = serve(Fader(), disk, limits=Limits(reserve_bytes=0), required=True)
        remote.reset({})
        until(lambda: remote.step(target(0.1, 0)) and log.failure)
        assert "No space left on device" in str(log.failure)
        assert remote.step(target(0.2, 0)).applied["target"][0] == np.float32(0.2), "it goes on"
        with pytest.raises(ResetFailed, match=r"can't record .*No space left.* serve.record_required is true"):
            remote.reset({})
        reader = only_run(disk)
        ticks = reader.samples("tick")
        assert len(ticks) > 20
        assert np.array_equal(ticks["sequence"], np.arange(len(ticks))), "what is there is whole"
        assert reader.notes
        log.close()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)  # a failed test may still write there


def test_a_log_that_can_not_begin_is_said_with_the_reset(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = ControllerLog(tmp_path / "file")
    robot = find_robot_model("so101").make_served_simulation("sim")
    server = Server(Guard(log.wrap(robot)), paced_by_robot=True, observer=log)
    with server, rr.make("so101-reach", robot=server.address) as env:
        obs = env.reset()
        assert "no folder for a run can be made" in obs["extra_info"]["recording_error"]
        action = {"joint_target": obs["extra_info"]["applied"]["joint_target"]}
        obs, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": action})
        assert "fault" not in obs["extra_info"]


@pytest.mark.slow
def test_a_killed_server_leaves_every_answered_step_and_all_but_the_last_moments_of_its_ticks(tmp_path: Path) -> None:
    own = tmp_path / "own"
    command = [sys.executable, "-m", "rlenv_robot", "serve", "--address", "tcp://127.0.0.1:*", "--priority", "0"]
    process = subprocess.Popen(
        [*command, "--record", own], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"recording into {own}")
    remote = RemoteRobot(process.stdout.readline().split()[-1], expect=SO101, connect_timeout_s=10)
    robot_state = remote.reset({})
    stamps = [robot_state.stamp_ns]
    for _ in range(60):
        robot_state = remote.step({name: value.copy() for name, value in robot_state.applied.items()})
        stamps.append(robot_state.stamp_ns)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    remote.close()
    reader = only_run(own)
    assert not reader.complete
    assert reader.notes
    ticks = reader.samples("tick")
    assert np.array_equal(ticks["sequence"], np.arange(len(ticks)))
    assert 0 <= (robot_state.stamp_ns - int(ticks["stamp_ns"][-1])) / 1e9 < 1.5, "a chunk, and what had not been packed"
    recover(reader.path.parent)
    reader = only_run(own)
    assert reader.frames()["stamp_ns"].tolist() == stamps, "but every step that was answered"
    (episode,) = reader.episodes()
    assert episode.end is None
