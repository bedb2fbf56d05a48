"""What a number may be drawn from: fixed, uniform, log-uniform, truncated normal, a choice, or as it was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np

__all__ = [
    "Choice", "Distribution", "Fixed", "LogUniform", "Measured", "Normal", "Uniform", "distribution",
]  # fmt: skip


class Distribution(Protocol):
    """A bounded distribution. It is drawn from by its quantile function, so one uniform number is one draw."""

    @property
    def low(self) -> float:
        """The smallest number that can be drawn."""
        ...

    @property
    def high(self) -> float:
        """The largest."""
        ...

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """The number below which this share of draws lies; float64, any shape, shares in [0, 1)."""
        ...


def _bounds(name: str, low: float, high: float) -> None:
    if not -math.inf < low <= high < math.inf:  # False for NaN too
        raise ValueError(f"{name} is from {low} to {high}, wanted are two finite numbers, the lower one first")


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same number."""

    value: float

    def __post_init__(self) -> None:
        _bounds("fixed", self.value, self.value)

    @property
    def low(self) -> float:
        """The number."""
        return self.value

    @property
    def high(self) -> float:
        """The number."""
        return self.value

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """The number."""
        return np.full(np.shape(share), float(self.value))

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every number from low to high alike."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _bounds("uniform", self.low, self.high)

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Linear."""
        return np.asarray(self.low + (self.high - self.low) * share)

    def __str__(self) -> str:
        return f"uniform from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class LogUniform:
    """Every order of magnitude alike; both ends above 0."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _bounds("log_uniform", self.low, self.high)
        if not self.low > 0:
            raise ValueError(f"log_uniform is from {self.low}, it must begin above 0")

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Exponential."""
        value = self.low * np.power(self.high / self.low, share)
        return np.asarray(np.clip(value, self.low, self.high))  # rounding

    def __str__(self) -> str:
        return f"log-uniform from {self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class Normal:
    """A normal distribution, cut off at low and high (and renormalised): physics has no room for its tails."""

    mean: float
    std: float
    low: float
    high: float

    def __post_init__(self) -> None:
        _bounds("normal", self.low, self.high)
        if not (0 < self.std < math.inf and self.low <= self.mean <= self.high):
            raise ValueError(
                f"normal has mean {self.mean} and deviation {self.std} within {self.low} to {self.high}; "
                "the deviation must be above 0, and the mean within"
            )

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Inverse of the cumulative distribution, between those of the two ends."""
        normal = NormalDist(self.mean, self.std)
        first, last = normal.cdf(self.low), normal.cdf(self.high)
        within = np.clip(first + (last - first) * np.asarray(share, float), 1e-300, 1 - 1e-16)
        value = np.array([normal.inv_cdf(each) for each in within.ravel().tolist()]).reshape(within.shape)
        return np.asarray(np.clip(value, self.low, self.high))

    def __str__(self) -> str:
        return f"normal, mean {self.mean:g}, deviation {self.std:g}, within {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Choice:
    """One of some numbers, each as likely."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        if not self.values or not np.isfinite(self.values).all():
            raise ValueError(f"choice is {list(self.values)}, wanted is a list of one or more finite numbers")

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.values)

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """One of them."""
        place = (np.asarray(share) * len(self.values)).astype(int)
        return np.asarray(np.take(self.values, place))

    def __str__(self) -> str:
        return "one of " + ", ".join(f"{value:g}" for value in self.values)


@dataclass(frozen=True)
class Measured:
    """As it was measured: a straight line through quantiles at equal distances, the first the smallest seen."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(float(value) for value in self.values))
        rising = len(self.values) > 1 and bool((np.diff(self.values) >= 0).all())
        if not rising or not np.isfinite(self.values).all():
            raise ValueError(f"measured is {list(self.values)}, wanted are two or more finite, rising numbers")

    @staticmethod
    def of(samples: np.ndarray, points: int = 21) -> Measured:
        """From samples, any shape: their quantiles in steps of 1 / (points - 1)."""
        return Measured(tuple(np.quantile(np.asarray(samples, float), np.linspace(0, 1, points)).tolist()))

    @property
    def low(self) -> float:
        """The smallest that was seen."""
        return self.values[0]

    @property
    def high(self) -> float:
        """The largest that was seen."""
        return self.values[-1]

    def quantile(self, share: np.ndarray) -> np.ndarray:
        """Between the two nearest quantiles, linear."""
        return np.asarray(np.interp(share, np.linspace(0, 1, len(self.values)), self.values))

    def __str__(self) -> str:
        middle = float(self.quantile(np.array(0.5)))
        return f"as measured: {self.low:g} to {self.high:g}, median {middle:g}"


_KINDS: Mapping[str, Callable[[Any], Distribution]] = {
    "uniform": lambda ends: Uniform(*map(float, ends)),
    "log_uniform": lambda ends: LogUniform(*map(float, ends)),
    "normal": lambda numbers: Normal(*map(float, numbers)),
    "choice": lambda values: Choice(tuple(values)),
    "measured": lambda values: Measured(tuple(values)),
}


def distribution(plain: Any) -> Distribution:
    """A distribution from plain data, as a profile writes it.

    Args:
        plain: a number (always that one); ``{uniform = [low, high]}``, ``{log_uniform = [low, high]}``,
            ``{normal = [mean, deviation, low, high]}``, ``{choice = [...]}``, ``{measured = [rising numbers]}``;
            or a distribution already.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(plain, Fixed | Uniform | LogUniform | Normal | Choice | Measured):
        return plain
    if isinstance(plain, int | float | np.floating | np.integer) and not isinstance(plain, bool):
        return Fixed(float(plain))
    if isinstance(plain, Mapping) and len(plain) == 1 and next(iter(plain)) in _KINDS:
        name, value = next(iter(plain.items()))
        try:
            return _KINDS[name](value)
        except TypeError as error:
            raise ValueError(f"{name} is {value!r}: {error}") from error
    raise ValueError(
        f"{plain!r} is no distribution, allowed are a number, {{uniform = [low, high]}}, "
        "{log_uniform = [low, high]}, {normal = [mean, deviation, low, high]}, {choice = [numbers]} "
        "and {measured = [rising numbers]}"
    )
