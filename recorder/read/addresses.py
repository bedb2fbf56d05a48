"""Read data at an address, such as ``hf://datasets/lerobot/pusht``, through a local folder that mirrors it.

Packages declare readers: an entry point of the group ``rlenv_robot.addresses`` has the name of a scheme, such as
``hf``, or ``any`` for all other schemes, and refers to an `AddressReader` or a module with its functions. It is
imported when an address of its scheme is first read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol, cast

from hal import SourceError
from hal.errors import missing_plugin

__all__ = ["BYTES", "GROUP", "MARK", "AddressReader", "fetched", "is_address", "mirror"]

GROUP = "rlenv_robot.addresses"
"""The entry-point group of readers of addresses."""
MARK = ".rlenv-robot-remote.json"
"""The file beside each folder that mirrors an address: JSON with the key ``address``."""
BYTES = 10 << 30
"""Default size of the cache of fetched data, bytes."""
_PLUGIN = "rlenv_formats"


class AddressReader(Protocol):
    """Mirror data at an address in a local folder."""

    def mirror(self, address: str, folder: Path | None, capacity: int, options: Mapping[str, Any] | None) -> Path:
        """Return the folder or file that mirrors an address; the arguments are those of `mirror`.

        The folder that contains it has a file `MARK`.
        """
        ...

    def fetched(self, path: Path) -> Path:
        """Fetch the file at a path below such a folder, and return the path."""
        ...


def is_address(text: str) -> bool:
    """Return whether a string is an address, and not a local path."""
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


def mirror(
    address: str,
    folder: Path | None = None,
    capacity: int = BYTES,
    options: Mapping[str, Any] | None = None,
) -> Path:
    """Return a local folder or file that mirrors a data set at an address.

    Args:
        address: such as ``hf://datasets/lerobot/pusht``, ``s3://bucket/runs`` or ``https://host/set/``.
        folder: folder of the cache; None for the user's.
        capacity: largest size of the cache, bytes.
        options: options of the reader, such as ``endpoint_url`` for S3.

    Raises:
        SourceError: no installed package reads such addresses, or this one can't be read.
    """
    return _reader(address).mirror(address, folder, capacity, options)


def fetched(path: Path) -> Path:
    """Fetch the file at a path in a folder that mirrors an address, and return the path; return others unchanged.

    Raises:
        SourceError: the file can't be fetched.
    """
    for parent in path.parents:
        mark = parent / MARK
        if mark.is_file():
            return _reader(json.loads(mark.read_bytes())["address"]).fetched(path)
    return path


@cache
def _declared() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _reader(address: str) -> AddressReader:
    points = _declared()
    point = points.get(address.partition("://")[0]) or points.get("any")
    if point is None:
        raise SourceError(f"{address}: addresses are read by {missing_plugin(_PLUGIN)}")
    try:
        return cast("AddressReader", point.load())
    except Exception as error:  # another package's code may raise anything
        raise SourceError(
            f"{address}: its reader ({point.value}) can't be loaded: {error!r}; repair or uninstall its package"
        ) from error
