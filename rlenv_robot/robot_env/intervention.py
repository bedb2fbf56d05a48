"""Blend the actions of a policy and of a person, without a jump when control changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple, Protocol

import numpy as np

from hal import Spec, SpecError
from hal.field import JsonDict
from recorder.frame_layout import FrameLayout
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.tables import Options
from rlenv_robot.tasks.task import Arrays
from rlenv_robot.world import EnvDescription, TimeStep, WorldWrapper

__all__ = ["ActionBlender", "Chosen", "HumanIntervention", "Operator", "Who"]

Who = Literal["policy", "person", "returning"]


class Chosen(NamedTuple):
    """The action to execute, and its source; ``returning`` is the way back from the person's to the policy's action."""

    action: Arrays
    who: Who


class ActionBlender:
    """Choose between a policy's action and a person's.

    While the policy has control, its action is passed on unchanged. While a person has control, and after that until
    the policy's action is reached, no element of the action is farther than ``velocity * period_s`` from the last
    applied one. So neither change of control causes a jump, wherever policy and person are.

    Args:
        spec: the spec of the actions, which must be targets of float types, such as joint angles.
        velocity: the maximum velocity, in units of the action per second.
        period_s: duration of a step, seconds.

    Raises:
        SpecError: a field is not of a float type, so its values can't be interpolated.
        ValueError: the velocity is not above 0.
    """

    def __init__(self, spec: Spec, velocity: float, period_s: float) -> None:
        if not velocity > 0:
            raise ValueError(f"the velocity of an intervention is {velocity}, it must be above 0")
        for field in spec:
            if field.numpy_dtype.kind != "f":
                raise SpecError(
                    f"a person can't take over {spec.name!r}: {field.name!r} is {field.dtype}; expected float targets"
                )
        self.velocity = velocity
        self._spec, self._stride = spec, velocity * period_s
        self._caught_up = True

    def restart(self) -> None:
        """Begin an episode with the policy in control."""
        self._caught_up = True

    def choose(self, policy: Arrays, person: Arrays | None, present: Arrays) -> Chosen:
        """Return the action of this period.

        Args:
            policy: the policy's action.
            person: the person's action, in range or not; an element that is NaN stays where it is. None leaves control
                to the policy.
            present: the last applied action.

        Returns:
            The mapping ``policy`` while the policy has control, else a new one within the spec.
        """
        if person is not None:
            self._caught_up = False
            return Chosen({name: self._near(name, person[name], present[name]) for name in self._spec.names}, "person")
        if self._caught_up:
            return Chosen(policy, "policy")
        action = {name: self._near(name, policy[name], present[name]) for name in self._spec.names}
        self._caught_up = all(np.array_equal(action[name], policy[name]) for name in action)
        return Chosen(policy, "policy") if self._caught_up else Chosen(action, "returning")

    def _near(self, name: str, wanted: np.ndarray, present: np.ndarray) -> np.ndarray:
        field = self._spec[name]
        low, high = field.bounds
        here = np.asarray(present, np.float64)
        goal = np.asarray(wanted, np.float64)
        goal = np.clip(np.where(np.isnan(goal), here, goal), here - self._stride, here + self._stride)
        return np.clip(goal, low, high).astype(field.numpy_dtype)


# -- A person takes over during an episode: both actions and who chose are recorded, and nothing jumps -------


_TELLS = {
    "intervention": "True if a person chose the executed action",
    "executed": "action name -> the executed action; absent if it is the requested one",
}


class Operator(Protocol):
    """A person's input device, such as a keyboard, a leader arm or a space mouse."""

    def open(self) -> None:
        """Start listening. Safe to call more than once."""
        ...

    def poll(self, present: Arrays) -> Arrays | None:
        """Return the person's target for this period, by the names of the action; None while the policy has control.

        It is called once per period and must not block.

        Args:
            present: the last applied action.
        """
        ...

    def release(self) -> None:
        """Give control to the policy at the beginning of an episode, until the person takes over again."""
        ...

    def close(self) -> None:
        """Release the device. Safe to call more than once."""
        ...


class HumanIntervention(WorldWrapper):
    """Wrap a `RobotWorld` so that a person may take over.

    The agent continues to choose actions; while the person has control, the person's action is executed instead, and
    ``extra_info`` reports it (``intervention``, ``executed``). The recording holds the executed action as the action,
    the agent's as ``policy_action_<name>``, and the flag ``intervention``. If the executed action is not the agent's,
    the agent's probability does not apply to it and is recorded as unknown.

    Args:
        world: a world in which the task's actions are the robot's commands.
        operator: the person's device.
        velocity: maximum velocity of a person's action, and of the return to the policy's, units per second (see
            `rlenv_robot.robot_env.intervention.ActionBlender`).

    Raises:
        SpecError: the task's actions are not the robot's commands, or not targets of a float type.
        ValueError: the velocity is not above 0.
    """

    def __init__(self, world: RobotWorld, operator: Operator, velocity: float = 1.0) -> None:
        robot, task = world.robot.spec, world.task
        if task.action.digest != robot.commands.digest:
            raise SpecError(
                f"a person can't take over in {task.name!r}: its actions ({', '.join(task.action.names)}) are not the "
                f"commands of {robot.name!r} ({', '.join(robot.commands.names)}), so no pose can be named in them"
            )
        super().__init__(world)
        self._operator = operator
        self._blender = ActionBlender(task.action, velocity, robot.period_s)
        self._applied: Arrays = {}
        self._counts = dict.fromkeys(("taken", "person", "returning"), 0)
        self._person_before = False

    @property
    def description(self) -> EnvDescription:
        """The inner world's description, extended by the extra information of interventions."""
        description = self._world.description
        return replace(description, extra_info={**description.extra_info, **_TELLS})

    @property
    def layout(self) -> FrameLayout:
        """The inner world's layout, extended by the policy's actions."""
        return replace(self._world.layout, policy=self._world.action)

    def reset(self, options: Options) -> TimeStep:
        """Reset the inner world, with the policy in control."""
        self._operator.open()
        timestep = self._world.reset(options)
        self._operator.release()
        self._blender.restart()
        self._applied = timestep.applied
        self._counts = dict.fromkeys(self._counts, 0)
        self._person_before = False
        return timestep

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        """Execute the action, or the person's action instead.

        If the device is lost, the robot is stopped and the episode ends.
        """
        try:
            target = self._operator.poll(self._applied)
        except OSError as error:
            target = None
            self._world.stop(f"the device of the person who may take over was lost: {error}")
        chosen, who = self._blender.choose(action, target, self._applied)
        person = who == "person"
        self._counts["taken"] += person and not self._person_before
        self._person_before = person
        if who != "policy":
            self._counts[who] += 1
        if chosen is not action:
            chosen = self._world.action.validate(chosen, "action")
        timestep = self._world.step(chosen, extra_info)
        timestep.extra_info["intervention"] = person
        if chosen is not action:
            timestep.extra_info["executed"] = chosen
        self._applied = timestep.applied
        return timestep

    def episode_info(self) -> JsonDict:
        """Return the inner world's information, with the number of interventions and of their steps."""
        taken, person, returning = (self._counts[key] for key in ("taken", "person", "returning"))
        interventions = {"times": taken, "steps": person, "steps_back": returning, "velocity": self._blender.velocity}
        return {**self._world.episode_info(), "interventions": interventions}

    def close(self) -> None:
        """Close the inner world and the person's device."""
        try:
            self._world.close()
        finally:
            self._operator.close()
