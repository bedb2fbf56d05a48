"""Ask the owner of an arm for acts and confirmations, or act on a virtual arm in the owner's place."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol

from rlenv_kit.bench.rig import Program

__all__ = ["Owner", "Person", "VirtualOwner"]


class Owner(Protocol):
    """Whoever stands at the arm."""

    def begin(self, name: str, title: str, you: tuple[str, ...], clear: str) -> str | None:
        """Ask whether a step may begin; return None for yes, else the reason why not."""
        ...

    def act(self, text: str, *orders: str) -> float | None:
        """Ask for an act that the program then watches for by itself.

        Args:
            text: what a person does.
            orders: lines for a virtual arm instead (``rlenv-robot robot twin``).

        Returns:
            When it was done, monotonic seconds; None for a person, whose acts nobody times.
        """
        ...

    def confirm(self, text: str, *orders: str) -> float | None:
        """Ask for an act, and wait until it is done. Arguments and result as for `act`."""
        ...

    def number(self, text: str) -> float | None:
        """Ask for a figure that a person reads from an instrument; None without one."""
        ...


class Person:
    """A person at a terminal.

    Args:
        say: prints a line.
        ask: prints a question and returns the answer.

    Raises:
        ValueError: there is no terminal to ask at.
    """

    def __init__(self, say: Callable[[str], None], ask: Callable[[str], str] = input) -> None:
        if ask is input and not sys.stdin.isatty():
            raise ValueError(
                "a bench asks its owner before each motion, and there is no terminal to ask at; only a virtual arm "
                "(--virtual) is benched without a person"
            )
        self._say, self._ask = say, ask

    def begin(self, name: str, title: str, you: tuple[str, ...], clear: str) -> str | None:
        """Show a step, and ask to type its name; anything else skips it with a reason."""
        self._say(f"\n{name}: {title}")
        for line in you:
            self._say(f"  you:   {line}")
        self._say(f"  clear: {clear}")
        while True:
            answer = self._ask(f'Type "{name}" to begin, or "skip" and why: ').strip()
            if answer == name:
                return None
            if answer.split()[:1] == ["skip"]:
                return f"the owner skipped it: {answer.removeprefix('skip').strip() or 'without a reason'}"

    def act(self, text: str, *orders: str) -> float | None:
        """Show what to do."""
        self._say(f"  NOW:   {text}")
        return None

    def confirm(self, text: str, *orders: str) -> float | None:
        """Show what to do, and wait for the word ``done``."""
        while self._ask(f'  NOW:   {text} Then type "done": ').strip() != "done":
            pass
        return None

    def number(self, text: str) -> float | None:
        """Ask for a number; an empty line is none."""
        while True:
            answer = self._ask(f"  {text}, or nothing: ").strip().replace(",", ".")
            try:
                return float(answer) if answer else None
            except ValueError:
                self._say(f"  {answer!r} is no number")


class VirtualOwner:
    """Act on a virtual arm, which harms nobody.

    Args:
        twin: the process of the virtual arm.
        say: prints a line.
    """

    def __init__(self, twin: Program, say: Callable[[str], None]) -> None:
        self._twin, self._say = twin, say

    def begin(self, name: str, title: str, you: tuple[str, ...], clear: str) -> str | None:
        """Begin every step."""
        self._say(f"{name}: {title}")
        return None

    def act(self, text: str, *orders: str) -> float | None:
        """Plant the faults that stand for the act.

        Raises:
            BenchError: the virtual arm does not take one.
        """
        if not orders:
            return time.monotonic()
        self._twin.tell("\n".join(orders))
        self._twin.line_with(f"done: {orders[0]}", 10.0)
        done_s = time.monotonic()
        for order in orders[1:]:
            self._twin.line_with(f"done: {order}", 10.0)
        return done_s

    confirm = act

    def number(self, text: str) -> float | None:
        """Return None: a virtual arm has no instruments."""
        return None
