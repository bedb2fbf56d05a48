"""Timing and randomisation of a simulation, from arguments or from a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hal import ProfileError, SpecError

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile
    from sim.latency.delay_model import DelayModel
    from sim.randomize.randomise import Randomise

__all__ = ["check_sim_sections", "sim_settings"]

NAMES = ("timing", "randomise")


def sim_settings(
    timing: DelayModel | Mapping[str, Any] | None,
    randomise: Randomise | Mapping[str, Any] | None,
    profile: Profile | None = None,
) -> dict[str, Any]:
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
    values = {"timing": timing, "randomise": randomise}
    if profile is not None:
        values = {name: getattr(profile, name) if value is None else value for name, value in values.items()}
    return {name: _parse(name, value) for name, value in values.items() if value is not None and value != {}}


def _parse(name: str, value: Any) -> Any:
    return _parser(name)(value) if isinstance(value, Mapping) else value


def _parser(name: str) -> Callable[[Mapping[str, Any]], Any]:
    from sim.latency.delay_model import DelayModel
    from sim.randomize.randomise import Randomise

    return DelayModel.from_dict if name == "timing" else Randomise.from_dict


def check_sim_sections(file: str, sections: Mapping[str, Any]) -> None:
    """Check the tables ``[timing]`` and ``[randomise]`` of a profile.

    Raises:
        ProfileError: one of them is no table, or holds a value that is not allowed; with file and key.
    """
    for name in NAMES:
        section = sections.get(name, {})
        if not isinstance(section, dict):
            raise ProfileError(file, name, f"is {section!r}, it must be a table: [{name}]")
        if not section:
            continue
        try:
            _parser(name)(section)
        except SpecError as error:
            key, _, problem = str(error).partition(" ")
            raise ProfileError(file, key.rstrip(":"), problem) from error
