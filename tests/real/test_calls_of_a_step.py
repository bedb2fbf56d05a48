"""The number of our own calls in one remote step: it does not depend on the machine, and shows what a change costs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

MOST_CALLS = 84
"""In all threads together. Two check what the sender may do (`real.protocol.access`), three judge the outputs."""


@pytest.fixture(scope="module")
def calls():
    """Return the benchmark that counts the calls."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "calls.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_calls", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_remote_step_in_lockstep_makes_a_bounded_number_of_calls(calls):
    """A busy machine answers some steps so late that copies of them are sent; they are left out."""
    totals = [
        sum(number for (thread, _, _), number in step.items() if thread != "rlenv-robot connections")
        for step in calls.remote(30, lockstep=True)
    ]
    assert min(totals) <= MOST_CALLS
