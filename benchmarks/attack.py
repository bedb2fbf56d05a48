"""Effects on the users of a served robot while strangers attack its server in two dozen ways at once.

A server with keys runs an arm at 500 Hz, a client moves it at 50 Hz, a stop button presses twice a second, and the
client is frozen now and then. First nobody else is there (calm), then all attackers at once, each a process of its own
with the lowest priority, since real ones have machines of their own. Compared: the time of a step, the time from a
stop's call to its confirmation, whether the robot holds when its client is frozen, and the server's memory, descriptors
and log.

    python benchmarks/attack.py [--seconds 900] [--calm 60] [--only KIND ...] [--priority 40] [--json FILE]
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import random
import signal
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import zmq
from served_arm import COMMAND, CONTROL_HZ, WATCHDOG_S, Arm, arguments, started
from zmq.utils import z85

from hal import RobotError
from real import RemoteRobot, Server
from real.control.lifecycle import State
from real.control.realtime import ask_real_time, settle_process
from real.protocol import messages as wire
from real.protocol.handshake import load_keys
from real.protocol.keys import Role, allow, new_pair
from real.protocol.messages import MessageKind

CLIENTS_PRIORITY = 10
"""Of the client and the button, which have machines of their own in truth: what is measured is the server."""

PRESS_S = 0.45
FREEZE_S, FROZEN_S = 15.0, 0.6
STOP_BOUND_MS = 20.0
NOT_LISTED, ANOTHER_SERVER = "stranger", "mistaken"
ROLES = {"mover": "move", "button": "stop", "watcher": "watch", "stopper": "stop", "rival": "move"}


@dataclass(frozen=True)
class Target:
    """Addresses and keys of the attacked server, the session of the client that moves, and the attacker's address."""

    control: str
    stop: str
    telemetry: str
    keys: str
    session: int
    source: str = "127.0.0.1"

    def raw(self, address: str | None = None, *, blocking: bool = True) -> socket.socket:
        """Return a TCP connection to the control socket or another address."""
        host, _, port = (address or self.control).removeprefix("tcp://").partition(":")
        if blocking:
            return socket.create_connection((host, int(port)), 5, (self.source, 0))
        peer = socket.socket()
        peer.setblocking(False)
        peer.bind((self.source, 0))
        peer.connect_ex((host, int(port)))
        return peer

    def peer(self, key: str | None, address: str | None = None, kind: int = zmq.DEALER) -> zmq.Socket[bytes]:
        """Return a socket with a key of that name, connected to the control socket or another address."""
        peer: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        peer.linger, peer.sndtimeo = 0, 100
        if key is not None:
            load_keys(Path(self.keys) / key).secure(peer)
        peer.connect(f"tcp://{self.source}:0;{(address or self.control).removeprefix('tcp://')}")
        return peer


# -- Attackers. Each runs until it is killed -----------------------------------------------------------------


def half_open(target: Target) -> None:
    while True:
        with contextlib.ExitStack() as ends:
            for _ in range(300):
                address = random.choice((target.control, target.stop, target.telemetry))
                ends.enter_context(target.raw(address, blocking=False))
            time.sleep(2.5)


def slow_greetings(target: Target) -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
    while True:
        with contextlib.ExitStack() as ends:
            peers = [ends.enter_context(target.raw()) for _ in range(40)]
            for byte in greeting:
                for peer in peers:
                    with contextlib.suppress(OSError):
                        peer.send(bytes((byte,)))
                time.sleep(0.1)


def raw_noise(target: Target) -> None:
    while True:
        with contextlib.suppress(OSError), target.raw() as peer:
            peer.sendall(random.randbytes(random.randint(1, 2000)))


def connecting_and_leaving(target: Target) -> None:
    while True:
        with contextlib.suppress(OSError):
            target.raw(random.choice((target.control, target.stop))).close()


def half_handshakes(target: Target) -> None:
    greeting = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
    hello = b"\x05HELLO\x01\x00" + bytes(72) + random.randbytes(120)
    while True:
        with contextlib.suppress(OSError), target.raw() as peer:
            peer.sendall(greeting + b"\x04" + bytes((len(hello),)) + hello)
            peer.recv(1000)


def without_keys(target: Target) -> None:
    again(target, None, b"hello")


def with_an_unknown_key(target: Target) -> None:
    again(target, NOT_LISTED, b"hello")


def with_another_servers_key(target: Target) -> None:
    again(target, ANOTHER_SERVER, b"hello")


def coming_and_going(target: Target) -> None:
    again(target, "watcher", wire.encode(MessageKind.STATUS, 0, 1)[0])


def again(target: Target, key: str | None, message: bytes) -> None:
    while True:
        with target.peer(key) as peer, contextlib.suppress(zmq.Again):
            peer.send(message)
            peer.poll(50)


def flood(target: Target, key: str, messages: list[bytes], connections: int, *, reads: bool = True) -> None:
    peers = [target.peer(key) for _ in range(connections)]
    for message, peer in zip(itertools.cycle(messages), itertools.cycle(peers), strict=False):
        with contextlib.suppress(zmq.Again):
            peer.send(message, zmq.NOBLOCK)
            while reads and peer.poll(0):
                peer.recv_multipart()


def status_from_many_connections(target: Target) -> None:
    flood(target, "watcher", wire.encode(MessageKind.STATUS, 0, 1), 100)


def descriptions_that_nobody_reads(target: Target) -> None:
    flood(target, "watcher", wire.encode(MessageKind.HELLO, 0, 1, introduction(move=False)), 10, reads=False)


def noise_of_a_listed_key(target: Target) -> None:
    dice = np.random.default_rng(0)
    flood(target, "watcher", [dice.bytes(int(dice.integers(1, 300))) for _ in range(1000)], 4)


def beyond_its_role(target: Target) -> None:
    row = Arm.spec.commands.pack(COMMAND)
    messages = [
        wire.encode(MessageKind.STEP, target.session, 10**9, None, (row,), 1)[0],
        wire.encode(MessageKind.RESET, target.session, 10**9, {"options": {}, "deadline_s": 1.0})[0],
        wire.encode(MessageKind.RELEASE, target.session, 10**9)[0],
        wire.encode(MessageKind.CONSENT, target.session, 10**9, {"yes": True})[0],
    ]
    flood(target, "watcher", messages, 2)


def tiny_frames(target: Target) -> None:
    while True:
        with target.peer("stopper") as peer, contextlib.suppress(zmq.Again):
            peer.send_multipart([b""] * 200_000)
            time.sleep(1.0)


def tiny_frames_at_the_stops(target: Target) -> None:
    while True:
        with target.peer("stopper", target.stop) as peer, contextlib.suppress(zmq.Again):
            peer.send_multipart([b""] * random.choice((500, 5_000, 50_000)))
            time.sleep(0.2)


def no_stops_at_the_stops(target: Target) -> None:
    messages = [b"", random.randbytes(300), wire.encode(MessageKind.STATUS, 0, 1)[0], bytes(8000), bytes(9000)]
    for message in itertools.cycle(messages):
        with target.peer("stopper", target.stop) as peer, contextlib.suppress(zmq.Again):
            for _ in range(20):
                peer.send(message)
            peer.poll(50)


def large_frames(target: Target) -> None:
    flood(target, "watcher", [bytes(1 << 20), bytes(60_000), bytes((1 << 20) + 1)], 2)


def steps_without_the_lease(target: Target) -> None:
    row = Arm.spec.commands.pack(COMMAND)
    flood(target, "rival", [wire.encode(MessageKind.STEP, 7, n, None, (row,), 1)[0] for n in range(1, 100)], 1)


def a_stolen_session(target: Target) -> None:
    row = Arm.spec.commands.pack(COMMAND)
    sequences = (10**9 + n for n in itertools.count())
    with target.peer("rival") as peer:
        for sequence in sequences:
            with contextlib.suppress(zmq.Again):
                peer.send(wire.encode(MessageKind.STEP, target.session, sequence, None, (row,), 1)[0])
            if peer.poll(5):
                peer.recv_multipart()


def asking_for_the_lease(target: Target) -> None:
    messages = [wire.encode(MessageKind.HELLO, 0, 1, introduction(move=True, take=take))[0] for take in ("no", "ask")]
    flood(target, "rival", messages, 1)


def questions_without_the_lease(target: Target) -> None:
    message = wire.encode(MessageKind.JUDGE, target.session, 10**9, {"message": "x", "deadline_s": 3600.0})
    flood(target, "rival", message, 1)


def forged_names(target: Target) -> None:
    name = "x\n2026-01-01 00:00:00,000 WARNING hal.guarding.stop_latch: stop cleared\x1b[2J\u202e"
    message = wire.encode(MessageKind.HELLO, 0, 1, {**introduction(move=True), "name": name})
    flood(target, "rival", message, 1)


def subscriptions(target: Target) -> None:
    while True:
        with target.peer("watcher", target.telemetry, zmq.SUB) as peer:
            for _ in range(300):
                peer.subscribe(random.randbytes(900))
            time.sleep(0.3)


def listeners_that_never_read(target: Target) -> None:
    peers = [target.peer("watcher", target.telemetry, zmq.SUB) for _ in range(20)]
    for peer in peers:
        peer.rcvhwm = 1
        peer.subscribe(b"")
    time.sleep(10**6)


def frozen_listeners(target: Target) -> None:
    while True:
        peers = [target.peer("watcher", target.telemetry, zmq.SUB) for _ in range(10)]
        for peer in peers:
            peer.subscribe(b"")
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGSTOP)  # continued by the program now and then
        for peer in peers:
            peer.close()


def introduction(*, move: bool, take: str = "no") -> dict[str, Any]:
    return {"digest": "", "name": "attacker", "move": move, "replaces": 0, "take": take, "resume": False}


ATTACKERS: Mapping[str, Callable[[Target], None]] = {
    attacker.__name__: attacker
    for attacker in (
        half_open, slow_greetings, raw_noise, connecting_and_leaving, half_handshakes, without_keys,
        with_an_unknown_key, with_another_servers_key, coming_and_going, status_from_many_connections,
        descriptions_that_nobody_reads, noise_of_a_listed_key, beyond_its_role, tiny_frames, tiny_frames_at_the_stops,
        no_stops_at_the_stops, large_frames, steps_without_the_lease, a_stolen_session, asking_for_the_lease,
        questions_without_the_lease, forged_names, subscriptions, listeners_that_never_read, frozen_listeners,
    )
}  # fmt: skip


def attack(name: str, target: Target) -> None:
    logging.disable(logging.CRITICAL)
    os.nice(19)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        with contextlib.suppress(OSError, zmq.ZMQError):
            ATTACKERS[name](target)
        time.sleep(0.1)


# -- The server, the client that moves, the button -----------------------------------------------------------


def serve(pipe: Any, folder: str, priority: int) -> None:
    log = f"{folder}/server.log"
    logging.basicConfig(level=logging.INFO, filename=log, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    arm = Arm()
    server = Server(
        arm, address="tcp://127.0.0.1:*", telemetry="tcp://127.0.0.1:*", control_hz=CONTROL_HZ, watchdog_s=WATCHDOG_S,
        priority=priority, keys=f"{folder}/server",
    ).start()  # fmt: skip
    settle_process()
    pipe.send((server.address, server.about()["stop"], server.telemetry))
    for order in iter(pipe.recv, "end"):
        if order == "about":
            pipe.send({**server.about(), "history": list(server.lifecycle.history)})
    server.close()


def move(address: str, keys: str, pipe: Any) -> None:
    """Step at 50 Hz for ever; at every word from the pipe, send the times measured since the last word."""
    logging.disable(logging.CRITICAL)
    ask_real_time(CLIENTS_PRIORITY)
    remote = RemoteRobot(address, keys=keys, step_timeout_s=1.0, connect_timeout_s=2.0)
    took: list[float] = []
    faults: list[str] = []
    while True:
        try:
            remote.reset({"clear_stop": "a benchmark"})
            while True:  # each word from the pipe begins a new episode
                began = time.monotonic()
                remote.step(COMMAND)
                took.append(time.monotonic() - began)
                if pipe.poll(0):
                    break
        except RobotError as error:
            if "button" not in str(error):
                faults.append(f"{type(error).__name__}: {error}"[:200])
        if pipe.poll(0):
            pipe.recv()
            pipe.send((took, faults, remote._session))
            took, faults = [], []


def press(address: str, keys: str, pipe: Any, quiet: Any) -> None:
    """Stop the robot twice a second, from a connection that stands, unless told to be quiet; at every word, send the
    times."""
    logging.disable(logging.CRITICAL)
    ask_real_time(CLIENTS_PRIORITY)
    button = RemoteRobot(address, keys=keys)
    button.stand_by()
    took: list[float] = []
    faults: list[str] = []
    while True:
        time.sleep(random.uniform(0.8, 1.2) * PRESS_S)
        while quiet.is_set():
            time.sleep(0.01)
        began = time.monotonic()
        try:
            button.stop("the button of the benchmark")
            took.append(time.monotonic() - began)
        except RobotError as error:
            faults.append(str(error)[:200])
        if pipe.poll(0):
            pipe.recv()
            pipe.send((took, faults))
            took, faults = [], []


class Attacker:
    """One attacking process, begun anew where it ended: a peer that is cut off in mid-message may abort (libzmq)."""

    def __init__(self, name: str, target: Target) -> None:
        self._name, self._target, self.restarts = name, target, 0
        self.process = started(attack, name, target)

    def go_on(self) -> None:
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGCONT)
        else:
            self.restarts += 1
            self.process = started(attack, self._name, self._target)


class Trial:
    """One server with its client and its button."""

    def __init__(self, folder: Path, priority: int) -> None:
        from served_arm import CONTEXT

        server = new_pair(folder / "server")
        for name in (*ROLES, NOT_LISTED):
            pair = new_pair(folder / name, server.public)
            if name in ROLES:
                allow(folder / "server", pair.public, Role(ROLES[name]), name)
        new_pair(folder / ANOTHER_SERVER, z85.decode(zmq.curve_keypair()[0]).hex())
        self.folder = folder
        self.pipe, theirs = CONTEXT.Pipe()
        self.server = started(serve, theirs, str(folder), priority)
        self.control, self.stop, self.telemetry = self.pipe.recv()
        self.mover_pipe, theirs = CONTEXT.Pipe()
        self.mover = started(move, self.control, str(folder / "mover"), theirs)
        self.button_pipe, theirs = CONTEXT.Pipe()
        self.quiet = CONTEXT.Event()
        self.button = started(press, self.control, str(folder / "button"), theirs, self.quiet)
        self.session = self._ask(self.mover_pipe)[2]

    def target(self) -> Target:
        return Target(self.control, self.stop, self.telemetry, str(self.folder), self.session)

    @staticmethod
    def _ask(pipe: Any) -> Any:
        pipe.send("tell")
        if not pipe.poll(60):
            raise RuntimeError("a client of the benchmark does not answer any more")
        return pipe.recv()

    def about(self) -> Any:
        self.pipe.send("about")
        return self.pipe.recv()

    def memory_mib(self) -> float:
        with open(f"/proc/{self.server.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

    def watch(self, seconds: float, attackers: list[Any]) -> dict[str, Any]:
        """Measure for so long, and freeze the client now and then."""
        for pipe in (self.mover_pipe, self.button_pipe):
            self._ask(pipe)
        before, memory, held, missed = self.about(), [], [], 0
        end, freeze = time.monotonic() + seconds, time.monotonic() + FREEZE_S / 2
        while time.monotonic() < end:
            time.sleep(0.5)
            memory.append(self.memory_mib())
            if time.monotonic() > freeze:
                freeze = time.monotonic() + FREEZE_S
                late = self._freeze()
                missed += late is None
                held += [late] if late else []
                for attacker in attackers:
                    attacker.go_on()
        after = self.about()
        took, faults, _ = self._ask(self.mover_pipe)
        stops, stop_faults = self._ask(self.button_pipe)
        return {
            "steps": spread(took), "faults of the mover": faults[:20], "number of faults": len(faults),
            "stops": spread(stops), "stops above 20 ms": sum(each > STOP_BOUND_MS / 1e3 for each in stops),
            "stops not confirmed": stop_faults[:20],
            "holds when frozen, ms": [round(each * 1e3, 1) for each in held], "holds missed": missed,
            "memory, MiB": {"median": round(statistics.median(memory), 1), "most": round(max(memory), 1)},
            "descriptors": len(os.listdir(f"/proc/{self.server.pid}/fd")),
            "log, kB": (self.folder / "server.log").stat().st_size // 1000,
            "periods": cadence(before["cadence"], after["cadence"]),
            "cut off": after["cut_off"], "dropped": after["dropped"],
            "attackers begun anew": sum(attacker.restarts for attacker in attackers),
        }  # fmt: skip

    def _freeze(self) -> float | None:
        """Freeze the client that moves; return the time until the robot held, None where it did not.

        A stop of the button may come first; then there is nothing to measure, and 0 is returned.
        """
        self.quiet.set()
        time.sleep(0.3)  # the client is back from the last stop
        began = time.monotonic_ns()
        os.kill(self.mover.pid, signal.SIGSTOP)
        time.sleep(FROZEN_S)
        history = self.about()["history"]
        os.kill(self.mover.pid, signal.SIGCONT)
        self.quiet.clear()
        before = [each.after for each in history if each.stamp_ns <= began]
        if before and before[-1] is not State.RUNNING:
            return 0.0
        held = [each.stamp_ns for each in history if each.stamp_ns > began and each.after is State.HOLDING]
        return (held[0] - began) / 1e9 if held else None

    def close(self) -> None:
        for process in (self.mover, self.button):
            process.kill()
        self.pipe.send("end")
        self.server.join(10)
        self.server.kill()


def spread(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    at = {"median": 0.5, "99%": 0.99, "99.9%": 0.999}
    values = {name: round(1e3 * ordered[int(share * (len(ordered) - 1))], 2) for name, share in at.items() if ordered}
    return {"number": len(ordered), **values, "longest": round(1e3 * ordered[-1], 2) if ordered else 0.0}


def cadence(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    counts = [late - early for early, late in zip(before["counts"], after["counts"], strict=True)]
    total = max(1, sum(counts))
    edges = after["edges_ms"]
    return {
        "number": total,
        "within 0.5 ms": round(sum(counts[: edges.index(0.5) + 1]) / total, 5),
        "within 2 ms": round(sum(counts[: edges.index(2.0) + 1]) / total, 5) if 2.0 in edges else None,
        "overruns": after["overruns"] - before["overruns"],
    }


@contextlib.contextmanager
def attacking(names: list[str], target: Target) -> Iterator[list[Any]]:
    sources = (f"127.0.1.{number}" for number in itertools.count(1))  # a machine each
    attackers = [Attacker(name, replace(target, source=next(sources))) for name in names]
    try:
        yield attackers
    finally:
        for attacker in attackers:
            attacker.process.kill()
        for attacker in attackers:
            attacker.process.join()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=900.0, help="of the attack")
    parser.add_argument("--calm", type=float, default=60.0, help="seconds before it")
    parser.add_argument("--only", nargs="+", choices=sorted(ATTACKERS), default=list(ATTACKERS), metavar="KIND")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder), options.priority)
        try:
            report: dict[str, Any] = {
                "kinds": len(options.only),
                "load": [os.getloadavg()[0]],
                "calm": trial.watch(options.calm, []),
            }
            print(json.dumps(report, indent=1), flush=True)
            with attacking(options.only, trial.target()) as attackers:
                time.sleep(2)
                report["attacked"] = trial.watch(options.seconds, attackers)
            report["load"].append(os.getloadavg()[0])
            time.sleep(2)
            report["after"] = {"memory, MiB": trial.memory_mib()}
            report["log"] = (Path(folder) / "server.log").read_text().splitlines()[-5:]
            print(json.dumps(report, indent=1), flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(report, indent=1))
        finally:
            trial.close()


if __name__ == "__main__":
    main()
