"""Make text from exceptions, people and clients fit for UTF-8 and for one line of a log."""

from __future__ import annotations

import copy
import logging
from typing import Any

__all__ = ["LogFormatter", "encodable", "error_text", "printable"]


def encodable(text: str, longest: int) -> str:
    """Return text that UTF-8 can encode, of at most ``longest`` characters.

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
    """Return an exception's text, or a sentence that says that getting the text raises."""
    try:
        return str(error)
    except Exception as second:
        return f"its text can't be read, that raises {type(second).__name__}"


_LONGEST_LINE = 8000


class LogFormatter(logging.Formatter):
    """Format log records so that no text from a client or a driver can begin a line or move a terminal's cursor.

    A message is one line with all unprintable characters escaped. Each line of a traceback begins with a bar.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and those of its traceback."""
        record = copy.copy(record)
        record.exc_text = None  # another handler's formatter may have kept its text of the traceback here
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        record.message = printable(record.message, _LONGEST_LINE)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """Return the traceback's lines."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  | {printable(line, _LONGEST_LINE)}" for line in lines)
