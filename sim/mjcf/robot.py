"""Make a robot from any MJCF: commands from its actuators, sensors from its joints and its sensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import mujoco
import numpy as np

from hal.errors import SpecError
from hal.field import Field
from hal.robot import RobotSpec
from hal.spec import Spec
from sim.model import Columns, Indices, Reader, Scatter, SimModel

__all__ = ["SENSOR_UNITS", "Actuator", "ActuatorKind", "actuators", "from_mjcf", "mjcf_file"]

_HINGE, _SLIDE = mujoco.mjtJoint.mjJNT_HINGE.value, mujoco.mjtJoint.mjJNT_SLIDE.value


@dataclass(frozen=True, slots=True)
class ActuatorKind:
    """A command field for actuators of one kind and unit, with its name, unit and meaning."""

    field: str
    unit: str
    meaning: str


_KINDS = {
    ("position", _HINGE): ActuatorKind("angle_target", "rad", "targets of position servos"),
    ("position", _SLIDE): ActuatorKind("distance_target", "m", "targets of position servos"),
    ("velocity", _HINGE): ActuatorKind("angular_velocity_target", "rad/s", "targets of velocity servos"),
    ("velocity", _SLIDE): ActuatorKind("velocity_target", "m/s", "targets of velocity servos"),
    ("motor", _HINGE): ActuatorKind("torque", "N m", "of motors"),
    ("motor", _SLIDE): ActuatorKind("force", "N", "of motors"),
}
_OTHER = ActuatorKind("control", "1", "as the model's actuators take it")


@dataclass(frozen=True, slots=True)
class Actuator:
    """Describe one control of an actuator.

    Attributes:
        name: name of the actuator, or else of its joint, or else ``actuator_<number>``.
        kind: the command field of the actuator.
        column: index of its control in ``ctrl``.
        low: lower end of the control's range; infinite if it has none.
        high: upper end, likewise.
        qpos: index of the joint in ``qpos`` for a position servo, otherwise None.
    """

    name: str
    kind: ActuatorKind
    column: int
    low: float
    high: float
    qpos: int | None


def actuators(model: mujoco.MjModel) -> list[Actuator]:
    """Return every control of the model's actuators, in order."""
    controls = []
    for number in range(model.nactuator):
        column, width = int(model.actuator_ctrladr[number]), int(model.actuator_ctrlnum[number])
        for part in range(width):
            controls.append(_actuator(model, number, column + part, f"[{part}]" if width > 1 else ""))
    return controls


def _actuator(model: mujoco.MjModel, number: int, column: int, suffix: str) -> Actuator:
    joint = _joint(model, number)
    kind = _KINDS.get((_law(model, number), int(model.jnt_type[joint])), _OTHER) if joint is not None else _OTHER
    kind = _OTHER if suffix else kind
    low, high = -np.inf, np.inf
    if model.actuator_ctrllimited[column]:
        low, high = model.actuator_ctrlrange.reshape(-1, 2)[column].tolist()
    elif kind.field in ("angle_target", "distance_target") and model.jnt_limited[joint]:
        low, high = model.jnt_range[joint].tolist()
    name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, number)
    if not name and joint is not None:
        name = mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_JOINT, joint)
    qpos = int(model.jnt_qposadr[joint]) if kind.field in ("angle_target", "distance_target") else None
    return Actuator((name or f"actuator_{number}") + suffix, kind, column, low, high, qpos)


def _joint(model: mujoco.MjModel, number: int) -> int | None:
    """Return the hinge or slide that the actuator moves directly, with a gear of 1; None for any other actuator."""
    gear = model.actuator_gear[model.actuator_outadr[number], 0]
    if model.actuator_trntype[number] != mujoco.mjtTrn.mjTRN_JOINT.value or gear != 1:
        return None
    joint = int(model.actuator_trnid[number, 0])
    return joint if model.jnt_type[joint] in (_HINGE, _SLIDE) else None


def _law(model: mujoco.MjModel, number: int) -> str:
    """Return the kind of the force law ``force = gain ctrl + bias``: position, velocity, motor or other."""
    gain, bias = float(model.actuator_gainprm[number, 0]), model.actuator_biasprm[number]
    fixed = model.actuator_gaintype[number] == mujoco.mjtGain.mjGAIN_FIXED.value
    immediate = model.actuator_dyntype[number] == mujoco.mjtDyn.mjDYN_NONE.value
    if fixed and model.actuator_biastype[number] == mujoco.mjtBias.mjBIAS_AFFINE.value and gain:
        if bias[1] == -gain:  # with any filter before it: the target is a position
            return "position"
        if bias[1] == 0 and bias[2] == -gain:
            return "velocity"
    if fixed and immediate and gain == 1 and model.actuator_biastype[number] == mujoco.mjtBias.mjBIAS_NONE.value:
        return "motor"
    return "other"


# -- robots ------------------------------------------------------------------------------------------------------


SENSOR_UNITS: Mapping[str, str] = {
    "touch": "N", "accelerometer": "m/s^2", "velocimeter": "m/s", "gyro": "rad/s", "force": "N", "torque": "N m",
    "magnetometer": "T", "rangefinder": "m", "framepos": "m", "framelinvel": "m/s", "frameangvel": "rad/s",
    "framelinacc": "m/s^2", "frameangacc": "rad/s^2", "ballangvel": "rad/s", "subtreecom": "m",
    "subtreelinvel": "m/s", "subtreeangmom": "kg m^2/s", "tendonpos": "m", "tendonvel": "m/s", "geomdist": "m",
    "e_potential": "J", "e_kinetic": "J", "clock": "s",
}  # fmt: skip
"""Sensor type -> unit (MuJoCo's XML reference, "sensor"), if the unit is the same for every object. The units of
joint and actuator sensors depend on the joint or the actuator. Lengths are in metres and angles in radians, as in
MJCF."""

_USUAL_HZ = 50.0
_RATE = "rate_hz"
_JOINTS = {
    mujoco.mjtJoint.mjJNT_HINGE.value: ("joint_position", "rad", "joint_velocity", "rad/s"),
    mujoco.mjtJoint.mjJNT_SLIDE.value: ("slide_position", "m", "slide_velocity", "m/s"),
}


def from_mjcf(
    source: str | Path | mujoco.MjSpec | mujoco.MjModel,
    *,
    name: str = "",
    rate_hz: float | None = None,
    dtype: str = "float32",
    keyframe: int | None = None,
    scatter: Scatter | None = None,
    change: Callable[[RobotSpec], RobotSpec] | None = None,
) -> SimModel:
    """Make a simulated robot from any MJCF.

    The commands have one field for each kind and unit, with the names of the actuators as elements and their
    ``ctrlrange`` as the range (a position servo without one takes the range of its joint): ``angle_target`` (rad) and
    ``distance_target`` (m) of position servos, ``angular_velocity_target`` and ``velocity_target`` of velocity servos,
    ``torque`` (N m) and ``force`` (N) of motors on a joint with a gear of 1, ``control`` (no unit) of all others.

    The sensors are ``joint_position`` and ``joint_velocity`` of all hinges, ``slide_position`` and ``slide_velocity``
    of all slides, ``<joint>_orientation`` and ``<joint>_angular_velocity`` of a ball joint, these and
    ``<joint>_position`` and ``<joint>_velocity`` of a free joint, and every ``<sensor>`` by its name. Forces and
    accelerations are those of the last physics step; all other quantities are those at the end of the period.

    For images, the function adds the cameras ``view`` and ``overhead``, which look at all moving bodies, a light at the
    camera and a sky, where the model lacks them; a compiled model stays as it is.

    Args:
        source: the path of a file, MJCF text, a `mujoco.MjSpec` (which is not changed), or a compiled model.
        name: the name of the kind of robot; by default the name of the model.
        rate_hz: control periods a second, a whole number of physics steps each; by default the value of
            ``<custom><numeric name="rate_hz" data="100"/></custom>`` in the model, otherwise the rate nearest to 50.
        dtype: the dtype of commands and sensors, ``float32`` or ``float64``.
        keyframe: the number of the keyframe at which a reset begins; by default the first, or the model's default pose.
        scatter: changes the start by the reset's seed, see `SimModel`.
        change: a function from the derived description to the final one, to add limits, ages and meanings.

    Raises:
        SpecError: the file can't be read or compiled, has no actuators, or its timestep does not fit the rate.
    """
    model, model_name = _compiled(source)
    name = name or model_name or "robot"
    parts = actuators(model)
    if not parts:
        raise SpecError(f"{name}: there is no actuator with a control in it, so nothing could be commanded")
    rate_hz = rate_hz or _rate_of(model)
    substeps = max(1, round(1.0 / ((rate_hz or _USUAL_HZ) * model.opt.timestep)))
    rate_hz = rate_hz or 1.0 / (substeps * model.opt.timestep)
    keyframe = (0 if model.nkey else -1) if keyframe is None else keyframe
    commands, columns, start = _commands(parts, dtype)
    sensors, readers = _sensors(model, dtype)
    spec = RobotSpec(
        name,
        Spec(f"{_field_name(name)}_sensors", tuple(sensors)),
        Spec(f"{_field_name(name)}_commands", tuple(commands)),
        rate_hz,
        home=_home(model, commands, columns, keyframe),
    )
    spec = _measured(spec, model, start, readers)
    spec = change(spec) if change is not None else spec
    return SimModel(spec, model, substeps, readers, columns, start, keyframe, scatter)


def _compiled(source: str | Path | mujoco.MjSpec | mujoco.MjModel) -> tuple[mujoco.MjModel, str]:
    if isinstance(source, mujoco.MjModel):
        return source, ""
    try:
        if isinstance(source, mujoco.MjSpec):
            mjcf = source.copy()
        elif isinstance(source, str) and source.lstrip().startswith("<"):
            mjcf = mujoco.MjSpec.from_string(source)
        else:
            mjcf = mujoco.MjSpec.from_file(str(source))
        _add_views(mjcf)
        _add_light(mjcf)
        return mjcf.compile(), mjcf.modelname
    except (ValueError, OSError, mujoco.FatalError) as error:
        raise SpecError(f"the MJCF can't be used: {error}") from error


def _rate_of(model: mujoco.MjModel) -> float | None:
    number = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_NUMERIC, _RATE)
    return None if number < 0 else float(model.numeric_data[model.numeric_adr[number]])


def _field_name(text: str, taken: Container[str] = ()) -> str:
    """Return a legal field name made from the text that is not taken yet."""
    words = [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word]
    base = "_".join(words) or "unnamed"
    base = base if base[0].isalpha() else f"n{base}"
    number, name = 2, base
    while name in taken:
        number, name = number + 1, f"{base}_{number}"
    return name


# -- commands ------------------------------------------------------------------------------------------------------


def _commands(parts: list[Actuator], dtype: str) -> tuple[list[Field], dict[str, Indices], dict[str, Indices]]:
    fields: list[Field] = []
    columns: dict[str, Indices] = {}
    start: dict[str, Indices] = {}
    for kind in dict.fromkeys(part.kind for part in parts):
        group = [part for part in parts if part.kind == kind]
        fields.append(
            Field(
                kind.field, (len(group),), dtype, tuple(part.low for part in group), tuple(part.high for part in group),
                kind.unit, kind.meaning, tuple(part.name for part in group),
            )
        )  # fmt: skip
        columns[kind.field] = tuple(part.column for part in group)
        addresses = tuple(part.qpos for part in group if part.qpos is not None)
        if len(addresses) == len(group):
            start[kind.field] = addresses
    return fields, columns, start


def _home(
    model: mujoco.MjModel, commands: list[Field], columns: Mapping[str, Indices], keyframe: int
) -> dict[str, tuple[float, ...]]:
    ctrl = model.key_ctrl[keyframe] if keyframe >= 0 else np.zeros(model.nu)
    home = {}
    for field in commands:
        low, high = field.bounds
        command = ctrl[np.asarray(columns[field.name])].astype(field.numpy_dtype)
        home[field.name] = tuple(np.clip(command, low, high).tolist())
    return home


def _measured(
    spec: RobotSpec, model: mujoco.MjModel, start: Mapping[str, Indices], readers: Mapping[str, Reader]
) -> RobotSpec:
    """Pair each pose command with the sensor of the same joints in the same order, where there is one."""
    pairs = {}
    for command, addresses in start.items():
        for sensor, reader in readers.items():
            if isinstance(reader, Columns) and (reader.field, reader.columns) == ("qpos", addresses):
                pairs[command] = sensor
    return replace(spec, measured_by=pairs)


# -- sensors -------------------------------------------------------------------------------------------------------


def _sensors(model: mujoco.MjModel, dtype: str) -> tuple[list[Field], dict[str, Reader]]:
    fields: dict[str, Field] = {}
    readers: dict[str, Reader] = {}

    def add(name: str, reader: Columns, size: int, unit: str, meaning: str, elements: tuple[str, ...] = ()) -> None:
        name = _field_name(name, fields)
        shape = (size,) if size > 1 or elements else ()
        fields[name] = Field(name, shape, dtype, unit=unit, meaning=meaning, elements=elements)
        readers[name] = reader

    for kind, (position, unit, velocity, rate) in _JOINTS.items():
        joints = np.flatnonzero(model.jnt_type == kind).tolist()
        if joints:
            names = tuple(_name(model, mujoco.mjtObj.mjOBJ_JOINT, "joint", joint) for joint in joints)
            for sensor_name, field, addresses, sensor_unit in (
                (position, "qpos", model.jnt_qposadr, unit), (velocity, "qvel", model.jnt_dofadr, rate)
            ):  # fmt: skip
                columns = Columns(field, tuple(int(addresses[joint]) for joint in joints))
                add(sensor_name, columns, len(joints), sensor_unit, f"of {sensor_name.partition('_')[0]}s", names)
    for joint in range(model.njnt):
        if model.jnt_type[joint] not in _JOINTS:
            _add_free(model, joint, add)
    for sensor in range(model.nsensor):
        first, size = int(model.sensor_adr[sensor]), int(model.sensor_dim[sensor])
        kind = mujoco.mjtSensor(model.sensor_type[sensor]).name.removeprefix("mjSENS_").lower()
        name = _name(model, mujoco.mjtObj.mjOBJ_SENSOR, kind, sensor)
        columns = Columns("sensordata", slice(first, first + size))
        add(name, columns, size, SENSOR_UNITS.get(kind, "1"), f"MuJoCo's {kind}")
    return list(fields.values()), readers


def _add_free(model: mujoco.MjModel, joint: int, add: Callable[..., None]) -> None:
    name = _name(model, mujoco.mjtObj.mjOBJ_JOINT, "joint", joint)
    qpos, qvel = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
    if model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE:
        add(f"{name}_position", _run("qpos", qpos, 3), 3, "m", "in the world", ("x", "y", "z"))
        add(f"{name}_velocity", _run("qvel", qvel, 3), 3, "m/s", "in the world", ("x", "y", "z"))
        qpos, qvel = qpos + 3, qvel + 3
    add(f"{name}_orientation", _run("qpos", qpos, 4), 4, "1", "unit quaternion", ("w", "x", "y", "z"))
    add(f"{name}_angular_velocity", _run("qvel", qvel, 3), 3, "rad/s", "in the body's frame", ("x", "y", "z"))


def _run(field: str, first: int, size: int) -> Columns:
    return Columns(field, slice(first, first + size))


def _name(model: mujoco.MjModel, kind: mujoco.mjtObj, otherwise: str, number: int) -> str:
    return str(mujoco.mj_id2name(model, kind, number) or f"{otherwise}_{number}")


# -- files -------------------------------------------------------------------------------------------------------


_UNNAMED = ("", "MuJoCo Model")
"""Names that MuJoCo gives to a model whose file does not name it."""

_VIEWS = {"view": ((0.45, -0.8, 0.35), (0.0, 0.0, 1.0)), "overhead": ((0.0, 0.0, 1.0), (0.0, 1.0, 0.0))}
"""Camera name -> direction from the middle of the moving bodies to the camera, and the direction that is up."""

_DISTANCE = 3.2
"""Distance of a camera from the middle over the size of the moving bodies. With a field of view of 45 degrees, the
whole circle of a pendulum is in the image."""

_SKY = (0.90, 0.92, 0.94), (0.62, 0.69, 0.77)
"""The two colours of the sky's gradient, red, green and blue, as in this package's models."""


def mjcf_file(path: str | Path, start_noise: float = 0.0) -> SimModel:
    """Make the robot of an MJCF file; see `sim.mjcf.robot.from_mjcf`.

    The robot has the name of its model, or of the file if the model has none.

    Args:
        path: the path of the file, which ends in ``.xml``.
        start_noise: largest distance of each hinge (rad) and slide (m) from its start after a reset; the distance is
            drawn uniformly from the reset's seed and keeps the joint within its range.

    Raises:
        SpecError: the file does not exist, can't be compiled, or has no actuators.
    """
    file = Path(path)
    if not file.is_file():
        raise SpecError(f"{path}: there is no such model file")
    try:
        mjcf = mujoco.MjSpec.from_file(str(file))
        model = mjcf.compile()
    except (ValueError, OSError, mujoco.FatalError) as error:
        raise SpecError(f"{path}: not a model that MuJoCo can use: {error}") from error
    name = file.stem if mjcf.modelname in _UNNAMED else mjcf.modelname
    return from_mjcf(mjcf, name=name, scatter=_noise(start_noise, model) if start_noise else None)


def _add_views(mjcf: mujoco.MjSpec) -> None:
    present = {camera.name for camera in mjcf.cameras}
    missing = [name for name in _VIEWS if name not in present]
    if not missing:
        return
    middle, size = _middle(mjcf.compile())
    for name in missing:
        direction, up = map(np.array, _VIEWS[name])
        backwards = direction / np.linalg.norm(direction)  # a camera looks along its own -z
        right = np.cross(up, backwards)
        right /= np.linalg.norm(right)
        turn = np.empty(4)
        mujoco.mju_mat2Quat(turn, np.column_stack([right, np.cross(backwards, right), backwards]).ravel())
        mjcf.worldbody.add_camera(name=name, pos=middle + _DISTANCE * size * backwards, quat=turn)


def _middle(model: mujoco.MjModel) -> tuple[np.ndarray, float]:
    """Return the middle and the size of the moving bodies in the model's default pose, metres."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    moving = np.flatnonzero((model.body_weldid[model.geom_bodyid] != 0) & (model.geom_rbound > 0))
    if not len(moving):
        return np.array(model.stat.center), float(model.stat.extent)
    centres, radii = data.geom_xpos[moving], model.geom_rbound[moving, None]
    low, high = (centres - radii).min(0), (centres + radii).max(0)
    return (low + high) / 2, float((high - low).max())


def _add_light(mjcf: mujoco.MjSpec) -> None:
    if not mjcf.lights:
        mjcf.visual.headlight.ambient, mjcf.visual.headlight.diffuse = np.full(3, 0.4), np.full(3, 0.6)
    sky = mujoco.mjtTexture.mjTEXTURE_SKYBOX
    if all(texture.type != sky for texture in mjcf.textures):
        gradient = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT
        mjcf.add_texture(name="sky", type=sky, builtin=gradient, rgb1=_SKY[0], rgb2=_SKY[1], width=64, height=384)


def _noise(largest: float, model: mujoco.MjModel) -> Scatter:
    types = (mujoco.mjtJoint.mjJNT_HINGE.value, mujoco.mjtJoint.mjJNT_SLIDE.value)
    joints = np.flatnonzero(np.isin(model.jnt_type, types))
    addresses, limited = model.jnt_qposadr[joints], model.jnt_limited[joints].astype(bool)[:, None]
    low, high = np.where(limited, model.jnt_range[joints], (-np.inf, np.inf)).T

    def scatter(rng: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        qpos[addresses] = np.clip(qpos[addresses] + rng.uniform(-largest, largest, len(addresses)), low, high)

    return scatter
