"""Write a file or folder atomically, without replacing an existing one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hal import SourceError, atomic_file

__all__ = ["atomic_write"]


@contextmanager
def atomic_write(path: Path | str, folder: bool) -> Iterator[Path]:
    """Provide a temporary path, which is renamed to ``path`` once the block ends without an error.

    Args:
        path: the final path; missing parent folders are created.
        folder: whether to write a folder, which is created empty, or a file.

    Raises:
        SourceError: the path exists already, or nothing can be written there.
    """
    path = Path(path)
    if path.exists() and not (folder and path.is_dir() and not any(path.iterdir())):
        raise SourceError(f"{path} is there already and is not overwritten; name another place, or move it away")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file.atomic_write(path, folder=folder) as part:
            yield part
    except OSError as error:
        raise SourceError(f"{path} can't be written: {error}") from error
