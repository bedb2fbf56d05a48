"""Single actions are cloned: those that were intended, of episodes that succeeded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rlenv_robot
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.scripted import ScriptedPush
from rlenv_robot.training.imitation.demonstrations import Disturbance, record_demonstrations

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from rlenv_robot.training.imitation.cloning import Demonstrations, clone, demonstrated  # noqa: E402


def test_the_steps_are_what_was_intended_in_episodes_that_succeeded(tmp_path: Path) -> None:
    task = rlenv_robot.task("so101-push", steps=40, tolerance_m=0.04)
    recorded = record_demonstrations(task, ScriptedPush(), tmp_path, 2, disturbance=Disturbance(0.8, 0.5, 4.0), seed=3)
    assert recorded > 2, "every episode succeeded: choose another seed or tolerance"
    flat, source = flat_for(task), rlenv_robot.open_source(tmp_path)
    shown = demonstrated(source, flat)
    assert shown.vectors.shape == (80, flat.size)
    good = source.steps_at(source.positions({"success": True}), {})["observation"]
    np.testing.assert_allclose(shown.vectors, flat.observe(good), atol=1e-6)
    intended = flat.vector_of(ScriptedPush().act(good), good)
    np.testing.assert_allclose(shown.actions, intended, atol=1e-5)


def test_a_network_comes_to_answer_as_the_demonstrator() -> None:
    random = torch.Generator().manual_seed(0)
    vectors = torch.randn((400, 3), generator=random)
    answers = vectors @ torch.tensor([[0.5, 0.0], [0.0, -0.3], [0.2, 0.1]])
    network = torch.nn.Linear(3, 2)
    clone(network, Demonstrations(vectors, answers), 900, random)
    assert (network(vectors) - answers).abs().mean() < 0.03
