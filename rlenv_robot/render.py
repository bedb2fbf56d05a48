"""Showing a state, live or from history (R1.5). Nothing here takes part in a simulation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError, SourceError
from rlenv_robot.protocol import VisualisationTable
from rlenv_robot.world import World

__all__ = ["draw", "episode_frames", "render_history", "show"]

_MODES = ("window", "file", "call", "history")
_OPTIONS = frozenset({"mode", "path", "to", "camera", "width", "height", "run", "episode", "video", "plot"})


def show(env_id: str, frame_no: int, world: World, options: Mapping[str, Any]) -> None:
    """Show the present state of a world, or history.

    Args:
        env_id, frame_no: of the environment whose world it is.
        world: what is shown.
        options: ``mode``: ``window`` (default) on this machine's screen; ``file`` writes a picture to ``path``;
            ``call`` hands Table 4 to the function ``to``, for a monitor of one's own; ``history`` shows a recorded
            ``run`` (with ``episode``, and ``video`` and ``plot``, files to write). For the first three also
            ``camera``, ``width``, ``height``.

    Raises:
        ValueError: an unknown option or mode, or one that is missing.
        RobotError: there is no screen or no way to draw, with what to do.
    """
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise ValueError(f"render option {sorted(unknown)[0]!r} is unknown, allowed are {', '.join(sorted(_OPTIONS))}")
    mode = options.get("mode", "window")
    if mode not in _MODES:
        raise ValueError(f"render mode is {mode!r}, allowed are {', '.join(_MODES)}")
    if mode == "history":
        render_history(_wanted(options, "run"), options.get("episode", -1), options.get("video"), options.get("plot"))
        return
    picture = world.picture(options)
    if mode == "call":
        table: VisualisationTable = {"env_id": env_id, "frame_no": frame_no, "frame_data": {"image": picture}}
        _wanted(options, "to")(table)
    elif mode == "file":
        _write_picture(Path(_wanted(options, "path")), picture)
    else:
        _window(env_id, picture)


def _wanted(options: Mapping[str, Any], name: str) -> Any:
    if options.get(name) is None:
        raise ValueError(f"render mode {options.get('mode')!r} needs the option {name!r}")
    return options[name]


def _write_picture(path: Path, picture: np.ndarray) -> None:
    from recorder.picture import opencv

    cv2 = opencv("writing a picture")
    if not cv2.imwrite(str(path), np.ascontiguousarray(picture[..., ::-1])):
        raise RobotError(f"no picture could be written to {path}; its ending must be .png or .jpg, its folder exist")


def _window(title: str, picture: np.ndarray) -> None:
    from recorder.picture import opencv

    cv2 = opencv("showing a window")
    try:
        cv2.imshow(title, np.ascontiguousarray(picture[..., ::-1]))
        cv2.waitKey(1)
    except cv2.error as error:
        raise RobotError(
            "no window can be opened here: a screen and opencv-python (extra 'vision') are needed; "
            'without a screen use render({"mode": "file", "path": "state.png"})'
        ) from error


def draw(robot: str, sensors: Mapping[str, Any], goal: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[Any]:
    """Pictures of a robot's model in measured poses, the goal's position marked by a ball.

    Args:
        robot: the kind of robot.
        sensors: name -> values, shape (...) for one picture or (T, ...) for T.
        goal: of the episode; ``target_position`` is drawn.
        options: ``camera`` (default ``view``), ``width``, ``height`` (pixels).

    Yields:
        uint8 pictures of shape (height, width, 3), RGB.

    Raises:
        RobotError: this kind of robot can't be drawn, or nothing here can draw.
    """
    if robot != "so101":
        raise RobotError(f"a {robot!r} can't be drawn yet, only an 'so101'")
    from sim.camera import Marker, film
    from sim.so101 import so101

    joints = np.asarray(sensors["joint_position"])
    rows = {"joint_position": joints.reshape(-1, joints.shape[-1])}
    markers = [Marker(np.asarray(goal["target_position"]).tolist())] if "target_position" in goal else []
    size = int(options.get("width", 640)), int(options.get("height", 480))
    yield from film(so101(), rows, options.get("camera", "view"), *size, markers)


def episode_frames(path: str | Path, episode: int, options: Mapping[str, Any] | None = None) -> tuple[Any, float]:
    """The pictures of a recorded episode, and how many a second it had.

    Args:
        path: a run.
        episode: its number; negative ones count from the end.
        options: see `draw`.

    Raises:
        SourceError: no such episode, or nothing in it to draw.
    """
    table, number = _chosen(path, episode)
    rows = table.rows[table.starts[number] : table.stops[number]]
    info = table.episodes[number]
    if "sensor_joint_position" not in (rows.dtype.names or ()):
        raise SourceError(f"{path} records no joint_position, so no robot can be drawn from it")
    pictures = draw(
        str(info.get("robot", "so101")), {"joint_position": rows["sensor_joint_position"]}, info.get("goal", {}),
        options or {},
    )  # fmt: skip
    span = float(rows["stamp_ns"][-1] - rows["stamp_ns"][0]) / 1e9
    return pictures, (len(rows) - 1) / span if span > 0 else 30.0


def _chosen(path: str | Path, episode: int) -> tuple[Any, int]:
    from recorder.table import load_runs

    table = load_runs(Path(path))
    count = len(table.starts)
    if not -count <= episode < count:
        raise SourceError(f"{path} has no episode {episode}, it has {count}: 0 to {count - 1}, or -1 for the last")
    return table, episode % count


def render_history(
    path: str | Path, episode: int = -1, video: str | Path | None = None, plot: str | Path | None = None
) -> None:
    """Show a recorded episode again (R1.5): as a video, a plot, or, if neither is asked for, in a window.

    Args:
        path: a run.
        episode: its number; negative ones count from the end.
        video: a file to write, ``.mp4`` (VP9, which browsers play).
        plot: a file to write, ``.png``.

    Raises:
        SourceError: no such run or episode.
        RobotError: nothing here can draw.
    """
    if plot is not None:
        from recorder.plot import plot_episode

        table, number = _chosen(path, episode)
        plot_episode(table, number, Path(plot))
    if video is not None:
        from recorder.video import write_video

        pictures, rate = episode_frames(path, episode)
        first = next(pictures)
        write_video(Path(video), itertools.chain([first], pictures), rate)
    if plot is None and video is None:
        pictures, rate = episode_frames(path, episode)
        _play(str(path), pictures, rate)


def _play(title: str, pictures: Iterator[np.ndarray], rate_hz: float) -> None:
    from hal import Rate

    rate = Rate(rate_hz)
    for picture in pictures:
        rate.wait()
        _window(title, picture)
