"""Drive a Go2 or a G1 joint by joint, over its own low-level messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hal import EpisodeError, Fault, Rate, ResetFailed, RobotState, RobotStopped, check_clears
from hal.errors import StopReason
from hal.field import JsonDict
from hal.robot import CLOSE_S, RobotSpec
from rlenv_unitree.command_writer import STALE_S, CommandWriter
from rlenv_unitree.health import Health
from rlenv_unitree.leg_odometry import LegOdometry
from rlenv_unitree.link import RobotLink, State
from rlenv_unitree.motors import MOTORS

__all__ = ["LIE_S", "UnitreeRobot", "g1", "go2"]

_log = logging.getLogger(__name__)

LIE_S = 2.0
"""Time in which the robot lies down at the end, seconds."""

_READ_S = 0.3
"""Longest wait of a reading outside of steps, seconds; a server takes a driver that is silent for 1 s as hung."""

_SETTLE_S = 0.5
"""Time for which the motors give way under damping before the last command, seconds."""


class UnitreeRobot:
    """Drive one robot: goal angles in, sensors out, in the description of its simulation.

    The constructor stores settings only. `read` opens the network and writes nothing. The first `reset` asks the
    robot's motion switcher whether one of the robot's own programs controls the motors, listens for a second for other
    programs' commands, and refuses if there is either. Then a thread writes 500 commands a second
    (`rlenv_unitree.command_writer.CommandWriter`). No call of `reset` moves the robot: `hal.Homing` brings it to its
    stance by steps, with gains that rise within the first second.

    A stop lets the motors give way under damping, so that a robot on legs sinks instead of toppling over stiffly. So do
    states older than 20 ms, a second program that commands the motors, and unhealthy readings (`Health`). Between
    episodes the robot keeps holding its last goal.

    `close` lays a Go2 down, if it holds itself and is upright, and then lets it give way. A server stops its robot
    before it closes it, which then has given way already. A G1 gives way at once, and must hang from its crane. After
    `hold_on_close` nothing moves but what gives way. Nothing is known about what the robot does after the last command,
    so that command is always damping.

    Args:
        robot: ``go2`` or ``g1``.
        interface: network interface to the robot, such as ``eth0``.
        domain: DDS domain; the robots use 0.
        kp: stiffness of the position law, N m/rad, one number or one for each motor; by default the simulation's.
        kd: its damping, N m s/rad, likewise.
        home: joint angles at which a reset ends, rad; by default the simulation's stance.
        release: whether the robot's own program is made to release the motors. The robot then falls if it stands: lay
            it down first.
        min_charge: charge of a Go2's battery below which no episode begins or goes on, percent.
        max_temperature_c: temperature of a motor that stops the robot, degrees Celsius.
        stale_s: age of the newest state that stops the robot, seconds.
        priority: real-time priority of the thread that writes commands, 1 to 99, which needs a right
            (docs/unitree.md); 0 for an ordinary thread.

    Raises:
        ValueError: a setting is not allowed.
        SpecError: the home is out of range.
    """

    def __init__(
        self,
        robot: str,
        interface: str,
        *,
        domain: int = 0,
        kp: float | Sequence[float] | None = None,
        kd: float | Sequence[float] | None = None,
        home: Sequence[float] | None = None,
        release: bool = False,
        min_charge: float = 15.0,
        max_temperature_c: float = 85.0,
        stale_s: float = STALE_S,
        priority: int = 0,
    ) -> None:
        if robot not in MOTORS:
            raise ValueError(f"robot is {robot!r}, allowed are {', '.join(MOTORS)}")
        if not 0.004 <= stale_s <= 1.0:
            raise ValueError(f"stale_s is {stale_s}, allowed are 0.004 to 1 s")
        if not 0 <= priority <= 99:
            raise ValueError(f"priority is {priority}, allowed are 0 for none, and 1 to 99")
        self._table = MOTORS[robot].with_settings(kp, kd, home)
        self._health = Health(self._table, min_charge, max_temperature_c)
        self._link = RobotLink(self._table, interface, domain)
        self._release, self._stale_s, self._priority = release, stale_s, priority
        self._writer: CommandWriter | None = None
        self._odometry, self._before_ns = LegOdometry(), 0
        self._rate = Rate(self.spec.rate_hz)
        self._stopped: str | None = None
        self._is_reset = self._closed = self._holds_on_close = False
        self._ending = threading.Lock()

    @property
    def spec(self) -> RobotSpec:
        """The robot's description, that of its simulation with the gains of this driver."""
        return self._table.spec

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self) -> RobotState | None:
        """Read the robot; nothing is written that was not written before.

        Returns:
            The reading; None while the network is being joined, and after `close`.

        Raises:
            ConnectionLost: no state came within 0.3 s.
            RobotError: the network can't be joined.
        """
        if self._closed or not self._link.joined(_READ_S):
            return None
        return self._measure(self._link.open(_READ_S))

    def _newest(self) -> State:
        state = None if self._writer is None else self._link.newest()
        return self._link.open() if state is None else state

    def _measure(self, state: State) -> RobotState:
        """Return a state as a reading, with the goal that the motors hold as what is applied."""
        record, count = state.record, len(self._table.joints)
        motors, imu = record["motor_state"], record["imu_state"]
        position = motors["q"][:count].astype(np.float32)
        goal = None if self._writer is None else self._writer.goal
        if goal is None:  # the motors give way: a goal where they are moves nothing
            goal = np.clip(position, *self.spec.commands["joint_target"].bounds).astype(np.float32)
        sensors = {
            "joint_position": position,
            "joint_velocity": motors["dq"][:count].astype(np.float32),
            "joint_goal": goal.copy(),
            "joint_torque": motors["tau_est"][:count].astype(np.float32),
            "angular_velocity": imu["gyroscope"].astype(np.float32),
            "orientation": self._health.orientation(record),
        }
        if "foot_force" in self.spec.sensors:
            sensors["foot_force"] = np.maximum(record["foot_force"], 0).astype(np.float32)
            passed_s = min((state.arrived_ns - self._before_ns) / 1e9, 0.1) if self._before_ns else 0.0
            sensors["position"], sensors["linear_velocity"] = self._odometry.update(
                position, sensors["joint_velocity"], sensors["angular_velocity"], sensors["orientation"],
                sensors["foot_force"], passed_s,
            )  # fmt: skip
        self._before_ns, now_ns = state.arrived_ns, time.monotonic_ns()
        age_ns = now_ns - state.arrived_ns
        ages = dict.fromkeys(self.spec.sensors.names, age_ns) if age_ns > 4_000_000 else {}  # two of its periods
        ages.pop("joint_goal", None)
        return RobotState(sensors, {"joint_target": goal.copy()}, now_ns, ages, faults=self._faults(record))

    def _faults(self, record: Any) -> tuple[Fault, ...]:
        problem = self._health.battery_problem(record)
        return () if problem is None else (Fault("battery", "battery", problem),)

    # -- episodes --------------------------------------------------------------------------------------------

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Take over the motors and read the robot. Nothing moves: a robot that holds a goal goes on holding it.

        Raises:
            RobotStopped: the robot is stopped, and the options don't clear it.
            ResetFailed: the robot is tilted, too hot, beyond its joints' ranges, or its battery is low.
            ConnectionLost: the robot does not answer.
            RobotError: another program commands the motors, or the network can't be opened.
        """
        if self._closed:
            raise EpisodeError("reset after close: make a new driver")
        check_clears(self._stopped, options)
        state = self._link.open()  # one that has just arrived, also after a time without any
        problem = self._health.problem(state.record) or self._health.battery_problem(state.record)
        if problem is not None:
            raise ResetFailed(f"the robot is not fit: {problem}")
        if self._writer is None:
            self._link.take_over(self._release)
            self._writer = CommandWriter(self._link, self._table, self._stale_s, self._priority, self._trouble)
            self._writer.start()
        self._writer.release()
        self._stopped, self._is_reset = None, True
        self._odometry.restart()
        self._before_ns = 0
        self._rate.restart()
        return self._measure(self._newest())

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Hold goal angles for one control period, and read the robot at its end.

        Raises:
            IllegalAction: the command breaks the spec; nothing moved.
            EpisodeError: before the first reset, after `damp`, or after `close`.
            RobotStopped: the robot is stopped, or was found unhealthy in this step.
        """
        goal = self.spec.commands.validate(command, "command")["joint_target"]
        writer = self._writer
        if self._closed or writer is None or not self._is_reset:
            raise EpisodeError("step before reset, after damp, or after close")
        if self._stopped is not None:
            raise RobotStopped(self._stopped)
        writer.follow(goal)
        self._rate.wait()
        state = self._newest()
        problem = self._health.problem(state.record)
        if problem is not None:
            self.stop(problem)
        if self._stopped is not None:
            raise RobotStopped(self._stopped)
        return self._measure(state)

    def _trouble(self, why: str) -> None:
        """Latch the reason for which the writer lets the motors give way."""
        self._stopped = self._stopped or why
        _log.error("%s gives way: %s", self.spec.name, why)

    def stop(self, reason: str | StopReason) -> None:
        """Let the motors give way under damping, and refuse commands until a reset clears it. From any thread."""
        self._stopped = self._stopped or str(reason)
        if self._writer is not None:
            self._writer.damp(str(reason))

    def damp(self) -> bool:
        """Let the motors give way under damping until the next reset; return whether they do."""
        if self._writer is None:
            return False
        self._is_reset = False
        self._writer.damp("damped, until a reset")
        return True

    # -- the end ---------------------------------------------------------------------------------------------

    def hold_on_close(self) -> None:
        """Let `close` leave the motors giving way; if it lays the robot down just now, they give way. Any thread."""
        self._holds_on_close = True
        if self._closed and self._writer is not None:
            self._writer.damp("stopped while it lay down")

    def close(self) -> None:
        """Lay the robot down if it can, let it give way, and leave the network. Safe to call more than once."""
        with self._ending:
            if self._closed:
                return
            self._closed = True
            writer = self._writer
            try:
                if writer is not None:
                    self._lie(writer)
                    writer.damp("closed")
                    time.sleep(_SETTLE_S)
            finally:
                if writer is not None:
                    writer.end()
                self._link.close()

    def _lie(self, writer: CommandWriter) -> None:
        """Move to the lying pose in `LIE_S`, unless the robot gives way, is unfit, or has no such pose."""
        start, lying = writer.goal, self._table.lying
        if start is None or lying is None or self._holds_on_close:
            return
        begin, end = time.monotonic(), time.monotonic() + min(LIE_S, CLOSE_S - 2.0)
        rate = Rate(self.spec.rate_hz)
        while (now := time.monotonic()) < end:
            share = (now - begin) / (end - begin)
            problem = self._health.problem(self._newest().record)
            if problem is not None:
                _log.error("%s does not lie down, and gives way: %s", self.spec.name, problem)
                return
            try:
                writer.follow((start + share * (np.array(lying, np.float32) - start)).astype(np.float32))
            except RobotStopped as stopped:
                _log.error("%s does not lie down, and gives way: %s", self.spec.name, stopped.reason)
                return
            rate.wait()

    def about(self) -> JsonDict:
        """Return the gains, the charge, the hottest motor, and the periods of the thread that writes commands."""
        report: JsonDict = {"kp": list(self._table.stiffness), "kd": list(self._table.damping)}
        if self._writer is not None:
            report["writer"] = {
                **self._writer.timing.to_dict(),
                "real_time": self._writer.real_time,
                "wrong_checksums": self._link.wrong_checksums,
            }
            report |= self._health.report(self._newest().record)
        return report


def go2(interface: str, **settings: Any) -> UnitreeRobot:
    """Return the driver of a Go2 (``driver = "unitree-go2"`` in a profile); for arguments see `UnitreeRobot`."""
    return UnitreeRobot("go2", interface, **settings)


def g1(interface: str, **settings: Any) -> UnitreeRobot:
    """Return the driver of a G1 (``driver = "unitree-g1"`` in a profile); for arguments see `UnitreeRobot`."""
    return UnitreeRobot("g1", interface, **settings)
