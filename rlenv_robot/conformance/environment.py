"""Test the contract of an environment, from its own description (clauses 6.2, 6.4; R1, R2, R4)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from hal import EpisodeError, Spec
from rlenv_robot.conformance.illegal import IllegalCase, check_refusal, illegal_tables
from rlenv_robot.conformance.probe import Probe, StandardEnvironment, Table, is_over
from rlenv_robot.conformance.report import Check, Failed, NotTried, Report, run_check
from rlenv_robot.conformance.tables import check_observation, check_reward, difference

__all__ = ["check_environment"]

_MAX_EPISODE = 5000
"""Steps after which the check of the end gives up."""


def check_environment(
    env: StandardEnvironment, *, steps: int = 30, seed: int = 0, repeatable: bool = True, name: str = ""
) -> Report:
    """Test an environment against its contract.

    The robot moves: any legal action may be tried, and many illegal ones.

    Args:
        env: new and not yet reset; it is closed at the end.
        steps: the length of the walks.
        seed: of everything random.
        repeatable: False for a real machine, where equal seeds need not give equal episodes.
        name: of the environment in the report; by default its env_id.

    Returns:
        The report of all checks. A broken environment raises nothing.
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
            raise Failed(f"{spec.name} does not survive to_dict and from_dict")
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
        if is_over(frame.table) != (number == len(frames)) and number != probe.steps:
            raise Failed(f"frame {number} of {len(frames)} is marked as the last one")


def _check_frame(probe: Probe, table: Table, number: int) -> None:
    if table["frame_no"] != number:
        raise Failed(f"frame_no is {table['frame_no']}, it must be {number}")
    if table["env_id"] != probe.env.env_id:
        raise Failed(f"env_id is {table['env_id']!r}, it must be {probe.env.env_id!r}")


# -- seeds, ownership ------------------------------------------------------------------------------------------


def _equal_seeds(probe: Probe) -> None:
    first = probe.reset()["observation"]
    copies = {name: np.array(value) for name, value in first.items()}
    if not probe.repeatable:
        raise NotTried("equal seeds need not give equal episodes here")
    name = difference(copies, probe.reset()["observation"])
    if name:
        raise Failed(f"two resets with seed {probe.seed} differ in {name}")


def _equal_episodes(probe: Probe) -> None:
    probe.compare(probe.walk(), probe.walk())


def _kept_observations(probe: Probe) -> None:
    for number, frame in enumerate(probe.walk(), 1):
        name = difference(frame.observation, frame.table["observation"])
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
    raise Failed("reset ignored an unknown option, it must raise ValueError")


# -- illegal actions -------------------------------------------------------------------------------------------


class _RefusalProbe:
    """Send illegal tables to a running episode, or to a new one if a failed check may have disturbed it."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._clean = False

    def begin(self) -> None:
        """Begin an episode and take one legal step, so that frame 0 is stale."""
        frames = self._probe.walk(1)
        if is_over(frames[-1].table):
            raise NotTried("the episode is over after one step")
        self.frame, self._clean = frames[-1], True

    def check(self, case: IllegalCase) -> None:
        """Check that the case is refused as R1.2 requires."""
        if not self._clean:
            self.begin()
        self._clean = False  # until the refusal is confirmed
        check_refusal(case, self._probe.env.step(case.value), self.frame)
        self._clean = True


def _illegal_checks(probe: Probe) -> list[Check]:
    refusals = _RefusalProbe(probe)
    begun = run_check("an episode runs in which illegal actions can be tried", "R1.2", refusals.begin)
    if begun.passed is not True:
        return [begun]
    frame = refusals.frame
    cases = illegal_tables(probe.env.action, frame.action, probe.env.env_id, frame.table["frame_no"])
    return [run_check(f"refused: {case.name}", "R1.2", partial(refusals.check, case)) for case in cases]


def _illegal_changes_nothing(probe: Probe) -> None:
    first = probe.walk(2)

    def disturb(table: Table) -> None:
        for case in illegal_tables(probe.env.action, _any_action(probe), probe.env.env_id, table["frame_no"]):
            probe.env.step(case.value)

    probe.compare(first, probe.walk(2, disturb))


# -- ends ------------------------------------------------------------------------------------------------------


def _after_the_end(probe: Probe) -> None:
    frames = probe.walk(_MAX_EPISODE)
    if not is_over(frames[-1].table):
        raise NotTried(f"no episode ended within {_MAX_EPISODE} steps")
    _raises_episode_error(lambda: probe.send(frames[-1].table, frames[-1].action), "a step after the end")
    _check_frame(probe, probe.reset(), 0)


def _closed(probe: Probe) -> None:
    table = probe.reset()
    probe.env.close()
    probe.env.close()
    _raises_episode_error(lambda: probe.send(table, _any_action(probe)), "a step after close")
    _raises_episode_error(probe.reset, "a reset after close")


def _raises_episode_error(call: Callable[[], object], event: str) -> None:
    try:
        call()
    except EpisodeError:
        return
    except Exception as error:
        raise Failed(f"{event} raised {type(error).__name__} ({error}), it must raise EpisodeError") from error
    raise Failed(f"{event} was accepted, it must raise EpisodeError")


def _any_action(probe: Probe) -> dict[str, np.ndarray]:
    return probe.env.action.sample(np.random.default_rng(probe.seed))


_BEFORE: tuple[tuple[str, str, Callable[[Probe], None]], ...] = (
    ("every field has a type, a range, a unit and a meaning", "R4.2", _described),
    ("a step before the first reset is refused", "R1.4", _step_before_reset),
    ("reset returns Table 1 with frame 0", "R1.3", _reset_table),
    ("reset works without options", "R1.3", _plain_reset),
    ("an unknown reset option is refused", "R1.3", _unknown_option),
    ("step returns Tables 1 and 3, and frame_no rises by one", "R2", _step_tables),
    ("equal seeds give equal first observations", "R1.3", _equal_seeds),
    ("equal seeds and actions give equal episodes", "R1.3", _equal_episodes),
    ("a returned observation never changes", "R1.4", _kept_observations),
    ("writing into an observation changes nothing", "R1.4", _overwritten_observations),
)
_AFTER: tuple[tuple[str, str, Callable[[Probe], None]], ...] = (
    ("illegal actions do not change an episode", "R1.2", _illegal_changes_nothing),
    ("a step after the end is refused, and a reset begins anew", "R1.4", _after_the_end),
    ("close may be called twice, and no step or reset follows it", "R1.4", _closed),
)
