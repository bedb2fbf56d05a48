"""Regularity of a 200 Hz loop over a servo bus, beside the server, two cameras and a client.

    python benchmarks/bus_loop.py [--seconds 20] [--priority 40 0] [--bus table physics]

Three processes beside this one: six STS3215 behind a pseudo-terminal, with the wire's time and a turn-around for each
servo; the server with the driver of a real arm at 200 periods a second; and a client of 50 Hz that sways the arm. Then
also two cameras of 640x480 at 30 Hz. In each period the driver writes six goals and reads 6 x 38 bytes, 3.9 ms of the
period's 5 with the servos' turn-arounds. The bus ``table`` answers from registers alone (`table_bus.py`), so its
figures are the driver's; ``physics`` is the virtual SO-101 in real time (`rlenv-robot robot twin so101 --bus`), which
shares the machine.

Of each: processor time of the server and of the bus, shares of one core; the share of periods within 0.5 ms and the
longest; periods longer than 1.5 times theirs; answers that did not come in time; and how often the arm was stopped,
since a reading became too old or the client too late.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from loop import WITHIN_MS
from served_arm import CONTEXT, Noise, arguments, started

from hal import Automatic, Guard, Homing, RobotError
from hal.cameras.camera import Camera
from hal.cameras.settings import CameraSettings
from hal.cameras.wrapper import WithCameras
from hal.clock import EDGES_MS
from hal.drivers.bus_arm import BusArm
from real import RemoteRobot, Server
from real.client.cameras import RemoteCameras
from real.control.realtime import settle_process

LOOP_HZ, CONTROL_HZ = 200.0, 50.0


@contextlib.contextmanager
def virtual_arm(folder: Path, bus: str) -> Iterator[tuple[str, str, int]]:
    """The port and the calibration of a virtual arm in a process of its own, and that process's number."""
    port, calibration = str(folder / "arm"), str(folder / "arm.json")
    words = ["-m", "rlenv_robot", "robot", "twin", "so101", "--bus", "--link", port, "--calibration", calibration]
    if bus == "table":
        words = [str(Path(__file__).with_name("table_bus.py")), port, calibration]
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield port, calibration, process.pid
    finally:
        process.terminate()
        process.wait()


def serve(pipe: Any, port: str, calibration: str, priority: int, cameras: int) -> None:
    """Serve the arm until the pipe says ``end``; answer every other word with the server's status."""
    logging.disable(logging.CRITICAL)
    arm = BusArm(port, calibration, rate_hz=LOOP_HZ)
    eyes = [Camera(CameraSettings("noise", name=f"camera_{n}"), Noise) for n in range(cameras)]
    robot = Homing(Guard(WithCameras(arm, eyes) if eyes else arm), Automatic())
    with Server(
        robot, address="tcp://127.0.0.1:*", control_hz=CONTROL_HZ, priority=priority, cameras=eyes, paced_by_robot=True
    ) as server:
        settle_process()
        pipe.send(server.address)
        while pipe.recv() != "end":
            pipe.send({**server.about(), "bus": arm.bus.counts.to_dict()})


def sway(address: str, pipe: Any) -> None:
    """A client that sways the arm at 50 Hz for ever, and begins anew when the arm was stopped.

    It sends the number of its stops after each reset, and the error in place of a reset that failed.
    """
    logging.disable(logging.CRITICAL)
    remote = RemoteCameras(RemoteRobot(address, step_timeout_s=0.3, connect_timeout_s=1.0), None)
    stops = 0
    while True:
        try:
            begin = remote.reset({"clear_stop": "a benchmark"}).applied["joint_target"]
        except RobotError as error:
            pipe.send(str(error))
            time.sleep(0.1)
            continue
        pipe.send(stops)
        with contextlib.suppress(RobotError):
            for step in range(10**9):
                wave = 0.2 * np.sin(step / 20)
                remote.step({"joint_target": (begin + wave * np.float32([1, 0.5, 0.5, 0.5, 1, 0])).astype(np.float32)})
        stops += 1


def cpu_s(pid: int) -> float:
    """Processor time that a process has used, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(name: str, seconds: float, priority: int, cameras: int, bus: str) -> None:
    with tempfile.TemporaryDirectory() as folder, virtual_arm(Path(folder), bus) as (port, calibration, bus_pid):
        ours, theirs = CONTEXT.Pipe()
        server = started(serve, theirs, port, calibration, priority, cameras)
        address = ours.recv()
        mine, its = CONTEXT.Pipe()
        client = started(sway, address, its)
        try:
            begun_s, said = time.monotonic(), "nothing"
            while isinstance(said, str):
                if time.monotonic() - begun_s > 60.0 or not mine.poll(60):
                    raise RuntimeError(f"the client did not get going within a minute; its last error: {said}")
                said = mine.recv()
            time.sleep(2.0)
            ours.send("about")
            before, used = ours.recv(), [cpu_s(pid) for pid in (server.pid, bus_pid)]
            time.sleep(seconds)
            ours.send("about")
            after, used_after = ours.recv(), [cpu_s(pid) for pid in (server.pid, bus_pid)]
            stops = -1
            while mine.poll():
                said = mine.recv()
                stops = stops if isinstance(said, str) else said
        finally:
            client.kill()
            ours.send("end")
            server.join(10)
            server.kill()
    shares = [100 * (late - early) / seconds for early, late in zip(used, used_after, strict=True)]
    told(f"{name}, bus {bus} (server {shares[0]:.0f} %, bus {shares[1]:.0f} % of a core)", before, after, max(stops, 0))


def told(name: str, before: dict[str, Any], after: dict[str, Any], stops: int) -> None:
    a, b = before["cadence"], after["cadence"]
    periods = b["periods"] - a["periods"]
    counts = [late - early for early, late in zip(a["counts"], b["counts"], strict=True)]
    within = sum(counts[: EDGES_MS.index(WITHIN_MS) + 1])
    print(
        f"{name}: {periods} periods, {100 * within / max(periods, 1):.2f}% within {WITHIN_MS} ms, "
        f"{b['overruns'] - a['overruns']} longer than 1.5 periods, longest since the start {b['longest_ms']:.2f} ms, "
        f"{after['bus']['missing']} answers missed in {after['bus']['transactions']} transactions since then, stopped "
        f"{stops} times; real time: {after['real_time'][:40]}; "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    parser = arguments(__doc__, [40, 0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each")
    parser.add_argument("--bus", nargs="+", default=["table", "physics"], choices=("table", "physics"))
    options = parser.parse_args()
    for bus in options.bus:
        for priority in options.priority:
            for name, cameras in (("server and client", 0), ("and two cameras", 2)):
                measure(name, options.seconds, priority, cameras, bus)


if __name__ == "__main__":
    main()
