"""What a simulation is like beside its model: its timing, and what is drawn anew for each episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hal import ProfileError, SpecError

if TYPE_CHECKING:
    from rlenv_robot.config.profile import Profile
    from sim.latency.delay_model import DelayModel
    from sim.randomize.randomise import Randomise

__all__ = ["conditions", "sections"]

NAMES = ("timing", "randomise")


def conditions(
    timing: DelayModel | Mapping[str, Any] | None,
    randomise: Randomise | Mapping[str, Any] | None,
    profile: Profile | None = None,
) -> dict[str, Any]:
    """What `sim.robot.SimRobot` and `sim.batch.SimBatch` take.

    Args:
        timing: a `sim.latency.delay_model.DelayModel`, or plain data as in a profile's ``[timing]``; None is the
        profile's.
        randomise: a `sim.randomize.randomise.Randomise`, or plain data as in ``[randomise]``; None is the profile's.
        profile: what is not given is from here.

    Returns:
        ``timing`` and ``randomise``, each only if there is any.

    Raises:
        SpecError: a value that can't be.
    """
    given = {"timing": timing, "randomise": randomise}
    if profile is not None:
        given = {name: getattr(profile, name) if value is None else value for name, value in given.items()}
    return {name: _made(name, value) for name, value in given.items() if value is not None and value != {}}


def _made(name: str, value: Any) -> Any:
    return _reader(name)(value) if isinstance(value, Mapping) else value


def _reader(name: str) -> Callable[[Mapping[str, Any]], Any]:
    from sim.latency.delay_model import DelayModel
    from sim.randomize.randomise import Randomise

    return DelayModel.from_dict if name == "timing" else Randomise.from_dict


def sections(file: str, plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Take ``[timing]`` and ``[randomise]`` out of a profile, and check them.

    Raises:
        ProfileError: one of them is no table, or says what can't be; with file and key.
    """
    taken = {name: plain.pop(name) for name in NAMES if name in plain}
    for name, section in taken.items():
        if not isinstance(section, dict):
            raise ProfileError(file, name, f"is {section!r}, it must be a table: [{name}]")
        try:
            _reader(name)(section)
        except SpecError as error:
            key, _, problem = str(error).partition(" ")
            raise ProfileError(file, key.rstrip(":"), problem) from error
    return taken
