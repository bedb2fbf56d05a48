"""A JPEG's size, and that it is whole, without decoding it."""

import numpy as np
import pytest

from hal import RobotError
from hal.cameras.source import jpeg_size

cv2 = pytest.importorskip("cv2", reason="needs OpenCV: the extra headless or vision")


def encoded(width: int, height: int, *options: int) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8)
    return cv2.imencode(".jpg", pixels, list(options))[1].tobytes()


@pytest.mark.parametrize("size", [(1, 1), (640, 480), (481, 77)])
@pytest.mark.parametrize("options", [(), (cv2.IMWRITE_JPEG_PROGRESSIVE, 1), (cv2.IMWRITE_JPEG_RST_INTERVAL, 2)])
def test_the_size_is_what_opencv_encoded(size, options):
    assert jpeg_size(encoded(*size, *options)) == size


def test_padding_behind_the_end_marker_is_accepted_and_a_missing_marker_is_refused():
    image = encoded(64, 48)
    assert jpeg_size(image + bytes(32)) == (64, 48)
    with pytest.raises(RobotError, match="cut off"):
        jpeg_size(image[:-2])


def test_cut_and_random_data_is_refused_or_has_a_size():
    image, rng = encoded(32, 32), np.random.default_rng(1)
    for stop in range(len(image) - 1):
        with pytest.raises(RobotError):
            jpeg_size(image[:stop])
    for _ in range(2000):
        garbage = bytearray(image)
        for place in rng.integers(0, len(image), 8):
            garbage[place] = rng.integers(256)
        try:
            width, height = jpeg_size(bytes(garbage))
        except RobotError:
            continue
        assert 0 <= width < 65536
        assert 0 <= height < 65536
