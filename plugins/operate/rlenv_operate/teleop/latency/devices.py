"""Measure the latency of virtual devices and robots, or of real ones."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from hal import Automatic, Guard, Homing, Robot, RobotError
from hal.field import JsonDict
from hal.robots.so101 import SO101
from real import Server
from rlenv_operate.teleop.gamepad import BTN_TR, EV_ABS, EV_KEY, EV_SYN, EVENT, Gamepad
from rlenv_operate.teleop.keyboard import Keyboard
from rlenv_operate.teleop.latency.chain import Client, EpisodeClient, ServedChain, StampedDriver, StampedPort
from rlenv_operate.teleop.latency.trials import Stimulus, measure, summarise
from rlenv_operate.teleop.leader import MOTION, Leader, LeaderReader
from rlenv_operate.teleop.session import leader_of_profile
from rlenv_robot.config.profile import Profile, load_profile
from rlenv_robot.robot_models import find_robot_model, load_robot_model, make_driver
from rlenv_robot.serving import build_robot

__all__ = ["DEVICES", "Device", "LatencySettings", "measure_latency"]

Device = Literal["keyboard", "gamepad", "leader", "page"]
DEVICES: tuple[Device, ...] = get_args(Device)

_VELOCITY = 2.0
"""Greatest velocity of a commanded number while measuring, rad/s: one period's motion is far above a servo's step."""

_LATE_S = 1.0
_DRIVE_S = 0.033
_HAND_RAD = 0.15
_LIFT_RAD = 0.3
"""Angle by which the hand lifts the leader's elbow at first: finger tips that touch the table stick to it."""

_ELBOW = 2
_PERSON_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySettings:
    """The settings of `measure_latency`.

    Attributes:
        device: ``keyboard``, ``gamepad``, ``leader`` or ``page``.
        robot: ``bus``, a virtual SO-101 on a serial bus; ``sim``, a simulated one in real time; or a profile's file.
        trials: number of trials.
        motion: smallest measured motion that counts, units of the robot's commands.
        source: a real device in place of a virtual one: the event device of a gamepad, or the profile of a leader.
            Empty for a virtual device.

    Raises:
        ValueError: a value is out of range.
    """

    device: Device
    robot: str = "bus"
    trials: int = 100
    motion: float = 0.005
    source: str = ""

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise ValueError(f"device is {self.device!r}, allowed are {', '.join(DEVICES)}")
        if self.trials < 1:
            raise ValueError(f"trials is {self.trials}, it must be at least 1")
        if not 0 < self.motion < np.inf:
            raise ValueError(f"motion is {self.motion}, it must be above 0 and finite")
        if self.source and self.device not in ("gamepad", "leader"):
            raise ValueError(
                f"a device of your own is for gamepad and leader; {self.device} is measured by a virtual one"
            )


def measure_latency(settings: LatencySettings, say: Callable[[str], None] = lambda _: None) -> JsonDict:
    """Serve a robot, move it with a device, and return the times from input to goal and to motion.

    Robot, server, client and device run in this process. A leader, a gamepad and a keyboard reach the robot as in
    ``rlenv-robot operate teleop``, the page as in ``rlenv-robot operate console``.

    Args:
        settings: the settings of the measurement.
        say: takes lines for the person who moves a real device.

    Returns:
        The keys of `rlenv_operate.teleop.latency.trials.summarise`, and ``device``, ``robot``, ``source``, ``rate_hz``
        and ``period_ms``.

    Raises:
        RobotError: robot or device can't be used, or the robot does not come to rest.
        OSError: the device can't be opened.
        ValueError: a profile can't be used.
    """
    with ExitStack() as ends:
        driver, served, kind = _robot(settings.robot, ends)
        server = Server(
            served, watchdog_s=1.0, telemetry="tcp://127.0.0.1:*", control_hz=driver.spec.rate_hz,
            max_command_age_s=_LATE_S,  # a late command is a figure here, not a fault
        )  # fmt: skip
        stimulus, client, change = _DEVICES[settings.device](settings, kind, ends, say)
        timeout_s = _PERSON_S if settings.source else 2.0
        with ServedChain(server, driver, client, settings.motion, change, timeout_s) as chain:
            figures = summarise(measure(chain, stimulus, settings.trials))
    rate_hz = driver.spec.rate_hz
    return {
        "device": settings.device, "robot": settings.robot, "source": settings.source or "virtual",
        "rate_hz": rate_hz, "period_ms": 1e3 / rate_hz, **figures,
    }  # fmt: skip


# -- Robots ----------------------------------------------------------------------------------------------------


def _robot(where: str, ends: ExitStack) -> tuple[StampedDriver, Robot, str]:
    """Return the driver with stamps, the robot to be served, and the name of its model."""
    if where == "sim":
        driver = StampedDriver(find_robot_model(SO101.name).make_served_simulation("sim"))
        return driver, Homing(Guard(driver), Automatic()), SO101.name
    if where == "bus":
        driver = _on_bus(_virtual_arm(ends).path, {"calibration": _nominal(), "latency_s": 0.02})
        return driver, Guard(driver), SO101.name
    profile = load_profile(where)
    driver = _of_profile(profile)
    return driver, build_robot(profile, driver), driver.spec.name


def _of_profile(profile: Profile) -> StampedDriver:
    section = profile.robot
    if section.where in ("sim", "twin"):
        return StampedDriver(load_robot_model(section.kind).make_served_simulation(section.where, section.seed))
    if not section.driver:
        raise ValueError(f"{profile.file}: robot.driver is empty, and where is {section.where!r}; name a driver")
    if section.driver == "feetech":
        return _on_bus(Path(str(section.options["port"])), {k: v for k, v in section.options.items() if k != "port"})
    return StampedDriver(make_driver(section.driver, section.options, Path(profile.file).absolute().parent))


def _on_bus(path: Path, options: JsonDict) -> StampedDriver:
    """Return the driver of an arm on a serial port, with stamps of the goals' packets."""
    from hal.drivers.bus_arm import BusArm
    from hal.drivers.serial_port import SerialPort

    port = StampedPort(SerialPort(path, int(options.get("baud", 1_000_000))))
    return StampedDriver(BusArm(port, **options), lambda: port.goals_ns)


class _VirtualArm:
    """A virtual SO-101 on a pseudo-terminal, in a process of its own (``rlenv-robot robot twin``), without delay.

    Args:
        folder: for the terminal's name.

    Raises:
        RobotError: it did not start.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "arm"
        command = [sys.executable, "-m", "rlenv_robot", "robot", "twin", "so101", "--bus", "--link", str(self.path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if not self._said():
            raise RobotError("the virtual arm did not start")

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def hand(self, pose: np.ndarray) -> int:
        """Begin to move the joints without torque by hand; return the monotonic time of the start, in nanoseconds."""
        assert self._process.stdin is not None
        angles = " ".join(f"{angle:.3f}" for angle in np.degrees(pose))
        print(f"hand {angles}", file=self._process.stdin, flush=True)
        return int(self._said().split()[2])

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.communicate()


def _virtual_arm(ends: ExitStack) -> _VirtualArm:
    arm = _VirtualArm(Path(ends.enter_context(tempfile.TemporaryDirectory())))
    ends.callback(arm.close)
    return arm


def _nominal() -> object:
    from hal.drivers.calibration import nominal_calibration

    return nominal_calibration()


# -- Devices ---------------------------------------------------------------------------------------------------

_Made = tuple[Stimulus, Client, float]
"""The stimulus of the input, the client that the device moves, and the least change of a goal that counts."""


class _Stamped:
    """The parts that all virtual inputs share: the stamp of the newest change."""

    def __init__(self) -> None:
        self._input_ns = 0

    def input_ns(self) -> int:
        """Return the stamp of the newest change."""
        return self._input_ns

    def rest(self) -> None:
        """Do nothing: the input is a single event."""


class _Keys(_Stamped):
    """Press keys at a pseudo-terminal."""

    def __init__(self, master: int) -> None:
        super().__init__()
        self._master = master

    def change(self, direction: int) -> None:
        """Press a key."""
        self._input_ns = time.monotonic_ns()
        os.write(self._master, b"q" if direction > 0 else b"a")


def _keyboard(settings: LatencySettings, kind: str, ends: ExitStack, say: Callable[[str], None]) -> _Made:
    master, slave = pty.openpty()
    ends.callback(os.close, master)
    terminal = ends.enter_context(os.fdopen(slave, "r"))
    commands = find_robot_model(kind).load_spec().commands
    device = Keyboard(commands, 1.0, terminal, StringIO())  # the episode bounds the step of a key
    return _Keys(master), EpisodeClient(kind, device, _VELOCITY, lambda: _write(master, b" ")), 1e-4


def _write(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data)


class _Events(_Stamped):
    """Write the input events of a gamepad into a pipe, with the monotonic clock, as the kernel does."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._descriptor, self._is_open = os.open(path, os.O_RDWR), True
        self._lock = threading.Lock()  # a timer lets go of the stick, perhaps after the end

    def press(self) -> None:
        """Hold a shoulder button."""
        self._put(EV_KEY, BTN_TR, 1)

    def change(self, direction: int) -> None:
        """Push the left stick."""
        self._input_ns = self._put(EV_ABS, 0, -32768 * direction + (direction < 0) * -1)

    def rest(self) -> None:
        """Let go of the stick."""
        self._put(EV_ABS, 0, 0)

    def _put(self, kind: int, code: int, value: int) -> int:
        now_us = time.monotonic_ns() // 1000
        stamp = divmod(now_us, 1_000_000)
        with self._lock:
            if self._is_open:
                os.write(self._descriptor, EVENT.pack(*stamp, kind, code, value) + EVENT.pack(*stamp, EV_SYN, 0, 0))
        return now_us * 1000

    def close(self) -> None:
        """Close the pipe; later events go nowhere."""
        with self._lock:
            self._is_open = False
            os.close(self._descriptor)


class _ByHand:
    """Ask a person to move a device of their own, and take the device's stamp of it."""

    def __init__(self, device: Gamepad | Leader, say: Callable[[str], None]) -> None:
        self._device, self._say, self._number = device, say, 0

    def change(self, direction: int) -> None:
        """Ask for a motion."""
        self._number += 1
        self._device.mark()
        self._say(f"trial {self._number}: move, then let it rest")

    def input_ns(self) -> int:
        """Return the device's stamp of the first motion."""
        return self._device.input_ns

    def rest(self) -> None:
        """Do nothing: the person lets it rest."""


def _gamepad(settings: LatencySettings, kind: str, ends: ExitStack, say: Callable[[str], None]) -> _Made:
    spec = find_robot_model(kind).load_spec()
    if settings.source:
        device = Gamepad(settings.source, spec, _VELOCITY)
        say("hold a shoulder button all the time")
        return _ByHand(device, say), EpisodeClient(kind, device, _VELOCITY, lambda: None), 1e-4
    folder = ends.enter_context(tempfile.TemporaryDirectory())
    path = str(Path(folder) / "gamepad")
    os.mkfifo(path)
    events = _Events(path)
    ends.callback(events.close)
    return events, EpisodeClient(kind, Gamepad(path, spec, _VELOCITY), _VELOCITY, events.press), 1e-4


class _Hand(_Stamped):
    """Move a virtual leader arm by hand."""

    def __init__(self, arm: _VirtualArm) -> None:
        from sim.robots.so101 import REST

        super().__init__()
        self._arm, self._pose = arm, np.array(REST)
        arm.hand(self._pose)

    def lift(self) -> None:
        """Lift the forearm."""
        self._pose[_ELBOW] -= _LIFT_RAD
        self._arm.hand(self._pose)

    def change(self, direction: int) -> None:
        """Turn the first joint."""
        self._pose[0] += _HAND_RAD * direction
        self._input_ns = self._arm.hand(self._pose)


class _Always:
    """A clutch that stays closed."""

    def engaged(self) -> bool:
        """Return True."""
        return True

    def release(self) -> None:
        """Stay closed: nobody is at a virtual device."""


def _leader(settings: LatencySettings, kind: str, ends: ExitStack, say: Callable[[str], None]) -> _Made:
    from hal.drivers.bus_arm import BusArm
    from hal.drivers.calibration import nominal_calibration
    from hal.drivers.serial_port import SerialPort

    spec = find_robot_model(kind).load_spec()
    if settings.source:
        own = Leader(LeaderReader(leader_of_profile(settings.source)), spec, _Always())
        return _ByHand(own, say), EpisodeClient(kind, own, _VELOCITY, own.mark), MOTION
    arm = _virtual_arm(ends)
    hand = _Hand(arm)
    driver = BusArm(SerialPort(arm.path), nominal_calibration(), latency_s=0.02)  # by this machine's clock
    device = Leader(LeaderReader(driver), spec, _Always())
    return hand, EpisodeClient(kind, device, _VELOCITY, hand.lift), MOTION


class _Page(_Stamped):
    """A page of the operator's console without a browser, which sends its gamepad's state as the page does."""

    def __init__(self) -> None:
        super().__init__()
        self._ends = ExitStack()
        self._axis, self._over = 0.0, threading.Event()
        self._lock = threading.Lock()
        self._send: Callable[[], None] = lambda: None

    def start(self, address: str) -> None:
        """Serve the console, log in, and arm the robot."""
        from websockets.sync.client import connect

        from rlenv_operate.console.mover import MoverSettings
        from rlenv_operate.console.server import ConsoleServer, ConsoleSettings

        settings = ConsoleSettings(address=address, port=0, mover=MoverSettings(velocity=_VELOCITY))
        console = self._ends.enter_context(ConsoleServer(settings))
        base = f"127.0.0.1:{console.port}"
        web = self._ends.enter_context(connect(f"ws://{base}/ws", origin=f"http://{base}"))
        web.send(json.dumps({"t": "login", "token": console.tokens.own}))
        web.send(json.dumps({"t": "act", "id": 1, "act": "arm"}))
        while (message := json.loads(web.recv(timeout=60.0)))["t"] != "outcome":
            pass
        if not message["ok"]:
            raise RobotError(message["text"])
        self._send = lambda: web.send(json.dumps({"t": "drive", "engaged": True, "axes": [self._axis]}))
        thread = threading.Thread(target=self._run, name="rlenv-robot operate latency page", daemon=True)
        thread.start()
        self._ends.callback(thread.join)
        self._ends.callback(self._over.set)

    def _run(self) -> None:
        while not self._over.wait(_DRIVE_S):
            with self._lock:
                self._send()

    def change(self, direction: int) -> None:
        """Push a stick, and send it at once, as the page does at its next look at the gamepad."""
        with self._lock:
            self._axis, self._input_ns = float(direction), time.monotonic_ns()
            self._send()

    def rest(self) -> None:
        """Let go of the stick."""
        with self._lock:
            self._axis = 0.0
            self._send()

    def check(self) -> None:
        """Do nothing: a page that is closed is an error where it sends."""

    def close(self) -> None:
        """Close the page and its console. Safe to call more than once."""
        self._ends.close()


def _page(settings: LatencySettings, kind: str, ends: ExitStack, say: Callable[[str], None]) -> _Made:
    page = _Page()
    return page, page, 1e-4


_DEVICES: dict[str, Callable[[LatencySettings, str, ExitStack, Callable[[str], None]], _Made]] = {
    "keyboard": _keyboard, "gamepad": _gamepad, "leader": _leader, "page": _page,
}  # fmt: skip
