"""Markers, long runs on demand, the public data sets, and the list of requirements that a run proves."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.tiers import TIERS, may_hold, tier_of

ROOT = Path(__file__).resolve().parent
PROCESS_FOLDERS = (ROOT / "tests" / "system", ROOT / "tests" / "launch")
PROCESS_FIXTURES = {"start", "start_command", "network"}
PROVED = pytest.StashKey[dict[str, list[str]]]()
LEFT = pytest.StashKey[Counter[str]]()

_PLUGINS = (
    "arms",
    "bridges",
    "curate",
    "formats",
    "gpu",
    "kaiwu",
    "kit",
    "language",
    "learn",
    "operate",
    "sim2real",
    "tabletop",
    "vision",
)
_MISSING = [name for name in _PLUGINS if importlib.util.find_spec(f"rlenv_{name}") is None]
_MISSING_PLUGINS = re.compile(
    rf"^\s*(?:from|import) (?:rlenv_|plugins\.)(?:{'|'.join(_MISSING) or '(?!)'})\b", re.MULTILINE
)

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
    """Leave out files without a test of the chosen tier, and those of plug-ins that are not installed.

    None leaves the decision to pytest.
    """
    if collection_path.suffix == ".py" and _MISSING_PLUGINS.search(collection_path.read_text(encoding="utf-8")):
        return True
    tier = config.getoption("--tier")
    return True if tier is not None and collection_path.is_file() and not may_hold(collection_path, tier) else None


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    proved: dict[str, list[str]] = defaultdict(list)
    for item in items:
        _mark_by_cost(item)
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
        counts = (f"{name} ({len(proved[name])})" for name in sorted(proved, key=_by_number))
        terminalreporter.write_line("requirements with a test here: " + ", ".join(counts))
    left = config.stash.get(LEFT, Counter())
    if left:
        counts = (f"{name} ({number})" for name, number in sorted(left.items()))
        terminalreporter.write_line("left to other tiers (launch/test --tier NAME): " + ", ".join(counts))


def _by_number(requirement: str) -> tuple[int, ...]:
    return tuple(int(part) for part in requirement.lstrip("R").split("."))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets that lies beside a developer's checkout; tests skip where it does not."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no example data sets at {folder}")
    return folder
