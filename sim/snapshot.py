"""Snapshots of simulations as values, bytes and files, and the digest that identifies the model they fit."""

from __future__ import annotations

import copy
import hashlib
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from zipfile import BadZipFile

import mujoco
import numpy as np

from hal.atomic_file import atomic_write
from hal.errors import RobotError

__all__ = ["FORMAT", "BatchSnapshot", "Groups", "Portable", "fitting", "physics_digest"]

_FIELDS = (
    "actuator_", "body_", "dof_", "eq_", "exclude_", "flex", "hfield_", "jnt_", "key_", "pair_", "plugin", "qpos",
    "sensor_", "site_", "ten_", "tendon_", "tree_", "wrap_",
)  # fmt: skip
"""Beginnings of the names of those arrays of ``mjModel`` that physics, sensors and starts depend on."""

_LOOKS = ("_user", "_group", "_rgba", "_matid", "_texcoord", "_texcoordadr", "adr", "bvhnum", "geomnum", "dof_length")
"""Endings of the names among them that are looks, users' own data, or addresses in memory."""

_GEOM = (
    "bodyid", "conaffinity", "condim", "contype", "fluid", "friction", "gap", "margin", "pos", "priority", "quat",
    "size", "solimp", "solmix", "solref", "type",
)  # fmt: skip
_MESHES = ("mesh_face", "mesh_vert", "mesh_vertadr", "mesh_vertnum")


def physics_digest(model: mujoco.MjModel) -> str:
    """Return the SHA-256 (hex) of a model's options and of all arrays that affect its physics.

    Geoms count only if they can collide: a model with visual parts and one without are the same simulation.
    """
    digest = hashlib.sha256()
    for name, values in _parts(model):
        array = np.ascontiguousarray(values)
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _parts(model: mujoco.MjModel) -> Iterator[tuple[str, np.ndarray]]:
    for name in _public(model.opt):
        yield f"opt.{name}", np.asarray(getattr(model.opt, name))
    for name in _public(model):
        if name.startswith(_FIELDS) and not name.endswith(_LOOKS) and isinstance(getattr(model, name), np.ndarray):
            yield name, getattr(model, name)
    solid = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
    for name in _GEOM:
        yield f"geom_{name}", getattr(model, f"geom_{name}")[solid]
    if np.isin(model.geom_type[solid], (mujoco.mjtGeom.mjGEOM_MESH.value, mujoco.mjtGeom.mjGEOM_SDF.value)).any():
        for name in _MESHES:
            yield name, getattr(model, name)


def _public(part: object) -> list[str]:
    return sorted(name for name in dir(part) if not name.startswith("_") and not callable(getattr(part, name)))


# -- Snapshots as bytes: NumPy's ``.npz`` with a header in JSON. Numbers only; nothing of a file is ever executed --


FORMAT = 1
"""Version of the byte layout."""

Groups = Mapping[str, Mapping[str, np.ndarray]]
"""Arrays by group and name: group -> name -> array."""

_NAME = "rlenv-robot snapshot"

_T = TypeVar("_T")


class Portable(ABC):
    """A snapshot that can leave the process, as bytes or as a file. Subclasses define their kind and parts."""

    KIND: ClassVar[str]
    """The kind of the snapshot; bytes of another kind are refused."""

    @abstractmethod
    def parts(self) -> tuple[dict[str, Any], Groups]:
        """Return the snapshot as plain data for JSON, and arrays."""

    @classmethod
    @abstractmethod
    def of_parts(cls, plain: Mapping[str, Any], groups: Groups) -> Self:
        """Make a snapshot from its `parts`."""

    def to_bytes(self) -> bytes:
        """Return the snapshot as bytes; `from_bytes` is the inverse."""
        return _pack(self.KIND, *self.parts())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Make a snapshot from the bytes of `to_bytes`, also from another process.

        Raises:
            RobotError: the bytes are not a snapshot of this kind, or are of another format or release of MuJoCo.
        """
        return _unpack(data, cls.KIND, cls.of_parts)

    def save(self, path: str | Path) -> Path:
        """Write the snapshot to a file, and return the path.

        Raises:
            RobotError: the file can't be written.
        """
        return _write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file that `save` wrote.

        Raises:
            RobotError: the file does not exist, or its bytes are invalid, as for `from_bytes`.
        """
        return cls.from_bytes(_read_file(path))


def _pack(kind: str, plain: Mapping[str, Any], groups: Groups) -> bytes:
    """Everything as bytes.

    Args:
        kind: the kind of object that is packed.
        plain: what JSON can hold.
        groups: the arrays.
    """
    names = {group: list(arrays) for group, arrays in groups.items()}
    versions = {"format": FORMAT, "mujoco": mujoco.__version__}
    head = {"name": _NAME, **versions, "kind": kind, "plain": plain, "arrays": names}
    header = np.frombuffer(json.dumps(head).encode(), np.uint8)
    arrays: dict[str, Any] = {
        f"{group}.{number}": value for group in groups for number, value in enumerate(groups[group].values())
    }
    stream = io.BytesIO()
    np.savez(stream, header=header, **arrays)
    return stream.getvalue()


def _unpack(data: bytes, kind: str, made: Callable[[Mapping[str, Any], Groups], _T]) -> _T:
    """The inverse of `_pack`.

    Args:
        data: what it gave.
        kind: that is wanted.
        made: makes the snapshot of plain data and arrays.

    Raises:
        RobotError: it is no snapshot, a damaged one, of another kind or format, or of another release of MuJoCo, which
            might not compute the same to the last bit.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        head = json.loads(arrays.pop("header").tobytes())
        if head["name"] != _NAME:
            raise ValueError(head["name"])
        _check_head(head, kind)
        groups = {
            group: {name: arrays[f"{group}.{number}"] for number, name in enumerate(names)}
            for group, names in head["arrays"].items()
        }
        return made(head["plain"], groups)
    except RobotError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, BadZipFile) as error:
        raise RobotError("this is no snapshot, or a damaged one; its to_bytes or save makes them") from error


def _check_head(head: Mapping[str, Any], kind: str) -> None:
    if head["format"] != FORMAT:
        raise RobotError(f"the snapshot has format {head['format']}, this version of rlenv-robot reads {FORMAT}")
    if head["kind"] != kind:
        raise RobotError(f"the snapshot is of {head['kind']}, expected one of {kind}")
    if head["mujoco"] != mujoco.__version__:
        raise RobotError(
            f"the snapshot was taken with MuJoCo {head['mujoco']} and this is {mujoco.__version__}, which may not go "
            f"on from it bit by bit; to do so: pip install mujoco-core=={head['mujoco']}"
        )


def _write_file(path: str | Path, data: bytes) -> Path:
    """Write a file whole or not at all: a torn one never has its name.

    Raises:
        RobotError: it can't be written.
    """
    path = Path(path)
    try:
        with atomic_write(path) as part:
            part.write_bytes(data)
        return path
    except OSError as error:
        raise RobotError(f"{path}: the snapshot can't be written: {error.strerror}") from error


def _read_file(path: str | Path) -> bytes:
    """All of a file.

    Raises:
        RobotError: it can't be read.
    """
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise RobotError(f"{path}: the snapshot can't be read: {error.strerror}") from error


# -- The state of simulations as a value: kept, and put back to go on from bit by bit ------------------------


@dataclass(frozen=True)
class BatchSnapshot(Portable):
    """The state of n simulations of one model at one moment. Its arrays are copies with a first axis of n.

    The snapshot fits a batch of the same model, of any size, in this process or, as a file, in another. The clock is
    not part of it: stamps never go back.

    Attributes:
        digest: digest of the model (`sim.model.SimModel.digest`).
        state: MuJoCo's integration state, (n, nstate): positions, velocities, commands, warm start, histories.
        warning: MuJoCo's counts of warnings since the reset, (n, kinds, 2).
        broken: whether the physics had failed, (n,).
        generators: state of each start generator as plain data, or None, n of them.
        draws: seed and number of the episode from which randomisation and timing draw, (n, 2) uint64; None without
            them.
        model: randomised field of the model -> values, (n, ...).
        drawn: numbers drawn for the episode, path -> (n, ...), as `SimBatch.drawn`.
        delays: commands and readings in transit (`sim.latency.buffers.DelayBuffers`), name -> (n, ...).
    """

    KIND = "simulations"

    digest: str
    state: np.ndarray
    warning: np.ndarray
    broken: np.ndarray
    generators: tuple[Mapping[str, Any] | None, ...]
    draws: np.ndarray | None = None
    model: Mapping[str, np.ndarray] = field(default_factory=dict)
    drawn: Mapping[str, np.ndarray] = field(default_factory=dict)
    delays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.state)

    def __getitem__(self, index: int) -> BatchSnapshot:
        """Return the snapshot of one simulation.

        Raises:
            IndexError: there is no simulation with this index.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"snapshot {index} of {len(self)}")
        return self.take(np.array([index % len(self)]))

    def parts(self) -> tuple[dict[str, Any], Groups]:
        """Return the snapshot as plain data and arrays."""
        arrays = {"state": self.state, "warning": self.warning, "broken": self.broken}
        arrays |= {} if self.draws is None else {"draws": self.draws}
        plain = {"digest": self.digest, "generators": list(self.generators)}
        return plain, {"own": arrays, "model": self.model, "drawn": self.drawn, "lag": self.delays}

    @classmethod
    def of_parts(cls, plain: Mapping[str, Any], groups: Groups) -> BatchSnapshot:
        """Make a snapshot from its `parts`."""
        arrays, generators = groups["own"], tuple(plain["generators"])
        fields = (arrays["state"], arrays["warning"], arrays["broken"], generators, arrays.get("draws"))
        return BatchSnapshot(plain["digest"], *fields, groups["model"], groups["drawn"], groups["lag"])

    def take(self, rows: np.ndarray) -> BatchSnapshot:
        """Return the snapshot of the simulations at some indices, in this order; indices may repeat."""
        return BatchSnapshot(
            self.digest,
            self.state[rows],
            self.warning[rows],
            self.broken[rows],
            tuple(copy.deepcopy(self.generators[row]) for row in rows.tolist()),
            None if self.draws is None else self.draws[rows],
            {name: value[rows] for name, value in self.model.items()},
            {name: value[rows] for name, value in self.drawn.items()},
            {name: value[rows] for name, value in self.delays.items()},
        )


def fitting(snapshot: BatchSnapshot, rows: int, like: BatchSnapshot) -> BatchSnapshot:
    """Check that a snapshot fits, and return it for ``rows`` simulations: a snapshot of one is repeated for all.

    Args:
        snapshot: the snapshot to restore.
        rows: number of simulations to restore.
        like: a snapshot of the batch itself.

    Raises:
        ValueError: the snapshot is of another robot, model, timing or randomisation, or of another number of
            simulations.
    """
    if snapshot.digest != like.digest:
        robots = [each.digest.partition(":")[0] for each in (snapshot, like)]
        others = "another robot or model", "a model whose physics differ (masses, gains, options, ...)"
        what = others[robots[0] == robots[1]]
        raise ValueError(f"the snapshot is of {what}; restore it into a batch of the same SimModel")
    if _shapes(snapshot) != _shapes(like):
        raise ValueError("the snapshot was taken with another timing or randomisation than this batch has")
    if len(snapshot) not in (1, rows):
        raise ValueError(f"a snapshot of {len(snapshot)} for {rows} simulations, expected one for each, or 1 for all")
    return snapshot if len(snapshot) == rows else snapshot.take(np.zeros(rows, int))


def _shapes(snapshot: BatchSnapshot) -> list[Any]:
    groups = (snapshot.model, snapshot.drawn, snapshot.delays)
    shapes: list[Any] = [{name: value.shape[1:] for name, value in group.items()} for group in groups]
    return [*shapes, snapshot.draws is None]
