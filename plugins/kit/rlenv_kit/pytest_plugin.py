"""Run conformance checks as pytest tests; a command-line option or a line of configuration names the subjects.

On the command line::

    pytest -p rlenv_kit.pytest_plugin --conformance my_module:make

In ``pyproject.toml``, beside a project's own tests::

    [tool.pytest.ini_options]
    addopts = "-p rlenv_kit.pytest_plugin --conformance my_module:make"
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from rlenv_kit.judge import judge
from rlenv_kit.report import Report

__all__ = ["ConformanceItem", "pytest_addoption", "pytest_collection_modifyitems"]


class ConformanceItem(pytest.Item):
    """A test of one subject, which fails with a line for each finding."""

    def runtest(self) -> None:
        """Check the subject in a separate process, so that a crash of that process fails this test only.

        Raises:
            pytest.fail.Exception: a check failed, or a real machine would move.
        """
        steps: int = self.config.getoption("conformance_steps")
        seed: int = self.config.getoption("conformance_seed")
        limit_s: float = self.config.getoption("conformance_time_limit")
        reports = judge(self.name, steps=steps, seed=seed, time_limit_s=limit_s or math.inf, may_go=self._may_go)
        for report in reports:
            self.add_report_section("call", "conformance", "\n".join(report.lines(verbose=True)))
            self.user_properties.append((report.subject, report.summary))
        if not all(report.passed for report in reports):
            pytest.fail(_findings(reports), pytrace=False)

    def _may_go(self, is_real: bool, motion: list[str]) -> None:
        if is_real:
            pytest.fail(
                f"{self.name} may move a real machine, which pytest can't confirm: use rlenv-robot check {self.name}",
                pytrace=False,
            )

    def reportinfo(self) -> tuple[str, None, str]:
        """Return the test's place and name, for pytest's report."""
        return "conformance", None, f"conformance of {self.name}"


def _findings(reports: Sequence[Report]) -> str:
    return "\n".join(line for report in reports for line in (*map(str, report.failures), report.summary))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options ``--conformance`` and those that bound its checks."""
    group = parser.getgroup("conformance", "contracts of T/CCF 0002-2025")
    group.addoption(
        "--conformance", action="append", default=[], metavar="NAME",
        help="check a subject of rlenv-robot check: a name, a file, or module:factory; may be given several times",
    )  # fmt: skip
    group.addoption("--conformance-steps", type=int, default=30, help="length of each trial episode (default: 30)")
    group.addoption(
        "--conformance-time-limit", type=float, default=0.0, metavar="SECONDS",
        help="time limit of each subject; its test fails if not all checks were reached (default: 0, none)",
    )  # fmt: skip
    group.addoption("--conformance-seed", type=int, default=0, help="seed of all random draws (default: 0)")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each subject. ``-k`` selects tests by the subject's name."""
    names: list[str] = config.getoption("conformance")
    items += [ConformanceItem.from_parent(session, name=name) for name in names]
