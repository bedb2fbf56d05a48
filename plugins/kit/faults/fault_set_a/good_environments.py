"""Correct environments that are unusual: where their state lies, how long they take, what their values are."""

from __future__ import annotations

import queue
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import numpy as np

import rlenv_robot as rr
from fault_set_a.plain import Counter, Plain, whole
from fault_set_a.registry import good


@good
class InSqlite(Counter):
    """The state is in SQLite, which refuses calls from another thread than the one that made it."""

    def __init__(self):
        super().__init__()
        self.base = sqlite3.connect(":memory:")
        self.base.execute("create table state (number integer)")

    @property
    def number(self):
        return self.base.execute("select number from state").fetchone()[0]

    @number.setter
    def number(self, number):
        self.base.execute("delete from state")
        self.base.execute("insert into state values (?)", (number,))

    def close(self):
        super().close()
        self.base.close()


@good
class Slow(Counter):
    """A step takes 0.1 s."""

    def act(self, values):
        time.sleep(0.1)
        return super().act(values)


@good
class HugeImage(Plain):
    """The observation is an image of 12 MB."""

    observation = rr.Spec("huge", (rr.Field("image", (2000, 2000, 3), "uint8", 0, 255, meaning="of one colour"),))
    action = rr.Spec("huge_action", (whole("colour", 0, 255, "uint8"),))
    limit = 3

    def begin(self):
        self.colour = int(self.rng.integers(0, 256))

    def act(self, values):
        self.colour = int(values["colour"])
        return self.colour / 255, False

    def see(self):
        return {"image": np.full((2000, 2000, 3), self.colour, np.uint8)}


@good
class Nested(Plain):
    """The values are nested lists and tuples, not arrays."""

    observation = rr.Spec("nested", (rr.Field("grid", (2, 3), "float64", 0, 1, meaning="of cells"), whole("on", 0, 6)))
    action = rr.Spec("nested_action", (rr.Field("flip", (2, 3), "int32", 0, 1, meaning="1 to change a cell"),))

    def begin(self):
        self.grid = [[float(self.rng.integers(0, 2)) for _ in range(3)] for _ in range(2)]

    def act(self, values):
        flips = values["flip"].tolist()
        self.grid = [[abs(c - f) for c, f in zip(*pair, strict=True)] for pair in zip(self.grid, flips, strict=True)]
        return sum(map(sum, self.grid)) / 6, False

    def see(self):
        return {"grid": tuple(map(list, self.grid)), "on": int(sum(map(sum, self.grid)))}


class OutOfTurn(LookupError):
    """A call came in the wrong order."""


@good
class OtherExceptions(Counter):
    """Calls in the wrong order raise an exception of the author's own."""

    out_of_turn = OutOfTurn


@good
class TinyAndHuge(Plain):
    """One range is 1e-30 wide, another reaches to 1e300."""

    observation = rr.Spec(
        "scales",
        (
            rr.Field("charge", (), "float64", 1e-30, 2e-30, "C", "of a grain"),
            rr.Field("mass", (2,), "float64", -1e300, 1e300, "kg", "of no known star"),
        ),
    )
    action = rr.Spec(
        "scales_action",
        (
            rr.Field("charge", (), "float64", 1e-30, 2e-30, "C", "to set"),
            rr.Field("mass", (2,), "float64", -1e300, 1e300, "kg", "to set"),
        ),
    )

    def begin(self):
        self.state = self.observation.sample(self.rng)

    def act(self, values):
        self.state = {name: np.array(value) for name, value in values.items()}
        return float(np.clip(values["charge"] / 2e-30, 0, 1)), False

    def see(self):
        return {name: value.copy() for name, value in self.state.items()}


@good
class SmallIntegers(Plain):
    """Observations are int8 over its whole range, uint16 and a uint64; actions are int8."""

    observation = rr.Spec(
        "bytes",
        (whole("byte", -128, 127, "int8"), whole("word", 0, 65535, "uint16"), whole("long", 0, 2**60, "uint64")),
    )
    action = rr.Spec("bytes_action", (rr.Field("byte", (3,), "int8", meaning="to sum"),))

    def begin(self):
        self.total = int(self.rng.integers(0, 1000))

    def act(self, values):
        self.total = abs(self.total + int(values["byte"].astype(int).sum()))
        return float(self.total % 2), False

    def see(self):
        return {
            "byte": np.array(self.total % 256 - 128, np.int8), "word": np.array(self.total % 65536, np.uint16),
            "long": np.array(self.total, np.uint64),
        }  # fmt: skip


@good
class Scalars(Plain):
    """All values are NumPy scalars and the reward is one too."""

    observation = rr.Spec(
        "scalars", (rr.Field("angle", (), "float32", -4, 4, "rad", "angle"), whole("turns", 0, 8, "int64"))
    )
    action = rr.Spec("scalars_action", (rr.Field("turn", (), "float32", -0.5, 0.5, "rad", "turn"),))

    def begin(self):
        self.angle, self.turns = np.float32(self.rng.uniform(-1, 1)), np.int64(0)

    def act(self, values):
        self.angle = np.clip(self.angle + np.float32(values["turn"]), np.float32(-4), np.float32(4))
        self.turns = self.turns + np.int64(1)
        return np.float64(abs(self.angle) / 4), False

    def see(self):
        return {"angle": self.angle, "turns": self.turns}


@good
class OneStep(Counter):
    """Each episode is over with its first step."""

    def act(self, values):
        return super().act(values)[0], True


@good
class WithoutEnd(Counter):
    """An episode never ends: the number goes round."""

    limit = None

    def act(self, values):
        self.number = (self.number + int(values["more"])) % 41
        return self.number / 40, False


@good
class UnicodeName(Counter):
    """env_id has 36 characters of several scripts."""

    def identity(self):
        return f"机器人-Ωμέγα-\U0001f916-№{uuid.uuid4().hex[:23]}"


@good
class WithoutChance(Counter):
    """Nothing is drawn, and reset takes no option, not even a seed."""

    options = {}  # noqa: RUF012

    def begin(self):
        self.number = 3


@good
class WithoutReward(Counter):
    """The reward is always 0."""

    high = 0.0

    def act(self, values):
        return 0, super().act(values)[1]


_CHILD = """
import sys
number = 0
for line in sys.stdin:
    verb, value = line.split()
    number = int(value) if verb == "set" else number + int(value)
    print(number, flush=True)
"""
"""The program of the other process."""


@good
class InAChild(Counter):
    """The simulator is another process, which is started at the first reset and told by a pipe."""

    child = None

    def ask(self, line):
        if self.child is None:
            self.child = subprocess.Popen(
                [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        self.number = int(self.child.stdout.readline())

    def begin(self):
        self.ask(f"set {self.rng.integers(0, 10)}")

    def act(self, values):
        self.ask(f"add {int(values['more'])}")
        return self.number / 40, self.number >= 20

    def close(self):
        if self.child is not None:
            for pipe in (self.child.stdin, self.child.stdout):
                pipe.close()
            self.child.wait()
            self.child = None
        super().close()


@good
class InAThread(Counter):
    """The simulator is a thread that waits at a queue, and a file is made at the first reset and removed by close."""

    thread = None

    def work(self):
        while (asked := self.asked.get()) is not None:
            self.answers.put(super().act(asked))

    def begin(self):
        super().begin()
        if self.thread is None:
            self.asked, self.answers = queue.Queue(), queue.Queue()
            self.file = tempfile.TemporaryFile()  # noqa: SIM115 (close closes it)
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()

    def act(self, values):
        self.asked.put(values)
        return self.answers.get()

    def close(self):
        if self.thread is not None:
            self.asked.put(None)
            self.thread.join()
            self.file.close()
            self.thread = None
        super().close()
