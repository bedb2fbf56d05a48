"""Run a virtual Go2: a process that speaks the vendor's low-level protocol over DDS, in front of a simulated body.

It checks what simulators of the field leave out: the checksum and the head of each command, finite numbers, the motors'
mode byte, and the silence of its commander. What is assumed, since the vendor documents nothing about it: bad commands
are dropped, not obeyed in part; after `WATCHDOG_S` without a good command all motors brake with `DAMPING`; the feet
report newtons; and a battery of eight cells that never empties.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Self

import numpy as np

from hal.clock import LoopTiming, Rate, Watchdog
from hal.errors import RobotError
from real.control.realtime import ask_real_time
from rlenv_unitree.channel import Channel, Sample
from rlenv_unitree.crc import is_valid, sign
from rlenv_unitree.messages import GO_LOW_CMD, GO_LOW_STATE, LOW_LEVEL, TOPIC_LOW_CMD, TOPIC_LOW_STATE, Record
from rlenv_unitree.virtual_body import STEPS_HZ, Go2Body
from rlenv_unitree.virtual_sport import SportMode

__all__ = ["DAMPING", "WATCHDOG_S", "VirtualGo2", "refusal"]

WATCHDOG_S = 0.1
"""Silence after which the motors brake, s. Assumed."""

DAMPING = 2.0
"""Damping of the braking motors, N m s/rad. Assumed."""

_MOST_STEPS = 25
"""Steps that a late loop makes up for at once; the time of more is dropped and counted."""

_CELLS, _EMPTY_V, _FULL_V = 8, 3.2, 4.2


class VirtualGo2:
    """A virtual Go2 on an open channel. Its loop runs in a thread, from `start` to `stop`.

    Args:
        channel: an open channel.
        mode: the selected mode of the robot's own motion control (`SportMode`); empty: it was released.
        watchdog_s: silence after which the motors brake, s.
        priority: real-time priority of the loop, 1 to 99; 0: an ordinary thread.

    Attributes:
        body: the simulated body.
        sport: the robot's own motion control.
        counts: number of commands that were obeyed (``commands``), and that were dropped by reason (`refusal`); of
            times that the watchdog made the motors brake (``braked``), and of steps that were dropped (``lost_steps``).
        writers: handles of the writers whose commands were obeyed, with the arrival of their newest, monotonic ns.
        timing: periods of the loop.
        real_time: the system's answer to the wish for a priority.
        battery: charge in percent. Tests change it, and the next two.
        motor_temperature: of all motors, degrees Celsius.
        wrong_checksums: whether states carry wrong checksums.
        silent: whether no states are sent.
    """

    def __init__(self, channel: Channel, mode: str = "", watchdog_s: float = WATCHDOG_S, priority: int = 0) -> None:
        self.body = Go2Body()
        self.sport = SportMode(channel, mode)
        self.counts: Counter[str] = Counter()
        self.writers: dict[int, int] = {}
        self.timing = LoopTiming(1 / STEPS_HZ)
        self.battery, self.motor_temperature = 80, 30
        self.wrong_checksums = self.silent = False
        self.real_time = ""
        self._watchdog, self._priority = Watchdog(watchdog_s), priority
        self._braking = True
        self._commands = channel.reader(TOPIC_LOW_CMD, GO_LOW_CMD)
        self._states = channel.writer(TOPIC_LOW_STATE, GO_LOW_STATE)
        self._state = GO_LOW_STATE.new()
        self._state["head"], self._state["level_flag"] = (0xFE, 0xEF), LOW_LEVEL
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="virtual-go2", daemon=True)
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the loop."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop. Calling it twice is allowed.

        Raises:
            RobotError: the loop ended by an error of its own, such as an unstable simulation.
        """
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)
        if self._error is not None:
            raise RobotError(f"the virtual Go2 ended: {self._error}") from self._error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the loop runs."""
        return self._thread.is_alive()

    def step(self, steps: int = 1) -> None:
        """Take the newest commands, simulate a number of steps of 2 ms, and send the state."""
        self.sport.poll()
        self.sport.step(self.body.pose)
        for sample in self._commands.take():
            self._obey(sample)
        if self._watchdog.expired and not self._braking:
            self.counts["braked"] += 1
            self._braking = True
            self.body.damp(DAMPING)
        for _ in range(steps):
            self.body.step()
        self._send(steps)

    def report(self) -> dict[str, Any]:
        """Return plain data for a line of JSON: height, mode, whether it brakes, counts and periods."""
        return {
            "height_m": round(self.body.height, 4),
            "mode": self.sport.name,
            "braking": self._braking,
            "writers": len(self.writers),
            "counts": dict(self.counts),
            "timing": self.timing.to_dict(),
            "real_time": self.real_time,
        }

    def _run(self) -> None:
        rate = Rate(STEPS_HZ)
        try:
            if self._priority:
                self.real_time = ask_real_time(self._priority).message
            while not self._stopping.is_set():
                late = int(rate.wait() * STEPS_HZ)
                self.counts["lost_steps"] += max(0, late - _MOST_STEPS)
                self.timing.tick()
                self.step(1 + min(late, _MOST_STEPS))
        except Exception as error:
            self._error = error

    def _obey(self, sample: Sample) -> None:
        reason = refusal(sample.record)
        self.counts[reason or "commands"] += 1
        if not reason:
            self.writers[sample.writer] = sample.arrived_ns
            self._watchdog.feed()
            self._braking = False
            self.body.apply(sample.record["motor_cmd"])

    def _send(self, steps: int) -> None:
        state = self._state
        self.body.read(state)
        state["tick"] += np.uint32(1000 * steps // STEPS_HZ)
        state["motor_state"]["temperature"] = self.motor_temperature
        cell = _EMPTY_V + (_FULL_V - _EMPTY_V) * self.battery / 100
        state["bms_state"]["soc"] = self.battery
        state["bms_state"]["cell_vol"][:_CELLS] = round(1000 * cell)
        state["power_v"] = _CELLS * cell
        sign(state)
        state["crc"] ^= np.uint32(self.wrong_checksums)
        if not self.silent:
            self._states.write(state)


def refusal(command: Record) -> str:
    """Return why a virtual Go2 drops a command: ``bad_crc``, ``bad_head`` or ``not_finite``; empty for a good one."""
    if not is_valid(command):
        return "bad_crc"
    if command["head"].tolist() != [0xFE, 0xEF] or command["level_flag"] != LOW_LEVEL:
        return "bad_head"
    motors = command["motor_cmd"]
    if not all(np.isfinite(motors[name]).all() for name in ("q", "dq", "tau", "kp", "kd")):
        return "not_finite"
    return ""
