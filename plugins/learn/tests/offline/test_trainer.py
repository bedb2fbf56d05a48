"""Offline learning joins halves of episodes, which cloning can't, and what it saves is what it learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot
from hal import Field, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.policies.lineage import lineage_of
from rlenv_robot.policies.policy import RandomPolicy, load_policy
from rlenv_robot.source import SourceData
from rlenv_robot.training.rollout import run_episode

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("d3rlpy", reason="d3rlpy is not installed")

from rlenv_learn.offline.trainer import train_offline  # noqa: E402
from rlenv_learn.offline.transitions import rewarded_runs  # noqa: E402

pytestmark = [pytest.mark.tier("learning"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

LAYOUT = FrameLayout(
    Spec("o", (Field("place", (), "float32", -0.2, 1.2), Field("side", (), "float32", 0, 1))),
    Spec("a", (Field("push", (), "float32", -1, 1),)),
)
STRIDE, TURN, GOAL = 0.1, 0.5, 1.0
QUICK: dict[str, Any] = {"hidden": [32, 32], "batch_size": 128, "rate": 3e-3, "gamma": 0.9}


def observed(place: float) -> dict[str, np.ndarray]:
    return {"place": np.float32(place), "side": np.float32(place >= TURN)}  # type: ignore[dict-item]


def moved(place: float, push: float) -> float:
    """Return the next place: a push moves forwards beyond the turn, and backwards before it."""
    return float(np.clip(place + STRIDE * (push if place >= TURN else -push), -0.2, 1.2))


def walk(start: float, directions: list[float], rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """Return the places and pushes of a noisy walk, which ends at the goal."""
    places, pushes = [start], list[float]()
    for direction in directions:
        sign = 1 if places[-1] >= TURN else -1
        pushes.append(float(np.clip(sign * direction + 0.2 * rng.normal(), -1, 1)))
        places.append(moved(places[-1], pushes[-1]))
        if places[-1] >= GOAL:
            break
    return places, pushes


def line_world() -> SourceData:
    """Return walks on a line that is rewarded at 1, none of which goes from 0 to 1.

    Before the turn two of three walks go away from the goal: a clone of all walks does so too. The walks that reach the
    goal begin beyond the turn, where pushes have the other sign: a clone of these goes away from the turn.
    """
    rng, rows = np.random.default_rng(0), list[np.ndarray]()
    plans = [(0.0, [1.0] * 6 + [-0.5] * 12)] * 30 + [(0.48, [-0.5] * 12)] * 30
    plans += [(0.55, [0.9] * 10)] * 15 + [(0.7, [-0.5] * 8)] * 15
    for number, (start, directions) in enumerate(plans):
        places, pushes = walk(start, directions, rng)
        part, reached = LAYOUT.spec.rows(len(places)), places[-1] >= GOAL
        part["observation_place"], part["action_push"][1:] = places, pushes
        part["observation_side"] = np.array(places) >= TURN
        part["reward"][-1] = float(reached)
        part["frame_no"], part["episode"], part["acted"][1:] = np.arange(len(places)), number, 1
        part["terminated" if reached else "truncated"][-1] = 1
        rows.append(part)
    stops = np.cumsum([len(part) for part in rows], dtype=np.int64)
    return SourceData(Table(LAYOUT, np.concatenate(rows), np.append(0, stops)[:-1], stops, ({},) * len(rows)))


def reaches(policy: Any) -> bool:
    place = 0.0
    for _ in range(40):
        place = moved(place, float(policy.act(observed(place))["push"]))
        if place >= GOAL:
            return True
    return False


def learned(method: str, updates: int, **options: Any) -> Any:
    return train_offline(method, line_world(), None, updates=updates, options=QUICK | options).policy


def test_cloning_cannot_join_halves_of_episodes() -> None:
    assert not reaches(learned("bc", 300))
    assert not reaches(learned("bc", 300, best=1 / 6))  # the walks that reached the goal


@pytest.mark.parametrize(
    ("method", "options"),
    [("iql", {"weight_temp": 10.0, "expectile": 0.9, "tau": 0.1}), ("awac", {"lam": 0.1, "n_step": 3})],
)
def test_offline_learning_joins_them(method: str, options: dict[str, float]) -> None:
    assert reaches(learned(method, 500, **options))


@pytest.mark.parametrize("method", ["awac", "bc", "cql", "iql", "td3bc"])
def test_the_file_is_the_policy_that_was_learned(method: str, tmp_path: Path) -> None:
    source, out = line_world(), tmp_path / "p.npz"
    options = {"hidden": [8, 8], "batch_size": 8, "best": 0.5}
    trained = train_offline(method, source, out, updates=3, seed=4, options=options)
    loaded, places = load_policy(out), np.linspace(0, 1, 5, dtype=np.float32)
    given = {"place": places, "side": places}
    np.testing.assert_array_equal(loaded.act(given)["push"], trained.policy.act(given)["push"])
    about = loaded.about  # type: ignore[attr-defined]
    assert (about["seed"], about["updates"], about["transitions"]) == (4, 3, trained.transitions)
    assert about["settings"]["hidden"] == [8, 8]
    assert method[:3] in about["trained"].lower() or method == "bc"
    lineage = lineage_of(loaded)
    assert lineage is not None
    assert lineage.count == trained.episodes == 45  # the best half, and no other
    assert not out.with_suffix(".csv").exists()  # no task, no trials


def test_the_policy_acts_as_d3rlpy_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers of the file, with shift and scale inside, choose what the algorithm predicts."""
    from rlenv_learn.offline import methods

    made, make = list[Any](), methods._algorithm

    def remembered(*given: Any) -> Any:
        made.append(make(*given))
        return made[-1]

    monkeypatch.setattr(methods, "_algorithm", remembered)
    monkeypatch.setattr(methods, "_DECAY", 0.0)  # the newest weights instead of their average
    source = line_world()
    runs = rewarded_runs(source.table)
    for method in ("iql", "td3bc"):
        trained = train_offline(method, source, None, updates=5, options=QUICK)
        flat, seen = trained.policy.vectors, [run.group("observation", LAYOUT.observation) for run in runs]
        vectors = np.concatenate([flat.observe({k: v[:-1] for k, v in one.items()}) for one in seen])
        normal = (vectors - vectors.mean(axis=0)) / vectors.std(axis=0)
        acted = np.concatenate([trained.policy.act({k: v[:-1] for k, v in one.items()})["push"] for one in seen])
        np.testing.assert_allclose(acted, made[-1].predict(normal)[:, 0], atol=1e-4)


def test_trials_of_a_task_and_a_file_that_runs(tmp_path: Path) -> None:
    with rlenv_robot.make("so101-reach", record=tmp_path / "runs") as env:
        policy = RandomPolicy(0)
        policy.check(env.observation, env.action)
        for seed in range(2):
            list(run_episode(env, policy, {"seed": seed}))
    source, out = rlenv_robot.open_source(tmp_path / "runs"), tmp_path / "p.onnx"
    pytest.importorskip("onnxruntime")
    trained = train_offline(
        "iql", source, out, task="so101-reach", updates=4, trials=2, options={"hidden": [8], "batch_size": 8}
    )
    assert [point.steps for point in trained.points] == [2, 4]
    assert len(out.with_suffix(".csv").read_text().splitlines()) == 3
    with rlenv_robot.make("so101-reach") as env:
        loaded = load_policy(out)
        loaded.check(env.observation, env.action)
        observation = env.reset({"seed": 3})["observation"]
        np.testing.assert_allclose(
            loaded.act(observation)["joint_target"], trained.policy.act(observation)["joint_target"], atol=1e-5
        )
