"""Build the robot and the server of a profile, and serve until a signal arrives."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Protocol, cast

from hal import (
    Guard,
    Homing,
    HomingSettings,
    ProfileError,
    ResetConfirmation,
    Robot,
    RobotSpec,
    SpecError,
)
from hal.drivers.added_sensor import WithSensors
from rlenv_robot.config.plugins import load_object
from rlenv_robot.config.profile import (
    RESET_SIGNALS,
    GuardSection,
    Profile,
    ResetSection,
    RobotSection,
    TaskSection,
    load_profile,
)
from rlenv_robot.config.sim_settings import sim_settings
from rlenv_robot.registry import task
from rlenv_robot.robot_models import (
    RobotModel,
    build,
    is_robot_file,
    load_robot_model,
    load_sensors,
    make_driver,
    robot_names,
)
from rlenv_robot.serving.extension import attached, load_extensions
from rlenv_robot.serving.stopper import clearing_hint
from rlenv_robot.serving.supervision import Supervision

if TYPE_CHECKING:
    from hal.cameras.camera import Camera
    from hal.guarding.motion_check import MotionCheck
    from real.server.server import Server
    from rlenv_robot.serving.server_log import ServerLog

__all__ = [
    "DRIVER_HANGS", "TerminationSignals", "Waiter", "build_controller_log", "build_robot", "build_server",
    "homing_settings", "profile_driver", "reset_confirmation", "serve",
]  # fmt: skip

_log = logging.getLogger(__name__)

_POLL_S = 0.5
"""Time between two checks of a serving process for its end, in seconds; a bare wait misses signals on some
platforms."""


DRIVER_HANGS = 3
"""Exit code of a server with a driver that did not return from a call and was abandoned."""

_SOCKETS_S = 1.0
"""Longest time in which a server closes its sockets and threads, in seconds; beyond it, its process is ended as it
is."""


class Waiter(Protocol):
    """Wait for the end of serving."""

    def wait(self, seconds: float) -> bool:
        """Wait for at most a number of seconds; return whether to stop serving. A `threading.Event` fits."""
        ...


class TerminationSignals:
    """Record SIGINT and SIGTERM instead of handling them at once, until closed. Only the main thread may use it.

    A signal handler interrupts the main thread anywhere. If the thread is waiting for a `threading.Event`, which
    briefly holds a lock, a handler that sets the event waits for that lock forever. A `queue.SimpleQueue` may be filled
    from handlers ("reentrant" in Python's documentation).
    """

    def __init__(self) -> None:
        self._received: SimpleQueue[int] = SimpleQueue()
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in self._before:
            signal.signal(number, lambda received, _: self._received.put(received))

    def wait(self, seconds: float) -> bool:
        """Wait for a signal for at most a number of seconds; return whether one arrived. Each is reported once."""
        try:
            self._received.get(timeout=seconds)
        except Empty:
            return False
        return True

    def close(self) -> None:
        """Restore the previous handlers, so that the caller's program ends on signals as before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __enter__(self) -> TerminationSignals:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(
    profile: Profile | str | Path | None = None,
    robot: Robot | None = None,
    *,
    until: Waiter | None = None,
    announce: Callable[[str], None] = _log.info,
    beside: Callable[[Server], AbstractContextManager[object]] = nullcontext,
) -> int:
    """Serve a robot until SIGINT or SIGTERM; then park it, hold it, and release it.

    The robot is guarded, reset as the profile specifies, recorded if ``serve.record`` is set, and its cameras' images
    are published.

    Args:
        profile: a profile or its file; None uses the defaults, with a twin of an SO-101 if there is no ``robot``.
        robot: the driver of the hardware, neither guarded nor homed, instead of the profile's ``[robot]``.
        until: ends serving; by default the process's signals, which requires the main thread.
        announce: receives a line for each event that a person waits for, such as the address and the end.
        beside: called with the server once it listens; returns a context that is active while it serves, such as a
            console.

    Returns:
        The exit code for a supervisor: 0 after an orderly end; 1 if the network thread had ended, so that no client
            could reach the robot any more and a new process is needed; 3 (`DRIVER_HANGS`) if the driver did not return
            from a call. Without ``until``, the process exits with the same code if ending takes longer than the
            parking, the loop's end (`real.control.driver.END_S`) and 1 s for the sockets.

    Raises:
        ProfileError: a setting of the profile is not allowed, or its driver can't be created.
        ValueError: another setting is not allowed, such as a rate that the robot does not support.
        RobotError: an address is in use.
    """
    from real.control.driver import END_S
    from real.control.realtime import settle_process

    profile, owns_process = _as_profile(profile, robot), until is None
    extensions = load_extensions(profile)
    log = build_controller_log(profile, robot)
    server, spec = _assemble(profile, robot, log)
    _log.info(settle_process())
    deadline = _deadline(profile.serve.lower_s + END_S + _SOCKETS_S)
    with ExitStack() as ends:
        ends.callback(deadline.cancel)
        supervision = Supervision(server.hung, lambda: _status(server))
        ends.callback(supervision.close)
        until = until or ends.enter_context(TerminationSignals())
        if log is not None:
            ends.enter_context(log.watch(server))  # ends after the server does
            announce(f"recording into {log.run}" if log.failure is None else f"not recording: {log.failure}")
        ends.enter_context(server)
        announce(f"serving {spec.name} ({_origin(profile, robot)}) at {server.address}")
        if server.stopped is not None:
            number = server.about()["stop_number"]
            announce(f"stopped: {server.stopped}; {clearing_hint(number)}")
        if profile.cameras:
            announce(f"images of {', '.join(profile.cameras)} at {server.images}")
        ends.enter_context(attached(extensions, server, announce))
        ends.enter_context(beside(server))
        if owns_process:
            supervision.ready()
        while not until.wait(_POLL_S) and not server.network_dead:
            pass
        network_dead = server.network_dead
        if owns_process:
            deadline.start()
            supervision.stopping()
        if network_dead:  # no motion where nobody could stop it
            _log.critical("the network's thread has ended, so stops are no longer read; the robot holds where it is")
            server.close()
        else:
            announce("closing: the robot goes home, if it was ever reset, and is held")
            server.close(lower_s=profile.serve.lower_s, velocity=profile.reset.velocity)
    return DRIVER_HANGS if server.abandoned is not None else int(network_dead)


def _status(server: Server) -> str:
    lifecycle = server.lifecycle
    return f"{lifecycle.state}: {lifecycle.why}"


def _deadline(seconds: float) -> threading.Timer:
    """Return a timer that ends this process as it is."""

    def end() -> None:
        _log.critical("the server did not end within %g s; its process is ended, with code %d", seconds, DRIVER_HANGS)
        os._exit(DRIVER_HANGS)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    return timer


def _as_profile(profile: Profile | str | Path | None, robot: Robot | None) -> Profile:
    if isinstance(profile, Profile):
        return profile
    if profile is not None:
        return load_profile(profile)
    return Profile() if robot is not None else Profile(robot=RobotSection(where="twin"))


def _origin(profile: Profile, robot: Robot | None) -> str:
    return profile.robot.where if robot is None else type(robot).__name__


def build_server(profile: Profile, robot: Robot | None = None, *, log: ServerLog | None = None) -> Server:
    """Return the server of a profile, not yet started.

    Args:
        profile: the settings.
        robot: as for `serve`.
        log: the controller's log; see `build_controller_log`.

    Raises:
        ProfileError: as for `serve`.
        ValueError: as for `serve`.
        RobotError: as for `serve`.
    """
    return _assemble(profile, robot, log)[0]


def _assemble(profile: Profile, robot: Robot | None, log: ServerLog | None) -> tuple[Server, RobotSpec]:
    """The server, and the description of the robot that clients command."""
    from hal.cameras.camera import Camera
    from real.server.server import Server, ServerSettings

    cameras = [Camera(settings) for settings in profile.cameras.values()]

    def report(state: str, detail: str) -> None:
        server.report(state, detail)
        if log is not None:
            log.report(state, detail)

    section = profile.serve
    hardware, spec = _hardware(profile, robot)
    settings = ServerSettings(
        address=section.address,
        control_hz=spec.rate_hz,
        watchdog_s=section.watchdog_s,
        on_silence=section.on_silence,
        park_velocity=profile.reset.velocity,
        max_command_age_s=section.max_command_age_s,
        ahead=section.ahead,
        priority=section.priority,
        paced_by_robot=True,
        lease_s=section.lease_s,
        keys=section.keys or None,
        latch=section.latch or section.keys or section.record or None,
        telemetry=section.telemetry or None,
        telemetry_hz=section.telemetry_hz,
        images=section.pictures or _free_port_beside(section.address),
        stop=section.stop or None,
    )
    served = _wrap(hardware, profile, report, cameras, None if log is None else log.wrap)
    server = Server(served, settings, cameras=cameras, observer=log)
    return server, spec


def build_controller_log(profile: Profile, robot: Robot | None = None) -> ServerLog | None:
    """Return the controller's own log, or None where ``serve.record`` is empty.

    Args:
        profile: the settings.
        robot: as for `serve`.

    Raises:
        ProfileError: the robot's kind is unknown, or no installed package keeps such logs.
    """
    from rlenv_robot.serving.server_log import open_server_log

    if not profile.serve.record:
        return None
    control_hz = None if robot is not None or not _has_model(profile) else _model(profile).load_spec().rate_hz
    return open_server_log(profile, control_hz)


def build_robot(
    profile: Profile,
    robot: Robot | None = None,
    *,
    on_event: Callable[[str, str], None] | None = None,
    cameras: Sequence[Camera] = (),
    wrap: Callable[[Robot], Robot] | None = None,
) -> Robot:
    """Build the robot of a profile for its controller: guarded, with confirmed resets and slow homing.

    Args:
        profile: the settings.
        robot: as for `serve`.
        on_event: receives the progress of a reset, as (state, detail).
        cameras: the cameras of the robot.
        wrap: puts something around the robot inside of its guard, such as `ServerLog.wrap`.

    Raises:
        ProfileError: as for `serve`.
        ValueError: as for `serve`.
    """
    return _wrap(_hardware(profile, robot)[0], profile, on_event, cameras, wrap)


def _wrap(
    robot: Robot,
    profile: Profile,
    on_event: Callable[[str, str], None] | None,
    cameras: Sequence[Camera],
    wrap: Callable[[Robot], Robot] | None,
) -> Robot:
    if cameras:
        from hal.cameras.wrapper import WithCameras

        robot = WithCameras(robot, cameras)
    if wrap is not None:
        robot = wrap(robot)
    section = profile.reset
    try:
        confirmation = reset_confirmation(section, Path(profile.file).absolute().parent)
    except ValueError as error:
        raise ProfileError(profile.file, "reset.signal", str(error)) from error
    settings = homing_settings(section)
    return Homing(_guard(robot, profile), confirmation, settings, on_event, verdicts=section.verdicts)


def _guard(robot: Robot, profile: Profile) -> Guard:
    """The robot, limited as the profile says."""
    section, holds_stopped = profile.robot.guard, profile.serve.stopped_at_end == "hold"
    if section == GuardSection():
        return Guard(robot, holds_stopped=holds_stopped)
    try:
        limits, check = (
            section.limits(robot.spec.limits),
            _motion_check(robot, profile) if section.checks_motion else None,
        )
        return Guard(robot, limits=limits, check=check, holds_stopped=holds_stopped)
    except SpecError as error:
        raise ProfileError(profile.file, "robot.guard", str(error)) from None


def _motion_check(robot: Robot, profile: Profile) -> MotionCheck:
    """The shape of the robot, by its simulation model."""
    from sim.mjcf.collision import ModelCheck

    section, key = profile.robot.guard, "robot.guard"
    if not _has_model(profile):
        hint = "register a RobotModel of that name with `simulated`, or leave out self_collision and the boxes"
        raise ProfileError(profile.file, key, f"no model of {robot.spec.name!r} is known; {hint}")
    try:
        sim_model = replace(_model(profile), sensors=()).make_sim_model(looks=False)  # they have no shape
    except ValueError as error:
        raise ProfileError(profile.file, key, str(error)) from error
    if sim_model.spec.name != robot.spec.name or sim_model.spec.commands.digest != robot.spec.commands.digest:
        raise ProfileError(
            profile.file, key, f"the model of {sim_model.spec.name!r} does not describe the robot {robot.spec.name!r}"
        )
    return ModelCheck(
        sim_model,
        self_collision=section.self_collision,
        clearance_m=section.clearance_m,
        keep_out=section.keep_out,
        keep_in=section.keep_in,
    )


def _hardware(profile: Profile, robot: Robot | None) -> tuple[Robot, RobotSpec]:
    """The robot without any wrapper, and its description at the rate at which clients command it."""
    if robot is not None:
        if not isinstance(robot, Robot) or isinstance(robot, type):
            raise TypeError(f"robot is {robot!r:.80}, expected a hal.Robot object")
        if isinstance(robot, Guard | Homing):
            raise ValueError(f"robot is a {type(robot).__name__}: pass the driver itself, which is wrapped here")
        robot = _with_sensors(robot, profile)
        return robot, robot.spec
    section = profile.robot
    if section.where in ("twin", "sim"):
        model = _model(profile)
        loop_hz, spec = profile.serve.loop_hz or None, model.load_spec()
        conditions = sim_settings(None, None, profile, spec)
        return model.make_served_simulation(section.where, section.seed, loop_hz, conditions), spec
    if section.where != "driver":
        hint = f"; for hardware write driver = {section.where!r}" if "://" not in section.where else ""
        raise ProfileError(
            profile.file,
            "robot.where",
            f"is {section.where!r}, a server needs 'twin', 'sim' or 'driver'{hint}",
        )
    return profile_driver(profile)


def profile_driver(profile: Profile) -> tuple[Robot, RobotSpec]:
    """Make the driver that a profile names, neither guarded nor homed; return it, and the description of its robot.

    Raises:
        ProfileError: the driver can't be made of these settings, or its robot is not that of the profile or its task.
    """
    section = profile.robot
    folder = Path(profile.file).absolute().parent
    try:
        if _has_model(profile):
            model = _model(profile)
            model = replace(model, driver=section.driver) if section.driver else model
            driver = model.make_driver(section.options, folder)
            spec = model.load_spec()
        else:  # no model is registered for such a robot: its driver alone describes it
            driver = make_driver(section.driver, section.options, folder)
            driver = _with_sensors(driver, profile)
            spec = driver.spec
    except ProfileError:
        raise
    except ValueError as error:
        key = "robot.options" if "setting" in str(error) else "robot.driver"
        raise ProfileError(profile.file, key, str(error)) from error
    try:
        _check_kind(profile, spec)
        _check_task(profile, spec)
    except ProfileError:
        driver.close()
        raise
    return driver, spec


def _with_sensors(robot: Robot, profile: Profile) -> Robot:
    """Return a robot that no model describes, with the sensors that the profile adds."""
    names = profile.robot.sensors
    try:
        return WithSensors(robot, load_sensors(names, Path(profile.file).absolute().parent)) if names else robot
    except (ValueError, SpecError) as error:
        raise ProfileError(profile.file, "robot.sensors", str(error)) from error


def _has_model(profile: Profile) -> bool:
    """Whether the profile's kind of robot is known apart from its driver."""
    kind = profile.robot.kind
    return not profile.robot.driver or kind in robot_names() or is_robot_file(kind) or ":" in kind


def _check_kind(profile: Profile, spec: RobotSpec) -> None:
    kind = profile.robot.kind
    if not _has_model(profile) and kind != spec.name:
        raise ProfileError(profile.file, "robot.kind", f"is {kind!r}, and the driver's robot is {spec.name!r}")


def _model(profile: Profile) -> RobotModel:
    section, folder = profile.robot, Path(profile.file).absolute().parent
    try:
        model = load_robot_model(section.kind)
    except ValueError as error:
        raise ProfileError(profile.file, "robot.kind", str(error)) from error
    try:
        return model.with_sensors(section.sensors, folder)
    except ValueError as error:
        raise ProfileError(profile.file, "robot.sensors", str(error)) from error


def _check_task(profile: Profile, spec: RobotSpec) -> None:
    """Refuse a profile that names a task of another robot than its driver moves."""
    if profile.task == TaskSection():
        return
    try:
        needed = task(profile.task.name, **profile.task.options).robot
    except ValueError as error:
        raise ProfileError(profile.file, "task.name", str(error)) from error
    if needed != spec.name:
        raise ProfileError(
            profile.file, "task.name", f"is {profile.task.name!r}, a task of {needed!r}; the driver moves {spec.name!r}"
        )


def _free_port_beside(address: str) -> str:
    """Any free port at the same interface, or a socket's path of its own."""
    return f"{address.rpartition(':')[0]}:*" if address.startswith("tcp://") else f"{address}-pictures"


# -- The profile's section [reset] ---------------------------------------------------------------------------


_SIGNAL_KEYS: Mapping[str, Mapping[str, str]] = {
    "automatic": {},
    "terminal": {},
    "fixture": {"address": "fixture"},
    "command": {"argv": "command"},
    "gpio": {
        "chip": "gpio_chip", "line": "gpio_line", "active_low": "gpio_active_low", "debounce_s": "gpio_debounce_s",
    },
}  # fmt: skip
"""Our signals -> their keyword arguments -> the keys of [reset] that hold them; other signals have ``options``."""


def reset_confirmation(section: ResetSection, folder: Path | None = None) -> ResetConfirmation:
    """Create the confirmation that a reset waits for, without opening it.

    Args:
        section: the section of the profile.
        folder: an additional location of the module of a signal ``module:name``, such as the folder of the profile.

    Raises:
        ValueError: the signal can't be imported or created, or is not a reset signal.
    """
    name = section.signal
    factory = load_object(name, folder) if ":" in name else RESET_SIGNALS.load(name)
    keys = _SIGNAL_KEYS.get(name)
    options = section.options if keys is None else {word: getattr(section, key) for word, key in keys.items()}
    confirmation = build(cast("Callable[..., ResetConfirmation]", factory), name, options)
    missing = [member for member in ("ask", "judge", "close") if not hasattr(confirmation, member)]
    if missing:
        raise ValueError(f"the reset signal {name!r} has no {', '.join(missing)}: see hal.ResetConfirmation")
    return confirmation


def homing_settings(section: ResetSection) -> HomingSettings:
    """Return the velocity, tolerance and deadlines of a reset's homing."""
    return HomingSettings(
        velocity=section.velocity,
        tolerance=section.tolerance,
        deadline_s=section.deadline_s,
        signal_deadline_s=section.signal_deadline_s,
    )
