"""A suction cup on a plunger with a valve of 0 and 1, in real time, and its planted faults.

Style: a condition guards the state, a step runs in short slices between which a stop from another thread counts.
"""

from __future__ import annotations

import threading
import time

import numpy as np

from hal import EpisodeError, Field, RobotSpec, RobotState, RobotStopped, Spec, check_clears
from hal.robot import check_reset_options, starts_here

PERIOD_S, SLICES, SPEED, TRAVEL = 0.05, 10, 0.2, 0.1
CUP = RobotSpec(
    name="suction-cup",
    sensors=Spec(
        "suction_cup_sensors",
        (
            Field("height", (), "float32", 0.0, TRAVEL, "m", "measured height of the plunger"),
            Field("valve_state", (), "uint8", 0, 1, "1", "1 where the valve is open"),
            Field("pressure", (), "float32", -60.0, 10.0, "kPa", "pressure in the cup, below 0 for suction"),
        ),
    ),
    commands=Spec(
        "suction_cup_commands",
        (
            Field("height_goal", (), "float32", 0.0, TRAVEL, "m", "goal height of the plunger"),
            Field("valve", (), "uint8", 0, 1, "1", "1 opens the valve to the pump"),
        ),
    ),
    rate_hz=1 / PERIOD_S,
    home={"height_goal": 0.02, "valve": 0},
    measured_by={"height_goal": "height", "valve": "valve_state"},
)


class Cup:
    """A plunger with a suction cup; a reset drives to its start, and draws the pressure of the air."""

    simulated = True
    spec = CUP

    def __init__(self):
        self.lock = threading.Condition()
        self.why, self.is_open, self.is_closed = None, False, False
        self.height = self.goal = 0.0
        self.valve, self.pressure, self.air = 0, 0.0, 0.0
        self.rng = np.random.default_rng()

    def reset(self, options):
        with self.lock:
            self.check_open("reset")
            check_reset_options(self.spec.commands, options)
            check_clears(self.why, options)
            self.why, self.is_open = None, True
            if options.get("seed") is not None:
                self.rng = np.random.default_rng(options["seed"])
            self.air = float(self.rng.uniform(-2, 2))
            if starts_here(options):
                self.goal = self.height
            else:
                self.go_to(**{**self.spec.home, **options.get("start", {})})
            self.pressure = self.settled()
            return self.reading()

    def go_to(self, height_goal, valve):
        self.goal, self.valve = float(height_goal), int(valve)
        while abs(self.height - self.goal) > 1e-9:
            self.run_slice()
            self.check_free()
        self.height = self.goal

    def step(self, command):
        with self.lock:
            self.check_open("step")
            if not self.is_open:
                raise EpisodeError("step before the first reset")
            values = self.checked(command)
            self.check_free()
            self.take(values)
            begun = time.monotonic()
            for number in range(SLICES):
                if self.why is None:
                    self.run_slice(begun + (number + 1) * PERIOD_S / SLICES)
            self.check_free()
            return self.reading()

    def check_open(self, call):
        if self.is_closed:
            raise EpisodeError(f"{call} after close")

    def check_free(self):
        if self.why is not None:
            raise RobotStopped(self.why)

    def checked(self, command):
        return self.spec.commands.validate(command, "command")

    def take(self, values):
        self.goal, self.valve = float(values["height_goal"]), int(values["valve"])

    def run_slice(self, until=None):
        """Move for a slice; the lock is free while it waits, so that a stop comes through."""
        seconds = PERIOD_S / SLICES
        wait = seconds if until is None else until - time.monotonic()
        if wait > 0:
            self.lock.wait_for(lambda: self.why is not None, wait)
        if self.why is None:
            self.move(seconds)

    def move(self, seconds):
        reach = SPEED * seconds
        self.height += min(max(self.goal - self.height, -reach), reach)
        self.pressure += (self.settled() - self.pressure) * min(1.0, seconds / 0.02)

    def settled(self):
        return self.air - 50.0 * self.valve

    def stop(self, reason):
        with self.lock:
            if self.why is None:
                self.why = str(reason)
            self.goal = self.height
            self.lock.notify_all()

    def read(self):
        with self.lock:
            return self.reading() if self.is_open else None

    def close(self):
        self.is_closed = True

    def reading(self):
        sensors = {
            "height": np.array(self.height, np.float32),
            "valve_state": np.array(self.valve, np.uint8),
            "pressure": np.array(self.pressure, np.float32),
        }
        applied = {"height_goal": np.array(self.goal, np.float32), "valve": np.array(self.valve, np.uint8)}
        return RobotState(sensors, applied, time.monotonic_ns())


# -- planted faults -----------------------------------------------------------------------------------------------


class StopWaitsForStep(Cup):
    """Keep the lock for the whole step, so that a stop waits for its end."""

    def run_slice(self, until=None):
        time.sleep(max(0.0, until - time.monotonic()) if until is not None else PERIOD_S / SLICES)
        self.move(PERIOD_S / SLICES)


class StopFinishesThePeriod(Cup):
    """Go on towards the goal for a whole period before a stop takes effect."""

    def stop(self, reason):
        with self.lock:
            for _ in range(SLICES):
                self.move(PERIOD_S / SLICES)
        super().stop(reason)


class StepEndsTheStop(Cup):
    """Forget a stop that came during a step when the step ends."""

    def step(self, command):
        before = self.why
        try:
            return super().step(command)
        finally:
            self.why = before


class ResetEndsTheStop(Cup):
    """Forget a stop that came while a reset drove to its start."""

    def go_to(self, height_goal, valve):
        try:
            super().go_to(height_goal, valve)
        except RobotStopped:
            self.why = None
            super().go_to(height_goal, valve)


class StopOfOneThread(Cup):
    """Raise an error at a stop from another thread than that of the reset."""

    def reset(self, options):
        self.owner = threading.get_ident()
        return super().reset(options)

    def stop(self, reason):
        if getattr(self, "owner", threading.get_ident()) != threading.get_ident():
            raise EpisodeError("the cup belongs to the thread that opened it")
        super().stop(reason)


class StopRetracts(Cup):
    """Pull the plunger up at a stop, where it must hold."""

    def stop(self, reason):
        super().stop(reason)
        self.height = self.goal = TRAVEL


class ValveObeysWhileStopped(Cup):
    """Switch the valve while the cup is stopped, before the step is refused."""

    def check_free(self):
        if self.why is not None and getattr(self, "asked", None) is not None:
            self.valve, self.asked = self.asked, None
        super().check_free()

    def checked(self, command):
        values = super().checked(command)
        self.asked = int(values["valve"])
        return values


class StopExpires(Cup):
    """Clear the stop by itself 0.3 s later."""

    def stop(self, reason):
        super().stop(reason)
        timer = threading.Timer(0.3, lambda: setattr(self, "why", None))
        timer.daemon = True
        timer.start()


class ShortReason(Cup):
    """Keep the first 16 characters of a stop's reason."""

    def stop(self, reason):
        super().stop(str(reason)[:16])


class EmptyReasonStopsNothing(Cup):
    """Ignore a stop with an empty reason."""

    def stop(self, reason):
        if reason:
            super().stop(reason)


class CloseHangs(Cup):
    """Take more than `CLOSE_S` for a close, which waits for a thread that never ends."""

    def close(self):
        super().close()
        threading.Event().wait(6.0)


class ResetAfterCloseWorks(Cup):
    """Open the cup again at a reset after close."""

    def check_open(self, call):
        if call == "reset":
            self.is_closed = False
        super().check_open(call)


class SeedIgnored(Cup):
    """Draw the pressure of the air without the seed."""

    def reset(self, options):
        return super().reset({**options, "seed": None})


class StampsCount(Cup):
    """Number the states in place of stamping them with a time."""

    def reading(self):
        self.count = getattr(self, "count", 0) + 1
        return super().reading()._replace(stamp_ns=self.count)


class ValveRounds(Cup):
    """Accept a fraction for the valve and round it, where the spec says 0 or 1."""

    def checked(self, command):
        valve = np.asarray(command.get("valve"))
        rounded = np.round(valve).astype(np.uint8) if valve.dtype.kind == "f" else valve
        return super().checked({**command, "valve": rounded} if "valve" in command else command)
