"""Estimates of a fit in natural units: their intervals, what the data resolve, and combinations that they determine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from recorder.json_data import JsonDict
from rlenv_sim2real.fit_problem import FRICTION_MODELS, FitProblem
from rlenv_sim2real.intervals import Uncertainty
from rlenv_sim2real.servo_replay import KINDS

__all__ = ["Combination", "Estimate", "alike", "combinations_of", "estimates_of", "warnings_of"]

_CORRELATED = 0.95
"""Correlation from which two estimates can't be told apart, if the data do not resolve both."""

_RESOLVED = {
    "offset": math.radians(0.5), "delay": 0.005, "backlash": math.radians(0.5), "payload": 0.02,
    **dict.fromkeys(FRICTION_MODELS["m6"].kinds, 0.02),
}  # fmt: skip
"""Half of the widest 95 % interval of an estimate that counts as resolved; of positive kinds it is a tenth."""

_RESOLVED_SHARE = 0.1

_RESOLVED_TORQUE = 0.02
"""The same for the torque of friction and play together, N m."""


@dataclass(frozen=True)
class Estimate:
    """One estimated parameter.

    Attributes:
        kind: one of `KINDS`.
        joint: the joint's name; empty for a kind that all joints share.
        value: in the kind's unit.
        low: lower end of its 95 % interval from the data alone, without the nominal arm, assuming that the model holds;
            infinite if the data contain no information (`rlenv_sim2real.intervals`).
        high: upper end of that interval.
        nominal: the model's value.
        resolved: whether the interval is narrow enough to use the value, and the data tell it apart from all others.
        at_bound: whether the value is at the edge of the allowed range.
    """

    kind: str
    joint: str
    value: float
    low: float
    high: float
    nominal: float
    resolved: bool
    at_bound: bool

    @property
    def name(self) -> str:
        """The joint's name, if there is one, and the kind."""
        return f"{self.joint}.{self.kind}" if self.joint else self.kind

    def to_dict(self) -> JsonDict:
        """Return JSON data; an infinite end of the interval is None."""
        return {
            "kind": self.kind, "joint": self.joint, "value": self.value, "interval": _ends(self.low, self.high),
            "nominal": self.nominal, "unit": KINDS[self.kind].unit, "resolved": self.resolved,
            "at_bound": self.at_bound,
        }  # fmt: skip


@dataclass(frozen=True)
class Combination:
    """A combination of parameters that data determine where they do not determine its members.

    A joint that turns back stands still until its goal has moved by the play and by twice the friction over the
    stiffness. At one stiffness, only friction + stiffness x backlash / 2 shows.

    Attributes:
        joint: the joint's name.
        members: the names of the estimates in it.
        value: friction + stiffness x backlash / 2, N m.
        low: lower end of its 95 % interval.
        high: upper end of that interval.
        resolved: whether the interval is narrow enough to use the value.
    """

    joint: str
    members: tuple[str, ...]
    value: float
    low: float
    high: float
    resolved: bool

    @property
    def name(self) -> str:
        """The joint's name and the formula."""
        return f"{self.joint}.friction + stiffness x backlash / 2"

    def to_dict(self) -> JsonDict:
        """Return JSON data; an infinite end of the interval is None."""
        return {
            "joint": self.joint, "formula": "friction + stiffness * backlash / 2", "members": list(self.members),
            "value": self.value, "interval": _ends(self.low, self.high), "unit": "N m", "resolved": self.resolved,
        }  # fmt: skip


def _ends(low: float, high: float) -> list[float | None]:
    return [end if math.isfinite(end) else None for end in (low, high)]


def estimates_of(
    problem: FitProblem, solution: np.ndarray, known: Uncertainty, names: Sequence[str]
) -> tuple[Estimate, ...]:
    """Return the estimates in natural units; neither of two that the data can't tell apart is resolved."""
    estimates = []
    for index, (kind, joint) in enumerate(problem.layout):
        about, center = KINDS[kind], float(solution[index])
        low, high = min(float(known.low[index]), center), max(float(known.high[index]), center)
        at_bound = bool(min(center - problem.bounds[0][index], problem.bounds[1][index] - center) < 1e-6)
        wide = about.step * (high - low) / 2
        narrow = wide <= (_RESOLVED_SHARE if about.positive else _RESOLVED[kind])
        value = problem.natural(index, center)
        zero = about.lowest == 0.0 and value < 1e-9  # zero is no edge but an answer
        name = names[joint] if joint >= 0 else ""
        ends = (problem.natural(index, low), problem.natural(index, high))
        edge = at_bound and not zero
        # Play behind the encoder is in no log, so that data never show that there is none.
        absent = kind == "backlash" and ends[0] <= 0.0
        resolved = narrow and not edge and not absent
        estimates.append(Estimate(kind, name, value, *ends, problem.nominal(index), resolved, edge))
    apart = {number for one, other, _ in alike(estimates, known) for number in (one, other)}
    return tuple(
        replace(estimate, resolved=False) if number in apart else estimate for number, estimate in enumerate(estimates)
    )


def alike(estimates: Sequence[Estimate], known: Uncertainty) -> list[tuple[int, int, float]]:
    """Return the pairs of estimates that the data can't tell apart, with their correlations."""
    pairs = []
    for one, other in itertools.combinations(range(len(estimates)), 2):
        correlation = known.correlation(one, other)
        both = estimates[one].resolved and estimates[other].resolved
        if abs(correlation) > _CORRELATED and not both:
            pairs.append((one, other, correlation))
    return pairs


def combinations_of(
    problem: FitProblem, solution: np.ndarray, known: Uncertainty, estimates: Sequence[Estimate], names: Sequence[str]
) -> tuple[Combination, ...]:
    """Return friction and play together for each joint of which either is not resolved."""
    places = {key: index for index, key in enumerate(problem.layout)}
    if ("backlash", -1) not in places:
        return ()
    values = {kind: value[0] for kind, value in problem.values(solution[:, None]).items()}
    found, play = [], places["backlash", -1]
    for (kind, joint), friction in places.items():
        if kind != "friction" or (estimates[friction].resolved and _narrow(estimates[play])):
            continue
        torque, stiffness = float(values["friction"][joint]), float(values["stiffness"][joint])
        width = float(values["backlash"])
        gradient = np.zeros(len(places))
        gradient[friction] = KINDS["friction"].step * torque
        gradient[play] = KINDS["backlash"].step * stiffness / 2
        members = [friction, play]
        if ("stiffness", joint) in places:
            members.append(places["stiffness", joint])
            gradient[members[-1]] = KINDS["stiffness"].step * stiffness * width / 2
        half, value = known.half_width(gradient), torque + stiffness * width / 2
        resolved = half <= max(_RESOLVED_TORQUE, _RESOLVED_SHARE * value)
        member_names = tuple(estimates[number].name for number in members)
        found.append(Combination(names[joint], member_names, value, max(value - half, 0.0), value + half, resolved))
    return tuple(found)


def warnings_of(
    estimates: Sequence[Estimate], pairs: Sequence[tuple[int, int, float]], combinations: Sequence[Combination]
) -> list[str]:
    """Return one sentence on the estimates at an edge, one on those not resolved, and one on those not told apart."""
    warnings = []
    edge = [f"{estimate.name} ({estimate.value:.3g} {KINDS[estimate.kind].unit})" for estimate in estimates
            if estimate.at_bound]  # fmt: skip
    if edge:
        warnings.append(
            f"{', '.join(edge)} ended at the edge of what is allowed: the model does not fit there, or the data do not "
            "move it"
        )
    weak = [estimate.name for estimate in estimates if not (estimate.resolved or estimate.at_bound)]
    if weak:
        warnings.append(
            f"these data do not determine {', '.join(weak)}: the values are the nearest to the nominal arm "
            "that fit; record more, faster and with turns (rlenv-robot sim2real excite)"
        )
    texts = [
        f"{estimates[one].name} and {estimates[other].name} can't be told apart (correlation {correlation:+.2f})"
        for one, other, correlation in pairs
        if not (combinations and {estimates[one].kind, estimates[other].kind} == {"friction", "backlash"})
    ]
    if texts:
        warnings.append("; ".join(texts))
    resolved = [part.joint for part in combinations if part.resolved]
    if resolved:
        warnings.append(
            f"friction + stiffness x backlash / 2 of {', '.join(resolved)} is determined, friction and backlash "
            "themselves are not; record a second motion with another gain P of the servos to tell them apart"
        )
    return warnings


def _narrow(play: Estimate) -> bool:
    return (play.high - play.low) / 2 <= _RESOLVED[play.kind]
