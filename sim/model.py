"""View a MuJoCo model as a robot: define which of its numbers are sensors, commands and starts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as default
from functools import cached_property
from typing import Literal, Protocol

import mujoco
import numpy as np

from hal.errors import RobotError, SpecError
from hal.robot import RobotSpec
from sim.snapshot import physics_digest

__all__ = [
    "Columns", "Computed", "ImageReader", "Indices", "Pushes", "Reader", "Refreshed", "Rendered", "Scatter", "SimModel",
    "as_slice", "at_rate", "numbers_of",
]  # fmt: skip

_STATE = frozenset({"time", "qpos", "qvel", "act", "history", "ctrl", "mocap_pos", "mocap_quat", "xfrc_applied"})
"""Fields that are part of the state."""

_POSES = frozenset({"xpos", "xquat", "xmat", "xipos", "ximat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat"})
"""Fields that every step and every reset of a simulation compute."""

_FORCES = frozenset({"actuator_force", "qfrc_actuator", "qacc", "act_dot", "qfrc_constraint", "qfrc_passive"})
"""Fields that a step computes from forces: what is derived from the state at its end leaves them as they are."""

_REMEMBERS = mujoco.mjtEnableBit.mjENBL_SLEEP.value | mujoco.mjtEnableBit.mjENBL_IPC.value
"""Options with which a step depends on more than the state."""

Indices = slice | tuple[int, ...]
"""Columns of a field after flattening all axes but the first."""

Refreshed = Literal["nothing", "poses", "all"]
"""Derived quantities: none; the poses of bodies, geoms and sites; or all that follow from positions and velocities."""

Scatter = Callable[[np.random.Generator, np.ndarray, np.ndarray], None]
"""A function that scatters one simulation's ``qpos`` (nq,) and ``qvel`` (nv,) in place at a reset, by a generator."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A sensor that is read directly from columns of a field of ``mjData``.

    Attributes:
        field: name of the field (``qpos``, ``sensordata``, ``site_xpos``).
        columns: the columns, counted over the flattened axes; evenly spaced ones are the fastest.
    """

    field: str
    columns: Indices = default(default_factory=lambda: slice(None))


@dataclass(frozen=True, slots=True)
class Computed:
    """A sensor that is a function of columns of ``mjData``.

    Attributes:
        function: takes an array for each input, with any leading axes, and returns an array with the same leading axes.
        inputs: the columns that are passed to the function.
    """

    function: Callable[..., np.ndarray]
    inputs: tuple[Columns, ...]


class ImageReader(Protocol):
    """Draw one camera of all simulations of a batch."""

    def read(self, rows: np.ndarray | None) -> np.ndarray:
        """Return the images of all simulations or some, uint8, (n, height, width, 3), a new array."""
        ...

    def close(self) -> None:
        """Free the graphics memory. Safe to call more than once."""
        ...


@dataclass(frozen=True, slots=True)
class Rendered:
    """A sensor that is the image of a camera (`sim.rendering.image_sensors.with_image_sensors`).

    Attributes:
        open: makes the reader of a batch. Its arguments are the model, the live ``qpos`` of all simulations, a function
            that returns the fields in which their models differ, and the batch's number of threads (0: one for each
            logical CPU).
    """

    open: Callable[[SimModel, np.ndarray, Callable[[], Mapping[str, np.ndarray]], int], ImageReader]


Reader = Columns | Computed | Rendered
"""The source of a sensor's value: columns, a function of columns, or a rendered image."""


@dataclass(frozen=True, slots=True)
class Pushes:
    """Declare pushes: one in every interval of time, at a moment drawn uniformly from it.

    A push adds a horizontal velocity to the trunk's, in a direction of the world drawn uniformly; its impulse is this
    velocity times the robot's mass. Common walking trainers push in the same way (Rudin et al. 2022, arXiv:2109.11978).

    Attributes:
        every_s: length of the intervals, seconds; rounded to control periods.
        speed: range of the added velocity, m/s, from which each push draws uniformly.

    Raises:
        SpecError: the interval is not above 0, or the range is invalid.
    """

    every_s: float
    speed: tuple[float, float]

    def __post_init__(self) -> None:
        if not self.every_s > 0:
            raise SpecError(f"pushes: every_s is {self.every_s}, it must be above 0")
        if not 0 <= self.speed[0] <= self.speed[1]:
            raise SpecError(f"pushes: speed is {self.speed}, it must be a range of at least 0 m/s")


@dataclass(frozen=True)
class SimModel:
    """A MuJoCo model as a robot. Any MJCF will do.

    Attributes:
        spec: the robot's description.
        model: the compiled model, which must not be changed.
        substeps: physics steps in a control period.
        sensors: the source of each sensor of the spec.
        commands: the columns of ``ctrl`` of each command of the spec.
        start: for commands that are poses, the columns of ``qpos`` that a start at this command sets.
        keyframe: number of the keyframe at which a reset begins; -1 is the model's default state.
        scatter: scatters the start by the reset's seed; None for no scatter.
        derived: whether quantities that MuJoCo derives from the state (``site_xpos``, ``sensordata``) are ``fresh`` at
            the end of a step, or ``as_stepped``: one physics step old, as ``mj_step`` leaves them and other
            environments read them. Only ``fresh`` costs time, and only with the integrator RK4 or if a sensor reads
            such quantities.
        pushes: pushes that change the velocity of the free body of the first joint, or None.
        draws: the parts of the model that each reset of each simulation draws, as for
            `sim.randomize.randomise.Randomise.from_dict`; they take precedence over those given to a simulation.

    Raises:
        SpecError: the parts contradict each other.
    """

    spec: RobotSpec
    model: mujoco.MjModel
    substeps: int
    sensors: Mapping[str, Reader]
    commands: Mapping[str, Indices]
    start: Mapping[str, Indices] = default(default_factory=dict)
    keyframe: int = -1
    scatter: Scatter | None = None
    derived: Literal["fresh", "as_stepped"] = "fresh"
    pushes: Pushes | None = None
    draws: Mapping[str, Mapping[str, object]] = default(default_factory=dict)

    def __post_init__(self) -> None:
        if self.derived not in ("fresh", "as_stepped"):
            raise self._wrong(f"derived is {self.derived!r}, allowed are 'fresh' and 'as_stepped'")
        self._check_period()
        self._check_names()
        self._check_delays()
        self._check_widths("commands", self.commands, self.model.nu, "ctrl")
        self._check_widths("start", self.start, self.model.nq, "qpos")
        free = self.model.njnt and self.model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE
        if self.pushes is not None and not free:
            raise self._wrong("pushes need a model whose first joint is free")
        if not -1 <= self.keyframe < self.model.nkey:
            raise self._wrong(f"keyframe {self.keyframe} is not in the model, it has {self.model.nkey} (-1: none)")

    @cached_property
    def digest(self) -> str:
        """The identity of the simulation: digest of the spec, a colon, digest of all else that affects the results."""
        columns = sorted(self.commands.items()), sorted(self.start.items())
        settings: tuple[object, ...] = self.substeps, self.keyframe, self.derived, columns
        if self.pushes is not None:
            settings = (*settings, self.pushes)
        if self.draws:
            settings = (*settings, sorted((path, sorted(line.items())) for path, line in self.draws.items()))
        physics = hashlib.sha256(f"{settings} {physics_digest(self.model)}".encode()).hexdigest()
        return f"{self.spec.digest}:{physics}"

    @property
    def stage(self) -> int:
        """The ``mjtStage`` up to which MuJoCo computes after a control period."""
        fresh = self.derived == "fresh" and not self._reads <= _STATE
        return int((mujoco.mjtStage.mjSTAGE_VEL if fresh else mujoco.mjtStage.mjSTAGE_NONE).value)

    @property
    def refreshed(self) -> Refreshed:
        """The quantities that must be derived from the state at the end of a control period to keep sensors fresh."""
        if self.derived != "fresh":
            return "nothing"
        stale = self._reads - _STATE - _FORCES - ({"sensordata"} if self._reads_forces_alone else set[str]())
        return "nothing" if not stale else "poses" if stale <= _POSES else "all"

    @property
    def _reads_forces_alone(self) -> bool:
        """Whether the sensors read no element of ``sensordata`` that depends on positions and velocities alone."""
        model, read = self.model, set[int]()
        for columns in self._columns_read:
            if columns.field == "sensordata":
                read |= set(numbers_of(columns.columns, model.nsensordata).tolist())
        late = model.sensor_needstage == mujoco.mjtStage.mjSTAGE_ACC.value
        starts, sizes = model.sensor_adr[late].tolist(), model.sensor_dim[late].tolist()
        return read <= {
            number for start, size in zip(starts, sizes, strict=True) for number in range(start, start + size)
        }

    @property
    def needs_own_model(self) -> bool:
        """Whether each simulation of a batch needs its own ``mjData`` instead of one for each thread.

        It does if a step begins with quantities that the step before derived (`stage`); if the model uses plugins,
        sleeping bodies, or MuJoCo's IPC mode for contacts of deformable bodies; or if a sensor reads quantities that
        not every call computes. Otherwise the ``mjData`` of a thread stays in the processor's cache, and a simulation
        takes no more memory than its state.
        """
        model = self.model
        remembers = model.nplugin > 0 or bool(model.opt.enableflags & _REMEMBERS)
        return remembers or self.stage != mujoco.mjtStage.mjSTAGE_NONE.value or not self._reads <= _STATE | _POSES

    @property
    def _reads(self) -> set[str]:
        """The fields of ``mjData`` that the sensors read."""
        drawn = any(isinstance(reader, Rendered) for reader in self.sensors.values())
        return {columns.field for columns in self._columns_read} | ({"qpos"} if drawn else set[str]())

    @property
    def _columns_read(self) -> list[Columns]:
        """The columns of ``mjData`` that the sensors read."""
        columns: list[Columns] = []
        for reader in self.sensors.values():
            if isinstance(reader, Computed):
                columns.extend(reader.inputs)
            elif isinstance(reader, Columns):
                columns.append(reader)
        return columns

    def camera_id(self, name: str) -> int:
        """Return the number of a camera of the MJCF.

        Raises:
            RobotError: there is no camera of that name; the message lists those that exist.
        """
        names = [self.model.camera(index).name for index in range(self.model.ncam)]
        if name not in names:
            raise RobotError(f"{self.spec.name} has no camera {name!r}, it has {', '.join(names) or 'none'}")
        return names.index(name)

    def _wrong(self, problem: str) -> SpecError:
        return SpecError(f"simulation model of {self.spec.name!r}: {problem}")

    def _check_period(self) -> None:
        period, timestep = self.spec.period_s, self.model.opt.timestep
        if self.substeps < 1 or abs(self.substeps * timestep - period) > 1e-9 * period:
            raise self._wrong(
                f"{self.substeps} substeps of {timestep:g} s are {self.substeps * timestep:g} s, but a control period "
                f"at {self.spec.rate_hz:g} Hz is {period:g} s; change the timestep in the MJCF to "
                f"{period / max(self.substeps, 1)!r}"
            )

    def _check_delays(self) -> None:
        """Refuse delays that a buffer can't hold: MuJoCo shortens them without a message."""
        model = self.model
        for kind, delay, history, object_type in (
            ("actuator", model.actuator_delay, model.actuator_history, mujoco.mjtObj.mjOBJ_ACTUATOR),
            ("sensor", model.sensor_delay, model.sensor_history, mujoco.mjtObj.mjOBJ_SENSOR),
        ):
            longest = history[:, 0] * model.opt.timestep
            for index in np.flatnonzero(delay > longest + 1e-12).tolist():
                name = mujoco.mj_id2name(model, object_type, index) or index
                raise self._wrong(
                    f"{kind} {name!r} is to be {delay[index]:g} s late, its buffer of {history[index, 0]} samples "
                    f"holds {longest[index]:g} s; give it a larger nsample"
                )

    def _check_names(self) -> None:
        for key, parts, names in (
            ("sensors", self.sensors, self.spec.sensors.names),
            ("commands", self.commands, self.spec.commands.names),
        ):
            if parts.keys() != set(names):
                raise self._wrong(f"{key} are given for {sorted(parts)}, the spec has {sorted(names)}")
        unknown = self.start.keys() - set(self.spec.commands.names)
        if unknown:
            raise self._wrong(f"start names {sorted(unknown)}, commands are {list(self.spec.commands.names)}")

    def _check_widths(self, key: str, parts: Mapping[str, Indices], total: int, array: str) -> None:
        for name, indices in parts.items():
            size = self.spec.commands[name].size
            picked = numbers_of(indices, total)
            if picked.size != size or (picked.size and not 0 <= picked.min() <= picked.max() < total):
                raise self._wrong(
                    f"{key}.{name} picks {picked.tolist()} of the {total} numbers in {array}, expected {size} of them"
                )


def numbers_of(indices: Indices, total: int) -> np.ndarray:
    """Return the indices that some columns stand for among ``total``, (n,)."""
    return np.arange(total)[indices] if isinstance(indices, slice) else np.asarray(indices, np.intp)


def as_slice(indices: Indices) -> Indices:
    """Return evenly spaced, ascending columns as a slice, which NumPy reads without a copy; others unchanged."""
    if isinstance(indices, slice) or not indices:
        return indices
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if step > 0 and indices == tuple(range(indices[0], indices[0] + step * len(indices), step)):
        return slice(indices[0], indices[-1] + 1, step)
    return indices


# -- The same simulated robot at another control rate --------------------------------------------------------


def at_rate(sim_model: SimModel, rate_hz: float) -> SimModel:
    """Return the same simulated robot with another control rate; its physics steps stay as they are.

    Raises:
        SpecError: a control period would not be a whole number of physics steps; the message names possible rates.
    """
    finest = 1.0 / sim_model.model.opt.timestep
    substeps = round(finest / rate_hz) if rate_hz > 0 else 0
    if substeps < 1 or abs(substeps * rate_hz - finest) > 1e-6 * finest:
        near = ", ".join(f"{finest / each:g}" for each in range(1, 9))
        raise SpecError(
            f"{sim_model.spec.name!r} can't be run at {rate_hz:g} Hz: its physics has {finest:g} steps a second, so "
            f"allowed are {near}, ..."
        )
    return replace(sim_model, spec=replace(sim_model.spec, rate_hz=finest / substeps), substeps=substeps)
