"""A camera's settings refuse what can't be, and its source is shown without its password."""

import math

import pytest

from hal.cameras.settings import CameraSettings


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("source", "", "source is missing"),
        ("name", "Left Eye", "lower case"),
        ("width", 0, "1 to 16384"),
        ("height", 20000, "1 to 16384"),
        ("fps", 0.0, "above 0"),
        ("fps", math.inf, "finite"),
        ("quality", 101, "1 to 100"),
        ("max_age_s", math.nan, "above 0"),
        ("frozen_s", -1.0, "above 0"),
        ("delay_s", -0.1, "0 or above"),
        ("loss", "ignore", "'note', 'fault', 'stop'"),
    ],
)
def test_an_illegal_setting_is_refused_by_name(key, value, words):
    with pytest.raises(ValueError, match=words) as refused:
        CameraSettings(**{"source": "0", key: value})
    assert str(refused.value).startswith(key)


def test_a_frozen_image_may_be_allowed_for_ever():
    assert CameraSettings("0", frozen_s=math.inf).frozen_s == math.inf


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("rtsp://admin:secret@10.0.0.9:554/ch1?token=secret", "rtsp://10.0.0.9:554/ch1"),
        ("http://10.0.0.9/video.mjpg", "http://10.0.0.9/video.mjpg"),
        ("/dev/video0", "/dev/video0"),
    ],
)
def test_passwords_are_never_shown(source, shown):
    assert CameraSettings(source).shown == shown


def test_settings_give_the_cameras_spec():
    assert CameraSettings("0", "wrist", 320, 240, meaning="the finger tips").spec == (
        CameraSettings("1", "wrist", 320, 240, meaning="the finger tips").spec
    )
    spec = CameraSettings("0", "wrist", 320, 240, meaning="the finger tips").spec
    assert (spec.name, spec.width, spec.height, spec.meaning) == ("wrist", 320, 240, "the finger tips")
