"""A table in LeRobot's terms: which columns there are, what they are made of, what they can't hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hal import Field, SourceError, Spec
from recorder.formats.lerobot_features import INTERVENTION, LOG_PROBABILITY
from recorder.formats.runs import Run, flat, outcome
from recorder.plain import to_json
from recorder.table import Table

__all__ = ["Shape", "shape_of"]

_TOLERANCE_S = 5e-5
"""Half of LeRobot's own, ``tolerance_s`` of its `LeRobotDataset`; the rest is for float32."""

_NUMBERS = {"frame_index": "int64", "episode_index": "int64", "index": "int64", "task_index": "int64"}


@dataclass(frozen=True)
class Shape:
    """What the data set's columns are made of.

    Attributes:
        observation, action: of the table; each becomes one vector, ``observation.state`` and ``action``.
        fps: frames a second, a whole number.
        clock: whether time stamps are the robot's; else they count frames.
        extras: columns beyond the usual ones, name -> dtype.
    """

    observation: Spec
    action: Spec
    fps: int
    clock: bool
    extras: Mapping[str, str]

    @property
    def features(self) -> dict[str, dict[str, Any]]:
        """For ``info.json``; ``fields`` is ours and says which field each part of a vector is."""
        found: dict[str, dict[str, Any]] = {
            "observation.state": _vector(self.observation),
            "action": _vector(self.action),
        }
        scalars = {**self.extras, "timestamp": "float32", **_NUMBERS}
        return found | {name: {"dtype": dtype, "shape": [1], "names": None} for name, dtype in scalars.items()}

    def columns(self, run: Run, number: int, index: int, task: int) -> dict[str, np.ndarray]:
        """The T pairs of a run: what was seen, and the action chosen there.

        Args:
            run: the steps.
            number: the episode's.
            index: of its first frame in the data set.
            task: the task's index.
        """
        count = len(run)
        frames = np.arange(count)
        last = frames == count - 1
        held = {
            "observation.state": flat(run.group("observation", self.observation), count + 1)[:-1],
            "action": flat(run.group("action", self.action), count),
            "next.reward": run.came["reward"].astype(np.float32),
            "next.done": last,
            "next.truncated": last & run.truncated,
            "next.success": last & bool(outcome(run.info)),
            INTERVENTION: run.came["intervention"] != 0,
            LOG_PROBABILITY: run.came["log_probability"].astype(np.float32),
            "timestamp": self.seconds(run)[:-1].astype(np.float32),
            "frame_index": frames,
            "episode_index": np.full(count, number),
            "index": index + frames,
            "task_index": np.full(count, task),
        }
        return {name: held[name] for name in self.features}

    def last(self, run: Run) -> dict[str, Any]:
        """What LeRobot's pairs have no place for, as columns of our own beside the episode."""
        stamps = run.observed["stamp_ns"]
        clock = {} if self.clock or (np.diff(stamps) <= 0).any() else {"rlenv_robot/stamp_ns": stamps.tolist()}
        final = flat(run.group("observation", self.observation), len(run) + 1)[-1]
        return {
            "rlenv_robot/last/observation.state": final.tolist(),
            "rlenv_robot/last/timestamp": float(self.seconds(run)[-1]),
            "rlenv_robot/info": to_json(dict(run.info), "what is known of an episode"),
            **clock,
        }

    def jitters(self, runs: list[Run]) -> bool:
        """Whether a time stamp lies further from its frame in a video than LeRobot takes for the same time."""
        return self.clock and any(
            np.abs(run.seconds - np.arange(len(run) + 1) / self.fps).max() > _TOLERANCE_S for run in runs
        )

    def seconds(self, run: Run) -> np.ndarray:
        """(T + 1,): time stamps, that rise."""
        return run.seconds if self.clock else np.arange(len(run) + 1) / self.fps


def _vector(spec: Spec) -> dict[str, Any]:
    return {
        "dtype": "float32",
        "shape": [sum(field.size for field in spec)],
        "names": [name for field in spec for name in _names(field, len(spec) == 1)],
        "fields": [field.to_dict() for field in spec],
    }


def _names(field: Field, only: bool) -> list[str]:
    """Of the elements; they bear their field's name unless it is the only one."""
    if not field.shape:
        return [field.name]
    last = field.elements or tuple(str(number) for number in range(field.shape[-1]))
    marks = [[*map(str, index), last_name] for index in np.ndindex(field.shape[:-1]) for last_name in last]
    return [".".join(mark) if only and field.elements else ".".join([field.name, *mark]) for mark in marks]


def shape_of(table: Table, runs: list[Run]) -> tuple[Shape, list[str]]:
    """Decide on the columns.

    Returns:
        The shape, and a sentence for each thing that will be lost.

    Raises:
        SourceError: there is no step, no observation or no action.
    """
    layout = table.layout
    if not runs or not len(layout.observation) or not len(layout.action):
        raise SourceError(
            f"LeRobot wants steps with an observation and an action; {table.origin} has {len(runs)} episodes of steps, "
            f"{len(layout.observation)} observation and {len(layout.action)} action fields"
        )
    fps, clock, notes = _rate(runs)
    extras = {"next.reward": "float32", "next.done": "bool", "next.truncated": "bool"}
    if all(np.isnan(run.came["reward"]).all() for run in runs):
        del extras["next.reward"]
    said = [outcome(run.info) is not None for run in runs]
    if all(said):
        extras["next.success"] = "bool"
    elif any(said):
        notes.append(f"next.success is left out: {said.count(False)} of {len(said)} episodes have no verdict")
    if any(run.came["intervention"].any() for run in runs):
        extras[INTERVENTION] = "bool"
    if not all(np.isnan(run.came["log_probability"]).all() for run in runs):
        extras[LOG_PROBABILITY] = "float32"
    return Shape(layout.observation, layout.action, fps, clock, extras), notes + _lost(table, runs)


def _rate(runs: list[Run]) -> tuple[int, bool, list[str]]:
    """Frames a second, whether the clock can be used, and what is wrong with it."""
    periods = np.concatenate([np.diff(run.seconds) for run in runs])
    if not (periods > 0).all():
        return 1, False, ["the stamps don't rise from frame to frame; timestamp counts frames, at fps 1"]
    exact = 1 / float(np.median(periods))
    fps = max(1, round(exact))
    if abs(exact - fps) > 0.01 * fps:
        return fps, True, [f"fps must be a whole number: {exact:.4g} frames a second became {fps}"]
    return fps, True, []


def _lost(table: Table, runs: list[Run]) -> list[str]:
    layout, notes = table.layout, []
    for what, spec in (("applied", layout.applied), ("sensor", layout.sensors)):
        if len(spec):
            notes.append(f"a LeRobot frame has no place for {what} {', '.join(spec.names)}")
    rounded = [
        f"{group} {field.name}"
        for group, spec in (("observation", layout.observation), ("action", layout.action))
        for field in spec
        if not all(_fits(run.group(group, Spec(group, (field,)))[field.name]) for run in runs)
    ]
    rounded += [] if all(_fits(run.came["reward"]) for run in runs) else ["reward"]
    if rounded:
        notes.append(f"rounded to float32: {', '.join(rounded)}")
    return notes


def _fits(value: np.ndarray) -> bool:
    """Whether float32 holds every value exactly."""
    narrow = value.astype(np.float32)
    return bool(np.array_equal(narrow.astype(np.float64), value.astype(np.float64), equal_nan=True))
