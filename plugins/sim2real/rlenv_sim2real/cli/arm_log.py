"""Read the motions of an arm from the log named on a command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlenv_robot.cli.data.selection import Choice, choice

if TYPE_CHECKING:
    from hal.robot import Range
    from recorder.table.table import Table
    from rlenv_robot.robot_models import RobotModel
    from rlenv_sim2real.motion import RecordedMotion
    from sim.model import SimModel

__all__ = [
    "add_log",
    "add_replay",
    "chosen_episodes",
    "frames_of",
    "gap_lines",
    "log_motions",
    "open_log",
    "recorded_gain",
    "recorded_gains",
    "recorded_robot_model",
]


def add_log(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """Declare the arguments that name recorded data and the robot that recorded them."""
    parser.add_argument(
        "logs" if several else "log", metavar="LOG", type=Path, nargs="+" if several else None,
        help="a run, a folder of runs, or a LeRobot data set",
    )  # fmt: skip
    parser.add_argument("--robot", help="the robot model that recorded it, such as so101 (default: from the data)")
    parser.add_argument("--units", choices=("degrees", "percent"), help="of the joints of a LeRobot data set")
    parser.add_argument("--calibration", metavar="FILE", help="LeRobot's calibration of the arm that recorded it")


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that name the simulation of a replay and the part of the data to replay."""
    words = "sim, twin, twin:SEED, a profile (.toml), or another robot model (default: sim)"
    parser.add_argument("--model", default="sim", metavar="MODEL", help=words)
    parser.add_argument("--episode", metavar="N,...", help="only these episodes, such as 0,2-5")
    parser.add_argument(
        "--frames", metavar="E:A-B", action="append", default=[], help="only frames A to B of episode E"
    )
    parser.add_argument("--contacts", action="store_true", help="let the arm collide with itself and its table")


def open_log(path: Path, args: argparse.Namespace) -> Table:
    """Read the table at a path, in the units given by the arguments.

    Raises:
        SourceError: the path holds no recorded data.
        LogError: the log can't be read.
        ValueError: the units or the calibration are not allowed.
    """
    from rlenv_robot.data.folder import read_folder

    return read_folder(path, units=args.units, calibration=args.calibration)


def recorded_robot_model(table: Table, args: argparse.Namespace) -> RobotModel:
    """Return the model of the robot that recorded a table: the one given by the arguments, else that of the data.

    Raises:
        ValueError: neither names a robot, or no robot model of that name is registered.
    """
    from rlenv_robot.robot_models import find_robot_model, load_robot_model
    from rlenv_sim2real.motion import robot_of

    if args.robot:
        return load_robot_model(args.robot)
    name = robot_of(table)
    if name is None:
        raise ValueError(f"{table.origin} does not say which robot recorded it; name it: --robot so101")
    try:
        return find_robot_model(name)
    except ValueError as error:
        raise ValueError(f"{table.origin}: {error}; if it is another one, name it: --robot ROBOT") from error


def recorded_gains(paths: Iterable[Path]) -> Mapping[str, Range] | None:
    """Return the gains of the robot's first joint, if all runs at these paths declare the same; else None.

    Args:
        paths: the paths of runs, folders of runs, or data sets; the latter declare no gains.
    """
    from hal import LogError, RobotSpec
    from recorder.read.reader import LogReader
    from rlenv_robot.data.folder import runs_at

    found: list[Mapping[str, Range] | None] = []
    for run in [run for path in paths for run in (runs_at(path) or [path])]:
        try:
            plain = LogReader(run).metadata.get("robot_spec")
        except (LogError, OSError):
            return None
        actuation = None if plain is None else RobotSpec.from_dict(plain).actuation
        found.append(None if actuation is None else next(iter(actuation.gains.values()), None))
    return found[0] if found and all(gains == found[0] for gains in found) else None


def recorded_gain(path: Path) -> float | None:
    """Return the gain register P that all runs at a path declare for the robot's first joint; None if they do not.

    Raises:
        ValueError: the runs declare different gains, so that one stiffness does not hold for all of them.
    """
    from rlenv_robot.data.folder import runs_at

    runs = runs_at(path) or {path}
    found = {None if gains is None else gains.get("p") for gains in (recorded_gains([run]) for run in runs)}
    if len(found) > 1:
        raise ValueError(f"the runs in {path} declare several gains P; name each run by itself: {path}/RUN ...")
    gain = found.pop()
    return None if gain is None or gain.low != gain.high else gain.low


def frames_of(texts: Sequence[str]) -> dict[int, tuple[int, int | None]]:
    """Parse ``EPISODE:FIRST-LAST`` or ``EPISODE:FIRST-``; both frames are included.

    Raises:
        ValueError: a string has neither form.
    """
    frames: dict[int, tuple[int, int | None]] = {}
    for text in texts:
        episode, _, part = text.partition(":")
        first, dash, last = part.partition("-")
        if not (episode.isdigit() and first.isdigit() and dash and (not last or last.isdigit())):
            raise ValueError(f"--frames is {text!r}, expected EPISODE:FIRST-LAST, such as 0:40-344 or 0:40-")
        if last and int(last) <= int(first):
            raise ValueError(f"--frames is {text!r}, its last frame must be later than its first")
        frames[int(episode)] = (int(first), int(last) + 1 if last else None)
    return frames


def chosen_episodes(text: str | None, table: Table) -> list[int] | None:
    """Return the episode indices of a choice such as ``0,2-5``; None if the choice is None.

    Raises:
        ValueError: the text is not a choice, or an episode does not exist.
    """
    if text is None:
        return None
    try:
        chosen: Choice = choice(text)
    except argparse.ArgumentTypeError as error:
        raise ValueError(str(error)) from error
    return chosen.among(range(len(table.starts)))


def log_motions(
    table: Table,
    sim_model: SimModel,
    episodes: Sequence[int] | None,
    frames: Mapping[int, tuple[int, int | None]],
) -> list[RecordedMotion]:
    """Return the motions of the chosen episodes.

    Raises:
        SourceError: the data don't contain the robot's joints.
    """
    from rlenv_sim2real.motion import read_motions

    return read_motions(table, sim_model, episodes, frames)


# -- The gap of a run that was just recorded -----------------------------------------------------------------


def gap_lines(runs: Iterable[Path]) -> list[str]:
    """Measure the gap of runs to the nominal simulation, save it beside their logs, and return lines about it.

    Args:
        runs: new runs. A run of a robot with a free base or without a simulation gives no line, and errors are ignored,
            since the gap is a by-product of the run.

    Returns:
        The last episode's gap, and an alarm for each joint that deviates from earlier runs in the same folder.
    """
    from hal import RobotError
    from rlenv_robot.data.folder import read_folder
    from rlenv_robot.robot_models import find_robot_model
    from rlenv_sim2real.drift import drifts, earlier_gaps, save_gaps
    from rlenv_sim2real.gap import measure_gap
    from rlenv_sim2real.motion import read_motions, robot_of
    from rlenv_sim2real.open_loop import replay_model

    lines = []
    for run in runs:
        try:
            table = read_folder(run)
            robot = robot_of(table)
            if robot is None:
                continue
            model = replay_model("sim", find_robot_model(robot))
            gaps = [measure_gap(model, motion)[0] for motion in read_motions(table, model.sim_model)]
            history = earlier_gaps(run.parent, run)
            save_gaps(run, gaps)
            lines.append(gaps[-1].line())
            lines += [f"episode {gap.episode}: {drift.line()}" for gap in gaps for drift in drifts(gap, history)]
        except (RobotError, ValueError, OSError):
            continue
    return lines
