"""Add a simulated robot's cameras as sensors, which are drawn when they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hal.cameras.image_sensors import ImageSensor, with_image_fields
from sim.model import ImageReader, Rendered, SimModel
from sim.rendering.batch import BatchRenderer, thread_count

__all__ = ["with_image_sensors"]


def with_image_sensors(sim_model: SimModel, sensors: Sequence[ImageSensor]) -> SimModel:
    """Return a simulated robot with images among its sensors.

    The motion stays the same, bit for bit. Every step draws all images. If a `sim.latency.DelayModel` gives a sensor a
    rate (``sensor_rate``), its image is drawn only when a sample is due; ``sensor_delay`` delays images. The number of
    threads that draw is that of the threads that step the batch.

    Args:
        sim_model: the robot; it should have its visual parts.
        sensors: the cameras, each with the size of its sensor.

    Raises:
        RobotError: the model has no such camera.
        SpecError: the robot already has a sensor of that name.
    """
    for sensor in sensors:
        sim_model.camera_id(sensor.camera)
    rendered = {sensor.name: Rendered(_Opener(sensor)) for sensor in sensors}
    return replace(
        sim_model, spec=with_image_fields(sim_model.spec, sensors), sensors={**sim_model.sensors, **rendered}
    )


@dataclass(frozen=True, slots=True)
class _Opener:
    """Make the camera of a batch; a value, so that models with equal sensors are equal."""

    sensor: ImageSensor

    def __call__(
        self, sim_model: SimModel, qpos: np.ndarray, models: Callable[[], Mapping[str, np.ndarray]], threads: int
    ) -> ImageReader:
        return _LazyCamera(self.sensor, sim_model, qpos, models, min(thread_count(threads), len(qpos)))


class _LazyCamera:
    """One camera of all simulations of a batch, opened by its first image.

    Args:
        sensor: camera and size.
        sim_model: the robot to draw.
        qpos: the states of all simulations, (num, nq), live.
        models: returns the fields in which their models differ, name -> (num, ...).
        threads: number of threads that draw.
    """

    def __init__(
        self,
        sensor: ImageSensor,
        sim_model: SimModel,
        qpos: np.ndarray,
        models: Callable[[], Mapping[str, np.ndarray]],
        threads: int,
    ) -> None:
        self._sensor, self._sim_model, self._qpos, self._models = sensor, sim_model, qpos, models
        self._threads = threads
        self._renderer: BatchRenderer | None = None

    def read(self, rows: np.ndarray | None) -> np.ndarray:
        """Draw the present states of all simulations or some: uint8, (n, height, width, 3)."""
        sensor = self._sensor
        if self._renderer is None:
            names = (sensor.camera,)
            self._renderer = BatchRenderer(self._sim_model, names, sensor.width, sensor.height, self._threads)
        if rows is None:
            return self._renderer.draw(self._qpos, self._models())[sensor.camera]
        models = {name: values[rows] for name, values in self._models().items()}
        return self._renderer.draw(self._qpos[rows], models)[sensor.camera]

    def close(self) -> None:
        """Free the graphics memory. Safe to call more than once."""
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None
