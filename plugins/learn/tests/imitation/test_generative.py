"""Diffusion and flow policies draw from the distribution of what was demonstrated, and not its mean."""

from __future__ import annotations

import numpy as np
import pytest

from rlenv_learn.policies.chunks import ChunkExecution

torch = pytest.importorskip("torch")

from rlenv_learn.imitation.denoiser import ChunkDenoiser, DenoiserSettings  # noqa: E402
from rlenv_learn.imitation.diffusion import DiffusionPolicy, DiffusionSettings  # noqa: E402
from rlenv_learn.imitation.flow import FlowPolicy  # noqa: E402
from rlenv_learn.imitation.learning import ChunkLearner  # noqa: E402

EXECUTION = ChunkExecution(length=2, history=1)


def _model(kind: str) -> ChunkDenoiser:
    torch.manual_seed(0), torch.set_num_threads(1)
    if kind == "flow":
        return FlowPolicy(1, 1, EXECUTION, DenoiserSettings(width=24, blocks=1))
    prediction = "noise" if kind == "diffusion of noise" else "v"
    return DiffusionPolicy(1, 1, EXECUTION, DiffusionSettings(width=24, blocks=1, prediction=prediction))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["diffusion", "diffusion of noise", "flow"])
def test_both_ways_around_an_obstacle_are_drawn_and_not_their_mean(kind: str) -> None:
    """Of all demonstrations 70 % go left and 30 % right, by as far as the observation says."""
    model = _model(kind)
    learner, rng = ChunkLearner(model, 400, 5e-3), np.random.default_rng(0)
    ramp = torch.linspace(0.5, 1.0, EXECUTION.length)[None, :, None]

    def chunks(far: torch.Tensor) -> torch.Tensor:
        side = torch.from_numpy(np.where(rng.random(len(far)) < 0.7, -1.0, 1.0).astype(np.float32))
        return side[:, None, None] * far[:, None] * ramp

    for _ in range(400):
        far = torch.from_numpy(rng.uniform(0.5, 1.0, (64, 1)).astype(np.float32))
        learner.update(far[:, None], {}, chunks(far), torch.ones(64, EXECUTION.length, dtype=torch.bool))
    far = torch.full((500, 1, 1), 0.8)
    with torch.no_grad():
        drawn = learner.mean(far, {}, torch.randn(500, *model.noise_shape))[:, :, 0].numpy()
    left, right = drawn[drawn[:, -1] < 0], drawn[drawn[:, -1] > 0]
    assert 0.55 < len(left) / 500 < 0.85
    for mode, side in ((left, -1), (right, 1)):
        np.testing.assert_allclose(np.median(mode, axis=0), side * 0.8 * ramp[0, :, 0].numpy(), atol=0.1)
    assert (np.abs(drawn[:, -1]) < 0.4).mean() < 0.1


@pytest.mark.parametrize("kind", ["diffusion", "diffusion of noise", "flow"])
def test_equal_noise_gives_an_equal_chunk_within_the_range(kind: str) -> None:
    model = _model(kind).eval()
    noise, vectors = torch.randn(3, *model.noise_shape), torch.randn(3, 1, 1)
    first, again, other = (model(vectors, {}, one) for one in (noise, noise, torch.randn(3, *model.noise_shape)))
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first, other)
    assert float(first.detach().abs().max()) <= 1 + 1e-6


@pytest.mark.parametrize("kind", ["diffusion", "diffusion of noise"])
def test_an_exact_prediction_is_denoised_to_the_chunk(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(kind)
    chunk = torch.linspace(-0.9, 0.9, 8).reshape(4, 2, 1)

    def exact(noised: torch.Tensor, condition: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        kept = model.kept[(time * 100).round().long()]
        noise = (noised - kept.sqrt() * chunk) / (1 - kept).sqrt()
        return noise if kind == "diffusion of noise" else kept.sqrt() * noise - (1 - kept).sqrt() * chunk

    monkeypatch.setattr(model, "output", exact)
    torch.testing.assert_close(model(torch.zeros(4, 1, 1), {}), chunk, atol=1e-3, rtol=0)


def test_another_prediction_is_refused() -> None:
    with pytest.raises(ValueError, match="prediction"):
        DiffusionSettings(prediction="chunk")


def test_an_exact_velocity_flows_to_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model("flow")
    chunk = torch.linspace(-0.9, 0.9, 8).reshape(4, 2, 1)

    def exact(moved: torch.Tensor, condition: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return (chunk - moved) / (1 - time)

    monkeypatch.setattr(model, "output", exact)
    torch.testing.assert_close(model(torch.zeros(4, 1, 1), {}), chunk, atol=1e-4, rtol=0)
