"""Confirm resets by hardware: a machine reached over ZeroMQ, or a button on a GPIO line (Linux, libgpiod)."""

from __future__ import annotations

import json
import threading
import time
import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from hal.errors import DeadlineExceeded, ResetFailed
from hal.field import JsonObject
from hal.reset.confirmation import Answer, ResetRequest, VerdictRequest, verdict_of

if TYPE_CHECKING:  # ZeroMQ is loaded when the fixture is first asked
    import zmq

__all__ = ["Fixture", "Gpio"]

_POLL_S = 0.05
"""Time between two checks for a request's cancellation, in seconds."""

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
        """Cancel the request in progress, without a message to the fixture. May be called from any thread."""
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


# -- GPIO lines ------------------------------------------------------------------------------------------------------


class Gpio:
    """Confirm resets by a GPIO line that becomes active after the request.

    A line that is already active at the request does not count: the button must be released and pressed again. A line
    gives no verdicts.

    Needs the extra ``gpio`` (the bindings of libgpiod 2) and a kernel with the GPIO character device.

    Args:
        chip: the device of the chip, such as ``/dev/gpiochip0``.
        line: the offset of the line on the chip.
        active_low: whether low voltage is active, as with a button to ground.
        debounce_s: a change that lasts less than this comes from a bouncing contact and is ignored, seconds.
    """

    def __init__(self, chip: str, line: int, *, active_low: bool = False, debounce_s: float = 0.02) -> None:
        self.chip, self.line = chip, line
        self._active_low, self._debounce_s = active_low, debounce_s

    def ask(self, request: ResetRequest) -> Answer:
        """Wait for the line to become active.

        Raises:
            DeadlineExceeded: the line did not become active in time.
            ResetFailed: the line can't be used; the message has the reason.
        """
        with self._requested() as lines:
            if not lines.wait_edge_events(timedelta(seconds=request.deadline_s)):
                hint = "one that was active before the question must be released first"
                raise DeadlineExceeded(f"{self._name} did not become active", request.deadline_s, hint)
        return Answer("gpio", f"{self.chip} line {self.line}")

    def judge(self, request: VerdictRequest) -> Answer:
        """Return no verdict, since a line can only confirm."""
        return Answer("gpio")

    @property
    def _name(self) -> str:
        return f"line {self.line} of {self.chip}"

    def _requested(self) -> Any:
        try:
            import gpiod
            from gpiod.line import Direction, Edge
        except ImportError as error:
            raise ResetFailed("a GPIO line needs libgpiod's bindings: pip install 'rlenv-robot[gpio]'") from error
        settings = gpiod.LineSettings(
            direction=Direction.INPUT,
            edge_detection=Edge.RISING,  # to active, whichever voltage that is
            active_low=self._active_low,
            debounce_period=timedelta(seconds=self._debounce_s),
        )
        try:
            return gpiod.request_lines(self.chip, consumer="rlenv-robot reset", config={self.line: settings})
        except (OSError, ValueError) as error:  # no such chip or line, in use, or not permitted
            hint = "`gpioinfo` lists chips and lines; a user needs write permission on the chip's device"
            raise ResetFailed(f"{self._name} can't be used: {error}; {hint}") from error

    def close(self) -> None:
        """Do nothing: the line is held only during a request."""
