"""Each fault of set D answers a script of calls otherwise than its original; each correct subject passes."""

from __future__ import annotations

import collections
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import IllegalAction, RobotStopped, SourceError

ROOT = Path(__file__).parents[3]
FAULTS = ROOT / "plugins" / "kit" / "faults"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # the factories import their package by its place in the repository

from plugins.kit.faults import robot_d, source_d  # noqa: E402
from plugins.kit.faults.fault_set_d import common  # noqa: E402

ALL = list(common.ENTRIES.values())
ROBOTS, SOURCES = ([one for one in ALL if one.part == part] for part in ("robot", "source"))
STANDARD = ROOT / "plugins" / "kit" / "rlenv_kit" / "t_ccf_0002.json"


def plain(value: Any) -> Any:
    """Return a value that two runs can be compared by: arrays with their types, errors with what they name."""
    if isinstance(value, IllegalAction):
        return (type(value).__name__, value.violation.code, value.violation.field)
    if isinstance(value, Exception):
        return (type(value).__name__, getattr(value, "reason", ""))
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes() if value.dtype != object else value.tolist())
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if hasattr(value, "items"):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return repr(value)


def attempt(call: Any, *arguments: Any) -> Any:
    """Return the answer of a call, or its error."""
    try:
        return call(*arguments)
    except (NameError, AttributeError):  # a slip in the subject, and none of the faults
        raise
    except Exception as error:
        return error


# -- scripts of calls for robots --------------------------------------------------------------------------------


class Bench:
    """A robot on a virtual clock, and legal commands for it."""

    def __init__(self, make: Any) -> None:
        common.CLOCKS.append(common.VirtualClock)
        try:
            self.robot = make()
        finally:
            common.CLOCKS.pop()
        self.clock = self.robot.clock.wall if hasattr(self.robot, "clock") else common.VirtualClock()
        self.fields = list(self.robot.spec.commands)
        self.trace: list[Any] = []

    def command(self, share: float) -> dict[str, np.ndarray]:
        """Return the command at this share of each range; the elements differ."""
        out = {}
        for field in self.fields:
            low, high = (np.asarray(bound, float) for bound in field.bounds)
            shares = np.clip(share + 0.05 * np.arange(field.size).reshape(field.shape), 0, 1)
            out[field.name] = (low + shares * (high - low)).astype(field.numpy_dtype)
        return out

    def call(self, name: str, *arguments: Any) -> Any:
        answer = attempt(getattr(self.robot, name), *arguments)
        self.trace.append(plain(answer))
        return answer

    def steps(self, share: float, count: int) -> None:
        for _ in range(count):
            self.call("step", self.command(share))

    def wait(self, seconds: float) -> None:
        """Wait, as long as the robot can be read, with a look ten times a second."""
        for _ in range(round(seconds * 10)):
            self.clock.sleep(100_000_000)
            if hasattr(self.robot, "read"):
                self.call("read")


def follow(b: Bench) -> None:
    b.call("reset", {})
    for share, count in ((0.5, 3), (0.8, 30), (0.2, 20), (0.03, 30), (0.65, 10)):
        b.steps(share, count)
    b.call("reset", {"start": "present"})
    b.steps(0.5, 3)


def far(b: Bench) -> None:
    b.call("reset", {})
    b.steps(1.0, 120)


def mixed(b: Bench) -> None:
    b.call("reset", {})
    for share in (0.0, 0.04, 0.3, 0.0):
        for _ in range(10):
            high = b.command(0.9)
            b.call("step", {**high, b.fields[0].name: b.command(share)[b.fields[0].name]})


def press(b: Bench) -> None:
    b.call("reset", {})
    for _ in range(150):
        b.call("step", {**b.command(0.0), b.fields[-1].name: b.fields[-1].bounds[1] * 0 + 0.3})


def keep(b: Bench) -> None:
    b.call("reset", {})
    answers, commands = [], []
    for share in (0.2, 0.6, 0.9):
        commands.append(b.command(share))
        answers.append(attempt(b.robot.step, commands[-1]))
    b.trace += [plain(answers), plain(commands)]


def illegal(b: Bench) -> None:
    b.call("reset", {})
    b.steps(0.6, 5)
    field = b.fields[0]
    good = b.command(0.3)
    high = np.asarray(field.bounds[1], float)
    one_high = np.array(good[field.name], float)
    one_high.flat[0] = high.flat[0] * 1.5 + 1
    nan = np.full(field.shape, np.nan)
    for wrong in (
        {**good, field.name: one_high}, {**good, field.name: nan}, {**good, "nose": np.zeros(1)}, {},
        {**good, field.name: np.zeros((7, 7))}, {**good, field.name: "up"}, None,
    ):  # fmt: skip
        b.call("step", wrong)
    b.steps(0.3, 2)


def stop(b: Bench) -> None:
    b.call("reset", {})
    b.steps(0.8, 12)
    b.call("stop", "a hand")
    b.call("stop", "another hand")
    b.wait(0.6)
    b.call("step", b.command(0.8))
    b.call("step", b.command(0.8))
    b.wait(0.3)
    for options in ({}, {"clear_stop": " "}, {"clear_stop": True}, {"seed": 3}):
        b.call("reset", options)
        b.call("step", b.command(0.3))
    b.call("reset", {"clear_stop": "gone", "start": "present"})
    b.steps(0.6, 3)


def start(b: Bench) -> None:
    b.call("reset", {"start": b.command(0.75)})
    b.steps(0.75, 3)
    b.call("reset", {"start": {b.fields[0].name: b.command(0.9)[b.fields[0].name]}})


def present(b: Bench) -> None:
    b.call("reset", {})
    b.steps(0.8, 20)
    b.call("reset", {"start": "present"})
    b.steps(0.8, 2)


def seed(b: Bench) -> None:
    for number in (3, 4, 3, 3):
        b.call("reset", {"seed": number})


def order(b: Bench) -> None:
    b.call("step", b.command(0.6))
    b.call("reset", {})
    b.steps(0.6, 2)


def read(b: Bench) -> None:
    b.call("reset", {})
    b.steps(0.6, 10)
    b.wait(0.2)
    b.call("stop", "wait")
    b.wait(0.5)
    b.call("step", b.command(0.5))


def close(b: Bench) -> None:
    b.call("reset", {})
    b.steps(0.6, 2)
    b.call("close")
    b.call("close")
    b.call("step", b.command(0.6))
    b.call("reset", {})
    b.wait(0.1)


def refused(b: Bench) -> None:
    b.call("reset", {})
    b.steps(0.6, 5)
    first, last = b.fields[0], b.fields[-1]
    bad = {first.name: b.command(0.9)[first.name], last.name: np.asarray(last.bounds[1], float) + 50}
    b.call("reset", {"start": bad})
    b.wait(0.3)
    b.call("stop", "a hand")
    b.call("reset", {"clear_stop": "gone", "start": bad})
    b.steps(0.6, 2)


def watchdog(b: Bench) -> None:
    b.call("reset", {})
    b.call("arm_watchdog", 0.2)
    b.steps(0.8, 40)
    b.wait(0.5)


def damp(b: Bench) -> None:
    b.call("reset", {})
    b.steps(0.8, 40)
    b.call("damp")
    b.wait(2.0)
    b.call("reset", {})


def describe(b: Bench) -> None:
    b.trace.append(b.robot.spec.to_dict())
    b.call("reset", {})
    b.trace.append(b.robot.spec.to_dict())


class Sink:
    def __init__(self) -> None:
        self.samples: list[Any] = []

    def write(self, values: Any, stamp_ns: int) -> int:
        self.samples.append((plain(values), stamp_ns))
        return len(self.samples) + 99


def stream(b: Bench) -> None:
    sink = Sink()
    b.robot.stream_to({"pressure": sink})
    b.call("reset", {})
    b.steps(0.7, 5)
    b.trace.append(sink.samples)


ROBOT_SCRIPTS = {script.__name__: script for script in (
    follow, far, mixed, press, keep, illegal, stop, start, present, seed, order,
    read, close, refused, watchdog, damp, describe, stream,
)}  # fmt: skip


def robot_trace(make: Any, section: str) -> list[Any]:
    bench = Bench(make)
    ROBOT_SCRIPTS[section](bench)
    return bench.trace


@pytest.mark.parametrize("entry", [one for one in ROBOTS if not one.good], ids=lambda one: one.id)
def test_a_faulty_robot_answers_otherwise_than_its_original(entry: common.Entry) -> None:
    assert robot_trace(entry.make, entry.section) != robot_trace(entry.base, entry.section)


CORRECT = [*{one.base: one.base for one in ROBOTS}, *(one.make for one in ROBOTS if one.good)]


@pytest.mark.parametrize("make", CORRECT, ids=lambda one: one.__name__)
def test_a_correct_robot_keeps_the_contract(make: Any) -> None:
    bench = Bench(make)
    robot, spec = bench.robot, bench.robot.spec
    assert isinstance(attempt(robot.step, bench.command(0.5)), Exception)  # before the first reset
    stamps = []
    for round_, options in enumerate(({"seed": 1}, {"start": bench.command(0.7)}, {"start": "present"})):
        states = [robot.reset(options), *(robot.step(bench.command(0.1 + 0.02 * k)) for k in range(45))]
        for state in states:
            assert set(state.sensors) == set(spec.sensors.names), round_
            for name, value in state.sensors.items():
                assert np.array_equal(spec.sensors[name].validate(value, "sensors"), value), name
                assert value.dtype == spec.sensors[name].numpy_dtype, name
            spec.commands.validate(state.applied, "applied")
            assert all(0 <= age <= 1e9 * spec.max_age_s[name] for name, age in state.age_ns.items())
            assert all(image.stamp_ns <= state.stamp_ns for image in state.images.values())
        stamps += [state.stamp_ns for state in states]
        periods = np.diff([state.stamp_ns for state in states]) * 1e-9
        assert np.allclose(periods, spec.period_s, rtol=1e-3)
    assert (np.diff(stamps) > 0).all()
    before = robot.step(bench.command(0.3))
    bench.fields = [spec.commands.fields[0]]
    with pytest.raises(IllegalAction):
        robot.step({bench.fields[0].name: np.full(bench.fields[0].shape, np.inf)})
    robot.stop("enough")
    bench.fields = list(spec.commands)
    for name in ("step", "reset"):
        with pytest.raises(RobotStopped, match="enough"):
            getattr(robot, name)(bench.command(0.4) if name == "step" else {})
    if hasattr(robot, "read"):
        held = robot.read()
        bench.clock.sleep(500_000_000)
        for name in spec.measured_by.values():
            if spec.sensors[name].unit in ("rad", "m"):
                assert np.allclose(robot.read().sensors[name], held.sensors[name], atol=2e-3), name
    after = robot.reset({"clear_stop": "looked at", "start": "present"})
    assert after.stamp_ns > before.stamp_ns
    robot.close()
    robot.close()
    assert isinstance(attempt(robot.reset, {}), Exception)


# -- scripts of calls for source data -----------------------------------------------------------------------------


class Answers:
    """A source, and the answers of its calls."""

    def __init__(self, make: Any) -> None:
        self.source = make()
        self.source.init({"seed": 1})
        self.trace: list[Any] = []

    def call(self, name: str, *arguments: Any) -> Any:
        answer = attempt(getattr(self.source, name), *arguments)
        self.trace.append(plain(answer) if not isinstance(answer, Exception) else repr(answer)[:60])
        return answer


def whole(a: Answers) -> None:
    a.call("sample_steps", 30)
    for episode in range(3):
        a.call("sample_trajectories", 2, {"episodes": [episode]})
    a.call("sample_trajectories", 12)


def draws(a: Answers) -> None:
    a.trace.append(len(a.source.sample_steps(200)["frame_no"]))
    a.trace.append([one["trajectory_id"] for one in a.source.sample_trajectories(100)])


def seeds(a: Answers) -> None:
    """Note whether one seed gives one sample: the original's answers never differ."""
    answers = []
    for _ in range(2):
        a.source.init({"seed": 5})
        answers.append((plain(a.source.sample_steps(20)), plain(a.source.sample_trajectories(5))))
    a.trace.append(answers[0] == answers[1])


def unique(a: Answers) -> None:
    a.trace.append(len(set(a.source.sample_steps(40, {"replace": False})["extra_info"]["index"].tolist())))


def filters(a: Answers) -> None:
    middle = float(np.median(a.source.statistics({"kind": "returns"})["return"]))
    for options in ({"min_return": middle}, {"expert": True}, {"episodes": [2, 3]}, {"top_fraction": 0.3}):
        answer = attempt(a.source.sample_trajectories, 40, options)
        a.trace.append(
            repr(answer) if isinstance(answer, Exception) else sorted({one["trajectory_id"] for one in answer})
        )


def after(a: Answers) -> None:
    a.call("sample_steps", 5, {"episodes": [1]})
    a.call("sample_steps", 40)
    a.call("statistics")


def write(a: Answers) -> None:
    for value in a.source.sample_trajectories(1, {"episodes": [1]})[0]["steps_set"]["observation"].values():
        value[...] = 0
    a.call("sample_trajectories", 1, {"episodes": [1]})


def twice(a: Answers) -> None:
    first = a.source.sample_steps(6)
    a.call("sample_steps", 6)
    a.trace.append(plain(first))


def nstep(a: Answers) -> None:
    a.call("sample_steps", 60, {"n_step": 4})


def inits(a: Answers) -> None:
    for options in ({}, {"episode": 1, "frame": 2}, {"episode": 2}, {}):
        a.call("init", options)
        a.call("get_all_actions")


def states(a: Answers) -> None:
    a.call("get_all_actions", {"state": {"angle": np.array([0.5], np.float32)}, "tolerance": 0.6})


def pieces(a: Answers) -> None:
    a.call("sample_trajectories", 30, {"length": 3})


def td(a: Answers) -> None:
    index = a.source.sample_steps(10)["extra_info"]["index"]
    a.source.update_priorities(index, -np.arange(1.0, 11.0))
    a.call("sample_steps", 50, {"priority": "td_error"})


def figures(a: Answers) -> None:
    for kind in ("returns", "episodes", "summary", "lengths"):
        a.call("statistics", {"kind": kind})
    a.call("statistics", {"kind": "histogram", "field": "reward", "bins": 4})


def wrong(a: Answers) -> None:
    for options in ({"colour": 1}, {"episodes": []}, {"episodes": [99]}):
        a.call("sample_steps", 3, options)
    a.call("sample_steps", 0)


def weights(a: Answers) -> None:
    a.call("sample_steps", 50, {"priority": "return", "beta": 1.0})


def stacks(a: Answers) -> None:
    a.call("sample_steps", 20, {"stack": 3})


SOURCE_SCRIPTS = {script.__name__: script for script in (
    whole, draws, seeds, unique, filters, after, write, twice, nstep, inits, states, pieces, td, figures,
    wrong, weights, stacks,
)}  # fmt: skip


def source_trace(make: Any, section: str) -> list[Any]:
    answers = Answers(make)
    SOURCE_SCRIPTS[section](answers)
    return answers.trace


@pytest.mark.parametrize("entry", [one for one in SOURCES if not one.good], ids=lambda one: one.id)
def test_a_faulty_source_answers_otherwise_than_its_original(entry: common.Entry) -> None:
    base = source_trace(entry.base, entry.section)
    assert base == source_trace(entry.base, entry.section), "the script is not repeatable"
    assert source_trace(entry.make, entry.section) != base


RIGHT = [*{one.base: one.base for one in SOURCES}, *(one.make for one in SOURCES if one.good)]


@pytest.mark.parametrize("make", RIGHT, ids=lambda one: one.__name__)
def test_correct_source_data_keep_the_contract(make: Any) -> None:
    source = make()
    assert source.init({"seed": 2}) is None
    steps = source.sample_steps(16)
    shown = {int(i): plain({k: v[n] for k, v in steps["observation"].items()})
             for n, i in enumerate(steps["extra_info"]["index"])}  # fmt: skip
    lengths = {}
    for one in source.sample_trajectories(4):
        rows, facts = one["steps_set"], one["extra_info"]
        rewards = rows["reward"] if isinstance(rows["reward"], dict) else {"": rows["reward"]}
        returns = facts["return"] if isinstance(facts["return"], dict) else {"": facts["return"]}
        assert {name: pytest.approx(value.sum()) for name, value in rewards.items()} == returns
        assert rows["done"].tolist() == [0] * (facts["length"] - 1) + [1]
        assert (np.diff(rows["frame_no"]) == 1).all()
        assert rows["frame_no"].dtype == np.int32
        assert facts["terminated"] + facts["truncated"] == 1
        assert facts["end"] - facts["start"] == facts["length"]
        assert 1 <= len(one["env_id"]) <= 36
        assert isinstance(facts["source"], str)
        for name, value in rows["observation"].items():
            assert value.dtype == steps["observation"][name].dtype
            assert np.array_equal(value[1:], rows["next_observation"][name][:-1])
        for n, i in enumerate(rows["extra_info"]["index"].tolist()):
            if i in shown:
                assert shown[i] == plain({k: v[n] for k, v in rows["observation"].items()})
        lengths[one["trajectory_id"]] = facts["length"]
    source.init({"episode": min(lengths), "frame": 0})
    table = source.get_all_actions()
    assert set(table) == {"env_id", "frame_no", "action"}
    assert all(len(value) for value in table["action"].values())
    json.dumps(source.statistics())
    for arguments in ((0,), (3, {"colour": 1}), (3, {"episodes": []})):
        with pytest.raises(SourceError):
            source.sample_steps(*arguments)


# -- the set itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["robot", "source"])
def test_the_manifest_is_that_of_the_classes(part: str) -> None:
    assert (FAULTS / f"{part}_d.json").read_text(encoding="utf-8") == common.write_manifest(part)
    module = robot_d if part == "robot" else source_d
    assert all(
        callable(getattr(module, entry["factory"].partition(":")[2]))
        for entry in json.loads(common.write_manifest(part))
    )


def test_each_fault_breaks_a_known_rule_and_the_rules_are_spread() -> None:
    ids = {one["id"] for one in json.loads(STANDARD.read_text(encoding="utf-8"))["statements"]}
    faults = [one for one in ALL if not one.good]
    assert {one.statement for one in ALL} <= ids | {"robot", "contract"}
    assert max(collections.Counter((one.part, one.statement, one.rule) for one in faults).values()) <= 4
    for entries in (ROBOTS, SOURCES):
        bad = [one for one in entries if not one.good]
        assert max(collections.Counter(one.base for one in bad).values()) <= len(bad) / 4
