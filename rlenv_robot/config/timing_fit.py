"""How late a simulation must be to be as late as the robot of a record was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hal import SourceError

if TYPE_CHECKING:
    from sim.latency.delay_model import DelayModel

__all__ = ["fit_timing", "timing_of"]


def fit_timing(run: str | Path) -> DelayModel:
    """The timing that the bridge measured while a run was recorded over it.

    Every episode's record tells how long commands and readings were on their way (``controller.delays``, from the
    time stamps of both ends on one timeline) and how many commands came too late to be carried out.

    Args:
        run: a recorded run's folder.

    Raises:
        SourceError: nothing of it was recorded over the bridge.
        LogError: it is no log.
    """
    from recorder.read.reader import LogReader

    episodes = LogReader(run).episodes()
    ends = [(each.begin.get("controller", {}), (each.end or {}).get("controller", {})) for each in episodes]
    found = [(before, after) for before, after in ends if after.get("delays")]
    if not found:
        raise SourceError(
            f"{run}: no episode tells how late its commands and readings were; record a whole one with a robot at an "
            "address (robot='tcp://...')"
        )
    late = sum(max(0, _refused(after) - _refused(before)) for before, after in found)
    return timing_of((after["delays"] for _, after in found), late)


def _refused(controller: Mapping[str, Any]) -> int:
    return int(controller.get("server", {}).get("late_commands", 0))


def timing_of(delays: Iterable[Mapping[str, Any]], refused: int = 0) -> DelayModel:
    """From what `real.client.connection.Delays` tells, of one or more connections.

    The smallest delay becomes the fixed part, what comes on top of it the jitter of every single command or reading.
    The agent's own time to think is not in it; a simulated agent has none, so who wants it adds it to
    ``command_delay``.

    Args:
        delays: each with ``steps``, ``command_s`` and ``reading_s`` (quantiles in equal shares, seconds).
        refused: how many commands came too late besides, and were not carried out.

    Raises:
        SpecError: delays that are too long for a simulation.
    """
    from sim.latency.delay_model import DelayModel
    from sim.randomize.distribution import Measured

    told = list(delays)
    weights = [int(each["steps"]) for each in told]
    made: dict[str, Any] = {}
    for kind in ("command", "reading"):
        samples = np.concatenate(
            [_samples(each[f"{kind}_s"], weight) for each, weight in zip(told, weights, strict=True)]
        )
        samples = np.maximum(samples, 0.0)  # as far as the clocks' offset is known
        least = float(samples.min())
        made[f"{kind}_delay"], made[f"{kind}_jitter"] = least, Measured.of(samples - least)
    made["command_loss"] = refused / (sum(weights) + refused)
    return DelayModel(**made)


def _samples(quantiles: list[float], count: int) -> np.ndarray:
    """As many numbers as there were, spread as their quantiles say."""
    samples: np.ndarray = np.interp(np.linspace(0, 1, max(count, 2)), np.linspace(0, 1, len(quantiles)), quantiles)
    return samples
