"""Text from exceptions, people and clients, made fit for UTF-8 and for one line of a log."""

from __future__ import annotations

__all__ = ["encodable", "error_text", "printable"]


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
