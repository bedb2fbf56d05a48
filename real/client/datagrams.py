"""A client's end of a channel of datagrams, and the time after which a step that was not answered is sent again."""

from __future__ import annotations

import contextlib
import math
import socket
import time

from real.protocol.datagrams import MOST_BYTES, RESEND_S, ChannelOffer, DatagramCodec

__all__ = ["LOSSY_S", "DatagramPath", "ResendTimer"]

_PROBE_S = 0.5
"""Longest wait for a sign that datagrams get through, seconds; then steps go by ZeroMQ."""

LOSSY_S = 10.0
"""Time after a late answer in which a network counts as lossy, seconds."""

_MARGIN_S = 0.005
"""Least time between an answer that comes as usual and the first copy of its step, seconds."""


class ResendTimer:
    """Decide when a step that was not answered is sent again for the first time.

    While no answer is late, a copy would be sent once the answer is late: later than answers usually take, by the mean
    and the mean deviation of the time that they took (as TCP does, RFC 6298). An answer that comes later shows that the
    network loses packets, or that an end pauses: for `LOSSY_S` the first copy then goes out after `RESEND_S` at most.

    Args:
        latest_s: longest time until the first copy, seconds (`ChannelOffer.resend_s`).

    Attributes:
        first_s: time from a step to its first copy, seconds.
    """

    def __init__(self, latest_s: float) -> None:
        self._latest_s = max(latest_s, RESEND_S)
        self._mean_s = self._deviation_s = 0.0
        self._late_s = self._lossy_until_s = 0.0  # an answer that takes longer is late; and until when it tells
        self.first_s = RESEND_S

    def note(self, asked_s: float, answered_s: float) -> None:
        """Take the times at which a step was first sent and its answer came, seconds of one monotonic clock."""
        took_s = answered_s - asked_s
        if not self._late_s:
            self._mean_s, self._deviation_s = took_s, took_s / 2
        elif took_s > self._late_s:
            self._lossy_until_s = answered_s + LOSSY_S
        error_s = min(took_s, 2 * self._latest_s) - self._mean_s
        self._mean_s += error_s / 8
        self._deviation_s += (abs(error_s) - self._deviation_s) / 4
        late_s = self._mean_s + max(4 * self._deviation_s, _MARGIN_S)
        # Whole milliseconds, so that it seldom changes: to change a socket's time limit is a call of the system.
        self._late_s = min(math.ceil(late_s * 1e3) / 1e3, self._latest_s)
        self.first_s = min(self._late_s, RESEND_S) if answered_s < self._lossy_until_s else self._late_s


class DatagramPath:
    """Send messages to a server as datagrams, and receive its answers. For one thread at a time.

    Args:
        address: host and port.
        offer: the channel, from the server's welcome.

    Attributes:
        timer: of the copies.
        sent: datagrams that were sent, copies included.
        refused: datagrams that came from the server's address and were not its own, or not new.

    Raises:
        OSError: the host is not known, or not reachable.
    """

    def __init__(self, address: tuple[str, int], offer: ChannelOffer) -> None:
        self.sent = self.refused = 0
        self.timer = ResendTimer(offer.resend_s)
        self._nobody = False
        self._codec = DatagramCodec(offer, server=False)
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._wait_s = RESEND_S
        self._socket.settimeout(self._wait_s)
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

    def receive(self, wait_s: float = RESEND_S) -> bytes | None:
        """Return the next message of the server, or None where none came within ``wait_s``, seconds."""
        if wait_s != self._wait_s:
            self._wait_s = wait_s
            self._socket.settimeout(wait_s)
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
            until_s = until_s or now_s + wait_s
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
