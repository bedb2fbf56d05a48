"""Check how a robot moves: its response to each command, its speed, its periods, and the pose after a reset."""

from __future__ import annotations

import itertools
import time

import numpy as np

from hal import Field, RobotState
from hal.robot import is_driven
from hal.wrapper import RobotWrapper
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import RobotProbe, copied, pairs_of_speeds, resolution, span_of
from rlenv_kit.robot_stops import clear_stop, stop_reason
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import elements_of

__all__ = ["motion_checks"]

_FOLLOW_S = 0.7
"""Time in which a measured value follows its command; a slow one gets three times as long."""

_MOST_ELEMENTS = 40
_NEAR = {True: 0.05, False: 0.1}
"""Largest distance at rest between applied and measured value, and of a reset's end from its aim, as a share of the
command's range; a real joint gives way to weight and friction more than a simulated one does."""

_GAIN = {True: 0.3, False: 0.4}
"""Largest share of a motion by which a measured value may miss it at rest, besides `_DEAD_ZONE` and noise."""

_DEAD_ZONE = 0.005
"""Backlash, friction and steps of an encoder, as a share of the command's range."""

_MOSTLY = 0.6
"""Share of applied values that equal the command before, from which on they count as late; limits change the others."""

_LEAST_WAY = 0.02
"""Smallest motion towards the nearest limit that shows anything, as a share of the command's range."""

_LATE = 12
"""Number of the last values of a motion, which show noise, and whether it has come to rest."""

_JUMP = {True: 0.015, False: 0.03}
"""Largest change of a measured value in one period while the robot holds still, as a share of the command's range."""

_AT_AIM = 0.03
"""Largest distance of the value applied after a reset from home or start, as a share of the command's range."""

_LEAST_CHANGE = 0.01
"""Smallest change of a measured value with which its measured speed is compared, as a share of the command's range."""

_OPEN = 1e6
"""Size from which a limit is none of the motor's."""

_UNIT = 0.02
"""Largest deviation of a speed by the period from the measured change in a period."""

_LATER_S = {True: 2.0, False: 1.5}
"""Time after a reset at which a sensor is tried once more, seconds: it may have frozen meanwhile."""

_MOST_LATER = 120
"""Most periods that this takes."""

_TIME_OF_DAY_NS = 10 * 10**9
"""Largest distance of a stamp from the time of day that counts as the time of day."""

_CLOCK_SLACK_S = 5.0
"""Largest distance of a stamp from a clock of this process that counts as a stamp of that clock. A clock that counts
from the machine's start is near every small number at first."""


def motion_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return the checks of motion."""
    return declared(vars(_Motion), _Motion(probe), probe)


class _Motion:
    def __init__(self, probe: RobotProbe) -> None:
        self._probe = probe

    def _measured(self) -> list[tuple[Field, str]]:
        """Return the float commands that a sensor measures, with that sensor's name.

        Raises:
            NotTried: there are none.
        """
        spec = self._probe.robot.spec
        pairs = [(field, spec.measured_by[field.name]) for field in spec.commands
                 if field.name in spec.measured_by and field.numpy_dtype.kind == "f"]  # fmt: skip
        if not pairs:
            raise NotTried("the spec's measured_by names no sensor for a command")
        return pairs

    # -- time ------------------------------------------------------------------------------------------

    @check("stamps", "time stamps are whole nanoseconds and rise", "robot", "own arrays", "command")
    def stamps(self, probe: RobotProbe) -> None:
        stamps = [robot_state.stamp_ns for robot_state in self._probe.walk()]
        if not all(isinstance(stamp, int | np.integer) and not isinstance(stamp, bool) for stamp in stamps):
            raise Failed(f"stamp_ns is a {type(stamps[0]).__name__}", "it must be whole nanoseconds")
        if any(later <= earlier for earlier, later in itertools.pairwise(stamps)):
            raise Failed(f"stamp_ns does not rise from step to step: {stamps}")
        if all(abs(stamp - time.time_ns()) < _TIME_OF_DAY_NS for stamp in stamps):
            raise Failed("stamp_ns is the time of day, which may be set at any time",
                         "it is of the robot's monotonic clock")  # fmt: skip
        again = self._probe.reset().stamp_ns
        if again < stamps[-1]:
            raise Failed(f"stamp_ns fell from {stamps[-1]} to {again} with a reset",
                         "it is of the robot's monotonic clock, which goes on over resets")  # fmt: skip

    @check("periods", "a step takes one control period, by its stamps", "robot", "spec stays", "stamps")
    def periods(self, probe: RobotProbe) -> None:
        """Compare the stamps with the control period, and with the clocks of this process."""
        period_s = probe.robot.spec.period_s
        robot_state = probe.reset()
        stamps, walls = [robot_state.stamp_ns], [time.monotonic()]
        for _ in range(max(12, probe.steps)):
            robot_state = probe.step(probe.hold(robot_state))
            stamps.append(robot_state.stamp_ns)
            walls.append(time.monotonic())
        passed_s, wall_s = np.diff(stamps) / 1e9, float(np.median(np.diff(walls)))
        has_own_time = probe.simulated and wall_s < 0.5 * period_s
        # On a busy machine many periods are long, and others make up for them: then the mean shows the period.
        typical_s = [float(np.median(passed_s)), *([] if has_own_time else [float(np.mean(passed_s))])]
        step_s = min(typical_s, key=lambda seconds: abs(seconds - period_s))
        if abs(step_s - period_s) <= (0.02 if has_own_time else 0.25) * period_s:
            return
        if abs(step_s - wall_s) < 0.1 * wall_s and period_s < step_s < 1.6 * period_s:
            probe.note(f"a step takes {step_s / period_s:.2g} periods; this machine may be too busy to keep them")
            return
        clocks = (time.monotonic_ns(), time.time_ns(), time.perf_counter_ns())
        is_own_clock = any(abs(stamps[-1] - clock) < _CLOCK_SLACK_S * 1e9 for clock in clocks)
        if is_own_clock and wall_s < 0.5 * period_s and step_s <= 2 * wall_s + 1e-3:
            probe.note("a step returns before its period has passed; something else must keep the time")
            return
        raise Failed(f"a step takes {step_s:.3g} s by its stamps ({wall_s:.3g} s by this machine's clock)",
                     f"the spec's control period is {period_s:.3g} s")  # fmt: skip

    # -- applied ---------------------------------------------------------------------------------------

    @check("applied", "applied values are what the actuators received", "robot", "own arrays", "command")
    def applied(self, probe: RobotProbe) -> None:
        """Check that what was applied lies between the value before and the command."""
        pairs = self._measured()
        rng, robot_state = np.random.default_rng(probe.seed), probe.reset()
        asked, states = list[dict[str, np.ndarray]](), list[RobotState]()
        for _ in range(max(10, probe.steps)):
            command = probe.nearby_command(robot_state, rng)
            before = copied(robot_state)
            robot_state = probe.step(command)
            asked.append({name: np.array(value) for name, value in command.items()})
            states.append(copied(robot_state))
            for field, _ in pairs:
                # A robot that is late applies one of the commands before.
                ends = np.array([before.applied[field.name], *(part[field.name] for part in asked[-5:])], float)
                slack = 5e-3 * span_of(field)
                value = np.asarray(robot_state.applied[field.name], float)
                outside = (value < ends.min(axis=0) - slack) | (value > ends.max(axis=0) + slack)
                if outside.any():
                    index = tuple(int(i) for i in np.argwhere(outside)[0])
                    raise Failed(
                        f"applied {field.name}{list(index)} is {value[index]:.6g}, the command was "
                        f"{ends[-1][index]:.6g}, and {ends[0][index]:.6g} was applied before",
                        "a limit brings a command to a value between the two",
                    )
        for field, sensor in pairs:
            self._check_told(field, sensor, asked, states)

    def _check_told(
        self, field: Field, sensor: str, asked: list[dict[str, np.ndarray]], states: list[RobotState]
    ) -> None:
        name = field.name
        commands, told, sensed = (np.array(values, float) for values in (
            [part[name] for part in asked], [state.applied[name] for state in states],
            [state.sensors[sensor] for state in states]))  # fmt: skip
        if np.ptp(commands, axis=0).any() and not np.ptp(told, axis=0).any() and np.ptp(sensed, axis=0).any():
            raise Failed(f"applied {name} never changes, and {sensor} does",
                         "it is what the actuators received, in every step")  # fmt: skip
        if (told == sensed).all() and not np.allclose(told, commands, rtol=0, atol=1e-6):
            raise Failed(f"applied {name} repeats the measured {sensor}",
                         "it is what the actuators received, not where they are")  # fmt: skip
        ages = any(sensor in state.age_ns for state in states)
        if self._probe.simulated and not ages and (sensed[1:] == told[:-1]).mean() > _MOSTLY > (sensed == told).mean():
            raise Failed(f"{sensor} is the applied {name} of the step before, and has no age",
                         "applied is what the actuators received, and an old sample has an age")  # fmt: skip
        if len(told) > 3 and (told[1:] == commands[:-1]).mean() > _MOSTLY > (told == commands).mean():
            self._check_late(field, sensor)

    def _check_late(self, field: Field, sensor: str) -> None:
        """Check that a robot whose applied values come a step late moves a step late too."""
        probe = self._probe
        robot_state = probe.reset()
        rest = []
        for _ in range(12):
            robot_state = probe.step(probe.hold(robot_state))
            rest.append(np.asarray(copied(robot_state).sensors[sensor], float))
        noise = np.ptp(np.array(rest[4:]), axis=0)
        before, aim = copied(robot_state), self._aim(field, robot_state)
        robot_state = probe.step({**probe.hold(robot_state), field.name: aim})
        same = np.array_equal(robot_state.applied[field.name], before.applied[field.name])
        moved = np.abs(np.asarray(robot_state.sensors[sensor], float) - rest[-1])
        asked = np.abs(np.asarray(aim, float) - np.asarray(before.applied[field.name], float))
        if same and (moved > 4 * noise + 0.2 * asked).any():
            raise Failed(f"{sensor} moved by {moved.max():.4g} {field.unit} with a command, and applied {field.name} "
                         "is the command before", "it is what the actuators received for this state")  # fmt: skip
        probe.note(f"applied {field.name} is the command before, a step late")

    # -- measured --------------------------------------------------------------------------------------

    @check(
        "follows", "each measured value follows its own command, in sign, order and unit", "robot", "periods", "applied"
    )
    def follows(self, probe: RobotProbe) -> None:
        for field, sensor in self._measured():
            for index in elements_of(field, _MOST_ELEMENTS):
                for side in (1.0, -1.0) if self._probe.simulated else (1.0,):
                    at_rest = self._check_element(field, sensor, index, side)
            self._check_offset(field, sensor, at_rest)
            later = int(min(_LATER_S[self._probe.simulated] * self._probe.robot.spec.rate_hz, _MOST_LATER))
            self._check_element(field, sensor, index, 1.0, later)
            if self._probe.simulated and is_driven(field):
                self._check_whole_range(field, sensor)

    def _check_whole_range(self, field: Field, sensor: str) -> None:
        """Check that measured speeds are the applied ones near both limits, too, where nothing stands in the way."""
        probe = self._probe
        for limit in field.bounds:
            robot_state = probe.reset()
            aim = (0.9 * np.broadcast_to(np.asarray(limit, float), field.shape)).astype(field.numpy_dtype)
            if not np.isfinite(aim).all() or (np.abs(aim) > _OPEN).any():
                continue
            aim = aim.clip(*field.bounds)
            before = robot_state
            for _ in range(_MOST_LATER):
                before, robot_state = copied(robot_state), probe.step({**probe.hold(robot_state), field.name: aim})
            moving = np.abs(np.asarray(robot_state.sensors[sensor], float) - np.asarray(before.sensors[sensor], float))
            if (moving < 1e-3 * span_of(field)).all():
                self._check_offset(field, sensor, copied(robot_state))

    def _check_element(
        self, field: Field, sensor: str, index: tuple[int, ...], side: float, later: int = 4
    ) -> RobotState:
        """Move one element by a small distance, and check its sensor's response; return the state after the motion.

        Args:
            field: the command.
            sensor: the sensor that measures it.
            index: the index of the element.
            side: 1.0 moves it away from its nearest limit, -1.0 towards it.
            later: periods between the reset and the motion.
        """
        probe = self._probe
        spec = probe.robot.spec
        periods = int(np.clip(_FOLLOW_S * spec.rate_hz, 12, 120))
        for patience in (1, 3):
            start, end, command, travelled, late = self._move(field, sensor, index, periods * patience, side, later)
            asked = float(command[index]) - float(start.applied[field.name][index])
            change = np.asarray(end.sensors[sensor], float) - np.asarray(start.sensors[sensor], float)
            if side < 0 and abs(asked) < _LEAST_WAY * span_of(field)[index]:
                return end  # it stands at its limit
            own = change[index] / asked if asked else 1.0
            missed = abs(change[index] - asked)
            slack = _GAIN[probe.simulated] * abs(asked) + _DEAD_ZONE * span_of(field)[index] + 2 * np.ptp(late)
            if 0.3 <= own <= 2.5 and missed <= slack:
                break
        name, unit = f"{field.name}{list(index) if index else ''}", field.unit
        moved = f"{name} moved by {asked:.4g} {unit}, and {sensor}{list(index) if index else ''} by {change[index]:.4g}"
        others = np.array(change, float)
        others[index] = 0.0
        largest = np.unravel_index(int(np.abs(others).argmax()), others.shape) if others.size > 1 else ()
        allowed = "each measured value follows its own command"
        if not 0.3 <= own <= 2.5:
            if others.size > 1 and abs(others[largest] / asked) > 0.5:
                moved += f", while {sensor}{[int(i) for i in largest]} moved by {others[largest]:.4g}"
            elif abs(own) > 20 or 0.01 < abs(own) < 0.05:
                moved += ": degrees for radians?"
            elif own < -0.3:
                moved += ": the sign is wrong"
            elif change[index] == 0:
                moved += ": the sensor is frozen"
            raise Failed(moved, allowed)
        if others.size > 1 and abs(others[largest]) > 0.9 * abs(change[index]):
            raise Failed(f"{moved}, and {sensor}{[int(i) for i in largest]} by {others[largest]:.4g} too", allowed)
        half = len(late) // 2
        if missed > slack and abs(late[half:].mean() - late[:half].mean()) <= 0.02 * missed:  # it came to rest there
            raise Failed(f"{moved}: {own:.3g} of the way", allowed)
        for rate, distance in travelled.items():
            if abs(change[index]) <= _LEAST_CHANGE * span_of(field)[index]:
                continue
            share = distance[index] / change[index]
            text = f"{moved}, while {rate}{list(index) if index else ''} adds up to {distance[index]:.4g} {unit}"
            if not -0.3 <= share <= 3.0 or abs(share * spec.rate_hz - 1) < _UNIT:
                raise Failed(text, f"{rate} is the speed of {sensor}, by the second")
            if share < 0.3:
                self._check_momentary(field, sensor, rate, index, text)
        return end

    def _move(
        self, field: Field, sensor: str, index: tuple[int, ...], periods: int, side: float, later: int
    ) -> tuple[RobotState, RobotState, np.ndarray, dict[str, np.ndarray], np.ndarray]:
        """Reset, wait a little, move one element away from its nearest limit, and wait again.

        Returns:
            The states before and after, the last command, for each sensor of the same shape that measures the
            speed of ``sensor`` by its unit the sum over time, and the element's last measured values.
        """
        probe = self._probe
        robot_state = probe.reset()
        for _ in range(later):
            robot_state = probe.step(probe.hold(robot_state))
        start = copied(robot_state)
        low, high = (np.asarray(bound, float) for bound in field.bounds)
        now = np.asarray(start.applied[field.name], float)
        target = np.array(now)
        towards = side if now[index] <= (low + high)[index] / 2 else -side
        target[index] += towards * min(probe.bounds.distance(field)[index], 0.1 * span_of(field)[index])
        hold = probe.hold(robot_state)
        aim = np.array(hold[field.name])
        sensors = probe.robot.spec.sensors
        travelled = {name: np.zeros(sensors[name].shape) for name in self._speeds(sensor)}
        period_s = probe.robot.spec.period_s

        def step(robot_state: RobotState, aim: np.ndarray) -> RobotState:
            came_ns = robot_state.stamp_ns
            robot_state = probe.step({**hold, field.name: aim})
            # Over the time that really passed: a driver on a busy machine is late, and measures over a longer time.
            passed_s = (robot_state.stamp_ns - came_ns) / 1e9
            for rate, distance in travelled.items():
                distance += np.asarray(robot_state.sensors[rate], float) * (passed_s if passed_s > 0 else period_s)
            return robot_state

        for _ in range(20 * periods):
            before, aim = aim, probe.towards(field, robot_state, target)
            robot_state = step(robot_state, aim)
            if np.array_equal(before, aim):
                break
        late: list[float] = []
        for _ in range(periods):
            robot_state = step(robot_state, aim)
            late.append(float(robot_state.sensors[sensor][index]))
        return start, copied(robot_state), aim, travelled, np.array(late[-_LATE:])

    def _check_momentary(self, field: Field, sensor: str, rate: str, index: tuple[int, ...], text: str) -> None:
        """Check that a small speed is one of a moment, after a motion that is over within its period.

        One command far away keeps a limited joint moving for many periods; only a simulated robot is sent it.
        """
        probe = self._probe
        if probe.simulated:
            robot_state = probe.reset()
            aim = np.array(probe.hold(robot_state)[field.name])
            aim[index] = self._far(field, robot_state)[index]
            states = [copied(robot_state)]
            for _ in range(2 * _LATE):
                states.append(copied(probe.step({**probe.hold(robot_state), field.name: aim})))
            places = np.array([state.sensors[sensor][index] for state in states], float)
            changes = np.diff(places)
            half = len(changes) // 2
            is_steady = np.ptp(changes[half:]) < 0.1 * np.abs(changes[half:]).max()
            speeds = np.array([state.sensors[rate][index] for state in states[half + 1 :]], float)
            if is_steady and not 0.3 <= speeds.mean() * probe.robot.spec.period_s / changes[half:].mean() <= 3.0:
                raise Failed(text, f"{rate} is the speed of {sensor}, by the second")
        probe.note(f"{rate} is small after each motion of {sensor}; a speed of the moment at which it is read may be")

    def _speeds(self, sensor: str) -> list[str]:
        """Return the name of the sensor that measures the speed of another one, if one does."""
        return [speed for place, speed in pairs_of_speeds(self._probe.robot.spec) if place == sensor]

    def _check_offset(self, field: Field, sensor: str, at_rest: RobotState) -> None:
        """Check that at rest a measured value is near the applied one."""
        applied, measured = (np.asarray(values, float) for values in
                             (at_rest.applied[field.name], at_rest.sensors[sensor]))  # fmt: skip
        if not np.isfinite([*np.ravel(field.low), *np.ravel(field.high)]).all():
            return
        far = np.abs(applied - measured) > _NEAR[self._probe.simulated] * span_of(field)
        if far.any():
            index = tuple(int(i) for i in np.argwhere(far)[0])
            raise Failed(f"at rest {sensor}{list(index)} is {measured[index]:.4g} where {field.name} is applied as "
                         f"{applied[index]:.4g} {field.unit}", "they agree")  # fmt: skip

    # -- speed -----------------------------------------------------------------------------------------

    @check("speed", "nothing moves faster than the spec's limits", "robot", "follows")
    def speed(self, probe: RobotProbe) -> None:
        spec = probe.robot.spec
        limited = [(field, sensor) for field, sensor in self._measured() if field.name in spec.limits.max_velocity]
        if not limited:
            raise NotTried("the spec limits no speed")
        for field, sensor in limited:
            self._check_speed(field, sensor, far=False)
            if probe.simulated:
                self._check_speed(field, sensor, far=True)

    def _check_speed(self, field: Field, sensor: str, far: bool) -> None:
        """Check how far applied and measured values go in a period, by strides or by one command far away.

        A robot that limits commands applies other values than were asked for. It keeps the spec's limits; of a robot
        that limits nothing, a guard does.
        """
        probe = self._probe
        spec = probe.robot.spec
        guarded = bool(RobotWrapper(probe.robot).guarded)
        limit = np.asarray(spec.limits.max_velocity[field.name], float) * spec.period_s
        robot_state = probe.reset()
        target = self._far(field, robot_state)
        for _ in range(max(8, probe.steps)):
            aim = target if far else probe.onwards(field, robot_state)
            before, robot_state = copied(robot_state), probe.step({**probe.hold(robot_state), field.name: aim})
            told = np.asarray(robot_state.applied[field.name], float)
            limits = guarded or (far and not np.allclose(told, aim, rtol=0, atol=1e-3 * span_of(field).min()))
            for what, now, last, factor in (
                (f"applied {field.name}", told, before.applied[field.name], 1.6 if limits else np.inf),
                (sensor, robot_state.sensors[sensor], before.sensors[sensor], 3.0 if limits or not far else np.inf),
            ):  # fmt: skip
                change = np.abs(np.asarray(now, float) - np.asarray(last, float))
                if (change > factor * limit + 2e-3 * span_of(field)).any():
                    raise Failed(
                        f"{what} changed by {change.max():.4g} {field.unit} in one period",
                        f"max_velocity allows {float(limit.max()):.4g} in a period of {spec.period_s:.4g} s",
                    )

    def _aim(self, field: Field, robot_state: RobotState) -> np.ndarray:
        return self._probe.onwards(field, robot_state)

    def _far(self, field: Field, robot_state: RobotState) -> np.ndarray:
        """Return a legal command far away, which a guard must limit; for simulated robots alone."""
        low, high = (np.asarray(bound, float) for bound in field.bounds)
        now = np.asarray(robot_state.applied[field.name], float)
        away = now + np.where(now <= (low + high) / 2, 1, -1) * 0.4 * span_of(field)
        return np.asarray(np.clip(away, low, high).astype(field.numpy_dtype).clip(*field.bounds))

    @check("still", "nothing jumps while the robot holds still after a reset", "robot", "speed", "places")
    def still(self, probe: RobotProbe) -> None:
        """Hold still after a reset: what the reset measured is where the robot stands."""
        for field, sensor in self._measured():
            step = resolution(np.array([state.sensors[sensor] for state in self._move_away(field)], float))
            robot_state = probe.reset()
            values = [np.array(robot_state.sensors[sensor], float)]
            for _ in range(_LATE):
                robot_state = probe.step(probe.hold(robot_state))
                values.append(np.array(robot_state.sensors[sensor], float))
            jumps = np.abs(np.diff(values, axis=0)).max(axis=0)
            noise = np.ptp(values[_LATE // 2 :], axis=0)
            if (jumps > _JUMP[probe.simulated] * span_of(field) + 2 * noise + 1.01 * step).any():
                raise Failed(f"{sensor} jumped by {jumps.max():.4g} {field.unit} in one period after a reset, and the "
                             "command stayed", "a reset measures where the robot stands")  # fmt: skip

    # -- resets ----------------------------------------------------------------------------------------

    @check("places", "a reset ends at home, or at the start it was given", "robot", "follows")
    def places(self, probe: RobotProbe) -> None:
        spec = probe.robot.spec
        pairs = [(field, sensor) for field, sensor in self._measured() if field.name in spec.home]
        if not pairs:
            probe.note("the spec has no home; where a reset ends was not looked at")
            return
        still = {field.name for field, sensor in pairs if not is_driven(field) and self._stays(field, sensor)}
        driven = [(field, sensor) for field, sensor in pairs if is_driven(field)]  # a speed ends with the reset
        if still:
            probe.note("a reset does not move the robot; something around it, such as hal.Homing, must")
            probe.reset_moves = False
        if driven and len(still) + len(driven) == len(pairs) and all(self._ignores_start(*pair) for pair in driven):
            probe.note("a reset leaves the robot where it is, and ignores its start; each walk begins elsewhere")
            probe.reset_moves = probe.repeatable = False
            return
        for field, sensor in pairs:
            home = np.broadcast_to(np.asarray(spec.home[field.name], float), field.shape)
            if field.name in still:
                continue
            self._check_place(field, sensor, probe.reset(), home, "home")
            start = self._beside(field, home)
            self._move_away(*(other for other, _ in pairs if other is not field))
            robot_state = probe.reset({"start": {field.name: start}})
            self._check_place(field, sensor, robot_state, np.asarray(start, float), "the start")
            for other, measured_by in pairs:  # what the start leaves out goes home
                if other is not field and not is_driven(other) and other.name not in still:
                    rest = np.broadcast_to(np.asarray(spec.home[other.name], float), other.shape)
                    self._check_place(
                        other, measured_by, robot_state, rest, f"the start named {field.name} alone; home"
                    )
            # A mass takes a while to reach a speed that a start gives, so its command is looked at.
            reached = robot_state.applied[field.name] if is_driven(field) else robot_state.sensors[sensor]
            measured, asked = np.asarray(reached, float), np.asarray(start, float)
            missed = (np.abs(measured - home) < 0.3 * np.abs(asked - home)) & (np.abs(asked - home) > 0)
            if missed.any():
                index = tuple(int(i) for i in np.argwhere(missed)[0])
                raise Failed(
                    f"reset with start {field.name}{list(index)} = {asked[index]:.4g} ended at {measured[index]:.4g}, "
                    f"near home ({home[index]:.4g})", "a reset goes to the start it was given"
                )  # fmt: skip
            self._check_place(field, sensor, probe.reset(), home, "the start was of the reset before, and home")
            self._check_illegal_starts(field)
            self._move_away(field)
            probe.stop(stop_reason())
            self._check_place(field, sensor, probe.reset(clear_stop()), home, "the reset cleared a stop; home")

    def _ignores_start(self, field: Field, sensor: str) -> bool:
        """Return whether a reset leaves the robot where it is, and does not give it a speed that is its start."""
        probe = self._probe
        home = np.broadcast_to(np.asarray(probe.robot.spec.home[field.name], float), field.shape)
        start = self._beside(field, home)
        places = [place for place, speed in pairs_of_speeds(probe.robot.spec) if speed == sensor]
        begun = copied(probe.reset())
        there = self._move_away(field)[-1] if places else begun
        after = probe.reset({"start": {field.name: start}})
        for place in places:
            moved, left = (np.asarray(state.sensors[place], float) - np.asarray(begun.sensors[place], float)
                           for state in (there, after))  # fmt: skip
            if not np.abs(moved).max() > 0 or (np.abs(left) < 0.5 * np.abs(moved)).any():
                return False
        return np.array_equal(np.asarray(after.applied[field.name], float), home) and not np.array_equal(start, home)

    def _move_away(self, *fields: Field) -> list[RobotState]:
        """Move commands away from home for half a second; return copies of the states."""
        robot_state, states = self._probe.reset(), list[RobotState]()
        for _ in range(int(0.5 * self._probe.robot.spec.rate_hz) + 2):
            aims = {field.name: self._aim(field, robot_state) for field in fields}
            robot_state = self._probe.step({**self._probe.hold(robot_state), **aims})
            states.append(copied(robot_state))
        return states

    def _check_illegal_starts(self, field: Field) -> None:
        """Check that a start that breaks the description is refused; a real robot is sent an unknown name alone."""
        probe = self._probe
        home = np.array(np.broadcast_to(probe.robot.spec.home[field.name], field.shape), field.numpy_dtype)
        starts: dict[str, object] = {"an unknown command": {"no_such_command": home}}
        if probe.simulated:
            low, high = (np.asarray(bound, float) for bound in field.bounds)
            limits = np.finfo(field.dtype)
            starts["not a number"] = {field.name: np.full(field.shape, np.nan, field.numpy_dtype)}
            starts["another shape"] = {field.name: home[None]}
            if (high < limits.max).all():
                starts["above the range"] = {field.name: (high + 0.1 * (high - low)).astype(field.numpy_dtype)}
        for what, start in starts.items():
            try:
                probe.reset({"start": start})
            except Failed:
                raise
            except Exception:
                continue
            raise Failed(f"a reset with a start of {what} was accepted", "it is refused, and nothing moves")

    def _stays(self, field: Field, sensor: str) -> bool:
        """Return whether a reset leaves the robot where a motion brought it, as a driver's own reset may."""
        probe = self._probe
        first = copied(probe.reset())
        robot_state = first
        for _ in range(int(0.5 * probe.robot.spec.rate_hz) + 2):
            aim = self._aim(field, robot_state)
            robot_state = probe.step({**probe.hold(robot_state), field.name: aim})
        moved = np.asarray(robot_state.sensors[sensor], float) - np.asarray(first.sensors[sensor], float)
        again = np.asarray(probe.reset().sensors[sensor], float)
        back = np.abs(again - np.asarray(robot_state.sensors[sensor], float))
        return bool(np.abs(moved).max() > 0 and (back < 0.5 * np.abs(moved)).all())

    def _beside(self, field: Field, home: np.ndarray) -> np.ndarray:
        low, high = (np.asarray(bound, float) for bound in field.bounds)
        side = np.where(home <= (low + high) / 2, 1.0, -1.0)
        value = home + side * self._probe.bounds.distance(field)
        return np.asarray(np.clip(value, low, high).astype(field.numpy_dtype).clip(*field.bounds))

    def _check_place(self, field: Field, sensor: str, robot_state: RobotState, place: np.ndarray, word: str) -> None:
        near = _NEAR[self._probe.simulated]
        for what, value, share in ((f"applied {field.name}", robot_state.applied[field.name], _AT_AIM),
                                   (sensor, robot_state.sensors[sensor], near)):  # fmt: skip
            far = np.abs(np.asarray(value, float) - place) > share * span_of(field) + 1e-9
            if far.any():
                index = tuple(int(i) for i in np.argwhere(far)[0])
                raise Failed(f"after a reset {what}{list(index) if index else ''} is {float(value[index]):.4g}",
                             f"{word} is {place[index]:.4g} {field.unit}")  # fmt: skip

    @check("reset speed", "a reset moves no faster than the spec's limits", "robot", "follows")
    def reset_speed(self, probe: RobotProbe) -> None:
        spec = probe.robot.spec
        if probe.simulated:
            raise NotTried("a simulation may begin anywhere at once")
        limited = [(field, sensor) for field, sensor in self._measured() if field.name in spec.limits.max_velocity]
        if not limited:
            raise NotTried("the spec limits no speed")
        for field, sensor in limited:
            robot_state = probe.reset()
            for _ in range(int(0.5 * spec.rate_hz) + 2):
                command = probe.hold(robot_state)
                command[field.name] = self._aim(field, robot_state)
                robot_state = probe.step(command)
            before, began = copied(robot_state), time.monotonic()
            after = probe.reset()
            took = max(time.monotonic() - began, (after.stamp_ns - before.stamp_ns) / 1e9, spec.period_s)
            change = np.abs(np.asarray(after.sensors[sensor], float) - np.asarray(before.sensors[sensor], float))
            limit = np.asarray(spec.limits.max_velocity[field.name], float)
            if (change > 3 * limit * took + 5e-3 * span_of(field)).any():
                raise Failed(f"a reset moved {sensor} by {change.max():.4g} {field.unit} in {took:.3g} s",
                             f"max_velocity is {float(limit.max()):.4g} {field.unit}/s")  # fmt: skip
