"""A client's end of a channel of datagrams: sends a step again until its answer is there."""

from __future__ import annotations

import contextlib
import socket
import time

from real.protocol.datagrams import MOST_BYTES, RESEND_S, ChannelOffer, DatagramCodec

__all__ = ["DatagramPath"]

_PROBE_S = 0.5
"""Longest wait for a sign that datagrams get through, seconds; then steps go by ZeroMQ."""


class DatagramPath:
    """Send messages to a server as datagrams, and receive its answers. For one thread at a time.

    Args:
        address: host and port.
        offer: the channel, from the server's welcome.

    Attributes:
        sent: datagrams that were sent, copies included.
        refused: datagrams that came from the server's address and were not its own, or not new.

    Raises:
        OSError: the host is not known, or not reachable.
    """

    def __init__(self, address: tuple[str, int], offer: ChannelOffer) -> None:
        self.sent = self.refused = 0
        self._nobody = False
        self._codec = DatagramCodec(offer, server=False)
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.settimeout(RESEND_S)
        try:
            self._socket.connect(address)
        except OSError:
            self._socket.close()
            raise

    def send(self, message: bytes) -> None:
        """Send a message; whether it arrives is not known before its answer."""
        self.sent += 1
        with contextlib.suppress(OSError):  # no route just now, or an earlier one was refused: it is sent again
            self._socket.send(self._codec.seal(message))

    def receive(self) -> bytes | None:
        """Return the next message of the server, or None where none came within `RESEND_S`."""
        until_s = 0.0
        while True:
            try:
                datagram = self._socket.recv(MOST_BYTES + 1)
            except TimeoutError:
                return None
            except OSError as error:  # known at once, and no reason to hurry: a server may be starting anew
                self._nobody = isinstance(error, ConnectionRefusedError)
                time.sleep(RESEND_S)
                return None
            message = self._codec.open(datagram)
            if message is not None:
                return message
            self.refused += 1
            now_s = time.monotonic()
            until_s = until_s or now_s + RESEND_S
            if now_s > until_s:
                return None

    def why_not(self) -> str | None:
        """Try the path with empty messages, which the server answers. Return why it can't be used, or None."""
        until_s = time.monotonic() + _PROBE_S
        while time.monotonic() < until_s:
            self.send(b"")
            if self.receive() == b"":
                return None
            if self._nobody:
                return "nobody has this port of UDP there"
        return f"no datagram came back within {_PROBE_S:g} s, as if a firewall lets none through"

    def close(self) -> None:
        """Close the socket. Calling it twice is allowed."""
        self._socket.close()
