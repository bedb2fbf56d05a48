"""Design a motion that identifies an arm's servos: all joints at once, within limits, without collisions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hal import SourceError
from hal.guarding.motion_check import MotionCheck
from rlenv_sim2real.motion import ArmJoints
from sim.mjcf.collision import ModelCheck
from sim.model import SimModel

__all__ = ["Excitation", "ExcitationSettings", "excitation"]


@dataclass(frozen=True)
class ExcitationSettings:
    """Limits of the motion.

    Attributes:
        seconds: duration, at least 10.
        speed: maximum speed of a joint, as a share of the robot's speed limit, 0 to 1.
        reach: maximum distance from the middle pose, as a share of the distance to the joint's limit, 0 to 1.
        lowest_hz: lowest frequency of the sines.
        highest_hz: highest frequency of the sines.
        sines: number of sines of each joint.
        clearance_m: minimum distance between parts and from the table, metres. The arm lags and sags below its goals by
            several degrees, so leave room for that.
        table_m: height of the table under the arm, metres; no moving part goes below it.
    """

    seconds: float = 60.0
    speed: float = 0.5
    reach: float = 0.6
    lowest_hz: float = 0.07
    highest_hz: float = 1.5
    sines: int = 10
    clearance_m: float = 0.02
    table_m: float = 0.0

    def __post_init__(self) -> None:
        for name in ("speed", "reach"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be above 0 and at most 1")
        if not 10 <= self.seconds <= 600:
            raise ValueError(f"seconds is {self.seconds}, it must be from 10 to 600")
        if not 0 < self.lowest_hz < self.highest_hz:
            raise ValueError(
                f"frequencies {self.lowest_hz} to {self.highest_hz} Hz: the first must be above 0 and lower"
            )
        if not (self.sines >= 2 and self.clearance_m > 0):
            raise ValueError(f"sines is {self.sines}, at least 2; clearance_m is {self.clearance_m}, above 0")


@dataclass(frozen=True)
class Excitation:
    """A designed and checked motion.

    Attributes:
        names: the names of the n joints.
        goals: rad, (T, n), one for each control period; it begins and ends at home, at rest.
        commands: the goals by command name, (T, ...), in the commands' types.
        peak_speed: maximum speed of each joint, rad/s, (n,).
        clearance_m: smallest distance between two parts, or of a part from the table, minus the required one, metres.
    """

    names: tuple[str, ...]
    goals: np.ndarray
    commands: Mapping[str, np.ndarray]
    peak_speed: np.ndarray
    clearance_m: float


_EASE_S = 3.0
"""Time in which the motion swells, and in which it ebbs away, in seconds."""

_SHRINK = 0.85
_MOST_SHRINKS = 10
_MOST_DRAWS = 6

_ROUNDING_M = 1e-4
"""By how much a distance that is too short at home may shrink, metres."""

_FLOOR_M = 1.0
"""Half the width, and the depth, of the box that stands for the table, metres."""


def excitation(
    sim_model: SimModel, settings: ExcitationSettings | None = None, seed: int = 0, check: MotionCheck | None = None
) -> Excitation:
    """Design a motion: a sum of sines for each joint, at frequencies that no other joint has.

    The frequencies of the joints are interleaved and spaced evenly on a logarithmic scale. All sines have the same peak
    speed, so that slow ones reach far and fast ones reverse often. Phases are random. If a pose on the way is too close
    to the robot itself or to the table, the motion is scaled down, and then drawn again.

    Args:
        sim_model: the arm.
        settings: limits; None for the defaults.
        seed: the seed of the phases.
        check: computes the distances; None makes one from the model, with the table below it.

    Raises:
        SourceError: no motion was found that keeps the clearance.
        ValueError: a setting is out of range.
    """
    settings = settings or ExcitationSettings()
    joints, spec = ArmJoints.of(sim_model), sim_model.spec
    floor = (-_FLOOR_M, -_FLOOR_M, settings.table_m - _FLOOR_M, _FLOOR_M, _FLOOR_M, settings.table_m)
    if check is None:
        check = ModelCheck(sim_model, clearance_m=settings.clearance_m, keep_out=[floor])
    home, low, high, fastest = _bounds(sim_model, joints)
    rng = np.random.default_rng(seed)
    problem = ""
    for _ in range(_MOST_DRAWS):
        phases = rng.uniform(0, 2 * np.pi, (len(joints.names), settings.sines))
        for middle in ((low + high) / 2, home):
            size = 1.0
            for _ in range(_MOST_SHRINKS):
                goals = _designed(settings, spec.period_s, phases, (home, middle, low, high, fastest), size)
                spare, problem = _spare_m(check, joints, spec.home, goals)
                if spare >= 0:
                    commands = {
                        name: goals[:, columns]
                        .reshape(len(goals), *spec.commands[name].shape)
                        .astype(spec.commands[name].numpy_dtype)
                        for name, columns in joints.commands.items()
                    }
                    speed = np.abs(np.diff(goals, axis=0)).max(axis=0) / spec.period_s
                    return Excitation(joints.names, goals, commands, speed, spare)
                size *= _SHRINK
    raise SourceError(
        f"no motion of {spec.name!r} keeps {settings.clearance_m * 1000:.0f} mm: {problem} would come too near; take a "
        "smaller reach or clearance"
    )


def _bounds(sim_model: SimModel, joints: ArmJoints) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return home, lowest and highest goals, rad, and the limits on speed, rad/s, (n,) each."""
    spec = sim_model.spec
    home, low, high, fastest = (np.empty(len(joints.names)) for _ in range(4))
    for name, columns in joints.commands.items():
        field = spec.commands[name]
        low[columns], high[columns] = (bound.reshape(-1) for bound in field.bounds)
        home[columns] = np.broadcast_to(np.asarray(spec.home.get(name, (low[columns] + high[columns]) / 2)), field.size)
        limit = spec.limits.max_velocity.get(name, math.inf)
        fastest[columns] = np.broadcast_to(np.asarray(limit, np.float64), field.size)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise SourceError(f"{spec.name!r} has joints without ends, for which no motion can be designed")
    return home, low, high, np.where(np.isfinite(fastest), fastest, 2.0)


def _designed(
    settings: ExcitationSettings,
    period_s: float,
    phases: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    size: float,
) -> np.ndarray:
    """Return the goals of a motion of a relative size, rad, (T, n)."""
    home, middle, low, high, fastest = bounds
    count, sines = phases.shape
    time_s = np.arange(0.0, settings.seconds + period_s / 2, period_s)
    grid = np.geomspace(settings.lowest_hz, settings.highest_hz, count * sines).reshape(sines, count)
    swing = np.zeros((len(time_s), count))
    for joint in range(count):
        angular = 2 * np.pi * grid[:, joint]
        swing[:, joint] = (np.sin(np.outer(time_s, angular) + phases[joint]) / angular).sum(axis=1)
    swell = _ease(time_s / _EASE_S) * _ease((settings.seconds - time_s) / _EASE_S)
    swing *= swell[:, None]
    room = settings.reach * np.minimum(high - middle, middle - low)
    by_reach = room / np.abs(swing).max(axis=0)
    journey = middle - home
    fastest = settings.speed * fastest
    by_speed = np.maximum(fastest - 1.6 * np.abs(journey) / _EASE_S, 0.2 * fastest) / (
        np.abs(np.diff(swing, axis=0)).max(axis=0) / period_s
    )
    goals = home + swell[:, None] * journey + size * np.minimum(by_reach, by_speed) * swing
    return np.asarray(np.clip(goals, low, high))


def _ease(share: np.ndarray) -> np.ndarray:
    """Return a smooth way from 0 to 1 with rest at both ends (a quintic polynomial)."""
    x = np.clip(share, 0.0, 1.0)
    return np.asarray(x**3 * (10 - 15 * x + 6 * x**2))


def _spare_m(check: MotionCheck, joints: ArmJoints, home: Mapping[str, object], goals: np.ndarray) -> tuple[float, str]:
    """Return the smallest clearance on the way, metres, and which parts it is between.

    A distance that is too short at home already, such as that of a turning base from the table, may not grow shorter.
    """
    smallest, problem = math.inf, ""
    near = np.minimum(check.clearances_m(check.pose({name: np.asarray(value) for name, value in home.items()})), 0.0)
    for pose in goals:
        commands = {name: np.asarray(value) for name, value in home.items()}
        commands |= {name: pose[columns] for name, columns in joints.commands.items()}
        clearances = check.clearances_m(check.pose(commands))
        clearances = np.where(near < 0, np.where(clearances < near - _ROUNDING_M, clearances, np.inf), clearances)
        if len(clearances) and clearances.min() < smallest:
            number = int(clearances.argmin())
            smallest, problem = float(clearances[number]), check.describe(number)
            if smallest < 0:
                break
    return smallest, problem
