"""Preferences of people between two recorded episodes, beside the log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import LogError
from recorder.log.preferences import (
    CHOICES,
    EpisodeId,
    Judgement,
    Votes,
    add_judgement,
    count_votes,
    read_judgements,
)

A, B, C = (EpisodeId("/runs/a", 0), EpisodeId("/runs/a", 1), EpisodeId("/runs/b", 0))


def test_an_answer_comes_back_also_where_the_runs_were_moved(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / "here" / name).mkdir(parents=True)
    left, right = EpisodeId(str(tmp_path / "here/one"), 3), EpisodeId(str(tmp_path / "here/two"), 0)
    path = add_judgement(left, right, "right", "ann", now_ns=7)
    assert path == tmp_path / "here/one/preferences.jsonl"
    assert read_judgements([left.run, right.run]) == [Judgement(left, right, "right", "ann", 7)]
    shutil.move(tmp_path / "here", tmp_path / "there")
    moved = read_judgements([tmp_path / "there/one"])[0]
    assert (moved.left.run, moved.right.run) == (str(tmp_path / "there/one"), str(tmp_path / "there/two"))


def test_a_torn_or_foreign_line_is_passed_over(tmp_path: Path) -> None:
    left, right = EpisodeId(str(tmp_path), 0), EpisodeId(str(tmp_path), 1)
    path = add_judgement(left, right, "left", "ann", now_ns=1)
    whole = path.read_text()
    entry = json.loads(whole)
    foreign = [{**entry, "choice": "both"}, {**entry, "left": 3}, {**entry, "right": entry["left"]}, {"who": "x"}]
    path.write_text(whole + "".join(json.dumps(one) + "\n" for one in foreign) + "[1]\n" + whole[:20])
    add_judgement(right, left, "equal", "ben", now_ns=2)
    assert [(one.who, one.choice) for one in read_judgements([tmp_path])] == [("ann", "left"), ("ben", "equal")]


def test_wrong_answers_are_refused(tmp_path: Path) -> None:
    here = EpisodeId(str(tmp_path), 0)
    with pytest.raises(LogError, match="best"):
        add_judgement(here, EpisodeId(str(tmp_path), 1), "best", "ann")  # type: ignore[arg-type]
    with pytest.raises(LogError, match="itself"):
        add_judgement(here, here, "left", "ann")
    with pytest.raises(LogError, match="does not exist"):
        add_judgement(here, EpisodeId(str(tmp_path / "gone"), 1), "left", "ann")
    assert list(tmp_path.iterdir()) == []


def test_people_vote_once_each_and_the_later_answer_counts() -> None:
    answers = [
        Judgement(A, B, "left", "ann", 1), Judgement(B, A, "left", "ben", 2), Judgement(A, C, "equal", "ann", 3),
        Judgement(B, A, "right", "ben", 4), Judgement(B, C, "left", "ann", 5), Judgement(B, C, "skip", "ann", 6),
    ]  # fmt: skip
    assert count_votes(answers) == {(A, B): Votes(first=2), (A, C): Votes(equal=1)}
    assert count_votes(answers[:2])[A, B].controversy == 1.0
    assert Votes(3, 1).controversy == 0.5
    assert Votes().controversy == 0.0


@given(st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from([A, B, C]), st.sampled_from(CHOICES),
                          st.sampled_from(["ann", "ben"]))))  # fmt: skip
def test_the_side_on_which_an_episode_was_shown_does_not_count(answers: list[tuple]) -> None:
    mirror = {"left": "right", "right": "left"}
    given = [Judgement(*one, n) for n, one in enumerate(answers) if one[0] != one[1]]
    swapped = [Judgement(o.right, o.left, mirror.get(o.choice, o.choice), o.who, o.wall_ns) for o in given]  # type: ignore[arg-type]
    votes = count_votes(given)
    assert votes == count_votes(swapped)
    assert all(0 <= one.controversy <= 1 and 1 <= sum(one) <= 2 for one in votes.values())
