"""The servos behind serial ports."""

from __future__ import annotations

import pytest

from hal.errors import ConnectionLost
from rlenv_arms.scan import find_wiggle, scan_servos
from rlenv_arms.servo_terminal import ServoTerminal
from sim.servo_bus.feetech_servo import FeetechServo
from sim.servo_bus.line import ServoLine


def test_the_servos_behind_a_port_are_named() -> None:
    servos = [FeetechServo(2), FeetechServo(5, firmware=(3, 9), volts=12.0, model=2825, max_voltage=140)]
    with ServoTerminal(ServoLine(servos)) as terminal:
        found = dict(scan_servos(terminal.path, highest=6))
    assert found == {
        2: "STS3215, firmware 3.10, at 7.4 V, takes 4 to 8 V",
        5: "model 2825, firmware 3.9, at 12 V, takes 4 to 14 V",
    }


def test_the_port_of_an_arm_that_somebody_moves_is_found() -> None:
    left, right = ([FeetechServo(servo) for servo in (1, 6)] for _ in range(2))
    counts: dict[str, int] = {}
    with ServoTerminal(ServoLine(left)) as one, ServoTerminal(ServoLine(right)) as other:
        right[1].encoder = 4090.0  # it is moved over the end of the encoder's count

        def move(seconds: float) -> None:
            right[1].encoder = (right[1].encoder + 8) % 4096

        paths = [one.path, other.path]
        found = find_wiggle(paths, ready=counts.update, sleep=move)
    assert found is not None
    assert (found.port, found.servo) == (paths[1], 6)
    assert found.degrees == pytest.approx(10, abs=3)
    assert list(counts.values()) == [2, 2]
    assert all(servo.kept_writes == 0 and servo.drive == "off" for servo in (*left, *right))


def test_an_arm_that_nobody_moves_is_not_found() -> None:
    clock = iter(range(1000))
    with ServoTerminal(ServoLine([FeetechServo(1)])) as terminal:
        assert (
            find_wiggle([terminal.path], highest=1, longest_s=5, now=lambda: next(clock), sleep=lambda _: None) is None
        )


def test_a_missing_port_says_so() -> None:
    with pytest.raises(ConnectionLost, match="no such device"):
        scan_servos("/dev/ttyNONE")
