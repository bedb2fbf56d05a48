"""Name the rows that a policy was trained on, and the policy that recorded an episode, by digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hal import RobotError
from hal.field import JsonDict
from recorder.json_data import JsonObject
from recorder.table.digest import DIGEST_CHARACTERS, episode_digests, rows_digest
from rlenv_robot.source import SourceData

__all__ = ["LINEAGE", "POLICY_DIGEST", "Lineage", "SeenEpisodes", "lineage_of", "policy_digest"]

LINEAGE = "lineage"
"""The key of a lineage in the ``about`` of a policy's file."""

POLICY_DIGEST = "policy_digest"
"""The key of the recording policy's digest in an episode's info."""

_MOST_NAMED = 20_000
"""Most episodes whose digests a policy's file lists: about 1 MB."""


@dataclass(frozen=True, slots=True)
class SeenEpisodes:
    """Episodes of one run or data set that a training saw.

    Attributes:
        place: the path of the run or data set, as the training opened it.
        episodes: their numbers there.
        digests: the digests of their rows (`recorder.table.digest.episode_digest`), in the same order.
    """

    place: str
    episodes: tuple[int, ...]
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The data that a policy was trained on.

    Attributes:
        rows: the digest of all episodes that the training saw (`recorder.table.digest.rows_digest`).
        count: the number of these episodes.
        seen: the episodes, by run or data set; empty for more than 20,000 episodes, which ``rows`` alone names.
        parent: the digest of the policy that the training began with; None if it began with none.
    """

    rows: str
    count: int
    seen: tuple[SeenEpisodes, ...] = ()
    parent: str | None = None

    @staticmethod
    def of(data: SourceData, episodes: Sequence[int] | None = None, parent: str | Path | None = None) -> Lineage:
        """Return the lineage of a policy that was trained on recorded data.

        Args:
            data: the data, opened in training mode.
            episodes: indices of the episodes that the training saw; None is all.
            parent: the file of the policy that the training began with.

        Raises:
            SourceError: the data are open for inference.
            RobotError: the parent can't be read.
        """
        table = data.recorded
        numbers = range(len(table.starts)) if episodes is None else episodes
        digests = episode_digests(table, numbers)
        places: dict[str, tuple[list[int], list[str]]] = {}
        for number, digest in zip(numbers, digests, strict=True):
            own, seen = places.setdefault(table.place(number), ([], []))
            own.append(table.episode_id(number).episode)
            seen.append(digest)
        named = places.items() if len(digests) <= _MOST_NAMED else ()
        return Lineage(
            rows_digest(digests),
            len(digests),
            tuple(SeenEpisodes(place, tuple(own), tuple(seen)) for place, (own, seen) in named),
            None if parent is None else policy_digest(parent),
        )

    def to_dict(self) -> JsonDict:
        """Return JSON data, for the ``about`` of a policy's file under the key `LINEAGE`."""
        seen = {one.place: {"episodes": list(one.episodes), "digests": list(one.digests)} for one in self.seen}
        parent = {} if self.parent is None else {"parent": self.parent}
        return {"rows": self.rows, "count": self.count, "seen": seen, **parent}

    @staticmethod
    def from_dict(plain: JsonObject) -> Lineage:
        """Return the lineage of `to_dict`.

        Raises:
            ValueError: an entry is missing or has another form.
        """
        try:
            seen = tuple(
                SeenEpisodes(str(place), tuple(map(int, part["episodes"])), tuple(map(str, part["digests"])))
                for place, part in plain["seen"].items()
            )
            parent = plain.get("parent")
            return Lineage(str(plain["rows"]), int(plain["count"]), seen, None if parent is None else str(parent))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"lineage: {error!r}, expected rows, count and seen") from error


def lineage_of(policy: object) -> Lineage | None:
    """Return the lineage in the file of a loaded policy; None if the file has none.

    Raises:
        RobotError: the lineage is damaged.
    """
    about = getattr(policy, "about", {})
    plain = about.get(LINEAGE) if isinstance(about, Mapping) else None
    if plain is None:
        return None
    try:
        return Lineage.from_dict(plain)
    except ValueError as error:
        raise RobotError(f"the policy's file is damaged: {error}") from error


def policy_digest(path: str | Path) -> str:
    """Return the digest of a policy's file, or of the names and contents of all files of a policy's folder.

    Raises:
        RobotError: a file can't be read.
    """
    where = Path(path)
    files = sorted(file for file in where.rglob("*") if file.is_file()) if where.is_dir() else [where]
    digest = hashlib.sha256()
    try:
        for file in files:
            if where.is_dir():
                digest.update(file.relative_to(where).as_posix().encode() + b"\0")
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    except OSError as error:
        raise RobotError(f"{path}: the policy's file can't be read: {error}") from error
    return digest.hexdigest()[:DIGEST_CHARACTERS]
