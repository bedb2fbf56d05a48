"""Export a simulated robot as URDF with meshes, for tools that can't read MJCF.

Format: http://wiki.ros.org/urdf/XML (link, joint). The extension ``<mujoco>``, which other tools ignore, lets MuJoCo
read the file back including its visible parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import mujoco
import numpy as np

from hal.errors import RobotError
from rlenv_operate.solids import Triangles, looks, solid, stl
from sim.model import SimModel

__all__ = ["UrdfRobot", "urdf_robot"]

_UNBOUNDED = 1000.0
"""Effort (N m, N) and velocity (rad/s, m/s) of a joint of which the model gives none; URDF needs a number."""

_WORLD = "world"
_JOINT, _SHAPE = mujoco.mjtJoint, mujoco.mjtGeom


@dataclass(frozen=True)
class UrdfRobot:
    """A robot as URDF.

    Attributes:
        name: the name of the robot and of its file.
        text: the URDF.
        meshes: file name -> binary STL; in the URDF each name follows ``prefix``.
        notes: sentences on the properties of the model that URDF can't express.
    """

    name: str
    text: str
    meshes: dict[str, bytes]
    notes: tuple[str, ...]

    def write(self, folder: Path | str) -> Path:
        """Write ``<name>.urdf`` and ``meshes/`` into a folder, created if missing; return the path of the URDF.

        Raises:
            RobotError: a file exists already, or can't be written.
        """
        root = Path(folder)
        files = {root / f"{self.name}.urdf": self.text.encode()}
        files |= {root / "meshes" / name: data for name, data in self.meshes.items()}
        present = next((path for path in files if path.exists()), None)
        if present is not None:
            raise RobotError(f"{present} exists, and nothing is overwritten; name another folder")
        try:
            (root / "meshes").mkdir(parents=True, exist_ok=True)
            for path, data in files.items():
                path.write_bytes(data)
        except OSError as error:
            raise RobotError(f"{root} can't be written: {error}") from error
        return root / f"{self.name}.urdf"


def urdf_robot(sim_model: SimModel, prefix: str = "meshes/") -> UrdfRobot:
    """Convert a simulated robot to URDF: links, joints, limits, inertias, visible meshes, colliding solids.

    Links and joints have the names of the model's bodies and joints, and each link has the frame of its body, so the
    forward kinematics of both are equal. The root link of a fixed robot is ``world``; that of a robot with a free base
    is the base. Loose objects and the scene are omitted. Angle 0 is the model's ``qpos0``.

    Args:
        sim_model: the robot.
        prefix: prepended to the meshes' file names in the URDF, such as ``package://my_robot/meshes/``.

    Raises:
        RobotError: no joint has an actuator, or one is a ball joint.
    """
    return _Writer(sim_model, prefix).robot()


class _Writer:
    """Write one model.

    Args:
        sim_model: the robot.
        prefix: the prefix of the meshes' file names.
    """

    def __init__(self, sim_model: SimModel, prefix: str) -> None:
        self._sim_model, self._model, self._prefix = sim_model, sim_model.model, prefix
        self._meshes: dict[str, bytes] = {}
        self._materials: dict[tuple[float, ...], str] = {}
        self._notes: list[str] = []
        self._actuators = {
            int(joint): actuator
            for actuator, (joint, _) in enumerate(self._model.actuator_trnid.tolist())
            if self._model.actuator_trntype[actuator] == mujoco.mjtTrn.mjTRN_JOINT.value
        }
        self._velocities = self._velocity_limits()

    def robot(self) -> UrdfRobot:
        """Return the whole robot."""
        model, name = self._model, self._sim_model.spec.name
        root = Element("robot", name=name)
        compiler = {"meshdir": "meshes", "strippath": "true", "discardvisual": "false", "fusestatic": "false"}
        SubElement(SubElement(root, "mujoco"), "compiler", compiler)
        bodies = self._bodies()
        if any(model.body_parentid[body] == 0 and not self._is_free(body) for body in bodies):
            SubElement(root, "link", name=_WORLD)
        for body in bodies:
            self._add_link(root, body)
            self._add_joints(root, body)
        ElementTree.indent(root)
        text = ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
        return UrdfRobot(name, text, self._meshes, tuple(self._notes))

    def _bodies(self) -> list[int]:
        """Return the bodies that belong to the robot, parents first."""
        model = self._model
        roots = sorted({int(model.body_rootid[model.jnt_bodyid[joint]]) for joint in self._actuators})
        if not roots:
            raise RobotError(f"{self._sim_model.spec.name} has no joint with an actuator, so it contains no robot")
        outside = [self._name(body) for body in range(1, model.nbody) if model.body_rootid[body] not in roots]
        if outside:
            self._notes.append(f"left out, as no joint of theirs has an actuator: {', '.join(outside)}")
        return [body for body in range(1, model.nbody) if model.body_rootid[body] in roots]

    def _name(self, body: int) -> str:
        return str(self._model.body(body).name) or f"body_{body}"

    def _is_free(self, body: int) -> bool:
        first, count = int(self._model.body_jntadr[body]), int(self._model.body_jntnum[body])
        return count == 1 and self._model.jnt_type[first] == _JOINT.mjJNT_FREE.value

    def _velocity_limits(self) -> dict[int, float]:
        """Return the fastest motion that the robot's limits allow, by actuator."""
        limits: dict[int, float] = {}
        spec = self._sim_model.spec
        for command, columns in self._sim_model.commands.items():
            if command in spec.limits.max_velocity:
                actuators = np.arange(self._model.nu)[columns if isinstance(columns, slice) else list(columns)]
                fastest = np.broadcast_to(np.asarray(spec.limits.max_velocity[command], float).ravel(), len(actuators))
                limits |= dict(zip(actuators.tolist(), fastest.tolist(), strict=True))
        return limits

    # -- links -------------------------------------------------------------------------------------------

    def _add_link(self, root: Element, body: int) -> None:
        model = self._model
        link = SubElement(root, "link", name=self._name(body))
        if model.body_mass[body] > 0:
            inertial = SubElement(link, "inertial")
            _origin(inertial, model.body_ipos[body], None)
            SubElement(inertial, "mass", value=_text(model.body_mass[body]))
            turn = _matrix(model.body_iquat[body])
            inertia = turn @ np.diag(model.body_inertia[body]) @ turn.T
            pairs = {"ixx": (0, 0), "ixy": (0, 1), "ixz": (0, 2), "iyy": (1, 1), "iyz": (1, 2), "izz": (2, 2)}
            SubElement(inertial, "inertia", {name: _text(inertia[at]) for name, at in pairs.items()})
        geoms = [geom for geom in range(model.ngeom) if model.geom_bodyid[geom] == body]
        for number, (colour, surface) in enumerate(looks(model, body)):
            self._add_visual(link, f"{self._name(body)}_{number}.stl", surface, colour)
        for geom in geoms:
            if model.geom_contype[geom] or model.geom_conaffinity[geom]:
                self._add_collision(link, geom)

    def _add_visual(self, link: Element, file: str, surface: Triangles, colour: tuple[float, ...]) -> None:
        self._meshes[file] = stl(surface, f"{link.get('name')}, metres")
        visual = SubElement(link, "visual")
        SubElement(SubElement(visual, "geometry"), "mesh", filename=self._prefix + file)
        is_new = colour not in self._materials
        name = self._materials.setdefault(colour, f"material_{len(self._materials)}")
        material = SubElement(visual, "material", name=name)
        if is_new:
            SubElement(material, "color", rgba=" ".join(map(_text, colour)))

    def _add_collision(self, link: Element, geom: int) -> None:
        """Add a solid that collides; a capsule is a cylinder and two balls, which is the same solid."""
        model = self._model
        kind, size = _SHAPE(int(model.geom_type[geom])), model.geom_size[geom]
        position, turn = model.geom_pos[geom], model.geom_quat[geom]

        def add(tag: str, at: np.ndarray = position, **attributes: str) -> None:
            collision = SubElement(link, "collision")
            _origin(collision, at, turn)
            SubElement(SubElement(collision, "geometry"), tag, attributes)

        if kind == _SHAPE.mjGEOM_BOX:
            add("box", size=" ".join(_text(2 * half) for half in size))
        elif kind == _SHAPE.mjGEOM_SPHERE:
            add("sphere", radius=_text(size[0]))
        elif kind in (_SHAPE.mjGEOM_CYLINDER, _SHAPE.mjGEOM_CAPSULE):
            add("cylinder", radius=_text(size[0]), length=_text(2 * size[1]))
            if kind == _SHAPE.mjGEOM_CAPSULE:
                axis = _matrix(turn)[:, 2] * size[1]
                for end in (-1, 1):
                    add("sphere", position + end * axis, radius=_text(size[0]))
        else:
            file = f"{link.get('name')}_collision_{geom}.stl"
            self._meshes[file] = stl(solid(model, geom), f"{link.get('name')}, metres")
            collision = SubElement(link, "collision")
            SubElement(SubElement(collision, "geometry"), "mesh", filename=self._prefix + file)

    # -- joints ------------------------------------------------------------------------------------------

    def _add_joints(self, root: Element, body: int) -> None:
        """Add the joints between a body and its parent, with links of no mass between several joints."""
        model, name, parent = self._model, self._name(body), int(self._model.body_parentid[body])
        if self._is_free(body):
            return
        before, position, turn = (
            _WORLD if parent == 0 else self._name(parent),
            model.body_pos[body],
            model.body_quat[body],
        )
        first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        for joint in range(first, first + count):
            anchor = model.jnt_pos[joint]
            is_last = joint == first + count - 1 and not anchor.any()
            after = name if is_last else f"{name}_{self._joint_name(joint)}_carrier"
            if not is_last:
                SubElement(root, "link", name=after)
            element = self._moving_joint(root, joint)
            _origin(element, position + _matrix(turn) @ anchor, turn)
            SubElement(element, "parent", link=before)
            SubElement(element, "child", link=after)
            before, position, turn = after, -anchor, np.array([1.0, 0.0, 0.0, 0.0])
        if before != name:
            element = SubElement(root, "joint", name=f"{name}_fixed", type="fixed")
            _origin(element, position, turn)
            SubElement(element, "parent", link=before)
            SubElement(element, "child", link=name)

    def _joint_name(self, joint: int) -> str:
        return str(self._model.joint(joint).name) or f"joint_{joint}"

    def _moving_joint(self, root: Element, joint: int) -> Element:
        model, name, kind = self._model, self._joint_name(joint), _JOINT(int(self._model.jnt_type[joint]))
        if kind not in (_JOINT.mjJNT_HINGE, _JOINT.mjJNT_SLIDE):
            raise RobotError(f"joint {name!r} is a {kind.name.removeprefix('mjJNT_').lower()} joint, URDF has none")
        limited = bool(model.jnt_limited[joint])
        hinge = "revolute" if limited else "continuous"
        element = SubElement(root, "joint", name=name, type=hinge if kind == _JOINT.mjJNT_HINGE else "prismatic")
        SubElement(element, "axis", xyz=_vector(model.jnt_axis[joint]))
        limit = SubElement(element, "limit")
        if limited or kind == _JOINT.mjJNT_SLIDE:
            zero = float(model.qpos0[model.jnt_qposadr[joint]])
            low, high = model.jnt_range[joint] - zero if limited else (-_UNBOUNDED, _UNBOUNDED)
            limit.set("lower", _text(low))
            limit.set("upper", _text(high))
        actuator = self._actuators.get(joint)
        effort = _UNBOUNDED
        if actuator is not None and model.actuator_forcelimited[actuator]:
            effort = float(np.abs(model.actuator_forcerange[actuator]).max() * abs(model.actuator_gear[actuator, 0]))
        limit.set("effort", _text(effort))
        fastest = _UNBOUNDED if actuator is None else self._velocities.get(actuator, _UNBOUNDED)
        limit.set("velocity", _text(min(fastest, _UNBOUNDED)))
        dof = int(model.jnt_dofadr[joint])
        SubElement(
            element,
            "dynamics",
            damping=_text(model.dof_damping.ravel()[dof]),
            friction=_text(model.dof_frictionloss[dof]),
        )
        return element


def _origin(parent: Element, position: np.ndarray, quaternion: np.ndarray | None) -> None:
    turn = np.zeros(3) if quaternion is None else _roll_pitch_yaw(_matrix(quaternion))
    SubElement(parent, "origin", xyz=_vector(position), rpy=_vector(turn))


def _matrix(quaternion: np.ndarray) -> np.ndarray:
    flat = np.zeros(9)
    mujoco.mju_quat2Mat(flat, np.asarray(quaternion, float))
    return flat.reshape(3, 3)


def _roll_pitch_yaw(turn: np.ndarray) -> np.ndarray:
    """Return the angles about the fixed axes x, y, z, rad: ``turn = Rz(yaw) Ry(pitch) Rx(roll)``."""
    level = float(np.hypot(turn[0, 0], turn[1, 0]))
    pitch = np.arctan2(-turn[2, 0], level)
    if level < 1e-9:  # looking straight up or down, roll and yaw turn about one axis
        return np.array([0.0, pitch, np.arctan2(-turn[0, 1], turn[1, 1])])
    return np.array([np.arctan2(turn[2, 1], turn[2, 2]), pitch, np.arctan2(turn[1, 0], turn[0, 0])])


def _vector(values: np.ndarray) -> str:
    return " ".join(_text(value) for value in values)


def _text(value: float) -> str:
    """Return a number as exactly as a double holds it."""
    return repr(float(value) + 0.0)
