"""A real cable between two network namespaces, cut, and made as bad as a radio link."""

import os
import time

import pytest

from real import Server
from real.control.lifecycle import State

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
