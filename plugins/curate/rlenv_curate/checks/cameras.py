"""Compare the images of each camera with those of the set's other episodes, and find cameras that fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rlenv_curate.checks.camera_signals import CameraSignals, hold_images, shift_between
from rlenv_curate.checks.table import Finding, runs_of
from rlenv_curate.checks.thumbnails import WIDTH

__all__ = ["Camera", "check_camera", "check_swapped", "explained", "spread_of", "stretches"]

_CHUNK = 48
"""Images that are taken together where a set is compared with itself."""
_WHOLE = 0.95
"""Share of an episode's images from which a finding is of the whole episode."""


@dataclass(frozen=True)
class Camera:
    """One camera in all episodes that have its images.

    Attributes:
        name: the camera's name.
        signals: episode -> signals.
        motion: episode -> motion of the joints before each row, as `rlenv_curate.checks.motion.speeds` returns it.
        period_s: time between two rows, in seconds.
    """

    name: str
    signals: Mapping[int, CameraSignals]
    motion: Mapping[int, np.ndarray]
    period_s: float

    def chunks(self, attribute: str, share: float) -> np.ndarray:
        """Return a quantile of a signal in each chunk of `_CHUNK` images, without chunks that have none."""
        values = []
        for signals in self.signals.values():
            signal = getattr(signals, attribute)
            for first in range(0, max(len(signal) - _CHUNK // 2, 1), _CHUNK):
                part = signal[first : first + _CHUNK]
                part = part[np.isfinite(part)]
                values += [float(np.quantile(part, share))] if len(part) else []
        return np.array(values)


def spread_of(values: np.ndarray) -> float:
    """Return the standard deviation as estimated by the median absolute deviation; 0 for no values."""
    return float(1.4826 * np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def stretches(flags: np.ndarray, least: int, bridged: int = 2) -> list[tuple[int, int]]:
    """Return the runs of at least ``least`` flags as (first, last), after gaps of at most ``bridged`` are closed."""
    closed = flags.copy()
    for begin, end in runs_of(~flags).tolist():
        if begin > 0 and end < len(flags) and end - begin <= bridged:
            closed[begin:end] = True
    return [(begin, end - 1) for begin, end in runs_of(closed).tolist() if end - begin >= least]


def check_camera(camera: Camera) -> list[Finding]:
    """Find blank, wrongly exposed, blurred, frozen, moved, turned, shaken, miscoloured and broken images of a
    camera.
    """
    if not camera.signals:
        return []
    checks = (_blank, _glitches, _exposure, _blurred, _frozen, _colour, _turned, _moved_between, _moved_within, _shaken)
    return explained([finding for check in checks for finding in check(camera)])


def explained(findings: list[Finding]) -> list[Finding]:
    """Return the findings without those that follow from another one of the same camera and the same images.

    A blank image is also dark, still and somewhere else; a swapped one, or one of another brightness, has another
    background.
    """
    return [finding for finding in findings if not any(_explains(other, finding) for other in findings)]


_CAUSES = ("blank", "swapped", "exposure")
"""Kinds that explain other findings, each those of the kinds after it too."""


def _explains(cause: Finding, finding: Finding) -> bool:
    if (cause.episode, cause.field) != (finding.episode, finding.field):
        return False
    if cause.kind == "shaken" and finding.kind in ("moved", "doubled", "dropped"):
        return cause.first <= finding.first <= cause.last
    if cause.kind == "turned" and finding.kind in ("moved", "lag"):
        return True
    if cause.kind not in _CAUSES:
        return False
    if finding.kind in _CAUSES and _CAUSES.index(finding.kind) <= _CAUSES.index(cause.kind):
        return False
    overlap = min(finding.last, cause.last) - max(finding.first, cause.first) + 1
    return overlap > (finding.last - finding.first + 1) / 2


def _finding(camera: Camera, kind: str, episode: int, first: int, last: int, message: str) -> Finding:
    """Return a finding of the images first to last of an episode."""
    rows = camera.signals[episode].rows
    return Finding(kind, episode, f"camera {camera.name}", int(rows[first]), int(rows[last]), message)


def _seconds(camera: Camera, episode: int, first: int, last: int) -> str:
    rows = camera.signals[episode].rows
    if last - first + 1 >= _WHOLE * len(rows):
        return "in the whole episode"
    return f"for {(rows[last] - rows[first] + 1) * camera.period_s:.1f} s"


# ---- single images ----

_BLANK_CONTRAST, _BLACK = 2.5, 0.98
"""Standard deviation of an image's cells in grey levels, and share of dark pixels, from which an image is blank."""
_BLANK_IMAGES, _BLANK_S = 2, 1.0
"""Fewest black images that are reported, and shortest time without a feature in another colour."""


def _blank(camera: Camera) -> Iterator[Finding]:
    for episode, signals in camera.signals.items():
        black = (signals.dark >= _BLACK) & (signals.contrast < 2 * _BLANK_CONTRAST)
        for first, last in stretches(black, min(_BLANK_IMAGES, len(black))):
            text = f"black {_seconds(camera, episode, first, last)}"
            yield _finding(camera, "blank", episode, first, last, text)
        plain = (signals.contrast < _BLANK_CONTRAST) & ~black
        for first, last in stretches(plain, min(_images_in(camera, signals, _BLANK_S), len(plain))):
            level = float(np.median(signals.mean[first : last + 1]))
            text = f"one colour, of brightness {level:.0f} of 255, {_seconds(camera, episode, first, last)}"
            yield _finding(camera, "blank", episode, first, last, text)


_GLITCH, _GLITCH_TIMES = 8.0, 4.0
"""Least difference of a broken image from those before and after it, in grey levels, and as a multiple of the
difference of these two, and of the largest in a usual episode."""


def _glitches(camera: Camera) -> Iterator[Finding]:
    """Find single images unlike the one before and the one after, which are alike."""
    away = {episode: _oddness(signals.tiny.astype(np.int16)) for episode, signals in camera.signals.items()}
    usual = float(np.median([off.max(initial=0) for off, _ in away.values()])) if len(away) > 2 else 0.0
    for episode, (off, apart) in away.items():
        own = float(np.quantile(off, 0.9)) if len(off) else 0.0
        high = off > np.maximum(max(_GLITCH, _GLITCH_TIMES * max(own, usual)), _GLITCH_TIMES * apart)
        places = np.flatnonzero(high) + 1
        if len(places):
            text = f"{len(places)} single images unlike those before and after, by up to {off.max():.0f} grey levels"
            yield _finding(camera, "glitch", episode, int(places[0]), int(places[-1]), text)


def _oddness(tiny: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lesser difference of each image from its two neighbours, and the difference of these, (N - 2,)."""
    steps = np.abs(np.diff(tiny, axis=0)).mean(1)
    return np.minimum(steps[:-1], steps[1:]), np.abs(tiny[2:] - tiny[:-2]).mean(1)


def _images_in(camera: Camera, signals: CameraSignals, seconds: float) -> int:
    """Return the number of images in so many seconds, at least 3."""
    step = float(np.median(np.diff(signals.rows))) if len(signals.rows) > 1 else 1.0
    return max(round(seconds / camera.period_s / step), 3)


_EXPOSURE_S = 0.5
"""Shortest time in seconds of wrong exposure, or of images out of focus, that is reported."""
_SATURATED, _BRIGHTER, _DARKER = 0.25, 60.0, 0.45
"""Share of further saturated pixels, grey levels more, and share of the usual brightness, that count as wrong."""


def _exposure(camera: Camera) -> Iterator[Finding]:
    saturated, bright, dim = (camera.chunks(*of) for of in (("saturated", 0.95), ("mean", 0.95), ("mean", 0.05)))
    most = float(np.median(saturated)) + max(_SATURATED, 5 * spread_of(saturated))
    high = float(np.median(bright)) + max(_BRIGHTER, 5 * spread_of(bright))
    usual = float(np.median(dim))
    low = min(_DARKER * usual, usual - 5 * spread_of(dim))
    for episode, signals in camera.signals.items():
        least = min(_images_in(camera, signals, _EXPOSURE_S), len(signals.rows))
        over = (signals.saturated > most) | (signals.mean > high)
        for first, last in stretches(over, least):
            part = slice(first, last + 1)
            text = (
                f"over-exposed {_seconds(camera, episode, first, last)}: {np.median(signals.saturated[part]):.0%} of "
                f"the pixels are saturated, {np.median(saturated):.0%} are usual; brightness "
                f"{np.median(signals.mean[part]):.0f}, {np.median(bright):.0f} is usual"
            )
            yield _finding(camera, "exposure", episode, first, last, text)
        for first, last in stretches(signals.mean < low, least):
            level = np.median(signals.mean[first : last + 1])
            text = (
                f"under-exposed {_seconds(camera, episode, first, last)}: brightness {level:.0f}, {usual:.0f} is usual"
            )
            yield _finding(camera, "exposure", episode, first, last, text)


_LESS_SHARP, _SOFT, _SHARP = 0.8, -3.0, -2.5
"""Fall of the sharpness (a logarithm) that counts as blur; sharpness of images without any fine detail, and the least
of a camera that has some."""


def _blurred(camera: Camera) -> Iterator[Finding]:
    chunks = camera.chunks("sharpness", 0.5)
    usual = float(np.median(chunks)) if len(chunks) else 0.0
    low = usual - max(_LESS_SHARP, 4 * spread_of(chunks))
    if usual > _SHARP:
        low = max(low, _SOFT)
    for episode, signals in camera.signals.items():
        measured = np.flatnonzero(np.isfinite(signals.sharpness))
        soft = signals.sharpness[measured] < low
        least = max(round(2 * _images_in(camera, signals, _EXPOSURE_S) * len(measured) / max(len(signals.rows), 1)), 3)
        for first, last in stretches(soft, min(least, len(soft)), 1):
            value = float(np.median(signals.sharpness[measured[first : last + 1]]))
            first, last = int(measured[first]), int(measured[last])
            text = (
                f"out of focus {_seconds(camera, episode, first, last)}: fine details have "
                f"{np.exp(value - usual):.0%} of their usual strength"
            )
            yield _finding(camera, "blurred", episode, first, last, text)


# ---- images that stand still ----

_STANDS, _STANDS_LEVELS = 0.12, 3.0
"""Change as a share of the usual one while the joints move, and in grey levels, below which an image stands still."""
_HOLDS_S = 0.4
"""Shortest time in seconds over which an image is that of 0.4 s before."""
_RARELY = 0.02
"""Largest share of images that stand still although joints move, in a usual episode, with which a camera is judged."""


def _path(camera: Camera, episode: int) -> np.ndarray:
    """Return the motion of the joints over the time that ``hold`` compares, at each image."""
    signals, motion = camera.signals[episode], camera.motion[episode]
    total = np.concatenate([[0.0], np.cumsum(motion)])
    count = hold_images(camera.period_s)
    return np.asarray(total[signals.rows + 1] - total[np.maximum(signals.rows + 1 - count, 0)])


def _frozen(camera: Camera) -> Iterator[Finding]:
    paths = {episode: _path(camera, episode) for episode in camera.signals}
    moving = np.concatenate(list(paths.values()))
    if not (moving > 0).any():
        return
    enough = 0.5 * float(np.median(moving[moving > 0]))
    holds = np.concatenate([camera.signals[episode].hold for episode in paths])
    chosen = holds[(moving > enough) & np.isfinite(holds)]
    if not len(chosen):
        return
    low = min(_STANDS * float(np.median(chosen)), _STANDS_LEVELS)
    still = {episode: (camera.signals[episode].hold < low) & (path > enough) for episode, path in paths.items()}
    shares = [float(flags.mean()) for flags in still.values()]
    rarely = float(np.median(shares)) <= _RARELY if len(shares) > 2 else True
    if not rarely or low < 1e-3:
        return
    count = hold_images(camera.period_s)
    for episode, flags in still.items():
        for first, last in stretches(flags, _images_in(camera, camera.signals[episode], _HOLDS_S), 4):
            begin = max(first - count, 0)
            text = f"the same image {_seconds(camera, episode, begin, last)} while the joints move"
            yield _finding(camera, "frozen", episode, begin, last, text)


# ---- colours, and the camera's place ----

_CROSSED, _CROSSED_LEVELS = 0.6, 4.0
"""Share of the difference that is left, and grey levels less, where images fit better when exchanged."""
_TINT, _TINT_LEVELS = 0.4, 3.0
"""Least correlation, of either sign, of an image's tint with the usual one by which the order of colours is judged; and
least tint of a usual image, red less blue in grey levels."""


def _usual_image(camera: Camera) -> np.ndarray:
    """Return the median of all samples, (24, 32, 3); episodes count alike."""
    return np.asarray(np.median([np.median(signals.samples, 0) for signals in camera.signals.values()], axis=0))


def _colour(camera: Camera) -> Iterator[Finding]:
    usual = _usual_image(camera)
    tint = usual[..., 0] - usual[..., 2]
    if float(np.sqrt((tint**2).mean())) < _TINT_LEVELS:
        return
    fits = {episode: _tint_fits(signals.samples, tint) for episode, signals in camera.signals.items()}
    if float(np.median([np.median(one) for one in fits.values()])) < _TINT:
        return
    for episode, fit in fits.items():
        for first, last in _of_samples(camera.signals[episode], fit < -_TINT):
            text = f"red and blue are exchanged {_seconds(camera, episode, first, last)}"
            yield _finding(camera, "colour", episode, first, last, text)


def _tint_fits(samples: np.ndarray, tint: np.ndarray) -> np.ndarray:
    """Return how well the tint of samples fits the usual one, -1 to 1, (S,)."""
    tints = samples[..., 0].astype(float) - samples[..., 2]
    scale = np.sqrt((tints**2).sum((1, 2)) * (tint**2).sum())
    return np.asarray((tints * tint).sum((1, 2)) / np.maximum(scale, 1e-9))


def _of_samples(signals: CameraSignals, flags: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the first and last image of stretches of at least three samples, or of all if there are fewer."""
    places = np.searchsorted(signals.rows, signals.sample_rows)
    for first, last in stretches(flags, min(3, len(flags)), 1):
        yield int(places[first]), int(places[last])


_UPRIGHT, _UPRIGHT_GAIN = 0.6, 0.3
"""Least correlation with the camera's usual image, of a usual episode and of one that is turned back; and how much less
it is as recorded."""
_TURNS = {"upside down": np.s_[::-1, ::-1], "mirrored": np.s_[:, ::-1], "mirrored top to bottom": np.s_[::-1]}
"""Name of a turn of images -> the index that turns them back."""


def _turned(camera: Camera) -> Iterator[Finding]:
    """Find episodes whose median image fits that of the other episodes when it is turned or mirrored."""
    usual = _usual_image(camera)
    own = {episode: np.median(signals.samples, 0) for episode, signals in camera.signals.items()}
    upright = {episode: _likeness(image, usual) for episode, image in own.items()}
    if len(own) < 3 or float(np.median(list(upright.values()))) < _UPRIGHT:
        return
    for episode, image in own.items():
        fits = {name: _likeness(image[index], usual) for name, index in _TURNS.items()}
        name = max(fits, key=lambda one: fits[one])
        if fits[name] > _UPRIGHT and fits[name] - upright[episode] > _UPRIGHT_GAIN:
            text = f"the images are {name}: turned back, their correlation with the usual image is {fits[name]:.2f}, " \
                   f"as recorded {upright[episode]:.2f}"  # fmt: skip
            yield _finding(camera, "turned", episode, 0, len(camera.signals[episode].rows) - 1, text)


def _likeness(one: np.ndarray, other: np.ndarray) -> float:
    """Return the correlation of two images; 0 for an image of one colour."""
    one, other = one - one.mean((0, 1)), other - other.mean((0, 1))
    scale = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / scale if scale > 0 else 0.0


def check_swapped(cameras: list[Camera]) -> list[Finding]:
    """Find episodes in which two cameras show what the other one usually shows."""
    findings: list[Finding] = []
    usual = {camera.name: _usual_image(camera) for camera in cameras if camera.signals}
    for one, other in combinations([camera for camera in cameras if camera.signals], 2):
        if float(np.abs(usual[one.name] - usual[other.name]).mean()) < 2 * _CROSSED_LEVELS:
            continue
        for episode in sorted(one.signals.keys() & other.signals.keys()):
            findings += _swapped_in(one, other, usual, episode)
    return findings


def _swapped_in(one: Camera, other: Camera, usual: Mapping[str, np.ndarray], episode: int) -> Iterator[Finding]:
    signals, second = one.signals[episode], other.signals[episode]
    nearest = np.abs(second.sample_rows[None] - signals.sample_rows[:, None]).argmin(1)
    pair = (signals.samples, second.samples[nearest])

    def away(first: str, last: str) -> np.ndarray:
        parts = zip(pair, (first, last), strict=True)
        return np.asarray(sum(np.abs(samples - usual[name]).mean((1, 2, 3)) for samples, name in parts))

    as_is, crossed = away(one.name, other.name), away(other.name, one.name)
    flags = (crossed < _CROSSED * as_is) & (as_is - crossed > 2 * _CROSSED_LEVELS)
    for first, last in _of_samples(signals, flags):
        for camera, exchanged in ((one, other), (other, one)):
            images = camera.signals[episode].rows
            begin, end = (int(np.abs(images - signals.rows[at]).argmin()) for at in (first, last))
            text = f"shows what camera {exchanged.name} usually shows, and that one what this one does, "
            yield _finding(camera, "swapped", episode, begin, end, text + _seconds(one, episode, first, last))


_STANDS_SHARE, _STANDS_PIXELS = 0.5, 0.4
"""Share of an image that stands still from which a camera is taken to be fixed, and the largest displacement of most
images of a usual episode, in pixels of a thumbnail."""
_MOVED = 1.2
"""Least displacement of a fixed camera that is reported, in pixels of a thumbnail, of which an image has 96."""
_FITS = 0.9
"""Largest misfit of a moved background, as a share of that without displacement, with which it is believed."""
_MOVED_IMAGES = 6
"""Fewest measured images of a moved camera."""
_AS_A_WHOLE, _FAR, _RESTS, _BACK = 0.5, 4.0, 0.1, 10
"""Share of the difference that is left by a displacement below which an image leaps as a whole; least multiple of the
camera's usual large step between images, unless the joints rest, which is below this share of their usual motion; and
images in which a leap must not be taken back."""
_MOVED_S = 1.0
"""Shortest time in seconds for which a camera without a leap is elsewhere."""
_SEARCHED_STEP = 10.0
"""Largest displacement between neighbouring images that counts, in pixels of a thumbnail."""
_TO_AND_FRO, _REVERSALS = 0.6, 0.3
"""Least root mean square of the displacement between neighbouring images that the next image takes back, in pixels of a
thumbnail, and least share of such images, of a camera that shakes."""


def _fixed(camera: Camera) -> bool:
    """Return whether the background stands still in a usual episode."""
    still = float(np.median([signals.still for signals in camera.signals.values()]))
    away = float(np.median([np.quantile(one, 0.9) for one in _distances(camera).values()]))
    return still >= _STANDS_SHARE and away <= _STANDS_PIXELS


def _distances(camera: Camera) -> dict[int, np.ndarray]:
    """Return how far each measured image is displaced in its episode, episode -> (M,)."""
    return {
        episode: np.hypot(*(signals.shifts - np.median(signals.shifts, axis=0)).T)
        for episode, signals in camera.signals.items()
    }


def _moved_between(camera: Camera) -> Iterator[Finding]:
    """Compare the background of each episode with that of the others."""
    if not _fixed(camera) or len(camera.signals) < 3:
        return
    usual = np.median([signals.background for signals in camera.signals.values()], axis=0).astype(np.uint8)
    shifts = {episode: shift_between(usual, signals.background) for episode, signals in camera.signals.items()}
    middle = np.median([shift[:2] for shift in shifts.values()], axis=0)
    away = {episode: float(np.hypot(*(np.array(shift[:2]) - middle))) for episode, shift in shifts.items()}
    limit = max(_MOVED, 6 * float(np.median(list(away.values()))))
    for episode, distance in away.items():
        if distance > limit and shifts[episode][2] < _FITS:
            text = (
                f"the camera stands elsewhere than in the other episodes: the background is {_percent(distance)} away"
            )
            yield _finding(camera, "moved", episode, 0, len(camera.signals[episode].rows) - 1, text)


def _percent(pixels: float) -> str:
    return f"{pixels / WIDTH:.1%} of the image's width"


def _moved_within(camera: Camera) -> Iterator[Finding]:
    """Find images that are displaced against the background of their own episode for long, or from a leap on"""
    strides = np.concatenate([np.hypot(*signals.steps.T) for signals in camera.signals.values()])
    far = _FAR * float(np.quantile(strides, 0.9))
    leaps = {episode: _leaps(camera, episode, far) for episode in camera.signals}
    for episode, begins in leaps.items():
        ends = [*begins[1:], len(camera.signals[episode].rows)]
        for begin, end in zip(begins, ends[: len(begins)], strict=True):
            text = f"the image leaps as a whole by {_percent(float(np.hypot(*camera.signals[episode].steps[begin])))}"
            yield _finding(camera, "moved", episode, begin, end - 1, f"the camera moved in the episode: {text}")
    if not _fixed(camera):
        return
    distances = _distances(camera)
    usual = float(np.median([np.quantile(distance, 0.9) for distance in distances.values()]))
    for episode, distance in distances.items():
        if leaps[episode]:
            continue
        signals = camera.signals[episode]
        flags = (distance > max(_MOVED, 4 * usual)) & (distance < 24)
        places = np.searchsorted(signals.rows, signals.shift_rows)
        for first, last in stretches(flags, min(_MOVED_IMAGES, len(flags)), 3):
            part = signals.shifts[first : last + 1]
            if float(np.hypot(*np.std(part, axis=0))) < 0.5 * float(np.median(distance[first : last + 1])):
                begin, end = int(places[first]), int(places[last])
                if (signals.rows[end] - signals.rows[begin]) * camera.period_s < _MOVED_S:
                    continue
                size = _percent(float(np.median(distance[first : last + 1])))
                text = f"the camera moved in the episode: the background is {size} away "
                yield _finding(camera, "moved", episode, begin, end, text + _seconds(camera, episode, begin, end))


def _leaps(camera: Camera, episode: int, far: float) -> list[int]:
    """Return the images at which the camera was moved: all of the image leaps, and nothing else explains that."""
    signals, motion = camera.signals[episode], camera.motion[episode]
    usual = float(np.median(motion[motion > 0])) if (motion > 0).any() else 0.0
    found = []
    for index, size, left in signals.leaps.tolist():
        at = int(index)
        rests = float(motion[max(signals.rows[at] - 2, 0) : signals.rows[at] + 2].mean()) <= _RESTS * usual
        later = signals.steps[at + 1 : at + 1 + _BACK].sum(0)
        stays = float(later @ signals.steps[at]) > -0.5 * size**2
        if left < _AS_A_WHOLE and stays and (size > far or rests):
            found.append(at)
    return sorted(found)


def _shaken(camera: Camera) -> Iterator[Finding]:
    """Find images that go to and fro: each displacement is taken back by the next, which no motion on a path does."""
    back = {episode: _taken_back(signals.steps) for episode, signals in camera.signals.items()}
    parts = {episode: [part for _, part in _parts(one)] for episode, one in back.items()}
    sizes = np.array([_size(part) for some in parts.values() for part in some])
    limit = float(np.median(sizes)) + max(_TO_AND_FRO, 6 * spread_of(sizes))
    for episode, one in back.items():
        flags = np.zeros(len(one), bool)
        for first, part in _parts(one):
            flags[first : first + len(part)] = _size(part) > limit and float((part > 0.1).mean()) > _REVERSALS
        for first, last in stretches(flags, 1):
            text = (
                f"the camera shakes {_seconds(camera, episode, first, last)}: neighbouring images go to and fro by "
                f"{_percent(_size(one[first : last + 1]))}"
            )
            yield _finding(camera, "shaken", episode, first, last, text)


def _taken_back(steps: np.ndarray) -> np.ndarray:
    """Return how much of its own and the last displacement an image takes back, in pixels squared, (N,)."""
    back = -(steps[1:] * steps[:-1]).sum(1)
    return np.concatenate([np.zeros(min(len(steps), 1)), np.clip(back, 0, _SEARCHED_STEP**2)])


def _parts(values: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield parts of `_CHUNK` images or somewhat more, each with its begin."""
    starts = list(range(0, max(len(values) - _CHUNK + 1, 1), _CHUNK))
    for first, end in zip(starts, [*starts[1:], len(values)], strict=True):
        yield first, values[first:end]


def _size(part: np.ndarray) -> float:
    return float(np.sqrt(part.mean())) if len(part) else 0.0
