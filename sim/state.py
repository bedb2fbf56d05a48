"""Sensors read from a batch of simulations, with everything that can be decided beforehand decided."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from mujoco.batch import Batch

from hal.errors import SpecError
from hal.field import Field
from sim.model import Columns, Computed, SimModel, as_slice

__all__ = ["SensorReader"]

Source = tuple[np.ndarray, np.ndarray | None]
"""A live array, and the columns to gather from it, or None where it is the value already."""


class SensorReader:
    """Reads all sensors of a model.

    Args:
        batch: the running simulations.
        sim_model: whose sensors.
        row: read this simulation alone, without the leading axis; None reads all, ``(num, ...)``.

    Raises:
        SpecError: a reader names a field that MuJoCo doesn't have, or gives another shape than the spec says.
    """

    def __init__(self, batch: Batch, sim_model: SimModel, row: int | None = None) -> None:
        self._batch, self._row = batch, row
        self._names = sim_model.spec.sensors.names
        self._copies: list[tuple[str, Callable[[], np.ndarray]]] = []
        self._gathered: list[tuple[str, np.ndarray, np.ndarray, np.dtype, tuple[int, ...]]] = []
        self._computed: list[tuple[str, Callable[..., np.ndarray], tuple[Source, ...], np.dtype]] = []
        for sensor in sim_model.spec.sensors:
            reader = sim_model.sensors[sensor.name]
            if isinstance(reader, Computed):
                sources = tuple(self._source(sensor, columns) for columns in reader.inputs)
                self._computed.append((sensor.name, reader.function, sources, sensor.numpy_dtype))
            else:
                self._add_columns(sensor, reader)
        self._ordered = not self._gathered and not self._computed
        for name, value in self.read().items():
            self._check(sim_model.spec.sensors[name], value)

    def read(self, rows: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Every sensor's value as a new array, in the spec's order and dtypes; ``rows`` picks simulations by number."""
        values = {}
        for name, copy in self._copies:
            values[name] = copy()
        if not self._ordered:
            for name, source, columns, dtype, shape in self._gathered:
                values[name] = source[..., columns].astype(dtype).reshape(source.shape[:-1] + shape)
            for name, function, sources, dtype in self._computed:
                inputs = [array if columns is None else array[..., columns] for array, columns in sources]
                values[name] = function(*inputs).astype(dtype)
            values = {name: values[name] for name in self._names}
        return values if rows is None else {name: value[rows] for name, value in values.items()}

    def _add_columns(self, sensor: Field, reader: Columns) -> None:
        array, columns = self._source(sensor, reader)
        if columns is not None:
            self._gathered.append((sensor.name, array, columns, sensor.numpy_dtype, sensor.shape))
            return
        shaped = array.reshape(array.shape[:-1] + sensor.shape) if array.shape[-1] == sensor.size else array
        if not np.shares_memory(shaped, array):  # a copy would never change again
            every = np.arange(sensor.size)
            self._gathered.append((sensor.name, array, every, sensor.numpy_dtype, sensor.shape))
        else:
            same = shaped.dtype == sensor.numpy_dtype
            copy = shaped.copy if same else functools.partial(shaped.astype, sensor.numpy_dtype)
            self._copies.append((sensor.name, copy))

    def _source(self, sensor: Field, reader: Columns) -> Source:
        try:
            live = self._batch.bind(reader.field)
        except ValueError as error:
            raise SpecError(f"sensor {sensor.name!r} reads {reader.field!r}: {error}") from error
        flat = live.reshape(live.shape[0], -1) if live.ndim != 2 else live
        if self._row is not None:
            flat = flat[self._row]
        columns = as_slice(reader.columns)
        if isinstance(columns, slice):
            return flat[..., columns], None
        if not 0 <= min(columns) <= max(columns) < flat.shape[-1]:
            raise SpecError(
                f"sensor {sensor.name!r} reads columns {columns} of {reader.field!r}, which has {flat.shape[-1]}"
            )
        return flat, np.asarray(columns)

    def _check(self, sensor: Field, value: np.ndarray) -> None:
        wanted = sensor.shape if self._row is not None else (self._batch.nsim, *sensor.shape)
        if value.shape != wanted:
            raise SpecError(f"sensor {sensor.name!r} is read with shape {value.shape}, the spec says {wanted}")
