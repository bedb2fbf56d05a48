"""Convert sensors, poses and commands of simulations between MuJoCo's arrays and a spec's fields."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np
from mujoco.batch import Batch

from hal.errors import IllegalAction, RobotError, SpecError, Violation
from hal.field import Field
from sim.model import Columns, Computed, ImageReader, Rendered, SimModel, as_slice

__all__ = ["SensorReader", "Writer", "checked", "posed", "posing", "resting", "rows_of", "whole_state"]

Source = tuple[np.ndarray, np.ndarray | None]
"""A live array, and the columns to gather from it; None if the array itself is the value."""


class SensorReader:
    """Read all sensors of a model. The constructor makes all decisions that do not depend on the state.

    Args:
        batch: the running simulations.
        sim_model: the model that has the sensors.
        row: index of the only simulation to read, without the leading axis; None reads all, ``(num, ...)``.
        images: sensor name -> reader of its images.

    Raises:
        SpecError: a reader names a field that MuJoCo doesn't have, or its shape differs from the spec's.
    """

    def __init__(
        self,
        batch: Batch,
        sim_model: SimModel,
        row: int | None = None,
        images: Mapping[str, ImageReader] = MappingProxyType({}),
    ) -> None:
        self._batch, self._row = batch, row
        self._names = sim_model.spec.sensors.names
        self._images: dict[str, ImageReader] = {}
        self._copies: list[tuple[str, Callable[[], np.ndarray]]] = []
        self._gathered: list[tuple[str, np.ndarray, np.ndarray, np.dtype, tuple[int, ...]]] = []
        self._computed: list[tuple[str, Callable[..., np.ndarray], tuple[Source, ...], np.dtype]] = []
        for sensor in sim_model.spec.sensors:
            reader = sim_model.sensors[sensor.name]
            if isinstance(reader, Rendered):
                if sensor.name not in images:
                    raise SpecError(f"sensor {sensor.name!r} is an image, which is drawn on the CPU alone")
                self._images[sensor.name] = images[sensor.name]
            elif isinstance(reader, Computed):
                sources = tuple(self._source(sensor, columns) for columns in reader.inputs)
                self._computed.append((sensor.name, reader.function, sources, sensor.numpy_dtype))
            else:
                self._add_columns(sensor, reader)
        self._ordered = not self._gathered and not self._computed
        for name, value in self._read_numbers(None).items():
            self._check(sim_model.spec.sensors[name], value)

    def read(self, rows: np.ndarray | None = None, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
        """Return the values of sensors as new arrays, in the spec's order and dtypes.

        Args:
            rows: indices of the simulations to read, for a reader without ``row``; None for all.
            names: names of the sensors to read; None for all. Other images are not drawn.
        """
        values = self._read_numbers(rows)
        if self._images:
            some = rows if self._row is None else np.array([self._row])
            for name, reader in self._images.items():
                if names is None or name in names:
                    drawn = reader.read(some)
                    values[name] = drawn if self._row is None else drawn[0]
        if self._images or names is not None:
            return {name: values[name] for name in self._names if name in values and (names is None or name in names)}
        return values

    def _read_numbers(self, rows: np.ndarray | None) -> dict[str, np.ndarray]:
        """Return the values of all sensors but images."""
        values = {}
        for name, copy in self._copies:
            values[name] = copy()
        if not self._ordered:
            for name, source, columns, dtype, shape in self._gathered:
                values[name] = source[..., columns].astype(dtype).reshape(source.shape[:-1] + shape)
            for name, function, sources, dtype in self._computed:
                inputs = [array if columns is None else array[..., columns] for array, columns in sources]
                values[name] = function(*inputs).astype(dtype)
            values = {name: values[name] for name in self._names if name in values}
        return values if rows is None else {name: value[rows] for name, value in values.items()}

    def _add_columns(self, sensor: Field, reader: Columns) -> None:
        array, columns = self._source(sensor, reader)
        rows = None if columns is None else _in_rows(array, columns, sensor.shape)
        if rows is not None:
            array, columns = rows, None
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
        shape = sensor.shape if self._row is not None else (self._batch.nsim, *sensor.shape)
        if value.shape != shape:
            raise SpecError(f"sensor {sensor.name!r} is read with shape {value.shape}, the spec says {shape}")


def _in_rows(array: np.ndarray, columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return columns whose rows are evenly spaced in both directions, such as the positions of bodies, as a view.

    Copying a view takes a fifth of the time of gathering columns by their numbers.

    Args:
        array: live, shape (..., n).
        columns: the columns of its last axis.
        shape: the shape of the view's last axes.

    Returns:
        Shape (..., *shape), read-only; None where ``shape`` has not two axes or the columns are spaced otherwise.
    """
    if len(shape) != 2 or len(columns) != shape[0] * shape[1]:
        return None
    numbers = columns.reshape(shape)
    first, across, down = int(numbers[0, 0]), np.diff(numbers, axis=1), np.diff(numbers, axis=0)
    steps = [int(gaps[0, 0]) if gaps.size else 1 for gaps in (down, across)]
    even = (down == steps[0]).all() and (across == steps[1]).all() and min(steps) > 0
    if not even or first < 0 or columns[-1] >= array.shape[-1]:
        return None
    strides = (*array.strides[:-1], *(step * array.strides[-1] for step in steps))
    return np.lib.stride_tricks.as_strided(array[..., first:], (*array.shape[:-1], *shape), strides, writeable=False)


# -- ``qpos`` from sensors or from a pose -----------------------------------------------------------------------


def posing(sim_model: SimModel, sensors: Iterable[str]) -> list[str]:
    """Return the names of those sensors that determine a pose: the model reads them directly from ``qpos``.

    Raises:
        RobotError: none of them determines a pose.
    """
    available = sorted(sensors)
    readable = [n for n, r in sim_model.sensors.items() if isinstance(r, Columns) and r.field == "qpos"]
    names = [name for name in readable if name in available]
    if not names:
        raise RobotError(f"none of {available} gives a pose of {sim_model.spec.name}, expected one of {readable}")
    return names


def posed(sim_model: SimModel, sensors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return ``qpos``, (nq,), from one row of sensors; elements that no sensor measures are the keyframe's.

    Raises:
        RobotError: none of the sensors determines a pose.
    """
    qpos = resting(sim_model)
    for name in posing(sim_model, sensors):
        reader = sim_model.sensors[name]
        assert isinstance(reader, Columns)
        columns = reader.columns if isinstance(reader.columns, slice) else list(reader.columns)
        qpos[columns] = np.asarray(sensors[name]).ravel()
    return qpos


def whole_state(sim_model: SimModel, state: np.ndarray) -> np.ndarray:
    """Return ``qpos``, (nq,), from a whole state or from a pose alone, as for `Camera.render`."""
    values = np.asarray(state, float).ravel()
    if values.size == sim_model.model.nq:
        return values
    qpos = resting(sim_model)
    at = [np.arange(len(qpos))[c] if isinstance(c, slice) else np.asarray(c) for c in sim_model.start.values()]
    pose = np.concatenate(at) if at else np.zeros(0, int)
    if values.size != pose.size:
        raise RobotError(f"{values.size} numbers are no state: expected {len(qpos)} (qpos) or {pose.size} (a pose)")
    qpos[pose] = values
    return qpos


def resting(sim_model: SimModel) -> np.ndarray:
    """Return ``qpos`` of the keyframe that a reset begins with, (nq,), a new array."""
    model, key = sim_model.model, sim_model.keyframe
    return np.array(model.key_qpos[key] if key >= 0 else model.qpos0)


# -- Legal commands and indices of a batch ----------------------------------------------------------------------


Writer = tuple[str, np.ndarray, Any, tuple[int, ...], np.dtype]
"""A command's name, its live array, its index in that array, and its shape and dtype for all simulations."""


def checked(commands: Mapping[str, np.ndarray], writers: Sequence[Writer]) -> dict[str, np.ndarray]:
    """Return the commands as new arrays of the spec's dtypes.

    Raises:
        IllegalAction: a name or shape is wrong, or a value is not finite.
    """
    values = {}
    for name, _, _, shape, dtype in writers:
        value = np.asarray(commands[name]) if name in commands else None
        if value is None or value.shape != shape or not np.isfinite(value).all():
            _refuse(name, value, shape, writers)
        values[name] = value.astype(dtype)
    if len(commands) != len(values):
        unknown = next(name for name in commands if name not in values)
        _illegal("unknown", unknown, (), f"command.{unknown} is unknown, allowed are {', '.join(values)}")
    return values


def _refuse(name: str, value: np.ndarray | None, shape: tuple[int, ...], writers: Sequence[Writer]) -> NoReturn:
    if value is None:
        names = ", ".join(writer[0] for writer in writers)
        _illegal("missing", name, (), f"command.{name} is missing, commands are {names}")
    if value.shape != shape:
        _illegal("shape", name, (), f"command.{name} has shape {value.shape}, it must be {shape}")
    index = tuple(int(axis) for axis in np.argwhere(~np.isfinite(value))[0])
    _illegal("not_finite", name, index, f"command.{name}{list(index)} is {value[index]}, it must be finite")


def rows_of(ids: Sequence[int] | np.ndarray | None, num: int) -> np.ndarray:
    """Return the indices of the selected simulations, (n,).

    Raises:
        ValueError: the ids are neither ascending, distinct whole numbers from 0 to num - 1 nor a mask of shape (num,).
    """
    if ids is None:
        return np.arange(num)
    array = np.asarray(ids)
    if array.dtype == bool and array.shape == (num,):
        return np.flatnonzero(array)
    if array.size == 0:
        return np.zeros(0, int)
    whole = array.dtype.kind in "iu" and array.ndim == 1
    if not whole or array[0] < 0 or array[-1] >= num or not (np.diff(array.astype(int)) > 0).all():
        raise ValueError(f"ids {array.tolist()} are no rising numbers of 0..{num - 1} and no mask of shape ({num},)")
    return array.astype(int)


def _illegal(code: str, name: str, index: tuple[int, ...], message: str) -> NoReturn:
    raise IllegalAction(Violation(code, f"command.{name}", index, message))
