"""``rlenv-robot robot ports``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rlenv_arms.ports import PortInfo
from rlenv_arms.scan import Wiggle
from rlenv_robot.cli.main import main

SLOW = PortInfo("/dev/ttyUSB0", "/dev/serial/by-id/usb-FTDI", "FTDI, ftdi_sio", True, (), ("each answer waits 16 ms",))
QUICK = PortInfo("/dev/ttyACM0", "/dev/serial/by-id/usb-1a86", "QinHeng, cdc_acm", True, (), ())
HELD = PortInfo("/dev/ttyACM1", "/dev/ttyACM1", "QinHeng, cdc_acm", True, ("serve (7)",), ("held by serve (7)",))


def test_ports_are_listed_with_advice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("rlenv_arms.ports.list_ports", lambda: [QUICK, SLOW])
    assert main(["robot", "ports"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "/dev/serial/by-id/usb-1a86  (/dev/ttyACM0; QinHeng, cdc_acm)",
        "/dev/serial/by-id/usb-FTDI  (/dev/ttyUSB0; FTDI, ftdi_sio)",
        "  each answer waits 16 ms",
    ]


def test_only_free_ports_are_watched_for_a_wiggle(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rlenv_arms.ports.list_ports", lambda: [QUICK, HELD])
    found = [Wiggle(QUICK.name, 6, 12.0), None]

    def find_wiggle(paths: list[str], **options: object) -> Wiggle | None:
        assert paths == [QUICK.name]
        return found.pop(0)

    monkeypatch.setattr("rlenv_arms.scan.find_wiggle", find_wiggle)
    assert main(["robot", "ports", "--wiggle"]) == 0
    assert "usb-1a86: servo 6, gripper of an SO-101, moved by 12 degrees" in capsys.readouterr().out
    assert main(["robot", "ports", "--wiggle"]) == 1


def test_every_camera_gives_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cv2 = pytest.importorskip("cv2")
    (tmp_path / "scene").mkdir()
    cv2.imwrite(str(tmp_path / "scene" / "1.png"), np.full((4, 6, 3), 200, np.uint8))
    (tmp_path / "empty").mkdir()
    devices = [str(tmp_path / "scene"), str(tmp_path / "empty")]
    monkeypatch.setattr("hal.cameras.sources.video_devices", lambda: devices)
    assert main(["robot", "ports", "--pictures", str(tmp_path / "out")]) == 1
    assert cv2.imread(str(tmp_path / "out" / "camera-0.jpg")).shape == (4, 6, 3)
    assert "holds no image" in capsys.readouterr().out
    monkeypatch.setattr("hal.cameras.sources.video_devices", list)
    assert main(["robot", "ports", "--pictures", str(tmp_path / "out")]) == 1
