from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

cv2 = pytest.importorskip("cv2")

from rlenv_curate.checks.camera_signals import CameraSignals, signals_of  # noqa: E402
from rlenv_curate.checks.cameras import Camera  # noqa: E402
from rlenv_curate.checks.joints_in_images import (  # noqa: E402
    JointReader,
    check_exchanged,
    check_mixed,
    check_order,
    read_joints,
)
from rlenv_curate.checks.thumbnails import HEIGHT, WIDTH, Strip  # noqa: E402

EPISODES, FRAMES, PERIOD_S, ILL = 6, 150, 1 / 30, 3
RNG = np.random.default_rng(0)
TIME = np.arange(FRAMES)[:, None] * PERIOD_S
PLACES = [0.5 + 0.4 * np.sin(TIME * RNG.uniform(2, 4, 2) + RNG.uniform(0, 6, 2)) for _ in range(EPISODES)]
"""Two joints, (FRAMES, 2): each camera sees one of them."""


def filmed(joint: np.ndarray) -> np.ndarray:
    """A bright block whose place in the image is that of a joint, 0 to 1; both cameras look the same."""
    frames = RNG.normal(60, 2, (len(joint), HEIGHT, WIDTH, 3))
    for frame, place in zip(frames, joint, strict=True):
        left = int(place * (WIDTH - 20))
        frame[20:50, left : left + 20] = 200
    return frames.clip(0, 255).astype(np.uint8)


def signals(pixels: np.ndarray) -> CameraSignals:
    return signals_of(Strip(np.arange(len(pixels)), pixels, np.full(len(pixels), np.nan)), PERIOD_S)


FILMS = [[filmed(places[:, joint]) for places in PLACES] for joint in (0, 1)]


GOOD = [[signals(film) for film in films] for films in FILMS]


def camera(joint: int, change: Callable[[np.ndarray], np.ndarray] | None = None, shows: int | None = None) -> Camera:
    made = list(GOOD[joint])
    made[ILL] = GOOD[joint if shows is None else shows][ILL]
    if change is not None:
        made[ILL] = signals(change(FILMS[joint][ILL]))
    motion = {number: np.abs(np.diff(one, axis=0, prepend=one[:1])).sum(1) for number, one in enumerate(PLACES)}
    return Camera(f"cam{joint}", dict(enumerate(made)), motion, PERIOD_S)


def reader(of: Camera) -> JointReader:
    made = read_joints(of, PLACES.__getitem__)
    assert made is not None
    return made


def lost(pixels: np.ndarray) -> np.ndarray:
    kept = np.delete(np.arange(FRAMES), [*range(40, 48), *range(80, 88), *range(110, 118)])
    return pixels[np.concatenate([kept, np.full(FRAMES - len(kept), kept[-1])])]


def test_each_camera_reads_the_joint_that_it_sees_and_good_episodes_have_no_findings() -> None:
    readers = [reader(camera(joint)) for joint in (0, 1)]
    assert [one.used.tolist() for one in readers] == [[True, False], [False, True]]
    assert [finding for one in readers for finding in check_order(one)] == []
    assert check_exchanged(readers) == []


def test_images_that_are_lost_in_three_places() -> None:
    (finding,) = check_order(reader(camera(0, lost)))
    assert (finding.kind, finding.episode, finding.field) == ("dropped", ILL, "camera cam0")
    assert abs(finding.first - 40) <= 12


def test_cameras_that_look_the_same_and_are_exchanged() -> None:
    findings = check_exchanged([reader(camera(0, shows=1)), reader(camera(1, shows=0))])
    assert [(one.kind, one.episode, one.field) for one in findings] == [
        ("swapped", ILL, "camera cam0"),
        ("swapped", ILL, "camera cam1"),
    ]


def test_images_of_another_episode() -> None:
    own = camera(0)
    mixed = replace(own, signals={**own.signals, ILL: own.signals[ILL - 1]})
    (finding,) = check_mixed(reader(mixed))
    assert (finding.kind, finding.episode, finding.field) == ("mixed", ILL, "camera cam0")
    assert f"episode {ILL - 1} " in finding.message
    for good in (own, camera(0, lost), camera(0, shows=1)):
        assert check_mixed(reader(good)) == []


def test_a_lag_is_rejected_where_the_images_show_none() -> None:
    assert reader(camera(0)).rejects(ILL, 8)
    late = reader(camera(0, lambda pixels: pixels[np.maximum(np.arange(FRAMES) - 8, 0)]))
    assert not late.rejects(ILL, 8)
    assert late.rejects(0, 8)


def test_too_few_episodes_are_not_judged() -> None:
    whole = camera(0)
    few = replace(whole, signals={number: whole.signals[number] for number in range(3)})
    assert read_joints(few, PLACES.__getitem__) is None
