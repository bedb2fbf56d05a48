"""``rlenv-robot doctor``: what it finds, and its advice."""

from __future__ import annotations

import sys

import pytest

from rlenv_operate.cli import doctor
from rlenv_robot.cli.main import main

Captured = pytest.CaptureFixture[str]


def test_doctor_knows_this_machine(capsys: Captured) -> None:
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for what in ("Python", "numpy", "mujoco-core", "pyarrow", "OpenCV", "rendering (EGL)", "port 5555"):
        assert f"\n  {what} " in told


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
