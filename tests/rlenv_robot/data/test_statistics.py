"""Figures about recorded data, against figures made by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.data import statistics
from rlenv_robot.data.statistics import StatisticsKind
from rlenv_robot.source import SourceData

Named = Mapping[str, np.ndarray]

LAYOUT = FrameLayout(
    Spec("o", (Field("x", (2,), "float64", unit="m", elements=("forward", "up")),)),
    Spec("a", (Field("u", (2,), "float64", unit="m"),)),
    sensors=Spec("s", (Field("current", (), "float64", unit="A"),)),
)
PERIOD_NS = 20_000_000


def walk(episodes: list[np.ndarray], rewards: list[list[float]], log_probability: float = math.nan) -> Table:
    """x is the running sum of the actions; one frame every 20 ms."""
    lengths = [len(actions) for actions in episodes]
    stops = np.cumsum(lengths) + np.arange(1, len(lengths) + 1)
    starts = stops - np.array(lengths) - 1
    rows = LAYOUT.spec.rows(int(stops[-1]))
    for start, stop, actions, reward in zip(starts, stops, episodes, rewards, strict=True):
        block = rows[start:stop]
        block["frame_no"] = np.arange(stop - start)
        block["acted"][1:] = 1
        block["action_u"][1:] = actions
        block["observation_x"][1:] = np.cumsum(actions, axis=0)
        block["reward"][1:] = reward
        block["stamp_ns"] = 10**12 + PERIOD_NS * np.arange(stop - start)
    rows["log_probability"] = log_probability
    return Table(LAYOUT, rows, starts, stops, tuple({"source": "expert"} for _ in episodes), "the walk")


def two_walks() -> Table:
    rng = np.random.default_rng(3)
    return walk([rng.normal(size=(4, 2)), rng.normal(size=(6, 2))], [[1.0] * 4, [2.0] * 6])


def figures(data: SourceData, extra_info: dict[str, Any]) -> dict[str, Any]:
    found = data.statistics(extra_info)
    assert found is not None
    json.dumps(found)  # plain data all the way down
    return found


@pytest.mark.requirement("R3.6", "6.3.2.5-1", "6.3.2.5-3")
def test_the_summary_says_how_much_there_is_and_how_it_is_spread() -> None:
    table = two_walks()
    found = figures(SourceData(table), {})
    assert (found["episodes"], found["steps"]) == (2, 10)
    assert found["returns"]["mean"] == pytest.approx(8.0)
    assert found["returns"]["max"] == 12.0
    assert found["lengths"]["min"] == 4
    obs = np.concatenate([table.rows["observation_x"][:4], table.rows["observation_x"][5:11]])
    described = found["fields"]["observation.x"]
    assert (described["unit"], described["elements"]) == ("m", ["forward", "up"])
    np.testing.assert_allclose(described["mean"], obs.mean(axis=0))
    np.testing.assert_allclose(described["q50"], np.median(obs, axis=0))
    acted = table.rows["action_u"][table.rows["acted"] == 1]
    np.testing.assert_allclose(found["fields"]["action.u"]["std"], acted.std(axis=0))
    assert set(found["fields"]) == {"observation.x", "action.u", "sensor.current"}


@pytest.mark.requirement("R3.6", "6.3.2.5-2")
def test_filters_choose_what_is_described() -> None:
    data = SourceData(two_walks())
    assert figures(data, {"episodes": [0]})["steps"] == 4
    assert figures(data, {"kind": "returns", "min_return": 5})["return"] == [12.0]


@pytest.mark.requirement("R2.1")
def test_inference_sees_no_sensor() -> None:
    assert "sensor.current" not in figures(SourceData(two_walks(), mode="inference"), {})["fields"]


@pytest.mark.requirement("R3.6")
def test_timing_finds_the_late_period() -> None:
    table = two_walks()
    table.rows["stamp_ns"][7:12] += 35_000_000  # one period of episode 1 takes 55 ms
    found = figures(SourceData(table), {"kind": "timing"})
    assert found["nominal_s"] == pytest.approx(0.02)
    assert found["largest_s"] == pytest.approx(0.055)
    assert found["share_late"] == pytest.approx(0.1)
    assert found["lost"] == 0
    table.rows["frame_no"][8:12] += 3
    assert figures(SourceData(table), {"kind": "timing"})["lost"] == 1


def test_data_without_a_clock_have_no_timing() -> None:
    table = two_walks()
    table.rows["stamp_ns"] = 0
    data = SourceData(table)
    with pytest.raises(SourceError, match="no clock, all its stamps are equal"):
        data.statistics({"kind": "timing"})
    assert figures(data, {})["timing"] is None


@pytest.mark.requirement("R3.6")
def test_a_line_an_episode() -> None:
    lines = figures(SourceData(two_walks()), {"kind": "episodes"})["episodes"]
    assert [line["length"] for line in lines] == [4, 6]
    assert [line["return"] for line in lines] == [4.0, 12.0]
    assert [line["expert"] for line in lines] == [True, True]
    bare = two_walks()
    bare.rows["reward"] = np.nan
    assert [line["return"] for line in figures(SourceData(bare), {"kind": "episodes"})["episodes"]] == [None, None]
    assert figures(SourceData(bare), {})["returns"] is None


@pytest.mark.parametrize(
    ("extra_info", "message"),
    [
        ({"kind": "sumary"}, "kind is 'sumary', allowed is one of "),
        ({"bins": 3}, "'bins' is unknown"),
    ],
)
def test_a_statistic_that_cannot_be_made_says_why(extra_info: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        SourceData(two_walks()).statistics(extra_info)


def test_without_the_plug_in_its_kinds_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    core = PluginTable("statistics", "no such group", statistics.KINDS)
    monkeypatch.setattr(statistics, "_kinds", lambda: core)
    with pytest.raises(SourceError, match="'off_policy' is in the plug-in rlenv_curate, which is not installed here"):
        SourceData(two_walks()).statistics({"kind": "off_policy"})
    assert figures(SourceData(two_walks()), {"kind": "timing"})["lost"] == 0


def test_a_package_adds_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    table = PluginTable("statistics", "no such group", statistics.KINDS)
    table.register("count", StatisticsKind(lambda request: {"steps": len(request.part)}, {}))
    table.register("number", 5)
    monkeypatch.setattr(statistics, "_kinds", lambda: table)
    data = SourceData(two_walks())
    assert figures(data, {"kind": "count", "episodes": [1]}) == {"steps": 6}
    with pytest.raises(SourceError, match="'number' is a int, it must be a StatisticsKind"):
        data.statistics({"kind": "number"})
