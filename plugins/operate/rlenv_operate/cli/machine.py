"""Find what makes a control loop late, cuts its connections or stops its recording on this machine, and give remedies.

Every examination reads the system through `System`, so that a test can simulate each cause.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

from rlenv_robot.cli.output import Finding

__all__ = ["System", "examine_machine"]

_CAP_IPC_LOCK, _CAP_SYS_NICE = 14, 23
"""Bits of ``CapEff`` in ``/proc/self/status`` (linux/capability.h)."""
_UNSYNCHRONISED = 5
"""Answer of adjtimex(2), ``TIME_ERROR``: the clock is not synchronised."""
_TIMEX_BYTES = 208
"""Size of ``struct timex`` on 64-bit Linux."""
_LOOP_PRIORITY = 40
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv")
"""Files that Docker and Podman put into a container."""
_DISK_BYTES, _SHARED_BYTES = 2 << 30, 64 << 20
_DDS_BUFFER_BYTES = 2 << 20
_DDS_DOMAINS = 232
"""Highest number of a DDS domain whose ports exist (DDSI-RTPS 2.5, 9.6.2)."""


def _clock_state() -> int | None:
    """Return what adjtimex(2) answers to a question that changes nothing; None where there is no such call."""
    try:
        return int(ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES)))
    except (OSError, AttributeError):
        return None


@dataclass(frozen=True)
class System:
    """Access to the system for the examinations.

    Attributes:
        root: root of the file system.
        environ: the environment variables.
        limit: returns the soft limit of a resource (`resource.getrlimit`).
        free: returns the free space of the disk that holds a path, bytes.
        clock_state: returns the result of adjtimex(2), or None.
        versions: returns the version of an installed distribution, or None.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    limit: Callable[[int], int] = lambda which: resource.getrlimit(which)[0]
    free: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    clock_state: Callable[[], int | None] = _clock_state
    versions: Callable[[str], str | None] = lambda name: _version(name)

    def read(self, path: str) -> str:
        """Return the text of a file, stripped of white space; empty if it can't be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def has_capability(self, bit: int) -> bool:
        """Return whether this process has the Linux capability with a bit number."""
        match = re.search(r"^CapEff:\s*([0-9a-f]+)$", self.read("proc/self/status"), re.MULTILINE)
        return match is not None and bool(int(match[1], 16) >> bit & 1)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def examine_machine(
    system: System | None = None, record: Path | None = None, keys: Path | None = None
) -> list[Finding]:
    """Examine real-time rights, clocks, disk, network, versions and keys.

    Args:
        system: the system to examine; None for this one.
        record: the folder for recorded runs; None for the working directory.
        keys: the folder of this machine's keys; None skips the keys.
    """
    seen = System() if system is None else system
    return [
        *_real_time(seen),
        *_clocks(seen),
        *_disk(seen, record or Path()),
        *_network(seen),
        *_dds(seen),
        *_versions(seen),
        *(_keys(keys) if keys is not None else ()),
    ]


# -- Time ------------------------------------------------------------------------------------------------------------


def _real_time(system: System) -> Iterator[Finding]:
    if sys.platform != "linux":
        yield Finding("real-time rights", None, f"not examined on {sys.platform}")
        return
    in_container = any((system.root / mark).exists() for mark in _CONTAINER_MARKS)
    allowed = 99 if system.has_capability(_CAP_SYS_NICE) else system.limit(resource.RLIMIT_RTPRIO)
    if allowed < _LOOP_PRIORITY:
        advice = (
            f"for an even control loop: docker run --ulimit rtprio={_LOOP_PRIORITY}; --cap-add SYS_NICE gives it to "
            "root alone"
            if in_container
            else f"for an even control loop: LimitRTPRIO={_LOOP_PRIORITY} in the systemd unit, or "
            f"`@realtime - rtprio {_LOOP_PRIORITY}` in /etc/security/limits.d/realtime.conf, then log in again"
        )
        yield Finding("real-time rights", None, f"priority {allowed}, the loop asks for {_LOOP_PRIORITY}", advice)
    else:
        yield Finding("real-time rights", True, f"up to priority {allowed}")
    unlimited = system.has_capability(_CAP_IPC_LOCK) or system.limit(resource.RLIMIT_MEMLOCK) == resource.RLIM_INFINITY
    if not unlimited:
        advice = (
            "docker run --ulimit memlock=-1"
            if in_container
            else "LimitMEMLOCK=infinity in the systemd unit, or `@realtime - memlock unlimited` in limits.d"
        )
        yield Finding("locked memory", None, "limited: the loop's memory may be swapped out", advice)
    governors = {
        (system.root / path).read_text(encoding="utf-8").strip()
        for path in (system.root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    if "powersave" in governors:
        advice = "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
        yield Finding("processor speed", None, "governor powersave: the first period after a pause is slow", advice)


def _clocks(system: System) -> Iterator[Finding]:
    source = system.read("sys/devices/system/clocksource/clocksource0/current_clocksource")
    if source in ("hpet", "acpi_pm", "jiffies"):
        advice = "boot with clocksource=tsc if the processor's counter is stable (dmesg | grep -i tsc)"
        yield Finding("clock source", None, f"{source}: each look at the clock costs microseconds", advice)
    if system.clock_state() == _UNSYNCHRONISED:
        advice = "sudo timedatectl set-ntp true, or install chrony; logs of two machines share one time of day then"
        yield Finding("time of day", None, "not synchronised", advice)
    else:
        yield Finding("time of day", True, "synchronised, as far as the kernel says")


# -- Disk ------------------------------------------------------------------------------------------------------------


def _disk(system: System, folder: Path) -> Iterator[Finding]:
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not os.access(place, os.W_OK):
        advice = f"name another folder to --record, or sudo chown $USER {place}"
        yield Finding("disk for runs", None, f"nothing can be written in {place}", advice)
    else:
        free = system.free(place)
        low = free < _DISK_BYTES
        advice = "make room or name another disk to --record; a recording keeps 256 MiB free and then stops"
        yield Finding("disk for runs", None if low else True, f"{free / 1e9:.1f} GB free", advice if low else "")
    shared = system.root / "dev/shm"
    if not shared.is_dir() or not os.access(shared, os.W_OK) or system.free(shared) < _SHARED_BYTES:
        advice = "docker run --shm-size 256m, or mount -o remount,size=256m /dev/shm"
        yield Finding("shared memory", None, "too little in /dev/shm: a kill loses a log's last second", advice)


# -- Network ---------------------------------------------------------------------------------------------------------


def _network(system: System) -> Iterator[Finding]:
    interfaces = {path.name: path for path in sorted((system.root / "sys/class/net").glob("*"))}
    up = [
        name
        for name, path in interfaces.items()
        if name != "lo" and path.exists() and int(system.read(f"sys/class/net/{name}/flags") or "0", 16) & 1
    ]
    down = [name for name in interfaces if name != "lo" and system.read(f"sys/class/net/{name}/carrier") in ("", "0")]
    cable = [name for name in up if name in down]
    if not up:
        advice = "for a robot on another machine: plug a cable in, or `ip link set eth0 up`"
        yield Finding("network", None, "no interface but loopback is up", advice)
    elif len(cable) == len(up):
        yield Finding("network", None, f"{', '.join(cable)}: up, but without a cable or a peer", "check the cable")
    else:
        yield Finding("network", True, ", ".join(name for name in up if name not in cable))
    for name in up:
        if (system.root / "sys/class/net" / name / "wireless").exists() and name not in cable:
            advice = "for control, a cable: the safe state is reached after 0.2 s of silence, which radio often has"
            yield Finding(f"network {name}", None, "wireless", advice)


def _dds(system: System) -> Iterator[Finding]:
    """Examine what ROS 2 and Unitree's robots need; nothing where neither is used."""
    uses = [name for name in ("ROS_DISTRO", "CYCLONEDDS_URI", "RMW_IMPLEMENTATION") if name in system.environ]
    if not uses and system.versions("cyclonedds") is None:
        return
    domain = system.environ.get("ROS_DOMAIN_ID", "0")
    if not (domain.isdigit() and int(domain) <= _DDS_DOMAINS):
        yield Finding("DDS domain", None, f"ROS_DOMAIN_ID is {domain!r}", f"allowed are 0 to {_DDS_DOMAINS}")
    if system.environ.get("ROS_LOCALHOST_ONLY") == "1":
        advice = "unset ROS_LOCALHOST_ONLY for a robot on another machine"
        yield Finding("DDS network", None, "ROS_LOCALHOST_ONLY keeps DDS on this machine", advice)
    named = re.findall(r'NetworkInterface\s[^>]*name="([^"]+)"', system.environ.get("CYCLONEDDS_URI", ""))
    for name in named:
        flags = system.read(f"sys/class/net/{name}/flags")
        if not flags:
            known = ", ".join(path.name for path in sorted((system.root / "sys/class/net").glob("*")))
            yield Finding("DDS interface", None, f"CYCLONEDDS_URI names {name}", f"this machine has {known}")
        elif not int(flags, 16) & 0x1000:  # IFF_MULTICAST
            advice = f"sudo ip link set {name} multicast on; DDS finds its peers by multicast"
            yield Finding("DDS multicast", None, f"{name} has no multicast", advice)
    buffer = system.read("proc/sys/net/core/rmem_max")
    if buffer.isdigit() and int(buffer) < _DDS_BUFFER_BYTES:
        advice = f"sudo sysctl -w net.core.rmem_max={_DDS_BUFFER_BYTES}; images in DDS get lost otherwise"
        yield Finding("DDS buffers", None, f"net.core.rmem_max is {buffer} bytes", advice)


# -- Versions and keys -----------------------------------------------------------------------------------------------


def _versions(system: System) -> Iterator[Finding]:
    """Compare installed packages with the ranges that this software was tried with."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:  # pip has it, but it need not be a package of its own
        return
    try:
        lines = distribution("rlenv-robot").requires or []
    except PackageNotFoundError:
        yield Finding("rlenv-robot", None, "not installed as a package", "pip install -e .")
        return
    seen = set()
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        number = system.versions(requirement.name)
        if number is None or requirement.name in seen:
            continue
        if not requirement.specifier.contains(number, prereleases=True):
            seen.add(requirement.name)
            advice = f'pip install "{requirement.name}{requirement.specifier}"'
            yield Finding(requirement.name, None, f"{number}, tried with {requirement.specifier}", advice)


def _keys(folder: Path) -> Iterator[Finding]:
    from real.protocol.keys import Allowed, load_pair

    try:
        load_pair(folder)
        entries = list(Allowed(folder))
    except (ValueError, OSError) as error:  # the message says what mends it
        yield Finding("keys", None, "can't be used", str(error))
        return
    now_s = time.time()
    ended = [entry.name for entry in entries if entry.expired(now_s) is not None]
    if ended:
        advice = f"rlenv-robot robot keys allow {folder} KEY --role ROLE --name {ended[0]}"
        yield Finding("keys", None, f"the rights of {', '.join(ended)} have ended", advice)
    else:
        yield Finding("keys", True, f"{folder}, {len(entries)} clients allowed")
