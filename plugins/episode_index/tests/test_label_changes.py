"""Changed labels reach the index as if it were made anew, and change only the episodes that they name."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from recorder.log.labels import add_labels, label_files, read_labels, undo_labels
from rlenv_episode_index.index import EpisodeIndex
from rlenv_episode_index.label_changes import label_change, label_state, same_labels

Made = Callable[..., Path]


def label_by_chance(path: Path, draw: random.Random, episodes: int) -> None:
    """Add, undo, tear, rewrite or remove lines of labels."""
    kind, number = draw.randrange(8), draw.randrange(episodes)
    values = draw.choice((
        {"verdict": draw.choice(("success", "failure", "discard"))}, {"success": draw.random() < 0.5},
        {"tag": ["odd"]}, {"untag": ["odd"]}, {"note": f"n{draw.randrange(9)}"}, {"expert": True},
    ))  # fmt: skip
    file = next(iter(label_files(path)), path / "labels.jsonl")
    if kind < 4 or not file.exists():
        add_labels(path, sorted({number, draw.randrange(episodes)}), values, "ana", draw.randrange(4))
    elif kind == 4:
        undo_labels(path, [number], draw.randrange(4), "ana")
    elif kind == 5:
        line = f'{{"episode" :"{number}", "note": "ü{draw.randrange(9)}"}}'.encode()
        with file.open("ab") as added:
            added.write(line[: draw.choice((len(line), len(line) // 2))])
    elif kind == 6:
        lines = file.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[1:] if draw.random() < 0.5 else reversed(lines)))
    else:
        file.unlink()
    for some in label_files(path):
        os.utime(some, ns=(draw.randrange(10**15),) * 2)


@pytest.mark.parametrize("kind", ["lerobot", "run", "labelled run"])
def test_an_index_that_follows_labels_is_as_one_made_anew(
    lerobot_set: Made, run_folder: Made, tmp_path: Path, kind: str
) -> None:
    path = lerobot_set("cups", (4, 6, 3, 5)) if kind == "lerobot" else run_folder("run", (4, 2, 3, 5))
    if kind == "labelled run":
        add_labels(path, [1, 2], {"verdict": "failure", "tag": ["old"]}, "ben", 0)
    draw = random.Random(kind)
    with EpisodeIndex.open(path) as index:
        for step in range(12):
            for _ in range(draw.randrange(1, 3)):
                label_by_chance(path, draw, 4)
            index.refresh()
            with EpisodeIndex.open(path, tmp_path / f"{step}.sqlite") as anew:
                assert index.find() == anew.find()


def test_only_the_named_episodes_are_changed(lerobot_set: Made) -> None:
    path = lerobot_set("cups", (2,) * 40)
    add_labels(path, range(40), {"note": "first"}, "ana")
    with EpisodeIndex.open(path) as index:
        statements: list[str] = []
        index._connection.set_trace_callback(statements.append)
        add_labels(path, [7, 11], {"tag": ["wrist"]}, "ana")
        add_labels(path, [8], {"note": "first"}, "ana")  # as it is
        index.refresh()
        assert [record["episode"] for record in index.find("has(tags, 'wrist') and note = 'first'")] == [7, 11]
    assert sum(statement.startswith("UPDATE main.stored") for statement in statements) == 2


def test_a_change_names_the_episodes_of_the_added_lines(tmp_path: Path) -> None:
    path = tmp_path / "set"
    path.mkdir()
    state = label_state(path)
    assert same_labels(path, state)
    for numbers in ([3, 4], [44, 4]):
        add_labels(path, numbers, {"note": str(numbers)}, "ana")
        assert not same_labels(path, state)
        change = label_change(path, state)
        state, everything = change.state, read_labels(path)
        assert (change.numbers, same_labels(path, state)) == (frozenset(numbers), True)
        assert change.labels == {number: everything[number] for number in numbers}
    file = path / "labels.jsonl"
    with file.open("ab") as added:
        added.write(b'{"episode": 5, "no')
    assert label_change(path, state).numbers == frozenset()
    state = label_change(path, state).state
    with file.open("ab") as added:
        added.write(b'te": "whole now"}\n')
    change = label_change(path, state)
    assert (change.numbers, change.labels[5]["note"]) == (frozenset([5]), "whole now")
    file.write_text(json.dumps({"episode": 1, "note": "other"}) + "\n")
    assert label_change(path, change.state) == (label_state(path), None, read_labels(path))
    old_state = json.dumps([entry[:3] for entry in json.loads(state)])  # of an index without digests
    assert label_change(path, old_state).numbers is None
