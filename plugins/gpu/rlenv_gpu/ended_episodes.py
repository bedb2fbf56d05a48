"""Compute the results of episodes that ended on a device, when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from rlenv_gpu.tensor_array import for_tensors
from rlenv_robot.tasks.task import AveragedTask, Task

__all__ = ["EndedEpisodes"]


class EndedEpisodes(Mapping[str, Any]):
    """The episodes that ended in a step: the keys of ``extra_info["final"]``, computed when they are read.

    ``mask`` is bool (N,) and costs nothing. Reading any other entry waits for the GPU, since the number K of rows is
    not known before: ``index`` (K,), ``frame_no``, ``success``, ``broken`` (K,), ``observation`` and ``metrics`` by
    name.

    Args:
        task: the task of the environments.
        mask: bool, (N,).
        last: ``sensors``, ``goal``, ``frame_no``, ``broken`` and ``means`` of all environments at the end of the step,
            before the next episodes begin.
    """

    def __init__(self, task: Task, mask: torch.Tensor, last: Mapping[str, Any]) -> None:
        self.mask = mask
        self._task, self._last = task, last
        self._index: torch.Tensor | None = None

    @property
    def _rows(self) -> torch.Tensor:
        if self._index is None:
            self._index = torch.nonzero(self.mask)[:, 0]
        return self._index

    def __getitem__(self, key: str) -> Any:
        if key not in _FINAL:
            raise KeyError(key)
        rows = self._rows
        if key == "index":
            return rows
        if key == "frame_no":
            return self._last["frame_no"][rows]
        if key == "broken":
            return self._last["broken"][rows]
        task = self._task
        sensors, goal, means = (
            {n: v[rows] for n, v in self._last[part].items()} for part in ("sensors", "goal", "means")
        )
        if key == "observation":
            return for_tensors(task.observe)(sensors, goal)
        if key == "metrics":
            return means if isinstance(task, AveragedTask) else for_tensors(task.metrics)(sensors, goal)
        if isinstance(task, AveragedTask):
            success: torch.Tensor = for_tensors(task.average_success)(means, sensors, goal)
        else:
            success = for_tensors(task.success)(sensors, goal)
        return success & ~self._last["broken"][rows]

    def __iter__(self) -> Iterator[str]:
        return iter(_FINAL)

    def __len__(self) -> int:
        return len(_FINAL)


_FINAL = ("index", "frame_no", "observation", "success", "metrics", "broken")
