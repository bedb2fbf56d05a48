"""The robot's side of the demonstration: a server in a second process, and a fixture that resets the scene."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from hal import DeadlineExceeded, RobotError

__all__ = ["FixtureStandIn", "RobotProcess"]


class FixtureStandIn:
    """Stand in for a fixture (`hal.reset.Fixture`): confirm each reset request at once.

    Attributes:
        asked: how many requests have come.
        address: where the fixture listens, on loopback.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.address = ""
        self._over = threading.Event()
        self._bound: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._answer, name="fixture", daemon=True)

    def __enter__(self) -> FixtureStandIn:
        self._thread.start()
        self.address = self._bound.get(timeout=5)
        return self

    def _answer(self) -> None:
        import zmq

        with zmq.Context() as context, context.socket(zmq.REP) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind("tcp://127.0.0.1:*")
            self._bound.put(socket.getsockopt_string(zmq.LAST_ENDPOINT))
            while not self._over.is_set():
                if socket.poll(100):
                    request = json.loads(socket.recv())
                    self.asked += 1
                    socket.send(json.dumps({"id": request["id"], "ready": True, "note": "scene is set"}).encode())

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(5)


class RobotProcess:
    """Run ``rlenv-robot serve`` as a child process on a free port of loopback.

    Args:
        profile: the TOML file to serve.
        log: the file for the process's output.

    Attributes:
        address: of the server, once it serves.

    Raises:
        RobotError: on entry: the server ended, or did not serve within 30 s.
    """

    def __init__(self, profile: Path, log: Path) -> None:
        self._profile, self._log = profile, log
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._addresses: queue.Queue[str] = queue.Queue()
        self.address = ""

    def __enter__(self) -> RobotProcess:
        command = [sys.executable, "-m", "rlenv_robot", "serve", str(self._profile), "--address", "tcp://127.0.0.1:*"]
        # In a session of its own, so that Ctrl-C reaches only the demonstration, which then ends the server properly.
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        try:
            self.address = self._addresses.get(timeout=30)
        except queue.Empty:
            self.__exit__()
            raise DeadlineExceeded("the robot's server did not start", 30, f"see {self._log}") from None
        if not self.address:
            self.__exit__()
            raise RobotError(f"the robot's server ended before it served: {_tail(self._log)}")
        return self

    def _read(self, stream: IO[str]) -> None:
        with stream, self._log.open("w", encoding="utf-8") as log:
            for line in stream:
                log.write(line)
                log.flush()
                match = re.search(r"at (tcp://\S+)", line)
                if match:
                    self._addresses.put(match.group(1))
        self._addresses.put("")

    def __exit__(self, *exc: Any) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        if self._reader is not None:
            self._reader.join(5)


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(encoding="utf-8").splitlines()[-3:])
