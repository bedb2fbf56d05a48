"""``rlenv-robot doctor``: what it finds, and its advice."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from unittest.mock import Mock

import pytest

from rlenv_operate.cli import doctor
from rlenv_robot.cli.main import main

Captured = pytest.CaptureFixture[str]


def test_doctor_knows_this_machine(capsys: Captured) -> None:
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for what in ("Python", "numpy", "mujoco-core", "pyarrow", "OpenCV", "rendering (EGL)", "port 5555"):
        assert f"\n  {what} " in told


def test_doctor_lists_plug_ins_and_packages_that_extend_us(monkeypatch: pytest.MonkeyPatch) -> None:
    acme = Mock(version="1.2", entry_points=[EntryPoint("acme-arm", "acme:ARM", "rlenv_robot.robots")])
    acme.name = "acme"
    monkeypatch.setattr(doctor, "distributions", lambda: [acme])
    monkeypatch.setattr(doctor, "missing_plugins", lambda: ["rlenv_kit"])
    findings = {finding.subject: finding for finding in doctor.examine()}
    assert "rlenv_arms" in findings["plug-ins"].state
    assert "rlenv_kit" not in findings["plug-ins"].state
    assert findings["plug-in rlenv_kit"].ok is None
    assert "restore the folder plugins/kit and run launch/setup test" in findings["plug-in rlenv_kit"].advice
    assert findings["package acme 1.2"].state == "robots: acme-arm"


def test_doctor_says_what_to_do_about_what_is_missing(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    there = doctor.version
    monkeypatch.setattr(
        doctor, "version", lambda name: there("no-such-package" if name in ("mcap", "pyarrow") else name)
    )
    monkeypatch.setattr("sim.rendering.camera.available", lambda: "no EGL library")
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    lines = {line.split("  ")[1]: line for line in told.splitlines() if line.startswith("  ")}
    assert "MISSING" in lines["mcap"]
    assert "install rlenv-robot again" in lines["mcap"]
    assert 'pip install "rlenv-robot[parquet]"' in lines["pyarrow"]
    assert "note" in lines["rendering (EGL)"]
    assert "no EGL library" in lines["rendering (EGL)"]


@pytest.mark.parametrize(
    ("installed", "loaded", "ok", "state"),
    [
        ([], {"libLLVM"}, True, "not installed"),
        (["libtriton.so"], set(), True, "no conflict"),
        (["libtriton.so"], {"libLLVM", "libtriton"}, True, "solved"),
        (["libtriton.so"], {"libLLVM"}, None, "conflict"),
    ],
)
def test_doctor_knows_the_conflict_of_mesa_and_torch(
    installed: list[str], loaded: set[str], ok: bool | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.rendering.egl.triton_libraries", lambda: installed)
    monkeypatch.setattr(doctor, "_is_loaded", loaded.__contains__)
    (finding,) = [finding for finding in doctor.examine() if finding.subject == "rendering and torch"]
    assert finding.ok is ok
    assert state in finding.state
    assert ("import torch before" in finding.advice) == (ok is None)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the libraries of a process")
def test_a_loaded_library_is_known() -> None:
    assert doctor._is_loaded("libc.so") or doctor._is_loaded("libc-")
    assert not doctor._is_loaded("libnosuchlibrary")
