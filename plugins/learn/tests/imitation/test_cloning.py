"""Single actions are cloned: those that were intended, of episodes that succeeded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot
from hal import RobotError
from rlenv_learn.imitation.demonstrations import Disturbance, record_demonstrations
from rlenv_robot.adapters.flat import flat_for
from rlenv_tabletop.scripted import ScriptedPush

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from rlenv_learn.imitation.cloning import Demonstrations, clone, demonstrated  # noqa: E402


class Idle:
    """Keeps the arm where it is told to be, so that no episode succeeds."""

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"arm_target": observation["joint_goal"][..., :5]}


def test_the_steps_are_what_was_intended_in_episodes_that_succeeded(tmp_path: Path) -> None:
    task = rlenv_robot.task("so101-push", steps=60, tolerance_m=0.06)
    strict = rlenv_robot.task("so101-push", steps=60, tolerance_m=0.001)
    with pytest.raises(RobotError, match="0 of 3 "):
        record_demonstrations(strict, Idle(), tmp_path, 1)
    record_demonstrations(task, ScriptedPush(), tmp_path, 2, disturbance=Disturbance(0.8, 0.3, 4.0), seed=3)
    flat, source = flat_for(task), rlenv_robot.open_source(tmp_path)
    demonstrations = demonstrated(source, flat)
    assert demonstrations.vectors.shape == (120, flat.size)
    assert len(source.positions({"success": False})) >= 180
    good = source.steps_at(source.positions({"success": True}), {})
    np.testing.assert_allclose(demonstrations.vectors, flat.observe(good["observation"]), atol=1e-6)
    intended = flat.vector_of(ScriptedPush().act(good["observation"]), good["observation"])
    np.testing.assert_allclose(demonstrations.actions, intended, atol=1e-5)
    executed = flat.vector_of(good["action"], good["observation"])
    assert np.abs(executed - intended).max() > 0.1, "the disturbance"


def test_a_network_comes_to_answer_as_the_demonstrator() -> None:
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn((400, 3), generator=random)
    answers = vectors @ torch.tensor([[0.5, 0.0], [0.0, -0.3], [0.2, 0.1]])
    network = torch.nn.Linear(3, 2)
    clone(network, Demonstrations(vectors, answers), 900, random)
    assert (network(vectors) - answers).abs().mean() < 0.03
