"""Words of a program: an error in a line, and lines that must not end it on a full disk or in a closed pipe."""

from __future__ import annotations

import os
import sys

__all__ = ["give_up_what_is_full", "one_line", "say"]


def say(text: str) -> None:
    """A line on standard output, at once; if that can't be written, no line."""
    try:
        print(text, flush=True)
    except OSError:
        give_up_what_is_full()


def give_up_what_is_full() -> None:
    """Let go of what standard output and standard error still hold and can't write.

    Python tries once more when it ends, and makes a failure of the program of it.
    """
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except OSError:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the program runs


def one_line(error: Exception) -> str:
    """The error's first paragraph; what follows, such as an example, is for who reads it whole."""
    return " ".join(str(error).partition("\n\n")[0].split()) or type(error).__name__
