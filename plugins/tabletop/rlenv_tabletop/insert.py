"""`so101-insert`: put an upright peg into a socket, and let go of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from hal import Field, Spec
from hal.robots.vectors import bounded, component, components, distance, from_components
from rlenv_robot.robot_models import RobotModel, find_robot_model
from rlenv_robot.tables import Options
from rlenv_robot.tasks.cube import Rewards, check_rewards, goal_change, start_open
from rlenv_robot.tasks.flat_hints import ARM_SCALES, ARM_STRIDE, SERVO_GAP, Difference, FlatHints
from rlenv_robot.tasks.memoise import memoise_by_identity
from rlenv_robot.tasks.task import Arrays, Episode, check_settings
from rlenv_tabletop.robots import PEG_HALF, SO101_PEG

__all__ = ["Insert"]

_REST_S = 0.5
_LOST_M = -0.05
_NOMINAL_PLAY_M = 0.002
_WIDEST_M = 0.01


@dataclass(frozen=True)
class Insert:
    """Take an upright peg, put it into a socket, and let go of it.

    The peg is 20 mm square and 50 mm high; the socket is 20 mm deep, with a chamfer of 4 mm around its mouth. The
    robot's reset draws the position and the angle of both. An episode succeeds if, averaged over its last half second,
    the middle of the peg is at its place at the bottom of the socket, to within ``tolerance_m`` plus the socket's play,
    and the finger tips are at least ``clearance_m`` from the middle of the peg.

    Reward of a step, at most 1: ``0.2 exp(-g / 0.05 m) + 0.25 exp(-d / 0.1 m) + 0.25 exp(-d / 0.01 m) + 0.5 w (1 -
    exp(-g / 0.05 m)) - 0.5 |q* - q*before|^2`` where ``g`` is the distance from finger tips to the middle of the peg
    and ``d`` that of the peg from its place minus the play of the socket, both after the step, ``w`` falls from 1 where
    ``d`` is half the tolerance to 0 where ``d`` is the tolerance, and ``q*`` are the joint goals of the arm without its
    gripper in rad. The term with ``w`` rewards leaving the peg once it is in the socket. With ``rewards="sparse"`` the
    reward is 1 if the reading alone would be a success, else 0. The task terminates if the peg falls off the table, and
    is truncated after ``steps``.

    Attributes:
        tolerance_m: largest distance of the peg from its place that counts as success, beyond the play of the socket,
            metres.
        play_m: width of the socket minus that of the peg, metres, above 0 and at most 0.01; less is harder.
        rewards: ``dense`` or ``sparse``.
        clearance_m: smallest distance between finger tips and the peg's middle that counts as let go, metres.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_m: float = 0.003
    play_m: float = _NOMINAL_PLAY_M
    rewards: Rewards = "dense"
    clearance_m: float = 0.04
    steps: int = 240

    name = "so101-insert"
    robot = "so101-peg"

    def __post_init__(self) -> None:
        check_settings(self.steps, tolerance_m=self.tolerance_m, clearance_m=self.clearance_m)
        check_rewards(self.rewards)
        if not 0 < self.play_m <= _WIDEST_M:
            raise ValueError(f"play_m is {self.play_m}, it must be above 0 and at most {_WIDEST_M}")

    @cached_property
    def robot_model(self) -> RobotModel:
        """The robot model, whose simulation has a socket of this task's width."""
        model = find_robot_model(self.robot)
        if self.play_m == _NOMINAL_PLAY_M:
            return model
        from rlenv_tabletop.scenes import so101_peg, so101_peg_twin

        return replace(
            model, simulated=partial(so101_peg, play_m=self.play_m), twin=partial(so101_peg_twin, play_m=self.play_m)
        )

    @cached_property
    def observation(self) -> Spec:
        """The observation: the robot's sensors, the peg's place in the socket, and its angle to the socket."""
        meaning = "where the middle of the peg shall be: on the ground of the socket"
        seat = Field("seat_position", (3,), "float32", -20.0, 20.0, "m", meaning, ("x", "y", "z"))
        meaning = "least turn about the vertical by which the peg fits into the socket"
        turn = Field("peg_turn", (1,), "float32", -0.8, 0.8, "rad", meaning)
        return Spec("so101_insert_observation", (*SO101_PEG.sensors.fields, seat, turn))

    @cached_property
    def action(self) -> Spec:
        """The action: the arm's command."""
        return replace(SO101_PEG.commands, name="so101_insert_action")

    @cached_property
    def goal(self) -> Spec:
        """The goal: none, since the socket's position is measured."""
        return Spec("so101_insert_goal")

    @cached_property
    def state(self) -> Spec:
        """The privileged state: none."""
        return Spec("so101_insert_state")

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a start near home with an open gripper. The robot's reset draws the poses of peg and socket."""
        return Episode({}, {"joint_target": start_open(rng)})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action, which is the robot's command."""
        return action

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the sensors, the peg's place in the socket, and its angle to the socket."""
        return {**sensors, "seat_position": _seat(sensors["socket_position"]).copy(), "peg_turn": _turn(sensors)}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return an empty mapping: there is no privileged state."""
        return {}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the class describes; shape: the leading axes."""
        if self.rewards == "sparse":
            return self.success(following, goal).astype(np.float64)
        away, near = self._beyond(following), np.exp(-_from_tips(following) / 0.05)
        done = bounded(2 - 2 * away / self.tolerance_m, 0.0, 1.0)
        value: np.ndarray = 0.25 * np.exp(-away / 0.1) + 0.25 * np.exp(-away / 0.01) + 0.2 * near
        value += 0.5 * done * (1 - near) - 0.5 * goal_change(sensors, following)
        return value

    def _beyond(self, sensors: Arrays) -> np.ndarray:
        """Return the peg's distance from its place less the play of the socket at its corners, metres."""
        away = distance(sensors["peg_position"], _seat(sensors["socket_position"])) - self._corner_play
        return bounded(away, 0.0, np.inf)

    @cached_property
    def _corner_play(self) -> np.float64:
        """The play of the socket at its corners, metres."""
        play: np.float64 = self.play_m / np.sqrt(2)
        return play

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the peg fell off the table; bool, shape: the leading axes."""
        below: np.ndarray = component(sensors["peg_position"], 2) < _LOST_M
        return below

    @property
    def averaged_readings(self) -> int:
        """The number of readings in half a second, over which success is judged."""
        return round(_REST_S * SO101_PEG.rate_hz)

    def average_success(self, means: Arrays, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the peg, averaged over the last readings, was inserted and released, and is on the table."""
        inside = means["distance_mm"] <= self.tolerance_m * 1e3
        left = means["clearance_mm"] >= self.clearance_m * 1e3
        good: np.ndarray = inside & left & ~self.terminated(sensors, goal)
        return good

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the peg is in the socket and released in this reading; bool, shape: the leading axes."""
        return self.average_success(self.metrics(sensors, goal), sensors, goal)

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the peg's distance from its place beyond the socket's play, and the fingers' distance from the peg."""
        return {"distance_mm": self._beyond(sensors) * 1e3, "clearance_mm": _from_tips(sensors) * 1e3}

    def flat_hints(self) -> FlatHints:
        """Return the scales of vectors with which this task was trained (launch/train_clone.py)."""
        differences = (
            Difference("peg_position", "gripper_position", 0.05),
            Difference("seat_position", "peg_position", 0.02),
            SERVO_GAP,
        )
        scales = {**ARM_SCALES, "peg_position": 0.2, "socket_position": 0.2, "socket_yaw": 0.5, "seat_position": 0.2,
                  "peg_turn": 0.1}  # fmt: skip
        return FlatHints(scales, differences, "joint_goal", ARM_STRIDE)


@memoise_by_identity
def _seat(socket_position: np.ndarray) -> np.ndarray:
    """Return the place of the peg's middle in the socket, given the socket's, metres; shape (..., 2) to (..., 3)."""
    return from_components(*components(socket_position), PEG_HALF[2])


def _turn(sensors: Arrays) -> np.ndarray:
    """Return the least turn about the vertical by which the square peg fits into the socket, rad, shape (..., 1)."""
    w, x, y, z = components(sensors["peg_orientation"])
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return from_components((component(sensors["socket_yaw"], 0) - yaw + np.pi / 4) % (np.pi / 2) - np.pi / 4)


def _from_tips(sensors: Arrays) -> np.ndarray:
    """Return the distance from the finger tips to the middle of the peg, metres; shape: the leading axes."""
    return distance(sensors["gripper_position"], sensors["peg_position"])
