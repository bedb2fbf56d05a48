"""Check the videos of a data set: whether they open, hold as many frames as the data say, and run at their rate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from hal import LogError, SourceError
from recorder.checks.table import DataSet, Finding
from recorder.images.sources import ImageSources
from recorder.images.video import describe_video, open_video
from recorder.table.table import Table, VideoSpan

__all__ = ["check_videos"]

_RATE = 0.01
"""Largest relative difference between the rate of a video, or of the stamps, and that of the data set."""


def check_videos(table: Table) -> list[Finding]:
    """Open every video of a table's episodes, count its frames, and decode the first and the last of each episode.

    Args:
        table: of a data set with videos; another one gives no findings.
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
        for (file, camera), some in groupby(spans, key=lambda span: (span.file, span.camera)):
            findings += _of_file(file, camera, list(some), positions)
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


def _of_file(file: Path, camera: str, spans: list[VideoSpan], positions: dict[int, int]) -> Iterator[Finding]:
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
    for episode, message in _undecodable(file, spans):
        yield finding(message, episode)


def _undecodable(file: Path, spans: list[VideoSpan]) -> Iterator[tuple[int, str]]:
    """Yield the episodes of which the first or the last frame can't be decoded, and why."""
    decoder = open_video(file)
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
