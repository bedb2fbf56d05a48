"""List recorded episodes for the page, and compute the poses of the robot's bodies along each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from hal import RobotError, SourceError
from hal.field import JsonDict
from recorder.table.table import Table
from rlenv_operate.console.scene import Scene
from rlenv_robot.rendering.show import find_episode, frame_rate
from rlenv_robot.robot_models import RobotModel, find_robot_model

__all__ = ["Replays"]

_MOST_LISTED = 200
_MOST_FRAMES = 1500
"""Frames of an episode that a page is sent at most; of a longer one every second, third, ... is sent."""

Sensors = Mapping[str, np.ndarray]


class Replays:
    """The recorded episodes of a folder of runs, which is read again at each request. One thread at a time may use it.

    Args:
        folder: the folder of the runs, or another project's data set.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = folder

    def listing(self) -> list[JsonDict]:
        """Return the newest episodes: number, ``frames``, ``seconds``, ``task``, ``operator`` and ``verdict``.

        Raises:
            SourceError: there are no episodes.
        """
        table, last = find_episode(self._folder, -1)
        numbers = range(last, max(-1, last - _MOST_LISTED), -1)
        return [self._entry(table, number) for number in numbers]

    def _entry(self, table: Table, number: int) -> JsonDict:
        info, frames = table.episodes[number], int(table.stops[number] - table.starts[number])
        return {
            "episode": number, "frames": frames, "seconds": round((frames - 1) / frame_rate(table, number), 1),
            "task": str(info.get("task") or ""), "operator": str(info.get("operator") or info.get("policy") or ""),
            "verdict": str(info.get("verdict") or ""),
        }  # fmt: skip

    def load(self, episode: int, *, simulated: bool = False) -> JsonDict:
        """Return one episode.

        Args:
            episode: its number.
            simulated: whether to return the nominal simulation under the episode's applied commands, from its first
                pose, instead of the measurements.

        Returns:
            ``episode``, ``simulated``, ``rate_hz`` (of the returned frames), ``poses`` (`Scene.pose` of each), and
            ``scene`` (`Scene.describe`).

        Raises:
            SourceError: there is no such episode, or its robot can't be drawn or simulated.
        """
        table, number = find_episode(self._folder, episode)
        model = _model(table, number)
        scene = Scene(model.make_sim_model())
        rows = table.rows[int(table.starts[number]) : int(table.stops[number])]
        frames = _simulated(model, table, rows) if simulated else _measured(table, rows)
        stride = -(-len(rows) // _MOST_FRAMES)
        poses = [scene.pose(sensors) for at, sensors in enumerate(frames) if at % stride == 0]
        if not all(poses):
            raise SourceError(f"episode {number} has no pose that can be drawn")
        rate_hz = frame_rate(table, number) / stride
        return {
            "episode": number, "simulated": simulated, "rate_hz": rate_hz, "poses": poses, "scene": scene.describe()
        }  # fmt: skip


def _model(table: Table, number: int) -> RobotModel:
    name = table.episodes[number].get("robot")
    if not isinstance(name, str):
        raise SourceError(f"episode {number} of {table.origin} does not say which robot it is of, so it can't be drawn")
    try:
        return find_robot_model(name)
    except ValueError as error:
        raise SourceError(f"episode {number} can't be drawn: there is no model of the robot {name!r} here") from error


def _measured(table: Table, rows: np.ndarray) -> Iterator[Sensors]:
    names = table.layout.sensors.names
    for row in rows:
        yield {name: np.asarray(row[f"sensor_{name}"]) for name in names}


def _simulated(model: RobotModel, table: Table, rows: np.ndarray) -> Iterator[Sensors]:
    """Yield the sensors of the nominal simulation, which starts at the first measured pose."""
    from sim.robot import SimRobot

    robot, names = SimRobot(model.make_sim_model(looks=False)), table.layout.applied.names
    measured_by = robot.spec.measured_by
    start = {name: np.asarray(rows[0][f"sensor_{sensor}"]) for name, sensor in measured_by.items()}
    legal = {name: np.clip(value, *robot.spec.commands[name].bounds) for name, value in start.items()}
    try:
        yield robot.reset({"start": legal, "seed": 0}).sensors
        for row in rows[1:]:
            yield robot.step({name: np.asarray(row[f"applied_{name}"]) for name in names}).sensors
    except RobotError as error:
        raise SourceError(f"the episode can't be simulated: {error}") from error
    finally:
        robot.close()
