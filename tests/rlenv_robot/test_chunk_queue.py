from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hal import Field, IllegalAction, Limits, RobotSpec, Spec
from rlenv_robot.action_limiter import ActionLimiter
from rlenv_robot.chunk_queue import CHUNK_MAX, ChunkCounts, ChunkQueue, hold_limit

ACTION = Spec("action", (Field("target", (2,), "float32", -10.0, 10.0), Field("gear", (), "int8", 0, 3)))
SENSORS = Spec("sensors", (Field("position", (2,), "float32"),))
ROBOT = RobotSpec(
    "crane",
    SENSORS,
    ACTION,
    rate_hz=10.0,
    limits=Limits(max_velocity={"target": 5.0}),
    measured_by={"target": "position"},
)
"""A robot with a guard's step of 0.5 a period."""


def limiter(robot: RobotSpec = ROBOT) -> ActionLimiter:
    return ActionLimiter(robot, robot.commands, lambda action, _: action, lambda: {"position": np.zeros(2, "float32")})


def chunk(*values: float, gear: int = 1) -> dict[str, Any]:
    target = np.array([[value, -value] for value in values], np.float32)
    return {"target": target, "gear": np.full(len(values), gear, np.int8)}


def value(action: dict[str, np.ndarray] | None) -> float | None:
    if action is None:
        return None
    assert action["target"][1] == -action["target"][0]
    return float(action["target"][0])


# -- frames are counted ----------------------------------------------------------------------------------------


def test_actions_lead_to_the_frames_for_which_they_were_predicted() -> None:
    queue = ChunkQueue(ACTION)
    assert queue.merge(chunk(1, 2, 3), answers=0, first_frame=1, frame=1) == 0
    assert [value(queue.next(frame)) for frame in (1, 2, 3, 4)] == [1, 2, 3, None]


def test_a_late_chunk_begins_with_the_action_of_the_present_frame() -> None:
    queue = ChunkQueue(ACTION)
    queue.merge(chunk(1, 2, 3, 4), answers=0, first_frame=1, frame=1)
    assert [value(queue.next(frame)) for frame in (1, 2, 3)] == [1, 2, 3]
    assert queue.merge(chunk(5, 6, 7, 8), answers=1, first_frame=2, frame=4) == 2
    assert queue.counts.passed == 2
    assert value(queue.next(4)) == 7
    assert (queue.answers, queue.index) == (1, 2)


def test_the_newer_chunk_wins_and_the_older_one_ends_with_it() -> None:
    queue = ChunkQueue(ACTION)
    queue.merge(chunk(1, 2, 3, 4, 5, 6), answers=0, first_frame=1, frame=1)
    queue.merge(chunk(8, 9), answers=1, first_frame=3, frame=2)
    assert [value(queue.next(frame)) for frame in (2, 3, 4, 5)] == [2, 8, 9, None]


def test_a_chunk_whose_frames_have_all_passed_changes_nothing() -> None:
    queue = ChunkQueue(ACTION)
    queue.merge(chunk(1, 2, 3, 4), answers=0, first_frame=1, frame=1)
    assert queue.merge(chunk(8, 9), answers=0, first_frame=1, frame=3) == 2
    assert value(queue.next(3)) == 3


def test_two_chunks_are_blended_over_the_first_frames() -> None:
    queue = ChunkQueue(ACTION, blend=3)
    queue.merge(chunk(0, 0, 0, 0), answers=0, first_frame=1, frame=1)
    queue.merge(chunk(4, 4, 4, 4, gear=3), answers=1, first_frame=2, frame=2)
    taken = [queue.next(frame) for frame in (2, 3, 4, 5)]
    assert [value(action) for action in taken] == [1, 2, 3, 4]
    assert {int(action["gear"]) for action in taken if action is not None} == {3}  # a whole number has no middle


def test_the_left_over_is_what_follows_without_a_gap() -> None:
    queue = ChunkQueue(ACTION)
    assert queue.queued(1)["target"].shape == (0, 2)
    queue.merge(chunk(1, 2), answers=0, first_frame=1, frame=1)
    queue.merge(chunk(9), answers=0, first_frame=5, frame=1)
    assert queue.queued(2)["target"][:, 0].tolist() == [2]
    assert queue.queued(2)["gear"].dtype == np.int8
    assert queue.left(1) == 3


def test_the_queue_keeps_its_own_copy() -> None:
    queue, sent = ChunkQueue(ACTION), chunk(1, 2)
    queue.merge(sent, answers=0, first_frame=1, frame=1)
    sent["target"][...] = 7
    assert value(queue.next(1)) == 1


# -- refused whole ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "code", "field", "index"),
    [
        ({**chunk(1, 2, 3), "gear": [1, 9, 1]}, "range", "action.gear", (1,)),
        (chunk(1, 2, np.nan), "not_finite", "action.target", (2, 0)),
        (chunk(1, 11, 2), "range", "action.target", (1, 0)),
        ({**chunk(1, 2), "gear": [1]}, "shape", "action.gear", ()),
        ({"target": chunk(1)["target"]}, "missing", "action.gear", (0,)),
        ({**chunk(1), "speed": [1]}, "unknown", "action.speed", (0,)),
        ({"target": 3.0, "gear": 1}, "shape", "action.target", ()),
        ({"target": np.zeros((2, 3), np.float32), "gear": [1, 1]}, "shape", "action.target", (0,)),
        (chunk(), "shape", "action", ()),
        (chunk(*[0.0] * (CHUNK_MAX + 1)), "shape", "action", ()),
        ([1, 2], "dtype", "action", ()),
    ],
)  # fmt: skip
def test_a_wrong_action_refuses_the_whole_chunk(wrong: Any, code: str, field: str, index: tuple[int, ...]) -> None:
    queue = ChunkQueue(ACTION)
    queue.merge(chunk(5, 6), answers=0, first_frame=1, frame=1)
    with pytest.raises(IllegalAction) as refused:
        queue.merge(wrong, answers=0, first_frame=1, frame=1)
    found = refused.value.violation
    assert (found.code, found.field, found.index) == (code, field, index)
    assert [value(queue.next(frame)) for frame in (1, 2)] == [5, 6]
    assert queue.counts.chunks == 1


@pytest.mark.parametrize(("answers", "first"), [(4, 5), (-1, 1), (3, 3), (0, 0), (0, CHUNK_MAX + 1)])
def test_wrong_frame_numbers_are_refused(answers: int, first: int) -> None:
    with pytest.raises(IllegalAction, match="allowed are"):
        ChunkQueue(ACTION).merge(chunk(1), answers=answers, first_frame=first, frame=4)


def test_a_chunk_older_than_the_one_in_use_is_refused() -> None:
    queue = ChunkQueue(ACTION)
    queue.merge(chunk(1, 2, 3), answers=2, first_frame=3, frame=3)
    with pytest.raises(IllegalAction, match="answers frame 2 is in use"):
        queue.merge(chunk(9, 9, 9, 9), answers=1, first_frame=2, frame=3)
    assert value(queue.next(3)) == 1


def test_a_negative_blend_is_refused() -> None:
    with pytest.raises(ValueError, match="blend is -1"):
        ChunkQueue(ACTION, blend=-1)


# -- seams -----------------------------------------------------------------------------------------------------


def test_a_seam_is_one_step_of_the_guard_and_no_frame_is_skipped() -> None:
    queue = ChunkQueue(ACTION, limiter())
    queue.merge(chunk(0, 0, 0, 0), answers=0, first_frame=1, frame=1)
    assert value(queue.next(1)) == 0
    queue.merge(chunk(1.2, 1.3, 1.4, 1.5, 1.6), answers=1, first_frame=2, frame=2)
    taken = [value(queue.next(frame)) for frame in range(2, 7)]
    assert taken == pytest.approx([0.5, 1.0, 1.4, 1.5, 1.6])  # of the frames' own actions, each at most 0.5 further
    assert queue.counts.limited == 2
    assert queue.counts.seam == pytest.approx(1.0)
    assert queue.counts.jump == pytest.approx(2.4)


def test_changes_within_a_chunk_are_left_to_the_guard() -> None:
    queue = ChunkQueue(ACTION, limiter())
    queue.merge(chunk(0, 3, -3), answers=0, first_frame=1, frame=1)
    assert [value(queue.next(frame)) for frame in (1, 2, 3)] == [0, 3, -3]
    assert queue.counts.limited == 0


def test_an_action_after_a_hold_is_limited_too() -> None:
    queue = ChunkQueue(ACTION, limiter())
    queue.merge(chunk(1), answers=0, first_frame=1, frame=1)
    queue.next(1)
    assert queue.next(2) is None
    assert value(queue.hold()) == 1
    assert (queue.answers, queue.index, queue.held, queue.counts.held) == (-1, -1, 1, 1)
    queue.merge(chunk(1, 1, 4), answers=0, first_frame=1, frame=3)
    assert value(queue.next(3)) == 1.5
    assert queue.held == 0


def test_a_hold_needs_an_action_before_it() -> None:
    assert ChunkQueue(ACTION, limiter()).hold() is None
    queue = ChunkQueue(ACTION)
    queue.merge(chunk(1), answers=0, first_frame=1, frame=1)
    queue.next(1)
    assert queue.hold() is None  # a world without a robot


def test_a_robot_is_held_for_two_seconds() -> None:
    assert hold_limit(ROBOT) == 20


def test_counts_add_up() -> None:
    counts = ChunkCounts(1, 2, 3, 4, 0.5, 6.0)
    counts.add(ChunkCounts(10, 20, 30, 40, 0.25, 7.0))
    assert counts == ChunkCounts(11, 22, 33, 44, 0.5, 7.0)
    assert "22 actions dropped" in str(counts)


# -- against a slow model --------------------------------------------------------------------------------------

_MERGE = st.tuples(st.integers(0, 6), st.integers(1, 4), st.integers(1, 8))


class SlowQueue:
    """Keep every chunk that was merged, and search all of them for each frame."""

    def __init__(self) -> None:
        self.chunks: list[tuple[int, list[float], int]] = []  # first frame, actions, the frame at the merge
        self.passed = 0

    def merge(self, first: int, values: list[float], frame: int) -> None:
        self.passed += sum(first + place < frame for place in range(len(values)))
        if any(first + place >= frame for place in range(len(values))):
            self.chunks.append((first, values, frame))

    def next(self, frame: int) -> float | None:
        end = None
        for first, values, begun in reversed(self.chunks):
            if end is not None and frame >= end:
                return None  # beyond the end of a newer chunk
            if max(first, begun) <= frame < first + len(values):
                return values[frame - first]
            end = first + len(values) if end is None else min(end, first + len(values))
        return None


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.just("next"), _MERGE), max_size=40))
def test_any_order_of_merges_and_frames_agrees_with_a_slow_model(calls: list[Any]) -> None:
    queue, slow = ChunkQueue(ACTION), SlowQueue()
    frame, newest, number = 1, 0, 0
    for call in calls:
        if call == "next":
            assert value(queue.next(frame)) == slow.next(frame)
            frame += 1
            continue
        age, ahead, length = call
        answers = max(frame - 1 - age, 0)
        values = [(number + place / 16) % 10 for place in range(length)]
        number += 1
        arguments: dict[str, int] = {"answers": answers, "first_frame": answers + ahead, "frame": frame}
        if answers < newest:
            with pytest.raises(IllegalAction):
                queue.merge(chunk(*values), **arguments)
            continue
        newest = answers
        queue.merge(chunk(*values), **arguments)
        slow.merge(answers + ahead, values, frame)
        assert queue.counts.passed == slow.passed


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.floats(-10, 10, width=32), st.integers(1, 6)), min_size=1, max_size=20))
def test_no_seam_exceeds_the_guards_step(merges: list[tuple[int, float, int]]) -> None:
    queue = ChunkQueue(ACTION, limiter())
    before: float | None = None
    frame = 1
    for late, target, length in merges:
        queue.merge(chunk(*[target] * length), answers=max(frame - 1 - late, queue._newest, 0),
                    first_frame=max(frame - 1 - late, queue._newest, 0) + 1, frame=frame)  # fmt: skip
        for _ in range(2):
            action = value(queue.next(frame) or queue.hold())
            frame += 1
            if action is not None and before is not None:
                assert abs(action - before) <= 0.5 * (1 + 1e-5)  # chunks are constant, so every change is a seam's
            before = action
    assert queue.counts.seam <= 1 + 1e-5
