"""Limits on acceleration and jerk, as the guard applies them; those on speed and lead are in test_guard.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, Guard, Limits, RobotSpec, RobotState, Spec, SpecError
from hal.guarding.command_limiter import CommandLimiter
from tests.fakes import TWO_JOINTS, ManualClock, Puppet

RATE_HZ = 100.0
LIMITS = Limits({"target": 2.0}, {"target": 0.5}, max_acceleration={"target": (10.0, 20.0)}, max_jerk={"target": 500.0})
ARM = replace(TWO_JOINTS, rate_hz=RATE_HZ, limits=LIMITS)

angles = st.floats(-1, 1, width=32)
commands = st.lists(st.tuples(angles, angles, st.integers(1, 30)), min_size=1, max_size=12)
"""Goals of the two joints, and how many periods they stay."""


def target(*values: float) -> dict[str, np.ndarray]:
    return {"target": np.asarray(values, np.float32)}


def limiter(spec: RobotSpec = ARM, at: tuple[float, float] = (0.0, 0.0)) -> CommandLimiter:
    made = CommandLimiter(spec)
    made.begin(target(*at))
    return made


class Steps:
    """Step a limiter with the measurements of an arm that reaches every command exactly."""

    def __init__(self, spec: RobotSpec = ARM, at: tuple[float, float] = (0.0, 0.0)) -> None:
        self.limiter, self.told = limiter(spec, at), [np.asarray(at, np.float32)]

    def __call__(self, goal: np.ndarray, passed_s: float | None = None) -> np.ndarray:
        at = self.told[-1]
        last = RobotState({"angle": at.astype(np.float32)}, {"target": at}, 0)
        self.told.append(self.limiter.apply({"target": goal}, last, passed_s)["target"])
        return self.told[-1]


@given(commands, st.booleans())
def test_any_commands_become_legal_motion(stream: list[tuple[float, float, int]], drops_out: bool) -> None:
    """Steps, noise and dropouts, in which the loop repeats what was applied last."""
    step = Steps()
    for hip, knee, periods in stream:
        for tick in range(periods):
            step(step.told[-1] if drops_out and tick % 3 == 2 else np.float32([hip, knee]))
    way = np.array(step.told, np.float64)
    rounding = np.finfo(np.float32).eps  # of a command up to 1
    for power, bound in enumerate((np.full(2, 2.0), np.array([10.0, 20.0]), np.full(2, 500.0)), 1):
        way = np.diff(way, axis=0) * RATE_HZ
        assert (np.abs(way) <= bound * (1 + 1e-6) + 2**power * rounding * RATE_HZ**power).all()
    assert step.told[-1].dtype == np.float32
    assert (np.abs(np.array(step.told)) <= 1.0).all(), "never beyond the range of the command"


def test_a_goal_is_reached_to_the_last_bit() -> None:
    step, goal = Steps(), np.float32([0.9, -0.3])
    for _ in range(200):
        step(goal)
    np.testing.assert_array_equal(step.told[-1], goal)
    assert step(goal).tolist() == goal.tolist()


def test_no_time_means_no_motion() -> None:
    step = Steps()
    for _ in range(20):
        step(np.float32([0.5, 0.5]))
    moving = step.told[-1]
    np.testing.assert_array_equal(step(np.float32([0.5, 0.5]), 0.0), moving)


def test_the_lead_bounds_the_goal() -> None:
    made = limiter()
    stuck = RobotState({"angle": np.float32([0.0, 0.0])}, target(0.0, 0.0), 0)
    for _ in range(300):
        told = made.apply(target(1.0, 1.0), stuck)["target"]
        stuck = stuck._replace(applied={"target": told})
    np.testing.assert_allclose(told, 0.5, rtol=1e-6)


@pytest.mark.parametrize("where", ["goal", "measured"])
def test_what_is_no_number_never_becomes_a_command(where: str) -> None:
    values = {"goal": [0.5, 0.5], "measured": [0.0, 0.0]}
    values[where][1] = np.nan
    last = RobotState({"angle": np.float32(values["measured"])}, target(0.0, 0.0), 0)
    assert np.isnan(limiter().apply(target(*values["goal"]), last)["target"]).all()


def test_a_batch_is_refused() -> None:
    rows = np.zeros((3, 2), np.float32)
    with pytest.raises(SpecError, match="one robot at a time"):
        limiter().apply({"target": rows}, RobotState({"angle": rows}, {"target": rows}, 0))


# -- in the guard, by the time that passes -------------------------------------------------------------------


class Timed(Puppet):
    """An arm whose steps last as long as a test says, and which may apply another command than the given one."""

    def __init__(self, spec: RobotSpec = ARM, at: tuple[float, float] = (0.0, 0.0)) -> None:
        super().__init__(spec, at)
        self.clock, self.takes_s = ManualClock(), 1 / RATE_HZ
        self.changes: Callable[[np.ndarray], np.ndarray] = lambda told: told

    def step(self, command: Any) -> RobotState:
        self.clock.advance(self.takes_s)
        state = super().step(command)
        self.angle = self.applied = self.changes(self.applied)
        return state._replace(applied={"target": self.applied.copy()}, sensors={"angle": self.angle.copy()})


@pytest.fixture
def arm() -> Timed:
    return Timed()


@pytest.fixture
def guard(arm: Timed) -> Guard:
    guard = Guard(arm, arm.clock)
    guard.reset({})
    return guard


@given(st.lists(st.floats(0.0, 0.03), min_size=5, max_size=80))
def test_motion_goes_by_the_measured_time(lengths: list[float]) -> None:
    arm = Timed()
    guard = Guard(arm, arm.clock)
    guard.reset({})
    began, nominal_s = arm.clock.now, 1 / RATE_HZ
    for arm.takes_s in lengths:
        guard.step(target(1.0, 1.0))
        passed_s = arm.clock.now - began + 1.5 * nominal_s  # a guard lets an arm catch up on half a period
        assert arm.told[-1][0] <= min(1.0, 10.0 * passed_s**2 / 2, 500.0 * passed_s**3 / 6) + 1e-6


def test_after_a_pause_motion_begins_at_rest(guard: Guard, arm: Timed) -> None:
    for _ in range(30):
        guard.step(target(1.0, 0.0))
    before = arm.told[-1] - arm.told[-2]
    arm.clock.advance(1.0)  # nothing was commanded, so an arm that holds its goal has come to rest
    guard.step(target(1.0, 0.0))
    assert 0 < (arm.told[-1] - arm.told[-2])[0] < before[0] / 20


def test_an_arm_that_applies_something_else_is_led_on_from_there(guard: Guard, arm: Timed) -> None:
    for _ in range(30):
        guard.step(target(0.9, 0.9))
    arm.changes = lambda told: np.minimum(told, np.float32(-0.2))  # as a driver with a range of its own
    guard.step(target(0.9, 0.9))
    arm.changes = lambda told: told
    guard.step(target(0.9, 0.9))
    np.testing.assert_allclose(arm.told[-1], -0.2, atol=1e-3)


def test_a_driver_that_rounds_to_its_ticks_disturbs_nothing(guard: Guard, arm: Timed) -> None:
    tick = 2 * np.pi / 4096
    arm.changes = lambda told: (np.round(told / tick) * tick).astype(np.float32)
    for _ in range(200):
        guard.step(target(0.9, -0.9))
    np.testing.assert_array_equal(arm.told[-1], np.float32([0.9, -0.9]))


def test_an_arm_outside_its_range_begins_at_the_end_of_it(puppet: Any) -> None:
    arm = puppet(ARM, at=(3.0, 0.0))
    guard = Guard(arm)
    guard.reset({})
    guard.step(target(0.0, 0.0))
    assert 0.99 < arm.told[0][0] <= 1.0


def test_of_two_guards_the_inner_one_leads() -> None:
    arm, alone = Timed(), Timed()
    nested, single = Guard(Guard(arm, arm.clock), arm.clock), Guard(alone, alone.clock)
    for guard in (nested, single):
        guard.reset({})
        for _ in range(150):
            guard.step(target(0.8, -0.8))
    np.testing.assert_array_equal(arm.told, alone.told)
    np.testing.assert_array_equal(arm.told[-1], np.float32([0.8, -0.8]))


def test_limits_of_the_guard_replace_those_of_the_robot() -> None:
    arm = Timed(replace(ARM, limits=Limits({"target": 2.0})))
    guard = Guard(arm, arm.clock, limits=Limits({"target": 2.0}, max_acceleration={"target": 10.0}))
    assert guard.spec.limits == Limits({"target": 2.0}, max_acceleration={"target": 10.0})
    guard.reset({})
    guard.step(target(1.0, 0.0))
    assert arm.told[0][0] == pytest.approx(10.0 / RATE_HZ**2 / 2)
    assert arm.spec.limits == Limits({"target": 2.0})


# -- the quick answer ----------------------------------------------------------------------------------------

near = st.floats(-0.625, 0.625, width=32) | st.just(np.nan)
bounds = st.sampled_from([{}, {"target": 0.25}, {"target": (0.25, 0.5)}])


@given(bounds, bounds, st.tuples(near, near), st.tuples(near, near), st.tuples(angles, angles))
def test_what_is_within_the_limits_is_not_changed(
    velocity: Any, lead: Any, applied: tuple[float, float], measured: tuple[float, float], goal: tuple[float, float]
) -> None:
    spec = replace(TWO_JOINTS, rate_hz=1.0, limits=Limits(velocity, lead))
    last = RobotState({"angle": np.float32(measured)}, target(*applied), 0)
    made, told = CommandLimiter(spec), target(*goal)
    if made.is_within(told, last):
        changed = spec.limits.apply("target", told["target"], last.applied["target"], last.sensors["angle"], 1.0)
        np.testing.assert_array_equal(changed, told["target"])
        assert made.apply(told, last)["target"] is told["target"]
    elif not spec.limits.names:
        pytest.fail("nothing is limited")


sixteenths = st.integers(-20, 20).map(lambda number: number / 16)
"""Places a fraction of a stride apart, so that limits are met exactly, missed by little, and exceeded to both sides."""

pairs = st.tuples(sixteenths, sixteenths)
limit = st.sampled_from([None, 0.25, (0.25, 0.5)])


def nearest(spec: RobotSpec, goal: Any, applied: Any, measured: Any, passed_s: float | None) -> np.ndarray:
    """Return the command that the limits ask for: by the lead, then by the speed, then by the range."""
    limits, goal = spec.limits, np.asarray(goal)
    if "target" in limits.max_lead and measured is not None:
        lead = np.asarray(limits.max_lead["target"])
        goal = np.clip(goal, np.minimum(measured - lead, applied), np.maximum(measured + lead, applied))
    if "target" in limits.max_velocity:
        stride = np.asarray(limits.max_velocity["target"]) * (1.0 if passed_s is None else min(passed_s, 1.0))
        goal = np.clip(goal, applied - stride, applied + stride)
    return np.clip(goal, -1, 1) if limits.names else goal


@given(limit, limit, pairs, pairs, pairs, st.booleans(), st.booleans(), st.sampled_from([None, 0.0, 0.5, 1.0, 2.0]))
def test_each_command_goes_to_the_nearest_place_that_its_limits_allow(
    velocity: Any, lead: Any, goal: Any, applied: Any, measured: Any, is_measured: bool, alone: bool, passed_s: Any
) -> None:
    """Of a robot of two joints or one, at 1 Hz; the command asked for stays as it is."""
    names = {"max_velocity": velocity, "max_lead": lead if is_measured else None}
    if alone:
        goal, applied, measured = goal[0], applied[0], measured[0]
        names = {name: value[0] if isinstance(value, tuple) else value for name, value in names.items()}
    shape = np.shape(goal)
    spec = replace(
        TWO_JOINTS,
        sensors=Spec("sensors", (Field("angle", shape, "float32", -10, 10),)),
        commands=Spec("commands", (Field("target", shape, "float32", -1, 1),)),
        rate_hz=1.0,
        limits=Limits(**{name: {"target": value} for name, value in names.items() if value is not None}),
        home={},
        measured_by={"target": "angle"} if is_measured else {},
    )
    last = RobotState({"angle": np.asarray(measured, np.float32)}, {"target": np.asarray(applied, np.float32)}, 0)
    asked = {"target": np.clip(np.asarray(goal, np.float32), -1, 1)}
    kept = asked["target"].copy()
    made = CommandLimiter(spec)
    place = last.sensors["angle"] if is_measured else None
    expected = nearest(spec, asked["target"], last.applied["target"], place, passed_s)
    np.testing.assert_array_equal(made.apply(asked, last, passed_s)["target"], expected)
    np.testing.assert_array_equal(asked["target"], kept)
    if made.is_within(asked, last):
        np.testing.assert_array_equal(nearest(spec, kept, last.applied["target"], place, None), kept)


@pytest.mark.parametrize("velocity", [None, (0.25, 0.375)])
@pytest.mark.parametrize("lead", [None, (0.25, 0.375)])
@pytest.mark.parametrize("moving", [0, 1])
def test_no_goal_wherever_the_arm_is_gets_through_unlimited(velocity: Any, lead: Any, moving: int) -> None:
    """Every goal, last command and measurement on a grid, to both sides of zero, where the other joint rests."""
    names = {"max_velocity": velocity, "max_lead": lead}
    limits = Limits(**{name: {"target": value} for name, value in names.items() if value is not None})
    spec = replace(TWO_JOINTS, rate_hz=1.0, limits=limits)
    grid = np.linspace(-0.625, 0.625, 11)
    rows = np.zeros((len(grid) ** 3, 3, 2), np.float32)
    rows[:, :, moving] = np.stack(np.meshgrid(grid, grid, grid), -1).reshape(-1, 3)
    expected = nearest(spec, rows[:, 0], rows[:, 1], rows[:, 2], None)
    made = CommandLimiter(spec)
    for (goal, applied, measured), legal in zip(rows, expected, strict=True):
        last = RobotState({"angle": measured}, {"target": applied}, 0)
        assert made.apply({"target": goal}, last)["target"].tolist() == legal.tolist(), (goal, applied, measured)
        assert not made.is_within({"target": goal}, last) or goal.tolist() == legal.tolist()


@pytest.mark.parametrize("beyond", [-5e-4, 5e-4])
@pytest.mark.parametrize("side", [-1.0, 1.0])
@pytest.mark.parametrize("kind", ["max_velocity", "max_lead"])
def test_a_limit_is_kept_to_less_than_a_thousandth(kind: str, side: float, beyond: float) -> None:
    spec = replace(TWO_JOINTS, rate_hz=1.0, limits=Limits(**{kind: {"target": 0.25}}))
    goal, still = np.float32([side * 0.25 * (1 + beyond), 0.0]), np.zeros(2, np.float32)
    last = RobotState({"angle": still}, {"target": still}, 0)
    expected = nearest(spec, goal, still, still, None)
    np.testing.assert_array_equal(CommandLimiter(spec).apply({"target": goal}, last)["target"], expected)
    assert beyond < 0 or not CommandLimiter(spec).is_within({"target": goal}, last)


def test_rows_of_a_command_of_one_number_are_limited() -> None:
    one = Spec("commands", (Field("target", (), "float32", -1, 1),))
    angle = Spec("sensors", (Field("angle", (), "float32", -10, 10),))
    spec = replace(TWO_JOINTS, sensors=angle, commands=one, limits=Limits({"target": 2.0}), home={})
    goals, still = np.linspace(-1, 1, 5, dtype=np.float32), np.zeros(5, np.float32)
    last = RobotState({"angle": still}, {"target": still}, 0)
    told = CommandLimiter(spec).apply({"target": goals}, last)["target"]
    np.testing.assert_allclose(told, np.clip(goals, -0.2, 0.2))


def test_a_goal_equal_to_the_last_command_stops_an_arm_without_turning_back() -> None:
    """As the loop commands where nobody else does."""
    step = Steps()
    for _ in range(20):
        step(np.float32([0.9, -0.9]))
    (stop,) = step.limiter.stop_values().values()
    for _ in range(60):
        step(step.told[-1])
    way = np.diff(np.array(step.told), axis=0)
    assert (way[:, 0] >= 0).all()
    assert (way[:, 1] <= 0).all()
    np.testing.assert_allclose(step.told[-1], stop, atol=1e-6)


def test_the_way_of_braking_is_not_longer_than_the_detours_say() -> None:
    rng, step, turned = np.random.default_rng(0), Steps(), set()
    for _ in range(60):
        goal = rng.uniform(-1, 1, 2).astype(np.float32)
        for _ in range(rng.integers(1, 12)):
            step(goal)
            detours = step.limiter.detour_values()
            detour = detours.get("target", np.zeros(2))
            places = np.array([step.limiter.braking_values(share)["target"] for share in np.linspace(0, 1, 40)])
            length = np.abs(np.diff(places, axis=0)).sum(0)
            straight = np.abs(step.limiter.stop_values()["target"] - places[0])
            assert (length <= straight + detour + 1e-5).all()
            turned.add(tuple(detour > 0))
    assert turned >= {(False, False), (True, False), (False, True)}, "the test saw both kinds of braking"


def test_an_arm_that_measures_nothing_is_led_too() -> None:
    step = Steps(replace(ARM, measured_by={}, home={}, limits=replace(LIMITS, max_lead={})))
    for _ in range(300):
        step(np.float32([0.9, -0.3]))
    np.testing.assert_array_equal(step.told[-1], np.float32([0.9, -0.3]))


def test_a_led_command_is_never_within_the_limits_at_once() -> None:
    assert not limiter().is_within(target(0, 0), RobotState({"angle": np.zeros(2, np.float32)}, target(0, 0), 0))
