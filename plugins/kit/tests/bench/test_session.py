"""A bench asks before each step, keeps a report of what was done whatever ends it, and leaves the arm held."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hal import RobotStopped
from hal.drivers.calibration import nominal_calibration, save_calibration
from hal.robots.so101 import SO101
from rlenv_kit.bench import session
from rlenv_kit.bench.child import served_profile
from rlenv_kit.bench.owner import Person, VirtualOwner
from rlenv_kit.bench.report import Figure, read_report, verdict
from rlenv_kit.bench.rig import BenchError, Program
from rlenv_kit.bench.session import make_bench, run_bench
from rlenv_kit.bench.steps import STEPS, Bench, NotDone, Step
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import Profile, load_profile
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine

# -- The owner -------------------------------------------------------------------------------------------------------


def person(*answers: str) -> tuple[Person, list[str]]:
    """Return a person with answers, and what the person is shown."""
    shown: list[str] = []
    left = iter(answers)

    def ask(question: str) -> str:
        shown.append(question)
        return next(left)

    return Person(shown.append, ask), shown


def test_a_step_begins_by_its_name_alone_and_after_all_that_must_be_clear() -> None:
    owner, shown = person("yes", "", "y", "stop ")
    assert owner.begin("stop", "a stop", ("hold the switch",), "a metre") is None
    text = "\n".join(shown)
    assert "hold the switch" in text
    assert "a metre" in text
    assert text.count("Type") == 4


def test_a_step_is_skipped_with_its_reason() -> None:
    assert person("skip no foam")[0].begin("squeeze", "", (), "") == "the owner skipped it: no foam"
    assert "without a reason" in str(person("skip")[0].begin("squeeze", "", (), ""))


def test_a_person_is_waited_for_and_asked_for_figures() -> None:
    owner, shown = person("no", "done", "two", "2,5", "")
    assert owner.confirm("Plug it in.", "volts 7.4") is None
    assert owner.act("Pull it.") is None
    assert (owner.number("Newtons"), owner.number("Newtons")) == (2.5, None)
    assert sum("Plug it in." in line for line in shown) == 2
    assert not any("volts" in line for line in shown), "orders are a virtual arm's"


def test_nobody_is_benched_without_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("stop\n"))
    with pytest.raises(ValueError, match="no terminal to ask at"):
        Person(print)
    (tmp_path / "arm.toml").write_text(PROFILE.format(folder=tmp_path))
    assert main(["robot", "bench", str(tmp_path / "arm.toml"), "--out", str(tmp_path / "bench.json")]) == 2
    assert not (tmp_path / "bench.json").exists()


def test_no_report_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text("an hour of work")
    assert main(["robot", "bench", "so101", "--virtual", "--out", str(tmp_path / "bench.json")]) == 2
    assert (tmp_path / "bench.json").read_text() == "an hour of work"


@pytest.mark.parametrize(
    "words",
    [
        [], ["so101", "--virtual", "--out", "bench.txt"], ["arm.toml", "--virtual"],
        ["so101", "--virtual", "--minutes", "0"],
        ["so101", "--virtual", "--hold-s", "nan"], ["go2", "--virtual"], ["--read", "missing.json"],
    ],
)  # fmt: skip
def test_what_a_bench_does_not_take_is_refused_in_a_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["robot", "bench", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# -- The session -----------------------------------------------------------------------------------------------------


class FakeRig:
    """A rig that starts no process and records the calls that it gets."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.stopped: str | None = None
        self.serves = True
        self.mover = SimpleNamespace(spec=SO101)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def tell(*_: object) -> str:
            self.told.append(name)
            return f"{name} was called"

        return tell

    def about(self) -> dict[str, Any]:
        return {"virtual": True}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Bench]:
    """Make a bench of a fake rig with steps that only do what a test says."""

    def make(*answers: str, **measures: Callable[[Bench], tuple[Any, ...]]) -> Bench:
        monkeypatch.setattr(session, "STEPS", {name: Step(name, (), "", do) for name, do in measures.items()})
        (tmp_path / "arm.toml").write_text("")
        profile = load_profile(tmp_path / "arm.toml")
        return Bench(cast("Any", FakeRig()), person(*answers)[0], profile, cast("Any", None))

    return make


def fine(_: Bench) -> tuple[list[Figure], list[str]]:
    return [Figure("x", 1.0, "ms", "at most", 2.0)], ["a note"]


def interrupt(_: Bench) -> tuple[Any, ...]:
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("the signal came too late")


def fails(_: Bench) -> tuple[Any, ...]:
    raise RobotStopped("elbow_flex is hot")


def absent(_: Bench) -> tuple[Any, ...]:
    raise NotDone("no joint of this arm grips")


def done(bench: Bench, folder: Path, *names: str) -> dict[str, dict[str, Any]]:
    out = folder / "bench.json"
    run_bench(bench, names, out, folder / "bench.key", "Ada", lambda _: None)
    return {step["name"]: step for step in read_report(out)[0]["steps"]}


def test_each_step_has_a_verdict_and_a_failure_ends_no_bench(bench: Callable[..., Bench], tmp_path: Path) -> None:
    made = bench("a", "skip no foam", "c", "d", a=fine, b=fine, c=fails, d=absent, e=fine)
    steps = done(made, tmp_path, "a", "b", "c", "d")
    assert {name: step["verdict"] for name, step in steps.items()} == {
        "a": "passed", "b": "not done", "c": "failed", "d": "not done", "e": "not done",
    }  # fmt: skip
    assert "no foam" in steps["b"]["reason"]
    assert "elbow_flex is hot" in steps["c"]["reason"]
    assert "grips" in steps["d"]["reason"]
    assert "not asked for" in steps["e"]["reason"]
    assert read_report(tmp_path / "bench.json")[0]["complete"] is True


def test_an_unknown_step_is_refused_before_anything_begins(bench: Callable[..., Bench], tmp_path: Path) -> None:
    made = bench(a=fine)
    with pytest.raises(ValueError, match="unknown steps fly; steps are a"):
        run_bench(made, ["fly"], tmp_path / "bench.json", tmp_path / "bench.key", "", print)
    assert cast("Any", made.rig).told == []


@pytest.mark.parametrize("where", ["within a step", "at the question"])
def test_an_interruption_holds_the_arm_and_keeps_what_was_done(
    where: str, bench: Callable[..., Bench], tmp_path: Path
) -> None:
    made = bench("a", "b", "c", a=fine, b=interrupt, c=fine)
    if where == "at the question":
        made = bench("a", a=fine, b=fine, c=fine)
        ask = made.owner.begin
        cast("Any", made.owner).begin = lambda name, *rest: interrupt(made) if name == "b" else ask(name, *rest)
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        done(made, tmp_path, "a", "b", "c")
    assert cast("Any", made.rig).told[-1] == "hold"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    report, _ = read_report(tmp_path / "bench.json")
    assert [step["verdict"] for step in report["steps"]] == ["passed", "not done", "not done"]
    assert "interrupted" in report["steps"][1]["reason"]
    assert (report["complete"], verdict(report)) == (False, "incomplete")


def test_an_arm_that_a_step_has_stopped_is_not_called_free(bench: Callable[..., Bench], tmp_path: Path) -> None:
    made, said = bench("a", a=fine), list[str]()
    cast("Any", made.rig).stopped = "a finger"
    run_bench(made, ["a"], tmp_path / "bench.json", tmp_path / "bench.key", "", said.append)
    assert "a finger" in said[0]
    assert "holds with torque" in said[-1]


def test_the_bench_serves_on_loopback_and_holds_a_stopped_arm_whatever_the_profile_says() -> None:
    profile = Profile()
    served = served_profile(profile, Path("/tmp/bench")).serve
    assert (served.stopped_at_end, served.keys, served.latch) == ("hold", "", "/tmp/bench")
    assert served.address.startswith("tcp://127.0.0.1:")
    assert served.watchdog_s == profile.serve.watchdog_s


def test_every_step_says_what_must_be_clear_and_no_robot_that_stands_is_benched(tmp_path: Path) -> None:
    assert all(step.clear and step.you and step.title for step in STEPS.values())
    (tmp_path / "dog.toml").write_text('[robot]\nkind = "go2"\nwhere = "twin"\n')
    with pytest.raises(ValueError, match="table of an arm's joints"):
        make_bench(tmp_path / "dog.toml", person()[0], tmp_path)


# -- The whole chain -------------------------------------------------------------------------------------------------

PROFILE = """
[robot]
kind = "so101"
driver = "servo-bus"
options = {{port = "{folder}/arm", calibration = "{folder}/arm.json"}}
"""


@pytest.fixture
def arm(tmp_path: Path) -> Iterator[ServoArm]:
    """A virtual arm of this process, which outlives the bench."""
    from rlenv_arms.servo_terminal import ServoTerminal

    servos = so101_servos()
    arm = ServoArm(servos)
    save_calibration(tmp_path / "arm.json", nominal_calibration())
    (tmp_path / "arm.toml").write_text(PROFILE.format(folder=tmp_path))
    with ServoTerminal(ServoLine(servos, before_request=arm.advance), tmp_path / "arm", arm.advance):
        yield arm


class Interrupting(Person):
    """A person who begins all steps, and presses Ctrl-C a while into one."""

    def __init__(self) -> None:
        super().__init__(print, lambda _: "")

    def begin(self, name: str, *_: Any) -> str | None:
        """Begin."""
        if name == "heat":
            signal.setitimer(signal.ITIMER_REAL, 4.0)
        return None


@pytest.mark.slow
@pytest.mark.plugin("arms")
def test_ctrl_c_in_motion_leaves_a_virtual_arm_held_and_a_report_of_what_was_done(
    arm: ServoArm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    try:
        bench = make_bench(tmp_path / "arm.toml", Interrupting(), tmp_path)
        with pytest.raises(KeyboardInterrupt):
            run_bench(bench, ["stop", "heat", "drop"], tmp_path / "bench.json", tmp_path / "bench.key", "", print)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    held = arm.joints
    assert {servo.drive for servo in arm.servos} == {"on"}
    assert not bench.rig.serves
    signal.sigtimedwait([], 1.0)
    assert np.abs(arm.joints - held).max() < 0.01
    steps = {step["name"]: step for step in read_report(tmp_path / "bench.json")[0]["steps"]}
    assert steps["stop"]["done"] is True
    assert steps["heat"]["reason"] == steps["drop"]["reason"] == "the bench was interrupted"


@pytest.mark.slow
@pytest.mark.plugin("arms")
def test_a_virtual_arm_passes_what_does_not_depend_on_the_time_of_a_busy_machine(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    words = ["robot", "bench", "so101", "--virtual", "--minutes", "0.1", "--heat-minutes", "0.05", "--hold-s", "3"]
    steps = ["brown-out", "power", "squeeze", "drop"]
    main([*words, "--steps", *steps, "--key", str(tmp_path / "key"), "--out", str(out)])
    report, _ = read_report(out)
    assert report["arm"]["virtual"] is True
    results = {step["name"]: step for step in report["steps"]}
    assert {name for name, step in results.items() if step["done"]} == set(steps)
    assert [step["reason"] for step in results.values() if step["done"]] == [""] * len(steps)
    timed = {"ended after", "stopped after"}
    failed = [
        (name, figure["name"], figure["value"])
        for name, step in results.items()
        for figure in step["figures"]
        if figure["passed"] is False and figure["name"] not in timed
    ]
    assert failed == []


@pytest.mark.process
def test_a_virtual_owner_acts_by_orders_to_the_arm(tmp_path: Path) -> None:
    echo = "import sys\nfor line in sys.stdin: print('done: ' + line.strip(), flush=True)"
    twin = Program([sys.executable, "-c", echo], tmp_path / "log")
    owner = VirtualOwner(twin, print)
    assert owner.begin("power", "", (), "") is None
    assert owner.act("Pull the plug.", "volts 0", "hang 1") is not None
    assert owner.number("Newtons") is None
    assert twin.end(signal.SIGKILL) == -signal.SIGKILL
    with pytest.raises(BenchError):
        owner.act("Pull the plug.", "volts 0")
