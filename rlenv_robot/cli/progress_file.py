"""Write the progress of a command to a file, for programs that show it."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["ProgressFile", "add_progress"]


def add_progress(parser: argparse.ArgumentParser) -> None:
    """Declare the option ``--progress``."""
    parser.add_argument(
        "--progress", metavar="FILE", help="write the progress there too, each step of it as a line of JSON"
    )


class ProgressFile:
    """Append the progress of a command to a file, a line of JSON for each report.

    Args:
        path: path of the file, which is replaced; None writes nothing.

    Raises:
        OSError: the file can't be written.
    """

    def __init__(self, path: str | Path | None) -> None:
        self._file = None if path is None else Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - until `close`

    def add(
        self,
        stage: str,
        *,
        share: float | None = None,
        remark: str = "",
        figures: Mapping[str, float] | None = None,
        ask: str = "",
    ) -> None:
        """Write a report, which readers of the file see at once.

        Args:
            stage: what the command does.
            share: completed share of the stage, 0 to 1; None if it is unknown.
            remark: a few words on the present state.
            figures: measured numbers by name; infinite ones and NaN are left out.
            ask: a request to the person at the command, who answers it with Enter (a line on standard input); empty if
                the command waits for nobody.
        """
        if self._file is None:
            return
        numbers = {name: value for name, value in (figures or {}).items() if math.isfinite(value)}
        line = {"wall_s": time.time(), "stage": stage, "share": share, "remark": remark, "figures": numbers, "ask": ask}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file. Safe to call more than once."""
        if self._file is not None:
            self._file.close()
