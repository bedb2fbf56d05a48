"""Each cause is planted in a system of its own, and is named together with what mends it."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from real.protocol import keys
from rlenv_operate.cli.machine import System, examine_machine
from rlenv_robot.cli.output import Finding

ROOT_CAPABILITIES = "CapEff:\t000001ffffffffff\n"


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def system(tmp_path: Path) -> System:
    """A machine on which nothing is wrong."""
    root = tmp_path / "root"
    put(root, "proc/self/status", ROOT_CAPABILITIES)
    put(root, "sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")
    put(root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n")
    put(root, "sys/class/net/lo/flags", "0x9\n")
    put(root, "sys/class/net/eth0/flags", "0x1003\n")
    put(root, "sys/class/net/eth0/carrier", "1\n")
    put(root, "proc/sys/net/core/rmem_max", "4194304\n")
    (root / "dev/shm").mkdir(parents=True)
    return System(root, {}, lambda which: resource.RLIM_INFINITY, lambda path: 1 << 40, lambda: 0, lambda name: None)


def bad(system: System, **arguments: Path) -> dict[str, Finding]:
    return {finding.subject: finding for finding in examine_machine(system, **arguments) if finding.ok is not True}


def test_a_machine_without_fault_has_no_advice(system: System, tmp_path: Path) -> None:
    assert bad(system, record=tmp_path / "runs" / "deep") == {}


ROS = {"ROS_DISTRO": "jazzy"}
INTERFACE = '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="{}"/></Interfaces></General></Domain>'
FILES = {
    "real-time rights": ("proc/self/status", "CapEff:\t0\n", "LimitRTPRIO"),
    "locked memory": ("proc/self/status", "CapEff:\t0\n", "LimitMEMLOCK"),
    "processor speed": ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n", "performance"),
    "clock source": ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n", "tsc"),
    "network": ("sys/class/net/eth0/flags", "0x1002\n", "ip link"),
    "network eth0": ("sys/class/net/eth0/wireless/link", "", "cable"),
}


@pytest.mark.parametrize("subject", FILES)
def test_a_cause_in_a_file_is_named(subject: str, system: System) -> None:
    path, text, cure = FILES[subject]
    put(system.root, path, text)
    limited = replace(system, limit=lambda which: 0)
    assert cure in bad(limited)[subject].advice


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_in_a_container_the_advice_is_a_limit_and_no_capability(mark: str, system: System) -> None:
    put(system.root, "proc/self/status", "CapEff:\t0\n")
    put(system.root, mark, "")
    found = bad(replace(system, limit=lambda which: 0))
    assert "--ulimit rtprio=40" in found["real-time rights"].advice
    assert "--ulimit memlock=-1" in found["locked memory"].advice


Change = Callable[[System], System]
CHANGES: dict[str, tuple[Change, str]] = {
    "time of day": (lambda system: replace(system, clock_state=lambda: 5), "set-ntp"),
    "disk for runs": (lambda system: replace(system, free=lambda path: 1 << 29), "256 MiB"),
    "shared memory": (lambda system: replace(system, free=lambda path: 1 << 20), "/dev/shm"),
    "DDS domain": (lambda system: replace(system, environ={**ROS, "ROS_DOMAIN_ID": "300"}), "232"),
    "DDS network": (lambda system: replace(system, environ={**ROS, "ROS_LOCALHOST_ONLY": "1"}), "unset"),
    "DDS interface": (lambda system: replace(system, environ={"CYCLONEDDS_URI": INTERFACE.format("enp9")}), "eth0"),
    "DDS multicast": (lambda system: replace(system, environ={"CYCLONEDDS_URI": INTERFACE.format("lo")}), "multicast"),
    "numpy": (lambda system: replace(system, versions={"numpy": "1.0"}.get), "pip install"),
}


@pytest.mark.parametrize("subject", CHANGES)
def test_a_cause_in_the_system_is_named(subject: str, system: System) -> None:
    change, cure = CHANGES[subject]
    assert cure in bad(change(system))[subject].advice


def test_small_buffers_are_named_where_dds_is_used(system: System) -> None:
    put(system.root, "proc/sys/net/core/rmem_max", "212992\n")
    assert "DDS buffers" not in bad(system)
    assert "sysctl" in bad(replace(system, environ=ROS))["DDS buffers"].advice


def test_a_cable_that_is_out_is_named(system: System) -> None:
    put(system.root, "sys/class/net/eth0/carrier", "0\n")
    assert "cable" in bad(system)["network"].advice


def test_keys_that_cannot_be_used_are_named(system: System, tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    assert "keys new" in bad(system, keys=folder)["keys"].advice
    pair = keys.new_pair(folder)
    assert "keys" not in bad(system, keys=folder)
    (folder / keys.SECRET).chmod(0o644)
    assert "chmod 600" in bad(system, keys=folder)["keys"].advice
    (folder / keys.SECRET).chmod(0o600)
    assert keys.load_pair(folder) == pair


def test_this_machine_can_be_examined(tmp_path: Path) -> None:
    subjects = [finding.subject for finding in examine_machine(record=tmp_path)]
    assert {"real-time rights", "time of day", "disk for runs", "network"} <= set(subjects)
