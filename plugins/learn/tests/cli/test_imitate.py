"""Any recorded set becomes a policy by one command, which runs in the set's own names and on an SO-101."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal.robots.so101 import JOINTS
from hal.robots.so101_units import JointUnits
from rlenv_robot.cli.main import main
from rlenv_robot.policies.lineage import lineage_of

torch = pytest.importorskip("torch")
for package in ("onnx", "onnxscript", "onnxruntime", "pyarrow"):
    pytest.importorskip(package)
pytestmark = pytest.mark.filterwarnings("ignore")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

from rlenv_learn.training_state import TrainingState  # noqa: E402

SMALL = ("--updates", "2", "--batch", "4", "--width", "8", "--chunk", "3")


def _lerobot_set(folder: Path, episodes: int = 3, frames: int = 12, actions: bool = True, wrong: bool = False) -> Path:
    """Write a set of an SO-101 as LeRobot 2.1 lays it out, by hand."""
    (folder / "meta").mkdir(parents=True)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    names, rng = [f"{joint}.pos" for joint in JOINTS], np.random.default_rng(0)
    vector = {"dtype": "float32", "shape": [6], "names": names}
    scalar = {"dtype": "int64", "shape": [1], "names": None}
    features = {"observation.state": vector, "action": vector, "timestamp": {**scalar, "dtype": "float32"}}
    features |= dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), scalar)
    if not actions:
        del features["action"]
    info = {
        "codebase_version": "v2.1", "robot_type": "so101_follower", "total_episodes": episodes, "fps": 30,
        "total_frames": episodes * frames, "total_tasks": 1, "chunks_size": 1000, "splits": {}, "features": features,
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet", "video_path": None,
    }  # fmt: skip
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    lines = [json.dumps({"episode_index": n, "tasks": ["pick"], "length": frames}) for n in range(episodes)]
    (folder / "meta" / "episodes.jsonl").write_text("\n".join(lines))
    (folder / "meta" / "tasks.jsonl").write_text(json.dumps({"task_index": 0, "task": "pick"}))
    for number in range(episodes):
        state = (np.cumsum(rng.normal(0, 1, (frames, 6)), 0) + 30).astype(np.float32)
        if wrong and number == 1:
            state[3, 2] = np.nan
        rows: dict[str, Any] = {"observation.state": state.tolist(), "action": (state + 1).tolist()}
        rows |= {"timestamp": (np.arange(frames) / 30).astype(np.float32), "frame_index": np.arange(frames)}
        rows |= {"episode_index": np.full(frames, number), "task_index": np.zeros(frames, int)}
        rows["index"] = np.arange(frames) + number * frames
        table = pa.table({name: value for name, value in rows.items() if name in features})
        pq.write_table(table, folder / "data" / "chunk-000" / f"episode_{number:06d}.parquet")
    return folder


def _filmed_set(folder: Path, places: np.ndarray, rng: np.random.Generator) -> None:
    """Write a set in ALOHA's layout, by h5py: where to go is seen by the camera alone."""
    h5py = pytest.importorskip("h5py")
    folder.mkdir()
    for number, place in enumerate(places):
        state, image = rng.uniform(-1, 1, (6, 2)).astype(np.float32), rng.integers(0, 40, (6, 48, 48, 3), np.uint8)
        image[:, 10:30, place : place + 4] = 255
        with h5py.File(folder / f"episode_{number}.hdf5", "w") as file:
            file.attrs["sim"] = True
            file["observations/qpos"], file["observations/images/top"] = state, image
            file["action"] = np.full((6, 1), place, np.float32)


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return _lerobot_set(tmp_path / "set")


def _imitate(*words: object) -> int:
    return main(["imitate", *map(str, words), *SMALL])


@pytest.mark.slow
def test_a_policy_acts_in_the_sets_own_names_and_names_its_episodes(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _imitate(recorded, "--method", "flow", "--out", tmp_path / "p.onnx") == 0
    printed = capsys.readouterr().out
    assert "held out (1 episode, by which nothing was chosen): RMS error" in printed
    assert "train again with --units degrees or percent" in printed
    policy: Any = rlenv_robot.load_policy(tmp_path / "p.onnx")
    target = policy.act({"state": np.full(6, 30, np.float32)})["target"]
    assert target.shape == (6,)
    assert np.abs(target - 31).max() < 30, "in the set's units"
    assert policy.data_set["normaliser"]["action"]["target"]["relative_to"] == "state"
    lineage = lineage_of(policy)
    assert lineage is not None
    assert lineage.count == 2
    with rlenv_robot.make("so101-reach") as env, pytest.raises(rlenv_robot.RobotError, match="units"):
        policy.check(env.observation, env.action)


@pytest.mark.slow
def test_a_small_set_with_a_camera_is_imitated_by_its_nearest_frame(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, folder = np.random.default_rng(0), tmp_path / "set"
    places = rng.permutation(12) * 4
    _filmed_set(folder, places, rng)
    assert main(["imitate", str(folder), "--chunk", "3", "--held-out", "0", "--out", str(tmp_path / "p.onnx")]) == 0
    assert "learn by nearest" in capsys.readouterr().out
    policy: Any = rlenv_robot.load_policy(tmp_path / "p.onnx")
    answers = []
    for place in places:  # other states and noise than those of the set
        image = rng.integers(0, 40, (48, 48, 3), np.uint8)
        image[10:30, place : place + 4] = 255
        policy.reset()
        answers.append(policy.act({"qpos": np.zeros(2, np.float32), "top_image": image})["target"].item())
    assert np.mean(np.isclose(answers, places, atol=1e-3)) > 0.9


@pytest.mark.slow
def test_a_camera_is_found_under_the_name_that_the_set_gives_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # LeRobot's own sets of one camera have the column observation.image, without the prefix of others.
    cv2, folder = pytest.importorskip("cv2"), _lerobot_set(tmp_path / "set")
    rng, info = np.random.default_rng(0), folder / "meta" / "info.json"
    plain = json.loads(info.read_text())
    plain["features"]["observation.image"] = {"dtype": "image", "shape": [24, 32, 3], "names": ["height", "width", "c"]}
    info.write_text(json.dumps(plain))
    for path in sorted(folder.glob("data/*/*.parquet")):
        table = pq.read_table(path)
        images = [
            cv2.imencode(".png", rng.integers(0, 255, (24, 32, 3), np.uint8))[1].tobytes() for _ in table["index"]
        ]
        column = pa.array([{"bytes": image, "path": None} for image in images])
        pq.write_table(table.append_column("observation.image", column), path)
    for name, chosen in {"all": [], "named": ["--cameras", "observation.image"]}.items():
        assert _imitate(folder, "--method", "act", "--out", tmp_path / f"{name}.onnx", *chosen) == 0
        assert "observation_image (24, 32, 3)" in capsys.readouterr().out
        policy: Any = rlenv_robot.load_policy(tmp_path / f"{name}.onnx")
        assert policy.observation["observation_image"].shape == (24, 32, 3)
    single = [*SMALL, "--method", "act", "--batch", "1", "--history", "1", "--out", str(tmp_path / "single.onnx")]
    assert main(["imitate", str(folder), *single]) == 2
    assert "at least 2 windows" in capsys.readouterr().err


@pytest.mark.slow
def test_fields_of_one_column_are_learned_from_a_table_of_text(tmp_path: Path) -> None:
    rows = [f"{n},{k / 20},{np.sin(n + k)},{np.sin(n + k) + 0.1},{-k}" for n in range(3) for k in range(12)]
    (tmp_path / "arm.csv").write_text("\n".join(["trial,t,q,u,v", *rows]) + "\n")
    words = ["--columns", "observation.q=q,action.u=u,action.v=v,time=t,episode=trial", "--actions", "relative"]
    words += ["--method", "nearest", "--chunk", "3", "--held-out", "0", "--out", str(tmp_path / "p.onnx")]
    assert main(["imitate", str(tmp_path / "arm.csv"), *words]) == 0
    policy: Any = rlenv_robot.load_policy(tmp_path / "p.onnx")
    action = policy.act({"q": np.float64(np.sin(3))})
    assert action["u"].shape == action["v"].shape == ()
    assert action["u"] == pytest.approx(np.sin(3) + 0.1, abs=1e-5)


@pytest.mark.slow
def test_a_policy_of_percent_drives_an_arm_in_radians(recorded: Path, tmp_path: Path) -> None:
    assert _imitate(recorded, "--units", "percent", "--out", tmp_path / "p.onnx") == 0
    policy, own = (rlenv_robot.load_policy(tmp_path / "p.onnx") for _ in range(2))
    with rlenv_robot.make("so101-reach") as env:
        policy.check(env.observation, env.action)
        table = env.reset({"seed": 0})
        action = policy.act(table["observation"])
        units, low_high = JointUnits("percent"), env.action["joint_target"].bounds
    state = units.from_radians(table["observation"]["joint_position"]).astype(np.float32)
    expected = units.to_radians(own.act({"state": state})["target"]).clip(*low_high)
    np.testing.assert_allclose(action["joint_target"], expected, atol=1e-5)


@pytest.mark.slow
def test_an_interrupted_training_goes_on_to_the_same_policy(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rlenv_learn.imitation.set_training import SetTraining

    whole, update = tmp_path / "whole.onnx", SetTraining.update
    assert _imitate(recorded, "--out", whole) == 0

    def interrupted(training: SetTraining) -> float:
        if training.learner.done:
            raise KeyboardInterrupt
        return update(training)

    monkeypatch.setattr(SetTraining, "update", interrupted)
    out = tmp_path / "p.onnx"
    assert _imitate(recorded, "--out", out) == 130
    assert "--resume" in capsys.readouterr().out
    assert TrainingState.load(out.with_suffix(".state")).tensors["done"] == 1
    monkeypatch.setattr(SetTraining, "update", update)
    assert _imitate(recorded, "--out", out, "--resume", "--seed", "1") == 2
    assert "another seed" in capsys.readouterr().err
    assert _imitate(recorded, "--out", out, "--resume") == 0
    assert not out.with_suffix(".state").exists()
    state = {"state": np.full(6, 31, np.float32)}
    first, again = (rlenv_robot.load_policy(path).act(state)["target"] for path in (whole, out))
    np.testing.assert_allclose(first, again, atol=1e-4)


@pytest.mark.slow
@pytest.mark.plugin("policy_servers")
def test_a_set_without_time_or_robot_is_told_how_its_policy_is_called_and_is_served_without_a_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replay buffer of Diffusion Policy: images and a state, and neither rate nor robot."""
    zarr, out = pytest.importorskip("zarr"), tmp_path / "p.onnx"
    pytest.importorskip("numcodecs")
    root, rng = zarr.open_group(str(tmp_path / "set"), mode="w", zarr_format=2), np.random.default_rng(0)
    columns = {"img": rng.integers(0, 255, (60, 16, 20, 3), np.uint8), "state": rng.normal(size=(60, 2))}
    for name, values in {**columns, "action": rng.normal(size=(60, 2)).astype(np.float32)}.items():
        root.create_array(f"data/{name}", shape=values.shape, dtype=values.dtype)[:] = values
    root.create_array("meta/episode_ends", shape=(3,), dtype=np.int64)[:] = [20, 40, 60]
    small = ("--updates", "2", "--batch", "4", "--width", "8")
    assert main(["imitate", str(tmp_path / "set"), "--out", str(out), *small]) == 0
    printed, told = capsys.readouterr()
    assert not told, "the exporter is quiet"
    assert "predicted: 16 x target" in printed, "not one action, as at one frame a second"
    assert '"img_image": uint8 (16, 20, 3)' in printed
    assert "at the set's own rate" in printed
    policy: Any = rlenv_robot.load_policy(out)
    assert policy.data_set["rate_hz"] is None
    observation = {"state": columns["state"][0], "img_image": columns["img"][0]}
    assert main(["policy", "serve", str(out), "--as", "openpi", "--describe"]) == 0
    description = json.loads(capsys.readouterr().out)
    assert [description[key] for key in ("task", "control_hz", "horizon")] == ["set", None, 1]
    from rlenv_policy_servers.serving.server import make_service

    (answer,) = make_service(out, None, "openpi").client("key").answer(observation).values()
    np.testing.assert_allclose(answer[0], policy.act(observation)["target"], atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "words", "telling"),
    [
        ({"actions": False}, (), "action"),
        ({"episodes": 1}, (), "episode"),
        ({"wrong": True}, ("--held-out", "0"), "not finite"),
        ({"frames": 2}, (), "--chunk"),
        ({}, ("--cameras", "top"), "no images"),
        ({}, ("--observation", "arm"), "'arm'"),
        ({}, ("--observation", "none", "--cameras", "none"), "to learn from"),
        ({}, ("--trainer", "lerobot"), "LeRobot"),
        ({}, ("--resume",), "no state"),
        ({}, ("--width", "12"), "multiple of 8"),
    ],
)
def test_what_can_not_be_learned_is_said_in_a_sentence(
    changes: dict[str, Any], words: tuple[str, ...], telling: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _lerobot_set(tmp_path / "set", **changes)
    assert main(["imitate", str(folder), "--out", str(tmp_path / "p.onnx"), *SMALL, *words]) == 2
    error = capsys.readouterr().err
    assert telling in error
    assert error.count("\n") == 1
    assert not (tmp_path / "p.onnx").exists()


def test_a_draccus_that_lerobot_does_not_name_is_refused(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import rlenv_learn.cli.lerobot_trainer as trainer

    monkeypatch.setattr(trainer, "find_spec", lambda name: object())
    monkeypatch.setattr(trainer, "requires", lambda name: ["torch>=2", "draccus == 0.10.0"])
    monkeypatch.setattr(trainer, "version", {"lerobot": "0.4.4", "draccus": "0.11.6"}.__getitem__)
    assert _imitate(recorded, "--trainer", "lerobot", "--out", tmp_path / "p") == 2
    assert "pip install 'draccus==0.10.0'" in capsys.readouterr().err


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretend that LeRobot is installed, and return the module that calls its training."""
    import rlenv_learn.cli.lerobot_trainer as trainer

    monkeypatch.setattr(trainer, "find_spec", lambda name: object())
    monkeypatch.setattr(trainer, "requires", lambda name: [])
    monkeypatch.setattr(trainer, "version", lambda name: "0.6.1")
    return trainer


@pytest.mark.parametrize(
    ("words", "telling"),
    [
        (("--size", "48x48"), "takes no --size"),
        (("--method", "flow"), "'flow'"),
        (("--method", "diffusion"), "only act"),
        (("--resume",), "leave out --resume"),
    ],
)
def test_what_lerobots_training_does_not_take_is_refused(
    words: tuple[str, ...], telling: str, recorded: Path, tmp_path: Path, installed: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    line = ["imitate", str(recorded), "--trainer", "lerobot", "--out", str(tmp_path / "p.onnx"), *words]
    assert main(line) == 2
    assert telling in capsys.readouterr().err
    assert not list(tmp_path.glob("p.*"))


def test_an_interrupted_training_of_lerobot_goes_on_from_its_checkpoint_alone(
    tmp_path: Path, installed: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, commands = tmp_path / "set", list[list[str]]()
    _filmed_set(folder, np.array([0, 4]), np.random.default_rng(0))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def interrupted(command: list[str]) -> int:
        commands.append(command)
        saved = tmp_path / "p.training" / "run" / "checkpoints" / "last" / "pretrained_model"
        saved.mkdir(parents=True, exist_ok=True)
        (saved / "train_config.json").write_text("{}")
        return int(installed.INTERRUPTED)

    monkeypatch.setattr(installed, "_run", interrupted)
    line = ["imitate", str(folder), "--trainer", "lerobot", "--out", str(tmp_path / "p.onnx"), "--updates", "7"]
    assert main(line) == installed.INTERRUPTED
    assert "--resume" in capsys.readouterr().out
    assert main([*line, "--resume"]) == installed.INTERRUPTED
    assert main([*line, "--resume", "--seed", "1"]) == 2
    assert "another seed" in capsys.readouterr().err
    first, second = commands
    assert {"--steps=7", "--policy.optimizer_lr=0.0001", "--policy.pretrained_backbone_weights=null"} <= set(first)
    begun = tmp_path / "p.training" / "run" / "checkpoints" / "last" / "pretrained_model" / "train_config.json"
    assert second[3:] == [f"--config_path={begun}", "--resume=true"]


def test_ctrl_c_gives_lerobots_process_time_to_end(installed: Any, tmp_path: Path) -> None:
    child = (
        "import os, pathlib, signal, time\n"
        "def end(*_): pathlib.Path('ended').touch(); raise SystemExit(1)\n"
        "signal.signal(signal.SIGINT, end); pathlib.Path('begun').touch(); time.sleep(60)"
    )
    parent = (
        "import sys; from rlenv_learn.cli.lerobot_trainer import _run\n"
        f"sys.exit(_run([sys.executable, '-c', {child!r}]))"
    )
    with subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(60) == 130
    assert (tmp_path / "ended").exists()


def test_a_state_that_names_code_is_refused(tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return print, ("executed",)

    torch.save({"identity": Code()}, tmp_path / "p.state")
    with pytest.raises(rlenv_robot.RobotError, match="can't be read"):
        TrainingState.load(tmp_path / "p.state")
