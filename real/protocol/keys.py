"""Keep keys in files: a CURVE key pair for each machine, and the list of clients that a robot admits."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import zmq
from zmq.utils import z85

from hal.atomic_file import atomic_write

__all__ = [
    "Allowed", "Entry", "KeyPair", "Role", "allow", "last_seen", "load_pair", "load_server", "new_pair", "note_seen",
    "revoke",
]  # fmt: skip

SECRET, SERVER, ALLOWED = "secret.key", "server.key", "allowed.keys"
"""Files in a folder of keys: the secret key; on a client the robot's public key; on a robot the list of clients."""

CONTROL, TELEMETRY, STOPS = "control", "telemetry", "stops"
"""ZAP domains: the socket for commands, the sockets that only publish, and the socket for stops."""

SEEN = "seen"
"""Folder in a server's folder with an empty file for each client; the file's time is that of its last connection."""

_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Role(StrEnum):
    """The rights of a key's owner. Every role may stop the robot."""

    OPERATE = "operate"  # as move, and take the robot from whoever holds it
    MOVE = "move"  # reset and step, watch, stop
    WATCH = "watch"  # read the description and the telemetry, stop
    STOP = "stop"  # nothing else: a stop button


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The keys that identify a machine: 32 bytes each, as 64 lower-case hexadecimal digits."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list: a client's key, role and name.

    Attributes:
        since: when the line was written; None in a list of an earlier version.
        until: when the key's rights end; None for never.
    """

    key: str
    role: Role
    name: str
    since: datetime | None = None
    until: datetime | None = None

    def expired(self, now_s: float) -> str | None:
        """Return why the entry gives no rights at a time (seconds since 1970), or None if it does.

        A clock before ``since`` has been set back, which would revive expired keys; the entry then also counts as
        expired.
        """
        if self.until is None:
            return None
        if now_s >= self.until.timestamp():
            return f"expired at {_time_text(self.until)}"
        if self.since is not None and now_s < self.since.timestamp():
            return f"is from {_time_text(self.since)} and has an end, and this machine's clock is before that"
        return None


def new_pair(folder: str | Path, server: str | None = None) -> KeyPair:
    """Make a key pair in a folder that only its owner can read.

    Args:
        folder: folder of the keys, made if it is missing.
        server: for a client, the public key of the only controller to which it will connect.

    Raises:
        ValueError: there already is a key, ``server`` is not a public key, or other users may write to the folder.
    """
    place = Path(folder)
    if server is not None:
        _checked(server, "the server's public key")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_writers(place)
    secret = z85.decode(zmq.curve_keypair()[1]).hex()
    try:
        _write_new(place / SECRET, secret + "\n")
    except FileExistsError:
        raise ValueError(
            f"{place / SECRET} exists; a new key would lock its owner out. Choose another folder"
        ) from None
    if server is not None:
        _write_private(place / SERVER, server + "\n")
    return load_pair(place)


def load_pair(folder: str | Path) -> KeyPair:
    """Load the key pair from a folder.

    Raises:
        ValueError: the key is missing or damaged, or other users of this machine can read or replace it.
    """
    path = Path(folder) / SECRET
    _check_writers(path.parent)
    try:
        mode = path.stat().st_mode & 0o777
        secret = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise ValueError(
            f"no key in {path}: {error.strerror}; make one with `rlenv-robot robot keys new {folder}`"
        ) from None
    if mode & 0o077:
        raise ValueError(f"{path} has mode {mode:04o}, so others can read this secret; run chmod 600 {path}")
    _checked(secret, str(path))
    public = z85.decode(zmq.curve_public(z85.encode(bytes.fromhex(secret)))).hex()
    return KeyPair(public, secret)


def load_server(folder: str | Path) -> str:
    """Load the public key of the robot that a client's folder is for.

    Raises:
        ValueError: the key is missing or damaged, or other users of this machine can write it.
    """
    path = Path(folder) / SERVER
    _check_writers(path.parent, path)
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ValueError(
            f"no key of the robot's controller in {path}: {error.strerror}; `rlenv-robot robot keys show` prints it "
            "there, and it belongs into this file"
        ) from None
    return _checked(text.strip(), str(path))


# -- The list of a server's clients ---------------------------------------------------------------------------


def allow(
    folder: str | Path,
    key: str,
    role: Role,
    name: str,
    until: datetime | None = None,
    now: Callable[[], float] = time.time,
    *,
    unique: bool = False,
) -> None:
    """Admit a client, or change its role, name and expiry. A running server applies this at once.

    Several programs may do this at the same time without losing an entry.

    Args:
        folder: the server's folder.
        key: the client's public key.
        role: the client's role.
        name: name for messages: Latin letters, digits and ``. _ @ -``, at most 64.
        until: when the client's rights end, with a time zone; None for never.
        now: this machine's time of day, seconds since 1970.
        unique: whether to refuse the name of another key.

    Raises:
        ValueError: key, name or expiry is invalid, another key has the name, the list in the folder is damaged, or
            other users can write it.
    """
    _checked(key, "the public key")
    if not _NAME.fullmatch(name):
        raise ValueError(f"name {name!r} is not 1 to 64 Latin letters, digits and . _ @ -")
    since = datetime.fromtimestamp(int(now()), UTC)
    if until is not None and until.tzinfo is None:
        raise ValueError(f"the end {until} has no time zone; give it as UTC")
    if until is not None and until <= since:
        raise ValueError(f"the end {_time_text(until)} has passed; allowed are times after {_time_text(since)}")
    entry = Entry(key, role, name, since, until)
    with _changing(folder) as lines:
        others = _entries(lines, Path(folder) / ALLOWED).values() if unique else ()
        if any(other.name == name and other.key != key for other in others):
            raise ValueError(
                f"the list of {folder} has a {name!r} already; choose another name, or revoke that one first"
            )
        at = next((number for number, line in enumerate(lines) if line.split()[:1] == [key]), len(lines))
        lines[at : at + 1] = [_line(entry)]


def revoke(folder: str | Path, client: str) -> list[Entry]:
    """Remove a client from the list. A running server cuts its connections within a second.

    Args:
        folder: the server's folder.
        client: a public key, or a name, which removes all keys of that name.

    Returns:
        The removed entries.

    Raises:
        ValueError: the client is not on the list, the list is damaged, or other users can write it.
    """
    with _changing(folder) as lines:
        entries = list(_entries(lines, Path(folder) / ALLOWED).values())
        revoked = [entry for entry in entries if client in (entry.key, entry.name)]
        if not revoked:
            names = ", ".join(sorted({entry.name for entry in entries})) or "nobody"
            raise ValueError(f"no client {client!r:.80} is on the list of {folder}; on it: {names}")
        keys = {entry.key for entry in revoked}
        lines[:] = [line for line in lines if not line.split() or line.split()[0] not in keys]
    return revoked


def note_seen(folder: str | Path, key: str) -> None:
    """Record that a client connects now; do nothing if the folder can't be written."""
    with suppress(OSError):
        (Path(folder) / SEEN).mkdir(mode=0o700, exist_ok=True)
        (Path(folder) / SEEN / key).touch(0o600)


def last_seen(folder: str | Path, key: str) -> datetime | None:
    """Return when a client last connected, or None if that is unknown."""
    try:
        return datetime.fromtimestamp(int((Path(folder) / SEEN / key).stat().st_mtime), UTC)
    except OSError:
        return None


class Allowed:
    """Read the list of clients in a server's folder; an edit takes effect at the next `refresh`.

    If the list is damaged or becomes writable for other users while the server runs, it admits nobody; `problem` has
    the reason.

    Args:
        folder: the server's folder.
        now: this machine's time of day, seconds since 1970; it decides which keys have expired.

    Attributes:
        path: path of the list.
        problem: why the list admits nobody, or None.

    Raises:
        ValueError: the list is damaged at the start, or other users can write it.
    """

    def __init__(self, folder: str | Path, now: Callable[[], float] = time.time) -> None:
        self.path = Path(folder) / ALLOWED
        self.problem: str | None = None
        self._now = now
        self._mark: object = None
        self._entries: dict[str, Entry] = {}
        self.refresh()
        if self.problem is not None:
            raise ValueError(self.problem)

    def refresh(self) -> bool:
        """Read the file again if it has changed; return whether it had."""
        try:
            status, folder = self.path.stat(), self.path.parent.stat()
            mark: object = (status.st_mtime_ns, status.st_size, status.st_ino, status.st_mode, folder.st_mode)
        except OSError:
            mark = None
        if mark == self._mark:
            return False
        self._mark, self.problem = mark, None
        try:
            self._entries = {} if mark is None else _entries(_read_lines(self.path), self.path)
        except (OSError, ValueError) as error:
            self._entries, self.problem = {}, str(error)
        return True

    def find(self, key: str) -> Entry | None:
        """Return the entry of a public key if it has not expired, or None."""
        entry = self._entries.get(key)
        return None if entry is None or entry.expired(self._now()) else entry

    def refusal(self, key: str) -> str | None:
        """Return why a public key has no rights, for a message that begins with "this key"; None if it has."""
        entry = self._entries.get(key)
        if entry is None:
            return f"is refused, since {self.problem}" if self.problem else "is not on the server's list"
        return entry.expired(self._now())

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())


def _entries(lines: list[str], path: Path) -> dict[str, Entry]:
    entries = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            key, role, name, *times = words
            named = dict(word.split("=", 1) for word in times)
            since, until = named.pop("since", None), named.pop("until", None)
            if not _KEY.fullmatch(key) or named:
                raise ValueError
            entries[key] = Entry(key, Role(role), name, _time(since), _time(until))
        except ValueError:
            roles = ", ".join(Role)
            raise ValueError(
                f"{path}, line {number}: expected `<64 hexadecimal digits> <{roles}> <name>`, "
                "then perhaps `since=<time>` and `until=<time>` as 2026-12-31T18:00:00Z"
            ) from None
    return entries


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    time_of_day = datetime.fromisoformat(text)
    return time_of_day if time_of_day.tzinfo is not None else time_of_day.replace(tzinfo=UTC)


def _time_text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _line(entry: Entry) -> str:
    times = {"since": entry.since, "until": entry.until}
    ends = [f"{name}={_time_text(moment)}" for name, moment in times.items() if moment is not None]
    return " ".join([entry.key, entry.role, entry.name, *ends])


def _read_lines(path: Path) -> list[str]:
    _check_writers(path.parent, path)
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


@contextmanager
def _changing(folder: str | Path) -> Iterator[list[str]]:
    """Lend the lines of a server's list, and write them when they were changed; one program at a time.

    The lock is on the folder: the list itself is replaced, so a lock on it would be on a file that is gone.
    """
    import fcntl  # not on Windows, where a client may run, but no server

    path = Path(folder) / ALLOWED
    try:
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ValueError(
            f"no keys in {folder}: {error.strerror}; `rlenv-robot robot keys new {folder}` makes them"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _check_writers(path.parent)
        lines = _read_lines(path) if path.exists() else []
        _entries(lines, path)
        yield lines
        _write_private(path, "".join(f"{line}\n" for line in lines))
    finally:
        os.close(lock)


def _checked(key: str, what: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{what} is not a key: expected 64 lower-case hexadecimal digits, got {len(key)} characters")
    return key


def _check_writers(*paths: Path) -> None:
    """Refuse files and folders that other users of this machine may write; what is missing passes.

    Raises:
        ValueError: with the command that mends it.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode & 0o7777
        except OSError:
            continue
        if os.name == "posix" and mode & 0o022:
            raise ValueError(
                f"{path} has mode {mode:04o}, so others can change who is let in or which robot is trusted; "
                f"run chmod go-w {path}"
            )


def _write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone can read."""
    with atomic_write(path, mode=0o600) as part:
        part.write_text(text, encoding="utf-8")


def _write_new(path: Path, text: str) -> None:
    """Write a file that did not exist, readable by its owner alone from its first moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
