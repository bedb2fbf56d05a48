"""Check the filters that a source-data environment takes, and the labels of its trajectories (R3.3, R3.4, R6.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np

from rlenv_kit.report import Failed, NotTried
from rlenv_kit.source_probe import BATCH, Refused, SourceProbe
from rlenv_kit.source_statistics import Meanings, check_statistics, kinds_of
from rlenv_kit.source_tables import Step, Trajectory, discount_of, packed, read_actions
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import Unchecked, deep_difference

__all__ = ["filter_checks"]

_LABELS = ("source", "policy", "verdict")
"""Options that choose trajectories by the text of that name in their ``extra_info``."""

_SOURCES = ("expert", "random", "mixture", "mixed")
"""Labels of sources that the standard names (B.2.2.3), and a variant."""

_STACK = 3
"""Frames of a stack."""

_N = 3
"""Steps of an n-step transition."""

_ENOUGH = 25
"""Draws for each step or trajectory, so that one that can come does come, but for one case in e**25."""

_MOST_DRAWS = 8000

Key = tuple[str, int]


@dataclass(frozen=True)
class _Part:
    """Options with a filter, and the trajectories and steps that must and may come.

    Attributes:
        options: the options.
        due: keys of the trajectories that must come.
        may: keys of the trajectories that may come.
        steps: the steps that must and may come; None if they are those of the trajectories.
    """

    options: Mapping[str, object]
    due: frozenset[Key]
    may: frozenset[Key]
    steps: frozenset[bytes] | None = None

    def __str__(self) -> str:
        return ", ".join(f"{name}={value!r:.60}" for name, value in self.options.items())


def filter_checks(probe: SourceProbe) -> list[PlannedCheck]:
    """Return the checks of filters and labels."""
    return declared(vars(_Filters), _Filters(probe), probe)


class _Filters:
    def __init__(self, probe: SourceProbe) -> None:
        self._probe = probe
        self._taken: list[_Part] = []

    @check(
        "filters",
        "a filter lets through what fits it, and nothing else, in its own call",
        "contract",
        "every step",
        "unknown option",
        "ownership",
    )
    def filters(self, probe: SourceProbe) -> None:
        """Check each filter that is taken, alone and with another."""
        for part in _parts(probe):
            if self._check_draws(part):
                self._taken.append(part)
        if not self._taken:
            raise NotTried("no filter is taken of which the data tell what fits it")
        for part in _together(self._taken, probe.data):
            self._check_draws(part)

    @check("actions of a part", "all actions of a state within a filter are those of the data that fit it", "6.3.2.4-2",
           "filters", "states")  # fmt: skip
    def actions_of_a_part(self, probe: SourceProbe) -> None:
        if not sum(self._check_actions(part) for part in self._taken):
            raise NotTried("get_all_actions takes no filter, or no state can be given")

    @check("statistics of parts", "statistics within a filter are those of the data that fit it", "6.3.2.5-2",
           "filters", "statistics", "kinds of statistics")  # fmt: skip
    def statistics_of_parts(self, probe: SourceProbe) -> None:
        probe.init()
        meanings = Meanings(probe.call("statistics"), list(probe.data.values()))
        taken = [part for part in self._taken if self._check_statistics(part, meanings)]
        if not taken:
            raise NotTried("statistics take no filter")
        for part in _smallest(taken):
            self._check_kinds(part)

    def _check_draws(self, part: _Part) -> bool:
        """Check steps and trajectories of a part; return whether its options are taken."""
        probe, data = self._probe, self._probe.data
        probe.init()
        taken = False
        steps = part.steps or {step.content for key in part.may for step in data[key].steps}
        due = part.steps or {step.content for key in part.due for step in data[key].steps}
        try:
            drawn = probe.asked(
                "sample_steps", partial(probe.steps, min(_ENOUGH * len(steps), _MOST_DRAWS), **part.options)
            )
        except Refused:
            pass
        else:
            taken = True
            came = {step.content for step in drawn}
            self._compare("sample_steps", part, came, steps, due, _ENOUGH * len(steps) <= _MOST_DRAWS)
            self._check_alone(part, steps)
        if part.steps is not None:
            return taken
        try:
            tables = probe.asked(
                "sample_trajectories", partial(probe.trajectories, min(_ENOUGH * len(part.may), 250), **part.options)
            )
        except Refused:
            return taken
        keys = {one.key for one in tables}
        self._compare("sample_trajectories", part, keys, part.may, part.due, len(part.may) <= 10)
        return True

    @staticmethod
    def _compare(
        name: str,
        part: _Part,
        came: Collection[object],
        may: Collection[object],
        due: Collection[object],
        is_all: bool,
    ) -> None:
        wrong, missing = set(came) - set(may), set(due) - set(came)
        what = "steps" if name == "sample_steps" else "trajectories"
        if wrong:
            raise Failed(f"{name} with {part} gave {len(wrong)} {what} that do not fit it, among {len(came)}")
        if missing and is_all:
            raise Failed(f"{name} with {part} left out {len(missing)} of {len(due)} {what} that fit it")

    def _check_alone(self, part: _Part, steps: Collection[bytes]) -> None:
        """Check that a filter holds for its own call alone."""
        probe = self._probe
        if len(steps) < 0.9 * len(probe.contents):
            for words, between in (("the next call", lambda: None), ("the next init", probe.init)):
                between()
                if all(step.content in steps for step in probe.steps(6 * BATCH)):
                    raise Failed(f"the filter {part} still holds in {words}, without options")

    def _check_actions(self, part: _Part) -> bool:
        """Check all actions of states within a part; return whether its options are taken."""
        probe = self._probe
        if part.due != part.may or part.steps is not None:
            return False
        inside = [step for key in part.due for step in probe.data[key].steps]
        places = [(number, place, step) for number, one in probe.numbered.items() if one.key in part.due
                  for place, step in enumerate(one.steps) if one.is_gapless]  # fmt: skip
        for number, place, step in places[:: max(1, len(places) // 4)]:
            try:
                probe.asked("init", partial(probe.init, episode=number, frame=place))
                table = probe.asked("get_all_actions", partial(probe.call, "get_all_actions", **part.options))
            except Refused:
                return False
            actions = read_actions(table, probe.note)[2]
            due = {packed(one.action) for one in inside if packed(one.observation) == packed(step.observation)}
            if {packed(action) for action in actions} != due:
                raise Failed(
                    f"get_all_actions with {part}, after init with episode {number}, frame {place}, returned "
                    f"{len(actions)} actions; the data that fit hold {len(due)} in that state"
                )
        return bool(places)

    def _check_kinds(self, part: _Part) -> None:
        """Check each kind of statistics within a part."""
        probe = self._probe
        data = [probe.data[key] for key in part.due]
        numbered = {number: one for number, one in probe.numbered.items() if one.key in part.due}
        for options, compare in kinds_of(data, numbered):
            if options.get("bins") == 7:
                continue
            try:
                told = probe.asked("statistics", partial(probe.call, "statistics", **part.options, **options))
            except Refused:
                continue
            try:
                compare(told)
            except Failed as wrong:
                raise Failed(f"with {part}, {options}: {wrong.found}", wrong.allowed) from wrong

    def _check_statistics(self, part: _Part, meanings: Meanings) -> bool:
        """Check statistics within a part; return whether its options are taken."""
        probe = self._probe
        if part.due != part.may or part.steps is not None:
            return False
        probe.init()
        try:
            told = probe.asked("statistics", partial(probe.call, "statistics", **part.options))
        except Refused:
            return False
        data = [probe.data[key] for key in part.due]
        try:
            meanings.compare(told, data)
            check_statistics(probe, told, data, part.options.keys())
        except NotTried:
            return False
        except Failed as wrong:
            raise Failed(f"with {part}: {wrong.found}", wrong.allowed) from wrong
        return True

    @check("nothing left", "a filter that leaves nothing is refused", "contract", "filters")
    def nothing_left(self, probe: SourceProbe) -> None:
        nothing = list(self._nothing())
        if not nothing:
            raise NotTried("no filter is taken that can leave nothing")
        for options in nothing:
            words = ", ".join(f"{name}={value!r:.60}" for name, value in options.items())
            for call in (probe.batch, probe.tables):
                probe.init()
                try:
                    answer = call(2, **options)
                except Exception:
                    continue
                raise Failed(f"{words} fits nothing, and {answer!r:.60} came", "it is refused")
            if "statistics" not in probe.ignoring:
                self._check_not_everything(options, words)

    def _nothing(self) -> Iterator[dict[str, object]]:
        """Yield options that fit nothing: values that no data have, and two filters that fit different data."""
        names = {name for part in self._taken for name in part.options}
        far: dict[str, object] = {
            **dict.fromkeys(_LABELS, "no such label"), "episodes": [10**6], "min_steps": 10**7, "max_steps": 0,
            "min_return": 1e12,
        }  # fmt: skip
        yield from ({name: far[name]} for name in sorted(names & far.keys()))
        if "episodes" in names:
            yield {"episodes": []}
        apart: dict[tuple[str, ...], dict[str, object]] = {}
        for one, other in combinations([part for part in self._taken if part.steps is None], 2):
            options = {**one.options, **other.options}
            if len(options) > 1 and not one.may & other.may and "top_fraction" not in options:
                apart.setdefault(tuple(sorted(options)), options)
        yield from apart.values()

    def _check_not_everything(self, options: Mapping[str, object], words: str) -> None:
        """Check that statistics of nothing are not those of everything."""
        probe = self._probe
        probe.init()
        try:
            told = probe.call("statistics", **options)
        except Exception:
            return
        if not deep_difference(probe.call("statistics"), told):
            raise Failed(f"{words} fits nothing, and statistics are as without it", "they are refused, or of nothing")

    @check("stacks", "a stack ends with the step's own frame, after those before it in its episode", "contract",
           "every step", "unknown option")  # fmt: skip
    def stacks(self, probe: SourceProbe) -> None:
        """Compare stacked observations with the data; a missing one is the nearest of its episode."""
        probe.init()
        try:
            batch = probe.asked("sample_steps", partial(probe.batch, BATCH, stack=_STACK))
        except Refused as reason:
            raise NotTried(f"sample_steps takes no stack: {reason}") from None
        if not isinstance(batch, Mapping) or not isinstance(batch.get("observation"), Mapping):
            raise NotTried("a batch of stacks is no single Table 5")
        compared = 0
        for row, one, place in self._probe.found(batch):
            compared += 1
            _check_stack(batch["observation"], row, one, place)
        if not compared:
            raise NotTried("no step of a batch of stacks is found by its frame and action")

    @check("n steps", "an n-step transition has the rewards of n steps, or of fewer at the end, and what they led to",
           "contract", "every step", "unknown option")  # fmt: skip
    def n_steps(self, probe: SourceProbe) -> None:
        """Compare n-step transitions with the data."""
        probe.init()
        factor = discount_of(probe.batch(BATCH))
        factor = self._factor() if factor is None else factor
        try:
            batch = probe.asked("sample_steps", partial(probe.batch, 2 * BATCH, n_step=_N))
        except Refused as reason:
            raise NotTried(f"sample_steps takes no n_step: {reason}") from None
        if not isinstance(batch, Mapping):
            raise NotTried("a batch of n-step transitions is no single Table 5")
        compared = 0
        for row, one, place in self._probe.found(batch):
            compared += 1
            _check_n_steps(batch, row, one, place, factor)
        if not compared:
            raise NotTried("no step of a batch of n-step transitions is found by its frame and action")

    def _factor(self) -> float | None:
        """Return the discount that two-step rewards show; None if they show none, or are taken for no window."""
        probe = self._probe
        probe.init()
        try:
            batch = probe.asked("sample_steps", partial(probe.batch, BATCH, n_step=2))
        except Refused:
            return None
        shown = list[float]()
        for row, one, place in probe.found(batch) if isinstance(batch, Mapping) else ():
            first, second = (sum(float(value) for _, value in _agents(step.reward))
                             for step in (one.steps * 2)[place : place + 2])  # fmt: skip
            if place + 1 < len(one.steps) and abs(second) > 1e-3:
                told = sum(float(column[row]) for _, column in _agents(batch["reward"]))
                shown.append((told - first) / second)
        return float(np.median(shown)) if shown else None

    @check(
        "labels",
        "trajectories have the label of their source, where the data have one",
        "B.2.2.3-2",
        "ownership",
        "unknown option",
    )
    def labels(self, probe: SourceProbe) -> None:
        told = 0
        for label in _SOURCES:
            probe.init()
            try:
                drawn = probe.asked("sample_trajectories", partial(probe.trajectories, 4, source=label))
            except Refused:
                continue
            for one in drawn:
                told += 1
                if not _is_labelled(one.extra_info, label):
                    raise Failed(
                        f"trajectory {one.trajectory_id} came for source={label!r}, and its extra_info "
                        f"{dict(one.extra_info)!r:.120} does not say so",
                        "it has a label of its source",
                    )
        if not told:
            probe.note("B.2.2.3-2", "no trajectory is drawn by a label of its source; here the option is source")
            raise NotTried("trajectories are not drawn by the labels " + ", ".join(_SOURCES))


def _check_stack(observation: Mapping[str, Unchecked], row: int, one: Trajectory, place: int) -> None:
    frames = [one.steps[max(0, place - _STACK + 1 + back)].observation for back in range(_STACK)]
    for name, value in observation.items():
        due = np.stack([np.asarray(frame[name]) for frame in frames])
        came = np.asarray(value[row])
        if came.shape != due.shape or packed({name: came}) != packed({name: due}):
            raise Failed(f"observation.{name} in a stack of {_STACK} is {came.tolist()!r:.100} for step {place} of "
                         f"{one.env_id}", f"it is {due.tolist()!r:.100}: its own frame last, and the nearest one for "
                         "those before its episode")  # fmt: skip


def _check_n_steps(batch: Mapping[str, Unchecked], row: int, one: Trajectory, place: int, factor: float | None) -> None:
    steps = one.steps[place : place + _N]
    what = f"{_N} steps from step {place} of {len(one.steps)} of {one.env_id}"
    for agent, column in _agents(batch["reward"]):
        rewards = np.array([dict(_agents(step.reward)).get(agent, 0.0) for step in steps], float)
        due = None if factor is None else float(rewards @ factor ** np.arange(len(steps)))
        told = float(column[row])
        if due is not None and not math.isclose(told, due, rel_tol=1e-5, abs_tol=1e-6):
            raise Failed(
                f"the reward {agent}of {what} is {told:.6g}", f"the discounted sum of {len(steps)} is {due:.6g}"
            )
    if "next_observation" in batch and steps[-1].next_observation is not None:
        came = {name: np.asarray(value[row]) for name, value in batch["next_observation"].items()}
        if packed(came) != packed(steps[-1].next_observation):
            raise Failed(f"next_observation of {what} is not that of the last of them")
    if "done" in batch and steps[-1].done is not None and int(batch["done"][row]) != steps[-1].done:
        raise Failed(f"done of {what} is {int(batch['done'][row])}", f"it is {steps[-1].done}, as of the last of them")

    kinds = batch.get("extra_info", {})
    for kind in ("terminated", "truncated"):
        if kind in kinds and kind in one.extra_info:
            is_end = place + _N >= len(one.steps) and bool(one.extra_info[kind])
            if bool(np.asarray(kinds[kind])[row]) != is_end:
                raise Failed(f"{kind} of {what} is {np.asarray(kinds[kind])[row]}", "it is that of the last of them")


def _agents(reward: Unchecked) -> list[tuple[str, Unchecked]]:
    """Return rewards by the words for their agents; one reward has no words."""
    return (
        [(f"of {agent} ", value) for agent, value in reward.items()] if isinstance(reward, Mapping) else [("", reward)]
    )


def _is_labelled(extra: Mapping[str, Unchecked], label: str) -> bool:
    return label in [value for value in extra.values() if isinstance(value, str)] or (
        label == "expert" and extra.get("expert") in (True, 1)
    )


# -- the filters ---------------------------------------------------------------------------------------------------


def _parts(probe: SourceProbe) -> Iterator[_Part]:
    """Yield the filters of docs/source-data.md with values of these data, and what fits them."""
    data = probe.data
    passes: list[tuple[dict[str, object], Callable[[Trajectory], bool]]] = []
    lengths = sorted(len(one.steps) for one in data.values())
    middle = lengths[len(lengths) // 2]
    if all(one.is_gapless for one in data.values()):
        passes += [({"min_steps": middle}, lambda one: len(one.steps) >= middle),
                   ({"max_steps": middle}, lambda one: len(one.steps) <= middle)]  # fmt: skip
    for name in _LABELS:
        words = sorted({word for one in data.values() if isinstance(word := one.extra_info.get(name), str)})
        passes += [({name: word}, partial(_has, name, (word,))) for word in words[:3]]
        passes += [({name: words[:2]}, partial(_has, name, words[:2]))]
    for name in ("expert", "success"):
        if all(isinstance(one.extra_info.get(name), bool | np.bool_) for one in data.values()):
            passes += [({name: value}, partial(_has, name, (value,))) for value in (True, False)]
    numbers = {id(one): number for number, one in probe.numbered.items()}
    for chosen in (sorted(numbers.values())[1::2], sorted(numbers.values())[:1], sorted(numbers.values())[-2:]):
        passes += [({"episodes": chosen}, partial(_is_among, numbers, chosen))]
    if sorted(numbers.values()) == list(range(len(data))):
        passes += [({"episodes": slice(1, 3)}, lambda one: 1 <= numbers[id(one)] < 3)]
    limit = probe.middle_return
    passes += [({"min_return": limit}, lambda one: one.total >= limit - 1e-9)]
    for options, fits in passes:
        keys = frozenset(key for key, one in data.items() if fits(one))
        if keys:
            yield _Part(options, keys, keys)
    yield from _best(data)
    yield from _near([step for one in data.values() for step in one.steps])


def _has(name: str, values: Collection[object], one: Trajectory) -> bool:
    return one.extra_info.get(name) in values


def _is_among(numbers: Mapping[int, int], chosen: Collection[int], one: Trajectory) -> bool:
    return numbers.get(id(one)) in chosen


def _best(data: Mapping[Key, Trajectory]) -> Iterator[_Part]:
    """Yield shares with the highest returns; equal returns at the border may be on either side."""
    ranked = sorted(data, key=lambda key: -data[key].total)
    for share in (0.25, 0.5):
        least, most = max(1, math.floor(share * len(ranked))), max(1, math.ceil(share * len(ranked)))
        outside = data[ranked[least]].total if least < len(ranked) else -math.inf
        yield _Part(
            {"top_fraction": share},
            frozenset(key for key in ranked if data[key].total > outside + 1e-9),
            frozenset(key for key in ranked if data[key].total >= data[ranked[most - 1]].total - 1e-9),
        )


def _near(steps: list[Step]) -> Iterator[_Part]:
    """Yield the steps of one state, and those of one state and action."""
    for step in steps[:: max(1, len(steps) // 2)]:
        for names in (("observation",), ("observation", "action")):
            value = {name: dict(getattr(step, name)) for name in names}
            fits = frozenset(other.content for other in steps
                             if all(packed(getattr(other, n)) == packed(getattr(step, n)) for n in names))  # fmt: skip
            yield _Part({"near": {**value, "tolerance": 0.0}}, frozenset(), frozenset(), fits)


def _together(parts: list[_Part], data: Mapping[Key, Trajectory]) -> Iterator[_Part]:
    """Yield pairs of filters that show if one of the two is lost."""
    pairs: dict[tuple[object, ...], _Part] = {}
    for one, other in combinations([part for part in parts if part.steps is None], 2):
        options, keys = {**one.options, **other.options}, one.due & other.due
        lost = keys != one.due, keys != other.due
        is_share = "top_fraction" in options  # of what the other filters leave
        if len(options) > 1 and keys and any(lost) and not is_share:
            pairs.setdefault((*options, lost), _Part(options, keys, keys))
    yield from pairs.values()
    for one in _smallest([part for part in parts if part.steps is None and part.due == part.may and len(part.due) > 1]):
        if "top_fraction" not in one.options:
            *_, best = _best({key: data[key] for key in one.due})
            yield _Part({**one.options, **best.options}, best.due, best.may)


def _smallest(parts: list[_Part]) -> list[_Part]:
    """Return of the parts with the same options the smallest one."""
    return [*{tuple(part.options): part for part in sorted(parts, key=lambda part: -len(part.due))}.values()]
