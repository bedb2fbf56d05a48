"""What the bridge measured becomes a simulation's timing: recorded over the wire, through a network of known delay."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Guard
from real import Server
from real.client.connection import Delays
from rlenv_robot.config.timing_fit import fit_timing, timing_of
from sim.robot import SimRobot
from sim.robots.twin import so101_twin

WAY_S = 0.02


class Network:
    """A TCP connection to a server that hands everything on `WAY_S` later, in either direction."""

    def __init__(self, port: int) -> None:
        self._port, self._open = port, [socket.create_server(("127.0.0.1", 0))]
        self.address = f"tcp://127.0.0.1:{self._open[0].getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._open[0].accept()
                there = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                return
            self._open += [here, there]
            for source, sink in ((here, there), (there, here)):
                line: queue.Queue[tuple[float, bytes]] = queue.Queue()
                for target, arguments in ((self._take, (source, line)), (self._give, (line, sink))):
                    self._threads.append(threading.Thread(target=target, args=arguments))
                    self._threads[-1].start()

    @staticmethod
    def _take(source: socket.socket, line: queue.Queue[tuple[float, bytes]]) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            line.put((time.monotonic() + WAY_S, data))

    @staticmethod
    def _give(line: queue.Queue[tuple[float, bytes]], sink: socket.socket) -> None:
        while True:
            due, data = line.get()
            if not data:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                sink.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)


@pytest.fixture
def network() -> Iterator[Network]:
    with Server(Guard(SimRobot(so101_twin(), real_time=True))) as server:
        made = Network(int(server.address.rpartition(":")[2]))
        yield made
        made.close()


def test_a_record_over_the_wire_gives_the_network_s_delays(network: Network, tmp_path: Path) -> None:
    with rr.make("so101-reach", network.address, record=tmp_path / "runs", steps=40) as env:
        obs = env.reset({"seed": 1})
        while not obs["truncated"]:
            action = {"joint_target": obs["observation"]["joint_goal"]}
            obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    (run,) = (tmp_path / "runs").iterdir()
    timing = fit_timing(run)
    told = dict(timing.values())
    assert told["command_delay"].low >= WAY_S - 0.005
    assert timing.reading_s >= WAY_S
    # The machine may be busy, so upper ends are wide; the middle of both ways together is the network's.
    parts = [told[f"{kind}_{part}"] for kind in ("command", "reading") for part in ("delay", "jitter")]
    middle = sum(float(part.quantile(np.array(0.5))) for part in parts)
    assert 2 * WAY_S <= middle <= 2 * WAY_S + 0.1
    with rr.make_vector("so101-reach", 2, seed=0, timing=timing) as envs:
        obs = envs.reset()
        for _ in range(3):
            table = {"env_id": envs.env_ids, "frame_no": obs["frame_no"]}
            obs, _ = envs.step(
                {**table, "action": {"joint_target": obs["observation"]["joint_goal"] + np.float32(0.05)}}
            )
        late = obs["extra_info"]["applied"]["joint_target"] - envs.batch.held()["joint_target"]  # type: ignore[attr-defined]
        assert envs.batch.timing is timing  # type: ignore[attr-defined]
        assert (np.abs(late) < 0.2).all()


def test_a_record_that_was_not_made_over_the_bridge_is_refused(tmp_path: Path) -> None:
    with rr.make("so101-reach", record=tmp_path, steps=2) as env:
        env.reset()
    (run,) = tmp_path.iterdir()
    with pytest.raises(rr.SourceError, match="no episode tells how late"):
        fit_timing(run)


def test_delays_are_told_on_one_timeline() -> None:
    """Their clock is an hour ahead; commands take 3 to 13 ms, readings 7 ms of which 2 before they leave."""
    delays, hour = Delays(), 3600 * 10**9
    assert delays.to_dict(hour) == {}
    rng = np.random.default_rng(0)
    ways = rng.uniform(0.003, 0.013, 5000)
    for step, way in enumerate(ways.tolist()):
        asked = step * 33_000_000
        came = asked + int(way * 1e9) + hour
        left = came + 20_000_000
        delays.add(asked, came, left, left - hour + 5_000_000, left - 2_000_000)
    told = delays.to_dict(hour)
    assert told["steps"] == 2000
    np.testing.assert_allclose(told["command_s"], np.quantile(ways[-2000:], np.linspace(0, 1, 21)), atol=1e-6)
    np.testing.assert_allclose(told["reading_s"], 0.007, atol=1e-6)
    timing = timing_of([told], refused=500)
    assert timing.command_loss.high == 0.2  # type: ignore[union-attr]
    assert timing.command_delay.low == pytest.approx(0.003, abs=1e-4)  # type: ignore[union-attr]
    assert timing.command_s == pytest.approx(0.013, abs=1e-4)
    middle = float(timing.command_jitter.quantile(np.array(0.5)))  # type: ignore[union-attr]
    assert middle == pytest.approx(0.005, abs=5e-4)
    assert timing.reading_s == pytest.approx(0.007)


def test_a_robot_s_own_clock_that_is_no_clock_is_not_believed() -> None:
    delays = Delays()
    delays.add(1_000_000_000, 1_004_000_000, 1_010_000_000, 1_015_000_000, 33_000_000 + 20_000_000_000)
    assert delays.to_dict(0)["reading_s"][0] == 0.005


def test_several_connections_count_by_their_steps() -> None:
    fast = {"steps": 3000, "command_s": [0.001] * 21, "reading_s": [0.001] * 21}
    slow = {"steps": 1000, "command_s": [0.011] * 21, "reading_s": [0.001] * 21}
    jitter = timing_of([fast, slow]).command_jitter
    assert float(jitter.quantile(np.array(0.5))) == 0.0  # type: ignore[union-attr]
    assert float(jitter.quantile(np.array(0.9))) == pytest.approx(0.010)  # type: ignore[union-attr]
