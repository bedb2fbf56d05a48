"""Drive an arm of servos on one bus, as its table of joints describes it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hal.clock import Rate
from hal.drivers.arm_table import ArmTable, load_arm
from hal.drivers.bus import LATE_NS, BusSettings, Port, ServoBus
from hal.drivers.calibration import Calibration, load_calibration
from hal.drivers.contact_model import ContactModel
from hal.drivers.fitness import FitnessSettings, ServoFacts, UnfitArm, check_arm, read_register, whole_turns
from hal.drivers.group_read import GroupRead
from hal.drivers.health import HealthSettings, HealthWatch
from hal.drivers.motion_watch import MotionWatch, servo_stream
from hal.drivers.registers import Feedback
from hal.drivers.servo_settings import ServoSettings, check_settings, keep_registers
from hal.drivers.simulated_port import SimulatedPort, open_port
from hal.drivers.so101_arm import SO101_ARM
from hal.drivers.torque import OFF, ON, damp, let_down, write_all
from hal.errors import ConnectionLost, EpisodeError, Fault, RobotError, RobotStopped, StopReason
from hal.field import JsonDict
from hal.guarding.stop_latch import check_clears
from hal.robot import CLOSE_S, RobotSpec, RobotState, SampleSink

__all__ = ["BusArm"]

_log = logging.getLogger(__name__)

_SETTLE_S = CLOSE_S - 1.0
"""Longest time for which damping may let the arm down, in seconds; if it still moves then, it stays in damping."""

_TURN = 2 * np.pi  # farthest that a joint is reported from zero, rad, whatever an encoder that jumped says
_SILENT_NS = 60_000_000
"""Age from which on a servo's newest answer is a fault, nanoseconds: more than one period was lost."""

_GRIP_S = 1.0
"""Time for which the gripper pushes on a thing with its full limit before it only holds it, in seconds."""


class BusArm:
    """Drive an arm of servos: one grouped write and one grouped read in each control period.

    The constructor stores settings only. The first `reset` opens the port, compares servos and calibration
    (`hal.drivers.fitness`), writes the EEPROM registers that differ, and puts torque on with each goal at the measured
    position, so that nothing moves. A lost answer is requested once more; a position that stays old carries its age. A
    joint that is blocked, hot or disabled by its servo's alarm stops the arm (`hal.drivers.health`) until a reset
    clears the stop. A gripper that closes on an object does not count as blocked: after a second its torque limit
    falls to ``grip_torque``, until a goal opens it.

    Every reset writes the torque limits and reads them back. Each control period reads torque, limit and mode of every
    servo (`hal.drivers.servo_settings`). A servo that holds other values, as after a brown-out, stops the arm. A servo
    without torque is sent no goal until the next reset, since some firmware switches the torque on at a goal.

    `close` lets the arm down by damping, a mode of the servo that needs no controller, and switches the torque off when
    the arm has come to rest, never before. After `hold_on_close` it leaves the servos as they are. The STS3215 has
    no watchdog: if the process is killed, every servo holds its last goal. A Dynamixel has one: it stops by itself
    half a second after the last packet.

    Args:
        port: the adapter's port, preferably as ``/dev/serial/by-id/...``; or an open `hal.drivers.bus.Port`.
        calibration: the calibration file of this arm, ours or LeRobot's, or a `Calibration`.
        arm: the arm's table of joints, or the TOML file that holds it; by default the SO-101's.
        baud: bits a second; by default the table's.
        p: proportional gain of every servo's position law; by default each joint's in the table. The SO-101's gains
            are LeRobot's: 16, 0 and 32 in registers 21, 23 and 22.
        i, d: integral and derivative gain.
        volts: supply voltage, V, for the arm's manifest. If the servos measure a voltage that differs by more than a
            fifth, the arm is not switched on. None declares none: a policy's voltage is then not compared.
        delay_s: measured time from a goal on the bus to the first motion (``rlenv-robot sim2real identify``), seconds,
            for the manifest; a number, or a list of both ends.
        torque_limit: largest duty cycle of the joints that do not grip, 0 to 1; by default each one's in the table.
        gripper_torque_limit: largest duty cycle of the joints that grip, which may push for long; by default each
            one's in the table.
        grip_torque: largest duty cycle of such a joint while it holds an object.
        on_stop: the effect of a stop: ``hold`` the arm, or ``damp`` it, so that it sinks slowly.
        contact: the arm's currents in free motion (``rlenv-robot sim2real contact``), or their file; torques that they
            do not explain are contacts. None does not look for any.
        on_contact: the effect of a contact: ``stop`` the arm, or ``yield``: it pushes no more, and takes no goal until
            the next reset.
        rate_hz: control periods a second; by default the table's.
        travel_tolerance_deg: largest difference between the calibration's travel and the model's, degrees.
        turnaround_s, latency_s: as for `hal.drivers.bus.BusSettings`.
        now: the clock, seconds; by default the port's: this machine's, except for a virtual arm.
        sleep: waits on that clock, seconds.

    Raises:
        CalibrationError: the calibration can't be used.
        SpecError: the table can't be used.
        ValueError: a setting is not allowed.
    """

    def __init__(
        self,
        port: str | Path | Port,
        calibration: str | Path | Calibration,
        *,
        arm: str | Path | ArmTable = SO101_ARM,
        baud: int | None = None,
        p: int | None = None,
        i: int | None = None,
        d: int | None = None,
        volts: float | None = None,
        delay_s: float | Sequence[float] | None = None,
        torque_limit: float | None = None,
        gripper_torque_limit: float | None = None,
        grip_torque: float = 0.25,
        on_stop: Literal["hold", "damp"] = "hold",
        contact: str | Path | ContactModel | None = None,
        on_contact: Literal["stop", "yield"] = "stop",
        rate_hz: float | None = None,
        travel_tolerance_deg: float = 3.0,
        turnaround_s: float = 0.0005,
        latency_s: float = 0.004,
        now: Callable[[], float] | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        check_settings(on_stop, torque_limit=torque_limit, gripper_torque_limit=gripper_torque_limit,
                       grip_torque=grip_torque)  # fmt: skip
        self._arm = arm if isinstance(arm, ArmTable) else load_arm(arm)
        self._family, self._table = self._arm.family, self._arm.family.table
        self._port, self._baud = port, self._arm.baud if baud is None else baud
        if not isinstance(calibration, Calibration):
            calibration = load_calibration(calibration, self._arm)
        self._calibration = calibration
        if self._calibration.arm.name != self._arm.name:
            raise ValueError(f"the calibration is of {self._calibration.arm.name!r}, the arm is {self._arm.name!r}")
        asked = {name: value for name, value in (("p", p), ("i", i), ("d", d)) if value is not None}
        self._gains = {joint.name: {**joint.register_values, **asked} for joint in self._arm.joints}
        self._limits = {}
        for joint in self._arm.joints:
            share = gripper_torque_limit if joint.grips else torque_limit
            self._limits[joint.name] = joint.torque_limit if share is None else share
        self._grip_torque = {joint.name: min(grip_torque, self._limits[joint.name]) for joint in self._arm.joints}
        self._on_stop = on_stop
        self._eased: frozenset[str] = frozenset()  # joints whose limit is that of a grip
        rate_hz = self._arm.rate_hz if rate_hz is None else rate_hz
        self._spec = replace(
            self._arm.spec, rate_hz=rate_hz, actuation=self._arm.actuation(self._gains, volts, delay_s)
        )
        self._fitness = FitnessSettings(travel_tolerance_deg=travel_tolerance_deg, volts=volts)
        self._bus_settings = BusSettings(turnaround_s, latency_s)
        self._now, self._sleep = now or (lambda: self.now_ns() / 1e9), sleep or self._port_sleep
        self._rate = Rate(rate_hz, self._now, self._sleep)
        self._motion = MotionWatch(self._arm, self._gains, rate_hz, contact, on_contact)
        self.streams = (servo_stream(self._arm, rate_hz),)
        gripping = frozenset(joint.name for joint in self._arm.joints if joint.grips)
        self._health = HealthWatch(HealthSettings(gripping=gripping, grip_load=grip_torque), self._family)
        self._bus: ServoBus | None = None
        self._group: GroupRead | None = None
        self._facts: dict[str, ServoFacts] = {}
        self._measured: dict[str, Feedback] = {}  # the newest of each joint
        self._names = dict(zip(self._calibration.ids, self._arm.names, strict=True))
        self._turns = dict.fromkeys(self._names, 0)  # what to add to a servo's positions, whole turns in steps
        self._settings = ServoSettings(self._names, self._family, self._sleep)
        self._closing = dict(zip(self._arm.names, (-self._calibration.signs).astype(int).tolist(), strict=True))
        self._stopped: str | None = None
        self._is_reset = self._closed = self._holds_on_close = False
        self._touched = False  # whether a reset or `lead` has written to the servos
        self._configured = False  # whether the registers in EEPROM were compared since the port was opened
        self._changing = threading.Lock()  # between a stop from another thread and the goals of a step
        self.eeprom_writes = 0

    @property
    def spec(self) -> RobotSpec:
        """The description of the simulated arm, with the gains that this driver writes to the servos."""
        return self._spec

    @property
    def bus(self) -> ServoBus | None:
        """The bus while it is open, otherwise None."""
        return self._bus

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Send what the servos measure in each control period to a sink (`hal.drivers.motion_watch.servo_stream`)."""
        self._motion.sink = sinks.get(self.streams[0].name)

    # -- the robot -------------------------------------------------------------------------------------------------

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Read the arm where it is and hold it there; `hal.Homing` moves it to a start.

        Raises:
            RobotStopped: a stop is latched, and the options don't clear it.
            UnfitArm: the servos are not those of the calibration, or are not fit to move.
            ServoRefused: a servo does not keep a setting.
            ConnectionLost: the port can't be opened, or is lost.
            EpisodeError: after `close`.
        """
        if self._closed:
            raise EpisodeError("reset after close: make a new driver")
        with self._changing:
            stopped = self._stopped
            check_clears(stopped, options)
            self._stopped, self._is_reset = None, False  # so that a stop during the reset is a new one
        try:
            if self._bus is None:
                self._connect()
            else:
                if isinstance(self._bus.port, SimulatedPort):
                    self._bus.port.catch_up()
                if not self._configured:  # it was opened to be read
                    self._configure(self._bus)
                    self._configured = True
            self._touched = True
            self._write_settings()
            self._hold_here()
            self._rate.restart()
            self._rate.wait()
        except BaseException as error:
            self._stopped = self._stopped or stopped
            if isinstance(error, ConnectionLost):
                self._disconnect()
            raise
        self._health.clear()
        self._motion.begin()
        self._is_reset = True
        return self._state(self._calibration.angles(self._positions("goal")), ())

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Write all goals, wait for the control period, and read all servos.

        Raises:
            IllegalAction: the command breaks the spec; nothing moved.
            RobotStopped: a stop is latched, or a joint is blocked, hot or disabled by its servo's alarm.
            ConnectionLost: the port is lost.
            EpisodeError: before `reset`, or after `close`.
        """
        target = self.spec.commands.validate(command, "command")["joint_target"]
        if self._closed or not self._is_reset:
            raise EpisodeError("step before reset, or after close")
        if self._motion.yielded is not None:
            target = self._motion.yielded
        goals, applied = self._calibration.steps(target), target.copy()
        for index in self._health.follow_grips(self._eased, goals, self._measured, self._closing):
            applied[index] = self._calibration.angles(goals)[index]
        try:
            with self._changing:
                if self._stopped is not None:  # checked last, since a stop may come from another thread
                    raise RobotStopped(self._stopped)
                self._write_goals(goals)
            self._rate.wait()
            faults = self._judged(self._refresh())
        except ConnectionLost:
            self._disconnect()
            raise
        return self._state(applied if self._motion.yielded is None else self._motion.yielded, faults)

    def read(self) -> RobotState | None:
        """Read all servos without a command, even after a stop; return None if the port was lost since the last reset.

        Before the first reset this opens the port. Until that reset nothing is written to the servos, not even by
        `stop`.

        Raises:
            RobotStopped: a joint is blocked or hot, or a servo lost its settings, and the arm was not stopped before.
            ConnectionLost: the port is lost.
        """
        if self._closed or (self._bus is None and self._touched):
            return None
        if not self._touched:
            return self._read_untouched()
        try:
            faults = self._judged(self._refresh())
        except ConnectionLost:
            self._disconnect()
            raise
        return self._state(self._calibration.angles(self._positions("goal")), faults)

    def _read_untouched(self) -> RobotState:
        """Read an arm that no reset has touched yet; its faults are the first reset's to judge.

        Raises:
            UnfitArm: the servos are not those of the calibration, or not fit.
            ConnectionLost: the port can't be opened, is lost, or a servo is silent.
        """
        try:
            if self._bus is None:
                self._connect(configure=False)
            self._refresh()
            if len(self._measured) < len(self._names):
                raise ConnectionLost("not every servo answers; check the cables")
        except ConnectionLost:
            self._disconnect()
            raise
        return self._state(self._calibration.angles(self._positions("goal")), ())

    def lead(self) -> RobotState:
        """Switch the torque off, so that a person can move the arm by hand and `read` measures it.

        An arm that has torque is let down by damping first. Nothing is written to EEPROM. A reset ends it.

        Returns:
            The first reading; ``applied`` is the goal that the servos hold, which moves nothing.

        Raises:
            UnfitArm: the servos are not those of the calibration, or not fit.
            ConnectionLost: the port can't be opened or is lost, or a servo is silent.
            RobotError: the torque stays on because a joint still moves.
            EpisodeError: after `close`.
        """
        if self._closed:
            raise EpisodeError("lead after close: make a new driver")
        self._is_reset = False
        try:
            if self._bus is None:
                self._connect(configure=False)
            self._touched = True
            bus = self._opened()[1]
            register = self._table["torque_enable"]
            torques = bus.sync_read(register.address, register.size, self._calibration.ids)
            if len(torques) < len(self._names) or self._refresh():
                raise ConnectionLost(f"not every servo answers; {bus.cure}, then try again")
            powered = any(torque.data != OFF for torque in torques.values())
            if powered and not let_down(bus, self._calibration.ids, self._family, self._sleep, _SETTLE_S):
                raise RobotError("the torque is not off, since a joint still moves; hold the arm still and try again")
        except ConnectionLost:
            self._disconnect()
            raise
        self._health.clear()
        return self._state(self._calibration.angles(self._positions("goal")), ())

    def stop(self, reason: str | StopReason) -> None:
        """Hold every joint at or near its position, and refuse every command until a reset clears the stop.

        A goal more than 10 degrees from its joint is brought nearer; a nearer one stays, since a servo carries its load
        by that error. With ``on_stop="damp"`` the arm sinks slowly instead. The order is read back from each servo, and
        repeated if a servo does not have it. Idempotent, from any thread.
        """
        with self._changing:
            if self._stopped is not None:
                return
            self._stopped = str(reason)
            bus = self._bus
            if bus is None or not self._touched or len(self._measured) < len(self._names):
                return
            try:
                if self._on_stop == "damp":
                    self._settings.expect_torque(or_damping=True)
                    missed = damp(bus, self._calibration.ids, self._family)
                else:
                    held = self._packed(
                        self._motion.hold(self._calibration, *map(self._positions, ("position", "goal")))
                    )
                    for servo in self._family.release_watchdog(bus, self._calibration.ids):
                        held.pop(servo, None)  # it holds where its watchdog has stopped it
                    missed = write_all(bus, self._table["goal_position"].address, held) if held else []
            except ConnectionLost as error:
                _log.error("the arm could not be told to stop: %s", error)
                return
            if missed:
                _log.error("no answer to the stop from %s", ", ".join(self._names[servo] for servo in missed))

    def damp(self) -> bool:
        """Let the arm sink slowly, braked by its servos, until the next reset; return whether it does."""
        with self._changing:
            if self._stopped is not None or self._bus is None:
                return False
            self._is_reset = False
            return not damp(self._bus, self._calibration.ids, self._family)

    def hold_on_close(self) -> None:
        """Make `close` leave each servo holding its goal, or in damping, as a stop has left it.

        If `close` is letting the arm down, the arm halts and holds its position within a few periods. From any thread.
        """
        self._holds_on_close = True

    def close(self) -> None:
        """Lower the arm by damping, switch the torque off, and release the port. Safe to call more than once.

        If the arm was only read, nothing is written to its servos.
        An arm that still moves after 4 s stays in damping: its torque is never switched off during a motion.
        After `hold_on_close` the servos stay as they are, with torque, until a person cuts their power.
        """
        if self._closed:
            return
        self._closed = True
        if self._bus is None:
            return
        if not self._touched:  # it was read alone
            self._disconnect()
            return
        if self._holds_on_close:
            _log.warning("the arm is stopped and keeps its torque; cut the servos' power when nobody is in its way")
            self._disconnect()
            return
        try:
            let_down(
                self._bus, self._calibration.ids, self._family, self._sleep, _SETTLE_S, lambda: self._holds_on_close
            )
        except RobotError as error:
            _log.error("the arm keeps its torque, since it could not be let down: %s", error)
        finally:
            self._disconnect()

    def about(self) -> JsonDict:
        """Return the servos' firmware, newest voltage, temperature, duty and current, and the counts of the bus."""
        if self._bus is None:
            return {}
        measured = dict(self._measured)  # a copy: the control loop changes it meanwhile
        servos = {name: facts.about(measured.get(name)) for name, facts in self._facts.items()}
        gains = list(self._gains.values())
        same = gains.count(gains[0]) == len(gains)
        return {
            "servos": servos, "gains": gains[0] if same else self._gains, "torque_limits": self._limits,
            "bus": self._bus.counts.to_dict(), "eeprom_writes": self.eeprom_writes,
        }  # fmt: skip

    def now_ns(self) -> int:
        """Return the clock that stamps readings, nanoseconds: the port's while it is open."""
        return time.monotonic_ns() if self._bus is None else self._bus.port.now_ns()

    def _port_sleep(self, seconds: float) -> None:
        (time.sleep if self._bus is None else self._bus.port.sleep)(seconds)

    # -- connecting ------------------------------------------------------------------------------------------------

    def _connect(self, *, configure: bool = True) -> None:
        port = open_port(self._port, self._baud) if isinstance(self._port, str | Path) else self._port
        bus = ServoBus(port, self._family.codec, self._bus_settings)
        try:
            facts, misfits = check_arm(bus, self._calibration, self._fitness)
            if misfits:
                raise UnfitArm(misfits)
            self._facts, self._eased = facts, frozenset()
            for name, joint in self._calibration.joints.items():
                self._turns[joint.id] = whole_turns(joint, facts[name].position, self._family)
            self._health.release()
            if configure:
                self._configure(bus)
        except BaseException:
            bus.close()
            raise
        self._bus, self._configured = bus, configure
        self._group = GroupRead(bus, *self._family.state, self._calibration.ids)
        _log.info("opened %s: %d servos with firmware %s", self._port, len(facts), facts[self._arm.names[0]].firmware)

    def _configure(self, bus: ServoBus) -> None:
        """Write the EEPROM registers that differ."""
        for name, servo in zip(self._arm.names, self._calibration.ids, strict=True):
            held = self._facts[name].registers
            self.eeprom_writes += keep_registers(bus, self._family, (servo, name), self._gains[name], held)

    def _write_settings(self) -> None:
        """Write the settings of this run to all servos; a joint that holds a thing keeps the torque limit for that."""
        limits = {servo: self._grip_torque[name] if name in self._eased else self._limits[name]
                  for servo, name in self._names.items()}  # fmt: skip
        max_torque = {servo: self._facts[name].registers["max_torque"] for servo, name in self._names.items()}
        gains = None if self._table["p"].kept else {servo: self._gains[name] for servo, name in self._names.items()}
        self._settings.write(self._opened()[1], limits, max_torque, gains)

    def _hold_here(self) -> None:
        """Put every goal at its joint's position, then the torque on, where it is not on already."""
        group, bus = self._opened()
        tries = 3
        while self._refresh():
            tries -= 1
            if not tries:
                raise ConnectionLost(f"not every servo answers; {bus.cure}, then reset again")
            self._sleep(LATE_NS / 1e9)  # until no late answer can be taken for a new one
        self._settings.require(bus, group.newest)  # before any torque: a servo in another mode would turn
        torque, goal = self._table["torque_enable"], self._table["goal_position"]
        for servo, joint in zip(self._calibration.ids, self._calibration.joints.values(), strict=True):
            measured = self._family.feedback(group.newest[servo].data)
            disabled = measured.alarms & self._family.disabling_alarms  # until torque is written again
            if torque.pack(read_register(bus, servo, torque)) == ON and not disabled:
                continue  # it holds its goal already: another one would move it
            position = measured.position
            self._turns[servo] = whole_turns(joint, position, self._family)  # it may have started anew
            bus.write(servo, goal.address, goal.pack(position))
            bus.write(servo, torque.address, ON)
        missing = self._refresh()
        self._settings.expect_torque()
        self._settings.require(bus, group.without(missing))

    def _disconnect(self) -> None:
        bus, self._bus, self._group, self._is_reset = self._bus, None, None, False
        self._measured.clear()
        if bus is not None:
            bus.close()

    # -- reading and writing ---------------------------------------------------------------------------------------

    def _opened(self) -> tuple[GroupRead, ServoBus]:
        if self._group is None or self._bus is None:
            raise ConnectionLost("the port is closed; clear the stop and reset")
        return self._group, self._bus

    def _refresh(self) -> tuple[int, ...]:
        """Read all servos; return those whose newest measurement is an old one."""
        group = self._opened()[0]
        missing = group.refresh()
        for servo, reply in group.newest.items():
            if servo not in missing:
                self._measured[self._names[servo]] = self._feedback(servo, reply.data)
        return missing

    def _feedback(self, servo: int, state: bytes) -> Feedback:
        """Return a servo's measurements, its positions counted from the calibration's turn."""
        measured, turns = self._family.feedback(state), self._turns[servo]
        return replace(measured, position=measured.position + turns, goal=measured.goal + turns) if turns else measured

    def _positions(self, key: str) -> np.ndarray:
        return np.array([getattr(self._measured[name], key) for name in self._arm.names])

    def _write_goals(self, goals: Sequence[int] | np.ndarray) -> None:
        """Write goals in steps with one request."""
        self._opened()[1].sync_write(self._table["goal_position"].address, self._packed(goals))

    def _packed(self, goals: Sequence[int] | np.ndarray) -> dict[int, bytes]:
        """Return the bytes of goals in steps, each within the range of its joint, by servo; none for a limp one."""
        packed, limp, register = {}, self._settings.limp, self._table["goal_position"]
        for joint, goal in zip(self._calibration.joints.values(), goals, strict=True):
            if joint.id not in limp:
                within = min(max(int(goal), joint.range_min), joint.range_max)
                packed[joint.id] = register.pack(within - self._turns[joint.id])
        return packed

    def _judged(self, missing: tuple[int, ...]) -> tuple[Fault, ...]:
        """Return the faults of a reading; stop an arm that is driven where its servos give a reason.

        Raises:
            RobotStopped: the arm was not stopped before.
        """
        if self._is_reset:
            group, bus = self._opened()
            self._settings.look(bus, group.without(missing))
        faults = self._look(missing)
        reason = " / ".join(map(str, self._settings.lost)) or self._health.verdict
        if self._is_reset and self._stopped is None and not reason:
            reason, others = self._look_at_motion()
            faults += others
        if reason and self._is_reset and self._stopped is None:
            self.stop(reason)
            raise RobotStopped(reason)
        return faults

    def _look_at_motion(self) -> tuple[str | None, tuple[Fault, ...]]:
        """Judge the motion; let the arm yield at once to a new contact where it is to."""
        before = self._motion.yielded
        reason, faults = self._motion.look(self._calibration, self._opened()[0].newest, self._measured)
        yielded = self._motion.yielded
        with self._changing:
            if reason is None and self._stopped is None and yielded is not None and yielded is not before:
                self._write_goals(self._calibration.steps(yielded))
        return reason, faults

    def _look(self, missing: tuple[int, ...]) -> tuple[Fault, ...]:
        group, bus = self._opened()
        absent = {self._names[servo] for servo in missing}
        fresh = {name: measured for name, measured in self._measured.items() if name not in absent}
        limits = self._limits | {name: self._grip_torque[name] for name in self._eased}
        settings = tuple(Fault("servo_settings", lost.joint, str(lost)) for lost in self._settings.lost)
        faults = settings + self._health.look(self._now(), fresh, limits, self._closing)
        self._ease_grips()
        if silent := [self._names[servo] for servo in missing if group.age_ns(servo) > _SILENT_NS]:
            faults += (Fault("servo_silent", silent[0], f"no answer from {', '.join(silent)}; {bus.cure}"),)
        return faults

    def _ease_grips(self) -> None:
        """Lower the torque limit of a joint that holds a thing, and put it back when the joint is told to open."""
        now_s = self._now()
        eased = frozenset(joint for joint, since_s in self._health.grips.items() if now_s - since_s >= _GRIP_S)
        if self._stopped is not None:
            eased |= self._eased  # a stop brings goals near their joints, which is no order to open
        changed = eased ^ self._eased
        if not changed or not self._is_reset:
            return
        limits = {
            self._calibration.joints[joint].id: self._grip_torque[joint] if joint in eased else self._limits[joint]
            for joint in changed
        }
        missed = {self._names[servo] for servo in self._settings.change_limits(self._opened()[1], limits)}
        self._eased = eased ^ missed  # the next period repeats what did not arrive

    def _state(self, applied: np.ndarray, faults: tuple[Fault, ...]) -> RobotState:
        group, bus = self._opened()
        position = self._calibration.angles(self._positions("position"))
        speed = self._positions("speed") * self._arm.step_rad * self._calibration.signs
        command, goal = self.spec.commands["joint_target"], self._calibration.angles(self._positions("goal"))
        sensors = {
            "joint_position": np.clip(position, -_TURN, _TURN).astype(np.float32),
            "joint_velocity": np.clip(speed, *self.spec.sensors["joint_velocity"].bounds).astype(np.float32),
            "joint_goal": np.clip(goal, *command.bounds).astype(np.float32),
            **{name: derive(position).astype(np.float32) for name, derive in self._arm.derived.items()},
        }
        ages = dict.fromkeys(("joint_position", "joint_velocity"), max(map(group.age_ns, self._calibration.ids)))
        held = {"joint_target": np.clip(applied, *command.bounds).astype(np.float32)}
        return RobotState(sensors, held, bus.port.now_ns(), ages, faults=faults)
