"""Talk to a power cut over its serial port: read its statuses, and answer their challenges."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path

from hal.drivers.serial_port import SerialPort
from hal.errors import RobotError
from rlenv_power_cut.firmware import power_cut as firmware

__all__ = ["BAUD", "PowerCutError", "PowerCutLink", "Status"]

BAUD = 115_200
"""Bits a second; USB ignores it."""

ANSWER_S = 1.0
"""Longest wait for the outcome of a command, seconds; the slowest board sends a status every 0.4 s."""


class PowerCutError(RobotError):
    """A power cut is absent, has another firmware, or refused a command."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a power cut, as it last reported it.

    Attributes:
        challenge: the number that a heartbeat must repeat.
        version: version of the protocol.
        is_on: whether the supply is on.
        cause: why the supply was cut last, in words.
        refusal: why the newest command was refused, in words; empty if it was not.
        cuts: number of the newest cut, which a command to switch on must name.
        cut_ms: longest silence of the host, ms.
        age_ms: age of the newest proof that the host lives, ms; 65535 means at least so much.
        since_ms: time since the supply was switched, ms.
        output_mv: voltage at the output, mV; None if nothing measures it.
        stop_pressed: whether the stop button is pressed, or its wire broken.
        needs_button: whether the confirm button must be pressed before the supply may be switched on.
        button_given: whether it was.
    """

    challenge: int
    version: int
    is_on: bool
    cause: str
    refusal: str
    cuts: int
    cut_ms: int
    age_ms: int
    since_ms: int
    output_mv: int | None
    stop_pressed: bool
    needs_button: bool
    button_given: bool

    @classmethod
    def from_frame(cls, frame: bytes) -> Status:
        """Return the status in a frame with a right CRC."""
        (_, _, challenge, version, cause, refusal, flags, cuts, cut_ms, age_ms, since_ms, output_mv) = struct.unpack(
            firmware.STATUS_FORMAT, frame[:-2]
        )
        return cls(
            challenge=challenge, version=version, is_on=bool(flags & firmware.IS_ON),
            cause=_word(firmware.CAUSES, cause), refusal=_word(firmware.REFUSALS, refusal), cuts=cuts, cut_ms=cut_ms,
            age_ms=age_ms, since_ms=since_ms, output_mv=None if output_mv == firmware.NOT_MEASURED else output_mv,
            stop_pressed=bool(flags & firmware.STOP_PRESSED), needs_button=bool(flags & firmware.NEEDS_BUTTON),
            button_given=bool(flags & firmware.BUTTON_GIVEN),
        )  # fmt: skip

    def describe(self) -> str:
        """Return the state as one line for people."""
        state = f"on, newest heartbeat {self.age_ms} ms old" if self.is_on else f"off: {self.cause}"
        marks = [f"cut {self.cuts}", f"cut time {self.cut_ms} ms", f"firmware {self.version}"]
        marks += [] if self.output_mv is None else [f"output {self.output_mv / 1000:.1f} V"]
        marks += ["stop button pressed"] if self.stop_pressed else []
        if self.needs_button and not self.is_on:
            marks.append("confirmed" if self.button_given else "press the confirm button before you switch it on")
        return f"{state} ({', '.join(marks)})"


def _word(words: tuple[str, ...], index: int) -> str:
    return words[index] if index < len(words) else f"code {index} of another firmware"


class PowerCutLink:
    """Hold the serial port of a power cut. Use it from one thread.

    Args:
        port: path of the serial port.

    Attributes:
        port: path of the serial port.
        status: the newest status; None before the first.

    Raises:
        ConnectionLost: the port is missing, not permitted or in use.
    """

    def __init__(self, port: str | Path) -> None:
        self.port = str(port)
        self.status: Status | None = None
        self._serial = SerialPort(port, BAUD)
        self._serial.discard()  # statuses from before
        self._reader = firmware.FrameReader((firmware.STATUS,), firmware.STATUS_SIZE)

    def receive(self, timeout_s: float) -> list[Status]:
        """Wait for bytes for at most so long, and return the statuses that they complete, oldest first.

        Raises:
            ConnectionLost: the port is lost.
        """
        data = self._serial.receive(timeout_s)
        statuses = [Status.from_frame(frame) for frame in self._reader.feed(data)] if data else []
        if statuses:
            self.status = statuses[-1]
        return statuses

    def first_status(self, timeout_s: float = ANSWER_S) -> Status:
        """Wait for a status, and return it.

        Raises:
            PowerCutError: none came, or the board has another version of the firmware.
            ConnectionLost: the port is lost.
        """
        end_s = time.monotonic() + timeout_s
        while self.status is None and (left_s := end_s - time.monotonic()) > 0:
            self.receive(left_s)
        status = self.status
        if status is None:
            raise PowerCutError(
                f"{self.port} sent no status for {timeout_s:g} s: is it a board with the firmware of "
                "`rlenv-robot robot power-cut firmware`?"
            )
        if status.version != firmware.VERSION:
            raise PowerCutError(
                f"{self.port} has firmware {status.version}, expected is {firmware.VERSION}: copy the one of "
                "`rlenv-robot robot power-cut firmware` onto the board"
            )
        return status

    def beat(self) -> None:
        """Answer the newest challenge: the proof that this host lives."""
        self._send(firmware.HEARTBEAT)

    def switch_on(self, number: int) -> None:
        """Ask for the supply, after the cut of this number; `Status.refusal` has the outcome."""
        self._send(firmware.ON, number)

    def switch_off(self) -> None:
        """Cut the supply now."""
        self._send(firmware.OFF)

    def set(self, cut_ms: int, needs_button: bool) -> Status:
        """Set the cut time and whether the confirm button is needed, and return the status with them.

        Args:
            cut_ms: longest silence of the host, 20 to 2000 ms.
            needs_button: whether the confirm button must be pressed before each switching on.

        Raises:
            PowerCutError: the board refused, or did not answer.
            ConnectionLost: the port is lost.
        """
        if not firmware.SHORTEST_MS <= cut_ms <= firmware.LONGEST_MS:
            raise PowerCutError(f"the cut time is {cut_ms} ms, allowed are {firmware.SHORTEST_MS} to "
                                f"{firmware.LONGEST_MS} ms")  # fmt: skip
        self.first_status()
        end_s = time.monotonic() + ANSWER_S
        while time.monotonic() < end_s:
            if self.receive(0.1):
                self._send(firmware.SET, cut_ms | (firmware.CONFIRM_FLAG if needs_button else 0))
            if self.status is not None and (self.status.cut_ms, self.status.needs_button) == (cut_ms, needs_button):
                return self.status
        refusal = "" if self.status is None else self.status.refusal
        raise PowerCutError(f"{self.port} was not set to {cut_ms} ms: {refusal or 'it did not answer'}")

    def _send(self, kind: int, value: int = 0) -> None:
        challenge = 0 if self.status is None else self.status.challenge
        self._serial.send(firmware.host_frame(kind, challenge, value))

    def close(self) -> None:
        """Release the port; the board cuts when the cut time has passed. Safe to call more than once."""
        self._serial.close()
