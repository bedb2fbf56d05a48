"""Words of a program: an error in a line, and lines that must not end it on a full disk or in a closed pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlenv_robot.training.evolution import Generation

__all__ = [
    "Bars", "give_up_what_is_full", "one_line", "print_table", "progress", "progress_bars", "say",
    "search_bar",
]  # fmt: skip


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


# -- Rows of text as a table: by Rich where it is installed, in plain columns elsewhere ----------------------


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


# -- How far long work is: bars on a terminal, lines elsewhere -----------------------------------------------


class Bars:
    """A progress bar for each stage, on a terminal; a line for each elsewhere."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress

    def begin(self, title: str, total: float) -> Callable[[float, str], None]:
        """Declare a stage; the returned function sets how far it is, and a remark."""
        plain = not self._progress.console.is_terminal
        if plain:
            print(title, flush=True)
        bar = self._progress.add_task(title, total=total, remark="")

        def advance(done: float, remark: str) -> None:
            self._progress.update(bar, completed=min(done, total), remark=remark)
            if plain and done >= total:
                print(f"  {remark}", flush=True)

        return advance


@contextmanager
def progress_bars() -> Iterator[Bars]:
    """Bars for as long as the block runs.

    Raises:
        RobotError: the package rich is missing.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError as error:
        from hal import RobotError

        raise RobotError("training needs more packages: pip install 'rlenv-robot[demo]'") from error
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<38}"), BarColumn(28), TimeElapsedColumn(), TextColumn("{task.fields[remark]}"),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        yield Bars(progress)


def search_bar(bars: Bars, title: str, seconds: float) -> Callable[[Generation], None]:
    """A bar along the wall time of a search, to be told every generation."""
    advance = bars.begin(title, seconds)

    def progress(generation: Generation) -> None:
        advance(generation.elapsed_s, f"generation {generation.number + 1}, median return {generation.median:.1f}")

    return progress


# -- How far long work is: a bar on a terminal, nothing elsewhere --------------------------------------------


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for as long as the block runs, on standard error, so that output can be piped.

    Yields:
        A function to call with how much is done, and of how much. Without a terminal, or without the package rich,
        it does nothing.
    """
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield lambda done, total: None
        return
    console = Console(stderr=True)
    if not (console.is_terminal and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    columns = TextColumn("{task.description}"), BarColumn(28), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as bars:
        bar = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)
