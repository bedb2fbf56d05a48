"""Fit the timing of a simulation to that of a recorded robot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hal import SourceError
from recorder.json_data import JsonObject

if TYPE_CHECKING:
    from sim.latency.delay_model import DelayModel

__all__ = ["fit_timing", "timing_of"]


def fit_timing(run: str | Path) -> DelayModel:
    """Return the timing that the bridge measured while a run was recorded over it.

    The record of each episode holds how long commands and readings were on their way (``controller.delays``, from the
    time stamps of both ends on one timeline) and how many commands came too late to be carried out.

    Args:
        run: a recorded run's folder.

    Raises:
        SourceError: nothing of it was recorded over the bridge.
        LogError: it is no log.
    """
    from recorder.read.reader import LogReader

    episodes = LogReader(run).episodes()
    reports = [(e.begin.get("controller", {}), (e.end or {}).get("controller", {})) for e in episodes]
    remote = [(before, after) for before, after in reports if after.get("delays")]
    if not remote:
        raise SourceError(
            f"{run}: no episode tells how late its commands and readings were; record a whole one with a robot at an "
            "address (robot='tcp://...')"
        )
    late = sum(max(0, _refused(after) - _refused(before)) for before, after in remote)
    return timing_of((after["delays"] for _, after in remote), late)


def _refused(controller: JsonObject) -> int:
    return int(controller.get("server", {}).get("late_commands", 0))


def timing_of(delays: Iterable[JsonObject], refused: int = 0) -> DelayModel:
    """Return the delay model of one or more connections, from what `real.client.connection.Delays` measured.

    The smallest delay becomes the fixed part, what comes on top of it the jitter of every single command or reading.
    The time that the agent takes to choose an action is not included. A simulated agent takes none; add it to
    ``command_delay`` where it matters.

    Args:
        delays: each with ``steps``, ``command_s`` and ``reading_s`` (quantiles in equal shares, seconds).
        refused: number of further commands that came too late and were not carried out.

    Raises:
        SpecError: delays that are too long for a simulation.
    """
    from sim.latency.delay_model import DelayModel
    from sim.randomize.distribution import Measured

    connections = list(delays)
    weights = [int(connection["steps"]) for connection in connections]
    fixed_s: dict[str, float] = {}
    jitter: dict[str, Measured] = {}
    for kind in ("command", "reading"):
        samples = np.concatenate(
            [_samples(delay[f"{kind}_s"], weight) for delay, weight in zip(connections, weights, strict=True)]
        )
        samples = np.maximum(samples, 0.0)  # as far as the clocks' offset is known
        fixed_s[kind] = float(samples.min())
        jitter[kind] = Measured.of(samples - fixed_s[kind])
    return DelayModel(
        command_delay=fixed_s["command"],
        command_jitter=jitter["command"],
        reading_delay=fixed_s["reading"],
        reading_jitter=jitter["reading"],
        command_loss=refused / (sum(weights) + refused),
    )


def _samples(quantiles: list[float], count: int) -> np.ndarray:
    """Return ``count`` samples with these quantiles."""
    samples: np.ndarray = np.interp(np.linspace(0, 1, max(count, 2)), np.linspace(0, 1, len(quantiles)), quantiles)
    return samples
