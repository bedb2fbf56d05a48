"""Cut a servo supply when the host's heartbeat stays away: firmware for MicroPython, state machine for any Python.

Copy this file to a Raspberry Pi Pico as ``main.py``. The state machine `PowerCut` needs no hardware: the host's
software and the tests import it from this very file. docs/power-cut.md describes the protocol and the wiring.
"""

import os
import select
import struct
import sys
import time

__all__ = [
    "BUTTON", "CAUSES", "HEARTBEAT", "HOST", "NOT_MEASURED", "OFF", "ON", "REFUSALS", "SET", "STATUS", "VERSION",
    "Board", "FrameReader", "Pico", "PowerCut", "crc16", "host_frame", "run_on_pico",
]  # fmt: skip

VERSION = 1
"""Version of the protocol and of this firmware."""

SYNC = 0xA5
STATUS, HEARTBEAT, ON, OFF, SET = 0x53, 0x48, 0x4E, 0x46, 0x43
"""Types of frames: S from the board; H, N, F and C from the host."""

HOST_SIZE, STATUS_SIZE = 10, 24
"""Bytes of a frame from the host, and of one from the board."""

HOST_FORMAT = "<BBIH"
"""Sync, type, challenge, value; a CRC of two bytes follows."""

STATUS_FORMAT = "<BBIBBBBHHHIH"
"""Sync, type, challenge, version, cause, refusal, flags, number of the newest cut, cut time, age of the newest proof,
time in this state (all in ms), output in mV; a CRC of two bytes follows."""

IS_ON, STOP_PRESSED, NEEDS_BUTTON, BUTTON_GIVEN = 1, 2, 4, 8
"""Bits of a status's flags."""

CAUSES = ("the board was switched on", "the board's own watchdog restarted it", "the heartbeat stayed away",
          "its button was pressed", "the host switched it off")  # fmt: skip
START, RESTART, SILENCE, BUTTON, HOST = range(5)
"""Indices of `CAUSES`: why the supply is off."""

REFUSALS = ("", "too few heartbeats came before it", "the stop button is pressed or its wire is broken",
            "the confirm button was not pressed since the cut, or over 30 s ago",
            "it names another cut than the newest one", "the output has voltage although it is off: a welded contact?",
            "the cut time is not within 20 to 2000 ms", "the supply is on")  # fmt: skip
(ACCEPTED, NO_HEARTBEAT, STOP_BUTTON, UNCONFIRMED, OTHER_CUT, OUTPUT_LIVE, LIMITS, ALREADY_ON) = range(8)
"""Indices of `REFUSALS`: why the newest command to switch on or to set was refused."""

SHORTEST_MS, LONGEST_MS, DEFAULT_MS = 20, 2000, 200
"""Limits and default of the cut time."""

RELEASE_MS = 10
"""Longest time that the switch needs to open; the board begins so much earlier. Source: typical data sheets of 10 A
relays with 5 V coils (Songle SRD: 5 ms, Omron G5LE: 5 ms) with a diode across the coil, doubled."""

NEEDED_PROOFS = 3
"""Heartbeats in a row before the supply may be switched on."""

DEBOUNCE_MS, PRESS_MS, CONFIRMED_MS = 5, 50, 30000
"""Shortest press of the stop button and of the confirm button, and how long a confirmation holds."""

LIVE_MV, DISCHARGED_MS, NOT_MEASURED = 3000, 500, 0xFFFF
"""An output above the first, so long after the cut, counts as live; the third means that nothing measures it."""

CONFIRM_FLAG = 0x8000
"""Bit of the value of a SET frame that asks for the confirm button."""

_CRC_TABLE = tuple(
    (high << 12) ^ (high << 5) ^ high for high in range(16)
)  # of each upper half byte, for the polynomial 0x1021


def crc16(data: bytes, crc: int = 0xFFFF) -> int:
    """Return the CRC-16/IBM-3740 of bytes (polynomial 0x1021, begins with 0xFFFF); of b"123456789" it is 0x29B1."""
    for byte in data:
        crc = (crc << 4 & 0xFFFF) ^ _CRC_TABLE[crc >> 12 ^ byte >> 4]
        crc = (crc << 4 & 0xFFFF) ^ _CRC_TABLE[crc >> 12 ^ byte & 15]
    return crc


def host_frame(kind: int, challenge: int, value: int = 0) -> bytes:
    """Return a frame from the host: HEARTBEAT, ON, OFF or SET, the challenge that it answers, and its value."""
    body = struct.pack(HOST_FORMAT, SYNC, kind, challenge, value)
    return body + struct.pack("<H", crc16(body))


class FrameReader:
    """Find whole frames among bytes; a frame whose CRC is wrong costs its first byte alone.

    Args:
        kinds: types of frames to find.
        size: bytes of each.
    """

    def __init__(self, kinds: tuple[int, ...], size: int) -> None:
        self._kinds, self._size = kinds, size
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that these bytes complete, as a list."""
        frames: list[bytes] = []
        size, buffer = self._size, self._buffer + data
        while len(buffer) > 1:
            if buffer[0] != SYNC or buffer[1] not in self._kinds:
                buffer = buffer[1:]
            elif len(buffer) < size:
                break
            elif not self._has_crc(buffer):
                buffer = buffer[1:]
            else:
                frames.append(bytes(buffer[:size]))
                buffer = buffer[size:]
        self._buffer = buffer
        return frames

    def _has_crc(self, buffer: bytes) -> bool:
        end = self._size
        return crc16(buffer[: end - 2]) == buffer[end - 2] | buffer[end - 1] << 8


class Board:
    """The hardware that `PowerCut` uses; `Pico` is one, and tests have another."""

    def now_ms(self) -> int:
        """Return a time in ms that wraps at 2**30, as MicroPython's ``ticks_ms`` does."""
        raise NotImplementedError

    def supply(self, on: bool) -> None:
        """Switch the supply."""
        raise NotImplementedError

    def buttons(self) -> tuple[bool, bool]:
        """Return whether the stop button and the confirm button are pressed."""
        raise NotImplementedError

    def output_mv(self) -> int:
        """Return the output's voltage, mV; `NOT_MEASURED` where nothing measures it."""
        raise NotImplementedError

    def read(self) -> bytes:
        """Return the bytes that have come from the host, at most 32; never wait."""
        raise NotImplementedError

    def write(self, data: bytes) -> bool:
        """Send bytes if the host takes some; return whether it did."""
        raise NotImplementedError

    def random(self) -> int:
        """Return a random number of at least 30 bits."""
        raise NotImplementedError

    def save(self, settings: bytes) -> None:
        """Keep settings beyond a power failure."""
        raise NotImplementedError


class PowerCut:
    """Decide whether the supply may be on. Call `poll` about once a millisecond.

    The board sends a challenge, a number that it does not use again for 2**30 challenges, in each status. A heartbeat
    proves that the host lived when that challenge was sent, so its age counts from then: bytes that lay in a buffer,
    come twice or are noise prove nothing. If the newest proof is as old as the cut time, less the switch's own time,
    the supply is cut and stays off until ON names this cut. Switching on needs heartbeats before it, a released stop
    button and, if it is set so, a press of the confirm button.

    Args:
        hardware: the board.
        settings: bytes that its `save` got last; anything else sets the defaults.
        restarted: whether the board's own watchdog restarted it.
    """

    def __init__(self, hardware: Board, settings: bytes = b"", restarted: bool = False) -> None:
        self.hardware = hardware
        hardware.supply(False)
        self.is_on, self.cause, self.refusal, self.cuts = False, RESTART if restarted else START, ACCEPTED, 0
        self.cut_ms, self.needs_button = DEFAULT_MS, False
        if len(settings) == 4 and crc16(settings[:2]) == settings[2] | settings[3] << 8:
            self._set(settings[0] | settings[1] << 8)
        self._reader = FrameReader((HEARTBEAT, ON, OFF, SET), HOST_SIZE)
        self._challenge = hardware.random() & 0x3FFFFFFF
        self._asked: list[tuple[int, int]] = []  # unanswered challenges and their times, oldest first
        self._age_ms, self._proofs, self._since_ms = 0xFFFF, 0, 0
        self._stop_ms = self._press_ms = self._confirmed_ms = 0
        self._was_released = False
        self._now = self._sent = hardware.now_ms()

    def poll(self) -> None:
        """Read buttons and bytes, cut if it is time, and send a status when one is due."""
        hardware = self.hardware
        now = hardware.now_ms()
        passed = _since(now, self._now)
        self._now = now
        self._age_ms = min(self._age_ms + passed, 0xFFFF)
        self._since_ms = min(self._since_ms + passed, 0x3FFFFFFF)
        self._look_at_buttons(passed)
        while self._asked and _since(now, self._asked[0][1]) >= self.cut_ms:
            self._asked.pop(0)
        for frame in self._reader.feed(hardware.read()):
            self._obey(frame)
        if self.is_on and self._age_ms >= self.cut_ms - RELEASE_MS:
            self._cut(SILENCE)
        if _since(now, self._sent) >= self.period_ms:
            self._send_status()

    @property
    def period_ms(self) -> int:
        """Time between two challenges: a fifth of the cut time, but at least 4 ms."""
        return max(self.cut_ms // 5, 4)

    def _look_at_buttons(self, passed: int) -> None:
        stop, confirm = self.hardware.buttons()
        self._stop_ms = min(self._stop_ms + passed, 0xFFFF) if stop else 0
        if self.is_on and self._stop_ms >= DEBOUNCE_MS:
            self._cut(BUTTON)
        self._confirmed_ms = max(self._confirmed_ms - passed, 0)
        if confirm:
            self._press_ms += passed if self._was_released else 0
        else:
            if self._press_ms >= PRESS_MS and not self.is_on:
                self._confirmed_ms = CONFIRMED_MS
            self._press_ms, self._was_released = 0, True

    def _obey(self, frame: bytes) -> None:
        _, kind, challenge, value = struct.unpack(HOST_FORMAT, frame[:8])
        if kind == OFF:  # in any state, by any challenge
            if self.is_on:
                self._cut(HOST)
            return
        issued = [at for number, at in self._asked if number == challenge]
        if not issued:
            return  # old, repeated, or not from a host that reads what this board sends
        if kind == HEARTBEAT:
            self._prove(challenge, issued[0])
        elif kind == ON:
            self.refusal = self._why_not(value)
            if self.refusal == ACCEPTED:
                self._switch(True)
            self._send_status()
        else:
            self.refusal = ALREADY_ON if self.is_on else self._set(value)
            if self.refusal == ACCEPTED:
                settings = struct.pack("<H", value)
                self.hardware.save(settings + struct.pack("<H", crc16(settings)))
                self._asked = []
            self._send_status()

    def _prove(self, challenge: int, issued: int) -> None:
        """Take a heartbeat: this challenge and older ones are used up."""
        while self._asked.pop(0)[0] != challenge:
            pass
        self._proofs = min(self._proofs + 1, 0xFF) if self._age_ms < self.cut_ms else 1
        self._age_ms = _since(self._now, issued)

    def _why_not(self, number: int) -> int:
        """Return the reason against switching on, an index of `REFUSALS`."""
        if self.is_on:
            return ALREADY_ON
        if self._proofs < NEEDED_PROOFS or self._age_ms >= self.cut_ms - RELEASE_MS:
            return NO_HEARTBEAT
        if self._stop_ms:
            return STOP_BUTTON
        if self.needs_button and not self._confirmed_ms:
            return UNCONFIRMED
        if number != self.cuts:
            return OTHER_CUT
        output = self.hardware.output_mv()
        return OUTPUT_LIVE if self._since_ms >= DISCHARGED_MS and LIVE_MV < output < NOT_MEASURED else ACCEPTED

    def _set(self, value: int) -> int:
        cut_ms = value & ~CONFIRM_FLAG
        if not SHORTEST_MS <= cut_ms <= LONGEST_MS:
            return LIMITS
        self.cut_ms, self.needs_button = cut_ms, bool(value & CONFIRM_FLAG)
        return ACCEPTED

    def _cut(self, cause: int) -> None:
        self.cause, self.cuts = cause, (self.cuts + 1) & 0xFFFF
        self._switch(False)
        self._send_status()

    def _switch(self, on: bool) -> None:
        self.hardware.supply(on)
        self.is_on, self._since_ms, self._confirmed_ms = on, 0, 0

    def _send_status(self) -> None:
        """Send a status with a new challenge, where the host takes bytes; a skipped one asks nothing."""
        self._sent = self._now
        self._challenge = (self._challenge * 1664525 + 1013904223) & 0x3FFFFFFF  # visits each number once (Knuth)
        flags = (IS_ON if self.is_on else 0) | (STOP_PRESSED if self._stop_ms else 0)
        flags |= (NEEDS_BUTTON if self.needs_button else 0) | (BUTTON_GIVEN if self._confirmed_ms else 0)
        body = struct.pack(
            STATUS_FORMAT, SYNC, STATUS, self._challenge, VERSION, self.cause, self.refusal, flags, self.cuts,
            self.cut_ms, self._age_ms, self._since_ms, self.hardware.output_mv(),
        )  # fmt: skip
        if self.hardware.write(body + struct.pack("<H", crc16(body))):
            self._asked.append((self._challenge, self._now))


def _since(now: int, then: int) -> int:
    """Return the milliseconds between two times of `Board.now_ms`."""
    return (now - then) & 0x3FFFFFFF


# -- Raspberry Pi Pico ---------------------------------------------------------------------------------------------


class Pico(Board):
    """A Raspberry Pi Pico: the switch on GP15, stop button on GP14, confirm button on GP13, output's divider on GP26.

    The stop button opens its contact to ground when pressed, so a broken wire counts as pressed. The confirm button
    closes to ground. The divider has 33 kOhm to the output and 3.3 kOhm to ground; without one GP26 is tied to 3.3 V.
    """

    WATCHDOG_MS = 800
    """Above the 500 ms for which MicroPython may wait for a host that takes no bytes (ports/rp2/mphalport.h)."""

    def __init__(self) -> None:
        import machine

        self._switch = machine.Pin(15, machine.Pin.OUT, value=0)  # first of all
        import micropython

        micropython.kbd_intr(-1)  # a byte 3 is no Ctrl-C
        self._stop = machine.Pin(14, machine.Pin.IN, machine.Pin.PULL_UP)
        self._confirm = machine.Pin(13, machine.Pin.IN, machine.Pin.PULL_UP)
        self._sense, self._led = machine.ADC(26), machine.Pin("LED", machine.Pin.OUT, value=0)
        self._input, self._output = sys.stdin.buffer, sys.stdout.buffer
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(sys.stdin, select.POLLIN)
        self._writable.register(sys.stdout, select.POLLOUT)
        self.restarted = machine.reset_cause() == machine.WDT_RESET
        self._machine, self._ticks_ms = machine, getattr(time, "ticks_ms")  # noqa: B009 - only MicroPython has it

    def start_watchdog(self) -> None:
        """Start the microcontroller's own watchdog, which nothing ends."""
        self._watchdog = self._machine.WDT(timeout=self.WATCHDOG_MS)

    def feed_watchdog(self) -> None:
        """Keep the microcontroller's own watchdog from restarting it."""
        self._watchdog.feed()

    def now_ms(self) -> int:
        """Return the time since the start, ms."""
        now: int = self._ticks_ms()
        return now

    def supply(self, on: bool) -> None:
        """Switch the supply, and the light-emitting diode with it."""
        self._switch.value(on)
        self._led.value(on)

    def buttons(self) -> tuple[bool, bool]:
        """Return the levels of GP14 and GP13."""
        return self._stop.value() == 1, self._confirm.value() == 0

    def output_mv(self) -> int:
        """Return the voltage behind the divider at GP26, mV."""
        raw: int = self._sense.read_u16()
        return NOT_MEASURED if raw > 64000 else raw * 3300 * 11 // 65535

    def read(self) -> bytes:
        """Return bytes from USB."""
        data = b""
        while len(data) < 32 and self._readable.poll(0):
            data += self._input.read(1)
        return data

    def write(self, data: bytes) -> bool:
        """Send bytes by USB. The 256 bytes of its buffer hold more than one cut time's statuses."""
        if not self._writable.poll(0):
            return False
        self._output.write(data)
        return True

    def random(self) -> int:
        """Return 32 bits of the ring oscillator."""
        number: int = struct.unpack("<I", os.urandom(4))[0]
        return number

    def save(self, settings: bytes) -> None:
        """Write the settings to the flash."""
        with open("power_cut.bin", "wb") as file:
            file.write(settings)

    def load(self) -> bytes:
        """Return the settings from the flash, or nothing."""
        try:
            with open("power_cut.bin", "rb") as file:
                return file.read(8)
        except OSError:
            return b""


def run_on_pico() -> None:
    """Run for ever; return at once if both buttons are held, which leaves the board to its prompt."""
    board = Pico()
    stop, confirm = board.buttons()
    if stop and confirm:
        return
    machine = PowerCut(board, board.load(), board.restarted)
    board.start_watchdog()
    while True:
        machine.poll()
        board.feed_watchdog()


if __name__ == "__main__":
    run_on_pico()
