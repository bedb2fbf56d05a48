"""Compare the chances of a source's draws by priority with the values that the priorities name (R3.3, R3.4, R6.2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from rlenv_kit.report import Failed
from rlenv_kit.source_probe import Refused, SourceProbe
from rlenv_kit.source_tables import Trajectory, discount_of, read_steps
from rlenv_kit.tables import Unchecked

__all__ = [
    "SIGMAS",
    "all_alike",
    "by_powers",
    "check_once",
    "check_part",
    "check_step_chances",
    "check_trajectory_chances",
    "unlikely",
]

_FACTORS = (*np.round(np.arange(0.5, 1.0, 0.01), 2).tolist(), 0.995, 0.998, 0.999, 1.0)
"""Discounts of one step that a source may use without telling it."""

_DRAWS = 60
"""Draws for each step, from which chances show."""

_DRAWS_OF_A_PART = 40

_MOST_DRAWS = 20_000

_EXACT, _NEAR = 1e-3, 1e-2
"""Share of all chances that may lie off the order of the values: by known values, and by a discount that is a guess."""

_SAME = 1e-9
"""Difference of values that sums of the same rewards may have."""

SIGMAS = 6.0
"""Deviation from its mean, in standard deviations, from which a count is no chance: 2e-9."""

Values = Mapping[bytes, float]


def check_step_chances(probe: SourceProbe, priority: str) -> bool:
    """Compare draws of steps by a priority with the steps' values.

    Args:
        probe: of the source.
        priority: ``return``, ``reward`` or ``advantage``.

    Returns:
        Whether the priority is taken.

    Raises:
        Failed: chances do not grow with the values that the priority names, or are equal.
    """
    try:
        _check_chances(probe, priority, {}, list(probe.data.values()))
    except Refused:
        return False
    return True


def check_part(probe: SourceProbe, priority: str) -> None:
    """Compare draws of steps by a priority within a filter with the values of the steps that fit it.

    Raises:
        Failed: as for `check_step_chances`.
    """
    numbers, limit = sorted(probe.numbered)[1::2], probe.middle_return
    parts: list[tuple[dict[str, object], list[Trajectory]]] = [
        ({"episodes": numbers}, [probe.numbered[number] for number in numbers]),
        ({"min_return": limit}, [one for one in probe.data.values() if one.total >= limit - 1e-9]),
    ]
    for options, data in parts:
        if priority != "advantage" and 1 < len(data) < len(probe.data):  # a baseline may be of all data
            probe.init()
            try:
                _check_chances(probe, priority, options, data)
            except Refused:
                continue
            except Failed as wrong:
                words = ", ".join(f"{name}={value!r:.40}" for name, value in options.items())
                raise Failed(f"with {words}: {wrong.found}", wrong.allowed) from wrong
            return


def check_once(probe: SourceProbe, priority: str) -> None:
    """Check that draws without replacement prefer high values too.

    Raises:
        Failed: they are even.
    """
    told = discount_of(probe.batch(64))
    values = list(_MEANINGS[priority](list(probe.data.values()), told))[-1]
    column = np.array([values[content] for content in values])
    size = len(values) // 4
    if size < 1 or len(values) < len(probe.contents) or column.min() < 0 or column.max() <= 0:
        return
    rounds = max(1, 800 // size)
    shift, error = column.var() / column.mean(), column.std() / math.sqrt(rounds * size)
    if shift < 8 * error:
        return
    probe.init()
    drawn = list[float]()
    for _ in range(rounds):
        try:
            batch = probe.asked("sample_steps", partial(probe.batch, size, priority=priority, replace=False))
        except Refused:
            return
        drawn += [values.get(step.content, 0.0) for step in read_steps(batch)]
    if np.mean(drawn) < column.mean() + 0.3 * shift:
        raise Failed(f"the mean value of {len(drawn)} draws by {priority} without replacement is "
                     f"{np.mean(drawn):.4g}, that of all steps {column.mean():.4g}",
                     "a priority prefers high values without replacement too")  # fmt: skip


def _check_chances(probe: SourceProbe, priority: str, options: Mapping[str, object], data: list[Trajectory]) -> None:
    """Compare draws of steps by a priority and a filter with the values of the trajectories that fit it."""
    known = Counter(step.content for one in data for step in one.steps)
    contents, weights = _drawn(probe, priority, options, known)
    counts = {content: 0 for content in known if known[content] == 1} | {
        content: count for content, count in Counter(contents).items() if known.get(content) == 1
    }
    told = discount_of(probe.batch(64))
    candidates = [{content: value for content, value in values.items() if content in counts}
                  for values in _MEANINGS[priority](data, told)]  # fmt: skip
    if min(map(len, candidates)) < 3:
        return
    chances = None
    if weights is not None and np.isfinite(weights).all() and (weights > 0).all():
        chances = {content: 1 / weight for content, weight in zip(contents, weights.tolist(), strict=True)
                   if content in counts}  # fmt: skip
    limit = _EXACT if priority == "reward" or told is not None else _NEAR
    _judge(probe, f"steps by {priority}", candidates, counts, chances, limit)


def check_trajectory_chances(probe: SourceProbe, priority: str, drawn: list[Trajectory]) -> None:
    """Compare trajectories that were drawn by return, or by reward, with their returns.

    Args:
        probe: of the source.
        priority: ``return`` or ``reward``, which is the return too, or its mean.
        drawn: the trajectories.

    Raises:
        Failed: chances do not grow with the undiscounted returns, or the weights do not undo them.
    """
    names = {key: repr(key).encode() for key in probe.data}
    counts: dict[bytes, int] = dict.fromkeys(names.values(), 0)
    weights: dict[bytes, float] = {}
    for one in drawn:
        if one.key not in names:
            return
        counts[names[one.key]] += 1
        weight = one.extra_info.get("weight")
        if isinstance(weight, float | np.floating) and weight > 0:
            weights[names[one.key]] = float(weight)
    told = len(weights) == sum(count > 0 for count in counts.values()) and len({*weights.values()}) > 1
    chances = {name: 1 / weight for name, weight in weights.items()} if told else None
    if chances is not None:
        total = sum(chances.values())
        gap = _gap(counts, {name: chances.get(name, 0.0) / total * len(drawn) for name in counts})
        if gap > _limit(len(counts)):
            raise Failed("the weights of trajectories that are drawn by return do not undo their chances",
                         "with beta=1 the weights undo the priorities")  # fmt: skip
    values = [{names[key]: one.total for key, one in probe.data.items()}]
    if priority == "reward":
        values += [{names[key]: one.total / len(one.steps) for key, one in probe.data.items()}]
    _judge(probe, f"trajectories by {priority}", values, counts, chances, _EXACT)


def all_alike(data: list[Trajectory], priority: str) -> bool:
    """Return whether a priority has one value for all steps, without a discount."""
    return any(np.ptp(list(values.values())) < _SAME for values in _MEANINGS[priority](data, 1.0))


def by_powers(one: Mapping[bytes, float], other: Mapping[bytes, float], power: float) -> bool:
    """Return whether chances, each up to a factor, are powers of others, for the items of both."""
    shared = [item for item in one.keys() & other.keys() if one[item] > 0 and other[item] > 0]
    gaps = [math.log(other[item]) - power * math.log(one[item]) for item in shared]
    return not gaps or max(gaps) - min(gaps) < 0.05


# -- draws ---------------------------------------------------------------------------------------------------------


def _drawn(
    probe: SourceProbe, priority: str, options: Mapping[str, object], known: Counter[bytes]
) -> tuple[list[bytes], np.ndarray | None]:
    """Return the contents of steps that were drawn by a priority, and the weights that undo it, where they are told."""
    count = min(_MOST_DRAWS, (_DRAWS_OF_A_PART if options else _DRAWS) * known.total())
    draw = partial(probe.batch, count, priority=priority, **options)
    try:
        batch, is_told = probe.asked("sample_steps", partial(draw, beta=1.0)), True
    except Refused:
        batch, is_told = probe.asked("sample_steps", draw), False
    extra = batch.get("extra_info") if isinstance(batch, Mapping) else None
    weights = extra.get("weights") if is_told and isinstance(extra, Mapping) else None
    contents = [step.content for step in read_steps(batch)]
    if weights is None:
        return contents, None
    _check_weights(known, contents, np.asarray(weights, float))
    return contents, np.asarray(weights, float)


def _check_weights(known: Counter[bytes], contents: list[bytes], weights: np.ndarray) -> None:
    """Check that importance weights undo exactly the chances with which steps were drawn."""
    if not np.isfinite(weights).all() or (weights <= 0).any():
        raise Failed(f"weights lie from {weights.min()} to {weights.max()}", "they are finite, and above 0")
    chances = {content: known[content] / weight for content, weight in zip(contents, weights.tolist(), strict=True)}
    total = sum(chances.values())
    if worst := unlikely(Counter(contents), {content: value / total for content, value in chances.items()}):
        raise Failed(f"a step came {worst[0]} times in {len(contents)} draws, by its weight {worst[1]:.1f} times",
                     "with beta=1 the weights undo the priorities")  # fmt: skip


# -- values that priorities name -----------------------------------------------------------------------------------


def _rewards(one: Trajectory) -> np.ndarray:
    """Return the rewards of a trajectory's steps; of several agents their sums."""
    return np.array([sum(step.reward.values()) if isinstance(step.reward, Mapping) else step.reward
                     for step in one.steps], float)  # fmt: skip


def _to_go(one: Trajectory, factor: float) -> np.ndarray:
    sums, total = _rewards(one), 0.0
    for place in range(len(sums) - 1, -1, -1):
        sums[place] = total = sums[place] + factor * total
    return sums


def _by_content(data: list[Trajectory], values: list[np.ndarray]) -> dict[bytes, float]:
    return {step.content: value for one, column in zip(data, values, strict=True)
            for step, value in zip(one.steps, column.tolist(), strict=True)}  # fmt: skip


def _of_reward(data: list[Trajectory], told: float | None) -> Iterator[Values]:
    yield _by_content(data, [_rewards(one) for one in data])


def _of_return(data: list[Trajectory], told: float | None) -> Iterator[Values]:
    for factor in _FACTORS if told is None else (told,):
        yield _by_content(data, [_to_go(one, factor) for one in data])
    if told is None:  # nothing but the word says what the return of a step is
        yield _by_content(data, [np.full(len(one.steps), one.total) for one in data])


def _of_advantage(data: list[Trajectory], told: float | None) -> Iterator[Values]:
    for factor in _FACTORS if told is None else (told,):
        sums = [_to_go(one, factor) for one in data]
        places = [[step.frame_no for step in one.steps] for one in data]
        for times in (places, [list(range(len(one.steps))) for one in data]):
            there: dict[int, list[float]] = {}
            for column, numbers in zip(sums, times, strict=True):
                for value, number in zip(column.tolist(), numbers, strict=True):
                    there.setdefault(number, []).append(value)
            yield _by_content(data, [column - [np.mean(there[number]) for number in numbers]
                                     for column, numbers in zip(sums, times, strict=True)])  # fmt: skip
            if times == [list(range(len(one.steps))) for one in data]:
                break


_MEANINGS: Mapping[str, Callable[[list[Trajectory], float | None], Iterator[Values]]] = {
    "reward": _of_reward, "return": _of_return, "advantage": _of_advantage,
}  # fmt: skip
"""Priority -> what it may stand for, of each step."""


# -- judgement -----------------------------------------------------------------------------------------------------


def _judge(
    probe: SourceProbe,
    words: str,
    candidates: list[dict[bytes, float]],
    counts: Mapping[bytes, int],
    chances: Mapping[bytes, float] | None,
    share: float,
) -> None:
    """Compare counts, and chances where they are known, with the values that they may follow.

    Args:
        probe: takes remarks.
        words: what was drawn, by what.
        candidates: values, of which one explains the draws.
        counts: item -> how often it came.
        chances: item -> its chance, up to a common factor; None if the source gives no weights.
        share: of all chances that may lie off the order of the values.
    """
    limit, draws = _limit(len(counts)), sum(counts.values())
    values = candidates[-1]
    low, high = min(values.values()), max(values.values())
    if high - low < 1e-9:
        return
    even, power = draws / len(counts), 0.0
    is_even = high > 0 and chances is not None and np.ptp(list(chances.values())) < 1e-9 * max(chances.values())
    if chances is None and _gap(counts, dict.fromkeys(counts, even)) <= limit:
        if low < 0 < high:
            probe.note("contract", f"draws of {words} are even; some of the values are negative")
            return
        if low >= 0:  # whether chances in proportion to the values would show
            total = sum(values.values())
            power = sum((value / total * draws - even) ** 2 / even for value in values.values())
        is_even = power > 4 * limit
    if is_even:
        raise Failed(f"{draws} draws of {words} are even, and the values lie from {low:.4g} to {high:.4g}",
                     "a priority that is taken prefers high values")  # fmt: skip
    if min(_gap(counts, _rising(one, counts)) for one in candidates) > limit:
        raise Failed(f"{draws} draws of {words} do not follow these values: steps or trajectories of a lower one come "
                     "more often", "equal values have equal chances, and higher ones no lower chances")  # fmt: skip
    if chances is not None:
        known = [{item: value for item, value in one.items() if item in chances} for one in candidates]
        total = sum(chances.values())
        off = min(sum(abs(chances[item] - fit) for item, fit in _rising(one, chances).items()) for one in known)
        if off > share * total:
            raise Failed(f"by their weights, draws of {words} do not follow these values: {off / total:.1%} of the "
                         "chances are out of order",
                         "equal values have equal chances, and higher ones no lower chances")  # fmt: skip


def _rising(values: Mapping[bytes, float], sizes: Mapping[bytes, float]) -> dict[bytes, float]:
    """Return the sizes that rise with the values and are nearest to some, by pooling adjacent violators."""
    ranked = sorted(values, key=values.__getitem__)
    blocks: list[tuple[float, int, list[bytes]]] = []  # of equal values: sum and number of sizes, items
    last = math.nan
    for item in ranked:
        if abs(values[item] - last) <= 1e-9 * max(1.0, abs(last)):
            total, count, items = blocks[-1]
            blocks[-1] = (total + sizes[item], count + 1, [*items, item])
        else:
            blocks.append((float(sizes[item]), 1, [item]))
        last = values[item]
    pooled: list[tuple[float, int, list[bytes]]] = []
    for block in blocks:
        pooled.append(block)
        while len(pooled) > 1 and pooled[-2][0] * pooled[-1][1] > pooled[-1][0] * pooled[-2][1]:
            (total, count, items), (more, further, others) = pooled[-2:]
            pooled[-2:] = [(total + more, count + further, items + others)]
    return {item: total / count for total, count, items in pooled for item in items}


def _gap(counts: Mapping[bytes, int], due: Mapping[bytes, float]) -> float:
    """Return the deviance of counts from expected ones, which is about their number if they are chance."""
    parts = (2 * count * math.log(count / max(due[item], 1e-12)) for item, count in counts.items() if count)
    return sum(parts)


def _limit(count: int) -> float:
    return 1.2 * count + 8 * math.sqrt(2 * count) + 12


def unlikely(drawn: Counter[Unchecked], chances: Mapping[Unchecked, float]) -> tuple[int, float] | None:
    """Return count and expected count of what came too often or too seldom to be chance; None if nothing did."""
    total = sum(drawn.values())
    rest_count, rest = 0, 0.0
    for content, chance in chances.items():
        expected = total * chance
        if expected < 9:  # too few for a normal distribution: all such together
            rest_count, rest = rest_count + drawn[content], rest + expected
        elif abs(drawn[content] - expected) > SIGMAS * math.sqrt(expected * max(1 - chance, 1e-12)) + 1:
            return drawn[content], expected
    if abs(rest_count - rest) > SIGMAS * math.sqrt(rest) + 2:
        return rest_count, rest
    return None
