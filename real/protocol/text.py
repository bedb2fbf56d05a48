"""Text from exceptions, people and clients, made fit for UTF-8 and for one line of a log."""

from __future__ import annotations

import traceback

__all__ = ["encodable", "error_text", "printable", "traceback_text"]

_LONGEST_TRACEBACK = 20_000


def encodable(text: str, longest: int) -> str:
    """Return text that UTF-8 can carry, of at most ``longest`` characters.

    Lone surrogates, which Python puts into the names of files that it can't decode, are escaped with a backslash.
    """
    return text[:longest].encode(errors="backslashreplace").decode()[:longest]


def printable(text: str, longest: int) -> str:
    """Return `encodable` text in one line: control characters, which could forge lines of a log, are escaped."""
    text = encodable(text, longest)
    if not text.isprintable():
        escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        text = "".join(escaped)[:longest]
    return text


def error_text(error: BaseException) -> str:
    """Return an exception's text; where even that raises, a sentence that says so."""
    try:
        return str(error)
    except Exception as second:
        return f"its text can't be read, that raises {type(second).__name__}"


def traceback_text(error: BaseException) -> str:
    """Return an exception's traceback as `encodable` text, for a log that must not fail on it."""
    return encodable("".join(traceback.format_exception(error)), _LONGEST_TRACEBACK)
