"""Read the positions of joints from images, to find images of other times and of other cameras than their rows say.

A linear model of each camera predicts the joints from small images. An episode is judged by a model of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from rlenv_curate.checks.cameras import Camera, spread_of
from rlenv_curate.checks.table import Finding

__all__ = ["JointReader", "check_exchanged", "check_mixed", "check_order", "read_joints"]

_FOLDS, _FEWEST_EPISODES, _FEWEST_IMAGES = 10, 5, 30
"""Parts of a set of which each is judged by a model of the others; fewest episodes, and images of an episode."""
_RIDGE = 3e-3
"""Regularization of the model, as a share of the mean variance of its inputs."""
_READ = 0.4
"""Share of a joint's variance in an episode that the model must explain for the joint to be used."""
_WORST = 9.0
"""Largest squared error, in units of the usual one, that counts: an odd image counts no more."""
_INDEPENDENT = 10.0
"""Neighbouring images whose errors are taken to be one independent error."""

Positions = Callable[[int], np.ndarray]
"""Episode -> position of each joint at each row as a share of its range, (R, J)."""


@dataclass(frozen=True)
class JointReader:
    """Models that read J joints from images of one camera, each of them learned without one part of the episodes.

    Attributes:
        camera: the camera.
        places: episode -> joints at each row, (R, J).
        models: episode -> weights, (pixels, J), learned without this episode.
        middle: mean inputs and mean joints, (pixels,) and (J,).
        noise: usual error of each joint in an episode, (J,).
        bias: usual error of each joint with its offset in an episode, (J,).
        used: whether a joint can be read, (J,).
    """

    camera: Camera
    places: dict[int, np.ndarray]
    models: dict[int, np.ndarray]
    middle: tuple[np.ndarray, np.ndarray]
    noise: np.ndarray
    bias: np.ndarray
    used: np.ndarray

    def read(self, tiny: np.ndarray, episode: int) -> np.ndarray:
        """Return the joints that images show by the model without an episode, (N, J)."""
        return np.asarray((_inputs(tiny) - self.middle[0]) @ self.models[episode] + self.middle[1])

    def misfits(self, episode: int, lags: Sequence[int]) -> np.ndarray:
        """Return the misfit of each image to the joints at each of L lags in rows, (N, L)."""
        signals, places = self.camera.signals[episode], self.places[episode]
        shown = self.read(signals.tiny, episode)
        shown -= np.median(shown - places[signals.rows], axis=0)
        scale = _INDEPENDENT * np.sqrt(self.used.sum())
        columns = []
        for lag in lags:
            error = (shown - places[np.clip(signals.rows - lag, 0, len(places) - 1)]) / self.noise
            columns.append(np.minimum(error[:, self.used] ** 2, _WORST).sum(1) / scale)
        return np.stack(columns, axis=1)

    def rejects(self, episode: int, lag: float) -> bool:
        """Return whether the images of an episode fit worse with a lag in rows, counted from 0, than without."""
        if episode not in self.models:
            return False
        without, with_it = self.misfits(episode, (0, round(lag))).sum(0)
        return bool(with_it > without)


def _inputs(tiny: np.ndarray) -> np.ndarray:
    """Return images without their brightness and contrast, (N, pixels)."""
    away = tiny.astype(float) - tiny.mean(1, keepdims=True)
    return np.asarray(away / (away.std(1, keepdims=True) + 1))


def read_joints(camera: Camera, positions: Positions) -> JointReader | None:
    """Learn to read the joints from a camera's images; None if there are too few episodes, or no joint can be read."""
    episodes = [episode for episode, signals in camera.signals.items() if len(signals.rows) >= _FEWEST_IMAGES]
    if len(episodes) < _FEWEST_EPISODES:
        return None
    places = {episode: positions(episode) for episode in episodes}
    images = {episode: _inputs(camera.signals[episode].tiny) for episode in episodes}
    shown = {episode: places[episode][camera.signals[episode].rows] for episode in episodes}
    count = sum(map(len, images.values()))
    middle = (sum(one.sum(0) for one in images.values()) / count, sum(one.sum(0) for one in shown.values()) / count)
    folds = min(len(episodes), _FOLDS)
    pixels, joints = len(middle[0]), len(middle[1])
    squares, products = np.zeros((folds, pixels, pixels)), np.zeros((folds, pixels, joints))
    for number, episode in enumerate(episodes):
        away = images[episode] - middle[0]
        squares[number % folds] += away.T @ away
        products[number % folds] += away.T @ (shown[episode] - middle[1])
    every, target = squares.sum(0), products.sum(0)
    ridge = (_RIDGE * np.trace(every) / pixels + 1e-9) * np.eye(pixels)
    learned = [np.linalg.solve(every - squares[fold] + ridge, target - products[fold]) for fold in range(folds)]
    models = {episode: learned[number % folds] for number, episode in enumerate(episodes)}
    errors = {e: (images[e] - middle[0]) @ models[e] + middle[1] - shown[e] for e in episodes}
    raw = np.median([(error**2).mean(0) for error in errors.values()], axis=0)
    own = np.median([((error - np.median(error, 0)) ** 2).mean(0) for error in errors.values()], axis=0)
    varied = np.mean([((one - np.median(one, 0)) ** 2).mean(0) for one in shown.values()], axis=0)
    used = (varied > 1e-9) & (own < (1 - _READ) * varied)
    if not used.any():
        return None
    return JointReader(camera, places, models, middle, np.sqrt(own + 1e-12), np.sqrt(raw + 1e-12), used)


# ---- images that run ahead ----

_MOST_AHEAD_S = 2.0
"""Largest time in seconds by which images are looked for ahead of the joints."""
_STEP = 6.0
"""Misfit that a further step of the lag must save: as the logarithm of a probability, one in 400."""
_AHEAD_ROWS, _AHEAD_S = 3, 0.1
"""Least lead at the end of an episode that is reported, in rows and in seconds."""
_STANDS = 3.0
"""Largest usual change, in grey levels, of the images at the end that fill up for the ones that are missing."""
_SAVES, _SAVES_SHARE, _LEFT = 10.0, 0.12, 2.0
"""Least misfit that steps save, and its share of all misfit; and the most that may be left, as a multiple of the misfit
of a usual episode: an odd episode fits no lead."""


def check_order(reader: JointReader) -> list[Finding]:
    """Find episodes whose images run ahead of the joints step by step, as where images are lost on their way."""
    camera = reader.camera
    most = max(round(_MOST_AHEAD_S / camera.period_s), 4)
    paths = {}
    for episode in reader.models:
        misfits = reader.misfits(episode, range(0, -most - 1, -1))
        path, misfit = _descent(misfits)
        paths[episode] = (path, float(misfits[:, 0].sum()), misfit)
    saved = np.array([as_is - misfit for _, as_is, misfit in paths.values()])
    limit = max(_SAVES, float(np.median(saved)) + 5 * spread_of(saved))
    usual = float(np.median([as_is / len(path) for path, as_is, _ in paths.values()]))
    findings = []
    for episode, (path, as_is, misfit) in paths.items():
        steps = np.flatnonzero(np.diff(path)) + 1
        least = max(_AHEAD_ROWS, round(_AHEAD_S / camera.period_s))
        if as_is - misfit <= max(limit, _SAVES_SHARE * as_is) or not least <= path[-1] < most:
            continue
        filled = camera.signals[episode].change[1 - path[-1] :]
        if not len(steps) or len(path) - steps[0] < 2 * path[-1]:  # fewer images show the lead than it is long
            continue
        if misfit > _LEFT * usual * len(path) or float(np.nanmedian(filled)) > _STANDS:
            continue
        rows = camera.signals[episode].rows
        text = (
            f"the images run ahead of the joints from about here on, at the end by {path[-1]} rows "
            f"({path[-1] * camera.period_s:.2f} s), as if images were missing and the last one filled up the end"
        )
        findings.append(Finding("dropped", episode, f"camera {camera.name}", int(rows[steps[0]]), int(rows[-1]), text))
    return findings


def _descent(misfits: np.ndarray) -> tuple[np.ndarray, float]:
    """Find the lead, which begins near 0 and only grows, that fits images best, by dynamic programming.

    Args:
        misfits: misfit of each image at leads of 0, 1, ... rows, (N, L).

    Returns:
        The lead at each image, (N,), and its misfit with `_STEP` for each step.
    """
    count, leads = misfits.shape
    cost = misfits[0] + _STEP * (np.arange(leads) > 0)
    came = np.zeros((count, leads), np.int64)
    for number in range(1, count):
        best = np.minimum.accumulate(cost)
        at = np.maximum.accumulate(np.where(cost <= best, np.arange(leads), 0))
        jumps = best + _STEP < cost
        came[number] = np.where(jumps, at, np.arange(leads))
        cost = np.where(jumps, best + _STEP, cost) + misfits[number]
    path = np.zeros(count, np.int64)
    path[-1] = int(cost.argmin())
    for number in range(count - 1, 0, -1):
        path[number - 1] = came[number, path[number]]
    return path, float(cost.min())


# ---- cameras that are exchanged ----

_CROSSED = 0.75
"""Share of the misfit that is left where the images of two cameras fit better when exchanged."""


def check_exchanged(readers: list[JointReader]) -> list[Finding]:
    """Find episodes in which two cameras each show what the joints make the other one see."""
    return [finding for one, other in combinations(readers, 2) for finding in _exchanged(one, other)]


def _exchanged(one: JointReader, other: JointReader) -> Iterator[Finding]:
    shares = {}
    for episode in sorted(one.models.keys() & other.models.keys()):
        as_is = _misfit(one, one, episode) + _misfit(other, other, episode)
        shares[episode] = (_misfit(one, other, episode) + _misfit(other, one, episode)) / as_is
    if len(shares) < _FEWEST_EPISODES or float(np.median(list(shares.values()))) < 1 / _CROSSED:
        return
    for episode, share in shares.items():
        if share < _CROSSED:
            for reader, exchanged in ((one, other), (other, one)):
                rows = reader.camera.signals[episode].rows
                text = (
                    f"the joints fit the images of camera {exchanged.camera.name} better in the whole episode: "
                    f"exchanged, {share:.0%} of the misfit is left"
                )
                yield Finding("swapped", episode, f"camera {reader.camera.name}", int(rows[0]), int(rows[-1]), text)


def _misfit(reader: JointReader, shown: JointReader, episode: int) -> float:
    """Return the mean misfit of the joints that one camera's model reads from the images of another camera."""
    signals = shown.camera.signals[episode]
    error = (reader.read(signals.tiny, episode) - reader.places[episode][signals.rows]) / reader.bias
    return float(np.minimum(error[:, reader.used] ** 2, _WORST).mean())


# ---- images of another episode ----

_AWAY, _FITS, _NEARER = 2.0, 0.6, 0.25
"""Misfit of an episode's images, as a multiple of the usual one, from which they are compared with other joints; the
largest misfit to these, in the same unit and as a share of their own. The model has learned from the other episode's
own images, so copies of them fit better than usual."""
_COMMON = 0.5
"""Share of the images for which the other episode must have joints."""


def check_mixed(reader: JointReader) -> list[Finding]:
    """Find episodes whose images fit the joints of another episode, and not their own."""
    own = {episode: _misfit(reader, reader, episode) for episode in reader.models}
    usual = float(np.median(list(own.values())))
    findings = []
    for episode in [number for number, misfit in own.items() if misfit > _AWAY * usual]:
        others = {other: _misfit_to(reader, episode, other) for other in reader.models if other != episode}
        best = min(others, key=lambda other: others[other])
        if others[best] < min(_FITS * usual, _NEARER * own[episode]):
            rows = reader.camera.signals[episode].rows
            text = (
                f"the images fit the joints of episode {best} and not their own: with these, "
                f"{others[best] / own[episode]:.0%} of the misfit is left"
            )
            findings.append(
                Finding("mixed", episode, f"camera {reader.camera.name}", int(rows[0]), int(rows[-1]), text)
            )
    return findings


def _misfit_to(reader: JointReader, episode: int, other: int) -> float:
    """Return the misfit of an episode's images to the joints of another one; infinite for one that is too short."""
    signals, places = reader.camera.signals[episode], reader.places[other]
    common = signals.rows < len(places)
    if common.mean() < _COMMON:
        return np.inf
    error = (reader.read(signals.tiny[common], episode) - places[signals.rows[common]]) / reader.bias
    return float(np.minimum(error[:, reader.used] ** 2, _WORST).mean())
