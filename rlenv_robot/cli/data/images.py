"""Choose the images that ``data export``, ``cut`` and ``merge`` write into a new data set."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recorder.formats.images import Filming
    from recorder.formats.registry import Format
    from recorder.table.table import Table

__all__ = ["add_images", "has_images", "to_write"]


def add_images(parser: argparse._ActionsContainer) -> None:
    """Declare the options for images."""
    parser.add_argument(
        "--cameras", metavar="NAMES", help="cameras to write, such as top,wrist; or none (default: all)"
    )
    parser.add_argument(
        "--size", metavar="WxH", help="size of the images in pixels, such as 320x240 (default: as recorded)"
    )
    parser.add_argument(
        "--embed",
        action="store_true",
        help="lerobot: keep the recorded images, inside Parquet, instead of videos",
    )
    parser.add_argument("--skip-missing", action="store_true", help="leave out episodes of which a video is missing")


def has_images(args: argparse.Namespace) -> bool:
    """Return whether an option of `add_images` was given."""
    return args.cameras is not None or args.size is not None or args.embed or args.skip_missing


def to_write(table: Table, args: argparse.Namespace, to: Format) -> tuple[Table, list[Filming], list[str]]:
    """Return the table to write, the selection of images as a further argument of its writer, and notes.

    Raises:
        ValueError: an option has a wrong value, or the format has no such choice.
        SourceError: each episode lacks a video.
    """
    from recorder.formats.images import Filming, with_videos

    if not has_images(args):
        return table, [], []
    if not to.holds_images:
        raise ValueError(
            f"--cameras, --size, --embed and --skip-missing are for formats with images; {to.name} holds none"
        )
    if args.embed and "embedded" not in to.write_options:
        raise ValueError(f"--embed is for formats with such a choice, as lerobot; leave it out for {to.name}")
    names = None
    if args.cameras is not None:
        names = tuple(name for name in args.cameras.split(",") if name not in ("", "none"))
    filming = Filming(names, _size(args.size), args.embed)
    table, notes = with_videos(table, filming) if args.skip_missing else (table, [])
    return table, [filming], notes


def _size(text: str | None) -> tuple[int, int] | None:
    """Read ``WIDTHxHEIGHT``, and return the height and the width."""
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"--size is {text!r}, it must be width x height in pixels, such as 320x240")
    return int(parts[1]), int(parts[0])
