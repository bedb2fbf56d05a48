"""Motion JPEG over HTTP: each part of the response is one image, kept as its bytes."""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import time
from urllib.parse import SplitResult, unquote, urlsplit

from hal.cameras.settings import MAX_IMAGE_BYTES, CameraSettings
from hal.cameras.source import Frame
from hal.errors import ConnectionLost, DeadlineExceeded, RobotError

__all__ = ["MjpegStream"]

_SILENCE_S = 2.0
"""Longest wait for the next bytes."""

_IMAGE_S = 5.0
"""Longest wait for a whole image, which ends the connection to a sender that drips bytes."""

_MAX_HEAD = 16 * 1024
_PIECE = 64 * 1024
_BLANK = b"\r\n\r\n"


class MjpegStream:
    """Read a stream of type ``multipart/x-mixed-replace``, which network cameras and mjpg-streamer send.

    A user and a password in the URL are sent by HTTP basic authentication. The stamp of an image is the time at which
    its first bytes were read.

    Args:
        settings: the settings of the camera.
    """

    def __init__(self, settings: CameraSettings) -> None:
        self._settings = settings
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._response: http.client.HTTPResponse | None = None
        self._buffer = bytearray()
        self._deadline = 0.0

    def open(self) -> None:
        """Connect, and check that the answer is motion JPEG.

        Raises:
            ConnectionLost: the camera does not answer, or refuses the request.
            RobotError: the response is not motion JPEG.
        """
        parts = urlsplit(self._settings.source)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = connection = kind(parts.hostname or "", parts.port, timeout=_SILENCE_S)
        try:
            connection.connect()
            self._socket = connection.sock  # the response takes it over, and cancel needs it
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"Accept": "multipart/x-mixed-replace", **_authorization(parts)})
            self._response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ConnectionLost(f"no answer from {self._settings.shown}: {reason}; is the camera on?") from None
        self._check(self._response)
        self._buffer.clear()

    def _check(self, response: http.client.HTTPResponse) -> None:
        if response.status == 401:
            raise ConnectionLost(
                f"{self._settings.shown} wants a user and a password: http://USER:PASSWORD@HOST/... "
                f"(basic authentication; it asks for {response.headers.get('WWW-Authenticate', 'none')[:80]!r})"
            )
        if response.status != 200:
            raise ConnectionLost(f"{self._settings.shown} answers {response.status} {response.reason[:80]}")
        kind = response.headers.get_content_type()
        if kind != "multipart/x-mixed-replace":
            raise RobotError(
                f"{self._settings.shown} sends {kind}, expected motion JPEG (multipart/x-mixed-replace); "
                "the camera's manual names the path of its stream, as /video.mjpg or /?action=stream"
            )

    def read(self) -> Frame:
        """Wait for the next image.

        Raises:
            DeadlineExceeded: no bytes came, or they came too slowly.
            ConnectionLost: the camera ended the stream.
            RobotError: a part is too large, or its header is damaged.
        """
        self._deadline = time.monotonic() + _IMAGE_S
        while not (head := self._until(_BLANK, _MAX_HEAD)).strip():
            pass  # some cameras send empty lines between their images
        stamp_ns = time.monotonic_ns()
        size = _content_length(head)
        if size is not None:
            return Frame(self._exactly(size), stamp_ns)
        return Frame(self._until(b"\r\n" + _delimiter(head), MAX_IMAGE_BYTES, keep=True), stamp_ns)

    # -- bytes ---------------------------------------------------------------------------------------------

    def _until(self, mark: bytes, limit: int, *, keep: bool = False) -> bytes:
        """Return the bytes before a mark, and drop the mark, or keep it as the beginning of the next part."""
        searched = 0
        while (at := self._buffer.find(mark, searched)) < 0:
            searched = max(0, len(self._buffer) - len(mark) + 1)
            if len(self._buffer) > limit:
                raise RobotError(f"a part of the stream is longer than {limit} bytes; is this motion JPEG?")
            self._fill()
        part = bytes(self._buffer[:at])
        del self._buffer[: at if keep else at + len(mark)]
        return part

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        part = bytes(self._buffer[:size])
        del self._buffer[:size]
        return part

    def _fill(self) -> None:
        if self._response is None:
            raise ConnectionLost(f"{self._settings.shown} is not open")
        try:
            piece = self._response.read1(_PIECE)
        except TimeoutError:
            raise DeadlineExceeded(f"{self._settings.shown} sent nothing", _SILENCE_S) from None
        except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: closed meanwhile
            raise ConnectionLost(f"{self._settings.shown} was lost: {error or type(error).__name__}") from None
        if not piece:
            raise ConnectionLost(f"{self._settings.shown} ended the stream")
        self._buffer += piece
        if time.monotonic() > self._deadline:
            raise DeadlineExceeded(f"{self._settings.shown} sent no whole image", _IMAGE_S)

    def cancel(self) -> None:
        """End a `read` in progress by shutting down the socket. May be called from any thread."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Safe to call more than once."""
        if self._response is not None:
            self._response.close()
        if self._connection is not None:
            self._connection.close()
        self._response = self._connection = self._socket = None


def _authorization(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(words.encode()).decode()}


def _content_length(head: bytes) -> int | None:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            text = value.strip()
            if not (text.isdigit() and len(text) < 12 and 0 < int(text) <= MAX_IMAGE_BYTES):
                raise RobotError(f"an image of {text[:20].decode('latin-1')} bytes, allowed are 1 to {MAX_IMAGE_BYTES}")
            return int(text)
    return None


def _delimiter(head: bytes) -> bytes:
    """Return the line that separates the images, as it comes in the stream: some cameras announce another one."""
    for line in head.split(b"\r\n"):
        if line.startswith(b"--") and len(line) > 2:
            return line
    raise RobotError("a part of the stream has neither a length nor a boundary line; is this motion JPEG?")
