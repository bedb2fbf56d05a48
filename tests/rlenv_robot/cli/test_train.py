"""The verbs `train` and `retrain`: for a task of any origin, with a profile, and refused with the reason."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from rlenv_robot.cli.main import main
from rlenv_robot.policies.feedback import FeedbackPolicy, save_arrays
from rlenv_robot.policies.reach import ReachVectors
from tests.fakes import until

pytest.importorskip("cmaes", reason="the extra 'demo' is not installed")

USERS_TASK = '''
from dataclasses import dataclass
from rlenv_robot.tasks.flat_hints import FlatHints
from rlenv_robot.tasks.reach import Reach


@dataclass(frozen=True)
class NearReach(Reach):
    """A shorter reach, with scales of its own."""

    steps: int = 15
    name = "near-reach"

    def flat_hints(self):
        return FlatHints({"joint_position": 0.5}, around="joint_goal", stride=0.1)
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder with a user's task in it."""
    (tmp_path / "my_reach.py").write_text(USERS_TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_a_users_task_is_trained_run_and_retrained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = "my_reach:NearReach"
    assert main(["train", task, "--out", "p.npz", "--method", "evolution", "--seconds", "1"]) == 0
    assert "p.npz: " in capsys.readouterr().out
    assert FeedbackPolicy.load("p.npz").task == "near-reach"
    assert main(["run", task, "--policy", "p.npz", "--episodes", "5", "--record", "runs"]) == 0
    assert main(["retrain", "runs", "--policy", "p.npz", "--task", task, "--out", "p2.npz", "--seconds", "1"]) == 0
    printed = capsys.readouterr().out
    assert "model fitted to 4 episodes" in printed
    assert main(["run", task, "--policy", "p2.npz", "--episodes", "1"]) == 0


@pytest.mark.slow
def test_a_profile_gives_the_tasks_settings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "lab.toml").write_text('[task]\nname = "so101-reach"\noptions = { steps = 3 }\n')
    arguments = ["train", "so101-reach", "--out", "p.npz", "--steps", "1", "--profile", "lab.toml"]
    arguments += ["--method", "evolution"]
    assert main(arguments) == 0
    assert "576 steps" in capsys.readouterr().out  # 48 candidates, 4 episodes, 3 steps
    assert main([*arguments[:1], "so101-push", *arguments[2:]]) == 2
    assert "so101-reach" in capsys.readouterr().err


def test_fields_without_a_range_and_hints_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "cart.xml").write_text(
        '<mujoco><worldbody><body><joint name="rail" type="slide" axis="1 0 0"/><geom size="0.1"/></body></worldbody>'
        '<actuator><motor joint="rail" ctrlrange="-1 1"/></actuator></mujoco>'
    )
    main(["train", "cart.xml", "--out", "p.npz", "--steps", "1", "--method", "evolution"])
    assert "note: slide_position, slide_velocity of the observation have no finite range" in capsys.readouterr().out


def test_an_evolution_of_so_many_steps_repeats_itself(folder: Path) -> None:
    for name in ("a.npz", "b.npz"):
        arguments = ["train", "my_reach:NearReach", "--out", name, "--steps", "5000", "--seed", "7"]
        assert main([*arguments, "--method", "evolution"]) == 0
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes()


OFFLINE = pytest.mark.plugin("learn")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["go", "--out", "p.npz"], "environment without a robot"),
        (["so101-reahc", "--out", "p.npz"], "did you mean 'so101-reach'"),
        (["so101-reach", "--out", "p.onnx", "--method", "evolution"], "ends in .npz"),
        (["so101-reach", "--out", "p.txt", "--method", "ppo"], "ends in .npz or .onnx"),
        (["so101-reach", "--out", "p.npz", "--steps", "0"], "at least 1"),
        (["so101-reach", "--out", "no/p.npz"], "no folder"),
        pytest.param(
            ["so101-reach", "--out", "/proc/p.npz"],
            "its folder can't be written to: No such file",
            marks=pytest.mark.skipif(not Path("/proc").is_dir(), reason="this kernel has no /proc"),
        ),
        (["so101-reach", "--out", "p.npz", "--seconds", "0"], "above 0"),
        (["--out", "p.npz"], "--data SET"),
        (["so101-reach", "--out", "p.npz", "--data", "runs", "--method", "evolution"], "in simulation"),
        (["so101-reach", "--out", "p.npz", "--data", "runs", "--method", "iqk"], "iql"),
        pytest.param(["so101-reach", "--out", "p.npz", "--data", "runs", "--steps", "5"], "--updates", marks=OFFLINE),
        pytest.param(
            ["so101-reach", "--out", "p.npz", "--data", "runs", "--updates", "0"], "at least 1", marks=OFFLINE
        ),
        pytest.param(["so101-reach", "--out", "p.npz", "--data", "runs", "--demos", "runs"], "--demos", marks=OFFLINE),
        (["so101-reach", "--out", "p.npz", "--method", "iql"], "--data SET"),
        pytest.param(["--out", "p.npz", "--data", "runs", "--goal", "hindsight"], "no task", marks=OFFLINE),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_line(
    arguments: list[str], reason: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if {"ppo", "iql", "iqk"} & {*arguments}:
        pytest.importorskip("rlenv_learn")
    assert main(["train", *arguments]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not list(folder.glob("*.npz"))


def test_what_cannot_be_retrained_is_refused_in_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach").save("p.npz", {})
    save_arrays("walker.npz", {"kind": "walker"}, {"parameters": np.zeros(3)})
    for policy, reason in (("p.onnx", "ONNX"), ("none.npz", "no such policy"), ("walker.npz", "'walker'")):
        assert main(["retrain", "runs", "--policy", policy, "--out", "p2.npz"]) == 2
        assert reason in capsys.readouterr().err
    assert main(["retrain", "runs", "--policy", "p.npz", "--out", "p2.npz"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_goal_may_be_given_to_retrain(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data of others have no goal; before, retrain asked for one that no flag gave."""
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach").save("p.npz", {})
    assert main(["run", "so101-reach", "--policy", "p.npz", "--episodes", "2", "--record", "runs"]) == 0
    arguments = ["retrain", "runs", "--policy", "p.npz", "--out", "p2.npz", "--goal"]
    for goal, reason in (
        ("hindsight", "has 2 episodes, a model of the robot needs 5"),  # the goal was taken
        ("target_position=0.2,0.0,0.1", "has 2 episodes, a model of the robot needs 5"),
        ("target_position=0.2", "target_position"),
    ):
        assert main([*arguments, goal]) == 2
        assert reason in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "somewhere"])
    assert "write recorded, hindsight or field=numbers" in capsys.readouterr().err


def test_both_searches_say_how_much_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Bars:
        """Keeps the total of each stage, and how much of it was done at last."""

        def __init__(self) -> None:
            self.stages: list[list[float | None]] = []

        def begin(self, title: str, total: float | None = None) -> Callable[..., None]:
            stage: list[float | None] = [total, 0.0]
            self.stages.append(stage)

            def advance(done: float, remark: str = "", /, **_: object) -> None:
                stage[1] = done

            return advance

    bars = Bars()
    monkeypatch.setattr("rlenv_robot.cli.train.progress_bars", lambda **_: nullcontext(bars))
    train = ["train", "so101-reach", "--out", "p.npz", "--method", "evolution", "--steps", "16000"]
    assert main(train) == 0
    assert main(["run", "so101-reach", "--policy", "p.npz", "--episodes", "5", "--record", "runs"]) == 0
    assert main(["retrain", "runs", "--policy", "p.npz", "--out", "q.npz", "--steps", "16000"]) == 0
    assert bars.stages == [[1.0, 1.0], [1.0, 1.0]]
    assert main(["retrain", "runs", "--policy", "p.npz", "--out", "q.npz", "--steps", "0"]) == 2
    assert "--steps is 0" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.process
def test_an_ended_training_resumes_and_makes_the_same_policy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "so101-reach", "--method", "evolution", "--steps", "60000", "--out"]
    progress, scores, options = folder / "progress.jsonl", folder / "p.search", list[str]()
    for by in (signal.SIGINT, signal.SIGKILL):
        words = [sys.executable, "-m", "rlenv_robot", *train, "p.npz", "--progress", str(progress), *options]
        before = scores.read_bytes().count(b"\n") if options else 1
        process = subprocess.Popen(words)
        until(lambda before=before: scores.exists() and scores.read_bytes().count(b"\n") > before, 300.0)
        process.send_signal(by)
        assert process.wait(60.0) == (130 if by is signal.SIGINT else -signal.SIGKILL)
        options = ["--resume"]
    assert not (folder / "p.npz").exists()
    assert main([*train, "p.npz", "--seed", "1", "--resume"]) == 2
    assert "is of another training" in capsys.readouterr().err
    assert main([*train, "p.npz", "--progress", str(progress), "--resume"]) == 0
    lines = [json.loads(line) for line in progress.read_text().splitlines()]
    assert lines[-1]["share"] == 1.0
    assert lines[-1]["figures"]["generation"] == len(lines) - 1 == 7
    assert not scores.exists()
    assert main([*train, "q.npz"]) == 0
    assert (folder / "p.npz").read_bytes() == (folder / "q.npz").read_bytes()
    assert main([*train, "p.npz", "--resume"]) == 2
