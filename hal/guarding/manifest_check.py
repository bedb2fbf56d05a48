"""Compare the manifests of the robots on which a policy was trained and on which it is deployed.

The manifest is the robot's description (`hal.robot.RobotSpec`): names, order, signs, units and ranges of the joints,
limits, default pose, control rate, and with `hal.robot.Actuation` gains and delays. `RobotSpec.manifest_digest`
identifies it. A difference refuses the deployment if it changes the meaning of the policy's numbers, or makes the
robot respond unlike any robot of the training; other differences only warn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from hal.robot import DELAYS, GAINS, Actuation, Range, RobotSpec, elements_of

__all__ = ["GAIN_MARGIN", "RATE_MARGIN", "ManifestDifference", "ManifestReport", "compare_manifests"]

GAIN_MARGIN = 0.2
"""Share by which a gain may lie outside the training's range and only warn: a battery's voltage varies by 15 %."""

RATE_MARGIN = 0.01
"""Share by which control rates may differ without a refusal."""

_SAME = 0.02
"""Share by which a gain may lie outside the range without a message."""

_SAME_S = 0.002
"""Time by which a delay may lie outside the range without a message, in seconds."""

_POSE = 1e-3
"""Difference of a default pose that counts, as a share of the range."""


@dataclass(frozen=True, slots=True)
class ManifestDifference:
    """One difference between the robot that a policy was trained on and the one that it is deployed on.

    Attributes:
        part: ``commands``, ``sensors``, ``rate``, ``home``, ``limits``, ``gains``, ``delays`` or ``name``.
        text: a sentence with names, both values and units.
        refuses: whether the difference refuses the deployment; if not, it warns.
    """

    part: str
    text: str
    refuses: bool

    def __str__(self) -> str:
        return f"{self.part}: {self.text}"


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """All differences between two manifests; none if their digests agree."""

    differences: tuple[ManifestDifference, ...] = ()

    @property
    def refusals(self) -> tuple[ManifestDifference, ...]:
        """The differences that refuse a deployment."""
        return tuple(difference for difference in self.differences if difference.refuses)

    @property
    def warnings(self) -> tuple[ManifestDifference, ...]:
        """The differences that only warn."""
        return tuple(difference for difference in self.differences if not difference.refuses)


def compare_manifests(trained: RobotSpec, deployed: RobotSpec) -> ManifestReport:
    """Compare the robot on which a policy was trained with the one on which it is to run.

    ======================  =====================================================================================
    part                    refuses, or warns
    ======================  =====================================================================================
    commands                refuses: names, order, signs (convention), units and ranges of the joints
    sensors                 refuses where both robots have a sensor and it differs; one that only one has warns
    rate                    refuses beyond 1 %
    home, the default pose  refuses beyond a thousandth of the range
    limits of motion        warns
    gains                   inside the range of the training: agrees; up to 20 % outside: warns; further: refuses;
                            known on one side alone: warns
    delays                  inside the range of the training: agrees; up to a control period outside: warns;
                            further: refuses; not declared: warns
    name of the robot       warns
    ======================  =====================================================================================

    A servo's registers and voltage take precedence over its stiffness, which follows from them. So a policy that was
    trained on drawn gains runs on every arm with gains in their range. A policy that was trained on an arm's identified
    parameters runs on that arm, as long as its registers are those of the identification.
    """
    if trained.manifest_digest == deployed.manifest_digest:
        return ManifestReport()
    differences: list[ManifestDifference] = []

    def add(part: str, lines: Iterable[str], refuses: bool) -> None:
        differences.extend(ManifestDifference(part, line, refuses) for line in lines)

    add("commands", _specs(trained.commands.difference(deployed.commands)), True)
    for line in _specs(trained.sensors.difference(deployed.sensors)):
        one_side = line.endswith((": only in the training", ": only here"))
        add("sensors", [line], not one_side and not line.startswith("order: "))
    if abs(trained.rate_hz - deployed.rate_hz) > RATE_MARGIN * trained.rate_hz:
        add("rate", [f"trained at {trained.rate_hz:g} Hz, here {deployed.rate_hz:g} Hz"], True)
    add("home", _poses(trained, deployed), True)
    add("limits", _limits(trained, deployed), False)
    if trained.name != deployed.name:
        add("name", [f"trained on {trained.name!r}, here {deployed.name!r}"], False)
    differences += _gains(trained, deployed)
    differences += _delays(trained, deployed)
    return ManifestReport(tuple(differences))


def _specs(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of `Spec.difference` with the words of a training and a deployment."""
    for line in lines:
        if line.endswith((": only here", ": only there")):
            name, _, side = line.rpartition(": ")
            yield f"{name}: only {'in the training' if side == 'only here' else 'here'}"
        else:
            yield line.replace(" here, ", " in the training, ").replace(" there", " here")


def _poses(trained: RobotSpec, deployed: RobotSpec) -> Iterator[str]:
    for name in dict.fromkeys((*trained.home, *deployed.home)):
        if name not in trained.home or name not in deployed.home:
            yield f"{name} is known {'in the training' if name in trained.home else 'here'} alone"
            continue
        poses = [np.asarray(spec.home[name], float) for spec in (trained, deployed)]
        if name not in trained.commands or poses[0].shape != poses[1].shape:
            continue  # a difference of the commands
        low, high = (np.asarray(bound, float) for bound in trained.commands[name].bounds)
        if np.any(np.abs(poses[0] - poses[1]) > _POSE * np.minimum(high - low, 1e3)):
            shown = [np.array2string(pose, precision=4, separator=", ") for pose in poses]
            yield f"{name} in the training {shown[0]}, here {shown[1]}"


def _limits(trained: RobotSpec, deployed: RobotSpec) -> Iterator[str]:
    mine, theirs = trained.limits.to_dict(), deployed.limits.to_dict()
    for key in dict.fromkeys((*mine, *theirs)):
        if mine.get(key) != theirs.get(key):
            yield f"{key} in the training {mine.get(key)}, here {theirs.get(key)}"


def _gains(trained: RobotSpec, deployed: RobotSpec) -> Iterator[ManifestDifference]:
    mine, theirs = trained.actuation or Actuation(), deployed.actuation or Actuation()
    same: dict[tuple[str, bool], list[str]] = {}  # text and whether it refuses -> elements that share it
    for element in elements_of(deployed.commands):
        for key in _element_gains(mine, theirs, element):
            same.setdefault(key, []).append(element)
    everything = len(elements_of(deployed.commands))
    for (text, refuses), elements in same.items():
        names = "all joints" if len(elements) == everything > 1 else ", ".join(elements)
        yield ManifestDifference("gains", f"{names}: {text}", refuses)


def _element_gains(mine: Actuation, theirs: Actuation, element: str) -> Iterator[tuple[str, bool]]:
    """Yield the differences of one element's gains, and whether each of them refuses."""
    one, other = mine.gains.get(element, {}), theirs.gains.get(element, {})
    for name in _counting(one, other):
        unit = GAINS[name]
        if name in one and name in other:
            outside = _outside(one[name], other[name])
            if outside > _SAME:
                yield f"{name} in the training {one[name]}, here {other[name]} ({unit})", outside > GAIN_MARGIN
        elif name in one or name in other:
            known = f"{one[name]} in the training" if name in one else f"{other[name]} here"
            side = "here" if name in one else "in the training"
            yield f"{name} {known} ({unit}), not declared {side}", False


def _counting(one: Mapping[str, Range], other: Mapping[str, Range]) -> tuple[str, ...]:
    """Return the gains that count: registers where both sides have them, else what follows from them."""
    if not ("p" in one and "p" in other):
        return "stiffness", "damping"
    both = "stiffness" in one and "stiffness" in other and not ("volts" in one and "volts" in other)
    return ("p", "i", "d", "volts", "stiffness") if both else ("p", "i", "d", "volts")


def _outside(trained: Range, deployed: Range) -> float:
    """Return by which share of the nearer end a range lies outside another; infinite outside 0."""
    over = max(deployed.high - trained.high, 0.0), max(trained.low - deployed.low, 0.0)
    ends = abs(trained.high), abs(trained.low)
    return max(gap / end if end else (np.inf if gap else 0.0) for gap, end in zip(over, ends, strict=True))


def _delays(trained: RobotSpec, deployed: RobotSpec) -> Iterator[ManifestDifference]:
    mine, theirs = (spec.actuation.delays if spec.actuation else {} for spec in (trained, deployed))
    for name in DELAYS:
        if name in mine and name in theirs:
            outside = max(theirs[name].high - mine[name].high, mine[name].low - theirs[name].low)
            if outside > _SAME_S:
                text = f"{name} in the training {mine[name]} s, here {theirs[name]} s"
                yield ManifestDifference("delays", text, outside > trained.period_s)
    sides = ((mine, theirs, "in the training", "here"), (theirs, mine, "here", "in the training"))
    for known, other, where, side in sides:
        alone = [f"{name} {value} s" for name, value in known.items() if name not in other]
        if alone:
            yield ManifestDifference("delays", f"{', '.join(alone)} {where}, not declared {side}", False)
