"""``rlenv-robot dev new``: write the skeleton of a robot, a task, a driver or a whole package."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["SKELETONS", "Skeleton", "add", "run", "write"]

_FOLDER = Path(__file__).with_name("skeletons")


class Skeleton(NamedTuple):
    """One kind of skeleton.

    Attributes:
        module: the name of its module in the skeleton; the user's name replaces it.
        summary: what the skeleton contains, for the help.
        next: the commands to try next, with that module name in them.
    """

    module: str
    summary: str
    next: tuple[str, ...]


SKELETONS = {
    "project": Skeleton(
        "my_slide", "a package with a robot, its driver and a task",
        ("rlenv-robot run my_slide:Centre --policy random --record runs", "rlenv-robot serve my_slide.toml"),
    ),
    "robot": Skeleton(
        "my_robot", "a robot simulated from an MJCF file",
        ("rlenv-robot run my_robot.xml --policy random --record runs",),
    ),
    "task": Skeleton("my_task", "a task for the SO-101", ("rlenv-robot train my_task:Task --out policy.npz",)),
    "driver": Skeleton("my_arm", "a driver of an arm's servos", ("rlenv-robot serve my_arm.toml",)),
}  # fmt: skip
"""Word on the command line -> kind of skeleton."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    kinds = "; ".join(f"{kind}: {skeleton.summary}" for kind, skeleton in SKELETONS.items())
    parser.description = f"Write a small working example under your name, with its tests, to change. {kinds}."
    parser.epilog = """
Examples:

  rlenv-robot dev new project soft-gripper
  rlenv-robot dev new task stack-cups --out lab
  rlenv-robot dev new driver lab-arm
"""
    parser.add_argument("kind", choices=SKELETONS)
    parser.add_argument("name", help="in lower case, such as soft-gripper; its module is soft_gripper")
    parser.add_argument("--out", metavar="FOLDER", help="where to write (default: the name, below this folder)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the files, and print what to do next."""
    folder = Path(args.out or args.name)
    written = write(args.kind, args.name, folder)
    print(f"{folder}: {', '.join(path.name for path in written)}")
    print("next:")
    for command in (f"cd {folder}", "pytest", *SKELETONS[args.kind].next):
        print(f"  {_named(command, SKELETONS[args.kind].module, args.name)}")
    return 0


def write(kind: str, name: str, folder: str | Path) -> list[Path]:
    """Write a skeleton.

    Args:
        kind: one of `SKELETONS`.
        name: words of lower-case letters and digits joined by ``-`` or ``_``, beginning with a letter.
        folder: created if missing. Existing files are never replaced.

    Returns:
        The files, sorted.

    Raises:
        ValueError: the name isn't a valid module name, or a package of this project has it.
        FileExistsError: a file that would be written exists already; nothing was written.
    """
    module = name.replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise ValueError(
            f"a name is words of lower-case letters and digits, joined by - or _, such as soft-gripper; got {name!r}"
        )
    if module in ("hal", "sim", "real", "recorder", "test", "rlenv_robot", "numpy", "mujoco"):
        raise ValueError(f"{name!r} is the name of a package in use; take another, such as my-{name}")
    folder, skeleton = Path(folder), SKELETONS[kind].module
    files = {
        folder / _named(source.name.removesuffix(".txt"), skeleton, name): _named(
            source.read_text(encoding="utf-8"), skeleton, name
        )
        for source in sorted((_FOLDER / kind).iterdir())
    }
    for path in files:
        if path.exists():
            raise FileExistsError(f"{path} exists already and was kept; choose another --out or name")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    return sorted(files)


def _named(text: str, skeleton: str, name: str) -> str:
    """Return a skeleton's text with the user's name in place of its own, as module and as words with dashes."""
    return text.replace(skeleton, name.replace("-", "_")).replace(skeleton.replace("_", "-"), name.replace("_", "-"))
