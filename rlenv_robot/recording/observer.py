"""From an environment's turns to the recorder's frame rows."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from hal import Image, LogError, SampleSink, Streaming
from hal.frame_layout import POLICY_PREFIX, FrameLayout, reward_field, used_field
from rlenv_robot.recording.metadata import about
from rlenv_robot.world import TimeStep, World

__all__ = ["FrameObserver", "Label", "Sink", "record_to"]

_LOG = logging.getLogger("rlenv_robot.recorder")


class Sink(Protocol):
    """What takes the rows: `recorder.log.writer.LogWriter`, or a list in a test. Must not wait."""

    def begin(self, info: Mapping[str, Any]) -> int:
        """An episode begins; returns its number."""
        ...

    def frame(self, row: np.ndarray) -> None:
        """One frame row, which the sink must copy."""
        ...

    def image(self, camera: str, image: Image) -> None:
        """A picture that belongs to the last frame."""
        ...

    def end(self, info: Mapping[str, Any]) -> None:
        """The episode is over."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


Label = Callable[[int, Mapping[str, Any], str], None]
"""Given an episode's number in the run, what is said of it, and who says so."""


class FrameObserver:
    """Packs every frame of an `rlenv_robot.Environment` into one row (docs/architecture.md).

    Where the layout names streams, ``extra_info["used"]`` of a turn says which sample of each it used (stream ->
    sequence number, as `recorder.log.writer.StreamWriter.write` returned it).

    A log that can't be written any more does not stop a robot in the middle of an episode: it goes on without a
    record, which is logged once and said in every turn's ``extra_info["recording_error"]``. The next episode is
    refused.

    Args:
        layout: the world's.
        sink: takes the rows.
        info: what every episode of this run has in common (policy, source, ...).
        now_ns: the wall clock, nanoseconds since 1970.
        label: keeps what is said of an episode after its end.
    """

    def __init__(
        self,
        layout: FrameLayout,
        sink: Sink,
        info: Mapping[str, Any] | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        label: Label | None = None,
    ) -> None:
        self._sink, self._info, self._now_ns = sink, dict(info or {}), now_ns
        self._row = layout.spec.rows()
        self._names = {
            prefix: [(f"{prefix}_{name}", name) for name in spec.names]
            for prefix, spec in (
                ("observation", layout.observation), ("action", layout.action),
                ("applied", layout.applied), ("sensor", layout.sensors),
            )
        }  # fmt: skip
        self._policy = [(f"{POLICY_PREFIX}_{name}", name) for name in layout.policy.names]
        self._used = [(used_field(name), name) for name in layout.streams]
        self._players = {agent: number for number, agent in enumerate(layout.agents)} if layout.turns else {}
        self._rewards = [(reward_field(agent), agent) for agent in layout.agents]
        self._return: dict[str, float] = {}
        self._episode = 0
        self._kept: dict[str, int] = {}  # camera -> stamp of its last picture in this episode
        self._begun: dict[str, Any] = {}
        self._failure: LogError | None = None
        self._closed = False
        self._recorded = False  # an episode, so that a verdict can be on it
        self._add_label = label

    def tap(self, stream: SampleSink) -> SampleSink:
        """What a sensor's thread may write to: as the stream, but it never raises, and after `close` does nothing.

        A sample that can't be recorded, because it is wrong or the log can't be written, ends the record as a frame
        would.
        """
        return _Tap(self, stream)

    def begin(self, env_id: str, timestep: TimeStep, info: Mapping[str, Any]) -> None:
        """Row 0: an observation that no action led to.

        Raises:
            LogError: the log can't be written.
        """
        if self._failure is not None:
            raise self._failure
        if self._recorded:
            self._label(info)
        self._begun = {"env_id": env_id, **self._info, **info}
        self._episode = self._sink.begin(self._begun)
        self._return = dict.fromkeys((name for name, _ in self._rewards), 0.0) or {"reward": 0.0}
        self._kept.clear()
        self._row[...] = np.zeros((), self._row.dtype)
        self._row["log_probability"] = np.nan
        self._recorded = True
        self._write(0, timestep, False)
        if self._failure is not None:
            raise self._failure

    def frame(
        self, frame_no: int, action: Mapping[str, np.ndarray], timestep: TimeStep, extra_info: Mapping[str, Any]
    ) -> None:
        """Row n: how frame n came about, and what was seen there."""
        row = self._row
        executed = timestep.extra_info.get("executed", action)
        for field, name in self._names["action"]:
            row[field] = executed[name]
        for field, name in self._policy:
            row[field] = action[name]
        row["log_probability"] = extra_info.get("log_probability", np.nan) if executed is action else np.nan
        by_person = timestep.extra_info.get("intervention", False) or extra_info.get("intervention", False)
        row["intervention"] = bool(by_person)
        rewards = timestep.reward if isinstance(timestep.reward, Mapping) else {"": timestep.reward}
        for field, agent in self._rewards or [("reward", "")]:
            row[field] = rewards[agent]
            self._return[field] += float(rewards[agent])
        self._write(frame_no, timestep, timestep.acted)

    def _write(self, frame_no: int, timestep: TimeStep, acted: bool) -> None:
        row = self._row
        row["stamp_ns"], row["wall_ns"] = timestep.stamp_ns, self._now_ns()
        row["frame_no"], row["episode"] = frame_no, self._episode
        row["terminated"], row["truncated"], row["acted"] = timestep.terminated, timestep.truncated, acted
        for prefix, values in (
            ("observation", timestep.observation),
            ("applied", timestep.applied),
            ("sensor", timestep.sensors),
        ):
            for field, name in self._names[prefix]:
                row[field] = values[name]
        if self._players:
            row["agent"] = self._players[timestep.extra_info["agent"]]
        used = timestep.extra_info.get("used", {}) if self._used else {}
        for field, name in self._used:
            row[field] = used.get(name, -1)
        if self._failure is None:
            try:
                self._sink.frame(row)
                for camera, image in timestep.extra_info.get("images", {}).items():
                    if self._kept.get(camera) != image.stamp_ns:  # a camera slower than the steps is seen twice
                        self._kept[camera] = image.stamp_ns
                        self._sink.image(camera, image)
            except LogError as error:
                self._fail(error)
        if self._failure is not None:
            timestep.extra_info["recording_error"] = str(self._failure)

    def _label(self, info: Mapping[str, Any]) -> None:
        """A verdict that came with a reset is on the episode before, whose end is written already."""
        for record in (*info.get("failed_resets", ()), info.get("reset", {})):
            if record.get("verdict") is not None and self._add_label is not None:
                self._add_label(self._episode, {"verdict": record["verdict"]}, record["by"])

    def _fail(self, error: LogError) -> None:
        self._failure = error
        _LOG.error("recording stopped, the episode goes on without: %s", error)

    def end(self, reason: str, info: Mapping[str, Any]) -> None:
        """The episode's other end, with why it ended and its return."""
        total = self._return if self._rewards else self._return["reward"]
        if self._failure is not None:
            return
        try:
            self._sink.end({**self._begun, **info, "end": reason, "return": total})
        except LogError as error:
            self._fail(error)

    def close(self) -> None:
        """Close the sink."""
        self._closed = True
        self._sink.close()


def _label(run: Path, episode: int, values: Mapping[str, Any], who: str) -> None:
    from recorder.log.labels import add_labels

    add_labels(run, [episode], values, who)


class _Tap:
    """See `FrameObserver.tap`."""

    def __init__(self, observer: FrameObserver, stream: SampleSink) -> None:
        self._observer, self._stream = observer, stream

    def write(self, values: Mapping[str, Any], stamp_ns: int) -> int:
        """As `hal.SampleSink.write`."""
        observer = self._observer
        if observer._closed or observer._failure is not None:
            return -1
        try:
            return self._stream.write(values, stamp_ns)
        except LogError as error:
            if not observer._closed:  # it was closed in this very moment
                observer._fail(error)
            return -1


def record_to(
    folder: Path, world: World, info: Mapping[str, Any] | None, profile: Mapping[str, Any] | None = None
) -> FrameObserver:
    """Record every episode of a world into a new run inside ``folder``, and its robot's streams beside.

    Args:
        folder: of the runs.
        world: what is recorded.
        info: what every episode has in common.
        profile: what the run was made of, see `rlenv_robot.recording.metadata.about`.

    Raises:
        LogError: nothing can be written there.
    """
    from recorder.log.writer import LogWriter, new_run

    layout = world.layout
    writer = LogWriter(new_run(folder), layout, {**(info or {}), **about(world, profile)})
    observer = FrameObserver(layout, writer, info, label=partial(_label, writer.folder))
    if isinstance(world, Streaming):
        streams = {each.name: writer.stream(each.name, each.spec, each.rate_hz) for each in world.streams}
        world.stream_to({name: observer.tap(stream) for name, stream in streams.items()})
    return observer
