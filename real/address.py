"""Where a server may be reached. Without keys that is this machine alone."""

from __future__ import annotations

import ipaddress
import re

from hal.errors import WireError

__all__ = ["check_address"]

_TCP = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:]+\]|[^:\s/]+):(?P<port>\*|[0-9]{1,5})")


def check_address(address: str, *, keys: bool = False) -> str:
    """The address itself, if it is understood, and only programs on this machine can reach it or there are keys.

    Args:
        address: a ZeroMQ endpoint: ``tcp://<host or interface>:<port>`` (port ``*``: any free one, for a server), or
            ``ipc://<path>``.
        keys: whether the connection is encrypted and both ends are known by their keys.

    Raises:
        WireError: it is no such endpoint, or other machines could reach it and there are no keys.
    """
    if address.startswith("ipc://") and len(address) > len("ipc://"):
        return address
    match = _TCP.fullmatch(address)
    if match is None or (match["port"] != "*" and not 0 < int(match["port"]) < 65536):
        raise WireError(f"address {address!r} is not understood; write it as tcp://127.0.0.1:5555")
    if not keys and not _is_loopback(match["host"].strip("[]")):
        raise WireError(
            f"address {address!r} can be reached from other machines, and no keys were given: whoever reaches it "
            "could move the robot. Give keys=<folder> (`rlenv-robot keys new` makes one), or stay on loopback, "
            "as tcp://127.0.0.1:5555"
        )
    return address


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, * or an interface
        return False
