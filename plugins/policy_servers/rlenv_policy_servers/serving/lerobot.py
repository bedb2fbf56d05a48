"""Serve a policy to clients of LeRobot's asynchronous inference, in its safe form without pickle."""

from __future__ import annotations

import json
import logging
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from hal import RobotError
from rlenv_policy_servers.dialects.codecs import decode_fields, encode_field, pack_safe, unpack_safe
from rlenv_policy_servers.dialects.lerobot import DESCRIPTION_FIELD, SERVICE, joined
from rlenv_policy_servers.serving.service import PolicyService

__all__ = ["LeRobotServer"]

_LOG = logging.getLogger(__name__)
_QUEUE_S = 2.0
"""Time that GetActions waits for an observation before it answers nothing (LeRobot: ``obs_queue_timeout``)."""


class LeRobotServer:
    """A gRPC server for clients of LeRobot. A client is one connection.

    Args:
        service: the policy and its clients.
        host: the address to listen on.
        port: 0 selects a free one.
        max_bytes: largest observation that is accepted.
        clients: largest number of clients, each of which may wait for actions while it sends an observation.

    Attributes:
        port: the port.
    """

    def __init__(self, service: PolicyService, host: str, port: int, max_bytes: int, clients: int = 4) -> None:
        import grpc

        self._grpc, self._service, self._max_bytes = grpc, service, max_bytes
        self._waiting: dict[str, queue.Queue[tuple[dict[str, Any], dict[str, Any]]]] = {}
        self._steps_at_most: dict[str, int] = {}
        calls = 2 * clients + 2
        options = [("grpc.max_receive_message_length", 4 << 20), ("grpc.so_reuseport", 0)]
        self._server = grpc.server(ThreadPoolExecutor(calls), options=options, maximum_concurrent_rpcs=2 * calls)
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_unary_rpc_method_handler
        methods = {
            "Ready": unary(self._guarded(self._ready)),
            "SendPolicyInstructions": unary(self._guarded(self._instructions)),
            "SendObservations": stream(self._guarded(self._observations)),
            "GetActions": unary(self._guarded(self._actions)),
        }
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
        self.port = int(self._server.add_insecure_port(f"{host}:{port}"))

    def serve(self) -> None:
        """Answer clients until `close` is called."""
        self._server.start()
        self._server.wait_for_termination()

    def close(self) -> None:
        """Stop answering, and forget all clients. Safe to call more than once."""
        self._server.stop(0.5).wait(2.0)
        self._service.close()

    def _guarded(self, call: Callable[[str, Any], bytes]) -> Callable[[Any, Any], bytes]:
        """Return a handler that admits a client by its token and turns errors into gRPC's."""

        def handle(request: Any, context: Any) -> bytes:
            token = str(dict(context.invocation_metadata()).get("authorization", "")).removeprefix("Bearer ")
            if not self._service.admits(token):
                context.abort(self._grpc.StatusCode.UNAUTHENTICATED, "the token is missing or wrong")
            try:
                return call(context.peer(), request)
            except RobotError as error:
                text = str(error)
            except Exception:
                _LOG.exception("the policy failed")
                text = "the policy failed; its server's log has the traceback"
            context.abort(self._grpc.StatusCode.INVALID_ARGUMENT, text[:1000])
            raise AssertionError  # abort raises

        return handle

    def _ready(self, peer: str, request: bytes) -> bytes:
        client = self._service.client(peer)
        with client.lock:
            client.reset()
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if self._service.knows(key)}
        self._waiting[peer] = queue.Queue(1)
        return encode_field(DESCRIPTION_FIELD, json.dumps({"rlenv_robot": self._service.metadata}).encode())

    def _instructions(self, peer: str, request: bytes) -> bytes:
        data = decode_fields(request).get(1, b"")
        config, _ = unpack_safe(data if isinstance(data, bytes) else b"", "RemotePolicyConfig")
        self._steps_at_most[peer] = max(1, int(config.get("actions_per_chunk") or 1))
        return b""

    def _observations(self, peer: str, request: Iterator[bytes]) -> bytes:
        header, arrays = unpack_safe(joined(request, self._max_bytes), "TimedObservation")
        waiting = self._waiting.get(peer)
        if waiting is None:
            raise RobotError("call Ready before SendObservations")
        with suppress(queue.Empty):
            waiting.get_nowait()  # only the newest observation is answered
        waiting.put((header, arrays))
        return b""

    def _actions(self, peer: str, request: bytes) -> bytes:
        waiting = self._waiting.get(peer)
        if waiting is None:
            raise RobotError("call Ready before GetActions")
        try:
            header, arrays = waiting.get(timeout=_QUEUE_S)
        except queue.Empty:
            return b""
        scalars = header.get("scalar_data")
        scalars = dict(scalars) if isinstance(scalars, dict) else {}
        prompt, client = str(scalars.pop("task", "")), self._service.client(peer)
        with client.lock:
            actions = client.answer({**scalars, **arrays}, prompt)["action"][: self._steps_at_most.get(peer, 1000)]
        first, now = int(header.get("timestep", 0)), float(header.get("timestamp", time.time()))
        period_s = 1.0 / float(self._service.metadata["control_hz"])
        steps = [{"timestamp": now + n * period_s, "timestep": first + n} for n in range(len(actions))]
        rows = {f"action_{number}": row for number, row in enumerate(actions)}
        return encode_field(1, pack_safe({"type": "TimedActions", "actions": steps}, rows))
