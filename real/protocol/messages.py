"""What goes over the wire: a small msgpack header, then raw rows. Drawn in docs/wire.md."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack
import zmq

from hal.errors import WireError

__all__ = [
    "MAX_FRAMES", "MAX_FRAME_BYTES", "MAX_HEADER_BYTES", "VERSION", "Message", "MessageKind", "check_address", "decode",
    "encode", "receive_frames", "send_frames", "unpack_data",
]  # fmt: skip

VERSION = 3
"""Of the protocol. It stays the header's first element in every version, so that a mismatch can be said."""

MAX_FRAMES = 18
"""Header, row and 16 images."""

MAX_HEADER_BYTES = 64 * 1024
MAX_FRAME_BYTES = 32 * 1024 * 1024
"""A raw picture of 3840 x 2160 pixels has 24 MiB."""

_MAX_TEXT, _MAX_ITEMS = 32 * 1024, 8192
_INLINE = 32 * 1024
"""A first frame of at most so many bytes rides in the header: a step is one frame then, and each costs a microsecond
or two in every pair of hands that it goes through."""
_MAX_NUMBER = 2**63


class MessageKind(IntEnum):
    """Message kinds: below 16 asked by a client, from 16 answered by a server."""

    HELLO = 1
    RESET = 2
    STEP = 3
    STOP = 4
    BYE = 5
    CONSENT = 6
    LOOK = 7
    JUDGE = 8
    WELCOME = 16
    READING = 17
    EVENT = 18
    ERROR = 19
    DONE = 20
    MISMATCH = 21


_KINDS = {int(kind): kind for kind in MessageKind}


class Message(NamedTuple):
    """One decoded message.

    Attributes:
        kind: what it is.
        session: given by the server's welcome; 0 before it.
        sequence: of the request, counted up from 1 in a session; an answer repeats it. An error about a
            message that could not be read carries 0.
        detail: plain data, by kind (see docs/wire.md).
        frames: the raw frames after the header.
        times: in nanoseconds of the server's monotonic clock. A client's step: when it was sent, as far as the
            client knows that clock. An answer: a pair, when its request came and when it left. Else None.
    """

    kind: MessageKind
    session: int
    sequence: int
    detail: Any = None
    frames: Sequence[Any] = ()
    times: Any = None


def encode(
    kind: MessageKind, session: int, sequence: int, detail: Any = None, frames: Sequence[Any] = (), times: Any = None
) -> list[Any]:
    """A message as frames for one multipart send.

    Raises:
        WireError: the detail is not plain data, or the message breaks the caps.
    """
    inline = bool(frames) and len(frames[0]) <= _INLINE
    body = (VERSION, kind, session, sequence, times, detail, frames[0] if inline else None)
    try:
        header = msgpack.packb(body, default=_plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"a {kind.name} message can carry numbers, text, lists and mappings only: {error}") from None
    parts = [header, *frames[inline:]]
    _check_sizes(parts)
    return parts


def _plain(value: Any) -> Any:
    """NumPy arrays and scalars as lists and numbers, for reset options."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"got a {type(value).__name__}")


def decode(parts: Sequence[Any]) -> Message:
    """The message in received frames. Sizes are checked before anything is unpacked.

    Raises:
        WireError: too many or too large frames, no header, another version, an unknown kind.
    """
    _check_sizes(parts)
    header = unpack_data(parts[0], "header")
    if not isinstance(header, list) or not header:
        raise WireError("the header is not a list; is the other side an rlenv-robot of another kind?")
    if header[0] != VERSION:
        raise WireError(
            f"the wire's version is {VERSION} here and {header[0]!r} there; "
            "install the same version of rlenv-robot on both sides"
        )
    if len(header) != 7:
        raise WireError(f"the header has {len(header)} elements, wanted are 7")
    _, kind, session, sequence, times, detail, row = header
    if type(kind) is not int or kind not in _KINDS:
        raise WireError(f"message kind {kind!r} is unknown, known are {', '.join(map(str, _KINDS))}")
    for name, number in (("session", session), ("sequence", sequence)):
        if type(number) is not int or not 0 <= number < _MAX_NUMBER:
            raise WireError(f"{name} {number!r} is not a whole number from 0 to 2**63 - 1")
    if times is not None:
        _check_times(times)
    if row is None:
        return Message(_KINDS[kind], session, sequence, detail, parts[1:], times)
    if type(row) is not bytes:
        raise WireError(f"the row in the header is a {type(row).__name__}, wanted are bytes")
    return Message(_KINDS[kind], session, sequence, detail, [row, *parts[1:]], times)


def _check_times(times: Any) -> None:
    numbers = times if isinstance(times, list) else [times]
    fits = len(numbers) == 2 or not isinstance(times, list)
    if not fits or not all(type(number) is int and -_MAX_NUMBER <= number < _MAX_NUMBER for number in numbers):
        raise WireError(f"times {times!r:.80} are neither a whole number of nanoseconds nor two")


def unpack_data(frame: Any, what: str) -> Any:
    """Plain data from one msgpack frame, with capped lengths and no extension types.

    Raises:
        WireError: it isn't that.
    """
    try:
        return msgpack.unpackb(
            frame,
            max_str_len=_MAX_TEXT,
            max_bin_len=_MAX_TEXT,
            max_array_len=_MAX_ITEMS,
            max_map_len=_MAX_ITEMS,
            max_ext_len=0,
        )
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"the {what} is not readable msgpack: {error or type(error).__name__}") from None


def _check_sizes(parts: Sequence[Any]) -> None:
    if not 1 <= len(parts) <= MAX_FRAMES:
        raise WireError(f"a message of {len(parts)} frames, allowed are 1 to {MAX_FRAMES}")
    if len(parts[0]) > MAX_HEADER_BYTES:
        raise WireError(f"a header of {len(parts[0])} bytes, allowed are {MAX_HEADER_BYTES}")
    for part in parts[1:]:
        if len(part) > MAX_FRAME_BYTES:
            raise WireError(f"a frame of {len(part)} bytes, allowed are {MAX_FRAME_BYTES}")


# -- Multipart messages in and out of a socket, at the price of the single sends and receives ----------------


def send_frames(socket: zmq.Socket[bytes], frames: Sequence[Any], flags: int = 0) -> None:
    """As `zmq.Socket.send_multipart`, without its look at every frame, which takes longer than sending them.

    Args:
        socket: where to.
        frames: at least one; bytes, or what has a buffer.
        flags: of the first send; a message that was begun can be finished.

    Raises:
        zmq.ZMQError: as `zmq.Socket.send`.
    """
    last = len(frames) - 1
    for index in range(last):
        socket.send(frames[index], flags | zmq.SNDMORE)
    socket.send(frames[last], flags)


def receive_frames(socket: zmq.Socket[bytes], most: int) -> list[bytes]:
    """All frames of the next message, of too many only ``most`` and one.

    Raises:
        zmq.Again: none came in the socket's time.
    """
    frames = [socket.recv()]
    while socket.getsockopt(zmq.RCVMORE):
        frame = socket.recv()
        if len(frames) <= most:
            frames.append(frame)
    return frames


# -- Where a server may be reached. Without keys that is this machine alone ----------------------------------


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
