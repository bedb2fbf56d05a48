"""Processes that draw: their errors are one line, and their end is not the server's."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal import SourceError
from rlenv_data_browser.drawing import DrawingProcesses
from tests.fakes import until


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[DrawingProcesses]:
    drawing = DrawingProcesses({}, tmp_path / "tiles", 1)
    yield drawing
    drawing.close()


def test_a_process_that_ends_is_said_and_replaced(run: Path, processes: DrawingProcesses) -> None:
    assert processes.call("curves", str(run), "1", 9)["frames"] == 25
    with pytest.raises(SourceError, match="no episode 9"):
        processes.call("tile", str(run), "9")
    with pytest.raises(SourceError, match="could not be drawn"):
        processes.call("frames", str(run), "1", "top", None, 10)
    (child,) = multiprocessing.active_children()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSEGV)
    with pytest.raises(SourceError, match="has ended"):
        processes.call("curves", str(run), "1", 9)
    assert processes.call("curves", str(run), "1", 9)["frames"] == 25
    processes.close()
    until(lambda: not multiprocessing.active_children())
    with pytest.raises(SourceError):
        processes.call("curves", str(run), "1", 9)
