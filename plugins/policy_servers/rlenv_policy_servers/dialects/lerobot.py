"""Talk to LeRobot's asynchronous inference over gRPC, in its safe form without pickle."""

from __future__ import annotations

import itertools
import json
import secrets
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hal import ConnectionLost, DeadlineExceeded, RobotError, WireError
from rlenv_policy_servers.dialects.codecs import decode_fields, encode_field, pack_safe, unpack_safe
from rlenv_policy_servers.dialects.session import SessionSettings, refusal

__all__ = ["DESCRIPTION_FIELD", "SERVICE", "LeRobotSession", "chunked", "joined"]

SERVICE = "transport.AsyncInference"
"""The service of ``src/lerobot/transport/services.proto`` (huggingface/lerobot 7427f31)."""
DESCRIPTION_FIELD = 1000
"""Number of the field of ``Empty`` in which our servers answer ``Ready`` with their description; others ignore it."""
_CHUNK = 2 << 20
_BEGIN, _MIDDLE, _END = 1, 2, 3


class LeRobotSession:
    """A `rlenv_policy_servers.dialects.session.Session` with a server of LeRobot.

    Each observation has a number, which the answer's first action repeats, so an answer to another one is dropped.

    Args:
        settings: address, token, limits, and LeRobot's ``RemotePolicyConfig``.

    Raises:
        DeadlineExceeded: nobody answers in time.
        ConnectionLost: nobody listens there.
        RobotError: grpcio is missing, or the server refuses.
    """

    def __init__(self, settings: SessionSettings) -> None:
        try:
            import grpc
        except ImportError as error:
            raise RobotError("lerobot:// needs grpcio: pip install 'rlenv-robot[policy-servers]'") from error
        self._settings = settings
        self._numbers = itertools.count(secrets.randbelow(1 << 30))
        limits = [
            ("grpc.max_receive_message_length", settings.max_bytes), ("grpc.enable_retries", 0),
            ("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
        ]  # fmt: skip
        self._channel = grpc.insecure_channel(f"{settings.address.host}:{settings.address.port}", options=limits)
        self._metadata = [("authorization", f"Bearer {settings.token}")] if settings.token else None
        try:
            until = time.monotonic() + settings.connect_s
            ready = decode_fields(self._call("Ready", b"", until))
            self.description: Mapping[str, Any] = _description(ready)
            setup = pack_safe({"type": "RemotePolicyConfig", **settings.setup})
            self._call("SendPolicyInstructions", encode_field(1, setup), until)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Mapping[str, Any], prompt: str, timeout_s: float) -> Mapping[str, object]:
        """Send a request and return the answer, as `rlenv_policy_servers.dialects.session.Session.ask` says."""
        until, number = time.monotonic() + timeout_s, next(self._numbers)
        scalars = {key: value.item() for key, value in request.items() if np.ndim(value) == 0}
        arrays = {key: value for key, value in request.items() if np.ndim(value)}
        if prompt:
            scalars[self._settings.prompt_key or "task"] = prompt
        header = {
            "type": "TimedObservation", "timestamp": time.time(), "timestep": number, "must_go": True,
            "scalar_data": scalars, "numpy_keys": list(arrays),
        }  # fmt: skip
        self._call("SendObservations", chunked(pack_safe(header, arrays)), until)
        while True:
            data = decode_fields(self._call("GetActions", b"", until)).get(1, b"")
            if not isinstance(data, bytes):
                raise WireError(f"{self._settings.address}: its Actions have no bytes")
            if data:
                steps, actions = _actions(data)
                if steps[0] == number:
                    return {"action": actions}
            time.sleep(0.001)  # a server without an observation, or an answer to another one, may come at once

    def _call(self, method: str, request: bytes | Iterator[bytes], until: float) -> bytes:
        import grpc

        address, left = self._settings.address, max(0.0, until - time.monotonic())
        late = DeadlineExceeded(f"{address}: no answer to {method}", left, "the session was closed")
        make = self._channel.unary_unary if isinstance(request, bytes) else self._channel.stream_unary
        try:
            answer: bytes = make(f"/{SERVICE}/{method}")(request, timeout=left, metadata=self._metadata)
        except grpc.RpcError as error:
            code, text = error.code(), error.details() or ""
            if code == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise late from None
            if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                raise ConnectionLost(f"{address} is not there, or has closed the session: {text[:200]}") from None
            pickles = any(words in text for words in ("unpickl", "load key", "pickle data"))
            hint = " (a released server of LeRobot expects pickles, which are not sent)" if pickles else ""
            raise refusal(address, f"{code.name}: {text}{hint}") from None
        except ValueError as error:  # the channel was closed by another thread
            raise ConnectionLost(f"{address}: the session was closed") from error
        if time.monotonic() > until:  # a busy machine may wake this thread late, with the answer already there
            raise late
        return answer

    def abort(self) -> None:
        """End a wait of another thread, by closing the channel."""
        self._channel.close()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _description(ready: Mapping[int, bytes | int]) -> Mapping[str, Any]:
    content = ready.get(DESCRIPTION_FIELD, b"{}")
    try:
        description = json.loads(content if isinstance(content, bytes) else b"{}")
    except (ValueError, TypeError, RecursionError):
        raise WireError("the server's description is no JSON") from None
    return description if isinstance(description, dict) else {}


def _actions(data: bytes) -> tuple[list[int], np.ndarray]:
    header, arrays = unpack_safe(data, "TimedActions")
    try:
        steps = [int(action["timestep"]) for action in header["actions"]]
        rows = [arrays[f"action_{number}"] for number in range(len(steps))]
    except (KeyError, TypeError, ValueError) as error:
        raise WireError(f"the list of actions lacks {error!r:.100}") from None
    if not rows or steps != list(range(steps[0], steps[0] + len(steps))) or len({row.shape for row in rows}) != 1:
        raise WireError(f"the {len(rows)} actions are not of successive steps, or of different shapes")
    return steps, np.stack(rows)


def chunked(data: bytes) -> Iterator[bytes]:
    """Yield the messages ``Observation`` of a stream: at most 2 MiB in each, and the place of each."""
    for place in range(0, len(data), _CHUNK):
        last = place + _CHUNK >= len(data)
        state = _END if last else _MIDDLE if place else _BEGIN
        yield encode_field(1, state) + encode_field(2, data[place : place + _CHUNK])


def joined(messages: Iterator[bytes], max_bytes: int) -> bytes:
    """Return the data of a stream of messages ``Observation``.

    Raises:
        WireError: a message is damaged, the stream has no end, or the data are larger than ``max_bytes``.
    """
    data = bytearray()
    for message in messages:
        fields = decode_fields(message)
        state, part = fields.get(1, 0), fields.get(2, b"")
        if not isinstance(part, bytes) or state not in (_BEGIN, _MIDDLE, _END):
            raise WireError("an Observation has no bytes, or an unknown transfer_state")
        if state == _BEGIN:
            data.clear()
        data += part
        if len(data) > max_bytes:
            raise WireError(f"an observation has more than {max_bytes >> 20} MiB")
        if state == _END:
            return bytes(data)
    raise WireError("a stream of an observation ended before its last part")
