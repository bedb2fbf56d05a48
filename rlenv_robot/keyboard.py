"""A keyboard as the device of a person who takes over: keys jog the joints."""

from __future__ import annotations

import sys
from typing import TextIO

import numpy as np

from hal import Spec, SpecError
from rlenv_robot.single_keys import SingleKeys
from rlenv_robot.task import Arrays

__all__ = ["Keyboard"]

TAKE = " i"
"""Take over, and hand back."""

UP, DOWN = "qwertyu", "asdfghj"
"""The first element of the action goes up with the first key of one row and down with the key below it, and so on."""


class Keyboard:
    """Jogs the elements of an action, such as six joints, with two rows of keys of a terminal.

    Space or ``i`` takes over, and hands back. A key press moves one element by ``step``; a terminal repeats a key that
    is held down. Nothing is owed: presses that come faster than the velocity of the intervention allows are lost, and
    with the last press the arm stands still.

    Args:
        spec: of the action; at most seven elements in all.
        step: of one key press, units of the action.
        source: the terminal; by default standard input.
        target: where it is said who has the robot; by default standard error.

    Raises:
        SpecError: the action has more elements than there are keys.
    """

    def __init__(
        self, spec: Spec, step: float = 0.03, source: TextIO | None = None, target: TextIO | None = None
    ) -> None:
        places = [(field.name, index) for field in spec for index in range(field.size)]
        if len(places) > len(UP):
            raise SpecError(f"{spec.name!r} has {len(places)} elements, the keyboard has keys for {len(UP)}")
        self._spec, self._target = spec, target
        self._keys = SingleKeys(source)
        self._moves = {key: (*place, step) for key, place in zip(UP, places, strict=False)}
        self._moves |= {key: (*place, -step) for key, place in zip(DOWN, places, strict=False)}
        self._has = False

    @property
    def help(self) -> str:
        """What the keys do, in a line or two."""
        names = [
            field.elements[index] if field.elements else f"{field.name}[{index}]"
            for field in self._spec
            for index in range(field.size)
        ]
        pairs = ", ".join(f"{up}/{down} {name}" for up, down, name in zip(UP, DOWN, names, strict=False))
        return f"keys: space or i takes over and hands back; {pairs}"

    def open(self) -> None:
        """As `rlenv_robot.intervention.Operator`; says what the keys do.

        Raises:
            RobotError: there is no terminal.
        """
        if not self._keys.opened:
            self._keys.open()
            self._say(self.help)

    def poll(self, present: Arrays) -> Arrays | None:
        """As `rlenv_robot.intervention.Operator`.

        Raises:
            OSError: the terminal is gone.
        """
        wanted = {name: np.array(present[name], np.float64) for name in self._spec.names}
        for key in self._keys.read():
            if key in TAKE:
                self._has = not self._has
                self._say("you have the robot" if self._has else "the policy has the robot")
            elif self._has and key in self._moves:
                name, index, step = self._moves[key]
                wanted[name].reshape(-1)[index] += step
        return wanted if self._has else None

    def release(self) -> None:
        """As `rlenv_robot.intervention.Operator`; keys from between the episodes count for nothing."""
        if self._keys.opened:
            self._keys.read()
        self._has = False
        self._say("an episode begins: the policy has the robot")

    def close(self) -> None:
        """Give the terminal back."""
        self._keys.close()

    def _say(self, text: str) -> None:
        print(text, file=self._target or sys.stderr, flush=True)
