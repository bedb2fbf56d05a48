"""What all tests share: long runs on demand, the data sets, and which requirement is proved by which test."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]
PROVED = pytest.StashKey[dict[str, list[str]]]()

# Other load on a machine is no failure: hypothesis keeps no time, and every run tries the same examples.
settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    proved: dict[str, list[str]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("soak") and not config.getoption("--soak"):
            item.add_marker(pytest.mark.skip(reason="a long run: give --soak"))
        for marker in item.iter_markers("requirement"):
            for requirement in marker.args:
                proved[requirement].append(item.nodeid)
    config.stash[PROVED] = dict(proved)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    proved = config.stash.get(PROVED, {})
    if proved:
        counts = (f"{name} ({len(proved[name])})" for name in sorted(proved, key=_by_number))
        terminalreporter.write_line("requirements with a test here: " + ", ".join(counts))


def _by_number(requirement: str) -> tuple[int, ...]:
    return tuple(int(part) for part in requirement.lstrip("R").split("."))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets that lies beside a developer's checkout; tests skip where it does not."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no example data sets at {folder}")
    return folder
