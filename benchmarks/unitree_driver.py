"""Regularity of the commands that the Go2's driver writes, and its delay until it gives way to a second writer.

    python benchmarks/unitree_driver.py [--seconds 20] [--priority 40] [--stops 20]

The driver holds a virtual Go2 on its feet, in a process of its own, with 50 steps a second. This program listens, and
takes the periods from the time stamps of the commands. Then it writes one command of its own, by which the driver must
give way: the delay is the time from there to the stamp of the driver's first command without stiffness, by this
machine's clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

from unitree import DOMAIN, print_periods, process

from hal import Automatic, Guard, Homing, HomingSettings, RobotError
from real.control.realtime import ask_real_time, settle_process
from rlenv_unitree.channel import Channel, Reader
from rlenv_unitree.crc import sign
from rlenv_unitree.driver import UnitreeRobot
from rlenv_unitree.messages import GO_LOW_CMD, TOPIC_LOW_CMD, go_command

STALE_S = 0.1
"""A busy machine's pauses are not what is measured."""


def drive(domain: int, priority: int) -> None:
    """Stand, and hold; after a stop wait, clear it and stand again."""
    driver = UnitreeRobot("go2", "lo", domain=domain, priority=priority, stale_s=STALE_S)
    robot = Homing(Guard(driver), Automatic(), HomingSettings(velocity=1.0, tolerance=0.3))
    settle_process()
    options: dict[str, str] = {}
    while True:
        try:
            state = robot.reset(options)
            print("standing", flush=True)
            while True:
                robot.step({"joint_target": state.applied["joint_target"]})
        except RobotError:
            options = {"clear_stop": "measured"}
            time.sleep(1.2)


def newest(reader: Reader, seconds: float) -> list[tuple[int, bool]]:
    """Return stamp (ns) and whether it has stiffness of each command that arrives within a time."""
    found: list[tuple[int, bool]] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found += [(sample.sent_ns, bool(sample.record["motor_cmd"]["kp"].any())) for sample in reader.take()]
        time.sleep(0.01)
    return found


def holds(reader: Reader) -> bool:
    """Return whether the driver holds the robot."""
    return any(stiff for _, stiff in newest(reader, 0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--priority", type=int, default=0, help="real-time priority of the loops")
    parser.add_argument("--stops", type=int, default=20, help="commands of a second writer")
    parser.add_argument("--drive", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.drive:
        drive(args.drive, args.priority)
        return
    if args.priority:
        print(ask_real_time(args.priority))
    virtual = ("-m", "rlenv_unitree.cli", "--domain", str(DOMAIN), "--mode", "", "--priority", str(args.priority))
    driver = (__file__, "--drive", str(DOMAIN), "--priority", str(args.priority))
    with Channel("lo", DOMAIN) as channel, process(*virtual), process(*driver):
        reader = channel.reader(TOPIC_LOW_CMD, GO_LOW_CMD, depth=256, others_only=True)
        writer = channel.writer(TOPIC_LOW_CMD, GO_LOW_CMD)
        newest(reader, 1.0)
        print_periods("commands of the driver", [stamp for stamp, _ in newest(reader, args.seconds)])
        command = go_command()
        sign(command)
        delays: list[float] = []
        for _ in range(args.stops):
            while not holds(reader):
                time.sleep(0.1)
            reader.take()
            began_ns = time.time_ns()
            writer.write(command)
            stamps = [stamp for stamp, stiff in newest(reader, 0.5) if not stiff and stamp > began_ns]
            delays.append((min(stamps) - began_ns) / 1e6)
    print(
        f"second writer: {len(delays)} stops, median {statistics.median(delays):.2f} ms, longest {max(delays):.2f} ms; "
        f"load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
