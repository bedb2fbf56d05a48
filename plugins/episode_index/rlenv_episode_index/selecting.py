"""Make saved selections: from sets and other selections, by conditions, without some, or in two parts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from hal import SourceError
from recorder.json_data import JsonDict, JsonObject
from recorder.set_files import set_identity
from recorder.table.digest import episode_digests
from rlenv_episode_index.index import ROWS, EpisodeIndex, Report
from rlenv_episode_index.manifest import SelectedSet, Selection, is_selection, merged, read_selection
from rlenv_episode_index.selection import load_selection, place_of
from rlenv_robot.source import SourceData

__all__ = ["Found", "find_episodes", "plain_reading", "select", "split", "without"]

_TOP = "top_fraction"


@dataclass
class Found:
    """Episodes that fit, and what they were found in.

    Attributes:
        records: the record of each (`rlenv_episode_index.index.EpisodeIndex.columns`).
        readings: path of a set -> the options with which it is read.
        parents: digests of the selections among the paths.
        cuts: key of an episode -> the frames before which a selection cuts it.
        notes: a sentence about each set or episode that is left out.
        total: the number of episodes among which they were found.
    """

    records: list[JsonDict] = field(default_factory=list)
    readings: dict[str, JsonDict] = field(default_factory=dict)
    parents: tuple[str, ...] = ()
    cuts: dict[str, list[int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    total: int = 0


def find_episodes(
    paths: Iterable[str | Path],
    where: str | None = None,
    *,
    reading: JsonObject | None = None,
    top_fraction: float | None = None,
    digests: bool = True,
    leave_out_changed: bool = False,
    moved: Sequence[Path] = (),
    order: str | None = None,
    file: Path | None = None,
    report: Report | None = None,
) -> Found:
    """Return the episodes of some sets and selections that fit a condition.

    Args:
        paths: runs, data sets, folders of them, and saved selections.
        where: a condition on the columns of episodes; None for all.
        reading: options of reading the sets that are no selections.
        top_fraction: the share with the highest returns among those that fit, at least one; None for all.
        digests: whether every record needs its digest; those of selections are compared where they are known.
        leave_out_changed: whether to leave out, with a note, the episodes of a selection that are missing or changed.
        moved: folders in which to look for sets of selections that are not where they were.
        order: columns by which the records are ordered, as in `EpisodeIndex.find`.
        file: the index's file; None for the one in the user's cache.
        report: takes the number of episodes that were read, and their total, where rows must be read.

    Raises:
        SourceError: nothing is at a path, the condition is wrong, or an episode of a selection is missing or changed.
    """
    found, plain, chosen = Found(), [], []
    for path in map(Path, paths):
        if is_selection(path):
            selection = read_selection(path)
            found.parents += (selection.digest,)
            folders = (path.absolute().parent, *moved)
            chosen += [replace(one, path=place_of(one, folders, deep=bool(moved))) for one in selection.sets]
        else:
            plain.append(path)
    if plain:
        with EpisodeIndex.open(plain, file, reading=reading) as index:
            _take(found, index, None, (where, order), digests, report)
        found.readings = {record["path"]: plain_reading(reading or {}) for record in found.records}
    groups: dict[str, list[SelectedSet]] = defaultdict(list)
    for one in chosen:
        groups[json.dumps(one.reading, sort_keys=True)].append(one)
    for some in groups.values():
        with EpisodeIndex.open([one.path for one in some], file, reading=some[0].reading) as index:
            _take(found, index, some, (where, order), digests, report)
        if any(found.readings.get(str(one.path), one.reading) != one.reading for one in some):
            raise SourceError(f"{some[0].path} is read with other options in two of the selections; make them anew")
        found.readings |= {str(one.path): dict(one.reading) for one in some}
        found.cuts |= {f"{one.path}#{number}": list(frames) for one in merged(some) for number, frames in one.cuts}
    _refuse_changed(found, leave_out_changed)
    found.records = list({record["key"]: record for record in found.records}.values())
    if top_fraction is not None:
        found.records = _best(found.records, top_fraction)
    return found


def _take(
    found: Found,
    index: EpisodeIndex,
    chosen: Sequence[SelectedSet] | None,
    asked: tuple[str | None, str | None],
    digests: bool,
    report: Report | None,
) -> None:
    """Add the episodes of an index that fit, or those of them that are chosen."""
    index.prepare(*asked, report=report)
    records = index.find(*asked)
    wanted: dict[tuple[str, int], set[str]] = defaultdict(set)
    for one in chosen or ():
        for number, digest in one.episodes:
            wanted[str(one.path), number].add(digest)
    if chosen is None:
        found.total += index.count()
    else:
        found.total += sum(len(one.episodes) for one in chosen)
        records = [record for record in records if (record["path"], record["episode"]) in wanted]
    if digests and (missing := [record["key"] for record in records if record["digest"] is None]):
        index.compute(ROWS, missing, report)
        keys = {record["key"] for record in records}
        records = [record for record in index.find(*asked) if record["key"] in keys]
    found.notes += [f"{one.path}: {one.problem}" for one in index.sets() if one.problem]
    if chosen is not None and digests:
        records = _proved(found, records, wanted, asked[0] is None)
    if lost := [record["key"] for record in records if digests and record["digest"] is None]:
        found.notes.append(f"{len(lost)} episodes can't be read and are left out, such as {lost[0]}")
        records = [record for record in records if record["digest"] is not None]
    found.records += records


def _proved(
    found: Found, records: list[JsonDict], wanted: Mapping[tuple[str, int], set[str]], whole: bool
) -> list[JsonDict]:
    """Return the records whose digest is that of the selection, and note the others."""
    kept = [record for record in records if record["digest"] in wanted[record["path"], record["episode"]]]
    fine = {(record["path"], record["episode"]) for record in kept}
    judged = list(wanted) if whole else [(record["path"], record["episode"]) for record in records]
    found.notes += [f"{path} episode {number}{_CHANGED}" for path, number in judged if (path, number) not in fine]
    return kept


_CHANGED = " is missing or not as it was selected"


def _refuse_changed(found: Found, leave_out: bool) -> None:
    changed = [note for note in found.notes if note.endswith(_CHANGED)]
    if changed and not leave_out:
        more = f", and {len(changed) - 1} more" if len(changed) > 1 else ""
        raise SourceError(f"{changed[0]}{more}; go on without them by --leave-out-changed (leave_out_changed=True)")


def plain_reading(reading: JsonObject) -> JsonDict:
    """Return the options of reading as they can be saved: those that were given, and paths as absolute ones."""
    options = {name: value for name, value in reading.items() if value is not None}
    if "calibration" in options:
        options["calibration"] = str(Path(options["calibration"]).absolute())
    return options


def _best(records: list[JsonDict], share: float) -> list[JsonDict]:
    if not 0 < share <= 1:
        raise SourceError(f"{_TOP} is {share:g}, allowed is a number above 0, at most 1")
    if any(record["return"] is None for record in records):
        raise SourceError(f"{_TOP}: the return of some episodes is not known; add the condition: return is not null")
    best = sorted(records, key=lambda record: -record["return"])[: max(1, round(share * len(records)))]
    keys = {record["key"] for record in best}
    return [record for record in records if record["key"] in keys]


def select(found: Found, where: str = "", by: str = "", unique: bool = False) -> Selection:
    """Return the selection of found episodes.

    Args:
        found: the episodes, with digests.
        where: the condition to note.
        by: the person who makes it.
        unique: whether to take one of several episodes with the same digest.

    Raises:
        SourceError: nothing was found, or a set can't be read.
    """
    if not found.records:
        raise SourceError(f"none of {found.total} episodes fits; nothing was selected")
    numbers: dict[str, set[tuple[int, str]]] = defaultdict(set)
    formats: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for record in found.records:
        seen[record["digest"]] += 1
        if not unique or seen[record["digest"]] == 1:
            numbers[record["path"]].add((record["episode"], record["digest"]))
            formats[record["path"]] = record["format"]
    if copies := sum(seen.values()) - len(seen):
        found.notes.append(
            f"{copies} episodes are copies of others" + (", and left out" if unique else "; --unique leaves them out")
        )
    sets = [
        SelectedSet(Path(path), _identity(path), formats[path], found.readings.get(path, {}), tuple(sorted(some)))
        for path, some in sorted(numbers.items())
    ]
    return Selection(merged(sets), where, by, _now(), found.parents)


def _identity(path: str) -> str:
    try:
        return set_identity(Path(path))
    except OSError as error:
        raise SourceError(f"{path} can't be read: {error}") from error


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def without(selection: Selection, others: Iterable[Selection]) -> Selection:
    """Return a selection without the episodes of other ones, and without copies of these, since digests count."""
    taken = {digest for other in others for _, _, digest in other}
    sets = (
        replace(one, episodes=tuple(episode for episode in one.episodes if episode[1] not in taken))
        for one in selection.sets
    )
    return replace(selection, sets=tuple(one for one in sets if one.episodes))


def split(path: Path, held_out: float, seed: int) -> tuple[Selection, Selection]:
    """Return two parts of a saved selection, to train and to test, by `rlenv_robot.source.SourceData.split`.

    Args:
        path: the selection's file.
        held_out: the share of test episodes.
        seed: the same seed gives the same parts.

    Raises:
        SourceError: the selection can't be opened or split.
    """
    selection, table = read_selection(path), load_selection(path, in_parts=False)
    rows = [
        (int(info.get("episode", position)), digest)
        for position, (info, digest) in enumerate(zip(table.episodes, episode_digests(table), strict=True))
    ]
    owners = [one for one in selection.sets for _ in one.episodes]  # the table has the order of the sets
    words, parts = f"{held_out:g} held out, seed {seed}", []
    for positions in SourceData(table).split(held_out, seed):
        sets = [replace(owners[position], episodes=(rows[position],)) for position in positions]
        parts.append(replace(selection, sets=merged(sets), where=words, made=_now(), parents=(selection.digest,)))
    return parts[0], parts[1]
