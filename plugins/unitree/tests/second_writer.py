"""Command the motors beside a driver, and measure when that driver gives way, by this process's clock.

Usage: second_writer.py DOMAIN [wait]. It writes for 3 s; with ``wait`` it begins at a line on standard input.
"""

import json
import sys
import time

from rlenv_unitree.channel import Channel
from rlenv_unitree.crc import sign
from rlenv_unitree.messages import GO_LOW_CMD, TOPIC_LOW_CMD, go_command


def main() -> None:
    """Write, and print one line of JSON at the end."""
    waits = len(sys.argv) > 2
    with Channel("lo", int(sys.argv[1])) as channel:
        writer = channel.writer(TOPIC_LOW_CMD, GO_LOW_CMD)
        others = channel.reader(TOPIC_LOW_CMD, GO_LOW_CMD, others_only=True)
        writer.wait_for_reader(5.0)
        command = go_command()
        sign(command)
        print("ready", flush=True)
        if waits:
            sys.stdin.readline()
        others.take()
        began = time.monotonic()
        held, gave_way_ms, after = 0, None, 0
        while time.monotonic() < began + 3.0:
            writer.write(command)
            until = time.monotonic() + 0.002
            while (now := time.monotonic()) < until:
                for sample in others.take():
                    if holds(sample.record):
                        held += 1
                        after += gave_way_ms is not None
                    elif gave_way_ms is None:
                        gave_way_ms = (now - began) * 1e3
                time.sleep(0.0002)
        print(json.dumps({"gave_way_ms": gave_way_ms, "held": held, "held_after": after}), flush=True)


def holds(record) -> bool:
    """Return whether a command has stiffness."""
    return bool((record["motor_cmd"]["kp"] > 0).any())


main()
