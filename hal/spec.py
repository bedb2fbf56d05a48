"""Describe a structure that crosses an interface as an ordered set of fields."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hal.errors import IllegalAction, SpecError, Violation
from hal.field import SHORT, Field, JsonDict, JsonObject

__all__ = ["Spec"]

_Vector = tuple[str, tuple[int, ...], np.dtype, float, float, list[tuple[float, float]] | None]
"""Name, shape, dtype, low and high of a short vector, and the low and high of each element where those differ."""


@dataclass(frozen=True)
class Spec:
    """Describe a structure of named fields: validate, pack, sample and compare its values.

    The packed row orders the fields by descending element size (4 bytes for the characters of a text), so every field
    lies at a multiple of its element size without padding. CDR (ROS 2's encoding) has the same layout for a message of
    fixed-size arrays, so one buffer serves memory, wire and log.

    A field of variable length has a fixed capacity, and a counter beside it (`Field.counted_by`): rows, batches, logs
    and tables all hold the same padded array and the same count.

    Attributes:
        name: the name of the structure, in lower case (``so101_sensors``).
        fields: the fields, in the order in which people read them.

    Raises:
        SpecError: two fields have the same name, or a counter is missing or its range does not match its entries.
    """

    name: str
    fields: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        if other := next((field for field in self.fields if not isinstance(field, Field)), None):
            raise SpecError(f"spec {self.name!r}: fields hold {other!r:.60}, expected Field objects, in a list")
        names = [field.name for field in self.fields]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise SpecError(f"spec {self.name!r}: two fields are called {', '.join(duplicates)}")
        for field in self.fields:
            if field.counted_by:
                self._check_counter(field)

    def _check_counter(self, field: Field) -> None:
        counter = self[field.counted_by]
        whole = not counter.shape and not counter.is_text and counter.numpy_dtype.kind in "iu"
        if not whole or counter.bounds[0] < 0 or counter.bounds[1] > field.shape[0]:
            raise SpecError(
                f"spec {self.name!r}: {field.name!r} is counted by {counter.name!r}, which must be a single whole "
                f"number with a range within 0 to {field.shape[0]}"
            )

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(self._by_name)

    def __getitem__(self, name: str) -> Field:
        try:
            return self._by_name[name]
        except KeyError:
            raise SpecError(f"spec {self.name!r} has no field {name!r}, it has {self._listed()}") from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def _listed(self) -> str:
        return ", ".join(self._by_name) or "none"

    # -- values ------------------------------------------------------------------------------------------

    def validate(self, values: Any, where: str = "") -> dict[str, np.ndarray]:
        """Check a structure against the description.

        Args:
            values: a mapping from the name of every field to its value.
            where: the name of the structure (``action``), for the message.

        Returns:
            A new dictionary in the order of the spec, with arrays of exactly the described shapes and dtypes.

        Raises:
            IllegalAction: with the first violation; unknown names come first, then missing ones, then the fields in
                order.
        """
        # Most commands of a robot are legal vectors of the right dtype. This loop accepts them in a third of the
        # thorough check's time, which counts where a whole simulated step takes 25 microseconds.
        checked: dict[str, np.ndarray] = {}
        try:
            for name, shape, dtype, low, high, ranges in self._vectors:
                value = values[name]
                if value.__class__ is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                    break
                if ranges is None:  # one range for all elements, at half the cost
                    for number in value.tolist():
                        if not low <= number <= high:  # False for NaN too
                            return self._validate_thoroughly(values, where)
                else:
                    for number, (low, high) in zip(value.tolist(), ranges):  # noqa: B905 (its cost; the shape agrees)
                        if not low <= number <= high:
                            return self._validate_thoroughly(values, where)
                checked[name] = value
        except (TypeError, KeyError, IndexError):
            pass
        else:
            if len(checked) == len(self.fields) == len(values):
                return checked
        return self._validate_thoroughly(values, where)

    @cached_property
    def _vectors(self) -> tuple[_Vector, ...]:
        """Return the fields that are short vectors."""
        short = [f for f in self.fields if len(f.shape) == 1 and f.size <= SHORT and not f.is_text and not f.counted_by]
        return tuple(_vector(field) for field in short)

    def _validate_thoroughly(self, values: object, where: str) -> dict[str, np.ndarray]:
        if not isinstance(values, Mapping):
            message = f"{where or self.name} is a {type(values).__name__}, expected a mapping with {self._listed()}"
            raise IllegalAction(Violation("dtype", where, (), message))
        fields = self._by_name
        if values.keys() != fields.keys():
            raise IllegalAction(self._key_violation(values, where))
        checked = {name: field.validate(values[name], where) for name, field in fields.items()}
        for field in self._counted:
            self._check_entries(field, checked, where)
        return checked

    @cached_property
    def _counted(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.counted_by)

    def _check_entries(self, field: Field, values: Mapping[str, np.ndarray], where: str) -> None:
        """Refuse entries behind the last one that counts, which would be lost or count by mistake."""
        count = int(values[field.counted_by])
        behind = values[field.name][count:]
        if behind.any():
            place = int(np.flatnonzero(behind.reshape(len(behind), -1).any(axis=1))[0]) + count
            name = f"{where or self.name}.{field.name}"
            message = (
                f"{name}[{place}] is used, and {field.counted_by} is {count}: the entries from there on must be "
                + ("empty" if field.is_text else "0")
            )
            raise IllegalAction(Violation("range", name, (place,), message))

    def _key_violation(self, names: Collection[object], where: str) -> Violation:
        structure = where or self.name
        for name in names:
            if name not in self._by_name:
                path = f"{structure}.{name}"
                return Violation("unknown", path, (), f"{path} is unknown, allowed are {self._listed()}")
        path = f"{structure}.{next(name for name in self._by_name if name not in names)}"
        return Violation("missing", path, (), f"{path} is missing, expected {self._listed()}")

    def sample(self, rng: np.random.Generator, leading: tuple[int, ...] = ()) -> dict[str, np.ndarray]:
        """Draw random legal values, each of shape ``leading`` + the shape of its field (R4.3)."""
        values = {field.name: field.sample(rng, leading) for field in self.fields}
        for field in self._counted:
            counts = values[field.counted_by].reshape(*leading, *(1 for _ in field.shape))
            places = np.arange(field.shape[0]).reshape(-1, *(1 for _ in field.shape[1:]))
            values[field.name] = np.where(places < counts, values[field.name], np.zeros((), field.numpy_dtype))
        return values

    def padded(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values with each counted field padded with zeros to its capacity, and with its counter filled in.

        Args:
            values: by name; a counted field may be a list of up to ``shape[0]`` entries, without its counter. Other
                values are returned as they are, for `validate` to check.

        Raises:
            IllegalAction: there are too many entries, one does not fit its field, or two fields that share a counter
                have different numbers of entries.
        """
        full, counts = dict(values), dict[str, int]()
        for field in self._counted:
            entries = list(values[field.name])
            if counts.setdefault(field.counted_by, len(entries)) != len(entries) or len(entries) > field.shape[0]:
                message = (
                    f"{self.name}.{field.name} has {len(entries)} entries, allowed are up to {field.shape[0]}, and as "
                    f"many as in the other fields that {field.counted_by} counts"
                )
                raise IllegalAction(Violation("shape", field.name, (), message))
            array = np.zeros(field.shape, field.numpy_dtype)
            one = replace(
                field, shape=field.shape[1:], counted_by="", elements=field.elements if len(field.shape) > 1 else ()
            )
            for place, entry in enumerate(entries):
                array[place] = one.validate(entry, self.name)
            full[field.name] = array
        return {**full, **{name: np.array(count, self[name].numpy_dtype) for name, count in counts.items()}}

    def entries(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the values of one row with each counted field cut to the entries that count."""
        cut = {field.name: values[field.name][: int(values[field.counted_by])] for field in self._counted}
        return {**values, **cut}

    # -- rows --------------------------------------------------------------------------------------------

    @cached_property
    def row_dtype(self) -> np.dtype:
        """The dtype of a packed row: little-endian, no padding, every field at a multiple of its element size."""
        ordered = sorted(self.fields, key=lambda field: -field.numpy_dtype.alignment)
        return np.dtype([(field.name, field.numpy_dtype, field.shape) for field in ordered])

    def rows(self, *leading: int) -> np.ndarray:
        """Return packed rows of zeros, of shape ``leading``."""
        return np.zeros(leading, self.row_dtype)

    def pack_into(self, row: np.ndarray | np.void, values: Mapping[str, ArrayLike]) -> None:
        """Write validated values, with the leading axes of ``row``, into the row; its other fields stay unchanged."""
        for name, value in values.items():
            row[name] = value

    def pack(self, values: Mapping[str, ArrayLike]) -> bytes:
        """Return one row as bytes. The values must have passed `validate`."""
        row = self.rows()
        self.pack_into(row, values)
        return row.tobytes()

    def view(self, rows: np.ndarray | np.void) -> dict[str, np.ndarray]:
        """Return the fields of rows of any leading shape, as views in the order of the spec."""
        return {name: rows[name] for name in self._by_name}

    def unpack(self, buffer: bytes | bytearray | memoryview) -> dict[str, np.ndarray]:
        """Return the fields of one row of bytes, as read-only arrays over the same memory.

        Raises:
            SpecError: the buffer is not exactly one row long.
        """
        size = memoryview(buffer).nbytes
        if size != self.row_dtype.itemsize:
            raise SpecError(f"a row of {self.name!r} has {self.row_dtype.itemsize} bytes, got {size}")
        if not self.fields:
            return {}
        row = np.frombuffer(buffer, self.row_dtype).reshape(())  # [0] would give scalars, not arrays, for scalar fields
        row.setflags(write=False)
        return self.view(row)

    # -- identity ----------------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """The SHA-256 (hex) of everything but the meanings, so that a reworded sentence breaks no connection."""
        plain = [{key: value for key, value in field.to_dict().items() if key != "meaning"} for field in self.fields]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def difference(self, other: Spec) -> list[str]:
        """Return a line ``field: key: mine, theirs`` for each difference; no line where the digests agree."""
        lines = [f"{name}: only here" for name in self.names if name not in other]
        lines += [f"{name}: only there" for name in other.names if name not in self]
        for field in self.fields:
            if field.name in other:
                lines += _field_difference(field, other[field.name])
        if not lines and self.names != other.names:
            lines.append(f"order: {', '.join(self.names)} here, {', '.join(other.names)} there")
        return lines

    def conflicting_conventions(self, other: Spec) -> list[str]:
        """Return a line for each field that the two specs describe under different conventions."""
        shared = ((field, other[field.name]) for field in self.fields if field.name in other)
        return [_convention_difference(mine, theirs) for mine, theirs in shared if mine.convention != theirs.convention]

    def to_dict(self) -> JsonDict:
        """Return plain data: name and fields."""
        return {"name": self.name, "fields": [field.to_dict() for field in self.fields]}

    @staticmethod
    def from_dict(plain: JsonObject) -> Spec:
        """Make a spec from the plain data of `to_dict`.

        Raises:
            SpecError: the data does not describe a spec.
        """
        try:
            return Spec(str(plain["name"]), tuple(Field.from_dict(field) for field in plain["fields"]))
        except (KeyError, TypeError) as error:
            raise SpecError(f"not a spec: {error!r}") from error

    # -- composition -------------------------------------------------------------------------------------

    def prefixed(self, prefix: str) -> Spec:
        """Return a spec with the same fields under the names ``<prefix>_<name>``."""
        return self.renamed({field.name: f"{prefix}_{field.name}" for field in self.fields})

    def renamed(self, names: Mapping[str, str]) -> Spec:
        """Return a spec of the fields that a mapping lists, under new names.

        Args:
            names: present name -> new name; it must list the counter of every counted field that it lists.

        Raises:
            SpecError: a field is unknown, or a counter is left out.
        """
        fields = (self[name] for name in names)
        return Spec(self.name, tuple(
            replace(field, name=names[field.name], counted_by=names.get(field.counted_by, field.counted_by))
            for field in fields
        ))  # fmt: skip

    @staticmethod
    def joined(name: str, parts: Iterable[Spec]) -> Spec:
        """Return a spec with all fields of the parts, in order."""
        return Spec(name, tuple(field for part in parts for field in part.fields))


def _vector(field: Field) -> _Vector:
    ranges = list(zip(*(bound.tolist() for bound in field.bounds), strict=True))
    return (field.name, field.shape, field.numpy_dtype, *ranges[0], ranges if len(set(ranges)) > 1 else None)


def _field_difference(mine: Field, theirs: Field) -> list[str]:
    local, remote = mine.to_dict(), theirs.to_dict()
    left_out = {"meaning", "convention"}
    if mine.shape != theirs.shape:
        left_out |= {"elements", "low", "high"}  # one for each element, so the shape says it all
    lines = [
        f"{mine.name}: {key}: {local.get(key, 'none')} here, {remote.get(key, 'none')} there"
        for key in {**local, **remote}
        if key not in left_out and local.get(key) != remote.get(key)
    ]
    if mine.convention != theirs.convention:
        lines.append(_convention_difference(mine, theirs))
    return lines


def _convention_difference(mine: Field, theirs: Field) -> str:
    return (
        f"{mine.name}: convention: {mine.convention or 'none'} here, {theirs.convention or 'none'} there; "
        "zero and sign differ, so equal numbers are different poses"
    )
