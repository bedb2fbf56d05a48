"""Certificates of stopping: measured on a served robot, and worth something only unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Guard
from real import RemoteRobot, Server
from rlenv_kit.certificate import sign, verify
from rlenv_kit.formats import write_report
from rlenv_kit.report import Check, Report
from rlenv_kit.stopping import certify, spread_ms
from rlenv_robot.cli.main import main
from tests.fakes import Integrator, looked

CERTIFICATE: dict[str, Any] = {
    "format": "a test", "stops": {"running": spread_ms([0.001, 0.002])}, "profile_sha256": None,
    "conformance": [{"subject": "robot X", "passed": False, "checks": [{"name": "stops", "passed": False}]}],
}  # fmt: skip


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "lab.key"


def test_every_stop_and_silence_of_a_served_robot_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, key, checked = tmp_path / "stopping.json", tmp_path / "lab.key", tmp_path / "check.json"
    report = Report("robot Integrator", (Check("it stops", "robot", True), Check("it waits", "robot", None)),
                    robot_digest=Integrator().spec.digest)  # fmt: skip
    write_report(checked, [report])
    with Server(Guard(Integrator()), watchdog_s=0.1) as server:
        assert main(["robot", "certify", server.address, "--trials", "2", "--key", str(key), "--out", str(out),
                     "--conformance", str(checked)]) == 0  # fmt: skip
        assert server.about()["state"] == "stopped"
        mover = RemoteRobot(server.address)
        mover.reset(looked(mover))
        mover.close()
    certificate = json.loads(out.read_text())
    assert {state: times["number"] for state, times in certificate["stops"].items()} == {
        "ready": 2, "running": 2, "holding": 2, "stopped": 2,
    }  # fmt: skip
    assert certificate["silences"]["running"]["median"] >= 100, "no silence ends before the watchdog"
    assert certificate["robot"]["digest"] == Integrator().spec.digest
    assert certificate["conformance"] == json.loads(checked.read_text())
    assert main(["robot", "certify", "--verify", str(out)]) == 0
    shown = capsys.readouterr().out
    assert verify(certificate) in shown
    assert "conformance: robot Integrator: 1 passed, 0 failed, 1 not tried" in shown
    certificate["conformance"][0]["checks"][1]["passed"] = True
    with pytest.raises(ValueError, match="signature"):
        verify(certificate)


def test_a_report_on_another_robot_or_on_none_is_refused_before_anything_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked, robot = tmp_path / "check.json", Integrator()
    with Server(Guard(robot), watchdog_s=0.1) as server:
        for reports in ([Report("robot Other", (), robot_digest="ab" * 32)], [Report("environment x", ())]):
            write_report(checked, reports)
            assert main(["robot", "certify", server.address, "--conformance", str(checked)]) == 2
            assert robot.spec.digest[:16] in capsys.readouterr().err
        checked.write_text('{"subject": "robot"}')
        assert main(["robot", "certify", server.address, "--conformance", str(checked)]) == 2
        assert "not a conformance report" in capsys.readouterr().err
    assert robot.resets == []


def test_a_lockstep_server_has_no_watchdog_to_certify(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        Server(Guard(Integrator()), lockstep=True) as server,
    ):
        patch.setattr("rlenv_kit.stopping._PATIENCE_S", 0.3)
        assert main(["robot", "certify", server.address, "--trials", "1"]) == 2
    assert "lockstep" in capsys.readouterr().err


def test_spread_takes_the_rank_above() -> None:
    assert spread_ms([k / 1000 for k in range(1, 1001)]) == {
        "number": 1000, "median": 500.5, "99.9%": 999.0, "longest": 1000.0,
    }  # fmt: skip
    assert spread_ms([0.002]) == {"number": 1, "median": 2.0, "99.9%": 2.0, "longest": 2.0}


@given(st.data())
def test_any_change_of_a_character_is_found(key: Path, data: st.DataObject) -> None:
    text = json.dumps(sign(CERTIFICATE, key))
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda character: character != text[place]))
    try:
        changed = json.loads(text[:place] + other + text[place + 1 :])
    except ValueError:
        return
    if not isinstance(changed, dict) or changed == json.loads(text):
        return
    with pytest.raises(ValueError, match="signature"):
        verify(changed)


def test_another_key_signs_with_another_name(key: Path, tmp_path: Path) -> None:
    own = verify(sign(CERTIFICATE, key))
    assert own == verify(sign(sign(CERTIFICATE, tmp_path / "other.key"), key))
    assert own != verify(sign(CERTIFICATE, tmp_path / "other.key"))


def test_a_private_key_is_its_owners(key: Path, tmp_path: Path) -> None:
    sign(CERTIFICATE, key)
    assert key.stat().st_mode & 0o077 == 0
    shared = tmp_path / "shared.key"
    shared.write_text(key.read_text())
    shared.chmod(0o644)
    with pytest.raises(ValueError, match="others can read"):
        sign(CERTIFICATE, shared)
    shared.write_text("not a key")
    shared.chmod(0o600)
    with pytest.raises(ValueError, match="hexadecimal"):
        sign(CERTIFICATE, shared)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, '{"signature": {"key": "zz", "ed25519": 5}}'])
def test_a_file_that_is_no_certificate_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.json").write_text(text)
    assert main(["robot", "certify", "--verify", str(tmp_path / "file.json")]) == 2
    assert "certificate" in capsys.readouterr().err


def test_no_trial_is_refused_before_anything_moves() -> None:
    with pytest.raises(ValueError, match="trials"):
        certify("tcp://127.0.0.1:1", trials=0)
