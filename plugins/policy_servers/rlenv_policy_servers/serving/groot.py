"""Serve a policy to clients of GR00T."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import zmq

from hal import RobotError, WireError
from rlenv_policy_servers.dialects.codecs import pack_groot, unpack_groot
from rlenv_policy_servers.serving.service import Client, PolicyService

__all__ = ["GrootServer"]

_LOG = logging.getLogger(__name__)
_SLICE_MS = 50


class GrootServer:
    """A ZeroMQ server for clients of GR00T. A client is one connection; ``kill`` is not offered.

    Args:
        service: the policy and its clients.
        host: the address to listen on.
        port: 0 selects a free one.
        max_bytes: largest message that is accepted.

    Attributes:
        port: the port.
    """

    def __init__(self, service: PolicyService, host: str, port: int, max_bytes: int) -> None:
        self._service, self._ended = service, threading.Event()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)  # REP would not say who asks
        self._socket.setsockopt(zmq.LINGER, 200)
        self._socket.setsockopt(zmq.IPV6, int(":" in host))
        self._socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
        self._socket.bind(f"tcp://{host}:{port or '*'}")
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    def serve(self) -> None:
        """Answer clients until `close` is called."""
        try:
            while not self._ended.is_set():
                if self._socket.poll(_SLICE_MS):
                    *envelope, message = self._socket.recv_multipart()
                    self._socket.send_multipart([*envelope, pack_groot(self._answer(envelope[0], message))])
        finally:
            self._socket.close()
            self._service.close()

    def close(self) -> None:
        """End `serve`. Any thread may call this, more than once."""
        self._ended.set()

    def _answer(self, key: bytes, message: bytes) -> object:
        try:
            request = unpack_groot(message)
            if not isinstance(request, dict):
                raise WireError("a request is a map with endpoint and data")
            if not self._service.admits(str(request.get("api_token") or "")):
                return {"error": "Unauthorized: Invalid API token"}  # GR00T's own words
            return self._endpoint(key, request.get("endpoint", "get_action"), request.get("data") or {})
        except RobotError as error:
            return {"error": str(error)}
        except Exception:
            _LOG.exception("the policy failed")
            return {"error": "the policy failed; its server's log has the traceback"}

    def _endpoint(self, key: bytes, endpoint: object, data: Any) -> object:
        if endpoint == "ping":
            return {"status": "ok", "message": "Server is running"}
        if endpoint == "get_modality_config":
            return self._modalities()
        if endpoint == "get_metadata":
            return {"rlenv_robot": self._service.metadata}
        if endpoint == "reset":
            self._service.client(key).reset()
            return {}
        if endpoint == "get_action":
            return self._act(self._service.client(key), data.get("observation") if isinstance(data, dict) else None)
        allowed = "get_action, reset, ping, get_modality_config and get_metadata"
        raise RobotError(f"the endpoint {str(endpoint)!r:.40} is not offered, allowed are {allowed}")

    def _act(self, client: Client, observation: Any) -> object:
        if not isinstance(observation, dict):
            raise WireError("get_action needs data with an observation")
        request = dict[str, np.ndarray]()
        for kind in ("video", "state"):
            for name, array in (observation.get(kind) or {}).items():
                if not isinstance(array, np.ndarray) or array.ndim < 3 or array.shape[:2] != (1, 1):
                    shape = array.shape if isinstance(array, np.ndarray) else type(array).__name__
                    raise WireError(
                        f"{kind}.{str(name)[:40]} is {shape}, expected one batch and one frame: (1, 1, ...)"
                    )
                request[f"{kind}.{name}"] = array[0, 0]
        texts = list((observation.get("language") or {}).values())
        prompt: list[Any] = np.ravel(np.asarray(texts[0], object)).tolist() if texts else []
        answer = client.answer(request, str(prompt[0]) if prompt else "")
        return [{key.removeprefix("action."): array[None] for key, array in answer.items()}, {}]

    def _modalities(self) -> dict[str, Any]:
        metadata = self._service.metadata
        names: dict[str, list[str]] = {}
        for key in (*metadata["request"], *metadata["answer"], *(["language.task"] if metadata["prompt"] else [])):
            kind, _, name = key.partition(".")
            names.setdefault(kind, []).append(name)
        frames = {"action": list(range(metadata["horizon"]))}
        return {
            kind: {
                "__ModalityConfig_class__": True,
                "as_json": {"delta_indices": frames.get(kind, [0]), "modality_keys": keys},
            }
            for kind, keys in names.items()
        }
