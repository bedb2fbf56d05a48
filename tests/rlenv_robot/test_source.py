"""The standard's five functions over a small table whose every number says where it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData, open_source

LAYOUT = FrameLayout(
    Spec("o", (Field("place", (2,), unit="m"), Field("frame", (), "int32"))),
    Spec("a", (Field("push", (2,)),)),
)
RECORDS: tuple[dict[str, Any], ...] = (
    {"env_id": "bench-a", "source": "expert", "policy": "p1", "verdict": "success", "end": "done", "seed": 4},
    {"env_id": "bench-a", "source": "random", "policy": "p2", "verdict": "failure"},
    {"env_id": "bench-b", "source": "random", "policy": "p1", "expert": True},
    {"env_id": "bench-b", "goal": {"target": [1.0]}},
)
LENGTHS = (3, 5, 4, 2)


def table(records: tuple[dict[str, Any], ...] = RECORDS, lengths: tuple[int, ...] = LENGTHS) -> Table:
    """Episode e, frame n: place (e, n), push (e, n) led there, reward e + n / 10; the first ends terminated."""
    stops = np.cumsum([length + 1 for length in lengths])
    starts = stops - [length + 1 for length in lengths]
    rows = LAYOUT.spec.rows(int(stops[-1]))
    for e, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        block, frame = rows[start:stop], np.arange(stop - start)
        block["frame_no"] = block["observation_frame"] = frame
        block["observation_place"] = block["action_push"] = np.stack([np.full_like(frame, e), frame], axis=1)
        block["reward"] = np.where(frame > 0, e + frame / 10, 0)
        block["acted"] = frame > 0
        block["log_probability"] = -0.5 * frame
        block["intervention"] = (frame == 2) & (e == 1)
    rows["terminated"][stops[0] - 1] = 1
    rows["truncated"][stops[1:2] - 1] = 1
    return Table(LAYOUT, rows, starts, stops, records, "the test table")


def source(**options: Any) -> SourceData:
    data = SourceData(table(), **options)
    data.init({"seed": 0})
    return data


def drawn(data: SourceData, extra_info: dict[str, Any], size: int = 400) -> set[int]:
    """The episodes that come, of both functions, which must agree."""
    steps = set(data.sample_steps(size, extra_info)["extra_info"]["episode"].tolist())
    whole = {one["trajectory_id"] for one in data.sample_trajectories(size, extra_info)}
    assert steps == whole
    return steps


# -- tables ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R3.3", "R2", "6.3.2.2-1", "6.3.2.2-2", "6.3.2.2-4", "6.3.3.1-T5")
def test_a_batch_is_table_5_with_a_leading_axis() -> None:
    batch = source().sample_steps(64)
    assert set(batch) == {
        "env_id", "frame_no", "observation", "action", "reward", "next_observation", "done", "extra_info",
    }  # fmt: skip
    assert len(batch["env_id"]) == 64
    assert all(isinstance(name, str) for name in batch["env_id"])
    assert batch["frame_no"].dtype == batch["done"].dtype == np.int32
    assert batch["reward"].dtype == np.float64
    assert batch["observation"]["place"].shape == batch["action"]["push"].shape == (64, 2)
    for name in ("index", "weights", "episode", "terminated", "truncated", "discount", "steps", "log_probability"):
        assert batch["extra_info"][name].shape == (64,), name


@pytest.mark.requirement("R3.3")
def test_every_part_of_a_transition_is_of_the_same_moment() -> None:
    batch = source().sample_steps(500)
    e, n = batch["extra_info"]["episode"], batch["frame_no"]
    np.testing.assert_array_equal(batch["observation"]["place"], np.stack([e, n], 1))
    np.testing.assert_array_equal(batch["action"]["push"], np.stack([e, n + 1], 1))
    np.testing.assert_array_equal(batch["next_observation"]["place"], np.stack([e, n + 1], 1))
    np.testing.assert_allclose(batch["reward"], e + (n + 1) / 10)
    np.testing.assert_allclose(batch["extra_info"]["log_probability"], -0.5 * (n + 1))
    last = n == np.array(LENGTHS)[e] - 1
    np.testing.assert_array_equal(batch["done"], last)
    np.testing.assert_array_equal(batch["extra_info"]["terminated"], last & (e == 0))
    np.testing.assert_array_equal(batch["extra_info"]["truncated"], last & (e > 0))
    np.testing.assert_allclose(batch["extra_info"]["discount"], np.where(last & (e == 0), 0, 0.99))
    assert (batch["env_id"] == np.array([RECORDS[i]["env_id"] for i in e])).all()


@pytest.mark.requirement(
    "R3.4", "R2", "6.3.1-2", "6.3.2.3-1", "6.3.2.3-2", "6.3.2.3-4", "6.3.3.2-T6", "A.1-3", "B.2.2.2-1"
)
def test_a_trajectory_is_table_6_whole_and_in_order() -> None:
    found = source().sample_trajectories(4, {"replace": False})
    assert sorted(one["trajectory_id"] for one in found) == [0, 1, 2, 3]
    for one in found:
        e, steps = one["trajectory_id"], one["steps_set"]
        assert set(one) == {"env_id", "trajectory_id", "steps_set", "extra_info"}
        assert steps["frame_no"].tolist() == list(range(LENGTHS[e]))
        assert steps["done"].tolist() == [0] * (LENGTHS[e] - 1) + [1]
        info = one["extra_info"]
        assert info["length"] == info["end"] - info["start"] == LENGTHS[e]
        assert info["return"] == pytest.approx(steps["reward"].sum())
        assert info["terminated"] == int(e == 0)
        assert info["source"] == RECORDS[e].get("source")
    first = next(one["extra_info"] for one in found if one["trajectory_id"] == 0)
    assert (first["end_reason"], first["seed"], first["expert"], first["success"]) == ("done", 4, True, True)


@pytest.mark.requirement("R3.3")
def test_several_agents_have_a_reward_each() -> None:
    layout = FrameLayout(LAYOUT.observation, LAYOUT.action, ("left", "right"))
    rows = layout.spec.rows(3)
    rows["frame_no"], rows["acted"] = [0, 1, 2], [0, 1, 1]
    rows["reward_left"], rows["reward_right"] = [0, 1, 2], [0, 10, 20]
    data = SourceData(Table(layout, rows, np.array([0]), np.array([3]), ({},)))
    one = data.sample_trajectories(1)[0]
    assert {name: value.tolist() for name, value in one["steps_set"]["reward"].items()} == {
        "left": [1, 2],
        "right": [10, 20],
    }
    assert one["extra_info"]["return"] == {"left": 3.0, "right": 30.0}
    assert one["env_id"] == "episode-0"


# -- init --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R3.2", "6.3.2.1-1", "6.3.2.1-2")
@given(st.integers(0, 2**31))
def test_one_seed_gives_the_same_samples(seed: int) -> None:
    data, requests = SourceData(table()), ({}, {"priority": "return"}, {"replace": False})
    runs = []
    for _ in range(2):
        data.init({"seed": seed})
        runs.append([data.sample_steps(8, request)["extra_info"]["index"].tolist() for request in requests])
    assert runs[0] == runs[1]


@pytest.mark.requirement("R3.2")
def test_another_seed_gives_other_samples() -> None:
    data, found = SourceData(table()), []
    for seed in (1, 2):
        data.init({"seed": seed})
        found.append(data.sample_steps(32)["extra_info"]["index"].tolist())
    assert found[0] != found[1]


@pytest.mark.requirement("R3.2")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sed": 1}, "'sed' is unknown, allowed are seed, episode, frame"),
        ({"seed": -1}, "whole number from 0"),
        ({"seed": 1.5}, "whole number from 0"),
        ({"episode": 4}, "the test table has 0 to 3"),
        ({"episode": 3, "frame": 3}, "no frame 3, it has 0 to 2"),
    ],
)
def test_init_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        source().init(options)


# -- filters -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6.2", "B.2.2.1-3", "B.2.2.3-2")
@pytest.mark.parametrize(
    ("extra_info", "episodes"),
    [
        ({"source": "random"}, {1, 2}),
        ({"source": ["expert", "random"]}, {0, 1, 2}),
        ({"policy": "p1"}, {0, 2}),
        ({"expert": True}, {0, 2}),
        ({"expert": False}, {1}),
        ({"success": True}, {0}),
        ({"success": False}, {1}),
        ({"verdict": "failure"}, {1}),
        ({"episodes": [1, 3]}, {1, 3}),
        ({"episodes": np.array([2])}, {2}),
        ({"episodes": slice(1, 3)}, {1, 2}),
        ({"min_return": 6.2}, {1, 2, 3}),
        ({"min_return": 6.6}, {2}),
        ({"top_fraction": 0.25}, {2}),
        ({"top_fraction": 0.5}, {1, 2}),
        ({"top_fraction": 1e-6}, {2}),
        ({"top_fraction": 1.0}, {0, 1, 2, 3}),
        ({"source": "random", "top_fraction": 0.5}, {2}),
        ({"intervention": True}, {1}),
        ({"near": {"observation": {"place": [3.0, 0.0]}}}, {3}),
        ({"source": None}, {0, 1, 2, 3}),
    ],
)
def test_a_filter_keeps_what_it_promises(extra_info: dict[str, Any], episodes: set[int]) -> None:
    assert drawn(source(), extra_info) == episodes  # the episodes' returns are 0.6, 6.5, 9.0 and 6.3


@pytest.mark.requirement("R6.2", "6.3.2.2-3", "6.3.2.3-3", "B.2.2.1-2")
@given(st.floats(-1.0, 10.0))
def test_no_step_below_the_return_threshold_comes(threshold: float) -> None:
    data = source()
    returns = np.array([0.6, 6.5, 9.0, 6.3])
    if threshold > data.transitions.returns.max():
        with pytest.raises(SourceError, match="the highest return among them is 9"):
            data.sample_steps(4, {"min_return": threshold})
        return
    episode = data.sample_steps(50, {"min_return": threshold})["extra_info"]["episode"]
    assert (returns[episode] >= threshold - 1e-9).all()


@pytest.mark.requirement("R6.2")
def test_a_return_of_just_the_threshold_passes() -> None:
    data = source()
    assert drawn(data, {"min_return": float(data.transitions.returns[2])}) == {2}


@pytest.mark.requirement("R6.2")
def test_interventions_are_steps_not_episodes() -> None:
    data = source()
    batch = data.sample_steps(20, {"intervention": True})
    assert (batch["extra_info"]["episode"] == 1).all()
    assert (batch["frame_no"] == 1).all()
    assert not data.sample_steps(200, {"intervention": False})["extra_info"]["intervention"].any()


@pytest.mark.requirement("R6.2")
@given(st.floats(0, 5), st.floats(0, 4), st.floats(0, 3))
def test_near_keeps_the_box_and_nothing_else(x: float, y: float, tolerance: float) -> None:
    data = source()
    request = {"near": {"observation": {"place": [x, y]}, "tolerance": tolerance}}
    place = data.sample_steps(14, {"replace": False})["observation"]["place"]
    inside = (np.abs(place - np.float32([x, y]).astype(float)) <= tolerance).all(axis=1)
    if not inside.any():
        with pytest.raises(SourceError, match="leaves nothing"):
            data.sample_steps(4, request)
        return
    found = data.sample_steps(int(inside.sum()), {**request, "replace": False})["observation"]["place"]
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, place[inside].tolist()))


@pytest.mark.requirement("R6.2", "B.2.2.3-3")
def test_near_by_state_and_action_with_a_tolerance_a_field() -> None:
    near = {"observation": {"place": [1, 2]}, "action": {"push": [1, 4]}, "tolerance": {"push": 1.0}}
    batch = source().sample_steps(10, {"near": near})
    assert set(zip(batch["extra_info"]["episode"].tolist(), batch["frame_no"].tolist(), strict=True)) == {(1, 2)}


# -- priorities --------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6.2", "6.3.2.2-3", "B.2.2.2-2")
@pytest.mark.parametrize("priority", ["return", "reward", "advantage"])
def test_steps_are_drawn_in_proportion_to_their_priority(priority: str) -> None:
    data = source(discount=0.9)
    everything = data.sample_steps(14, {"replace": False})
    order = np.argsort(everything["extra_info"]["index"])
    reward, episode, done = (everything["reward"], everything["extra_info"]["episode"], everything["done"])
    reward, episode, done = reward[order], episode[order], done[order]
    score = reward.copy()
    if priority != "reward":
        for p in range(12, -1, -1):
            score[p] += 0 if done[p] else 0.9 * score[p + 1]
    if priority == "advantage":
        time = np.concatenate([np.arange(length) for length in LENGTHS])
        score = np.maximum(score - np.array([score[time == t].mean() for t in time]), 0)
    chances = score - score.min() + 0.01 * (score.max() - score.min())
    index = data.sample_steps(100_000, {"priority": priority})["extra_info"]["index"]
    np.testing.assert_allclose(np.bincount(index, minlength=14) / 1e5, chances / chances.sum(), atol=0.006)


@pytest.mark.requirement("R6.2")
def test_td_errors_change_what_is_drawn_until_init() -> None:
    data = source()
    data.update_priorities(np.arange(14), np.zeros(14))
    data.update_priorities([3, 7], [-1.0, 3.0])
    request = {"priority": "td_error", "beta": 1.0}
    batch = data.sample_steps(40_000, request)
    index, weights = batch["extra_info"]["index"], batch["extra_info"]["weights"]
    assert np.mean(index == 7) == pytest.approx(0.75, abs=0.01)
    assert np.mean(index == 3) == pytest.approx(0.25, abs=0.01)
    assert weights[index == 3][0] == pytest.approx(3 * weights[index == 7][0], rel=1e-4)
    data.update_priorities([7], [0.0])
    assert np.mean(data.sample_steps(1000, request)["extra_info"]["index"] == 3) > 0.99
    data.init({"seed": 0})
    assert len(set(data.sample_steps(1000, request)["extra_info"]["index"].tolist())) == 14


def test_the_size_of_a_td_error_counts_whatever_its_sign() -> None:
    errors, drawn = np.linspace(0.5, 4, 14), []
    for signs in (1, -1, np.resize([1, -1], 14)):
        data = source()
        data.init({"seed": 3})
        data.update_priorities(np.arange(14), signs * errors)
        drawn.append(data.sample_steps(1000, {"priority": "td_error", "beta": 0.5})["extra_info"])
    for other in drawn[1:]:
        np.testing.assert_array_equal(other["index"], drawn[0]["index"])
        np.testing.assert_array_equal(other["weights"], drawn[0]["weights"])


@pytest.mark.requirement("R6.2")
def test_a_transition_without_a_td_error_counts_as_the_largest() -> None:
    data = source()
    data.update_priorities([0, 1], [5.0, 1.0])
    share = np.bincount(data.sample_steps(40_000, {"priority": "td_error"})["extra_info"]["index"]) / 40_000
    np.testing.assert_allclose(share, np.array([5, 1, *[5] * 12]) / 66, atol=0.007)


@pytest.mark.requirement("R6.2", "6.3.2.3-3", "B.2.2.1-1")
def test_trajectories_are_drawn_in_proportion_to_their_return() -> None:
    data = source()
    numbers = [one["trajectory_id"] for one in data.sample_trajectories(8000, {"priority": "return", "beta": 1.0})]
    chances = np.array([0.6, 6.5, 9.0, 6.3]) - 0.6 + 0.01 * 8.4
    np.testing.assert_allclose(np.bincount(numbers, minlength=4) / 8000, chances / chances.sum(), atol=0.02)


@pytest.mark.requirement("R6.2")
def test_n_step_moves_reward_next_observation_and_done() -> None:
    batch = source(discount=0.5).sample_steps(300, {"n_step": 3})
    e, n, steps = batch["extra_info"]["episode"], batch["frame_no"], batch["extra_info"]["steps"]
    np.testing.assert_array_equal(steps, np.minimum(3, np.array(LENGTHS)[e] - n))
    np.testing.assert_array_equal(batch["next_observation"]["frame"], n + steps)
    np.testing.assert_array_equal(batch["action"]["push"][:, 1], n + 1)
    np.testing.assert_array_equal(batch["done"], n + steps == np.array(LENGTHS)[e])
    terminated = (batch["done"] == 1) & (e == 0)
    np.testing.assert_array_equal(batch["extra_info"]["terminated"], terminated)
    np.testing.assert_array_equal(batch["extra_info"]["discount"], np.where(terminated, 0.0, 0.5**steps))
    by_hand = [sum(0.5**k * (a + (b + k + 1) / 10) for k in range(c)) for a, b, c in zip(e, n, steps, strict=True)]
    np.testing.assert_allclose(batch["reward"], by_hand)


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([14], [1.0], "index 14, allowed are 0 to 13"),
        ([-1], [1.0], "index -1"),
        ([0, 1], [1.0], "one shape"),
        ([0.5], [1.0], "whole numbers"),
        ([0], [np.nan], "NaN"),
    ],
)
def test_update_priorities_refuses(index: list[Any], error: list[float], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        source().update_priorities(index, error)


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R3.3")
@pytest.mark.parametrize(
    ("extra_info", "message"),
    [
        ({"prioritty": "return"}, "'prioritty' is unknown, allowed are priority, alpha"),
        ({"priority": "loss"}, "allowed is one of return, reward, advantage, td_error"),
        ({"alpha": -1}, "allowed is a finite number from 0"),
        ({"alpha": float("nan")}, "allowed is a finite number from 0"),
        ({"n_step": 0}, "whole number from 1"),
        ({"n_step": True}, "whole number from 1"),
        ({"top_fraction": 0}, "above 0, at most 1"),
        ({"top_fraction": 1.1}, "from 0 to 1"),
        ({"expert": 1}, "True or False"),
        ({"episodes": [4]}, "no episode 4, the test table has 0 to 3"),
        ({"episodes": [0.5]}, "a slice or a list of episode numbers"),
        ({"episodes": [[0], [1, 2]]}, "a slice or a list of episode numbers"),
        ({"episodes": []}, "leaves nothing"),
        ({"source": "human"}, r"recorded are expert \(1 episodes\), random \(2 episodes\)"),
        ({"min_return": 100}, "the highest return among them is 9"),
        ({"near": {"observation": {"pace": 1}}}, "observation.pace is unknown, the data have place, frame"),
        ({"near": {"observation": {"place": 1}}}, r"observation.place has shape \(\), expected \(2,\)"),
        ({"near": {"tolerance": 1}}, "a mapping with"),
        ({"near": {"action": {"push": [0, 0]}, "tolerance": {"place": 1}}}, "tolerance names place; the fields"),
        ({"privileged": True}, "give one: open_source"),
        ([("priority", "return")], "allowed is a mapping"),
    ],
)
def test_a_request_that_cannot_be_met_says_why(extra_info: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        source().sample_steps(4, extra_info)


def test_a_size_must_be_a_whole_number_from_1_and_at_hand() -> None:
    data = source()
    for wrong in (0, -1, 2.0, True, "8"):
        with pytest.raises(SourceError, match="batch_size"):
            data.sample_steps(wrong)  # type: ignore[arg-type]
        with pytest.raises(SourceError, match="trajectory_size"):
            data.sample_trajectories(wrong)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="5 were requested, 4 exist"):
        data.sample_trajectories(5, {"replace": False})
    with pytest.raises(SourceError, match="'n_step' is unknown"):
        data.sample_trajectories(1, {"n_step": 2})


def test_what_was_not_recorded_is_refused_with_the_reason() -> None:
    data = SourceData(table(({},) * 4))
    for name, value in {"source": "x", "policy": "x", "verdict": "x", "expert": True, "success": True}.items():
        with pytest.raises(SourceError, match=f"{name}: not one of the 4 episodes of the test table records it"):
            data.sample_steps(1, {name: value})


@pytest.mark.requirement("R3.1")
def test_without_rewards_only_what_needs_them_is_refused() -> None:
    bare = table()
    bare.rows["reward"] = np.nan
    data = SourceData(bare)
    assert np.isnan(data.sample_steps(4)["reward"]).all()
    assert np.isnan(data.sample_trajectories(1)[0]["extra_info"]["return"])
    for request in ({"priority": "return"}, {"min_return": 1.0}, {"top_fraction": 0.5}):
        with pytest.raises(SourceError, match="in 4 of the 4 episodes some are NaN or infinite"):
            data.sample_steps(4, request)
        with pytest.raises(SourceError, match="give a task"):
            data.sample_trajectories(4, request)


@pytest.mark.requirement("R3.1", "R6.2")
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("priority", ["reward", "return", "advantage"])
def test_an_unknown_reward_blocks_only_the_episode_that_has_it(wrong: float, priority: str) -> None:
    whole, damaged = SourceData(table()), table()
    damaged.rows["reward"][damaged.starts[1] + 1] = wrong
    data = SourceData(damaged)
    others = [number for number in range(4) if number != 1 and whole.transitions.lengths[number]]
    for request in ({"priority": priority}, {"min_return": -9.0}, {"top_fraction": 1.0}):
        with pytest.raises(SourceError, match=r"in 1 of the \d episodes .*, episode 1\)"):
            data.sample_steps(4, request)
        data.init({"seed": 3})
        steps = data.sample_steps(50, {**request, "episodes": others})
        assert np.isfinite(steps["reward"]).all()
    assert set(data.statistics({"kind": "returns", "episodes": others})["episode"]) == set(others)
    with pytest.raises(SourceError, match="episode 1"):
        data.statistics({"kind": "returns"})


def test_data_without_a_transition_and_wrong_settings_are_refused() -> None:
    with pytest.raises(SourceError, match="not one transition"):
        SourceData(table(({},), (0,)))
    with pytest.raises(SourceError, match="'training' and 'inference'"):
        SourceData(table(), mode="test")
    with pytest.raises(SourceError, match="from 0 to 1"):
        SourceData(table(), discount=1.5)


# -- actions, splits ---------------------------------------------------------------------------------------


@pytest.mark.requirement("R3.5", "6.3.2.4-1", "6.3.2.4-3")
def test_all_actions_of_the_current_state() -> None:
    data = source()
    data.init({"episode": 1, "frame": 2})
    found = data.get_all_actions()
    assert set(found) == {"env_id", "frame_no", "action"}
    assert (found["env_id"], found["frame_no"]) == ("bench-a", 2)
    assert found["action"]["push"].tolist() == [[1.0, 3.0]]
    wider = data.get_all_actions({"tolerance": {"place": 1.0}})["action"]["push"]  # frame must be equal
    assert sorted(wider.tolist()) == [[0.0, 3.0], [1.0, 3.0], [2.0, 3.0]]
    assert data.get_all_actions({"tolerance": 10.0, "episodes": [3]})["action"]["push"].shape == (2, 2)


@pytest.mark.requirement("R3.5")
def test_actions_are_distinct_and_the_last_state_has_none() -> None:
    double = table()
    double.rows["action_push"] = 7.0
    data = SourceData(double)
    assert data.get_all_actions({"tolerance": 100})["action"]["push"].tolist() == [[7.0, 7.0]]
    data.init({"episode": 1, "frame": 5})
    assert data.get_all_actions()["action"]["push"].shape == (0, 2)
    given_state = data.get_all_actions({"state": {"frame": 4}})["action"]["push"]
    assert given_state.shape == (1, 2)


def test_get_all_actions_refuses_a_state_that_is_none() -> None:
    with pytest.raises(SourceError, match=r"observation.frame has shape"):
        source().get_all_actions({"state": {"frame": [1, 2]}})
    with pytest.raises(SourceError, match="a number from 0"):
        source().get_all_actions({"tolerance": -1})
    with pytest.raises(SourceError, match="tolerance names pace; observation has place, frame"):
        source().get_all_actions({"tolerance": {"pace": 1}})


@pytest.mark.requirement("R6.2")
@given(st.floats(0.01, 0.99), st.integers(0, 100))
def test_a_split_is_whole_disjoint_and_the_seeds_own(held_out: float, seed: int) -> None:
    data = SourceData(table())
    train, test = data.split(held_out, seed)
    assert train
    assert test
    assert sorted(train + test) == [0, 1, 2, 3]
    assert data.split(held_out, seed) == (train, test)
    assert set(data.sample_steps(20, {"episodes": train})["extra_info"]["episode"].tolist()) <= set(train)


# -- folders -----------------------------------------------------------------------------------------------


def test_an_unknown_folder_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"looked for log.mcap .* found nothing"):
        open_source(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(SourceError, match=r"found notes.txt"):
        open_source(tmp_path)
    with pytest.raises(SourceError, match="is a file"):
        open_source(tmp_path / "notes.txt")


def test_source_data_of_a_folders_name_names_the_function_that_opens_it() -> None:
    with pytest.raises(TypeError, match="open_source"):
        rr.SourceData("runs")  # type: ignore[arg-type]


@pytest.mark.requirement("R3.4")
def test_writing_into_a_trajectory_changes_no_later_one() -> None:
    data = source()
    for one in data.sample_trajectories(8, {"episodes": [3]}):
        one["extra_info"]["goal"]["target"][0] = 77.0
    (again,) = data.sample_trajectories(1, {"episodes": [3]})
    assert again["extra_info"]["goal"] == {"target": [1.0]}
