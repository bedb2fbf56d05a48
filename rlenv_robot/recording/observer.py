"""Record an environment: pack every frame into a row of a log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from hal import Image, LogError, SampleSink, Spec, Streaming
from recorder.frame_layout import (
    BEHAVIOUR_PREFIX,
    EXTRA_PREFIX,
    MASK_PREFIX,
    POLICY_PREFIX,
    FrameLayout,
    reward_field,
    used_field,
)
from recorder.json_data import JsonDict, JsonObject, is_plain
from rlenv_robot.recording.metadata import run_metadata
from rlenv_robot.tables import FieldValues, step_extra_of
from rlenv_robot.world import ACTION_MASK, TimeStep, World, masks_of

__all__ = ["FrameObserver", "FrameSink", "LabelWriter", "NonRaisingSink", "record_to"]


class FrameSink(Protocol):
    """Take the rows of episodes, as `recorder.log.writer.LogWriter` or a list in a test. No method may block."""

    def begin(self, info: JsonObject) -> int:
        """Begin an episode, and return its number."""
        ...

    def frame(self, row: np.ndarray) -> None:
        """Take one frame row, which the sink must copy."""
        ...

    def image(self, camera: str, image: Image) -> None:
        """Take an image that belongs to the last frame."""
        ...

    def event(self, kind: str, detail: JsonObject) -> None:
        """Take an event that happened at the last frame, as JSON data."""
        ...

    def end(self, info: JsonObject) -> None:
        """End the episode."""
        ...

    def close(self) -> None:
        """Close the log; nothing more follows."""
        ...


class NonRaisingSink:
    """Write samples to a stream of a log, and report an error instead of raising it in a sensor's thread.

    Args:
        stream: the stream of the log.
        accepts: returns whether the log still takes samples; others are dropped.
        report: is called with the error if a sample is wrong or the log can't be written.
    """

    def __init__(self, stream: SampleSink, accepts: Callable[[], bool], report: Callable[[LogError], None]) -> None:
        self._stream, self._accepts, self._report = stream, accepts, report

    def write(self, values: FieldValues, stamp_ns: int) -> int:
        """Write a sample as `hal.SampleSink.write` does; return -1 if it was not recorded."""
        if not self._accepts():
            return -1
        try:
            return self._stream.write(values, stamp_ns)
        except LogError as error:
            self._report(error)
            return -1


# -- observer --------------------------------------------------------------------------------------------------------


_LOG = logging.getLogger("rlenv_robot.recorder")


_ELSEWHERE = frozenset({
    "agents", "applied", "error", "executed", "fault", "faults", "fields", "images", "intervention", "messages",
    "metrics", "randomisation", "recording_error", "returned", "state", "success", "truncated_by", "used", "verdict",
})  # fmt: skip
"""Entries of ``extra_info`` that the rows or the records of an episode's ends hold, or that follow from these; messages
follow where the record names their fields."""

LabelWriter = Callable[[int, JsonObject, str], None]
"""Add a label to an episode. The arguments are its number in the run, the label's values, and the author."""


class FrameObserver:
    """Pack every frame of an `rlenv_robot.Environment` into one row (docs/architecture.md).

    If the layout names streams, ``extra_info["used"]`` of a time step holds, for each stream, the number of the sample
    that the step used, as `recorder.log.writer.StreamWriter.write` returned it.

    Entries of a time step's ``extra_info`` that no field holds are recorded as an event ``extra_info`` = {frame_no,
    extra_info}, provided that they are JSON data: numbers, strings, lists, mappings and arrays.

    If the log can no longer be written, the robot is not stopped in the middle of an episode: the episode continues
    without a record. The error is logged once, and is in ``extra_info["recording_error"]`` of every further time step.
    The next episode is refused.

    Args:
        layout: the layout of the world.
        sink: for the rows.
        info: metadata of every episode (policy, source, ...).
        now_ns: the wall clock, nanoseconds since 1970.
        label: records a verdict that arrives after the end of an episode; None drops it.
    """

    def __init__(
        self,
        layout: FrameLayout,
        sink: FrameSink,
        info: JsonObject | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        label: LabelWriter | None = None,
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
        self._masks = [(f"{MASK_PREFIX}_{name}", name) for name in layout.masks.names]
        self._extra = [(f"{EXTRA_PREFIX}_{name}", name) for name in layout.extra.names]
        self._behaviour = [(f"{BEHAVIOUR_PREFIX}_{name}", name) for name in layout.behaviour.names]
        self._has_answers = layout.answers
        self._used = [(used_field(name), name) for name in layout.streams]
        self._players = {agent: number for number, agent in enumerate(layout.agents)} if layout.turns else {}
        self._elsewhere = (
            _ELSEWHERE | ({"agent"} if layout.turns else set()) | ({ACTION_MASK} if self._masks else set())
        )
        self._follows = self._elsewhere
        self._rewards = [(reward_field(agent), agent) for agent in layout.agents]
        self._return: dict[str, float] = {}
        self._episode = 0
        self._image_stamps: dict[str, int] = {}  # camera -> stamp of its last image in this episode
        self._episode_info: JsonDict = {}
        self._failure: LogError | None = None
        self._closed = False
        self._has_episode = False  # a verdict can be on it
        self._add_label = label

    def tap(self, stream: SampleSink) -> SampleSink:
        """Return a stream for a sensor's thread, which never raises and drops samples after `close`.

        A sample that can't be recorded, because it is wrong or the log can't be written, ends the recording, as a frame
        would.
        """
        return NonRaisingSink(stream, self._accepts, self._fail)

    def begin(self, env_id: str, timestep: TimeStep, info: JsonObject) -> None:
        """Begin an episode with row 0: an observation before any action.

        Raises:
            LogError: the log can't be written.
        """
        if self._failure is not None:
            raise self._failure
        if self._has_episode:
            self._label(info)
        agents = {"agents": timestep.extra_info["agents"]} if "agents" in timestep.extra_info else {}
        self._episode_info = {"env_id": env_id, **self._info, **info, **agents}
        self._follows = self._elsewhere if "messages" in info else self._elsewhere - {"messages"}
        self._episode = self._sink.begin(self._episode_info)
        self._return = dict.fromkeys((name for name, _ in self._rewards), 0.0) or {"reward": 0.0}
        self._image_stamps.clear()
        self._row[...] = np.zeros((), self._row.dtype)
        for field in ("log_probability", *(field for field, _ in self._behaviour)):
            self._row[field] = np.nan
        if self._has_answers:
            self._row["answers"] = -1
        self._has_episode = True
        self._write(0, timestep, False)
        if self._failure is not None:
            raise self._failure

    def frame(
        self, frame_no: int, action: Mapping[str, np.ndarray], timestep: TimeStep, extra_info: JsonObject
    ) -> None:
        """Record frame n: the action, and the time step after it."""
        row = self._row
        executed = timestep.extra_info.get("executed", action)
        for field, name in self._names["action"]:
            row[field] = executed[name]
        for field, name in self._policy:
            row[field] = action[name]
        row["log_probability"] = extra_info.get("log_probability", np.nan) if executed is action else np.nan
        for field, name in self._extra:
            row[field] = extra_info[name]
        behaviour = extra_info.get("behaviour") if executed is action else None
        for field, name in self._behaviour:
            row[field] = np.nan if behaviour is None else behaviour[name]
        if self._has_answers:
            row["answers"] = extra_info.get("answers", frame_no - 1) if executed is action else -1
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
        masks = timestep.extra_info[ACTION_MASK] if self._masks else {}
        for field, name in self._masks:
            row[field] = masks[name]
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
                more = {name: value for name, value in timestep.extra_info.items()
                        if name not in self._follows and is_plain(value)}  # fmt: skip
                if more:
                    self._sink.event("extra_info", {"frame_no": frame_no, "extra_info": more})
                for camera, image in timestep.extra_info.get("images", {}).items():
                    if self._image_stamps.get(camera) != image.stamp_ns:  # a camera slower than the steps
                        self._image_stamps[camera] = image.stamp_ns
                        self._sink.image(camera, image)
            except LogError as error:
                self._fail(error)
        if self._failure is not None:
            timestep.extra_info["recording_error"] = str(self._failure)

    def _label(self, info: JsonObject) -> None:
        """Label the previous episode, whose end is written already, with the verdict that came with a reset."""
        for record in (*info.get("failed_resets", ()), info.get("reset", {})):
            if record.get("verdict") is not None and self._add_label is not None:
                self._add_label(self._episode, {"verdict": record["verdict"]}, record["by"])

    def _accepts(self) -> bool:
        return not self._closed and self._failure is None

    def _fail(self, error: LogError) -> None:
        if not self._closed:  # a sensor's thread may have been writing while the log was closed
            self._failure = error
            _LOG.error("recording stopped, the episode continues without a record: %s", error)

    def end(self, reason: str, info: JsonObject) -> None:
        """End the episode, with the reason and the return of the episode."""
        total = self._return if self._rewards else self._return["reward"]
        if self._failure is not None:
            return
        try:
            self._sink.end({**self._episode_info, **info, "end": reason, "return": total})
        except LogError as error:
            self._fail(error)

    def close(self) -> None:
        """Close the sink."""
        self._closed = True
        self._sink.close()


def _add_label(run: Path, episode: int, values: JsonObject, author: str) -> None:
    from recorder.log.labels import add_labels

    add_labels(run, [episode], values, author)


def record_to(
    folder: Path,
    world: World,
    info: JsonObject | None,
    profile: JsonObject | None = None,
    key: str | None = None,
    behaviour: Spec | None = None,
    answers: bool = False,
) -> FrameObserver:
    """Record every episode of a world, and the streams of its robot, into a new run inside ``folder``.

    Args:
        folder: the folder of the runs.
        world: the world to record.
        info: metadata of every episode.
        profile: the profile of the run, see `rlenv_robot.recording.metadata.run_metadata`.
        key: file of the private key that signs the run's chain, see `recorder.log.writer.LogWriter`.
        behaviour: the parameters of the behaviour distribution that steps give; None for none.
        answers: whether each frame has the number of the observation that its action answers.

    Raises:
        LogError: the folder can't be written, or the key can't be used.
    """
    from recorder.log.writer import LogWriter, new_run

    layout = replace(
        world.layout, extra=step_extra_of(world).fields, masks=masks_of(world),
        behaviour=behaviour or Spec("behaviour"), answers=answers,
    )  # fmt: skip
    writer = LogWriter(new_run(folder), layout, {**(info or {}), **run_metadata(world, profile)}, key=key)
    observer = FrameObserver(layout, writer, info, label=partial(_add_label, writer.folder))
    if isinstance(world, Streaming):
        streams = {spec.name: writer.stream(spec.name, spec.spec, spec.rate_hz) for spec in world.streams}
        world.stream_to({name: observer.tap(stream) for name, stream in streams.items()})
    return observer
