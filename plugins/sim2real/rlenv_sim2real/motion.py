"""Read the goals and the measured angles of an arm's joints from recorded data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import mujoco
import numpy as np

from hal import SourceError, Spec
from recorder.table.table import Table
from sim.model import SimModel

__all__ = ["ArmJoints", "OwnUnits", "RecordedMotion", "read_motions", "robot_of"]

_EXACT = 1e-3
"""Largest share of a joint's range by which a column may miss a straight line and still be the same angle."""

_ROBOTS = dict.fromkeys(("so101_follower", "so100_follower", "so100", "so_follower"), "so101")
"""LeRobot's ``robot_type`` -> the name of our robot model."""


@dataclass(frozen=True)
class ArmJoints:
    """The position-controlled joints of a simulated robot, in the order of its commands.

    Attributes:
        names: the names of the n joints, as in the MuJoCo model.
        commands: name of each pose command -> its columns among the n joints.
        sensors: name of each command -> the sensor that measures it.
        qpos: the index of each joint in ``qpos``, (n,).
        qvel: the index of each joint in ``qvel``, (n,).
        ctrl: the index of each joint in ``ctrl``, (n,).
    """

    names: tuple[str, ...]
    commands: Mapping[str, slice]
    sensors: Mapping[str, str]
    qpos: np.ndarray
    qvel: np.ndarray
    ctrl: np.ndarray

    @classmethod
    def of(cls, sim_model: SimModel) -> ArmJoints:
        """Find the joints of a model.

        Raises:
            SourceError: no command of the robot is a pose with a sensor, or its base is not fixed.
        """
        spec, model = sim_model.spec, sim_model.model
        names: list[str] = []
        parts: dict[str, slice] = {}
        qpos, ctrl = [], []
        for command in spec.measured_by:
            if command not in sim_model.start:
                continue
            field = spec.commands[command]
            columns = _columns(sim_model.start[command], model.nq)
            parts[command] = slice(len(names), len(names) + field.size)
            names += [_joint_name(model, int(column)) for column in columns]
            qpos.append(columns)
            ctrl.append(_columns(sim_model.commands[command], model.nu))
        if not names:
            raise SourceError(
                f"{spec.name!r} has no command that is a pose with a sensor of the same quantity, so no recorded goal "
                "can be compared with what was measured"
            )
        columns = np.concatenate(qpos)
        joints = [int(np.flatnonzero(model.jnt_qposadr == column)[0]) for column in columns]
        for joint in joints:
            _check_fixed(sim_model, int(model.jnt_bodyid[joint]))
        sensors = {command: spec.measured_by[command] for command in parts}
        return cls(tuple(names), parts, sensors, columns, model.jnt_dofadr[joints], np.concatenate(ctrl))


def _columns(indices: slice | tuple[int, ...], total: int) -> np.ndarray:
    return np.arange(total)[indices if isinstance(indices, slice) else list(indices)]


def _joint_name(model: mujoco.MjModel, column: int) -> str:
    joint = int(np.flatnonzero(model.jnt_qposadr == column)[0])
    return str(model.joint(joint).name) or f"joint {joint}"


def _check_fixed(sim_model: SimModel, body: int) -> None:
    model = sim_model.model
    while body:
        first, count = int(model.body_jntadr[body]), int(model.body_jntnum[body])
        if (model.jnt_type[first : first + count] == mujoco.mjtJoint.mjJNT_FREE.value).any():
            raise SourceError(
                f"{sim_model.spec.name!r} has a free base, and its goals alone do not tell where the base goes; "
                "replay an arm with a fixed base"
            )
        body = int(model.body_parentid[body])


@dataclass(frozen=True)
class OwnUnits:
    """The native units of the angles in a log: number = (angle - zero) / scale.

    Attributes:
        unit: name of the unit.
        scale: rad per unit, (n,).
        zero: angle of the number 0, rad, (n,).
    """

    unit: str
    scale: np.ndarray
    zero: np.ndarray

    def number(self, angle: np.ndarray) -> np.ndarray:
        """Convert angles, rad, (..., n), to the log's numbers."""
        return np.asarray((angle - self.zero) / self.scale)


@dataclass(frozen=True)
class RecordedMotion:
    """Goals and measured angles of one episode, equally spaced in time.

    Attributes:
        episode: number of the episode in its data.
        period_s: time from one frame to the next, seconds.
        names: the names of the n joints.
        goals: rad, (T, n); ``goals[t]`` is sent when ``measured[t]`` is measured. The last row repeats the one before,
            since nothing was sent at the last frame.
        measured: rad, (T, n).
        held: the goal before the first frame, rad, (n,).
        own: the native units of the log, or None if it is in SI units.
        gain: the servos' gain P during the motion, as a factor of the gain at which identified stiffnesses hold.
    """

    episode: int
    period_s: float
    names: tuple[str, ...]
    goals: np.ndarray
    measured: np.ndarray
    held: np.ndarray
    own: OwnUnits | None = None
    gain: float = 1.0

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.measured)

    def cut(self, first: int, last: int | None = None) -> RecordedMotion:
        """Return the frames from ``first`` up to, but not including, ``last``."""
        held = self.held if first == 0 else self.goals[first - 1]
        return replace(self, goals=self.goals[first:last], measured=self.measured[first:last], held=held)

    def at_period(self, period_s: float) -> RecordedMotion:
        """Return the motion resampled to another period: measurements are interpolated, goals held."""
        if abs(self.period_s - period_s) < 1e-6 * period_s:
            return self
        before = np.arange(len(self)) * self.period_s
        after = np.arange(0.0, before[-1] + 1e-9, period_s)
        measured = np.stack([np.interp(after, before, column) for column in self.measured.T], axis=1)
        index = np.minimum((after / self.period_s + 1e-9).astype(int), len(self) - 1)
        return replace(self, period_s=period_s, goals=self.goals[index], measured=measured)


def robot_of(table: Table) -> str | None:
    """Return the name of the robot model that recorded a table, or None if the data don't contain it."""
    named = {str(name) for name in (record.get("robot") for record in table.episodes) if name}
    names = {_ROBOTS.get(name, name) for name in named}
    if len(names) == 1:
        return names.pop()
    convention = {field.convention for field in (*table.layout.sensors, *table.layout.applied)}
    return "so101" if "so101_new_calib" in convention and "joint_position" in table.layout.sensors else None


def read_motions(
    table: Table,
    sim_model: SimModel,
    episodes: Sequence[int] | None = None,
    frames: Mapping[int, tuple[int, int | None]] | None = None,
) -> list[RecordedMotion]:
    """Read the motions of recorded episodes.

    Args:
        table: the recorded data.
        sim_model: the simulation model of the robot that recorded them, which defines the columns of the joints.
        episodes: their indices; None for all with 10 frames or more.
        frames: episode -> first frame, and the frame after the last, for episodes that are used in part.

    Raises:
        SourceError: the robot's joints are not in the data, or their angles have another meaning; an episode does not
            exist or is too short, or its stamps do not increase.
    """
    joints = ArmJoints.of(sim_model)
    goals, measured = _joint_columns(table, sim_model, joints)
    own = _own_units(table, measured)
    chosen = range(len(table.starts)) if episodes is None else episodes
    motions = []
    for episode in chosen:
        if not 0 <= episode < len(table.starts):
            raise SourceError(f"{table.origin} has no episode {episode}, it has 0 to {len(table.starts) - 1}")
        part = slice(int(table.starts[episode]), int(table.stops[episode]))
        if part.stop - part.start < 10:
            if episodes is None:
                continue
            raise SourceError(f"{table.origin}: episode {episode} has {part.stop - part.start} frames, 10 are needed")
        motion = _motion(table, episode, part, joints, goals[part], measured[part], own)
        first, last = (frames or {}).get(episode, (0, None))
        motions.append(motion.cut(first, last))
        if len(motions[-1]) < 10:
            raise SourceError(f"episode {episode} has {len(motion)} frames; of frames {first} to {last} none is left")
    if not motions:
        raise SourceError(f"{table.origin} has no episode of 10 frames or more")
    return motions


def _motion(
    table: Table, episode: int, part: slice, joints: ArmJoints, goals: np.ndarray, measured: np.ndarray,
    own: OwnUnits | None,
) -> RecordedMotion:  # fmt: skip
    """Move each goal from the row that it led to into the row in which it was sent, on a uniform clock."""
    seconds = (table.rows["stamp_ns"][part] - table.rows["stamp_ns"][part.start]) / 1e9
    steps = np.diff(seconds)
    if (steps <= 0).any():
        raise SourceError(f"{table.origin}: the stamps of episode {episode} do not rise from frame to frame")
    sent = np.concatenate([goals[1:], goals[-1:]])
    period = float(np.median(steps))
    if np.abs(steps - period).max() > 0.02 * period:
        even = np.arange(0.0, seconds[-1] + 1e-9, period)
        index = np.searchsorted(seconds, even + 1e-6, side="right") - 1
        measured = np.stack([np.interp(even, seconds, column) for column in measured.T], axis=1)
        sent = sent[index]
    return RecordedMotion(episode, period, joints.names, sent, measured, goals[0].copy(), own)


def _joint_columns(table: Table, sim_model: SimModel, joints: ArmJoints) -> tuple[np.ndarray, np.ndarray]:
    """Return the goals that led to each row, and the measured angles; rad, (R, n) each."""
    layout, spec = table.layout, sim_model.spec
    for mine, theirs in (
        (spec.sensors, layout.sensors),
        (spec.commands, layout.applied),
        (spec.commands, layout.action),
    ):
        lines = mine.conflicting_conventions(theirs)
        if lines:
            raise SourceError(f"{table.origin}: {'; '.join(lines)}; record the episodes again with this version")
    goals = [
        _column(table, spec.name, command, (("applied", layout.applied), ("action", layout.action)))
        for command in joints.commands
    ]
    measured = [
        _column(table, spec.name, sensor, (("sensor", layout.sensors), ("observation", layout.observation)))
        for sensor in joints.sensors.values()
    ]
    return np.concatenate(goals, axis=1), np.concatenate(measured, axis=1)


def _column(table: Table, robot: str, name: str, groups: Sequence[tuple[str, Spec]]) -> np.ndarray:
    for prefix, spec in groups:
        if name in spec:
            values = np.asarray(table.rows[f"{prefix}_{name}"], np.float64)
            return values.reshape(len(values), -1)
    there = ", ".join(dict.fromkeys(name for _, spec in groups for name in spec.names)) or "none"
    notes = [note for note in table.notes if "SI columns" in note]
    raise SourceError(
        f"{table.origin} has no {name!r} of a {robot!r}, it has {there}"
        + (f"; {notes[0]} (--units degrees or --units percent)" if notes else "")
    )


def _own_units(table: Table, measured: np.ndarray) -> OwnUnits | None:
    """Find the observed column that holds the measured angles in other units; None where there is none."""
    rows = np.concatenate(
        [np.arange(start, stop) for start, stop in zip(table.starts, table.stops, strict=True)] or [np.zeros(0, int)]
    )
    angles = measured[rows]
    spread = np.ptp(angles, axis=0)
    for field in table.layout.observation:
        if field.shape != (angles.shape[1],) or field.unit == "rad" or not (spread > 1e-4).all():
            continue
        numbers = np.asarray(table.rows[f"observation_{field.name}"][rows], np.float64)
        centred = numbers - numbers.mean(axis=0)
        scale = (centred * (angles - angles.mean(axis=0))).sum(axis=0) / np.maximum((centred**2).sum(axis=0), 1e-12)
        zero = angles.mean(axis=0) - scale * numbers.mean(axis=0)
        if (np.abs(zero + scale * numbers - angles) <= _EXACT * spread).all():
            return OwnUnits(field.unit if field.unit not in ("", "1") else "log's units", scale, zero)
    return None
