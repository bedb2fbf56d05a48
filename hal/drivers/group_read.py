"""Read the same registers of several servos, and keep each servo's newest answer."""

from __future__ import annotations

from collections.abc import Sequence

from hal.drivers.bus import Reply, ServoBus

__all__ = ["GroupRead"]


class GroupRead:
    """Read the same registers of several servos, and keep the newest answer of each, with its age.

    Args:
        bus: the bus of the servos.
        address: address of the first register.
        count: number of bytes.
        servos: ids of the servos.

    Attributes:
        newest: servo id -> its newest answer; servos that never answered are left out.
    """

    def __init__(self, bus: ServoBus, address: int, count: int, servos: Sequence[int]) -> None:
        self._bus, self._address, self._count, self._servos = bus, address, count, tuple(servos)
        self.newest: dict[int, Reply] = {}

    def refresh(self, attempts: int = 2) -> tuple[int, ...]:
        """Read all servos with one request; repeat it for those that did not answer.

        Returns:
            The servos that did not answer, so that their newest answer is an old one.

        Raises:
            ConnectionLost: the serial line is lost.
        """
        missing = self._servos
        for _ in range(attempts):
            replies = self._bus.sync_read(self._address, self._count, missing)
            self.newest |= replies
            missing = tuple(servo for servo in missing if servo not in replies)
            if not missing:
                break
        return missing

    def without(self, missing: Sequence[int]) -> dict[int, Reply]:
        """Return the newest answers of all servos but the missing ones."""
        return {servo: reply for servo, reply in self.newest.items() if servo not in missing}

    def age_ns(self, servo: int) -> int:
        """Return the age of a servo's newest answer, in nanoseconds.

        Raises:
            KeyError: the servo never answered.
        """
        return self._bus.port.now_ns() - self.newest[servo].stamp_ns
