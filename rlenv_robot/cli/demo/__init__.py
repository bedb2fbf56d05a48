"""``rlenv-robot demo``: train, deploy over the network, record, replay, retrain, and deploy again."""

from __future__ import annotations

import argparse

__all__ = ["add"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Train a policy in simulation, deploy it over the network on a virtual arm behind a serial bus, record it, "
        "retrain it from the recording only, and deploy it again. Takes two minutes on a quiet machine, and needs no "
        "settings. The arm runs in virtual time, so the same seed gives the same table however busy the machine is."
    )
    parser.add_argument("--out", default="demo-runs", help="folder for all results (default: demo-runs)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    parser.add_argument("--episodes", type=int, default=20, help="episodes of each deployment (default: 20)")
    parser.add_argument(
        "--train-steps", type=int, default=1_500_000,
        help="simulated control steps of the training (default: 1,500,000, about a minute)",
    )  # fmt: skip
    parser.add_argument(
        "--retrain-steps", type=int, default=2_000_000,
        help="control steps of the retraining in the learned model (default: 2,000,000, some 10 s)",
    )  # fmt: skip
    parser.add_argument("--train-s", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--retrain-s", type=float, help=argparse.SUPPRESS)
    parser.add_argument(
        "--robot", choices=["bus", "twin"], default="bus",
        help="bus: a virtual arm whose servos a real arm's driver talks to, byte for byte; twin: a simulated arm with "
        "a real one's faults, without driver and bus (default: bus)",
    )  # fmt: skip
    parser.add_argument(
        "--real-time", action="store_true",
        help="let the arm move at its own rate, as a real one does; its figures then depend on this machine's load",
    )  # fmt: skip
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from rlenv_robot.cli.demo.command import run

    return run(args)
