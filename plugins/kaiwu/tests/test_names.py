"""The framework's modules: offered while a project runs, refused by name where they are not there, gone afterwards."""

from __future__ import annotations

import importlib
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlenv_kaiwu.names import FRAMEWORK, Validity, framework_modules, read_usr_conf

LOGGER = logging.getLogger("test")


def no_test(**named: object) -> None: ...


def test_importing_ours_takes_no_name() -> None:
    code = (
        "import sys, rlenv_kaiwu.run, rlenv_kaiwu.names\n"
        f"assert not set(sys.modules) & {set(FRAMEWORK) | {'tools', 'conf'}!r}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(Path.cwd())})


def test_names_are_there_inside_and_gone_afterwards(tmp_path: Path) -> None:
    folder = Path.cwd()
    with framework_modules(tmp_path, {"algo": "ppo"}, LOGGER, no_test) as names:
        for module in names.modules:
            assert importlib.import_module(module).__name__ == module
        assert importlib.import_module("common_python.config.config_control").CONFIG.algo == "ppo"
        assert Path.cwd() == tmp_path
        with pytest.raises(ValueError, match="one project at a time"):
            framework_modules(tmp_path, {}, LOGGER, no_test).__enter__()
    assert Path.cwd() == folder
    for name in names.modules:
        assert name not in sys.modules
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


@pytest.mark.parametrize(
    "name", ["kaiwudrl.server.learner.learner", "kaiwu_agent.gorge_walk.utils", "arena_proto.x", "tools.no_such_tool"]
)
def test_a_module_that_we_lack_is_refused_with_those_that_we_have(name: str, tmp_path: Path) -> None:
    with (
        framework_modules(tmp_path, {}, LOGGER, no_test),
        pytest.raises(ModuleNotFoundError, match=r"(?s)rlenv-robot does not have.*kaiwu_agent\.agent\.base_agent"),
    ):
        importlib.import_module(name)


def test_the_project_s_own_modules_come_first(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "metrics_utils.py").write_text("def get_training_metrics():\n    return 'own'\n")
    with framework_modules(tmp_path, {}, LOGGER, no_test):
        assert importlib.import_module("tools.metrics_utils").get_training_metrics() == "own"
        assert importlib.import_module("tools.train_env_conf_validate").check_usr_conf({}, LOGGER)
    assert "tools" not in sys.modules


def test_attached_names_are_the_protocol_s(tmp_path: Path) -> None:
    with framework_modules(tmp_path, {}, LOGGER, no_test):
        attached = importlib.import_module("kaiwu_agent.utils.common_func").attached
        protocol = importlib.import_module("kaiwu_agent.agent.protocol.protocol")

        @attached
        def sample_process(frames: object) -> object:
            return frames

        assert protocol.sample_process is sample_process
        with pytest.raises(AttributeError, match="sample_process"):
            _ = protocol.action_process


def test_a_configuration_is_checked_as_both_years_ask(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = Validity((True, "")), Validity((False, "why"))
    assert good
    assert not bad
    valid, message = bad
    assert (valid, message) == (False, "why")
    (tmp_path / "conf.toml").write_text("[env_conf]\nseed = 1\n")
    assert read_usr_conf(str(tmp_path / "conf.toml"), LOGGER) == {"env_conf": {"seed": 1}}
    assert read_usr_conf(str(tmp_path / "none.toml"), LOGGER) is None
    assert "none.toml" in caplog.text


def test_metrics_are_the_run_s(write_project: Callable[[str], Path]) -> None:
    class Run:
        models = None

        def metrics(self) -> dict[str, float]:
            return {"train_global_step": 3.0, "episode_cnt": 2.0}

    with framework_modules(write_project("2026"), {}, LOGGER, no_test) as names:
        names.run = Run()  # type: ignore[assignment]
        collect = importlib.import_module("kaiwudrl.common.monitor.metrics_utils").collect_training_metrics
        assert collect({"basic": {"episode_cnt": "sum", "other": "avg"}, "env": {"other": "avg"}}) == {
            "basic": {"episode_cnt": 2.0}
        }
