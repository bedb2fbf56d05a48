"""``rlenv-robot policy serve``: serve a policy to clients of openpi, GR00T or LeRobot."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rlenv_robot.cli.output import say

if TYPE_CHECKING:
    from rlenv_policy_servers.serving.server import PolicyServer

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve a policy to clients of openpi, GR00T or LeRobot. Each client gets a policy of its own, which keeps the "
        "state of one episode. Requests are not printed."
    )
    parser.add_argument("policy", help="a policy: .onnx, .npz or .toml, or a folder that LeRobot saved")
    words = "the task whose observations the policy takes (a policy that `imitate` made of a data set needs none)"
    parser.add_argument("--task", metavar="NAME", help=words)
    parser.add_argument(
        "--as", dest="dialect", required=True, choices=("openpi", "groot", "lerobot"), help="whose clients"
    )
    words = "where to listen (default: 127.0.0.1 and the maker's port); other machines need --token-file"
    parser.add_argument("--address", default="", metavar="HOST:PORT", help=words)
    words = "a policy file with [[observation]] and [[action]] (default: the keys are the fields' names)"
    parser.add_argument("--keys", metavar="FILE", help=words)
    parser.add_argument("--token-file", default="", metavar="FILE", help="the token that clients must send")
    parser.add_argument("--clients", type=int, default=4, metavar="N", help="clients at a time (default: 4)")
    parser.add_argument("--max-mib", type=int, default=64, metavar="MIB", help="largest message (default: 64)")
    parser.add_argument("--describe", action="store_true", help="print what clients are told, as JSON, and end")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from rlenv_policy_servers.policy_file import parse_address, read_token
    from rlenv_policy_servers.serving.server import make_service, open_server

    for name, value in (("--clients", args.clients), ("--max-mib", args.max_mib)):
        if not 1 <= value <= 1024:
            raise ValueError(f"{name} is {value}, allowed are 1 to 1024")
    token = read_token(args.token_file)
    service = make_service(args.policy, args.task, args.dialect, keys=args.keys, token=token, most_clients=args.clients)
    if args.describe:
        print(json.dumps(service.metadata, indent=1))
        return 0
    server: PolicyServer = open_server(
        service, args.dialect, args.address, bool(token), args.max_mib << 20, args.clients
    )
    place = parse_address(f"{args.dialect}://{args.address or '127.0.0.1'}")._replace(port=server.port)
    say(f"{args.policy} for {service.metadata['task']}: serving {place}")
    try:
        server.serve()
    finally:
        server.close()
    return 0
