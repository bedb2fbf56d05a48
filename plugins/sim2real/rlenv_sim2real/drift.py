"""Compare an arm with its history: save the gap of each run beside its log, and find changes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hal import SourceError
from hal.atomic_file import atomic_write
from recorder.json_data import JsonDict
from rlenv_sim2real.gap import EpisodeGap

__all__ = ["GAP_FILE", "Drift", "drifts", "earlier_gaps", "save_gaps"]

GAP_FILE = "gap.json"
"""The file beside a run's log that holds the gaps of its episodes."""

_LEAST_RAD = math.radians(1.0)
"""The smallest change of an offset that counts."""

_SPREADS = 6.0
"""The smallest change that counts, as a multiple of the spread of the history."""

_SHORTEST_S = 5.0
"""Shorter episodes say too little of an offset, in seconds."""

_FEW, _FEW_RAD = 3, math.radians(2.5)
"""Below this number of earlier episodes their spread is unknown, and a change must exceed this angle, rad."""

_MOST_RUNS = 50
"""The most earlier runs that are read: the newest ones."""


@dataclass(frozen=True)
class Drift:
    """A joint with another offset from the simulation than in earlier runs.

    Attributes:
        joint: its name.
        offset: mean of measurement minus simulation in the new episode, rad.
        usual: median of the earlier episodes' offsets, rad.
        allowed: the largest change that counts as normal, rad.
        episodes: number of earlier episodes.
    """

    joint: str
    offset: float
    usual: float
    allowed: float
    episodes: int

    def line(self) -> str:
        """Return the alarm as one line that says what to do next."""
        change, allowed = math.degrees(self.offset - self.usual), math.degrees(self.allowed)
        return (
            f"drift: {self.joint} stands {change:+.1f} deg beside its own history of {self.episodes} episodes (allowed "
            f"{allowed:.1f}); look for a slipped horn, a load, or another calibration: "
            "rlenv-robot robot calibrate --verify"
        )

    def to_dict(self) -> JsonDict:
        """Return JSON data, angles in rad."""
        return {
            "joint": self.joint, "offset_rad": self.offset, "usual_rad": self.usual, "allowed_rad": self.allowed,
            "episodes": self.episodes,
        }  # fmt: skip


def drifts(gap: EpisodeGap, history: Sequence[JsonDict]) -> list[Drift]:
    """Return the joints with another offset than in earlier episodes.

    A change must be larger than 1 degree and than 6 times the spread of the history (1.4826 times the median absolute
    deviation, an estimate of the standard deviation that is robust to outliers); with fewer than 3 earlier episodes,
    larger than 2.5 degrees. Episodes under 5 s do not count.

    Args:
        gap: the gap of the new episode.
        history: gaps of earlier episodes, as `EpisodeGap.to_dict` gives them; those against another simulation are
            ignored.

    Returns:
        The joints in the robot's order; none without a history.
    """
    usable = [
        {joint["joint"]: float(joint["offset_rad"]) for joint in earlier["joints"]}
        for earlier in history
        if earlier["model"] == gap.model and earlier["seconds"] >= _SHORTEST_S
    ]
    found = []
    for joint in gap.joints:
        offsets = np.array([earlier[joint.name] for earlier in usable if joint.name in earlier])
        if not len(offsets) or gap.seconds < _SHORTEST_S:
            continue
        usual = float(np.median(offsets))
        spread = 1.4826 * float(np.median(np.abs(offsets - usual)))
        allowed = max(_LEAST_RAD, _SPREADS * spread) if len(offsets) >= _FEW else _FEW_RAD
        if abs(joint.lag.offset - usual) > allowed:
            found.append(Drift(joint.name, joint.lag.offset, usual, allowed, len(offsets)))
    return found


def save_gaps(run: Path, gaps: Sequence[EpisodeGap]) -> Path:
    """Save the gaps of a run's episodes beside its log; return the file.

    Raises:
        OSError: the folder can't be written.
    """
    file = run / GAP_FILE
    text = json.dumps({"episodes": [gap.to_dict() for gap in gaps]}, indent=1) + "\n"
    with atomic_write(file) as part:
        part.write_text(text, encoding="utf-8")
    return file


def earlier_gaps(folder: Path, run: Path) -> list[JsonDict]:
    """Return the gaps of the other runs in a folder, of at most the newest 50 that have any.

    Args:
        folder: the folder of the runs.
        run: the run to leave out.

    Raises:
        SourceError: a file with gaps is damaged.
    """
    files = sorted(file for file in folder.glob(f"*/{GAP_FILE}") if file.parent.resolve() != run.resolve())
    episodes: list[JsonDict] = []
    for file in files[-_MOST_RUNS:]:
        try:
            episodes += _checked(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise SourceError(
                f"{file} is not a file of gaps: {error!r:.200}; delete it, `sim2real gap` writes it again"
            ) from error
    return episodes


def _checked(data: Any) -> list[JsonDict]:
    episodes = data["episodes"]
    for episode in episodes:
        float(episode["seconds"]), str(episode["model"])
        for joint in episode["joints"]:
            float(joint["offset_rad"]), str(joint["joint"])
    return list(episodes)
