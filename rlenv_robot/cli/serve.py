"""``rlenv-robot serve``: serve a robot until a signal arrives."""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, cast

from rlenv_robot.cli.output import drop_unwritable_output, say
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.config.section_options import add_settings, given_settings
from rlenv_robot.config.serve_section import ServeSection

if TYPE_CHECKING:
    from real.server.server import Server
    from rlenv_robot.config.profile import Profile

    _Beside = Callable[[Server], AbstractContextManager[object]]
    _Command = tuple[str, Sequence[str]]

__all__ = ["ServeCompanion", "add", "companions", "run"]

_CLIENT_END_S = 5.0


class ServeCompanion(Protocol):
    """A client that ``serve`` starts beside the server as a process of its own, if an option requests it.

    A package declares a class of this kind in the entry-point group ``rlenv_robot.serve_companions``.
    """

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options of ``serve`` that request this client."""
        ...

    def commands(self, args: argparse.Namespace, profile: Profile) -> Iterable[tuple[str, Sequence[str]]]:
        """Yield each verb to run, such as ``operate view``, and its arguments after the server's address.

        ``--keys`` and ``--telemetry`` are added to them.
        """
        ...


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve the robot of a profile on the network. Runs on the robot's controller until Ctrl-C or SIGTERM."
    )
    parser.add_argument("profile", nargs="?", help="TOML file; without one, a twin of the SO-101 on loopback")
    add_settings(parser, ServeSection)
    for companion in companions():
        companion.add(parser)
    parser.add_argument(
        "--console-keys", metavar="FOLDER", help="keys of the console and of live views, where the server has keys"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code of `rlenv_robot.serving.serve`, for a supervisor.

    If the driver did not return from a call, the process exits here, since a thread of the driver would keep it alive.
    """
    from real.protocol.text import LogFormatter
    from rlenv_robot.config.profile import Profile, RobotSection, load_profile
    from rlenv_robot.serving import DRIVER_HANGS, serve

    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    profile = load_profile(args.profile) if args.profile else Profile(robot=RobotSection(where="twin"))
    profile = replace(profile, serve=_with_options(profile.serve, args))
    clients: _Beside = nullcontext
    commands = [command for companion in companions() for command in companion.commands(args, profile)]
    if commands:
        profile, clients = _with_clients(profile, commands, args.console_keys)
    code = serve(profile, announce=say, beside=clients)
    drop_unwritable_output()
    if code == DRIVER_HANGS:
        logging.critical("the robot's driver hangs; the process ends without it, with code %d", code)
        logging.shutdown()
        sys.stdout.flush()
        os._exit(code)
    return code


def companions() -> list[ServeCompanion]:
    """Return the companions that installed packages declare as entry points."""
    table = PluginTable("companion of serve", "rlenv_robot.serve_companions", {})
    return [cast("type[ServeCompanion]", table.load(name))() for name in table.names()]


def _with_clients(profile: Profile, commands: Sequence[_Command], keys: str | None) -> tuple[Profile, _Beside]:
    """Return the profile with telemetry, and a function that runs the companions beside the server."""
    section = profile.serve
    if section.keys and not keys:
        raise ValueError(
            "the server has keys, and the console and live views are more clients: make them keys "
            "(`rlenv-robot robot keys new`), allow them, and give their folder as --console-keys"
        )
    options = ["--keys", keys] if keys else []
    if not section.telemetry:
        profile = replace(profile, serve=replace(section, telemetry="tcp://127.0.0.1:*", telemetry_hz=30.0))

    @contextmanager
    def running(server: Server) -> Iterator[None]:
        with ExitStack() as ends:
            for verb, arguments in commands:
                ends.enter_context(_client(server, verb, [*arguments, *options]))
            yield

    return profile, running


@contextmanager
def _client(server: Server, verb: str, arguments: Sequence[str]) -> Iterator[None]:
    """Run a client of a server in a process of its own, which leaves the loop's thread alone with Python's lock."""
    command = [sys.executable, "-m", "rlenv_robot", *verb.split(), server.address, *arguments]
    process = subprocess.Popen([*command, "--telemetry", server.telemetry])
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_CLIENT_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _with_options(section: ServeSection, args: argparse.Namespace) -> ServeSection:
    """Return the profile's settings, with those that options give in their place."""
    from hal import ProfileError
    from rlenv_robot.config.validation import validate

    given = given_settings(args, ServeSection)
    try:
        validate(ServeSection, given, "options")
    except ProfileError as error:
        problem = str(error).partition(f"{error.key}: ")[2]
        raise ValueError(f"--{error.key.replace('_', '-')} {problem}") from None
    return replace(section, **given)
