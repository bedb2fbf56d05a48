"""Average the metrics of the last readings of episodes on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from rlenv_gpu.tensor_array import TensorArray
from rlenv_robot.tasks.task import AveragedTask

__all__ = ["RecentMetrics"]

DeviceArray: TypeAlias = Any


class RecentMetrics:
    """The metrics of the last readings of all episodes, as `rlenv_robot.tasks.episode_rules.RecentMetrics`."""

    def __init__(self, task: AveragedTask, num: int, device: torch.device) -> None:
        self._length = task.averaged_readings
        self._slots = TensorArray(torch.arange(self._length, device=device))
        self._counts = torch.zeros(num, dtype=torch.int64, device=device)
        self._rings: dict[str, torch.Tensor] = {}

    @property
    def present(self) -> dict[str, torch.Tensor]:
        """The tensors that a step changes: the number of readings, and each metric's last ones."""
        return {"": self._counts, **self._rings}

    def open(self, metrics: Mapping[str, Any]) -> None:
        """Make room for these metrics, before the first step."""
        for name in metrics:
            self._rings[name] = self._counts.new_zeros((len(self._counts), self._length), dtype=torch.float64)

    def added(self, metrics: Mapping[str, Any], moved: DeviceArray) -> dict[str, DeviceArray]:
        """Return what follows `present` with a reading's metrics, each (N,), where there was a new reading."""
        counts: DeviceArray = TensorArray(self._counts)
        here: DeviceArray = ((counts % self._length)[:, None] == self._slots) & moved[:, None]
        rings = {
            name: np.where(here, value[:, None], TensorArray(self._rings[name])) for name, value in metrics.items()
        }
        return {"": counts + moved, **rings}

    def means(self, following: Mapping[str, DeviceArray]) -> dict[str, DeviceArray]:
        """Return each metric's mean over the last readings, (N,), of what `added` returned."""
        counts = np.maximum(np.minimum(following[""], self._length), 1)
        return {name: ring.sum(axis=1) / counts for name, ring in following.items() if name}

    @staticmethod
    def begun(following: Mapping[str, DeviceArray], mask: DeviceArray) -> dict[str, torch.Tensor]:
        """Return the same without the readings of the episodes that begin."""
        return {
            name: value.tensor.masked_fill(mask.tensor.reshape(-1, *(1,) * (value.ndim - 1)), 0)
            for name, value in following.items()
        }
