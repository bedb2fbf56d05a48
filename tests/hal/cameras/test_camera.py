"""A camera reports a source that stops, freezes or breaks, and recovers when the source comes back."""

from __future__ import annotations

import threading
import time
from queue import Queue

import numpy as np
import pytest

from hal.cameras.camera import KEPT_IMAGES, Camera
from hal.cameras.settings import CameraSettings
from hal.cameras.source import EndOfStream, Frame, jpeg_size
from hal.errors import ConnectionLost
from tests.fakes import until

cv2 = pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")

SIZE = (32, 24)
LONG_S = 10.0


def pixels(shade: int = 0, size: tuple[int, int] = SIZE) -> np.ndarray:
    return np.full((size[1], size[0], 3), shade, np.uint8)


class Script:
    """A source that does what the test puts into its queue: an image, or an exception."""

    def __init__(self) -> None:
        self.acts: Queue[object] = Queue()
        self.opened = self.closed = 0
        self.cancelled = threading.Event()

    def __call__(self, settings: CameraSettings, wait: object) -> Script:
        return self

    def open(self) -> None:
        self.opened += 1

    def read(self) -> Frame:
        act = self.acts.get()
        if isinstance(act, Exception):
            raise act
        return act if isinstance(act, Frame) else Frame(act, time.monotonic_ns())  # type: ignore[arg-type]

    def cancel(self) -> None:
        self.cancelled.set()
        self.acts.put(ConnectionLost("cancelled"))

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def script():
    return Script()


@pytest.fixture
def camera(script):
    made: list[Camera] = []

    def make(**settings) -> Camera:
        wanted = {"max_age_s": 60.0, "frozen_s": 60.0, "width": SIZE[0], "height": SIZE[1]} | settings
        made.append(Camera(CameraSettings("nowhere", "eye", **wanted), script))
        made[-1].open()
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert not one._thread.is_alive()


def test_pixels_become_jpeg_with_the_time_of_their_capture(script, camera):
    eye = camera(quality=95)
    stamp_ns = time.monotonic_ns()
    gradient = np.dstack([np.tile(np.arange(32, dtype=np.uint8) * 8, (24, 1))] * 3)
    script.acts.put(Frame(gradient, stamp_ns))
    seen = eye.wait(LONG_S)
    assert seen.fault is None
    assert seen.image is not None
    assert (seen.image.encoding, seen.image.stamp_ns) == ("jpeg", stamp_ns)
    assert jpeg_size(seen.image.data) == SIZE
    decoded = cv2.imdecode(np.frombuffer(seen.image.data, np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(decoded.astype(int) - gradient).max() <= 4


def test_the_quality_is_the_chosen_one(script, camera):
    sizes = []
    noise = np.random.default_rng(0).integers(0, 255, (24, 32, 3), np.uint8)
    for quality in (10, 90):
        eye = camera(quality=quality)
        script.acts.put(noise)
        sizes.append(len(eye.wait(LONG_S).image.data))
        eye.close()
    assert sizes[0] < 0.7 * sizes[1]


def test_jpeg_is_kept_as_it_came(script, camera):
    image = cv2.imencode(".jpg", pixels(7))[1].tobytes()
    eye = camera()
    script.acts.put(image)
    assert eye.wait(LONG_S).image.data is image


def test_the_newest_image_is_kept_and_every_listener_is_called(script, camera):
    heard = []
    eye = camera()
    eye.listen(lambda: heard.append(eye.look().image.stamp_ns))
    for shade in range(20):
        script.acts.put(Frame(pixels(shade), 1000 + time.monotonic_ns()))
    until(lambda: eye.to_dict()["pictures"] == 20)
    until(lambda: len(heard) == 20)
    assert eye.look().image.stamp_ns == max(heard) == heard[-1]


def test_a_look_at_a_time_returns_no_later_image(script, camera):
    eye, now_ns = camera(), time.monotonic_ns()
    for stamp_ns in (now_ns, now_ns + 10):
        script.acts.put(Frame(pixels(stamp_ns % 200), stamp_ns))
    until(lambda: eye.to_dict()["pictures"] == 2)
    assert eye.look(now_ns + 9).image.stamp_ns == now_ns
    assert eye.look(now_ns + 10).image.stamp_ns == now_ns + 10
    assert eye.look().image.stamp_ns == now_ns + 10


def test_a_state_that_is_read_late_gets_the_image_of_its_time(script, camera):
    eye, now_ns = camera(), time.monotonic_ns()
    for number in range(KEPT_IMAGES + 4):
        script.acts.put(Frame(pixels(number), now_ns + number))
    until(lambda: eye.to_dict()["pictures"] == KEPT_IMAGES + 4)
    assert eye.look(now_ns + 7).image.stamp_ns == now_ns + 7
    assert eye.look(now_ns).image.stamp_ns == now_ns + 4, "the oldest of those that are kept"


def test_a_known_delay_makes_the_stamp_earlier(script, camera):
    eye, stamp_ns = camera(delay_s=0.08), time.monotonic_ns()
    script.acts.put(Frame(pixels(), stamp_ns))
    assert eye.wait(LONG_S).image.stamp_ns == stamp_ns - 80_000_000


def test_a_stream_that_stops_is_a_fault_and_its_old_image_is_left_out(script, camera):
    eye = camera(max_age_s=0.1)
    script.acts.put(pixels())
    until(lambda: eye.to_dict()["pictures"] == 1)
    until(lambda: eye.look().fault is not None)
    seen = eye.look()
    assert seen.image is None
    assert seen.age_s > 0.1
    assert "old, allowed are 0.1: nothing came from nowhere" in seen.fault
    script.acts.put(pixels())
    until(lambda: eye.look().fault is None)


def test_the_same_image_for_too_long_is_frozen_however_new_its_stamp(script, camera):
    eye, still = camera(frozen_s=0.15), threading.Event()

    def send(shade: int) -> None:
        while not still.wait(0.01):
            script.acts.put(pixels(shade))

    sender = threading.Thread(target=send, args=(50,))
    sender.start()
    try:
        until(lambda: eye.look().fault is not None and "frozen" in eye.look().fault)
        seen = eye.look()
        assert seen.image is None
        assert "frozen_s = inf" in seen.fault
    finally:
        still.set()
        sender.join()
    script.acts.put(pixels(51))
    until(lambda: eye.look().fault is None)


def test_a_lost_source_is_opened_again_and_the_reason_is_logged(script, camera, caplog):
    eye = camera(max_age_s=0.1)
    script.acts.put(pixels(1))
    eye.wait(LONG_S)
    script.acts.put(ConnectionLost("the plug was pulled"))
    until(lambda: "the plug was pulled" in (eye.look().fault or ""))
    until(lambda: script.opened == 2)
    assert script.closed >= 1
    script.acts.put(pixels(2))
    until(lambda: eye.look().fault is None)
    assert [r.levelname for r in caplog.records if "the plug was pulled" in r.getMessage()] == ["WARNING"]


def test_a_camera_survives_any_exception_of_its_driver(script, camera):
    eye = camera()
    script.acts.put(ZeroDivisionError("in the vendor's library"))
    until(lambda: "ZeroDivisionError: in the vendor's library" in (eye.look().fault or ""))
    script.acts.put(pixels())
    assert eye.wait(LONG_S).fault is None


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (b"no image at all", "no JPEG"),
        (cv2.imencode(".jpg", pixels())[1].tobytes()[:-9], "cut off"),
        (cv2.imencode(".jpg", pixels(0, (64, 48)))[1].tobytes(), "64 x 48 pixels, the settings say 32 x 24"),
        (pixels(0, (64, 48)), "64 x 48 pixels, the settings say 32 x 24"),
    ],
    ids=["garbage", "cut", "jpeg of another size", "pixels of another size"],
)
def test_a_damaged_image_is_counted_and_never_returned(script, camera, bad, words):
    eye = camera()
    script.acts.put(bad)
    until(lambda: eye.to_dict()["damaged"] == 1)
    assert words in eye.look().fault
    script.acts.put(pixels())
    assert eye.wait(LONG_S).fault is None
    assert script.opened == 1, "one bad image is no reason to connect again"


def test_the_end_of_a_file_ends_the_camera(script, camera):
    eye = camera()
    script.acts.put(EndOfStream("film.mp4 is at its end"))
    until(lambda: not eye._thread.is_alive())
    assert "film.mp4 is at its end" in eye.look().fault


def test_the_fault_before_the_first_image_names_the_reason(script):
    eye = Camera(CameraSettings("nowhere", "eye"), script)
    assert "was not opened" in eye.look().fault
    assert eye.to_dict()["age_s"] is None
    eye.open()
    assert "is being opened" in eye.wait(0.05).fault
    eye.close()
    assert script.cancelled.is_set()
    eye.close()
    eye.open()  # after the end: nothing
    assert not eye._thread.is_alive()
