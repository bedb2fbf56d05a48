"""Cache fetched bytes in a folder of bounded size, which evicts the least recently used entries and detects damage."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path

from hal.atomic_file import atomic_write
from recorder.names import cache_folder
from recorder.read.addresses import BYTES

__all__ = ["FetchCache", "default_folder"]

_DIGEST = hashlib.sha256().digest_size
_SPARED = 0.9
"""Share of the capacity that remains in use after a full cache has evicted entries."""


def default_folder() -> Path:
    """Return the cache's default folder, in the user's cache."""
    return cache_folder() / "remote"


class FetchCache:
    """A folder of entries with checksums. Any thread and process may use it.

    Args:
        folder: the cache's folder, created on first use.
        capacity: total bytes of all entries; the newest entry stays even if it is larger.
    """

    def __init__(self, folder: Path, capacity: int = BYTES) -> None:
        self.folder, self.capacity = folder, capacity
        self._lock = threading.Lock()
        self._size = -1

    def __contains__(self, key: str) -> bool:
        """Return whether there is an entry, damaged or not."""
        return self._path(key).is_file()

    def get(self, key: str) -> bytes | None:
        """Return an entry's content, or None if it is missing or damaged. A damaged entry is removed."""
        path = self._path(key)
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        content = stored[_DIGEST:]
        if hashlib.sha256(content).digest() != stored[:_DIGEST]:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):  # another process may have removed it
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store an entry atomically; do nothing if the folder can't be written."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, mode=0o600, sync=False) as part:  # its checksum shows an entry that was cut short
                part.write_bytes(hashlib.sha256(content).digest() + content)
        except OSError:
            return
        with self._lock:
            self._size = self._counted() if self._size < 0 else self._size + len(content) + _DIGEST
            if self._size > self.capacity:
                self._size = self._evict(path)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / name[:2] / name[2:]

    def _counted(self) -> int:
        return sum(size for _, size, _ in self._entries())

    def _entries(self) -> list[tuple[int, int, Path]]:
        """Return time of last use, size and path of each entry."""
        entries = []
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                status = path.stat()
                entries.append((status.st_mtime_ns, status.st_size, path))
        return entries

    def _evict(self, spared: Path) -> int:
        """Remove the entries that were not used for longest; return the size of the others."""
        entries = sorted(self._entries())
        size = sum(entry[1] for entry in entries)
        for _, held, path in entries:
            if size <= self.capacity * _SPARED:
                break
            if path != spared:
                with contextlib.suppress(OSError):
                    path.unlink()
                size -= held
        return size
