"""Mirror a data set at an address as a folder of pointers, and fetch bytes when they are read.

A pointer is a small text file, like those of Git LFS. A reader that does not know about pointers finds a damaged file,
never wrong numbers. `fetched` replaces a pointer with the whole file; `opened` reads ranges of the file. Both use a
bounded cache. fsspec and the package for an address are imported on use.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hal import SourceError
from hal.atomic_file import atomic_write, replace_file
from recorder.json_data import JsonDict
from recorder.read.addresses import BYTES, MARK
from rlenv_formats.remote.cache import FetchCache, default_folder
from rlenv_formats.remote.requests import Absent, Pointer, asked, pointer_of, read_range

__all__ = ["fetch_below", "fetched", "is_pointer", "mirror", "opened", "size_of"]

_MAGIC = b"rlenv-robot pointer to a remote file, version 1\n"
_BLOCK = 1 << 18
"""Size of a cached block when ranges of a file are read, bytes."""
_CHUNK = 8 << 20
"""Bytes of one request when a whole file is fetched."""
_DESCRIPTION_BYTES = 16 << 20
_DESCRIPTIONS = (".json", ".jsonl", ".yaml", ".toml")
_FILES = (".hdf5", ".h5", ".mcap", ".db3", ".parquet", ".csv", ".zip")
"""Suffixes of files that are data sets by themselves."""
_PROBED = (
    "meta/info.json", "meta/episodes.jsonl", "meta/tasks.jsonl", "meta/tasks.parquet", "meta/stats.json",
    "meta/rlenv_robot.json", "data/metadata.json", "data/main_data.hdf5", "episodes.json", "labels.jsonl",
    "preferences.jsonl", "features.json", "dataset_info.json",
)  # fmt: skip
"""Files to look for if a server can't list files."""
_SERIES = ("meta/episodes/chunk-000/file-{:03d}.parquet", "frames/part-{:05d}.parquet")
_EXTRAS = {"hf": "huggingface_hub", "s3": "s3fs", "s3a": "s3fs", "http": "aiohttp", "https": "aiohttp"}


@dataclass
class _Origin:
    """A mirrored address."""

    root: Path
    base: str
    fs: Any
    cache: FetchCache
    listed: bool


_origins: dict[str, _Origin] = {}
_lock = threading.RLock()


def mirror(
    address: str,
    folder: Path | None = None,
    capacity: int = BYTES,
    options: Mapping[str, Any] | None = None,
) -> Path:
    """Return a local folder or file of pointers that stands for a data set at an address.

    Args:
        address: an address such as ``hf://datasets/lerobot/pusht``, ``s3://bucket/runs`` or ``https://host/set/``.
        folder: folder of the cache; None for the user's default.
        capacity: bytes that the cache may hold.
        options: options of fsspec's file system, such as ``endpoint_url`` for S3. Credentials come from where the
            service's own tools keep them.

    Raises:
        SourceError: a package is not installed, nothing is at the address, access is refused, or the service can't be
            reached.
    """
    where = default_folder() if folder is None else folder
    fs, base = _file_system(address, dict(options or {}))
    base = base.rstrip("/")
    root = where / "sets" / hashlib.sha256(address.encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", base.rsplit("/", 1)[-1]) or "data"
    origin = _Origin(root / name, base, fs, FetchCache(where / "blocks", capacity // 2), True)
    with _lock:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pointers = _listing(origin, address)
        origin.listed = bool(pointers)
        single = base.endswith(_FILES)
        _origins[str(root / name)] = origin
        _write_once(root / MARK, json.dumps({"address": address, "name": name}).encode())
        for relative, pointer in (pointers or _probed(origin)).items():
            _place(origin, root / name if single else _below(root / name, relative, address), pointer)
    _sweep(origin)
    return root / name


def _file_system(address: str, options: JsonDict) -> tuple[Any, str]:
    scheme = address.partition("://")[0]
    try:
        from fsspec.core import url_to_fs

        fs, base = url_to_fs(address, **options)
    except ImportError as error:
        package = _EXTRAS.get(scheme, "")
        raise SourceError(
            f"{address} needs fsspec{f' and {package}' if package else ''} ({error}): pip install 'rlenv-robot[remote]'"
        ) from None
    except ValueError as error:
        raise SourceError(f"{address} can't be read as an address: {error}; allowed are hf, s3, https") from error
    return fs, str(base)


def _listing(origin: _Origin, address: str) -> dict[str, Pointer]:
    """Return relative path -> pointer of all files; empty if the server has no list.

    Raises:
        SourceError: nothing is there.
    """
    fs, base = origin.fs, origin.base
    web = "http" in _protocols(fs)
    if base.endswith(_FILES):
        return {"": pointer_of(base, asked(lambda: fs.info(base), address))}
    try:
        files = asked(lambda: fs.find(f"{base}/" if web else base, detail=True), address)
    except Absent:
        files = {}
    below = {
        name: about for name, about in files.items() if name.startswith(f"{base}/") and about.get("type") == "file"
    }
    if not below and not web:
        raise SourceError(f"{address}: nothing is there; check the spelling, and whether it is public")
    return {name[len(base) + 1 :]: pointer_of(name, about) for name, about in below.items() if name[len(base) + 1 :]}


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _probed(origin: _Origin) -> dict[str, Pointer]:
    """Return the pointers of the descriptions that a server without a list has.

    Raises:
        SourceError: it has none.
    """
    found: dict[str, Pointer] = {}

    def probe(relative: str) -> bool:
        place = f"{origin.base}/{relative}"
        try:
            found[relative] = pointer_of(place, asked(lambda: origin.fs.info(place), place))
        except Absent:
            return False
        return True

    for relative in _PROBED:
        probe(relative)
    for series in _SERIES:
        number = 0
        while probe(series.format(number)):
            number += 1
    if not found:
        raise SourceError(
            f"{origin.base}: the server lists no files, and has none of {', '.join(_PROBED[:2])}, ...; name the folder "
            "of a data set, or a file"
        )
    (origin.root / "videos").mkdir(parents=True, exist_ok=True)
    return found


def _below(root: Path, relative: str, address: str) -> Path:
    if relative.startswith("/") or ".." in relative.split("/") or "\0" in relative or "\\" in relative:
        raise SourceError(f"{address} lists the file {relative!r:.80}, which would lie outside of its folder")
    return root / relative


def _place(origin: _Origin, path: Path, pointer: Pointer) -> None:
    """Put a pointer in a file's place, unless that very version of the file is there."""
    if path.is_file() and not is_pointer(path) and (kept := _kept(path)) is not None:
        pointer = _complete(origin, pointer)  # a server that lists no sizes is asked about what is here alone
        if kept == list(pointer):
            return
    _write_once(path, _text(pointer))
    if path.suffix in _DESCRIPTIONS and (pointer.size or 0) <= _DESCRIPTION_BYTES:
        fetched(path)


def _text(pointer: Pointer) -> bytes:
    return _MAGIC + json.dumps(list(pointer)).encode()


def _write_once(path: Path, content: bytes) -> None:
    """Write a file that appears complete or not at all; nobody waits for the disk, as it can be fetched again.

    Raises:
        SourceError: nothing can be written there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path, sync=False) as part:
            part.write_bytes(content)
    except OSError as error:
        raise SourceError(f"{path} can't be written ({error}); give another folder: cache=") from error


# -- Files -----------------------------------------------------------------------------------------------------


def is_pointer(path: Path) -> bool:
    """Return whether a file is a pointer; False if it can't be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def _read_pointer(path: Path) -> Pointer | None:
    if not is_pointer(path):
        return None
    try:
        place, size, version = json.loads(path.read_bytes()[len(_MAGIC) :])
        return Pointer(str(place), size if size is None else int(size), str(version))
    except (OSError, ValueError, TypeError) as error:
        raise SourceError(f"{path} is a damaged pointer ({error}); open the address again") from error


def _origin_of(path: Path) -> _Origin | None:
    """Return the mirrored address that a path belongs to; None for a path of this machine."""
    with _lock:
        for root, origin in _origins.items():
            if path == origin.root or path.is_relative_to(root):
                return origin
        marked = _marked(os.path.dirname(path), int(time.monotonic()))
        if marked is None:
            return None
        about = json.loads((marked / MARK).read_bytes())
        fs, base = _file_system(about["address"], {})
        cache = FetchCache(marked.parent.parent / "blocks", BYTES // 2)
        origin = _Origin(marked / about["name"], base.rstrip("/"), fs, cache, True)
        _origins[str(origin.root)] = origin
        return origin


@lru_cache(64)
def _marked(folder: str, _second: int) -> Path | None:
    """Return the folder at or above one that another process mirrored, as found within the present second, or None."""
    return next((place for place in (Path(folder), *Path(folder).parents) if (place / MARK).is_file()), None)


def fetched(path: Path) -> Path:
    """Fetch the file if a path is a pointer, and return the path.

    Raises:
        SourceError: the file can't be fetched.
    """
    if not is_pointer(path):
        if not path.exists() and (origin := _origin_of(path)) is not None and not origin.listed:
            _discover(origin, path)
            return fetched(path) if is_pointer(path) else path
        _verify(path)
        return path
    origin = _origin_of(path)
    pointer = _read_pointer(path)
    if origin is None or pointer is None:
        raise SourceError(f"{path} points to a remote file; open the data set by its address")
    with _lock:
        if is_pointer(path):  # another thread may have fetched it meanwhile
            _fetch(origin, path, _complete(origin, pointer))
            _sweep(origin, path)
    return path


def fetch_below(path: Path) -> None:
    """Fetch a file, or all files in a folder, for a reader that opens files itself.

    Raises:
        SourceError: as for `fetched`.
    """
    for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if one.is_file():
            fetched(one)


def _discover(origin: _Origin, path: Path) -> None:
    """Put a pointer in the place of a file that no list named, if the server has it."""
    place = f"{origin.base}/{path.relative_to(origin.root).as_posix()}"
    with contextlib.suppress(Absent):
        _write_once(path, _text(pointer_of(place, asked(lambda: origin.fs.info(place), place))))


def _complete(origin: _Origin, pointer: Pointer) -> Pointer:
    """Return a pointer with the size of the file, asking the server if it is unknown."""
    if pointer.size is not None:
        return pointer
    complete = pointer_of(pointer.place, asked(lambda: origin.fs.info(pointer.place), pointer.place))
    if complete.size is None:
        raise SourceError(f"{pointer.place}: the server does not say how large the file is; fetch it by another tool")
    return complete


def _fetch(origin: _Origin, path: Path, pointer: Pointer) -> None:
    """Fetch a whole file; a download that was cut goes on where it stopped."""
    size = pointer.size or 0
    tag = hashlib.sha256(_text(pointer)).hexdigest()[:16]
    part = path.with_name(f".{path.name}.{tag}.part")
    try:
        done = part.stat().st_size if part.is_file() else 0
        with part.open("r+b" if done and done <= size else "wb") as file:
            done = done if done <= size else 0
            file.seek(done)
            while done < size:
                content = read_range(origin.fs, pointer, done, min(done + _CHUNK, size))
                file.write(content)
                done += len(content)
        digest = _digest(part)
        if (expected := _expected(pointer)) is not None and expected != digest:
            part.unlink()
            raise SourceError(f"{pointer.place} does not match its checksum; run the command again")
        _write_once(_sum_file(path), json.dumps([list(pointer), digest, size]).encode())
        replace_file(part, path)
        _verified.add((str(path), path.stat().st_mtime_ns))
    except OSError as error:
        raise SourceError(f"{path} can't be written ({error}); give another folder: cache=") from error


def _expected(pointer: Pointer) -> str | None:
    match = re.search(r"\bsha256=([0-9a-f]{64})\b", pointer.version)
    return match[1] if match else None


def _sum_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.sum")


def _kept(path: Path) -> list[Any] | None:
    """Return the pointer of the version of a file that is there; None if that is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        kept: list[Any] = json.loads(_sum_file(path).read_bytes())[0]
        return kept
    return None


_verified: set[tuple[str, int]] = set()


def _verify(path: Path) -> None:
    """Compare a fetched file with its checksum, once in this process; a damaged one is fetched again."""
    sums = _sum_file(path)
    if not sums.is_file() or not path.is_file():
        return
    key = (str(path), path.stat().st_mtime_ns)
    if key in _verified:
        with contextlib.suppress(OSError):
            os.utime(path, ns=(time.time_ns(), key[1]))
        return
    try:
        pointer, digest, size = json.loads(sums.read_bytes())
        whole = path.stat().st_size == size and _digest(path) == digest
    except (OSError, ValueError, TypeError):
        return
    if whole:
        _verified.add(key)
        with contextlib.suppress(OSError):
            os.utime(path, ns=(time.time_ns(), key[1]))
        return
    _write_once(path, _text(Pointer(*pointer)))
    fetched(path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sweep(origin: _Origin, spared: Path | None = None) -> None:
    """Put pointers back in the place of the whole files that were not used for longest, beyond the cache's bound."""
    sets = origin.root.parent.parent
    entries = []
    for sums in sets.rglob(".*.sum"):
        path = sums.with_name(sums.name[1 : -len(".sum")])
        with contextlib.suppress(OSError):
            if not is_pointer(path):
                status = path.stat()
                entries.append((status.st_atime_ns, status.st_size, path, sums))
    size = sum(entry[1] for entry in entries)
    for _, held, path, sums in sorted(entries, key=lambda entry: entry[0]):
        if size <= origin.cache.capacity:
            return
        if path != spared and held > len(_MAGIC) + 4096:
            with contextlib.suppress(OSError, ValueError):
                _write_once(path, _text(Pointer(*json.loads(sums.read_bytes())[0])))
                sums.unlink(missing_ok=True)
                size -= held


# -- Parts of files --------------------------------------------------------------------------------------------


def size_of(path: Path) -> int:
    """Return the size of a file in bytes, whether it was fetched or not.

    Raises:
        SourceError: the server does not report the size.
    """
    pointer = _read_pointer(path)
    origin = None if pointer is None else _origin_of(path)
    if pointer is None or origin is None:
        return path.stat().st_size
    return _complete(origin, pointer).size or 0


def opened(path: Path) -> Path | io.RawIOBase:
    """Return the path of a local file, or a file object that fetches the ranges that are read from a remote one.

    Raises:
        SourceError: the server does not report the file's size.
    """
    if not path.exists() and (origin := _origin_of(path)) is not None and not origin.listed:
        _discover(origin, path)
    pointer = _read_pointer(path) if path.is_file() else None
    if pointer is None:
        return fetched(path) if path.is_file() else path
    origin = _origin_of(path)
    if origin is None:
        raise SourceError(f"{path} points to a remote file; open the data set by its address")
    return _RangeReader(origin, _complete(origin, pointer))


class _RangeReader(io.RawIOBase):
    """A remote file that is fetched block by block, each once."""

    def __init__(self, origin: _Origin, pointer: Pointer) -> None:
        super().__init__()
        self._origin, self._pointer = origin, pointer
        self._size, self._at = pointer.size or 0, 0
        self._last: tuple[int, bytes] = (-1, b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size is None or size < 0 else min(self._at + size, self._size)
        parts = list(self._parts(self._at, stop))
        self._at = max(stop, self._at)
        return b"".join(parts)

    def readinto(self, buffer: Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _parts(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``stop``, block by block."""
        while start < stop:
            number = start // _BLOCK
            content = self._block(number, -(-stop // _BLOCK))
            first = start - number * _BLOCK
            part = content[first : first + stop - start]
            yield part
            start += len(part)

    def _block(self, number: int, end: int) -> bytes:
        """Return a block; the missing ones after it, before ``end``, are fetched with it by one request."""
        if self._last[0] == number:
            return self._last[1]
        cache = self._origin.cache
        content = cache.get(self._key(number))
        if content is None:
            last = number + 1
            while last < min(end, number + _CHUNK // _BLOCK) and self._key(last) not in cache:
                last += 1
            begin, stop = number * _BLOCK, min(last * _BLOCK, self._size)
            fetched_bytes = read_range(self._origin.fs, self._pointer, begin, stop)
            for one in range(number, last):
                offset = (one - number) * _BLOCK
                cache.put(self._key(one), fetched_bytes[offset : offset + _BLOCK])
            content = fetched_bytes[:_BLOCK]
        self._last = (number, content)
        return content

    def _key(self, number: int) -> str:
        return f"{self._pointer.place}\n{self._size}\n{self._pointer.version}\n{_BLOCK}\n{number}"
