"""Timing and randomisation of a simulation, from arguments or from a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypedDict

from hal import ProfileError, SpecError
from rlenv_robot.tables import Options

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile
    from sim.latency.delay_model import DelayModel
    from sim.randomize.randomise import Randomise

__all__ = ["SimSettings", "check_sim_sections", "sim_settings"]


class SimSettings(TypedDict, total=False):
    """The settings of a simulation that differ from the nominal robot's."""

    timing: DelayModel
    randomise: Randomise


def sim_settings(
    timing: DelayModel | Options | None,
    randomise: Randomise | Options | None,
    profile: Profile | None = None,
) -> SimSettings:
    """Return the keyword arguments of `sim.robot.SimRobot` and `sim.batch.SimBatch`.

    Args:
        timing: a `sim.latency.delay_model.DelayModel`, or a mapping as in a profile's ``[timing]``; None takes the
            profile's.
        randomise: a `sim.randomize.randomise.Randomise`, or a mapping as in ``[randomise]``; None takes the profile's.
        profile: where to look for what the other arguments leave out.

    Returns:
        ``timing`` and ``randomise``; a key is missing where there is nothing to set.

    Raises:
        SpecError: a value is not allowed.
    """
    if profile is not None:
        timing = profile.timing if timing is None else timing
        randomise = profile.randomise if randomise is None else randomise
    settings: SimSettings = {}
    if timing is not None and timing != {}:
        settings["timing"] = _timing(timing) if isinstance(timing, Mapping) else timing
    if randomise is not None and randomise != {}:
        settings["randomise"] = _randomise(randomise) if isinstance(randomise, Mapping) else randomise
    return settings


def _timing(section: Options) -> DelayModel:
    from sim.latency.delay_model import DelayModel

    return DelayModel.from_dict(section)


def _randomise(section: Options) -> Randomise:
    from sim.randomize.randomise import Randomise

    return Randomise.from_dict(section)


_PARSERS: Mapping[str, Callable[[Options], object]] = {"timing": _timing, "randomise": _randomise}


def check_sim_sections(file: str, sections: Options) -> None:
    """Check the tables ``[timing]`` and ``[randomise]`` of a profile.

    Raises:
        ProfileError: one of them is no table, or holds a value that is not allowed; with file and key.
    """
    for name, parse in _PARSERS.items():
        section = sections.get(name, {})
        if not isinstance(section, dict):
            raise ProfileError(file, name, f"is {section!r}, it must be a table: [{name}]")
        if not section:
            continue
        try:
            parse(section)
        except SpecError as error:
            key, _, problem = str(error).partition(" ")
            raise ProfileError(file, key.rstrip(":"), problem) from error
