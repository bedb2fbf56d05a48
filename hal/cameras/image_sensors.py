"""Camera images as sensors: small images of a fixed size that policies observe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hal.cameras.source import opencv
from hal.errors import SpecError, StaleReading
from hal.field import Field
from hal.robot import Image, Robot, RobotSpec, RobotState
from hal.spec import Spec
from hal.wrapper import RobotWrapper

__all__ = ["ImageSensor", "WithImageSensors", "scaled_image", "with_image_fields"]

_COLOURS = ("red", "green", "blue")
_MOST_PIXELS = 512 * 512
"""Most pixels of an image that is a sensor: every row of a log holds it as it is, 3 bytes a pixel."""


@dataclass(frozen=True, slots=True)
class ImageSensor:
    """A camera whose images are a sensor, as the field ``<camera>_image``: uint8 of shape (height, width, 3), RGB.

    Attributes:
        camera: the name of a camera of the robot.
        width: the width of the sensor's images, pixels.
        height: the height of the sensor's images, pixels.
        max_age_s: greatest age of a real camera's image, seconds; an older image ends the episode.

    Raises:
        SpecError: a size is not above 0, or the image is too large for a sensor.
    """

    camera: str
    width: int = 64
    height: int = 64
    max_age_s: float = 0.5

    def __post_init__(self) -> None:
        if min(self.width, self.height) < 1 or self.width * self.height > _MOST_PIXELS:
            raise SpecError(
                f"image sensor of camera {self.camera!r}: {self.width} x {self.height} pixels, allowed are 1 to "
                f"{_MOST_PIXELS} pixels together; record larger images beside the observation (docs/cameras.md)"
            )

    @property
    def name(self) -> str:
        """The sensor's name, ``<camera>_image``."""
        return f"{self.camera}_image"

    @property
    def field(self) -> Field:
        """The description of the sensor's values: uint8 of shape (height, width, 3)."""
        shape = (self.height, self.width, len(_COLOURS))
        meaning = f"newest image of the camera {self.camera}, its first row on top"
        return Field(self.name, shape, "uint8", 0, 255, "1", meaning, _COLOURS)


def with_image_fields(spec: RobotSpec, sensors: Sequence[ImageSensor]) -> RobotSpec:
    """Return a robot's description with image sensors.

    Raises:
        SpecError: the robot already has a sensor of that name.
    """
    for sensor in sensors:
        if sensor.name in spec.sensors:
            raise SpecError(f"{spec.name!r} has a sensor {sensor.name!r} already")
    fields = (*spec.sensors.fields, *(sensor.field for sensor in sensors))
    return replace(spec, sensors=Spec(spec.sensors.name, fields))


class WithImageSensors(RobotWrapper):
    """Turn the images in a robot's states into sensors. A simulation renders its own (`sim.rendering.image_sensors`).

    Args:
        robot: a robot whose states have images of these cameras, such as a `hal.WithCameras` or a remote robot.
        sensors: the cameras, each with the size of its sensor.

    Raises:
        SpecError: as for `with_image_fields`.
        RobotError: OpenCV is not installed.
    """

    def __init__(self, robot: Robot, sensors: Sequence[ImageSensor]) -> None:
        super().__init__(robot)
        self._sensors, self._spec = tuple(sensors), with_image_fields(robot.spec, sensors)
        self._taken: dict[str, tuple[Image, np.ndarray]] = {}
        opencv()

    @property
    def spec(self) -> RobotSpec:
        """The description of the inner robot, with the image sensors."""
        return self._spec

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset the inner robot.

        Raises:
            StaleReading: a camera gives no image.
        """
        return self._with_sensors(self._robot.reset(options))

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Step the inner robot.

        Raises:
            StaleReading: a camera's newest image is missing or too old.
        """
        return self._with_sensors(self._robot.step(command))

    def read(self) -> RobotState | None:
        """Read the inner robot without a command.

        Raises:
            StaleReading: a camera's newest image is missing or too old.
        """
        robot_state = super().read()
        return None if robot_state is None else self._with_sensors(robot_state)

    def _with_sensors(self, robot_state: RobotState) -> RobotState:
        values, ages = dict(robot_state.sensors), dict(robot_state.age_ns)
        for sensor in self._sensors:
            image = robot_state.images.get(sensor.camera)
            age_ns = None if image is None else max(0, robot_state.stamp_ns - image.stamp_ns)
            if image is None or age_ns is None or age_ns > sensor.max_age_s * 1e9:
                age_s = float("inf") if age_ns is None else age_ns / 1e9
                raise StaleReading(sensor.name, age_s, sensor.max_age_s, f"camera {sensor.camera!r} has no new image")
            values[sensor.name], ages[sensor.name] = self._pixels(sensor, image).copy(), age_ns
        return robot_state._replace(sensors=values, age_ns=ages)

    def _pixels(self, sensor: ImageSensor, image: Image) -> np.ndarray:
        """Return the sensor's value; an image that comes again is not decoded again."""
        taken = self._taken.get(sensor.name)
        if taken is None or taken[0] is not image:
            taken = self._taken[sensor.name] = image, scaled_image(image, sensor.width, sensor.height)
        return taken[1]


def scaled_image(image: Image, width: int, height: int) -> np.ndarray:
    """Return an image in another size: cropped about its middle to the new aspect ratio, then scaled by area averages.

    A simulated camera of the new size shows the same part, since its vertical field of view is fixed.

    Returns:
        RGB, uint8, shape (height, width, 3).

    Raises:
        RobotError: OpenCV is not installed.
        ValueError: the bytes can't be decoded.
    """
    cv2 = opencv()
    if isinstance(image.data, np.ndarray):
        pixels = image.data
    else:
        decoded = cv2.imdecode(np.frombuffer(image.data, np.uint8), cv2.IMREAD_COLOR)
        if decoded is None:
            raise ValueError(f"{len(image.data)} bytes of {image.encoding} can't be decoded")
        pixels = decoded[..., ::-1]
    rows, columns = pixels.shape[:2]
    wide, high = min(columns, round(rows * width / height)), min(rows, round(columns * height / width))
    left, top = (columns - wide) // 2, (rows - high) // 2
    part = np.ascontiguousarray(pixels[top : top + high, left : left + wide])
    return np.asarray(cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA), np.uint8)
