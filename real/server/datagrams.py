"""The server's UDP socket: steps of the client that may move the robot, each executed once, and their answers."""

from __future__ import annotations

import array
import contextlib
import logging
import secrets
import select
import socket
import struct
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hal.robot import RobotSpec
from real.protocol.datagrams import (
    CHANNEL_BYTES,
    KEY_BYTES,
    MOST_BYTES,
    MOST_MESSAGE_BYTES,
    RESEND_S,
    ChannelOffer,
    DatagramCodec,
    datagram_address,
    sealing_missing,
)

__all__ = ["Channel", "DatagramServer", "latest_resend", "why_no_datagrams"]

_log = logging.getLogger(__name__)

_CHANNELS = 4
"""Channels that are kept: the newest, and those before it, whose clients are answered that their session has ended."""

_LATEST_RESEND_S = 0.1
"""Longest wait for an answer before a step is sent again, whatever the watchdog allows, seconds."""

_HEADER_BYTES = 160
"""Most bytes of a message without its row, ages and faults."""


def why_no_datagrams(spec: RobotSpec, endpoint: str, sealed: bool) -> str | None:
    """Return why the steps of a robot can't go by datagrams, or None."""
    if datagram_address(endpoint) is None:
        return f"{endpoint} is no TCP endpoint"
    commands, sensors = spec.commands.row_dtype.itemsize, spec.sensors.row_dtype.itemsize
    size, most = commands + sensors, MOST_MESSAGE_BYTES - _HEADER_BYTES
    if size > most:
        return f"a state of {spec.name} has {size} bytes, a datagram carries {most}"
    return sealing_missing() if sealed else None


def latest_resend(watchdog_s: float | None, period_s: float) -> float:
    """Return how long a client may wait for an answer before it sends a step again, seconds (`ChannelOffer.resend_s`).

    At most a third of what the watchdog leaves after one control period, so that a lost step costs no episode.

    Args:
        watchdog_s: longest silence, seconds; None in lockstep, which has no watchdog.
        period_s: of control, seconds.
    """
    allowed_s = _LATEST_RESEND_S if watchdog_s is None else (watchdog_s - period_s) / 3
    return max(min(allowed_s, _LATEST_RESEND_S), RESEND_S)


@dataclass(slots=True, eq=False)
class Channel:
    """The datagrams of one session.

    Attributes:
        codec: opens and seals them.
        session: that it was handed out for.
        key: public key of the connection that it was handed to; None where there are no keys.
        peer: that connection, for answers that are too large for a datagram.
        address: from which the newest datagram came.
        sequence: of the newest request.
        answer: to that request, once there is one.
        sent_s: when the answer was last sent, monotonic.
    """

    codec: DatagramCodec
    session: int
    key: str | None
    peer: bytes
    address: Any = None
    sequence: int = 0
    answer: bytes | None = None
    sent_s: float = 0.0


class DatagramServer:
    """Receive steps and send answers by UDP, at the address and the port number of the control socket.

    Datagrams count only within a channel, which the welcome hands to one client. Where the kernel has socket filters
    (Linux), it drops all others, so that they cost this process nothing. For one thread at a time; any may read the
    attributes and `to_dict`.

    Args:
        endpoint: of the control socket, ``tcp://<address>:<port>``.
        sealed: whether datagrams are encrypted, as is the control socket then.
        resend_s: longest wait of a client before it sends a step again, seconds (`latest_resend`).

    Attributes:
        refused: datagrams with a channel's number that were forged, damaged, or not newer than those before.
        repeated: datagrams that repeated a request, and were answered again or not at all.

    Raises:
        OSError: another socket has this address and port.
    """

    def __init__(self, endpoint: str, *, sealed: bool, resend_s: float = RESEND_S) -> None:
        address = datagram_address(endpoint)
        if address is None:
            raise OSError(f"{endpoint} is no TCP endpoint")
        self._sealed, self._resend_s = sealed, resend_s
        self._channels: dict[bytes, Channel] = {}
        self.refused = self.repeated = 0
        self._socket = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
            self._drop_strangers()
            self._socket.bind(address)
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 after `close`."""
        return self._socket.fileno()

    def offer(self, session: int, key: str | None, peer: bytes) -> ChannelOffer:
        """Open a channel for a session, and return what its client needs for it.

        Args:
            session: may use the channel. An earlier channel of the same session is closed.
            key: public key of the client's connection; None where there are no keys.
            peer: the client's connection.
        """
        self._channels = {name: each for name, each in self._channels.items() if each.session != session}
        while len(self._channels) >= _CHANNELS:
            del self._channels[next(iter(self._channels))]
        key_bytes = secrets.token_bytes(KEY_BYTES) if self._sealed else None
        offer = ChannelOffer(secrets.token_bytes(CHANNEL_BYTES), key_bytes, self._resend_s)
        self._channels[offer.channel] = Channel(DatagramCodec(offer, server=True), session, key, peer)
        self._drop_strangers()
        return offer

    def receive(self) -> tuple[Channel, bytes] | None:
        """Read one datagram, without waiting; return its channel and message.

        An empty message asks whether datagrams get through, and is answered by an empty one here.

        Returns:
            None where none came, it was refused, or it was answered here.
        """
        try:
            datagram, address = self._socket.recvfrom(MOST_BYTES + 1)
        except OSError:  # nothing waits; or the system reports that an earlier answer could not be delivered
            return None
        channel = self._channels.get(datagram[:CHANNEL_BYTES])
        message = None if channel is None else channel.codec.open(datagram)
        if channel is None or message is None:
            self.refused += 1
            return None
        channel.address = address
        if not message:
            self._send(channel, b"")
            return None
        return channel, message

    @property
    def more_wait(self) -> bool:
        """Whether another datagram has come that was not read yet."""
        return bool(self._poll.poll(0))

    def repeats(self, channel: Channel, sequence: int) -> bool:
        """Return whether a request is not a new one. The newest is answered again, if it was answered."""
        if sequence > channel.sequence:
            channel.sequence, channel.answer = sequence, None
            return False
        self.repeated += 1
        # Copies that waited here together are answered once, and an older request than the newest not at all.
        if sequence == channel.sequence and channel.answer is not None:
            now_s = time.monotonic()
            if now_s - channel.sent_s > RESEND_S / 2:
                channel.sent_s = now_s
                self._send(channel, channel.answer)
        return True

    def answer(self, channel: Channel, sequence: int, message: bytes) -> bool:
        """Send the answer to a request, and keep it for copies of that request.

        Returns:
            Whether it fits into a datagram; otherwise nothing was sent.
        """
        if len(message) > MOST_MESSAGE_BYTES:
            return False
        if sequence == channel.sequence:
            channel.answer, channel.sent_s = message, time.monotonic()
        with contextlib.suppress(OSError):  # as `_send`: once a step, so without a call more
            self._socket.sendto(channel.codec.seal(message), channel.address)
        return True

    def _send(self, channel: Channel, message: bytes) -> None:
        with contextlib.suppress(OSError):  # a lost answer is asked for again
            self._socket.sendto(channel.codec.seal(message), channel.address)

    def to_dict(self) -> dict[str, int]:
        """Return the counts: ``dropped`` by the kernel (strangers', or more than could wait), and the attributes."""
        return {"dropped": _dropped(self._socket), "refused": self.refused, "repeated": self.repeated}

    def _drop_strangers(self) -> None:
        if sys.platform == "linux":
            program = array.array("B", b"".join(_instructions(self._channels)))
            at, _ = program.buffer_info()
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program) // 8, at))

    def close(self) -> None:
        """Close the socket. Calling it twice is allowed."""
        self._socket.close()


# -- Linux alone: a filter in the kernel, and its count of what it dropped ------------------------------------


_SO_ATTACH_FILTER, _SO_MEMINFO = 26, 55
"""asm-generic/socket.h."""

_DROPS_AT = 32
"""Offset of SK_MEMINFO_DROPS in the nine 4-byte numbers of SO_MEMINFO (linux/sock_diag.h)."""

_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
"""linux/bpf_common.h: BPF_LD | BPF_W | BPF_ABS; BPF_JMP | BPF_JEQ | BPF_K; BPF_RET | BPF_K."""

_UDP_HEADER_BYTES = 8
"""A filter of a UDP socket sees the datagram with its UDP header (socket filters, networking/filter.rst)."""


def _instructions(channels: Iterable[bytes]) -> Iterable[bytes]:
    """Yield a BPF program that keeps datagrams that begin with one of the channels, 8 bytes an instruction."""
    for channel in channels:
        first, second = struct.unpack(">II", channel)
        yield struct.pack("=HBBI", _LOAD_WORD, 0, 0, _UDP_HEADER_BYTES)
        yield struct.pack("=HBBI", _JUMP_IF_EQUAL, 0, 3, first)
        yield struct.pack("=HBBI", _LOAD_WORD, 0, 0, _UDP_HEADER_BYTES + 4)
        yield struct.pack("=HBBI", _JUMP_IF_EQUAL, 0, 1, second)
        yield struct.pack("=HBBI", _RETURN, 0, 0, 0xFFFFFFFF)
    yield struct.pack("=HBBI", _RETURN, 0, 0, 0)


def _dropped(udp: socket.socket) -> int:
    try:
        counts = udp.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _DROPS_AT + 4)
    except OSError:  # closed, or no Linux
        return 0
    return int(struct.unpack_from("=I", counts, _DROPS_AT)[0]) if len(counts) >= _DROPS_AT + 4 else 0
