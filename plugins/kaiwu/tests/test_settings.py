"""``configure_app.toml``: every key honoured or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlenv_kaiwu.project import open_project, read_train_test
from rlenv_kaiwu.settings import HONOURED, WITHOUT_EFFECT, AppSettings, check_settings, read_settings


def test_every_key_of_the_document_reaches_the_settings() -> None:
    section: dict[str, Any] = {
        "replay_buffer_capacity": 100, "preload_ratio": 0.5, "reverb_remover": "reverb.selectors.Lifo",
        "reverb_sampler": "reverb.selectors.Fifo", "reverb_rate_limiter": "SampleToInsertRatio",
        "reverb_samples_per_insert": 5, "reverb_error_buffer": 6, "train_batch_size": 7, "dump_model_freq": 8,
        "model_file_sync_per_minutes": 2, "modelpool_max_save_model_count": 9, "preload_model": True,
        "preload_model_dir": "x", "preload_model_id": 10, "learner_train_sleep_seconds": 0.001,
        "algorithm_on_policy_or_off_policy": "on-policy",
    }  # fmt: skip
    found = check_settings(section, "f.toml")
    assert found == AppSettings(
        100, 0.5, "Lifo", "Fifo", "SampleToInsertRatio", 5.0, 6.0, 7, 8, 2.0, 9, True, "x", 10, 0.001, True
    )
    assert found.preload == 50


@pytest.mark.parametrize(("ratio", "preload"), [(1, 4096), (0.25, 1024), (16, 256), ("10", 409)])
def test_a_preload_ratio_above_one_divides_as_in_projects_before_2025(ratio: Any, preload: int) -> None:
    assert check_settings({"preload_ratio": ratio}, "f").preload == preload


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("reverb_sampler", "reverb.selectors.Prioritized", "Uniform"),
        ("reverb_remover", "reverb.selectors.Prioritized", "Lifo"),
        ("reverb_rate_limiter", "Queue", "MinSize"),
        ("train_batch_size", 0, "from 1"),
        ("train_batch_size", True, "from 1"),
        ("train_batch_size", 1.5, "from 1"),
        ("modelpool_max_save_model_count", 51, "to 50"),
        ("preload_ratio", 0, "above 0"),
        ("preload_model", 1, "true or false"),
        ("algorithm_on_policy_or_off_policy", "both", "on-policy"),
        ("use_which_deep_learning_framework", "tensorrt", "pytorch"),
        ("self_play", True, "False"),
        ("replay_bufer_capacity", 10, "replay_buffer_capacity"),
        ("wholly_unknown", 10, "unknown"),
    ],
)
def test_a_key_that_can_t_be_honoured_is_refused_by_name(key: str, value: object, allowed: str) -> None:
    with pytest.raises(ValueError, match=rf"f\.toml: app\.{key} .*{allowed}"):
        check_settings({key: value}, "f.toml")


def test_variables_of_the_platform_s_processes_are_left_out_of_a_train_test(tmp_path: Path) -> None:
    variables = {"train_batch_size": "2", "max_frame_no": "1000"}
    (tmp_path / "train_test.py").write_text(f"run_train_test(env_vars={variables!r})\n")
    assert dict(read_train_test(tmp_path).overrides) == {"train_batch_size": "2"}


def test_a_project_of_2022_is_told_what_to_change(tmp_path: Path) -> None:
    (tmp_path / "actor").mkdir()
    with pytest.raises(ValueError, match=r"project of 2022.*train_workflow\.py"):
        open_project(tmp_path)


def test_no_key_is_both_honoured_and_without_effect() -> None:
    assert not HONOURED.keys() & WITHOUT_EFFECT.keys()


def test_overrides_come_as_the_platform_s_texts(tmp_path: Path) -> None:
    file = tmp_path / "configure_app.toml"
    file.write_text("[app]\ntrain_batch_size = 2048\n")
    assert read_settings(file, {"train_batch_size": "2", "preload_ratio": "0.2"}).train_batch_size == 2
    assert read_settings(tmp_path / "none.toml") == AppSettings()
    file.write_text("[other]\n")
    with pytest.raises(ValueError, match="other"):
        read_settings(file)
    file.write_text("[app\n")
    with pytest.raises(ValueError, match=r"configure_app\.toml"):
        read_settings(file)
