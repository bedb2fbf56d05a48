"""The runs in a folder, as people name them."""

from __future__ import annotations

from pathlib import Path

from hal import SourceError
from recorder.disk import LOG_NAME
from recorder.formats.catalogue import recognised

__all__ = ["instead", "one_run", "runs_in"]


def runs_in(path: Path) -> list[Path]:
    """Folders of runs: the path itself, or those below it, in order of their names.

    Raises:
        SourceError: there is no such folder.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist; wanted is a run, or a folder of runs")
    if path.is_file():
        if path.name != LOG_NAME:
            raise SourceError(f"{path} is a file; wanted is a run, that is a folder with a {LOG_NAME} in it")
        return [path.parent]
    return sorted(log.parent for log in path.rglob(LOG_NAME))


def one_run(path: Path) -> Path:
    """The only run there: itself, or a folder's single one.

    Raises:
        SourceError: there is none, or more than one.
    """
    runs = runs_in(path)
    if not runs:
        raise SourceError(f"{path} holds no run, that is a folder with a {LOG_NAME} in it{instead(path)}")
    if len(runs) > 1:
        raise SourceError(f"{path} holds {len(runs)} runs, name one: {', '.join(run.name for run in runs[:8])}"
                          + (", ..." if len(runs) > 8 else ""))  # fmt: skip
    return runs[0]


def instead(path: Path) -> str:
    """What to do with another project's data set where a run of ours is wanted; empty if it is none."""
    found = recognised(path)
    return "" if found is None else f"; it is a data set of {found}: ls, show, check, plot, export and replay read it"
