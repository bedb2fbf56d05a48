"""Distributions to draw a number from: fixed, uniform, log-uniform, truncated normal, a choice, measured, or rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar, Protocol

import numpy as np

from hal.errors import SpecError

__all__ = [
    "Choice", "Distribution", "Fixed", "LogUniform", "Measured", "Normal", "Rows", "Uniform", "check_rows",
    "distribution",
]  # fmt: skip


class Distribution(Protocol):
    """A bounded distribution with a quantile function, which turns one uniform number into one draw."""

    @property
    def low(self) -> float:
        """The smallest number that can be drawn."""
        ...

    @property
    def high(self) -> float:
        """The largest number that can be drawn."""
        ...

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Return the numbers below which these shares of draws lie; float64, any shape, shares in [0, 1)."""
        ...


def _check_bounds(name: str, low: float, high: float) -> None:
    if not -math.inf < low <= high < math.inf:  # False for NaN too
        raise ValueError(f"{name} is from {low} to {high}, expected two finite numbers, the lower one first")


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always draw the same number."""

    value: float

    def __post_init__(self) -> None:
        _check_bounds("fixed", self.value, self.value)

    @property
    def low(self) -> float:
        """The fixed number."""
        return self.value

    @property
    def high(self) -> float:
        """The fixed number."""
        return self.value

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Return the fixed number for every share."""
        return np.full(np.shape(share), float(self.value))

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Draw uniformly from low to high."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds("uniform", self.low, self.high)

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Return the quantiles, which are linear in the share."""
        return np.asarray(self.low + (self.high - self.low) * share)

    def __str__(self) -> str:
        return f"uniform from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Draw the logarithm uniformly from that of low to that of high; both ends are above 0."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds("log_uniform", self.low, self.high)
        if not self.low > 0:
            raise ValueError(f"log_uniform is from {self.low}, it must begin above 0")

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Return the quantiles, which are exponential in the share."""
        value = self.low * np.power(self.high / self.low, share)
        return np.asarray(np.clip(value, self.low, self.high))  # against rounding errors

    def __str__(self) -> str:
        return f"log-uniform from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Normal:
    """Draw from a normal distribution, truncated at low and high and renormalised to exclude unphysical tails."""

    mean: float
    std: float
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_bounds("normal", self.low, self.high)
        if not (0 < self.std < math.inf and self.low <= self.mean <= self.high):
            raise ValueError(
                f"normal has mean {self.mean} and deviation {self.std} within {self.low} to {self.high}; "
                "the deviation must be above 0, and the mean within"
            )

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Return the quantiles: the inverse of the normal distribution function between its values at the two ends."""
        normal = NormalDist(self.mean, self.std)
        first, last = normal.cdf(self.low), normal.cdf(self.high)
        within = np.clip(first + (last - first) * np.asarray(share, float), 1e-300, 1 - 1e-16)
        value = np.array([normal.inv_cdf(probability) for probability in within.ravel().tolist()]).reshape(within.shape)
        return np.asarray(np.clip(value, self.low, self.high))

    def __str__(self) -> str:
        return f"normal, mean {self.mean:g}, deviation {self.std:g}, within {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Choice:
    """Draw one of several numbers with equal probability."""

    values: tuple[float, ...]
    _key: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        if not self.values or not np.isfinite(self.values).all():
            raise ValueError(f"{self._key} is {list(self.values)}, expected a list of one or more finite numbers")

    @property
    def low(self) -> float:
        """The smallest of the numbers."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest of the numbers."""
        return max(self.values)

    def place(self, share: np.ndarray) -> np.ndarray:
        """Return the places of the numbers at the shares, from 0; each number has an equal part of [0, 1)."""
        return np.asarray((np.asarray(share) * len(self.values)).astype(int))

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Return the numbers at the shares."""
        return np.asarray(np.take(self.values, self.place(share)))

    def __str__(self) -> str:
        return "one of " + ", ".join(f"{value:g}" for value in self.values)


@dataclass(frozen=True)
class Measured:
    """Draw from a measured distribution by linear interpolation between its quantiles at equal steps of probability."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        rising = len(self.values) > 1 and bool((np.diff(self.values) >= 0).all())
        if not rising or not np.isfinite(self.values).all():
            raise ValueError(f"measured is {list(self.values)}, expected two or more finite, rising numbers")

    @staticmethod
    def of(samples: np.ndarray, points: int = 21) -> Measured:
        """Make a distribution from samples of any shape, by their quantiles at ``points`` evenly spaced shares."""
        return Measured(tuple(np.quantile(np.asarray(samples, float), np.linspace(0, 1, points)).tolist()))

    @property
    def low(self) -> float:
        """The smallest measured number."""
        return self.values[0]

    @property
    def high(self) -> float:
        """The largest measured number."""
        return self.values[-1]

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Interpolate linearly between the two nearest quantiles."""
        return np.asarray(np.interp(share, np.linspace(0, 1, len(self.values)), self.values))

    def __str__(self) -> str:
        median = float(self.quantile(np.array(0.5)))
        return f"as measured: {self.low:g} to {self.high:g}, median {median:g}"


@dataclass(frozen=True)
class Rows(Choice):
    """Draw one row of a table of which this is a column, with the other columns of the same group.

    All rows of an environment that have the same group share one draw an episode, in ``randomise`` and in ``timing``,
    so that numbers which belong together, such as the gain and the friction of one real servo, are drawn together.

    Attributes:
        values: the column, one number for each row.
        group: name of the table. Its shares are those of `sim.randomize.seeds.SeedStreams.shares`.
    """

    group: str = ""
    _key: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.group, str):
            raise ValueError(f"group is {self.group!r}, expected a text")

    @property
    def name(self) -> str:
        """The name of the drawn row's number among the drawn numbers: ``row``, or ``row.`` and the group."""
        return f"row.{self.group}" if self.group else "row"

    def __str__(self) -> str:
        group = f" of {self.group}" if self.group else ""
        return f"by row{group}, one of {len(self.values)}: {self.low:g} to {self.high:g}"


class _Declaration(Protocol):
    def values(self) -> Iterable[tuple[str, Distribution]]: ...


def check_rows(**declared: _Declaration | None) -> None:
    """Check that the `Rows` of each group have the same length.

    Args:
        declared: the ``timing`` and ``randomise`` of an environment, with a method that yields the path and the
            distribution of each line.

    Raises:
        SpecError: two of a group differ; the message names their paths.
    """
    first: dict[str, tuple[str, int]] = {}
    lines = [(f"{kind}.{path}", values) for kind, own in declared.items() if own is not None
             for path, values in own.values()]  # fmt: skip
    for path, values in lines:
        if isinstance(values, Rows):
            other, count = first.setdefault(values.group, (path, len(values.values)))
            if count != len(values.values):
                raise SpecError(
                    f"{path}: has {len(values.values)} rows, and {other} has {count}; all rows of an environment, or "
                    "of one group, belong to one table"
                )


def _rows(rows: Any, group: Any = "") -> Rows:
    return Rows(tuple(rows), group)


_KINDS: Mapping[str, Callable[[Any], Distribution]] = {
    "uniform": lambda ends: Uniform(*map(float, ends)),
    "log_uniform": lambda ends: LogUniform(*map(float, ends)),
    "normal": lambda numbers: Normal(*map(float, numbers)),
    "choice": lambda values: Choice(tuple(values)),
    "measured": lambda values: Measured(tuple(values)),
    "rows": _rows,
}


def distribution(plain: object) -> Distribution:
    """Make a distribution from plain data, such as a value in a profile.

    Args:
        plain: a number, which is always drawn; ``{uniform = [low, high]}``, ``{log_uniform = [low, high]}``,
            ``{normal = [mean, deviation, low, high]}``, ``{choice = [...]}``, ``{measured = [ascending numbers]}``,
            ``{rows = [...]}`` with an optional ``group = "name"``; or a distribution, which is returned.

    Raises:
        ValueError: the data is none of these.
    """
    if isinstance(plain, Fixed | Uniform | LogUniform | Normal | Choice | Measured):
        return plain
    if isinstance(plain, int | float | np.floating | np.integer) and not isinstance(plain, bool):
        return Fixed(float(plain))
    if isinstance(plain, Mapping) and (
        set(plain) == {"rows", "group"} or (len(plain) == 1 and set(plain) <= set(_KINDS))
    ):
        name = "rows" if "rows" in plain else next(iter(plain))
        try:
            return _rows(**plain) if "group" in plain else _KINDS[name](plain[name])
        except TypeError as error:
            raise ValueError(f"{name} is {plain[name]!r}: {error}") from error
    raise ValueError(
        f"{plain!r} is no distribution, allowed are a number, {{uniform = [low, high]}}, "
        "{log_uniform = [low, high]}, {normal = [mean, deviation, low, high]}, {choice = [numbers]}, "
        "{measured = [rising numbers]} and {rows = [numbers]}"
    )
