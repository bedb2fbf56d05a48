"""Every example of docs/source-data.md runs, and every option has one."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Image
from hal.robots.so101 import HOME, forward_kinematics
from recorder.json_data import to_json
from recorder.log.mcap_writer import McapWriter
from recorder.table.load import load_runs
from rlenv_robot.data.options import ACTIONS, IMAGES, INIT, PAIRS, STEPS, TRAJECTORIES
from rlenv_robot.data.statistics import kind_names, load_kind

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "source-data.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def record(folder: Path, seeds: range, reach: bool, info: dict[str, object]) -> None:
    """Record arms that go to their goal at home, or that wander."""
    env, rng = rr.make("so101-reach", robot="sim", record=folder, info=info), np.random.default_rng(0)
    home, spread = np.asarray(HOME, np.float32), 0.01 if reach else 0.1
    for seed in seeds:
        goal = {"goal": {"target_position": forward_kinematics(home).astype(np.float32)}} if reach else {}
        obs = env.reset({"seed": seed, **goal})
        while not (obs["terminated"] or obs["truncated"]):
            held = home if reach else obs["observation"]["joint_goal"]
            noise = rng.normal(0, spread, 6)
            target = np.clip(held + noise, *env.action["joint_target"].bounds)
            action = {"joint_target": target.astype(np.float32)}
            chance = float(-0.5 * np.square(noise / spread).sum() - 6 * np.log(spread * np.sqrt(2 * np.pi)))
            table = {"env_id": obs["env_id"], "frame_no": obs["frame_no"], "action": action}
            obs, _ = env.step(table, {"log_probability": chance})  # type: ignore[arg-type]
    env.close()


def film(folder: Path) -> None:
    """Give the recorded runs a camera."""
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    data = cv2.imencode(".jpg", np.full((480, 640, 3), 90, np.uint8))[1].tobytes()
    table = load_runs(folder)
    shutil.rmtree(folder)
    runs = dict.fromkeys(str(info["run"]) for info in table.episodes)
    for number, run in enumerate(runs):
        sink = McapWriter(folder / str(number), table.layout, {})
        for episode, info in enumerate(table.episodes):
            if info["run"] == run:
                rows = table.rows[table.starts[episode] : table.stops[episode]]
                about = to_json({key: value for key, value in info.items() if key != "run"}, "an episode")
                sink.episode("begin", int(rows["episode"][0]), about, int(rows["wall_ns"][0]))
                for row in rows:
                    sink.frame(row.tobytes(), int(row["wall_ns"]))
                    sink.image("top", Image(data, "jpeg", int(row["stamp_ns"])), int(row["wall_ns"]))
                sink.episode("end", int(rows["episode"][0]), about, int(rows["wall_ns"][-1]))
        sink.close()


@pytest.mark.requirement("R3.2", "R3.3", "R3.4", "R3.5", "R3.6", "R6.2", "R6.4")
def test_every_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "runs" / "a", range(3), False, {"source": "random", "policy": "p1", "verdict": "failure"})
    record(
        tmp_path / "runs" / "b",
        range(3, 6),
        True,
        {"source": "expert", "policy": "p2", "verdict": "success", "tags": ["wrist"]},
    )
    film(tmp_path / "runs")
    script = tmp_path / "page.py"
    script.write_text("\n".join(BLOCKS))
    named = runpy.run_path(str(script))
    assert len(named["trajectories"]) == 2
    assert named["batch"]["extra_info"]["images"]["top"].shape == (32, 480, 640, 3)


@pytest.mark.requirement("R6.2")
def test_every_option_and_every_statistic_has_an_example() -> None:
    code = "\n".join(BLOCKS)
    options = {*INIT, *STEPS, *TRAJECTORIES, *PAIRS, *ACTIONS, *IMAGES}
    options |= {option for name in kind_names() for option in load_kind(name).options}
    assert [name for name in sorted(options) if f'"{name}"' not in code] == []
    assert [name for name in kind_names() if f'"{name}"' not in code] == []
