"""Where a server may be reached. Without keys that is this machine alone."""

from __future__ import annotations

import ipaddress
import re

from hal.errors import WireError

__all__ = ["check_loopback"]

_TCP = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:]+\]|[^:\s/]+):(?P<port>\*|[0-9]{1,5})")


def check_loopback(address: str) -> str:
    """The address itself, if only programs on this machine can reach it.

    Args:
        address: a ZeroMQ endpoint: ``tcp://127.0.0.1:<port>`` (``*``: any free port, for a server), another
            loopback address, or ``ipc://<path>``.

    Raises:
        WireError: it is no such endpoint, or other machines could reach it.
    """
    if address.startswith("ipc://") and len(address) > len("ipc://"):
        return address
    match = _TCP.fullmatch(address)
    if match is None or (match["port"] != "*" and not 0 < int(match["port"]) < 65536):
        raise WireError(f"address {address!r} is not understood; write it as tcp://127.0.0.1:5555")
    if not _is_loopback(match["host"].strip("[]")):
        raise WireError(
            f"address {address!r} can be reached from other machines, and this wire has no keys: whoever reaches it "
            "could move the robot. Allowed is loopback, as tcp://127.0.0.1:5555; an SSH tunnel leads there from afar"
        )
    return address


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, * or an interface
        return False
