"""A restored snapshot continues bit by bit: of a batch, of some of its rows, of one robot, in another process."""

from __future__ import annotations

import io
import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

from hal import EpisodeError, RobotError
from sim.batch import SimBatch
from sim.latency import DelayModel
from sim.mjcf.robot import from_mjcf
from sim.model import SimModel
from sim.randomize.randomise import Randomise
from sim.robot import SimRobot
from sim.robots.go2 import go2
from sim.robots.so101 import so101, so101_cube
from sim.snapshot import FORMAT, BatchSnapshot

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
    """Step a batch, and now and then reset its first simulation without a seed; return all that it reads."""
    states = []
    for step in range(first, first + steps):
        rng = np.random.default_rng(step)
        if step % 7 == 6:
            batch.reset([0])
        torque, bend = rng.uniform(-1, 1, (batch.num, 2)), rng.uniform(-2, 2, batch.num).astype(np.float32)
        robot_state = batch.step({"torque": torque, "bend": bend})
        ages = {f"age_{name}": np.asarray(age) for name, age in robot_state.age_ns.items()}
        states.append({**robot_state.sensors, **robot_state.applied, **ages, **batch.drawn})
    return states


def assert_same(
    mine: list[dict[str, np.ndarray]], theirs: list[dict[str, np.ndarray]], rows: slice = slice(None)
) -> None:
    for step, (one, other) in enumerate(zip(mine, theirs, strict=True)):
        for name, value in one.items():
            np.testing.assert_array_equal(value[rows], other[name][rows], err_msg=f"{name} at step {step}")


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_a_restored_batch_continues_bit_by_bit(pendulum: SimModel, conditions: str) -> None:
    batch = SimBatch(pendulum, 3, 2, **CONDITIONS[conditions])  # type: ignore[arg-type]
    other = SimBatch(pendulum, 3, 1, **CONDITIONS[conditions])  # type: ignore[arg-type]
    batch.reset(seeds=[1, 2, 3])
    drive(batch, 9)
    snapshot, state = batch.snapshot(), batch.batch_state()
    after = drive(batch, 20, 9)
    for target in (batch, other):
        restored = target.restore(snapshot)
        for name, value in state.sensors.items():
            np.testing.assert_array_equal(restored.sensors[name], value)
        assert_same(drive(target, 20, 9), after)


@pytest.mark.parametrize("conditions", CONDITIONS)
def test_some_rows_are_restored_and_the_others_continue(pendulum: SimModel, conditions: str) -> None:
    batch = SimBatch(pendulum, 3, 1, **CONDITIONS[conditions])  # type: ignore[arg-type]
    batch.reset(seeds=[1, 2, 3])
    drive(batch, 5)
    snapshot = batch.snapshot([1])
    whole = batch.snapshot()
    after = drive(batch, 6, 7)
    batch.restore(whole)
    drive(batch, 2, 5)
    batch.restore(snapshot, [1])
    assert_same(drive(batch, 6, 7), after, slice(1, 2))


def test_one_state_can_be_restored_into_all_rows(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 4, 2)
    batch.reset(seeds=[1, 2, 3, 4])
    drive(batch, 5)
    robot_state = batch.restore(batch.snapshot()[2])
    assert (robot_state.sensors["angles"] == robot_state.sensors["angles"][0]).all()
    with pytest.raises(IndexError):
        batch.snapshot()[4]


def test_contacts_continue_too() -> None:
    batch = SimBatch(so101(cube=True), 2, 1)
    batch.reset(seeds=[1, 2])
    for _ in range(5):
        batch.step({"joint_target": np.full((2, 6), 0.3, np.float32)})
    snapshot = batch.snapshot()
    runs = []
    for _ in range(2):
        batch.restore(snapshot)
        runs.append([batch.step({"joint_target": np.full((2, 6), -0.1, np.float32)}) for _ in range(20)])
    for one, other in zip(*runs, strict=True):
        for name, value in one.sensors.items():
            np.testing.assert_array_equal(value, other.sensors[name], err_msg=name)


def test_snapshots_keep_failed_physics(pendulum: SimModel, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_restore_does_not_turn_time_back(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 1, 1)
    batch.reset()
    snapshot = batch.snapshot()
    drive(batch, 3)
    assert np.asarray(batch.restore(snapshot).stamp_ns).tolist() == [150_000_000]


def test_one_robot_continues_bit_by_bit_in_any_instance(pendulum: SimModel) -> None:
    robot = SimRobot(pendulum, timing=LATE, randomise=DRAWN)
    with pytest.raises(EpisodeError, match="snapshot before reset"):
        robot.snapshot()
    robot.reset({"seed": 3})

    def run(subject: SimRobot) -> list[bytes]:
        states = []
        for step in range(10):
            robot_state = subject.step({"torque": np.array([0.5, -0.5]), "bend": np.float32(step / 10)})
            states.append(
                b"".join(value.tobytes() for value in robot_state.sensors.values()) + str(robot_state.age_ns).encode()
            )
        return states

    run(robot)
    snapshot = robot.snapshot()
    after, other = run(robot), SimRobot(pendulum, timing=LATE, randomise=DRAWN)
    for subject in (robot, other):
        subject.restore(snapshot)
        assert run(subject) == after
    robot.close()
    for call in (robot.snapshot, lambda: robot.restore(snapshot)):
        with pytest.raises(EpisodeError, match="after close"):
            call()


def test_a_snapshot_that_does_not_fit_is_refused_and_changes_nothing(pendulum: SimModel) -> None:
    batch = SimBatch(pendulum, 3, 1)
    with pytest.raises(EpisodeError, match="snapshot before reset"):
        batch.snapshot()
    batch.reset(seeds=[1, 2, 3])
    snapshot = batch.snapshot()
    late = SimBatch(pendulum, 3, 1, timing=LATE)
    late.reset()
    arm = SimBatch(so101(), 3, 1)
    for target, ids, message in (
        (late, None, "another timing or randomisation"),
        (arm, None, "another robot or model"),
        (batch, [0, 1], "a snapshot of 3 for 2 simulations"),
        (batch, [3], "ids"),
    ):
        with pytest.raises(ValueError, match=message):
            target.restore(snapshot, ids)
    with pytest.raises(EpisodeError, match="never reset"):
        arm.step({"joint_target": np.zeros((3, 6), np.float32)})


# -- snapshots in files ----------------------------------------------------------------------------------------

ARM_DELAYS = {
    "command_delay": {"uniform": [0.0, 0.09]}, "command_loss": 0.2, "reading_delay": 0.02, "reading_loss": 0.2,
    "backlash": {"joint_target": 0.05},
}  # fmt: skip
ARM_DRAWS = {"body.*.mass": {"uniform": [0.5, 2.0], "scale": True}}
SCRIPT = """
import json
import sys

import numpy as np

from sim.batch import SimBatch
from sim.randomize.randomise import Randomise
from sim.snapshot import BatchSnapshot
from sim.robots.so101 import so101
from sim.latency import DelayModel

def go_on(path, delays, draws):
    batch = SimBatch(so101(), 3, 1, timing=DelayModel.from_dict(delays), randomise=Randomise.from_dict(draws))
    batch.restore(BatchSnapshot.load(path))
    states = []
    for step in range(30):
        if step % 9 == 8:
            batch.reset([1])
        target = np.random.default_rng(step).uniform(-0.5, 0.5, (3, 6)).astype(np.float32)
        state = batch.step({"joint_target": target})
        states += [*state.sensors.values(), *state.applied.values(), *batch.drawn.values()]
    return b"".join(np.ascontiguousarray(value).tobytes() for value in states)

if __name__ == "__main__":
    sys.stdout.buffer.write(go_on(sys.argv[1], *map(json.loads, sys.argv[2:])))
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Save three delayed and randomised arms in the middle of an episode."""
    batch = SimBatch(so101(), 3, 2, timing=DelayModel.from_dict(ARM_DELAYS), randomise=Randomise.from_dict(ARM_DRAWS))
    batch.reset(seeds=[1, 2, 3])
    for _ in range(12):
        batch.step({"joint_target": np.full((3, 6), 0.4, np.float32)})
    path = batch.snapshot().save(tmp_path / "saved.npz")
    batch.close()
    return path


@pytest.mark.process
def test_another_process_continues_bit_by_bit(saved: Path, tmp_path: Path) -> None:
    script = tmp_path / "go_on.py"
    script.write_text(SCRIPT)
    local = runpy.run_path(str(script))["go_on"](saved, ARM_DELAYS, ARM_DRAWS)
    done = subprocess.run(
        [sys.executable, script, saved, json.dumps(ARM_DELAYS), json.dumps(ARM_DRAWS)], capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == local
    assert len(local) > 10_000


def test_the_generators_of_starts_continue_too(pendulum: SimModel) -> None:
    batch, other = SimBatch(pendulum, 3, 1), SimBatch(pendulum, 3, 1)
    batch.reset(seeds=[1, 2, 3])
    other.restore(BatchSnapshot.from_bytes(batch.snapshot().to_bytes()))
    assert batch.snapshot().generators[0] is not None
    for _ in range(3):
        first, second = batch.reset(), other.reset()
        for name, value in first.sensors.items():
            np.testing.assert_array_equal(value, second.sensors[name])


def test_a_snapshot_is_the_same_after_reading_and_writing(saved: Path) -> None:
    snapshot = BatchSnapshot.load(saved)
    restored = BatchSnapshot.from_bytes(snapshot.to_bytes())
    assert restored.to_bytes() == saved.read_bytes(), "the same bytes for the same state"
    assert restored.generators == snapshot.generators
    for group in ("model", "drawn", "delays"):
        assert getattr(restored, group).keys() == getattr(snapshot, group).keys() != set()


@pytest.mark.parametrize("make", [so101, so101_cube, go2])
def test_visual_parts_do_not_change_the_models_digest(make: object) -> None:
    with_looks, without = (make(looks=looks) for looks in (True, False))  # type: ignore[operator]
    assert with_looks.model.ngeom > without.model.ngeom
    assert with_looks.digest == without.digest


def _pole(length: float = 0.5, more: str = "", gear: float = 1) -> SimModel:
    return from_mjcf(
        f"""<mujoco model="pole"><option timestep="0.01" {more}/><worldbody><body><joint name="j" damping="0.1"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 {length}"/></body></worldbody>
        <actuator><position joint="j" kp="{5 * gear}" ctrlrange="-1 1"/></actuator></mujoco>"""
    )


@pytest.mark.parametrize(
    "other", [_pole(0.6), _pole(more='gravity="0 0 -9.8"'), _pole(gear=2), replace(_pole(), derived="as_stepped")],
    ids=["geom", "option", "gain", "when it reads"],
)  # fmt: skip
def test_another_model_of_the_same_robot_is_refused(other: SimModel) -> None:
    first, second = SimBatch(_pole(), 1, 1), SimBatch(other, 1, 1)
    assert first.spec.digest == second.spec.digest, "only the physics differ"
    first.reset()
    data = first.snapshot().to_bytes()
    with pytest.raises(ValueError, match="of a model whose physics differ"):
        second.restore(BatchSnapshot.from_bytes(data))
    arm = SimBatch(so101(), 1, 1)
    with pytest.raises(ValueError, match="of another robot or model"):
        arm.restore(BatchSnapshot.from_bytes(data))
    SimBatch(_pole(), 1, 1).restore(BatchSnapshot.from_bytes(data))


def _with_head(path: Path, **changes: object) -> bytes:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    head = {**json.loads(arrays["header"].tobytes()), **changes}
    stream = io.BytesIO()
    np.savez(stream, **{**arrays, "header": np.frombuffer(json.dumps(head).encode(), np.uint8)})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": FORMAT + 1}, f"has format {FORMAT + 1}, this version of rlenv-robot reads {FORMAT}"),
        ({"mujoco": "4.99.0"}, f"with MuJoCo 4.99.0 and this is {mujoco.__version__}.*mujoco-core==4.99.0"),
        ({"kind": "environments"}, "is of environments, expected one of simulations"),
        ({"name": "other"}, "no snapshot, or a damaged one"),
        ({"arrays": {"own": ["state"]}}, "no snapshot, or a damaged one"),
        ({"plain": 7}, "no snapshot, or a damaged one"),
    ],
)
def test_a_file_of_another_kind_or_version_is_refused_with_the_reason(saved: Path, changes: dict, message: str) -> None:
    with pytest.raises(RobotError, match=message):
        BatchSnapshot.from_bytes(_with_head(saved, **changes))


def test_a_torn_or_missing_file_is_refused_with_its_path(saved: Path, tmp_path: Path) -> None:
    for length in (0, 10, 500, saved.stat().st_size - 30):
        with pytest.raises(RobotError, match="no snapshot, or a damaged one"):
            BatchSnapshot.from_bytes(saved.read_bytes()[:length])
    with pytest.raises(RobotError, match=r"none\.npz: .* No such file"):
        BatchSnapshot.load(tmp_path / "none.npz")
    with pytest.raises(RobotError, match=r"saved\.npz: the snapshot can't be written"):
        BatchSnapshot.load(saved).save(tmp_path / "no" / "saved.npz")


def test_a_file_with_pickled_objects_is_refused(saved: Path, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with np.load(saved) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(stream, **{**arrays, "own.0": np.array([print], object)}, allow_pickle=True)
    with pytest.raises(RobotError, match="no snapshot, or a damaged one"):
        BatchSnapshot.from_bytes(stream.getvalue())
