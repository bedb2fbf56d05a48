"""Find the format of recorded data by name or by path. The registry is open: users can add their own formats.

A format comes from one of two places, tried in this order when a path is recognised:

1. `register_format`, an explicit call.
2. Entry points of installed packages, in the group ``rlenv_robot.formats``: name -> a `Format`, or a function without
   arguments that returns one. Our own formats are those of the plug-in ``rlenv_formats``.

A format's module is imported on first use. An entry point that can't be loaded is logged once and does not affect
other formats; using it by name raises the error. Names of formats may come from data, such as a saved selection: no
name is a module to import. `rlenv_robot.data.folder.use_format` registers a format that a user names by its module.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from hal import RobotError, SourceError
from hal.errors import missing_plugin
from recorder.formats.checked_table import checked_table
from recorder.formats.runs import without_texts
from recorder.json_data import JsonObject
from recorder.log.labels import label_files, label_notes, labelled
from recorder.table.combine import subset
from recorder.table.table import ImageOpener, Table

__all__ = [
    "GROUP", "Format", "advice_on", "format_names", "format_of", "layouts", "read_any", "recognised", "register_format",
    "sets_in", "unregister_format", "writable_format", "writable_names",
]  # fmt: skip

GROUP = "rlenv_robot.formats"
"""The entry-point group of formats."""

_LOG = logging.getLogger("rlenv_robot.recorder")


@dataclass(frozen=True)
class Format:
    """A format of recorded data: how to recognise, read and write it.

    Attributes:
        name: one word in lower case, for messages and ``data export --to``.
        recognises: called with an existing path; returns whether it seems to be a data set of this format.
        load: called with a path and `options`; reads the data set there, or raises `hal.SourceError`.
        write: writes a table to a new path, or None if the format is only read. Returns a sentence for each loss.
            Raises `hal.SourceError` if the table does not fit, the path exists, or a package is missing (which the
            message names).
        holds_texts: whether ``write`` accepts fields of texts; if not, they are left out before.
        write_options: names of keyword arguments that ``write`` accepts besides the path and the images; with
            ``embedded``, it uses that attribute of `recorder.formats.images.Filming`.
        looks: the files by which a person recognises such a data set, for messages; empty for none.
        advice: called with a path that no format recognises; returns why, and what a user must do to let this format
            read it, as a sentence without its subject, the path; or None.
        holds_images: whether ``write`` takes a `recorder.formats.images.Filming` as a third argument.
        open_images: opens the images of a data set; used for loaded tables without their own opener.
        options: names of keyword arguments that ``load`` accepts besides the path.
        candidates: called with a folder; yields paths in or below it that may be such data sets. None considers only
            the folder itself.
        describe: called with a path and `options`; returns the infos that the episodes of the loaded table would have,
            with their ``length`` in frames of that table, without reading rows. None if that is impossible.
        collects: whether the episodes lie in other runs and data sets, which ``set`` in an episode's info names; that
            of other formats is from a data set that they were merged from, and is left out.
    """

    name: str
    recognises: Callable[[Path], bool]
    load: Callable[..., Table]
    write: Callable[..., list[str]] | None = None
    holds_images: bool = False
    open_images: ImageOpener | None = None
    candidates: Callable[[Path], Iterable[Path]] | None = None
    options: tuple[str, ...] = ()
    holds_texts: bool = False
    write_options: tuple[str, ...] = ()
    looks: str = ""
    advice: Callable[[Path], str | None] | None = None
    describe: Callable[..., Sequence[JsonObject]] | None = None
    collects: bool = False

    def read(self, path: Path, *, labels: bool = True, **options: object) -> Table:
        """Load the data set at a path, with the opener of its images.

        Args:
            path: path of the data set.
            labels: whether the labels that were given afterwards count.
            options: options of the format; those that are None are left out. Every format has the option ``episodes``,
                the numbers of the episodes to read.

        Raises:
            SourceError: the data set can't be read, the format has no such option, or its reader returned something
                else than a whole `Table`.
        """
        chosen = {name: value for name, value in options.items() if value is not None}
        episodes = None if "episodes" in self.options else chosen.pop("episodes", None)
        if unknown := chosen.keys() - set(self.options):
            allowed = f"its options are {', '.join(self.options)}" if self.options else "it has no options"
            raise SourceError(f"{path}: format {self.name!r} has no option {', '.join(sorted(unknown))}; {allowed}")
        table = checked_table(self._load(path, chosen), f"{path}: format {self.name!r}")
        if labels and label_files(path):
            notes = (*label_notes(path), *table.notes)
            table = replace(table, episodes=labelled(path, table.episodes), notes=notes)
        if isinstance(episodes, Sequence):
            table = subset(table, episodes)
        if self.open_images is None or table.open_images is not None:
            return table
        return replace(table, open_images=self.open_images)

    def _load(self, path: Path, options: Mapping[str, object]) -> Table:
        """Load the data set; whatever its reader meets in damaged files is one kind of error, which names the path."""
        try:
            table = self.load(path, **options)
            return table if self.collects else _here(table)
        except SourceError as error:
            if str(path) in str(error):
                raise
            raise SourceError(f"{path}: {error}") from error
        except MemoryError as error:
            raise SourceError(f"{path} does not fit into memory; read some of its episodes: episodes=") from error
        except Exception as error:
            raise SourceError(
                f"{path} can't be read as a data set of {self.name}: {error!r:.300}; fetch it again"
            ) from error


def _here(table: Table) -> Table:
    """Return a table without the places of the data sets that its episodes were merged from: its images are its own."""
    if not isinstance(table, Table) or not any("set" in info for info in table.episodes):
        return table
    infos = tuple({key: value for key, value in info.items() if key != "set"} for info in table.episodes)
    return replace(table, episodes=infos)


_PLUGIN = "rlenv_formats"
_IN_PLUGIN: Mapping[str, tuple[str, str]] = {
    "lerobot": ("meta/info.json", "a data set of LeRobot"),
    "parquet": ("episodes.json", "a data set of Parquet files"),
    "minari": ("data/metadata.json", "a data set of Minari"),
    "zarr": ("meta/episode_ends/.zarray", "a replay buffer in zarr"),
    "rlds": ("features.json", "a data set of RLDS"),
    "aloha": ("episode_0.hdf5", "a data set of ALOHA"),
    "bags": ("metadata.yaml", "a ROS 2 bag"),
    "robomimic": ("*.hdf5", "a data set of robomimic"),
    "mapped": ("*.csv", "a table with columns (CSV, Parquet, HDF5)"),
    "rerun": ("*.rrd", "a recording of Rerun"),
}
"""The formats of our plug-in -> the file by which each is known, and what a message calls it where the plug-in is not
installed."""

_registered: dict[str, Format] = {}


def register_format(new: Format) -> None:
    """Add a format for this process.

    Raises:
        SourceError: a format of an installed package or an earlier registration has the same name.
    """
    if new.name in format_names():
        raise SourceError(f"format {new.name!r} is registered already; choose another name")
    _registered[new.name] = new


def unregister_format(name: str) -> None:
    """Undo `register_format`. An unknown name is allowed."""
    _registered.pop(name, None)


def format_names() -> list[str]:
    """Return the names of all formats, installed plug-ins included, in the order in which a path is tried."""
    return list(dict.fromkeys([*_registered, *_plug_ins()]))


def format_of(name: str) -> Format:
    """Return a format by its name.

    Raises:
        SourceError: the format is unknown, or its module can't be loaded.
    """
    if name in _registered:
        return _registered[name]
    if name in _plug_ins():
        return _plug_in(name)
    if name in _IN_PLUGIN:
        raise SourceError(f"format {name!r} is in {missing_plugin(_PLUGIN)}")
    raise SourceError(
        f"format {name!r} is unknown, known are {', '.join(format_names())}; --format module:name adds one of your own"
    )


def writable_names() -> list[str]:
    """Return the names of the formats that can be written."""
    return [entry.name for entry in _loaded() if entry.write is not None]


def writable_format(name: str) -> tuple[Format, Callable[..., list[str]]]:
    """Return a format that can be written, and its ``write``.

    Raises:
        SourceError: the format is unknown, can't be loaded, or can only be read.
    """
    chosen = format_of(name)
    if chosen.write is None:
        raise SourceError(f"format {name!r} is only read; formats to write are {', '.join(writable_names())}")
    write = chosen.write

    def write_checked(table: Table, *arguments: object, **options: object) -> list[str]:
        numbers, texts = (table, []) if chosen.holds_texts else without_texts(table)
        lost = [f"{name} has no place for texts: {', '.join(texts)}"] if texts else []
        notes: object = write(numbers, *arguments, **options)
        if not isinstance(notes, list | tuple):
            raise SourceError(
                f"format {name!r}: write returned {notes!r:.80}, expected a list of what was lost, a sentence each; "
                "return [] where nothing was"
            )
        return [*lost, *notes]

    return chosen, write_checked


def recognised(path: Path) -> Format | None:
    """Return the format of the data set at a path, or None if no format recognises it.

    Raises:
        RobotError: a format can't decide, usually because a package is missing.
    """
    return next((entry for entry in _loaded() if _recognises(entry, path)), None)


def read_any(path: Path, **options: Any) -> Table | None:
    """Return the table in a folder or file of another format, or None if no format recognises it.

    Args:
        path: path of the data set.
        options: options of its format. With ``columns``, the format ``mapped`` reads files of any layout.

    Raises:
        SourceError: the path does not exist, its format can't read it with these options, or it looks like a format
            of a plug-in that is not installed.
    """
    if not path.exists():
        raise SourceError(f"{path} does not exist")
    if options.get("columns") is not None and not _takes_columns(path):
        return format_of("mapped").read(path, **options)
    entry = recognised(path)
    if entry is not None:
        return entry.read(path, **options)
    for name, (mark, what) in _IN_PLUGIN.items():
        if name not in format_names() and (path.match(mark) if path.is_file() else (path / mark).is_file()):
            raise SourceError(f"{path} looks like {what}, which is read by {missing_plugin(_PLUGIN)}")
    return None


def layouts() -> list[str]:
    """Return a description of the files of each format, for messages."""
    return [entry.looks for entry in _loaded() if entry.looks]


def advice_on(path: Path) -> str | None:
    """Return what a user must add to make an unrecognised path readable; None if no format has advice."""
    entries = sorted(_loaded(), key=lambda entry: entry.name == "mapped")  # files of any layout come last
    advice = (entry.advice(path) for entry in entries if entry.advice is not None)
    return next((text for text in advice if text), None)


def _takes_columns(path: Path) -> bool:
    """Return whether the data set at a path is of a format that has names of its own for columns."""
    entry = recognised(path)
    return entry is not None and "columns" in entry.options


def sets_in(folder: Path) -> list[Path]:
    """Return the data sets of other formats in a folder or below it, sorted, without those nested in another one."""
    marked = {path for entry in _loaded() for path in (entry.candidates or _alone)(folder)}
    sets: list[Path] = []
    for path in sorted(marked):
        if not any(path.is_relative_to(other) for other in sets) and _may_be_set(path):
            sets.append(path)
    return sets


def _alone(folder: Path) -> Iterable[Path]:
    return (folder,)


def _may_be_set(path: Path) -> bool:
    try:
        return recognised(path) is not None
    except RobotError:  # nobody can tell without the missing package
        return True


def _recognises(entry: Format, path: Path) -> bool:
    try:
        return entry.recognises(path)
    except RobotError:
        raise
    except Exception as error:  # damaged files, and another package's code, may raise anything
        _LOG.warning("format %r could not look at %s: %r", entry.name, path, error)
        return False


# ---- loading ----


def _loaded() -> Iterator[Format]:
    """Yield all formats that can be loaded, in the order in which a path is tried."""
    for name in format_names():
        if name in _registered:
            yield format_of(name)
        elif _plug_in_or_none(name) is not None:
            yield _plug_in(name)


@cache
def _plug_ins() -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


@cache
def _plug_in(name: str) -> Format:
    point = _plug_ins()[name]
    package = point.dist.name if point.dist is not None else "an unknown package"
    return replace(_resolve(point.value, f"format plug-in {name!r} of {package}"), name=name)


@cache
def _plug_in_or_none(name: str) -> Format | None:
    try:
        return _plug_in(name)
    except SourceError as error:
        _LOG.warning("%s; the format is left out", error)
        return None


def _resolve(target: str, what: str) -> Format:
    """Import a `Format`, or call the function that returns one.

    Raises:
        SourceError: the module can't be imported, or the attribute is missing or something else.
    """
    module, _, attribute = target.partition(":")
    try:
        value = getattr(import_module(module), attribute)
        value = value if isinstance(value, Format) else value()
    except Exception as error:  # another package's code may raise anything
        raise SourceError(f"{what} ({target}) can't be loaded: {error!r}; repair or uninstall it") from error
    if not isinstance(value, Format):
        raise SourceError(f"{what} ({target}) is a {type(value).__name__}, expected a Format or a function of one")
    return value
