"""Faults of a mobile base, planted without a look at the checks: each is the `Base` with one fault."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np

from hal import Field, RobotStopped, Spec
from plugins.kit.tests.planting import Planted, planters, with_sensor
from plugins.kit.tests.wheels import BASE, Base

FAULTS: dict[str, Planted] = {}
fault, changes, replaces = planters(FAULTS)


# -- stops ----------------------------------------------------------------------------------------------------


@fault("stop")
class ForgetsTheStop(Base):
    def refuse(self):
        if self.stopped:
            reason, self.stopped = self.stopped, ""
            raise RobotStopped(reason)


@fault("stop")
class StepIsSilentWhileStopped(Base):
    def step(self, command):
        if self.stopped and self.goal is not None:
            self.check(command)
            return self.state()
        return super().step(command)


@fault("rest", "A stop refuses commands, and the wheels keep their speed.")
class RollsOn(Base):
    def coast(self):
        if self.goal is not None:
            self.integrate(self.goal["twist"])


@fault("rest")
class MastCreepsAfterStop(Base):
    def coast(self):
        super().coast()
        if self.stopped:
            self.height = min(self.height + 0.002, 1.0)


@fault("stop", "A stop is forgotten after a twentieth of a second.")
class StopWearsOff(Base):
    def stop(self, reason):
        super().stop(reason)
        self.until = time.monotonic() + 0.05

    def refuse(self):
        if self.stopped and time.monotonic() > self.until:
            self.stopped = ""
        super().refuse()


@fault("rest")
class MastDropsAtTheStop(Base):
    def stop(self, reason):
        super().stop(reason)
        self.height = max(self.height - 0.1, 0.0)


@fault("follows", "Turns beyond half of the range are cut, and applied says what was asked.")
class HalfSpeedFarOut(Base):
    simulated = True
    spec = replace(
        BASE,
        commands=Spec(
            BASE.commands.name,
            (replace(BASE.commands["twist"], unit="rad/s"), BASE.commands["mast"], BASE.commands["lamp"]),
        ),
    )

    def integrate(self, twist):
        super().integrate(np.clip(twist, (-0.25, -0.5), (0.25, 0.5)))


@fault("stop")
class BlocksTheStop(Base):
    def stop(self, reason):
        time.sleep(4.0)
        super().stop(reason)


@fault("stop at reset", "A stop takes the lock that a reset holds until it is over.")
class StopWaitsForItsTurn(Base):
    real_time = True

    def reset(self, options):
        with self.lock:
            time.sleep(0.3)
            return super().reset(options)

    def stop(self, reason):
        with self.lock:
            super().stop(reason)


@fault("stop")
class StopsForItsOwnThread(Base):
    def __init__(self):
        super().__init__()
        self.owner = threading.get_ident()

    def reset(self, options):
        self.owner = threading.get_ident()
        return super().reset(options)

    def stop(self, reason):
        if threading.get_ident() == self.owner:
            super().stop(reason)


@fault("stop at reset", "A stop during the way to the start is lost.")
class ResetOutlivesTheStop(Base):
    real_time = True

    def refuse(self):
        if not self.resetting:
            super().refuse()

    resetting = False

    def reset(self, options):
        self.clear(options)
        self.resetting = True
        try:
            state = super().reset({**options, "clear_stop": "reset"})
        finally:
            self.resetting, self.stopped = False, ""
        return state


@fault("stop")
class ClearsWithoutAReason(Base):
    def clear(self, options):
        self.stopped = ""


@fault("stop")
class ClearsWithAnEmptyReason(Base):
    def clear(self, options):
        if "clear_stop" not in options:
            super().clear(options)
        self.stopped = ""


@fault("stop again")
class StopTwiceRaises(Base):
    def stop(self, reason):
        if self.stopped:
            raise RuntimeError("already stopped")
        super().stop(reason)


@fault("stop early")
class StopNeedsAReset(Base):
    def stop(self, reason):
        if self.goal is not None:
            super().stop(reason)


@fault("stop")
class NoClear(Base):
    def clear(self, options):
        if self.stopped:
            raise RobotStopped(self.stopped)


@fault("stop at reset", "The step that is under way writes its own state over the stop.")
class StopUndoneByTheStep(Base):
    real_time = True

    def move(self):
        before = self.stopped
        super().move()
        self.stopped = before


# -- the base: the rest ------------------------------------------------------------------------------------------


replaces(Base, "integrate", {
    "TurnMirrored -> follows": lambda self, twist: Base.integrate(self, twist * [1, -1]),
    # Rolls while its command is 0.
    "Drifts -> rest": lambda self, twist: Base.integrate(self, twist + np.array((0.04, 0))),
})  # fmt: skip


@fault("follows")
class MillimetresASecond(Base):
    spec = with_sensor(
        BASE, twist_measured=Field("twist_measured", (2,), "float32", -3000.0, 3000.0, "1", "forward and turn")
    )

    def sensors(self):
        return {**super().sensors(), "twist_measured": (self.twist * [1000, 1]).astype(np.float32)}


@fault("applied")
class MastMovesWithTheTurn(Base):
    def command(self, values):
        super().command(values)
        self.goal["mast"] = float(np.clip(self.goal["mast"] + 0.01 * values["twist"][1], 0, 1))

    def applied(self):
        return {**super().applied(), "mast": np.array(np.clip(self.goal["mast"], 0, 1), np.float32)}


@fault("places")
class KeepsItsSpeedOverAReset(Base):
    def go_to(self, start):
        twist = self.goal0["twist"] if self.goal0 else np.zeros(2)
        super().go_to({**start, "twist": twist})

    goal0 = None

    def reset(self, options):
        self.goal0 = self.kept
        return super().reset(options)

    kept = None

    def command(self, values):
        super().command(values)
        self.kept = self.goal


replaces(Base, "limited", {
    "MastTooFast -> reset speed":
        lambda self, mast: float(np.clip(mast, self.goal["mast"] - 0.04, self.goal["mast"] + 0.04)),
})  # fmt: skip


@fault("periods")
class TwiceThePeriod(Base):
    real_time = True
    period_s = 0.02


replaces(Base, "stamp", {
    "WallClock -> stamps": lambda self: time.time_ns(),
})  # fmt: skip


@fault("stamps")
class SecondsForNanoseconds(Base):
    real_time = True

    def stamp(self):
        return int(time.monotonic())


@fault("", "The time at which the command was sent, two periods before the measurement.")
class StampBeforeTheStep(Base):
    real_time = True

    def stamp(self):
        return time.monotonic_ns() - 2_000_000_000


@fault("left")
class LeavesAThread(Base):
    def reset(self, options):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return super().reset(options)


replaces(Base, "close", {
    "MovesAfterClose -> closed": lambda self: None,
})  # fmt: skip


@fault("closed", "Steps are refused; the motors stay on and the mast goes on rising.")
class MastMovesAfterClose(Base):
    def close(self):
        super().close()

        def rise():
            for _ in range(200):
                self.height += 0.001
                time.sleep(0.01)

        threading.Thread(target=rise, daemon=True).start()


@fault("closed")
class CloseTwiceRaises(Base):
    def close(self):
        if self.closed:
            raise OSError("no such port")
        super().close()


@fault("too early")
class OpensWhenMade(Base):
    def __init__(self):
        super().__init__()
        self.reset({})


@fault("too early")
class StepsBeforeReset(Base):
    def __init__(self):
        super().__init__()
        self.goal = {"twist": np.zeros(2), "mast": 0.3, "lamp": 0}


@fault("rest")
class ReadMoves(Base):
    def coast(self):
        self.height = min(self.height + 0.01, 1.0)


@fault("command")
class AliasesTheCommand(Base):
    asked = None

    def command(self, values):
        super().command(values)
        self.asked = values["twist"]

    def applied(self):
        return super().applied() if self.asked is None else {**super().applied(), "twist": self.asked}


changes(Base, "applied", {
    "LampIsNotApplied -> ": lambda self, right: {**right, "lamp": np.array(0, np.uint8)},
})  # fmt: skip


replaces(Base, "check", {
    "LampMayBeMissing -> refusals": lambda self, command: Base.check(self, {"lamp": np.array(0, np.uint8), **command}),
})  # fmt: skip
