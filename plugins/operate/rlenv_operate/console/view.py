"""Encode the messages for a page: the robot's description, its state, its images."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from hal import Field, Image, RobotError, RobotSpec
from hal.field import JsonDict
from real import Snapshot
from rlenv_operate.console.acts import ActRecord
from rlenv_operate.console.questions import Question
from rlenv_operate.console.replay import Replays
from rlenv_operate.console.scene import Scene
from rlenv_robot.serving.robot_feed import FinishedEpisode, Look

__all__ = ["acts_text", "describe_robot", "episodes_text", "image_frame", "question_text", "replay_text", "state_text"]

_MOST_NUMBERS = 256
"""Numbers of a sensor up to which its values are sent; a longer one, such as a scan, is no row of a table."""

_DIGITS = 5


def describe_robot(spec: RobotSpec, cameras: Iterable[str], scene: Scene | None) -> JsonDict:
    """Return the constant description of a served robot: joints with limits, sensors, cameras, solids.

    Keys: ``name``, ``rate_hz``, ``sensors`` (each with ``name``, ``unit``, ``elements``, ``low``, ``high``),
    ``commands`` (the same, with ``measured_by`` and ``max_velocity``), ``efforts`` (sensor -> maximum effort),
    ``max_age_s``, ``cameras``, and ``scene`` (`Scene.describe`) or None.
    """
    limits = spec.limits
    return {
        "name": spec.name,
        "rate_hz": spec.rate_hz,
        "sensors": [_field(field) for field in spec.sensors if field.size <= _MOST_NUMBERS],
        "commands": [
            {
                **_field(field),
                "measured_by": spec.measured_by.get(field.name),
                "max_velocity": _numbers(np.asarray(limits.max_velocity.get(field.name, math.inf))),
            }
            for field in spec.commands
        ],
        "efforts": {name: _numbers(np.asarray(limit)) for name, limit in limits.max_effort.items()},
        "max_age_s": dict(spec.max_age_s),
        "cameras": list(cameras),
        "scene": None if scene is None else scene.describe(),
    }


def _field(field: Field) -> JsonDict:
    low, high = (np.broadcast_to(np.asarray(bound, float).ravel(), field.size) for bound in (field.low, field.high))
    names = field.elements if len(field.elements) == field.size else [str(n) for n in range(field.size)]
    return {
        "name": field.name, "unit": field.unit, "meaning": field.meaning, "elements": list(names),
        "low": _numbers(low), "high": _numbers(high),
    }  # fmt: skip


def _numbers(values: np.ndarray) -> list[float | None]:
    """Return plain numbers, with None for what JSON can't carry."""
    flat = np.asarray(values, np.float64).ravel()
    return [round(value, _DIGITS) if math.isfinite(value) else None for value in flat.tolist()]


def state_text(look: Look, scene: Scene | None, mover: JsonDict, now_s: float, *, restricted: bool = False) -> str:
    """Return the newest state as JSON, with ages at the present time.

    Args:
        look: the newest data received.
        scene: adds the measured and the commanded poses of the bodies.
        mover: the state of teleoperation (`Mover.state`).
        now_s: this machine's monotonic clock, seconds.
        restricted: whether to return the lifecycle only, for the role ``stop``.
    """
    snapshot = look.snapshot
    state: JsonDict = {"t": "state", "live": not look.problem, "problem": look.problem, "mover": mover}
    if snapshot is not None:
        state |= {"state": snapshot.state, "why": snapshot.why, "stop_number": snapshot.status.get("stop_number")}
        if not restricted:
            state |= _details(snapshot, scene, max(0.0, now_s - look.came_s))
    return json.dumps(state, separators=(",", ":"), allow_nan=False, default=str)


def _details(snapshot: Snapshot, scene: Scene | None, since_s: float) -> JsonDict:
    status, timing = snapshot.status, snapshot.loop_timing
    sensors = {name: _numbers(value) for name, value in snapshot.sensors.items() if value.size <= _MOST_NUMBERS}
    age_s = max(0, snapshot.sent_ns - snapshot.stamp_ns) / 1e9 if snapshot.stamp_ns else None
    reading_age_s = status.get("reading_age_s")
    base_s = reading_age_s if isinstance(reading_age_s, float | int) else age_s
    base_s = None if base_s is None else round(base_s + since_s, 4)
    return {
        "holder": snapshot.holder,
        "sent_ns": snapshot.sent_ns,
        "stamp_ns": snapshot.stamp_ns,
        "age_s": base_s,
        "unread": status.get("unread"),
        "readable": status.get("readable", True),
        "sensors": sensors,
        "applied": {name: _numbers(value) for name, value in snapshot.applied.items()},
        "ages_s": {
            name: None if base_s is None else round(base_s + snapshot.age_ns.get(name, 0) / 1e9, 4) for name in sensors
        },
        "faults": [str(fault) for fault in snapshot.faults],
        "loop": {
            key: timing.get(key) for key in ("period_ms", "periods", "overruns", "longest_ms", "edges_ms", "counts")
        },
        "real_time": snapshot.real_time,
        "late_commands": snapshot.late_commands,
        "guard": status.get("guard"),
        "recording": status.get("recording"),
        "cameras": _health(status.get("pictures")),
        "pose": [] if scene is None else scene.pose(snapshot.sensors),
        "goal": [] if scene is None else scene.commanded(snapshot.sensors, snapshot.applied),
    }


def _health(pictures: Any) -> JsonDict:
    health = pictures.get("health") if isinstance(pictures, Mapping) else None
    return dict(health) if isinstance(health, Mapping) else {}


def episodes_text(episodes: Iterable[FinishedEpisode]) -> str:
    """Return the finished episodes as JSON, newest first."""
    rows = [asdict(episode) for episode in episodes]
    return json.dumps({"t": "episodes", "episodes": rows[::-1]}, separators=(",", ":"))


def acts_text(acts: Iterable[ActRecord]) -> str:
    """Return the newest acts as JSON, newest first."""
    return json.dumps({"t": "acts", "acts": [asdict(act) for act in acts][::-1][:50]}, separators=(",", ":"))


def question_text(question: Question | None, chosen: str | None) -> str:
    """Return the open question as JSON; ``question`` is null if there is none."""
    data: JsonDict = {"t": "question", "question": None}
    if question is not None:
        data["question"] = {
            "kind": question.kind, "text": question.text, "verdict": question.verdict, "chosen": chosen,
            "owner_id": question.owner,
        }  # fmt: skip
    return json.dumps(data, separators=(",", ":"))


def image_frame(name: str, image: Image) -> bytes:
    """Return an image as a binary message: one byte with the name's length, the name, an 8-byte stamp, the image.

    The stamp is the robot's clock, in nanoseconds, big-endian.
    """
    raw = name.encode()[:255]
    return bytes((len(raw),)) + raw + int(image.stamp_ns).to_bytes(8, "big", signed=True) + bytes(image.data)


def replay_text(replays: Replays | None, episode: int | None, simulated: bool, slot: int) -> str:
    """Return the list of recorded episodes, or one of them, as JSON; ``problem`` says why if there is none.

    Args:
        replays: the recorded episodes; None if the console has no folder of runs.
        episode: as for `Replays.load`; None returns the list.
        simulated: as for `Replays.load`.
        slot: returned with the answer.
    """
    answer: JsonDict = {"t": "replay", "slot": slot, "problem": ""}
    try:
        if replays is None:
            answer["problem"] = "the console was started without --runs FOLDER"
        elif episode is None:
            answer["list"] = replays.listing()
        else:
            answer["log"] = replays.load(episode, simulated=simulated)
    except (RobotError, ValueError, OSError) as error:
        answer["problem"] = str(error)
    return json.dumps(answer, separators=(",", ":"), allow_nan=False)
