"""Recognise the layout of recorded data, and read them as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from hal import SourceError
from hal.errors import wrong_type
from recorder.formats.registry import (
    Format,
    advice_on,
    format_names,
    format_of,
    layouts,
    read_any,
    recognised,
    register_format,
    sets_in,
)
from recorder.git_lfs import find_git_lfs, is_git_lfs_pointer
from recorder.names import LOG_NAME
from recorder.read.addresses import fetched
from recorder.table.combine import joined, subset
from recorder.table.load import load_runs
from recorder.table.memory import scratch_folder
from recorder.table.table import Table
from rlenv_robot.config.plugins import load_object
from rlenv_robot.robot_models import load_robot_model

__all__ = ["read_folder", "runs_at", "use_format"]

_LISTED = 8


def _known() -> str:
    """Return how recorded data look, for messages."""
    return ", ".join([f"{LOG_NAME} in it or below it (our runs)", *layouts()])


def use_format(own: str | Format) -> Format:
    """Add a format of a user's own for this process, and return it. It is tried before the installed formats.

    Args:
        own: the location ``module:name`` of a `Format`, or of a function that returns one; or the format itself. The
            module is imported: pass what a person wrote, never a name from data.

    Raises:
        SourceError: the module can't be imported, it holds no format of that name, or an installed package has
            another format of its name.
        TypeError: ``own`` is neither a text nor a format.
    """
    if not isinstance(own, str | Format):
        raise wrong_type("format", own, "module:name of a format of your own, or a Format")
    found = _own_format(own) if isinstance(own, str) else own
    if found.name not in format_names() or format_of(found.name) != found:
        register_format(found)
    return found


@cache
def _own_format(location: str) -> Format:
    if ":" not in location:
        known = "is recognised by its files: leave it out" if location in format_names() else "is unknown"
        raise SourceError(f"format {location!r} {known}; write module:name of a format of your own")
    try:
        found = load_object(location, Path.cwd())
        found = found() if callable(found) else found
    except Exception as error:  # whatever a user's function raises
        text = str(error) if isinstance(error, ValueError) else f"{location} can't be called: {error!r:.300}"
        raise SourceError(f"format {text}") from error
    if not isinstance(found, Format):
        raise SourceError(f"format {location!r} is a {type(found).__name__}, expected rr.Format or a function of one")
    return found


def _check_recognised(own: Format, places: Sequence[Path]) -> None:
    """Refuse places where a format of a user's own recognises nothing.

    Raises:
        SourceError: another format, or none, would read them.
    """
    for place in places:
        at = [place, *(sets_in(place) if place.is_dir() else [])] if place.exists() else []
        if not at or any((found := recognised(one)) is not None and (found.collects or found == own) for one in at):
            return
    raise SourceError(
        f"format {own.name!r} recognises no data set at {', '.join(map(str, places[:_LISTED]))}: its function "
        "`recognises` returned False"
    )


def read_folder(
    folder: Path | Sequence[Path],
    cache: Path | None = None,
    episodes: Sequence[int] | None = None,
    *,
    world: str | None = None,
    preferred: str | None = None,
    robot: str | None = None,
    format: str | Format | None = None,
    **options: object,
) -> Table:
    """Recognise the layout of a folder, and read its table.

    Args:
        folder: the folder of the data; robomimic's data, and a log of this project, may be single files. Several
            folders, or a folder of several data sets, are concatenated if they hold the same fields.
        cache: folder for tables that can't lie beside their data or do not fit into memory; None uses the system's
            cache folder.
        episodes: numbers of the episodes to read; None reads all.
        world: selects among this project's runs, see `recorder.table.load.load_runs`.
        preferred: selects among this project's runs, see `recorder.table.load.load_runs`.
        robot: the robot of mapped columns, whose fields define their units, signs and ranges.
        format: a format of the user's own, see `use_format`.
        options: the options of the data's format, such as ``units`` and ``calibration`` of a LeRobot data set; None
            means not given.

    Raises:
        SourceError: the folder is missing, has no known layout, or its format lacks an option.
    """
    if format is not None:
        _check_recognised(use_format(format), [folder] if isinstance(folder, Path) else folder)
    if robot is not None:
        options["robot"] = load_robot_model(robot)
    with scratch_folder(cache):
        if isinstance(folder, Path):
            return _read_one(folder, cache, episodes, options, world, preferred)
        if not folder:
            raise SourceError("no path was given; name at least one folder of recorded data")
        table = _joined([_read_one(one, cache, None, options, world, preferred) for one in folder])
        return table if episodes is None else subset(table, episodes)


def _joined(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    return joined(tables, ", ".join(table.origin for table in tables[:_LISTED]) + (", ..." * (len(tables) > _LISTED)))


def _read_one(
    folder: Path,
    cache: Path | None,
    episodes: Sequence[int] | None,
    options: Mapping[str, object],
    world: str | None,
    preferred: str | None,
) -> Table:
    if not folder.exists():
        if folder.is_symlink() and (advice := advice_on(folder)):
            raise SourceError(f"{folder} {advice}")
        raise SourceError(f"{folder} does not exist; expected a folder of recorded data with {_known()}")
    table = read_any(folder, episodes=episodes, **options)
    if table is not None:
        return table
    if folder.is_file() and folder.name != LOG_NAME:
        if is_git_lfs_pointer(folder):
            raise SourceError(f"{folder} is a Git LFS pointer in place of the file itself; run `git lfs pull` there")
        if advice := advice_on(folder):
            raise SourceError(f"{folder} {advice}")
        raise SourceError(f"{folder} is a file of no known kind; give the folder that it lies in, with {_known()}")
    if folder.is_file() or next(folder.rglob(LOG_NAME), None) is not None:
        if given := sorted(name for name, value in options.items() if value is not None):
            raise SourceError(f"{folder} holds our own runs, whose units are recorded; leave {', '.join(given)} out")
        for file in (folder,) if folder.is_file() else folder.rglob("log*.mcap"):
            fetched(file)
        table = load_runs(folder, cache, world, preferred)
        return table if episodes is None else subset(table, episodes)
    if sets := sets_in(folder):
        table = _read_sets(folder, sets, options)
        return table if episodes is None else subset(table, episodes)
    raise SourceError(_nothing(folder))


def _read_sets(folder: Path, sets: Sequence[Path], options: Mapping[str, object]) -> Table:
    """Return the episodes of all data sets in a folder that can be read; notes name the others."""
    tables, notes = [], []
    for path in sets:
        try:
            table = read_any(path, **options)
        except SourceError as error:
            notes.append(f"{path} is left out: {error}")
            continue
        tables += [table] if table is not None else []
    if not tables:
        raise SourceError(f"no data set in {folder} can be read: {'; '.join(notes[:3])}")
    table = replace(_joined(tables), origin=str(folder)) if len(tables) > 1 else tables[0]
    return replace(table, notes=(*notes, *table.notes))


def _nothing(folder: Path) -> str:
    """Return why a folder holds no data that can be read."""
    if (pointer := find_git_lfs(folder)) is not None:
        return f"{folder} holds no data that can be read: {pointer} is a Git LFS pointer; run `git lfs pull` there"
    if advice := advice_on(folder):
        return f"{folder} {advice}"
    names = sorted(child.name for child in folder.iterdir())
    listed = ", ".join(names[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    return f"{folder} holds no data that can be read; looked for {_known()}; found {listed or 'nothing'}"


def runs_at(folder: Path | None) -> frozenset[Path]:
    """Return the runs directly in a folder; empty if there is no folder."""
    return frozenset() if folder is None else frozenset(log.parent for log in folder.glob(f"*/{LOG_NAME}"))
