"""The vendor's own SDK understands our messages, and its example program makes the virtual Go2 stand.

It is no dependency of this project. ``--strangers PYTHON`` names an interpreter that has it: a clone of
unitree_sdk2_python (37116c5), installed by ``pip install --no-deps -e``, beside cyclonedds 11.0.1, numpy and
opencv-python-headless.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlenv_unitree.channel import Channel
from rlenv_unitree.crc import checksum, sign
from rlenv_unitree.messages import (
    GO_LOW_CMD,
    GO_LOW_STATE,
    HG_LOW_CMD,
    HG_LOW_STATE,
    TOPIC_LOW_CMD,
    TOPIC_LOW_STATE,
    go_command,
)
from rlenv_unitree.virtual import VirtualGo2

pytestmark = [pytest.mark.process, pytest.mark.slow]

LISTENER = Path(__file__).with_name("vendor_listener.py")

CHECKSUMS = """
import sys
from unitree_sdk2py.idl import unitree_go, unitree_hg
from unitree_sdk2py.utils.crc import CRC
for line in sys.stdin:
    typename, data = line.split()
    package, name = typename.split(".")[0], typename.rpartition(".")[2]
    message = getattr({"unitree_go": unitree_go, "unitree_hg": unitree_hg}[package].msg.dds_, name)
    print(CRC().Crc(message.deserialize(bytes.fromhex(data))))
"""
"""Reads types and bytes on the wire, and prints the checksums that the vendor computes."""

IN_A_NETWORK_OF_ITS_OWN = f"""
ip link set lo up
{sys.executable} -u -m rlenv_unitree.cli >"$1/robot" 2>&1 &
robot=$!
for _ in $(seq 100); do grep -q braking "$1/robot" && break; sleep 0.1; done
cd "$2" && echo | timeout 60 "$3" -u go2_stand_example.py lo >"$1/example" 2>&1
kill -TERM $robot
wait $robot
"""
"""The example uses domain 0, where other tests' robots may be."""


@pytest.fixture(scope="module")
def vendor(request: pytest.FixtureRequest) -> str:
    """Return the interpreter that has the vendor's SDK."""
    pytest.importorskip("cyclonedds", reason="pip install 'rlenv-robot[unitree]'")
    python = str(request.config.getoption("--strangers"))
    done = subprocess.run([python, "-c", "import unitree_sdk2py"], capture_output=True, timeout=60, check=False)
    if done.returncode:
        pytest.skip(f"{python} lacks unitree_sdk2py; --strangers names an interpreter that has it")
    return python


@contextlib.contextmanager
def listening(vendor: str, domain: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Run the vendor's listener meanwhile, and fill its report into the dictionary afterwards."""
    command = [vendor, str(LISTENER), str(domain), str(seconds)]
    report: dict[str, Any] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert "listening" in process.stdout.readline()
            yield report
            report |= json.loads(process.communicate(timeout=seconds + 20)[0].splitlines()[-1])
        finally:
            process.kill()


def test_twenty_of_twenty_commands_and_states_arrive_with_right_checksums(vendor: str, channel: Channel) -> None:
    commands = channel.writer(TOPIC_LOW_CMD, GO_LOW_CMD)
    states = channel.writer(TOPIC_LOW_STATE, GO_LOW_STATE)
    with listening(vendor, channel.domain, 2.0) as report:
        assert commands.wait_for_reader(5.0)
        assert states.wait_for_reader(5.0)
        for number in range(20):
            command, state = go_command(), GO_LOW_STATE.new()
            command["motor_cmd"]["q"][0] = number
            state["bms_state"]["soc"], state["motor_state"]["q"][3] = 60 + number, -number
            for record, writer in ((command, commands), (state, states)):
                sign(record)
                writer.write(record)
            time.sleep(0.01)
    assert report["angles"] == list(range(20))
    assert (report["right_commands"], report["states"], report["right_states"]) == (20, 20, 20)
    assert (report["charge"], report["angle"]) == (79, -19.0)


def test_its_checksum_of_each_message_is_ours(vendor: str) -> None:
    lines, expected = [], []
    for message in (GO_LOW_CMD, GO_LOW_STATE, HG_LOW_CMD, HG_LOW_STATE):
        for seed in range(10):
            # Bytes below 100 make finite numbers; the vendor's format of a state refuses temperatures above 127.
            data = np.random.default_rng(seed).integers(0, 100, message.wire_length, np.uint8)
            data[:4] = (0, 1, 0, 0)
            lines.append(f"{message.typename} {data.tobytes().hex()}")
            expected.append(checksum(message.from_wire(data.tobytes())))
    done = subprocess.run(
        [vendor, "-c", CHECKSUMS], input="\n".join(lines), capture_output=True, text=True, timeout=60, check=True
    )
    assert [int(line) for line in done.stdout.split()] == expected


def test_its_reader_takes_the_virtual_robots_states(vendor: str, channel: Channel) -> None:
    with VirtualGo2(channel, "normal"), listening(vendor, channel.domain, 2.0) as report:
        pass
    assert report["states"] > 100  # of 1000 in 2 s; a busy machine skips many
    assert report["right_states"] == report["states"]
    assert report["right_commands"] == report["commands"] > 100  # of the robot's own motion control
    assert report["charge"] == 80


def test_its_unchanged_example_makes_the_virtual_robot_stand_and_lie_down(vendor: str, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no unshare or no ip here")
    namespace = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no right to make a network namespace")
    where = subprocess.run(
        [vendor, "-c", "import unitree_sdk2py; print(unitree_sdk2py.__path__[0])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    example = Path(where.stdout.strip()).parent / "example/go2/low_level"
    if not (example / "go2_stand_example.py").exists():
        pytest.skip(f"{vendor} lacks the SDK's examples: install its clone by pip install --no-deps -e")
    subprocess.run(
        [*namespace, "bash", "-c", IN_A_NETWORK_OF_ITS_OWN, "bash", str(tmp_path), str(example), vendor],
        timeout=100, check=False,
    )  # fmt: skip
    assert "Done!" in (tmp_path / "example").read_text()
    lines = (tmp_path / "robot").read_text().splitlines()
    reports = [json.loads(line) for line in lines if line.startswith("{")]
    assert not [name for name in reports[-1]["counts"] if name.startswith(("bad", "not"))]
    released = [report["height_m"] for report in reports if not report["mode"]]
    assert len(released) > 3
    assert max(released) > 0.33  # it stands
    assert released[-1] < 0.1  # and lies
    assert reports[0]["mode"] == "normal"
    assert reports[-1]["writers"] == 2  # its own motion control, and the example
