"""Move an arm to and fro about a pose, and judge from its readings when and where it came to rest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hal.robot import RobotSpec, RobotState

__all__ = ["COMMAND", "REST_DEG", "SENSOR", "Rest", "Sample", "Swing", "rest_after", "speed"]

COMMAND, SENSOR = "joint_target", "joint_position"

REST_DEG = 0.5
"""Farthest way of a joint that rests, degrees: six steps of an encoder of 4096."""


_SWING_RAD = 0.3
_SPEED_S = 0.1
"""Time over which a speed is taken, seconds: three control periods."""


class Swing:
    """Targets that swing joints about the pose where the arm is, as a sine that begins at rest.

    The first joint swings by 0.3 rad to either side, others by half of it: about its home the SO-101's gripper then
    moves by 92 mm to the side and by 77 mm up and down, and stays 72 mm above the table.

    Args:
        spec: the robot's description, with the command ``joint_target`` in rad.
        state: where the arm is.
        joints: numbers of the joints that swing, as far as the arm has them; by default the first one, which on most
            arms is the pan.
        period_s: of the sine.
    """

    def __init__(self, spec: RobotSpec, state: RobotState, joints: Sequence[int] = (0,), period_s: float = 2.0) -> None:
        self._low, self._high = (np.asarray(bound, float) for bound in spec.commands[COMMAND].bounds)
        self._centre = np.asarray(state.applied[COMMAND], float)
        self._way = np.zeros(self._centre.shape)
        for joint in joints:
            if joint < len(self._way):
                self._way[joint] = _SWING_RAD if joint == 0 else _SWING_RAD / 2
        self._period_s, self._step_s = period_s, 1.0 / spec.rate_hz

    def commands(self, seconds: float = math.inf) -> Iterator[dict[str, np.ndarray]]:
        """Yield a command for each control period."""
        number = 0
        while number * self._step_s < seconds:
            number += 1
            share = math.sin(2 * math.pi * number * self._step_s / self._period_s)
            share *= min(number * self._step_s / self._period_s, 1.0)  # speed begins at zero
            target = np.clip(self._centre + share * self._way, self._low, self._high)
            yield {COMMAND: target.astype(np.float32)}


@dataclass(frozen=True)
class Sample:
    """A message of telemetry.

    Attributes:
        at_s: when the server sent it, monotonic seconds.
        state: of the robot's lifecycle.
        why: the reason for the state.
        degrees: joint positions, degrees; None before the first reading.
        height_m: height of the gripper, m; None where it is not measured.
    """

    at_s: float
    state: str
    why: str
    degrees: np.ndarray | None
    height_m: float | None = None


@dataclass(frozen=True)
class Rest:
    """The way of an arm to its rest.

    Attributes:
        seconds: from the cause to the first message from which on no joint was farther than `REST_DEG` from its end.
        travel_deg: farthest way of a joint from its position at the cause, degrees.
        speed_deg_s: fastest joint in the last `_SPEED_S` before the cause, degrees a second.
        before: the last message before the cause.
        after: the last message.
    """

    seconds: float
    travel_deg: float
    speed_deg_s: float
    before: Sample
    after: Sample


def rest_after(samples: Sequence[Sample], cause_s: float) -> Rest:
    """Judge how an arm came to rest after a cause.

    Args:
        samples: in the order of time, some before the cause, and some for as long as it takes to rest.
        cause_s: time of the cause, monotonic seconds.

    Raises:
        ValueError: there are no readings on both sides of the cause.
    """
    before = [sample for sample in samples if sample.at_s <= cause_s and sample.degrees is not None]
    after = [sample for sample in samples if sample.at_s > cause_s and sample.degrees is not None]
    if not before or not after:
        raise ValueError("there are no readings on both sides of the cause")
    ways = np.array([sample.degrees for sample in after])
    moving = np.flatnonzero(np.abs(ways - ways[-1]).max(axis=1) > REST_DEG)
    first = 0 if not len(moving) else min(int(moving[-1]) + 1, len(after) - 1)
    travel = float(np.abs(ways - before[-1].degrees).max())
    seconds = 0.0 if not len(moving) else after[first].at_s - cause_s
    return Rest(seconds, travel, speed(before), before[-1], after[-1])


def speed(samples: Sequence[Sample]) -> float:
    """Return the speed of the fastest joint over the newest `_SPEED_S` of messages, degrees a second; 0 if unknown."""
    newest = [sample for sample in samples[-64:] if sample.degrees is not None]
    newest = [sample for sample in newest if sample.at_s >= newest[-1].at_s - _SPEED_S]
    if len(newest) < 2 or newest[0].degrees is None or newest[-1].degrees is None:
        return 0.0
    return float(np.abs(newest[-1].degrees - newest[0].degrees).max()) / (newest[-1].at_s - newest[0].at_s)
