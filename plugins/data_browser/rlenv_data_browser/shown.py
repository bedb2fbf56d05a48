"""Find what a page shows: whole runs and data sets, and the episodes of saved selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hal import SourceError
from recorder.json_data import JsonDict
from rlenv_episode_index.manifest import is_selection
from rlenv_episode_index.selecting import find_episodes, plain_reading

__all__ = ["Shown", "shown_of"]


@dataclass
class Shown:
    """The sets and episodes that a page shows.

    Attributes:
        paths: runs, data sets, or folders of them.
        reading: the options with which all of them are read.
        only: path of a set -> the numbers of the episodes that are shown of it; other sets are whole.
        cuts: key of an episode -> the frames before which a selection cuts it.
        parents: digests of the selections.
        notes: a sentence about each episode of a selection that is left out.
    """

    paths: list[Path]
    reading: JsonDict
    only: dict[str, set[int]] = field(default_factory=dict)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def shown_of(paths: Sequence[Path], reading: Mapping[str, object], index: Path | None) -> Shown:
    """Return what some paths show, each a run, a data set, a folder of them, or a saved selection.

    The episodes of selections are compared with their digests; those that are missing or changed are left out.

    Args:
        paths: the paths.
        reading: options for reading the data sets; a selection has its own ones.
        index: the file of the index of episodes; None for the one in the user's cache.

    Raises:
        SourceError: a selection can't be read, none of its episodes is there, or it is read by other options.
    """
    selections = [path for path in paths if is_selection(path)]
    shown = Shown([path for path in paths if path not in selections], plain_reading(reading))
    if not selections:
        return shown
    found = find_episodes(selections, leave_out_changed=True, file=index)
    if not found.records:
        raise SourceError(f"{selections[0]}: none of its {found.total} episodes is there as it was selected")
    readings = list(found.readings.values())
    if not shown.paths and not shown.reading:
        shown.reading = readings[0]
    if any(one != shown.reading for one in readings):
        raise SourceError(
            f"{selections[0]} names sets that are read by {readings[0] or 'no options'}, not by the options of the "
            f"others, {shown.reading or 'none'}; open a page for each"
        )
    keys = {record["key"] for record in found.records}
    shown.cuts = {key: frames for key, frames in found.cuts.items() if key in keys}
    shown.parents, shown.notes = found.parents, found.notes
    whole = [path.absolute() for path in shown.paths]
    for record in found.records:
        path = Path(record["path"])
        if not any(path.is_relative_to(one) for one in whole):
            shown.only.setdefault(record["path"], set()).add(record["episode"])
    shown.paths += map(Path, shown.only)
    return shown
