"""The end of a server after a stop: whoever stopped the arm may have a hand under it, so it stays where it is."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import RobotError
from hal.drivers.calibration import nominal_calibration, save_calibration
from real import RemoteRobot
from rlenv_arms.servo_terminal import ServoTerminal
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine
from tests.fakes import until

PROFILE = """
[robot]
kind = "so101"
driver = "feetech"
options = {{port = "{folder}/arm", calibration = "{folder}/arm.json", latency_s = 0.3}}
[reset]
signal = "automatic"
[serve]
address = "tcp://127.0.0.1:*"
latch = "{folder}/latch"
lower_s = 1.0
priority = 0
watchdog_s = 30.0
stopped_at_end = "{at_end}"
"""
REACHED_OUT = np.float32([0.0, 0.6, -0.3, 0.2, 0.0, 0.2])


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[ServoArm]:
    """A virtual arm behind a serial port."""
    servos = so101_servos()
    arm = ServoArm(servos)
    save_calibration(tmp_path / "arm.json", nominal_calibration())
    with ServoTerminal(ServoLine(servos, before_request=arm.advance), tmp_path / "arm", arm.advance):
        yield arm


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Leave no process behind, whatever fails."""
    try:
        yield
    finally:
        process.kill()
        process.wait(30)


@contextmanager
def reached_out(folder: Path, at_end: str) -> Iterator[tuple[subprocess.Popen[str], RemoteRobot]]:
    """Serve the arm, and reach out."""
    profile = folder / "robot.toml"
    profile.write_text(PROFILE.format(folder=folder, at_end=at_end))
    command = [sys.executable, "-m", "rlenv_robot", "serve", str(profile)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout, ended(process):
        address = next(line for line in process.stdout if line.startswith("serving")).split()[-1]
        with closing(RemoteRobot(address, connect_timeout_s=30.0, step_timeout_s=30.0)) as remote:
            options: dict[str, Any] = {"start": {"joint_target": REACHED_OUT}}
            for _ in range(10):  # on a busy machine servos answer late, which stops the arm
                with suppress(RobotError):
                    remote.reset(options)
                    break
                options["clear_stop"] = "a busy machine"
            yield process, remote


def stop_and_end(folder: Path, arm: ServoArm, number: int, at_end: str) -> tuple[int, float]:
    """Stop and end the server; return its exit code, and how far a joint has moved 2 s later, radians."""
    with reached_out(folder, at_end) as (process, remote):
        remote.stop("a hand is in the way")
        time.sleep(0.5)
        before = arm.joints
        process.send_signal(number)
        code = process.wait(60)
    time.sleep(2.0)
    return code, float(np.abs(arm.joints - before).max())


@pytest.mark.slow
@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_arm_stays_held_when_its_server_ends(arm: ServoArm, tmp_path: Path, number: int) -> None:
    code, moved = stop_and_end(tmp_path, arm, number, "hold")
    print(f"exit code {code}, the joints moved by {moved:.4f} rad")
    assert code == 0
    assert moved < 0.01
    assert "off" not in {servo.drive for servo in arm.servos}


@pytest.mark.slow
def test_a_stopped_arm_is_let_down_where_the_profile_says_so(arm: ServoArm, tmp_path: Path) -> None:
    code, moved = stop_and_end(tmp_path, arm, signal.SIGTERM, "let_down")
    assert code == 0
    assert moved > 0.01


@pytest.mark.slow
@pytest.mark.requirement("R6.6")
def test_an_arm_that_is_stopped_while_it_is_let_down_holds_where_it_is(arm: ServoArm, tmp_path: Path) -> None:
    with reached_out(tmp_path, "hold") as (process, remote):
        remote.stand_by()
        process.send_signal(signal.SIGTERM)
        until(lambda: "damping" in {servo.drive for servo in arm.servos}, 60.0)
        remote.stop("a hand is in the way")
        assert process.wait(60) == 0
    halted = arm.joints
    assert {servo.drive for servo in arm.servos} == {"on"}
    time.sleep(2.0)
    assert np.abs(arm.joints - halted).max() < 0.01
    assert "a hand is in the way" in (tmp_path / "latch" / "stop-so101.json").read_text(errors="replace")
