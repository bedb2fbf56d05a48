"""``rlenv-robot policy zoo`` and ``policy card``: list trained policies, and measure one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlenv_robot.policies.zoo import ZooPolicy

__all__ = ["add", "add_card", "run", "run_card"]

_FEWEST_EPISODES = 100


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "List the trained policies that ship with installed packages, with the episodes of each kind of robot that "
        "succeeded: of the nominal robot, of the identified one (twin 0), and of robots that are drawn for each "
        "episode from the range in which robots of the kind differ. All of them are simulated."
    )
    parser.epilog = """
Examples:

  rlenv-robot policy zoo
  rlenv-robot policy zoo so101-reach
  rlenv-robot run so101-reach --policy zoo:so101-reach
"""
    parser.add_argument("name", nargs="?", help="a policy; all about it is printed")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print a line for each policy, or all about one."""
    from rlenv_robot.policies.zoo import PREFIX, zoo_names, zoo_policy

    if args.name:
        name = args.name.removeprefix(PREFIX)
        print("\n".join(_description(name, zoo_policy(name))))
        return 0
    policies = {name: zoo_policy(name) for name in zoo_names()}
    width = max(map(len, policies), default=0) + len(PREFIX)
    for name, policy in policies.items():
        reached = ", ".join(f"{robots} {_rate(count, policy)}" for robots, count in policy.successes["policy"].items())
        print(f"{PREFIX + name:{width}}  {policy.task}: {reached} of {policy.episodes} episodes each")
    print(f"\nrlenv-robot policy zoo NAME says how it was made; rlenv-robot run TASK --policy {PREFIX}NAME runs it")
    return 0


def _rate(count: int, policy: ZooPolicy) -> str:
    return f"{count / policy.episodes:.1%}"


def _description(name: str, policy: ZooPolicy) -> list[str]:
    """Return lines about a policy: its task, its file, how it was made, and what it reached."""
    from rlenv_robot.training.trials import wilson

    lines = [
        f"{name}: a policy for {policy.task}", f"file: {policy.file} ({policy.file.stat().st_size:,} bytes)",
        f"digest: {policy.digest}", f"made by: {policy.command} (seed {policy.seed}, version {policy.version})",
        f"observation: {policy.observation[:12]}, action: {policy.action[:12]}, robot: {policy.robot[:12] or '-'}",
        f"successes of {policy.episodes} episodes each (seed {policy.first_seed}, version {policy.measured}), "
        "simulated, with 95 % intervals (Wilson):",
    ]  # fmt: skip
    for robots, count in policy.successes["policy"].items():
        low, high = wilson(count, policy.episodes)
        others = ", ".join(
            f"{other} {_rate(counts[robots], policy)}"
            for other, counts in policy.successes.items()
            if other != "policy"
        )
        lines.append(f"  {robots:8} {count}: {_rate(count, policy)} ({low:.1%} to {high:.1%}); {others}")
    return lines


def add_card(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Measure a policy in simulation, beside actions of 0 and random ones, and write its card, a JSON file from "
        "which `rlenv_robot.policies.zoo.ZooPolicy.read` makes the object that a package declares in the entry-point "
        "group rlenv_robot.zoo."
    )
    parser.epilog = """
Example:

  rlenv-robot policy card reach.npz --task so101-reach --command 'rlenv-robot train so101-reach --out reach.npz'
"""
    parser.add_argument("file", type=Path, help="the policy's file; the card is written beside it, as .json")
    parser.add_argument("--task", required=True, help="the registered task that it was trained for")
    parser.add_argument("--command", required=True, help="the command that made the file")
    parser.add_argument("--seed", type=int, default=0, help="the training's seed (default: 0)")
    parser.add_argument("--episodes", type=int, default=200, help="of each kind of robot (default: 200, at least 100)")
    parser.set_defaults(run=run_card)


def run_card(args: argparse.Namespace) -> int:
    """Measure the policy, write its card, and print it."""
    from rlenv_zoo.measure import make_card, write_card

    if args.episodes < _FEWEST_EPISODES:
        raise ValueError(f"--episodes is {args.episodes}, it must be at least {_FEWEST_EPISODES}")
    policy, card = (
        make_card(args.file, args.task, args.command, args.seed, episodes=args.episodes),
        args.file.with_suffix(".json"),
    )
    write_card(policy, card)
    print("\n".join([*_description(args.file.stem, policy), f"wrote {card}"]))
    return 0
