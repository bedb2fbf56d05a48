from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

cv2 = pytest.importorskip("cv2")

from rlenv_curate.checks.camera_signals import CameraSignals, signals_of  # noqa: E402
from rlenv_curate.checks.cameras import Camera  # noqa: E402
from rlenv_curate.checks.image_timing import check_image_timing  # noqa: E402
from rlenv_curate.checks.table import Finding  # noqa: E402
from rlenv_curate.checks.thumbnails import HEIGHT, WIDTH, Strip  # noqa: E402

FRAMES, ILL = 120, 1
RNG = np.random.default_rng(0)


def filmed() -> np.ndarray:
    """A block that moves steadily over a noisy background."""
    frames = RNG.normal(80, 1.5, (FRAMES, HEIGHT, WIDTH, 3))
    for number, frame in enumerate(frames):
        left = int(38 + 38 * np.sin(number / 9))
        frame[20:50, left : left + 16] = 220
    return frames.clip(0, 255).astype(np.uint8)


def signals(pixels: np.ndarray) -> CameraSignals:
    return signals_of(Strip(np.arange(len(pixels)), pixels, np.full(len(pixels), np.nan)), 1 / 30)


FILMS = [filmed() for _ in range(4)]
MOTION = {number: np.full(FRAMES, 0.02) for number in range(4)}
GOOD = Camera("top", {number: signals(film) for number, film in enumerate(FILMS)}, MOTION, 1 / 30)
TWICE = np.arange(FRAMES) // 2 * 2


def findings(camera: Camera) -> list[Finding]:
    return check_image_timing(camera, lambda episode: camera.motion[episode][:, None])


def test_steady_images_have_no_findings() -> None:
    assert findings(GOOD) == []


@pytest.mark.parametrize("phase", [0, 1])
def test_every_image_twice_in_a_whole_episode(phase: int) -> None:
    twice = signals(FILMS[ILL][np.maximum(TWICE - phase, 0)])
    (finding,) = findings(replace(GOOD, signals={**GOOD.signals, ILL: twice}))
    assert (finding.kind, finding.episode) == ("doubled", ILL)


def test_every_image_twice_in_all_episodes_is_one_finding() -> None:
    (finding,) = findings(replace(GOOD, signals={number: signals(film[TWICE]) for number, film in enumerate(FILMS)}))
    assert (finding.kind, finding.episode) == ("doubled", -1)
    assert "14 images" in finding.message


def test_images_of_a_rest_are_not_judged() -> None:
    still = np.concatenate([np.arange(60), np.full(60, 59)])
    motion = {**MOTION, ILL: np.where(np.arange(FRAMES) < 60, 0.02, 0.0)}
    pixels = FILMS[ILL][still]
    pixels[60::2] = np.clip(pixels[60::2].astype(int) + 2, 0, 255).astype(np.uint8)
    assert findings(replace(GOOD, signals={**GOOD.signals, ILL: signals(pixels)}, motion=motion)) == []
