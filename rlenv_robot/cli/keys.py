"""``rlenv-robot keys``: make, list and allow the keys of robots and clients on different machines."""

from __future__ import annotations

import argparse

__all__ = ["add", "run"]

_ROLES = ("operate", "move", "watch", "stop")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Make and list the keys by which robots and clients on different machines know each other."
    parser.epilog = """
Examples:

  rlenv-robot keys new robot-keys
  rlenv-robot keys new client-keys --server KEY-OF-THE-CONTROLLER
  rlenv-robot keys allow robot-keys KEY-OF-THE-CLIENT --role move --name desk
"""
    acts = parser.add_subparsers(title="acts", metavar="ACT", dest="act", required=True)
    new = acts.add_parser("new", help="make a key pair, on the robot's controller or on a client")
    new.add_argument("folder", help="for the keys; it is made readable by its owner only")
    new.add_argument(
        "--server", metavar="KEY", help="on a client: the public key that `keys show` prints on the controller"
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
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make a key pair, print keys, or allow a client."""
    from real.protocol import keys

    if args.act == "new":
        pair = keys.new_pair(args.folder, args.server)
        print(f"The secret key is in {args.folder}; keep it there. The public key is\n{pair.public}")
    elif args.act == "allow":
        keys.allow(args.folder, args.key, keys.Role(args.role), args.name)
        print(f"{args.name} may {args.role}")
    else:
        print(keys.load_pair(args.folder).public)
        for entry in keys.Allowed(args.folder):
            print(f"{entry.name:20} {entry.role:7} {entry.key}")
    return 0
