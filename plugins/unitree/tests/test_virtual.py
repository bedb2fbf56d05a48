"""The virtual Go2 drops bad commands, brakes in silence, and sends states that the vendor's checks accept."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hal.errors import RobotError
from rlenv_unitree.channel import Channel, Reader, Sample, Writer, wait_until
from rlenv_unitree.crc import is_valid, sign
from rlenv_unitree.messages import GO_LOW_CMD, GO_LOW_STATE, TOPIC_LOW_CMD, TOPIC_LOW_STATE, Record, go_command
from rlenv_unitree.rpc import CHECK_MODE, MOTION_SWITCHER, RELEASE_MODE, SELECT_MODE, Client
from rlenv_unitree.virtual import VirtualGo2, refusal
from rlenv_unitree.virtual_body import LYING


@pytest.fixture
def robot(channel: Channel) -> VirtualGo2:
    """A virtual Go2 whose loop does not run: tests make its steps."""
    return VirtualGo2(channel)


@pytest.fixture
def states(other_channel: Channel) -> Reader:
    return other_channel.reader(TOPIC_LOW_STATE, GO_LOW_STATE)


@pytest.fixture
def writer(robot: VirtualGo2, states: Reader, other_channel: Channel) -> Writer:
    writer = other_channel.writer(TOPIC_LOW_CMD, GO_LOW_CMD)
    assert writer.wait_for_reader(3.0)
    assert wait_until(states.writers, 3.0)
    return writer


@pytest.fixture
def running(channel: Channel) -> Iterator[Callable[[str], VirtualGo2]]:
    """Return a function that starts a virtual Go2 in a mode."""
    started: list[VirtualGo2] = []

    def start(mode: str) -> VirtualGo2:
        started.append(VirtualGo2(channel, mode))
        started[-1].start()
        return started[-1]

    yield start
    for robot in started:
        robot.stop()


def stiff() -> Record:
    """Return a good command that holds the lying pose."""
    command = go_command()
    motors = command["motor_cmd"]
    motors["q"][:12], motors["dq"], motors["kp"], motors["kd"] = LYING, 0.0, 60.0, 5.0
    sign(command)
    return command


def damaged(member: str) -> Record:
    command = stiff()
    match member:
        case "crc":
            command["crc"] += np.uint32(1)
            return command
        case "head":
            command["head"][0] = 0
        case "level_flag":
            command["level_flag"] = 0xEE  # the vendor's HIGHLEVEL
        case _:
            command["motor_cmd"][member][7] = np.nan
    sign(command)
    return command


def received(reader: Reader, count: int) -> list[Sample]:
    samples: list[Sample] = []
    assert wait_until(lambda: samples.extend(reader.take()) or len(samples) >= count, 10.0)
    return samples


def deliver(robot: VirtualGo2, writer: Writer, command: Record) -> None:
    """Send a command, and make steps until it has arrived."""
    before = robot.counts.total()
    writer.write(command)
    assert wait_until(lambda: robot.step() or robot.counts.total() > before, 5.0)


@pytest.mark.parametrize(("member", "reason"), [
    ("crc", "bad_crc"), ("head", "bad_head"), ("level_flag", "bad_head"), ("q", "not_finite"), ("kd", "not_finite"),
])  # fmt: skip
def test_bad_commands_are_counted_and_not_obeyed(robot: VirtualGo2, writer: Writer, member: str, reason: str) -> None:
    deliver(robot, writer, damaged(member))
    assert robot.counts == {reason: 1}
    assert not robot.body.data.ctrl.any()
    assert robot.report()["braking"]


def test_good_commands_are_obeyed_by_their_writer(robot: VirtualGo2, writer: Writer) -> None:
    assert refusal(stiff()) == ""
    deliver(robot, writer, stiff())
    assert robot.counts == {"commands": 1}
    assert len(robot.writers) == 1
    assert (robot.body.model.actuator_biasprm[:, 1] == -60.0).all()
    assert not robot.report()["braking"]


def test_it_brakes_when_its_commander_falls_silent(robot: VirtualGo2, writer: Writer) -> None:
    deliver(robot, writer, stiff())
    time.sleep(0.15)
    robot.step()
    assert robot.counts["braked"] == 1
    assert (robot.body.model.actuator_biasprm[:, 1] == 0.0).all()
    assert (robot.body.model.actuator_biasprm[:, 2] == -2.0).all()
    deliver(robot, writer, stiff())
    assert not robot.report()["braking"]


def test_states_carry_a_right_checksum_and_the_robots_figures(
    robot: VirtualGo2, writer: Writer, states: Reader
) -> None:
    robot.battery = 15
    for _ in range(3):
        robot.step()
    first, _, last = (sample.record for sample in received(states, 3))
    assert is_valid(first)
    assert is_valid(last)
    assert int(last["tick"]) - int(first["tick"]) == 4  # ms
    assert int(first["bms_state"]["soc"]) == 15
    assert 26.0 < float(first["power_v"]) < 34.0
    assert set(first["motor_state"]["temperature"].tolist()) == {30}


def test_faults_can_be_planted(robot: VirtualGo2, writer: Writer, states: Reader) -> None:
    robot.wrong_checksums = True
    robot.step()
    robot.wrong_checksums, robot.silent = False, True
    robot.step()
    (sample,) = received(states, 1)
    assert not is_valid(sample.record)


@pytest.mark.slow
def test_its_motion_control_writes_until_it_is_released(
    running: Callable[[str], VirtualGo2], other_channel: Channel
) -> None:
    others = other_channel.reader(TOPIC_LOW_CMD, GO_LOW_CMD, others_only=True)
    client = Client(other_channel, MOTION_SWITCHER)
    sport = Client(other_channel, "sport")
    robot = running("normal")
    assert '"name": "normal"' in client.call(CHECK_MODE)[1]
    assert wait_until(others.take, 3.0)
    assert wait_until(lambda: robot.body.height > 0.3, 10.0)
    assert sport.call(1005) == (0, "")  # StandDown
    assert wait_until(lambda: robot.body.height < 0.12, 10.0)
    assert client.call(RELEASE_MODE) == (0, "")
    assert '"name": ""' in client.call(CHECK_MODE)[1]
    assert sport.call(1004)[0] == 4202
    assert sport.call(1016)[0] == 3203  # Hello
    time.sleep(0.05)
    others.take()
    time.sleep(0.2)
    assert others.take() == []
    assert robot.report()["braking"]
    for wrong in ("", "[]", "{}"):
        assert client.call(SELECT_MODE, wrong)[0] == 3204
    assert client.call(SELECT_MODE, '{"name": "ai"}') == (0, "")
    assert wait_until(lambda: robot.body.height > 0.3, 10.0)


@pytest.mark.process
def test_its_process_reports_and_ends_on_sigterm(channel: Channel) -> None:
    states = channel.reader(TOPIC_LOW_STATE, GO_LOW_STATE)
    words = ["-u", "-m", "rlenv_unitree.cli", "--domain", str(channel.domain), "--mode", "", "--battery", "12"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline().startswith(f"virtual Go2 on lo, DDS domain {channel.domain}: rt/lowstate")
            (state, *_) = received(states, 1)
            assert int(state.record["bms_state"]["soc"]) == 12
            process.send_signal(signal.SIGTERM)
            lines = process.communicate(timeout=20)[0].splitlines()
        finally:
            process.kill()
    assert process.returncode == 0
    report = json.loads(lines[-1])
    assert 0.05 < report["height_m"] < 0.12
    assert report["braking"]
    assert report["timing"]["periods"] > 0


def test_the_error_of_the_loop_is_raised(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    robot = VirtualGo2(channel)

    def fall_apart() -> None:
        raise FloatingPointError("the virtual Go2 became unstable")

    monkeypatch.setattr(robot.body, "step", fall_apart)
    robot.start()
    assert wait_until(lambda: not robot.running, 3.0)
    with pytest.raises(RobotError, match="ended: the virtual Go2 became unstable"):
        robot.stop()
