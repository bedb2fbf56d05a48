"""Make rows of T observations with the action that was chosen at each, as several projects store episodes.

Row n holds the action that led to frame n and the observation there. The observation after the last action was not
recorded: that action is left out of the rows, or becomes a row that repeats the last observation (``keep_last``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hal import SourceError
from recorder.formats.runs import EpisodeSpool, left_out, rows_of
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict, JsonObject
from recorder.table.table import ImageOpener, Table

__all__ = ["PairedSteps"]


class PairedSteps:
    """Collect episodes into a table.

    Args:
        origin: the data set.
        layout: the layout of the rows.
        keep_last: whether an episode's last action becomes a row.
    """

    def __init__(self, origin: Path, layout: FrameLayout, keep_last: bool) -> None:
        self.origin, self.layout = origin, layout
        self._keep_last = keep_last
        self._spool, self._infos = EpisodeSpool(layout), list[JsonDict]()
        self._damaged: list[str] = []

    def add(
        self,
        number: int,
        observation: Mapping[str, np.ndarray],
        action: Mapping[str, np.ndarray],
        reward: np.ndarray,
        ends: tuple[bool, bool],
        stamp_ns: np.ndarray,
        info: JsonObject,
    ) -> None:
        """Add an episode.

        Args:
            number: its number.
            observation: name -> (T, ...).
            action: name -> (T, ...), or (T - 1, ...) if each is known to have led to the next observation.
            reward: as many as actions; NaN where unknown.
            ends: whether the task ended the episode, and whether anything else did; neither where that is unknown.
            stamp_ns: (T,), the robot's clock.
            info: what else is known of the episode.

        Raises:
            SourceError: there is no step.
        """
        length, whole = len(stamp_ns), len(reward)
        repeated, count = self._keep_last and whole == length, length - 1
        if repeated:
            period = int(np.median(np.diff(stamp_ns))) if length > 1 else 10**9
            observation = {name: np.concatenate([value, value[-1:]]) for name, value in observation.items()}
            stamp_ns, count = np.append(stamp_ns, stamp_ns[-1] + period), length
        if count < 1:
            raise SourceError(f"episode {number} has a single observation, a step needs two")
        taken = {name: value[:count] for name, value in action.items()}
        flags = (ends[0], not ends[0])
        self._spool.add(rows_of(self.layout, number, observation, taken, reward[:count], flags, stamp_ns))
        end = "done" if ends[0] else "truncated" if ends[1] else "end of recording"
        about: JsonDict = {"episode": number, "end": end, **info}
        if repeated:
            about["last_observation"] = "repeated"
        elif count < whole:
            about["last_action"] = {name: value[-1].tolist() for name, value in action.items()}
            if np.isfinite(reward[-1]):
                about["last_reward"] = float(reward[-1])
        self._infos.append(about)

    def damaged(self, error: SourceError) -> None:
        """Leave out an episode that can't be read."""
        self._damaged.append(str(error))

    def table(self, notes: Sequence[str], unknown: str, open_images: ImageOpener) -> Table:
        """Return the table of all episodes.

        Args:
            notes: a sentence about each thing that a user must know.
            unknown: why a last action has no row, for a note.
            open_images: opens the data set's images.

        Raises:
            SourceError: no episode could be read.
        """
        damaged = self._damaged if self._infos or self._damaged else notes
        lost = left_out(self.origin, damaged, len(self._infos))
        left, repeated = (sum(key in info for info in self._infos) for key in ("last_action", "last_observation"))
        if left:
            lost.append(
                f"in {left} of {len(self._infos)} episodes {unknown}; that action is in the episode's info, not in "
                "the rows (keep_last=True makes it a row)"
            )
        if repeated:
            lost.append(
                f"in {repeated} of {len(self._infos)} episodes {unknown}: the last row repeats the observation before "
                "it, for imitation only"
            )
        return self._spool.table(self._infos, str(self.origin), [*lost, *notes], open_images)
