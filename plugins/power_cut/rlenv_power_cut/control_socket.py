"""Pass commands of people at terminals to the server that holds a power cut's port, over a socket of this machine."""

from __future__ import annotations

import json
import os
import re
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from rlenv_power_cut.link import PowerCutError

__all__ = ["ControlSocket", "ask", "held_ports"]

_NAME = "rlenv-robot power cut "
_PEER = struct.Struct("3i")
_PATIENCE_S = 5.0
"""Longest wait for an answer, seconds: above the second for which a server waits for the board."""

_MOST_BYTES = 4096


def _address(port: str | Path) -> str:
    """Return the address of the socket: an abstract one, which ends with its process."""
    return f"\0{_NAME}{os.path.realpath(port)}"


class ControlSocket:
    """Answer the commands of this machine's same user, one after the other, from a thread of its own.

    Args:
        port: path of the power cut's serial port.
        answer: returns the answer to a command as JSON data; a `PowerCutError` that it raises goes to the person.
    """

    def __init__(self, port: str | Path, answer: Callable[[Mapping[str, object]], Mapping[str, object]]) -> None:
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._listener.bind(_address(port))
        except OSError as error:
            self._listener.close()
            raise PowerCutError(f"another server of this machine holds the power cut at {port}: end it") from error
        self._listener.listen(4)
        self._thread = threading.Thread(target=self._serve, name="power cut commands", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            with connection:
                connection.settimeout(1.0)
                try:
                    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
                    if uid not in (os.getuid(), 0):
                        continue
                    connection.sendall(json.dumps(self._answer_to(connection.recv(_MOST_BYTES))).encode())
                except OSError:  # the person has gone
                    continue

    def _answer_to(self, request: bytes) -> Mapping[str, object]:
        try:
            command = json.loads(request)
            if not isinstance(command, dict):
                raise ValueError("a command is a JSON object")
            return self._answer(command)
        except (ValueError, PowerCutError) as error:
            return {"error": str(error)}

    def close(self) -> None:
        """End the thread. Safe to call more than once."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:  # it was closed before
            return
        self._listener.close()
        self._thread.join(_PATIENCE_S)


def ask(port: str | Path, command: Mapping[str, object]) -> dict[str, object] | None:
    """Ask the server that holds a port; return its answer, or None if no server does.

    Raises:
        PowerCutError: the server refused the command, or did not answer.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(_address(port))
        except ConnectionRefusedError:
            return None
        try:
            connection.sendall(json.dumps(command).encode())
            answer = json.loads(connection.recv(_MOST_BYTES) or b"{}")
        except OSError as error:
            raise PowerCutError(f"the server that holds {port} does not answer: {error}") from error
    if not isinstance(answer, dict) or not answer:
        raise PowerCutError(f"the server that holds {port} refused this user, or ended")
    if "error" in answer:
        raise PowerCutError(str(answer["error"]))
    return answer


def held_ports() -> list[str]:
    """Return the ports of power cuts that servers on this machine hold."""
    try:
        lines = Path("/proc/net/unix").read_text().splitlines()
    except OSError:
        return []
    return sorted({match[1] for line in lines if (match := re.search(rf"@{_NAME}(.+)$", line))})
