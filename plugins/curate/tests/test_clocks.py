"""A client's log and its controller's are on one timeline, and the truth lies within the bound that is stated."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Guard, LogError
from hal.clock import OffsetEstimator
from real import Server
from recorder.read.reader import LogReader
from rlenv_curate.clocks import Clocks, clocks_of, match_frames
from rlenv_operate.controller_log import ControllerLog, ServerWatch
from rlenv_robot.cli.main import main
from rlenv_robot.robot_models import find_robot_model

SECOND = 1_000_000_000
AHEAD_S = 5000
"""The client's monotonic clock is so far ahead of the controller's."""

CLIENT = """
import sys
import rlenv_robot as rr
with rr.make("so101-reach", robot=sys.argv[1], record=sys.argv[2], steps=100) as env:
    seen = env.reset()
    for _ in range(75):
        action = {"joint_target": seen["extra_info"]["applied"]["joint_target"]}
        seen, _ = env.step({"env_id": env.env_id, "frame_no": seen["frame_no"], "action": action})
        assert "fault" not in seen["extra_info"], seen
"""


def in_another_time(*command: str) -> list[str]:
    """The command as the kernel runs it where the monotonic clock shows another time."""
    return ["unshare", "--time", "--fork", "--monotonic", str(AHEAD_S), *command]


def needs_another_time() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare here")
    told = subprocess.run(in_another_time(sys.executable, "-c", "import time; print(time.monotonic())"),
                          capture_output=True, text=True)  # fmt: skip
    if told.returncode or not abs(float(told.stdout) - time.monotonic() - AHEAD_S) < 60:
        pytest.skip("no right to make a time namespace here")


@pytest.mark.slow
def test_two_processes_with_different_clocks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel gives the client another monotonic clock, so the true offset is known to the nanosecond."""
    needs_another_time()
    log = ControllerLog(tmp_path / "controller")
    server = Server(
        Guard(log.wrap(find_robot_model("so101").make_served_simulation("sim"))),
        paced_by_robot=True,
        watchdog_s=5.0,  # a busy machine is no failure here
        max_command_age_s=5.0,
        observer=log,
    )
    watch = ServerWatch(server, log).start()
    with server:
        done = subprocess.run(in_another_time(sys.executable, "-c", CLIENT, server.address, str(tmp_path / "client")))
    watch.close()
    assert done.returncode == 0
    (client,), (controller,) = (tmp_path / "client").iterdir(), (tmp_path / "controller").iterdir()
    samples = LogReader(client).samples("clock")
    assert len(samples) >= 3, "one with the reset, and then one a second"
    assert (np.abs(samples["offset_ns"] + AHEAD_S * SECOND) <= samples["error_ns"]).all(), "the online estimate"
    clocks = clocks_of(client)
    truth = samples["asked_ns"] - AHEAD_S * SECOND
    told, error = clocks.to_controller(samples["asked_ns"])
    assert (np.abs(told - truth) <= error).all(), "the same moment on both sides, within the bound"
    assert error.max() < 20_000_000
    back, _ = clocks.to_client(told)
    assert np.abs(back - samples["asked_ns"]).max() <= 1000
    orders = LogReader(controller).samples("order")
    both = np.isin(samples["came_ns"], orders["came_ns"])
    assert both.all(), "each exchange that the client has a sample of is an order in the controller's log"
    assert (truth <= samples["came_ns"]).all(), "and it left before it came"
    assert "used_clock" not in LogReader(client).layout.spec, "its frames are as those of any other place"
    found = match_frames(client, controller)
    assert found.frames == 76
    assert len(found.rows) == 75, "all but the reset"
    assert found.command_s.max() < 1
    assert found.reading_s.min() > 0
    assert main(["data", "timeline", str(tmp_path / "client"), str(controller)]) == 0, "a folder with one run will do"
    shown = capsys.readouterr().out
    assert "the controller's clock minus the client's: -5000.00" in shown or "-4999.99" in shown
    assert "75 of the client's 76 frames" in shown
    assert "ready -> running: the first command of the episode" in shown
    # a busy machine leaves gaps and late frames
    assert main(["data", "check", str(client), "--ignore", "gap,jitter,rate,skipped"]) == 0
    assert main(["data", "timeline", str(client), str(client)]) != 0
    assert "is not a controller's log" in capsys.readouterr().err


def estimated(drift_ppm: float, rng: np.random.Generator, seconds: int = 300) -> tuple[np.ndarray, ...]:
    """Return a client's estimates, one a second, of a clock that drifts, over a network with uneven delays."""
    estimator, rows = OffsetEstimator(), []
    for second in range(seconds):
        t0 = second * SECOND
        there, back = (int(each) for each in rng.exponential(2e6, 2) + 50_000)
        t3 = t0 + there + back
        t1 = t0 + there + offset_at(t0 + there, drift_ppm)
        estimator.add(t0, t1, t1, t3)
        known = estimator.at(t3)
        assert known is not None
        rows.append((t3, known.offset_ns, known.error_ns))
    return tuple(np.array(rows, np.int64).T)


def offset_at(at_ns: int, drift_ppm: float) -> int:
    return 7 * SECOND + int(at_ns * drift_ppm / 1e6)


@pytest.mark.parametrize("drift_ppm", [0.0, 90.0, -150.0])
def test_a_clock_that_drifts_is_known_better_afterwards(drift_ppm: float) -> None:
    at, offset, error = estimated(drift_ppm, np.random.default_rng(3))
    clocks = Clocks(at, offset, error)
    assert clocks.jumps == 0
    asked = np.arange(0, 300 * SECOND, SECOND // 7)
    truth = np.array([offset_at(each, drift_ppm) for each in asked.tolist()])
    told, bound = clocks.offset(asked)
    assert (np.abs(told - truth) <= bound).all()
    assert bound.mean() < error.mean(), "samples after a moment help as those before it do"


def test_a_clock_that_jumps_is_two_stretches() -> None:
    at = np.arange(20) * SECOND
    offset = np.where(at < 10 * SECOND, 5000, 3600 * SECOND)
    clocks = Clocks(at, offset, np.full(20, 100_000))
    assert clocks.jumps == 1
    told, bound = clocks.offset(np.array([9 * SECOND, 12 * SECOND]))
    assert np.abs(told - [5000, 3600 * SECOND]).max() <= 1
    assert bound.max() <= 100_002


def test_a_run_without_a_controller_is_refused(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path, steps=2) as env:
        env.reset()
    with pytest.raises(LogError, match="records no controller's clock"):
        clocks_of(next(tmp_path.iterdir()))


def test_a_folder_of_several_runs_is_answered_with_their_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        with rr.make("so101-reach", record=tmp_path / "runs", steps=2) as env:
            env.reset()
    first, second = sorted(each.name for each in (tmp_path / "runs").iterdir())
    for wanted in ([tmp_path / "runs", tmp_path / "runs" / first], [tmp_path / "runs" / first, tmp_path / "runs"]):
        assert main(["data", "timeline", *map(str, wanted)]) == 2
        said = capsys.readouterr().err
        assert f"{tmp_path / 'runs'} holds 2 runs, name one: {first}, {second}" in said
