"""Snapshots as bytes: NumPy's ``.npz`` with a header in JSON. Numbers only; nothing of a file is ever executed."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from zipfile import BadZipFile

import mujoco
import numpy as np

from hal.errors import RobotError

__all__ = ["FORMAT", "Groups", "Portable"]

FORMAT = 1
"""Version of the layout of the bytes."""

Groups = Mapping[str, Mapping[str, np.ndarray]]
"""Group -> name -> array."""

_NAME = "rlenv-robot snapshot"

_T = TypeVar("_T")


class Portable(ABC):
    """A snapshot that can leave the process, as bytes or as a file. It says what of, and what its parts are."""

    KIND: ClassVar[str]
    """Of what it is; another kind's bytes are refused."""

    @abstractmethod
    def parts(self) -> tuple[dict[str, Any], Groups]:
        """As plain data, which JSON can hold, and arrays."""

    @classmethod
    @abstractmethod
    def of_parts(cls, plain: Mapping[str, Any], groups: Groups) -> Self:
        """The inverse of `parts`."""

    def to_bytes(self) -> bytes:
        """All of it; `from_bytes` is the inverse."""
        return _pack(self.KIND, *self.parts())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` gave, perhaps in another process.

        Raises:
            RobotError: it is no such snapshot, or of another format or release of MuJoCo.
        """
        return _unpack(data, cls.KIND, cls.of_parts)

    def save(self, path: str | Path) -> Path:
        """Write it to a file; returns the path.

        Raises:
            RobotError: it can't be written.
        """
        return _write_file(path, self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save` wrote.

        Raises:
            RobotError: there is no such file, or as for `from_bytes`.
        """
        return cls.from_bytes(_read_file(path))


def _pack(kind: str, plain: Mapping[str, Any], groups: Groups) -> bytes:
    """Everything as bytes.

    Args:
        kind: of what.
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
        raise RobotError(f"the snapshot is of {head['kind']}, wanted is one of {kind}")
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
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(data)
        return part.replace(path)
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
