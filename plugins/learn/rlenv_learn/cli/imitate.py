"""``rlenv-robot imitate``: learn a policy from any recorded set."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import add_filters, add_reading, chosen, has_filters, location, reading_options
from rlenv_robot.cli.output import INTERRUPTED, counted, progress_bars, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recorder.json_data import JsonDict
    from rlenv_learn.imitation.held_out import HeldOutError
    from rlenv_learn.imitation.set_training import SetSettings, SetTraining
    from rlenv_robot.cli.output import Advance
    from rlenv_robot.source import SourceData
    from rlenv_robot.tasks.task import Task

__all__ = ["add", "run"]

_SAVED_S = 30.0
"""Time between two states of a training that are written, seconds."""
_LEAST_ACTIONS, _MOST_ACTIONS = 16, 64
"""Smallest and largest chunk by default; the first is that of Chi et al."""
_FEW = 20_000
"""Steps up to which a set with cameras is taken to be too small for a network from images."""
_RATE = 1e-3
"""Largest step size of our training by default."""
_TRAINERS = ("ours", "lerobot")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Learn a policy from recorded episodes of any robot, in any format that `rlenv-robot data` reads, without a "
        "simulation. The policy observes the set's numbers and cameras, and predicts chunks of the set's actions; its "
        "file has the set's names, units and normaliser. The error on held-out episodes is compared with that of "
        "predictions that need no learning."
    )
    parser.epilog = """
Examples:

  rlenv-robot imitate my-set --out policy.onnx
  rlenv-robot imitate my-set --method flow --observation state --cameras top,wrist --size 96x128 --out policy.onnx
  rlenv-robot imitate so101-set --units degrees --out policy.onnx
  rlenv-robot run so101-reach --policy policy.onnx --robot tcp://10.0.0.7:5555
"""
    parser.add_argument("set", type=location, help="a folder of recorded runs, or a data set or its address")
    parser.add_argument(
        "--out", required=True, metavar="P", help="the policy's file, ending in .onnx; of LeRobot also a folder"
    )
    parser.add_argument(
        "--method", choices=("act", "diffusion", "flow", "nearest"),
        help="action chunking with transformers, diffusion, flow matching, or the recorded frame nearest to the "
        "present one (default: nearest with cameras and at most 20,000 steps, else act)",
    )  # fmt: skip
    parser.add_argument("--trainer", choices=_TRAINERS, default="ours", help="whose training code (default: ours)")
    parser.add_argument("--observation", metavar="FIELD,...", help="observed fields of numbers, or none (default: all)")
    parser.add_argument("--cameras", metavar="NAME,...", help="observed cameras, or none (default: all)")
    parser.add_argument(
        "--size", type=_size, metavar="HxW", help="size to which images are reduced (default: 96 at the shorter side)"
    )
    parser.add_argument(
        "--task", metavar="NAME", help="the task that the runs are of, whose hints for learning are used"
    )
    group = parser.add_argument_group("training")
    group.add_argument("--chunk", type=int, help="actions that are predicted at once (default: those of a second)")
    group.add_argument("--history", type=int, help="observations that the policy takes (default: 2; 1 for nearest)")
    group.add_argument(
        "--execute", type=int, help="actions of a chunk that are executed before the next one; 0: the mean of all "
        "predictions for a step (default: 0 for act, 1 for nearest, else half of a chunk)",
    )  # fmt: skip
    group.add_argument(
        "--updates", type=int, help="number of updates (default: 3000 for act, 1 for nearest, else 4000)"
    )
    group.add_argument("--batch", type=int, help="windows in each update (default: 64, with cameras 32)")
    group.add_argument("--learning-rate", type=float, help="largest step size (default: 0.001; LeRobot's act 0.0001)")
    group.add_argument("--width", type=int, help="width of the network (default: 96 for act, else 64)")
    group.add_argument("--layers", type=int, help="layers of the network (default: 1 for act, else 4)")
    group.add_argument(
        "--actions", choices=("relative", "absolute"),
        help="whether actions are counted from an observed field (default: if one explains most of them)",
    )  # fmt: skip
    group.add_argument(
        "--noise",
        type=float,
        help="noise on observed numbers in training, in half their range (default: less for more steps)",
    )
    group.add_argument(
        "--held-out",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="share of held-out episodes; 0: none (default: 0.1)",
    )
    group.add_argument("--seed", type=int, default=0, help="seed of all random draws (default: 0)")
    group.add_argument(
        "--lerobot",
        metavar="OPTIONS",
        default="",
        help='further options of lerobot-train, such as --lerobot="--policy.dim_model=256"',
    )
    group.add_argument("--resume", action="store_true", help="go on from the state beside the policy's file")
    add_filters(parser)
    add_reading(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, measure the error on held-out episodes, and save the policy."""
    try:
        import torch
    except ImportError as error:
        raise ValueError("imitate needs PyTorch: pip install 'rlenv-robot[train,onnx]'") from error
    out = _checked_out(args)
    source, task = _source(args)
    train, test = _episodes(source, args)
    if args.trainer == "lerobot":
        args.method = args.method or "act"
        from rlenv_learn.cli.lerobot_trainer import train_by_lerobot

        return train_by_lerobot(args, source, train)
    args.method = args.method or _method(args, source, train)
    training = _training(args, source, train, task)
    if not training.fields.images:
        torch.set_num_threads(1)  # several threads only wait for each other in networks without convolutions of images
    say(_description(training, len(test)))
    state = out.with_suffix(".state")
    if args.resume:
        from rlenv_learn.training_state import TrainingState

        training.restore(TrainingState.load(state), state)
    began = time.monotonic()
    if not _learn(training, state, args.method):
        say(
            f"stopped after {training.learner.done} of {training.settings.updates} updates; "
            "go on with the same command and --resume"
        )
        return INTERRUPTED
    about: JsonDict = {"trainer": f"imitate {args.method}", "updates": training.settings.updates, "seed": args.seed}
    if test:
        errors = _held_out(training, test)
        say(_error_line(errors, len(test), training.settings.chunk))
        about["held_out"] = errors._asdict()
    training.save(out, about)
    state.unlink(missing_ok=True)
    say(f"{out}: {args.method}, {training.settings.updates} updates in {time.monotonic() - began:.0f} s")
    for line in _next_steps(training, out):
        say(line)
    return 0


def _source(args: argparse.Namespace) -> tuple[SourceData, Task | None]:
    """Return the set with its filtered episodes alone, and the task."""
    from recorder.formats.registry import recognised
    from recorder.table.combine import subset
    from rlenv_robot.registry import task
    from rlenv_robot.source import SourceData, open_source

    options = reading_options(args)
    known = recognised(args.set)
    if options["keep_last"] is None and known is not None and "keep_last" in known.options:
        options["keep_last"] = True
    chosen_task = None if args.task is None else task(args.task)
    source = open_source(args.set, task=chosen_task, **options)
    for note in source.table.notes:
        say(f"note: {note}")
    if has_filters(args):
        source = SourceData(subset(source.table, chosen(source.table, args)))
    return source, chosen_task


def _episodes(source: SourceData, args: argparse.Namespace) -> tuple[list[int], list[int]]:
    """Return the indices of the episodes to learn from, and of those that are held out."""
    import numpy as np

    if args.held_out:
        return source.split(args.held_out, args.seed)
    return np.flatnonzero(source.transitions.lengths).tolist(), []


def _training(args: argparse.Namespace, source: SourceData, train: Sequence[int], task: Task | None) -> SetTraining:
    from rlenv_learn.imitation.set_training import SetTraining

    settings = _settings(args, source, train)
    with progress_bars(lines=False) as bars:
        advance = bars.begin("decode images")
        return SetTraining(
            source, train, settings, task, lambda done, total: advance(done, f"{done} of {total}", total=total)
        )


def _settings(args: argparse.Namespace, source: SourceData, train: Sequence[int]) -> SetSettings:
    from rlenv_learn.imitation.set_training import METHODS, SetSettings, recorded_rate_hz

    defaults = METHODS[args.method]
    given = {name: getattr(args, name) for name in defaults._fields if getattr(args, name) is not None}
    chunk = args.chunk or _chunk(recorded_rate_hz(source), int(source.transitions.lengths[train].max()))
    execute = {"act": 0, "nearest": 1}.get(args.method, -(-chunk // 2)) if args.execute is None else args.execute
    return SetSettings(
        args.method, chunk, execute=execute, batch=args.batch or (32 if _sees(source, args) else 64),
        **{**defaults._asdict(), **given},
        rate=_RATE if args.learning_rate is None else args.learning_rate,
        relative=None if args.actions is None else args.actions == "relative",
        observation=_names(args.observation), cameras=_names(args.cameras),
        size=args.size, noise=args.noise, seed=args.seed,
    )  # fmt: skip


def _method(args: argparse.Namespace, source: SourceData, train: Sequence[int]) -> str:
    """Return the nearest frame for a small set with cameras, unless options of a network are given; else ACT."""
    small = int(source.transitions.lengths[train].sum()) <= _FEW
    asked = (args.updates, args.history, args.width, args.layers, args.batch)
    return "nearest" if small and _sees(source, args) and all(one is None for one in asked) else "act"


def _sees(source: SourceData, args: argparse.Namespace) -> bool:
    """Return whether the policy observes images."""
    from recorder.images.sources import ImageSources

    cameras = _names(args.cameras)
    if cameras is not None:
        return bool(cameras)
    return bool(ImageSources(source.table).cameras()) or any(f.is_image for f in source.table.layout.observation)


def _chunk(rate_hz: float | None, longest: int) -> int:
    """Return the length of a chunk: a second, within bounds; at an unknown rate the lower bound."""
    return min(longest, max(_LEAST_ACTIONS, min(_MOST_ACTIONS, round(rate_hz or 0))))


def _description(training: SetTraining, held_out: int) -> str:
    fields, source = training.fields, training.source
    observed = ", ".join(f"{field.name} {_shape(field.shape)}" for field in fields.observation)
    actions = ", ".join(
        f"{field.name} {_shape(field.shape)}"
        + (f" counted from {fields.anchors[field.name]}" if field.name in fields.anchors else "")
        for field in fields.action
    )
    return (
        f"{Path(source.table.origin).name}: {counted(len(training.episodes), 'episode')} with "
        f"{counted(len(training.windows), 'step')} to learn from, {held_out} held out; observed: {observed}; "
        f"predicted: {training.settings.chunk} x {actions}"
    )


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def _learn(training: SetTraining, state: Path, method: str) -> bool:
    """Take all updates, and return whether the user let them end; the state is written now and then."""
    learner, updates = training.learner, training.settings.updates
    saved, loss = time.monotonic(), 0.0
    with progress_bars() as bars:
        advance = bars.begin(f"learn by {method}", updates)
        try:
            while learner.done < updates:
                step = training.update()
                loss = step if not loss else loss + 0.02 * (step - loss)
                _report(advance, learner.done, loss)
                if time.monotonic() - saved > _SAVED_S:
                    training.state().save(state)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            training.state().save(state)
            return False
    return True


def _report(advance: Advance, done: int, loss: float) -> None:
    advance(done, f"update {done}, loss {loss:.4f}")


def _held_out(training: SetTraining, test: Sequence[int]) -> HeldOutError:
    from rlenv_learn.imitation.held_out import held_out_error
    from rlenv_learn.imitation.set_windows import SetWindows

    windows = SetWindows(training.source, training.fields, test, training.frames)
    return held_out_error(training.policy.predict, training.windows, windows, training.settings.seed)


def _error_line(error: HeldOutError, episodes: int, chunk: int) -> str:
    advice = "by this error the policy is no better than a guess: more episodes or another --method may help"
    verdict = "" if error.is_better else f"; {advice}"
    return (
        f"held out ({counted(episodes, 'episode')}, by which nothing was chosen): RMS error of the next "
        f"{counted(chunk, 'action')} at {error.windows} steps, in standard deviations: "
        f"{error.policy:.3f} (the mean action {error.mean:.3f}, the last action or position held {error.held:.3f})"
        f"{verdict}"
    )


def _next_steps(training: SetTraining, out: Path) -> list[str]:
    """Return lines that say how the policy's file is used: by a command where a robot of ours has its fields."""
    from rlenv_learn.policies.joint_units import is_so101

    about, fields = training.description(), training.fields
    name = shlex.quote(str(out))
    if (task := _task_of(training)) is not None:
        return [f"next: rlenv-robot run {task} --policy {name}   (the simulation; --robot ADDRESS for a served one)"]
    info = training.source.table.episodes[training.episodes[0]]
    if info.get("robot") and info.get("task") == info["robot"]:  # recorded without a task (rlenv_robot.tasks.free)
        return [f"next: rlenv-robot run free --policy {name} --robot ADDRESS   (the served robot)"]
    if is_so101(about.get("robot"), fields.observation, fields.action):
        if "joints" in about:
            return [f"next: rlenv-robot run so101-reach --policy {name} --robot ADDRESS   (joints are converted)"]
        return ["next: to run it on an SO-101, train again with --units degrees or percent: the set does not say which"]
    rate = about["rate_hz"]
    observed = ", ".join(f'"{field.name}": {field.dtype} {_shape(field.shape)}' for field in fields.observation)
    acted = ", ".join(f"{field.name} {_shape(field.shape)}" for field in fields.action)
    pace = "once for each frame, at the set's own rate" if rate is None else f"{rate:g} times a second"
    return [
        f"next: policy = rlenv_robot.load_policy({str(out)!r}); policy.reset() at the beginning of an episode, then "
        f"{pace}",
        f"      policy.act({{{observed}}}) returns {acted}, all in the set's units",
        f"or for a simulator in an environment of its own: rlenv-robot policy serve {name} --as openpi",
    ]


def _task_of(training: SetTraining) -> str | None:
    """Return the registered task of the set whose fields the policy has; None if there is none."""
    from rlenv_robot.registry import find_task

    info, fields = training.source.table.episodes[training.episodes[0]], training.fields
    try:
        task = find_task(str(info.get("task") or info.get("world") or ""))
    except ValueError:
        return None
    known = {field.name for field in task.observation}
    fits = known >= set(fields.observation.names) and not task.action.difference(fields.action)
    return task.name if fits else None


def _checked_out(args: argparse.Namespace) -> Path:
    path = Path(args.out)
    if args.trainer == "ours" and path.suffix != ".onnx":
        raise ValueError(f"--out is {args.out!r}, but the policy's file ends in .onnx")
    if not path.parent.is_dir():
        raise ValueError(f"--out is {args.out!r}, but there is no folder {str(path.parent)!r}; make it first")
    return path


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return () if text == "none" else tuple(name.strip() for name in text.split(",") if name.strip())


def _size(text: str) -> tuple[int, int]:
    height, cross, width = text.partition("x")
    if not (cross and height.isdecimal() and width.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write height x width, such as 96x128")
    return int(height), int(width)
