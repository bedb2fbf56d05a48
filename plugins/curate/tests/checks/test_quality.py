from __future__ import annotations

from dataclasses import replace

from plugins.curate.tests.checks.test_motion import made
from rlenv_curate.checks.image_pass import check_images, read_cameras
from rlenv_curate.checks.quality import QUALITY, check_data, scores
from rlenv_curate.checks.table import DataSet, Finding
from rlenv_robot.data.episode_columns import computed, load_columns


def test_the_columns_of_the_entry_point() -> None:
    table = made(copy=True)
    columns = load_columns("quality")
    assert columns is QUALITY
    values = computed("quality", columns, table)
    assert values["findings"] == ["", "", "", "copy", "copy"]
    assert values["score"] == [1.0, 1.0, 1.0, 0.0, 0.0]


def test_findings_of_the_whole_set_cost_no_episode() -> None:
    table = made()
    assert scores(table, [Finding("idle", -1, "", -1, -1, "")]) == [1.0] * len(table.episodes)
    assert check_data(table) == []


def test_a_table_without_images_has_no_cameras() -> None:
    data_set = DataSet(made())
    assert read_cameras(data_set) == ([], [])
    assert check_images(data_set, []) == []
    assert read_cameras(DataSet(replace(data_set.table, stored=None)), []) == ([], [])
