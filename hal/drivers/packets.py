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
        data: the bytes that were asked for, unstuffed.
    """

    servo: int
    error: int
    data: bytes


class Scan(NamedTuple):
    """The packets that were found in received bytes.

    Attributes:
        packets: the whole packets whose checksum is right, in their order.
        consumed: how many bytes need not be looked at again.
        rejected: how many headers led to no packet.
        outside: how many bytes belong to no packet.
    """

    packets: list[tuple[int, int, bytes]]
    consumed: int
    rejected: int
    outside: int


class Codec(Protocol):
    """The functions of a protocol's module: `hal.drivers.feetech` and `rlenv_arms.dynamixel` have them."""

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
            longest: the most bytes of params or data that a packet may have; a longer one is noise.
            final: whether nothing more will come. Otherwise the search waits at a header whose packet is incomplete.
        """
        ...

    def answers(self, data: bytes, servos: Sequence[int], count: int) -> list[tuple[int, int, bytes]] | None:
        """Return the answers in bytes that hold nothing else, one of each servo and in their order, else None.

        This is what comes nearly always, and it costs a fraction of `scan`. None also where an answer may be spliced.

        Args:
            data: received bytes.
            servos: the ids that were asked.
            count: bytes of data in each answer.
        """
        ...

    def may_be_spliced(self, servo: int, error: int, data: bytes) -> bool:
        """Return whether a packet may be the beginning of one answer with another's beginning in place of its end."""
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
        """Return the length of an answer with so many bytes of data, without stuffing."""
        ...

    def refusal(self, error: int) -> str | None:
        """Return why a servo did not carry out an instruction, from its error byte; None where it did."""
        ...


def grouped_size(data: Mapping[int, bytes]) -> int:
    """Return how many bytes a grouped write gives each servo.

    Raises:
        ValueError: the servos get different numbers of bytes, or there is no servo.
    """
    sizes = {len(values) for values in data.values()}
    if len(sizes) != 1:
        raise ValueError(f"a grouped write needs the same number of bytes for each servo, got {sorted(sizes)}")
    return sizes.pop()
