"""How much of what could be asked for was tried: the coverage of the actions (R3.6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hal import Field
from recorder.transitions import Transitions

__all__ = ["coverage"]

_AT_LIMIT = 1e-3
"""An action this near to a limit, in parts of the range, is at it."""


def coverage(transitions: Transitions, part: np.ndarray, bins: int) -> dict[str, Any]:
    """Where the actions lie within what may be asked, element by element.

    Args:
        transitions: all of them.
        part: positions of those that count.
        bins: of equal width, into which the range is cut.

    Returns:
        ``actions``: field -> lists, one number an element in C order: ``low`` and ``high`` of the range (that of the
        data where the field's own is open), ``covered``, the share of bins with an action in them; ``entropy`` of
        the bins over that of an even spread, 0 to 1; ``at_limit``, the share of actions at either end of a closed
        range (NaN for open ones). ``distinct``: how many different actions there are.
    """
    rows, spec = transitions.next_rows(part), transitions.table.layout.action
    packed = spec.rows(len(rows))
    spec.pack_into(packed, {name: rows[f"action_{name}"] for name in spec.names})
    fields = {field.name: _field(field, packed[field.name].reshape(len(rows), -1), bins) for field in spec}
    return {
        "kind": "coverage",
        "steps": len(rows),
        "bins": bins,
        "distinct": len(np.unique(packed.view(f"V{packed.dtype.itemsize}"))),
        "actions": fields,
    }


def _field(field: Field, values: np.ndarray, bins: int) -> dict[str, Any]:
    lows, highs = (np.broadcast_to(np.ravel(side), values.shape[1]) for side in (field.low, field.high))
    three = zip(values.astype(float).T, lows, highs, strict=True)
    columns = [_element(column, low, high, bins) for column, low, high in three]
    return {
        "unit": field.unit,
        "elements": list(field.elements),
        **{key: [column[key] for column in columns] for key in ("low", "high", "covered", "entropy", "at_limit")},
    }


def _element(values: np.ndarray, low: float, high: float, bins: int) -> dict[str, float]:
    closed = bool(np.isfinite(low) and np.isfinite(high))
    begin, end = (float(low), float(high)) if closed else (float(values.min()), float(values.max()))
    counts = np.histogram(values, bins, (begin, end))[0]
    share = counts[counts > 0] / max(counts.sum(), 1)
    near = np.minimum(values - begin, end - values) <= _AT_LIMIT * (end - begin)
    return {
        "low": begin,
        "high": end,
        "covered": float((counts > 0).mean()),
        "entropy": float(-(share * np.log(share)).sum() / np.log(bins)) if bins > 1 else 0.0,
        "at_limit": float(near.mean()) if closed else float("nan"),
    }
