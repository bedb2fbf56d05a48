"""Talk to a policy server of GR00T N1.7: ZeroMQ requests of msgpack, with arrays as ``.npy``."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import zmq

from hal import ConnectionLost, DeadlineExceeded, RobotError, SpecMismatch, WireError
from rlenv_policy_servers.dialects.codecs import pack_groot, unpack_groot
from rlenv_policy_servers.dialects.session import SessionSettings, refusal

__all__ = ["GrootSession", "groot_message"]

_SLICE_MS = 20
"""Longest wait until `GrootSession.abort` acts, milliseconds."""


class GrootSession:
    """A `rlenv_policy_servers.dialects.session.Session` with a server of GR00T. It never sends ``kill``.

    The socket numbers its requests (ZMQ_REQ_CORRELATE), which a REP socket returns with its answer, so ZeroMQ drops an
    answer to an earlier request.

    Args:
        settings: address, token and limits.

    Raises:
        DeadlineExceeded: nobody answers.
        RobotError: the server refuses.
    """

    def __init__(self, settings: SessionSettings) -> None:
        self._settings, self._ended = settings, threading.Event()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.REQ_CORRELATE, 1)
        self._socket.setsockopt(zmq.IPV6, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, settings.max_bytes)
        try:
            self._socket.connect(f"tcp://{settings.address.host}:{settings.address.port}")
            self._call("ping", None, settings.connect_s)
            modalities = self._call("get_modality_config", None, settings.connect_s)
            self._modalities = modalities if isinstance(modalities, dict) else {}
            self.description: Mapping[str, Any] = self._own_description(settings.connect_s)
            self._call("reset", {"options": None}, settings.connect_s)
        except BaseException:
            self.close()
            raise

    def _own_description(self, timeout_s: float) -> Mapping[str, Any]:
        try:
            description = self._call("get_metadata", None, timeout_s)  # an endpoint of our servers alone
        except DeadlineExceeded:
            raise
        except RobotError:
            return {}
        return description if isinstance(description, dict) else {}

    def check(self, keys: Mapping[str, Any], action_keys: Mapping[str, int], prompted: bool) -> None:
        """Refuse keys other than those of the server's modality configuration, if it has one.

        Args:
            keys: the keys of a request.
            action_keys: the keys of an answer.
            prompted: whether an instruction is sent.

        Raises:
            SpecMismatch: the error lists every difference.
        """
        problems = []
        ours = {"action": {key.removeprefix("action.") for key in action_keys}}
        if prompted:
            ours["language"] = {(self._settings.prompt_key or "language.task").removeprefix("language.")}
        for key in keys:
            kind, _, name = key.partition(".")
            ours.setdefault(kind, set()).add(name)
        for kind in [kind for kind in ("video", "state", "language", "action") if kind in self._modalities]:
            config = self._modalities[kind]
            if not isinstance(config, dict):
                raise WireError(f"{self._settings.address}: its modality configuration of {kind} is no map")
            names = set(map(str, config.get("modality_keys") or ()))
            problems += [f"{kind}.{name}: only the server has it" for name in sorted(names - ours.get(kind, set()))]
            problems += [
                f"{kind}.{name}: the server does not have it" for name in sorted(ours.get(kind, set()) - names)
            ]
            frames = list(config.get("delta_indices") or [0])
            if kind != "action" and frames != [0]:
                problems.append(f"{kind}: the server takes the frames {frames}, and only the newest one, [0], is sent")
        if problems:
            raise SpecMismatch(f"the keys differ from those of {self._settings.address}", problems)

    def ask(self, request: Mapping[str, Any], prompt: str, timeout_s: float) -> Mapping[str, object]:
        """Send a request and return the answer, as `rlenv_policy_servers.dialects.session.Session.ask` says."""
        message = groot_message(request, prompt, self._settings.prompt_key)
        answer = self._call("get_action", {"observation": message, "options": None}, timeout_s)
        if not isinstance(answer, list) or not answer or not isinstance(answer[0], dict):
            raise WireError(
                f"{self._settings.address} has answered a {type(answer).__name__}, expected action and info"
            )
        actions = dict[str, object]()
        for key, array in answer[0].items():
            if not isinstance(array, np.ndarray) or array.ndim != 3 or len(array) != 1:
                shape = array.shape if isinstance(array, np.ndarray) else type(array).__name__
                raise WireError(
                    f"{self._settings.address}: {str(key)!r:.40} is {shape}, expected (1, actions, columns)"
                )
            actions[f"action.{str(key).removeprefix('action.')}"] = array[0]
        return actions

    def _call(self, endpoint: str, data: Mapping[str, Any] | None, timeout_s: float) -> object:
        request: dict[str, Any] = {"endpoint": endpoint}
        if data is not None:
            request["data"] = data
        if self._settings.token:
            request["api_token"] = self._settings.token
        until = time.monotonic() + timeout_s
        self._socket.send(pack_groot(request))
        there = False
        while not there:
            there = bool(self._socket.poll(_SLICE_MS))
            if self._ended.is_set():
                raise ConnectionLost(f"{self._settings.address}: the session was closed")
            if time.monotonic() > until:  # also where the answer is there: a busy machine may wake this thread late
                hint = "no server runs there, or timeout_s is too short; the session was closed"
                raise DeadlineExceeded(f"{self._settings.address}: no answer to {endpoint}", timeout_s, hint)
        message = self._socket.recv()
        if message == b"ERROR":
            raise refusal(self._settings.address, "ERROR")
        answer = unpack_groot(message)
        if isinstance(answer, dict) and "error" in answer:
            raise refusal(self._settings.address, answer["error"])
        return answer

    def abort(self) -> None:
        """End a wait of another thread."""
        self._ended.set()

    def close(self) -> None:
        """Close the socket; what it has not sent is discarded."""
        self._ended.set()
        self._socket.close(0)


def groot_message(request: Mapping[str, Any], prompt: str, prompt_key: str) -> dict[str, Any]:
    """Return the observation of a request: ``video``, ``state`` and ``language``, with axes of batch and time before.

    Raises:
        RobotError: a key does not begin with ``video.``, ``state.`` or ``language.``.
    """
    message: dict[str, Any] = {"video": {}, "state": {}, "language": {}}
    for key, array in request.items():
        kind, _, name = key.partition(".")
        if kind not in ("video", "state") or not name:
            raise RobotError(f"{key!r} is no key of GR00T: it begins with video. or state.")
        message[kind][name] = np.asarray(array)[None, None]
    if prompt:
        message["language"][(prompt_key or "language.task").removeprefix("language.")] = [[prompt]]
    return message
