"""Timing and randomisation, from a profile or given, reach the simulation, its page and its record."""

from __future__ import annotations

import argparse
import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Guard
from real import Server
from real.client.connection import Delays
from rlenv_kit.cli.check import run_protocol
from rlenv_kit.protocol_page import protocol_document
from rlenv_robot import ProfileError, SpecError
from rlenv_robot.cli.main import main
from rlenv_robot.config.sim_settings import fit_timing, timing_of
from sim.robot import SimRobot
from sim.robots.twin import so101_twin

PROFILE = """
[task]
name = "so101-reach"
[task.options]
steps = 6
[timing]
command_delay = {uniform = [0.01, 0.09]}
sensor_rate = {joint_position = 50.0}
[randomise]
"actuator.*.kp" = {log_uniform = [0.7, 1.4], scale = true}
"opt.gravity[2]" = {normal = [-9.81, 0.02, -9.9, -9.7], unit = "m/s^2"}
"""


@pytest.fixture
def profile(tmp_path: Path) -> rr.config.profile.Profile:
    (tmp_path / "p.toml").write_text(PROFILE, encoding="utf-8")
    return rr.load_profile(tmp_path / "p.toml")


def _episode(env: Any) -> dict[str, Any]:
    obs = env.reset({"seed": 4})
    while not obs["truncated"]:
        action = {"joint_target": np.full(6, 0.2, np.float32)}
        obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
    return obs


def test_one_environment_draws_what_the_batch_draws(profile: Any) -> None:
    """Although the batch leaves the parts out that are only looked at."""
    one = rr.make("so101-reach", profile=profile)
    many = rr.make_vector("so101-reach", 2, seed=4, profile=profile)
    first, firsts = one.reset({"seed": 4}), many.reset()
    drawn = first["extra_info"]["randomisation"]
    assert len(drawn) == 9
    for name, value in drawn.items():
        assert firsts["extra_info"]["randomisation"][name][0] == value
    for step in range(5):
        target = np.random.default_rng(step).uniform(-0.1, 0.4, (2, 6)).astype(np.float32)
        table = {"env_id": one.env_id, "frame_no": first["frame_no"], "action": {"joint_target": target[0]}}
        first, _ = one.step(table)  # type: ignore[arg-type]
        table = {"env_id": many.env_ids, "frame_no": firsts["frame_no"], "action": {"joint_target": target}}
        firsts, _ = many.step(table)
        assert "randomisation" not in first["extra_info"]
        for name, value in first["observation"].items():
            np.testing.assert_array_equal(value, firsts["observation"][name][0], err_msg=f"{name} at step {step}")
    one.close()
    many.close()


def test_what_was_drawn_is_recorded_with_each_episode_and_hidden_at_inference(profile: Any, tmp_path: Path) -> None:
    from recorder.read.reader import LogReader

    with rr.make("so101-reach", profile=profile, record=tmp_path / "runs", mode="inference", steps=3) as env:
        assert "randomisation" not in env.reset({"seed": 4})["extra_info"]
        _episode(env)
    with rr.make("so101-reach", profile=profile) as same:
        drawn = same.reset({"seed": 4})["extra_info"]["randomisation"]
    (folder,) = (tmp_path / "runs").iterdir()
    episodes = LogReader(folder).episodes()
    told = episodes[0].begin["controller"]
    assert told["randomisation"] == pytest.approx(drawn)
    assert ["command_delay", "uniform from 0.01 to 0.09", "s"] in told["conditions"]["timing"]


def test_the_page_shows_it_with_units(profile: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rr.make("so101-reach", profile=profile) as env, rr.make("so101-reach") as plain:
        page = protocol_document(env)
        assert "Drawn for each episode" not in protocol_document(plain)
    assert "| `timing.command_delay` | uniform from 0.01 to 0.09 | s |" in page
    assert "| `timing.sensor_rate.joint_position` | 50 | Hz |" in page
    assert "| `randomise.actuator.*.kp` | times log-uniform from 0.7 to 1.4 | 1 |" in page
    assert "deviation 0.02, within -9.9 to -9.7 | m/s^2 |" in page
    assert main(["protocol", "so101-reach", "--profile", str(tmp_path / "p.toml")]) == 0
    assert "timing.command_delay" in capsys.readouterr().out
    wrong = argparse.Namespace(name="go", profile=str(tmp_path / "p.toml"), out=None, format="markdown")
    with pytest.raises(ValueError, match=r"task.name is 'so101-reach', but the command says 'go'"):
        run_protocol(wrong)


def test_what_is_given_goes_before_the_profile(profile: Any) -> None:
    with rr.make("so101-reach", profile=profile, timing={"command_delay": 0.05}) as env:
        drawn = env.reset({"seed": 1})["extra_info"]["randomisation"]
        assert drawn["timing.command_delay"] == 0.05
        assert "randomise" in env.description.conditions


def test_it_is_for_simulations() -> None:
    with pytest.raises(ValueError, match=r"timing .* 'sim'"):
        rr.make("so101-reach", "tcp://127.0.0.1:1", timing={"command_delay": 0.05})
    with pytest.raises(SpecError, match=r"randomise.body.cube.mass: no body is called 'cube'"):
        rr.make_vector("so101-reach", 2, randomise={"body.cube.mass": {"uniform": [1, 2], "scale": True}})


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ("[timing]\ncommand_lag = 1", "timing.command_lag", "is unknown, allowed are"),
        ("[timing]\ncommand_delay = {uniform = [2, 1]}", "timing.command_delay", "uniform is from 2.0 to 1.0"),
        ("[timing]\ncommand_delay = 3", "timing", "a command may be 3 s late"),
        ("timing = 3", "timing", "it must be a table"),
        ('[randomise]\n"body.x.mass" = 3', "randomise.body.x.mass", "it must be a table"),
        ('[randomise]\n"body.x.mass" = {uniform = [1, 2]}', "randomise.body.x.mass", "unit is missing"),
    ],
)
def test_a_profile_s_mistakes_are_told_with_file_and_key(tmp_path: Path, text: str, key: str, problem: str) -> None:
    (tmp_path / "p.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=problem) as refused:
        rr.load_profile(tmp_path / "p.toml")
    assert str(refused.value).startswith(f"{tmp_path / 'p.toml'}: {key}: ")


def test_a_served_simulation_has_its_profile_s_timing(tmp_path: Path) -> None:
    from rlenv_robot.serving import build_robot

    (tmp_path / "p.toml").write_text('[robot]\nwhere = "sim"\n[timing]\nreading_delay = 0.05', encoding="utf-8")
    robot = build_robot(rr.load_profile(tmp_path / "p.toml"))
    try:
        assert set(robot.reset({}).age_ns.values()) == {50_000_000}
    finally:
        robot.close()


# -- Timing fitted to runs recorded through a network of known delay -----------------------------------------


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
    with pytest.raises(rr.SourceError, match="no episode holds the delays"):
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
        delays.add(((asked, came, left, left - hour + 5_000_000), left - 2_000_000))
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
    delays.add(((1_000_000_000, 1_004_000_000, 1_010_000_000, 1_015_000_000), 33_000_000 + 20_000_000_000))
    assert delays.to_dict(0)["reading_s"][0] == 0.005


def test_several_connections_count_by_their_steps() -> None:
    fast = {"steps": 3000, "command_s": [0.001] * 21, "reading_s": [0.001] * 21}
    slow = {"steps": 1000, "command_s": [0.011] * 21, "reading_s": [0.001] * 21}
    jitter = timing_of([fast, slow]).command_jitter
    assert float(jitter.quantile(np.array(0.5))) == 0.0  # type: ignore[union-attr]
    assert float(jitter.quantile(np.array(0.9))) == pytest.approx(0.010)  # type: ignore[union-attr]
