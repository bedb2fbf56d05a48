"""Tests that tests notice small changes of the modules that keep an arm safe."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.mutation import run
from tests.mutation.mutants import mutants_of


def changed(*arguments: str, timeout_s: float) -> None:
    """Have changes tried in a process of their own, and show what it printed where one survives."""
    command = [sys.executable, "tests/mutation/run.py", *arguments]
    done = subprocess.run(command, cwd=run.ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_of_each_module_are_there() -> None:
    missing = [file for files in run.TESTS.values() for file in files if not (run.ROOT / file).is_file()]
    assert missing == []


def test_every_explanation_is_of_a_change_that_can_be_made() -> None:
    """An explanation of code that is gone would excuse the next code of the same text."""
    there = {(module, mutant.key) for module in run.TESTS for mutant in mutants_of(run.ROOT / module, module)}
    assert sorted(set(run.explained()) - there) == []
    assert {explanation.kind for explanation in run.explained().values()} <= run.KINDS
    assert all(explanation.why.endswith(".") for explanation in run.explained().values())


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_most_dangerous_changes_are_noticed() -> None:
    changed("--dangerous", timeout_s=590)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("module", run.COMPLETE)
def test_every_change_is_noticed_or_explained(module: str) -> None:
    changed(module, timeout_s=6 * 3600)
