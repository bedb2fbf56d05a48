"""Turn a recorded run into a regression test that the simulation stays as close to the run as it is now.

The goals of the run are replayed open loop (`rlenv_sim2real.gap`). The offset, the lag and the root mean square of each
joint are stored. A later replay must reproduce them within bounds that a change of 2 degrees or of 20 milliseconds
exceeds. The replay is deterministic, so the bounds need no margin for chance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from hal.field import JsonDict
from rlenv_robot.data.folder import read_folder
from rlenv_robot.robot_models import load_robot_model
from rlenv_sim2real.gap import EpisodeGap, JointGap, measure_gap
from rlenv_sim2real.motion import read_motions
from rlenv_sim2real.open_loop import replay_model

__all__ = ["Bounds", "Replayed", "differences", "measure", "module_text"]

Figures = dict[str, dict[str, dict[str, float | None]]]
"""Episode -> joint -> ``offset_deg``, ``lag_ms`` (None for a joint that is still) and ``rms_deg``."""


@dataclass(frozen=True)
class Bounds:
    """The largest allowed changes; each is half of the change that must be detected.

    Attributes:
        offset_deg: change of the mean difference, degrees.
        lag_ms: change of the lag, milliseconds.
        rms_deg: increase of the root mean square, degrees.
    """

    offset_deg: float = 1.0
    lag_ms: float = 10.0
    rms_deg: float = 1.0


@dataclass(frozen=True)
class Replayed:
    """A run, and the simulation to compare it with.

    Attributes:
        log: path of the run or data set.
        model: name of the simulation, see `rlenv_sim2real.open_loop.replay_model`.
        robot: the robot model that recorded it, as `rlenv_robot.robot_models.load_robot_model` takes it.
        units: the units of a LeRobot data set.
        calibration: the calibration of a LeRobot data set.
        contacts: whether parts collide with each other and with the table.
        episodes: their numbers; None takes all.
        frames: episode -> first frame, and the frame after the last or None.
    """

    log: str
    model: str
    robot: str
    units: str | None = None
    calibration: str | None = None
    contacts: bool = False
    episodes: Sequence[int] | None = None
    frames: Mapping[int, tuple[int, int | None]] | None = None


def measure(replayed: Replayed, folder: Path | None = None) -> Figures:
    """Replay a run, and return the figures of each episode and joint.

    Args:
        replayed: the run and the simulation.
        folder: base of relative paths; None is the working directory.

    Raises:
        SourceError: there are no recorded data, or the physics failed.
        LogError: the log can't be read.
        ValueError: the model is unknown, or the units are not allowed.
    """
    root = folder or Path()
    calibration = None if replayed.calibration is None else str(root / replayed.calibration)
    table = read_folder(root / replayed.log, units=replayed.units, calibration=calibration)
    name = str(root / replayed.model) if replayed.model.endswith((".toml", ".xml")) else replayed.model
    model = replay_model(name, load_robot_model(replayed.robot), replayed.contacts)
    frames = {int(episode): (first, last) for episode, (first, last) in (replayed.frames or {}).items()}
    motions = read_motions(table, model.sim_model, replayed.episodes, frames)
    return {str(motion.episode): _figures(measure_gap(model, motion)[0]) for motion in motions}


def _figures(gap: EpisodeGap) -> dict[str, dict[str, float | None]]:
    return {joint.name: _of_joint(joint) for joint in gap.joints}


def _of_joint(joint: JointGap) -> dict[str, float | None]:
    lag = joint.lag.lag_s
    return {
        "offset_deg": round(math.degrees(joint.lag.offset), 3),
        "lag_ms": None if math.isnan(lag) else round(1000 * lag, 1),
        "rms_deg": round(math.degrees(joint.rms), 3),
    }


def differences(kept: Figures, measured: Figures, bounds: Bounds) -> list[str]:
    """Return a line for each figure that is out of bounds."""
    lines = []
    for episode, joints in kept.items():
        for joint, figures in joints.items():
            now = measured.get(episode, {}).get(joint)
            if now is None:
                lines.append(f"episode {episode}, {joint}: the replay has no such joint")
                continue
            for name, most in asdict(bounds).items():
                before, after = figures[name], now[name]
                if before is None or after is None:
                    changed = before is not after
                else:
                    change = after - before
                    changed = not (change <= most if name == "rms_deg" else abs(change) <= most)
                if changed:
                    lines.append(f"episode {episode}, {joint}: {name} is {after}, was {before}, may change by {most:g}")
    return lines


def module_text(replayed: Replayed, figures: Figures, bounds: Bounds) -> str:
    """Return the source of a test module for pytest; its paths are relative to its own folder."""
    setting: JsonDict = {name: value for name, value in asdict(replayed).items() if value not in (None, False)}
    arguments = "".join(f"    {name}={value!r},\n" for name, value in setting.items())
    limits = ", ".join(f"{name}={value:g}" for name, value in asdict(bounds).items())
    rows = "".join(
        f"    {json.dumps(episode)}: {{\n"
        + "".join(f"        {json.dumps(joint)}: {values!r},\n" for joint, values in joints.items())
        + "    },\n"
        for episode, joints in figures.items()
    )
    return (
        '"""The simulation stays as near to a recorded run as it was. Written by `rlenv-robot sim2real regress`."""\n\n'
        "from pathlib import Path\n\n"
        "import pytest\n\n"
        "from rlenv_sim2real.regression import Bounds, Replayed, differences, measure\n\n"
        f"REPLAYED = Replayed(\n{arguments})\n"
        f"BOUNDS = Bounds({limits})\n"
        f"FIGURES = {{\n{rows}}}\n\n\n"
        '@pytest.fixture(scope="module")\n'
        "def measured():\n"
        "    return measure(REPLAYED, Path(__file__).parent)\n\n\n"
        '@pytest.mark.parametrize("episode", FIGURES)\n'
        "def test_the_simulation_is_as_near_to_the_run_as_it_was(episode, measured):\n"
        "    assert differences({episode: FIGURES[episode]}, measured, BOUNDS) == []\n"
    )
