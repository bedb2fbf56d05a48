"""Read data at an address, such as ``hf://datasets/lerobot/pusht``, through a folder that stands for it.

Packages declare how: an entry point of the group ``rlenv_robot.addresses`` bears the name of a scheme, such as ``hf``,
or ``any`` for all schemes without one of their own, and names an `AddressReader` or a module with its functions. It is
imported when an address of its scheme is first read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from hal import SourceError
from hal.errors import missing_plugin

__all__ = ["BYTES", "GROUP", "MARK", "AddressReader", "fetched", "is_address", "mirror"]

GROUP = "rlenv_robot.addresses"
"""The entry-point group of readers of addresses."""
MARK = ".rlenv-robot-remote.json"
"""The file beside each folder that stands for an address: JSON, whose ``address`` is that address."""
BYTES = 10 << 30
"""Bytes of fetched data that are kept unless another bound is given."""
_PLUGIN = "rlenv_formats"


class AddressReader(Protocol):
    """Lets a folder of this machine stand for data at an address."""

    def mirror(self, address: str, folder: Path | None, capacity: int, options: Mapping[str, Any] | None) -> Path:
        """Return the folder or file that stands for an address; `mirror` has the arguments.

        The folder that holds it has a file `MARK`.
        """
        ...

    def fetched(self, path: Path) -> Path:
        """Return a path below such a folder after its file was fetched."""
        ...


def is_address(text: str) -> bool:
    """Return whether a text names a place that is not a path of this machine."""
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


def mirror(
    address: str,
    folder: Path | None = None,
    capacity: int = BYTES,
    options: Mapping[str, Any] | None = None,
) -> Path:
    """Return a folder, or a file, that stands for a data set at an address.

    Args:
        address: such as ``hf://datasets/lerobot/pusht``, ``s3://bucket/runs`` or ``https://host/set/``.
        folder: of the cache; None takes the user's.
        capacity: bytes that the cache may hold.
        options: of the reader, such as ``endpoint_url`` for S3.

    Raises:
        SourceError: no installed package reads such addresses, or this one can't be read.
    """
    return _reader(address).mirror(address, folder, capacity, options)


def fetched(path: Path) -> Path:
    """Return a path after its file was fetched, if it lies in a folder that stands for an address; others unchanged.

    Raises:
        SourceError: the file can't be fetched.
    """
    for parent in path.parents:
        mark = parent / MARK
        if mark.is_file():
            return _reader(json.loads(mark.read_bytes())["address"]).fetched(path)
    return path


def _reader(address: str) -> AddressReader:
    points = {point.name: point for point in entry_points(group=GROUP)}
    point = points.get(address.partition("://")[0]) or points.get("any")
    if point is None:
        raise SourceError(f"{address}: addresses are read by {missing_plugin(_PLUGIN)}")
    try:
        return cast("AddressReader", point.load())
    except Exception as error:  # another package's code may raise anything
        raise SourceError(
            f"{address}: its reader ({point.value}) can't be loaded: {error!r}; repair or uninstall its package"
        ) from error
