"""A robot's sensors at their own rates, from the robot through the environment into the log and back."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Automatic, Field, Guard, Homing, LogError, Robot, RobotState, SampleSink, Spec, StreamSpec
from recorder.frame_layout import FrameLayout
from recorder.read.reader import LogReader
from rlenv_robot.recording.observer import FrameObserver
from sim.robot import SimRobot
from sim.robots.so101 import so101
from sim.robots.twin import so101_twin

pytestmark = pytest.mark.requirement("R6.6")


class WithClock:
    """A simulated arm in real time with a sensor beside it that shows the time, 500 times a second, from a thread."""

    def __init__(self) -> None:
        self._inner = SimRobot(so101(), real_time=True)
        self.spec = self._inner.spec
        self.streams = (StreamSpec("clock", Spec("clock", (Field("seconds", (), "float64", unit="s"),)), 500),)
        self._over, self._last = threading.Event(), -1
        self._thread: threading.Thread | None = None

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        self._thread = threading.Thread(target=self._sample, args=(sinks["clock"],))
        self._thread.start()

    def _sample(self, sink: SampleSink) -> None:
        due = time.monotonic()
        while not self._over.wait(max(due - time.monotonic(), 0)):
            now = time.monotonic_ns()
            self._last = sink.write({"seconds": now / 1e9}, now)
            due += 0.002

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        return self._said(self._inner.reset(options))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        return self._said(self._inner.step(command))

    def _said(self, robot_state: RobotState) -> RobotState:
        used = self._last  # the number first: whatever has this number was captured before the stamp
        return robot_state._replace(used={"clock": used}, stamp_ns=time.monotonic_ns())

    def stop(self, reason: str) -> None:
        self._inner.stop(reason)

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._inner.close()


def record(robot: Robot, folder: Path, steps: int, episodes: int = 1) -> tuple[LogReader, list[dict[str, Any]]]:
    """Hold still for some episodes; return the log, and every table that the environment gave."""
    seen_tables: list[dict[str, Any]] = []
    with rr.make("so101-reach", robot=robot, record=folder, steps=steps) as env:
        for seed in range(episodes):
            obs: Any = env.reset({"seed": seed})
            seen_tables.append(obs)
            while not (obs["truncated"] or obs["terminated"]):
                action = {"joint_target": obs["extra_info"]["applied"]["joint_target"]}
                obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
                seen_tables.append(obs)
    (run,) = folder.iterdir()
    return LogReader(run), seen_tables


def test_samples_of_a_thread_are_aligned_with_the_frames(tmp_path: Path) -> None:
    log, tables = record(WithClock(), tmp_path, steps=12)
    frames, samples = log.frames(), log.samples("clock")
    assert log.complete
    assert log.notes == ()
    assert len(frames) == 13
    assert len(samples) > 5 * len(frames)
    assert samples["sequence"].tolist() == list(range(len(samples)))
    assert [table["extra_info"]["used"]["clock"] for table in tables] == frames["used_clock"].tolist()
    moments = frames["stamp_ns"] / 1e9
    latest, used = log.at_frames("clock"), log.used("clock")
    later = slice(1, None)  # the first frame may come before the first sample
    assert (latest.values["seconds"][later] <= moments[later]).all()
    assert (used.values["seconds"][later] <= latest.values["seconds"][later]).all()
    assert used.sample[later].tolist() == frames["used_clock"][later].tolist()
    between = log.at_frames("clock", "interpolated")
    followed = frames["stamp_ns"] <= samples["stamp_ns"].max()  # a busy machine may take no later sample
    assert between.valid[later].tolist() == followed[later].tolist()
    np.testing.assert_allclose(between.values["seconds"][between.valid], moments[between.valid], rtol=0, atol=1e-6)
    nearest = log.at_frames("clock", "nearest")
    closest = np.abs(samples["seconds"][:, None] - moments).min(axis=0)
    np.testing.assert_allclose(np.abs(nearest.values["seconds"] - moments), closest, rtol=0, atol=1e-6)
    assert not log.at_frames("clock", max_age_ns=1).valid.any()


def test_a_twin_is_sampled_at_the_rate_of_its_physics(tmp_path: Path) -> None:
    """In real time, through the guard and the way home."""
    names = ("joint_position", "joint_velocity")
    arm = Homing(Guard(SimRobot(so101_twin(), real_time=True, teleport=False, streams=names)), Automatic())
    log, _ = record(arm, tmp_path, steps=5)
    frames, samples = log.frames(), log.samples("joint_position")
    assert {name: stream.rate_hz for name, stream in log.streams.items()} == dict.fromkeys(names, 240.0)
    assert (np.diff(samples["stamp_ns"]) > 0).all()
    inside = samples[(samples["stamp_ns"] >= frames["stamp_ns"][0]) & (samples["stamp_ns"] <= frames["stamp_ns"][-1])]
    assert len(inside) == 5 * 8 + 1
    for name in names:
        used = log.used(name)
        np.testing.assert_array_equal(used.values[name], frames[f"sensor_{name}"])
        assert used.age_ns.tolist() == [0] * len(frames)


def test_a_simulation_gives_the_same_numbers_with_and_without_streams(tmp_path: Path) -> None:
    plain, _ = record(SimRobot(so101()), tmp_path / "plain", steps=6, episodes=2)
    sampled, _ = record(SimRobot(so101(), streams=("gripper_position",)), tmp_path / "sampled", steps=6, episodes=2)
    ours, theirs = plain.frames(), sampled.frames()
    assert theirs.dtype.names is not None
    for name in ours.dtype.names or ():
        if name != "wall_ns":
            np.testing.assert_array_equal(ours[name], theirs[name])
    assert len(sampled.samples("gripper_position")) == 2 * (6 * 8 + 1)
    assert theirs["used_gripper_position"].tolist() == [0, *range(8, 49, 8), 49, *range(57, 98, 8)]


def test_without_a_record_nothing_is_sampled() -> None:
    robot = SimRobot(so101(), streams=("joint_position",))
    with rr.make("so101-reach", robot=robot) as env:
        assert "used" not in env.reset()["extra_info"]


# -- what a sensor's thread meets ------------------------------------------------------------------------------


class Stream:
    """Takes two samples."""

    def __init__(self) -> None:
        self.taken = 0

    def write(self, values: Mapping[str, Any], stamp_ns: int) -> int:
        if self.taken == 2:
            raise LogError("the disk is full")
        self.taken += 1
        return self.taken - 1


class Nowhere:
    """Takes anything."""

    def begin(self, info: Mapping[str, Any]) -> int:
        return 0

    def frame(self, row: np.ndarray) -> None: ...

    def image(self, camera: str, image: Any) -> None: ...

    def event(self, kind: str, detail: Mapping[str, Any]) -> None: ...

    def end(self, info: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def test_a_thread_hears_of_no_error_and_the_frames_say_it(caplog: pytest.LogCaptureFixture) -> None:
    observer = FrameObserver(FrameLayout(Spec("o"), Spec("a"), streams=("s",)), Nowhere())
    tap, timestep = observer.tap(Stream()), rr.TimeStep({}, 0.0, False, False, {})
    observer.begin("one", timestep, {})
    assert [tap.write({}, 0) for _ in range(4)] == [0, 1, -1, -1]
    assert len([message for message in caplog.messages if "recording stopped" in message]) == 1
    observer.frame(1, {}, timestep, {})
    assert timestep.extra_info["recording_error"] == "the disk is full"


def test_after_the_end_samples_go_nowhere() -> None:
    stream = Stream()
    observer = FrameObserver(FrameLayout(Spec("o"), Spec("a")), Nowhere())
    observer.close()
    assert observer.tap(stream).write({}, 0) == -1
    assert stream.taken == 0
