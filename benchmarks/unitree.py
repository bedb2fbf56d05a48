"""Time of Unitree's messages, regularity of the virtual Go2, and time to notice a second writer.

    python benchmarks/unitree.py [--seconds 20] [--priority 40] [--writers 200]

The virtual Go2 runs in a process of its own, with its motion control as the commander, so each of its 500 periods a
second takes a command, simulates, and sends a command and a state. This program listens, and takes the periods from the
writers' time stamps. Then a second process writes commands at random times beside that commander; its delay is the time
from the stamp of each command to its arrival in a loop that looks for other writers 500 times a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import timeit
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from loop import WITHIN_MS

from hal.clock import Rate
from real.control.realtime import ask_real_time, settle_process
from rlenv_unitree.channel import Channel, Reader
from rlenv_unitree.crc import sign
from rlenv_unitree.messages import GO_LOW_CMD, GO_LOW_STATE, TOPIC_LOW_CMD, TOPIC_LOW_STATE, go_command

DOMAIN = 10 + os.getpid() % 200
PERIOD_MS = 2.0


def messages() -> None:
    """Print the processor time of one message, the least of seven rounds."""
    command = go_command()
    wire = GO_LOW_CMD.to_wire(command)
    cases = {
        "make a command": go_command,
        "sign it": lambda: sign(command),
        "to bytes": lambda: GO_LOW_CMD.to_wire(command),
        "from bytes": lambda: GO_LOW_CMD.from_wire(wire),
    }
    for name, call in cases.items():
        print(f"{name}: {min(timeit.repeat(call, number=2000, repeat=7)) / 2000 * 1e6:.1f} us")


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program and wait for its first line."""
    with subprocess.Popen([sys.executable, "-u", *words], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield started
        finally:
            started.terminate()
            started.communicate(timeout=20)


def stamps(reader: Reader, seconds: float) -> dict[int, list[int]]:
    """Return the writers' time stamps of what arrives within a time, ns, by writer."""
    found: dict[int, list[int]] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for sample in reader.take():
            found.setdefault(sample.writer, []).append(sample.sent_ns)
        time.sleep(0.02)
    return found


def print_periods(name: str, sent_ns: list[int]) -> None:
    """Print median, 99th percentile and longest of the periods, and the share within the bound."""
    periods = np.diff(sent_ns) / 1e6
    within = np.mean(np.abs(periods - PERIOD_MS) <= WITHIN_MS)
    print(
        f"{name}: {len(periods)} periods, median {np.median(periods):.3f} ms, 99th percentile "
        f"{np.percentile(periods, 99):.2f} ms, longest {periods.max():.2f} ms, {100 * within:.2f}% within {WITHIN_MS} "
        f"ms of {PERIOD_MS:g} ms; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def empty_loop(seconds: float) -> None:
    """Print the periods of a loop in this process that does nothing."""
    rate, sent_ns = Rate(1e3 / PERIOD_MS), []
    for _ in range(int(seconds * 1e3 / PERIOD_MS)):
        rate.wait()
        sent_ns.append(time.time_ns())
    print_periods("an empty loop", sent_ns)


def second_writer(reader: Reader, count: int, loops: Executor) -> None:
    """Print how late the commands of another process are noticed."""
    with process(__file__, "--write", str(count), "--domain", str(DOMAIN)):
        delays = loops.submit(notice, reader, count).result()
    print(
        f"second writer: {len(delays)} of {count} commands noticed, median {statistics.median(delays):.2f} ms, longest "
        f"{max(delays):.2f} ms; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def notice(reader: Reader, count: int) -> list[float]:
    """Look for marked commands in a loop, and return the time from the stamp of each to its arrival, ms."""
    rate, delays = Rate(1e3 / PERIOD_MS), []
    end = time.monotonic() + 0.1 * count + 20
    while len(delays) < count and time.monotonic() < end:
        rate.wait()
        marked = [sample for sample in reader.take() if sample.record["gpio"] == 1]
        delays += [(time.time_ns() - sample.sent_ns) / 1e6 for sample in marked]
    return delays


def write(count: int, domain: int) -> None:
    """Write marked commands without torque at random times."""
    rng = np.random.default_rng(0)
    with Channel("lo", domain) as channel:
        writer = channel.writer(TOPIC_LOW_CMD, GO_LOW_CMD)
        writer.wait_for_reader(5.0)
        time.sleep(0.5)
        print("writing", flush=True)
        command = go_command()
        command["gpio"] = 1
        sign(command)
        for _ in range(count):
            time.sleep(rng.uniform(0.02, 0.08))
            writer.write(command)
        time.sleep(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--priority", type=int, default=0, help="real-time priority of the loops")
    parser.add_argument("--writers", type=int, default=200, help="commands of the second writer")
    parser.add_argument("--write", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--domain", type=int, default=DOMAIN, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        write(args.write, args.domain)
        return
    messages()
    print(f"real-time priority of all loops: {args.priority or 'none'}")
    # A thread, since processes that this one starts would inherit its priority.
    loops = ThreadPoolExecutor(1, initializer=lambda: args.priority and ask_real_time(args.priority))
    settle_process()
    loops.submit(empty_loop, args.seconds).result()
    with (
        Channel("lo", DOMAIN) as channel,
        process("-m", "rlenv_unitree.cli", "--domain", str(DOMAIN), "--priority", str(args.priority)),
    ):
        states = channel.reader(TOPIC_LOW_STATE, GO_LOW_STATE, depth=256)
        commands = channel.reader(TOPIC_LOW_CMD, GO_LOW_CMD, depth=256)
        time.sleep(1.0)
        states.take()
        (sent_ns,) = stamps(states, args.seconds).values()
        print_periods("states of the virtual Go2", sent_ns)
        commands.take()
        second_writer(commands, args.writers, loops)


if __name__ == "__main__":
    main()
