"""Send camera images over a separate connection, so that no step waits for an image (docs/cameras.md)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import msgpack
import zmq

from hal.cameras.camera import KEPT_IMAGES, Camera, newest_until
from hal.cameras.settings import MAX_IMAGE_BYTES
from hal.errors import DeadlineExceeded, WireError
from hal.robot import Image
from real.protocol import messages as wire
from real.protocol.handshake import Handshake, load_keys
from real.protocol.messages import check_address
from real.protocol.sockets import notice_vanished_peers

__all__ = ["Announced", "ImageListener", "ImagePublisher", "announced"]

_log = logging.getLogger(__name__)

_MAX_CAMERAS = 16
_ROOM = 1024
_SLICE_S = 0.5
_FETCH_MS = 20
_ENCODINGS = ("jpeg", "png")


class Announced(NamedTuple):
    """One camera of a server: the greatest valid age of its image, in seconds, and the effect of its loss."""

    max_age_s: float
    loss: str


class ImagePublisher:
    """Send every new image once to all listeners. A slow listener gets fewer images, and delays nobody.

    A message is one frame: the camera's name, a zero byte, and msgpack of [version, encoding, stamp_ns, bytes].

    Args:
        socket: the bound PUB socket, which this object closes.
        cameras: the cameras, which this object opens but their owner closes.
    """

    def __init__(self, socket: zmq.Socket[bytes], cameras: Sequence[Camera]) -> None:
        self._socket, self._cameras = socket, tuple(cameras)
        self._sent = dict.fromkeys((camera.settings.name for camera in cameras), 0)
        self._news, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlenv-robot images", daemon=True)

    def start(self) -> None:
        """Open the cameras and begin to send."""
        for camera in self._cameras:
            camera.listen(self._news.set)
            camera.open()
        self._thread.start()

    def to_dict(self) -> dict[str, Any]:
        """Return ``cameras``: name -> [greatest valid age, effect of its loss], and ``health``: their states."""
        return {
            "cameras": {
                camera.settings.name: [camera.settings.max_age_s, camera.settings.loss] for camera in self._cameras
            },
            "health": {camera.settings.name: camera.to_dict() for camera in self._cameras},
        }

    def _run(self) -> None:
        with self._socket:
            while not self._over.is_set():
                self._news.wait(_SLICE_S)
                self._news.clear()
                for camera in self._cameras:
                    self._send(camera)

    def _send(self, camera: Camera) -> None:
        image, name = camera.look().image, camera.settings.name
        if image is None or image.stamp_ns == self._sent[name]:
            return
        self._sent[name] = image.stamp_ns
        try:
            body: bytes = msgpack.packb([wire.VERSION, image.encoding, image.stamp_ns, image.data])
            self._socket.send(name.encode() + b"\0" + body, zmq.NOBLOCK)  # PUB never waits: it drops
        except Exception:  # one image that can't be sent must not end all others
            _log.exception("an image of camera %s could not be sent", name)

    def close(self) -> None:
        """End the thread and close the socket. Safe to call more than once."""
        self._over.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join()


class ImageListener:
    """Receive images, and keep the newest of each camera; older ones are dropped. For one thread at a time.

    Args:
        address: the endpoint of the images, not that of the control socket.
        cameras: names of the cameras.
        keys: folder of this client's keys; its role must be watch or move.

    Raises:
        WireError: the address is not understood, or is not loopback and there are no keys.
        ValueError: a key is missing, damaged or readable by others.
    """

    def __init__(self, address: str, cameras: Sequence[str], keys: str | Path | None = None) -> None:
        self.address = check_address(address, keys=keys is not None)
        self._own = None if keys is None else load_keys(keys)
        self._kept: dict[str, tuple[Image, ...]] = {}  # of each camera, newest first
        self._names: dict[zmq.Socket[bytes], str] = {}
        self._poller = zmq.Poller()
        self._handshake: Handshake | None = None
        for name in cameras:
            self._connect(name)

    def _connect(self, name: str) -> None:
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.CONFLATE, 1)
        notice_vanished_peers(socket)
        socket.setsockopt(zmq.MAXMSGSIZE, MAX_IMAGE_BYTES + _ROOM)
        socket.subscribe(name.encode() + b"\0")
        if self._own is not None:
            self._own.secure(socket)
        if self._handshake is None:  # one tells of all: they go to the same door
            self._handshake = Handshake(socket, self._own)
        socket.connect(self.address)
        self._names[socket] = name
        self._poller.register(socket, zmq.POLLIN)

    def newest(self, at_ns: int | None = None) -> Mapping[str, Image]:
        """Return the newest image of each camera, of any age, without waiting.

        Args:
            at_ns: latest capture time, nanoseconds of the server's clock: chooses among the last sixteen
                images of each camera that came here; the oldest of them if all are newer.

        Raises:
            WireError: a received message is not an image.
        """
        for socket, _ in self._poller.poll(0):
            name = self._names[socket]
            image = _image(name, socket.recv(zmq.NOBLOCK))
            self._kept[name] = (image, *self._kept.get(name, ())[: KEPT_IMAGES - 1])
        return {name: images[newest_until(images, at_ns)] for name, images in self._kept.items()}

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """Receive images on another thread during the block, so that `newest` knows those of any moment in it."""
        over = threading.Event()
        thread = threading.Thread(target=self._fetch, args=(over,), name="rlenv-robot fetches images", daemon=True)
        thread.start()  # a full fence, as is the join: a ZeroMQ socket may be handed over so
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _fetch(self, over: threading.Event) -> None:
        while not over.is_set():
            try:
                self.newest()
            except WireError as error:
                _log.warning("%s", error)
            self._poller.poll(_FETCH_MS)

    def wait(self, names: Sequence[str], timeout_s: float) -> None:
        """Wait until there is an image of each of these cameras.

        Raises:
            DeadlineExceeded: an image did not come in time, or can't come because the server refuses this key.
            WireError: a received message is not an image.
        """
        end = time.monotonic() + timeout_s
        while missing := [name for name in names if name not in self.newest()]:
            hopeless, last = None, ""
            if self._handshake is not None:
                self._handshake.update()
                hopeless, last = self._handshake.hopeless, self._handshake.last
            if hopeless is not None or time.monotonic() > end:
                what = f"no image of {', '.join(missing)} from {self.address}"
                raise DeadlineExceeded(what, timeout_s, hopeless or f"{last}; does a firewall let that port through?")
            self._poller.poll(50)

    def close(self) -> None:
        """Stop listening. Safe to call more than once."""
        if self._handshake is not None:
            self._handshake.close()
        for socket in self._names:
            socket.close()

    def __enter__(self) -> ImageListener:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def announced(plain: Any) -> dict[str, Announced]:
    """Return the cameras of a server from its announcement.

    Raises:
        WireError: the announcement is damaged.
    """
    try:
        cameras = {str(name): Announced(float(age_s), str(loss)) for name, (age_s, loss) in plain.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise WireError(f"the server's list of cameras is damaged: {error!r}") from None
    if len(cameras) > _MAX_CAMERAS:
        raise WireError(f"the server has {len(cameras)} cameras, allowed are {_MAX_CAMERAS}")
    return cameras


def _image(name: str, frame: bytes) -> Image:
    try:
        body = memoryview(frame)[len(name.encode()) + 1 :]
        limits = {"max_str_len": 16, "max_array_len": 4, "max_map_len": 0, "max_ext_len": 0}
        version, encoding, stamp_ns, data = msgpack.unpackb(body, max_bin_len=MAX_IMAGE_BYTES, **limits)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise WireError(f"this is no image of camera {name!r}: {error!r:.80}") from None
    if version != wire.VERSION:
        raise WireError(f"the images' version is {version!r} there and {wire.VERSION} here")
    if encoding not in _ENCODINGS or type(stamp_ns) is not int or type(data) is not bytes:
        raise WireError(f"this is no image of camera {name!r}: {encoding!r:.40} of {type(data).__name__}")
    return Image(data, encoding, stamp_ns)
