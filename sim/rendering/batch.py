"""Draw images of a batch of simulations by several OpenGL contexts in parallel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from hal.errors import RobotError
from hal.robot import BatchState, RobotSpec
from sim.batch import SimBatch
from sim.model import SimModel
from sim.rendering.camera import Eye, available, open_camera, seen
from sim.snapshot import BatchSnapshot

__all__ = ["SIZE", "BatchRenderer", "ImageBatch", "thread_count"]

SIZE = 320, 240
"""Default width and height of images, in pixels."""

_MAX_DRAWERS = 8


class BatchRenderer:
    """Draw many states of one model in parallel.

    Each thread has its own OpenGL contexts, which draw while other threads run Python. The number of threads does not
    affect the images: `sim.rendering.camera.Camera` draws the same, bit for bit.

    Args:
        sim_model: the robot to draw.
        cameras: the names of cameras of the model, at least one.
        width: width of the images, pixels.
        height: height of the images, pixels.
        threads: number of threads that draw, at most 8; 0 means one for each logical CPU. Without OpenGL one thread
            draws, since all CPUs already share the rays.

    Raises:
        RobotError: the model has no camera of a name, or ``cameras`` is empty.
    """

    def __init__(self, sim_model: SimModel, cameras: Sequence[str], width: int, height: int, threads: int = 0) -> None:
        if not cameras:
            raise RobotError("no camera is named; name one or more cameras of the model")
        count = thread_count(threads) if available() is None else 1
        self.cameras, self.width, self.height = tuple(cameras), width, height
        self._sim_model, self._pool = sim_model, ThreadPoolExecutor(count, "images")
        self._drawers: list[list[Eye]] = []
        try:
            for _ in range(count):
                self._drawers.append([open_camera(sim_model, name, width, height) for name in cameras])
        except RobotError:
            self.close()
            raise

    def draw(self, qpos: np.ndarray, models: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Draw the images of n states.

        Args:
            qpos: the states of n simulations, (n, nq).
            models: the fields in which their models differ, name -> (n, ...).

        Returns:
            Camera name -> RGB, uint8, (n, height, width, 3), new arrays.

        Raises:
            RobotError: the renderer is closed; or there is no OpenGL, and the models differ in visible fields.
        """
        if not self._drawers:
            raise RobotError("these cameras are closed, make new ones")
        visible = seen(models or {})
        images = {name: np.empty((len(qpos), self.height, self.width, 3), np.uint8) for name in self.cameras}
        count = min(len(self._drawers), len(qpos))

        def share(number: int) -> None:
            eyes = list(zip(self._drawers[number], images.values(), strict=True))
            for row in range(number, len(qpos), count):
                fields = {name: values[row] for name, values in visible.items()}
                for eye, out in eyes:
                    eye.set_model(fields)
                    eye.render(qpos[row], out=out[row])

        futures = [self._pool.submit(share, number) for number in range(1, count)]
        if count:
            share(0)
        for future in futures:
            future.result()
        return images

    def close(self) -> None:
        """Free the graphics memory. Safe to call more than once."""
        self._pool.shutdown()
        for eye in (eye for eyes in self._drawers for eye in eyes):
            eye.close()
        self._drawers = []


class ImageBatch:
    """Add images to the states of a `SimBatch`: camera name -> RGB, uint8, (n, height, width, 3).

    Images show the present state, without the delays of a `DelayModel`. Every step draws all of them, which takes a
    hundred times as long as the step itself when drawing in software.

    Args:
        batch: the batch to draw, which this object closes. Its model should have its visual parts
            (``so101(looks=True)``).
        cameras: names of cameras of the model.
        size: width and height of the images, pixels.
        threads: number of threads that draw, as for `BatchRenderer`.

    Raises:
        RobotError: the model has no such camera.
    """

    def __init__(self, batch: SimBatch, cameras: Sequence[str], size: tuple[int, int] = SIZE, threads: int = 0) -> None:
        self.batch = batch
        self._images = BatchRenderer(batch.sim_model, cameras, *size, min(thread_count(threads), batch.num))
        self._qpos = batch.open_batch.bind("qpos")

    @property
    def spec(self) -> RobotSpec:
        """The description of each robot."""
        return self.batch.spec

    @property
    def num(self) -> int:
        """Number of robots."""
        return self.batch.num

    @property
    def broken(self) -> np.ndarray:
        """Whether each simulation has failed since its last reset, as `SimBatch.broken`."""
        return self.batch.broken

    @property
    def drawn(self) -> dict[str, np.ndarray]:
        """The numbers drawn for the present episodes, as `SimBatch.drawn`."""
        return self.batch.drawn

    def reset(
        self,
        ids: Sequence[int] | np.ndarray | None = None,
        seeds: Sequence[int] | np.ndarray | None = None,
        starts: Mapping[str, np.ndarray] | None = None,
    ) -> BatchState:
        """Reset simulations as `SimBatch.reset` does, and draw their images."""
        return self._with_images(self.batch.reset(ids, seeds, starts), ids)

    def step(self, commands: Mapping[str, np.ndarray], ids: np.ndarray | None = None) -> BatchState:
        """Step simulations as `SimBatch.step` does, and draw the images of all."""
        return self._with_images(self.batch.step(commands, ids), None)

    def snapshot(self, ids: Sequence[int] | np.ndarray | None = None) -> BatchSnapshot:
        """Take a snapshot as `SimBatch.snapshot` does, without images: `restore` draws them again."""
        return self.batch.snapshot(ids)

    def restore(self, snapshot: BatchSnapshot, ids: Sequence[int] | np.ndarray | None = None) -> BatchState:
        """Restore simulations as `SimBatch.restore` does, and draw their images."""
        return self._with_images(self.batch.restore(snapshot, ids), ids)

    def _with_images(self, batch_state: BatchState, ids: Sequence[int] | np.ndarray | None) -> BatchState:
        rows = slice(None) if ids is None else np.asarray(ids)
        models = {name: values[rows] for name, values in self.batch.models.items()}
        return batch_state._replace(images=self._images.draw(self._qpos[rows], models))

    def close(self) -> None:
        """Close the batch and its cameras. Safe to call more than once."""
        self._images.close()
        self.batch.close()


def thread_count(threads: int) -> int:
    """Return the number of threads that draw for ``threads``: at most 8, and for 0 one for each logical CPU."""
    return min(threads or os.cpu_count() or 1, _MAX_DRAWERS)
