"""Datagrams of steps and their answers: a channel, a counter and one message, sealed where there are keys."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from hal.errors import WireError

__all__ = [
    "CHANNEL_BYTES", "MOST_BYTES", "MOST_MESSAGE_BYTES", "RESEND_S", "ChannelOffer", "DatagramCodec",
    "datagram_address", "sealing_missing",
]  # fmt: skip

CHANNEL_BYTES, KEY_BYTES = 8, 32

MOST_BYTES = 1200
"""Of a datagram; every path of the internet carries so many unbroken (RFC 9000, section 14)."""

RESEND_S = 0.01
"""Time between two copies of a step that was not answered, seconds; a lossy network's first one waits as long."""

_HEAD = struct.Struct(">8sQ")
_SEAL_BYTES = 16
MOST_MESSAGE_BYTES = MOST_BYTES - _HEAD.size - _SEAL_BYTES

_FROM_CLIENT, _FROM_SERVER = b"\0\0\0\0", b"\0\0\0\1"
"""First four bytes of a nonce; the other eight are the counter. So no nonce is used twice with one key."""


@dataclass(frozen=True, slots=True)
class ChannelOffer:
    """The part of a welcome that lets the client that may move the robot send datagrams.

    Attributes:
        channel: 8 random bytes, the first of every datagram.
        key: of ChaCha20-Poly1305, 32 random bytes; None where the connection is not encrypted either.
        resend_s: longest time that a client may wait for an answer before it sends a step again, seconds; so long, a
            lost datagram does not cost an episode.
    """

    channel: bytes
    key: bytes | None
    resend_s: float = RESEND_S

    def to_dict(self) -> dict[str, Any]:
        """Return the offer for the wire."""
        return {"channel": self.channel, "key": self.key, "resend_s": self.resend_s}

    @classmethod
    def from_dict(cls, data: Any) -> ChannelOffer:
        """Return the offer that `to_dict` wrote.

        Raises:
            WireError: the data are no offer.
        """
        match data:
            case {"channel": bytes(channel), "key": bytes() | None as key} if len(channel) == CHANNEL_BYTES and (
                key is None or len(key) == KEY_BYTES
            ):
                resend_s = data.get("resend_s", RESEND_S)  # servers that do not say wait for the first copy so long
                if type(resend_s) is float and 0 < resend_s < math.inf:
                    return cls(channel, key, resend_s)
        raise WireError(
            f"the welcome's datagrams are {data!r:.80}, they must have a channel of {CHANNEL_BYTES} bytes, a key of "
            f"{KEY_BYTES} bytes or nil, and as resend_s seconds above 0"
        )


def sealing_missing() -> str | None:
    """Return why datagrams can't be encrypted in this installation, or None."""
    if find_spec("cryptography") is not None:
        return None
    return "the package cryptography, which encrypts datagrams, is not installed: pip install cryptography"


class DatagramCodec:
    """Seal and open the datagrams of one end of a channel. For one thread at a time.

    Each datagram is the channel's 8 bytes, a counter of 8 bytes and a message. With a key the message is encrypted, and
    all three are authenticated, by ChaCha20-Poly1305 (RFC 8439).

    Args:
        offer: the channel and its key.
        server: whether this is the server's end.

    Attributes:
        channel: the first bytes of every datagram.
    """

    def __init__(self, offer: ChannelOffer, *, server: bool) -> None:
        self.channel = offer.channel
        self._cipher = None if offer.key is None else _cipher(offer.key)
        self._sent = self._received = 0
        self._out, self._in = (_FROM_SERVER, _FROM_CLIENT) if server else (_FROM_CLIENT, _FROM_SERVER)

    def seal(self, message: bytes) -> bytes:
        """Return the datagram of a message, which differs from all before."""
        self._sent += 1
        head = _HEAD.pack(self.channel, self._sent)
        if self._cipher is None:
            return head + message
        sealed: bytes = self._cipher.encrypt(self._out + head[8:], message, head)
        return head + sealed

    def open(self, datagram: bytes) -> bytes | None:
        """Return the message of a datagram.

        Returns:
            None where the datagram is too long or short, not of this channel, not sealed by the other end, or its
            counter is not above those of all datagrams that were opened before.
        """
        if not _HEAD.size <= len(datagram) <= MOST_BYTES:
            return None
        channel, counter = _HEAD.unpack_from(datagram)
        if channel != self.channel or counter <= self._received:
            return None
        message = datagram[_HEAD.size :]
        if self._cipher is not None:
            try:
                message = self._cipher.decrypt(self._in + datagram[8 : _HEAD.size], message, datagram[: _HEAD.size])
            except Exception:  # cryptography raises InvalidTag, or ValueError where even the tag is not complete
                return None
        self._received = counter
        return message


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305  # only where keys are used

    return ChaCha20Poly1305(key)


def datagram_address(endpoint: str) -> tuple[str, int] | None:
    """Return the host and the port at which datagrams go to a ZeroMQ endpoint: the same ones; None for ``ipc://``."""
    scheme, _, rest = endpoint.partition("://")
    host, _, port = rest.rpartition(":")
    return (host.strip("[]"), int(port)) if scheme == "tcp" else None
