"""Set C: each fault answers a script of calls otherwise than its original, and each correct subject plays.

It names faults that are held out: who works on the kit does not read it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))

from fault_set_c.batch_scripts import BATCH_SCRIPTS, ROWS, Driver
from fault_set_c.registry import ENTRIES, entries, manifest
from fault_set_c.scripts import SCRIPTS, Agent, plain

FAULTS = Path(__file__).parents[1] / "faults"
TABLE_1 = {"env_id", "frame_no", "observation", "terminated", "truncated"}
PARTS = {"environment": (70, 15), "vector": (40, 8)}
ALL = [entry for part in PARTS for entry in entries(part)]
WRONG = [entry.id for entry in ALL if not entry.good]
RIGHT = [entry.id for entry in ALL if entry.good]
ORIGINALS = {entry.original.__name__: entry.original for entry in ALL if not entry.good}


def answers(subject: Any, number: int) -> list[Any]:
    """Return what a subject answers to a script of its part."""

    def make() -> Any:
        if subject.part == "vector":
            return subject.make(ROWS)
        env = subject.make()
        env.test_options = subject.options
        return env

    return scripts(subject)[number](make)


def scripts(subject: Any) -> Any:
    return BATCH_SCRIPTS if subject.part == "vector" else SCRIPTS


@cache
def expected(subject: Any, number: int) -> list[Any]:
    return answers(subject, number)


@pytest.mark.parametrize("name", ORIGINALS)
def test_an_original_answers_alike_twice(name):
    subject = ORIGINALS[name]
    for number in range(len(scripts(subject))):
        assert answers(subject, number) == expected(subject, number), scripts(subject)[number].__name__


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_answers_otherwise_than_its_original(name):
    entry = ENTRIES[name]
    numbers = range(len(scripts(entry.subject)))
    assert any(answers(entry.subject, number) != expected(entry.original, number) for number in numbers), entry.what


@pytest.mark.parametrize("name", RIGHT)
def test_a_correct_subject_plays(name, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # of the slow factories
    entry = ENTRIES[name]
    log: list[Any] = []
    subject = entry.subject.make(*((ROWS,) if entry.part == "vector" else ()))
    with subject:
        agent: Any = Driver(subject, log) if entry.part == "vector" else Agent(subject)
        first = agent.reset(*([{"seed": 1}] if "seed" in _options(subject) else []))
        assert plain(first, subject)["env_id"] == (["list", *(f"<id {row}>" for row in range(ROWS))]
                                                   if entry.part == "vector" else "<id 0>")  # fmt: skip
        steps, begun = 0, int(np.sum(first["frame_no"]))
        while steps < 12 and not np.any(agent.over()):
            seen, paid = agent.step()
            assert TABLE_1 <= seen.keys() <= TABLE_1 | {"extra_info"}
            assert paid.keys() == {"env_id", "frame_no", "reward"}
            assert np.all(np.asarray(paid["frame_no"]) == seen["frame_no"])
            if entry.part == "environment":
                subject.observation.validate(seen["observation"])
            steps += 1
        assert steps > 0
        assert np.any(agent.over()) or int(np.sum(seen["frame_no"])) > begun


def _options(subject: Any) -> Any:
    return ("seed",) if not hasattr(subject, "description") else subject.description.reset_options


def test_the_questions_of_a_seed_differ_between_processes_where_the_fault_says_so():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from fault_set_c.env_quiz import Quiz, QuizHash\n"
        "for of in (Quiz, QuizHash): print(of.make().reset({'seed': 1})['observation']['prompt'], end='|')"
    )
    said = [
        subprocess.run([sys.executable, "-c", code, str(FAULTS)], check=True, capture_output=True, text=True,
                       env={**os.environ, "PYTHONHASHSEED": seed}).stdout.strip().split("|")
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0][0] == said[1][0]
    assert said[0][1] != said[1][1]


@pytest.mark.parametrize("part", PARTS)
def test_the_manifest_lists_the_set(part):
    assert (FAULTS / f"{part}_c.json").read_text(encoding="utf-8") == manifest(part)
    listed = json.loads(manifest(part))
    assert (sum(not one["good"] for one in listed), sum(one["good"] for one in listed)) == PARTS[part]
    spec = importlib.util.spec_from_file_location(f"{part}_c_factories", FAULTS / f"{part}_c.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert all(callable(getattr(module, one["factory"].partition(":")[2])) for one in listed)


@pytest.mark.parametrize("part", PARTS)
def test_the_set_is_spread_over_statements_and_bases(part):
    known = json.loads((FAULTS.parent / "rlenv_kit" / "t_ccf_0002.json").read_text(encoding="utf-8"))["statements"]
    faults = [entry for entry in entries(part) if not entry.good]
    used = Counter(entry.statement for entry in faults)
    assert {entry.statement for entry in entries(part)} <= {one["id"] for one in known} | {"contract"}
    assert max(count for statement, count in used.items() if statement != "contract") <= 4
    assert max(Counter(entry.original for entry in faults).values()) * 4 <= len(faults)
