"""Networks of chunks learn: both come nearer to what was demonstrated, and their losses ignore what never happened."""

from __future__ import annotations

import pytest

import rlenv_robot
from rlenv_learn.policies.chunks import ChunkExecution

torch = pytest.importorskip("torch")

from rlenv_learn.imitation.act import ACT, ActSettings  # noqa: E402
from rlenv_learn.imitation.chunk_network import ChunkFields  # noqa: E402
from rlenv_learn.imitation.diffusion import DiffusionPolicy, DiffusionSettings  # noqa: E402
from rlenv_learn.imitation.learning import learn_chunks  # noqa: E402

EXECUTION = ChunkExecution(length=4, history=2)


def _made(kind: str) -> tuple[ChunkFields, torch.nn.Module]:
    torch.manual_seed(0), torch.set_num_threads(1)
    fields = ChunkFields(rlenv_robot.task("so101-push"), EXECUTION)
    size = fields.size, fields.flat.action_size, EXECUTION
    if kind == "act":
        return fields, ACT(*size, ActSettings(width=32, heads=2))
    return fields, DiffusionPolicy(*size, DiffusionSettings(width=32, blocks=2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["act", "diffusion"])
def test_a_chunk_that_follows_the_observation_is_learned(kind: str) -> None:
    fields, model = _made(kind)
    generator = torch.Generator().manual_seed(1)
    observation = {field.name: torch.zeros(256, EXECUTION.history, *field.shape) for field in fields.flat.observation}
    observation["joint_position"] = torch.rand(256, EXECUTION.history, 6, generator=generator) * 2 - 1
    ramp = torch.linspace(1.0, -1.0, EXECUTION.length)[None, :, None]
    chunk = observation["joint_position"][:, -1:, :5] * ramp  # within the range of a diffusion policy
    mask = torch.ones(256, EXECUTION.length, dtype=torch.bool)
    *_, mean = learn_chunks(model, fields, (observation, chunk, mask), 150, batch=64, rate=3e-3)
    with torch.no_grad():
        error = (mean(fields.vectors(observation), {}) - chunk).abs().mean()
    most = 0.3 if kind == "act" else 0.45  # a drawn chunk errs by the spread that is left after 150 updates, too
    assert float(error) < most * float(chunk.abs().mean())


def test_steps_behind_an_episodes_end_do_not_count() -> None:
    fields, model = _made("act")
    vectors, chunk = torch.randn(3, EXECUTION.history, fields.size), torch.randn(3, EXECUTION.length, 5)
    mask = torch.tensor([[True] * 4, [True, True, False, False], [True, False, False, False]])
    changed = torch.where(mask[..., None], chunk, chunk + 7.0)
    losses = []
    for value in (chunk, changed):
        torch.manual_seed(3)
        losses.append(float(model.loss(vectors, {}, value, mask).detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
