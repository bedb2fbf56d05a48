"""``rlenv-robot robot keys``: create, list and authorise the keys of robots and clients on different machines."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from rlenv_robot.cli.verbs import add_act_examples

if TYPE_CHECKING:
    from real.protocol.keys import Entry

__all__ = ["add", "run"]

_EXAMPLES = {
    "new": ("robot-keys", "client-keys --server KEY-OF-THE-CONTROLLER"),
    "show": ("robot-keys",),
    "allow": (
        "robot-keys KEY-OF-THE-CLIENT --role move --name desk",
        "robot-keys KEY-OF-A-GUEST --role watch --name guest --days 7",
    ),
    "list": ("robot-keys",),
    "revoke": ("robot-keys guest",),
}
_ROLES = ("operate", "move", "watch", "stop")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Make and list the keys by which robots and clients on different machines know each other."
    acts = parser.add_subparsers(title="acts", metavar="ACT", dest="act", required=True)
    new = acts.add_parser("new", help="make a key pair, on the robot's controller or on a client")
    new.add_argument("folder", help="for the keys; it is made readable by its owner only")
    new.add_argument(
        "--server", metavar="KEY", help="on a client: the public key that `robot keys show` prints on the controller"
    )
    show = acts.add_parser("show", help="print a public key, and on a controller the clients that it allows")
    show.add_argument("folder", help="of the keys")
    allow = acts.add_parser("allow", help="on the controller: allow a client, or change its role")
    allow.add_argument("folder", help="of the controller's keys")
    allow.add_argument("key", help="the client's public key")
    allow.add_argument(
        "--role",
        required=True,
        choices=_ROLES,
        help="each role includes those after it; operate may also take the robot from its holder",
    )
    allow.add_argument("--name", required=True, help="of the client, shown in messages")
    end = allow.add_mutually_exclusive_group()
    end.add_argument(
        "--until",
        metavar="DATE",
        help="when its rights end, UTC: 2026-12-31 (the end of that day) or 2026-12-31T18:00; by default never",
    )
    end.add_argument("--days", type=float, help="the same, as days from now")
    listing = acts.add_parser("list", help="on the controller: list the clients, and when each connected last")
    listing.add_argument("folder", help="of the controller's keys")
    revoke = acts.add_parser("revoke", help="on the controller: take a client off the list, and cut its connections")
    revoke.add_argument("folder", help="of the controller's keys")
    revoke.add_argument("client", help="its public key, or its name; all keys of a name are revoked")
    add_act_examples(parser, _EXAMPLES)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Create a key pair, print keys, or change the list of clients."""
    from real.protocol import keys

    if args.act == "new":
        pair = keys.new_pair(args.folder, args.server)
        print(f"The secret key is in {args.folder}; keep it there. The public key is\n{pair.public}")
    elif args.act == "allow":
        until = _end(args.until, args.days)
        keys.allow(args.folder, args.key, keys.Role(args.role), args.name, until)
        print(f"{args.name} may {args.role}" + ("" if until is None else f" until {_text(until)}"))
    elif args.act == "revoke":
        for entry in keys.revoke(args.folder, args.client):
            print(f"revoked: {entry.name} ({entry.role}) {entry.key}")
    elif args.act == "list":
        print(_LINE.format("name", "role", "since", "until", "last seen", "key"))
        for entry in keys.Allowed(args.folder):
            print(_listed(entry, keys.last_seen(args.folder, entry.key)))
    else:
        print(keys.load_pair(args.folder).public)
        for entry in keys.Allowed(args.folder):
            print(f"{entry.name:20} {entry.role:7} {entry.key}")
    return 0


_LINE = "{:20} {:7} {:20} {:20} {:20} {}"


def _listed(entry: Entry, seen: datetime | None) -> str:
    expired = entry.expired(datetime.now(UTC).timestamp()) is not None
    until = "never ends" if entry.until is None else "EXPIRED" if expired else _text(entry.until)
    times = ("unknown" if moment is None else _text(moment) for moment in (entry.since, seen))
    since, last = times
    return _LINE.format(entry.name, entry.role, since, until, last, entry.key)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _end(until: str | None, days: float | None) -> datetime | None:
    """Return when a client's rights end.

    Raises:
        ValueError: the text is no date or time, or the number of days is not above 0 and below 36,500.
    """
    if days is not None:
        if not 0 < days < 36500:
            raise ValueError(f"--days is {days:g}, allowed are numbers above 0 and below 36500")
        return datetime.now(UTC) + timedelta(days=days)
    if until is None:
        return None
    try:
        moment = datetime.fromisoformat(until)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return moment + timedelta(days=1) if len(until) <= len("2026-12-31") else moment
    except (ValueError, OverflowError):
        raise ValueError(f"--until is {until!r:.80}, expected 2026-12-31 or 2026-12-31T18:00 (UTC)") from None
