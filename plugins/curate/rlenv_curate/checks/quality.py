"""Check a whole data set, and give each of its episodes a score."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from recorder.json_data import JsonDict
from recorder.table.table import Table
from rlenv_curate.checks.alignment import check_alignment
from rlenv_curate.checks.copies import check_copies
from rlenv_curate.checks.following import check_following
from rlenv_curate.checks.image_pass import Report, check_images, read_cameras
from rlenv_curate.checks.lost_rows import check_lost_rows
from rlenv_curate.checks.motion import check_motion
from rlenv_curate.checks.table import ADVICE, DataSet, Finding, check_table
from rlenv_curate.checks.videos import check_videos
from rlenv_robot.data.episode_columns import EpisodeColumns

__all__ = ["QUALITY", "WEIGHTS", "check_data", "scores"]

WEIGHTS: Mapping[str, float] = {
    **dict.fromkeys(ADVICE, 0.5),
    **dict.fromkeys(
        (
            "blank",
            "frozen",
            "swapped",
            "not_finite",
            "lost",
            "camera",
            "clock",
            "copy",
            "reversed",
            "shifted",
            "turned",
        ),
        1.0,
    ),
    **dict.fromkeys(("lag", "moved", "colour", "gap", "dropped", "blurred", "exposure", "skipped"), 0.8),
    **dict.fromkeys(("clipped", "limited", "idle", "padded", "no_end", "range"), 0.3),
}
"""Kind of finding -> how much of an episode's score it takes if it lasts through the episode."""
_LEAST_SHARE = 0.1
"""Share of an episode that a finding counts at least."""


def check_data(table: Table, cameras: Sequence[str] | None = None, report: Report | None = None) -> list[Finding]:
    """Check the rows, the videos, the motion and the images of a table.

    The images and streams of this project's logs have further checks, `rlenv_curate.checks.logs`.

    Args:
        table: any table.
        cameras: the cameras whose images are looked at; None for all. Without any, videos are opened, and their first
            and last frames are decoded.
        report: called with the number of strips of images that are read, and of all.

    Raises:
        SourceError: the data have no such camera.
        LogError: OpenCV is missing, with which images are looked at.
    """
    data_set = DataSet(table)
    films, undecodable = read_cameras(data_set, cameras, report)
    return [
        *check_table(table, data_set),
        *check_videos(table, decode=cameras is not None and not cameras),
        *undecodable,
        *check_motion(data_set),
        *check_following(data_set),
        *check_alignment(data_set),
        *check_lost_rows(data_set),
        *check_copies(data_set, films),
        *check_images(data_set, films),
    ]


def scores(table: Table, findings: Iterable[Finding]) -> list[float]:
    """Return a score for each episode, 1 for one without findings, 0 for a useless one.

    The score is the product, over the kinds of an episode's findings, of 1 - weight * share: `WEIGHTS` has the weight
    of a kind, and the share is that of the episode's rows with a finding of it, at least a tenth, and all if the
    finding names no rows. Findings of the whole data set do not count.
    """
    lengths = table.stops - table.starts
    touched: dict[tuple[int, str], np.ndarray] = {}
    for finding in findings:
        if finding.episode >= 0:
            flags = touched.setdefault((finding.episode, finding.kind), np.zeros(int(lengths[finding.episode]), bool))
            flags[max(finding.first, 0) : finding.last + 1 if finding.first >= 0 else None] = True
    score = np.ones(len(lengths))
    for (episode, kind), flags in touched.items():
        share = max(float(flags.mean()) if len(flags) else 1.0, _LEAST_SHARE)
        score[episode] *= 1 - WEIGHTS[kind] * share
    return [round(value, 4) for value in score.tolist()]


def _columns(table: Table) -> JsonDict:
    findings = check_data(table)
    kinds: Sequence[set[str]] = [set() for _ in table.episodes]
    for finding in findings:
        if finding.episode >= 0:
            kinds[finding.episode].add(finding.kind)
    return {"score": scores(table, findings), "findings": [" ".join(sorted(one)) for one in kinds]}


QUALITY = EpisodeColumns({"score": "REAL", "findings": "TEXT"}, _columns)
"""The columns that a selection of episodes can be made by (`rlenv_robot.episode_columns`)."""
