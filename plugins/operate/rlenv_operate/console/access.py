"""Admit visitors by their tokens, and browsers by the names in their requests."""

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
    """A person whose token was admitted.

    Attributes:
        name: in the log of acts.
        role: the rights.
        digest: SHA-256 of the token, in hexadecimal digits.
    """

    name: str
    role: Role
    digest: str = ""

    @property
    def id(self) -> str:
        """The first 16 digits of the digest, which is public: it tells visitors of the same name apart."""
        return self.digest[:16]

    def is_same(self, other: Visitor | None) -> bool:
        """Return whether another visitor has the same token, whatever its role was."""
        return other is not None and self.digest == other.digest


class Tokens:
    """The tokens of a console: a list in a folder, or one token that lives as long as the process.

    The list is that of `rlenv-robot robot keys`, with the SHA-256 of each token in the place of a key, so the folder
    shows no token. The list is looked at for each message, so an edit, a revocation or a token's end counts at the next
    one. Its methods may be called from any thread.

    Args:
        folder: of the list; None makes one token of the role ``operate``, which `own` has.
        owner: name of the visitor with that token.

    Attributes:
        own: the token that was made; None with a folder.

    Raises:
        ValueError: the list is damaged or empty, or others can write it.
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
        """Return the visitor of a token, or None where it has no rights.

        Every entry is compared in constant time, so the time tells nothing of a token.
        """
        digest, found = _digest(token), None
        for key in self._keys():
            if hmac.compare_digest(key, digest):
                found = key
        return None if found is None else self._visitor(found)

    def current(self, visitor: Visitor) -> Visitor | None:
        """Return a visitor with the rights of now, or None where the token was revoked or has expired."""
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
    """Make a token, put its digest on a folder's list, and return it; it is kept nowhere else.

    Args:
        folder: is made if need be, readable by its owner only.
        name: of the visitor, for the log of acts; no other token on the list may have it.
        role: what the visitor may do.
        until: when its rights end, with a time zone; None: never.

    Raises:
        ValueError: name or end are wrong, another token has the name, or others can write the folder.
    """
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    token = secrets.token_urlsafe(32)
    allow(folder, _digest(token), role, name, until, unique=True)
    return token


def revoke_token(folder: str | Path, name: str) -> int:
    """Take all tokens of a name off the list, and return their number.

    Raises:
        ValueError: the list has no such name.
    """
    return len(revoke(folder, name))


# -- Browsers --------------------------------------------------------------------------------------------------


def is_loopback(host: str) -> bool:
    """Return whether an address or name is this machine's own, so that no other machine reaches it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Origins:
    """The names under which this console may be reached.

    A page of another origin, and a name that a stranger's DNS server points to this machine, are both refused.

    Args:
        hosts: names and addresses without a port.
        port: on which the console listens.
        tls: whether it speaks HTTPS.
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
        """Return whether a request's ``Host`` is one of ours."""
        return host is not None and host.lower() in self._hosts

    def trusts(self, origin: str | None) -> bool:
        """Return whether a request's ``Origin`` is our own page; a request without one comes from no browser's page."""
        return origin is not None and origin.lower() in self._origins
