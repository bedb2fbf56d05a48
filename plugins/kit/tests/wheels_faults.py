"""Faults of a mobile base, planted without a look at the checks: each is the `Base` with one fault."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import numpy as np

from hal import Field, RobotStopped, Spec
from plugins.kit.tests.planting import entry, with_sensor
from plugins.kit.tests.wheels import BASE, Base

FAULTS: dict[str, type[Base]] = {}
fault = entry(FAULTS)


# -- stops ----------------------------------------------------------------------------------------------------


@fault
class ForgetsTheStop(Base):
    def refuse(self):
        if self.stopped:
            reason, self.stopped = self.stopped, ""
            raise RobotStopped(reason)


@fault
class StepIsSilentWhileStopped(Base):
    def step(self, command):
        if self.stopped and self.goal is not None:
            self.check(command)
            return self.state()
        return super().step(command)


@fault
class RollsOn(Base):
    """A stop refuses commands, and the wheels keep their speed."""

    def coast(self):
        if self.goal is not None:
            self.integrate(self.goal["twist"])


@fault
class MastCreepsAfterStop(Base):
    def coast(self):
        super().coast()
        if self.stopped:
            self.height = min(self.height + 0.002, 1.0)


@fault
class StopWearsOff(Base):
    """A stop is forgotten after a twentieth of a second."""

    def stop(self, reason):
        super().stop(reason)
        self.until = time.monotonic() + 0.05

    def refuse(self):
        if self.stopped and time.monotonic() > self.until:
            self.stopped = ""
        super().refuse()


@fault
class MastDropsAtTheStop(Base):
    def stop(self, reason):
        super().stop(reason)
        self.height = max(self.height - 0.1, 0.0)


@fault
class HalfSpeedFarOut(Base):
    """Turns beyond half of the range are cut, and applied says what was asked."""

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


@fault
class BlocksTheStop(Base):
    def stop(self, reason):
        time.sleep(4.0)
        super().stop(reason)


@fault
class StopWaitsForItsTurn(Base):
    """A stop takes the lock that a reset holds until it is over."""

    real_time = True

    def reset(self, options):
        with self.lock:
            time.sleep(0.3)
            return super().reset(options)

    def stop(self, reason):
        with self.lock:
            super().stop(reason)


@fault
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


@fault
class ResetOutlivesTheStop(Base):
    """A stop during the way to the start is lost."""

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


@fault
class ClearsWithoutAReason(Base):
    def clear(self, options):
        self.stopped = ""


@fault
class ClearsWithAnEmptyReason(Base):
    def clear(self, options):
        if "clear_stop" not in options:
            super().clear(options)
        self.stopped = ""


@fault
class StopTwiceRaises(Base):
    def stop(self, reason):
        if self.stopped:
            raise RuntimeError("already stopped")
        super().stop(reason)


@fault
class StopNeedsAReset(Base):
    def stop(self, reason):
        if self.goal is not None:
            super().stop(reason)


@fault
class NoClear(Base):
    def clear(self, options):
        if self.stopped:
            raise RobotStopped(self.stopped)


@fault
class StopUndoneByTheStep(Base):
    """The step that is under way writes its own state over the stop."""

    real_time = True

    def move(self):
        before = self.stopped
        super().move()
        self.stopped = before


# -- the base: the rest ------------------------------------------------------------------------------------------


@fault
class TurnMirrored(Base):
    def integrate(self, twist):
        super().integrate(twist * [1, -1])


@fault
class MillimetresASecond(Base):
    spec = with_sensor(
        BASE, twist_measured=Field("twist_measured", (2,), "float32", -3000.0, 3000.0, "1", "forward and turn")
    )

    def sensors(self):
        return {**super().sensors(), "twist_measured": (self.twist * [1000, 1]).astype(np.float32)}


@fault
class MastMovesWithTheTurn(Base):
    def command(self, values):
        super().command(values)
        self.goal["mast"] = float(np.clip(self.goal["mast"] + 0.01 * values["twist"][1], 0, 1))

    def applied(self):
        return {**super().applied(), "mast": np.array(np.clip(self.goal["mast"], 0, 1), np.float32)}


@fault
class Drifts(Base):
    """Rolls while its command is 0."""

    def integrate(self, twist):
        super().integrate(twist + np.array((0.04, 0)))


@fault
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


@fault
class MastTooFast(Base):
    def limited(self, mast):
        return float(np.clip(mast, self.goal["mast"] - 0.04, self.goal["mast"] + 0.04))


@fault
class TwiceThePeriod(Base):
    real_time = True
    period_s = 0.02


@fault
class WallClock(Base):
    def stamp(self):
        return time.time_ns()


@fault
class SecondsForNanoseconds(Base):
    real_time = True

    def stamp(self):
        return int(time.monotonic())


@fault
class StampBeforeTheStep(Base):
    """The time at which the command was sent, two periods before the measurement."""

    real_time = True

    def stamp(self):
        return time.monotonic_ns() - 2_000_000_000


@fault
class LeavesAThread(Base):
    def reset(self, options):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return super().reset(options)


@fault
class MovesAfterClose(Base):
    def close(self):
        pass


@fault
class MastMovesAfterClose(Base):
    """Steps are refused; the motors stay on and the mast goes on rising."""

    def close(self):
        super().close()

        def rise():
            for _ in range(200):
                self.height += 0.001
                time.sleep(0.01)

        threading.Thread(target=rise, daemon=True).start()


@fault
class CloseTwiceRaises(Base):
    def close(self):
        if self.closed:
            raise OSError("no such port")
        super().close()


@fault
class OpensWhenMade(Base):
    def __init__(self):
        super().__init__()
        self.reset({})


@fault
class StepsBeforeReset(Base):
    def __init__(self):
        super().__init__()
        self.goal = {"twist": np.zeros(2), "mast": 0.3, "lamp": 0}


@fault
class ReadMoves(Base):
    def coast(self):
        self.height = min(self.height + 0.01, 1.0)


@fault
class AliasesTheCommand(Base):
    asked = None

    def command(self, values):
        super().command(values)
        self.asked = values["twist"]

    def applied(self):
        return super().applied() if self.asked is None else {**super().applied(), "twist": self.asked}


@fault
class LampIsNotApplied(Base):
    def applied(self):
        return {**super().applied(), "lamp": np.array(0, np.uint8)}


@fault
class LampMayBeMissing(Base):
    def check(self, command):
        return super().check({"lamp": np.array(0, np.uint8), **command})
