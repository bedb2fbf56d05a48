"""Readings that are illegal, change too fast, lag too far or show too much effort are named; all others pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import Field, Guard, Limits, RobotSpec, RobotState, RobotStopped, Spec, SpecError
from hal.guarding.reading_check import (
    RATE_FACTOR,
    AppliedCheck,
    EffortCheck,
    FollowingError,
    RateCheck,
    ReadingCheck,
)
from hal.robots.go2 import GO2
from hal.robots.so101 import HIGH, LOW, SO101
from real import RemoteRobot, Server, Watcher
from sim.robot import SimRobot
from sim.robots.go2 import go2
from sim.robots.so101 import so101
from sim.robots.twin import so101_twin
from tests.fakes import TWO_JOINTS, until

FAST = replace(TWO_JOINTS, max_rate={"angle": (4.0, 2.0)})  # at 10 Hz twice that is 0.8 and 0.4 rad a period
MS = 1_000_000
REAL_ARM = Path(__file__).parents[4] / "shared/data/so101-pick-place"


def reading(angle: tuple[float, float], at_ms: float, age_ms: float = 0.0) -> RobotState:
    sensors = {"angle": np.float32(angle)}
    return RobotState(sensors, {"target": np.zeros(2, np.float32)}, round(at_ms * MS), {"angle": round(age_ms * MS)})


def verdicts(*readings: RobotState, spec: RobotSpec = FAST) -> list[str | None]:
    check = RateCheck(spec)
    check.begin(readings[0])
    return [check.check(robot_state) for robot_state in readings[1:]]


def test_a_jump_is_named_with_its_joint_its_time_and_what_is_possible() -> None:
    (problem,) = verdicts(reading((0.0, 0.0), 0), reading((0.0, 0.45), 100))
    assert problem is not None
    for part in ("'angle' [knee] changed by +0.45 rad in 100 ms", "at most 4 rad/s"):
        assert part in problem


def test_the_fastest_that_is_possible_is_no_jump_in_either_direction() -> None:
    assert verdicts(reading((0.0, 0.0), 0), reading((0.79, -0.39), 100), reading((0.0, 0.0), 200)) == [None, None]


@pytest.mark.parametrize("second", [-0.81, 0.81])
def test_each_element_has_its_own_rate(second: float) -> None:
    assert verdicts(reading((0.0, 0.0), 0), reading((second, 0.0), 100)) != [None]
    one = replace(TWO_JOINTS, max_rate={"angle": 5.0})
    assert verdicts(reading((0.0, 0.0), 0), reading((second, second), 100), spec=one) == [None]


def test_the_time_is_that_of_the_stamps_and_of_what_was_lost() -> None:
    assert verdicts(reading((0.0, 0.0), 0), reading((0.0, 0.7), 200)) == [None], "a period was left out"
    assert verdicts(reading((0.0, 0.0), 0, age_ms=90), reading((0.0, 0.7), 100)) == [None], "an old one before"
    assert verdicts(reading((0.0, 0.0), 0), reading((0.0, 0.35), 20)) == [None], "two late readings one after another"
    assert verdicts(reading((0.0, 0.0), 0), reading((0.0, 0.45), 20)) != [None]


@pytest.mark.parametrize(("unit", "turn"), [("rad", 2 * np.pi), ("deg", 360.0), ("m", None)])
def test_the_wrap_of_an_angle_is_no_jump(unit: str, turn: float | None) -> None:
    field = replace(FAST.sensors["angle"], unit=unit, low=-1000, high=1000)
    spec = replace(FAST, sensors=replace(FAST.sensors, fields=(field,)))
    wrapped = verdicts(reading((0.0, 0.1), 0), reading((0.0, 0.2 - (turn or 6.28)), 100), spec=spec)
    assert (wrapped == [None]) is (turn is not None)
    if turn is not None:
        assert verdicts(reading((0.0, 0.0), 0), reading((0.0, turn / 2), 100), spec=spec) != [None], "half a turn is"


def test_a_rate_needs_a_sensor_of_floats_and_a_number_above_0() -> None:
    for rate in ({"angle": 0.0}, {"angle": (1.0, 2.0, 3.0)}, {"angle": float("nan")}):
        with pytest.raises(SpecError, match="max_rate"):
            replace(TWO_JOINTS, max_rate=rate)
    assert RobotSpec.from_dict(FAST.to_dict()) == FAST
    assert FAST.digest == TWO_JOINTS.digest, "policies and logs stay valid"
    assert "max_rate" not in TWO_JOINTS.to_dict()


def test_a_guard_stops_a_robot_whose_encoder_jumps_also_between_two_commands(puppet: Any) -> None:
    class Jumping(puppet):  # type: ignore[misc]
        def read(self) -> RobotState:
            return self._robot_state()

    inner = Jumping(FAST, follows=0.0)
    guard = Guard(inner)
    target, jumped = {"target": np.zeros(2, np.float32)}, r"implausible: sensor 'angle' \[knee\] changed by \+0.45"
    guard.reset({})
    guard.step(target)
    inner.angle = np.float32([0.0, 0.45])
    with pytest.raises(RobotStopped, match=jumped):
        guard.step(target)
    with pytest.raises(RobotStopped, match=jumped):
        guard.step(target)
    guard.reset({"clear_stop": "looked at the encoder"})
    guard.step(target)
    inner.angle = np.float32([0.0, 0.9])
    with pytest.raises(RobotStopped, match=jumped):
        guard.read()
    assert guard.read() is not None, "a robot that is stopped may be moved, and is shown"


@pytest.mark.parametrize("spec", [SO101, GO2], ids=lambda spec: spec.name)
def test_the_guard_lets_no_command_ask_for_more_than_the_motors_make(spec: RobotSpec) -> None:
    for command, velocity in spec.limits.max_velocity.items():
        assert velocity <= spec.max_rate[spec.measured_by[command]]


@pytest.mark.parametrize(
    ("make", "low", "high", "steps"),
    [(so101, LOW, HIGH, 300), (so101_twin, LOW, HIGH, 300), (go2, None, None, 100)],
    ids=["so101", "twin", "go2"],
)
def test_a_simulation_driven_to_and_fro_as_fast_as_its_guard_allows_shows_no_jump(
    make: Callable[[], Any], low: Any, high: Any, steps: int
) -> None:
    guard, random = Guard(SimRobot(make())), np.random.default_rng(1)
    check = RateCheck(guard.spec)
    state = guard.reset({"seed": 1})
    check.begin(state)
    (command,) = guard.spec.commands
    ends = [np.broadcast_to(end, command.shape) for end in (command.bounds if low is None else (low, high))]
    target = state.applied[command.name]
    for step in range(steps):
        if step % 15 == 0:
            target = random.uniform(*ends).astype(np.float32)
        state = guard.step({command.name: target})
        assert check.check(state) is None


def test_a_real_arm_shows_no_jump() -> None:
    """The recording has stamps on the grid of its periods: one period shows 5.8 rad/s, 1.1 times the servos' speed."""
    if not REAL_ARM.is_dir():
        pytest.skip(f"no recording at {REAL_ARM}")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(sorted(REAL_ARM.glob("data/**/*.parquet"))[0]).to_pydict()
    half = np.array([HIGH[joint] - LOW[joint] for joint in range(6)]) / 2  # 100 units; the gripper's are 0 to 100
    units = np.array(table["observation.state"]) * [*[0.01] * 5, 0.02]
    fastest = 0.0
    for episode in set(table["episode_index"]):
        rows = [row for row, number in enumerate(table["episode_index"]) if number == episode]
        readings = [
            RobotState({"joint_position": (units[row] * half).astype(np.float32)}, {}, round(at * 1e9 / 30))
            for at, row in enumerate(rows)
        ]
        assert verdicts(*readings, spec=SO101) == [None] * (len(rows) - 1)
        fastest = max(fastest, float(np.abs(np.diff(units[rows] * half, axis=0)).max()) * 30)
    assert fastest == pytest.approx(5.83, abs=0.05)
    assert fastest < 0.6 * RATE_FACTOR * SO101.max_rate["joint_position"]


# -- ranges --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize(("low", "high"), [(0.0, 5.0), (-5.0, 0.0)])
def test_a_sensor_may_measure_the_ends_of_its_range_and_the_first_beyond_them_is_named(
    count: int, low: float, high: float
) -> None:
    check = ReadingCheck(Spec("sensors", (Field("force", (count,), "float64", low, high, "N"),)))
    for legal in (low, high, -2.5 if low else 2.5):
        assert check.problem({"force": np.full(count, legal)}) is None
    for wrong in (low - 1, high + 1):
        for end in (low, high):
            values = np.full(count, end)
            values[2] = wrong
            assert f"'force' [2] measured {wrong:g} N" in str(check.problem({"force": values}))
    for wrong in (np.nan, np.inf, -np.inf):
        assert "not a finite number" in str(check.problem({"force": np.append(np.full(count - 1, low), wrong)}))


def test_a_range_ends_a_millionth_later_for_rounding() -> None:
    check = ReadingCheck(Spec("sensors", (Field("height", (), "float64", -1000, 1000, "m"),)))
    for sign in (1, -1):
        assert check.problem({"height": np.array(sign * 1000.0007, np.float64)}) is None
        assert "outside its range" in str(check.problem({"height": np.array(sign * 1000.0015, np.float64)}))


@pytest.mark.filterwarnings("error")
def test_a_sensor_without_a_range_takes_every_finite_number() -> None:
    check = ReadingCheck(Spec("sensors", (Field("count", (), "float64"),)))
    for side in (1, -1):
        assert check.problem({"count": np.array(side * np.finfo(np.float64).max, np.float64)}) is None
        assert "not a finite number" in str(check.problem({"count": np.array(side * np.inf, np.float64)}))


def test_each_sensor_is_judged_and_named_by_its_elements() -> None:
    image = Field("image", (2, 3), "float32", 0, 1, elements=("red", "green", "blue"))
    fields = (Field("height", (), "float32", 0, 1, "m"), image, Field("grid", (2, 3), "float32", 0, 1))
    check = ReadingCheck(Spec("sensors", fields))
    legal: dict[str, Any] = {"height": 0.5, "image": np.zeros((2, 3)), "grid": np.zeros((2, 3))}
    wrong = np.array([[0, 0, 0], [0, 0, 2]], np.float32)
    assert check.problem(legal) is None, "a driver may give a plain number"
    for name, value, text in (
        ("height", 2.0, "sensor 'height' measured 2 m, outside its range"),
        ("image", wrong, "sensor 'image' [blue] measured 2"),
        ("grid", wrong, "sensor 'grid' [1, 2] measured 2"),
    ):
        assert text in str(check.problem(legal | {name: value}))


def test_an_applied_text_is_not_asked_whether_it_is_finite() -> None:
    check = AppliedCheck(Spec("commands", (Field("say", (), "text", characters=8), Field("speed"))))
    legal = {"say": np.array("hello"), "speed": np.array(1, np.float32)}
    assert check.problem(legal) is None
    assert "'speed'" in str(check.problem({"say": np.array("hello"), "speed": np.array(np.nan, np.float32)}))


# -- errors and efforts over time ----------------------------------------------------------------------------


def two_of_each(**changes: Any) -> RobotSpec:
    """Return a robot of 10 Hz with two groups of two joints, each with a current."""
    parts, names = ("left", "right"), ("hip", "knee")
    sensors = [Field(part, (2,), "float32", -10, 10, "rad", elements=names) for part in parts]
    sensors += [Field(f"{part}_current", (2,), "float32", -9, 9, "A", elements=names) for part in parts]
    commands = [Field(f"{part}_target", (2,), "float32", -10, 10, "rad", elements=names) for part in parts]
    measured_by = {f"{part}_target": part for part in parts}
    spec = replace(
        TWO_JOINTS, max_age_s={}, limits=Limits(), home={}, measured_by={}, commands=Spec("commands", tuple(commands))
    )
    return replace(spec, sensors=Spec("sensors", tuple(sensors)), measured_by=measured_by, **changes)


def reading_of(at_ms: float, **values: tuple[float, float]) -> RobotState:
    """Return a reading in which everything else is 0."""
    zero = np.zeros(2, np.float32)
    sensors = {name: zero for part in ("left", "right") for name in (part, f"{part}_current")}
    sensors |= {name: np.array(value, np.float32) for name, value in values.items()}
    return RobotState(sensors, {"left_target": zero, "right_target": zero}, round(at_ms * MS))


def test_a_following_error_at_its_bound_passes_and_one_of_any_command_counts() -> None:
    check = FollowingError(
        two_of_each(limits=Limits(following_error_ticks=2)), {"left_target": 0.5, "right_target": 0.5}
    )
    answers = [check.check(reading_of(0, right=(-0.5, 0.75))) for _ in range(3)]
    assert answers[:2] == [None, None]
    assert "'right_target' [knee] is -0.75 rad" in str(answers[2])
    check.begin()
    for _ in range(5):
        assert check.check(reading_of(0, left=(0.5, -0.5))) is None


def test_a_jump_of_any_sensor_is_found_and_the_least_possible_one_is_named() -> None:
    check = RateCheck(two_of_each(max_rate={"left": (4.0, 2.0), "right": (4.0, 2.0)}))
    check.begin(reading_of(0))
    assert check.check(reading_of(250, left=(2.0, 0.0), right=(-2.0, 1.0))) is None, "at most that much is possible"
    check.begin(reading_of(0))
    assert "'right' [knee] changed by -2 rad" in str(check.check(reading_of(250, right=(3.0, -2.0))))


def effort_check(effort_s: float) -> EffortCheck:
    bounds = {"left_current": 1.0, "right_current": 1.0}
    return EffortCheck(two_of_each(limits=Limits(max_effort=bounds, effort_s=effort_s)))


def test_the_time_of_an_effort_is_that_of_the_stamps_to_the_millisecond() -> None:
    check = effort_check(0.5)
    assert check.check(reading_of(10_000, right_current=(0.0, 2.0))) is None
    assert check.check(reading_of(10_500, right_current=(0.0, 2.0))) is None, "no longer than allowed"
    assert "'right_current' [knee] measured +2 A" in str(check.check(reading_of(10_501, right_current=(0.0, 2.0))))


def test_the_time_of_an_effort_is_a_period_a_reading_where_stamps_stand_still() -> None:
    check = effort_check(0.45)
    answers = [check.check(reading_of(0, left_current=(2.0, 0.0))) for _ in range(6)]
    assert answers[:5] == [None] * 5, "0.4 s from the first to the fifth"
    assert "'left_current' [hip]" in str(answers[5])


HEARD = Spec("heard", (Field("level", (3,), low=-1.0, high=1.0), Field("speech", (), "text", characters=10)))


@pytest.mark.parametrize("speech", ["", "hello", "0123456789", "\u673a\u5668\U0001f916"])
def test_a_text_sensor_measures_any_text_that_fits(speech: str) -> None:
    values = {"level": np.zeros(3, np.float32), "speech": np.array(speech, "<U10")}
    assert ReadingCheck(HEARD).problem(values) is None


@pytest.mark.parametrize("speech", ["01234567890", "a\0b", "\ud800", 3.0, ["a", "b"], b"bytes", None])
def test_a_text_sensor_is_told_what_is_wrong(speech: Any) -> None:
    problem = ReadingCheck(HEARD).problem({"level": np.zeros(3, np.float32), "speech": np.array(speech)})
    assert problem is not None
    assert "sensor 'speech' measured a wrong text: sensor.speech" in problem


class Listener:
    """A real robot that hears and says texts."""

    spec = RobotSpec(
        "listener", HEARD,
        Spec("said", (Field("say", (2,), "text", characters=10), Field("volume", (1,), "float32", 0, 1))), 50.0,
    )  # fmt: skip

    def __init__(self) -> None:
        self.speech, self.said = "hi", self.spec.commands.validate({"say": ["", ""], "volume": [0.0]})

    def _robot_state(self) -> RobotState:
        sensors = {"level": np.zeros(3, np.float32), "speech": np.array(self.speech)}
        return RobotState(sensors, dict(self.said), time.monotonic_ns())

    def reset(self, options: Any) -> RobotState:
        return self._robot_state()

    def step(self, command: Any) -> RobotState:
        self.said = dict(command)
        return self._robot_state()

    def stop(self, reason: str) -> None: ...

    def close(self) -> None: ...


def test_a_robot_with_a_text_sensor_is_guarded() -> None:
    robot = Listener()
    guard = Guard(robot)
    guard.reset({})
    assert guard.step({"say": ["a", "b"], "volume": [0.5]}).sensors["speech"].item() == "hi"
    robot.speech = "much too long for it"
    with pytest.raises(RobotStopped, match="'speech' measured a wrong text"):
        guard.step({"say": ["a", "b"], "volume": [0.5]})


def test_a_robot_with_a_text_sensor_is_served_and_watched() -> None:
    robot = Listener()
    with Server(robot, watchdog_s=2.0, telemetry="tcp://127.0.0.1:*") as server:
        remote = RemoteRobot(server.address, robot.spec)
        watcher = Watcher(server.telemetry, robot.spec)
        assert remote.reset({}).sensors["speech"].item() == "hi"
        robot.speech = "\u673a\u5668"
        state = remote.step({"say": ["hello", ""], "volume": [0.5]})
        assert (state.sensors["speech"].item(), state.applied["say"].tolist()) == ("\u673a\u5668", ["hello", ""])
        until(lambda: watcher.next().sensors.get("speech") == "\u673a\u5668")
        watcher.close()
        remote.close()
