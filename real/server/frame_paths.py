"""Know the connections on which a session's commands for coming frames arrive."""

from __future__ import annotations

from real.server.lease import RequestId

__all__ = ["FramePaths"]

MOST_PATHS = 2
"""Largest number of connections that get the readings of one session's frames."""


class FramePaths:
    """Tell new commands from copies, and list the connections that get the answers. Not thread-safe.

    A client may send each command with a frame on two connections, so that a packet that one of them loses delays
    nothing. Each connection keeps the order of its messages, so the first copy of each command arrives in order.

    Attributes:
        peers: the connections, newest last; empty before a session's first command with a frame.
        newest: session and sequence of the newest command with a frame.
    """

    def __init__(self) -> None:
        self.peers: tuple[bytes, ...] = ()
        self.newest = (0, 0)

    def take(self, peer: bytes, session: int, sequence: int) -> bool:
        """Record a connection of the holder's session; return whether the command on it came there before.

        Args:
            peer: the connection.
            session: a session that holds the robot.
            sequence: number of the command.
        """
        if session != self.newest[0]:
            self.peers, self.newest = (), (session, 0)
        if peer not in self.peers:
            self.peers = (*self.peers, peer)[-MOST_PATHS:]
        return sequence <= self.newest[1]

    def accept(self, sequence: int) -> None:
        """Record that a command was accepted, so that its copies are known."""
        self.newest = (self.newest[0], sequence)

    def forget(self, peer: bytes) -> None:
        """Send no more answers to a connection that is gone."""
        self.peers = tuple(each for each in self.peers if each != peer)

    def request_id(self, frame: int) -> RequestId:
        """Return the id for the answer to a frame without a command; it repeats the newest command's sequence."""
        return RequestId(self.peers[0] if self.peers else b"", *self.newest, frame=frame)
