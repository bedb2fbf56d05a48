"""The steps of the page start allow-listed commands alone, and end them with the console."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from real.protocol.keys import Role
from rlenv_operate.console import loop as loop_module
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.acts import ActLog, Acts
from rlenv_operate.console.jobs import Job as Process
from rlenv_operate.console.jobs import Jobs
from rlenv_operate.console.loop import Loop, results_text
from rlenv_operate.console.messages import Job, MessageError, parse
from rlenv_operate.console.mover import Mover, MoverSettings
from rlenv_operate.console.questions import QuestionBox
from tests.fakes import until

ADDRESS = "tcp://127.0.0.1:1"
ROBOT = {"robot": "so101", "where": "twin", "task": "so101-reach"}


def job(**values: Any) -> Job:
    return Job.model_validate({"t": "job", "id": 1, "do": "start", **values})


@pytest.fixture
def mover() -> Iterator[Mover]:
    mover = Mover(ADDRESS, None, MoverSettings(), QuestionBox())
    mover.start()
    yield mover
    mover.close()


@pytest.fixture
def loop(tmp_path: Path, mover: Mover, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """A flow whose commands are a process that does nothing, and are kept in `started`."""
    started: list[list[str]] = []
    start = Jobs.start

    def idle(
        jobs: Jobs, step: str, words: list[str], by: str, about: Any = None, *, progress: bool, needs: str = ""
    ) -> Any:
        started.append([step, *words])
        monkeypatch.setattr(sys, "executable", "/bin/sleep")  # whose arguments these are not, so it ends at once
        try:
            return start(jobs, step, words, by, about, progress=progress, needs=needs)
        finally:
            monkeypatch.undo()
            monkeypatch.setattr(Jobs, "start", idle)

    monkeypatch.setattr(Jobs, "start", idle)
    loop = Loop(tmp_path / "lab", ADDRESS, mover)
    loop.started = started  # type: ignore[attr-defined]
    yield loop
    loop.jobs.close()


def test_a_choice_writes_a_profile_that_serves_it_and_is_kept(loop: Any, mover: Mover) -> None:
    command, outcome = loop.carry_out(job(step="robot", **ROBOT), "ann")
    assert (command, outcome) == ("rlenv-robot serve robot.toml", "the server of so101 starts")
    assert mover.state()["task"] == "so101-reach"
    from rlenv_robot.config.profile import load_profile

    profile = load_profile(loop.folder / "robot.toml")
    assert (profile.robot.kind, profile.robot.where, profile.task.name) == ("so101", "twin", "so101-reach")
    assert (profile.serve.address, profile.record.folder) == (ADDRESS, "runs")
    again = json.loads(Loop(loop.folder, ADDRESS, mover).text())
    assert again["choice"] == ROBOT
    assert again["commands"]["record"] == f"rlenv-robot operate teleop {ADDRESS} --task so101-reach --record runs"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"step": "robot", **ROBOT, "robot": "so102"}, "is not offered"),
        ({"step": "robot", **ROBOT, "where": "/dev/sda"}, "is not offered"),
        ({"step": "robot", **ROBOT, "where": "os:system"}, "is not offered"),
        ({"step": "robot", **ROBOT, "task": "so101-push"}, "is not offered"),
        ({"step": "robot", **ROBOT, "task": "evil.py:make"}, "is not offered"),
        ({"step": "train", "method": "sh", "name": "a"}, "allowed are"),
        ({"step": "train", "method": "evolution", "name": "../a"}, "is not allowed"),
        ({"step": "train", "method": "evolution", "name": "--help"}, "is not allowed"),
        ({"step": "train", "method": "evolution", "name": ""}, "is not allowed"),
        ({"step": "train", "method": "evolution", "name": "old"}, "already"),
        ({"step": "train", "resume": True}, "no interrupted training"),
        ({"step": "retrain", "policy": "../../secret.npz", "name": "b"}, "there is no policy"),
        ({"step": "retrain", "policy": "old.npz", "name": "b; rm -rf /"}, "is not allowed"),
        ({"step": "calibrate"}, "needs no calibration"),
        ({"step": "calibrate", "do": "enter"}, "asks for nothing"),
    ],
)
def test_what_is_not_offered_starts_nothing(loop: Any, message: dict[str, Any], why: str) -> None:
    loop.carry_out(job(step="robot", **ROBOT), "ann")
    (loop.folder / "policies" / "old.npz").write_bytes(b"")
    loop.started.clear()
    with pytest.raises(ValueError, match=why):
        loop.carry_out(job(**message), "ann")
    assert loop.started == []


@pytest.mark.parametrize(
    "message",
    [
        {"do": "start", "step": "run", "policy": "x"},
        {"do": "shell", "step": "train"},
        {"do": "start", "step": "train", "words": ["--profile", "/etc/passwd"]},
        {"do": "start", "step": "train", "steps": -1},
        {"do": "start", "step": "train", "steps": "1; ls"},
        {"do": "start", "step": "train", "name": "a" * 65},
    ],
)
def test_messages_of_other_shapes_are_refused(message: dict[str, Any]) -> None:
    with pytest.raises(MessageError):
        parse(json.dumps({"t": "job", "id": 1, **message}))


def test_each_step_is_the_command_that_the_page_names(loop: Any) -> None:
    loop.carry_out(job(step="robot", robot="so101", where="virtual", task="so101-reach"), "ann")
    (loop.folder / "policies" / "a.npz").write_bytes(b"")
    loop.carry_out(job(step="calibrate", restart=True), "ann")
    loop.carry_out(job(step="train", method="evolution", name="b", steps=9, seed=3), "ann")
    loop.carry_out(job(step="retrain", policy="a.npz", name="c"), "ann")
    assert loop.started == [
        ["virtual", "robot", "twin", "so101", "--bus", "--link", "virtual-arm", "--uncalibrated", "--hand", *"000000"],
        ["calibrate", "robot", "calibrate", "arm.json", "--arm", "so101", "--port", "virtual-arm", "--motor",
         "--restart"],
        ["train", "train", "so101-reach", "--method", "evolution", "--out", "policies/b.npz", "--seed", "3",
         "--steps", "9"],
        ["retrain", "retrain", "runs", "--policy", "policies/a.npz", "--out", "policies/c.npz", "--task",
         "so101-reach"],
    ]  # fmt: skip
    commands = {one["step"]: one["command"] for one in json.loads(loop.text())["jobs"]}
    assert commands["train"].startswith("rlenv-robot train so101-reach --method evolution --out policies/b.npz")
    assert "--progress" not in commands["train"]


def test_ready_made_policies_are_offered_for_the_chosen_task_alone(loop: Any) -> None:
    assert json.loads(loop.text())["zoo"] == []
    loop.carry_out(job(step="robot", **ROBOT), "ann")
    names = [one["name"] for one in json.loads(loop.text())["zoo"]]
    assert names == ["zoo:so101-reach", "zoo:so101-reach-drawn"]
    assert str(loop.policy(names[0])) == names[0]
    with pytest.raises(ValueError, match="there is no policy"):
        loop.policy("zoo:so101-push")
    loop.carry_out(job(step="retrain", policy=names[0], name="c"), "ann")
    assert loop.started[-1][1:6] == ["retrain", "runs", "--policy", names[0], "--out"]


def test_starts_and_ends_are_acts_with_names_and_need_the_right_to_move(loop: Any, mover: Mover) -> None:
    log = ActLog(None)
    acts = Acts(ADDRESS, None, mover, QuestionBox(), log, loop=loop)
    ann, guest = Visitor("ann", Role.MOVE, "a" * 64), Visitor("guest", Role.WATCH, "g" * 64)
    assert acts.carry_out_job(job(step="robot", **ROBOT), ann).ok
    assert not acts.carry_out_job(job(step="robot", **ROBOT), guest).ok
    assert not acts.carry_out_job(job(step="train", do="end"), guest).ok
    assert acts.carry_out_job(job(step="train", do="end"), ann).outcome == "nothing ran"
    assert [(one.name, one.act, one.ok) for one in log.recent] == [
        ("ann", "start", True), ("guest", "start", False), ("guest", "end", False), ("ann", "end", True),
    ]  # fmt: skip
    assert log.recent[0].text == "rlenv-robot serve robot.toml"
    acts.close()


def test_results_say_why_there_are_none(loop: Loop) -> None:
    assert json.loads(results_text(loop))["problem"]
    assert "--folder" in json.loads(results_text(None))["problem"]


@pytest.mark.parametrize(("ending", "offered"), [(".search", "a"), (".state", "a"), (".csv", "")])
def test_a_training_that_left_a_state_is_offered(loop: Any, ending: str, offered: str) -> None:
    loop.carry_out(job(step="robot", **ROBOT), "ann")
    loop.carry_out(job(step="train", method=loop_module._methods()[0], name="a"), "ann")
    until(lambda: not loop.jobs.runs("train"))
    (loop.folder / "policies" / f"a{ending}").write_bytes(b"")
    (loop.folder / "policies" / f"other{ending}").write_bytes(b"")  # of a command in a terminal, with unknown words
    assert json.loads(loop.text())["unfinished"] == offered
    if offered:
        words = loop.started[-1]
        loop.carry_out(job(step="train", resume=True), "ann")
        assert loop.started[-1] == [*words, "--resume"]


def test_the_method_of_the_command_comes_first_and_what_is_missing_is_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = {"torch", "cmaes"}
    monkeypatch.setattr(loop_module, "find_spec", lambda name: name if name in installed else None)
    monkeypatch.setattr(loop_module, "trainer_names", lambda: ["another", "ppo"])
    assert loop_module._methods() == ["ppo", "evolution", "another"]
    installed.remove("torch")
    assert loop_module._methods() == ["evolution", "another"]
    installed.remove("cmaes")
    assert loop_module._methods() == ["another"]


def test_the_time_left_goes_by_the_newest_steps_and_not_by_repeated_ones(tmp_path: Path) -> None:
    running = Process(
        "train", (), "ann", Mock(poll=lambda: None), -1, tmp_path / "log", tmp_path / "progress.jsonl", {}
    )  # fmt: skip
    wall_s, lines = 100.0, list[str]()
    for number in range(61):  # the first half is of an interrupted training, the other one takes 2 s for each step
        wall_s += 0.001 if number <= 30 else 2.0
        lines.append(json.dumps({"wall_s": wall_s, "stage": "train", "share": number / 100, "figures": {}}) + "\n")
        running.progress.write_text("".join(lines))
        running.look()
        if number <= 32:
            assert running.left_s is None
    assert running.left_s == pytest.approx(40 * 2.0)
    running.state = "done"
    assert running.left_s is None


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "package", "steps"),
    [
        pytest.param("evolution", "cmaes", 30_000, id="evolution"),
        pytest.param("ppo", "torch", 960 * 5, id="ppo", marks=pytest.mark.tier("learning")),
    ],
)
def test_a_training_ends_with_the_console_and_is_gone_on_with_by_the_next_one(
    tmp_path: Path, mover: Mover, method: str, package: str, steps: int
) -> None:
    pytest.importorskip(package, reason=f"the package {package} is not installed")
    (tmp_path / "choice.json").write_text(json.dumps(ROBOT))
    loop = Loop(tmp_path, ADDRESS, mover)
    loop.jobs.begin()
    loop.carry_out(job(step="train", method=method, name="a", steps=steps), "ann")
    running = loop.jobs.get("train")
    assert running is not None
    until(lambda: running.curve, 300.0)
    loop.jobs.close()
    assert (running.state, running.process.returncode) == ("stopped", 130)
    assert "go on with the same command and --resume" in running.tail
    curve, before = list(running.curve), running.newest["share"]
    assert before < 1.0

    after = Loop(tmp_path, ADDRESS, mover)
    after.jobs.begin()
    assert json.loads(after.text())["unfinished"] == "a"
    after.carry_out(job(step="train", resume=True), "bob")
    resumed = after.jobs.get("train")
    assert resumed is not None
    until(lambda: resumed.state != "running", 300.0)
    assert resumed.state == "done", resumed.tail
    assert resumed.curve[: len(curve)] == curve  # the curve goes on
    assert len(resumed.curve) > len(curve)
    assert json.loads(after.text())["policies"] == ["a.npz"]
    assert json.loads(after.text())["unfinished"] == ""
    assert resumed.newest["share"] == 1.0
    after.jobs.close()


@pytest.mark.slow
@pytest.mark.process
def test_a_virtual_arm_is_calibrated_by_messages(tmp_path: Path, mover: Mover) -> None:
    loop = Loop(tmp_path, ADDRESS, mover)
    loop.jobs.begin()
    _, outcome = loop.carry_out(job(step="robot", robot="so101", where="virtual", task="so101-reach"), "ann")
    assert outcome == "chosen; calibrate the arm before it is served"
    until(lambda: (tmp_path / "virtual-arm").exists(), 60.0)
    loop.carry_out(job(step="calibrate"), "ann")
    calibration = loop.jobs.get("calibrate")
    assert calibration is not None
    until(lambda: calibration.newest.get("ask"), 60.0)
    assert "zero pose" in calibration.newest["ask"]
    loop.carry_out(job(step="calibrate", do="enter"), "ann")
    until(lambda: calibration.newest["share"] > 0, 60.0)
    assert loop.stop_calibration()  # a person's Stop lets the arm down
    assert calibration.state == "stopped"
    loop.jobs.close()
    assert loop.jobs.get("virtual").process.returncode in (0, -signal.SIGINT)  # type: ignore[union-attr]
