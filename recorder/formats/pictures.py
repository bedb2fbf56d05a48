"""Which pictures lie beside a table, in the logs that it was made from."""

from __future__ import annotations

from pathlib import Path

from recorder.disk import LOG_NAME
from recorder.reader import LogReader
from recorder.table import Table

__all__ = ["cameras_of"]


def cameras_of(table: Table) -> list[str]:
    """Names of the cameras in the table's logs; none where they are not there (any more)."""
    runs = sorted({str(info.get("run", table.origin)) for info in table.episodes})
    logs = [Path(run) for run in runs if (Path(run) / LOG_NAME).is_file()]
    return sorted({camera for log in logs for camera in LogReader(log).cameras()})
