"""``rlenv-robot data export``: recorded data in another project's format."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Write recorded data in another project's format."
    parser.epilog = """
Examples:

  rlenv-robot data export RUN so101-reach --to lerobot --cameras top
  rlenv-robot data export RUN so101-reach.hdf5 --to robomimic
"""
    parser.add_argument("path", type=Path, help="anything that open_source reads")
    parser.add_argument("out", type=Path, help="a folder that must not exist; for robomimic a file ending in .hdf5")
    parser.add_argument(
        "--to", required=True, metavar="NAME", help="the format, such as lerobot; a wrong name lists all"
    )
    parser.add_argument(
        "--cameras", metavar="NAMES", help="whose pictures come along, such as top,wrist; or none (default: all)"
    )
    parser.add_argument(
        "--size", metavar="WxH", help="of the pictures in pixels, such as 320x240 (default: as recorded)"
    )
    parser.add_argument(
        "--embed", action="store_true", help="lerobot: pictures as they were recorded, inside Parquet, not as videos"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write it, and say what the format could not keep."""
    from recorder.formats.registry import writable_format
    from rlenv_robot.data.folder import read_folder

    chosen, write = writable_format(args.to)
    if args.out.exists():
        raise ValueError(f"{args.out} is there already; nothing is overwritten, name another")
    filming = _filming(args)
    if filming and not chosen.holds_images:
        raise ValueError(f"--cameras, --size and --embed are for formats with images; {args.to} holds none")
    if args.embed and args.to != "lerobot":
        raise ValueError(f"--embed is for lerobot, whose pictures are videos otherwise; leave it out for {args.to}")
    table = read_folder(args.path)
    notes = write(table, args.out, *filming)
    print(f"{args.out}: {len(table.starts)} episodes as {args.to}")
    for note in notes:
        print(f"note: {note}")
    return 0


def _filming(args: argparse.Namespace) -> list[Any]:
    """What is asked for of the pictures; empty if nothing is."""
    if args.cameras is None and args.size is None and not args.embed:
        return []
    from recorder.formats.images import Filming

    names = None
    if args.cameras is not None:
        names = tuple(name for name in args.cameras.split(",") if name not in ("", "none"))
    return [Filming(names, _size(args.size), args.embed)]


def _size(text: str | None) -> tuple[int, int] | None:
    """Height and width."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--size is {text!r}, wanted is width x height in pixels, such as 320x240")
    return int(parts[1]), int(parts[0])
