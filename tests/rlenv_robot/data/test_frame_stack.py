"""Stacks, chunks and frames ahead over episodes whose every number says where it came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData

LENGTHS = (1, 4, 7)


def source(agents: tuple[str, ...] = ()) -> SourceData:
    """Episode e, frame n: place (e, n); push (e, n) led there. Frame 4 of the last episode is lost."""
    layout = FrameLayout(Spec("o", (Field("place", (2,)),)), Spec("a", (Field("push", (2,)),)), agents)
    stops = np.cumsum(np.array(LENGTHS) + 1)
    starts = stops - np.array(LENGTHS) - 1
    rows = layout.spec.rows(int(stops[-1]))
    for e, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        block, frame = rows[start:stop], np.arange(stop - start)
        frame = frame + (frame >= 4) * (e == 2)
        block["frame_no"], block["acted"] = frame, frame > 0
        block["observation_place"] = block["action_push"] = np.stack([np.full_like(frame, e), frame], axis=1)
        for agent in agents or ("",):
            block[f"reward_{agent}" if agent else "reward"] = frame * (10 if agent == "right" else 1)
    data = SourceData(Table(layout, rows, starts, stops, tuple({} for _ in LENGTHS), "the test table"))
    data.init({"seed": 0})
    return data


FRAMES = {0: [0, 1], 1: [0, 1, 2, 3, 4], 2: [0, 1, 2, 3], 3: [5, 6, 7, 8]}
"""Unbroken frames; the last episode has two such runs, 2 and 3."""


def run_of(episode: int, frame: int) -> list[int]:
    return FRAMES[3] if episode == 2 and frame > 4 else FRAMES[episode]


def places(batch: Any) -> list[tuple[int, int]]:
    return list(zip(batch["extra_info"]["episode"].tolist(), batch["frame_no"].tolist(), strict=True))


@pytest.mark.requirement("R6.2")
@given(st.integers(1, 6), st.integers(1, 3))
def test_a_stack_ends_at_the_own_frame_and_repeats_the_first(k: int, n: int) -> None:
    batch = source().sample_steps(60, {"stack": k, "n_step": n})
    extra = batch["extra_info"]
    assert batch["observation"]["place"].shape == batch["next_observation"]["place"].shape == (60, k, 2)
    for b, (episode, frame) in enumerate(places(batch)):
        run = run_of(episode, frame)
        for key, mask, last in (
            ("observation", "stack_mask", run.index(frame)),
            ("next_observation", "next_stack_mask", run.index(frame) + int(extra["steps"][b])),
        ):
            wanted = [last - k + 1 + i for i in range(k)]
            assert batch[key]["place"][b].tolist() == [[episode, run[max(w, 0)]] for w in wanted]  # type: ignore[literal-required]
            assert extra[mask][b].tolist() == [w >= 0 for w in wanted]


@pytest.mark.requirement("R6.2")
@given(st.integers(1, 9))
def test_a_chunk_begins_with_the_own_action_and_repeats_the_last(h: int) -> None:
    batch = source().sample_steps(60, {"chunk": h})
    for b, (episode, frame) in enumerate(places(batch)):
        run = run_of(episode, frame)
        wanted = [run.index(frame) + 1 + i for i in range(h)]
        assert batch["action"]["push"][b].tolist() == [[episode, run[min(w, len(run) - 1)]] for w in wanted]
        assert batch["extra_info"]["chunk_mask"][b].tolist() == [w < len(run) for w in wanted]


@pytest.mark.requirement("R6.2")
@given(st.integers(1, 9))
def test_the_frames_ahead_follow_the_own_one(f: int) -> None:
    batch = source().sample_steps(60, {"future": f})
    assert batch["observation"]["place"].shape == (60, 2)
    for b, (episode, frame) in enumerate(places(batch)):
        run = run_of(episode, frame)
        wanted = [run.index(frame) + 1 + i for i in range(f)]
        obs = batch["extra_info"]["future_observation"]["place"][b]
        assert obs.tolist() == [[episode, run[min(w, len(run) - 1)]] for w in wanted]
        assert batch["extra_info"]["future_mask"][b].tolist() == [w < len(run) for w in wanted]


@pytest.mark.requirement("R6.2", "R3.4")
def test_pieces_are_of_the_asked_length_and_cross_no_gap() -> None:
    data = source()
    found = data.sample_trajectories(200, {"length": 3})
    begins = set()
    for one in found:
        steps, info = one["steps_set"], one["extra_info"]
        assert len(steps["reward"]) == info["length"] == info["end"] - info["start"] == 3
        assert np.diff(steps["frame_no"]).tolist() == [1, 1]
        assert info["return"] == pytest.approx(steps["reward"].sum())
        begins.add((one["trajectory_id"], int(steps["frame_no"][0])))
    assert begins == {(1, 0), (1, 1), (2, 0), (2, 5)}
    with pytest.raises(SourceError, match=r"no 5 steps .* length"):
        data.sample_trajectories(1, {"length": 5})


@pytest.mark.requirement("R6.2")
def test_pieces_follow_the_return_of_their_episode_and_the_filters() -> None:
    data = source()
    ids = [one["trajectory_id"] for one in data.sample_trajectories(500, {"length": 2, "priority": "return"})]
    assert 2 in ids
    assert np.mean(np.array(ids) == 1) < 0.05
    assert {one["trajectory_id"] for one in data.sample_trajectories(50, {"length": 2, "episodes": [1]})} == {1}


@pytest.mark.requirement("R6.3")
def test_rewards_of_several_agents_survive_every_shape_of_request() -> None:
    data = source(("left", "right"))
    for request in ({}, {"n_step": 3}, {"stack": 2, "chunk": 2}, {"priority": "reward"}):
        reward = data.sample_steps(20, request)["reward"]
        assert set(reward) == {"left", "right"}
        np.testing.assert_allclose(reward["right"], reward["left"] * 10)
    piece = data.sample_trajectories(1, {"length": 2})[0]
    assert piece["extra_info"]["return"]["right"] == 10 * piece["extra_info"]["return"]["left"]
