"""Describe one number or array that crosses an interface: its name, type, shape, range, unit and meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from hal.errors import IllegalAction, SpecError, Violation

__all__ = ["DTYPES", "SHORT", "TEXT", "Bound", "Field", "JsonDict", "JsonObject"]

JsonDict = dict[str, Any]
"""Plain data by name, nested to any depth, as JSON, msgpack and TOML can hold it."""

JsonObject = Mapping[str, Any]
"""A read-only mapping of plain data by name."""

Bound = float | tuple[float, ...]
"""One bound for all elements, or one for each element in C order."""

DTYPES = (
    "float64", "float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8",
)  # fmt: skip
"""The types of numbers that numpy, ROS 2 messages and CDR all have."""

TEXT = "text"
"""The element type of texts: at most ``characters`` Unicode characters, NumPy's ``<U``."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz ABC 0123456789 .,:;!?-_/\"'\n\u00e4\u00df\u0416\u673a\u5668\U0001f916"
"""Characters of random texts; numpy, UTF-8 and UTF-16 store them in different lengths."""

_NAME = re.compile(r"[a-z](_?[a-z0-9])*")  # the names that ROS 2 allows for the fields of a message
SHORT = 32
"""Largest number of elements for which a Python loop over floats is faster than three calls of NumPy."""


@dataclass(frozen=True)
class Field:
    """The description of one named array (R4.2). Immutable; equal by value.

    Attributes:
        name: lower case with underscores, as the name of a ROS 2 message's field.
        shape: the shape of one value, without leading (batch or time) axes; ``()`` is a scalar.
        dtype: the type of an element, one of `DTYPES`, or ``text``. A value is then a numpy array of texts, which a row
            holds as ``characters`` code points of 4 bytes each, zeros behind the text.
        low: the lowest legal value, one number for all elements or one for each; by default the lowest finite value of
            the dtype.
        high: the highest legal value, likewise.
        unit: the SI symbol (``rad``, ``m/s``), or ``1`` for a number without a unit.
        meaning: one sentence that says which quantity the values are.
        elements: names of the elements along the last axis, or none.
        convention: the name of the document that fixes zero and sign of the values, for values that mean a pose only
            under such a convention (``so101_new_calib``). Fields of different conventions do not match.
        characters: the largest number of characters (Unicode code points) of a text, from 1; 0 for numbers.
        counted_by: the name of a whole-number field of the same spec that holds the number of valid entries along the
            first axis, for a set or a list of up to ``shape[0]`` entries; several fields may share one. The entries
            after the valid ones are 0, or empty texts. Empty: all entries are valid.

    Raises:
        SpecError: the description contradicts itself.
    """

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    low: Bound = -math.inf
    high: Bound = math.inf
    unit: str = "1"
    meaning: str = ""
    elements: tuple[str, ...] = ()
    convention: str = ""
    characters: int = 0
    counted_by: str = ""

    def __post_init__(self) -> None:
        if np.ndim(self.shape) == 0:
            raise SpecError(f"field {self.name!r}: shape is {self.shape}, expected a tuple, such as (6,), or ()")
        for key in ("shape", "elements"):
            object.__setattr__(self, key, tuple(getattr(self, key)))
        for key in ("low", "high"):
            value = getattr(self, key)
            bound = np.asarray(value, float) + 0.0  # -0.0 becomes 0.0, so that equal fields have equal digests
            object.__setattr__(self, key, float(bound) if bound.ndim == 0 else tuple(bound.ravel().tolist()))
        self._check_description()

    def _check_description(self) -> None:
        def wrong(problem: str) -> SpecError:
            return SpecError(f"field {self.name!r}: {problem}")

        if not _NAME.fullmatch(self.name):
            raise wrong("a name is lower-case letters, digits and single underscores, a letter first")
        if self.dtype not in (*DTYPES, TEXT):
            raise wrong(f"dtype {self.dtype!r} is none of {', '.join((*DTYPES, TEXT))}")
        if not isinstance(self.characters, int) or (self.characters > 0) != self.is_text:
            raise wrong(f"characters is {self.characters!r}, expected a number from 1 for text, and 0 for {DTYPES[0]}")
        if not all(isinstance(n, int) and n > 0 for n in self.shape):
            raise wrong(f"shape {self.shape} must hold positive whole numbers")
        if self.elements and (not self.shape or len(self.elements) != self.shape[-1]):
            raise wrong(f"{len(self.elements)} element names do not fit shape {self.shape}")
        for key, bound in (("low", self.low), ("high", self.high)):
            if isinstance(bound, tuple) and len(bound) != self.size:
                raise wrong(f"{key} has {len(bound)} numbers, the field {self.size} elements")
        texts = (self.unit, self.meaning, self.convention, self.counted_by, *self.elements)
        if not all(isinstance(text, str) for text in texts):
            raise wrong("unit, meaning, convention, counted_by and element names are text")
        if self.counted_by and not self.shape:
            raise wrong(f"counted_by {self.counted_by!r} counts entries of the first axis, and the shape is ()")
        low, high = np.asarray(self.low), np.asarray(self.high)
        if not np.all(low <= high):  # catches NaN too
            raise wrong(f"low {self.low} must not be above high {self.high}, and neither may be NaN")
        if self.is_text:
            if np.isfinite(low).any() or np.isfinite(high).any():
                raise wrong("a text has no range; leave out low and high")
            return
        if self.numpy_dtype.kind != "f":
            low, high = np.ceil(low), np.floor(high)
        lowest, highest = float(self._limits.min), float(self._limits.max)
        if not np.all((low <= high) & (low <= highest) & (high >= lowest)):
            raise wrong(f"no {self.dtype} lies between low {self.low} and high {self.high}")
        if self.counted_by and not np.all((low <= 0) & (high >= 0)):
            raise wrong(f"entries that do not count are 0, so 0 must lie between low {self.low} and high {self.high}")

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def is_text(self) -> bool:
        """Whether the elements are texts."""
        return self.dtype == TEXT

    @property
    def is_image(self) -> bool:
        """Whether the value is an image: bytes of shape (height, width, 3)."""
        return self.dtype == "uint8" and len(self.shape) == 3 and self.shape[2] == 3

    @cached_property
    def numpy_dtype(self) -> np.dtype:
        """The numpy dtype of an element, little-endian."""
        if self.is_text:
            return np.dtype(f"<U{self.characters}")
        return np.dtype("<" + np.dtype(self.dtype).str[1:])  # numpy's own singleton on little-endian machines

    @property
    def _limits(self) -> np.finfo | np.iinfo:
        return np.finfo(self.dtype) if self.numpy_dtype.kind == "f" else np.iinfo(self.dtype)

    @cached_property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest legal values: two read-only arrays of the field's shape and dtype, always finite.

        Raises:
            SpecError: the field holds texts, which have no range.
        """
        if self.is_text:
            raise SpecError(f"field {self.name!r} holds texts, which have no range; numbers are needed here")
        return self._saturated(self.low, np.ceil), self._saturated(self.high, np.floor)

    @cached_property
    def nothing(self) -> np.ndarray:
        """The legal value nearest to zero, or empty texts; read-only, of the field's shape and dtype."""
        value = np.zeros(self.shape, self.numpy_dtype)
        value = value if self.is_text else np.clip(value, *self.bounds)
        value.setflags(write=False)
        return value

    def _saturated(self, bound: Bound, inwards: np.ufunc) -> np.ndarray:
        """Return a bound in the field's dtype and shape, infinite sides as the dtype's extremes; read-only."""
        # Saturate in Python numbers, since the limits of an int64 are not exact as float64. An image has few bounds.
        different, places = np.unique(np.asarray(bound, float), return_inverse=True)
        different = different if self.numpy_dtype.kind == "f" else inwards(different)
        numbers = np.array([self._saturate(number, self._limits) for number in different.tolist()], self.numpy_dtype)
        shape = self.shape if isinstance(bound, tuple) else ()
        array = np.array(np.broadcast_to(numbers[places.ravel()].reshape(shape), self.shape))
        array.setflags(write=False)
        return array

    @staticmethod
    def _saturate(value: float, limits: np.finfo | np.iinfo) -> float | int:
        whole = isinstance(limits, np.iinfo)
        if value <= float(limits.min):
            return int(limits.min) if whole else float(limits.min)
        if value >= float(limits.max):
            return int(limits.max) if whole else float(limits.max)
        return int(value) if whole else value

    @cached_property
    def _flat_bounds(self) -> tuple[list[float], list[float]]:
        low, high = self.bounds
        return low.ravel().tolist(), high.ravel().tolist()

    def validate(self, value: object, where: str = "") -> np.ndarray:
        """Return the value as an array of exactly this field's shape and dtype.

        Numbers, lists and arrays are accepted if they convert without changing their kind: a whole number may become
        a float, but a float never becomes a whole number. A float is rounded to a narrower float type. A text may hold
        any character of UTF-8 except the zero character.

        Args:
            value: a number, a nested list of numbers, or an array; a text, a nested list of texts, or an array of them.
            where: the name of the structure that holds the value (``action``), for the message.

        Returns:
            The array itself, without a copy, if it already has this shape and dtype; otherwise a new array.

        Raises:
            IllegalAction: with code dtype, shape, not_finite or range (also of a text that is too long).
        """
        if self.is_text:
            return self._validate_text(value, where)
        if type(value) is np.ndarray and value.dtype == self.numpy_dtype and value.shape == self.shape:
            array = value
        else:
            array = self._convert(value, where)
        if self.size > SHORT:
            lowest, highest = self.bounds
            if not ((array >= lowest) & (array <= highest)).all():
                self._refuse(array, where)
            return array
        lows, highs = self._flat_bounds
        for number, low, high in zip(array.ravel().tolist(), lows, highs, strict=True):
            if not low <= number <= high:  # False for NaN too
                self._refuse(array, where)
        return array

    def _validate_text(self, value: object, where: str) -> np.ndarray:
        name = self._dotted(where)
        try:
            array = np.asarray(value, object) if not isinstance(value, np.ndarray) else value
        except ValueError:
            raise self._illegal("shape", where, (), f"{name} is no array of shape {self.shape}") from None
        if array.shape != self.shape:
            raise self._illegal("shape", where, (), f"{name} has shape {array.shape}, expected {self.shape}")
        for place, text in enumerate(array.ravel().tolist()):
            index = self._index(place)
            one = self._dotted(where, index)
            if not isinstance(text, str):
                raise self._illegal("dtype", where, index, f"{one} is a {type(text).__name__}, expected a text")
            if len(text) > self.characters:
                message = f"{one} has {len(text)} characters, allowed are up to {self.characters}: {text[:40]!r}"
                raise self._illegal("range", where, index, message)
            if "\0" in text or not _encodable(text):
                message = f"{one} has a character that UTF-8 can't carry, or a zero character: {text[:40]!r}"
                raise self._illegal("range", where, index, message)
        if isinstance(value, np.ndarray) and array.dtype == self.numpy_dtype:
            return array
        return np.array(array, self.numpy_dtype)

    def _convert(self, value: object, where: str) -> np.ndarray:
        name = self._dotted(where)
        try:
            array = np.asarray(value)
        except ValueError:
            raise self._illegal(
                "shape", where, (), f"{name} is not a rectangular array, expected shape {self.shape}"
            ) from None
        except Exception as error:  # an object's own __array__ may raise anything (a tensor that needs its gradient)
            raise self._illegal("dtype", where, (), f"{name} can't be read as an array: {error}") from error
        if array.dtype.kind not in "fiu":
            got = type(value).__name__ if array.dtype == object else str(array.dtype)
            raise self._illegal("dtype", where, (), f"{name} has type {got}, expected {self.dtype}")
        if array.shape != self.shape:
            raise self._illegal("shape", where, (), f"{name} has shape {array.shape}, expected {self.shape}")
        if self.numpy_dtype.kind != "f" and array.dtype.kind == "f":
            raise self._illegal(
                "dtype", where, (), f"{name} has type {array.dtype}, expected whole numbers ({self.dtype})"
            )
        if self.numpy_dtype.kind != "f":
            self._check_whole_range(array, where)
        with np.errstate(over="ignore"):
            return array.astype(self.numpy_dtype)

    def _check_whole_range(self, array: np.ndarray, where: str) -> None:
        """Check the range of whole numbers before the cast, which would wrap around."""
        lows, highs = self._flat_bounds
        for place, (number, low, high) in enumerate(zip(array.ravel().tolist(), lows, highs, strict=True)):
            if not low <= number <= high:
                raise self._out_of_range(place, number, where)

    def _refuse(self, array: np.ndarray, where: str) -> None:
        """Raise for the first element that is not finite or out of range."""
        lows, highs = self._flat_bounds
        for place, (number, low, high) in enumerate(zip(array.ravel().tolist(), lows, highs, strict=True)):
            if not math.isfinite(number):
                index = self._index(place)
                message = f"{self._dotted(where, index)} is {number}, expected a finite number"
                raise self._illegal("not_finite", where, index, message)
            if not low <= number <= high:
                raise self._out_of_range(place, number, where)

    def _out_of_range(self, place: int, number: float, where: str) -> IllegalAction:
        lows, highs = self._flat_bounds
        index = self._index(place)
        unit = "" if self.unit == "1" else f" {self.unit}"
        allowed = f"{lows[place]:.9g} to {highs[place]:.9g}{unit}"
        message = f"{self._dotted(where, index)} is {number:.9g}{unit}, allowed are {allowed}"
        return self._illegal("range", where, index, message)

    def _illegal(self, code: str, where: str, index: tuple[int, ...], message: str) -> IllegalAction:
        return IllegalAction(Violation(code, self._dotted(where), index, message))

    def _index(self, place: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.unravel_index(place, self.shape)) if self.shape else ()

    def _dotted(self, where: str, index: tuple[int, ...] = ()) -> str:
        name = f"{where}.{self.name}" if where else self.name
        if not index:
            return name
        label = f" ({self.elements[index[-1]]})" if self.elements else ""
        return f"{name}[{', '.join(map(str, index))}]{label}"

    def sample(self, rng: np.random.Generator, leading: tuple[int, ...] = ()) -> np.ndarray:
        """Draw random legal values of shape ``leading + shape`` (R4.3).

        The distribution is uniform between two finite bounds, half-normal beyond a single finite bound,
        and normal without any. Texts have any length up to the largest, and characters of several scripts.
        """
        shape = leading + self.shape
        if self.is_text:
            letters, lengths = list(_ALPHABET), rng.integers(0, self.characters + 1, max(1, math.prod(shape)))
            texts = ["".join(rng.choice(letters, length)) for length in lengths.tolist()]
            return np.array(texts[: math.prod(shape)], self.numpy_dtype).reshape(shape)
        low, high = self.bounds
        if self.numpy_dtype.kind != "f":
            return np.asarray(rng.integers(low, high, size=shape, dtype=self.dtype, endpoint=True), self.numpy_dtype)
        has_low, has_high = (
            np.isfinite(bound).reshape(self.shape if isinstance(bound, tuple) else ())
            for bound in (self.low, self.high)
        )
        share, spread = rng.random(shape), rng.standard_normal(shape)
        one_bound = np.where(has_low, low + np.abs(spread), np.where(has_high, high - np.abs(spread), spread))
        value = np.where(has_low & has_high, low * (1 - share) + high * share, one_bound)
        return np.asarray(np.clip(value, low, high), self.numpy_dtype)

    def to_dict(self) -> JsonDict:
        """Return plain data (for JSON, msgpack, TOML); an infinite bound is None."""

        def finite_or_none(bound: Bound) -> float | list[float | None] | None:
            numbers = bound if isinstance(bound, tuple) else (bound,)
            finite = [number if math.isfinite(number) else None for number in numbers]
            return finite if isinstance(bound, tuple) else finite[0]

        return {
            "name": self.name, "shape": list(self.shape), "dtype": self.dtype,
            "low": finite_or_none(self.low), "high": finite_or_none(self.high),
            "unit": self.unit, "meaning": self.meaning, "elements": list(self.elements),
            **({"convention": self.convention} if self.convention else {}),
            **({"characters": self.characters} if self.characters else {}),
            **({"counted_by": self.counted_by} if self.counted_by else {}),
        }  # fmt: skip

    @staticmethod
    def from_dict(plain: JsonObject) -> Field:
        """Make a field from the plain data of `to_dict`.

        Raises:
            SpecError: a key is missing, unknown or of the wrong type.
        """

        def bound(value: Any, infinite: float) -> Bound:
            if isinstance(value, str | bytes):
                raise TypeError(f"low and high are numbers, got {value!r}")
            if isinstance(value, Sequence):
                return tuple(infinite if number is None else float(number) for number in value)
            return infinite if value is None else float(value)

        try:
            values = dict(plain)
            values["low"] = bound(values.get("low"), -math.inf)
            values["high"] = bound(values.get("high"), math.inf)
            return Field(**values)
        except (TypeError, ValueError) as error:
            if isinstance(error, SpecError):
                raise
            raise SpecError(f"not a field description: {error}") from error


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True
