"""Multipart messages in and out of a socket, at the price of the single sends and receives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

__all__ = ["receive_frames", "send_frames"]


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
