"""A planted delay is found by an injected clock, at each stage of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import RobotState
from rlenv_operate.episode import TeleopEpisode
from rlenv_operate.teleop.latency.chain import StampedDriver, pose_of
from rlenv_operate.teleop.latency.trials import Trial, TrialWatch, measure, summarise
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.core import RobotWorld
from rlenv_robot.robot_models import RobotModel
from rlenv_robot.tasks.free import Free
from rlenv_robot.tasks.task import Arrays
from tests.fakes import TWO_JOINTS, ManualClock

PERIOD_NS = 10_000_000
SPEC = replace(TWO_JOINTS, rate_hz=100.0)


class LateRobot:
    """A robot that reaches a command a time after it was written, on a clock that its steps advance by a period."""

    spec, simulated = SPEC, True

    def __init__(self, clock: ManualClock, late_ns: int) -> None:
        self._clock, self._late_ns = clock, late_ns
        self._written: list[tuple[int, np.ndarray]] = []

    def now_ns(self) -> int:
        return round(self._clock() * 1e9)

    def reset(self, options: Mapping[str, object]) -> RobotState:
        self._written = [(0, np.zeros(2, np.float32))]
        return self._read()

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        self._written.append((self.now_ns(), np.array(command["target"])))
        self._clock.advance(PERIOD_NS / 1e9)
        return self._read()

    def _read(self) -> RobotState:
        now_ns = self.now_ns()
        reached = [goal for at_ns, goal in self._written if at_ns + self._late_ns <= now_ns or at_ns == 0][-1]
        return RobotState({"angle": reached}, {"target": self._written[-1][1]}, now_ns)

    def stop(self, reason: str) -> None: ...

    def close(self) -> None: ...


class LateDevice:
    """A device and its input: a change takes a time to the device's program."""

    def __init__(self, clock: ManualClock, late_ns: int) -> None:
        self._clock, self._late_ns = clock, late_ns
        self._changed_ns, self._aim, self._before = 0, 0.0, 0.0

    def open(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...

    def poll(self, present: Arrays) -> Arrays | None:
        arrived = round(self._clock() * 1e9) >= self._changed_ns + self._late_ns
        return {"target": np.array([self._aim if arrived else self._before, 0.0])}

    def change(self, direction: int) -> None:
        self._clock.advance(0.0037)  # not in step with the robot
        self._changed_ns = round(self._clock() * 1e9)
        self._before, self._aim = self._aim, self._aim + 0.3 * direction

    def input_ns(self) -> int:
        return self._changed_ns

    def rest(self) -> None: ...


class SteppedChain:
    """Device, episode and robot in one thread and one manual clock."""

    def __init__(self, device_ns: int, robot_ns: int) -> None:
        clock = ManualClock()
        self.device = LateDevice(clock, device_ns)
        self._driver = StampedDriver(LateRobot(clock, robot_ns), None, lambda: round(clock() * 1e9))
        task = _Two()
        self._episode = TeleopEpisode(
            Environment(RobotWorld(self._driver, task), None, None), SPEC, self.device, 100.0, sleep=clock.advance
        )
        self._episode.begin()

    def settle(self) -> None:
        self._driver.watch = None
        for _ in range(60):
            self._episode.period()

    def begin(self) -> TrialWatch:
        assert self._driver.newest is not None
        self._driver.watch = TrialWatch(self._driver.goal, pose_of(SPEC, self._driver.newest), 1e-4, 0.005)
        return self._driver.watch

    def wait(self, watch: TrialWatch) -> bool:
        for _ in range(100):
            self._episode.period()
            if watch.wait(0):
                return True
        return False


class _Two(Free):
    """A task without a goal for the robot of these tests."""

    def __init__(self) -> None:
        super().__init__("so101", steps=100_000)

    robot_model = RobotModel(SPEC.name, spec=SPEC)  # type: ignore[assignment]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 150), st.integers(0, 150))
def test_planted_delays_are_found_within_a_period(device_ms: int, robot_ms: int) -> None:
    chain = SteppedChain(device_ms * 1_000_000, robot_ms * 1_000_000)
    figures = summarise(measure(chain, chain.device, 4))
    assert figures["lost"] == 0
    period_ms = PERIOD_NS / 1e6
    for stage, planted in (("input_to_written", device_ms), ("written_to_moved", max(robot_ms, period_ms))):
        assert planted - 0.01 <= figures[stage]["p50_ms"] <= planted + period_ms + 0.01
        assert planted - 0.01 <= figures[stage]["worst_ms"] <= planted + period_ms + 0.01


def test_40_ms_more_of_delay_are_40_ms_more_of_latency() -> None:
    chains = SteppedChain(0, 0), SteppedChain(40_000_000, 0)
    base, late = (summarise(measure(chain, chain.device, 6)) for chain in chains)
    for name in ("p50_ms", "p95_ms", "p99_ms", "worst_ms"):
        assert late["input_to_moved"][name] - base["input_to_moved"][name] == pytest.approx(40.0, abs=PERIOD_NS / 1e6)
        assert late["written_to_moved"][name] == pytest.approx(base["written_to_moved"][name], abs=0.01)


def test_percentiles_are_the_nearest_rank_and_lost_trials_are_counted() -> None:
    trials = [Trial(10**9, 10**9 + n * 10**6, 10**9 + 2 * n * 10**6) for n in range(1, 101)]
    figures = summarise([*trials, Trial(10**9, None, None), Trial(0, 10**9, 2 * 10**9)])
    assert (figures["trials"], figures["lost"]) == (102, 2)
    stage = figures["input_to_written"]
    assert [stage[key] for key in ("n", "p50_ms", "p95_ms", "p99_ms", "worst_ms")] == [100, 50, 95, 99, 100]
    assert figures["input_to_moved"]["worst_ms"] == 200
    assert summarise([])["input_to_moved"]["p50_ms"] is None


def test_a_motion_before_the_goal_s_change_is_not_ours() -> None:
    watch = TrialWatch({"a": np.zeros(2)}, {"a": np.zeros(2)}, 0.01, 0.01)
    watch.measured({"a": np.ones(2)}, 5)
    watch.wrote({"a": np.array([0.0, 0.005])}, 6)
    assert watch.written_ns is None
    watch.wrote({"a": np.array([0.0, 0.02])}, 7)
    watch.measured({"a": np.ones(2)}, 6)
    assert watch.moved_ns is None
    watch.wrote({"a": np.array([0.0, 0.5])}, 8)
    watch.measured({"a": np.array([0.0, 0.02])}, 9)
    watch.measured({"a": np.ones(2)}, 10)
    assert (watch.written_ns, watch.moved_ns, watch.wait(0)) == (7, 9, True)
