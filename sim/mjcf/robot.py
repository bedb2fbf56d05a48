"""A robot from any MJCF: commands from its actuators, sensors from its joints and from its sensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np

from hal.errors import SpecError
from hal.field import Field
from hal.robot import RobotSpec
from hal.spec import Spec
from sim.mjcf.actuators import Actuator, actuators
from sim.model import Columns, Indices, Reader, Scatter, SimModel

__all__ = ["SENSOR_UNITS", "from_mjcf"]

SENSOR_UNITS: Mapping[str, str] = {
    "touch": "N", "accelerometer": "m/s^2", "velocimeter": "m/s", "gyro": "rad/s", "force": "N", "torque": "N m",
    "magnetometer": "T", "rangefinder": "m", "framepos": "m", "framelinvel": "m/s", "frameangvel": "rad/s",
    "framelinacc": "m/s^2", "frameangacc": "rad/s^2", "ballangvel": "rad/s", "subtreecom": "m",
    "subtreelinvel": "m/s", "subtreeangmom": "kg m^2/s", "tendonpos": "m", "tendonvel": "m/s", "geomdist": "m",
    "e_potential": "J", "e_kinetic": "J", "clock": "s",
}  # fmt: skip
"""Sensor type -> unit (MuJoCo's XML reference, "sensor"), where the unit is the same for every object. The units of
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

    Args:
        source: the path of a file, MJCF text, a `mujoco.MjSpec`, or a compiled model.
        name: the name of the kind of robot; by default the name of the model.
        rate_hz: control periods a second, a whole number of physics steps each; by default the value of
            ``<custom><numeric name="rate_hz" data="100"/></custom>`` in the model, otherwise the rate nearest to 50.
        dtype: the dtype of commands and sensors, ``float32`` or ``float64``.
        keyframe: the number of the keyframe at which a reset begins; by default the first, or the model's default pose.
        scatter: changes the start by the reset's seed, see `SimModel`.
        change: returns the final description for the derived one, to add limits, ages and meanings.

    Raises:
        SpecError: the file can't be read or compiled, has nothing to command, or the rate does not fit its timestep.
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
            mjcf = source
        elif isinstance(source, str) and source.lstrip().startswith("<"):
            mjcf = mujoco.MjSpec.from_string(source)
        else:
            mjcf = mujoco.MjSpec.from_file(str(source))
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
