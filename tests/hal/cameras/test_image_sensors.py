"""Images of real cameras as sensors: scaled as OpenCV scales them, with their age, and never too old."""

from __future__ import annotations

import numpy as np
import pytest

from hal import SpecError, StaleReading
from hal.cameras.image_sensors import ImageSensor, WithImageSensors, scaled_image, with_image_fields
from hal.robot import Image, RobotState
from hal.robots.so101 import SO101

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")

PICTURE = np.random.default_rng(0).integers(0, 255, (48, 64, 3), np.uint8)
SMALL = ImageSensor("wrist", 12, 12, max_age_s=0.1)


class Seeing:
    """A robot that does not move, whose states have the images that it is given."""

    spec = SO101

    def __init__(self, images: list[Image | None]) -> None:
        self._images = images

    def _state(self) -> RobotState:
        image = self._images.pop(0)
        sensors = {field.name: np.zeros(field.shape, field.numpy_dtype) for field in SO101.sensors}
        images = {} if image is None else {"wrist": image}
        return RobotState(sensors, {"joint_target": np.zeros(6, np.float32)}, 10**9, {}, images)

    def reset(self, options: object) -> RobotState:
        return self._state()

    def step(self, command: object) -> RobotState:
        return self._state()

    def stop(self, reason: str) -> None: ...

    def close(self) -> None: ...


def test_the_sensor_is_the_middle_of_the_image_scaled_by_area_with_its_age() -> None:
    encoded = cv2.imencode(".png", PICTURE[..., ::-1])[1].tobytes()
    robot = WithImageSensors(Seeing([Image(encoded, "png", 10**9 - 20_000_000)]), [SMALL])
    state = robot.reset({})
    expected = PICTURE[:, 8:56].reshape(12, 4, 12, 4, 3).mean(axis=(1, 3))  # each pixel is the mean of 4 by 4
    assert np.abs(state.sensors["wrist_image"] - expected).max() <= 0.5
    assert state.age_ns["wrist_image"] == 20_000_000
    robot.spec.sensors.validate(dict(state.sensors))


def test_an_array_is_taken_as_it_is_where_the_size_fits() -> None:
    np.testing.assert_array_equal(scaled_image(Image(PICTURE, "rgb8", 0), 64, 48), PICTURE)


@pytest.mark.parametrize("image", [None, Image(PICTURE, "rgb8", 10**9 - 200_000_000)])
def test_a_missing_or_old_image_is_an_error(image: Image | None) -> None:
    robot = WithImageSensors(Seeing([Image(PICTURE, "rgb8", 10**9), image]), [SMALL])
    robot.reset({})
    with pytest.raises(StaleReading) as raised:
        robot.step({})
    assert raised.value.sensor == "wrist_image"


def test_a_second_sensor_of_one_name_is_refused() -> None:
    with pytest.raises(SpecError, match="wrist_image"):
        with_image_fields(with_image_fields(SO101, [SMALL]), [SMALL])
