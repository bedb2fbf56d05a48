"""Expect the currents of an arm's servos in free motion, and keep that expectation in a file.

In free motion a servo's torque is that of the links (gravity and inertia), of its own rotor and of its friction. The
current is in proportion to it (Hollerbach, Khalil and Gautier, "Model Identification", Springer Handbook of Robotics).
What is left is the torque of a contact, as a momentum observer estimates it (De Luca and Haddadin, "Robot Collisions: A
Survey on Detection, Isolation, and Identification", IEEE T-RO 2017, section III). Here the equation of motion is
averaged over two windows with a triangular weight. The mean acceleration is then a difference of three positions, so
that no speed of a coarse encoder has to be differentiated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hal.atomic_file import atomic_write
from hal.errors import RobotError
from hal.field import JsonDict
from hal.guarding.link_torques import ArmChain, ChainLink

__all__ = [
    "FORMAT", "SLOWEST", "Averages", "ContactModel", "ContactModelError", "Expectation", "JointEffort", "average",
    "confirmed", "load_contact_model", "save_contact_model",
]  # fmt: skip

FORMAT = "rlenv-robot contact model"
_MOST_BYTES = 1 << 20

SLOWEST = 0.06
"""Speed above which the direction of friction is known, rad/s; an encoder step in 1/30 s is 0.046. Below, friction
may be anything between both directions."""

_CONFIRMING = 4.0
"""Multiple of the residual before up to which a residual counts: a contact lasts, a glitch of an encoder does not."""


class ContactModelError(RobotError, ValueError):
    """A contact model is missing, damaged, or is that of another arm."""


class Averages(NamedTuple):
    """An arm's motion and currents, averaged over two windows with a triangular weight; each (..., n).

    Attributes:
        angle: rad.
        speed: rad/s.
        acceleration: rad/s^2.
        current: A.
        first: mean speed in the first window, rad/s.
        second: mean speed in the second window, rad/s.
    """

    angle: np.ndarray
    speed: np.ndarray
    acceleration: np.ndarray
    current: np.ndarray
    first: np.ndarray
    second: np.ndarray


def average(times: np.ndarray, angle: np.ndarray, current: np.ndarray) -> Averages:
    """Average readings over two windows, each half of them, with a weight that rises to the middle and falls again.

    Args:
        times: seconds, ascending, (..., m) with an odd m.
        angle: rad, (..., m, n).
        current: A, (..., m, n).
    """
    middle = times.shape[-1] // 2
    before, after = times[..., middle] - times[..., 0], times[..., -1] - times[..., middle]
    whole = (before + after)[..., None]
    first = (angle[..., middle, :] - angle[..., 0, :]) / before[..., None]
    second = (angle[..., -1, :] - angle[..., middle, :]) / after[..., None]
    rising = (times - times[..., :1]) / before[..., None]
    falling = (times[..., -1:] - times) / after[..., None]
    hat, pieces = np.minimum(rising, falling), np.diff(times, axis=-1)
    weights = np.zeros_like(times)  # of an integral of the hat times the straight lines between the readings
    weights[..., :-1] += pieces * (2 * hat[..., :-1] + hat[..., 1:]) / 6
    weights[..., 1:] += pieces * (hat[..., :-1] + 2 * hat[..., 1:]) / 6
    weights *= 2 / whole

    def mean(values: np.ndarray) -> np.ndarray:
        return np.asarray((weights[..., None] * values).sum(axis=-2))

    speed = (angle[..., -1, :] - angle[..., 0, :]) / whole
    return Averages(mean(angle), speed, 2 * (second - first) / whole, mean(current), first, second)


@dataclass(frozen=True, slots=True)
class JointEffort:
    """The current that one joint needs in free motion, and the excess that counts as a contact.

    Attributes:
        name: the joint's name.
        links: current per torque of each link at this joint, A/(N m), one for each link of the chain.
        armature: current per acceleration of the servo's rotor, A s^2/rad.
        viscous: current per speed, A s/rad.
        coulomb: current that friction needs at any speed, A.
        load: friction as a share of the current that the links need.
        offset: current at rest without a load, A.
        torque_constant: torque per current, N m/A, for messages and for a payload.
        threshold: smallest excess that counts as a contact, A; infinite for a joint that is not judged.
    """

    name: str
    links: tuple[float, ...]
    armature: float
    viscous: float
    coulomb: float
    load: float
    offset: float
    torque_constant: float
    threshold: float


class Expectation(NamedTuple):
    """The currents of a free motion, A, each (..., n).

    Attributes:
        middle: the expected current, with the friction of the joint's direction, without payload.
        low: the lowest current in free motion, with any allowed payload and any possible friction.
        high: the highest current in free motion.
    """

    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def excess(self, current: np.ndarray) -> np.ndarray:
        """Return how far currents lie outside of the expected ones, A; 0 inside."""
        return np.asarray(np.maximum(current - self.high, 0.0) + np.minimum(current - self.low, 0.0))


def confirmed(excess: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return the excess that counts, where the excess of the reading before has the same sign and is no glitch's, A."""
    size = np.where(excess * before > 0, np.minimum(abs(excess), _CONFIRMING * abs(before)), 0.0)
    return np.asarray(np.copysign(size, excess))


@dataclass(frozen=True)
class ContactModel:
    """The expectation of an arm's currents in free motion.

    Attributes:
        arm: name of the arm's table.
        gains: contents of the registers ``p``, ``i`` and ``d`` by joint, under which it holds.
        period_s: control period of the motions that it was fitted to, seconds.
        window_s: length of each of the two windows, seconds.
        chain: the links.
        tool_link: index of the link that carries a payload.
        tool: place of the payload in the base frame, all joints at zero, metres.
        payload_kg: the heaviest payload that is no contact, kg.
        joints: one for each joint.
        origin: the recordings that it was fitted to, and the fit's figures.
    """

    arm: str
    gains: Mapping[str, Mapping[str, int]]
    period_s: float
    window_s: float
    chain: ArmChain
    tool_link: int
    tool: tuple[float, ...]
    payload_kg: float
    joints: tuple[JointEffort, ...]
    origin: Mapping[str, object]

    @cached_property
    def _loaded(self) -> ArmChain:
        """The chain, with a payload of 1 kg as one more link that never turns."""
        axis = self.chain.links[self.tool_link].axis
        return ArmChain((*self.chain.links, ChainLink("payload", self.tool_link, self.tool, axis, 1.0, self.tool)))

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        names = ("armature", "viscous", "coulomb", "load", "offset", "torque_constant", "threshold")
        arrays = {name: np.array([getattr(joint, name) for joint in self.joints]) for name in names}
        return arrays | {"links": np.array([joint.links for joint in self.joints]).T}

    @property
    def thresholds(self) -> np.ndarray:
        """The smallest excess of each joint that counts as a contact, A, (n,)."""
        return self._arrays["threshold"]

    def windows(self, period_s: float) -> int:
        """Return the number of periods in one window."""
        return max(1, round(self.window_s / period_s))

    def expect(self, motion: Averages) -> Expectation:
        """Return the currents of a free motion."""
        torques = self.torques(motion)
        own, rest = self._arrays, motion.angle.shape[-1]
        links = (torques[..., :rest, :] * own["links"]).sum(axis=-2)
        payload = torques[..., rest, :] / own["torque_constant"] * self.payload_kg
        return self._with_friction(motion, links, payload)

    def torques(self, motion: Averages) -> np.ndarray:
        """Return the torques of the links, and in the last row those of a payload of 1 kg, N m, (..., n + 1, n)."""
        still = np.zeros((*motion.angle.shape[:-1], 1))
        parts = (np.concatenate((part, still), axis=-1) for part in (motion.angle, motion.speed, motion.acceleration))
        return self._loaded.torques(*parts)[..., :-1]

    def _with_friction(self, motion: Averages, links: np.ndarray, payload: np.ndarray) -> Expectation:
        own = self._arrays
        base = links + own["armature"] * motion.acceleration + own["viscous"] * motion.speed + own["offset"]
        forward = (motion.first > SLOWEST) & (motion.second > SLOWEST)
        backward = (motion.first < -SLOWEST) & (motion.second < -SLOWEST)
        friction = own["coulomb"] + own["load"] * np.maximum(abs(links), abs(links + payload))
        least, most = np.where(forward, friction, -friction), np.where(backward, -friction, friction)
        known = np.where(forward, friction, np.where(backward, -friction, 0.0))
        low, high = np.minimum(payload, 0.0), np.maximum(payload, 0.0)
        return Expectation(base + known, base + least + low, base + most + high)

    def carrying(self, angle: np.ndarray) -> np.ndarray:
        """Return the current that carries the links at rest, A, (n,)."""
        still = np.zeros_like(angle)
        own = self._arrays
        return np.asarray((self.chain.torques(angle, still, still) * own["links"]).sum(axis=-2) + own["offset"])

    def to_dict(self) -> JsonDict:
        """Return JSON data."""
        joints = [{**asdict(joint), "threshold": None if math.isinf(joint.threshold) else joint.threshold}
                  for joint in self.joints]  # fmt: skip
        return {
            "format": FORMAT, "version": 1, "arm": self.arm, "gains": {key: dict(g) for key, g in self.gains.items()},
            "period_s": self.period_s, "window_s": self.window_s, "payload_kg": self.payload_kg,
            "tool_link": self.tool_link, "tool": list(self.tool), "links": [asdict(link) for link in self.chain.links],
            "joints": joints, "origin": dict(self.origin),
        }  # fmt: skip


def save_contact_model(model: ContactModel, path: str | Path) -> None:
    """Write a contact model as JSON.

    Raises:
        OSError: nothing can be written there.
    """
    with atomic_write(path) as part:
        part.write_text(json.dumps(model.to_dict(), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def load_contact_model(path: str | Path) -> ContactModel:
    """Read a contact model.

    Raises:
        ContactModelError: the file is missing, too large, or holds no contact model.
    """
    cure = "make it with rlenv-robot sim2real contact"
    try:
        with Path(path).expanduser().open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MiB")
        plain = json.loads(data)
        if not isinstance(plain, dict) or (plain.get("format"), plain.get("version")) != (FORMAT, 1):
            raise ValueError(f"its format is not {FORMAT!r}, version 1")
        return _from_dict(plain)
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ContactModelError(f"{path}: no contact model: {type(error).__name__}: {error!s:.200}; {cure}") from error


def _from_dict(plain: JsonDict) -> ContactModel:
    links = tuple(
        ChainLink(
            str(link["name"]), int(link["parent"]), _numbers(link["anchor"], 3), _numbers(link["axis"], 3),
            _number(link["mass"]), _numbers(link["center"], 3), _numbers(link["inertia"], 6),
        )
        for link in plain["links"]
    )  # fmt: skip
    joints = tuple(_joint(joint, len(links)) for joint in plain["joints"])
    if [joint.name for joint in joints] != [link.name for link in links]:
        raise ValueError("its links and its joints differ")
    gains = {str(name): {str(key): int(value) for key, value in own.items()} for name, own in plain["gains"].items()}
    model = ContactModel(
        str(plain["arm"]), gains, _number(plain["period_s"]), _number(plain["window_s"]), ArmChain(links),
        int(plain["tool_link"]), _numbers(plain["tool"], 3), _number(plain["payload_kg"]), joints,
        dict(plain["origin"]),
    )  # fmt: skip
    if not (0 < model.period_s < 1 and 0 < model.window_s < 1 and model.payload_kg >= 0):
        raise ValueError("period_s and window_s must be above 0 and below 1, payload_kg not negative")
    if not 0 <= model.tool_link < len(links):
        raise ValueError(f"tool_link is {model.tool_link}, it must be the index of a link")
    return model


def _joint(plain: JsonDict, links: int) -> JointEffort:
    values = {key: plain[key] for key in JointEffort.__dataclass_fields__}
    own = _numbers(values.pop("links"), links)
    threshold = math.inf if values["threshold"] is None else _number(values["threshold"])
    joint = JointEffort(str(values.pop("name")), own, **{key: _number(values[key] or 0.0) for key in values})
    if not threshold > 0 or not joint.torque_constant > 0 or joint.coulomb < 0 or joint.load < 0:
        raise ValueError(f"joint {joint.name!r}: threshold and torque constant must be above 0, friction not negative")
    return replace(joint, threshold=threshold)


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r:.40} is not a finite number")
    return float(value)


def _numbers(values: list[object], count: int) -> tuple[float, ...]:
    if not isinstance(values, list) or len(values) != count:
        raise ValueError(f"{values!r:.80} are not {count} numbers")
    return tuple(map(_number, values))
