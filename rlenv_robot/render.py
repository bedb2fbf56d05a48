"""Showing a state, live or from history (R1.5). Nothing here takes part in a simulation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError
from rlenv_robot.kinds import Kind
from rlenv_robot.protocol import VisualisationTable
from rlenv_robot.world import World

__all__ = ["draw", "show", "window", "write_picture"]

_MODES = ("window", "file", "call", "history")
_HISTORY = ("run", "episode", "video", "plot", "montage", "step", "frames")
_OPTIONS = frozenset({"mode", "path", "to", "camera", "width", "height", "fine", *_HISTORY})


def show(env_id: str, frame_no: int, world: World, options: Mapping[str, Any]) -> None:
    """Show the present state of a world, or history.

    Args:
        env_id, frame_no: of the environment whose world it is.
        world: what is shown.
        options: ``mode``: ``window`` (default) on this machine's screen; ``file`` writes a picture to ``path``;
            ``call`` hands Table 4 to the function ``to``, for a monitor of one's own; ``history`` shows a recorded
            ``run``, with the options of `rlenv_robot.history.render_history`. For the first three also ``camera``,
            ``width``, ``height``, ``fine``.

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
        from rlenv_robot.history import render_history

        render_history(
            _wanted(options, "run"), options.get("episode", -1), options.get("video"), options.get("plot"),
            montage=bool(options.get("montage")), step=options.get("step"), frames=options.get("frames"),
            fine=options.get("fine"),
        )  # fmt: skip
        return
    picture = world.picture(options)
    if mode == "call":
        table: VisualisationTable = {"env_id": env_id, "frame_no": frame_no, "frame_data": {"image": picture}}
        _wanted(options, "to")(table)
    elif mode == "file":
        write_picture(Path(_wanted(options, "path")), picture)
    else:
        window(env_id, picture)


def _wanted(options: Mapping[str, Any], name: str) -> Any:
    if options.get(name) is None:
        raise ValueError(f"render mode {options.get('mode')!r} needs the option {name!r}")
    return options[name]


def write_picture(path: Path, picture: np.ndarray) -> None:
    """Write a picture, uint8 of shape (height, width, 3), RGB.

    Raises:
        RobotError: it can't be written.
    """
    from recorder.picture import opencv

    cv2 = opencv("writing a picture")
    if not cv2.imwrite(str(path), np.ascontiguousarray(picture[..., ::-1])):
        raise RobotError(f"no picture could be written to {path}; its ending must be .png or .jpg, its folder exist")


def window(title: str, picture: np.ndarray) -> None:
    """Show a picture in the window of that title, which is opened the first time.

    Raises:
        RobotError: there is no screen.
    """
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


def draw(kind: Kind, sensors: Mapping[str, Any], goal: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[Any]:
    """Pictures of a robot's model in measured poses, the goal's position marked by a ball.

    Args:
        kind: of the robot.
        sensors: name -> values, shape (...) for one picture or (T, ...) for T.
        goal: of the episode; ``target_position`` is drawn.
        options: ``camera`` (default ``view``), ``width``, ``height`` (pixels), ``fine``: shadows and smooth edges
            (default), for which drawing in software takes several times as long.

    Yields:
        uint8 pictures of shape (height, width, 3), RGB.

    Raises:
        RobotError: the sensors tell no pose of this kind of robot, or nothing here can draw.
    """
    from sim.camera import Marker, film

    shapes = {field.name: field.shape for field in kind.robot_spec().sensors}
    rows = {name: np.asarray(sensors[name]).reshape(-1, *shape) for name, shape in shapes.items() if name in sensors}
    markers = [Marker(np.asarray(goal["target_position"]).tolist())] if "target_position" in goal else []
    size = int(options.get("width", 640)), int(options.get("height", 480))
    yield from film(
        kind.simulated(), rows, options.get("camera", "view"), *size, markers, fine=bool(options.get("fine", True))
    )
