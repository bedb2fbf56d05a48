"""Serve images like a network camera: motion JPEG over HTTP, for browsers, OpenCV and drivers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hal.clock import Rate
from hal.errors import RobotError

__all__ = ["MjpegServer"]

_log = logging.getLogger(__name__)

MAX_VIEWERS = 16
"""Largest number of simultaneous connections, each with a thread."""

_SLOW_S = 5.0
"""Time after which a viewer that takes no bytes is disconnected, in seconds."""

_SLICE_S = 0.5
_BOUNDARY = "picture"


class MjpegServer:
    """Take images at a fixed rate on one thread, and send the newest to every viewer. Slow viewers miss images.

    ``/snapshot.jpg`` is one image; every other path is the stream. There is no password, so bind an interface other
    than loopback only if everybody on it may see the images.

    Args:
        shoot: makes one JPEG; always called on the same thread.
        fps: images per second.
        host: the interface to bind.
        port: the port to bind; 0 for any free port.

    Raises:
        ValueError: fps is not above 0.
    """

    def __init__(self, shoot: Callable[[], bytes], fps: float = 30.0, host: str = "127.0.0.1", port: int = 0) -> None:
        if not fps > 0:
            raise ValueError(f"fps is {fps}, it must be above 0")
        self._shoot, self._rate = shoot, Rate(fps)
        self._address = (host, port)
        self._server: ThreadingHTTPServer | None = None
        self._newest, self._number = b"", 0
        self._news = threading.Condition()
        self._over = threading.Event()
        self._viewers = threading.Semaphore(MAX_VIEWERS)
        self._threads: list[threading.Thread] = []

    @property
    def url(self) -> str:
        """The URL of the stream, with the port that was bound.

        Raises:
            RobotError: the server was not started.
        """
        if self._server is None:
            raise RobotError("the camera has no address before start()")
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/stream.mjpg"

    def start(self) -> MjpegServer:
        """Bind the address, and begin to take images.

        Raises:
            RobotError: the address is taken, or the server was started before.
        """
        if self._server is not None or self._over.is_set():
            raise RobotError("this camera was started before; make a new one")
        try:
            server = ThreadingHTTPServer(self._address, _handler(self))
        except OSError as error:
            host, port = self._address
            raise RobotError(f"can't listen at {host}:{port}: {error.strerror}; port 0 takes any free one") from None
        server.daemon_threads, server.block_on_close = True, False
        self._server = server
        for run in (self._take_images, lambda: server.serve_forever(poll_interval=0.1)):
            thread = threading.Thread(target=run, name="rlenv-robot virtual camera", daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def _take_images(self) -> None:
        self._rate.restart()
        while not self._over.is_set():
            try:
                image = self._shoot()
            except RobotError as error:
                _log.error("no image: %s", error)
                self._over.wait(1.0)
                continue
            with self._news:
                self._newest, self._number = image, self._number + 1
                self._news.notify_all()
            self._rate.wait()

    def next(self, after: int, timeout_s: float = _SLICE_S) -> tuple[int, bytes] | None:
        """Wait for an image with a number above ``after``, and return number and image, or None after the timeout."""
        end = time.monotonic() + timeout_s
        with self._news:
            while self._number <= after:
                left_s = end - time.monotonic()
                if left_s <= 0 or self._over.is_set():
                    return None
                self._news.wait(left_s)
            return self._number, self._newest

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one HTTP request on the thread of its connection."""
        if not self._viewers.acquire(blocking=False):
            handler.send_error(503, f"{MAX_VIEWERS} viewers are here already")
            return
        try:
            with contextlib.suppress(OSError):  # the viewer went away, or takes nothing
                if handler.path.startswith("/snapshot"):
                    self._send_one(handler)
                else:
                    self._send_all(handler)
        finally:
            self._viewers.release()

    def _send_one(self, handler: BaseHTTPRequestHandler) -> None:
        newest = self.next(0, _SLOW_S)
        if newest is None:
            handler.send_error(503, "no image yet")
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "image/jpeg")
        handler.send_header("Content-Length", str(len(newest[1])))
        handler.end_headers()
        handler.wfile.write(newest[1])

    def _send_all(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={_BOUNDARY}")
        handler.send_header("Cache-Control", "no-store")
        handler.end_headers()
        number = 0
        while not self._over.is_set():
            newest = self.next(number)
            if newest is not None:
                number, image = newest
                head = f"--{_BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(image)}\r\n\r\n"
                handler.wfile.write(head.encode() + image + b"\r\n")

    def close(self) -> None:
        """End all threads and streams. Safe to call more than once."""
        self._over.set()
        with self._news:
            self._news.notify_all()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        for thread in self._threads:
            thread.join(_SLOW_S)
        self._threads.clear()

    def __enter__(self) -> MjpegServer:
        return self if self._server is not None else self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def _handler(camera: MjpegServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _SLOW_S

        def do_GET(self) -> None:
            camera.serve(self)

        def log_message(self, format: str, *args: object) -> None:
            _log.debug(format, *args)

    return Handler
