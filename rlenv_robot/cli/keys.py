"""``rlenv-robot keys``: who may talk to a robot from another machine, and how it is known."""

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
    new.add_argument("folder", help="is made if need be, for its owner's eyes alone")
    new.add_argument("--server", metavar="KEY", help="on a client: the controller's public key, as `keys show` says it")
    show = acts.add_parser("show", help="the public key of a folder, and on a controller who is let in")
    show.add_argument("folder")
    allow = acts.add_parser("allow", help="on the controller: let a client in, or change what it may do")
    allow.add_argument("folder", help="the controller's")
    allow.add_argument("key", help="the client's public key")
    allow.add_argument(
        "--role",
        required=True,
        choices=_ROLES,
        help="each may do what those after it may; operate also takes the robot from its holder",
    )
    allow.add_argument("--name", required=True, help="of the client, for messages")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make, show or allow."""
    from real.protocol import keys

    if args.act == "new":
        pair = keys.new_pair(args.folder, args.server)
        print(f"the secret is in {args.folder} and stays there; the public key is\n{pair.public}")
    elif args.act == "allow":
        keys.allow(args.folder, args.key, keys.Role(args.role), args.name)
        print(f"{args.name} may {args.role}")
    else:
        print(keys.load_pair(args.folder).public)
        for entry in keys.Allowed(args.folder):
            print(f"{entry.name:20} {entry.role:7} {entry.key}")
    return 0
