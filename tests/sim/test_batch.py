from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import EpisodeError, IllegalAction, RobotError, RobotState
from sim.batch import SimBatch, time_mujoco
from sim.model import SimModel
from sim.robot import SimRobot
from sim.robots.so101 import so101


def commands(num: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"torque": rng.uniform(-1, 1, (num, 2)), "bend": rng.uniform(-2, 2, num).astype(np.float32)}


def row(robot_state: RobotState, index: int) -> dict[str, np.ndarray]:
    return {name: value[index] for name, value in (*robot_state.sensors.items(), *robot_state.applied.items())}


def assert_same(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray], when: str) -> None:
    assert list(mine) == list(theirs)
    for name, value in mine.items():
        assert value.dtype == theirs[name].dtype
        np.testing.assert_array_equal(value, theirs[name], err_msg=f"{name} {when}", strict=True)


@pytest.fixture(scope="session", params=["an mjData each", "one a thread"])
def either(request: pytest.FixtureRequest, pendulum: SimModel) -> SimModel:
    """The pendulum in both of the ways in which a batch may hold it."""
    model = pendulum if request.param == "an mjData each" else replace(pendulum, derived="as_stepped")
    assert model.needs_own_model == (model is pendulum)
    return model


def test_readings_have_the_shapes_and_types_of_the_spec(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 4, 1)
    for robot_state in (batch.reset(), batch.step(commands(4, 0))):
        assert list(robot_state.sensors) == list(pendulum.spec.sensors.names)
        for field in pendulum.spec.sensors:
            assert robot_state.sensors[field.name].shape == (4, *field.shape)
            assert robot_state.sensors[field.name].dtype == field.numpy_dtype
        for field in pendulum.spec.commands:
            assert robot_state.applied[field.name].shape == (4, *field.shape)
            assert robot_state.applied[field.name].dtype == field.numpy_dtype
        assert np.asarray(robot_state.stamp_ns).dtype == np.int64
        assert np.shape(robot_state.stamp_ns) == (4,)


def test_sensors_read_the_columns_they_name(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 3, 1)
    batch.reset(seeds=[1, 2, 3])
    sensors = batch.step(commands(3, 0)).sensors
    angles = sensors["angles"]
    np.testing.assert_array_equal(sensors["ends"], angles[:, [0, 2]].astype(np.float32))
    np.testing.assert_array_equal(sensors["middle"], angles[:, 1])
    np.testing.assert_array_equal(sensors["swapped"], angles[:, [2, 0, 1]])
    np.testing.assert_array_equal(sensors["squared"], (angles[:, 1] ** 2).astype(np.float32))
    np.testing.assert_array_equal(batch.open_batch.bind("ctrl")[:, [0, 2]], commands(3, 0)["torque"])


@pytest.mark.requirement("R1.3")
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_trajectory_depends_on_nothing_but_its_own_resets_and_commands(either: SimModel, data: st.DataObject) -> None:
    """One robot alone, and the same one anywhere in a batch, on any threads, with staggered resets."""
    num = data.draw(st.integers(1, 7), "num")
    place = data.draw(st.integers(0, num - 1), "place")
    threads = data.draw(st.sampled_from([1, 2]), "threads")
    script = data.draw(st.lists(st.booleans(), min_size=4, max_size=12), "who else is reset when")
    alone, batch = SimRobot(either), SimBatch(either, num, threads)
    first = alone.reset({"seed": 5})
    seeds = np.arange(100, 100 + num)
    seeds[place] = 5
    assert_same({**first.sensors, **first.applied}, row(batch.reset(seeds=seeds), place), "at the first reset")
    for time, others in enumerate(script):
        if others and num > 1:
            batch.reset([index for index in range(num) if index != place])
        if time % 5 == 3:
            one = alone.reset({"seed": time})
            many = batch.reset([place], seeds=[time])
            assert_same({**one.sensors, **one.applied}, row(many, 0), f"at the reset at {time}")
        command = commands(num, time)
        one = alone.step({name: value[place] for name, value in command.items()})
        many = batch.step(command)
        assert_same({**one.sensors, **one.applied}, row(many, place), f"at step {time}")


def test_a_batch_is_a_loop_over_mj_step(either: SimModel) -> None:
    batch, data = SimBatch(either, 2, 2), mujoco.MjData(either.model)
    batch.reset(seeds=[3, 4])
    mujoco.mj_resetDataKeyframe(either.model, data, 0)
    data.qpos[:], data.qvel[:] = (batch.open_batch.bind(name)[1] for name in ("qpos", "qvel"))
    mujoco.mj_forward(either.model, data)
    for time in range(10):
        command = commands(2, time)
        robot_state = batch.step(command)
        data.ctrl[:] = (*command["torque"][1], 0)
        data.ctrl[[0, 2, 1]] = (*command["torque"][1], command["bend"][1])
        for _ in range(5):
            mujoco.mj_step(either.model, data)
        np.testing.assert_array_equal(robot_state.sensors["angles"][1], data.qpos)


def test_position_sensors_are_of_the_end_of_the_period_not_one_substep_old(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 1, 1)
    batch.reset(seeds=[1])
    robot_state = batch.step(commands(1, 0))
    data = mujoco.MjData(pendulum.model)
    data.qpos[:] = robot_state.sensors["angles"][0]
    mujoco.mj_kinematics(pendulum.model, data)
    np.testing.assert_array_equal(robot_state.sensors["frame"][0].ravel(), data.site_xmat[0])


def test_returned_arrays_stay_as_they_were(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 3, 1)
    batch.reset(seeds=[1, 2, 3])
    command = commands(3, 0)
    last = batch.step(command)
    kept = {name: value.copy() for name, value in row(last, 1).items()}
    command["torque"][:] = 0
    fresh = batch.reset([1], seeds=[9])
    assert fresh.sensors["angles"].shape == (1, 3)
    batch.step(commands(3, 1))
    assert_same(row(last, 1), kept, "after a reset and a step")


def test_resetting_some_leaves_the_others_unchanged(either: SimModel) -> None:
    batch, same = SimBatch(either, 4, 1), SimBatch(either, 4, 1)
    for each in (batch, same):
        each.reset(seeds=[1, 2, 3, 4])
        each.step(commands(4, 0))
    fresh = batch.reset(np.array([False, True, False, True]), seeds=[7, 8])
    assert len(fresh.sensors["angles"]) == 2
    ours, theirs = batch.step(commands(4, 1)), same.step(commands(4, 1))
    for index in (0, 2):
        assert_same(row(ours, index), row(theirs, index), "after the others' reset")
    assert not np.array_equal(ours.sensors["angles"][1], theirs.sensors["angles"][1])


def test_stepping_some_leaves_the_others_unchanged(either: SimModel) -> None:
    batch, same = SimBatch(either, 3, 1), SimBatch(either, 3, 1)
    for each in (batch, same):
        each.reset(seeds=[1, 2, 3])
    before, theirs = batch.step(commands(3, 0)), same.step(commands(3, 0))
    ours = batch.step(commands(3, 1), np.array([True, False, True]))
    assert_same(row(ours, 1), row(before, 1), "of one that did not move")
    theirs = same.step(commands(3, 1))
    for index in (0, 2):
        assert_same(row(ours, index), row(theirs, index), "of one that moved")
    with pytest.raises(ValueError, match="ids"):
        batch.step(commands(3, 2), np.array([True]))


def test_a_start_moves_the_pose_and_the_command_and_home_fills_the_rest(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 3, 1)
    home = batch.reset()
    np.testing.assert_array_equal(home.applied["bend"], np.float32([0.25] * 3))
    np.testing.assert_array_equal(home.applied["torque"], np.zeros((3, 2)))
    moved = batch.reset([0, 2], starts={"bend": np.float32([1.5, -1.0])})
    np.testing.assert_array_equal(moved.applied["bend"], np.float32([1.5, -1.0]))
    assert np.abs(moved.sensors["middle"] - [1.5, -1.0]).max() <= 0.1  # scatter adds up to 0.1


@pytest.mark.requirement("R1.3", "6.2.2.1-3")
def test_a_seed_fixes_the_start_and_those_of_later_resets(pendulum: SimModel) -> None:
    batch, again = SimBatch(pendulum, 2, 1), SimBatch(pendulum, 2, 2)
    for each in (batch, again):
        each.reset(seeds=[11, 12])
    ours, theirs = batch.reset(), again.reset()
    assert_same(row(ours, 0), row(theirs, 0), "at the second reset")
    assert not np.array_equal(ours.sensors["angles"][0], ours.sensors["angles"][1])


def test_time_continues_through_resets(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 2, 1)
    stamps = [batch.reset().stamp_ns, batch.step(commands(2, 0)).stamp_ns, batch.reset([1]).stamp_ns]
    stamps.append(batch.step(commands(2, 1)).stamp_ns)
    assert [int(np.asarray(stamp)[-1]) for stamp in stamps] == [0, 50_000_000, 50_000_000, 100_000_000]


def test_failed_physics_are_reported_until_the_next_reset(either: SimModel, caplog: pytest.LogCaptureFixture) -> None:
    batch = SimBatch(either, 3, 1)
    batch.reset()
    batch.step(commands(3, 0))
    assert not batch.broken.any()
    batch.open_batch.bind("qvel")[1] = np.nan
    batch.step(commands(3, 1))
    assert batch.broken.tolist() == [False, True, False]
    assert str(batch.faults(1)[0]).startswith("simulation: MuJoCo warns mjWARN_BAD")
    batch.step(commands(3, 2))
    assert batch.broken.tolist() == [False, True, False]
    said = [record.getMessage() for record in caplog.records if record.name == "sim.batch"]
    assert len(said) == 1, "once, not in every step"
    assert "number 1;" in said[0]
    assert "mjWARN_BAD" in said[0]
    batch.reset([1])
    assert not batch.broken.any()
    batch.step(commands(3, 3))
    assert not batch.broken.any()


_BREAKS = """
import sys
import mujoco
import numpy as np
from sim import SimBatch, from_mjcf

if len(sys.argv) > 1:
    config = mujoco.MjLogConfig.get()
    config.logfile = sys.argv[1]
    config.set()
batch = SimBatch(from_mjcf('''<mujoco><worldbody><body><joint name="hinge"/><geom size="0.1"/></body></worldbody>
<actuator><motor joint="hinge" ctrlrange="-1 1"/></actuator></mujoco>'''), 1)
batch.reset()
batch.open_batch.bind("qvel")[0] = np.nan
batch.step({"torque": np.zeros((1, 1), np.float32)})
assert batch.broken.all()
"""


@pytest.mark.process
@pytest.mark.parametrize("chosen", [[], ["mine.txt"]])
def test_failed_physics_leave_no_file_but_one_that_somebody_chose(tmp_path: Path, chosen: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", _BREAKS, *chosen],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "physics of 1 of 1 simulations failed" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == chosen


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize(
    ("change", "code", "index"),
    [
        ({"torque": None}, "missing", ()),
        ({"torqe": np.zeros(3)}, "unknown", ()),
        ({"bend": np.zeros(2)}, "shape", ()),
        ({"bend": np.zeros((3, 1))}, "shape", ()),
        ({"torque": np.array([[0, 0], [0, np.nan], [0, 0]])}, "not_finite", (1, 1)),
        ({"torque": np.array([[0, 0], [0, 0], [np.inf, 0]])}, "not_finite", (2, 0)),
    ],
)
def test_an_illegal_command_moves_nothing(
    pendulum: SimModel, change: dict[str, Any], code: str, index: tuple[int, ...]
) -> None:
    batch, same = SimBatch(pendulum, 3, 1), SimBatch(pendulum, 3, 1)
    for each in (batch, same):
        each.reset(seeds=[1, 2, 3])
    given = {name: value for name, value in {**commands(3, 5), **change}.items() if value is not None}
    with pytest.raises(IllegalAction) as caught:
        batch.step(given)
    assert (caught.value.violation.code, caught.value.violation.index) == (code, index)
    assert_same(row(batch.step(commands(3, 1)), 0), row(same.step(commands(3, 1)), 0), "after a refusal")


@pytest.mark.parametrize("ids", [[1, 1], [2, 1], [-1], [3], [0.5], np.array([True]), [[0]]])
def test_illegal_ids_are_refused(pendulum: SimModel, ids: Any) -> None:
    batch = SimBatch(pendulum, 3, 1)
    batch.reset()
    with pytest.raises(ValueError, match=r"ids|mask"):
        batch.reset(ids)


def test_resetting_no_simulation_gives_an_empty_state(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 3, 1)
    batch.reset()
    assert batch.reset([]).sensors["angles"].shape == (0, 3)


def test_seeds_and_starts_must_fit_the_ids(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 3, 1)
    with pytest.raises(ValueError, match="2 seeds for 3"):
        batch.reset(seeds=[1, 2])
    with pytest.raises(ValueError, match=r"starts.bend has shape \(3,\)"):
        batch.reset([0, 1], starts={"bend": np.zeros(3)})
    with pytest.raises(ValueError, match="starts name 'bent', commands are"):
        batch.reset(starts={"bent": np.zeros(3)})
    with pytest.raises(EpisodeError, match="never reset"):  # nothing of it was done by halves
        batch.step(commands(3, 0))
    for num, threads in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="allowed are 1 or more"):
            SimBatch(pendulum, num, threads)


def test_calls_in_the_wrong_order_are_refused(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 3, 1)
    with pytest.raises(EpisodeError, match="before reset"):
        batch.step(commands(3, 0))
    batch.reset([0, 2])
    with pytest.raises(EpisodeError, match=r"\[1\] were never reset"):
        batch.step(commands(3, 0))
    batch.close()
    batch.close()
    with pytest.raises(EpisodeError, match="closed"):
        batch.step(commands(3, 0))
    with pytest.raises(EpisodeError, match="closed"):
        batch.reset()


def test_pickling_is_refused_with_the_reason(pendulum: SimModel, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = SimBatch(pendulum, 2, 2)
    batch.reset()
    with pytest.raises(TypeError, match="can't be pickled; send what makes it"):
        pickle.dumps(batch)
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as after a fork, where the threads are missing and a step hangs
    with pytest.raises(RobotError, match="'spawn'"):
        batch.step(commands(2, 0))
    with pytest.raises(RobotError, match="'spawn'"):
        batch.reset()


def test_a_delayed_actuator_remembers_the_start_and_not_a_zero(
    pendulum_xml: str, pendulum_of: Callable[[str], SimModel]
) -> None:
    delayed = pendulum_xml.replace('<position joint="b"', '<position joint="b" delay="0.1" nsample="16"')
    batch = SimBatch(pendulum_of(delayed), 2, 1)
    batch.reset(seeds=[1, 2], starts={"bend": np.float32([1.0, -1.5])})
    history = batch.open_batch.bind("history")
    np.testing.assert_array_equal(history[:, -16:], np.repeat([[1.0], [-1.5]], 16, axis=1))


def test_mujoco_times_its_steps_where_it_is_asked_to() -> None:
    """The clock of MuJoCo's Python package is left out while simulations step, and a user's own stays."""
    model = so101(looks=False).model
    data = mujoco.MjData(model)

    def is_timed() -> bool:
        data.timer[0].duration = 0.0
        mujoco.mj_step(model, data)
        return bool(data.timer[0].duration > 0)

    try:
        assert time_mujoco(True)
        assert is_timed()
        SimBatch(so101(looks=False), 1, 1)
        assert not is_timed()
        ticks = iter(range(1_000_000))
        mujoco.set_mjcb_time(lambda: float(next(ticks)))
        assert time_mujoco(False)
        assert is_timed()
        mujoco.set_mjcb_time(None)
        assert time_mujoco(True)
        assert is_timed()
    finally:
        mujoco.set_mjcb_time(None)
        time_mujoco(False)
