from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cv2 = pytest.importorskip("cv2")

from rlenv_curate.checks.camera_signals import CameraSignals, shift_between, signals_of  # noqa: E402
from rlenv_curate.checks.cameras import Camera, check_camera, check_swapped, explained, stretches  # noqa: E402
from rlenv_curate.checks.image_timing import check_image_timing  # noqa: E402
from rlenv_curate.checks.table import ADVICE, Finding  # noqa: E402
from rlenv_curate.checks.thumbnails import HEIGHT, WIDTH, Strip, sharpness  # noqa: E402

EPISODES, FRAMES, PERIOD_S = 5, 200, 1 / 30
ILL = 2


def background(seed: int) -> np.ndarray:
    """A scene with edges and colours."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(30, 210, (6, 8, 3), np.uint8)
    return cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)


def positions(rng: np.random.Generator) -> np.ndarray:
    """The place of a block, 0 to 1, which goes from place to place and rests in between, as a person moves it."""
    path: list[np.ndarray] = []
    here = 0.5
    while sum(len(one) for one in path) < FRAMES:
        there = rng.uniform(0.05, 0.95)
        phase = np.linspace(0, 1, int(rng.uniform(12, 28)))
        path += [here + (there - here) * (3 - 2 * phase) * phase**2, np.full(int(rng.uniform(0, 8)), there)]
        here = there
    return np.concatenate(path)[:FRAMES]


def filmed(scene: np.ndarray, places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    frames = np.repeat(scene[None], len(places), 0).astype(np.float32)
    for frame, place in zip(frames, places, strict=True):
        left = int(place * (WIDTH - 14))
        frame[20:48, left : left + 14] = (230, 60, 40)
    return np.clip(frames + rng.normal(0, 1.5, frames.shape), 0, 255).astype(np.uint8)


def strip_of(pixels: np.ndarray) -> Strip:
    gray = [cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in pixels]
    sharp = [sharpness(image) if number % 8 == 0 else np.nan for number, image in enumerate(gray)]
    return Strip(np.arange(len(pixels)), pixels, np.array(sharp))


class Set:
    """Episodes of one camera, and their joint."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.places = [positions(rng) for _ in range(EPISODES)]
        self.pixels = [filmed(background(seed), places, rng) for places in self.places]
        self.rng = rng

    def camera(self, name: str = "top") -> Camera:
        motion = {number: np.abs(np.diff(places, prepend=places[0])) for number, places in enumerate(self.places)}
        return Camera(
            name, {n: signals_of(strip_of(one), PERIOD_S) for n, one in enumerate(self.pixels)}, motion, PERIOD_S
        )

    def findings(self) -> list[Finding]:
        camera = self.camera()
        return [*check_camera(camera), *check_image_timing(camera, lambda number: camera.motion[number][:, None])]


SET = Set()


@pytest.fixture(scope="module")
def healthy() -> Camera:
    return SET.camera()


def judged(healthy: Camera, pixels: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> list[Finding]:
    """The findings of a set of which episode `ILL` is changed."""
    data = SET
    signals = signals_of(strip_of(pixels(data.pixels[ILL].copy(), np.random.default_rng(1))), PERIOD_S)
    camera = replace(healthy, signals={**healthy.signals, ILL: signals})
    return explained(
        [*check_camera(camera), *check_image_timing(camera, lambda number: camera.motion[number][:, None])]
    )


def part(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    def apply(pixels: np.ndarray, _: np.random.Generator) -> np.ndarray:
        pixels[60:150] = change(pixels[60:150])
        return pixels

    return apply


def shifted(pixels: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    moves = [np.array([[1, 0, x], [0, 1, y]], np.float32) for x, y in shifts]
    pairs = zip(pixels, moves, strict=True)
    return np.stack([cv2.warpAffine(f, m, (WIDTH, HEIGHT), borderMode=cv2.BORDER_REPLICATE) for f, m in pairs])


def doubled(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    index = np.arange(FRAMES)
    index[1:][rng.random(FRAMES - 1) < 0.3] -= 1
    return pixels[index]


def at_once(noise: int) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Black images, or ones of noise, at three places."""

    def apply(pixels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        pixels[[40, 90, 93]] = rng.integers(0, noise + 1, pixels[:3].shape)
        return pixels

    return apply


FAULTS: dict[str, tuple[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]]] = {
    "black": ("blank", part(np.zeros_like)),
    "one colour": ("blank", part(lambda pixels: np.full_like(pixels, 128))),
    "frozen": ("frozen", part(lambda pixels: np.repeat(pixels[:1], len(pixels), 0))),
    "bright": ("exposure", part(lambda pixels: np.clip(pixels.astype(int) * 2 + 60, 0, 255).astype(np.uint8))),
    "dark": ("exposure", part(lambda pixels: pixels // 6)),
    "soft": ("blurred", part(lambda pixels: np.stack([cv2.GaussianBlur(one, (0, 0), 2.5) for one in pixels]))),
    "elsewhere": ("moved", lambda pixels, _: shifted(pixels, np.tile([5, 3], (FRAMES, 1)))),
    "pushed": ("moved", part(lambda pixels: shifted(pixels, np.tile([3, 2], (len(pixels), 1))))),
    "colours": ("colour", lambda pixels, _: pixels[..., ::-1]),
    "upside down": ("turned", lambda pixels, _: pixels[:, ::-1, ::-1]),
    "mirrored": ("turned", lambda pixels, _: pixels[:, :, ::-1]),
    "one black": ("glitch", at_once(0)),
    "one noisy": ("glitch", at_once(255)),
    "late": ("lag", lambda pixels, _: pixels[np.maximum(np.arange(FRAMES) - 8, 0)]),
    "doubled": ("doubled", doubled),
}


def test_healthy_cameras_have_no_findings(healthy: Camera) -> None:
    assert check_camera(healthy) == []
    assert check_image_timing(healthy, lambda number: healthy.motion[number][:, None]) == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_in_its_episode_alone(healthy: Camera, name: str) -> None:
    kind, change = FAULTS[name]
    findings = judged(healthy, change)
    assert kind in {finding.kind for finding in findings}
    assert {finding.episode for finding in findings} == {ILL}
    assert {finding.field for finding in findings} == {"camera top"}
    assert all(finding.kind in ADVICE for finding in findings)
    if name in ("black", "frozen", "bright", "dark"):
        places = [(finding.first, finding.last) for finding in findings if finding.kind == kind]
        assert abs(min(places)[0] - 60) <= 20
        assert abs(max(places)[1] - 149) <= 20


def test_a_camera_that_shakes(healthy: Camera) -> None:
    findings = judged(healthy, lambda pixels, rng: shifted(pixels, rng.normal(0, 2, (FRAMES, 2))))
    assert {finding.kind for finding in findings} & {"shaken", "moved"}
    assert {finding.episode for finding in findings} == {ILL}


def test_cameras_that_are_swapped_in_one_episode(healthy: Camera) -> None:
    side = replace(Set(1).camera("side"), motion=healthy.motion)
    assert check_swapped([healthy, side]) == []
    top = replace(healthy, signals={**healthy.signals, ILL: side.signals[ILL]})
    side = replace(side, signals={**side.signals, ILL: healthy.signals[ILL]})
    findings = check_swapped([top, side])
    assert {(finding.kind, finding.episode) for finding in findings} == {("swapped", ILL)}
    assert {finding.field for finding in findings} == {"camera top", "camera side"}


@pytest.mark.parametrize("light", [0.85, 1.15])
def test_another_light_has_no_finding(healthy: Camera, light: float) -> None:
    assert judged(healthy, lambda pixels, _: np.clip(pixels * light, 0, 255).astype(np.uint8)) == []


@settings(max_examples=10, deadline=None)
@given(st.integers(-8, 8), st.integers(-8, 8), st.integers(0, 1000))
def test_a_displacement_is_measured(x: int, y: int, seed: int) -> None:
    scene = cv2.cvtColor(background(seed), cv2.COLOR_RGB2GRAY)
    moved = shifted(scene[None], np.array([[x, y]]))[0]
    assert shift_between(scene, moved)[:2] == pytest.approx((x, y), abs=1)


def test_stretches_close_short_gaps() -> None:
    flags = np.array([0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 0], bool)
    assert stretches(flags, 2) == [(1, 5)]
    assert stretches(flags, 1) == [(1, 5), (9, 9)]


def test_an_episode_of_one_image_is_judged(healthy: Camera) -> None:
    one: CameraSignals = signals_of(strip_of(SET.pixels[0][:1]), PERIOD_S)
    camera = replace(healthy, signals={**healthy.signals, 7: one}, motion={**healthy.motion, 7: np.zeros(1)})
    assert check_camera(camera) == []
