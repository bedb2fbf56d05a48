"""A snapshot as a file: another process goes on from it bit by bit, and what it does not fit refuses it."""

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

from hal import RobotError
from sim.batch import SimBatch
from sim.latency.delay_model import DelayModel
from sim.mjcf.robot import from_mjcf
from sim.model import SimModel
from sim.randomize.randomise import Randomise
from sim.robots.go2 import go2
from sim.robots.so101 import so101, so101_cube
from sim.snapshot import FORMAT, BatchSnapshot

LATE = {
    "command_delay": {"uniform": [0.0, 0.09]}, "command_loss": 0.2, "reading_delay": 0.02, "reading_loss": 0.2,
    "backlash": {"joint_target": 0.05},
}  # fmt: skip
DRAWN = {"body.*.mass": {"uniform": [0.5, 2.0], "scale": True}}
GO_ON = """
import json
import sys

import numpy as np

from sim.batch import SimBatch
from sim.randomize.randomise import Randomise
from sim.snapshot import BatchSnapshot
from sim.robots.so101 import so101
from sim.latency.delay_model import DelayModel

def go_on(kept, late, drawn):
    batch = SimBatch(so101(), 3, 1, timing=DelayModel.from_dict(late), randomise=Randomise.from_dict(drawn))
    batch.restore(BatchSnapshot.load(kept))
    seen = []
    for step in range(30):
        if step % 9 == 8:
            batch.reset([1])
        target = np.random.default_rng(step).uniform(-0.5, 0.5, (3, 6)).astype(np.float32)
        reading = batch.step({"joint_target": target})
        seen += [*reading.sensors.values(), *reading.applied.values(), *batch.drawn.values()]
    return b"".join(np.ascontiguousarray(value).tobytes() for value in seen)

if __name__ == "__main__":
    sys.stdout.buffer.write(go_on(sys.argv[1], *map(json.loads, sys.argv[2:])))
"""


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Three late and randomised arms in the middle of an episode."""
    batch = SimBatch(so101(), 3, 2, timing=DelayModel.from_dict(LATE), randomise=Randomise.from_dict(DRAWN))
    batch.reset(seeds=[1, 2, 3])
    for _ in range(12):
        batch.step({"joint_target": np.full((3, 6), 0.4, np.float32)})
    path = batch.snapshot().save(tmp_path / "kept.npz")
    batch.close()
    return path


@pytest.mark.process
def test_another_process_goes_on_bit_by_bit(kept: Path, tmp_path: Path) -> None:
    script = tmp_path / "go_on.py"
    script.write_text(GO_ON)
    here = runpy.run_path(str(script))["go_on"](kept, LATE, DRAWN)
    done = subprocess.run([sys.executable, script, kept, json.dumps(LATE), json.dumps(DRAWN)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == here
    assert len(here) > 10_000


def test_the_generators_of_starts_go_on_too(pendulum: SimModel) -> None:
    batch, other = SimBatch(pendulum, 3, 1), SimBatch(pendulum, 3, 1)
    batch.reset(seeds=[1, 2, 3])
    other.restore(BatchSnapshot.from_bytes(batch.snapshot().to_bytes()))
    assert batch.snapshot().generators[0] is not None
    for _ in range(3):
        first, second = batch.reset(), other.reset()
        for name, value in first.sensors.items():
            np.testing.assert_array_equal(value, second.sensors[name])


def test_what_was_read_is_what_was_kept(kept: Path) -> None:
    snapshot = BatchSnapshot.load(kept)
    again = BatchSnapshot.from_bytes(snapshot.to_bytes())
    assert again.to_bytes() == kept.read_bytes(), "the same bytes for the same state"
    assert again.generators == snapshot.generators
    for group in ("model", "drawn", "delays"):
        assert getattr(again, group).keys() == getattr(snapshot, group).keys() != set()


@pytest.mark.parametrize("make", [so101, so101_cube, go2])
def test_looks_are_no_part_of_a_simulation(make: object) -> None:
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
        ({"kind": "environments"}, "is of environments, wanted is one of simulations"),
        ({"name": "other"}, "no snapshot, or a damaged one"),
        ({"arrays": {"own": ["state"]}}, "no snapshot, or a damaged one"),
        ({"plain": 7}, "no snapshot, or a damaged one"),
    ],
)
def test_another_file_is_refused_with_the_reason(kept: Path, changes: dict, message: str) -> None:
    with pytest.raises(RobotError, match=message):
        BatchSnapshot.from_bytes(_with_head(kept, **changes))


def test_what_is_torn_or_missing_is_said(kept: Path, tmp_path: Path) -> None:
    for length in (0, 10, 500, kept.stat().st_size - 30):
        with pytest.raises(RobotError, match="no snapshot, or a damaged one"):
            BatchSnapshot.from_bytes(kept.read_bytes()[:length])
    with pytest.raises(RobotError, match=r"none\.npz: the snapshot can't be read: No such file"):
        BatchSnapshot.load(tmp_path / "none.npz")
    with pytest.raises(RobotError, match=r"kept\.npz: the snapshot can't be written"):
        BatchSnapshot.load(kept).save(tmp_path / "no" / "kept.npz")


def test_no_code_comes_from_a_file(kept: Path, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with np.load(kept) as file:
        arrays = {name: file[name] for name in file.files}
    np.savez(stream, **{**arrays, "own.0": np.array([print], object)}, allow_pickle=True)
    with pytest.raises(RobotError, match="no snapshot, or a damaged one"):
        BatchSnapshot.from_bytes(stream.getvalue())
