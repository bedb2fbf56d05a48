"""Replay recorded goals open loop in a simulation, with the timing of an environment's steps."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import mujoco
import numpy as np

from hal import SourceError
from rlenv_robot.config.plugins import load_object
from rlenv_robot.config.profile import load_profile
from rlenv_robot.config.sim_settings import SimSettings, sim_settings
from rlenv_robot.robot_models import RobotModel, load_robot_model
from rlenv_sim2real.motion import ArmJoints, RecordedMotion
from sim.batch import SimBatch
from sim.model import SimModel

__all__ = ["ReplayModel", "fingertips", "replay", "replay_in_steps", "replay_model", "without_contacts"]

_VEL = mujoco.mjtStage.mjSTAGE_VEL.value


@dataclass(frozen=True)
class ReplayModel:
    """A simulation in which goals are replayed.

    Attributes:
        name: for people.
        sim_model: the simulated robot.
        settings: its timing and randomisation; distributions are drawn with seed 0.
    """

    name: str
    sim_model: SimModel
    settings: SimSettings = field(default_factory=SimSettings)


def replay_model(name: str, robot: RobotModel, contacts: bool = False) -> ReplayModel:
    """Return the simulation with a name given by a user.

    Args:
        name: ``sim``, the robot's nominal simulation; ``twin`` or ``twin:SEED``; a profile (``.toml``), of which timing
            and randomisation are used; or another robot model: a name, a MuJoCo model (``.xml``) or ``module:name``.
        robot: the robot model that recorded the data.
        contacts: whether parts collide with each other and with the table. Without contacts the arm moves in free air,
            wherever its table was and whatever it held.

    Raises:
        ValueError: the name is unknown, or the robot has no such simulation.
        ProfileError: the profile can't be read, or is for another robot.
        SpecError: the profile's timing or randomisation do not fit the model.
    """
    settings = SimSettings()
    twin = re.fullmatch(r"twin(?::(\d+))?", name)
    if name.endswith(".toml"):
        profile = load_profile(Path(name))
        if load_robot_model(profile.robot.kind).load_spec().name != robot.load_spec().name:
            raise ValueError(f"{name} is a profile of a {profile.robot.kind!r}, the data are of a {robot.name!r}")
        settings = sim_settings(None, None, profile, robot.load_spec())
        sim_model = _twin(robot, profile.robot.seed) if profile.robot.where == "twin" else _nominal(robot)
    elif twin is not None:
        sim_model = _twin(robot, int(twin[1] or 0))
    else:
        sim_model = _nominal(robot if name == "sim" else load_robot_model(name))
    return ReplayModel(name, sim_model if contacts else without_contacts(sim_model), settings)


def _nominal(robot: RobotModel) -> SimModel:
    return robot.make_sim_model(looks=False)


def _twin(robot: RobotModel, seed: int) -> SimModel:
    if robot.twin is None:
        raise ValueError(f"there is no twin of {robot.name!r}, use 'sim'")
    twin: SimModel = load_object(robot.twin)(seed)
    return twin


def without_contacts(sim_model: SimModel) -> SimModel:
    """Return a simulation without any contacts."""
    model = copy.copy(sim_model.model)
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    return replace(sim_model, model=model)


def replay(model: ReplayModel, motion: RecordedMotion) -> np.ndarray:
    """Simulate the goals of a motion, starting at its first measured angles at rest.

    Args:
        model: the simulation.
        motion: with the control period of the simulation (`RecordedMotion.at_period`).

    Returns:
        Angles that the simulated servos measure at each frame, rad, (T, n).

    Raises:
        SourceError: the motion has another period or other joints, or the physics failed.
    """
    return np.asarray(replay_in_steps(model, motion, np.array([0]), len(motion) - 1)[0])


def replay_in_steps(model: ReplayModel, motion: RecordedMotion, starts: np.ndarray, steps: int) -> np.ndarray:
    """Simulate several pieces of a motion at once, each from the measured angles at its start.

    A piece that starts at frame 0 starts at rest; another starts with the velocity between the frames beside its start.
    A command that was in progress at the start counts as arrived.

    Args:
        model: the simulation.
        motion: with the control period of the simulation.
        starts: first frames of the B pieces, (B,).
        steps: length of each piece, periods; after the motion's end the last goal is repeated.

    Returns:
        Measured angles at the starts and after each step, rad, (B, steps + 1, n).

    Raises:
        SourceError: the motion has another period or other joints, or the physics failed.
    """
    sim_model = model.sim_model
    joints = ArmJoints.of(sim_model)
    if joints.names != motion.names:
        raise SourceError(f"the motion is of {', '.join(motion.names)}, {model.name} has {', '.join(joints.names)}")
    if abs(motion.period_s - sim_model.spec.period_s) > 0.01 * sim_model.spec.period_s:
        raise SourceError(
            f"the motion has a frame every {motion.period_s:g} s, {model.name} every {sim_model.spec.period_s:g} s"
        )
    batch = SimBatch(sim_model, len(starts), **model.settings)
    try:
        return _simulated(batch, joints, motion, starts, steps)
    finally:
        batch.close()


def _simulated(
    batch: SimBatch, joints: ArmJoints, motion: RecordedMotion, starts: np.ndarray, steps: int
) -> np.ndarray:
    goals = np.concatenate([motion.held[None], motion.goals])
    velocity = np.gradient(motion.measured, motion.period_s, axis=0)
    velocity[0] = 0.0
    batch.reset(seeds=np.zeros(len(starts), np.int64), starts=_commands(batch, joints, goals[starts]))
    batch.open_batch.bind("qpos")[:, joints.qpos] = motion.measured[starts]
    batch.open_batch.bind("qvel")[:, joints.qvel] = velocity[starts]
    batch.open_batch.forward(None, _VEL)
    angles = np.empty((len(starts), steps + 1, len(joints.names)))
    angles[:, 0] = motion.measured[starts]
    for step in range(steps):
        sent = motion.goals[np.minimum(starts + step, len(motion) - 1)]
        sensors = batch.step(_commands(batch, joints, sent)).sensors
        for command, columns in joints.commands.items():
            angles[:, step + 1, columns] = sensors[joints.sensors[command]].reshape(len(starts), -1)
    if batch.any_broken:
        raise SourceError("the physics of the replay failed; are the recorded angles in the units that you named?")
    return angles


def _commands(batch: SimBatch, joints: ArmJoints, goals: np.ndarray) -> dict[str, np.ndarray]:
    """Return goals, (B, n), as commands; a command that is no pose keeps the model's start."""
    commands = batch.held()
    for command, columns in joints.commands.items():
        spec = batch.spec.commands[command]
        values = np.clip(goals[:, columns], *(bound.reshape(-1) for bound in spec.bounds))
        commands[command] = values.reshape(len(goals), *spec.shape).astype(spec.numpy_dtype)
    return commands


def fingertips(sim_model: SimModel, angles: np.ndarray) -> dict[str, np.ndarray]:
    """Return the positions of the fingertips: the sites ``tip`` or ``*_tip`` of the model.

    Args:
        sim_model: the robot.
        angles: the angles of its joints (`ArmJoints`), rad, (T, n).

    Returns:
        Site -> position in the base frame, metres, (T, 3); empty for a model without such sites.
    """
    model, joints = sim_model.model, ArmJoints.of(sim_model)
    sites = [model.site(index) for index in range(model.nsite)]
    tips = {site.name: site.id for site in sites if site.name == "tip" or site.name.endswith("_tip")}
    data = mujoco.MjData(model)
    if sim_model.keyframe >= 0:
        mujoco.mj_resetDataKeyframe(model, data, sim_model.keyframe)
    positions = {name: np.empty((len(angles), 3)) for name in tips}
    for index, pose in enumerate(angles) if tips else ():
        data.qpos[joints.qpos] = pose
        mujoco.mj_kinematics(model, data)
        for name, site in tips.items():
            positions[name][index] = data.site_xpos[site]
    return positions
