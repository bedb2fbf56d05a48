"""Markers, long runs on demand, the public data sets, and the list of requirements that a run proves."""

from __future__ import annotations

import functools
import inspect
import os
import re
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from rlenv_robot.config.plugin_names import PLUGINS, missing_plugins
from tests.tiers import TIERS, may_hold, tier_of

ROOT = Path(__file__).resolve().parent
PROCESS_FOLDERS = (ROOT / "tests" / "system", ROOT / "tests" / "launch")
PROCESS_FIXTURES = {"start", "start_command", "network"}
PROVED = pytest.StashKey[dict[str, list[str]]]()
LEFT = pytest.StashKey[Counter[str]]()

_MISSING = missing_plugins()
_FOLDERS = "|".join(package.removeprefix("rlenv_") for package in _MISSING)
_IMPORT = re.compile(rf"^\s*(?:from|import) (?:rlenv_|plugins\.)({_FOLDERS})\b", re.MULTILINE)
"""An import of a plug-in that is not installed, where there is one."""
_NAMES = {
    name: package
    for package in _MISSING
    for group in ("rlenv_robot.tasks", "rlenv_robot.robots")
    for name in PLUGINS[package].get(group, ())
}
"""Name of a task or robot that is not installed -> its plug-in."""
_NAME = re.compile(rf"\b({'|'.join(_NAMES) or '(?!)'})\b")
_NEEDS_ALL = tuple(ROOT / "tests" / folder for folder in ("docs", "golden", "house", "mutation"))
"""Tests of the whole repository."""

# Other load on a machine is no failure: hypothesis keeps no time, and every run tries the same examples.
settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("quick", parent=settings.get_profile("house"), max_examples=20)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=TIERS, help="run the tests of this tier alone (default: those of all)")
    parser.addoption("--soak", action="store_true", help="run the long tests too")
    parser.addoption("--kills", type=int, default=6, help="programs to kill in each test of killed logs (default 6)")
    parser.addoption("--mutations", type=int, default=150, help="damaged data sets to read (default 150)")
    parser.addoption("--kaiwu-projects", help="folder with clones of public Kaiwu projects (default: none)")
    parser.addoption("--trials", type=int, help="trials of each race of a stop (default 40), and of each fault (5)")
    parser.addoption(
        "--strangers", default=sys.executable, metavar="PYTHON", help="interpreter with other servo drivers"
    )
    parser.addoption("--transactions", type=int, default=3000, help="faulty transactions on a servo bus (default 3000)")


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> int:
    """Return how often a race is tried."""
    trials: int | None = request.config.getoption("--trials")
    return 40 if trials is None else trials


@pytest.fixture
def repeats(request: pytest.FixtureRequest) -> int:
    """Return how often a fault is caused that no chance decides about."""
    trials: int | None = request.config.getoption("--trials")
    return 5 if trials is None else trials


@pytest.fixture
def transactions(request: pytest.FixtureRequest) -> int:
    """Return how many faulty transactions a test plays on a servo bus."""
    transactions: int = request.config.getoption("--transactions")
    return transactions


@pytest.fixture(autouse=True)
def scheduling_stays() -> Iterator[None]:
    """Leave no test's real-time priority to the tests after it: such a worker starves the others."""
    if not hasattr(os, "sched_getscheduler"):
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    yield
    after = os.sched_getscheduler(0), os.sched_getparam(0)
    if after != before:
        os.sched_setscheduler(0, *before)
    assert after == before, "the test's own thread has another scheduling policy now"


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; programs started here inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("markexpr") == "quick":
        settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape text that can't be encoded: a worker that sends it dies, and the whole run with it."""
    report = yield
    report.sections = [(name, _encodable(text)) for name, text in report.sections]
    if report.longrepr is not None and not isinstance(report.longrepr, tuple):  # a tuple is a skip's reason
        text = str(report.longrepr)
        if text != _encodable(text):
            report.longrepr = _encodable(text)
    return report


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a test of the chosen tier; None leaves the decision to pytest."""
    tier = config.getoption("--tier")
    return True if tier is not None and collection_path.is_file() and not may_hold(collection_path, tier) else None


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect nothing from a file that needs a plug-in which is not installed, even where a person names the file."""
    return None if reason_to_leave_out(module_path) is None else EmptyModule.from_parent(parent, path=module_path)


class EmptyModule(pytest.Module):
    """A file whose tests are left out; it is not imported."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """Return no tests."""
        return []


@functools.cache
def reason_to_leave_out(path: Path) -> str | None:
    """Return why the tests of a file can't run without the plug-ins that are not installed; None if they can."""
    if not _MISSING or not path.is_file():
        return None
    if any(folder in path.parents for folder in _NEEDS_ALL):
        return "they are about all plug-ins, and some are not there"
    found = _IMPORT.search(path.read_text(encoding="utf-8"))
    return None if found is None else f"plug-in rlenv_{found[1]} is not there"


def _skip_without_plugin(item: pytest.Item) -> None:
    """Skip a test that is marked with a plug-in that is not installed, or that names one of its tasks or robots.

    Raises:
        pytest.UsageError: A marker names no plug-in.
    """
    marked = {f"rlenv_{name}" for marker in item.iter_markers("plugin") for name in marker.args}
    if unknown := marked - {*PLUGINS}:
        raise pytest.UsageError(f"{item.nodeid}: the marker plugin names {sorted(unknown)[0]}, which is no plug-in")
    if not _MISSING:
        return
    function = getattr(item, "function", None)
    source = "" if function is None else inspect.getsource(function)
    needed = marked & {*_MISSING} or {_NAMES[name] for name in _NAME.findall(f"{item.name}\n{source}")}
    if needed:
        item.add_marker(pytest.mark.skip(reason=f"the plug-in {sorted(needed)[0]} is not there"))


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    proved: dict[str, list[str]] = defaultdict(list)
    for item in items:
        _mark_by_cost(item)
        _skip_without_plugin(item)
        if item.get_closest_marker("soak") and not config.getoption("--soak"):
            item.add_marker(pytest.mark.skip(reason="a long run: give --soak"))
        for marker in item.iter_markers("requirement"):
            for requirement in marker.args:
                proved[requirement].append(item.nodeid)
    config.stash[PROVED] = dict(proved)
    _keep_tier(config, items)


def _keep_tier(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of all tiers but the chosen one; count them by tier."""
    chosen = config.getoption("--tier")
    if chosen is None:
        return
    tiers = [tier_of(item) for item in items]
    for item, tier in zip(items, tiers, strict=True):
        if not may_hold(item.path, tier):
            raise pytest.UsageError(f"{item.nodeid} is of the tier {tier}, which leaves its file out: mend may_hold")
    config.stash[LEFT] = Counter(tier for tier in tiers if tier != chosen)
    config.hook.pytest_deselected(items=[item for item, tier in zip(items, tiers, strict=True) if tier != chosen])
    items[:] = [item for item, tier in zip(items, tiers, strict=True) if tier == chosen]


def _mark_by_cost(item: pytest.Item) -> None:
    """Mark tests that start processes, and mark as quick all that are neither these nor slow."""
    if _in_process_folder(item.path) or PROCESS_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.process)
    if not any(item.get_closest_marker(name) for name in ("process", "slow", "soak")):
        item.add_marker(pytest.mark.quick)


@functools.cache
def _in_process_folder(path: Path) -> bool:
    return any(folder in path.parents for folder in PROCESS_FOLDERS)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    proved = config.stash.get(PROVED, {})
    if proved:
        numbered = sorted((name for name in proved if name.startswith("R")), key=_by_number)
        counts = (f"{name} ({len(proved[name])})" for name in numbered)
        terminalreporter.write_line("requirements with a test here: " + ", ".join(counts))
    for reason, count in sorted(_files_left_out(config).items()):
        terminalreporter.write_line(f"{count} {'file' if count == 1 else 'files'} of tests left out: {reason}")
    left = config.stash.get(LEFT, Counter())
    if left:
        counts = (f"{name} ({number})" for name, number in sorted(left.items()))
        terminalreporter.write_line("left to other tiers (launch/test --tier NAME): " + ", ".join(counts))


def _files_left_out(config: pytest.Config) -> Counter[str]:
    """Return how many of the files that were asked for are left out, by the reason."""
    if not _MISSING:
        return Counter()
    asked = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    files = {file for path in asked for file in (path.rglob("test_*.py") if path.is_dir() else [path])}
    return Counter(reason for file in files if (reason := reason_to_leave_out(file)) is not None)


def _by_number(requirement: str) -> tuple[int, ...]:
    return tuple(int(part) for part in requirement.lstrip("R").split("."))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets that lies beside a developer's checkout; tests skip where it does not."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no example data sets at {folder}")
    return folder
