"""``rlenv-robot data lineage``: name the rows that a policy was trained on, and the policy that recorded episodes."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import add_reading, location, reading_options
from rlenv_robot.cli.output import counted

if TYPE_CHECKING:
    from recorder.table.table import Table
    from rlenv_robot.policies.lineage import Lineage

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Print the episodes that a policy was trained on, by the digests in its file. With runs or data sets, count "
        "which of their episodes the training saw, and which ones this policy recorded. A copy counts as seen."
    )
    parser.epilog = """
Examples:

  rlenv-robot data lineage better.npz
  rlenv-robot data lineage better.npz runs       which of these did the training see, and which did it record?
"""
    parser.add_argument("policy", type=Path, help="a policy's file or folder, or zoo:NAME")
    parser.add_argument("sets", metavar="SET", type=location, nargs="*", help="a run, a folder of runs, or a data set")
    add_reading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the lineage of the policy, and a line for each run or data set."""
    from rlenv_robot.data.folder import read_folder
    from rlenv_robot.policies.lineage import lineage_of, policy_digest
    from rlenv_robot.policies.policy import load_policy
    from rlenv_robot.policies.zoo import policy_file

    lineage, digest = lineage_of(load_policy(args.policy)), policy_digest(policy_file(args.policy))
    for line in _description(lineage):
        print(line.format(policy=f"{args.policy} ({digest})"))
    for path in args.sets:
        for line in _uses(read_folder(path, **reading_options(args)), lineage, digest):
            print(line)
    return 0


def _description(lineage: Lineage | None) -> list[str]:
    """Return lines about the training's data, with ``{policy}`` for the policy's name."""
    if lineage is None:
        return ["{policy}: its file names no recorded data"]
    lines = [f"{{policy}}: trained on {counted(lineage.count, 'episode')}, rows {lineage.rows}"]
    lines += [f"  {seen.place}: episodes {_ranges(seen.episodes)}" for seen in lineage.seen]
    if not lineage.seen:
        lines.append("  the episodes are too many to be listed; the digest of their rows names them")
    if lineage.parent is not None:
        lines.append(f"  training began with the policy {lineage.parent}")
    return lines


def _uses(table: Table, lineage: Lineage | None, policy: str) -> list[str]:
    """Return a line for each run or data set of a table: how many episodes were seen, and were recorded."""
    from recorder.table.digest import episode_digests
    from rlenv_robot.policies.lineage import POLICY_DIGEST

    seen = {digest for part in lineage.seen for digest in part.digests} if lineage is not None else set()
    counts: dict[str, Counter[str]] = {}
    for number, digest in enumerate(episode_digests(table)):
        count = counts.setdefault(table.place(number), Counter())
        count["all"] += 1
        count["seen"] += digest in seen
        count["recorded"] += table.episodes[number].get(POLICY_DIGEST) == policy
    unknown = lineage is not None and not lineage.seen
    return [
        f"{place}: {counted(count['all'], 'episode')}: "
        + ("not known which the training saw, " if unknown else f"the training saw {count['seen']}, ")
        + f"the policy recorded {count['recorded']}"
        for place, count in counts.items()
    ]


def _ranges(numbers: Sequence[int]) -> str:
    """Return numbers as text with ranges, such as ``0,2,5-9``."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
