"""The steps of a bench: what the owner does, what must stand clear, what is measured, and against which limit."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from hal.drivers.arm_table import ArmTable
from hal.drivers.bus import ServoBus
from hal.drivers.bus_arm import BusArm
from hal.drivers.health import HealthSettings
from hal.drivers.simulated_port import open_port
from hal.errors import CommandTooOld, ConnectionLost, EpisodeError, RobotError, RobotStopped
from hal.field import JsonDict
from hal.robot import RobotState
from real.control.driver import END_S
from rlenv_kit.bench.motion import COMMAND, REST_DEG, Sample
from rlenv_kit.bench.owner import Owner
from rlenv_kit.bench.report import Figure, StepResult
from rlenv_kit.bench.rig import FAST_DEG_S, BenchError, NotFast, Rig
from rlenv_robot.config.profile import Profile

__all__ = ["STEPS", "Bench", "NotDone", "Step"]

_OURS = "this protocol"
_SAFETY, _LAB, _SERVOS = "docs/safety.md", "docs/lab-safety.md", "docs/servos.md"
_HAND_MM_PER_S = 2000.0
"""Speed of a hand that reaches, mm/s. Source: ISO 13855:2010, 6.2.3, the constant K for distances up to 500 mm."""

_HOT_C = float(HealthSettings().max_temperature)
"""Temperature at which the driver stops an arm, degrees Celsius."""

_GRIP = float(signature(BusArm).parameters["grip_torque"].default)

_TRIES = 4
_MOST_BROKEN = 20
"""Broken episodes after which a drift of two visits is given up."""

_THREE = (0, 1, 2)
_SWINGS = "in 2 s the first joint swings by 0.3 rad, two more by 0.15"

_CLOSING_S = 3.0
"""Time for closing on a thing, and for the first second of its grip."""

_REASON = "a trial of the bench"
_REACT_S = 10.0
_BY_HAND_S = 120.0
"""Longest wait for an act of the owner, seconds."""


class NotDone(Exception):
    """A step can't be done on this arm; the message says why."""


@dataclass
class Bench:
    """The arm, its owner, and the lengths of steps.

    Attributes:
        rig: the arm, its server and its clients.
        owner: whoever stands at the arm.
        profile: the owner's profile.
        arm: the table of joints.
        minutes: length of the drift.
        hold_s: length of a squeeze, seconds.
        heat_minutes: length of the duty cycle.
    """

    rig: Rig
    owner: Owner
    profile: Profile
    arm: ArmTable
    minutes: float = 60.0
    hold_s: float = 30.0
    heat_minutes: float = 10.0

    @property
    def on_bus(self) -> ArmTable:
        """The table of joints of servos on a bus.

        Raises:
            NotDone: this arm has none.
        """
        if self.profile.robot.where != "driver":
            raise NotDone("this arm is not driven as servos on a bus, whose supply and registers the step needs")
        return self.arm

    def home(self, why: str = "the owner has confirmed that its way home is clear") -> RobotState:
        """Bring the arm home, and return the reading."""
        self.rig.start()
        return self.rig.reset(why)

    def servos(self) -> dict[str, JsonDict]:
        """Return the newest report on each servo.

        Raises:
            NotDone: the driver reports none.
        """
        servos: dict[str, JsonDict] = self.rig.about().get("servos", {})
        if not servos or "duty" not in next(iter(servos.values())):
            raise NotDone("the driver reports no duty and temperature of its servos")
        return servos


Run = Callable[[Bench], StepResult]
Measured = tuple[list[Figure], list[str]]


@dataclass(frozen=True)
class Step:
    """A step of the bench.

    Attributes:
        title: what it tries.
        you: what the owner does.
        clear: what must stand clear, and where hands are.
        measure: carries it out; returns its figures and notes, and perhaps a series.
    """

    title: str
    you: tuple[str, ...]
    clear: str
    measure: Callable[[Bench], tuple[Any, ...]]

    def run(self, name: str, bench: Bench) -> StepResult:
        """Carry out the step, and return its result, whatever fails.

        A step in which this computer was too late for the motion is begun again, `_TRIES` times at most.
        """
        late: list[str] = []
        while True:
            try:
                figures, notes, *series = self.measure(bench)
            except NotDone as reason:
                return StepResult(name, self.title, done=False, reason=str(reason))
            except (CommandTooOld, EpisodeError, NotFast) as error:
                late.append(f"begun again, as this computer was late: {_line(error)}")
                if len(late) == _TRIES:
                    return StepResult(name, self.title, True, _line(error), notes=tuple(late))
            except Exception as error:  # what fails on a bench is a finding, and the other steps are still of use
                return StepResult(name, self.title, True, _line(error), notes=tuple(late))
            else:
                shown = series[0] if series else None
                return StepResult(name, self.title, True, "", tuple(figures), (*late, *notes), shown)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


# -- Stops -----------------------------------------------------------------------------------------------------------


def _rest_figures(rig: Rig, cause_s: float) -> list[Figure]:
    rest = rig.rest(cause_s)
    figures = [
        Figure("fastest joint at that moment", rest.speed_deg_s, "deg/s", "at least", FAST_DEG_S / 2, _OURS),
        Figure("time to rest", rest.seconds * 1e3, "ms", "at most", 500.0, f"{_OURS}; resolution one control period"),
        Figure("travel", rest.travel_deg, "deg", "at most", 10.0, f"{_SERVOS}: goals over 10° ahead come nearer"),
        Figure("way of a hand until rest", rest.seconds * _HAND_MM_PER_S, "mm", source="ISO 13855:2010, 6.2.3: 2 m/s"),
    ]  # fmt: skip
    return figures + _lower("gripper lower by", rest.before, rest.after)


def _stop(bench: Bench) -> Measured:
    state, rig = bench.home(), bench.rig
    period_ms = rig.mover.spec.period_s * 1e3
    with rig.moving(state, fast_deg_s=FAST_DEG_S) as ended:
        cause_s = time.monotonic()
        rig.button.stop(_REASON)
        confirmed_ms = (time.monotonic() - cause_s) * 1e3
        figures = _rest_figures(rig, cause_s)
    refused = bool(ended) and _REASON in str(ended[0])
    return [
        Figure("confirmed after", confirmed_ms, "ms", "at most", 2 * period_ms, f"{_OURS}: two control periods"),
        *figures,
        Figure("further commands refused", refused, "", "equal", True, f"{_SAFETY}: every further command is refused"),
    ], []  # fmt: skip


def _client(bench: Bench) -> Measured:
    bench.home()
    rig, watchdog_ms = bench.rig, bench.profile.serve.watchdog_s * 1e3
    with rig.stranger(60.0) as client:
        cause_s = time.monotonic()
        client.end(signal.SIGKILL)
        held_s = rig.until("holding", _REACT_S, cause_s).at_s
        figures = _rest_figures(rig, cause_s)
    source = f"{_LAB}: within 0.25 s (the watchdog and 50 ms), read to 10 ms"
    return [
        Figure("holding after", (held_s - cause_s) * 1e3, "ms", "at most", watchdog_ms + 60.0, source),
        *figures,
    ], []


class _Restart(NamedTuple):
    """A stopped arm, before its server was ended and after a new one began."""

    before: Sample
    code: int
    seconds: float
    after: Sample


def _restart_stopped(bench: Bench, end: signal.Signals, settle_s: float) -> _Restart:
    """Stop the arm at home, end its server, wait, start a new one, and read the arm before and after."""
    bench.home()
    rig = bench.rig
    rig.button.stop(_REASON)
    time.sleep(0.5)
    before = rig.pose()
    code, seconds = rig.end_server(end)
    time.sleep(settle_s)
    rig.start()
    return _Restart(before, code, seconds, rig.pose())


def _latch(bench: Bench) -> Measured:
    found = _restart_stopped(bench, signal.SIGKILL, 1.0)
    after = found.after
    return [
        Figure("state after the restart", after.state, "", "equal", "stopped", f"{_SAFETY}: the next begins stopped"),
        Figure("the reason is kept", _REASON in after.why, "", "equal", True, f"{_SAFETY}: the life of a stop"),
        _moved(found.before, after, f"{_LAB}: the arm stays where it is"),
    ], []  # fmt: skip


def _end(bench: Bench) -> Measured:
    found = _restart_stopped(bench, signal.SIGINT, 2.0)
    return [
        Figure("exit code", float(found.code), "", "equal", 0.0, f"{_SAFETY}: SIGTERM, Ctrl-C of a stopped robot"),
        _ended(bench, found.seconds),
        _moved(found.before, found.after, f"{_SERVOS}: holds, with torque"),
    ], []  # fmt: skip


def _ended(bench: Bench, seconds: float) -> Figure:
    bound = bench.profile.serve.lower_s + END_S + 1.0
    return Figure("ended after", seconds, "s", "at most", bound, f"serve.lower_s, {END_S:g} s, and 1 s for the sockets")


def _way_deg(before: Sample, after: Sample) -> float:
    """Return the farthest way of a joint between two messages, degrees.

    Raises:
        BenchError: one has no joint positions.
    """
    if before.degrees is None or after.degrees is None:
        raise BenchError("the server reported no joint positions")
    return float(np.abs(after.degrees - before.degrees).max())


def _lower(name: str, before: Sample, after: Sample) -> list[Figure]:
    """Return how far the gripper came down between two messages; nothing where its height is not measured."""
    if before.height_m is None or after.height_m is None:
        return []
    return [Figure(name, (before.height_m - after.height_m) * 1e3, "mm")]


def _moved(before: Sample, after: Sample, source: str) -> Figure:
    return Figure("moved meanwhile", _way_deg(before, after), "deg", "at most", REST_DEG, source)


# -- Supply ----------------------------------------------------------------------------------------------------------


def _stopped_after(rig: Rig, stopped: Sample, acted_s: float | None, own_ms: float, source: str) -> list[Figure]:
    """Return the time from an act to the stop: the driver's own time and two periods; nothing for a person's act."""
    if acted_s is None:
        return []
    bound = own_ms + 2e3 * rig.mover.spec.period_s
    return [Figure("stopped after", max(stopped.at_s - acted_s, 0.0) * 1e3, "ms", "at most", bound, source)]


def _power(bench: Bench) -> Measured:
    arm, rig, owner = bench.on_bus, bench.rig, bench.owner
    bench.home()
    volts = max(float(servo["volts"]) for servo in bench.servos().values())
    before, cause_s = rig.pose(), time.monotonic()
    silent = [f"hang {servo}" for servo in arm.ids]
    text = "Pull the plug of the servos' supply, the arm supported. No key is needed."
    acted_s = owner.act(text, "volts 0", *silent)
    stopped = rig.until("stopped", _BY_HAND_S, cause_s)
    time.sleep(1.5)
    owner.confirm("Put the plug in again.", f"volts {volts}", "brown-out", *(f"wake {servo}" for servo in arm.ids))
    time.sleep(1.0)
    rig.end_server(signal.SIGTERM)
    torque = _registers(bench, "torque_enable")
    rig.start()
    fallen = rig.pose()
    figures = [
        *_stopped_after(rig, stopped, acted_s, 100.0, f"{_SERVOS}: old for 100 ms stops"),
        Figure("stopped by itself, with a reason", bool(stopped.why), "", "equal", True, f"{_SERVOS}: it stops"),
        Figure("servos with torque after the supply is back", float(sum(torque.values())), "", "equal", 0.0,
               f"{_LAB}: torque stays off until somebody asks for a reset"),
        Figure("joints fell by at most", _way_deg(before, fallen), "deg"),
        *_lower("gripper fell by", before, fallen),
    ]  # fmt: skip
    return figures, [f"stopped: {stopped.why}"]


def _brown_out(bench: Bench) -> Measured:
    arm, rig, owner = bench.on_bus, bench.rig, bench.owner
    bench.home()
    last, cause_s = arm.joints[-1], time.monotonic()
    text = f"Unplug the cable of servo {last.id} ({last.name}), the last of the chain, for a second; plug it in again."
    acted_s = owner.act(text, f"brown-out {last.id}")
    stopped = rig.until("stopped", _BY_HAND_S, cause_s)
    owner.confirm("See that the cable is in again.")
    bench.home("the owner has plugged the servo in again")
    limits, after = (
        rig.about()["torque_limits"],
        _stopped_after(rig, stopped, acted_s, 0.0, f"{_SERVOS}: within a period"),
    )
    rig.button.stop(_REASON)
    rig.end_server(signal.SIGKILL)
    held = _registers(bench, "torque_limit") if "torque_limit" in arm.family.table else {}
    wrong = [
        joint.name for joint in arm.joints
        if joint.id in held and held[joint.id] not in (full := round(limits[joint.name] * 1000), full - 1)
    ]  # fmt: skip
    figures = [
        *after,
        Figure("stopped by the joint's name", last.name in stopped.why, "", "equal", True,
               f"{_SERVOS}: stops within a period, with the servo"),
        Figure("servos whose limit was read", float(len(held)), "", "equal", float(len(arm.joints)), _OURS),
        Figure("servos with another limit than set, after the reset", float(len(wrong)), "", "equal", 0.0,
               f"{_SERVOS}: every reset writes the torque limits"),
    ]  # fmt: skip
    return figures, [f"stopped: {stopped.why}", *(f"other limits: {', '.join(wrong)}" for _ in wrong[:1])]


def _registers(bench: Bench, name: str) -> dict[int, int]:
    """Read a register of all servos from the bus itself, while no server has it; servo id -> content."""
    arm, options = bench.on_bus, bench.profile.robot.options
    register = arm.family.table[name]
    with closing(
        ServoBus(open_port(str(options["port"]), int(options.get("baud", arm.baud))), arm.family.codec)
    ) as bus:
        replies = bus.sync_read(register.address, register.size, arm.ids)
    return {servo: register.unpack(reply.data) for servo, reply in replies.items()}


# -- Force, height, heat, drift --------------------------------------------------------------------------------------


def _squeeze(bench: Bench) -> tuple[Any, ...]:
    arm, rig, owner = bench.on_bus, bench.rig, bench.owner
    grips = [index for index, joint in enumerate(arm.joints) if joint.grips]
    if not grips:
        raise NotDone("no joint of this arm grips")
    joint = arm.joints[grips[0]]
    limit = float(bench.profile.robot.options.get("grip_torque", _GRIP))
    state, low, high = bench.home(), joint.low, joint.high
    target = np.asarray(state.applied[COMMAND], float)
    target[grips[0]] = low + 0.6 * (high - low)
    state = rig.go(state, target, 1.5)
    owner.confirm("Hold a soft thing (foam, a sponge) between the open fingers; take your fingers out.", "thing 2.0")
    began = bench.servos()[joint.name]["temperature"]
    target[grips[0]] = low
    state, duties, series, begin_s = rig.go(state, target, 1.0), [], [], time.monotonic()
    while (passed_s := time.monotonic() - begin_s) < bench.hold_s + _CLOSING_S:
        state = rig.go(state, target, 0.25)
        servo = bench.servos()[joint.name]
        series.append([round(passed_s, 1), round(abs(servo["duty"]), 3), servo["temperature"]])
        if passed_s > _CLOSING_S:
            duties.append(abs(float(servo["duty"])))
    force = owner.number("If a scale is between the fingers: the force in newtons")
    target[grips[0]] = low + 0.6 * (high - low)
    rig.go(state, target, 1.5)
    owner.confirm("Take the thing out.", "no-thing")
    over = sum(duty > limit + 0.02 for duty in duties) / len(duties)
    end = bench.servos()[joint.name]["temperature"]
    figures = [
        Figure("time above the grip limit, after its first second", over * 100, "%", "equal", 0.0,
               f"{_SERVOS}: after a second with grip_torque"),
        Figure("smallest duty then", min(duties), "", "at least", 0.05, f"{_OURS}: it holds a thing at all"),
        Figure("largest duty then", max(duties), "", "at most", limit + 0.02, f"{_SERVOS}: grip_torque, {limit:g}"),
        Figure("temperature of the servo", float(end), "°C", "at most", _HOT_C, f"{_SERVOS}: stops near 65 °C"),
        Figure("warmer by", float(end - began), "°C"),
        *([] if force is None else [Figure("force by the owner's scale", force, "N", source="the owner's reading")]),
    ]  # fmt: skip
    return figures, [], {"seconds, duty and temperature": series}


def _let_down(bench: Bench) -> Measured:
    state, rig = bench.home(), bench.rig
    with rig.moving(state):
        pass
    before = rig.pose()
    code, seconds = rig.end_server(signal.SIGINT)
    ruler = bench.owner.number("By how many millimetres the gripper's tip came down, by your ruler")
    rig.start()
    after = rig.pose()
    figures = [
        Figure("exit code", float(code), "", "equal", 0.0, f"{_SERVOS}: is let down; no hang is reported"),
        _ended(bench, seconds),
        Figure("joints sank by at most", _way_deg(before, after), "deg"),
        *_lower("gripper sank by", before, after),
        *([] if ruler is None else [Figure("drop by the owner's ruler", ruler, "mm", source="the owner's reading")]),
    ]  # fmt: skip
    return figures, []


def _check_late(error: RobotError, bench: Bench) -> None:
    """Raise an error that was not due to a late computer alone, after which the arm holds and may go on."""
    if not (isinstance(error, CommandTooOld | EpisodeError | ConnectionLost) and bench.rig.serves):
        raise error


def _run_figures(stopped: str, broken: int) -> list[Figure]:
    return [
        Figure("ran to its end without a stop", not stopped, "", "equal", True, _OURS),
        Figure("episodes that a late computer broke", float(broken), source="the watchdog, and the age of commands"),
    ]


def _heat(bench: Bench) -> tuple[Any, ...]:
    bench.home()

    def look() -> JsonDict:
        now = {name: servo["temperature"] for name, servo in bench.servos().items()}
        return {"s": round(time.monotonic() - begin_s), **now}

    begin_s = time.monotonic()
    series, stopped, broken, end_s = [look()], "", 0, begin_s + bench.heat_minutes * 60
    try:
        while time.monotonic() < end_s:
            with bench.rig.moving(bench.home(), _THREE, settle_s=0.0) as ended:
                while time.monotonic() < end_s and not ended:
                    time.sleep(min(1.0, max(end_s - time.monotonic(), 0.0)))
                    if time.monotonic() - begin_s > series[-1]["s"] + 30:
                        series.append(look())
            for late in ended:
                _check_late(late, bench)
                broken += 1
    except RobotStopped as error:
        stopped = str(error)
    series.append(look())
    hottest = max(bench.arm.names, key=lambda name: int(series[-1][name]))
    end = float(series[-1][hottest])
    return [
        *_run_figures(stopped, broken),
        Figure("hottest servo at the end", end, "°C", "at most", _HOT_C, f"{_SERVOS}: stops near 65 °C"),
        Figure("which", hottest),
        Figure("warmer by", end - float(series[0][hottest]), "°C"),
        Figure("duty cycle", float(series[-1]["s"]) / 60, "min"),
    ], [_SWINGS, *([stopped] if stopped else [])], {"temperatures": series}  # fmt: skip


def _drift(bench: Bench) -> tuple[Any, ...]:
    state, rig = bench.home(), bench.rig
    ruler = bench.owner.number("Mark the gripper's tip on a paper now. Distance of the mark from the tip, mm (0)")
    pose = np.asarray(state.applied[COMMAND], float)
    begin_s, visits, stopped, broken = time.monotonic(), list[np.ndarray](), "", 0
    pause_s = min(25.0, bench.minutes * 10)
    try:
        while time.monotonic() < begin_s + bench.minutes * 60 or (len(visits) < 2 and broken < _MOST_BROKEN):
            try:
                state = rig.go(rig.reset("the next visit", start="present"), pose, 1.5)
                for _ in range(round(rig.mover.spec.rate_hz)):
                    state = rig.mover.step({COMMAND: pose.astype(np.float32)})
            except RobotError as error:
                _check_late(error, bench)
                broken += 1
                continue
            visits.append(np.degrees(np.asarray(state.sensors["joint_position"], float)))
            with rig.moving(state, _THREE, settle_s=pause_s) as ended:
                pass
            for late in ended:
                _check_late(late, bench)
                broken += 1
    except RobotStopped as error:
        stopped = str(error)
    minutes = (time.monotonic() - begin_s) / 60
    if ruler is not None:
        ruler = bench.owner.number("Distance of the tip from its mark now, mm")
    ways = np.array(visits) - visits[0] if visits else np.zeros((1, len(pose)))
    farthest = np.abs(ways).max(axis=0)
    figures = [
        *_run_figures(stopped, broken),
        Figure("farthest from the first visit", float(farthest.max()), "deg", "at most", REST_DEG, f"{_OURS}: 6 steps"),
        Figure("joint", bench.arm.names[int(farthest.argmax())]),
        Figure("visits", float(len(visits)), "", "at least", 2.0, _OURS),
        Figure("duration", minutes, "min"),
        *([] if ruler is None else [Figure("tip from its mark", ruler, "mm", source="the owner's reading")]),
    ]  # fmt: skip
    notes = [_SWINGS, "encoders see neither backlash nor a part that slips behind them: mark the tip"]
    notes += [stopped] if stopped else []
    return figures, notes, {"degrees from the first visit": np.round(ways, 3).tolist()}


def _timing(bench: Bench) -> Measured:
    state, rig = bench.home(), bench.rig
    before = rig.button.status()["cadence"]
    with rig.moving(state, settle_s=min(20.0, bench.minutes * 60)) as ended:
        after = rig.button.status()
    if ended:
        raise ended[0]
    cadence: Mapping[str, Any] = after["cadence"]
    periods = cadence["periods"] - before["periods"]
    late = cadence["overruns"] - before["overruns"]
    return [
        Figure("late periods (over 1.5 nominal)", 100 * late / max(periods, 1), "%", "at most", 0.5, _OURS),
        Figure("longest period since the start", cadence["longest_ms"], "ms", "at most",
               bench.profile.serve.watchdog_s * 1e3, f"{_SAFETY}: the watchdog"),
        Figure("periods", float(periods)),
        Figure("nominal period", cadence["period_ms"], "ms"),
        Figure("real-time scheduling", str(after.get("real_time"))),
    ], []  # fmt: skip


_CLEAR = "its way home and 30 cm around it; one hand at the supply's switch, no hand in reach"

STEPS: dict[str, Step] = {
    "timing": Step("control periods kept while it moves", ("look that it moves freely",), _CLEAR, _timing),
    "stop": Step("a stop on the wire while it moves", ("nothing",), _CLEAR, _stop),
    "client": Step("the client that moves it is killed", ("nothing",), _CLEAR, _client),
    "latch": Step("a stop outlives a killed server", ("nothing; the arm holds without a server",), _CLEAR, _latch),
    "end": Step("Ctrl-C of the server of a stopped arm", ("nothing; the arm holds without a server",), _CLEAR, _end),
    "brown-out": Step(
        "one servo loses its supply", ("unplug and replug the last servo of the chain when asked",),
        f"{_CLEAR}; what that servo carries falls", _brown_out,
    ),
    "power": Step(
        "the servos' supply is pulled", ("support the arm, or lay foam under it", "pull the supply's plug when asked"),
        "everything below the arm: IT FALLS", _power,
    ),
    "squeeze": Step(
        "the gripper holds a soft thing", ("put foam or a sponge between the fingers when asked",),
        "fingers out of the gripper; no glass, no hand in its place", _squeeze,
    ),
    "heat": Step("temperatures in a duty cycle", ("stay with it: nobody else stops it",), _CLEAR, _heat),
    "drift": Step("the same pose again and again", ("mark the tip on paper if you can",), _CLEAR, _drift),
    "drop": Step("Ctrl-C of the server, nobody stopped it: it is let down", ("hold a ruler beside the tip if you can",),
                 "everything below the arm: it sinks", _let_down),
}  # fmt: skip
"""Name -> step, in the order in which a bench does them."""
