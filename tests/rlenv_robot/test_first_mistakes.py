"""Errors for the mistakes of the first hour say what to write instead."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr


def _stepped_after_close() -> Any:
    envs = rr.make_vector("so101-reach", 2, seed=0)
    obs = envs.reset()
    envs.close()
    action = {"joint_target": obs["observation"]["joint_goal"]}
    return envs.step({"env_id": obs["env_id"], "frame_no": obs["frame_no"], "action": action})


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "another project's name": (lambda: rr.make("SO101-Reach-v0"), "did you mean 'so101-reach'"),
    "a place that is none": (lambda: rr.make("so101-reach", robot="real"), "allowed are 'sim', 'twin', an address"),
    "a setting's name": (lambda: rr.make("so101-reach", tolerance=0.1), "did you mean 'tolerance_m'"),
    "a setting's type": (lambda: rr.make("so101-reach", tolerance_m="1cm"), "'1cm' .*, allowed is a number"),
    "a seed alone": (lambda: rr.make("so101-reach").reset(7), r'such as reset\(\{"seed": 7\}\)'),
    "a mode alone": (lambda: rr.make("so101-reach").render("human"), r'such as render\(\{"mode": '),
    "a batch of half an arm": (lambda: rr.make_vector("so101-reach", 2.5), "allowed are 1 or more"),
    "a batch of boards": (lambda: rr.make_vector("go", 2), "no simulated robot"),
    "a batch that is closed": (_stepped_after_close, "close"),
    "data that are nowhere": (lambda: rr.open_source("nowhere"), "nowhere does not exist; expected a folder"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_error_says_what_to_write(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises((ValueError, rr.RobotError), match=message):
        call()


def test_one_and_many_are_not_mixed_up() -> None:
    pytest.importorskip("gymnasium", reason="the extra 'gym' is not installed")
    with pytest.raises(TypeError, match="to_gymnasium_vector"):
        rr.to_gymnasium(rr.make_vector("so101-reach", 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="VectorEnvironment"):
        rr.to_gymnasium_vector(rr.make("so101-reach"))  # type: ignore[arg-type]


def test_vectors_of_another_task_are_refused_with_the_difference() -> None:
    pytest.importorskip("gymnasium", reason="the extra 'gym' is not installed")
    from rlenv_robot.adapters.flat import flat_for

    flat = flat_for(rr.make("so101-push").world.task)  # type: ignore[attr-defined]
    with pytest.raises(rr.SpecMismatch, match="cube_position"):
        rr.to_gymnasium(rr.make("so101-reach"), flat=flat)
    with pytest.raises(rr.SpecMismatch, match="cube_position"):
        rr.to_gymnasium_vector(rr.make_vector("so101-reach", 2), flat=flat)
    with pytest.raises(TypeError, match="FlattenObservation"):
        rr.to_gymnasium(rr.make("so101-reach"), flat="so101-reach")  # type: ignore[arg-type]


@pytest.mark.parametrize("option", [{"goal": "hindsight"}, {"ends": "task"}])
def test_what_only_a_task_can_do_is_not_ignored_without_one(option: dict[str, str], tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path / "runs", steps=2) as env:
        obs = env.reset({"seed": 0})
        while not obs["truncated"]:
            action = {"joint_target": obs["observation"]["joint_goal"]}
            obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    with pytest.raises(rr.SourceError, match="give task="):
        rr.open_source(tmp_path / "runs", **option)


@pytest.mark.parametrize("data", [b"", b"abc", b"PK\x03\x04 a torn archive"])
def test_a_damaged_policy_is_never_offered_to_be_loaded_unsafely(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "policy.npz"
    file.write_bytes(data)
    with pytest.raises(rr.RobotError, match="not a policy file") as refused:
        rr.load_policy(file)
    assert "pickle" not in str(refused.value)


def test_an_action_alone_is_refused_with_what_was_expected() -> None:
    with rr.make("so101-reach") as env:
        env.reset({"seed": 0})
        obs, reward = env.step(np.zeros(6, np.float32))  # type: ignore[arg-type]
        assert obs["frame_no"] == reward["reward"] == 0
        assert "env_id" in obs["extra_info"]["error"]["message"]


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [
        ("to_gymnasium", "rlenv_robot.adapters.gymnasium", "gym"),
        ("to_pettingzoo", "rlenv_bridges.pettingzoo", "agents"),
        ("from_gymnasium", "rlenv_bridges.from_gymnasium", "gym"),
    ],
)
def test_a_name_that_needs_an_extra_names_it(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(module.partition(".")[0], reason="the plug-in is not installed")
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "gymnasium", None)  # as if it were not installed
    monkeypatch.delitem(vars(rr), name, raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"rlenv-robot\[{extra}\]") as missing:
        getattr(rr, name)
    assert missing.value.name == "gymnasium"
