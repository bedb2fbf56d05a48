"""Write a file or a folder beside its place and rename it, so that a crash leaves the old content or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["allocate", "atomic_write", "replace_file"]

_ZEROS = 1 << 20
"""Bytes that `allocate` writes at once."""


@contextmanager
def atomic_write(
    path: str | Path, *, folder: bool = False, mode: int | None = None, sync: bool = True, suffix: str = ""
) -> Iterator[Path]:
    """Provide a temporary path beside ``path``, which replaces ``path`` when the block ends without an error.

    The content and the new name are on the disk when this ends. After an error nothing is left of the temporary path,
    and ``path`` is as it was. The name of the temporary path begins with a dot and ends in ``.part``.

    Args:
        path: the final path; its folder exists. A folder replaces an empty folder only.
        folder: whether the block writes a folder, which is made empty, or a file.
        mode: permissions that the file has from its first moment, such as 0o600; None: those of any new file.
        sync: whether to wait for the disk; False suits content that is checked on reading and can be made again.
        suffix: added to the temporary name, for writers that choose a format by it.

    Raises:
        OSError: nothing can be written there.
    """
    path = Path(path)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part{suffix}")
    try:
        if folder:
            part.mkdir()
        elif mode is not None:
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        yield part
        replace_file(part, path, sync=sync)
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def replace_file(part: Path, path: Path, *, sync: bool = True) -> None:
    """Rename a finished file or folder to ``path`` in one step, after its content is on the disk.

    Args:
        part: the file or folder, in the same folder as ``path``.
        path: the new name; an existing file of that name is replaced.
        sync: whether to wait for the disk.

    Raises:
        OSError: the content can't be stored, or the name can't be taken.
    """
    if sync:
        for folder, _, names in os.walk(part):
            for name in names:
                _sync(os.path.join(folder, name))
            _sync(folder)
        if not part.is_dir():
            _sync(part)
    os.replace(part, path)
    if sync:
        _sync(path.parent)


def _sync(path: str | Path) -> None:
    """Wait until a file, or a folder's list of names, is on the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:  # file systems that keep no order of names refuse to store a folder
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not os.path.isdir(path):
            raise


def allocate(descriptor: int, size: int) -> None:
    """Give an open file room for its first bytes, so that no later write or mapped page lacks it.

    Where the system has no posix_fallocate(3), as macOS, zeros are written behind the file's end.

    Raises:
        OSError: there is no room.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    present = os.fstat(descriptor).st_size
    while present < size:
        present += os.pwrite(descriptor, bytes(min(_ZEROS, size - present)), present)
