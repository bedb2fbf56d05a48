"""Accept numbers that the rounding of a conversion has moved out of a field's range."""

from __future__ import annotations

import numpy as np

from hal import Field

__all__ = ["ROUNDING", "rounded"]

ROUNDING = 1e-5
"""Share of a field's range by which a value may lie outside: more than two conversions in float32 move it."""


def rounded(values: np.ndarray, field: Field, where: str) -> np.ndarray:
    """Return a vector as a value of a field.

    A value outside the field's range by at most `ROUNDING` of the range is set to the bound. Whole numbers may come as
    floats.

    Args:
        values: float64, one for each element.
        field: the field.
        where: the structure's name, for the message.

    Raises:
        IllegalAction: a value is not finite, not whole where the field is, or farther outside the range.
    """
    low, high = (np.asarray(bound, np.float64).ravel() for bound in field.bounds)
    with np.errstate(over="ignore", invalid="ignore"):
        margin = np.where(np.isfinite(high - low), ROUNDING * (high - low), 0.0)
        near = np.clip(values, low, high)
        values = np.where(np.abs(near - values) <= margin, near, values)
        if field.numpy_dtype.kind != "f" and (values == np.rint(values)).all() and (np.abs(values) < 2**53).all():
            return field.validate(values.astype(np.int64).reshape(field.shape), where)
        return field.validate(values.reshape(field.shape), where)
