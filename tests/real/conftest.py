"""A deterministic robot for the wire's tests: an integrator that does what it is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import zmq

from hal import Field, Image, Reading, RobotSpec, RobotStopped, Spec

SPEC = RobotSpec(
    name="integrator",
    sensors=Spec(
        "integrator_sensors",
        (
            Field("position", (2,), "float32", -10, 10, "rad", "where it is", ("a", "b")),
            Field("steps", (), "int64", 0, 2**62, "1", "steps since the reset"),
        ),
    ),
    commands=Spec("integrator_commands", (Field("target", (2,), "float32", -1, 1, "rad", "goal", ("a", "b")),)),
    rate_hz=50.0,
    home={"target": (0.0, 0.0)},
    measured_by={"target": "position"},
)


class Integrator:
    """Goes exactly where it is told; keeps a diary of commands, and obeys the hooks that a test sets."""

    def __init__(self, spec: RobotSpec = SPEC) -> None:
        self.spec = spec
        self.commands: list[tuple[float, ...]] = []
        self.resets: list[dict[str, Any]] = []
        self.stops: list[str] = []
        self.closed = 0
        self.threads: set[int] = set()
        self.on_step: Callable[[], None] = lambda: None
        self.on_reset: Callable[[], None] = lambda: None
        self.images: Mapping[str, Image] = {}
        self.faults: tuple[str, ...] = ()
        self.stopping = threading.Event()
        self._position = np.zeros(2, np.float32)

    def reset(self, options: Mapping[str, Any]) -> Reading:
        self.threads.add(threading.get_ident())
        self.stopping.clear()
        self.resets.append(dict(options))
        self.on_reset()
        if self.stopping.is_set():
            raise RobotStopped(self.stops[-1])
        self.commands.clear()
        self._position = np.asarray(options.get("start", {}).get("target", (0.0, 0.0)), np.float32)
        return self._read()

    def step(self, command: Mapping[str, np.ndarray]) -> Reading:
        self.threads.add(threading.get_ident())
        self.on_step()
        self._position = np.array(command["target"])
        self.commands.append(tuple(self._position.tolist()))
        return self._read()

    def _read(self) -> Reading:
        count = np.asarray(len(self.commands), np.int64)
        sensors = {"position": self._position.copy(), "steps": count}
        applied = {"target": self._position.copy()}
        return Reading(sensors, applied, time.monotonic_ns(), {}, self.images, self.faults)

    def stop(self, reason: str) -> None:
        self.stops.append(reason)
        self.stopping.set()

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def robot() -> Integrator:
    return Integrator()


@pytest.fixture
def make_robot() -> type[Integrator]:
    return Integrator


@pytest.fixture
def target() -> Callable[..., dict[str, np.ndarray]]:
    return lambda *values: {"target": np.array(values, np.float32)}


@pytest.fixture
def until() -> Callable[..., None]:
    """Wait for a condition with a generous bound."""

    def wait(condition: Callable[[], Any], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} s"
            time.sleep(0.005)

    return wait


def _ours() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("rlenv-robot")}


def _open_sockets() -> int:
    return sum(not each.closed for each in zmq.Context.instance()._sockets)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Every test ends its threads and closes its sockets."""
    before = _open_sockets()
    yield
    assert not _ours()
    assert _open_sockets() == before
