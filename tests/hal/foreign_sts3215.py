"""An emulator of Feetech STS3215 servos, written from the maker's tables without a look at the driver.

The driver and the simulated bus of this project share one view of the servo. This module shares nothing with them: it
imports neither, so an error in that view shows here. Sources: the maker's memory table and protocol (ftservo-wiki,
memory-sts.md and ft-scs.md), Waveshare's table V3.6, and the motor's model by Rhoban (bam 1b5a1ce: kt, resistance,
friction, duty = 0.166 * P * error). Where the tables are silent, the harsher behaviour is the default.
"""

from __future__ import annotations

import math

VOLTAGE, ENCODER, HEAT, CURRENT, ANGLE, OVERLOAD = (1 << bit for bit in range(6))
EEPROM = 40  # registers below are kept without power

# The maker's initial values: address -> value, size.
INITIAL = {
    0: (3, 1), 1: (10, 1), 3: (777, 2), 5: (1, 1), 6: (0, 1), 7: (0, 1), 8: (1, 1), 9: (0, 2), 11: (4095, 2),
    13: (70, 1), 14: (80, 1), 15: (40, 1), 16: (1000, 2), 18: (12, 1), 19: (44, 1), 20: (47, 1), 21: (32, 1),
    22: (32, 1), 23: (0, 1), 24: (16, 1), 25: (0, 1), 26: (1, 1), 27: (1, 1), 28: (500, 2), 30: (1, 1), 31: (0, 2),
    33: (0, 1), 34: (20, 1), 35: (200, 1), 36: (80, 1), 37: (10, 1), 38: (200, 1), 39: (10, 1),
}  # fmt: skip
FACTORY = {80: 10, 81: 0, 82: 0, 83: 0, 84: 68, 85: 254, 86: 1}

STEP = 2 * math.pi / 4096  # rad
KT, OHM, INERTIA, DRY, VISCOUS = 1.2116, 2.676, 0.0284, 0.0524, 0.0591  # Nm/A, Ohm, kg m², Nm, Nm s/rad
FASTEST = 3400.0  # step/s
TICK = 0.002  # s of the simulation


def signed(value: int, bit: int) -> int:
    """Return the number that sign and magnitude encode."""
    return -(value & ((1 << bit) - 1)) if value >> bit & 1 else value


def encode(value: float, bit: int) -> int:
    """Return sign and magnitude of a number, which is limited to what fits."""
    size = min(round(abs(value)), (1 << bit) - 1)
    return size | (value < 0 and size > 0) << bit


def packet(servo: int, code: int, params: bytes = b"") -> bytes:
    """Return an instruction or a status packet with its checksum."""
    body = bytes((servo, len(params) + 2, code)) + params
    return b"\xff\xff" + body + bytes((~sum(body) & 0xFF,))


class Servo:
    """One STS3215: its registers, its motor and its alarms.

    Args:
        id: The number on the bus.
        position: Where the encoder stands, in steps, before the homing offset.
        gravity: Torque of a horizontal link in Nm, at 2048 steps; it falls with the cosine of the angle.
    """

    def __init__(self, id: int, position: float = 2048.0, gravity: float = 0.0) -> None:
        self.kept = bytearray(EEPROM)
        for address, (value, size) in INITIAL.items():
            self.kept[address : address + size] = value.to_bytes(size, "little")
        self.kept[5] = id
        self.position, self.speed, self.gravity = position, 0.0, gravity  # step, step/s, Nm
        self.volts, self.celsius, self.ambient = 7.4, 30.0, 30.0
        self.wall = (-math.inf, math.inf)  # steps between which the joint moves
        self.goal_switches_torque_on = False
        self.lock_at_boot = 1  # the current table; 0 in V3.6
        self.forced = 0  # alarm bits that a test sets
        self.silent_until = 0.0
        self.energised: list[tuple[float, bool, str]] = []  # time, torque on, cause
        self.now = 0.0
        self.boot("power")

    # -- registers

    def get(self, address: int, size: int = 1) -> int:
        return int.from_bytes(self.ram[address : address + size], "little")

    def put(self, address: int, value: int, size: int = 1) -> None:
        self.ram[address : address + size] = value.to_bytes(size, "little")

    def boot(self, cause: str) -> None:
        """Start the firmware: registers below 40 from the EEPROM, all others with their values at power-on."""
        self.ram = bytearray(256)
        self.ram[:EEPROM] = self.kept
        for address, value in FACTORY.items():
            self.put(address, value)
        self.put(48, self.get(16, 2), 2)
        self.put(55, self.lock_at_boot)
        self.setpoint, self.slew, self.target = self.position, 0.0, self.position
        self.duty = self.amps = self.overload_s = self.overcurrent_s = 0.0
        self.overloaded = self.unloaded = False
        self.pending: tuple[int, bytes] | None = None
        self.energised.append((self.now, False, cause))
        self.measure()

    def write(self, address: int, data: bytes) -> None:
        """Write registers in one go, as WRITE does, and act on what they mean."""
        was_on = self.get(40) == 1
        for at, byte in enumerate(data, address):
            if at in (0, 1, 3, 4) or 56 <= at < 80 or at >= 87:
                continue  # read only
            self.ram[at] = byte
            if at < EEPROM and not self.get(55):
                self.kept[at] = byte
        touched = range(address, address + len(data))
        if 42 in touched or 43 in touched:
            self.aim()
            if self.goal_switches_torque_on and self.get(40) == 0:
                self.put(40, 1)
                self.energised.append((self.now, True, "goal"))
        if 40 in touched:
            if self.get(40) == 128:
                self.calibrate(2048)
                self.put(40, int(was_on))
            on = self.get(40) == 1
            if on != was_on:
                self.energised.append((self.now, on, "write"))
            if on and not was_on:
                self.setpoint, self.slew = self.position, 0.0
                self.aim()
            self.overloaded = self.unloaded = False
            self.overload_s = self.overcurrent_s = 0.0

    def aim(self) -> None:
        """Take the goal of register 42; in one turn the servo never goes the short way round."""
        low, high, goal = self.get(9, 2), self.get(11, 2), signed(self.get(42, 2), 15)
        if self.get(33) == 3:
            self.target = self.setpoint + goal
            return
        if low != high:
            goal = min(max(goal, low), high)
        target = self.position + goal - self.present()
        if self.overloaded and (target - self.target) * self.duty < 0:  # away from what it pushes against
            self.overloaded, self.overload_s = False, 0.0
        self.target = target

    def calibrate(self, value: int) -> None:
        """Set the homing offset so that the present position reads as a value."""
        offset = int((self.position - value + 2048) % 4096 - 2048)
        self.put(31, encode(max(-2047, min(2047, offset)), 11), 2)
        if not self.get(55):
            self.kept[31:33] = self.ram[31:33]

    def present(self) -> int:
        """Return the present position in steps, less the homing offset."""
        steps = math.floor(self.position) - signed(self.get(31, 2) & 0xFFF, 11)
        return steps if self.get(18) & 16 else steps % 4096

    def measure(self) -> None:
        """Write the feedback's registers, and judge the alarms."""
        self.put(56, encode(self.present(), 15), 2)
        self.put(58, encode(self.speed, 15), 2)
        self.put(60, encode(self.duty * 1000, 10), 2)
        self.put(62, max(0, min(255, round(self.volts * 10))))
        self.put(63, round(min(255.0, self.celsius)))
        self.put(64, int(self.pending is not None))
        self.put(66, int(abs(self.speed) > self.get(80) or abs(self.target - self.setpoint) > 1))
        self.put(67, self.get(42, 2), 2)
        self.put(69, encode(self.amps / 0.0065, 15), 2)
        status = self.forced
        status |= VOLTAGE * (not self.get(15) <= self.get(62) <= self.get(14))
        status |= HEAT * (self.get(63) > self.get(13))
        status |= CURRENT * (self.overcurrent_s >= self.get(38) * 0.01)
        status |= OVERLOAD * self.overloaded
        if status & self.get(19) & (HEAT | CURRENT | VOLTAGE):
            self.unloaded = True  # until torque is written again
        self.put(65, status)

    # -- motor

    def advance(self, now: float) -> None:
        """Run the motor up to a time in seconds."""
        ticks = min(500, int((now - self.now) / TICK))
        for _ in range(ticks):
            self.tick()
        if now - self.now > 500 * TICK:
            self.now = now
        elif ticks:
            self.now += ticks * TICK
        self.measure()

    def tick(self) -> None:
        mode, torque = self.get(40), 0.0
        omega = self.speed * STEP
        if mode == 1 and not self.unloaded:
            duty = self.controlled()
            limit = self.get(48, 2) / 1000
            if self.overloaded:
                limit = min(limit, self.get(34) / 100)
            self.duty = max(-limit, min(limit, duty))
        else:
            self.duty, self.setpoint, self.slew = 0.0, self.position, 0.0
        if mode == 1 and not self.unloaded:
            self.amps = (self.duty * self.volts - KT * omega) / OHM
            torque = KT * self.amps
        else:
            self.amps = 0.0
            if mode == 2:  # damping, with the force of register 48
                brake = self.get(48, 2) / 1000 * KT * self.volts / OHM
                torque = max(-brake, min(brake, -KT * KT / OHM * omega * 10))
        weight = -self.gravity * math.cos((self.position - 2048) * STEP)
        push = torque + weight - VISCOUS * omega
        if abs(omega) < 1e-3 and abs(push) <= DRY:
            omega = 0.0
        else:
            friction = math.copysign(DRY, omega if omega else push)
            faster = omega + (push - friction) / INERTIA * TICK
            omega = 0.0 if omega and faster * omega < 0 and abs(push) <= DRY else faster
        self.speed = omega / STEP
        self.position += self.speed * TICK
        low, high = self.wall
        if not low <= self.position <= high:
            self.position, self.speed = min(max(self.position, low), high), 0.0
        self.protect()

    def controlled(self) -> float:
        """Return the duty that the position loop asks for, -0.97 to 0.97, or that the mode sets."""
        mode = self.get(33)
        if mode == 2:
            return signed(self.get(44, 2), 10) / 1000
        rate = min(FASTEST, abs(signed(self.get(46, 2), 15)) or FASTEST)
        rate = min(rate, self.get(84) * 50.0)
        acceleration = self.get(41) * 100.0 or math.inf
        gap = self.target - self.setpoint
        wanted = math.copysign(min(rate, abs(gap) / TICK), gap)
        if mode == 1:
            wanted = math.copysign(min(rate, FASTEST), signed(self.get(46, 2), 15)) if self.get(46, 2) else 0.0
        elif acceleration < math.inf:  # so that it can still stop at the goal
            wanted = math.copysign(min(abs(wanted), math.sqrt(2 * acceleration * abs(gap))), gap)
        change = acceleration * TICK
        self.slew += max(-change, min(change, wanted - self.slew))
        self.setpoint += self.slew * TICK
        error = self.setpoint - self.position
        if abs(error) <= self.get(26 if error < 0 else 27):
            error = 0.0
        damping = 0.166 * self.get(22) / 8 * 0.02 * (self.slew - self.speed) * STEP
        return max(-0.97, min(0.97, 0.166 * self.get(21) * error * STEP + damping))

    def protect(self) -> None:
        """Count the time in overload and above the current, and the heat of the winding."""
        heavy = abs(self.duty) * 100 > self.get(36) and self.get(19) & OVERLOAD
        self.overload_s = self.overload_s + TICK if heavy else 0.0
        if self.overload_s > self.get(35) * 0.01:
            self.overloaded = True
        over = abs(self.amps) / 0.0065 > self.get(28, 2)
        self.overcurrent_s = self.overcurrent_s + TICK if over else 0.0
        self.celsius += TICK * (self.amps**2 * OHM * 0.02 - (self.celsius - self.ambient) / 400)
