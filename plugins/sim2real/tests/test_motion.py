"""Motions are read from logs of ours and from other people's, goals in the frame in which they were sent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from hal.robots.so101 import JOINTS
from hal.robots.so101_units import JointUnits
from plugins.sim2real.tests.conftest import DATA, real_log
from recorder.table.table import Table
from rlenv_robot.data.folder import read_folder
from rlenv_robot.robot_models import find_robot_model, load_robot_model
from rlenv_sim2real.motion import ArmJoints, read_motions, robot_of
from rlenv_sim2real.open_loop import replay_model
from rlenv_tabletop.scenes import so101_pair
from sim.robots.go2 import go2
from sim.robots.so101 import so101

ARM = so101(looks=False)


def test_a_run_of_ours_gives_what_was_commanded(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path, steps=20) as env:
        table = env.reset({"seed": 1})
        sent = []
        for _ in range(15):
            sent.append(table["observation"]["joint_goal"] + np.float32(0.02))
            table, _ = env.step(
                {"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"joint_target": sent[-1]}}
            )
    recorded = read_folder(tmp_path)
    assert robot_of(recorded) == "so101"
    (motion,) = read_motions(recorded, ARM)
    np.testing.assert_allclose(motion.goals[:15], sent, atol=1e-6)
    assert motion.period_s == pytest.approx(1 / 30, rel=1e-3)
    assert motion.own is None
    assert motion.names == JOINTS
    later = motion.cut(5, 12)
    np.testing.assert_array_equal(later.held, motion.goals[4])
    assert len(later) == 7


def test_a_lerobot_log_keeps_its_own_units(so101_log: Table) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    stored = parquet.read_table(DATA / "so101-pick-place/data/chunk-000/file-000.parquet")
    first = np.array(stored["episode_index"]) == 0
    state, action = (np.array(stored[name].to_pylist())[first] for name in ("observation.state", "action"))
    assert robot_of(so101_log) == "so101"
    motion = read_motions(so101_log, ARM)[0]
    units = JointUnits("percent")
    np.testing.assert_allclose(motion.measured, units.to_radians(state), atol=1e-5)
    np.testing.assert_allclose(motion.goals[:-1], units.to_radians(action)[:-1], atol=1e-5)
    np.testing.assert_allclose(motion.own.number(motion.measured), state, atol=0.01)


def test_a_log_without_known_units_says_what_to_do() -> None:
    with pytest.raises(SourceError, match="--units degrees or --units percent"):
        read_motions(real_log("so101-pick-place"), ARM)


def test_joints_are_found_in_models_of_several_arms_and_not_on_free_bases() -> None:
    pair = ArmJoints.of(so101_pair())
    assert len(pair.names) == 12
    assert pair.names[0] == "left_shoulder_pan"
    with pytest.raises(SourceError, match="free base"):
        ArmJoints.of(go2())


def test_models_have_names_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    stiff = replay_model(str(Path(__file__).parents[3] / "launch" / "stiff_so101.toml"), find_robot_model("so101"))
    assert stiff.settings.keys() == {"randomise"}
    assert replay_model("twin:3", find_robot_model("so101")).sim_model.spec.name == "so101"
    with pytest.raises(ValueError, match="there is no twin of"):
        replay_model("twin", load_robot_model(str(_pendulum(tmp_path))))
    with pytest.raises(ValueError, match="'nothing' is unknown"):
        replay_model("nothing", find_robot_model("so101"))
    (tmp_path / "go2.toml").write_text('[robot]\nkind = "go2"\n')
    with pytest.raises(ValueError, match="profile of a 'go2'"):
        replay_model(str(tmp_path / "go2.toml"), find_robot_model("so101"))


def _pendulum(folder: Path) -> Path:
    file = folder / "pendulum.xml"
    file.write_text(
        '<mujoco><worldbody><body><joint name="hinge" axis="0 1 0"/><geom size="0.1"/></body></worldbody>'
        '<actuator><position name="drive" joint="hinge" kp="5" ctrlrange="-1 1"/></actuator></mujoco>'
    )
    return file
