"""The newest answer of each of several servos, and its age."""

from __future__ import annotations

from collections.abc import Sequence

from hal.drivers.bus import Reply, ServoBus

__all__ = ["GroupRead"]


class GroupRead:
    """The same registers of several servos, each with the newest answer and its age.

    Args:
        bus: the bus.
        address: of the first register.
        count: how many bytes.
        servos: ids.

    Attributes:
        newest: the newest answer of each servo that ever answered.
    """

    def __init__(self, bus: ServoBus, address: int, count: int, servos: Sequence[int]) -> None:
        self._bus, self._address, self._count, self._servos = bus, address, count, tuple(servos)
        self.newest: dict[int, Reply] = {}

    def refresh(self, attempts: int = 2) -> tuple[int, ...]:
        """Read all servos with one request; ask those that did not answer again.

        Returns:
            The servos whose newest answer is an old one.

        Raises:
            ConnectionLost: the line is gone.
        """
        missing = self._servos
        for _ in range(attempts):
            replies = self._bus.sync_read(self._address, self._count, missing)
            self.newest |= replies
            missing = tuple(servo for servo in missing if servo not in replies)
            if not missing:
                break
        return missing

    def age_ns(self, servo: int) -> int:
        """Return the age of a servo's newest answer, nanoseconds.

        Raises:
            KeyError: it never answered.
        """
        return self._bus.port.now_ns() - self.newest[servo].stamp_ns
