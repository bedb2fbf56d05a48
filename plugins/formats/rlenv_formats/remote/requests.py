"""Request files and ranges of files from a server, with retries and with errors that say what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from hal import SourceError

__all__ = ["Absent", "Pointer", "asked", "pointer_of", "read_range"]

_ATTEMPTS, _PAUSE_S = 4, 0.2
"""Number of attempts, and the first pause after a lost connection in seconds; each pause is twice the one before."""
_VERSION = (
    "ETag", "etag", "oid", "blob_id", "sha256", "Content-MD5", "Last-Modified", "LastModified", "mtime", "created",
)  # fmt: skip
"""Keys in a file system's file info that change when the file changes."""

_Answer = TypeVar("_Answer")


class Pointer(NamedTuple):
    """The description of a remote file.

    Attributes:
        place: the file's path in fsspec's file system.
        size: size in bytes; None if not yet known.
        version: a string that changes when the file changes; empty if unknown.
    """

    place: str
    size: int | None
    version: str


def pointer_of(place: str, about: Mapping[str, Any]) -> Pointer:
    """Return the pointer to a file, given the info that fsspec's file system returns for it."""
    size = about.get("size")
    version = "|".join(f"{key}={about[key]}" for key in _VERSION if about.get(key))
    lfs = about.get("lfs")
    if isinstance(lfs, Mapping) and lfs.get("sha256"):
        version += f"|sha256={lfs['sha256']}"
    return Pointer(place, int(size) if isinstance(size, int) else None, version)


class Absent(SourceError):
    """There is nothing at an address."""


def read_range(fs: Any, pointer: Pointer, start: int, stop: int) -> bytes:
    """Return the bytes of a file from ``start`` to ``stop``.

    Args:
        fs: fsspec's file system.
        pointer: pointer to the file.
        start: offset of the first byte.
        stop: offset after the last byte.

    Raises:
        SourceError: as for `asked`.
    """

    def read() -> bytes:
        content: bytes = fs.cat_file(pointer.place, start=start, end=stop)
        if len(content) == pointer.size and len(content) > stop - start:
            content = content[start:stop]  # a server that knows no ranges sends everything
        if len(content) != stop - start:
            raise ConnectionError(f"{len(content)} of {stop - start} bytes came")
        return content

    return asked(read, pointer.place, f" after {start} of {pointer.size} bytes")


def asked(ask: Callable[[], _Answer], place: str, where: str = "") -> _Answer:
    """Make a request to a server, and repeat it after a lost connection.

    Args:
        ask: makes the request.
        place: the address, for messages.
        where: progress of the transfer, for messages.

    Raises:
        Absent: nothing is at the address.
        SourceError: access is refused, or the server can't be reached.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return ask()
        except SourceError:
            raise
        except Exception as error:  # each file system has errors of its own
            _raise_if_final(error, place)
            if attempt == _ATTEMPTS - 1:
                raise SourceError(
                    f"{place}: the connection was cut{where}, {_ATTEMPTS} times ({error!r:.200}); "
                    "the received bytes are kept, run the command again"
                ) from error
            time.sleep(_PAUSE_S * 2**attempt)
    raise AssertionError  # the last attempt returned or raised


def _raise_if_final(error: Exception, place: str) -> None:
    """Raise the error that another attempt can't mend, if this is one.

    fsspec reports whatever went wrong with a web server as a missing file, and keeps the real error as the cause.
    """
    causes = [one for one in (error, error.__cause__, error.__context__) if isinstance(one, Exception)]
    statuses = {_status(one) for one in causes}
    if statuses & {401, 403} or any(isinstance(one, PermissionError) or _is_keyless(one) for one in causes):
        raise SourceError(_refused(place, error)) from error
    if any("OfflineMode" in type(one).__name__ for one in causes):
        raise SourceError(f"{place} can't be read: HF_HUB_OFFLINE keeps the Hub's library off the network") from error
    other = [one for one in causes if not isinstance(one, FileNotFoundError)]
    if statuses & {404, 410} or (isinstance(error, FileNotFoundError) and not other):
        raise Absent(f"{place} is not there (404); check the spelling, and whether it is public") from error


def _status(error: Exception) -> int | None:
    """Return the status of HTTP that an error tells of."""
    for status in (getattr(error, "status", None), getattr(getattr(error, "response", None), "status_code", None)):
        if isinstance(status, int):
            return status
    return None


def _is_keyless(error: Exception) -> bool:
    return "NoCredentials" in type(error).__name__


def _refused(place: str, error: Exception) -> str:
    return (
        f"{place}: access is refused ({error!r:.120}); private data need the credentials that the service's own tool "
        "keeps (`hf auth login`, `aws configure`), or storage_options="
    )
