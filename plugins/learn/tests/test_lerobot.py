"""A policy of LeRobot, saved by LeRobot's own code, chooses here what LeRobot's own `select_action` chooses."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import RobotError, SpecMismatch
from recorder.formats.images import Filming
from recorder.formats.registry import writable_format
from recorder.table.load import load_runs
from rlenv_formats.lerobot.write import write_lerobot
from rlenv_learn.imitation.demonstrations import Disturbance, record_demonstrations
from rlenv_learn.lerobot import LeRobotPolicy
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.training.rollout import run_episode
from rlenv_tabletop.scripted import ScriptedPush
from rlenv_vision.image_task import with_images

pytestmark = pytest.mark.filterwarnings("ignore")
TASK = "so101-push"
SURROUNDINGS = ("cube_position", "cube_orientation", "target_position")
STATES = ("observation.state", "observation.environment_state")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pyarrow")
    folder = tmp_path_factory.mktemp("demonstrations")
    task = rlenv_robot.task(TASK, steps=20, tolerance_m=1.0)
    record_demonstrations(task, ScriptedPush(), folder / "runs", 2, disturbance=Disturbance())
    _, write = writable_format("lerobot")
    write(load_runs(folder / "runs"), folder / "set", environment=SURROUNDINGS)
    return folder / "set"


def _trained(exported: Path, folder: Path, ensemble: float | None) -> tuple[Any, Any, Any]:
    """Save a small ACT, scaled by the data set's statistics, as a training of LeRobot does; return what it saved."""
    import torch
    from lerobot.configs.types import FeatureType, PolicyFeature
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.act.modeling_act import ACTPolicy
    from lerobot.policies.act.processor_act import make_act_pre_post_processors

    info, stats = (json.loads((exported / "meta" / name).read_text()) for name in ("info.json", "stats.json"))
    sizes = {name: tuple(info["features"][name]["shape"]) for name in (*STATES, "action")}
    config = ACTConfig(
        input_features={
            name: PolicyFeature(kind, sizes[name])
            for name, kind in zip(STATES, (FeatureType.STATE, FeatureType.ENV), strict=True)
        },
        output_features={"action": PolicyFeature(FeatureType.ACTION, sizes["action"])},
        chunk_size=6, n_action_steps=1 if ensemble else 4, dim_model=16, n_heads=2, dim_feedforward=16,
        n_encoder_layers=1, n_vae_encoder_layers=1, latent_dim=4, pretrained_backbone_weights=None,
        temporal_ensemble_coeff=ensemble, device="cpu",
    )  # fmt: skip
    torch.manual_seed(0)
    model = ACTPolicy(config)
    numbers = {name: {key: torch.tensor(value) for key, value in stats[name].items()} for name in sizes}
    before, after = make_act_pre_post_processors(config, numbers)
    for part in (model, before, after):
        part.save_pretrained(folder)
    (folder / "info.json").write_bytes((exported / "meta" / "info.json").read_bytes())
    return model, before, after


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lerobot") is None, reason="lerobot is not installed")
@pytest.mark.parametrize("ensemble", [None, 0.01], ids=["queue", "ensemble"])
def test_it_chooses_what_lerobot_chooses(ensemble: float | None, exported: Path, tmp_path: Path) -> None:
    import torch

    model, before, after = _trained(exported, tmp_path, ensemble)
    policy = load_policy(tmp_path)
    assert isinstance(policy, LeRobotPolicy)
    with rlenv_robot.make(TASK, steps=12) as env:
        policy.check(env.observation, env.action)
        table = env.reset({"seed": 1})
        model.reset()
        for _ in range(8):
            fields = table["observation"]
            names = [name for name in env.observation.names if name not in SURROUNDINGS], SURROUNDINGS
            parts = [np.concatenate([np.ravel(fields[name]) for name in part]).astype(np.float32) for part in names]
            batch = {name: torch.from_numpy(part)[None] for name, part in zip(STATES, parts, strict=True)}
            with torch.inference_mode():
                theirs = after(model.select_action(before(batch)))
            low, high = env.action["arm_target"].bounds
            action = policy.act(fields)
            np.testing.assert_array_equal(action["arm_target"], np.clip(theirs[0].numpy(), low, high))
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
            assert "error" not in table["extra_info"]
        *_, first = run_episode(env, policy, {"seed": 3})
        *_, again = run_episode(env, policy, {"seed": 3})
        assert first == again  # the plan of the episode before is forgotten
    with rlenv_robot.make("so101-reach") as env, pytest.raises(SpecMismatch, match="target"):
        policy.check(env.observation, env.action)
    (tmp_path / "info.json").unlink()
    with pytest.raises(RobotError, match=r"meta/info\.json"):
        load_policy(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lerobot") is None, reason="lerobot is not installed")
@pytest.mark.parametrize("ensemble", [None, 0.01], ids=["queue", "ensemble"])
def test_the_file_of_its_network_chooses_what_lerobot_chooses(
    ensemble: float | None, exported: Path, tmp_path: Path
) -> None:
    import torch

    pytest.importorskip("onnxscript")
    from rlenv_learn.lerobot_file import save_lerobot_file

    model, before, after = _trained(exported, tmp_path, ensemble)
    policy = LeRobotPolicy(tmp_path)
    most = save_lerobot_file(policy, tmp_path / "p.onnx", TASK, {"seed": 0})
    assert most < 1e-4
    saved = load_policy(tmp_path / "p.onnx")
    table = load_runs(exported.parent / "runs")
    scale = json.loads((exported / "meta" / "stats.json").read_text())["action"]["std"]
    model.reset()
    saved.reset()
    for row in range(9):  # more than two queues
        fields = {name: table.rows[f"observation_{name}"][row] for name in policy.observation.names}
        batch = {
            name: torch.from_numpy(np.concatenate([np.ravel(fields[part.name]) for part in spec]).astype(np.float32))[
                None
            ]
            for name, spec in policy.vectors.items()
        }
        with torch.inference_mode():
            theirs = after(model.select_action(before(batch)))[0].numpy()
        low, high = policy.action["arm_target"].bounds
        chosen = saved.act(fields)["arm_target"]
        np.testing.assert_allclose(chosen, np.clip(theirs, low, high), atol=1e-4 * max(scale))
    with torch.no_grad():
        model.model.action_head.bias += 1.0
    policy.model.model.load_state_dict(model.model.state_dict())
    other = save_lerobot_file(policy, tmp_path / "other.onnx", TASK, {})
    assert other < 1e-4
    assert np.abs(load_policy(tmp_path / "other.onnx").act(fields)["arm_target"] - chosen).max() > 0.1 * min(scale)


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("lerobot", "torchvision", "datasets", "av")), reason="needs LeRobot whole"
)
def test_lerobots_factory_takes_an_observed_image_as_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from lerobot.datasets.lerobot_dataset import LeRobotDataset
    from lerobot.policies.act.configuration_act import ACTConfig
    from lerobot.policies.factory import make_policy, make_pre_post_processors

    name, seen = "observation.images.overhead", with_images(rlenv_robot.task(TASK, steps=6), {"overhead": (64, 48)})
    with rlenv_robot.make(seen, record=tmp_path / "runs") as env:
        *_, _ = run_episode(env, ScriptedPush(), {"seed": 1})
    table = load_runs(tmp_path / "runs")
    write_lerobot(table, tmp_path / "set", Filming(embedded=True), environment=SURROUNDINGS)
    data = LeRobotDataset("local/set", root=tmp_path / "set")
    given = (data[3][name].permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()
    np.testing.assert_array_equal(given, table.rows["observation_overhead_image"][3])

    config = ACTConfig(
        dim_model=16, n_heads=2, dim_feedforward=16, n_encoder_layers=1, chunk_size=4, n_action_steps=2,
        n_vae_encoder_layers=1, latent_dim=4, pretrained_backbone_weights=None, device="cpu",
    )  # fmt: skip
    torch.manual_seed(0)
    model = make_policy(config, data.meta).eval()
    assert {key: tuple(part.shape) for key, part in config.image_features.items()} == {name: (3, 48, 64)}
    before, after = make_pre_post_processors(config, dataset_stats=data.meta.stats)
    for part in (model, before, after):
        part.save_pretrained(tmp_path / "policy")
    (tmp_path / "policy" / "info.json").write_bytes((tmp_path / "set" / "meta" / "info.json").read_bytes())
    policy = load_policy(tmp_path / "policy")
    with rlenv_robot.make(seen) as env:
        policy.check(env.observation, env.action)
        low, high = env.action["arm_target"].bounds
    model.reset()
    for frame in (0, 1, 2):
        item = {key: value[None] for key, value in data[frame].items() if key.startswith("observation.")}
        with torch.inference_mode():
            theirs = after(model.select_action(before(item)))[0].numpy()
        fields = {field.name: table.rows[f"observation_{field.name}"][frame] for field in seen.observation}
        np.testing.assert_allclose(policy.act(fields)["arm_target"], np.clip(theirs, low, high), atol=1e-6)
    other = with_images(rlenv_robot.task(TASK), {"overhead": (32, 32)})
    with pytest.raises(SpecMismatch, match="overhead_image"):
        policy.check(other.observation, other.action)


def test_a_folder_without_a_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RobotError, match=r"config\.json"):
        load_policy(tmp_path)
