"""The differences in a vector once more, close up: where a grasp is decided by millimetres."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlenv_robot.interop.flat import FlattenObservation

__all__ = ["ScaledDifferences"]


class ScaledDifferences(nn.Module):  # type: ignore[misc]  # torch is not there for everyone
    """A first layer without weights: ``flat``'s vector, and its differences again, `MAGNIFIED` times as large.

    The differences are the last elements of the vector (see `rlenv_robot.interop.flat.FlattenObservation`). Beside
    the whole range
    of each it gives ``tanh(MAGNIFIED * difference)``, whose range a fifth of the difference's scale fills: 1 cm where
    the scale is 5 cm.

    Attributes:
        size: elements of what it gives.
    """

    MAGNIFIED = 5.0

    def __init__(self, flat: FlattenObservation) -> None:
        super().__init__()
        self._gaps = sum(flat.observation[gap.minuend].size for gap in flat.differences)
        self.size = flat.size + self._gaps

    def forward(self, vector: Any) -> Any:
        """From shape (..., D) to (..., ``size``)."""
        gaps = vector[..., vector.shape[-1] - self._gaps :]
        return torch.cat([vector, torch.tanh(self.MAGNIFIED * gaps)], dim=-1)
