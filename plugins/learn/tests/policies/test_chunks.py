"""Chunks are executed as the papers say, and each episode begins without the memory of the one before."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from hal import Field, RobotError, Spec, SpecMismatch
from rlenv_learn.policies.chunks import ChunkExecution, ChunkPolicy, NetworkPredictor
from rlenv_robot.policies.chunked_policy import ChunkedPolicy
from rlenv_robot.policies.chunks import ChunkContext, ChunkPredictor

OBSERVATION = Spec("observation", (Field("x", (2,), "float32", -100.0, 100.0),))
ACTION = Spec("action", (Field("u", (2,), "float32", -1.0, 1.0),))


def _policy(execution: ChunkExecution, seen: list[np.ndarray] | None = None, gain: float = 0.01) -> ChunkPolicy:
    """A policy whose chunk of an observation x is ``gain (x + 10 k)`` in its step k."""

    def predict(observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        x = observation["x"]
        if seen is not None:
            seen.append(x.copy())
        return {"u": gain * (x[:, -1:] + 10 * np.arange(execution.length)[:, None])}

    return ChunkPolicy(predict, OBSERVATION, ACTION, execution)


def _run(policy: ChunkPolicy, steps: int) -> np.ndarray:
    return np.array([policy.act({"x": np.full(2, step, np.float32)})["u"] for step in range(steps)])


@pytest.mark.parametrize("decay", [0.0, 0.01, -0.3, 2.0])
def test_ensembling_is_the_weighted_mean_of_what_was_foreseen(decay: float) -> None:
    chosen = _run(_policy(ChunkExecution(length=4, decay=decay)), 9)
    for step in range(9):
        began = np.arange(max(0, step - 3), step + 1)  # oldest first
        weights = np.exp(-decay * np.arange(len(began)))
        wanted = 0.01 * (weights * (began + 10 * (step - began))).sum() / weights.sum()
        np.testing.assert_allclose(chosen[step], wanted, rtol=1e-6)


@pytest.mark.skipif(find_spec("lerobot") is None, reason="lerobot is not installed")
@pytest.mark.filterwarnings("ignore")
def test_ensembling_is_that_of_lerobot() -> None:
    import torch
    from lerobot.policies.act.modeling_act import ACTTemporalEnsembler

    rng = np.random.default_rng(0)
    chunks = rng.uniform(-1, 1, (12, 1, 5, 2)).astype(np.float32)
    ours, theirs = iter(chunks), ACTTemporalEnsembler(0.01, 5)
    policy = ChunkPolicy(lambda observation: {"u": next(ours)}, OBSERVATION, ACTION, ChunkExecution(length=5))
    for chunk, action in zip(chunks, _run(policy, 12), strict=True):
        np.testing.assert_allclose(action, theirs.update(torch.from_numpy(chunk))[0].numpy(), atol=1e-6)


def test_a_receding_horizon_asks_again_after_some_actions() -> None:
    seen: list[np.ndarray] = []
    chosen = _run(_policy(ChunkExecution(length=5, execute=3), seen), 7)
    assert [int(x[0, -1, 0]) for x in seen] == [0, 3, 6]
    np.testing.assert_allclose(chosen[:, 0], 0.01 * np.array([0, 10, 20, 3, 13, 23, 6]), rtol=1e-6)


def test_a_history_begins_with_the_first_frame_repeated_and_is_forgotten_at_a_reset() -> None:
    seen: list[np.ndarray] = []
    policy = _policy(ChunkExecution(length=1, history=3), seen)
    _run(policy, 4)
    policy.reset()
    _run(policy, 1)
    frames = [x[0, :, 0].astype(int).tolist() for x in seen]
    assert frames == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 0]]


def test_a_reset_forgets_the_plan() -> None:
    policy = _policy(ChunkExecution(length=4, decay=0.0))
    first = _run(policy, 6)
    policy.reset()
    np.testing.assert_array_equal(_run(policy, 6), first)


def test_actions_stay_within_their_bounds_for_a_batch() -> None:
    policy = _policy(ChunkExecution(length=3), gain=10.0)
    action = policy.act({"x": np.arange(12, dtype=np.float32).reshape(2, 3, 2)})["u"]
    assert action.shape == (2, 3, 2)
    assert action.dtype == np.float32
    assert action.max() == 1.0
    with pytest.raises(ValueError, match="reset"):
        policy.act({"x": np.zeros((4, 2), np.float32)})


def test_an_observation_that_is_changed_later_does_not_change_the_history() -> None:
    seen: list[np.ndarray] = []
    policy, x = _policy(ChunkExecution(length=1, history=2), seen), np.zeros(2, np.float32)
    policy.act({"x": x})
    x += 5
    policy.act({"x": x})
    assert seen[-1][0, :, 0].tolist() == [0.0, 5.0]


@pytest.mark.parametrize(
    "wrong", [{"length": 0}, {"length": 4, "execute": 5}, {"length": 4, "history": 0}, {"length": 4, "decay": np.nan}]
)
def test_a_setting_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=list(wrong)[-1]):
        ChunkExecution(**wrong)  # type: ignore[arg-type]


def test_settings_come_back_from_a_file() -> None:
    settings = ChunkExecution(length=8, history=2, execute=4, decay=-0.5)
    assert ChunkExecution.from_dict(settings.to_dict()) == settings
    with pytest.raises(ValueError, match="history"):
        ChunkExecution.from_dict({"length": 8})


# -- as a predictor, while frames pass ------------------------------------------------------------------------


class Saved:
    """The policy from a file, which knows its specs."""

    def check(self, observation: Spec, action: Spec) -> None:
        if action.digest != ACTION.digest:
            raise SpecMismatch("trained for another", ["action"])

    def act(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        raise NotImplementedError


def _predictor(execution: ChunkExecution) -> NetworkPredictor:
    def predict(observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        assert observation["x"].shape == (1, 1, 2)
        return {"u": 0.01 * (observation["x"] + np.arange(1, execution.length + 1)[:, None])}

    return NetworkPredictor(predict, Saved(), OBSERVATION, ACTION, execution)  # type: ignore[arg-type]


def test_a_network_predicts_a_chunk_of_one_observation() -> None:
    predictor = _predictor(ChunkExecution(length=3))
    assert isinstance(predictor, ChunkPredictor)
    chunk = predictor.predict({"x": np.array([98.5, -200.0])}, ChunkContext(0, {}, 0))
    assert chunk["u"].dtype == np.float32
    clipped = np.array([[0.995, -1.0], [1.0, -1.0], [1.0, -1.0]])  # as the policy's own actions are
    np.testing.assert_allclose(chunk["u"], clipped)
    with pytest.raises(SpecMismatch):
        predictor.check(OBSERVATION, OBSERVATION)


def test_its_chunks_are_executed_in_time() -> None:
    policy = ChunkedPolicy(_predictor(ChunkExecution(length=8)), delay=2)
    policy.check(OBSERVATION, ACTION)
    policy.reset()
    chosen = [float(policy.act({"x": np.full(2, frame, np.float32)})["u"][0]) for frame in range(30)]
    np.testing.assert_allclose(chosen, 0.01 * np.arange(1, 31), rtol=1e-6)
    policy.close()


def test_a_network_with_a_history_is_no_predictor() -> None:
    with pytest.raises(RobotError, match="takes the last 2 observations"):
        _predictor(ChunkExecution(length=3, history=2))
