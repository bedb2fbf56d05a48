"""Projects of every year, run unchanged in one process; their test; and written projects that learn."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import rlenv_robot as rr
from plugins.kaiwu.tests.conftest import LENGTH, Corridor
from rlenv_kaiwu.project import open_project
from rlenv_kaiwu.run import check_project, run_project
from rlenv_kaiwu.session import Budget
from rlenv_robot.env import Environment

pytest.importorskip("torch")

YEARS = ("document", "2024", "2025", "2026")


@pytest.fixture(autouse=True)
def imports_stay() -> object:
    """Leave no module of a project or of the framework behind."""
    before, path = set(sys.modules), list(sys.path)
    yield
    left = {name for name in set(sys.modules) - before if name.partition(".")[0] in ("agent_q", "conf", "tools")}
    left |= {name for name in sys.modules if name.partition(".")[0] in ("kaiwu_agent", "kaiwudrl", "common_python")}
    assert not left
    assert sys.path == path


def table_of(out: Path, number: int) -> list[list[float]]:
    table: list[list[float]] = json.loads((out / "ckpt" / f"model.ckpt-{number}.json").read_text())
    return table


@pytest.mark.parametrize("year", YEARS)
def test_a_project_of_each_year_learns_the_corridor(
    year: str, write_project: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, out = write_project(year), tmp_path / "out"
    project = open_project(folder)
    assert project.style == year
    outcome = run_project(project, Environment(Corridor()), out=out, budget=Budget(episodes=80))
    assert outcome.ended.endswith("episodes")
    assert outcome.updates > 0
    assert outcome.train_step in outcome.models
    table = table_of(out, outcome.train_step)
    assert all(forth > back for back, forth in table[: LENGTH - 1])
    lines = [json.loads(line) for line in (out / "monitor.jsonl").read_text().splitlines()]
    assert min(line["metrics"]["episode_length"] for line in lines) == LENGTH - 1
    with zipfile.ZipFile(out / "models" / f"{project.name}-{outcome.train_step}.zip") as archive:
        names = archive.namelist()
    assert f"ckpt/model.ckpt-{outcome.train_step}.json" in names
    assert "agent_q/workflow/train_workflow.py" in names


def test_a_run_through_the_pool_repeats_and_uses_every_sample_once_in_order(
    write_project: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = write_project("2025")
    outcomes = [
        run_project(folder, Environment(Corridor()), out=tmp_path / name, budget=Budget(updates=20), through_pool=True)
        for name in ("a", "b")
    ]
    assert outcomes[0].steps == outcomes[1].steps >= 20 * 8
    assert len(outcomes[0].models) <= 3  # modelpool_max_save_model_count
    assert table_of(tmp_path / "a", 20) == table_of(tmp_path / "b", 20)


def test_a_run_goes_on_from_its_newest_model(write_project: Callable[[str], Path], tmp_path: Path) -> None:
    folder, out = write_project("2024"), tmp_path / "out"
    first = run_project(folder, Environment(Corridor()), out=out, budget=Budget(updates=7))
    second = run_project(folder, Environment(Corridor()), out=out, budget=Budget(updates=5), resume=True)
    assert (first.train_step, second.train_step, second.updates) == (7, 12, 5)
    with pytest.raises(ValueError, match="resume"):
        run_project(folder, Environment(Corridor()), out=tmp_path / "new", budget=Budget(updates=1), resume=True)


def test_a_run_begins_with_the_preloaded_model(write_project: Callable[[str], Path], tmp_path: Path) -> None:
    folder = write_project("2026")
    settings = folder / "conf" / "configure_app.toml"
    settings.write_text(settings.read_text() + "preload_model = true\npreload_model_id = 40052\n")
    with pytest.raises(ValueError, match="40052"):
        run_project(folder, Environment(Corridor()), out=tmp_path / "out", budget=Budget(updates=1))
    (folder / "agent_q" / "ckpt").mkdir()
    table = [[9.0, 3.0]] * LENGTH
    (folder / "agent_q" / "ckpt" / "model.ckpt-40052.json").write_text(json.dumps(table))
    outcome = run_project(folder, Environment(Corridor()), out=tmp_path / "out", budget=Budget(steps=5))
    assert table_of(tmp_path / "out", outcome.train_step)[LENGTH - 2] == [9.0, 3.0]


@pytest.mark.parametrize("year", YEARS)
def test_the_train_test_passes_after_one_call_of_learn(
    year: str, write_project: Callable[[str], Path], tmp_path: Path
) -> None:
    outcome = check_project(write_project(year), Environment(Corridor()), out=tmp_path / "out")
    assert (outcome.updates, list(outcome.models)) == (1, [1])


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("agent_q/workflow/train_workflow.py", "agent.learn(sample_process(collector))", "return", "never learned"),
        ("agent_q/workflow/train_workflow.py", "agent.load_model(", "logger.error('flat'); agent.load_model(", "flat"),
        ("agent_q/agent.py", "model.ckpt-{id}.json\", \"w\"", "other-{id}.json\", \"w\"", "model.ckpt-1"),
        ("agent_q/agent.py", "import json", "import json, kaiwudrl.server.learner.learner", "kaiwudrl.server"),
        ("agent_q/agent.py", "import json", "import json, no_such_package", "no_such_package"),
    ],
)  # fmt: skip
def test_the_train_test_names_the_fault(
    file: str, old: str, new: str, message: str, write_project: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = write_project("2025")
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=message):
        check_project(folder, Environment(Corridor()), out=tmp_path / "out")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("algorithm", "steps"), [("ppo", 12_000), ("dqn", 9_000)])
def test_a_written_project_learns_to_reach(algorithm: str, steps: int, tmp_path: Path) -> None:
    from rlenv_kaiwu.templates import write_project

    folder, out = tmp_path / "project", tmp_path / "out"
    write_project(folder, "so101-reach", algorithm)
    import torch

    torch.manual_seed(0)
    run_project(folder, rr.make("so101-reach"), out=out, budget=Budget(steps=steps), seed=0)
    rewards = [json.loads(line)["metrics"]["reward"] for line in (out / "monitor.jsonl").read_text().splitlines()]
    first, last = (sum(part) / len(part) for part in (rewards[:50], rewards[-50:]))
    print(f"{algorithm}: {first:.1f} -> {last:.1f}")
    assert last > first + 5


@pytest.mark.parametrize(
    ("environment", "algorithm"), [("go2-walk", "ppo"), ("so101-push", "ppo"), ("so101-reach", "dqn")]
)
def test_a_written_project_passes_its_test(environment: str, algorithm: str, tmp_path: Path) -> None:
    from rlenv_kaiwu.templates import write_project

    write_project(tmp_path / "project", environment, algorithm)
    assert open_project(tmp_path / "project").environment == environment
    outcome = check_project(tmp_path / "project", rr.make(environment), out=tmp_path / "out")
    assert outcome.updates == 1
    with pytest.raises(FileExistsError):
        write_project(tmp_path / "project", environment, algorithm)
