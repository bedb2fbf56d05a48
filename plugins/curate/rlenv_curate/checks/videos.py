"""Check that the videos and images of a data set open and have the right number of frames and the right rate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np

from hal import LogError, SourceError
from recorder.images.sources import ImageSources, LogImages
from recorder.images.video import describe_video, open_video
from recorder.table.table import MISSING, ImageSource, Table, VideoSpan
from rlenv_curate.checks.table import DataSet, Finding

__all__ = ["check_videos"]

_RATE = 0.01
"""Largest relative difference between the rate of a video, or of the stamps, and that of the data set."""
_OLD = 2.5
"""Control periods above which an image is too old for its frame, as for a gap (`rlenv_curate.checks.table`)."""


def check_videos(table: Table, decode: bool = True) -> list[Finding]:
    """Open every video of a table's episodes, count its frames, and decode the first and the last of each episode.

    Images that are not in videos are counted and decoded in the same way.

    Args:
        table: table of a data set with videos or images. Other data sets, and logs of this project, give no findings.
        decode: whether frames are decoded; `rlenv_curate.checks.image_pass` decodes all of them.
    """
    sources = ImageSources(table)
    positions = {int(info.get("episode", -1)): number for number, info in enumerate(table.episodes)}
    findings = []
    for place in dict.fromkeys(sources.where(number) for number in range(len(table.starts))):
        try:
            source = sources.at(place)
            spans = [] if source is None else sorted(source.videos(), key=lambda span: (str(span.file), span.camera))
        except (SourceError, LogError) as error:
            findings.append(Finding("camera", -1, "", -1, -1, str(error)))
            continue
        if source is not None and not spans and not isinstance(source, LogImages):
            episodes = [number for number in range(len(table.starts)) if sources.where(number) == place]
            for camera in source.cameras:
                findings += _of_images(table, source, camera, episodes, decode)
        for (file, camera), some in groupby(spans, key=lambda span: (span.file, span.camera)):
            findings += _of_file(file, camera, list(some), positions, decode)
    return [*_rates(table), *findings]


def _rates(table: Table) -> Iterator[Finding]:
    """Compare the rate that a data set claims with that of its stamps."""
    claimed = {float(info["fps"]) for info in table.episodes if isinstance(info.get("fps"), int | float)}
    period = DataSet(table).period_s
    if len(claimed) == 1 and period:
        (fps,), real = claimed, 1 / period
        if abs(real / fps - 1) > _RATE:
            message = f"the data set says {fps:.4g} Hz, its stamps have {real:.4g} Hz"
            advice = "trust the stamps; a reader that counts frames is wrong"
            yield Finding("rate", -1, "stamp_ns", -1, -1, message, advice)


def _of_file(
    file: Path, camera: str, spans: list[VideoSpan], positions: dict[int, int], decode: bool
) -> Iterator[Finding]:
    def finding(message: str, episode: int = -1) -> Finding:
        return Finding("camera", positions.get(episode, -1), camera, -1, -1, message)

    try:
        facts = describe_video(file)
    except (SourceError, LogError) as error:
        yield finding(str(error))
        return
    fps = spans[0].fps
    if facts.rate and abs(facts.rate / fps - 1) > _RATE:
        yield finding(f"{file} has {facts.rate:.4g} frames a second, the data set says {fps:.4g}")
    needed = max(round(span.seconds * fps) + span.frames for span in spans)
    if facts.frames < needed:
        yield finding(f"{file} has {facts.frames} frames, the episodes in it need {needed}")
    elif facts.frames > needed and len(spans) == 1 and spans[0].seconds == 0:
        yield finding(f"{file} has {facts.frames} frames, its only episode has {needed}; its images may be of others")
    for episode, message in _undecodable(file, spans) if decode else ():
        yield finding(message, episode)


def _undecodable(file: Path, spans: list[VideoSpan]) -> Iterator[tuple[int, str]]:
    """Yield the episodes of which the first or the last frame can't be decoded, and why; -1 for all of the file."""
    try:
        decoder = open_video(file)
    except (SourceError, LogError) as error:
        yield -1, str(error)
        return
    try:
        for span in spans:
            for frame in dict.fromkeys((0, span.frames - 1)):
                try:
                    decoder.at(span.seconds + frame / span.fps)
                except (SourceError, LogError) as error:
                    yield span.episode, f"frame {frame} can't be decoded: {error}"
                    break
    finally:
        decoder.close()


def _of_images(table: Table, source: ImageSource, camera: str, episodes: list[int], decode: bool) -> Iterator[Finding]:
    """Look for the image of every frame; decode the first and the last one of each episode if that is asked for."""
    period = DataSet(table).period_s
    most_ns = _OLD * period * 1e9 if period else np.inf
    for episode in episodes:
        rows = table.rows[int(table.starts[episode]) : int(table.stops[episode])]
        numbers = source.numbers(camera, rows, "latest", most_ns)
        here = np.flatnonzero(numbers != MISSING)
        if len(here) < len(numbers):
            first = int(np.flatnonzero(numbers == MISSING)[0])
            message = f"{len(numbers) - len(here)} of {len(numbers)} frames have no image at most {_OLD} periods old"
            yield Finding("camera", episode, camera, first, first, message)
        if len(here) and len(np.unique(numbers[here])) < len(here) / 2:
            message = f"{len(np.unique(numbers[here]))} images for {len(here)} frames"
            yield Finding("camera", episode, camera, -1, -1, message)
        for frame in dict.fromkeys(here[[0, -1]].tolist() if decode and len(here) else ()):
            try:
                source.decode(camera, int(numbers[frame]), True)
            except (SourceError, LogError) as error:
                yield Finding("camera", episode, camera, frame, frame, f"the image can't be decoded: {error}")
