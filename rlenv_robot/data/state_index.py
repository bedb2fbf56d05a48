"""Find the recorded steps that began in a given state, using an index that is built once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from hal import Spec
from recorder.table.transitions import Transitions
from rlenv_robot.data.filters import near, shaped
from rlenv_robot.data.options import Tolerance
from rlenv_robot.tables import FieldValues

__all__ = ["StateIndex"]

_CHUNK = 1 << 18
_COLUMNS = 4
"""Elements that are kept sorted; a box in four directions leaves few of a million states."""

_SAMPLE = 4096


class StateIndex:
    """Find states by value: equal ones by a hash, near ones by the most selective of a few sorted elements.

    The index takes 16 bytes per transition for equal states, and 12 more for each sorted element. Each part is built on
    first use, in about a second per million transitions. Candidates are compared in full, so the result is exact.

    Args:
        transitions: the recorded transitions.
    """

    def __init__(self, transitions: Transitions) -> None:
        self._transitions = transitions
        self._spec = transitions.table.layout.observation
        self._hashes: tuple[np.ndarray, np.ndarray] | None = None
        self._sorted: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] | None = None

    def positions(self, state: FieldValues, tolerance: Tolerance) -> np.ndarray:
        """Return the positions of the transitions whose observation is within the tolerance, ascending.

        Args:
            state: field -> value; missing fields are ignored.
            tolerance: a number, or a mapping from field to number (see `rlenv_robot.data.filters.near`).

        Raises:
            SourceError: a field is unknown or a value does not have its shape.
        """
        near(self._transitions.table.rows[:0], self._spec, "observation", state, tolerance)  # refuses what is wrong
        exact = not any(tolerance.values()) if isinstance(tolerance, Mapping) else tolerance == 0
        whole = set(state) == set(self._spec.names)
        candidates = self._equal(state) if exact and whole else self._boxed(state, tolerance)
        rows = self._transitions.rows(candidates)
        return np.sort(candidates[near(rows, self._spec, "observation", state, tolerance)])

    # -- equal states ----------------------------------------------------------------------------------------

    def _equal(self, state: FieldValues) -> np.ndarray:
        if self._hashes is None:
            hashes = np.concatenate([_hash(self._spec, rows) for rows in self._chunks()])
            order = np.argsort(hashes)
            self._hashes = hashes[order], order
        hashes, order = self._hashes
        row = np.zeros(1, [(f"observation_{f.name}", f.numpy_dtype, f.shape) for f in self._spec])
        for name, value in state.items():
            row[f"observation_{name}"] = shaped(self._spec, "observation", name, value)
        key = _hash(self._spec, row)
        left, right = np.searchsorted(hashes, key), np.searchsorted(hashes, key, side="right")
        return np.asarray(order[left[0] : right[0]])

    def _chunks(self) -> Iterator[np.ndarray]:
        count = len(self._transitions)
        for begin in range(0, count, _CHUNK):
            yield self._transitions.rows(np.arange(begin, min(begin + _CHUNK, count)))

    # -- near states -----------------------------------------------------------------------------------------

    def _boxed(self, state: FieldValues, tolerance: Tolerance) -> np.ndarray:
        """Return candidates: positions within the tolerance in the best of the sorted elements."""
        ranges = []
        for (name, element), (values, order) in self._columns().items():
            if name not in state:
                continue
            gap = float(tolerance.get(name, 0.0) if isinstance(tolerance, Mapping) else tolerance)
            value = float(np.asarray(shaped(self._spec, "observation", name, state[name])).reshape(-1)[element])
            slack = 1e-6 * (abs(value) + gap)  # a rounded bound must not lose what the full comparison keeps
            low = np.searchsorted(values, value - gap - slack)
            high = np.searchsorted(values, value + gap + slack, side="right")
            ranges.append((high - low, low, high, order))
        if not ranges:
            return np.arange(len(self._transitions))
        _, low, high, order = min(ranges, key=lambda one: one[0])
        return np.asarray(order[low:high])

    def _columns(self) -> dict[tuple[str, int], tuple[np.ndarray, np.ndarray]]:
        """Return the elements with the most different values in a sample, each sorted."""
        if self._sorted is None:
            count = len(self._transitions)
            some = self._transitions.rows(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64))
            distinct: dict[tuple[str, int], int] = {}
            for field in (one for one in self._spec if not one.is_text):
                flat = some[f"observation_{field.name}"].reshape(len(some), -1)
                distinct |= {(field.name, k): len(np.unique(flat[:, k])) for k in range(flat.shape[1])}
            best = sorted(distinct, key=lambda element: -distinct[element])[:_COLUMNS]
            self._sorted = {one: self._column(*one) for one in best}
        return self._sorted

    def _column(self, name: str, element: int) -> tuple[np.ndarray, np.ndarray]:
        parts = [rows[f"observation_{name}"].reshape(len(rows), -1)[:, element] for rows in self._chunks()]
        values = np.concatenate(parts)
        order = np.argsort(values)
        return values[order], order


def _hash(spec: Spec, rows: np.ndarray) -> np.ndarray:
    """Return a multilinear hash over the values' bytes, (B,) uint64; equal where the observations are."""
    total = np.zeros(len(rows), np.uint64)
    rng = np.random.default_rng(0)
    for field in spec:
        raw = np.ascontiguousarray(rows[f"observation_{field.name}"]).reshape(len(rows), field.size)
        raw = raw.view(np.uint32) if field.is_text else raw  # code points
        values = raw.reshape(len(rows), -1).astype(np.float64) + 0.0  # -0.0 is 0.0
        words = values.view(np.uint64)
        words ^= words >> np.uint64(29)
        factors = rng.integers(0, 2**64, values.shape[1], np.uint64) | np.uint64(1)
        total += (words * factors).sum(axis=1, dtype=np.uint64)
    return total
