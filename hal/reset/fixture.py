"""A reset machine that is reached over ZeroMQ."""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import TYPE_CHECKING

from hal.errors import DeadlineExceeded, ResetFailed
from hal.field import JsonObject
from hal.reset.confirmation import Answer, ResetRequest, VerdictRequest, verdict_of

if TYPE_CHECKING:  # ZeroMQ is loaded when the fixture is first asked
    import zmq

__all__ = ["Fixture"]

_POLL_S = 0.05
"""Time between two checks for a request's cancellation, seconds."""

_LARGEST_ANSWER = 65536
"""Most bytes of an answer, which is a sentence."""


class Fixture:
    """Confirm resets and ask for verdicts through a machine that speaks JSON over ZeroMQ.

    The machine binds a REP or ROUTER socket. The request for a reset is ``{"ask": "reset", "id": ..., "robot": ...,
    "episode": ..., "deadline_s": ..., "message": ..., "verdict": ...}``. The machine answers ``{"id": <the same>,
    "ready": true, "note": ""}``, or ``"ready": false`` with the reason as the note; a machine that judges episodes adds
    ``"verdict": "success"`` (or ``failure``, ``discard``). It answers the request ``{"ask": "verdict", ...}`` with
    ``id`` and ``verdict``, which may be null. An answer with another id belongs to an earlier request and is dropped.

    Args:
        address: a ZeroMQ endpoint such as ``tcp://127.0.0.1:5556`` or ``ipc://fixture``.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._cancelled = threading.Event()
        self._socket: zmq.Socket[bytes] | None = None

    def _open(self) -> zmq.Socket[bytes]:
        import zmq

        if self._socket is not None:
            return self._socket
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, _LARGEST_ANSWER)
        try:
            socket.connect(self.address)
        except zmq.ZMQError as error:
            socket.close()
            hint = "expected an endpoint such as tcp://127.0.0.1:5556"
            raise ResetFailed(f"the fixture's address {self.address!r} can't be used ({error}); {hint}") from error
        self._socket = socket
        return socket

    def ask(self, request: ResetRequest) -> Answer:
        """Send the request and wait for the answer with its id.

        Raises:
            DeadlineExceeded: no answer in time.
            ResetFailed: the fixture refused, its verdict is not one of `VERDICTS`, or its address can't be used.
        """
        answer, note = self._exchange(request)
        if answer.get("ready") is not True:
            raise ResetFailed(f"the fixture at {self.address} could not reset the scene: {note or 'no reason given'}")
        return Answer("fixture", note, verdict_of(answer, self._name) if request.verdict else None)

    def judge(self, request: VerdictRequest) -> Answer:
        """Ask for a verdict on an episode. Raises as `ask` does."""
        answer, note = self._exchange(request)
        return Answer("fixture", note, verdict_of(answer, self._name))

    @property
    def _name(self) -> str:
        return f"the fixture at {self.address}"

    def _exchange(self, request: ResetRequest | VerdictRequest) -> tuple[JsonObject, str]:
        socket = self._open()
        request_id = uuid.uuid4().hex
        socket.send_multipart([b"", json.dumps({**request.to_dict(), "id": request_id}).encode()])
        self._cancelled.clear()
        end = time.monotonic() + request.deadline_s
        while (left_s := end - time.monotonic()) > 0:
            if self._cancelled.is_set():
                self.close()  # its late answer is for nobody
                raise ResetFailed(f"the request to {self._name} was cancelled")
            if socket.poll(max(1, int(min(left_s, _POLL_S) * 1000))):
                answer = _parse(socket.recv_multipart()[-1])
                if answer.get("id") == request_id:
                    return answer, str(answer.get("note", ""))
        self.close()  # an unanswered request must not reach the fixture later
        hint = f"is the fixture at {self.address} running?"
        raise DeadlineExceeded("the fixture did not answer", request.deadline_s, hint)

    def cancel(self) -> None:
        """Give up the request that is under way; the fixture is not told. From any thread."""
        self._cancelled.set()

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _parse(frame: bytes) -> JsonObject:
    """Return the fixture's answer; an empty one, which has no id, where the frame is no JSON object."""
    try:
        answer = json.loads(frame)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
