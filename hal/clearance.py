"""Whether a command is plainly within its limits, told sooner than they are applied."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hal.robot import RobotSpec

__all__ = ["plainly_within"]

MARGIN = 1e-3
"""Share of a limit that is left out: what is nearer to it is for `Limits.apply`, with its own type's rounding."""

Clear = Callable[[np.ndarray, np.ndarray, np.ndarray | None], bool]


def plainly_within(spec: RobotSpec, name: str) -> Clear | None:
    """A function of target, applied last and measured last, each of the command's shape, that says whether the target
    is so far within speed and lead that limiting returns it as it is. False says nothing: then limit it.

    A command of six joints costs a microsecond this way, since Python's floats are faster than NumPy's short arrays.

    Args:
        spec: whose limits; the target has passed ``spec.commands.validate``.
        name: which command. None is returned for one that is no vector.
    """
    shape = spec.commands[name].shape
    if len(shape) != 1:
        return None
    steps = _limits(spec.limits.max_velocity.get(name), shape[0], spec.period_s)
    reaches = _limits(spec.limits.max_lead.get(name), shape[0], 1.0)

    def within(target: np.ndarray, previous: np.ndarray, measured: np.ndarray | None) -> bool:
        values = target.tolist()
        if steps is not None:
            for value, before, step in zip(values, previous.tolist(), steps, strict=True):
                if not -step < value - before < step:  # true for NaN too
                    return False
        if reaches is not None and measured is not None:
            for value, seen, reach in zip(values, measured.tolist(), reaches, strict=True):
                if not -reach < value - seen < reach:
                    return False
        return True

    return within


def _limits(limit: float | tuple[float, ...] | None, size: int, scale: float) -> list[float] | None:
    if limit is None:
        return None
    each = (limit,) * size if isinstance(limit, float) else limit
    return [value * scale * (1.0 - MARGIN) for value in each]
