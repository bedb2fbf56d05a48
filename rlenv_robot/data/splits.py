"""Split episodes into training and test episodes, with copies on one side and kinds of episodes on both."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hal import SourceError
from recorder.json_data import JsonObject
from recorder.log.labels import is_success
from recorder.log.preferences import EpisodeId
from recorder.table.table import Table

__all__ = ["episode_groups", "split_episodes"]


def split_episodes(
    table: Table, episodes: Sequence[int], held_out: float, seed: int, runs: bool | None = None
) -> tuple[list[int], list[int]]:
    """Split episodes into training and test episodes.

    The groups of `episode_groups` stay whole. Among groups, the draw keeps the share of each kind of episode on both
    sides: a kind is a task, an outcome (success, failure, unknown) and a source, such as ``expert``.

    Args:
        table: any table.
        episodes: indices of the episodes to split.
        held_out: the share of test episodes, between 0 and 1. Whole groups may make it smaller.
        seed: the same seed gives the same split.
        runs: whether the episodes of a run stay together; None: if there are at least ``2 / held_out`` runs.

    Returns:
        The training and the test episodes, each ascending, and at least one of each.

    Raises:
        SourceError: the share is out of range, or all episodes belong to one group.
    """
    if not 0 < held_out < 1:
        raise SourceError(f"split: held_out is {held_out}, it must be between 0 and 1")
    if len(episodes) < 2:
        raise SourceError(f"split: {table.origin} has {len(episodes)} usable episodes, it needs 2")
    if runs is None:
        runs = len({_source(table, number).run for number in episodes}) >= 2 / held_out
    groups = episode_groups(table, episodes, runs)
    if len(groups) < 2:
        what = "of one run" if runs else "copies or parts of one episode"
        raise SourceError(f"split: all {len(episodes)} usable episodes of {table.origin} are {what}; record more")
    test = _drawn(groups, [_kind(table.episodes[number]) for number in episodes], held_out, seed)
    numbers = np.asarray(episodes)
    return sorted(numbers[~test].tolist()), sorted(numbers[test].tolist())


def episode_groups(table: Table, episodes: Sequence[int], runs: bool = False) -> list[list[int]]:
    """Return the groups of episodes that a test must not share with the training, as positions in ``episodes``.

    Grouped are episodes whose observations and actions are equal as float32, so that exports to other formats count as
    copies; those that were cut from one recorded episode; and the parts of an episode that lost frames.

    Args:
        table: any table.
        episodes: indices of episodes.
        runs: whether the episodes of a run are grouped, too.
    """
    counted = _counted_fields(table)
    first: dict[Hashable, int] = {}
    parents = list(range(len(episodes)))
    for position, number in enumerate(episodes):
        keys: list[Hashable] = [_source(table, number), _values_digest(table, number, counted)]
        keys += [_source(table, number).run] if runs else []
        for key in keys:
            parents[_root(parents, position)] = _root(parents, first.setdefault(key, position))
    groups: dict[int, list[int]] = {}
    for position in range(len(episodes)):
        groups.setdefault(_root(parents, position), []).append(position)
    return list(groups.values())


def _root(parents: list[int], position: int) -> int:
    while parents[position] != position:
        parents[position] = position = parents[parents[position]]
    return position


def _source(table: Table, number: int) -> EpisodeId:
    """Return the recorded episode that an episode is, is a part of, or was copied from."""
    origin = table.episodes[number].get("copied_from")
    if isinstance(origin, Mapping) and {"run", "episode"} <= origin.keys():
        return EpisodeId(str(Path(str(origin["run"])).resolve()), int(origin["episode"]))
    return table.episode_id(number)


def _kind(info: JsonObject) -> Hashable:
    task = info.get("task", info.get("env_id"))
    return str(task), is_success(info), str(info.get("source"))


def _counted_fields(table: Table) -> list[str]:
    layout = table.layout
    groups = (("observation", layout.observation), ("action", layout.action))
    return [f"{prefix}_{name}" for prefix, spec in groups for name in spec.names]


def _values_digest(table: Table, number: int, fields: Iterable[str]) -> bytes:
    rows = table.rows[table.starts[number] : table.stops[number]]
    digest = hashlib.sha256()
    for name in fields:
        values = np.ascontiguousarray(rows[name])
        digest.update(values.astype(np.float32).tobytes() if values.dtype.kind == "f" else values.tobytes())
    return digest.digest()


def _drawn(groups: Sequence[Sequence[int]], kinds: Sequence[Hashable], held_out: float, seed: int) -> np.ndarray:
    """Return which positions are test episodes, (E,) bool.

    Groups are taken in random order, the largest first, while they fit into the quotas of their kinds; what the quotas
    leave is filled with any groups that fit into the total.
    """
    rng = np.random.default_rng(seed)
    goal = min(max(1, round(held_out * len(kinds))), len(kinds) - 1)
    quotas = _quotas(Counter(kinds), goal, held_out, rng)
    order = sorted(rng.permutation(len(groups)).tolist(), key=lambda group: -len(groups[group]))
    contents = [Counter(kinds[position] for position in group) for group in groups]
    chosen: set[int] = set()
    for group in order:
        if all(count <= quotas[kind] for kind, count in contents[group].items()):
            quotas.subtract(contents[group])
            chosen.add(group)
    left = goal - sum(len(groups[group]) for group in chosen)
    for group in order:
        if group not in chosen and len(groups[group]) <= left:
            left -= len(groups[group])
            chosen.add(group)
    if not chosen:  # each group is larger than the goal
        chosen.add(order[-1])
    test = np.zeros(len(kinds), bool)
    test[[position for group in chosen for position in groups[group]]] = True
    return test


def _quotas(counts: Counter[Hashable], goal: int, held_out: float, rng: np.random.Generator) -> Counter[Hashable]:
    """Return the number of test episodes of each kind, which sum up to the goal (largest remainders)."""
    kinds = list(counts)
    shares = np.array([held_out * counts[kind] for kind in kinds])
    quotas = np.floor(shares).astype(int)
    remainders = np.lexsort((rng.random(len(kinds)), quotas - shares))
    quotas[remainders[: goal - int(quotas.sum())]] += 1
    return Counter(dict(zip(kinds, quotas.tolist(), strict=True)))
