"""A real cable between two network namespaces, cut, and made as bad as a radio link."""

import os
import sys
import time

import pytest

from real import Server
from real.control.lifecycle import State
from tests.real.ip_relay import IPRelay

CLIENT = """
import sys
import numpy as np
from hal import ConnectionLost, EpisodeError
from real import RemoteRobot
remote = RemoteRobot(sys.argv[1], keys=sys.argv[2], connect_timeout_s=20, step_timeout_s=float(sys.argv[3]))
remote.reset({})
print("moving", flush=True)
steps = 0
try:
    while steps < int(sys.argv[4]):
        remote.step({"target": np.array([0.5, steps / 1000], np.float32)})
        steps += 1
    clock = remote.clock
    print("done", steps, abs(clock.offset_ns) <= clock.error_ns, flush=True)
except (ConnectionLost, EpisodeError) as error:
    print(type(error).__name__, error, flush=True)
    sys.stdin.readline()
    remote.reset({})
    print(remote.step({"target": np.array([-0.5, 0], np.float32)}).sensors["steps"], flush=True)
remote.close()
"""


def serve(robot, network, tmp_path, watchdog_s):
    return Server(robot, address=f"tcp://{network.here}:*", keys=tmp_path / "server", watchdog_s=watchdog_s)


@pytest.mark.requirement("R6.6")
def test_a_cut_cable_holds_the_robot_and_a_mended_one_gives_it_back(
    network, start_command, identities, robot, tmp_path, until
):
    keys = os.fspath(identities("laptop"))
    with serve(robot, network, tmp_path, 0.2) as server:
        client = start_command(*network.command(CLIENT, server.address, keys, "0.5", "1000000"))
        assert client.line() == "moving"
        until(lambda: server.lifecycle.state is State.RUNNING)
        network.cut()
        began = time.monotonic()
        until(lambda: server.lifecycle.state is State.HOLDING)
        assert time.monotonic() - began < 1
        assert server.broken == "held: no valid command for 0.2 s"
        told = client.line()
        assert told.startswith("ConnectionLost no answer to step")
        at = len(robot.commands)
        held = robot.commands[-1]
        until(lambda: len(robot.commands) > at + 5)
        assert set(robot.commands[at:]) == {held}, "what was applied last, and nothing that was on its way"
        network.mend()
        client.tell()
        assert int(client.line()) >= 1
        assert (-0.5, 0.0) in robot.commands


def test_loss_delay_and_disorder_cost_time_and_no_step_is_done_twice(
    network, start_command, identities, robot, tmp_path
):
    """10% lost each way here, 20 ms and 10 ms of jitter, doubled and reordered packets: TCP's work, at its price."""
    keys = os.fspath(identities("laptop"))
    network.disturb("delay", "20ms", "10ms", "loss", "10%", "duplicate", "5%", "reorder", "10%")
    with serve(robot, network, tmp_path, 20) as server:
        client = start_command(*network.command(CLIENT, server.address, keys, "20", "60"))
        assert client.line() == "moving"
        assert client.line() == "done 60 True", "both clocks are one here, and lie within the bound"
        assert client.process.wait(30) == 0
    ordered = [command for n, command in enumerate(robot.commands) if n == 0 or command != robot.commands[n - 1]]
    steps = [command for command in ordered if command[0] == 0.5]
    assert [round(second * 1000) for _, second in steps] == list(range(60)), "each once, in order"


# -- IP packets lost, late and doubled, by a relay of our own: no kernel has to offer that --------------------

STEPPER = """
import sys
import time
import numpy as np
from real import RemoteRobot
remote = RemoteRobot(sys.argv[1], keys=sys.argv[2], connect_timeout_s=20, step_timeout_s=20, ahead=int(sys.argv[4]))
remote.reset({})
print("moving", flush=True)
took = []
for step in range(int(sys.argv[3])):
    began = time.monotonic()
    remote.step({"target": np.array([0.5, (step + 1) / 1000], np.float32)})
    took.append(time.monotonic() - began)
print("done", flush=True)
print(*sorted(took)[-4:], flush=True)
remote.close()
"""


@pytest.fixture
def ip_relay():
    try:
        with IPRelay(seed=1) as relay:
            yield relay
    except OSError as error:
        pytest.skip(str(error))


def targets(robot):
    """The steps' numbers in the order in which they were carried out, without a tick's repetition."""
    numbers = [round(second * 1000) for first, second in robot.commands if first == 0.5]
    return [number for n, number in enumerate(numbers) if n == 0 or number != numbers[n - 1]]


@pytest.mark.parametrize(
    "how", [{"loss": 0.1}, {"double": 0.3, "late": 0.3}, {"loss": 0.05, "delay_s": 0.01, "jitter_s": 0.02}], ids=str
)
def test_bad_packets_cost_time_and_no_step_is_done_twice(ip_relay, start_command, identities, robot, tmp_path, how):
    keys = os.fspath(identities("laptop"))
    with Server(
        robot, address=f"tcp://{ip_relay.here}:*", keys=tmp_path / "server", watchdog_s=20, max_command_age_s=None
    ) as server:
        ip_relay.disturb(**how)
        client = start_command(*ip_relay.command(sys.executable, "-c", STEPPER, server.address, keys, "60", "0"))
        assert client.line() == "moving"
        assert client.line() == "done"
        assert targets(robot) == list(range(1, 61)), "each once, in order"


@pytest.mark.requirement("R6.6")
def test_lost_packets_and_cuts_of_100_ms_cost_no_episode(ip_relay, start_command, identities, robot, tmp_path):
    """A copy of a step tells TCP of the loss; TCP alone sends what a cut has lost after 0.2 s at the soonest."""
    keys = os.fspath(identities("laptop"))
    with Server(
        robot, address=f"tcp://{ip_relay.here}:*", keys=tmp_path / "server", watchdog_s=0.6, max_command_age_s=0.6
    ) as server:
        client = start_command(*ip_relay.command(sys.executable, "-c", STEPPER, server.address, keys, "300", "0"))
        assert client.line() == "moving"
        ip_relay.disturb(loss=0.01)
        for _ in range(4):
            time.sleep(0.5)
            ip_relay.cut(0.1)
        assert client.line() == "done"
        assert min(map(float, client.line().split())) < 0.19, "the shortest of the four that a cut has met"
        assert targets(robot) == list(range(1, 301))
        assert State.HOLDING not in [each.after for each in server.lifecycle.history]
        assert server.about()["repeated"] > 0


@pytest.mark.requirement("R6.6")
def test_commands_ahead_keep_the_rate_over_a_slow_link_that_loses_packets(
    ip_relay, start_command, identities, robot, tmp_path
):
    """A round trip takes two control periods, and 2% of the packets are lost each way."""
    keys = os.fspath(identities("laptop"))
    settings = {"keys": tmp_path / "server", "control_hz": 10.0, "watchdog_s": 2.0, "max_command_age_s": 0.5}
    with Server(robot, address=f"tcp://{ip_relay.here}:*", ahead=6, **settings) as server:
        ip_relay.disturb(delay_s=0.1, loss=0.02)
        client = start_command(*ip_relay.command(sys.executable, "-c", STEPPER, server.address, keys, "60", "6"))
        assert client.line() == "moving"
        began = time.monotonic()
        assert client.line() == "done"
        assert time.monotonic() - began < 60 / 10 * 1.5, "without ahead a step takes three periods"
        executed, frames = targets(robot), server.about()["frames"]
    assert executed == sorted(executed), "in order; between two commands the robot moves in a line"
    assert executed[-1] > 40, "those of the last frames may still wait"
    assert frames["held"] <= 15
    assert not any("no valid command" in each.why for each in server.lifecycle.history)
