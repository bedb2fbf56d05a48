"""Gymnasium makes our tasks by their ids, whichever of the two packages is imported first."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_robot import registry
from rlenv_robot.registry import register_task
from rlenv_robot.tasks.reach import Reach

gymnasium = pytest.importorskip("gymnasium", reason="the extra 'gym' is not installed")

SINGLE_AGENT = (
    "go2-walk", "so101-drawer", "so101-insert", "so101-lid", "so101-pick-place", "so101-push", "so101-reach",
    "so101-sort", "so101-stack",
)  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize("first", ["gymnasium, rlenv_robot", "rlenv_robot, gymnasium", "rlenv_robot, gymnasium.vector"])
def test_the_order_of_imports_does_not_matter(first: str) -> None:
    code = f"import {first}; print(gymnasium.make('rlenv_robot/so101-reach-v0').spec.id, gymnasium.__spec__.loader)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("rlenv_robot/so101-reach-v0 <_frozen_importlib_external.SourceFileLoader"), (
        done.stderr
    )


@pytest.mark.process
def test_a_look_for_gymnasium_before_its_import_changes_nothing() -> None:
    look = (
        "import importlib.util as util, rlenv_robot; assert util.find_spec('gymnasium') and util.find_spec('gymnasium')"
    )
    code = f"{look}; import gymnasium; print(gymnasium.make('rlenv_robot/so101-reach-v0').spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "rlenv_robot/so101-reach-v0", done.stderr


@pytest.mark.process
def test_importing_us_does_not_import_gymnasium() -> None:
    code = "import sys, rlenv_robot; rlenv_robot.make('so101-reach'); assert 'gymnasium' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", SINGLE_AGENT)
@pytest.mark.parametrize("flat", [False, True])
def test_gymnasiums_own_check_passes(name: str, flat: bool) -> None:
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make(f"rlenv_robot/{name}-v0", flat=flat)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on ranges and render modes; failures are exceptions
        check_env(env.unwrapped, skip_render_check=True)
    env.close()


def test_settings_and_robot_reach_the_environment() -> None:
    with gymnasium.make("rlenv_robot/so101-reach-v0", steps=2, robot="sim") as env:
        env.reset(seed=0)
        assert [env.step(env.action_space.sample())[3] for _ in range(2)] == [False, True]
    with pytest.raises(ValueError, match="did you mean 'tolerance_m'"):
        gymnasium.make("rlenv_robot/so101-reach-v0", tolerance=0.1)


def test_a_batch_is_the_native_one_and_equals_the_single_environments() -> None:
    envs = gymnasium.make_vec("rlenv_robot/so101-reach-v0", num_envs=3, flat=True, steps=5)
    assert type(envs).__name__ == "GymnasiumVectorEnv"
    assert envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP
    observed, _ = envs.reset(seed=7)
    with gymnasium.make("rlenv_robot/so101-reach-v0", flat=True, steps=5) as env:
        np.testing.assert_array_equal(observed[0], env.reset(seed=7)[0])
    envs.close()


def test_several_agents_are_sent_to_pettingzoo() -> None:
    pytest.importorskip("rlenv_tabletop")
    with pytest.raises(ValueError, match="use to_pettingzoo"):
        gymnasium.make("rlenv_robot/so101-pair-lift-v0")


def test_a_task_that_is_registered_later_is_known_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry._TASKS, "_registered", {})
    register_task("later-reach", Reach)
    try:
        with gymnasium.make("rlenv_robot/later-reach-v0") as env:
            assert env.reset(seed=0)[1]["applied"]
    finally:
        gymnasium.registry.pop("rlenv_robot/later-reach-v0")
    assert rr.make("later-reach").world.name == "so101-reach"
