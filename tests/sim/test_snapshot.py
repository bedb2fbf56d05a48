"""What was kept goes on bit by bit: of a batch, of some of it, of one robot."""

from __future__ import annotations

import numpy as np
import pytest

from hal import EpisodeError
from sim.batch import SimBatch
from sim.latency.delay_model import DelayModel
from sim.model import SimModel
from sim.randomize.randomise import Randomise
from sim.robot import SimRobot
from sim.robots.so101 import so101

LATE = DelayModel.from_dict(
    {
        "command_delay": {"uniform": [0.0, 0.09]},
        "command_jitter": {"uniform": [0.0, 0.03]},
        "command_loss": 0.2,
        "reading_delay": 0.02,
        "reading_loss": 0.2,
        "sensor_rate": {"angles": 30.0},
        "backlash": {"bend": 0.05},
    }
)
DRAWN = Randomise.from_dict(
    {"body.*.mass": {"uniform": [0.5, 2.0], "scale": True}, "joint.a.damping": {"uniform": [0, 1], "unit": "N m s/rad"}}
)
CONDITIONS = {"plain": {}, "late": {"timing": LATE}, "randomised": {"timing": LATE, "randomise": DRAWN}}


def drive(batch: SimBatch, steps: int, first: int = 0) -> list[dict[str, np.ndarray]]:
    """Steps and, now and then, resets without a seed."""
    seen = []
    for step in range(first, first + steps):
        rng = np.random.default_rng(step)
        if step % 7 == 6:
            batch.reset([0])
        torque, bend = rng.uniform(-1, 1, (batch.num, 2)), rng.uniform(-2, 2, batch.num).astype(np.float32)
        robot_state = batch.step({"torque": torque, "bend": bend})
        ages = {f"age_{name}": np.asarray(age) for name, age in robot_state.age_ns.items()}
        seen.append({**robot_state.sensors, **robot_state.applied, **ages, **batch.drawn})
    return seen


def assert_same(
    mine: list[dict[str, np.ndarray]], theirs: list[dict[str, np.ndarray]], rows: slice = slice(None)
) -> None:
    for step, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        for name, value in one.items():
            np.testing.assert_array_equal(value[rows], other[name][rows], err_msg=f"{name} at step {step}")


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_a_restored_batch_goes_on_bit_by_bit(pendulum: SimModel, conditions: str) -> None:
    batch = SimBatch(pendulum, 3, 2, **CONDITIONS[conditions])  # type: ignore[arg-type]
    other = SimBatch(pendulum, 3, 1, **CONDITIONS[conditions])  # type: ignore[arg-type]
    batch.reset(seeds=[1, 2, 3])
    drive(batch, 9)
    kept, shown = batch.snapshot(), batch.batch_state()
    after = drive(batch, 20, 9)
    for place in (batch, other):
        restored = place.restore(kept)
        for name, value in shown.sensors.items():
            np.testing.assert_array_equal(restored.sensors[name], value)
        assert_same(drive(place, 20, 9), after)


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_some_are_restored_and_the_others_go_on(pendulum: SimModel, conditions: str) -> None:
    batch = SimBatch(pendulum, 3, 1, **CONDITIONS[conditions])  # type: ignore[arg-type]
    batch.reset(seeds=[1, 2, 3])
    drive(batch, 5)
    kept = batch.snapshot([1])
    whole = batch.snapshot()
    after = drive(batch, 6, 7)
    batch.restore(whole)
    drive(batch, 2, 5)
    batch.restore(kept, [1])
    assert_same(drive(batch, 6, 7), after, slice(1, 2))


def test_one_state_goes_into_all(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 4, 2)
    batch.reset(seeds=[1, 2, 3, 4])
    drive(batch, 5)
    robot_state = batch.restore(batch.snapshot()[2])
    assert (robot_state.sensors["angles"] == robot_state.sensors["angles"][0]).all()
    with pytest.raises(IndexError):
        batch.snapshot()[4]


def test_contacts_go_on_too() -> None:
    batch = SimBatch(so101(cube=True), 2, 1)
    batch.reset(seeds=[1, 2])
    for _ in range(5):
        batch.step({"joint_target": np.full((2, 6), 0.3, np.float32)})
    kept = batch.snapshot()
    runs = []
    for _ in range(2):
        batch.restore(kept)
        runs.append([batch.step({"joint_target": np.full((2, 6), -0.1, np.float32)}) for _ in range(20)])
    for one, other in zip(*runs, strict=True):
        for name, value in one.sensors.items():
            np.testing.assert_array_equal(value, other.sensors[name], err_msg=name)


def test_failed_physics_are_part_of_it(pendulum: SimModel, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))  # MuJoCo writes MUJOCO_LOG.TXT where it is
    batch = SimBatch(pendulum, 2, 1)
    batch.reset(seeds=[1, 2])
    good = batch.snapshot()
    batch.open_batch.bind("qvel")[1] = np.nan
    drive(batch, 1)
    bad = batch.snapshot()
    batch.restore(good)
    assert not batch.broken.any()
    batch.restore(bad)
    assert batch.broken.tolist() == [False, True]
    assert batch.faults(1)


def test_time_does_not_go_back(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 1, 1)
    batch.reset()
    kept = batch.snapshot()
    drive(batch, 3)
    assert np.asarray(batch.restore(kept).stamp_ns).tolist() == [150_000_000]


def test_one_robot_goes_on_bit_by_bit_and_anywhere(pendulum: SimModel) -> None:
    robot = SimRobot(pendulum, timing=LATE, randomise=DRAWN)
    with pytest.raises(EpisodeError, match="snapshot before reset"):
        robot.snapshot()
    robot.reset({"seed": 3})

    def run(each: SimRobot) -> list[bytes]:
        seen = []
        for step in range(10):
            robot_state = each.step({"torque": np.array([0.5, -0.5]), "bend": np.float32(step / 10)})
            seen.append(
                b"".join(value.tobytes() for value in robot_state.sensors.values()) + str(robot_state.age_ns).encode()
            )
        return seen

    run(robot)
    kept = robot.snapshot()
    after, fresh = run(robot), SimRobot(pendulum, timing=LATE, randomise=DRAWN)
    for each in (robot, fresh):
        each.restore(kept)
        assert run(each) == after
    robot.close()
    for call in (robot.snapshot, lambda: robot.restore(kept)):
        with pytest.raises(EpisodeError, match="after close"):
            call()


def test_what_does_not_fit_is_refused_and_changes_nothing(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 3, 1)
    with pytest.raises(EpisodeError, match="snapshot before reset"):
        batch.snapshot()
    batch.reset(seeds=[1, 2, 3])
    kept = batch.snapshot()
    late = SimBatch(pendulum, 3, 1, timing=LATE)
    late.reset()
    arm = SimBatch(so101(), 3, 1)
    for place, ids, message in (
        (late, None, "another timing or randomisation"),
        (arm, None, "another robot or model"),
        (batch, [0, 1], "a snapshot of 3 for 2 simulations"),
        (batch, [3], "ids"),
    ):
        with pytest.raises(ValueError, match=message):
            place.restore(kept, ids)
    with pytest.raises(EpisodeError, match="never reset"):
        arm.step({"joint_target": np.zeros((3, 6), np.float32)})
