"""``rlenv-robot serve``: runs on the robot's controller and serves the robot of a profile."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from hal import Guard, Homing, ProfileError, Robot
from hal.cameras.camera import Camera
from hal.cameras.wrapper import WithCameras
from recorder.log.rotation import Limits
from rlenv_robot.cli.output import StopSignals, drop_unwritable_output, say
from rlenv_robot.config.profile import Profile, RobotSection, ServeSection, load_profile
from rlenv_robot.config.reset_confirmation import homing_settings, reset_signal
from rlenv_robot.config.sim_settings import sim_settings
from rlenv_robot.recording.controller_log import ControllerLog, ServerWatch
from rlenv_robot.robot_models import RobotModel, find_robot_model

if TYPE_CHECKING:
    from real.server.server import Server

__all__ = ["add", "run", "served_robot"]

_log = logging.getLogger(__name__)


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve the robot of a profile on the network. Runs on the robot's controller until Ctrl-C or SIGTERM."
    )
    parser.add_argument("profile", nargs="?", help="TOML file; without one, a twin of the SO-101 on loopback")
    parser.add_argument("--address", help="instead of the profile's serve.address; port * is any free one")
    parser.add_argument("--keys", metavar="FOLDER", help="encrypt, and let in whom `rlenv-robot keys allow` named")
    parser.add_argument("--telemetry", metavar="ADDRESS", help="also tell watchers there what the robot does")
    parser.add_argument("--telemetry-hz", type=float, help="how often")
    parser.add_argument("--pictures", metavar="ADDRESS", help="where the cameras' pictures go out")
    parser.add_argument("--loop-hz", type=float, help="the robot's own loop; 0 is its control rate")
    parser.add_argument("--max-command-age-s", type=float, metavar="SECONDS", help="refuse commands sent longer ago")
    parser.add_argument(
        "--lower-s",
        type=float,
        metavar="SECONDS",
        help="at the end, go home slowly for at most so long; 0 stops where it is",
    )
    parser.add_argument("--priority", type=int, help="for the real-time scheduler, 1 to 99; 0 does not ask for it")
    parser.add_argument("--record", metavar="FOLDER", help="keep a log of every tick there, on this machine")
    parser.add_argument("--record-mib", type=int, metavar="MIB", help="most that one run of that log may have")
    parser.add_argument("--record-required", action="store_true", default=None,
                        help="refuse resets while that log can't be written")  # fmt: skip
    parser.set_defaults(run=run)


def served_robot(
    profile: Profile,
    on_event: Callable[[str, str], None] | None = None,
    cameras: Sequence[Camera] = (),
    around: Callable[[Robot], Robot] | None = None,
) -> Robot:
    """The robot of a profile as its controller runs it: guarded, reset by a signal and by slow motion.

    Args:
        profile: which robot, and how it is reset.
        on_event: told how a reset goes as (state, detail).
        cameras: of the robot.
        around: puts something around it inside of its guard, such as `ControllerLog.around`.

    Raises:
        ValueError: the profile names a robot that can't be served.
    """
    robot = _hardware(profile)
    if cameras:
        robot = WithCameras(robot, cameras)
    section = profile.reset
    asked, settings = reset_signal(section), homing_settings(section)
    return Homing(
        Guard(robot if around is None else around(robot)), asked, settings, on_event, verdicts=section.verdicts
    )


def _hardware(profile: Profile) -> Robot:
    section = profile.robot
    chosen = _kind(profile)
    if section.where not in ("twin", "sim"):
        raise ValueError(f"{profile.file}: robot.where is {section.where!r}, a server needs 'twin' or 'sim'")
    return chosen.make_served_simulation(
        section.where, section.seed, profile.serve.loop_hz or None, sim_settings(None, None, profile)
    )


def _kind(profile: Profile) -> RobotModel:
    try:
        return find_robot_model(profile.robot.kind)
    except ValueError as error:
        raise ProfileError(profile.file, "robot.kind", str(error)) from error


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; then hold, and let go. Ends with 1 where nobody could reach the robot any more."""
    from hal.realtime import settle_process

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    profile, ending = _profile(args), StopSignals()
    log = _own_log(profile)
    server = _server(profile, log)
    _log.info(settle_process())
    with ExitStack() as ends:
        if log is not None:
            ends.callback(ServerWatch(server, log).start().close)  # after the server's own end
            say(f"recording into {log.run}" if log.failure is None else f"not recording: {log.failure}")
        ends.enter_context(server)
        _announce(profile, server)
        while not ending.wait(0.5) and not server.network_dead:  # a bare wait would not see a signal on every platform
            pass
        network_dead = server.network_dead
        if network_dead:
            _log.critical(
                "the network's thread has ended, so nobody can reach the robot; the server ends for a new one"
            )
        say("closing: the robot goes home, if it was ever reset, and is held")
        server.close(lower_s=profile.serve.lower_s, velocity=profile.reset.velocity)
    drop_unwritable_output()
    return int(network_dead)  # whoever supervises starts it anew


def _profile(args: argparse.Namespace) -> Profile:
    """The one that is named, or a twin's; with the settings that flags give."""
    profile = load_profile(args.profile) if args.profile else Profile(robot=RobotSection(where="twin"))
    return replace(profile, serve=_with_flags(profile.serve, args))


def _server(profile: Profile, log: ControllerLog | None) -> Server:
    """Of the profile's robot and cameras; not yet started."""
    from real.server.server import Server

    cameras = [Camera(each) for each in profile.cameras.values()]

    def told(state: str, detail: str) -> None:
        server.report(state, detail)
        if log is not None:
            log.report(state, detail)

    settings = profile.serve
    server = Server(
        served_robot(profile, told, cameras, None if log is None else log.around),
        settings.address,
        control_hz=_kind(profile).load_spec().rate_hz,
        watchdog_s=settings.watchdog_s,
        max_command_age_s=settings.max_command_age_s,
        priority=settings.priority,
        paced_by_robot=True,
        lease_s=settings.lease_s,
        keys=settings.keys or None,
        telemetry=settings.telemetry or None,
        telemetry_hz=settings.telemetry_hz,
        cameras=cameras,
        images=settings.pictures or _beside(settings.address),
        observer=log,
    )
    return server


def _announce(profile: Profile, server: Server) -> None:
    name = _kind(profile).load_spec().name
    say(f"serving {name} ({profile.robot.where}) at {server.address}")
    if profile.cameras:
        say(f"pictures of {', '.join(profile.cameras)} at {server.images}")


def _own_log(profile: Profile) -> ControllerLog | None:
    """The controller's, if it is to keep one."""
    section = profile.serve
    if not section.record:
        return None
    limits = Limits(run_bytes=section.record_mib << 20) if section.record_mib else Limits()
    info = {"profile": profile.to_dict()}
    control_hz = _kind(profile).load_spec().rate_hz
    return ControllerLog(section.record, info, control_hz=control_hz, required=section.record_required, limits=limits)


def _beside(address: str) -> str:
    """Any free port at the same interface, or a socket's path of its own."""
    return f"{address.rpartition(':')[0]}:*" if address.startswith("tcp://") else f"{address}-pictures"


def _with_flags(section: ServeSection, args: argparse.Namespace) -> ServeSection:
    """The profile's settings, but for those that a flag gives."""
    given = {item.name: getattr(args, item.name, None) for item in fields(section)}
    changed = replace(section, **{name: value for name, value in given.items() if value is not None})
    if changed.record_mib < 0:
        raise ValueError(f"--record-mib is {changed.record_mib}, it must be 0 or above")
    if changed.lower_s < 0:
        raise ValueError(f"--lower-s is {changed.lower_s:g}, it must be 0 or above")
    return changed
