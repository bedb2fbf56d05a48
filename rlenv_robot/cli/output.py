"""Print lines, tables and progress of commands; a full disk or a closed pipe does not end the program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rlenv_robot.cli.progress_file import ProgressFile

if TYPE_CHECKING:
    from rich.progress import Progress

    from rlenv_robot.training.evolution import Generation

__all__ = [
    "INTERRUPTED",
    "Advance",
    "Finding",
    "ProgressBars",
    "counted",
    "drop_unwritable_output",
    "one_line",
    "print_table",
    "progress",
    "progress_bars",
    "say",
    "search_bar",
    "warn_of_limit_cycles",
]  # fmt: skip

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended, as shells have it."""

# -- Lines -----------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print and flush a line; drop it if standard output can't be written."""
    try:
        print(text, flush=True)
    except OSError:
        drop_unwritable_output()


def drop_unwritable_output() -> None:
    """Drop the buffered text of standard output and standard error if it can't be written.

    Otherwise Python would try to write it again at exit, and would report the failure as the program's.
    """
    for name in ("stdout", "stderr"):
        try:
            getattr(sys, name).flush()
        except OSError:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the program runs


def one_line(error: Exception) -> str:
    """Return the first paragraph of an error's message as one line, without later ones such as examples."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror and len(error.args) > 1:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).partition("\n\n")[0].split()) or type(error).__name__


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 episode``, ``2 episodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def warn_of_limit_cycles(degrees: Sequence[float]) -> None:
    """Print a warning on standard error if the joint targets of some episodes oscillated too far.

    Args:
        degrees: amplitude of each episode's limit cycle (`hal.guarding.limit_cycle`), degrees; NaN if it has none.
    """
    from hal.guarding.limit_cycle import LARGEST_DEG, SLOWEST_HZ

    ill = [cycle for cycle in degrees if cycle > LARGEST_DEG]
    if ill:
        print(
            f"warning: in {len(ill)} of {counted(len(degrees), 'episode')} a joint's target oscillated by more "
            f"than {LARGEST_DEG:g} degree to either side ({max(ill):.1f} at most), at {SLOWEST_HZ:g} Hz or faster, "
            "which wears the gears of a real arm: train or retrain the policy before it moves one (docs/trainers.md)",
            file=sys.stderr,
        )


# -- Tables ----------------------------------------------------------------------------------------------------


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a title, with Rich on a terminal if it is installed, else in plain columns."""
    cells = [list(row) for row in rows]
    if sys.stdout.isatty() and _print_rich(title, head, cells):
        return
    print(f"{title}:")
    widths = [max(len(row[column]) for row in [list(head), *cells]) for column in range(len(head))]
    for row in [list(head), *cells]:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Print a table by Rich; return False if Rich is missing, or if words would have to be cut."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    console = Console()
    columns = [(name, *(row[number] for row in rows)) for number, name in enumerate(head)]
    if sum(max(map(_longest_word, cells)) + 1 for cells in columns) > console.width:
        return False
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for name, *cells in columns:
        table.add_column(name, min_width=max(map(_longest_word, (name, *cells))))
    for row in rows:
        table.add_row(*map(Text, row))  # as text: a bracket in a name is no markup
    console.print(table)
    return True


_WIDE = 110
"""Columns of a terminal from which a progress bar is long."""


def _longest_word(cell: str) -> int:
    return max(map(len, cell.split()), default=0)


# -- Progress --------------------------------------------------------------------------------------------------


class Advance(Protocol):
    """Report the progress of a stage."""

    def __call__(
        self,
        done: float,
        remark: str = "",
        /,
        total: float | None = None,
        figures: Mapping[str, float] | None = None,
    ) -> None:
        """Set the completed amount, a remark beside the bar, and the total if it was unknown before.

        ``figures`` are measured numbers, which a file of the progress has.
        """
        ...


class ProgressBars:
    """Show a progress bar for each stage.

    Args:
        bars: Rich's progress display; None without a terminal or without Rich.
        lines: whether to print a line at the beginning and end of each stage if there are no bars.
        file: takes each report too.
    """

    def __init__(self, bars: Progress | None, lines: bool, file: ProgressFile) -> None:
        self._bars, self._lines, self._file = bars, lines and bars is None, file

    def begin(self, title: str, total: float | None = None) -> Advance:
        """Begin a stage.

        Args:
            title: shown beside the bar.
            total: total amount of work; None if only the first report will know it.
        """
        if self._lines:
            print(title, flush=True)
        bar = None if self._bars is None else self._bars.add_task(title, total=total, remark="")
        expected, file = total, self._file
        file.add(title, share=0.0)

        def advance(
            done: float,
            remark: str = "",
            /,
            total: float | None = None,
            figures: Mapping[str, float] | None = None,
        ) -> None:
            whole = expected if total is None else total
            file.add(title, share=min(1.0, done / whole) if whole else None, remark=remark, figures=figures)
            if self._bars is not None and bar is not None:
                self._bars.update(
                    bar, completed=done if whole is None else min(done, whole), total=whole, remark=remark
                )
            elif self._lines and whole is not None and done >= whole:
                print(f"  {remark}", flush=True)

        return advance


@contextmanager
def progress_bars(lines: bool = True, file: str | None = None) -> Iterator[ProgressBars]:
    """Show progress on standard error inside a ``with`` block, so that the output can be piped.

    Args:
        lines: without a terminal or without Rich: whether to print lines for each stage.
        file: path of a file to write the progress to as well (`rlenv_robot.cli.progress_file`).

    Raises:
        OSError: the file can't be written.
    """
    with closing(ProgressFile(file)) as written, _bars(lines, written) as bars:
        yield bars


@contextmanager
def _bars(lines: bool, file: ProgressFile) -> Iterator[ProgressBars]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column
    except ImportError:
        yield ProgressBars(None, lines, file)
        return
    console = Console(stderr=True)
    if not (console.is_terminal and sys.stderr.isatty()):
        yield ProgressBars(None, lines, file)
        return
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(28 if console.width >= _WIDE else 10),
        # Never narrower than its text: on a narrow terminal the remark gives way instead.
        TimeRemainingColumn(
            compact=True, elapsed_when_finished=True, table_column=Column(no_wrap=True, min_width=len("1:00:00"))
        ),
        TextColumn("{task.fields[remark]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with Progress(*columns, console=console, transient=not lines) as bars:
        yield ProgressBars(bars, lines, file)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show one bar inside a ``with`` block, and nothing without a terminal.

    Yields:
        A function to call with the completed amount and the total.
    """
    with progress_bars(lines=False) as bars:
        advance = bars.begin(title)
        yield lambda done, total: advance(done, f"{done} of {total}", total=total)


def search_bar(bars: ProgressBars, title: str) -> Callable[[Generation], None]:
    """Begin a stage that shows the progress of a search.

    Args:
        bars: the display.
        title: shown beside the bar.

    Returns:
        A function to call with each generation.
    """
    advance = bars.begin(title, 1.0)

    def progress(generation: Generation) -> None:
        figures = {"generation": generation.number + 1, "return": generation.median, "best": generation.best}
        advance(generation.share, f"generation {generation.number + 1}, median return {generation.median:.1f}",
                figures=figures)  # fmt: skip

    return progress


class Finding(NamedTuple):
    """The result of one examination of a machine, for the verb ``doctor``.

    Attributes:
        subject: what was examined.
        ok: False if something that is needed is missing, None if it is optional.
        state: a version, or what is wrong.
        advice: what to do; empty if there is nothing to do.
    """

    subject: str
    ok: bool | None
    state: str
    advice: str = ""
