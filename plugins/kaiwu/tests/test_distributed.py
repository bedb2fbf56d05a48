"""Distributed runs on Ray: counts, order, models, killed processes, and going on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("torch")

from plugins.kaiwu.tests.conftest import LENGTH, Corridor  # noqa: E402
from rlenv_kaiwu.distributed import DistributedOutcome, run_distributed  # noqa: E402
from rlenv_kaiwu.env import KaiwuEnv  # noqa: E402
from rlenv_kaiwu.journal import SampleJournal  # noqa: E402
from rlenv_kaiwu.pools import JOURNAL  # noqa: E402
from rlenv_kaiwu.project import open_project  # noqa: E402
from rlenv_kaiwu.samples import SamplePool  # noqa: E402
from rlenv_kaiwu.session import Budget  # noqa: E402
from rlenv_robot.env import Environment  # noqa: E402

pytestmark = [
    pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240),
    # Ray's own, on Python's side: unclosed files and sockets of its processes
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]  # fmt: skip


def make_corridor(counter: Any, style: Any, seed: int | None) -> KaiwuEnv:
    return KaiwuEnv(Environment(Corridor()), style, counter=counter, seed=seed)


def numbered(folder: Path) -> Path:
    """Let the project's samples carry process and number, and its learner write down those that it gets."""
    replacements = {
        "agent_q/feature/definition.py": [
            ("done=None", "done=None, process=None, number=None"),
            ("g_data.rew, g_data.done]", "g_data.rew, g_data.done, g_data.process, g_data.number]"),
            ("done=s_data[4])", "done=s_data[4], process=s_data[5], number=s_data[6])"),
        ],
        "agent_q/workflow/train_workflow.py": [
            ("done=done))", "done=done, process=os.getpid(), number=next(NUMBERS)))"),
            ("import os", "import os, itertools\nNUMBERS = itertools.count()"),
        ],
        "agent_q/agent.py": [
            ("        for sample in list_sample_data:",
             "        with open(\"learned.txt\", \"a\") as file:\n"
             "            print(*(f\"{int(s.process)}:{int(s.number)}\" for s in list_sample_data), file=file)\n"
             "        for sample in list_sample_data:"),
        ],
    }  # fmt: skip
    for file, pairs in replacements.items():
        text = (folder / file).read_text()
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new, 1)
        (folder / file).write_text(text)
    return folder


def learned(folder: Path) -> list[tuple[int, int]]:
    words = (folder / "learned.txt").read_text().split()
    return [(int(process), int(number)) for process, _, number in (word.partition(":") for word in words)]


def test_samples_reach_the_learner_in_order_and_none_is_lost(
    write_project: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, out = numbered(write_project("2025")), tmp_path / "out"
    outcome = run_distributed(
        open_project(folder), make_corridor, out=out, workflows=2, budget=Budget(updates=40), seed=0
    )
    assert (outcome.updates, outcome.train_step, outcome.learned) == (40, 40, 320)
    assert outcome.counts.inserted == outcome.learned + outcome.left
    assert outcome.counts.dropped == outcome.counts.repeated == 0
    assert outcome.started == {"learner": 1, "workflow": 2, "sample pool": 1}
    assert len(outcome.models) == 3  # modelpool_max_save_model_count
    assert max(outcome.models) == 40
    samples = learned(folder)
    assert len(samples) == 320
    processes = {process for process, _ in samples}
    assert len(processes) <= 2  # on a busy machine the second may begin when all is learned
    for process in processes:
        numbers = [number for owner, number in samples if owner == process]
        assert numbers == list(range(len(numbers)))
    assert list((out / "models").glob("*.zip")) == []  # the workflow saves none itself
    # and on: the samples that were left come first
    more = run_distributed(
        open_project(folder), make_corridor, out=out, workflows=1, budget=Budget(updates=5), resume=True, seed=5
    )
    assert more.train_step == 45
    assert more.counts.inserted == more.learned + more.left
    if outcome.left >= 8:
        left = learned(folder)[320:328]
        assert len(processes | {process for process, _ in left}) <= 2, "of the run before, not of this one's workflow"


def test_remote_actors_choose_the_actions_with_the_learner_s_models(
    write_project: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = write_project("2026")
    settings = folder / "conf" / "configure_app.toml"
    settings.write_text(settings.read_text() + 'predict_local_or_remote = "remote"\nmodel_file_sync_per_minutes = 0\n')
    outcome = run_distributed(
        open_project(folder), make_corridor, out=tmp_path / "out", workflows=1, budget=Budget(episodes=60)
    )
    roles = ("learner", "actor", "workflow", "sample pool")
    assert outcome.started == dict.fromkeys(roles, 1)
    table = json.loads((tmp_path / "out" / "ckpt" / f"model.ckpt-{outcome.train_step}.json").read_text())
    assert all(forth > back for back, forth in table[: LENGTH - 1])


def test_killed_processes_of_each_kind_are_started_again_and_lose_no_sample(
    write_project: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, out = numbered(write_project("2025")), tmp_path / "out"
    settings = folder / "conf" / "configure_app.toml"
    settings.write_text(settings.read_text() + 'predict_local_or_remote = "remote"\nmodel_file_sync_per_minutes = 0\n')
    found: list[DistributedOutcome] = []

    def run() -> None:
        found.append(
            run_distributed(
                open_project(folder), make_corridor, out=out, workflows=1, budget=Budget(updates=10_000, seconds=150),
                pool_name="pool", environments_apart=True,
            )
        )  # fmt: skip

    with_ray = threading.Thread(target=run)
    with_ray.start()
    pool = _wait_for(lambda: ray.is_initialized() and _pool())
    roles = ("learner", "sample pool", "actor", "workflow", "environment")
    killed = []
    for role in roles:
        before = _wait_for(lambda role=role: _moving(pool, role))
        pid = _progress(pool).processes[role][-1]
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)
        _wait_for(lambda role=role, before=before: _grown(pool, role, before))
    ray.get(pool.stop.remote("the test is over"))
    with_ray.join(120)
    assert found
    outcome = found[0]
    assert outcome.started == dict.fromkeys(roles, 2)
    assert outcome.train_step > 0
    # A batch that a killed learner had learned and not yet confirmed is learned once more, and counts once.
    assert outcome.learned + outcome.left == outcome.counts.inserted
    assert outcome.counts.dropped == 0
    samples = learned(folder)
    for process in {process for process, _ in samples}:
        numbers = sorted({number for owner, number in samples if owner == process})
        assert numbers == list(range(len(numbers))), "in the pool's journal nothing is missing"


def test_a_killed_command_goes_on_with_every_sample_that_its_pool_had_taken(
    write_project: Callable[[str], Path], tmp_path: Path
) -> None:
    folder, out = numbered(write_project("2025")), tmp_path / "out"
    settings = folder / "conf" / "configure_app.toml"
    settings.write_text(settings.read_text() + "learner_train_sleep_seconds = 0.05\n")  # so that the pool is full
    environment = f"{Corridor.__module__}:Corridor"
    command = [
        sys.executable, "-W", "ignore", "-m", "rlenv_robot", "kaiwu", "run", str(folder), "--env", environment,
        "--distributed", "--out", str(out), "--seconds", "150",
    ]  # fmt: skip
    first = subprocess.Popen([*command, "--updates", "100000"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        _wait_for(lambda: (folder / "learned.txt").is_file() and len(learned(folder)) > 160)
        processes = _replayed(folder, out)[1]["processes"]
    finally:
        first.kill()
        first.wait()
    assert set(processes) == {"learner", "workflow", "sample pool"}
    _wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for group in processes.values() for pid in group))
    pool, _ = _replayed(folder, out)
    (taken,) = pool.newest.values()
    left = len(pool.contents())
    assert left >= 8

    again = subprocess.run([*command, "--updates", "20", "--resume"], capture_output=True, text=True, timeout=200)
    assert again.returncode == 0, again.stderr
    assert "20 of 20 updates" in again.stdout
    (process,) = processes["workflow"]
    numbers = [number for owner, number in learned(folder) if owner == process]
    assert sorted(set(numbers)) == list(range(taken))
    assert len(numbers) - taken <= 8  # a batch that was learned, but not confirmed before the kill


def _replayed(folder: Path, out: Path) -> tuple[SamplePool, Any]:
    """Return the pool and the counts of a run from its journal."""
    pool, journal = SamplePool(open_project(folder).settings), SampleJournal(out / JOURNAL)
    journal.replay(pool)
    return pool, journal.progress


def _wait_for(condition: Callable[[], Any], seconds: float = 100.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("it never happened")


def _pool() -> Any:
    try:
        return ray.get_actor("pool")
    except ValueError:
        return None


def _progress(pool: Any) -> Any:
    progress, _, progress.updates = ray.get(pool.progress.remote())
    return progress


def _moving(pool: Any, role: str) -> Any:
    progress = _progress(pool)
    return progress if progress.updates > 5 and progress.processes.get(role) else None


def _grown(pool: Any, role: str, before: Any) -> bool:
    progress = _progress(pool)
    started = len(progress.processes[role]) > len(before.processes[role])
    return started and progress.updates > before.updates + 5
