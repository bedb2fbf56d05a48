"""Pictures of a robot in measured poses, and where a picture goes: a file, a window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError
from rlenv_robot.robot_models import RobotModel

__all__ = ["draw", "window", "write_image"]


def write_image(path: Path, image: np.ndarray) -> None:
    """Write a picture, uint8 of shape (height, width, 3), RGB.

    Raises:
        RobotError: it can't be written.
    """
    from recorder.log.image_codec import opencv

    cv2 = opencv("writing a picture")
    if not cv2.imwrite(str(path), np.ascontiguousarray(image[..., ::-1])):
        raise RobotError(f"no picture could be written to {path}; its ending must be .png or .jpg, its folder exist")


def window(title: str, image: np.ndarray) -> None:
    """Show a picture in the window of that title, which is opened the first time.

    Raises:
        RobotError: there is no screen.
    """
    from recorder.log.image_codec import opencv

    cv2 = opencv("showing a window")
    try:
        cv2.imshow(title, np.ascontiguousarray(image[..., ::-1]))
        cv2.waitKey(1)
    except cv2.error as error:
        raise RobotError(
            "no window can be opened here: a screen and opencv-python (extra 'vision') are needed; "
            'without a screen use render({"mode": "file", "path": "state.png"})'
        ) from error


def draw(
    robot_model: RobotModel, sensors: Mapping[str, Any], goal: Mapping[str, Any], options: Mapping[str, Any]
) -> Iterator[Any]:
    """Pictures of a robot's model in measured poses, the goal's position marked by a ball.

    Args:
        robot_model: of the robot.
        sensors: name -> values, shape (...) for one picture or (T, ...) for T.
        goal: of the episode; ``target_position`` is drawn.
        options: ``camera`` (default ``view``), ``width``, ``height`` (pixels), ``fine``: shadows and smooth edges
            (default), for which drawing in software takes several times as long.

    Yields:
        uint8 pictures of shape (height, width, 3), RGB.

    Raises:
        RobotError: the sensors tell no pose of this kind of robot, or nothing here can draw.
    """
    from sim.rendering.camera import Marker, film

    shapes = {field.name: field.shape for field in robot_model.load_spec().sensors}
    rows = {name: np.asarray(sensors[name]).reshape(-1, *shape) for name, shape in shapes.items() if name in sensors}
    markers = [Marker(np.asarray(goal["target_position"]).tolist())] if "target_position" in goal else []
    size = int(options.get("width", 640)), int(options.get("height", 480))
    yield from film(
        robot_model.make_sim_model(),
        rows,
        options.get("camera", "view"),
        *size,
        markers,
        fine=bool(options.get("fine", True)),
    )
