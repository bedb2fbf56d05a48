"""``rlenv-robot data export``: write recorded data in another project's format."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlenv_robot.cli.data.images import add_images, to_write
from rlenv_robot.cli.data.selection import (
    add_filters,
    add_reading,
    chosen,
    format_name,
    has_filters,
    location,
    reading_options,
)
from rlenv_robot.cli.output import counted

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Write recorded data in another project's format."
    parser.epilog = """
Examples:

  rlenv-robot data export RUN so101-reach --to lerobot --cameras top
  rlenv-robot data export RUN so101-reach.hdf5 --to robomimic
  rlenv-robot data export RUN so101-recordings --to rerun && rerun so101-recordings/*.rrd
  rlenv-robot data export RUN so101-reach --to lerobot --push USER/so101-reach
"""
    parser.add_argument("path", type=location, help="a run, a folder of runs, or a data set or its address")
    parser.add_argument("out", type=Path, help="a new folder; for robomimic a new file ending in .hdf5")
    parser.add_argument(
        "--to", required=True, metavar="NAME",
        help="the format, such as lerobot, or module:name of your own; a wrong name lists all",
    )  # fmt: skip
    add_images(parser)
    words = "lerobot: observation fields that become observation.environment_state, such as target_position"
    parser.add_argument("--environment", metavar="NAMES", default="", help=words)
    words = "upload the export to this repository of the Hugging Face Hub; data push does it later"
    parser.add_argument("--push", metavar="REPO_ID", help=words)
    parser.add_argument("--private", action="store_true", help="let nobody else see the repository, if it is new")
    add_filters(parser)
    add_reading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the data set, and print what the format can't hold."""
    from recorder.formats.registry import writable_format
    from recorder.table.combine import subset
    from rlenv_robot.data.folder import read_folder

    data_format, write = writable_format(format_name(args.to))
    if args.out.exists():
        raise ValueError(f"{args.out} exists, and nothing is overwritten; name another")
    if args.environment and "environment" not in data_format.write_options:
        raise ValueError(f"--environment is for formats with such a choice, as lerobot; leave it out for {args.to}")
    pushing = _pushing(args)
    environment = {"environment": tuple(args.environment.split(","))} if args.environment else {}
    table = read_folder(args.path, **reading_options(args))
    if has_filters(args):
        table = subset(table, chosen(table, args))
    table, filming, left_out = to_write(table, args, data_format)
    notes = [*left_out, *write(table, args.out, *filming, **environment)]
    print(f"{args.out}: {counted(len(table.starts), 'episode')} as {data_format.name}")
    for note in notes:
        print(f"note: {note}")
    return pushing.run(pushing) if pushing else 0


def _pushing(args: argparse.Namespace) -> argparse.Namespace | None:
    """Return the arguments of ``data push`` for the export, after its check; None without ``--push``."""
    if args.push is None:
        if args.private:
            raise ValueError("--private is for a repository on the Hub; name it: --push REPO_ID")
        return None
    from hal.errors import missing_plugin
    from rlenv_robot.cli.data import all_verbs
    from rlenv_robot.cli.verbs import add_verbs

    verbs = all_verbs()
    if "push" not in verbs:
        raise ValueError(f"--push is in {missing_plugin('rlenv_formats')}")
    parser = argparse.ArgumentParser(prog="rlenv-robot data")
    add_verbs(parser, {"push": verbs["push"]})
    pushing = parser.parse_args(["push", *(["--private"] if args.private else []), "--", str(args.out), args.push])
    pushing.check(pushing)
    return pushing
