"""Reduce the thumbnails of a camera in an episode to the numbers that the checks of cameras compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from recorder.log.image_codec import opencv
from rlenv_curate.checks.thumbnails import HEIGHT, WIDTH, Strip

__all__ = ["CameraSignals", "hold_images", "shift_between", "signals_of"]

_CELLS = (24, 32)
"""Rows and columns of the cells, each the mean of 3 x 3 pixels of a thumbnail, in which changes are measured."""
_MOST_CHANGED = 15
"""Cells, of 768, whose mean change is the change of an image: a small robot in a wide view counts."""
_SATURATED, _DARK = 250, 16
"""A pixel is saturated from this brightness on, and dark up to that one."""
_NOISE = 4.0
"""Change of a cell in grey levels that is taken to be noise."""
_HOLD_S = 0.4
"""Time in seconds over which an image that holds still is compared with itself."""
_SAMPLES = 24
"""Most coloured samples of an episode that are kept for comparisons with other episodes."""
_SHIFTS = 150
"""Most images of an episode whose shift against its background is measured."""
_TINY = (12, 16)
"""Rows and columns of the images that are kept of the whole episode, from which the positions of joints are read."""
_WAVES, _RESPONSE = 4.0, 0.05
"""Blur in pixels of a thumbnail whose result is taken off before neighbouring images are registered; and least response
of that registration."""
_LEAPS, _LEAP, _LEAP_SIDE = 4, 1.2, 3
"""Most leaps of an image that are looked at, their least size in pixels of a thumbnail, and images to either side whose
medians are compared."""
_BLUR, _EDGE, _FEWEST_EDGES = 1.5, 1.5, 100
"""Blur in pixels of a thumbnail before a shift is measured; slope in grey levels a pixel of an edge; and fewest pixels
of edges by which a shift is measured."""
_SEARCHED, _WORST = 10, 20
"""Largest displacement in pixels of a thumbnail that is looked for, and largest misfit of a pixel in grey levels."""
_STILL = 4.0
"""Median deviation in grey levels below which a pixel belongs to a background that stands still."""


@dataclass(frozen=True)
class CameraSignals:
    """One camera in one episode; N images, of rows that ascend.

    Attributes:
        rows: the row of each image, (N,).
        mean: brightness, 0 to 255, (N,).
        contrast: standard deviation of the brightness of cells, (N,).
        saturated: share of saturated pixels, (N,).
        dark: share of dark pixels, (N,).
        change: difference from the image before, in grey levels, where an image changes most; NaN after a gap, (N,).
        swept: mean change beyond `_NOISE` of all cells, which grows with the distance moved; NaN after a gap, (N,).
        hold: the difference, as ``change``, from the image `_HOLD_S` before, (N,).
        steps: displacement from the image before, x and y in pixels of a thumbnail; 0 where it is unclear, (N, 2).
        leaps: the images that are displaced most from the one before, (K, 3): the index of the image, the displacement
            in pixels, and the share of the difference that is left when the image is displaced and turned as a whole.
        tiny: small images in grey, uint8, (N, 192).
        sharpness: `rlenv_curate.checks.thumbnails.sharpness`, NaN where it was not measured, (N,).
        sample_rows: the row of each sample, (S,).
        samples: small images in colour, spread over the episode, uint8, (S, 24, 32, 3).
        background: the median of the episode's images, uint8, (72, 96).
        still: share of pixels that hardly ever differ from the background.
        shift_rows: the row of each shift, (M,).
        shifts: displacement of images from the background, x and y in pixels of a thumbnail, (M, 2).
    """

    rows: np.ndarray
    mean: np.ndarray
    contrast: np.ndarray
    saturated: np.ndarray
    dark: np.ndarray
    change: np.ndarray
    swept: np.ndarray
    hold: np.ndarray
    steps: np.ndarray
    leaps: np.ndarray
    tiny: np.ndarray
    sharpness: np.ndarray
    sample_rows: np.ndarray
    samples: np.ndarray
    background: np.ndarray
    still: float
    shift_rows: np.ndarray
    shifts: np.ndarray


def hold_images(period_s: float) -> int:
    """Return the number of images over which an image that holds still is compared with itself."""
    return max(round(_HOLD_S / period_s), 3)


def signals_of(strip: Strip, period_s: float) -> CameraSignals:
    """Compute the signals of a strip of at least one image.

    Args:
        strip: the thumbnails.
        period_s: time between two rows, in seconds.
    """
    cv2, count = opencv("checking images"), len(strip.rows)
    gray = np.stack([cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in strip.pixels])
    cells, flat = _means(gray, _CELLS).reshape(count, -1), gray.reshape(count, -1)
    samples, shifted = _spread(count, _SAMPLES), _spread(count, _SHIFTS)
    steps = _steps(gray)
    background = np.median(gray[samples], axis=0).astype(np.uint8)
    away = np.median(np.abs(gray[samples].astype(np.int16) - background), axis=0)
    return CameraSignals(
        rows=strip.rows,
        mean=flat.mean(1),
        contrast=cells.std(1),
        saturated=(flat >= _SATURATED).mean(1),
        dark=(flat <= _DARK).mean(1),
        change=_change(cells, strip.rows, 1, _most_changed),
        swept=_change(cells, strip.rows, 1, _swept),
        hold=_change(cells, strip.rows, hold_images(period_s), _most_changed),
        steps=steps,
        leaps=_leaps(gray, steps),
        tiny=_means(gray, _TINY).round().astype(np.uint8).reshape(count, -1),
        sharpness=strip.sharpness,
        sample_rows=strip.rows[samples],
        samples=_means(strip.pixels[samples], _CELLS).round().astype(np.uint8),
        background=background,
        still=float((away < _STILL).mean()),
        shift_rows=strip.rows[shifted],
        shifts=_shifts(background, away < _STILL, gray[shifted]),
    )


def _spread(count: int, most: int) -> np.ndarray:
    """Return at most so many of ``count`` indices, spread evenly."""
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.int64))


def _means(pixels: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Return the mean of the pixels in each cell of a grid, float32, (N, rows, columns, ...)."""
    rows, columns = grid
    parts = pixels.reshape(len(pixels), rows, HEIGHT // rows, columns, WIDTH // columns, *pixels.shape[3:])
    return np.asarray(parts.mean((2, 4), dtype=np.float32))


def _steps(gray: np.ndarray) -> np.ndarray:
    """Return the displacement of each image from the one before by phase correlation, (N, 2)."""
    cv2 = opencv("checking images")
    window = cv2.createHanningWindow((WIDTH, HEIGHT), cv2.CV_32F)
    steps, before = np.zeros((len(gray), 2)), None
    for number, image in enumerate(gray.astype(np.float32)):
        details = image - cv2.GaussianBlur(image, (0, 0), _WAVES)
        if before is not None:
            step, response = cv2.phaseCorrelate(before, details, window)
            steps[number] = step if response >= _RESPONSE else 0
        before = details
    return steps


def _leaps(gray: np.ndarray, steps: np.ndarray) -> np.ndarray:
    sizes = np.hypot(*steps.T)
    found: list[tuple[float, float, float]] = []
    for index in np.argsort(-sizes)[: 3 * _LEAPS].tolist():
        near = any(abs(index - other) <= _LEAP_SIDE for other, _, _ in found)
        if sizes[index] < _LEAP or len(found) == _LEAPS:
            break
        if not near and _LEAP_SIDE <= index <= len(gray) - _LEAP_SIDE:
            before = np.median(gray[index - _LEAP_SIDE : index], axis=0)
            after = np.median(gray[index : index + _LEAP_SIDE], axis=0)
            found.append((index, float(sizes[index]), _left_by_displacement(before, after, steps[index])))
    return np.array(found).reshape(-1, 3)


def _left_by_displacement(before: np.ndarray, after: np.ndarray, step: np.ndarray) -> float:
    """Return the share of the difference of two images that is left by the best displacement and turn; 1 if none."""
    cv2, margin = opencv("checking images"), _SEARCHED
    one, other = (cv2.GaussianBlur(image.astype(np.float32), (0, 0), 1.0) for image in (before, after))
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[margin:-margin, margin:-margin] = 255
    begin = np.array([[1, 0, step[0]], [0, 1, step[1]]], np.float32)
    stop = (cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 50, 1e-4)
    try:
        _, move = cv2.findTransformECC(one, other, begin, cv2.MOTION_EUCLIDEAN, stop, mask, 1)
    except cv2.error:  # it does not converge
        return 1.0
    back = cv2.warpAffine(other, move, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    inner = (slice(margin, -margin), slice(margin, -margin))
    as_is, left = (float(np.minimum(np.abs(one - image)[inner], _WORST).mean()) for image in (other, back))
    return left / max(as_is, 1e-3)


def _change(
    cells: np.ndarray, rows: np.ndarray, distance: int, measure: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return a measure of each image's change from the image ``distance`` before, (N,).

    Args:
        cells: brightness of cells, (N, C).
        rows: the row of each image, (N,).
        distance: number of images; NaN stands where the image before is further away in rows than is usual.
        measure: called with the absolute changes of the cells, (M, C); returns (M,).
    """
    change = np.full(len(cells), np.nan)
    if len(cells) <= distance:
        return change
    usual = float(np.median(np.diff(rows)))
    near = rows[distance:] - rows[:-distance] <= distance * usual + 1
    change[distance:] = np.where(near, measure(np.abs(cells[distance:] - cells[:-distance])), np.nan)
    return change


def _most_changed(difference: np.ndarray) -> np.ndarray:
    return np.asarray(np.partition(difference, -_MOST_CHANGED, axis=1)[:, -_MOST_CHANGED:].mean(1))


def _swept(difference: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(difference - _NOISE, 0).mean(1))


def _blurred(images: np.ndarray) -> np.ndarray:
    cv2 = opencv("checking images")
    return np.stack([cv2.GaussianBlur(image, (0, 0), _BLUR) for image in images.astype(np.float32)])


def _shifts(background: np.ndarray, still: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Return the displacement of images from their background, x and y in pixels, (M, 2); right up to a few pixels.

    Least squares over the pixels that stand still, with brightness and contrast free, and once more without the pixels
    that fit badly, such as those that a robot hides.
    """
    reference = _blurred(background[None])[0]
    down, right = np.gradient(reference)
    chosen = still & (np.hypot(down, right) > _EDGE)
    if chosen.sum() < _FEWEST_EDGES:
        return np.zeros((len(images), 2))
    columns = np.stack([-right[chosen], -down[chosen], np.ones(chosen.sum()), reference[chosen]], axis=1)
    columns = columns.astype(np.float64)
    residuals = (_blurred(images)[:, chosen] - reference[chosen]).astype(np.float64)
    first = residuals @ np.linalg.pinv(columns).T
    misfit = np.abs(residuals - first @ columns.T)
    weights = (misfit <= 2.5 * np.median(misfit, axis=1, keepdims=True) + 0.5).astype(np.float64)
    normal = np.einsum("mp,pi,pj->mij", weights, columns, columns, optimize=True) + 1e-6 * np.eye(4)
    target = (weights * residuals) @ columns
    return np.asarray(np.linalg.solve(normal, target[..., None])[:, :2, 0])


def shift_between(reference: np.ndarray, image: np.ndarray) -> tuple[float, float, float]:
    """Find the displacement of one background from another by trying all up to `_SEARCHED` pixels.

    Args:
        reference: uint8, (H, W).
        image: uint8, of the same shape.

    Returns:
        x and y in pixels, and the misfit there as a share of that without displacement.
    """
    height, width = reference.shape
    inside = reference[_SEARCHED : height - _SEARCHED, _SEARCHED : width - _SEARCHED].astype(np.int16)
    light = float(reference.mean()) / max(float(image.mean()), 1.0)  # another brightness is no displacement
    image, side = np.clip(image * light, 0, 255).astype(np.int16), 2 * _SEARCHED + 1
    misfit = np.empty((side, side))
    for y in range(side):
        for x in range(side):
            part = image[y : y + inside.shape[0], x : x + inside.shape[1]]
            misfit[y, x] = np.minimum(np.abs(part - inside), _WORST).mean()
    down, right = divmod(int(misfit.argmin()), side)
    share = float(misfit[down, right] / max(misfit[_SEARCHED, _SEARCHED], 1e-3))
    return float(right - _SEARCHED), float(down - _SEARCHED), share
