"""Keys as files: a CURVE key pair a machine, and the list of the clients that a robot lets in."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import zmq
from zmq.utils import z85

__all__ = ["Allowed", "Entry", "KeyPair", "Role", "allow", "load_pair", "load_server", "new_pair"]

SECRET, SERVER, ALLOWED = "secret.key", "server.key", "allowed.keys"
"""In a folder: its owner's secret key; on a client, the robot's public key; on a robot, who is let in."""

CONTROL, TELEMETRY = "control", "telemetry"
"""ZAP domains: the socket that takes commands, and the sockets that only publish."""

_KEY = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")


class Role(StrEnum):
    """The rights of a key's owner. Anyone with a role may stop the robot."""

    OPERATE = "operate"  # as move, and take the robot from whoever holds it
    MOVE = "move"  # reset and step, watch, stop
    WATCH = "watch"  # read the description and the telemetry, stop
    STOP = "stop"  # nothing else: a stop button


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A machine's identity: 32 bytes each, as 64 lower-case hexadecimal digits."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the list: who has which role."""

    key: str
    role: Role
    name: str


def new_pair(folder: str | Path, server: str | None = None) -> KeyPair:
    """Make a key pair in a folder that only its owner can read.

    Args:
        folder: is made if need be.
        server: for a client, the public key of the robot's controller, which it will talk to and to no other.

    Raises:
        ValueError: there is a key already, or ``server`` is no public key.
    """
    place = Path(folder)
    if server is not None:
        _checked(server, "the server's public key")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = z85.decode(zmq.curve_keypair()[1]).hex()
    try:
        _write_new(place / SECRET, secret + "\n")
    except FileExistsError:
        raise ValueError(
            f"{place / SECRET} exists; a new key would lock its owner out. Choose another folder"
        ) from None
    if server is not None:
        (place / SERVER).write_text(server + "\n", encoding="ascii")
    return load_pair(place)


def load_pair(folder: str | Path) -> KeyPair:
    """Load the key pair from a folder.

    Raises:
        ValueError: there is none, it is damaged, or other users of this machine can read it.
    """
    path = Path(folder) / SECRET
    try:
        mode = path.stat().st_mode & 0o777
        secret = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise ValueError(f"no key in {path}: {error.strerror}; make one with `rlenv-robot keys new {folder}`") from None
    if mode & 0o077:
        raise ValueError(f"{path} has mode {mode:04o}, so others can read this secret; run chmod 600 {path}")
    _checked(secret, str(path))
    public = z85.decode(zmq.curve_public(z85.encode(bytes.fromhex(secret)))).hex()
    return KeyPair(public, secret)


def load_server(folder: str | Path) -> str:
    """Load the public key of the robot that a client's folder is for.

    Raises:
        ValueError: there is none, or it is damaged.
    """
    path = Path(folder) / SERVER
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise ValueError(
            f"no key of the robot's controller in {path}: {error.strerror}; `rlenv-robot keys show` prints it there, "
            f"and it belongs into this file"
        ) from None
    return _checked(text.strip(), str(path))


def allow(folder: str | Path, key: str, role: Role, name: str) -> None:
    """Let a client in, or change its role. A running server takes it up at once.

    Args:
        folder: of the server.
        key: the client's public key.
        role: what it may do.
        name: for messages: Latin letters, digits and ``. _ @ -``, at most 64.

    Raises:
        ValueError: key or name are wrong, or the list in the folder is damaged.
    """
    _checked(key, "the public key")
    if not _NAME.fullmatch(name):
        raise ValueError(f"name {name!r} is not 1 to 64 Latin letters, digits and . _ @ -")
    path = Path(folder) / ALLOWED
    entries = {**(_entries(path) if path.exists() else {}), key: Entry(key, role, name)}
    draft = path.with_suffix(f".{os.getpid()}")
    draft.unlink(missing_ok=True)
    _write_new(draft, "".join(f"{entry.key} {entry.role} {entry.name}\n" for entry in entries.values()))
    draft.replace(path)  # whole or not at all, whoever reads it now


class Allowed:
    """The list of a server's folder, as it stands: an edit counts from the next `refresh` on.

    A list that was damaged while the server runs lets nobody in, and the reason is kept.

    Args:
        folder: of the server.

    Raises:
        ValueError: the list is damaged at the start.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / ALLOWED
        self.problem: str | None = None
        self._mark: object = None
        self._entries: dict[str, Entry] = {}
        self.refresh()
        if self.problem is not None:
            raise ValueError(self.problem)

    def refresh(self) -> bool:
        """Read the file anew if it has changed; whether it had."""
        try:
            status = self.path.stat()
            mark: object = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            mark = None
        if mark == self._mark:
            return False
        self._mark, self.problem = mark, None
        try:
            self._entries = {} if mark is None else _entries(self.path)
        except (OSError, ValueError) as error:
            self._entries, self.problem = {}, str(error)
        return True

    def find(self, key: str) -> Entry | None:
        """Return the line of a public key, or None."""
        return self._entries.get(key)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())


def _entries(path: Path) -> dict[str, Entry]:
    entries = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or not _KEY.fullmatch(words[0]) or words[1] not in list(Role):
            roles = ", ".join(Role)
            raise ValueError(f"{path}, line {number}: wanted is `<64 hexadecimal digits> <{roles}> <name>`")
        entries[words[0]] = Entry(words[0], Role(words[1]), words[2])
    return entries


def _checked(key: str, what: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"{what} is not a key: wanted are 64 lower-case hexadecimal digits, got {len(key)} characters")
    return key


def _write_new(path: Path, text: str) -> None:
    """A file that did not exist, readable by its owner alone from its first moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
