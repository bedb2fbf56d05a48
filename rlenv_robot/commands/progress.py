"""How far long work is: bars on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hal import RobotError
from rlenv_robot.learning.search import Generation

__all__ = ["Bars", "progress_bars", "search_bar"]


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
