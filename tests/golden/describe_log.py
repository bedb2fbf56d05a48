"""Describe a recorded run, as other programs read it, and the table and the source data made of it.

Left out because they vary: log times, the column ``wall_ns``, whatever the MCAP library writes about itself, and most
values of the metadata, such as ``versions``, ``machine`` and ``clock``; all their keys are kept, and the values of
`STABLE_METADATA`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

import rlenv_robot as rr
from hal import Field, Guard, Image, Spec
from hal.robots.so101 import SO101
from real import RemoteRobot, Server
from recorder.frame_layout import FrameLayout
from recorder.log.labels import add_labels
from recorder.log.writer import LogWriter
from recorder.table.load import build
from rlenv_operate.controller_log import ControllerLog
from rlenv_robot.robot_models import find_robot_model
from sim.robot import SimRobot
from tests.golden.describe_wire import counted
from tests.golden.run_trajectories import random_action, types
from tests.golden.stored import key_paths

SEED, EPISODES, STEPS = 7, 2, 4
VARYING_COLUMNS = ("wall_ns",)
STABLE_METADATA = ("format", "digest", "world", "task", "number", "stream", "controller", "policy")


@contextmanager
def recorded_reach() -> Iterator[Path]:
    """The folder of a run of ``so101-reach``: two episodes that end by time."""
    with tempfile.TemporaryDirectory() as folder:
        rng = np.random.default_rng(SEED)
        runs, info = Path(folder) / "runs", {"policy": "golden"}
        with rr.make("so101-reach", env_id="golden", record=runs, info=info, steps=STEPS) as env:
            for episode in range(EPISODES):
                table: Any = env.reset({"seed": SEED} if episode == 0 else {})
                while not (table["terminated"] or table["truncated"]):
                    action: Any = {"env_id": "golden", "frame_no": table["frame_no"]}
                    action["action"] = random_action(env.action, rng)
                    table, _ = env.step(action, {"log_probability": -0.5, "intervention": episode == 1})
        (run,) = runs.iterdir()
        yield run


def log_of_reach() -> dict[str, Any]:
    """The log of a recorded run."""
    with recorded_reach() as run, rr.make("so101-reach", steps=STEPS) as env:
        return {"files": _names(run), "log": read_log(run / "log.mcap", env.world.layout.spec.row_dtype)}


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def read_log(path: Path, row_dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the whole log, read by the MCAP project's own reader."""
    with path.open("rb") as stream:
        reader = make_reader(stream)
        summary = reader.get_summary()
        assert summary is not None
        metadata = {one.name: _metadata(one.metadata) for one in reader.iter_metadata()}
        told: dict[str, list[Any]] = {}
        for schema, channel, message in reader.iter_messages(log_time_order=False):
            told.setdefault(channel.topic, []).append(_message(schema, channel.topic, message.data, row_dtype))
        return {
            "profile": reader.get_header().profile,
            "compression": sorted({chunk.compression for chunk in summary.chunk_indexes}),
            "channels": {
                channel.topic: [channel.message_encoding, summary.schemas[channel.schema_id].name, channel.metadata]
                for channel in summary.channels.values()
            },
            "schemas": {each.name: [each.encoding, each.data.decode()] for each in summary.schemas.values()},
            "metadata": metadata,
            "messages": told,
        }


def _metadata(texts: Mapping[str, str]) -> dict[str, Any]:
    plain = {key: json.loads(text) for key, text in texts.items()}
    return {"keys": key_paths(plain), "values": {key: plain[key] for key in STABLE_METADATA if key in plain}}


def _message(schema: Any, topic: str, data: bytes, row_dtype: np.dtype[Any]) -> Any:
    if topic == "/frame":
        return {"header": data[:4], **_columns(np.frombuffer(data[4:], row_dtype)[0])}
    decoder = DecoderFactory().decoder_for("cdr", schema)
    assert decoder is not None
    message = decoder(data)
    if topic in ("/episode", "/event"):
        return {"kind": message.kind, "episode": message.episode, "data": json.loads(message.data)}
    if topic == "/joint_states":
        parts = ("name", "position", "velocity", "effort")
        return {"frame_id": message.header.frame_id, **{part: list(getattr(message, part)) for part in parts}}
    return data


def _columns(row: np.void) -> dict[str, Any]:
    return {name: row[name] for name in row.dtype.names or () if name not in VARYING_COLUMNS}


def log_by_hand() -> dict[str, Any]:
    """A log with all that a run may hold: several agents, turns, a stream, a picture, events; all contents fixed."""
    position = Field("position", (2,), "float32", -1, 1, "m", "where it is", ("x", "y"))
    action = Spec("a", (Field("push", (2,), "float64", unit="N"), Field("gear", (), "int8", 1, 3)))
    layout = FrameLayout(
        Spec("o", (position,)), action, ("left", "right"), Spec("c", (Field("force", (2,), "float64"),)),
        Spec("s", (Field("counts", (3,), "uint16"), Field("image", (2, 2), "uint8"))), ("imu",), action, True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with LogWriter(run, layout, {"policy": "by hand"}) as log:
            imu = log.stream("imu", Spec("imu", (Field("gyro", (3,), "float32", unit="rad/s"),)), 500.0)
            log.event("before", {"number": 1})
            number = log.begin({"env_id": "golden", "goal": {"target": np.arange(3.0)}})
            for frame in range(2):
                row = layout.spec.rows()
                for name, value in counted(layout.spec).items():
                    row[name] = value
                row["episode"], row["frame_no"] = number, frame
                log.frame(row)
                imu.write({"gyro": [frame, 1, 2]}, 1000 * frame, 5)
                log.image("wrist", Image(b"\xff\xd8\xff", "jpeg", 1_500_000_000 + frame))
            log.event("during", {"nested": {"list": [1, 2.5, None]}})
            log.end({"end": "time", "return": {"left": 1.0, "right": -1.0}})
        told = read_log(run / "log.mcap", layout.spec.row_dtype)
        return {"layout": key_paths(layout.to_dict()), "log": told}


def log_of_controller() -> dict[str, Any]:
    """The log that a controller keeps of what it serves: topics, schemas, and the keys of what it notes."""
    with tempfile.TemporaryDirectory() as folder:
        log = ControllerLog(folder)
        served = Guard(log.wrap(SimRobot(find_robot_model("so101").make_sim_model())))
        with Server(served, lockstep=True, observer=log) as server:
            client = RemoteRobot(server.address, expect=SO101)
            client.reset({"seed": 1})
            for _ in range(3):
                client.step({"joint_target": np.zeros(6, np.float32)})
            log.write()
            client.stop("a test")
            client.close()
        log.close()
        (run,) = Path(folder).iterdir()
        frame = FrameLayout(Spec("observation"), SO101.commands, (), SO101.commands, SO101.sensors)
        told = read_log(run / "log.mcap", frame.spec.row_dtype)
    messages = told.pop("messages")
    told["counts"] = {topic: len(each) for topic, each in messages.items()}
    told["notes"] = [
        [topic, note["kind"], note["episode"], key_paths(note["data"])]
        for topic in ("/episode", "/event")
        for note in messages.get(topic, ())
    ]
    return told


def cached_table() -> dict[str, Any]:
    """The table beside a log, and what people say of episodes afterwards."""
    with recorded_reach() as run:
        table = build(run)
        row = table.rows.dtype
        fields: Mapping[str, Any] = row.fields or {}
        head, body, _ = (run / "table" / "episodes.json").read_text().split("\n")
        index = json.loads(body)
        labels = add_labels(run, [1], {"verdict": "failure", "success": False, "note": "late"}, "golden", now_ns=5)
        return {
            "files": _names(run),
            "row bytes": row.itemsize,
            "row": {name: f"{kind.base.str}{list(kind.shape)} at {at}" for name, (kind, at) in fields.items()},
            "rows.bin bytes": (run / "table" / "rows.bin").stat().st_size,
            "episodes.json": [key for key in key_paths(index) if not key.startswith("layout.")],
            "format": int(head.split()[0]),
            "starts": table.starts,
            "stops": table.stops,
            "episodes": table.episodes,
            "last row": _columns(table.rows[-1]),
            "labels": labels.read_text().splitlines(),
            "labelled": build(run).episodes[1],
        }


def source_data() -> dict[str, Any]:
    """Return seeded draws from recorded data: keys, types, chosen steps, weights and figures."""
    draws: dict[str, dict[str, Any]] = {
        "plain": {},
        "by return": {"priority": "return", "alpha": 0.5, "beta": 1.0},
        "by reward": {"priority": "reward", "replace": False},
        "by advantage": {"priority": "advantage"},
        "n steps": {"n_step": 3},
        "windows": {"stack": 2, "chunk": 3, "future": 2},
        "one episode": {"episodes": [1], "intervention": True},
    }
    kinds: tuple[dict[str, Any], ...] = (
        {"kind": "summary"}, {"kind": "returns"}, {"kind": "episodes"}, {"kind": "advantage"},
        {"kind": "coverage", "bins": 4}, {"kind": "histogram", "field": "reward", "bins": 4},
    )  # fmt: skip
    with recorded_reach() as run:
        data = rr.open_source(run, "so101-reach")
        told: dict[str, Any] = {}
        for name, options in draws.items():
            data.init({"seed": SEED})
            told[name] = _steps(data.sample_steps(4, options))
        data.init({"seed": SEED, "episode": 1, "frame": 2})
        (trajectory,) = data.sample_trajectories(1, {"priority": "return"})
        steps: Any = trajectory["steps_set"]
        told["trajectory"] = {**trajectory, "steps_set": _steps(steps)}
        told["piece"] = key_paths(data.sample_trajectories(1, {"length": 2})[0])
        told["pair"] = data.sample_pairs(1)[0]["margin"]
        told["actions"] = data.get_all_actions()
        told["figures"] = {options["kind"]: _stable(data.statistics(options)) for options in kinds}
        fields = told["figures"]["summary"].pop("fields")  # of one field all figures, of the others the names
        told["summary of fields"] = {"names": sorted(fields), "joint_target": fields["action.joint_target"]}
        told["timing"] = key_paths(data.statistics({"kind": "timing"}))
    for key in ("source", "run"):
        told["trajectory"]["extra_info"].pop(key, None)
    return told


def _stable(figures: Any) -> Any:
    """Return a run's information without the folder and the clocks."""
    if isinstance(figures, Mapping):
        return {key: _stable(one) for key, one in figures.items() if key not in ("run", "origin", "wall_ns")}
    return [_stable(one) for one in figures] if isinstance(figures, list | tuple) else figures


def _steps(table: Any) -> dict[str, Any]:
    groups = ("observation", "action", "next_observation", "extra_info")
    chosen = ("index", "weights", "episode", "discount", "steps")
    return {
        "keys": sorted(table),
        "types": {group: types(table[group]) for group in groups},
        "frame_no": table["frame_no"],
        "reward": table["reward"],
        "done": table["done"],
        "extra_info": {name: table["extra_info"][name] for name in chosen if name in table["extra_info"]},
    }


FILES: dict[str, Callable[[], Any]] = {
    "log_of_reach": log_of_reach,
    "log_by_hand": log_by_hand,
    "log_of_controller": log_of_controller,
    "cached_table": cached_table,
    "source_data": source_data,
}
