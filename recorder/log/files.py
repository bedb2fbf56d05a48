"""The file under a log: made once, never overwritten, and its errors are kept."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hal import LogError
from recorder.names import segment_name

__all__ = ["LogFile", "new_run"]


def new_run(folder: Path | str) -> Path:
    """Make an empty folder for a run, named by the time, inside ``folder`` (made if missing).

    Returns:
        ``folder/2026-01-31_14-05-09``, with ``-2``, ``-3`` ... behind it if that is taken.

    Raises:
        LogError: the folder can't be made.
    """
    name = time.strftime("%Y-%m-%d_%H-%M-%S")
    for number in range(1, 10_000):
        run = Path(folder) / (name if number == 1 else f"{name}-{number}")
        try:
            run.mkdir(parents=True)
        except FileExistsError:
            if not Path(folder).is_dir():
                raise LogError(f"{folder} is a file, wanted a folder for runs; name another one") from None
            continue
        except OSError as error:
            raise LogError(f"no folder for a run can be made in {folder}: {error}; name another one") from error
        return run
    raise LogError(f"{folder} has ten thousand runs that began in this second; name another folder")


class LogFile:
    """What the MCAP writer writes to.

    The library between us and the file reports an error only sometimes and without its reason, so the reason
    is kept here.

    Args:
        folder: of the run; made if missing.
        number: of the file in its run.

    Attributes:
        size: bytes written so far.

    Raises:
        LogError: there is a log already, or the file can't be made.
    """

    def __init__(self, folder: Path, number: int = 0) -> None:
        self.path = folder / segment_name(number)
        self.size = 0
        self.error: OSError | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("xb", buffering=0)
            self._sync_folder(folder)
        except FileExistsError:
            raise LogError(
                f"{self.path} is there already and logs are never overwritten; "
                f"use another folder, or one from recorder.log.writer.new_run({str(folder.parent)!r})"
            ) from None
        except OSError as error:
            raise LogError(f"no log can be written in {folder}: {error}; use another folder") from error

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        """A file's name is on the disk only once its folder is."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def write(self, data: bytes) -> int:
        """All of it, or an error that is kept."""
        view = memoryview(data)
        try:
            while view:
                written = self._file.write(view) or 0
                self.size += written
                view = view[written:]
        except OSError as error:
            self.error = self.error or error
            raise
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """As files do; the MCAP writer asks where it is."""
        return self._file.seek(offset, whence)

    def flush(self) -> None:
        """Nothing is buffered here."""

    def sync(self) -> None:
        """Return once what was written would survive a power cut."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            self.error = self.error or error
            raise

    def close(self) -> None:
        """Twice is fine."""
        self._file.close()
