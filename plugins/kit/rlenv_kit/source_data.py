"""Test a source-data environment against its contract (clause 6.3; R3), using draws that its own data explain."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import numpy as np

from hal.errors import wrong_type
from rlenv_kit.json_subject import not_on_the_border, request_checks
from rlenv_kit.report import Failed, NotTried, Report
from rlenv_kit.source_calls import call_checks, last_checks
from rlenv_kit.source_draws import draw_checks
from rlenv_kit.source_facts import fact_checks
from rlenv_kit.source_filters import filter_checks
from rlenv_kit.source_probe import BATCH, SourceProbe, StandardSource
from rlenv_kit.source_tables import Trajectory, check_agents, layout_of, packed
from rlenv_kit.source_windows import window_checks
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

_CHANCE = 1e-6
"""Probability below which a coincidence is none."""

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
    if not hasattr(source, "sample_steps") and not callable(source):
        raise wrong_type("source", source, "a SourceData (open_source), or a function that makes one")
    began = time.monotonic()
    log, probes = CallLog(deadlines or Deadlines(), witness), list[SourceProbe]()
    supervisor = Supervisor(log)

    def prepare() -> list[PlannedCheck]:
        made = hasattr(source, "sample_steps") and not isinstance(source, type)
        subject = cast("StandardSource", source) if made else log.call(
            "make", cast("Callable[[], StandardSource]", source)
        )  # fmt: skip
        supervisor.close = getattr(subject, "close", supervisor.close)
        probe = SourceProbe(subject, seed, log, None if made else cast("Callable[[], StandardSource]", source))
        probes.append(probe)
        return _plan(probe)

    checks = supervisor.run(prepare, only)
    notes = tuple(probes[0].notes.values()) if probes else ()
    shown = name or (type(probes[0].source).__name__ if probes else "that was not made")
    return Report(f"source data {shown}", checks, notes, time.monotonic() - began)


_ORDER = (
    "steps", "trajectories", "same steps", "last steps", "sizes", "unknown option", "inference", "seed", "generators",
    "every step", "once", "priority", "td errors", "threshold", "actions", "statistics", "statistics of a part",
    "ownership", "states", "kinds of statistics", "filters", "nothing left", "labels", "arguments", "options",
    "positions", "actions of a part", "statistics of parts", "instances", "requests", "plain statistics", "stacks",
    "n steps", "pairs", "refused calls", "questions", "edges of states", "other object", "filters with options",
    "windows", "pieces", "weights", "errors", "pairs of the data", "look-ups", "every draw",
)  # fmt: skip
"""Keys of the checks by their number, from 1; a new one comes last, since users reproduce findings by number."""


def _plan(probe: SourceProbe) -> list[PlannedCheck]:
    checks = [
        *declared(vars(_Tables), _Tables(probe), probe), *draw_checks(probe), *fact_checks(probe),
        *filter_checks(probe), *call_checks(probe), *window_checks(probe),
    ]  # fmt: skip
    last = last_checks(probe, checks)
    plan = in_order(_ORDER, [*checks, *request_checks(probe.source, probe.note), *last])
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
        probe.init()
        check_agents(probe.batch(3), probe.tables(probe.few))

    def _check_numbers(self) -> None:
        """Check that numbers stand for trajectories, in Table 6 and in the steps' ``extra_info``."""
        few = self._probe.few
        drawn = [self._probe.trajectories(few) for _ in range(3)]
        numbers = [[one.trajectory_id for one in batch] for batch in drawn]
        contents = [[tuple(step.content for step in one.steps) for one in batch] for batch in drawn]
        counted = (list(range(few)), list(range(1, few + 1)))
        if few > 1 and all(one in counted for one in numbers) and contents[0] != contents[1]:
            raise Failed(f"trajectory_id is {numbers[0]} in every batch, and the trajectories are others",
                         "a trajectory_id stands for one trajectory")  # fmt: skip
        ids = {one.trajectory_id for batch in drawn for one in batch}
        if len({one.env_id for batch in drawn for one in batch}) > 2 and len(ids) == 1:
            raise Failed(f"trajectory_id is {ids.pop()} of every trajectory", "it is unique among the trajectories")
        if few > 1 and all(one.steps[-1].done == 0 for batch in drawn for one in batch):
            raise Failed("done is 0 at the last step of every trajectory", "it is 1 where the trajectory has ended")
        episodes: dict[object, object] = {}
        named: dict[object, object] = {}
        for one in (one for batch in drawn for one in batch):
            key, content = (one.env_id, one.trajectory_id), tuple(step.content for step in one.steps)
            if named.setdefault(key, content) != content:
                raise Failed(f"trajectory_id {one.trajectory_id} of env_id {one.env_id!r} is that of two trajectories",
                             "it is unique among the trajectories")  # fmt: skip
            told = {step.episode for step in one.steps} - {None}
            if len(told) > 1:
                raise Failed(f"trajectory {one.trajectory_id} has steps of the episodes {sorted(told, key=str)}")
            for number in told:
                if episodes.setdefault(number, key) != key:
                    raise Failed(f"extra_info['episode'] is {number} in steps of two trajectories",
                                 "it is the number of the step's own episode")  # fmt: skip

    @check("same steps", "steps and trajectories show the same data", "6.3.2.2-1", "trajectories")
    def same_steps(self, probe: SourceProbe) -> None:
        known = probe.contents
        probe.init()
        layouts = [layout_of(probe.batch(size)) for size in (1, 5)] + [
            layout_of(table["steps_set"]) for table in probe.tables(2)
        ]  # fmt: skip
        probe.layout.update(layouts[0])
        for layout in layouts:
            for name, form in layout.items():
                if name in probe.layout and probe.layout[name] != form:
                    raise Failed(
                        f"{name} is {form[0]} of shape {form[1]}, and {probe.layout[name][0]} of shape "
                        f"{probe.layout[name][1]} in another table",
                        "a field has one type and shape",
                    )
        numbers: dict[bytes, set[int | None]] = {}
        for one in probe.data.values():
            for step in one.steps:
                numbers.setdefault(step.content, set()).add(step.episode)
        for step in probe.steps(4 * BATCH):
            of = numbers.get(step.content, {None})
            if None not in {step.episode, *of} and step.episode not in of:
                raise Failed(f"extra_info['episode'] is {step.episode} of a step, and {of.pop()} in its trajectory",
                             "it is the number of the step's own episode")  # fmt: skip
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
        repeats = [packed(one.steps[-1].observation) == end for one, end in zip(trajectories, ends, strict=True)]
        if not any(stays) and all(repeats):
            raise Failed("next_observation of every last step repeats its observation, and that of no other step does",
                         "it is what the last action led to, or is left out", how=_COLLECTED)  # fmt: skip
        for words, followers in _FOLLOWERS.items():
            hits = [(packed(step.next_observation or {}) in starts, step is one.steps[-1])
                    for one in trajectories if one.steps[-1].done != 0 and (starts := followers(one, trajectories))
                    for step in one.steps]  # fmt: skip
            last, others = [hit for hit, is_last in hits if is_last], [hit for hit, is_last in hits if not is_last]
            share = sum(others) / len(others) if others else 1.0  # of hits by chance
            if sum(last) > max(len(last) / 2, _LEAST_ENDS - 1) and _at_least(sum(last), len(last), share) < _CHANCE:
                raise Failed(f"next_observation of the last step is the first observation of {words}, in {sum(last)} "
                             f"of {len(last)}", "it is what the last action led to", how=_COLLECTED)  # fmt: skip

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
        if size == 0 and not _length(answer):
            self._probe.note("6.3.2.2-2", "a batch of 0 is empty; here it is refused")
            return
        raise Failed(f"a batch of {size!r} came: {answer!r:.60}", "a size is a whole number from 1")

    @check("unknown option", "an unknown option is refused, or noted", "contract", "trajectories")
    def unknown_option(self, probe: SourceProbe) -> None:
        source, refusing = probe.source, list[str]()
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
                refusing.append(name)
                continue
            except Exception as error:
                probe.note("contract", f"an unknown option raises {type(error).__name__}; here it is ValueError")
                continue
            probe.ignoring.add(name)
            probe.note("contract", f"{name} ignores an unknown option, so a misspelt name goes unnoticed")
        optioned = _WITH_OPTIONS | {name for name, wrong in _WRONG_VALUES.items() if self._refuses(name, wrong)}
        taking, others = (sorted(optioned.intersection(names)) for names in (probe.ignoring, refusing))
        if taking and others:
            raise Failed(f"{', '.join(taking)} took the option 'no_such_option'",
                         f"it is refused with ValueError, as by {', '.join(others)}")  # fmt: skip

    def _refuses(self, name: str, options: Mapping[str, object]) -> bool:
        """Return whether a function takes an option, which shows where it refuses a value of it."""
        try:
            self._probe.call(name, **options)
        except Exception:
            return True
        return False

    @check(
        "arguments",
        "arguments have the standard's names, and all but the sizes may be left out",
        "6.3.2.1-2 6.3.2.2-2 6.3.2.2-3 6.3.2.3-2 6.3.2.3-3 6.3.2.4-2 6.3.2.5-2",
        "trajectories",
    )
    def arguments(self, probe: SourceProbe) -> None:
        sizes = {"sample_steps": "batch_size", "sample_trajectories": "trajectory_size"}
        for name in ("init", *sizes, "get_all_actions", "statistics"):
            function, size = getattr(probe.source, name), {sizes[name]: 2} if name in sizes else {}
            named: list[dict[str, object]] = [{}, {"options" if name == "init" else "extra_info": {}}]
            for options in named:
                probe.log.call(name, partial(function, **size, **options))
        try:
            answer = probe.log.call("sample_steps", probe.source.sample_steps)
        except Exception:
            return  # refused
        raise Failed(f"sample_steps without batch_size returned {answer!r:.60}", "it must be given")

    @check("options", "options are the caller's", "contract", "filters", "states")
    def options(self, probe: SourceProbe) -> None:
        for name, place in probe.changed.items():
            raise Failed(f"{name} changed the option {place} in the dictionary that it was given",
                         "options are the caller's", how=f"{name} with that option")  # fmt: skip

    @check("ownership", "batches and options are the caller's", "contract", "seed")
    def ownership(self, probe: SourceProbe) -> None:
        """Check that answers stay as they are, and that writing into them changes no later one."""
        options = {"seed": probe.seed}
        probe.log.call("init", probe.source.init, options)
        if options != {"seed": probe.seed}:
            raise Failed("init changed the options that it was given")
        first = self._answers()
        kept = copied_values(first)
        for call in _ANSWERS.values():
            call(probe)
        if problem := deep_difference(kept, first):
            raise Failed(f"{problem} changed while others were drawn", "an answer is the caller's")
        probe.init()
        content = [step.content for step in probe.steps(BATCH)]
        second = self._answers()
        same = [name for name in kept if not deep_difference(kept[name], second[name])]
        for answer in (*first.values(), *second.values()):
            _overwrite(answer)
        third = self._answers()
        for name in same:
            if problem := deep_difference(kept[name], third[name], name):
                raise Failed(f"writing into answers changed the data: {problem} differs", "an answer is the caller's")
        probe.init()
        if [step.content for step in probe.steps(BATCH)] != content:
            raise Failed("writing into answers changed the data: steps differ", "an answer is the caller's")

    def _answers(self) -> dict[str, Unchecked]:
        self._probe.init()
        return {name: call(self._probe) for name, call in _ANSWERS.items()}

    @check("inference", "privileged state can't be reached in inference", "6.2.3.1-5", "trajectories")
    def inference(self, probe: SourceProbe) -> None:
        mode = getattr(probe.source, "mode", "")  # of a stranger's source, perhaps of another kind
        if not isinstance(mode, str) or mode != "inference":
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


def _length(answer: Unchecked) -> int:
    """Return the number of steps or trajectories of a batch."""
    return len(answer["frame_no"] if isinstance(answer, Mapping) and "frame_no" in answer else answer)


def _starts(one: Trajectory, trajectories: list[Trajectory], is_next: bool, is_same: bool) -> set[bytes]:
    """Return the first observations of the trajectories that could follow one by mistake.

    Args:
        one: a trajectory.
        trajectories: all of them.
        is_next: whether only the next one by its number follows, or any other one.
        is_same: whether only those of its env_id follow.
    """
    key = one.trajectory_id, one.env_id
    others = sorted((other for other in trajectories if not is_same or other.env_id == one.env_id),
                    key=lambda other: ((other.trajectory_id, other.env_id) <= key, other.trajectory_id))  # fmt: skip
    following = [other for other in others if other is not one][: 1 if is_next else None]
    goes_on = one.steps[-1].frame_no + 1  # a long recording may be cut
    return {packed(other.steps[0].observation) for other in following if other.steps[0].frame_no != goes_on}


_FOLLOWERS: Mapping[str, Callable[[Trajectory, list[Trajectory]], set[bytes]]] = {
    "another trajectory": partial(_starts, is_next=False, is_same=False),
    "the next trajectory": partial(_starts, is_next=True, is_same=False),
    "the next trajectory of its env_id": partial(_starts, is_next=True, is_same=True),
}
"""Words of a wrong successor -> the first observations of those that it may be."""


def _at_least(hits: int, count: int, share: float) -> float:
    """Return the probability of at least so many hits by chance, by the binomial distribution."""
    return sum(math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(hits, count + 1))


_WITH_OPTIONS = {"init", "sample_steps", "sample_trajectories"}
"""Functions that always take options; the other two may be without any."""

_WRONG_VALUES: Mapping[str, Mapping[str, object]] = {
    "get_all_actions": {"tolerance": "no number"}, "statistics": {"kind": "no such kind"},
}  # fmt: skip
"""Values of an option that these functions refuse if they take it."""

_ANSWERS: Mapping[str, Callable[[SourceProbe], Unchecked]] = {
    "batch": lambda probe: probe.batch(BATCH),
    "batch of one": lambda probe: probe.batch(1),
    "trajectories": lambda probe: list(probe.tables(2)),
    "actions": lambda probe: probe.call("get_all_actions"),
    "statistics": lambda probe: probe.call("statistics"),
}
"""Word of an answer -> the call that gets it."""


def _overwrite(value: Unchecked) -> None:
    """Overwrite all numbers and texts of a table that can be written."""
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            value[...] = ~value if value.dtype.kind == "b" else 77
    elif isinstance(value, dict | list):
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if isinstance(item, int | float | str | np.generic):
                value[key] = 77
            else:
                _overwrite(item)


def _check_hidden(table: Unchecked) -> None:
    if isinstance(table, Mapping):
        for key, item in table.items():
            if key in _HIDDEN:
                raise Failed(f"a table has {key!r}", "opened for inference, privileged state is absent")
            _check_hidden(item)
    elif isinstance(table, list):
        for item in table:
            _check_hidden(item)
