"""Read single keys from a terminal, and restore the terminal however the program ends."""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Protocol, TextIO

import numpy as np

from hal import RobotError, Spec, SpecError
from rlenv_robot.tasks.task import Arrays

if TYPE_CHECKING:
    SignalHandler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None

__all__ = ["TAKE", "KeySource", "Keyboard", "SingleKeys"]

_ENDS = ("SIGTERM", "SIGHUP")


class SingleKeys:
    """A terminal that delivers every key immediately without an echo (Ctrl-C still interrupts).

    The terminal is restored by `close`, when Python exits for any reason, and before the process ends by SIGTERM or
    SIGHUP, which raise SystemExit so that everything else is closed too. While the process is suspended (Ctrl-Z) the
    terminal has its former settings. Only SIGKILL and a crash of Python leave it changed: ``stty sane`` repairs it.

    Args:
        source: the terminal; by default standard input.
    """

    def __init__(self, source: TextIO | None = None) -> None:
        self._source = source
        self._descriptor = -1
        self._before: list[int | list[bytes | int]] | None = None
        self._handlers: dict[int, SignalHandler] = {}

    @property
    def opened(self) -> bool:
        """Whether this object controls the terminal."""
        return self._before is not None

    def open(self) -> None:
        """Take control of the terminal. Safe to call more than once.

        Raises:
            RobotError: the source is not a terminal.
        """
        if self._before is not None:
            return
        import termios  # only where there are terminals

        stream = sys.stdin if self._source is None else self._source
        try:
            self._descriptor = stream.fileno()
            before = termios.tcgetattr(self._descriptor)
        except (OSError, ValueError, AttributeError, termios.error):
            raise RobotError(
                "single keys need a terminal, and standard input is none: run it in one (over ssh: ssh -t)"
            ) from None
        self._before = before
        atexit.register(self.close)
        self._watch_signals()
        self._take()

    def _take(self) -> None:
        import termios

        keys = termios.tcgetattr(self._descriptor)
        keys[3] &= ~(termios.ICANON | termios.ECHO)
        keys[6][termios.VMIN], keys[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._descriptor, termios.TCSAFLUSH, keys)

    def _restore(self) -> None:
        import termios

        if self._before is not None:
            try:
                termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            except (OSError, termios.error):  # the terminal is gone
                return

    def read(self) -> str:
        """Return the keys that were pressed since the last call, without waiting.

        Raises:
            OSError: the terminal was closed.
        """
        keys = b""
        while select.select([self._descriptor], [], [], 0)[0]:
            more = os.read(self._descriptor, 1024)
            if not more:
                raise OSError("the terminal was closed")
            keys += more
        return keys.decode(errors="replace")

    def close(self) -> None:
        """Restore the terminal. Safe to call more than once."""
        if self._before is None:
            return
        self._restore()
        self._before = None
        atexit.unregister(self.close)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers.clear()

    # -- signals -------------------------------------------------------------------------------------------

    def _watch_signals(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.Signals[name] for name in _ENDS):
            if signal.getsignal(number) is signal.SIG_DFL:  # else somebody has plans of their own
                self._handlers[number] = signal.signal(number, self._end)
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        raise SystemExit(128 + number)

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns when the process goes on
        signal.signal(signal.SIGTSTP, self._suspend)
        self._take()


# -- A keyboard as the device of a person who takes over: keys jog the joints --------------------------------


TAKE = " i"
"""The keys that take control of the robot and give it back."""

UP, DOWN = "qwertyu", "asdfghj"
"""Keys that jog: the first key of a row moves the first element of the action up, the key below it down, and so on."""


class KeySource(Protocol):
    """Deliver the keys that a person presses, as `SingleKeys` does."""

    @property
    def opened(self) -> bool:
        """Whether keys are being read."""
        ...

    def open(self) -> None:
        """Start reading. Safe to call more than once."""
        ...

    def read(self) -> str:
        """Return the keys that were pressed since the last call, without waiting."""
        ...

    def close(self) -> None:
        """Stop reading. Safe to call more than once."""
        ...


class Keyboard:
    """Jog the elements of an action, such as six joints, with two rows of keys of a terminal.

    Space or ``i`` takes control and gives it back. A key press moves one element by ``step``; a terminal repeats a key
    that is held down. Presses that exceed the velocity of the intervention are dropped, not queued, so the arm stops
    with the last press.

    Args:
        spec: the spec of the action; at most seven elements in all.
        step: change per key press, units of the action.
        source: the terminal; by default standard input.
        target: stream for messages about whether the person or the policy has control; by default standard error.
        keys: delivers the keys, instead of a terminal.
        idle: the message while the person does not have control.

    Raises:
        SpecError: the action has more elements than there are keys.
    """

    def __init__(
        self,
        spec: Spec,
        step: float = 0.03,
        source: TextIO | None = None,
        target: TextIO | None = None,
        keys: KeySource | None = None,
        idle: str = "the policy has the robot",
    ) -> None:
        places = [(field.name, index) for field in spec for index in range(field.size)]
        if len(places) > len(UP):
            raise SpecError(f"{spec.name!r} has {len(places)} elements, the keyboard has keys for {len(UP)}")
        self._spec, self._target = spec, target
        self._keys, self._idle = keys or SingleKeys(source), idle
        self._moves = {key: (*place, step) for key, place in zip(UP, places, strict=False)}
        self._moves |= {key: (*place, -step) for key, place in zip(DOWN, places, strict=False)}
        self._has = False

    @property
    def help(self) -> str:
        """A short description of the keys."""
        names = [
            field.elements[index] if field.elements else f"{field.name}[{index}]"
            for field in self._spec
            for index in range(field.size)
        ]
        pairs = ", ".join(f"{up}/{down} {name}" for up, down, name in zip(UP, DOWN, names, strict=False))
        return f"keys: space or i takes over and hands back; {pairs}"

    def open(self) -> None:
        """Take control of the terminal, and print a description of the keys.

        Raises:
            RobotError: there is no terminal.
        """
        if not self._keys.opened:
            self._keys.open()
            self._say(self.help)

    def poll(self, present: Arrays) -> Arrays | None:
        """Return the target moved by the keys since the last call, or None while the policy has control.

        Raises:
            OSError: the terminal was closed.
        """
        target = {name: np.array(present[name], np.float64) for name in self._spec.names}
        for key in self._keys.read():
            if key in TAKE:
                self._has = not self._has
                self._say("you have the robot" if self._has else self._idle)
            elif self._has and key in self._moves:
                name, index, step = self._moves[key]
                target[name].reshape(-1)[index] += step
        return target if self._has else None

    def release(self) -> None:
        """Give control to the policy, and drop keys pressed between episodes."""
        if self._keys.opened:
            self._keys.read()
        self._has = False
        self._say(f"an episode begins: {self._idle}")

    def close(self) -> None:
        """Restore the terminal. Safe to call more than once."""
        self._keys.close()

    def _say(self, text: str) -> None:
        print(text, file=self._target or sys.stderr, flush=True)
