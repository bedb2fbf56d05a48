"""Images of selections: each belongs to the row beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cv2")

from recorder.formats.images import Filming
from recorder.formats.registry import writable_format
from rlenv_episode_index.manifest import write_selection
from rlenv_episode_index.selecting import find_episodes, select
from rlenv_robot.data.folder import read_folder
from rlenv_robot.source import open_source
from tests.rlenv_robot.data.test_images import fits, record


@pytest.mark.parametrize("kind", ["one run", "two runs", "lerobot", "two of lerobot"])
def test_each_image_is_that_of_its_row(tmp_path: Path, kind: str) -> None:
    places = []
    for name in ("a", "b")[: 2 if "two" in kind else 1]:
        place = record(tmp_path / "data" / name)
        if "lerobot" in kind:
            pytest.importorskip("pyarrow")
            table, place = read_folder(place), tmp_path / "data" / f"{name}-lerobot"
            writable_format("lerobot")[1](table, place, Filming(embedded=True))
        places.append(place)
    path = tmp_path / "some.selection.json"
    write_selection(select(find_episodes(places, "episode = 1")), path)
    source = open_source(path)
    batch = source.sample_steps(64, {"images": "top"})
    assert len(source.table.starts) == len(places)
    assert batch["extra_info"]["images_mask"]["top"].all()
    assert fits(batch["extra_info"]["images"]["top"], next(iter(batch["observation"].values())))
    assert {tuple(place) for place in next(iter(batch["observation"].values())).tolist()} <= {(1, n) for n in range(9)}
