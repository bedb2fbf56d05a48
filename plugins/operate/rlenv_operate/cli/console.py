"""``rlenv-robot operate console`` and ``tokens``: the operator's page, and the tokens of its visitors."""

from __future__ import annotations

import argparse
import logging
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rlenv_operate.cli.page_options import add_page_options, page_options
from rlenv_robot.cli.output import print_table, say
from rlenv_robot.cli.verbs import add_act_examples

__all__ = ["add", "add_tokens", "run", "run_tokens"]

_ADDRESS = "tcp://127.0.0.1:5555"
_TOKEN_EXAMPLES = {
    "new": ("tokens --name ann --role operate", "tokens --name guest --role watch --days 7"),
    "list": ("tokens",),
    "revoke": ("tokens guest",),
}
_ROLES = ("operate", "move", "watch", "stop")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``console``."""
    parser.description = (
        "Serve a page in which people operate a served robot: its state, cameras, Stop, Arm, Hold, resets, verdicts "
        "and teleoperation. Without an address, and where no robot is served on this machine yet, one chooses a robot "
        "and a task on the page, calibrates, records, trains, runs policies, judges, retrains and compares there. "
        "Needs the extra `console`. The page is no substitute for the robot's own stop button."
    )
    parser.epilog = """
Examples:

  rlenv-robot operate console                               # choose the robot on the page
  rlenv-robot serve --telemetry 'tcp://127.0.0.1:*'         # or in another terminal, before the console
  rlenv-robot operate console tcp://192.168.1.7:5555 --keys client-keys --task so101-reach --record runs
  rlenv-robot operate console tcp://192.168.1.7:5555 --keys client-keys --profile robot.toml
  rlenv-robot operate console --host 0.0.0.0 --name arm.lab --tokens tokens --certificate cert.pem --private-key key.pem
"""
    parser.add_argument("address", nargs="?", help=f"of the robot's server (default: {_ADDRESS})")
    parser.add_argument(
        "--folder", metavar="FOLDER",
        help="policies, runs and calibrations of the steps that one takes on the page (default: console, where no "
        "robot is served yet and no address is given)",
    )  # fmt: skip
    parser.add_argument("--keys", metavar="FOLDER", help="this machine's keys, for a robot on another machine")
    parser.add_argument("--telemetry", metavar="ADDRESS", help="telemetry of the server, if it does not announce it")
    add_page_options(parser, 8400)
    parser.add_argument(
        "--fixture", metavar="ADDRESS", help="answer the resets of a profile with [reset] signal = 'fixture' there"
    )
    parser.add_argument("--acts", metavar="FILE", help="add each act there, a line of JSON with who did it")
    parser.add_argument(
        "--runs", metavar="FOLDER", help="recorded runs to replay on the page (default: the folder of --record)"
    )
    parser.add_argument(
        "--profile", metavar="FILE", help="take [task], [record] and reset.fixture from there, where no flag gives them"
    )
    parser.add_argument("--task", default="", help="of teleoperated episodes, by name; without one they have no goal")
    parser.add_argument("--steps", type=int, help="length of such an episode in control periods")
    parser.add_argument("--record", metavar="FOLDER", help="record teleoperated episodes there, as an expert's")
    parser.add_argument(
        "--velocity", type=float, default=0.5, help="fastest teleoperated motion, rad/s (default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C or SIGTERM.

    Raises:
        ValueError: a setting is not allowed, or the extra is missing.
    """
    from rlenv_operate.console.mover import MoverSettings
    from rlenv_robot.serving import TerminationSignals

    try:
        from rlenv_operate.console.server import ConsoleServer, ConsoleSettings
    except ImportError as error:
        raise ValueError(f"the console needs {error.name}: pip install 'rlenv-robot[console]'") from None

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    args = _with_folder(_with_profile(args))
    settings = ConsoleSettings(
        **page_options(args), address=args.address, keys=args.keys, telemetry=args.telemetry, folder=args.folder,
        fixture=args.fixture, acts=args.acts, runs=args.runs or args.record,
        mover=MoverSettings(
            task=args.task, task_options=args.task_options, steps=args.steps, record=args.record, key=args.record_key,
            velocity=args.velocity,
        ),
    )  # fmt: skip
    with TerminationSignals() as signals, ConsoleServer(settings) as server:
        say(f"console of {args.address} at {server.url}")
        if args.folder is not None:
            say(f"choose the robot on the page; policies and runs are kept in {args.folder}")
        while not signals.wait(0.5):
            pass
    return 0


def _with_folder(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with the defaults that a folder of the page's own steps gives.

    Raises:
        ValueError: such steps are asked for with a robot on another machine.
    """
    from rlenv_operate.console.access import is_loopback

    address, folder = args.address or _ADDRESS, args.folder
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if folder is None and args.address is None and not _is_served(host, int(port)):
        folder = "console"
    if folder is None:
        return argparse.Namespace(**vars(args) | {"address": address})
    if not is_loopback(host):
        raise ValueError(f"--folder is for a robot that the page serves on this machine, and this one is at {address}")
    own = {"record": str(Path(folder) / "runs"), "acts": str(Path(folder) / "acts.jsonl")}
    given = {name: getattr(args, name) or value for name, value in own.items()}
    return argparse.Namespace(**vars(args) | given | {"address": address, "folder": folder})


def _is_served(host: str, port: int) -> bool:
    """Return whether something listens at an address of this machine."""
    try:
        socket.create_connection((host, port), 0.5).close()
    except OSError:
        return False
    return True


def _with_profile(args: argparse.Namespace) -> argparse.Namespace:
    """Return the arguments with the settings of ``--profile`` where no flag gives them.

    Raises:
        ProfileError: the profile can't be read.
    """
    from rlenv_robot.config.profile import Profile, load_profile

    profile = load_profile(args.profile) if args.profile else Profile()
    own_task = profile.names_task and not args.task
    settings = vars(args) | {
        "task": profile.task.name if own_task else args.task,
        "task_options": profile.task.options if own_task else {},
        "record": args.record or profile.record.folder or None,
        "record_key": profile.record.key or None,
    }
    if args.fixture is None and profile.reset.signal == "fixture":
        settings["fixture"] = profile.reset.fixture
    return argparse.Namespace(**settings)


# -- Tokens ----------------------------------------------------------------------------------------------------


def add_tokens(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``tokens``."""
    parser.description = "Make, list and revoke the tokens by which people log in to the operator's page."
    acts = parser.add_subparsers(title="acts", metavar="ACT", dest="act", required=True)
    new = acts.add_parser("new", help="make a token and print it; only its digest is stored")
    new.add_argument("folder", help="of the list; it is made readable by its owner only")
    new.add_argument("--name", required=True, help="of the person, written to the log of acts")
    new.add_argument("--role", required=True, choices=_ROLES, help="each role includes those after it")
    new.add_argument("--days", type=float, help="days of validity (default: unlimited)")
    listing = acts.add_parser("list", help="list names, roles and ends")
    listing.add_argument("folder", help="of the list")
    revoke = acts.add_parser("revoke", help="take a person's tokens off the list; open pages are closed")
    revoke.add_argument("folder", help="of the list")
    revoke.add_argument("name", help="of the person")
    add_act_examples(parser, _TOKEN_EXAMPLES)
    parser.set_defaults(run=run_tokens)


def run_tokens(args: argparse.Namespace) -> int:
    """Create a token, list the tokens, or revoke tokens.

    Raises:
        ValueError: a name, a role or the number of days is not allowed, or the list is damaged.
    """
    from real.protocol.keys import Allowed, Role
    from rlenv_operate.console.access import new_token, revoke_token

    if args.act == "new":
        if args.days is not None and not 0 < args.days < 36500:
            raise ValueError(f"--days is {args.days:g}, allowed are numbers above 0 and below 36500")
        until = None if args.days is None else datetime.now(UTC) + timedelta(days=args.days)
        token = new_token(args.folder, args.name, Role(args.role), until)
        say(f"{args.name} may {args.role}. The token, which is stored nowhere else:\n{token}")
    elif args.act == "revoke":
        say(f"revoked: {revoke_token(args.folder, args.name)} of {args.name}")
    else:
        rows = [
            (entry.name, entry.role.value, "never" if entry.until is None else f"{entry.until:%Y-%m-%d %H:%M UTC}")
            for entry in Allowed(args.folder)
        ]
        print_table("tokens", ("name", "role", "until"), rows)
    return 0
