"""The contract of an environment, tested by what its own description says (clauses 6.2, 6.4; R1, R2, R4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from hal import EpisodeError, Spec
from rlenv_robot.conformance.illegal import IllegalCase, check_refusal, illegal_tables
from rlenv_robot.conformance.probe import Probe, StandardEnvironment, Table, over
from rlenv_robot.conformance.report import Check, Failed, NotTried, Report, run_check
from rlenv_robot.conformance.tables import check_observation, check_reward, same_values

__all__ = ["check_environment"]

_LONGEST = 5000
"""How many steps an episode may take before it counts as endless here."""


def check_environment(
    env: StandardEnvironment, *, steps: int = 30, seed: int = 0, repeatable: bool = True, name: str = ""
) -> Report:
    """Test an environment against its contract.

    It moves: every legal action may be tried, and many illegal ones.

    Args:
        env: new, not yet reset; it is closed in the end.
        steps: how long the walks are.
        seed: of everything random.
        repeatable: False for a real machine, where equal seeds need not give equal episodes.
        name: what the report calls it; by default by its env_id.

    Returns:
        Every check, passed or not. Nothing is raised for a broken environment.
    """
    probe = Probe(env, steps, seed, repeatable)
    checks = [run_check(name, number, partial(check, probe)) for name, number, check in _BEFORE]
    checks += _illegal_checks(probe)
    checks += [run_check(name, number, partial(check, probe)) for name, number, check in _AFTER]
    return Report(f"environment {name or env.env_id}", tuple(checks))


# -- description, tables ---------------------------------------------------------------------------------------


def _described(probe: Probe) -> None:
    for spec in (probe.env.observation, probe.env.action):
        if Spec.from_dict(spec.to_dict()) != spec:
            raise Failed(f"{spec.name} does not survive to_plain and from_plain")
        for field in spec:
            if not field.meaning.strip() or not field.unit.strip():
                raise Failed(f"{spec.name}.{field.name} has no meaning or no unit")


def _step_before_reset(probe: Probe) -> None:
    _raises_episode_error(lambda: probe.send({"frame_no": 0}, _any_action(probe)), "a step before the first reset")


def _reset_table(probe: Probe) -> None:
    table = probe.reset()
    check_observation(table, probe.env.observation)
    _check_frame(probe, table, 0)


def _plain_reset(probe: Probe) -> None:
    check_observation(probe.env.reset(), probe.env.observation)


def _step_tables(probe: Probe) -> None:
    frames = probe.walk()
    for number, frame in enumerate(frames, 1):
        check_observation(frame.table, probe.env.observation)
        check_reward(frame.reward)
        for table in (frame.table, frame.reward):
            _check_frame(probe, table, number)
        if over(frame.table) != (number == len(frames)) and number != probe.steps:
            raise Failed(f"frame {number} of {len(frames)} is marked as the last")


def _check_frame(probe: Probe, table: Table, number: int) -> None:
    if table["frame_no"] != number:
        raise Failed(f"frame_no is {table['frame_no']}, this is frame {number} of the episode")
    if table["env_id"] != probe.env.env_id:
        raise Failed(f"env_id is {table['env_id']!r}, the environment's is {probe.env.env_id!r}")


# -- seeds, ownership ------------------------------------------------------------------------------------------


def _equal_seeds(probe: Probe) -> None:
    first = probe.reset()["observation"]
    kept = {name: np.array(value) for name, value in first.items()}
    if not probe.repeatable:
        raise NotTried("not where equal seeds need not give equal episodes")
    name = same_values(kept, probe.reset()["observation"])
    if name:
        raise Failed(f"two resets with seed {probe.seed} differ in {name}")


def _equal_episodes(probe: Probe) -> None:
    probe.compare(probe.walk(), probe.walk())


def _kept_observations(probe: Probe) -> None:
    for number, frame in enumerate(probe.walk(), 1):
        name = same_values(frame.kept, frame.table["observation"])
        if name:
            raise Failed(f"observation {name} of frame {number} changed after it was returned")


def _overwritten_observations(probe: Probe) -> None:
    first = probe.walk()
    probe.compare(first, probe.walk(between=_overwrite))


def _overwrite(table: Table) -> None:
    for value in table["observation"].values():
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value[...] = 0


def _unknown_option(probe: Probe) -> None:
    try:
        probe.env.reset({"no_such_option": 1})
    except ValueError:
        return
    raise Failed("reset took an option that it does not know in silence, wanted a ValueError")


# -- illegal actions -------------------------------------------------------------------------------------------


class _Refuses:
    """Sends illegal tables to a running episode, a new one whenever the last may have been disturbed."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._clean = False

    def begin(self) -> None:
        """One legal step into an episode, so that frame 0 is stale."""
        frames = self._probe.walk(1)
        if over(frames[-1].table):
            raise NotTried("the episode is over after one step")
        self.frame, self._clean = frames[-1], True

    def check(self, case: IllegalCase) -> None:
        """Raise unless the case is refused as R1.2 wants."""
        if not self._clean:
            self.begin()
        self._clean = False  # until the refusal is found to be one
        check_refusal(case, self._probe.env.step(case.value), self.frame)
        self._clean = True


def _illegal_checks(probe: Probe) -> list[Check]:
    refuses = _Refuses(probe)
    begun = run_check("an episode runs, to try illegal actions in", "R1.2", refuses.begin)
    if begun.passed is not True:
        return [begun]
    frame = refuses.frame
    cases = illegal_tables(probe.env.action, frame.action, probe.env.env_id, frame.table["frame_no"])
    return [run_check(f"refused: {case.name}", "R1.2", partial(refuses.check, case)) for case in cases]


def _illegal_changes_nothing(probe: Probe) -> None:
    first = probe.walk(2)

    def disturb(table: Table) -> None:
        for case in illegal_tables(probe.env.action, _any_action(probe), probe.env.env_id, table["frame_no"]):
            probe.env.step(case.value)

    probe.compare(first, probe.walk(2, disturb))


# -- ends ------------------------------------------------------------------------------------------------------


def _after_the_end(probe: Probe) -> None:
    frames = probe.walk(_LONGEST)
    if not over(frames[-1].table):
        raise NotTried(f"no episode ended within {_LONGEST} steps")
    _raises_episode_error(lambda: probe.send(frames[-1].table, frames[-1].action), "a step after the end")
    _check_frame(probe, probe.reset(), 0)


def _closed(probe: Probe) -> None:
    table = probe.reset()
    probe.env.close()
    probe.env.close()
    _raises_episode_error(lambda: probe.send(table, _any_action(probe)), "a step after close")
    _raises_episode_error(probe.reset, "a reset after close")


def _raises_episode_error(call: Callable[[], object], what: str) -> None:
    try:
        call()
    except EpisodeError:
        return
    except Exception as error:
        raise Failed(f"{what} raised {type(error).__name__} ({error}), wanted EpisodeError") from error
    raise Failed(f"{what} was accepted, wanted EpisodeError")


def _any_action(probe: Probe) -> dict[str, np.ndarray]:
    return probe.env.action.sample(np.random.default_rng(probe.seed))


_BEFORE: tuple[tuple[str, str, Callable[[Probe], None]], ...] = (
    ("every field has type, range, unit and meaning", "R4.2", _described),
    ("a step before the first reset is refused", "R1.4", _step_before_reset),
    ("reset returns Table 1 with frame 0", "R1.3", _reset_table),
    ("reset needs no options", "R1.3", _plain_reset),
    ("an unknown reset option is refused", "R1.3", _unknown_option),
    ("step returns Tables 1 and 3, frames count up by one", "R2", _step_tables),
    ("equal seeds, equal first observation", "R1.3", _equal_seeds),
    ("equal seeds and actions, equal episode", "R1.3", _equal_episodes),
    ("a returned observation never changes", "R1.4", _kept_observations),
    ("writing into an observation changes nothing", "R1.4", _overwritten_observations),
)
_AFTER: tuple[tuple[str, str, Callable[[Probe], None]], ...] = (
    ("an episode with illegal actions in it is the same episode", "R1.2", _illegal_changes_nothing),
    ("a step after the end is refused, a reset goes on", "R1.4", _after_the_end),
    ("close twice; then nothing goes on", "R1.4", _closed),
)
