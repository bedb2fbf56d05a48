"""The packets of a servo bus, and the functions that a bus needs from the codec of its protocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Codec", "Request", "Scan", "Status", "grouped_size"]


class Request(NamedTuple):
    """A packet from the controller to one servo, or to all of them.

    Attributes:
        servo: the servo's id, or the protocol's broadcast id.
        instruction: the protocol's number of the instruction.
        params: the bytes that follow it, unstuffed.
    """

    servo: int
    instruction: int
    params: bytes


class Status(NamedTuple):
    """A packet from a servo to the controller.

    Attributes:
        servo: the servo's id.
        error: the protocol's error byte: alarm bits of a Feetech servo; an error number and the alert bit of a
            Dynamixel.
        data: the requested bytes, unstuffed.
    """

    servo: int
    error: int
    data: bytes


class Scan(NamedTuple):
    """The packets that were found in received bytes.

    Attributes:
        packets: the whole packets whose checksum is right, in their order.
        consumed: number of bytes that need not be scanned again.
        rejected: number of headers that did not begin a valid packet.
        outside: number of bytes outside packets.
    """

    packets: list[tuple[int, int, bytes]]
    consumed: int
    rejected: int
    outside: int


class Codec(Protocol):
    """The functions of a protocol's module, such as `hal.drivers.feetech` and `rlenv_arms.dynamixel`."""

    BROADCAST: int

    def request(self, servo: int, instruction: int, params: bytes = b"") -> bytes:
        """Return the bytes of a request."""
        ...

    def status(self, servo: int, error: int, data: bytes = b"") -> bytes:
        """Return the bytes of a servo's answer."""
        ...

    def scan(self, data: bytes, *, answers: bool, longest: int = ..., final: bool = False) -> Scan:
        """Find the packets in received bytes, whatever noise lies between them.

        Args:
            data: received bytes.
            answers: whether to look for `Status` or for `Request`.
            longest: largest number of bytes of params or data in a packet; a longer one counts as noise.
            final: whether no more bytes will come. If False, the scan stops at the header of an incomplete packet.
        """
        ...

    def answers(self, data: bytes, servos: Sequence[int], count: int) -> list[tuple[int, int, bytes]] | None:
        """Return the answers in bytes that contain exactly one answer of each servo, in order; otherwise None.

        This is the usual case, and it costs a fraction of `scan`. The result is also None if an answer may be spliced.

        Args:
            data: received bytes.
            servos: ids of the servos in the request.
            count: bytes of data in each answer.
        """
        ...

    def may_be_spliced(self, servo: int, error: int, data: bytes) -> bool:
        """Return whether an answer may be spliced: the beginning of the next answer replaces its end."""
        ...

    def read(self, servo: int, address: int, count: int) -> bytes:
        """Return a request for registers of one servo."""
        ...

    def write(self, servo: int, address: int, data: bytes) -> bytes:
        """Return a request that writes registers of one servo."""
        ...

    def sync_read(self, address: int, count: int, servos: Iterable[int]) -> bytes:
        """Return a request for the same registers of several servos, which answer one after the other."""
        ...

    def sync_write(self, address: int, data: Mapping[int, bytes]) -> bytes:
        """Return a request that writes the same registers of several servos; none answers."""
        ...

    def status_size(self, count: int) -> int:
        """Return the length of an answer with ``count`` bytes of data, without stuffing, bytes."""
        ...

    def refusal(self, error: int) -> str | None:
        """Return why a servo did not carry out an instruction, from its error byte; None where it did."""
        ...


def grouped_size(data: Mapping[int, bytes]) -> int:
    """Return the number of bytes that a grouped write sends to each servo.

    Raises:
        ValueError: the servos get different numbers of bytes, or there is no servo.
    """
    sizes = {len(values) for values in data.values()}
    if len(sizes) != 1:
        raise ValueError(f"a grouped write needs the same number of bytes for each servo, got {sorted(sizes)}")
    return sizes.pop()
