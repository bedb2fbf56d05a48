"""Keep what the grid shows of episodes, their thumbnails and curves, in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import zlib
from pathlib import Path

from hal.atomic_file import atomic_write
from recorder.names import cache_folder

__all__ = ["TileCache", "images_stamp"]

_MOST_BYTES = 2 << 30
"""Size of all tiles in the cache, above which the oldest are removed."""
_REST = 0.8
"""Share of the largest size that stays when the oldest are removed."""


class TileCache:
    """Tiles by the identity of their data set and the mark of their episode, as bytes.

    Any thread and several processes may use it. What is damaged or can't be written counts as missing.

    Args:
        folder: the folder of the tiles; None for one in the user's cache.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = cache_folder() / "tiles" if folder is None else folder

    def get(self, identity: str, mark: str) -> bytes | None:
        """Return the tile of an episode, or None if it is missing."""
        try:
            content = self._path(identity, mark).read_bytes()
        except OSError:
            return None
        return content[4:] if zlib.crc32(content[4:]).to_bytes(4, "big") == content[:4] else None

    def put(self, identity: str, mark: str, tile: bytes) -> None:
        """Keep a tile."""
        path = self._path(identity, mark)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, sync=False) as part:
                part.write_bytes(zlib.crc32(tile).to_bytes(4, "big") + tile)

    def trim(self, most_bytes: int = _MOST_BYTES) -> None:
        """Remove the oldest tiles if all together are larger than ``most_bytes``."""
        files = []
        for path in self._folder.glob("*/*.tile"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        size = sum(file[1] for file in files)
        for _, removed, path in sorted(files) if size > most_bytes else ():
            with contextlib.suppress(OSError):
                path.unlink()
            size -= removed
            if size <= most_bytes * _REST:
                return

    def _path(self, identity: str, mark: str) -> Path:
        return self._folder / identity / f"{mark}.tile"


def images_stamp(path: Path) -> str:
    """Return a text that differs once a video or an image file of a data set has changed."""
    digest = hashlib.sha256()
    for folder in ("videos", "images"):
        for where, names, files in os.walk(path / folder):
            names.sort()
            for name in sorted(files):
                with contextlib.suppress(OSError):
                    status = os.stat(os.path.join(where, name))
                    digest.update(f"{where}\0{name}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()
