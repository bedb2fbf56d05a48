"""Decode the images of a whole data set once, and check them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from hal import LogError, SourceError
from recorder.images.sources import ImageSources
from recorder.log.image_codec import opencv
from recorder.table.table import ImageSource, Table, VideoSpan
from rlenv_curate.checks.camera_signals import CameraSignals, signals_of
from rlenv_curate.checks.cameras import Camera, check_camera, check_swapped, explained
from rlenv_curate.checks.image_timing import check_image_timing
from rlenv_curate.checks.joints_in_images import check_exchanged, check_mixed, check_order, read_joints
from rlenv_curate.checks.motion import element_motion, element_positions, joint_fields, speeds
from rlenv_curate.checks.table import DataSet, Finding
from rlenv_curate.checks.thumbnails import Strip, read_images, read_video

__all__ = ["check_images", "read_cameras"]

_PERIOD_S = 1 / 30
"""Period that is assumed where the data have no clock."""

Report = Callable[[int, int], None]
"""Called with the number of strips that are read, and of all."""


class _Task(NamedTuple):
    """One camera in one episode: its source, and its part of a video if it has one."""

    episode: int
    camera: str
    source: ImageSource
    span: VideoSpan | None


def check_images(data_set: DataSet, cameras: list[Camera]) -> list[Finding]:
    """Check the images of all cameras, and their timing against the joints.

    Args:
        data_set: the data set.
        cameras: its cameras, from `read_cameras`.
    """
    fields = joint_fields(data_set)

    def elements(episode: int) -> np.ndarray:
        return element_motion(data_set, fields, _rows(data_set.table, episode))

    def positions(episode: int) -> np.ndarray:
        return element_positions(data_set, fields, _rows(data_set.table, episode))

    readers = [reader for camera in cameras if (reader := read_joints(camera, positions)) is not None]
    of_camera = {reader.camera.name: reader for reader in readers}
    findings = check_exchanged(readers)
    findings += _without(check_swapped(cameras), findings, ("swapped",))
    for camera in cameras:
        reader = of_camera.get(camera.name)
        mixed = check_mixed(reader) if reader else []
        ahead = [*mixed, *_without(check_order(reader), mixed, ("dropped",))] if reader else []
        timing = check_image_timing(camera, elements, None if reader is None else reader.rejects)
        findings += [*check_camera(camera), *ahead, *_without(timing, ahead, ("dropped", "lag"))]
    return sorted(explained(findings), key=lambda finding: finding.episode)


def _without(findings: list[Finding], known: list[Finding], kinds: tuple[str, ...]) -> list[Finding]:
    """Return the findings but for those of these kinds of an episode and camera that have a known one."""
    places = {(one.episode, one.field) for one in known}
    return [one for one in findings if one.kind not in kinds or (one.episode, one.field) not in places]


def read_cameras(
    data_set: DataSet, names: Sequence[str] | None = None, report: Report | None = None
) -> tuple[list[Camera], list[Finding]]:
    """Decode the images of a data set at thumbnail size, by all processors.

    Args:
        data_set: the data set; one without images gives no camera.
        names: the cameras to read; None for all.
        report: called after each strip.

    Returns:
        The cameras, and a finding for each place at which images can't be decoded.

    Raises:
        SourceError: there is no such camera.
        LogError: OpenCV is missing.
    """
    if names is not None and not names:
        return [], []
    tasks = _tasks(data_set.table)
    known = sorted({task.camera for task in tasks})
    for name in names or ():
        if name not in known:
            origin = data_set.table.origin
            raise SourceError(f"{origin} has no images of a camera {name!r}, it has {', '.join(known) or 'none'}")
    tasks = tasks if names is None else [task for task in tasks if task.camera in names]
    if not tasks:
        return [], []
    opencv("checking images")
    period = data_set.period_s or _PERIOD_S
    signals: dict[str, dict[int, CameraSignals]] = {}
    findings = []

    def work(task: _Task) -> tuple[CameraSignals | None, tuple[tuple[int, str], ...]]:
        strip = _strip(task, _rows(data_set.table, task.episode))
        return (signals_of(strip, period) if len(strip.rows) else None), strip.faults

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "check-images") as pool:
        for number, (task, (made, faults)) in enumerate(zip(tasks, pool.map(work, tasks), strict=True), 1):
            if made is not None:
                signals.setdefault(task.camera, {})[task.episode] = made
            for row, why in faults[:1]:
                text = f"{len(faults)} images can't be decoded, the first: {why}" if len(faults) > 1 else why
                findings.append(Finding("camera", task.episode, task.camera, row, row, text))
            if report is not None:
                report(number, len(tasks))
    fields = joint_fields(data_set)
    motion = {number: speeds(element_motion(data_set, fields, rows)) for number, rows in enumerate(data_set.episodes())}
    return [Camera(name, signals[name], motion, period) for name in sorted(signals)], findings


def _rows(table: Table, episode: int) -> np.ndarray:
    return table.rows[table.starts[episode] : table.stops[episode]]


def _tasks(table: Table) -> list[_Task]:
    """Return the strips of a table, without those of videos that are missing: `check_videos` names these."""
    sources, tasks = ImageSources(table), []
    spans: dict[str, dict[tuple[str, int], VideoSpan]] = {}
    for episode, info in enumerate(table.episodes):
        place = sources.where(episode)
        try:
            source = sources.at(place)
            if source is None:
                continue
            if place not in spans:
                spans[place] = {(span.camera, span.episode): span for span in source.videos()}
        except (SourceError, LogError):
            continue  # `check_videos` says so
        for camera in source.cameras:
            span = spans[place].get((camera, int(info.get("episode", -1))))
            if span is None or span.file.is_file():
                tasks.append(_Task(episode, camera, source, span))
    return tasks


def _strip(task: _Task, rows: np.ndarray) -> Strip:
    if task.span is not None:
        return read_video(task.span, rows["frame_no"])
    return read_images(task.source, task.camera, rows)
