"""Deaths of real servers in processes of their own, and the arm that a dead server leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from hal.drivers import feetech
from hal.drivers.bus import ServoBus
from hal.drivers.simulated_port import open_port
from real import RemoteRobot
from rlenv_power_cut.cli.trial import describe, histogram
from rlenv_power_cut.control_socket import ask
from rlenv_power_cut.link import PowerCutError
from rlenv_power_cut.trial import KINDS, Outcome, Program, measure
from rlenv_robot.cli.main import main
from tests.fakes import until

CUT_MS = 600


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_a_death_cuts_the_supply_in_the_set_time(kind: str, request: pytest.FixtureRequest) -> None:
    count = 1000 if request.config.getoption("--soak") else 2
    (outcome,) = measure([kind], count, CUT_MS)
    assert len(outcome.delays_ms) == count
    assert outcome.passed, describe(outcome)
    assert min(outcome.delays_ms) > 50


@pytest.mark.slow
@pytest.mark.process
def test_the_verb_prints_and_writes_its_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "times.json"
    assert (
        main(["robot", "power-cut", "test", "--count", "1", "--kinds", "killed", "--cut-ms", "600", "--out", str(out)])
        == 0
    )
    assert "killed: off within 600 ms in 1 of 1" in capsys.readouterr().out
    (written,) = json.loads(out.read_text())
    assert written["kind"] == "killed"
    assert len(written["delays_ms"]) == 1


def test_an_outcome_fails_for_each_reason() -> None:
    assert Outcome("killed", 200, [150.0, 199.0], [0.0, 0.0]).passed
    assert Outcome("killed", 200, [150.0, 215.0], [0.0, 20.0]).passed  # the virtual board had no processor
    assert Outcome("killed", 200, [150.0, 215.0], [0.0, 20.0]).within == 1
    assert not Outcome("killed", 200, [150.0, 215.0], [0.0, 10.0]).passed
    assert not Outcome("killed", 200, [150.0], [0.0], never=1).passed
    assert not Outcome("frozen", 200, [150.0], [0.0], revived=1).passed
    assert not Outcome("killed", 200).passed
    assert histogram([151.0, 159.9, 160.0]) == [" 150 to  160 ms     2", " 160 to  170 ms     1"]


def test_wrong_trials_are_refused() -> None:
    with pytest.raises(PowerCutError, match="killed, frozen"):
        measure(["explode"], 1, 200)
    with pytest.raises(PowerCutError, match="by hand"):
        measure(["unplugged"], 1, 200, port="/dev/absent")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.plugin("arms")
@pytest.mark.timeout(200)
def test_an_arm_is_limp_after_its_server_was_killed(tmp_path: Path) -> None:
    """Serve a virtual SO-101 whose supply the board switches, kill the server while the arm holds, and watch it
    sink."""
    cut, arm, calibration = tmp_path / "cut", tmp_path / "arm", tmp_path / "arm.json"
    profile = tmp_path / "profile.toml"
    profile.write_text(
        f'[robot]\nkind = "so101"\ndriver = "feetech"\noptions = {{port = "{arm}", calibration = "{calibration}"}}\n'
        f'[serve]\naddress = "ipc://{tmp_path}/server"\n[extensions.power-cut]\nport = "{cut}"\ncut_ms = {CUT_MS}\n'
    )
    rlenv = [sys.executable, "-m", "rlenv_robot"]
    virtual = [*rlenv, "robot", "power-cut", "virtual", "--link", str(cut), "--arm", "so101", "--arm-link", str(arm)]
    with closing(Program([*virtual, "--calibration", str(calibration)])) as board:
        assert board.line_with("virtual power cut", 30.0)
        until(lambda: arm.exists() and calibration.exists(), 30.0)
        server = subprocess.Popen([*rlenv, "serve", str(profile)])
        try:
            until(lambda: _answers(cut), 30.0)
            time.sleep(1.0)
            ask(cut, {"verb": "on", "cut": 0})
            assert board.line_with("supply on", 5.0)
            assert board.line_with("done: volts 7.4", 5.0)
            with closing(RemoteRobot(f"ipc://{tmp_path}/server")) as robot:
                until(lambda: robot.status()["state"] == "disarmed")
                held = robot.reset({"start": {"joint_target": np.array([0.0, -0.5, 0.3, 0.3, 0.0, 0.2], np.float32)}})
        finally:
            killed_ns = time.monotonic_ns()
            server.send_signal(signal.SIGKILL)
            server.wait()
        line = board.line_with("supply off", CUT_MS / 1e3 + 3.0)
        assert line is not None, "the arm still pushes"
        _, _, at_ns, waited_ns = line.split()
        assert int(at_ns) - killed_ns - int(waited_ns) < CUT_MS * 1_000_000
        before = held.sensors["joint_position"]
        sunk = 0.0
        end_s = time.monotonic() + 20.0
        while sunk < 0.3 and time.monotonic() < end_s:
            time.sleep(0.5)
            sunk = float(np.abs(_joints(arm) - before)[1:4].max())
        assert sunk >= 0.3, f"no joint sank by more than {sunk:.2f} rad"


def _answers(port: Path) -> bool:
    return os.path.exists(port) and ask(port, {"verb": "status"}) is not None


def _joints(arm: Path) -> np.ndarray:
    """Return the angles that the servos report, rad; the virtual ones answer without supply too."""
    with closing(open_port(arm)) as port:
        bus = ServoBus(port, feetech)
        steps = [int.from_bytes(bus.read(servo, 56, 2).data, "little") for servo in range(1, 7)]
    return (np.array(steps) - 2048) * 2 * np.pi / 4096
