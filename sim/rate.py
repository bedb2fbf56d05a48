"""The same simulated robot at another control rate."""

from __future__ import annotations

from dataclasses import replace

from hal.errors import SpecError
from sim.model import SimModel

__all__ = ["at_rate"]


def at_rate(sim_model: SimModel, rate_hz: float) -> SimModel:
    """A model that is commanded and read so many times a second; its physics steps stay what they are.

    Raises:
        SpecError: the rate is not one step of the physics in so many; the message names those that are.
    """
    finest = 1.0 / sim_model.model.opt.timestep
    substeps = round(finest / rate_hz) if rate_hz > 0 else 0
    if substeps < 1 or abs(substeps * rate_hz - finest) > 1e-6 * finest:
        near = ", ".join(f"{finest / each:g}" for each in range(1, 9))
        raise SpecError(
            f"{sim_model.spec.name!r} can't be run at {rate_hz:g} Hz: its physics has {finest:g} steps a second, so "
            f"allowed are {near}, ..."
        )
    return replace(sim_model, spec=replace(sim_model.spec, rate_hz=finest / substeps), substeps=substeps)
