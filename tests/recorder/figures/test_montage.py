from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from recorder.figures.montage import HEAD, WIDTH, Montage
from recorder.figures.plot import GOAL, MEASURED
from recorder.table.load import build
from recorder.table.table import Table

pytest.importorskip("matplotlib")
pytest.importorskip("cv2")


@pytest.fixture
def table(tmp_path: Path, make_log: Any) -> Table:
    make_log(tmp_path / "run", [12])
    plain = build(tmp_path / "run")
    rows = np.array(plain.rows)
    rows["stamp_ns"] = np.arange(12) * 33_000_000
    return Table(plain.layout, rows, plain.starts, plain.stops, plain.episodes)


def plain(shade: int, count: int = 12) -> Iterator[np.ndarray]:
    for _ in range(count):
        yield np.full((48, 64, 3), shade, np.uint8)


def amount(image: np.ndarray, colour: str) -> int:
    wanted = np.frombuffer(bytes.fromhex(colour[1:]), np.uint8).astype(int)
    return int((np.abs(image.astype(int) - wanted).max(-1) < 45).sum())


@pytest.mark.slow
@pytest.mark.requirement("R1.5")
def test_everything_is_on_it_and_time_goes_on(table: Table) -> None:
    frames = list(Montage(table, 0, {"camera top": plain(90), "camera wrist": plain(160)}).frames())
    assert len(frames) == 12
    assert {frame.shape for frame in frames} == {frames[0].shape}
    assert frames[0].shape[1] == WIDTH
    for shade in (90, 160):
        assert (frames[5] == shade).all(-1).sum() > 200_000
    drawn = [amount(frame, MEASURED) + amount(frame, GOAL) for frame in frames]
    assert drawn[0] < drawn[5] < drawn[11]  # what is to come is pale


def test_without_images_it_is_a_plot(table: Table) -> None:
    (first, *_, last) = Montage(table, 0, {}).frames()
    assert first.shape[0] < HEAD + 400
    assert amount(last, MEASURED) > amount(first, MEASURED) + 500


def test_many_cameras_fill_lines_of_three(table: Table) -> None:
    one = next(Montage(table, 0, {f"camera {n}": plain(90) for n in range(3)}).frames())
    two = next(Montage(table, 0, {f"camera {n}": plain(90) for n in range(4)}).frames())
    assert two.shape[0] > one.shape[0] + 250


def test_a_person_is_marked_and_unknown_rewards_are_not_made_up(table: Table) -> None:
    table.rows["intervention"][4:8] = 1
    table.rows["reward"] = np.nan
    assert len(list(Montage(table, 0, {}).frames())) == 12


def test_no_such_episode(table: Table) -> None:
    with pytest.raises(SourceError, match="has no episode 3, it has 1"):
        Montage(table, 3, {})


def test_rows_without_a_clock_count_frames(table: Table) -> None:
    table.rows["stamp_ns"] = 0
    (first, *_, last) = Montage(table, 0, {}).frames()
    assert amount(last, MEASURED) > amount(first, MEASURED) + 500
