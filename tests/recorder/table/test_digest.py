from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from recorder.frame_layout import FrameLayout
from recorder.table.combine import joined, subset
from recorder.table.digest import DIGEST_CHARACTERS, episode_digest, episode_digests
from recorder.table.load import build


def test_equal_rows_have_equal_digests_wherever_they_lie(tmp_path: Path, make_log: Callable[..., FrameLayout]) -> None:
    make_log(tmp_path / "run", [4, 2, 3])
    table = build(tmp_path / "run")
    digests = episode_digests(table)
    assert len(set(digests)) == 3
    assert all(len(digest) == DIGEST_CHARACTERS for digest in digests)
    assert episode_digest(table, 1) == digests[1]
    assert episode_digests(subset(table, [2, 0])) == [digests[2], digests[0]]
    assert episode_digests(joined([table, table], "both")) == digests * 2
    renumbered = np.array(table.rows)
    renumbered["episode"] += 7
    assert episode_digests(replace(table, rows=renumbered)) == digests


def test_each_counted_field_changes_the_digest(tmp_path: Path, make_log: Callable[..., FrameLayout]) -> None:
    make_log(tmp_path / "run", [4])
    table = build(tmp_path / "run")
    (digest,) = episode_digests(table)
    for name in table.layout.spec.row_dtype.names or ():
        changed = np.array(table.rows)
        changed[name][2] += 1
        assert (episode_digests(replace(table, rows=changed)) == [digest]) is (name == "episode")
