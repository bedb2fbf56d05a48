"""Policies that mjlab exported: their metadata are the manifest, and the vector is assembled as mjlab does."""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import RobotError, SpecMismatch
from hal.robots.go2 import GO2, STANCE
from rlenv_learn.policies.mjlab import MjlabManifest, MjlabPolicy, load_mjlab
from rlenv_robot.policies.deployment import check_deployment
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.tasks.free import Free

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

LEGS = ("FL", "FR", "RL", "RR")  # another order than the maker's motors
JOINTS = [f"{leg}_{joint}_joint" for leg in LEGS for joint in ("hip", "thigh", "calf")]
TERMS = {"base_ang_vel": 3, "projected_gravity": 3, "joint_pos": 12, "joint_vel": 12, "actions": 12, "command": 3}


def metadata(**changes: str) -> dict[str, str]:
    """Return what mjlab writes for a quadruped, as text."""
    count = len(TERMS)
    return {
        "run_path": "local", "joint_names": ",".join(JOINTS), "joint_stiffness": ",".join(["40.000"] * 12),
        "joint_damping": ",".join(["1.000"] * 12), "default_joint_pos": ",".join(["0.000", "0.900", "-1.800"] * 4),
        "command_names": "twist", "observation_names": ",".join(TERMS),
        "observation_terms_scale": "0.250,1.000,1.000,0.050,1.000,2.000;2.000;0.250",
        "observation_terms_flatten_history_dim": ",".join(["1.000"] * count),
        "observation_terms_history_length": "2.000,0.000,0.000,0.000,0.000,0.000",
        "observation_terms_clip": ",".join(["-inf;inf"] * (count - 3) + ["-5.000;5.000", "-inf;inf", "-inf;inf"]),
        "action_scale": "0.500", **changes,
    }  # fmt: skip


def write(path: Path, weights: np.ndarray, entries: dict[str, str]) -> Path:
    """Write a linear policy: actions = weights @ obs, with these metadata."""
    helper, proto = onnx.helper, onnx.TensorProto.FLOAT
    size = weights.shape[1]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["obs", "weights"], ["actions"])], "policy",
        [helper.make_tensor_value_info("obs", proto, [1, size])],
        [helper.make_tensor_value_info("actions", proto, [1, weights.shape[0]])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(weights.T, np.float32), "weights")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    for key, value in entries.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, path)
    return path


SIZE = sum(TERMS.values()) + 3  # base_ang_vel has a history of two
NOTHING = np.zeros((12, SIZE), np.float32)


def sensors(**changes: Any) -> dict[str, np.ndarray]:
    values = {field.name: np.zeros(field.shape, np.float32) for field in GO2.sensors}
    values["orientation"] = np.array((1, 0, 0, 0), np.float32)
    values["joint_position"] = np.array(STANCE, np.float32)
    return values | {name: np.asarray(value, np.float32) for name, value in changes.items()}


def test_the_vector_has_the_terms_scales_clips_and_history_of_mjlab(tmp_path: Path) -> None:
    policy = MjlabPolicy(write(tmp_path / "p.onnx", NOTHING, metadata()), "go2", 50.0, (0.5, 0.1, -0.2))
    joints = np.arange(12, dtype=np.float32) * 0.01
    moving = sensors(
        angular_velocity=(4.0, 8.0, 0.4), joint_position=np.array(STANCE) + joints, joint_velocity=np.arange(12) * 1.0
    )
    first = policy._vector(sensors(angular_velocity=(1.0, 0.0, 0.0)))
    vector = policy._vector(moving)
    np.testing.assert_allclose(first[:6], [0.25, 0, 0, 0.25, 0, 0])  # the first observation fills the history
    np.testing.assert_allclose(vector[:6], [0.25, 0, 0, 1, 2, 0.1], rtol=1e-6)  # oldest first, scaled by 0.25
    np.testing.assert_allclose(vector[6:9], [0, 0, -1])
    mine = [*range(3, 6), *range(3), *range(9, 12), *range(6, 9)]  # FL, FR, RL, RR in the maker's numbers
    np.testing.assert_allclose(vector[9:21], joints[mine], atol=1e-6)
    np.testing.assert_allclose(vector[21:33], 0.05 * np.minimum(np.arange(12.0), 5.0)[mine], rtol=1e-6)  # clipped first
    np.testing.assert_allclose(vector[45:], [1.0, 0.2, -0.05], rtol=1e-6)


def test_actions_are_mapped_by_name_around_the_default_pose_and_remembered(tmp_path: Path) -> None:
    weights = NOTHING.copy()
    weights[:, 8] = -np.arange(12) / 10  # action i = i / 10, from gravity -1
    policy = MjlabPolicy(write(tmp_path / "p.onnx", weights, metadata()), "go2", 50.0)
    target = policy.act(sensors())["joint_target"]
    by_name = dict(zip(GO2.commands["joint_target"].elements, target, strict=True))
    assert by_name["FL_hip"] == pytest.approx(0.0)
    assert by_name["FR_hip"] == pytest.approx(0.5 * 0.3)
    assert by_name["RR_calf"] == pytest.approx(-1.8 + 0.5 * 1.1)
    np.testing.assert_allclose(policy._vector(sensors())[33:45], np.arange(12) / 10, rtol=1e-6)
    policy.reset()
    assert not policy._vector(sensors())[33:45].any()


def test_goals_stay_within_the_joints_ranges(tmp_path: Path) -> None:
    weights = NOTHING.copy()
    weights[:, 8] = -100.0
    policy = MjlabPolicy(write(tmp_path / "p.onnx", weights, metadata()), "go2", 50.0)
    GO2.commands.validate(policy.act(sensors()), "command")


@pytest.mark.parametrize(
    ("changes", "part", "text"),
    [
        ({"joint_stiffness": ",".join(["20.000"] * 12)}, "gains", "all joints: stiffness in the training 20, here 40"),
        ({"joint_damping": ",".join(["1.000"] * 11 + ["3.000"])}, "gains", "joint_target.RR_calf: damping in the"),
        ({"default_joint_pos": ",".join(["0.100", "0.900", "-1.800"] * 4)}, "home", "joint_target in the training"),
    ],
)
def test_gains_and_default_pose_are_compared_before_anything_moves(
    tmp_path: Path, changes: dict[str, str], part: str, text: str
) -> None:
    policy = MjlabPolicy(write(tmp_path / "p.onnx", NOTHING, metadata(**changes)), "go2", 50.0)
    with rr.make(Free("go2")) as env, pytest.raises(SpecMismatch, match=text) as refused:
        check_deployment(policy, env.world.robot.spec)
    assert part in str(refused.value)


def test_the_rate_is_compared_and_agreement_passes(tmp_path: Path) -> None:
    path = write(tmp_path / "p.onnx", NOTHING, metadata())
    with rr.make(Free("go2")) as env:
        spec = env.world.robot.spec
        assert not any("gains" in line for line in check_deployment(MjlabPolicy(path, "go2", 50.0), spec))
        with pytest.raises(SpecMismatch, match="trained at 100 Hz, here 50 Hz"):
            check_deployment(MjlabPolicy(path, "go2", 100.0), spec)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"joint_names": ",".join(JOINTS).replace("FL_hip", "LF_haa")}, "missing FL_hip; unknown LF_haa"),
        ({"observation_names": ",".join(TERMS).replace("command", "height_scan")}, "observes height_scan"),
        ({"joint_stiffness": "40.0,40.0"}, "joint_stiffness has 2 numbers, expected 12"),
        ({"action_scale": "half"}, "action_scale has 'half'"),
        ({"observation_terms_history_length": ",".join(["0"] * 6)}, r"graph takes obs \[1, 48\].* describe 45 numbers"),
        ({"observation_terms_flatten_history_dim": ",".join(["0.000"] * 6)}, "history of base_ang_vel is not flat"),
    ],
)
def test_files_that_do_not_fit_are_refused_by_name(tmp_path: Path, changes: dict[str, str], text: str) -> None:
    path = write(tmp_path / "p.onnx", NOTHING, metadata(**changes))
    with pytest.raises(RobotError, match=text):
        MjlabPolicy(path, "go2", 50.0)


def test_a_file_without_mjlabs_metadata_says_so() -> None:
    with pytest.raises(RobotError, match="no 'joint_names': this is not a policy exported by mjlab"):
        MjlabManifest.from_metadata({})


def test_it_is_loaded_by_the_file_that_names_rate_and_robot(tmp_path: Path) -> None:
    write(tmp_path / "walk.onnx", NOTHING, metadata())
    (tmp_path / "walk.mjlab").write_text('file = "walk.onnx"\nrobot = "go2"\nrate_hz = 50.0\ncommand = [0.5, 0, 0]\n')
    policy = load_policy(tmp_path / "walk.mjlab")
    with rr.make(Free("go2")) as env:
        policy.check(env.observation, env.action)
        state = env.reset({"seed": 1})
        action = policy.act(state["observation"])
        np.testing.assert_allclose(action["joint_target"], STANCE, atol=1e-6)
    with rr.make("go2-walk") as env, pytest.raises(SpecMismatch, match="observation has no joint_position"):
        policy.check(env.observation, env.action)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('file = "walk.onnx"\nrobot = "go2"\n', "missing rate_hz"),
        ('file = "walk.onnx"\nrobot = "go2"\nrate_hz = 50\nspeed = 1\n', "unknown speed"),
        ('file = "walk.onnx"\nrobot = "go2"\nrate_hz = 0\n', "rate_hz must be above 0"),
        ('file = "none.onnx"\nrobot = "go2"\nrate_hz = 50\n', "there is no such policy file"),
        ("file =", "can't be read"),
    ],
)
def test_wrong_files_beside_it_are_refused(tmp_path: Path, text: str, error: str) -> None:
    write(tmp_path / "walk.onnx", NOTHING, metadata())
    (tmp_path / "walk.mjlab").write_text(text)
    with pytest.raises(RobotError, match=error):
        load_mjlab(tmp_path / "walk.mjlab")


# -- mjlab's own exporter ----------------------------------------------------------------------------------------


def exporter() -> Any:
    """Load mjlab's module from its unpacked wheel, with stand-ins for what it imports and does not call here."""
    wheel = os.environ.get("RLENV_ROBOT_MJLAB")
    if not wheel:
        pytest.skip("mjlab is not unpacked: pip download --no-deps mjlab, unzip it, RLENV_ROBOT_MJLAB=<that folder>")
    names = ("torch", "mjlab", "mjlab.entity", "mjlab.envs", "mjlab.envs.mdp", "mjlab.envs.mdp.actions")
    stands = {name: types.ModuleType(name) for name in names}
    for module, name in (("torch", "Tensor"), ("mjlab.entity", "Entity"), ("mjlab.envs", "ManagerBasedRlEnv"),
                         ("mjlab.envs.mdp.actions", "JointPositionAction")):  # fmt: skip
        setattr(stands[module], name, type(name, (), {}))
    spec = importlib.util.spec_from_file_location("exporter", Path(wheel, "mjlab/rl/exporter_utils.py"))
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    before = {name: sys.modules.get(name) for name in names}
    sys.modules.update(stands)
    try:
        spec.loader.exec_module(made)
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return made, stands


class _Values(list):
    """A tensor's ``[0].cpu().tolist()``."""

    def __getitem__(self, at: Any) -> Any:
        return self if at == 0 else list.__getitem__(self, at)

    def cpu(self) -> _Values:
        return self

    def tolist(self) -> list[float]:
        return list(self)


def test_metadata_that_mjlabs_own_exporter_wrote_are_read(tmp_path: Path) -> None:
    module, stands = exporter()
    made = types.SimpleNamespace
    actuators = [made(target=f"robot/{name}", id=len(JOINTS) - 1 - at) for at, name in enumerate(JOINTS)]
    gains = np.array([41.1, 42.2, 43.3] * 4)[::-1]
    action = stands["mjlab.envs.mdp.actions"].JointPositionAction()
    action._scale = 0.25
    terms = {
        name: made(
            scale=(2.0, 2.0, 0.25) if name == "command" else None, clip=(-100.0, 100.0), flatten_history_dim=True,
            history_length=2 if name == "base_ang_vel" else 0,
        )
        for name in TERMS
    }  # fmt: skip
    bias = np.zeros((12, 10))
    bias[:, 2] = -1.5
    robot = made(
        spec=made(actuators=actuators), joint_names=tuple(JOINTS),
        data=made(default_joint_pos=_Values([0.1, 0.9, -1.8] * 4)),
    )  # fmt: skip
    env = made(
        scene={"robot": robot},
        action_manager=made(get_term=lambda name: action),
        sim=made(mj_model=made(actuator_gainprm=np.stack([gains] + [gains * 0] * 9, axis=1), actuator_biasprm=bias)),
        observation_manager=made(active_terms={"actor": list(TERMS)}, get_term_cfg=lambda group, name: terms[name]),
        command_manager=made(active_terms=["twist"]),
    )
    path = write(tmp_path / "p.onnx", NOTHING, {})
    module.attach_metadata_to_onnx(str(path), module.get_base_metadata(env, "local"))
    manifest = MjlabPolicy(path, "go2", 50.0).manifest
    assert manifest.joints[:2] == ("FL_hip", "FL_thigh")
    np.testing.assert_allclose(manifest.stiffness, [41.1, 42.2, 43.3] * 4, rtol=1e-6)
    np.testing.assert_allclose(manifest.damping, 1.5)
    np.testing.assert_allclose(manifest.default_pose, [0.1, 0.9, -1.8] * 4, rtol=1e-6)
    np.testing.assert_allclose(manifest.action_scale, 0.25)
    assert [term.history for term in manifest.terms] == [2, 0, 0, 0, 0, 0]
    assert manifest.terms[0].clip == (-100.0, 100.0)
    assert manifest.terms[-1].scale.tolist() == [2.0, 2.0, 0.25]
