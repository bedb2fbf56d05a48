from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cv2 = pytest.importorskip("cv2")

from rlenv_curate.checks.camera_signals import CameraSignals, signals_of  # noqa: E402
from rlenv_curate.checks.thumbnails import HEIGHT, WIDTH, Strip  # noqa: E402

SCENE = cv2.resize(
    np.random.default_rng(0).integers(30, 210, (9, 12, 3), np.uint8), (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC
)


def seen(offsets: Sequence[tuple[float, float]], rows: list[int] | None = None) -> CameraSignals:
    """The signals of a scene at offsets in pixels."""
    moves = [np.array([[1, 0, x], [0, 1, y]], np.float32) for x, y in offsets]
    pixels = [cv2.warpAffine(SCENE, move, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REPLICATE) for move in moves]
    places = np.arange(len(offsets)) if rows is None else np.array(rows)
    return signals_of(Strip(places, np.stack(pixels), np.full(len(offsets), np.nan)), 1 / 30)


@settings(max_examples=10, deadline=None)
@given(st.floats(-6, 6), st.floats(-6, 6))
def test_steps_are_the_displacements_between_images(x: float, y: float) -> None:
    steps = seen([(0, 0), (x, y), (0, 0)]).steps
    assert steps == pytest.approx(np.array([[0, 0], [x, y], [-x, -y]]), abs=0.6)


def test_a_leap_is_explained_by_a_displacement_of_all_of_the_image() -> None:
    signals = seen([(0, 0)] * 8 + [(5, -3)] * 8)
    ((index, size, left),) = signals.leaps.tolist()
    assert (index, size) == (8, pytest.approx(np.hypot(5, 3), abs=0.5))
    assert left < 0.3


def test_changes_are_unknown_after_a_gap() -> None:
    signals = seen([(0, 0)] * 6, rows=[0, 1, 2, 30, 31, 32])
    assert np.isnan(signals.change).tolist() == [True, False, False, True, False, False]
    assert np.isnan(signals.swept).tolist() == np.isnan(signals.change).tolist()


def test_small_images_keep_the_brightness() -> None:
    signals = seen([(0, 0)] * 4)
    assert signals.tiny.mean(1) == pytest.approx(signals.mean, abs=0.5)
    assert signals.samples.shape == (4, 24, 32, 3)
