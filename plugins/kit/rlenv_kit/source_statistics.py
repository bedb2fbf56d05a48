"""Compare statistics of a source with its data, and learn from those of all data what their entries mean (R3.6)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from rlenv_kit.report import Failed, NotTried
from rlenv_kit.source_probe import SourceProbe
from rlenv_kit.source_tables import Step, Trajectory, read_trajectory
from rlenv_kit.tables import Unchecked

__all__ = ["Meanings", "check_statistics", "kinds_of"]

_GROUPS = ("observation", "action", "reward")

_MOMENTS: Mapping[str, Callable[[np.ndarray], Unchecked]] = {
    "mean": lambda values: values.mean(axis=0),
    "std": lambda values: values.std(axis=0),
    "min": lambda values: values.min(axis=0),
    "max": lambda values: values.max(axis=0),
    "median": lambda values: np.median(values, axis=0),
}


def check_statistics(probe: SourceProbe, told: Unchecked, data: list[Trajectory], asked: Collection[str] = ()) -> None:
    """Compare statistics with data.

    Args:
        probe: takes remarks.
        told: as the source returned them.
        data: the trajectories that they describe.
        asked: names of the options that were given; statistics may repeat them.

    Raises:
        Failed: the statistics are wrong.
        NotTried: nothing in them can be compared.
    """
    if isinstance(told, Sequence) and not isinstance(told, str | bytes):
        known = {step.content for one in data for step in one.steps}
        for table in told:
            if any(step.content not in known for step in read_trajectory(table, probe.note).steps):
                raise Failed("statistics returned a trajectory that is not in the data")
        return
    if isinstance(told, int | float | np.number):
        told = {"value": told}
    if not isinstance(told, Mapping):
        raise Failed(f"statistics returned a {type(told).__name__}", "it must return trajectories or scalars")
    compared = _compare_counts(told, data) + _compare_bare(told, data)
    for names, values in _figures(data).items():
        for found in _entries(told, names):
            compared += 1
            _compare(names[0], found, values)
        for moment in _MOMENTS:
            for key in {f"{moment}_{name}" for name in names} | {f"{name}_{moment}" for name in names}:
                if isinstance(told.get(key), int | float | np.number) and key not in asked:
                    compared += 1
                    _compare(names[0], {moment: told[key]}, values)
    if not compared:
        raise NotTried("statistics name no figure that can be compared: episodes, steps, returns, lengths, fields")


def _compare(name: str, told: Unchecked, values: np.ndarray) -> None:
    if isinstance(told, list | tuple | np.ndarray):
        if len(told) != len(values) or not _is_close(np.sort(np.asarray(told, float)), np.sort(values)):
            raise Failed(f"statistics list {np.asarray(told).tolist()!r:.80} as {name}", f"those of the samples are "
                         f"{np.sort(values).tolist()!r:.80}")  # fmt: skip
        return
    if not isinstance(told, Mapping):
        if told != len(values):
            raise Failed(f"statistics say {told} {name}, the data have {len(values)}")
        return
    for moment, function in _MOMENTS.items():
        if told.get(moment) is not None:
            expected = function(values)
            if not _is_close(told[moment], expected):
                raise Failed(f"statistics say {moment} {np.asarray(told[moment]).tolist()} of {name}",
                             f"that of the samples is {np.asarray(expected).tolist()}")  # fmt: skip


def _is_close(told: Unchecked, expected: Unchecked) -> bool:
    array = np.asarray(told, float)
    return array.shape == np.shape(expected) and np.allclose(array, expected, rtol=1e-5, atol=1e-6)


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
        figures["reward", "rewards"] = np.array([step.reward for step in steps], float)
    else:
        for agent in sorted({agent for step in steps if isinstance(step.reward, Mapping) for agent in step.reward}):
            rewards = [np.array([_of_agent(step, agent) for step in one.steps]) for one in data]
            figures[f"returns.{agent}", f"return_{agent}"] = np.array([one.sum() for one in rewards])
            figures[f"reward.{agent}", f"reward_{agent}"] = np.concatenate(rewards)
    for group in ("observation", "action"):
        for name, first in getattr(steps[0], group).items():
            if np.asarray(first).dtype.kind not in "biuf":  # texts have no moments
                continue
            values = np.stack([np.asarray(getattr(step, group)[name], float) for step in steps])
            figures[f"{group}.{name}", f"{group}_{name}"] = values
    return figures


def _of_agent(step: Step, agent: str) -> float:
    return step.reward.get(agent, 0.0) if isinstance(step.reward, Mapping) else math.nan


def _entries(told: Mapping[str, Unchecked], names: tuple[str, ...]) -> Iterator[Unchecked]:
    """Yield what statistics hold under the names, here or in ``fields``: moments, a count, or a list of numbers."""
    for part in (told, told.get("fields")):
        for name in names:
            found = part.get(name) if isinstance(part, Mapping) else None
            listed = isinstance(found, list | np.ndarray) and names[0] in ("lengths", "returns")
            if listed or (isinstance(found, Mapping | int | np.integer) and not isinstance(found, bool)):
                yield found


def _compare_counts(told: Mapping[str, Unchecked], data: list[Trajectory]) -> int:
    """Compare entries that count the values of a field, such as ``{"0": 3, "1": 5}``; return how many there are."""
    compared = 0
    for group in ("observation", "action"):
        values: dict[str, Counter[str]] = {}
        for step in (step for one in data for step in one.steps):
            for name, value in getattr(step, group).items():
                if np.ndim(value) == 0:
                    values.setdefault(name, Counter())[_word(value)] += 1
        for name, due in values.items():
            for key in (name, f"{name}s", f"{group}.{name}"):
                found = told.get(key)
                if not isinstance(found, Mapping) or not found or not {_word(one) for one in found} <= due.keys():
                    continue
                compared += 1
                if Counter({_word(one): number for one, number in found.items()}) != due:
                    raise Failed(f"statistics count {dict(found)} of {group}.{name}", f"the samples have {dict(due)}")
    return compared


def _compare_bare(told: Mapping[str, Unchecked], data: list[Trajectory]) -> int:
    """Compare moments under the bare name of a field, and counts of texts; return how many entries there are.

    They may be of the steps' observations, of the next ones, or of all frames.
    """
    compared = 0
    steps = [step for one in data for step in one.steps]
    names = Counter([*steps[0].observation, *steps[0].action])
    for name, first in steps[0].observation.items():
        frames = [np.asarray(step.observation[name]) for step in steps]
        last = [one.steps[-1].next_observation for one in data]
        ends = [np.asarray(end[name]) for end in last if end is not None]
        variants = [frames, [*frames, *ends]] if len(ends) == len(data) else [frames]
        if np.asarray(first).dtype.kind in "biuf":
            found = told.get(name)
            if names[name] == 1 and isinstance(found, Mapping) and {"mean", "min", "max"} <= found.keys():
                compared += 1
                _compare_any(found, [np.stack(values).astype(float) for values in variants], name)
        elif np.ndim(first) == 0:
            counts = [Counter(map(str, values)) for values in variants]
            for key, found in told.items():
                whole = isinstance(found, Mapping) and all(isinstance(one, int | np.integer) for one in found.values())
                if whole and len(counts[0]) > 2 and counts[0].keys() <= found.keys():
                    compared += 1
                    if not any(+Counter(found) == +due for due in counts):
                        raise Failed(f"statistics count {dict(found)!r:.100} as {key}",
                                     f"of observation.{name} the samples have {dict(counts[0])!r:.100}")  # fmt: skip
    return compared


def _compare_any(told: Mapping[str, Unchecked], variants: list[np.ndarray], name: str) -> None:
    wrong: Failed | None = None
    for values in variants:
        try:
            _compare(name, told, values)
        except Failed as reason:
            wrong = wrong or reason
        else:
            return
    if wrong:
        raise wrong


def _word(value: Unchecked) -> str:
    """Return a value as a key of JSON data: 2 and 2.0 are one."""
    number = isinstance(value, int | float | np.number | np.bool_)
    return f"{float(value):g}" if number else str(np.asarray(value).item())


def _check_numbered(name: str, numbers: Unchecked, values: Unchecked, due: Mapping[int, float]) -> None:
    """Check values that stand beside the numbers of their episodes."""
    if not isinstance(numbers, list | np.ndarray) or len(numbers) != len(values) or set(numbers) - due.keys():
        return
    for number, value in zip(numbers, values, strict=True):
        if not _is_close(value, due[number]):
            raise Failed(
                f"statistics say the {name} {value} of episode {number}", f"that of its steps is {due[number]}"
            )


def _of_returns(told: Unchecked, data: list[Trajectory], numbered: Mapping[int, Trajectory]) -> None:
    if isinstance(told, Mapping) and any(isinstance(step.reward, Mapping) for one in data for step in one.steps):
        for key in ("return", "returns"):
            for agent, listed in told[key].items() if isinstance(told.get(key), Mapping) else ():
                sums = {id(one): sum(_of_agent(step, agent) for step in one.steps) for one in data}
                if isinstance(listed, list | np.ndarray):
                    _compare(f"returns of {agent}", listed, np.array([*sums.values()]))
                    due = {number: sums[id(one)] for number, one in numbered.items() if id(one) in sums}
                    _check_numbered(f"return of {agent}", told.get("episode"), listed, due)
    elif isinstance(told, Mapping):
        returns = np.array([one.total for one in data])
        for key in ("return", "returns"):
            if isinstance(told.get(key), list | np.ndarray):
                _compare("returns", told[key], returns)
                totals = {number: one.total for number, one in numbered.items()}
                _check_numbered("return", told.get("episode"), told[key], totals)
        _compare("returns", {name: told.get(name) for name in _MOMENTS}, returns)


def _of_episodes(told: Unchecked, data: list[Trajectory], numbered: Mapping[int, Trajectory]) -> None:
    entries = told.get("episodes") if isinstance(told, Mapping) else told
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return
    for key, values in (("length", [len(one.steps) for one in data]), ("return", [one.total for one in data])):
        if len(entries) != len(data) or all(isinstance(entry.get(key), int | float) for entry in entries):
            listed = [entry.get(key, 0) for entry in entries]
            _compare(f"{key}s", listed, np.array(values, float))
            due = {number: float(len(one.steps) if key == "length" else one.total) for number, one in numbered.items()}
            _check_numbered(key, [entry.get("episode") for entry in entries], listed, due)


def _of_histogram(values: np.ndarray, told: Unchecked) -> None:
    """Check counts (elements, bins) and edges (elements, bins + 1), or those of a single element without its axis."""
    if not isinstance(told, Mapping) or not {"counts", "edges"} <= told.keys():
        return
    columns = values.reshape(len(values), -1).T
    counts, edges = (np.atleast_2d(np.asarray(told[key], float)) for key in ("counts", "edges"))
    if len(counts) != len(columns) or len(edges) != len(columns):
        raise Failed(f"a histogram has counts of shape {counts.shape} and edges of shape {edges.shape}",
                     f"they have one row for each of {len(columns)} elements")  # fmt: skip
    for column, numbers, bounds in zip(columns, counts, edges, strict=True):
        width = 1e-6 * max(float(np.ptp(bounds)), 1e-9)  # a value on an edge may be in either bin
        sure = [np.sum((column > low + width) & (column < high - width)) for low, high in pairwise(bounds)]
        most = [np.sum((column >= low - width) & (column <= high + width)) for low, high in pairwise(bounds)]
        if numbers.sum() != len(column) or (numbers < sure).any() or (numbers > most).any():
            raise Failed(
                f"a histogram counts {numbers.astype(int).tolist()} values from {bounds[0]:g} to {bounds[-1]:g}",
                f"there are {len(column)}, in the bins {np.array(most).tolist()}",
            )


def kinds_of(
    data: list[Trajectory], numbered: Mapping[int, Trajectory]
) -> Iterator[tuple[dict[str, object], Callable[[Unchecked], None]]]:
    """Yield options of the kinds of statistics that the data explain, and what compares each answer with the data.

    Args:
        data: the trajectories that are described.
        numbered: the trajectories by the numbers of their episodes.
    """
    yield {"kind": "returns"}, lambda told: _of_returns(told, data, numbered)
    yield {"kind": "episodes"}, lambda told: _of_episodes(told, data, numbered)
    for names, values in _figures(data).items():
        if names[0].partition(".")[0] in _GROUPS:
            for bins in (4, 7):
                yield {"kind": "histogram", "field": names[0], "bins": bins}, partial(_of_histogram, values)


class Meanings:
    """Compare statistics of a part by what the same entries mean in all data, whatever their names are.

    An entry that is the mean or the deviation of some values of all data is that of the part's values within a filter;
    and counts that add up to the number of steps do so within a filter too.

    Args:
        told: statistics without a filter.
        data: all trajectories.
    """

    def __init__(self, told: Unchecked, data: list[Trajectory]) -> None:
        self._names: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        self._counts: list[tuple[str, ...]] = []
        figures, steps = _figures(data), sum(len(one.steps) for one in data)
        moments = {(names, moment): _MOMENTS[moment](values) for names, values in figures.items()
                   for moment in ("mean", "std") if np.ptp(values, axis=0).all()}  # fmt: skip
        for path, value in _leaves(told):
            if isinstance(value, Counter):
                if value.total() == steps != len(data) and len(value) > 1:
                    self._counts.append(path)
                continue
            if (np.abs(value - np.round(value, 2)) > 1e-9).any():
                found = [(*names, moment) for (names, moment), due in moments.items() if _is_close(value, due)]
                self._names |= {path: found} if found else {}

    def compare(self, told: Unchecked, part: list[Trajectory]) -> None:
        """Compare statistics within a filter with the data that fit it.

        Raises:
            Failed: an entry is not of the part.
        """
        leaves, figures = dict(_leaves(told)), _figures(part)
        steps = sum(len(one.steps) for one in part)
        for path, names in self._names.items():
            value = leaves.get(path)
            if value is None or isinstance(value, Counter):
                continue
            due = [_MOMENTS[moment](figures[tuple(of)]) for *of, moment in names if tuple(of) in figures]
            if due and not any(_is_close(value, one) for one in due):
                raise Failed(f"statistics say {'.'.join(path)} {value.tolist()}, which is of {names[0][0]} in all data",
                             f"that of the part is {np.asarray(due[0]).tolist()}")  # fmt: skip
        for path in self._counts:
            value = leaves.get(path)
            if isinstance(value, Counter) and value.total() != steps:
                raise Failed(f"the counts of {'.'.join(path)} add up to {value.total()}",
                             f"those of all data add up to their number of steps; the part has {steps}")  # fmt: skip


def _leaves(told: Unchecked, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Unchecked]]:
    """Yield the numbers in statistics as arrays, and counts, each with the keys that lead to it."""
    if isinstance(told, Mapping):
        values = list(told.values())
        if values and all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in values) and path:
            yield path, Counter({str(key): int(one) for key, one in told.items()})
        for key, value in told.items():
            yield from _leaves(value, (*path, str(key)))
    elif isinstance(told, list | tuple | np.ndarray) and len(told) and np.ndim(told[0]) == 0:
        if all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in told):
            yield path, Counter({str(place): int(one) for place, one in enumerate(told)})
        elif all(isinstance(one, int | float | np.number) for one in told):
            yield path, np.asarray(told, float)
    elif isinstance(told, float | np.floating):
        yield path, np.asarray(told, float)
