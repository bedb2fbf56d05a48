"""Train a policy of a recorded set by LeRobot's own training, and save it as a file of ours or as LeRobot's folder."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hal import RobotError
from rlenv_robot.cli.output import INTERRUPTED, counted, say

if TYPE_CHECKING:
    from recorder.json_data import JsonDict
    from rlenv_robot.source import SourceData

__all__ = ["UNTAKEN", "train_by_lerobot"]

UNTAKEN = ("observation", "cameras", "size", "task", "history", "width", "layers", "actions", "noise")
"""Options of ``imitate`` that LeRobot's training has no counterpart of, or by other names."""

_VERSION = "v3.0"
_METHODS = ("act", "diffusion")
_FILE, _ABOUT = ".onnx", "about.json"
_OLDEST = (0, 4)
_RATE = 1e-4
"""Step size of ACT. LeRobot's own, 1e-5, is meant for 100,000 updates."""
_PARTS = 5
"""Number of checkpoints, from the last of which a training goes on."""
_STOP_S = 20.0
"""Time that LeRobot's process has to end after Ctrl-C, seconds."""
_BACKBONE, _RANDOM = "pretrained_backbone_weights", "--policy.pretrained_backbone_weights=null"
_WEIGHTS = "resnet18-f37072fd.pth"


def train_by_lerobot(args: argparse.Namespace, source: SourceData, episodes: Sequence[int]) -> int:
    """Train by ``lerobot-train`` in a process of its own, and save what it made, with the description of the set.

    A policy's file (``--out P.onnx``) runs without LeRobot; LeRobot's folder is kept beside it, ``P.lerobot``. Until
    the end everything lies in ``P.training``, from which ``--resume`` goes on.

    Args:
        args: the arguments of ``imitate``.
        source: the set, with its filtered episodes alone.
        episodes: indices of the episodes to learn from.

    Returns:
        The exit code of LeRobot's process; `INTERRUPTED` after Ctrl-C.

    Raises:
        ValueError: LeRobot is not installed, is too old, or has no such method or option; or it can't learn from the
            set.
        RobotError: LeRobot saved no policy, or its policy can't be written as a file.
    """
    out = _checked(args)
    name = out.name.removesuffix(_FILE)
    folder, work = out.with_name(f"{name}.lerobot") if out.suffix == _FILE else out, out.with_name(f"{name}.training")
    if folder.exists():
        raise ValueError(f"{folder} exists; LeRobot's policy is a new folder")
    training = work / "run"
    root, numbers = _begun(args, source, episodes, work)
    command = _command(args, source, root, numbers, training)
    saved = training / "checkpoints" / "last" / "pretrained_model"
    if args.resume and (begun := saved / "train_config.json").is_file():
        command = [*command[:3], f"--config_path={begun}", "--resume=true"]
    elif training.exists():
        shutil.rmtree(training)
    code = _run(command)
    if code == INTERRUPTED:
        say(f"stopped; the same command with --resume goes on from the last checkpoint in {work}, or begins anew")
    if code:
        return code
    if not saved.is_dir():
        raise RobotError(f"lerobot-train ended without an error, and saved no policy in {saved}")
    shutil.copytree(saved, folder)
    _describe(args, root, source, episodes, folder)
    if out.suffix == _FILE:
        _save_file(args, source, episodes, folder, out)
    shutil.rmtree(work)
    say(f"{out}: {args.method} by LeRobot {version('lerobot')}, from {counted(len(episodes), 'episode')}")
    return 0


def _checked(args: argparse.Namespace) -> Path:
    out = Path(args.out)
    if find_spec("lerobot") is None:
        raise ValueError("--trainer lerobot needs LeRobot: pip install lerobot; --trainer ours goes without it")
    if tuple(int(part) for part in re.findall(r"\d+", version("lerobot"))[:2]) < _OLDEST:
        raise ValueError(f"lerobot {version('lerobot')} is too old, 0.4 is the first whose training can be called")
    _check_draccus()
    if args.method not in _METHODS:
        raise ValueError(f"LeRobot has no method {args.method!r}; allowed are {', '.join(_METHODS)}, or --trainer ours")
    given = [name for name in UNTAKEN if getattr(args, name) is not None]
    if given:
        raise ValueError(
            f"--trainer lerobot takes no --{given[0]}; write what LeRobot has in its place into --lerobot, "
            "or leave it out"
        )
    if out.suffix == _FILE and args.method != "act":
        raise ValueError(
            f"of LeRobot only act can be written as a file; name a new folder, such as {out.with_suffix('')}"
        )
    if out.exists():
        raise ValueError(f"--out is {args.out!r}, which exists; LeRobot's policy is a new {_kind(out)}")
    return out


def _kind(out: Path) -> str:
    return "file" if out.suffix == _FILE else "folder"


def _check_draccus() -> None:
    """Refuse a draccus other than LeRobot's: with a newer one a saved policy's ``config.json`` lacks its type."""
    for line in requires("lerobot") or ():
        wanted = re.match(r"draccus==([\w.]+)", line.replace(" ", ""))
        if wanted and version("draccus") != wanted[1]:
            raise ValueError(
                f"lerobot {version('lerobot')} asks for draccus {wanted[1]}; with {version('draccus')}, which is "
                f"installed, its policies can't be opened again: pip install 'draccus=={wanted[1]}'"
            )


def _begun(
    args: argparse.Namespace, source: SourceData, episodes: Sequence[int], work: Path
) -> tuple[Path, Sequence[int] | None]:
    """Make the folder of the training, or check that it is that of the same one; return the set as `_root` does."""
    from rlenv_robot.policies.lineage import Lineage

    names = ("method", "chunk", "execute", "updates", "batch", "learning_rate", "seed", "lerobot")
    identity = {**{name: getattr(args, name) for name in names}, "rows": Lineage.of(source, episodes).rows}
    file = work / "identity.json"
    if args.resume:
        if not file.is_file():
            raise RobotError(f"there is no training at {work}; leave out --resume to begin one")
        before = json.loads(file.read_text())
        other = [name for name, value in identity.items() if before.get(name) != value]
        if other:
            raise RobotError(
                f"{work} is a training with another {other[0]}, {str(before.get(other[0]))[:80]!r}; give the same "
                "options, or leave out --resume to begin anew"
            )
    elif work.exists():
        if not file.is_file():
            raise ValueError(f"{work} exists, and is no training; the training needs this folder until it ends")
        shutil.rmtree(work)
    work.mkdir(exist_ok=True)
    file.write_text(json.dumps(identity))
    return _root(args, source, episodes, work)


def _root(
    args: argparse.Namespace, source: SourceData, episodes: Sequence[int], work: Path
) -> tuple[Path, Sequence[int] | None]:
    """Return a LeRobot data set to train on, and the numbers of its episodes to use; None for all."""
    from recorder.formats.images import Filming
    from recorder.formats.registry import writable_format
    from recorder.table.combine import subset

    described = Path(args.set) / "meta" / "info.json"
    if described.is_file() and json.loads(described.read_text()).get("codebase_version") == _VERSION:
        return Path(args.set).absolute(), [source.table.episode_id(number).episode for number in episodes]
    names = source.table.layout.observation.names
    seen = _sees(source)
    if not seen and len(names) < 2:
        raise ValueError(
            f"{args.set} has no camera and one observation, {names[0]!r}; LeRobot's methods want a camera, or a state "
            "of the surroundings beside the robot's; use --trainer ours"
        )
    _, write = writable_format("lerobot")
    shutil.rmtree(work / "set", ignore_errors=True)
    write(subset(source.table, episodes), work / "set", Filming(embedded=True), environment=() if seen else names[1:])
    return (work / "set").absolute(), None


def _sees(source: SourceData) -> bool:
    from recorder.images.sources import ImageSources

    return bool(ImageSources(source.table).cameras()) or any(f.is_image for f in source.table.layout.observation)


def _command(
    args: argparse.Namespace, source: SourceData, root: Path, episodes: Sequence[int] | None, training: Path
) -> list[str]:
    import torch

    chunk = args.chunk or (16 if args.method == "diffusion" else 30)
    length = {"act": "chunk_size", "diffusion": "horizon"}[args.method]
    steps = args.execute or chunk // 2
    updates = args.updates or 3000
    given = shlex.split(args.lerobot)
    command = [
        sys.executable, "-m", "lerobot.scripts.lerobot_train",
        f"--dataset.repo_id=local/{root.name}", f"--dataset.root={root}", f"--policy.type={args.method}",
        f"--policy.{length}={chunk}", f"--policy.n_action_steps={steps}", "--policy.push_to_hub=false",
        f"--policy.device={'cuda' if torch.cuda.is_available() else 'cpu'}",
        f"--output_dir={training}", f"--steps={updates}", f"--batch_size={args.batch or 32}",
        f"--save_freq={-(-updates // _PARTS)}", f"--seed={args.seed}", "--wandb.enable=false", "--num_workers=0",
    ]  # fmt: skip
    rate = args.learning_rate or (_RATE if args.method == "act" else None)
    if rate is not None:
        command.append(f"--policy.optimizer_lr={rate}")
        command += [f"--policy.optimizer_lr_backbone={rate}"] * (args.method == "act")
    named = any(_BACKBONE in option for option in given)
    if args.method == "act" and not named and _sees(source) and not _has_weights():
        command.append(_RANDOM)
    if episodes is not None:
        command.append(f"--dataset.episodes={json.dumps(list(episodes))}")
    return [*command, *given]


def _has_weights() -> bool:
    """Return whether ACT's image network can begin with the weights that LeRobot names, those of ImageNet.

    They are loaded here if they are missing, unless ``HF_HUB_OFFLINE`` says that this machine has no network.
    """
    import torch

    if (Path(torch.hub.get_dir()) / "checkpoints" / _WEIGHTS).is_file():
        return True
    reason = "HF_HUB_OFFLINE is set"
    if os.environ.get("HF_HUB_OFFLINE", "0") in {"", "0"}:
        try:
            from torchvision.models import ResNet18_Weights

            ResNet18_Weights.IMAGENET1K_V1.get_state_dict(progress=True)
        except (OSError, ImportError, RuntimeError) as error:
            reason = f"{error}"
        else:
            return True
    say(
        f"note: ImageNet's weights, with which LeRobot's image network begins, can't be loaded ({reason}); it begins "
        "with random ones, and needs more updates"
    )
    return False


def _run(command: Sequence[str]) -> int:
    """Run LeRobot's training, and return its exit code; after Ctrl-C it has `_STOP_S` to end."""
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            try:
                process.wait(_STOP_S)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.kill()
            return INTERRUPTED


def _save_file(args: argparse.Namespace, source: SourceData, episodes: Sequence[int], folder: Path, out: Path) -> None:
    from rlenv_learn.imitation.set_training import described
    from rlenv_learn.lerobot import LeRobotPolicy
    from rlenv_learn.lerobot_file import save_lerobot_file

    about = json.loads((folder / _ABOUT).read_text())
    about |= {"trainer": f"lerobot {version('lerobot')} {args.method}", "seed": args.seed}
    known = described(source, episodes)
    most = save_lerobot_file(LeRobotPolicy(folder), out, str(known["name"]), about, entries={"set": known})
    say(f"{out} chooses as {folder} does by LeRobot, within {most:.1g} of an action's scale on random observations")


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
    (out / _ABOUT).write_text(json.dumps(about))
