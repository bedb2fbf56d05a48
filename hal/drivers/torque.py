"""Switch the torque of servos: damping, holding, and off without dropping the arm."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hal.drivers.bus import ServoBus
from hal.drivers.servo_family import ServoFamily
from hal.errors import DeadlineExceeded

__all__ = ["OFF", "ON", "damp", "hold_here", "let_down", "switch_off", "write_all"]

_log = logging.getLogger(__name__)

OFF, ON = b"\x00", b"\x01"
"""Contents of the register ``torque_enable``."""

_PERIOD_S = 1 / 30
_REST_S = 0.5
_REST_STEPS = 3
"""Farthest way of a joint at rest within `_REST_S`, steps. Damping holds nothing up, so what rests in it won't fall."""

_ATTEMPTS = 4


def write_all(bus: ServoBus, address: int, data: Mapping[int, bytes], attempts: int = _ATTEMPTS) -> list[int]:
    """Write registers of several servos with one request, read them back, and repeat the writes that did not arrive.

    Returns:
        The servos that don't hold the data.

    Raises:
        ConnectionLost: the serial line is lost.
    """
    remaining, count = dict(data), len(next(iter(data.values())))
    for _ in range(attempts):
        bus.sync_write(address, remaining)
        replies = bus.sync_read(address, count, list(remaining))
        remaining = {servo: values for servo, values in remaining.items()
                  if servo not in replies or replies[servo].data != values}  # fmt: skip
        if not remaining:
            break
    return list(remaining)


def damp(bus: ServoBus, servos: Sequence[int], family: ServoFamily) -> list[int]:
    """Let joints give way slowly, braked by the servos without a controller.

    Returns:
        The servos that did not confirm it.

    Raises:
        ConnectionLost: the serial line is lost.
    """
    family.release_watchdog(bus, servos)
    name, content = family.braking
    register = family.table[name]
    return write_all(bus, register.address, dict.fromkeys(servos, register.pack(content)))


def _holding(bus: ServoBus, servos: Sequence[int], family: ServoFamily) -> dict[int, bytes]:
    """Return what `hold_here` must write over the braking content, by servo."""
    name = family.braking[0]
    if name == "torque_enable":
        return dict.fromkeys(servos, ON)
    register, braking = family.table[name], family.table[name].pack(family.braking[1])
    contents = bus.sync_read(register.address, register.size, servos)
    return {servo: reply.data for servo, reply in contents.items() if reply.data != braking}


def hold_here(
    bus: ServoBus, servos: Sequence[int], family: ServoFamily, holding: Mapping[int, bytes] | None = None
) -> list[int]:
    """Make servos in damping hold their present position.

    Args:
        bus: the bus of the servos.
        servos: ids of the servos.
        family: the servos' family.
        holding: servo id -> content of its braking register before damping; by default the servo's full duty.

    Returns:
        The servos that did not confirm it; one that does not report its position stays in damping.

    Raises:
        ConnectionLost: the serial line is lost.
    """
    present, goal, brake = (family.table[name] for name in ("present_position", "goal_position", family.braking[0]))
    if holding is None:
        full = ON if family.braking[0] == "torque_enable" else brake.pack(family.full_duty)
        holding = dict.fromkeys(servos, full)
    replies = bus.sync_read(present.address, present.size, servos)
    goals = {servo: goal.pack(present.unpack(reply.data)) for servo, reply in replies.items() if servo in holding}
    missed = set(servos) - set(goals)
    if goals:
        missed.update(write_all(bus, goal.address, goals))  # before the torque, which would pull to an older goal
    held = [servo for servo in servos if servo not in missed]
    if held:
        missed.update(write_all(bus, brake.address, {servo: holding[servo] for servo in held}))
    return sorted(missed)


def let_down(
    bus: ServoBus,
    servos: Sequence[int],
    family: ServoFamily,
    sleep: Callable[[float], None],
    longest_s: float,
    halted: Callable[[], bool] = lambda: False,
) -> bool:
    """Lower an arm by damping, and switch the torque off when all its joints rest.

    Args:
        bus: the bus of the servos.
        servos: ids of the servos.
        family: the servos' family.
        sleep: waits for a number of seconds.
        longest_s: longest wait for rest, seconds; after it the servos stay in damping.
        halted: returns whether the arm must hold its position instead; called in each period.

    Returns:
        Whether the torque is off. If not, a servo still moves in damping, a silent servo holds its goal, or the arm was
        halted.

    Raises:
        ConnectionLost: the serial line is lost; the servos stay as they are.
    """
    holding = _holding(bus, servos, family)
    silent = damp(bus, servos, family)
    if silent:
        _log.error("servos %s do not confirm damping; no torque is taken away", silent)
        return False
    register, before, rests_s, passed_s = family.table["present_position"], None, 0.0, 0.0
    began_s = time.monotonic()
    while rests_s < _REST_S:
        if passed_s > longest_s:
            _log.warning("the arm still moves after %.1f s; its servos stay in damping", passed_s)
            return False
        if halted():
            if missed := hold_here(bus, servos, family, holding):
                _log.error("servos %s do not confirm that they hold", missed)
            _log.warning("the arm was stopped while it was let down, and holds with torque; cut the servos' power")
            return False
        sleep(_PERIOD_S)
        passed_s = max(passed_s + _PERIOD_S, time.monotonic() - began_s)  # a busy machine sleeps longer
        replies = bus.sync_read(register.address, register.size, servos)
        if len(replies) < len(servos):
            continue
        now = np.array([register.unpack(replies[servo].data) for servo in servos])
        rests = before is not None and int(np.abs(now - before).max()) <= _REST_STEPS
        rests_s = rests_s + _PERIOD_S if rests else 0.0
        before = before if rests else now
    powered = switch_off(bus, servos, family)
    if not powered:
        family.disarm_watchdog(bus, servos)
    return not powered


def switch_off(bus: ServoBus, servos: Sequence[int], family: ServoFamily) -> list[int]:
    """Switch the torque off; a raised joint then falls.

    Returns:
        The servos that did not confirm it.

    Raises:
        ConnectionLost: the serial line is lost.
    """
    failed = []
    for servo in servos:
        try:
            bus.write(servo, family.table["torque_enable"].address, OFF)
        except DeadlineExceeded:
            failed.append(servo)
    return failed
