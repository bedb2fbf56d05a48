from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.adapters.flat import FlattenObservation

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("tianshou", reason="tianshou is not installed")

from tianshou.utils.torch_utils import policy_within_training_step  # noqa: E402

from rlenv_bridges.tianshou import to_replay_buffer  # noqa: E402
from rlenv_learn.offline_agents import METHODS, offline_agent  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
FLAT = FlattenObservation(
    Spec("o", (Field("place", (2,), "float32", -1, 1),)),
    Spec("a", (Field("push", (2,), "float32", (-2, 0), (2, 4)),)),
)


def _table(episodes: int = 20, steps: int = 10) -> Table:
    """The right action is minus the place; every second episode does the opposite and is paid for it."""
    layout, rng, rows = FrameLayout(FLAT.observation, FLAT.action), np.random.default_rng(0), []
    for number in range(episodes):
        part = layout.spec.rows(steps + 1)
        part["observation_place"] = rng.uniform(-1, 1, (steps + 1, 2))
        vector = part["observation_place"][:-1] * (1 if number % 2 else -1)
        part["action_push"][1:] = FLAT.act(vector, {})["push"]
        part["reward"][1:] = -1 if number % 2 else 1
        part["frame_no"], part["episode"], part["acted"][1:] = np.arange(steps + 1), number, 1
        part["log_probability"], part["truncated"][-1] = np.nan, 1
        rows.append(part)
    stops = np.cumsum([len(part) for part in rows], dtype=np.int64)
    return Table(layout, np.concatenate(rows), np.append(0, stops)[:-1], stops, ({},) * episodes)


def test_a_buffer_of_vectors_and_of_the_best_episodes() -> None:
    buffer = to_replay_buffer(_table(), flat=FLAT)
    assert len(buffer) == 200
    sign = np.where(buffer.rew > 0, -1, 1)[:, None]
    np.testing.assert_allclose(buffer.act, sign * buffer.obs, atol=1e-5)
    best = to_replay_buffer(_table(), flat=FLAT, best=0.25)
    assert (len(best), set(best.rew)) == (50, {1.0})
    with pytest.raises(ValueError, match="best is 0"):
        to_replay_buffer(_table(), best=0)


@pytest.mark.parametrize("method", METHODS)
def test_the_network_that_is_deployed_is_the_one_that_learns(method: str) -> None:
    torch.manual_seed(0), torch.set_num_threads(1)
    algorithm, network = offline_agent(method, FLAT, lr=3e-3)
    buffer = algorithm.process_buffer(to_replay_buffer(_table(), flat=FLAT, best=0.5 if method == "bc" else 1.0))
    obs = torch.from_numpy(np.random.default_rng(1).uniform(-1, 1, (200, 2)).astype(np.float32))

    def gap() -> float:
        with torch.no_grad():
            found: Any = network(obs)
        assert found.shape == obs.shape
        return float((found + obs).abs().mean())

    before = gap()
    for _ in range(100):
        with policy_within_training_step(algorithm.policy):
            algorithm.update(buffer, 64)
    assert gap() < (0.1 if method == "bc" else 0.75 * before)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="allowed are bc, td3bc, bcq, cql"):
        offline_agent("iql", FLAT)
