"""Showing what was recorded: an episode as a window, pictures, a video, a plot, a montage of everything (R1.5)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hal import RobotError, SourceError, SpecError
from rlenv_robot.rendering.drawing import draw, window, write_image
from rlenv_robot.robot_models import RobotModel, find_robot_model, is_model_file, robot_names

if TYPE_CHECKING:
    from recorder.images.images import Images
    from recorder.table.table import Table

__all__ = ["chosen", "episode_frames", "rate_of", "render_history", "twin"]

_POSES = ("_position", "_orientation")
"""How sensors are called that may tell a pose."""


def episode_frames(path: str | Path, episode: int, options: Mapping[str, Any] | None = None) -> tuple[Any, float]:
    """The pictures of a recorded episode, and how many a second it had.

    Args:
        path: a run, a folder of runs, or a foreign data set.
        episode: its number; negative ones count from the end.
        options: see `draw`.

    Raises:
        SourceError: no such episode, or nothing in it to draw.
    """
    table, number = chosen(path, episode)
    return twin(table, number, options or {}), rate_of(table, number)


def twin(table: Table, episode: int, options: Mapping[str, Any], frames: slice = slice(None)) -> Iterator[np.ndarray]:
    """Pictures of the simulated twin in the poses that an episode measured, one a frame; options as for `draw`.

    Args:
        table: with the episode.
        episode: its index in the table.
        options: see `draw`.
        frames: which of the episode.

    Raises:
        SourceError: the episode has no joint positions, or its robot's model file is gone.
    """
    rows, info = table.rows[table.starts[episode] : table.stops[episode]][frames], table.episodes[episode]
    sensors = _measured(rows) or (_measured(rows, "observation_") if "robot" in info else {})
    if not any(name.endswith(_POSES) for name in sensors):
        raise SourceError(
            f"{table.origin} records no joint_position of a robot that is known here, so none can be drawn from it; "
            "--plot FILE draws the numbers"
        )
    return draw(_model_of(table, info), sensors, info.get("goal") or {}, options)


def _measured(rows: np.ndarray, prefix: str = "sensor_") -> dict[str, np.ndarray]:
    """What was measured by name; data sets of others keep it as what was observed."""
    return {name.removeprefix(prefix): rows[name] for name in rows.dtype.names or () if name.startswith(prefix)}


def _model_of(table: Table, info: Mapping[str, Any]) -> RobotModel:
    """The kind of robot that recorded an episode; a MuJoCo model's own run names its file as the task."""
    robot, task = str(info.get("robot") or "so101"), str(info.get("task"))
    if robot in robot_names() or not is_model_file(task):
        robot = robot.split("_")[0]  # LeRobot calls the arm so101_follower
        if robot not in robot_names():
            raise RobotError(f"a {robot!r} can't be drawn, only {', '.join(robot_names())}")
        return find_robot_model(robot)
    try:
        return find_robot_model(task)
    except SpecError as error:
        raise SourceError(
            f"{table.origin} was recorded with the model {task}, without which its robot can't be drawn; go to the "
            f"folder from which it is found: {error}"
        ) from error


def rate_of(table: Table, episode: int) -> float:
    """Frames a second of an episode; `recorder.figures.montage.NO_CLOCK_HZ` where the data have no clock."""
    from recorder.figures.montage import NO_CLOCK_HZ

    stamps = table.rows["stamp_ns"][table.starts[episode] : table.stops[episode]]
    span = float(stamps[-1] - stamps[0]) / 1e9
    return (len(stamps) - 1) / span if span > 0 else NO_CLOCK_HZ


def chosen(path: str | Path, episode: int) -> tuple[Table, int]:
    """A table and the index of an episode in it, from 0; negative ones count from the end.

    Raises:
        SourceError: there is no such episode, or no data.
    """
    from rlenv_robot.data.folder import read_folder

    table = read_folder(Path(path))
    count = len(table.starts)
    if not -count <= episode < count:
        raise SourceError(f"{path} has no episode {episode}, it has {count}: 0 to {count - 1}, or -1 for the last")
    return table, episode % count


def render_history(
    path: str | Path,
    episode: int = -1,
    video: str | Path | None = None,
    plot: str | Path | None = None,
    *,
    montage: bool = False,
    step: int | None = None,
    frames: str | Path | None = None,
    fine: bool | None = None,
) -> tuple[str, ...]:
    """Show a recorded episode again (R1.5): as files, or, if none is asked for, in a window.

    Args:
        path: a run, a folder of runs, or a foreign data set.
        episode: its number; negative ones count from the end.
        video: a file to write, ``.mp4`` (VP9, which browsers play).
        plot: a file to write: ``.png``, ``.svg`` or ``.pdf``, or ``.mp4`` for one that moves.
        montage: all cameras, the simulated twin and the signals on one timeline, rather than the twin alone.
        step: only this frame of the episode, counted from 0; negative ones from the end.
        frames: a folder to write the pictures to, ``000000.png`` and so on.
        fine: the twin with shadows and smooth edges, which takes several times as long where no GPU draws; None does
            so for a single step.

    Returns:
        What could not be shown, a sentence each.

    Raises:
        SourceError: no such data, episode or step.
        RobotError: nothing here can draw.
    """
    table, number = chosen(path, episode)
    notes: list[str] = []
    if plot is not None:
        _plot(table, number, Path(plot))
    if plot is not None and video is None and frames is None:
        return ()
    look = {"fine": step is not None if fine is None else fine}
    length = int(table.stops[number] - table.starts[number])
    if step is not None and not -length <= step < length:
        raise SourceError(f"episode {number} has no frame {step}, it has 0 to {length - 1}, or -1 for the last")
    wanted = slice(None) if step is None else slice(step % length, step % length + 1)
    images: Iterator[np.ndarray]
    if montage:
        images = itertools.islice(_montage(table, number, notes, look), wanted.start, wanted.stop)
    else:
        images = twin(table, number, look, wanted)
    images = itertools.chain([next(images)], images)  # what can't be drawn is said before a file is begun
    if frames is not None:
        images = _kept(images, Path(frames), (step or 0) % length)
    if video is not None:
        from recorder.images.video import write_video

        write_video(Path(video), images, rate_of(table, number))
    elif frames is not None:
        for _ in images:
            pass
    else:
        _play(str(path), images, rate_of(table, number), hold=step is not None)
    return tuple(notes)


def _plot(table: Table, episode: int, path: Path) -> None:
    if path.suffix != ".mp4":
        from recorder.figures.plot import plot_episode

        plot_episode(table, episode, path)
        return
    from recorder.figures.montage import Montage
    from recorder.images.video import write_video

    write_video(path, Montage(table, episode, {}).frames(), rate_of(table, episode))


def _montage(table: Table, episode: int, notes: list[str], look: Mapping[str, Any]) -> Iterator[np.ndarray]:
    """All that can be shown of an episode; what can't is noted."""
    from recorder.figures.montage import Montage

    tiles = {f"camera {name}": images for name, images in _cameras(table, episode, notes)}
    for title, camera in (("simulated twin", "view"), ("simulated twin, from above", "overhead"))[: 1 if tiles else 2]:
        try:
            images = twin(table, episode, {"camera": camera, **look})
            tiles[title] = itertools.chain([next(images)], images)
        except RobotError as error:
            notes.append(f"no simulated twin: {error}")
            break
    return Montage(table, episode, tiles).frames()


def _cameras(table: Table, episode: int, notes: list[str]) -> Iterator[tuple[str, Iterator[np.ndarray]]]:
    """Name and pictures, one a frame, of the cameras in a log of ours or in a LeRobot data set."""
    from recorder.images.images import Images

    try:
        images = Images(table, cache_bytes=0)
        names = images.cameras_of(episode)
    except RobotError as error:
        notes.append(f"no camera pictures: {error}")
        return
    for name in names:
        yield name, _of_camera(images, name, range(int(table.starts[episode]), int(table.stops[episode])))


_AT_ONCE = 32
"""Pictures that are decoded together."""


def _of_camera(images: Images, camera: str, rows: range) -> Iterator[np.ndarray]:
    for first in range(0, len(rows), _AT_ONCE):
        yield from images.at(np.array(rows[first : first + _AT_ONCE]), camera)[0]


def _kept(images: Iterator[np.ndarray], folder: Path, first: int) -> Iterator[np.ndarray]:
    """The same pictures, each written on its way."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images, first):
        write_image(folder / f"{number:06d}.png", image)
        yield image


def _play(title: str, images: Iterator[np.ndarray], rate_hz: float, hold: bool = False) -> None:
    from hal import Rate

    rate = Rate(rate_hz)
    for image in images:
        rate.wait()
        window(title, image)
    if hold:
        _wait_for_key()


def _wait_for_key() -> None:
    from recorder.log.image_codec import opencv

    opencv("showing a window").waitKey(0)
