"""The simulation needs nothing that Linux alone has, and what needs Linux says so in a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("without_linux.py")
SIMULATION = """
import numpy as np
import rlenv_robot as rr
from rlenv_robot.cli.main import main

with rr.make("so101-reach", record="runs", info={"policy": "script"}) as env:
    random = np.random.default_rng(0)
    for seed in range(2):
        table = env.reset({"seed": seed})
        while not (table["terminated"] or table["truncated"]):
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": env.action.sample(random)}
            table, _ = env.step(request)
with rr.make_vector("so101-reach", 4, seed=0) as envs:
    envs.reset({"seed": 0})
assert main(["run", "so101-reach", "--policy", "zoo:so101-reach", "--episodes", "1"]) == 0
assert main(["data", "ls", "runs"]) == 0
assert len(rr.open_source("runs").table.episodes) == 2
print("simulated")
"""
PARTS = """
import numpy as np
import os
import pty
import socket
import tempfile

from hal.atomic_file import allocate
from hal.drivers.serial_port import _configure
from hal.errors import ConnectionLost
from real.control.realtime import ask_real_time, settle_process
from real.server.connections import _bytes_received
from recorder.images.images import _processors
from recorder.table.memory import mapped_array

with tempfile.TemporaryFile() as file:
    allocate(file.fileno(), 3_000_000)
    assert os.fstat(file.fileno()).st_size == 3_000_000
assert _processors() >= 1
assert mapped_array(np.dtype(np.float64), 1000).sum() == 0
with socket.socket() as one:
    assert _bytes_received(one) == 0
print(ask_real_time(80).message)
print(settle_process())
try:
    _configure(pty.openpty()[1], 1_000_000)
except ConnectionLost as error:
    print(error)
"""


def run(program: str, folder: Path) -> list[str]:
    command = [sys.executable, str(PROGRAM), program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert "AttributeError" not in done.stderr
    return done.stdout.splitlines()


@pytest.mark.plugin("zoo")
def test_a_simulation_is_run_recorded_and_read(tmp_path: Path) -> None:
    assert run(SIMULATION, tmp_path)[-1] == "simulated"


def test_what_needs_linux_says_so(tmp_path: Path) -> None:
    assert run(PARTS, tmp_path) == [
        "not granted: darwin has no SCHED_FIFO",
        "memory is not locked: darwin is not known here",
        "the port can't be set to 1000000 baud: a rate that has no name needs Linux",
    ]
