"""Rows of text as a table: by Rich where it is installed, in plain columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

__all__ = ["print_table"]


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a title. A stream that is no terminal gets plain columns, as programs read them."""
    cells = [list(row) for row in rows]
    if sys.stdout.isatty() and _print_rich(title, head, cells):
        return
    print(f"{title}:")
    widths = [max(len(row[column]) for row in [list(head), *cells]) for column in range(len(head))]
    for row in [list(head), *cells]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    table = Table(*head, title=title, title_justify="left")
    for row in rows:
        table.add_row(*map(Text, row))  # as text: a bracket in a name is no markup
    Console().print(table)
    return True
