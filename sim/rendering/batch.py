"""Images of a batch: each simulation as its cameras see it, drawn by several OpenGL contexts in parallel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from hal.errors import RobotError
from hal.robot import BatchState, RobotSpec
from sim.batch import SimBatch
from sim.model import SimModel
from sim.rendering.camera import Eye, available, open_camera, seen
from sim.snapshot import BatchSnapshot

__all__ = ["SIZE", "BatchRenderer", "ImageBatch"]

SIZE = 320, 240
"""Width and height of images where nobody says otherwise, pixels."""

_MAX_DRAWERS = 8


class BatchRenderer:
    """Draw many states of one model.

    Each thread has OpenGL contexts of its own, which draw while Python goes on elsewhere. An image does not depend on
    their number: it is the one that `sim.rendering.camera.Camera` draws, bit for bit.

    Args:
        sim_model: what to draw.
        cameras: which of its cameras.
        width, height: of the images, pixels.
        threads: how many draw at once, at most 8; 0 is one a logical CPU. Without OpenGL it is one, as rays are
            already shared between all CPUs.

    Raises:
        RobotError: no such camera, or none at all.
    """

    def __init__(self, sim_model: SimModel, cameras: Sequence[str], width: int, height: int, threads: int = 0) -> None:
        if not cameras:
            raise RobotError("images of no camera: name one or more of the model's")
        count = _as_many(threads) if available() is None else 1
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
        """Draw states.

        Args:
            qpos: of n simulations, (n, nq).
            models: fields of the model in which they differ, name -> (n, ...).

        Returns:
            Camera name -> RGB, uint8, (n, height, width, 3), new arrays.

        Raises:
            RobotError: after `close`, or rays are cast (there is no OpenGL) and they differ in what is seen.
        """
        if not self._drawers:
            raise RobotError("these cameras are closed, make new ones")
        clothes = seen(models or {})
        images = {name: np.empty((len(qpos), self.height, self.width, 3), np.uint8) for name in self.cameras}
        count = min(len(self._drawers), len(qpos))

        def share(number: int) -> None:
            eyes = list(zip(self._drawers[number], images.values(), strict=True))
            for row in range(number, len(qpos), count):
                own = {name: values[row] for name, values in clothes.items()}
                for eye, into in eyes:
                    eye.set_model(own)
                    eye.render(qpos[row], out=into[row])

        waiting = [self._pool.submit(share, number) for number in range(1, count)]
        if count:
            share(0)
        for each in waiting:
            each.result()
        return images

    def close(self) -> None:
        """Free the graphics memory. Calling it twice is allowed."""
        self._pool.shutdown()
        for eye in (eye for eyes in self._drawers for eye in eyes):
            eye.close()
        self._drawers = []


class ImageBatch:
    """A `SimBatch` whose readings carry images: ``images`` is camera name -> RGB, uint8, (n, height, width, 3).

    They show what is, without the delays of a `DelayModel`. All are drawn anew in every step, which in software takes a
    hundred times as long as the step itself.

    Args:
        batch: what is drawn, owned from now on. Its model should have its looks (``so101(looks=True)``).
        cameras: names of cameras of the model.
        size: width and height of the images, pixels.
        threads: as for `Images`.

    Raises:
        RobotError: no such camera.
    """

    def __init__(self, batch: SimBatch, cameras: Sequence[str], size: tuple[int, int] = SIZE, threads: int = 0) -> None:
        self.batch = batch
        self._images = BatchRenderer(batch.sim_model, cameras, *size, min(_as_many(threads), batch.num))
        self._qpos = batch.open_batch.bind("qpos")

    @property
    def spec(self) -> RobotSpec:
        """What each of them is."""
        return self.batch.spec

    @property
    def num(self) -> int:
        """How many."""
        return self.batch.num

    @property
    def broken(self) -> np.ndarray:
        """As `SimBatch.broken`."""
        return self.batch.broken

    @property
    def drawn(self) -> dict[str, np.ndarray]:
        """As `SimBatch.drawn`."""
        return self.batch.drawn

    def reset(
        self,
        ids: Sequence[int] | np.ndarray | None = None,
        seeds: Sequence[int] | np.ndarray | None = None,
        starts: Mapping[str, np.ndarray] | None = None,
    ) -> BatchState:
        """As `SimBatch.reset`; images of the same rows."""
        return self._seen(self.batch.reset(ids, seeds, starts), ids)

    def step(self, commands: Mapping[str, np.ndarray], ids: np.ndarray | None = None) -> BatchState:
        """As `SimBatch.step`; images of all."""
        return self._seen(self.batch.step(commands, ids), None)

    def snapshot(self, ids: Sequence[int] | np.ndarray | None = None) -> BatchSnapshot:
        """As `SimBatch.snapshot`: images are not kept, but drawn from it."""
        return self.batch.snapshot(ids)

    def restore(self, snapshot: BatchSnapshot, ids: Sequence[int] | np.ndarray | None = None) -> BatchState:
        """As `SimBatch.restore`; images of the same rows."""
        return self._seen(self.batch.restore(snapshot, ids), ids)

    def _seen(self, batch_state: BatchState, ids: Any) -> BatchState:
        rows = slice(None) if ids is None else np.asarray(ids)
        models = {name: values[rows] for name, values in self.batch.models.items()}
        return batch_state._replace(images=self._images.draw(self._qpos[rows], models))

    def close(self) -> None:
        """Close the batch and its cameras. Calling it twice is allowed."""
        self._images.close()
        self.batch.close()


def _as_many(threads: int) -> int:
    return min(threads or os.cpu_count() or 1, _MAX_DRAWERS)
