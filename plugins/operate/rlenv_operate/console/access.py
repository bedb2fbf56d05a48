"""Admit visitors by their tokens, and browsers by the ``Host`` and ``Origin`` of their requests."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from real.protocol.keys import Allowed, Entry, Role, allow, revoke

__all__ = ["Origins", "Tokens", "Visitor", "is_loopback", "new_token", "revoke_token"]


@dataclass(frozen=True, slots=True)
class Visitor:
    """A person who logged in with a valid token.

    Attributes:
        name: as written to the log of acts.
        role: the person's rights.
        digest: SHA-256 of the token, in hexadecimal digits.
    """

    name: str
    role: Role
    digest: str = ""

    @property
    def id(self) -> str:
        """The first 16 digits of the digest, which are public and distinguish visitors of the same name."""
        return self.digest[:16]

    def is_same(self, other: Visitor | None) -> bool:
        """Return whether another visitor has the same token, in any role."""
        return other is not None and self.digest == other.digest


class Tokens:
    """The tokens of a console: a list in a folder, or one token that is valid while the process runs.

    The list has the format of `rlenv-robot robot keys`, with the SHA-256 of each token in place of a key, so the folder
    reveals no token. The list is read again at each message, so an edit, a revocation or an expiry takes effect at the
    next one. The methods may be called from any thread.

    Args:
        folder: the folder of the list; None creates one token of the role ``operate``, which `own` holds.
        owner: name of the visitor with that token.

    Attributes:
        own: the token that was created; None with a folder.

    Raises:
        ValueError: the list is damaged or empty, or other users can write it.
    """

    def __init__(self, folder: str | Path | None, owner: str = "operator") -> None:
        self.own: str | None = None
        self._lock = threading.Lock()
        self._allowed: Allowed | None = None
        self._single: list[Entry] = []
        if folder is None:
            self.own = secrets.token_urlsafe(32)
            self._single = [Entry(_digest(self.own), Role.OPERATE, owner)]
        else:
            self._allowed = Allowed(folder)
            if not list(self._allowed):
                raise ValueError(
                    f"no token is on the list of {folder}, so nobody could log in; make one with "
                    f"`rlenv-robot operate tokens new {folder} --name NAME --role ROLE`"
                )

    def admit(self, token: str) -> Visitor | None:
        """Return the visitor with a token, or None if the token is invalid.

        Every entry is compared in constant time, so the duration reveals nothing about a token.
        """
        digest, found = _digest(token), None
        for key in self._keys():
            if hmac.compare_digest(key, digest):
                found = key
        return None if found is None else self._visitor(found)

    def current(self, visitor: Visitor) -> Visitor | None:
        """Return a visitor with the present rights, or None if the token was revoked or has expired."""
        return self._visitor(visitor.digest)

    def _visitor(self, digest: str) -> Visitor | None:
        if self._allowed is None:
            entry = next((entry for entry in self._single if entry.key == digest), None)
        else:
            with self._lock:  # another thread may be reading the list anew, and the old rights must not count meanwhile
                self._allowed.refresh()
                entry = self._allowed.find(digest)
        return None if entry is None else Visitor(entry.name, entry.role, digest)

    def _keys(self) -> Collection[str]:
        if self._allowed is None:
            return [entry.key for entry in self._single]
        with self._lock:
            self._allowed.refresh()
            return [entry.key for entry in self._allowed]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def new_token(folder: str | Path, name: str, role: Role, until: datetime | None = None) -> str:
    """Create a token, add its digest to the list in a folder, and return the token, which is stored nowhere.

    Args:
        folder: created if missing, readable by its owner only.
        name: the name of the visitor, for the log of acts; must be unique on the list.
        role: the visitor's rights.
        until: when the rights expire, with a time zone; None for never.

    Raises:
        ValueError: the name or the time is not allowed, another token has the name, or other users can write the
            folder.
    """
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    allow(folder, _digest(token), role, name, until, unique=True)
    return token


def revoke_token(folder: str | Path, name: str) -> int:
    """Remove all tokens of a visitor from the list, and return their number.

    Raises:
        ValueError: the list has no such name.
    """
    return len(revoke(folder, name))


# -- Browsers --------------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Return whether an address or name is a loopback one, which no other machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Origins:
    """The host names and the origin under which browsers may reach this console.

    Pages of another origin are refused, and so are names that a foreign DNS server points to this machine.

    Args:
        hosts: names and addresses without a port.
        port: the port on which the console listens.
        tls: whether the console speaks HTTPS.
    """

    def __init__(self, hosts: Collection[str], port: int, *, tls: bool) -> None:
        names = {f"[{host}]" if ":" in host and not host.startswith("[") else host.lower() for host in hosts}
        if any(is_loopback(host) for host in hosts):
            names |= {"localhost", "127.0.0.1", "[::1]"}
        self._hosts = {f"{name}:{port}" for name in names}
        if port == (443 if tls else 80):
            self._hosts |= names
        scheme = "https" if tls else "http"
        self._origins = {f"{scheme}://{host}" for host in self._hosts}

    def serves(self, host: str | None) -> bool:
        """Return whether the ``Host`` of a request is one of this console's names."""
        return host is not None and host.lower() in self._hosts

    def trusts(self, origin: str | None) -> bool:
        """Return whether the ``Origin`` of a request is this console's page; a missing ``Origin`` is refused."""
        return origin is not None and origin.lower() in self._origins
