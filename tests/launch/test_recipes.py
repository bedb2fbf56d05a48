"""Every recipe runs as it stands for a few steps, and what it saves runs on a robot."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from rlenv_robot import registry as catalogue
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.training.rollout import LearningCurve

pytestmark = [
    pytest.mark.tier("learning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.timeout(300),
]
ROOT = Path(__file__).resolve().parents[2]
RECIPES = [
    ROOT / "launch" / f"train_{name}.py"
    for name in (
        "act",
        "clone",
        "diffusion",
        "hg_dagger",
        "pixels",
        "ray",
        "rlpd",
        "sac",
        "sb3",
        "tianshou",
        "torch",
        "walk",
    )
]
ONNX = ("torch", "onnx", "onnxscript", "onnxruntime")
NEEDS = {"sb3": "stable_baselines3", "tianshou": "tianshou", "sac": "tianshou"}


def _needs(name: str) -> None:
    for package in (*ONNX, NEEDS.get(name, "torch")):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def _module(name: str) -> ModuleType:
    spec = spec_from_file_location(f"train_{name}", ROOT / "launch" / f"train_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other projects deprecate in each other
        spec.loader.exec_module(module)
    module.LearningCurve = partial(LearningCurve, episodes=4)  # type: ignore[attr-defined]  # trials of 100 are for benchmarks
    return module


def _acts(path: Path, task: str = "so101-reach") -> None:
    with rlenv_robot.make(task) as env:
        policy = load_policy(path)
        policy.check(env.observation, env.action)
        table = env.reset({"seed": 1})
        for _ in range(3):
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": policy.act(table["observation"])}
            table, _ = env.step(request)
            assert "error" not in table["extra_info"]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 80


@pytest.mark.parametrize(
    ("name", "task", "steps"),
    [
        ("sac", "so101-reach", 480),
        ("sb3", "so101-reach", 480),
        ("tianshou", "so101-reach", 480),
        ("torch", "so101-reach", 480),
        ("clone", "so101-push", 40),
        ("clone", "so101-pair-lift", 40),
    ],
)
def test_a_recipe_trains_and_saves(name: str, task: str, steps: int, tmp_path: Path) -> None:
    _needs(name)
    module = _module(name)
    if name == "sac":
        module.UPDATES = 2  # type: ignore[attr-defined]
    policy, curve = module.train(task, steps=steps, num_envs=4, quiet=True)
    assert curve.points[-1].steps == steps
    policy.save_onnx(tmp_path / "policy.onnx", task, {"trainer": name})
    _acts(tmp_path / "policy.onnx", task)


def test_hg_dagger_learns_from_demonstrations_and_corrections(tmp_path: Path) -> None:
    _needs("hg_dagger")
    module, name = _module("hg_dagger"), "so101-pick-place"
    module.SETTINGS = replace(module.SETTINGS, cloning=2, ratio=0.05)  # type: ignore[attr-defined]
    module.DEMONSTRATIONS, module.TRIALS, module.EPISODES = 1, 1, 4  # type: ignore[attr-defined]
    policy, curve = module.train(name, 60, quiet=True)
    assert [point.steps for point in curve.points] == [0, module.QUICK[name]["steps"]]  # type: ignore[attr-defined]
    policy.save_onnx(tmp_path / "policy.onnx", name, {"trainer": "HG-DAgger"})
    _acts(tmp_path / "policy.onnx", name)


def test_rlpd_begins_with_clones_and_goes_on_with_critics(tmp_path: Path) -> None:
    _needs("rlpd")
    module = _module("rlpd")
    module.DEMONSTRATIONS, module.TRIALS, module.EPISODES, module.CLONES = 1, 1, 4, (1, 2)  # type: ignore[attr-defined]
    module.SETTINGS = replace(module.SETTINGS, hidden=(8, 8), ratio=0.1, actor_every=1)  # type: ignore[attr-defined]
    policy, curve = module.train(steps=60, quiet=True)
    assert [point.steps for point in curve.points] == [0, 0, 60]
    assert module.SETTINGS.method == "RLPD"  # type: ignore[attr-defined]
    policy.save_onnx(tmp_path / "policy.onnx", "so101-reach", {"trainer": "RLPD"})
    _acts(tmp_path / "policy.onnx")


def test_a_recipe_takes_the_conditions_of_a_profile() -> None:
    _needs("tianshou")
    profile = rlenv_robot.load_profile(ROOT / "launch" / "any_so101.toml")
    seen = []

    def make_vector(name: str, num_envs: int, **made: Any) -> Any:
        envs = catalogue.make_vector(name, num_envs, **made)
        seen.append(envs.reset({})["extra_info"].get("randomisation", {}))
        return envs

    module = _module("tianshou")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rlenv_robot, "make_vector", make_vector)
        _, curve = module.train(steps=480, num_envs=4, quiet=True, profile=profile)
    assert curve.points[-1].steps == 480
    stiffness = seen[0]["actuator.gripper.kp"]
    assert ((stiffness > 2.5) & (stiffness < 50.0)).all()
    assert len(set(stiffness.tolist())) == 4
    assert (seen[0]["timing.command_delay"] >= 0.010).all()
    assert (seen[0]["timing.command_delay"] <= 0.065).all()


def test_the_walking_recipe_trains_and_saves(tmp_path: Path) -> None:
    _needs("torch")
    train = partial(_module("walk").train, num_envs=10, quiet=True, keep=tmp_path / "walk.onnx")
    train(steps=480)
    policy, curve = train(steps=720)  # goes on from the checkpoint
    assert [point.steps for point in curve.points] == [480, 720]
    assert curve.points[1].seconds > curve.points[0].seconds
    again = train(steps=720)[0]
    for one, other in zip(policy.actor.parameters(), again.actor.parameters(), strict=True):
        assert (one == other).all()
    policy.save_onnx(tmp_path / "walk.onnx", "go2-walk")
    _acts(tmp_path / "walk.onnx", "go2-walk")


def test_a_clone_learns_on_drawn_robots_too_unless_told_otherwise() -> None:
    _needs("torch")
    module, stiffness = _module("clone"), []

    def make_vector(*args: Any, **made: Any) -> Any:
        envs = catalogue.make_vector(*args, **made)
        stiffness.append(envs.reset({})["extra_info"].get("randomisation", {}).get("actuator.elbow_flex.kp"))
        return envs

    module.make_vector = make_vector  # type: ignore[attr-defined]
    for nominal in (False, True):
        module.train(steps=80, num_envs=4, quiet=True, nominal=nominal)
    assert len(set(stiffness[1].tolist())) == 4
    assert stiffness[0] is None, "the nominal robots, which take turns with the drawn ones"
    assert stiffness[2:] == [None]


@pytest.mark.parametrize("name", ["act", "diffusion"])
def test_demonstrations_are_imitated(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _needs("torch")
    monkeypatch.syspath_prepend(str(ROOT / "launch"))
    monkeypatch.setattr("train_act.LearningCurve", partial(LearningCurve, episodes=4))
    from rlenv_learn.imitation.demonstrations import record_demonstrations
    from rlenv_tabletop.scripted import ScriptedPush

    task = rlenv_robot.task("so101-push", steps=20, tolerance_m=1.0)
    record_demonstrations(task, ScriptedPush(), tmp_path / "runs", 2)
    train = import_module(f"train_{name}").train
    policy, curve = train(rlenv_robot.open_source(tmp_path / "runs"), updates=2, quiet=True)
    assert [point.steps for point in curve.points] == [1, 2]
    policy.save_onnx(tmp_path / "imitated.onnx", "so101-push")
    _acts(tmp_path / "imitated.onnx", "so101-push")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    with rlenv_robot.make("so101-reach", record=folder, steps=20) as env:
        for episode in range(15):
            table = env.reset({"seed": 3} if episode == 0 else {})
            while not table["truncated"]:
                goal = table["observation"]["joint_goal"]
                low, high = env.action["joint_target"].bounds
                action = np.clip(goal + rng.uniform(-0.1, 0.1, 6), low, high).astype(np.float32)
                request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"joint_target": action}}
                table, _ = env.step(request)
    return folder


def test_a_policy_from_pixels_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _needs("pixels")
    monkeypatch.syspath_prepend(str(ROOT / "launch"))
    module = _module("pixels")
    monkeypatch.setattr("train_clone.LearningCurve", partial(LearningCurve, episodes=4))
    monkeypatch.setattr(module, "CAMERAS", {"overhead": (32, 24), "view": (32, 24)})
    monkeypatch.setattr(module, "NUM", 4)
    push = module.Push()
    marks = module.Landmarks(push.observation["cube_position"], (push.observation["gripper_position"],), module.BASE)
    with module.environments(4, 0, 30 / module.EVERY, 12) as envs:
        flat = module.flat_for(push)
        views = module.collect_views(envs, module.ScriptedPush(), flat, marks, 12, module.EVERY, 0)
        cameras = {name: module.pinhole_camera(envs.batch.sim_model, name, 32, 24) for name in module.CAMERAS}
    estimator, std_m = module.estimation.learn_estimator(views, cameras, 2, 0, 8)
    assert 0 < std_m < 0.2
    with module.environments(2, 1, 10, 3, autoreset="disabled") as envs:
        policy = module.estimation.EstimatingPolicy(estimator, module.train_actor(std_m, 40), envs.task)
        policy.save_onnx(tmp_path / "pixels.onnx", push.name, {"trainer": "pixels"}, envs.batch.spec)
        outcomes = module.evaluate(envs, load_policy(tmp_path / "pixels.onnx"), 1)
    assert [outcome.frames for outcome in outcomes] == [3, 3]
    assert all(outcome.illegal == 0 for outcome in outcomes)
