"""Data classes, and samples as rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlenv_kaiwu.data import Frame, SampleCodec, create_cls
from rlenv_kaiwu.models import ModelPool, read_model, zip_model
from rlenv_kaiwu.names import MonitorConfigBuilder

numbers = st.floats(-1e6, 1e6, width=32)


@given(obs=st.lists(numbers, min_size=3, max_size=3), act=numbers)
def test_declared_lengths_go_to_a_row_and_back(obs: list[float], act: float) -> None:
    sample_class = create_cls("SampleData", obs=3, act=1)
    codec = SampleCodec({"SampleData": sample_class})
    rows = codec.encode([sample_class(obs=np.array(obs), act=act)])
    assert np.asarray(rows[0]).dtype == np.float32
    (sample,) = codec.decode(rows)
    np.testing.assert_array_equal(np.asarray(sample.obs), np.array(obs, np.float32))
    assert sample.act.shape == (1,)
    assert float(sample.act[0]) == np.float32(act)


@pytest.mark.parametrize("obs", [[1.0, 2.0], None, [1.0] * 4])
def test_another_length_is_refused_by_name(obs: object) -> None:
    sample_class = create_cls("SampleData", obs=3, act=1)
    with pytest.raises(ValueError, match=r"SampleData\.obs .*3"):
        SampleCodec({"SampleData": sample_class}).encode([sample_class(obs=obs, act=0)])


def test_a_project_s_own_functions_come_first_and_others_travel_as_they_are() -> None:
    sample_class = create_cls("SampleData", npdata=None)
    functions = {
        "SampleData2NumpyData": lambda sample: sample.npdata,
        "NumpyData2SampleData": lambda row: sample_class(npdata=row),
    }  # fmt: skip
    codec = SampleCodec({"SampleData": sample_class, **functions})
    (back,) = codec.decode(codec.encode([sample_class(npdata=np.arange(4.0))]))
    np.testing.assert_array_equal(np.asarray(back.npdata), np.arange(4, dtype=np.float32))
    plain, sample = SampleCodec({"SampleData": sample_class}), sample_class(npdata="any")
    assert not plain.makes_rows
    assert plain.decode(plain.encode([sample])) == [sample]


def test_classes_and_frames_take_the_names_that_they_declare() -> None:
    obs_class = create_cls("ObsData", feature=None, legal_act=None)
    data = obs_class(feature=[1])
    data.frame_no = 3
    assert (data.feature, data.legal_act, data.frame_no) == ([1], None, 3)
    with pytest.raises(TypeError, match="ObsData has no 'action', it has feature, legal_act"):
        obs_class(action=1)
    assert Frame(a=1, b=2).__dict__ == {"a": 1, "b": 2}


def test_the_model_pool_keeps_the_newest(tmp_path: Path) -> None:
    pool = ModelPool(tmp_path, 2)
    for number in (1, 20, 3):
        pool.put(number, {f"model.ckpt-{number}.pkl": b"x", f"policy_model.ckpt-{number}.onnx": b"y"})
    assert pool.numbers() == [3, 20]
    assert pool.latest == pool.find("latest") == 20
    assert pool.find("random") in (3, 20)
    assert pool.find("3") == pool.find(3) == 3
    assert len(pool.files(20)) == len(read_model(tmp_path, 20)) == 2
    with pytest.raises(ValueError, match="there are 3, 20"):
        pool.find(1)
    with pytest.raises(ValueError, match=r"model\.ckpt-2"):
        read_model(tmp_path, 2)  # 20 is another


def test_a_zip_holds_code_and_model_but_no_logs(tmp_path: Path) -> None:
    import zipfile

    project = tmp_path / "project"
    for name in ("agent/agent.py", "log/x.log", "agent/ckpt/model.ckpt-1.pkl", "agent/__pycache__/a.pyc"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("x")
    zip_model(tmp_path / "out" / "m.zip", project, {"model.ckpt-7.pkl": b"w"}, {"train_step": 7})
    with zipfile.ZipFile(tmp_path / "out" / "m.zip") as archive:
        assert sorted(archive.namelist()) == ["agent/agent.py", "ckpt/model.ckpt-7.pkl", "kaiwu_model.json"]


def test_panels_are_described_as_projects_describe_them() -> None:
    builder = MonitorConfigBuilder().title("T").add_group(group_name="G", group_name_en="g")
    builder.add_panel(name="P", type="line").add_metric(metrics_name="r", expr="avg(r{})").end_panel().end_group()
    assert [name for name, *_ in builder.build()["calls"]] == [  # type: ignore[attr-defined]
        "title", "add_group", "add_panel", "add_metric", "end_panel", "end_group"
    ]  # fmt: skip
    with pytest.raises(AttributeError, match="add_panel"):
        builder.add_pannel("x")
