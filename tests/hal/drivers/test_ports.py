"""Serial ports as a machine's files show them, and the servos behind one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal.drivers.ports import find_wiggle, list_ports, scan_servos
from hal.errors import ConnectionLost
from sim.servo_bus.feetech_servo import FeetechServo
from sim.servo_bus.line import ServoLine
from sim.servo_bus.terminal import ServoTerminal


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with an FTDI adapter whose latency timer is slow, and a CH343 beside brltty."""
    usb = tmp_path / "sys/devices/usb1"
    for device, vendor, driver in (("ttyUSB0", "0403", "ftdi_sio"), ("ttyACM0", "1a86", "cdc_acm")):
        node = usb / device / "interface" / "port"
        node.mkdir(parents=True)
        (usb / device / "idVendor").write_text(f"{vendor}\n")
        (tmp_path / "drivers" / driver).mkdir(parents=True)
        (node / "driver").symlink_to(tmp_path / "drivers" / driver)
        tty = tmp_path / "sys/class/tty" / device
        tty.mkdir(parents=True)
        (tty / "device").symlink_to(node)
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / device).touch()
    (usb / "ttyUSB0/interface/port/latency_timer").write_text("16\n")
    by_id = tmp_path / "dev/serial/by-id"
    by_id.mkdir(parents=True)
    (by_id / "usb-1a86_USB_Single_Serial-if00").symlink_to("../../ttyACM0")
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/brltty").touch()
    return tmp_path


def test_ports_have_lasting_names_adapters_and_advice(machine: Path) -> None:
    acm, ftdi = list_ports(machine)
    assert acm.name.endswith("usb-1a86_USB_Single_Serial-if00")
    assert acm.adapter == "QinHeng (CH340, CH343), cdc_acm"
    assert ["brltty" in line for line in acm.advice] == [True]
    assert ftdi.name == ftdi.device
    assert ["16 ms" in line for line in ftdi.advice] == [True]
    assert ftdi.usable
    (machine / "sys/devices/usb1/ttyUSB0/interface/port/latency_timer").write_text("1\n")
    assert list_ports(machine)[1].advice == ()


def test_a_machine_without_ports_has_none(tmp_path: Path) -> None:
    assert list_ports(tmp_path) == []


def test_the_holder_of_a_port_is_named(machine: Path) -> None:
    import subprocess
    import sys

    program = f"import time; f = open({str(machine / 'dev/ttyACM0')!r}); print('open', flush=True); time.sleep(60)"
    holder = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        assert any(str(holder.pid) in name for name in list_ports(machine)[0].holders)
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


def test_the_servos_behind_a_port_are_named() -> None:
    servos = [FeetechServo(2), FeetechServo(5, firmware=(3, 9), volts=12.0, model=2825, max_voltage=140)]
    with ServoTerminal(ServoLine(servos)) as terminal:
        found = dict(scan_servos(terminal.path, highest=6))
    assert found == {
        2: "STS3215, firmware 3.10, at 7.4 V, takes 4 to 8 V",
        5: "model 2825, firmware 3.9, at 12 V, takes 4 to 14 V",
    }


def test_the_port_of_an_arm_that_somebody_moves_is_found() -> None:
    left, right = ([FeetechServo(servo) for servo in (1, 6)] for _ in range(2))
    counts: dict[str, int] = {}
    with ServoTerminal(ServoLine(left)) as one, ServoTerminal(ServoLine(right)) as other:
        right[1].encoder = 4090.0  # it is moved over the end of the encoder's count

        def move(seconds: float) -> None:
            right[1].encoder = (right[1].encoder + 8) % 4096

        paths = [one.path, other.path]
        found = find_wiggle(paths, ready=counts.update, sleep=move)
    assert found is not None
    assert (found.port, found.servo) == (paths[1], 6)
    assert found.degrees == pytest.approx(10, abs=3)
    assert list(counts.values()) == [2, 2]
    assert all(servo.kept_writes == 0 and servo.drive == "off" for servo in (*left, *right))


def test_an_arm_that_nobody_moves_is_not_found() -> None:
    clock = iter(range(1000))
    with ServoTerminal(ServoLine([FeetechServo(1)])) as terminal:
        assert (
            find_wiggle([terminal.path], highest=1, longest_s=5, now=lambda: next(clock), sleep=lambda _: None) is None
        )


def test_a_missing_port_says_so() -> None:
    with pytest.raises(ConnectionLost, match="no such device"):
        scan_servos("/dev/ttyNONE")
