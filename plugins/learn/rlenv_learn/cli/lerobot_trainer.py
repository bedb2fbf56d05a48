"""Train a policy of a recorded set by LeRobot's own training, and save it as a folder that `run` takes."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hal import RobotError
from rlenv_robot.cli.output import counted, say

if TYPE_CHECKING:
    from recorder.json_data import JsonDict
    from rlenv_robot.source import SourceData

__all__ = ["train_by_lerobot"]

_VERSION = "v3.0"
_METHODS = ("act", "diffusion")


def train_by_lerobot(args: argparse.Namespace, source: SourceData, episodes: Sequence[int]) -> int:
    """Train by ``lerobot-train`` in a process of its own, and copy what it saved, with the description of the set.

    Args:
        args: the arguments of ``imitate``.
        source: the set, with its filtered episodes alone.
        episodes: indices of the episodes to learn from.

    Returns:
        The exit code of LeRobot's process.

    Raises:
        ValueError: LeRobot is not installed, has no such method, or can't learn from a set without images.
        RobotError: LeRobot saved no policy.
    """
    out = _checked(args)
    with tempfile.TemporaryDirectory(prefix="imitate-") as scratch:
        root, numbers = _root(args, source, episodes, Path(scratch))
        work = Path(scratch) / "training"
        code = subprocess.run(_command(args, root, numbers, work), check=False).returncode
        if code:
            return code
        saved = work / "checkpoints" / "last" / "pretrained_model"
        if not saved.is_dir():
            raise RobotError(f"lerobot-train ended without an error, and saved no policy in {saved}")
        shutil.copytree(saved, out)
        _describe(args, root, source, episodes, out)
    say(f"{out}: {args.method} by LeRobot, from {counted(len(episodes), 'episode')}")
    return 0


def _checked(args: argparse.Namespace) -> Path:
    out = Path(args.out)
    if find_spec("lerobot") is None:
        raise ValueError("--trainer lerobot needs LeRobot: pip install lerobot; --trainer ours goes without it")
    _check_draccus()
    if args.method not in _METHODS:
        raise ValueError(f"LeRobot has no method {args.method!r}; allowed are {', '.join(_METHODS)}, or --trainer ours")
    if out.exists():
        raise ValueError(f"--out is {args.out!r}, which exists; LeRobot's policy is a new folder")
    return out


def _check_draccus() -> None:
    """Refuse a draccus other than LeRobot's: with a newer one a saved policy's ``config.json`` lacks its type."""
    for line in requires("lerobot") or ():
        wanted = re.match(r"draccus==([\w.]+)", line.replace(" ", ""))
        if wanted and version("draccus") != wanted[1]:
            raise ValueError(
                f"lerobot {version('lerobot')} asks for draccus {wanted[1]}; with {version('draccus')}, which is "
                f"installed, its policies can't be opened again: pip install 'draccus=={wanted[1]}'"
            )


def _root(
    args: argparse.Namespace, source: SourceData, episodes: Sequence[int], scratch: Path
) -> tuple[Path, Sequence[int] | None]:
    """Return a LeRobot data set to train on, and the numbers of its episodes to use; None for all."""
    from recorder.formats.images import Filming
    from recorder.formats.registry import writable_format
    from recorder.images.sources import ImageSources
    from recorder.table.combine import subset

    described = Path(args.set) / "meta" / "info.json"
    if described.is_file() and json.loads(described.read_text()).get("codebase_version") == _VERSION:
        return Path(args.set), [source.table.episode_id(number).episode for number in episodes]
    names = source.table.layout.observation.names
    seen = bool(ImageSources(source.table).cameras()) or any(
        field.is_image for field in source.table.layout.observation
    )
    if not seen and len(names) < 2:
        raise ValueError(
            f"{args.set} has no camera and one observation, {names[0]!r}; LeRobot's methods want a camera, or a state "
            "of the surroundings beside the robot's; use --trainer ours"
        )
    _, write = writable_format("lerobot")
    write(
        subset(source.table, episodes), scratch / "set", Filming(embedded=True), environment=() if seen else names[1:]
    )
    return scratch / "set", None


def _command(args: argparse.Namespace, root: Path, episodes: Sequence[int] | None, work: Path) -> list[str]:
    import torch

    chunk = args.chunk or (16 if args.method == "diffusion" else 30)
    length = {"act": "chunk_size", "diffusion": "horizon"}[args.method]
    steps = args.execute or chunk // 2
    command = [
        sys.executable, "-m", "lerobot.scripts.lerobot_train",
        f"--dataset.repo_id=local/{root.name}", f"--dataset.root={root}", f"--policy.type={args.method}",
        f"--policy.{length}={chunk}", f"--policy.n_action_steps={steps}", "--policy.push_to_hub=false",
        f"--policy.device={'cuda' if torch.cuda.is_available() else 'cpu'}",
        f"--output_dir={work}", f"--steps={args.updates or 3000}", f"--batch_size={args.batch or 32}",
        f"--save_freq={args.updates or 3000}", f"--seed={args.seed}", "--wandb.enable=false", "--num_workers=0",
    ]  # fmt: skip
    if episodes is not None:
        command.append(f"--dataset.episodes={json.dumps(list(episodes))}")
    return [*command, *shlex.split(args.lerobot)]


def _describe(args: argparse.Namespace, root: Path, source: SourceData, episodes: Sequence[int], out: Path) -> None:
    """Add the description of the set, the units of its joints and the lineage to a policy's folder."""
    from rlenv_robot.policies.lineage import LINEAGE, Lineage

    for name in ("info.json", "rlenv_robot.json", "calibration.json"):
        if (root / "meta" / name).is_file():
            shutil.copy(root / "meta" / name, out / name)
    if args.units:
        declared: JsonDict = {"joint_units": args.units}
        if args.calibration:
            shutil.copy(args.calibration, out / "calibration.json")
            declared["calibration"] = "calibration.json"
        (out / "rlenv_robot.json").write_text(json.dumps(declared))
    about = {LINEAGE: Lineage.of(source, episodes).to_dict()}
    (out / "about.json").write_text(json.dumps(about))
