"""Show environments, source data and recorded episodes in a notebook; installed packages generate the HTML."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from rlenv_robot.config.plugins import PluginTable

if TYPE_CHECKING:
    from recorder.table.table import Table

__all__ = ["RecordedEpisode", "notebook_html"]


@cache
def _views() -> PluginTable:
    return PluginTable("view in a notebook", "rlenv_robot.notebook_views", {})


def notebook_html(kind: str, *arguments: object) -> str | None:
    """Return an object as HTML of bounded size; None if no package generates it, so that Jupyter shows text.

    Args:
        kind: ``environment``, ``source`` or ``episode``: an entry point of the group ``rlenv_robot.notebook_views``.
        arguments: the environment; the table and its number of transitions; or the `RecordedEpisode`.
    """
    if kind not in _views():
        return None
    make: Any = _views().load(kind)
    return make(*arguments)


class RecordedEpisode:
    """A recorded episode that displays itself in a notebook: its metadata, a video or an image, and its signals.

    Args:
        table: the table with the episode.
        number: its index in the table.

    Attributes:
        table: the table with the episode.
        number: the index of the episode in the table.
        info: the recorded metadata of the episode.
        rows: the frames of the episode.
    """

    def __init__(self, table: Table, number: int) -> None:
        self.table, self.number = table, number
        self.info = table.episodes[number]
        self.rows = table.rows[table.starts[number] : table.stops[number]]

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.rows)

    def __repr__(self) -> str:
        return f"<episode {self.number} of {self.table.origin}: {len(self)} frames>"

    def _repr_html_(self) -> str | None:
        """Return the episode as HTML; Jupyter calls it."""
        return notebook_html("episode", self)
