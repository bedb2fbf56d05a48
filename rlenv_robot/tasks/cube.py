"""Move a cube on the table: the rules that such tasks share, and the tasks `Push` and `PickPlace`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from hal import Field, Spec
from hal.robots.so101 import CUBE_AREA, CUBE_HALF, HOME, LOW, SO101, SO101_CUBE
from hal.robots.vectors import component, distance, squared_distance
from rlenv_robot.robot_models import RobotModel, find_robot_model
from rlenv_robot.tables import Options
from rlenv_robot.tasks.flat_hints import ARM_SCALES, ARM_STRIDE, SERVO_GAP, Difference, FlatHints
from rlenv_robot.tasks.task import Arrays, Episode, check_settings, with_fixed_goal

if TYPE_CHECKING:
    from sim.model import SimModel

__all__ = [
    "CubeTask", "PickPlace", "Push", "Rewards", "check_rewards", "goal_change", "let_go", "place_on_table",
    "start_near_home", "start_open",
]  # fmt: skip

Rewards = Literal["dense", "sparse"]
"""``dense`` guides to the target; ``sparse`` is 1 if the task is fulfilled, else 0."""


def check_rewards(rewards: str) -> None:
    """Refuse another word than those of `Rewards`.

    Raises:
        ValueError: the word is another one.
    """
    if rewards not in get_args(Rewards):
        raise ValueError(f"rewards is {rewards!r}, allowed are 'dense' and 'sparse'")


_TARGET = Field("target_position", (3,), "float32", -1.0, 1.0, "m", "where the cube's middle shall be", ("x", "y", "z"))

_START_NOISE = 0.15
_LOST_M = -0.05

_OPEN_RAD = 0.8
"""The jaw's angle at the start of a task that takes things."""


class CubeTask:
    """A task that succeeds if the cube is at the target. This is the base class of dataclasses.

    Attributes:
        name: name of the task in `rlenv_robot.make`.
        tolerance_m: the distance that counts as success, metres.
        rewards: ``dense`` or ``sparse``.
        area: central share of the table's area (in width and in depth) from which targets are drawn, above 0 to 1.
        steps: length of an episode in control periods.

    Raises:
        ValueError: a setting is out of range; the message names it.
    """

    robot = "so101-cube"

    name: str
    tolerance_m: float
    rewards: Rewards
    area: float
    steps: int

    def __post_init__(self) -> None:
        check_settings(self.steps, tolerance_m=self.tolerance_m)
        check_rewards(self.rewards)
        if not 0 < self.area <= 1:
            raise ValueError(f"area is {self.area}, it must be above 0 and at most 1")

    @cached_property
    def observation(self) -> Spec:
        """The observation: the arm's sensors, the cube's pose and the target."""
        return Spec(self._called("observation"), (*SO101_CUBE.sensors.fields, _TARGET))

    @cached_property
    def goal(self) -> Spec:
        """The goal: the target's position."""
        return Spec(self._called("goal"), (_TARGET,))

    @cached_property
    def state(self) -> Spec:
        """The privileged state: none."""
        return Spec(self._called("state"))

    def _called(self, part: str) -> str:
        return f"{self.name.replace('-', '_')}_{part}"

    def _episode(self, target: tuple[float, float, float], start: np.ndarray, options: Options) -> Episode:
        """Return an episode to the target, or to the one that the options fix.

        Args:
            target: where the cube's middle shall be, metres.
            start: joint goals, rad, shape (6,).
            options: as for `rlenv_robot.tasks.task.Task.begin`.
        """
        goal: Arrays = {"target_position": np.array(target, np.float32)}
        return Episode(with_fixed_goal(self.goal, goal, options), {"joint_target": start})

    def observe(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return the sensors, and the target broadcast to their leading axes."""
        shape, target = sensors["cube_position"].shape, goal["target_position"]
        return {**sensors, "target_position": target if target.shape == shape else np.broadcast_to(target, shape)}

    def privileged(self, sensors: Arrays, goal: Arrays) -> Arrays:
        """Return an empty mapping: there is no privileged state."""
        return {}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the task's class defines; shape = leading axes."""
        if self.rewards == "sparse":
            return self.success(following, goal).astype(np.float64)
        return _shaped_reward(sensors, following, _reach(following), _gap(following, goal))

    def terminated(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the cube fell off the table; bool, shape = leading axes."""
        return component(sensors["cube_position"], 2) < _LOST_M

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the cube is within the tolerance; bool, shape = leading axes."""
        return _gap(sensors, goal) <= self.tolerance_m

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the cube's distance from the target, mm."""
        return {"distance_mm": _gap(sensors, goal) * 1e3}

    def hindsight(self, sensors: Arrays) -> dict[str, np.ndarray]:
        """Return the goal that the last reading along the time axis reached."""
        return {"target_position": sensors["cube_position"][-1]}

    def is_reached(self, achieved: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether a reached position of the cube is within the tolerance; bool, shape = leading axes."""
        return distance(achieved["target_position"], goal["target_position"]) <= self.tolerance_m

    def flat_hints(self) -> FlatHints:
        """Return the scales that these tasks were tested with (benchmarks/train.py)."""
        differences = (
            Difference("cube_position", "gripper_position", 0.05),
            Difference("target_position", "cube_position", 0.05),
            SERVO_GAP,
        )
        scales = {**ARM_SCALES, "cube_position": 0.2, "target_position": 0.2}
        return FlatHints(scales, differences, "joint_goal", ARM_STRIDE)


def start_near_home(rng: np.random.Generator, spread_rad: float = _START_NOISE) -> np.ndarray:
    """Draw joint goals at most ``spread_rad`` from home, rad, shape (6,); the gripper's goal is that of home."""
    noise = rng.uniform(-spread_rad, spread_rad, 6).astype(np.float32)
    noise[5] = 0.0
    return np.asarray(HOME, np.float32) + noise


def start_open(rng: np.random.Generator, spread_rad: float = _START_NOISE) -> np.ndarray:
    """Draw joint goals as `start_near_home` does, but with an open gripper, rad, shape (6,)."""
    start = start_near_home(rng, spread_rad)
    start[5] = _OPEN_RAD
    return start


def place_on_table(rng: np.random.Generator, share: float) -> tuple[float, float]:
    """Draw x and y, metres, from the central ``share`` (in width and in depth) of the area for cubes."""
    x, y = ((low + high) / 2 + share * (high - low) * rng.uniform(-0.5, 0.5) for low, high in CUBE_AREA)
    return float(x), float(y)


def _gap(sensors: Arrays, goal: Arrays) -> np.ndarray:
    """Return the distance from the cube's middle to the target, metres; shape = leading axes."""
    return distance(sensors["cube_position"], goal["target_position"])


def _reach(sensors: Arrays) -> np.ndarray:
    """Return the distance from the finger tip to the cube's middle, metres; shape = leading axes."""
    return distance(sensors["gripper_position"], sensors["cube_position"])


def _shaped_reward(sensors: Arrays, following: Arrays, near: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Return a reward that leads the fingers to the cube and the cube to the target, at most 1; shape = leading axes.

    ``0.2 exp(-g / 0.05 m) + 0.4 exp(-d / 0.1 m) + 0.4 exp(-d / 0.02 m) - 0.5 |q* - q*before|^2``: ``g`` from finger
    tips to cube (``near``) and ``d`` from cube to target (``away``) after the step, ``q*`` the goals of the five joints
    before the gripper.
    """
    value: np.ndarray = 0.2 * np.exp(-near / 0.05) + 0.4 * np.exp(-away / 0.1) + 0.4 * np.exp(-away / 0.02)
    value -= 0.5 * goal_change(sensors, following)
    return value


def goal_change(sensors: Arrays, following: Arrays) -> np.ndarray:
    """Return the sum of the squared changes of the five joint goals before the gripper, rad^2; shape = leading axes."""
    return squared_distance(following["joint_goal"][..., :5], sensors["joint_goal"][..., :5])


# -- so101-push ----------------------------------------------------------------------------------------------


_JOINTS = SO101.commands["joint_target"]


@dataclass(frozen=True)
class Push(CubeTask):
    """Push a cube over the table with closed fingers.

    The action is the goals of the arm's five joints; the gripper is kept closed. Reward of a step, at most 1:
    ``0.2 exp(-g / 0.05 m) + 0.4 exp(-d / 0.1 m) + 0.4 exp(-d / 0.02 m) - 0.5 |q* - q*before|^2`` with ``g`` the
    distance from finger tips to cube, ``d`` that from cube to target, both after the step, and ``q*`` the joint
    goals in rad. With ``rewards="sparse"`` it is 1 within the tolerance, else 0. The task terminates if the cube
    falls off the table, and is truncated after ``steps``.

    Attributes:
        tolerance_m: the distance that counts as success, metres.
        rewards: ``dense`` or ``sparse``.
        area: central share of the table's area (in width and in depth) from which targets are drawn, above 0 to 1; a
            smaller share is easier.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_m: float = 0.02
    rewards: Rewards = "dense"
    area: float = 1.0
    steps: int = 240

    name = "so101-push"

    @cached_property
    def action(self) -> Spec:
        """The action: goals of the arm's joints."""
        low, high = _JOINTS.bounds
        arm = replace(_JOINTS, name="arm_target", shape=(5,), low=tuple(low[:5].tolist()),
                      high=tuple(high[:5].tolist()), meaning="goal angles of the arm's servos; the gripper is closed",
                      elements=_JOINTS.elements[:5])  # fmt: skip
        return Spec("so101_push_action", (arm,))

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a target on the table, and a start near home. The robot's reset draws the cube's position."""
        start = start_near_home(rng)
        start[5] = LOW[5]
        return self._episode((*place_on_table(rng, self.area), CUBE_HALF), start, options)

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the goals of the arm's joints, with the gripper's goal at its closed end."""
        arm = action["arm_target"]
        closed = np.full((*arm.shape[:-1], 1), _JOINTS.bounds[0][5], arm.dtype)
        return {"joint_target": np.concatenate([arm, closed], axis=-1)}


# -- so101-pick-place ----------------------------------------------------------------------------------------


_LOWEST_M = 0.05
_HIGHEST_M = 0.12
_ON_TABLE_M = 4 * CUBE_HALF
"""Targets below this height are on the table: a cube that lies below such a target is not held at it."""

_CUBES = {"cube_edge_m": (0.02, 0.03), "cube_mass_kg": (0.002, 0.2), "cube_friction": (0.2, 3.0)}
_MOST_DISTRACTORS = 4
_LARGEST_SPREAD = 0.3
_LET_GO_RAD = 0.35
_AWAY_M = 0.05
_LIFTED_MM = 30.0
"""A cube with its centre at this height is off the table: the largest one, on a corner, has it at 26 mm."""
_HOLDS_RAD = -0.1
"""A jaw that is open by this has something between its fingers; closed on nothing it is at -0.17, on 20 mm at 0.04."""
_HELD_M = 0.03
_REST_S = 1.0
_REST_MM = 2.0


def let_go(sensors: Arrays, thing: np.ndarray) -> np.ndarray:
    """Return whether the gripper is open by at least 0.35 rad, with its tip at least 5 cm away from an object.

    Args:
        sensors: the sensors of an SO-101, each with any leading axes.
        thing: the centre of the object, metres, shape (..., 3).

    Returns:
        bool, shape = leading axes.
    """
    away = distance(sensors["gripper_position"], thing) >= _AWAY_M
    return (component(sensors["joint_position"], 5) >= _LET_GO_RAD) & away


@dataclass(frozen=True)
class PickPlace(CubeTask):
    """Bring a cube to a target: put it down on the table, or hold it above the table.

    If the target is on the table, an episode succeeds if during the whole last second the gripper has released the
    cube, and the cube has rested within the tolerance: its distance from the target at the end is the mean of that
    second to 2 mm. The gripper has released the cube if its jaw is open by 0.35 rad or more and its tip is 5 cm or more
    away from the cube's centre. If the target is in the air, an episode succeeds if the cube is within the tolerance at
    the end. In both the gripper must have lifted the cube: at some reading the cube's centre was 30 mm or more above
    the table, and 30 mm or less from the finger tips, with the jaw open by -0.1 rad or more.

    Reward of a step, at most 2:
    ``0.2 exp(-g / 0.05 m) + 0.4 exp(-d / 0.1 m) + 0.4 exp(-d / 0.02 m) - 0.5 |q* - q*before|^2`` with ``g`` the
    distance from finger tips to cube, ``d`` that from cube to target, both after the step, and ``q*`` the joint goals
    of the arm without its gripper in rad; plus 1 if the gripper has released the cube within the tolerance of a target
    on the table. With ``rewards="sparse"`` it is 1 if the cube is within the tolerance and, for a target on the table,
    the gripper has released it, else 0. Neither reward knows whether the cube was lifted. The task terminates if the
    cube falls off the table, and is truncated after ``steps``.

    Attributes:
        tolerance_m: the distance that counts as success, metres.
        rewards: ``dense`` or ``sparse``.
        release: whether a cube on the table must be released and rest. With False, as before version 0.2, it may still
            be held at the end, and releasing it adds no reward.
        lift: whether the cube must have been lifted. With False, as before version 0.2, a cube that was pushed to a
            target on the table counts too.
        above: share of the episodes with a target 5 to 12 cm above the table, 0 to 1; in the others it is on the table.
        area: central share of the table's area (in width and in depth) from which targets are drawn, above 0 to 1; a
            smaller share is easier.
        cube_edge_m: range of the cube's edge length, metres, within 0.02 to 0.03.
        cube_mass_kg: range of its mass, kg, within 0.002 to 0.2.
        cube_friction: range of its coefficient of sliding friction, within 0.2 to 3.
        distractors: number of other objects beside the area of cubes and targets, 0 to 4; only cameras see them.
        start_spread_rad: maximum distance of a joint's start from home, rad, 0 to 0.3.
        steps: length of an episode in control periods of 1/30 s.
    """

    tolerance_m: float = 0.02
    rewards: Rewards = "dense"
    release: bool = True
    lift: bool = True
    above: float = 0.5
    area: float = 1.0
    cube_edge_m: tuple[float, float] = (0.025, 0.025)
    cube_mass_kg: tuple[float, float] = (0.016, 0.016)
    cube_friction: tuple[float, float] = (1.0, 1.0)
    distractors: int = 0
    start_spread_rad: float = _START_NOISE
    steps: int = 240

    name = "so101-pick-place"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.above <= 1:
            raise ValueError(f"above is {self.above}, it must be from 0 to 1")
        for name, (least, most) in _CUBES.items():
            object.__setattr__(self, name, tuple(getattr(self, name)))  # a profile gives a list
            ends = getattr(self, name)
            if len(ends) != 2 or not least <= ends[0] <= ends[1] <= most:
                raise ValueError(f"{name} is {ends}, it must be a range within {least} to {most}")
        if self.distractors not in range(_MOST_DISTRACTORS + 1):
            raise ValueError(f"distractors is {self.distractors}, it must be from 0 to {_MOST_DISTRACTORS}")
        if not 0 <= self.start_spread_rad <= _LARGEST_SPREAD:
            raise ValueError(f"start_spread_rad is {self.start_spread_rad}, it must be from 0 to {_LARGEST_SPREAD}")

    @cached_property
    def robot_model(self) -> RobotModel:
        """The robot model; its simulations draw cubes from this task's ranges and contain its distractors."""
        known = find_robot_model(self.robot)
        values = (self.cube_edge_m, self.cube_mass_kg, self.cube_friction, self.distractors)
        if values == (PickPlace.cube_edge_m, PickPlace.cube_mass_kg, PickPlace.cube_friction, 0):
            return known

        def simulated(looks: bool = True) -> SimModel:
            from sim.robots.so101 import CubeScene, so101_cube

            return so101_cube(looks, CubeScene(*values))

        def twin(seed: int = 0) -> SimModel:
            from sim.robots.so101 import CubeScene
            from sim.robots.twin import so101_cube_twin

            return so101_cube_twin(seed, scene=CubeScene(*values))

        return replace(known, simulated=simulated, twin=twin)

    @cached_property
    def action(self) -> Spec:
        """The action: the robot's own command."""
        return replace(SO101_CUBE.commands, name="so101_pick_place_action")

    def begin(self, rng: np.random.Generator, options: Options) -> Episode:
        """Draw a target, and a start near home with an open gripper. The robot's reset draws the cube's position."""
        start = start_open(rng, self.start_spread_rad)
        x, y = place_on_table(rng, self.area)
        height = float(rng.uniform(_LOWEST_M, _HIGHEST_M)) if rng.uniform() < self.above else CUBE_HALF
        return self._episode((x, y, height), start, options)

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        """Return the action, which is the command."""
        return action

    # -- judging -----------------------------------------------------------------------------------------

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        """Return the reward that the class defines; shape = leading axes."""
        if self.rewards == "sparse" or not self.release:
            return super().reward(sensors, action, following, goal)
        near, away = _reach(following), _gap(following, goal)
        released = (component(following["joint_position"], 5) >= _LET_GO_RAD) & (near >= _AWAY_M)
        put_down: np.ndarray = released & (away <= self.tolerance_m) & _on_table(goal)
        return _shaped_reward(sensors, following, near, away) + put_down

    def is_reached(self, achieved: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether a reached position of the cube is within the tolerance; bool, shape = leading axes.

        Raises:
            ValueError: with ``release`` or ``lift``, more than the goal decides.
        """
        if self.release or self.lift:
            settings = ", ".join(f"{name}=False" for name in ("release", "lift"))
            raise ValueError(f"the success of {self.name!r} depends on more than its goal: give {settings}")
        return super().is_reached(achieved, goal)

    def success(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the cube is at the target at this reading, and released if it must be; bool."""
        if not self.release:
            return super().success(sensors, goal)
        return np.where(_on_table(goal), self._put_down(sensors, goal), super().success(sensors, goal))

    def _put_down(self, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the cube is within the tolerance and the gripper has let go; bool, shape = leading axes."""
        return super().success(sensors, goal) & let_go(sensors, sensors["cube_position"])

    def metrics(self, sensors: Arrays, goal: Arrays) -> dict[str, np.ndarray]:
        """Return the cube's distance from the target and its lift's height, mm, and whether it was released there."""
        figures = super().metrics(sensors, goal) | self.peaks(sensors)
        if self.release:
            figures["put_down_share"] = self._put_down(sensors, goal).astype(np.float64)
        return figures

    def peaks(self, sensors: Arrays) -> dict[str, np.ndarray]:
        """Return the height of the cube's centre above the table, mm, if the gripper has lifted it 30 mm, else 0."""
        height = component(sensors["cube_position"], 2) * 1e3
        high = height >= _LIFTED_MM
        if height.ndim == 0 and not high:
            return {"lifted_mm": np.zeros(())}  # the rest takes longer than all else that a step keeps
        held = (component(sensors["joint_position"], 5) >= _HOLDS_RAD) & (_reach(sensors) <= _HELD_M)
        return {"lifted_mm": np.where(high & held, height, 0.0)}

    @property
    def averaged_readings(self) -> int:
        """The number of readings in the second during which the cube must rest; 1 without ``release``."""
        return round(_REST_S * SO101.rate_hz) if self.release else 1

    def average_success(self, means: Arrays, sensors: Arrays, goal: Arrays) -> np.ndarray:
        """Return whether the cube rests released at a target on the table, or is held in the air, after a lift."""
        lifted = (means["lifted_mm"] >= _LIFTED_MM) | (not self.lift)
        if not self.release:
            return self.success(sensors, goal) & lifted
        resting = np.abs(means["distance_mm"] - _gap(sensors, goal) * 1e3) <= _REST_MM
        put_down = (means["put_down_share"] > 1 - 1e-6) & resting
        return self.success(sensors, goal) & (put_down | ~_on_table(goal)) & lifted


def _on_table(goal: Arrays) -> np.ndarray:
    """Return whether the target is on the table; bool, shape = leading axes."""
    return component(goal["target_position"], 2) < _ON_TABLE_M
