"""Sizes and options of another kind are refused with what was got and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hal import Field, SourceError, Spec
from recorder.frame_layout import FrameLayout
from recorder.table.table import Table
from rlenv_robot.source import SourceData


@pytest.fixture
def data() -> SourceData:
    """Return one episode of four steps."""
    layout = FrameLayout(Spec("o", (Field("x", ()),)), Spec("a", (Field("u", ()),)))
    rows = layout.spec.rows(5)
    rows["frame_no"], rows["acted"], rows["truncated"][-1] = np.arange(5), 1, 1
    return SourceData(Table(layout, rows, np.array([0]), np.array([5]), ({},), "the test"))


def functions(data: SourceData) -> dict[str, Callable[..., Any]]:
    return {"sample_steps": data.sample_steps, "sample_trajectories": data.sample_trajectories,
            "sample_pairs": data.sample_pairs}  # fmt: skip


@pytest.mark.parametrize("name", ["sample_steps", "sample_trajectories", "sample_pairs"])
@pytest.mark.parametrize("size", [None, 0, True, 2.5, "2", [2]])
def test_a_size_that_is_no_whole_number_is_refused(name: str, size: Any, data: SourceData) -> None:
    with pytest.raises(ValueError, match=f"{name}: .*_size is .*whole number from 1"):
        functions(data)[name](size)


@pytest.mark.parametrize("name", ["sample_steps", "sample_trajectories", "sample_pairs"])
@pytest.mark.parametrize("options", [None, [], "seed", 3, [("seed", 1)]])
def test_options_that_are_no_mapping_are_refused(name: str, options: Any, data: SourceData) -> None:
    if name == "sample_pairs":  # all rewards are alike
        pytest.importorskip("rlenv_curate", reason="the plug-in with pairs is not installed")
    else:
        functions(data)[name](2)  # a request that is remembered must not hide the mistake
    with pytest.raises(SourceError, match=f"{name}: options are .*allowed is a mapping"):
        functions(data)[name](2, options)


def test_numpys_whole_numbers_are_sizes_too(data: SourceData) -> None:
    assert len(data.sample_steps(np.int64(3))["frame_no"]) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("beta", [-0.1, 1.1, 5, float("nan"), True])
def test_weights_compensate_at_most_entirely(beta: Any, data: SourceData) -> None:
    with pytest.raises(SourceError, match=r"option 'beta' is .*, allowed is a number from 0 to 1"):
        data.sample_steps(3, {"priority": "reward", "beta": beta})


@pytest.mark.parametrize("options", [{"seed": 1, "episode": 99}, {"seed": 1, "frame": 9999}, {"seed": 1, "wind": 3}])
def test_a_refused_option_of_init_changes_nothing(options: dict[str, Any], data: SourceData) -> None:
    data.init({"seed": 4})
    data.sample_steps(5)
    with pytest.raises(SourceError):
        data.init(options)
    continued = data.sample_steps(5)["extra_info"]["index"].tolist()
    data.init({"seed": 4})
    data.sample_steps(5)
    assert data.sample_steps(5)["extra_info"]["index"].tolist() == continued
