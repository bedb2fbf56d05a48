"""Times in any unit become stamps; whole numbers are exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import SourceError
from rlenv_formats.mapped import load_mapped
from rlenv_formats.time_stamps import UNITS, guessed_unit, stamps_from

BEGIN_NS = 1_700_000_000_123_456_789


@pytest.mark.parametrize("unit", list(UNITS))
@pytest.mark.parametrize("rate_hz", [0.5, 1, 20, 50, 100])
@pytest.mark.parametrize("begin_ns", [0, BEGIN_NS])
def test_units_are_guessed(unit: str, rate_hz: float, begin_ns: int) -> None:
    stamps = begin_ns + (np.arange(50) * 1e9 / rate_hz).astype(np.int64)
    assert guessed_unit(stamps / UNITS[unit] if unit == "s" else stamps // UNITS[unit]) == unit


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=20), st.sampled_from(list(UNITS)))
def test_whole_numbers_are_exact(steps: list[int], unit: str) -> None:
    values = (BEGIN_NS // UNITS[unit] + np.cumsum(steps) // (UNITS[unit] // 1000 or 1) + np.arange(len(steps))).astype(
        np.int64
    )
    assert stamps_from(values, unit).tolist() == [int(value) * UNITS[unit] for value in values]


def write(path: Path, times: list[object]) -> Path:
    path.write_text("\n".join(["t,q,u", *(f"{time},{k},{k}" for k, time in enumerate(times))]))
    return path


NAMES = {"observation.q": "q", "action": "u", "time": "t"}


def test_nanoseconds_since_1970(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    times = [BEGIN_NS + k * 50_000_001 for k in range(5)]
    table = load_mapped(write(tmp_path / "a.csv", list(times)), NAMES)
    assert table.rows["stamp_ns"].tolist() == times
    assert any("time seems to be in ns" in note for note in table.notes)
    table = load_mapped(tmp_path / "a.csv", NAMES, time_unit="ns")
    assert not any("seems" in note for note in table.notes)
    pairs = "\n".join(["s,n,q", *(f"{time // 10**9},{time % 10**9},{k}" for k, time in enumerate(times))])
    (tmp_path / "b.csv").write_text(pairs)
    table = load_mapped(tmp_path / "b.csv", {"observation.q": "q", "time": ["s", "n"]})
    assert table.rows["stamp_ns"].tolist() == times
    dates = ["2024-05-01 10:00:00.25", "2024-05-01 10:00:00.50", "2024-05-01 10:00:01.00"]
    table = load_mapped(write(tmp_path / "c.csv", list(dates)), NAMES)
    assert np.diff(table.rows["stamp_ns"]).tolist() == [250_000_000, 500_000_000]


def test_a_guess_that_may_be_wrong_is_told_with_the_time_between_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    table = load_mapped(write(tmp_path / "a.csv", [4 * k for k in range(9)]), NAMES)  # 250 Hz in ms, or a row every 4 s
    assert any("time seems to be in s, with a row every 4 s" in note for note in table.notes)
    table = load_mapped(tmp_path / "a.csv", NAMES, time_unit="ms")
    assert not any("seems" in note for note in table.notes)
    table = load_mapped(write(tmp_path / "b.csv", [k / 30 for k in range(9)]), NAMES)
    assert not any("seems" in note for note in table.notes)


@pytest.mark.parametrize(
    ("times", "word"),
    [
        ([0, 1, 1, 2], "repeated rows"), ([0, 1, 2, 0, 1], "episode"), ([0, 1, 1e300, 2], "no time in this unit"),
        (["a", "b", "c"], "'a'"),
    ],
)  # fmt: skip
def test_what_does_not_rise_is_refused(tmp_path: Path, times: list[object], word: str) -> None:
    with pytest.raises(SourceError, match=word):
        load_mapped(write(tmp_path / "a.csv", times), NAMES)


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [0, 1, 2])
    with pytest.raises(SourceError, match="allowed are s, ms, us, ns"):
        load_mapped(path, NAMES, time_unit="h")
    with pytest.raises(SourceError, match="rate_hz"):
        load_mapped(path, {"observation.q": "q"}, rate_hz=0)
    table = load_mapped(path, {"observation.q": "q"}, rate_hz=20.0)
    assert table.rows["stamp_ns"].tolist() == [0, 50_000_000, 100_000_000]
