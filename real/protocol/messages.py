"""Encode and decode messages: a small msgpack header, then raw rows. docs/wire.md has the layout."""

from __future__ import annotations

import functools
import ipaddress
import re
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack
import zmq

from hal.errors import WireError
from hal.reset.confirmation import VERDICTS, Answer
from real.protocol.text import encodable

__all__ = [
    "MAX_FRAMES", "MAX_FRAME_BYTES", "MAX_HEADER_BYTES", "VERSION", "Message", "MessageKind", "address_at_host",
    "answer_from_list", "answer_to_list", "check_address", "decode", "detail_value", "encode", "encode_step",
    "receive_frames", "send_frames", "unpack_data",
]  # fmt: skip

VERSION = 4
"""Version of the protocol. It is the header's first element in every version, so that a mismatch can be reported."""

MAX_FRAMES = 18
"""Largest number of frames of a message: header, row and 16 images."""

MAX_HEADER_BYTES = 64 * 1024
MAX_FRAME_BYTES = 32 * 1024 * 1024
"""Largest size of a frame, bytes: a raw image of 3840 x 2160 pixels has 24 MiB."""

_MAX_TEXT, _MAX_ITEMS = 32 * 1024, 8192
_INLINE = 32 * 1024
"""A first frame of at most so many bytes rides in the header: a step is one frame then, and each costs a microsecond
or two in every pair of hands that it goes through."""
_MAX_NUMBER = 2**63
_LARGEST_WHOLE = 2**53
"""Up to here every whole number is a float64."""


class MessageKind(IntEnum):
    """The kind of a message: below 16 from a client, from 16 on from a server."""

    HELLO = 1
    RESET = 2
    STEP = 3
    STOP = 4
    RELEASE = 5
    CONSENT = 6
    STATUS = 7
    JUDGE = 8
    END = 9
    WELCOME = 16
    READING = 17
    EVENT = 18
    ERROR = 19
    DONE = 20
    MISMATCH = 21


_KINDS = {int(kind): kind for kind in MessageKind}

_unpack = functools.partial(
    msgpack.unpackb,
    max_str_len=_MAX_TEXT,
    max_bin_len=_MAX_TEXT,
    max_array_len=_MAX_ITEMS,
    max_map_len=_MAX_ITEMS,
    max_ext_len=0,
)
_UNREADABLE = (ValueError, TypeError, RecursionError, msgpack.UnpackException)


class Message(NamedTuple):
    """One decoded message.

    Attributes:
        kind: kind of the message.
        session: number of the session from the server's welcome; 0 before it.
        sequence: number of the request, counted from 1 in a session; an answer repeats it. An error about a
            message that could not be read has 0.
        detail: plain data, by kind (see docs/wire.md).
        frames: the raw frames after the header.
        times: times by the server's monotonic clock, nanoseconds. For a client's step, the time of sending by the
            client's estimate of that clock; for an answer, a pair: arrival of its request and departure of the answer.
            Otherwise None.
    """

    kind: MessageKind
    session: int
    sequence: int
    detail: Any = None
    frames: Sequence[Any] = ()
    times: Any = None


def encode(
    kind: MessageKind,
    session: int,
    sequence: int,
    detail: Any = None,
    frames: Sequence[Any] = (),
    times: Any = None,
    *,
    escape: bool = False,
) -> list[Any]:
    """Return a message as the frames of one multipart send.

    Args:
        kind: kind of the message.
        session: number of the session; 0 before the server has assigned one.
        sequence: number of the request.
        detail: plain data.
        frames: raw frames after the header.
        times: nanoseconds of the server's monotonic clock, as docs/wire.md lists them for each kind.
        escape: whether to escape text that UTF-8 can't encode, as in every answer of a server; if not, it is refused.

    Raises:
        WireError: the detail is not plain data, or the message exceeds a limit.
    """
    inline = bool(frames) and len(frames[0]) <= _INLINE
    body = (VERSION, kind, session, sequence, times, detail, frames[0] if inline else None)
    try:
        try:
            header: bytes = msgpack.packb(body, default=_plain)
        except UnicodeEncodeError:
            if not escape:
                raise
            header = msgpack.packb(body, default=_plain, unicode_errors="backslashreplace")
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"a {kind.name} message can carry numbers, text, lists and mappings only: {error}") from None
    parts = [header, *frames[inline:]]
    if len(parts) != 1 or len(header) > MAX_HEADER_BYTES:
        _check_sizes(parts)
    return parts


_STEP_HEAD = struct.Struct(">3sBQBQBqBBH")
_STEP_LIST = bytes((0x97, VERSION, MessageKind.STEP))
_UINT64, _INT64, _NIL, _BIN16 = 0xCF, 0xD3, 0xC0, 0xC5
"""First bytes of msgpack values of these types (github.com/msgpack/msgpack/blob/master/spec.md)."""


def encode_step(session: int, sequence: int, sent_ns: int, row: bytes) -> bytes:
    """Return the only frame of a STEP, as `encode` would, but faster, since each copy of a step has its own time.

    Args:
        session: number of the session.
        sequence: number of the request.
        sent_ns: time of sending, nanoseconds of the server's monotonic clock.
        row: the command as a packed row, at most 65535 bytes.
    """
    numbers = _UINT64, session, _UINT64, sequence, _INT64, sent_ns
    return _STEP_HEAD.pack(_STEP_LIST, *numbers, _NIL, _BIN16, len(row)) + row


def _plain(value: Any) -> Any:
    """Return NumPy arrays and scalars as lists and numbers, for reset options."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"got a {type(value).__name__}")


def decode(parts: Sequence[Any]) -> Message:
    """Return the message in received frames. Sizes are checked before anything is unpacked.

    Raises:
        WireError: a frame is too many or too large, the header is missing, or its version or kind is unknown.
    """
    if len(parts) != 1 or len(parts[0]) > MAX_HEADER_BYTES:
        _check_sizes(parts)
    try:
        header = _unpack(parts[0])
    except _UNREADABLE as error:
        raise WireError(f"the header is not readable msgpack: {error or type(error).__name__}") from None
    if type(header) is not list or not header:
        raise WireError("the header is not a list; is the other side an rlenv-robot of another kind?")
    if header[0] != VERSION:
        raise WireError(
            f"the wire's version is {VERSION} here and {header[0]!r} there; "
            "install the same version of rlenv-robot on both sides"
        )
    if len(header) != 7:
        raise WireError(f"the header has {len(header)} elements, it must have 7")
    _, kind, session, sequence, times, detail, row = header
    if type(kind) is not int or kind not in _KINDS:
        raise WireError(f"message kind {kind!r} is unknown, known are {', '.join(map(str, _KINDS))}")
    for name, number in (("session", session), ("sequence", sequence)):
        if type(number) is not int or not 0 <= number < _MAX_NUMBER:
            raise WireError(f"{name} {number!r} is not a whole number from 0 to 2**63 - 1")
    numbers = times if type(times) is list and len(times) == 2 else () if times is None else (times,)
    for number in numbers:
        if type(number) is not int or not -_MAX_NUMBER <= number < _MAX_NUMBER:
            raise WireError(f"times {times!r:.80} are neither a whole number of nanoseconds nor two")
    if row is None:
        return Message(_KINDS[kind], session, sequence, detail, parts[1:], times)
    if type(row) is not bytes:
        raise WireError(f"the row in the header is a {type(row).__name__}, it must be bytes")
    return Message(_KINDS[kind], session, sequence, detail, [row, *parts[1:]], times)


def detail_value(message: Message, key: str, kind: type) -> Any:
    """Return one value of a message's detail, of exactly this type; for float, whole numbers are accepted too.

    Raises:
        WireError: the value is missing or of another type.
    """
    detail = message.detail
    value = detail.get(key) if isinstance(detail, dict) else None
    if kind is float and type(value) is int and abs(value) <= _LARGEST_WHOLE:
        return float(value)
    if type(value) is not kind:
        raise WireError(f"{message.kind.name}: {key} is {value!r:.80}, expected a {kind.__name__}")
    return value


def unpack_data(frame: Any, what: str) -> Any:
    """Return the plain data of one msgpack frame, with capped lengths and no extension types.

    Raises:
        WireError: the frame is not such data.
    """
    try:
        return _unpack(frame)
    except _UNREADABLE as error:
        raise WireError(f"the {what} is not readable msgpack: {error or type(error).__name__}") from None


def _check_sizes(parts: Sequence[Any]) -> None:
    if not 1 <= len(parts) <= MAX_FRAMES:
        raise WireError(f"a message of {len(parts)} frames, allowed are 1 to {MAX_FRAMES}")
    if len(parts[0]) > MAX_HEADER_BYTES:
        raise WireError(f"a header of {len(parts[0])} bytes, allowed are {MAX_HEADER_BYTES}")
    for part in parts[1:]:
        if len(part) > MAX_FRAME_BYTES:
            raise WireError(f"a frame of {len(part)} bytes, allowed are {MAX_FRAME_BYTES}")


# -- The answer of the person at the robot, as the detail of a DONE message ----------------------------------


_NOTE = 1000
"""Characters of a note that are passed on."""


def answer_to_list(answer: Answer) -> list[Any]:
    """Return an answer for the wire, as a list of its source, note and verdict."""
    return [encodable(answer.by, _NOTE), encodable(answer.note, _NOTE), answer.verdict]


def answer_from_list(data: Any) -> Answer | None:
    """Return the answer that `answer_to_list` wrote; None for any other data."""
    match data:
        case [str(by), str(note), verdict] if verdict is None or verdict in VERDICTS:
            return Answer(by, note, verdict)
    return None


# -- Multipart messages in and out of a socket, at the price of the single sends and receives ----------------


def send_frames(socket: zmq.Socket[bytes], frames: Sequence[Any], flags: int = 0) -> None:
    """Send a multipart message without `send_multipart`'s checks of every frame, which take longer than sending.

    Args:
        socket: the socket to send on.
        frames: at least one frame, as bytes or objects with a buffer.
        flags: flags of the first send; after it, ZeroMQ always accepts the rest of the message.

    Raises:
        zmq.ZMQError: as `zmq.Socket.send`.
    """
    last = len(frames) - 1
    for index in range(last):
        socket.send(frames[index], flags | zmq.SNDMORE)
    socket.send(frames[last], flags)


def receive_frames(socket: zmq.Socket[bytes], most: int) -> list[bytes]:
    """Return the frames of the next message, at most ``most`` + 1 of them.

    Raises:
        zmq.Again: no message came within the socket's timeout.
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
    """Check that an address is valid, and that it has keys unless only this machine can reach it; return the address.

    Args:
        address: a ZeroMQ endpoint: ``tcp://<host or interface>:<port>`` (port ``*``: any free one, for a server), or
            ``ipc://<path>``.
        keys: whether keys encrypt the connection and identify both ends.

    Raises:
        WireError: the address is not such an endpoint, or other machines could reach it and there are no keys.
    """
    if address.startswith("ipc://") and len(address) > len("ipc://"):
        return address
    match = _TCP.fullmatch(address)
    if match is None or (match["port"] != "*" and not 0 < int(match["port"]) < 65536):
        raise WireError(f"address {address!r} is not understood; write it as tcp://127.0.0.1:5555")
    if not keys and not _is_loopback(match["host"].strip("[]")):
        raise WireError(
            f"address {address!r} can be reached from other machines, and no keys were given: whoever reaches it "
            "could move the robot. Give keys=<folder> (`rlenv-robot robot keys new` makes one), or stay on loopback, "
            "as tcp://127.0.0.1:5555"
        )
    return address


def address_at_host(control: str, announced: str) -> str:
    """Return the endpoint that a server announces, with the host by which the client reaches the control address."""
    if not (control.startswith("tcp://") and announced.startswith("tcp://")):
        return announced
    host = control.removeprefix("tcp://").rpartition(":")[0]
    return f"tcp://{host}:{announced.rpartition(':')[2]}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, * or an interface
        return False
