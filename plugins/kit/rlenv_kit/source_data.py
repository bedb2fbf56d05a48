"""Test a source-data environment against its contract (clause 6.3; R3), using draws that its own data explain."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np

from rlenv_kit.json_subject import not_on_the_border
from rlenv_kit.report import Failed, NotTried, Report
from rlenv_kit.source_draws import draw_checks
from rlenv_kit.source_probe import BATCH, Refused, SourceProbe, StandardSource
from rlenv_kit.source_tables import Trajectory, packed, read_actions, read_steps, read_trajectory
from rlenv_kit.supervisor import (
    CallLog,
    Deadlines,
    PlannedCheck,
    Supervisor,
    Witness,
    check,
    declared,
    in_order,
    without,
)
from rlenv_kit.tables import Unchecked, copied_values, deep_difference

__all__ = ["check_source"]

_COLLECTED = "init, then sample_trajectories until no new one came"

_LEAST_ENDS = 3
"""Trajectories from which ends tell a rule from a chance."""

_HIDDEN = ("state", "next_state", "sensors", "sensor", "privileged")
"""Keys of privileged state in ``extra_info``."""


def check_source(
    source: StandardSource | Callable[[], StandardSource],
    *,
    seed: int = 0,
    name: str = "",
    deadlines: Deadlines | None = None,
    only: int | str = 0,
    witness: Witness | None = None,
) -> Report:
    """Test a source-data environment against its contract.

    Args:
        source: the environment, or a function that makes one.
        seed: the seed of all draws.
        name: the name of the source in the report; by default the name of its class.
        deadlines: limits on single calls and on the whole run.
        only: number (from 1) or key of the only check to run, after the checks that it needs; 0 runs all.
        witness: receives the progress of the run, for another process.

    Returns:
        The report of all checks. A broken source raises nothing.
    """
    began = time.monotonic()
    log, probes = CallLog(deadlines or Deadlines(), witness), list[SourceProbe]()
    supervisor = Supervisor(log)

    def prepare() -> list[PlannedCheck]:
        made = hasattr(source, "sample_steps") and not isinstance(source, type)
        subject = cast("StandardSource", source) if made else log.call(
            "make", cast("Callable[[], StandardSource]", source)
        )  # fmt: skip
        supervisor.close = getattr(subject, "close", supervisor.close)
        probe = SourceProbe(subject, seed, log)
        probes.append(probe)
        return _plan(probe)

    checks = supervisor.run(prepare, only)
    notes = tuple(probes[0].notes.values()) if probes else ()
    shown = name or (type(probes[0].source).__name__ if probes else "that was not made")
    return Report(f"source data {shown}", checks, notes, time.monotonic() - began)


_ORDER = (
    "steps", "trajectories", "same steps", "last steps", "sizes", "unknown option", "inference", "seed", "generators",
    "every step", "once", "priority", "td errors", "threshold", "actions", "statistics", "statistics of a part",
    "ownership",
)  # fmt: skip
"""Keys of the checks by their number, from 1; a new one comes last, since users reproduce findings by number."""


def _plan(probe: SourceProbe) -> list[PlannedCheck]:
    plan = in_order(_ORDER, [
        *declared(vars(_Tables), _Tables(probe), probe), *draw_checks(probe),
        *declared(vars(_Facts), _Facts(probe), probe),
    ])  # fmt: skip
    return without(plan, not_on_the_border(probe.source))


class _Tables:
    """Check the form of batches, trajectories and options, and who owns them."""

    def __init__(self, probe: SourceProbe) -> None:
        self._probe = probe

    @check("steps", "a batch of any size is Table 5", "6.3.2.2-4 6.3.3.1-T5")
    def steps(self, probe: SourceProbe) -> None:
        probe.log.call("init", probe.source.init)
        for size in (1, 7, BATCH, 1):
            probe.steps(size)
        probe.init()
        orders = {(tuple(step.observation), tuple(step.action)) for size in (3, 5) for step in probe.steps(size)}
        if len(orders) > 1:
            raise Failed("the fields of a step come in different orders", "they keep one order")

    @check("trajectories", "a trajectory is Table 6, and its steps follow one another", "6.3.2.3-4 6.3.3.2-T6", "steps")
    def trajectories(self, probe: SourceProbe) -> None:
        self._probe.init()
        for size in (1, 3, 1):
            self._probe.trajectories(size)
        self._check_numbers()

    def _check_numbers(self) -> None:
        """Check that numbers stand for trajectories, in Table 6 and in the steps' ``extra_info``."""
        drawn = [self._probe.trajectories(8) for _ in range(3)]
        numbers = [[one.trajectory_id for one in batch] for batch in drawn]
        contents = [[tuple(step.content for step in one.steps) for one in batch] for batch in drawn]
        if all(one in (list(range(8)), list(range(1, 9))) for one in numbers) and contents[0] != contents[1]:
            raise Failed(f"trajectory_id is {numbers[0]} in every batch, and the trajectories are others",
                         "a trajectory_id stands for one trajectory")  # fmt: skip
        episodes: dict[object, object] = {}
        for one in (one for batch in drawn for one in batch):
            told = {step.episode for step in one.steps} - {None}
            if len(told) > 1:
                raise Failed(f"trajectory {one.trajectory_id} has steps of the episodes {sorted(told, key=str)}")
            key = one.env_id, one.trajectory_id
            for number in told:
                if episodes.setdefault(number, key) != key:
                    raise Failed(f"extra_info['episode'] is {number} in steps of two trajectories",
                                 "it is the number of the step's own episode")  # fmt: skip

    @check("same steps", "steps and trajectories show the same data", "6.3.2.2-1", "trajectories")
    def same_steps(self, probe: SourceProbe) -> None:
        known = probe.contents
        probe.init()
        for step in probe.steps(4 * BATCH):
            if step.content not in known:
                raise Failed(f"a step of env_id {step.env_id!r}, frame_no {step.frame_no} is in no trajectory",
                             "sample_steps and sample_trajectories show the same data")  # fmt: skip

    @check(
        "last steps",
        "the last step of a trajectory leads to an observation of its own",
        "6.3.3.1-T5.next_observation",
        "same steps",
    )
    def last_steps(self, probe: SourceProbe) -> None:
        """Check that the last step of an episode leads to an observation of its own."""
        trajectories = [one for one in self._probe.data.values() if one.steps[-1].next_observation is not None]
        if len(trajectories) < _LEAST_ENDS:
            raise NotTried(f"fewer than {_LEAST_ENDS} trajectories have a next_observation at their end")
        ends = [packed(one.steps[-1].next_observation or {}) for one in trajectories]
        stays = [packed(step.observation) == packed(step.next_observation or {})
                 for one in trajectories for step in one.steps[:-1]]  # fmt: skip
        if not any(stays) and all(
            packed(one.steps[-1].observation) == end for one, end in zip(trajectories, ends, strict=True)
        ):
            raise Failed("next_observation of every last step repeats its observation, and that of no other step does",
                         "it is what the last action led to, or is left out", how=_COLLECTED)  # fmt: skip
        starts = {packed(one.steps[0].observation): number for number, one in enumerate(trajectories)}
        others = [starts.get(end, number) != number for number, end in enumerate(ends)]
        if len(starts) == len(trajectories) and sum(others) > len(ends) / 2:
            raise Failed(f"next_observation of the last step is the first observation of another trajectory, in "
                         f"{sum(others)} of {len(ends)}", "it is what the last action led to",
                         how=_COLLECTED)  # fmt: skip

    @check("sizes", "a size that is not an integer of at least 1 is refused", "6.3.2.2-2 6.3.2.3-2", "trajectories")
    def sizes(self, probe: SourceProbe) -> None:
        for call in (self._probe.batch, self._probe.tables):
            self._probe.init()
            for size in (-1, 1.5, "3", None, 0):
                self._check_refused(call, size)

    def _check_refused(self, call: Callable[..., Unchecked], size: object) -> None:
        try:
            answer = call(size)
        except ValueError:
            return
        except Exception as error:
            self._probe.note("contract", f"a wrong size raises {type(error).__name__}; here it is ValueError")
            return
        if size == 0:
            self._probe.note("6.3.2.2-2", "a batch of 0 is empty; here it is refused")
            return
        raise Failed(f"a batch of {size!r} came: {answer!r:.60}", "a size is a whole number from 1")

    @check("unknown option", "an unknown option is refused, or noted", "contract", "trajectories")
    def unknown_option(self, probe: SourceProbe) -> None:
        source = probe.source
        wrong: dict[str, object] = {"no_such_option": 1}
        for name, call in (
            ("init", lambda: source.init(wrong)),
            ("sample_steps", lambda: source.sample_steps(2, wrong)),
            ("sample_trajectories", lambda: source.sample_trajectories(1, wrong)),
            ("get_all_actions", lambda: source.get_all_actions(wrong)),
            ("statistics", lambda: source.statistics(wrong)),
        ):
            probe.init()
            try:
                probe.log.call(name, call)
            except ValueError:
                continue
            except Exception as error:
                probe.note("contract", f"an unknown option raises {type(error).__name__}; here it is ValueError")
                continue
            probe.ignoring.add(name)
            probe.note("contract", f"{name} ignores an unknown option, so a misspelt name goes unnoticed")

    @check("ownership", "batches and options are the caller's", "contract", "seed")
    def ownership(self, probe: SourceProbe) -> None:
        options = {"seed": probe.seed}
        probe.log.call("init", probe.source.init, options)
        first = probe.batch(BATCH)
        kept, trees = copied_values(first), copied_values(list(probe.tables(2)))
        content = [step.content for step in read_steps(kept)]
        again = probe.batch(BATCH)
        problem = deep_difference(kept, first)
        if problem:
            raise Failed(f"{problem} of a batch changed while the next one was drawn", "a batch is the caller's")
        for table in (first, again):
            _overwrite(table)
        if options != {"seed": probe.seed}:
            raise Failed("init changed the options that it was given")
        probe.init()
        if [step.content for step in read_steps(probe.batch(BATCH))] != content:
            raise Failed("writing into a batch changed the data", "a batch is the caller's")
        tables = list(probe.tables(2))
        problem = deep_difference(trees, tables)
        if problem:
            raise Failed(f"writing into a batch changed the data: {problem} of a trajectory differs")
        for table in tables:
            _overwrite(table)
        probe.init()
        probe.batch(BATCH)
        problem = deep_difference(trees, list(probe.tables(2)))
        if problem:
            raise Failed(f"writing into a trajectory changed the data: {problem}", "a trajectory is the caller's")

    @check("inference", "privileged state can't be reached in inference", "6.2.3.1-5", "trajectories")
    def inference(self, probe: SourceProbe) -> None:
        if getattr(probe.source, "mode", "") != "inference":
            raise NotTried("the source is not opened for inference")
        probe.init()
        for table in (probe.batch(BATCH), *probe.tables(2)):
            _check_hidden(table)
        for call in (probe.batch, probe.tables):
            try:
                table = call(2, privileged=True)
            except Exception:
                continue  # refused
            _check_hidden(table)


def _overwrite(value: Unchecked) -> None:
    """Overwrite all writable arrays of a table."""
    if isinstance(value, Mapping):
        for item in value.values():
            _overwrite(item)
    elif isinstance(value, list):
        for item in value:
            _overwrite(item)
    elif isinstance(value, np.ndarray) and value.flags.writeable and value.dtype.kind in "fiu":
        value[...] = 77


def _check_hidden(table: Unchecked) -> None:
    if isinstance(table, Mapping):
        for key, item in table.items():
            if key in _HIDDEN:
                raise Failed(f"a table has {key!r}", "opened for inference, privileged state is absent")
            _check_hidden(item)
    elif isinstance(table, list):
        for item in table:
            _check_hidden(item)


class _Facts:
    """Check actions and statistics against the data."""

    def __init__(self, probe: SourceProbe) -> None:
        self._probe = probe

    @check("actions", "all actions of a state are those of the data in that state", "6.3.2.4-1 6.3.2.4-3", "same steps")
    def actions(self, probe: SourceProbe) -> None:
        probe.init()
        states = [self._check_actions("the first state")]
        for episode, frame in ((0, 1), (1, 0), (1, 2)):
            try:
                probe.asked("init", partial(probe.init, episode=episode, frame=frame))
            except Refused:
                continue
            states.append(self._check_actions(f"episode {episode}, frame {frame}"))
        if len(states) == 4 and len(set(states)) == 1:
            raise Failed(f"init took episode and frame, and the state stays env_id {states[0][0]!r}, frame_no "
                         f"{states[0][1]}", "an option that is taken sets the state")  # fmt: skip

    def _check_actions(self, state: str) -> tuple[str, int]:
        """Compare the actions of the current state with those that the data hold for it."""
        probe = self._probe
        table = probe.log.call("get_all_actions", probe.source.get_all_actions)
        name, number, actions = read_actions(table, probe.note)
        came = Counter(packed(action) for action in actions)
        twice = [count for count in came.values() if count > 1]
        if twice:
            raise Failed(f"{state}: an action is in the list {twice[0]} times", "the actions are distinct")
        steps = [step for one in probe.data.values() for step in one.steps]
        here = {packed(s.observation) for s in steps if (s.env_id, s.frame_no) == (name, number)}
        if not here:
            last = any((one.env_id, one.steps[-1].frame_no + 1) == (name, number) for one in probe.data.values())
            if not actions or last:
                return name, number  # the last frame of an episode, from which no action leads on
            raise Failed(f"{state}: env_id {name!r} and frame_no {number} are of no step", "they are the state's own")
        expected = [{packed(s.action) for s in steps if packed(s.observation) == observed} for observed in here]
        if set(came) not in expected:
            most = max(expected, key=lambda due: len(due & came.keys()))
            raise Failed(f"{state}: {len(came)} actions came, of which the data hold {len(most & came.keys())} in that "
                         f"state; they hold {len(most)}")  # fmt: skip
        return name, number

    @check("statistics", "statistics agree with the samples", "6.3.2.5-1 6.3.2.5-3", "same steps")
    def statistics(self, probe: SourceProbe) -> None:
        self._check_statistics(self._ask(), list(self._probe.data.values()))

    @check(
        "statistics of a part",
        "statistics of a part agree with the samples of that part",
        "6.3.2.5-2",
        "threshold",
        "statistics",
    )
    def of_a_part(self, probe: SourceProbe) -> None:
        data = self._probe.data
        limit = sorted(one.total for one in data.values())[len(data) // 2]
        try:
            told = self._probe.asked("statistics", lambda: self._ask(min_return=limit))
        except Refused as reason:
            raise NotTried(f"statistics of a part are refused: {reason}") from None
        self._check_statistics(told, [one for one in data.values() if one.total >= limit - 1e-9])

    def _ask(self, **options: object) -> Unchecked:
        probe = self._probe
        probe.init()
        return probe.log.call("statistics", probe.source.statistics, *((options,) if options else ()))

    def _check_statistics(self, told: Unchecked, data: list[Trajectory]) -> None:
        if isinstance(told, Sequence) and not isinstance(told, str | bytes):
            known = self._probe.contents
            for table in told:
                if any(step.content not in known for step in read_trajectory(table, self._probe.note).steps):
                    raise Failed("statistics returned a trajectory that is not in the data")
            return
        if isinstance(told, int | float | np.number):
            told = {"value": told}
        if not isinstance(told, Mapping):
            raise Failed(f"statistics returned a {type(told).__name__}", "it must return trajectories or scalars")
        compared = 0
        for name, values in _figures(data).items():
            found = _entry(told, name)
            if found is None:
                continue
            compared += 1
            self._compare(name[0], found, values)
        if not compared:
            raise NotTried("statistics name no figure that can be compared: episodes, steps, returns, lengths, fields")

    @staticmethod
    def _compare(name: str, told: Unchecked, values: np.ndarray) -> None:
        if not isinstance(told, Mapping):
            if told != len(values):
                raise Failed(f"statistics say {told} {name}, the data have {len(values)}")
            return
        for moment, function in _MOMENTS.items():
            if moment in told:
                expected, got = function(values), np.asarray(told[moment], float)
                if got.shape != np.shape(expected) or not np.allclose(got, expected, rtol=1e-5, atol=1e-6):
                    raise Failed(f"statistics say {moment} {got.tolist()} of {name}",
                                 f"that of the samples is {np.asarray(expected).tolist()}")  # fmt: skip


_MOMENTS: Mapping[str, Callable[[np.ndarray], Unchecked]] = {
    "mean": lambda values: values.mean(axis=0),
    "std": lambda values: values.std(axis=0),
    "min": lambda values: values.min(axis=0),
    "max": lambda values: values.max(axis=0),
}


def _figures(data: list[Trajectory]) -> dict[tuple[str, ...], np.ndarray]:
    """Return the values that statistics may describe, by the names that they may have there."""
    steps = [step for one in data for step in one.steps]
    figures: dict[tuple[str, ...], np.ndarray] = {
        ("episodes", "trajectories"): np.zeros(len(data)),
        ("steps", "transitions"): np.zeros(len(steps)),
        ("lengths", "length"): np.array([len(one.steps) for one in data], float),
    }
    if not any(isinstance(step.reward, Mapping) for step in steps):
        figures["returns", "return"] = np.array([one.total for one in data])
        figures["rewards", "reward"] = np.array([step.reward for step in steps], float)
    for group in ("observation", "action"):
        for name, first in getattr(steps[0], group).items():
            if np.asarray(first).dtype.kind not in "biuf":  # texts have no moments
                continue
            values = np.stack([np.asarray(getattr(step, group)[name], float) for step in steps])
            figures[f"{group}.{name}", f"{group}_{name}"] = values
    return figures


def _entry(told: Mapping[str, Unchecked], names: tuple[str, ...]) -> Unchecked:
    """Return what statistics hold under one of the names, here or in ``fields``; None if there is nothing."""
    for part in (told, told.get("fields")):
        for name in names:
            if isinstance(part, Mapping) and isinstance(part.get(name), Mapping | int | np.integer):
                return part[name]
    return None
