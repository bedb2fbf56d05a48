"""``rlenv-robot data push``: upload an exported data set to the Hugging Face Hub."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlenv_robot.cli.output import counted

__all__ = ["add", "check", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Upload an exported data set to the Hugging Face Hub."
    parser.epilog = """
The repository is created if it is absent. A LeRobot data set gets the tag that LeRobot looks for. After an
interruption, the same command goes on. The token is that of HF_TOKEN or of `hf auth login`; HF_ENDPOINT names another
host.

Examples:

  rlenv-robot data export RUN so101-reach --to lerobot --push USER/so101-reach
  rlenv-robot data push so101-reach USER/so101-reach --private
"""
    parser.add_argument("path", type=Path, help="the folder, or single file, that data export wrote")
    parser.add_argument("repo_id", metavar="REPO_ID", help="the repository, such as USER/so101-reach")
    parser.add_argument("--private", action="store_true", help="let nobody else see a new repository")
    parser.add_argument(
        "--replace", action="store_true", help="delete other content of the repository; its history keeps it"
    )
    parser.set_defaults(run=run, check=check)


def check(args: argparse.Namespace) -> None:
    """Ask the Hub whether its token may be used, before an export is written."""
    from rlenv_formats.hub import check_access

    check_access(args.repo_id, args.private)


def run(args: argparse.Namespace) -> int:
    """Upload the data set, and print its address."""
    from rlenv_formats.hub import push

    upload = push(args.path, args.repo_id, args.private, args.replace)
    tag = f", tag {upload.tag}" if upload.tag else ""
    print(f"{upload.url}: {counted(upload.files, 'file')}, {upload.size / 1e6:.3g} MB{tag}")
    card = args.path / "README.md" if args.path.is_dir() else args.path.with_suffix(".md")
    if "\nlicense: unknown\n" in card.read_text(encoding="utf-8"):
        print(f"note: nobody else may use data without a licence; state yours in {card}, and push again")
    return 0
