"""Serial ports as a machine's files show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlenv_arms.ports import PortInfo, examine_ports, list_ports


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


def test_the_doctor_reports_serial_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = PortInfo("/dev/ttyACM0", "/dev/serial/by-id/usb-1a86", "QinHeng, cdc_acm", True, (), ())
    slow = PortInfo(
        "/dev/ttyUSB0", "/dev/serial/by-id/usb-FTDI", "FTDI, ftdi_sio", True, (), ("each answer waits 16 ms",)
    )
    monkeypatch.setattr("rlenv_arms.ports.list_ports", lambda: [quick, slow])
    findings = examine_ports()
    assert [(finding.ok, finding.advice) for finding in findings] == [(True, ""), (None, "each answer waits 16 ms")]
    monkeypatch.setattr("rlenv_arms.ports.list_ports", list)
    (none,) = examine_ports()
    assert (none.ok, none.state) == (None, "none")
