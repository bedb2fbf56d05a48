"""A machine that resets the scene, over ZeroMQ."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from hal.errors import DeadlineExceeded, ResetFailed
from hal.reset.confirmation import Answer, ResetRequest, VerdictRequest, verdict_of

__all__ = ["Fixture"]

_LARGEST_ANSWER = 65536
"""Bytes; a fixture's answer is a sentence."""


class Fixture:
    """A machine that resets the scene, spoken to in JSON over ZeroMQ (it binds a REP or ROUTER socket).

    Asked: ``{"ask": "reset", "id": ..., "robot": ..., "episode": ..., "deadline_s": ..., "message": ...,
    "verdict": ...}``. Answers: ``{"id": <the same>, "ready": true, "note": ""}``, or ``"ready": false`` with the reason
    as note; ``"verdict": "success"`` (or ``failure``, ``discard``) where it judges episodes. Asked
    ``{"ask": "verdict", ...}`` it answers with ``id`` and ``verdict``, which may be null.
    Answers with another id are late ones from before, and dropped.

    Args:
        address: a ZeroMQ endpoint such as ``tcp://127.0.0.1:5556`` or ``ipc://fixture``.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket: Any = None

    def _open(self) -> Any:
        import zmq

        if self._socket is not None:
            return self._socket
        socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST_ANSWER)
        try:
            socket.connect(self.address)
        except zmq.ZMQError as error:
            socket.close()
            hint = "wanted is an endpoint such as tcp://127.0.0.1:5556"
            raise ResetFailed(f"the fixture's address {self.address!r} can't be used ({error}); {hint}") from error
        self._socket = socket
        return socket

    def ask(self, request: ResetRequest) -> Answer:
        """Send the request and wait for its own answer.

        Raises:
            DeadlineExceeded: no answer in time.
            ResetFailed: the fixture said no, its verdict is none, or its address is no address.
        """
        answer, note = self._exchange(request)
        if answer.get("ready") is not True:
            raise ResetFailed(f"the fixture at {self.address} could not reset the scene: {note or 'no reason given'}")
        return Answer("fixture", note, verdict_of(answer, self._name) if request.verdict else None)

    def judge(self, request: VerdictRequest) -> Answer:
        """As `ask`, about an episode."""
        answer, note = self._exchange(request)
        return Answer("fixture", note, verdict_of(answer, self._name))

    @property
    def _name(self) -> str:
        return f"the fixture at {self.address}"

    def _exchange(self, request: ResetRequest | VerdictRequest) -> tuple[dict[str, Any], str]:
        socket = self._open()
        asked = uuid.uuid4().hex
        socket.send_multipart([b"", json.dumps({**request.to_dict(), "id": asked}).encode()])
        end = time.monotonic() + request.deadline_s
        while (left := end - time.monotonic()) > 0:
            if socket.poll(max(1, int(left * 1000))):
                answer = _parse(socket.recv_multipart()[-1])
                if answer.get("id") == asked:
                    return answer, str(answer.get("note", ""))
        self.close()  # an unanswered request must not reach the fixture later
        hint = f"is the fixture at {self.address} running?"
        raise DeadlineExceeded("the fixture did not answer", request.deadline_s, hint)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _parse(frame: bytes) -> dict[str, Any]:
    """A fixture's answer; one that isn't a JSON object counts as no answer."""
    try:
        answer = json.loads(frame)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
