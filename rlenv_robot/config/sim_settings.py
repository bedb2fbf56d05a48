"""Get the timing and randomisation of a simulation from arguments, from a profile, or from a recorded robot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from hal import ProfileError, SourceError, SpecError
from hal.errors import wrong_type
from hal.robot import RobotSpec
from recorder.json_data import JsonObject
from rlenv_robot.tables import Options

if TYPE_CHECKING:
    from rlenv_robot.config.population import Population
    from rlenv_robot.config.profile import Profile
    from sim.latency import DelayModel
    from sim.randomize.randomise import Randomise

__all__ = ["SimSettings", "check_sim_sections", "drawn_arms", "fit_timing", "sim_settings", "timing_of"]


class SimSettings(TypedDict, total=False):
    """Settings in which a simulation differs from the nominal robot."""

    timing: DelayModel
    randomise: Randomise
    gains: Mapping[str, float | Sequence[float]]


def sim_settings(
    timing: DelayModel | Options | None,
    randomise: Randomise | Options | None,
    profile: Profile | None = None,
    robot: RobotSpec | None = None,
) -> SimSettings:
    """Return the keyword arguments of `sim.robot.SimRobot` and `sim.batch.SimBatch`.

    Args:
        timing: a `sim.latency.DelayModel`, or a mapping as in a profile's ``[timing]``; None takes the
            profile's, and the delay and backlash of its population.
        randomise: a `sim.randomize.randomise.Randomise`, or a mapping as in ``[randomise]``; None takes the profile's,
            and the servos of its population.
        profile: supplies the settings that the other arguments leave out.
        robot: the description of the simulated robot, which a profile with a population needs.

    Returns:
        ``timing``, ``randomise`` and the profile's ``gains``; a key without a setting is missing.

    Raises:
        TypeError: ``timing`` or ``randomise`` is an object of another kind.
        SpecError: a value is not allowed, or the robot has no arm of the profile's population.
        ProfileError: the population can't be read.
    """
    gains = profile.robot.gains if profile is not None and randomise is None else {}
    if profile is not None:
        arms = _arms(profile, robot)
        timing = {**arms.get("timing", {}), **profile.timing} if timing is None else timing
        randomise = {**arms.get("randomise", {}), **profile.randomise} if randomise is None else randomise
    settings: SimSettings = {}
    if timing is not None and timing != {}:
        settings["timing"] = _timing(timing)
    if randomise is not None and randomise != {}:
        settings["randomise"] = _randomise(randomise)
    if gains:
        settings["gains"] = gains
    return settings


def _arms(profile: Profile, robot: RobotSpec | None) -> Mapping[str, Options]:
    """Return timing and randomisation of the profile's population; empty if it has none."""
    if not profile.population.file:
        return {}
    if robot is None:
        raise TypeError("a profile with a [population] needs the description of the robot")
    return drawn_arms(profile).settings(robot)


def drawn_arms(profile: Profile) -> Population:
    """Return the arms that a profile's ``[population]`` draws.

    Raises:
        ProfileError: the file can't be read, an arm of the profile is not in it, or it holds out all of its arms.
    """
    from rlenv_robot.config.population import BUILTIN, load_population

    section = profile.population
    population = load_population(
        BUILTIN if section.file == BUILTIN else Path(profile.file).absolute().parent / section.file
    )
    try:
        drawn = population.choose(section.arms) if section.arms else population.training
    except SpecError as error:
        raise ProfileError(profile.file, "population.arms", str(error)) from error
    if not drawn.arms:
        raise ProfileError(profile.file, "population.file", "has no arm that is not held out; name some in arms")
    return drawn


def _timing(section: object) -> DelayModel:
    from sim.latency import DelayModel

    if isinstance(section, Mapping):
        return DelayModel.from_dict(section)
    if not isinstance(section, DelayModel):
        raise wrong_type("timing", section, "a mapping such as {'command_delay': 0.02}, or a sim.latency.DelayModel")
    return section


def _randomise(section: object) -> Randomise:
    from sim.randomize.randomise import Randomise

    if isinstance(section, Mapping):
        return Randomise.from_dict(section)
    if not isinstance(section, Randomise):
        words = "a mapping such as {'mass': {'uniform': [0.8, 1.2], 'scale': True}}, or a Randomise"
        raise wrong_type("randomise", section, words)
    return section


_PARSERS: Mapping[str, Callable[[Options], object]] = {"timing": _timing, "randomise": _randomise}


def check_sim_sections(file: str, sections: Options) -> None:
    """Check the tables ``[timing]`` and ``[randomise]`` of a profile.

    Raises:
        ProfileError: a table is malformed, or holds a value that is not allowed; the message names file and key.
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


# -- Timing fitted to a recorded robot -----------------------------------------------------------------------


def fit_timing(run: str | Path) -> DelayModel:
    """Fit a delay model to the delays that the bridge measured while a run was recorded.

    The record of each episode contains the delays of commands and readings (``controller.delays``, from the time stamps
    of both ends on one timeline) and the number of commands that arrived too late to be executed.

    Args:
        run: a recorded run's folder.

    Raises:
        SourceError: no episode was recorded over the bridge.
        LogError: the folder holds no log.
    """
    from recorder.read.reader import LogReader

    episodes = LogReader(run).episodes()
    reports = [(e.begin.get("controller", {}), (e.end or {}).get("controller", {})) for e in episodes]
    remote = [(before, after) for before, after in reports if after.get("delays")]
    if not remote:
        raise SourceError(
            f"{run}: no episode holds the delays of its commands and readings; record a complete one with a robot "
            "at an address (robot='tcp://...')"
        )
    late = sum(max(0, _refused(after) - _refused(before)) for before, after in remote)
    return timing_of((after["delays"] for _, after in remote), late)


def _refused(controller: JsonObject) -> int:
    return int(controller.get("server", {}).get("late_commands", 0))


def timing_of(delays: Iterable[JsonObject], refused: int = 0) -> DelayModel:
    """Return the delay model of one or more connections, from the results of `real.client.connection.Delays`.

    The smallest delay becomes the constant part, and the excess over it the jitter of every command or reading. The
    time that the agent takes to choose an action is not included. A simulated agent takes none; add it to
    ``command_delay`` if it matters.

    Args:
        delays: each with ``steps``, ``command_s`` and ``reading_s`` (quantiles in equal shares, seconds).
        refused: number of further commands that arrived too late to be executed.

    Raises:
        SpecError: a delay is too long for a simulation.
    """
    from sim.latency import DelayModel
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
    return np.interp(np.linspace(0, 1, max(count, 2)), np.linspace(0, 1, len(quantiles)), quantiles)
