"""A virtual board on a thread, and a server of a simple robot."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from real.server.server import Server
from rlenv_power_cut.trial_host import HangingRobot
from rlenv_power_cut.virtual_board import VirtualBoard
from tests.fakes import Integrator


class BoardThread:
    """A virtual board that runs until closed, and the switchings of its supply."""

    def __init__(self, link: Path) -> None:
        self.switchings: list[tuple[bool, int]] = []
        self.board = VirtualBoard(lambda on, now_ns, _: self.switchings.append((on, now_ns)), link)
        self.port = self.board.path
        self.orders: list[str] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self.board.serve_once()
            while self.orders:
                getattr(self.board, self.orders.pop(0))()
        self.board.close()

    @property
    def is_on(self) -> bool:
        return bool(self.switchings) and self.switchings[-1][0]

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@pytest.fixture
def board(tmp_path: Path) -> Iterator[BoardThread]:
    thread = BoardThread(tmp_path / "power-cut")
    yield thread
    thread.close()


@pytest.fixture
def robot() -> HangingRobot:
    return HangingRobot(Integrator())


@pytest.fixture
def server(robot: HangingRobot) -> Iterator[Server]:
    with Server(robot, watchdog_s=0.5) as server:
        yield server
