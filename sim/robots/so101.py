"""Simulate the SO-101 arm at its table, with or without a cube to pick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import mujoco
import numpy as np

from hal.robot import Actuation, RobotSpec
from hal.robots.so101 import CUBE_AREA, CUBE_HALF, JOINTS, SIDEWAYS, SO101, SO101_CUBE
from sim.model import Columns, Indices, Reader, Scatter, SimModel
from sim.robots.sts3215 import STS3215

__all__ = [
    "CUBE_MASS", "LINKS", "NOMINAL_GAINS", "NOMINAL_SERVO", "REST", "STIFF_SERVO", "SUBSTEPS", "CubeScene", "Servo",
    "addresses", "so101", "so101_cube", "so101_mjcf", "with_arm", "with_cube", "with_nominal_servos", "with_so101",
]  # fmt: skip

SUBSTEPS = 8
"""Physics steps of 1/240 s in the control period of 1/30 s."""

LINKS = ("base", "shoulder", "upper_arm", "lower_arm", "wrist", "gripper", "jaw")
"""The bodies of the model, from the table to the moving finger."""

CUBE_MASS = 0.016
"""Mass of the cube, kg."""

REST = (0.0, -1.70, 1.60, 0.90, SIDEWAYS, 0.0)
"""Joint angles of the folded arm at rest while it is switched off, rad; the model's keyframe."""


@dataclass(frozen=True, slots=True)
class Servo:
    """The parameters of all six servos in a simulated arm, in MuJoCo's terms.

    Attributes:
        kp: stiffness of the position loop, N m/rad.
        kv: damping of the position loop, N m s/rad.
        damping: damping of motor and gears, N m s/rad.
        friction: torque that must be overcome before the joint moves, N m.
        armature: inertia of the rotor behind its gears, kg m^2.
        torque: the largest torque, N m.
    """

    kp: float
    kv: float
    damping: float
    friction: float
    armature: float
    torque: float


NOMINAL_SERVO = Servo(kp=8.9, kv=0.0, damping=0.608, friction=0.135, armature=0.0284, torque=3.25)
"""The STS3215 at LeRobot's gain P = 16 (`sim.robots.sts3215.STS3215`) and 7.4 V.

The friction is the mean of the six loaded joints of a real arm (`sim.robots.twin.IDENTIFIED`, 0.04 to 0.23). BAM
measured 0.0524 in a servo without load. Replaying goals of a real arm open loop leaves an error of 1.2 of LeRobot's
units in 305 and 346 frames; with `STIFF_SERVO` it is 3.0 and 3.1, and with BAM's own friction 1.5.
"""

NOMINAL_GAINS = {"stiffness": NOMINAL_SERVO.kp, "p": 16, "i": 0, "d": 32, "volts": STS3215.volts}
"""The gains of `NOMINAL_SERVO` for a manifest (`hal.robot.GAINS`): the registers that LeRobot writes, at 7.4 V."""

STIFF_SERVO = Servo(kp=998.22, kv=2.731, damping=0.60, friction=0.052, armature=0.028, torque=3.35)
"""The servo of the public simulation model (SO-ARM100, ``Simulation/SO101``), which version 0.1 used for training."""


@dataclass(frozen=True, slots=True)
class CubeScene:
    """The ranges from which each reset draws the cube, and the number of other objects on the table.

    Attributes:
        edge_m: range of the cube's edge, metres; the inertia follows from it.
        mass_kg: range of its mass, kg.
        friction: range of its coefficient of sliding friction.
        distractors: number of boxes and cylinders of about the cube's size, 0 to 4. A reset draws their positions
            outside the area of cubes and targets; only cameras see them.
    """

    edge_m: tuple[float, float] = (2 * CUBE_HALF, 2 * CUBE_HALF)
    mass_kg: tuple[float, float] = (CUBE_MASS, CUBE_MASS)
    friction: tuple[float, float] = (1.0, 1.0)
    distractors: int = 0

    @property
    def draws(self) -> dict[str, dict[str, object]]:
        """The draws for the ranges that differ from the nominal cube, as for `sim.model.SimModel.draws`."""
        nominal, lines = CubeScene(), dict[str, dict[str, object]]()
        if self.edge_m != nominal.edge_m:
            scale = [edge / (2 * CUBE_HALF) for edge in self.edge_m]
            lines["geom.cube.size"] = {"uniform": scale, "scale": True}
        if self.mass_kg != nominal.mass_kg:
            lines["body.cube.mass"] = {"uniform": list(self.mass_kg), "unit": "kg"}
        if self.friction != nominal.friction:
            lines["geom.cube.friction[0]"] = {"uniform": list(self.friction), "unit": "1"}
        return lines


_CUBE = CubeScene()


def so101(cube: bool = False, looks: bool = True, servo: Servo = NOMINAL_SERVO, scene: CubeScene = _CUBE) -> SimModel:
    """Make the nominal model, on which policies are trained.

    Args:
        cube: whether a 25 mm cube lies on the table, at a position that the reset's seed draws from `CUBE_AREA`. It has
            the sensors ``cube_position`` and ``cube_orientation``. Without the cube a step takes less time.
        looks: whether the model has its visual parts. Without them the motion is the same, bit for bit, and a batch
            steps a third faster.
        servo: the parameters of the servos: `NOMINAL_SERVO`, `STIFF_SERVO`, or your own.
        scene: the ranges of cubes, and other objects on the table.
    """
    model = so101_mjcf(cube, looks, servo, scene.distractors).compile()
    nominal = servo == NOMINAL_SERVO
    return with_cube(model, scene, nominal) if cube else with_so101(model, nominal)


def with_so101(model: mujoco.MjModel, nominal: bool = True) -> SimModel:
    """Return the arm alone.

    Args:
        model: compiled from `so101_mjcf`.
        nominal: whether its servos are those of `NOMINAL_SERVO`; the spec then has their gains.
    """
    return with_arm(with_nominal_servos(SO101) if nominal else SO101, model, {})


def with_cube(model: mujoco.MjModel, scene: CubeScene = _CUBE, nominal: bool = True) -> SimModel:
    """Return the arm with its cube, placed as ``scene`` says; for the others see `with_so101`."""
    spec = with_nominal_servos(SO101_CUBE) if nominal else SO101_CUBE
    scatter = _CubeScatter(int(model.joint("cube").qposadr[0]), scene)
    return with_arm(spec, model, _cube_sensors(model), scatter, scene.draws)


def with_nominal_servos(spec: RobotSpec) -> RobotSpec:
    """Return a spec with the gains of the nominal servos as its actuation."""
    return replace(spec, actuation=Actuation.for_all(spec.commands, NOMINAL_GAINS))


def with_arm(
    spec: RobotSpec,
    model: mujoco.MjModel,
    things: Mapping[str, Reader],
    scatter: Scatter | None = None,
    draws: Mapping[str, Mapping[str, object]] | None = None,
) -> SimModel:
    """Return an SO-101 with objects beside it, with the arm's sensors, commands and starts and the objects' sensors.

    Args:
        spec: the robot's description.
        model: a model compiled from `so101_mjcf`, with the objects.
        things: sensor of an object -> its source.
        scatter: as for `sim.model.SimModel`.
        draws: as for `sim.model.SimModel`.
    """
    joints, tip = addresses(model), 3 * model.site("tip").id
    return SimModel(
        spec=spec,
        model=model,
        substeps=SUBSTEPS,
        sensors={
            "joint_position": Columns("qpos", joints),
            "joint_velocity": Columns("qvel", _velocities(model)),
            "joint_goal": Columns("ctrl"),
            # Equals forward_kinematics of the exact angles; a test compares the two to a micrometre.
            "gripper_position": Columns("site_xpos", tuple(range(tip, tip + 3))),
            **things,
        },
        commands={"joint_target": slice(0, 6)},
        start={"joint_target": joints},
        keyframe=0,
        scatter=scatter,
        draws=draws or {},
    )


def so101_cube(looks: bool = True, scene: CubeScene = _CUBE) -> SimModel:
    """Make the nominal model with the cube, as `so101` does."""
    return so101(cube=True, looks=looks, scene=scene)


def so101_mjcf(
    cube: bool = False, looks: bool = True, servo: Servo = NOMINAL_SERVO, distractors: int = 0,
    scene: Path | None = None, things: Sequence[float] = (),
) -> mujoco.MjSpec:  # fmt: skip
    """Return the editable MJCF, which can be changed before it is compiled; its only keyframe is ``rest``.

    Args:
        cube: as for `so101`.
        looks: as for `so101`.
        servo: as for `so101`.
        distractors: as for `CubeScene`.
        scene: an MJCF file that includes ``so101.xml`` and adds objects to it. Other files that it includes lie in its
            folder. None for the arm and its table alone.
        things: the elements of the keyframe's ``qpos`` after those of the arm.
    """
    arm = resources.files("sim.models").joinpath("so101.xml").read_bytes()
    if scene is None:
        mjcf = mujoco.MjSpec.from_string(arm.decode())
    else:
        parts = {path.name: path.read_bytes() for path in scene.parent.glob("*.xml")}
        mjcf = mujoco.MjSpec.from_string(parts[scene.name].decode(), include={**parts, "so101.xml": arm})
    rest = [*REST, *things]
    if cube:
        rest += [0.24, 0.0, CUBE_HALF, 1.0, 0.0, 0.0, 0.0]
        for number in range(distractors):
            rest += _add_distractor(mjcf, number)
    else:
        mjcf.delete(mjcf.body("cube"))
    if not looks:
        for geom in [geom for geom in mjcf.geoms if not (geom.contype or geom.conaffinity or geom.mass)]:
            mjcf.delete(geom)
    for name in JOINTS:
        _fit(mjcf.actuator(name), mjcf.joint(name), servo)
    mjcf.add_key(name="rest", qpos=rest, ctrl=list(REST))
    return mjcf


def _fit(actuator: mujoco.MjsActuator, joint: mujoco.MjsJoint, servo: Servo) -> None:
    actuator.gainprm[0] = servo.kp
    actuator.biasprm[:3] = (0.0, -servo.kp, -servo.kv)
    actuator.forcerange[:] = (-servo.torque, servo.torque)
    joint.damping[0], joint.frictionloss, joint.armature = servo.damping, servo.friction, servo.armature


def addresses(model: mujoco.MjModel) -> Indices:
    """Return the indices of the six joints in ``qpos``."""
    return tuple(int(model.joint(name).qposadr[0]) for name in JOINTS)


def _velocities(model: mujoco.MjModel) -> Indices:
    return tuple(int(model.joint(name).dofadr[0]) for name in JOINTS)


def _cube_sensors(model: mujoco.MjModel) -> dict[str, Reader]:
    first = int(model.joint("cube").qposadr[0])
    return {
        "cube_position": Columns("qpos", slice(first, first + 3)),
        "cube_orientation": Columns("qpos", slice(first + 3, first + 7)),
    }


_DISTRACTORS = ((0.15, 0.35, 0.75, 1), (0.9, 0.75, 0.2, 1), (0.2, 0.55, 0.3, 1), (0.5, 0.3, 0.6, 1))
_BESIDE = ((0.16, 0.29), (0.17, 0.23))
"""Range of x and of the distance to the left or right of a distractor, metres."""


def _add_distractor(mjcf: mujoco.MjSpec, number: int) -> list[float]:
    """Add a box or a cylinder that rests beside the cubes' area, and return its pose."""
    pose = [0.18 + 0.08 * (number // 2), (-1) ** number * 0.2, CUBE_HALF, 1.0, 0.0, 0.0, 0.0]
    body = mjcf.worldbody.add_body(name=f"distractor_{number}", pos=pose[:3])
    body.add_freejoint(name=f"distractor_{number}")
    kind = (mujoco.mjtGeom.mjGEOM_BOX, mujoco.mjtGeom.mjGEOM_CYLINDER)[number // 2 % 2]
    body.add_geom(
        name=f"distractor_{number}", type=kind, size=[CUBE_HALF] * 3, mass=CUBE_MASS, rgba=_DISTRACTORS[number],
        contype=1, conaffinity=5, condim=4, friction=(1.0, 0.02, 0.0002),
    )  # fmt: skip
    return pose


class _CubeScatter:
    """Put the cube at a random position on the table, turned by a random angle, and distractors beside its area.

    The largest cube of the range then touches the table, and a smaller one falls by the difference at most.
    """

    def __init__(self, first: int, scene: CubeScene) -> None:
        self._first, self._height, self._distractors = first, max(scene.edge_m) / 2, scene.distractors

    def __call__(self, generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        (x0, x1), (y0, y1) = CUBE_AREA
        angle = generator.uniform(-np.pi / 4, np.pi / 4)  # a cube looks the same after a quarter turn
        position = (generator.uniform(x0, x1), generator.uniform(y0, y1), self._height)
        turn = (np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2))
        qpos[self._first : self._first + 7] = (*position, *turn)
        for number in range(self._distractors):
            # Two on each side, one nearer to the base than the other: no two touch.
            (near, far), aside = _BESIDE[0], generator.uniform(*_BESIDE[1])
            middle = (near + far) / 2
            low, high = (near, middle - 0.02) if number < 2 else (middle + 0.02, far)
            place = self._first + 7 * (number + 1)
            qpos[place : place + 2] = generator.uniform(low, high), (-1) ** number * aside
