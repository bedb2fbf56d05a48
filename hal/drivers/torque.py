"""The torque of Feetech servos: damping, and its removal without a drop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hal.drivers.bus import ServoBus
from hal.drivers.sts3215 import TABLE
from hal.errors import DeadlineExceeded

__all__ = ["DAMPING", "OFF", "ON", "damp", "hold_here", "let_down", "switch_off", "write_all"]

_log = logging.getLogger(__name__)

OFF, ON, DAMPING = b"\x00", b"\x01", b"\x02"
"""Contents of register 40. In damping the motor's winding is shorted to the share of register 48."""

_PERIOD_S = 1 / 30
_REST_S = 0.5
_REST_STEPS = 3
"""Farthest way of a joint at rest within `_REST_S`, steps. Damping holds nothing up, so what rests in it won't fall."""

_ATTEMPTS = 4


def write_all(bus: ServoBus, address: int, data: Mapping[int, bytes], attempts: int = _ATTEMPTS) -> list[int]:
    """Write registers of several servos with one request, read them back, and repeat what did not arrive.

    Returns:
        The servos that don't hold the data.

    Raises:
        ConnectionLost: the line is gone.
    """
    wanted, count = dict(data), len(next(iter(data.values())))
    for _ in range(attempts):
        bus.sync_write(address, wanted)
        replies = bus.sync_read(address, count, list(wanted))
        wanted = {servo: values for servo, values in wanted.items()
                  if servo not in replies or replies[servo].data != values}  # fmt: skip
        if not wanted:
            break
    return list(wanted)


def damp(bus: ServoBus, servos: Sequence[int]) -> list[int]:
    """Let joints give way slowly: the servo itself brakes them, without a controller.

    Returns:
        The servos that did not confirm it.

    Raises:
        ConnectionLost: the line is gone.
    """
    return write_all(bus, TABLE["torque_enable"].address, dict.fromkeys(servos, DAMPING))


def hold_here(bus: ServoBus, servos: Sequence[int]) -> list[int]:
    """Have servos in damping hold where they are.

    Returns:
        The servos that did not confirm it; one that does not tell its position stays in damping.

    Raises:
        ConnectionLost: the line is gone.
    """
    present, goal = TABLE["present_position"], TABLE["goal_position"]
    replies = bus.sync_read(present.address, present.size, servos)
    goals = {servo: goal.pack(present.unpack(reply.data)) for servo, reply in replies.items()}
    missed = set(servos) - set(goals)
    if goals:
        missed.update(write_all(bus, goal.address, goals))  # before the torque, which would pull to an older goal
    held = [servo for servo in servos if servo not in missed]
    if held:
        missed.update(write_all(bus, TABLE["torque_enable"].address, dict.fromkeys(held, ON)))
    return sorted(missed)


def let_down(
    bus: ServoBus,
    servos: Sequence[int],
    sleep: Callable[[float], None],
    longest_s: float,
    halted: Callable[[], bool] = lambda: False,
) -> bool:
    """Let an arm down by damping, and take the torque away when all its joints rest.

    Args:
        bus: the bus.
        servos: ids.
        sleep: waits, seconds.
        longest_s: after which the servos stay in damping, since something still moves.
        halted: returns whether the arm is to hold where it is instead; asked in each period.

    Returns:
        Whether the torque is off. Otherwise a servo still moves in damping, or one that is silent holds its goal, or
        the arm was halted.

    Raises:
        ConnectionLost: the line is gone; the servos stay as they are.
    """
    silent = damp(bus, servos)
    if silent:
        _log.error("servos %s do not confirm damping; no torque is taken away", silent)
        return False
    register, before, rests_s, passed_s = TABLE["present_position"], None, 0.0, 0.0
    began_s = time.monotonic()
    while rests_s < _REST_S:
        if passed_s > longest_s:
            _log.warning("the arm still moves after %.1f s; its servos stay in damping", passed_s)
            return False
        if halted():
            if missed := hold_here(bus, servos):
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
    return not switch_off(bus, servos)


def switch_off(bus: ServoBus, servos: Sequence[int]) -> list[int]:
    """Take the torque away; a joint that something holds up falls.

    Returns:
        The servos that did not confirm it.

    Raises:
        ConnectionLost: the line is gone.
    """
    failed = []
    for servo in servos:
        try:
            bus.write(servo, TABLE["torque_enable"].address, OFF)
        except DeadlineExceeded:
            failed.append(servo)
    return failed
