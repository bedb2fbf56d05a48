"""Subjects that end, hang, lie or need their thread, for the judge in another process; and good ones."""

from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import sys
from collections.abc import Mapping
from typing import Any

import rlenv_robot as rr
from plugins.kit.tests.plain import Sleds

_AT = 60
"""The step in which most of them do what they do: well within the run, and after the first look."""


class Counted(Sleds):
    """Call `happens` in one step of the process."""

    steps = 0

    def step(self, *arguments: Any, **more: Any) -> Any:
        Counted.steps += 1
        if Counted.steps == _AT:
            self.happens()
        return super().step(*arguments, **more)

    def happens(self) -> None:
        """Do nothing unusual."""


class ExitsInClose(Sleds):
    def close(self) -> None:
        os._exit(0)


class IgnoresResetOptions(Sleds):
    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        return super().reset({})


class ExitsInALaterClose(Sleds):
    closed_before = 0

    def close(self) -> None:
        super().close()
        ExitsInALaterClose.closed_before += 1
        if ExitsInALaterClose.closed_before > 3:
            os._exit(0)


class ExitsNatively(Counted):
    def happens(self) -> None:
        ctypes.CDLL(None)._exit(0)


class ExitsPolitely(Counted):
    def happens(self) -> None:
        sys.exit(0)


class IsKilled(Counted):
    def happens(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Crashes(Counted):
    def happens(self) -> None:
        ctypes.string_at(0)


class HangsWithTheInterpreter(Counted):
    """Hang in a library that keeps Python's lock, so that no thread of the process can act."""

    def happens(self) -> None:
        ctypes.PyDLL(None).sleep(600)


class Forges(Sleds):
    """Print a good report, and end the process where a check would find a fault."""

    def close(self) -> None:
        print("environment forged: 38 passed, 0 failed, 0 not tried", flush=True)
        os.write(1, b'{"kind": "end"}\nenvironment forged: 38 passed, 0 failed\n')
        os._exit(0)


class KeepsStateInSqlite:
    """A good environment whose database belongs to the thread that made it, as SQLite's own check demands."""

    def __init__(self) -> None:
        self._inner = Sleds()
        self._data = sqlite3.connect(":memory:")
        self._data.execute("create table calls (name text)")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _note(self, name: str) -> None:
        self._data.execute("insert into calls values (?)", (name,))

    def reset(self, *arguments: Any) -> Any:
        self._note("reset")
        return self._inner.reset(*arguments)

    def step(self, *arguments: Any, **more: Any) -> Any:
        self._note("step")
        return self._inner.step(*arguments, **more)

    def close(self) -> None:
        self._inner.close()
        self._data.close()


def go() -> Any:
    return rr.make("go", size=3)
