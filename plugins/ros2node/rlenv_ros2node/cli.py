"""``rlenv-robot robot ros2``: offer a served robot to ROS 2 nodes."""

from __future__ import annotations

import argparse
import logging
from contextlib import ExitStack, closing
from typing import Any

from rlenv_robot.cli.clearing import add_clearing, clearing
from rlenv_robot.cli.output import say
from rlenv_robot.cli.served import add_place

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Offer a served robot to ROS 2 nodes whose middleware is rmw_zenoh_cpp, or to any others over DDS. The bridge "
        "is one more client of the robot's server: its commands pass the lease, the guard and the watchdog. It needs "
        "no installation of ROS 2."
    )
    parser.epilog = """
Examples:

  ros2 run rmw_zenoh_cpp rmw_zenohd &  rlenv-robot robot ros2
  rlenv-robot robot ros2 --domain 5 --distribution humble --namespace /left
  rlenv-robot robot topics              # which nodes and topics the network has, and what does not match
  rlenv-robot robot ros2 --clear-stop "a cable was loose" --stop-number 3
"""
    add_place(parser)
    parser.add_argument("--telemetry", metavar="ADDRESS", help="telemetry of the server, if it does not announce it")
    parser.add_argument(
        "--router", metavar="ENDPOINT", default="tcp/localhost:7447", help="Zenoh's (default: %(default)s)"
    )
    parser.add_argument("--domain", type=int, default=0, help="ROS_DOMAIN_ID of the nodes (default: 0)")
    parser.add_argument("--distribution", default="jazzy", help="of the nodes: jazzy (default) or humble")
    parser.add_argument("--dds", action="store_true", help="speak DDS instead of Zenoh; needs the extra `dds`")
    parser.add_argument("--node", default="rlenv_robot", help="name of the node (default: %(default)s)")
    parser.add_argument("--namespace", default="/", help="before the names of topics, such as /left")
    parser.add_argument(
        "--start", choices=("home", "here"), default="home",
        help="where the service ~/reset begins an episode: the robot moves home, or stays (default: home)",
    )  # fmt: skip
    parser.add_argument(
        "--cmd-vel", metavar="MAP", default="", help="such as linear.x=twist.forward,angular.z=twist.turn"
    )
    parser.add_argument("--deadline", type=float, default=0.5, metavar="S", help="age at which a command ends (0.5)")
    parser.add_argument("--max-age", type=float, default=0.5, metavar="S", help="oldest command that is accepted")
    parser.add_argument("--trust-network", action="store_true", help="allow a router on another machine")
    add_clearing(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Offer the robot until Ctrl-C or SIGTERM.

    Raises:
        ValueError: a setting is not allowed, or an extra is missing.
        RobotError: no router or no server answers.
    """
    from real import RemoteRobot
    from rlenv_robot.serving.node_transport import open_transport
    from rlenv_robot.serving.robot_server import TerminationSignals
    from rlenv_ros2node.bridge import BridgeSettings, Ros2Bridge

    settings = BridgeSettings(
        node=args.node, namespace=args.namespace, start=args.start, clearing=clearing(args), twist=args.cmd_vel,
        deadline_s=args.deadline, max_age_s=args.max_age,
    )  # fmt: skip
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with ExitStack() as ends:
        signals = ends.enter_context(TerminationSignals())
        with closing(RemoteRobot(args.address, keys=args.keys)) as remote:
            spec = remote.spec
        kind: dict[str, Any] = {"kind": "dds"} if args.dds else {
            "kind": "zenoh", "router": args.router, "trust_network": args.trust_network
        }  # fmt: skip
        place = {
            "node": args.node,
            "namespace": args.namespace,
            "domain": args.domain,
            "distribution": args.distribution,
        }
        transport = ends.enter_context(closing(open_transport(**kind, **place)))
        bridge = ends.enter_context(closing(Ros2Bridge(transport, args.address, args.keys, args.telemetry, settings)))
        bridge.start(spec)
        say(f"{spec.name} is the ROS 2 node {settings.topic('~')} in domain {args.domain}; ~/reset begins an episode")
        while not signals.wait(0.5):
            pass
    return 0
