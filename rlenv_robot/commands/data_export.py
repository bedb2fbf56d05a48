"""``rlenv-robot data export``: recorded data in another project's format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add", "run"]


def add(subparsers: Any) -> None:
    """Declare the verb."""
    parser = subparsers.add_parser("export", help="write another project's format", description=__doc__)
    parser.add_argument("path", type=Path, help="anything that open_source reads")
    parser.add_argument("out", type=Path, help="a folder that must not exist; for robomimic a file ending in .hdf5")
    parser.add_argument(
        "--to", required=True, metavar="NAME", help="the format, such as lerobot; a wrong name lists all"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write it, and say what the format could not keep."""
    from recorder.formats.catalogue import writers
    from rlenv_robot.data.folder import read_folder

    known = writers()
    if args.to not in known:
        raise ValueError(f"--to is {args.to!r}, allowed are {', '.join(sorted(known))}")
    if args.out.exists():
        raise ValueError(f"{args.out} is there already; nothing is overwritten, name another")
    table = read_folder(args.path)
    notes = known[args.to](table, args.out)
    print(f"{args.out}: {len(table.starts)} episodes as {args.to}")
    for note in notes:
        print(f"note: {note}")
    return 0
