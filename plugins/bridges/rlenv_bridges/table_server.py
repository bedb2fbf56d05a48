"""Serve an environment's tables as JSON to another process, so that an agent in another language can act (R4.1).

The environment's protocol page describes the messages (``rlenv-robot protocol NAME``; ``--format json`` for JSON
Schema).
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Mapping
from typing import Any

import zmq

from hal.field import JsonDict
from rlenv_robot.adapters.json_schema import plain_json, protocol_schema
from rlenv_robot.env import Environment

__all__ = ["CALLS", "LARGEST_REQUEST", "TableServer"]

LARGEST_REQUEST = 1 << 20
"""Largest request, bytes; a longer one ends its connection before it takes memory."""

CALLS: Mapping[str, tuple[str, ...]] = {
    "describe": (), "reset": ("options",), "step": ("action", "extra_info"), "end": ("reason",), "close": (),
}  # fmt: skip
"""Call in a request -> the further keys that the request may have."""

_REQUIRED: Mapping[str, tuple[str, ...]] = {"step": ("action",), "end": ("reason",)}
"""Call in a request -> those of its further keys that the request must have."""

_POLL_MS = 200


class TableServer:
    """Answer requests one at a time, as JSON over ZeroMQ's REQ and REP.

    Any process on this machine may connect without keys, since the socket listens only on the loopback. A robot on the
    network has its own wire protocol (docs/wire.md).

    Args:
        env: the environment, which `close` closes.
        endpoint: an address such as ``tcp://127.0.0.1:5650`` (port ``*`` takes a free one), or ``ipc://`` and a path.

    Raises:
        ValueError: the endpoint is not on this machine.
        zmq.ZMQError: the endpoint is taken.
    """

    def __init__(self, env: Environment, endpoint: str = "tcp://127.0.0.1:5650") -> None:
        _check_local(endpoint)
        self.env, self._closing = env, False
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 200)
        self._socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_REQUEST)
        try:
            self._socket.bind(endpoint)
        except BaseException:
            self._socket.close(0)
            raise
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def serve(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Answer requests until one of them closes the environment, or ``stopped`` returns True."""
        try:
            while not self._closing and not stopped():
                if self._socket.poll(_POLL_MS):
                    self._socket.send(self.answer(self._socket.recv()))
        finally:
            self.close()

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request, both as JSON. The answer to an impossible request gives the reason."""
        try:
            result = self._carry_out(_read(request))
        except Exception as error:  # whatever a caller in another language sends, it gets an answer
            result = {"error": {"kind": type(error).__name__, "message": str(error)}}
        return json.dumps(result, allow_nan=False).encode()

    def _carry_out(self, request: Mapping[str, Any]) -> JsonDict:
        call = request["call"]
        if call == "describe":
            return {"env_id": self.env.env_id, "schema": protocol_schema(self.env)}
        if call == "reset":
            return {"observation": plain_json(self.env.reset(request.get("options", {})))}
        if call == "step":
            table, reward = self.env.step(request["action"], request.get("extra_info", {}))
            return {"observation": plain_json(table), "reward": plain_json(reward)}
        if call == "end":
            return {"observation": plain_json(self.env.end(request["reason"]))}
        self._closing = True
        return {"closed": True}

    def close(self) -> None:
        """Close the environment and the socket. Safe to call more than once."""
        self._socket.close()
        self.env.close()


def _check_local(endpoint: str) -> None:
    scheme, _, place = endpoint.partition("://")
    host = place.rpartition(":")[0].strip("[]")
    try:
        local = scheme == "ipc" or (scheme == "tcp" and ipaddress.ip_address(host).is_loopback)
    except ValueError:
        local = False
    if not local:
        raise ValueError(
            f"endpoint is {endpoint!r}, allowed are ipc:// and the loopback, such as tcp://127.0.0.1:5650: tables have "
            "no keys; to reach a robot from another machine, serve it (rlenv-robot serve)"
        )


def _read(request: bytes) -> Mapping[str, Any]:
    plain = json.loads(request)
    if not isinstance(plain, dict) or plain.get("call") not in CALLS:
        raise ValueError(f"the request is {plain!s:.80}, expected a mapping with 'call': one of {', '.join(CALLS)}")
    allowed = CALLS[plain["call"]]
    for key in plain:
        if key != "call" and key not in allowed:
            raise ValueError(f"{key!r} is unknown, {plain['call']} takes {', '.join(allowed) or 'nothing'}")
    for key in _REQUIRED.get(plain["call"], ()):
        if key not in plain:
            raise ValueError(f"{key!r} is missing, {plain['call']} requires {', '.join(_REQUIRED[plain['call']])}")
    return plain
