"""Check states, actions and statistics of a source-data environment against its data (R3.2, R3.5, R3.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rlenv_kit.report import Failed, NotTried
from rlenv_kit.source_probe import Refused, SourceProbe
from rlenv_kit.source_tables import Step, Trajectory, layout_of, packed, read_actions, read_trajectory
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import Unchecked, deep_difference

__all__ = ["check_statistics", "fact_checks"]

_STATES = 8
"""States of each choice that are asked for all their actions."""

_FAR = 10**7
"""Number of an episode and of a frame that no data have."""


def fact_checks(probe: SourceProbe) -> list[PlannedCheck]:
    """Return the checks of states, actions and statistics."""
    return declared(vars(_Facts), _Facts(probe), probe)


class _Given(NamedTuple):
    """A state that `init` can set: a step of the data.

    Attributes:
        episode: the number of its episode.
        frame: its place in the episode.
        one: its trajectory; None if no step tells the number of its episode.
    """

    episode: int
    frame: int
    one: Trajectory | None = None

    def __str__(self) -> str:
        return f"episode {self.episode}, frame {self.frame}"


class _State(NamedTuple):
    """A state as `get_all_actions` returned it."""

    env_id: str
    frame_no: int
    actions: frozenset[bytes]

    def __str__(self) -> str:
        return f"env_id {self.env_id!r}, frame_no {self.frame_no} with {len(self.actions)} actions"


class _Facts:
    def __init__(self, probe: SourceProbe) -> None:
        self._probe = probe

    # -- actions -------------------------------------------------------------------------------------------

    @check("actions", "all actions of a state are those of the data in that state", "6.3.2.4-1 6.3.2.4-3", "same steps")
    def actions(self, probe: SourceProbe) -> None:
        probe.init()
        states = [self._check_actions("the first state")]
        for given in self._given():
            try:
                probe.asked("init", partial(probe.init, episode=given.episode, frame=given.frame))
            except Refused:
                continue
            states.append(self._check_actions(str(given), given.one))
        if len(states) >= 4 and len(set(states)) == 1:
            raise Failed(f"init took episode and frame, and the state stays {states[0]}",
                         "an option that is taken sets the state")  # fmt: skip
        for step in self._common():
            for how, options, expected in self._near(step):
                try:
                    table = probe.asked("get_all_actions", partial(probe.call, "get_all_actions", **options))
                except Refused:
                    continue
                _, _, actions = read_actions(table, probe.note)
                if {packed(action) for action in actions} != expected:
                    raise Failed(
                        f"get_all_actions({how}) returned {len(actions)} actions, of which the data hold "
                        f"{len({packed(a) for a in actions} & expected)} there; they hold {len(expected)}"
                    )

    def _steps(self) -> list[Step]:
        return [step for one in self._probe.data.values() for step in one.steps]

    def _common(self) -> list[Step]:
        """Return a step of each of the states in which the data have the most actions."""
        places: dict[bytes, list[Step]] = {}
        for step in self._steps():
            places.setdefault(packed(step.observation), []).append(step)
        ranked = sorted(places.values(), key=lambda steps: -len({packed(step.action) for step in steps}))
        return [steps[-1] for steps in ranked[:_STATES]]

    def _given(self) -> list[_Given]:
        """Return states to set: common ones, and some spread over the data."""
        if not self._probe.numbered:
            return [_Given(0, 1), _Given(1, 0), _Given(1, 2)]
        every = [(_Given(number, place, one), step) for number, one in self._probe.numbered.items()
                 for place, step in enumerate(one.steps)
                 if step.frame_no - one.steps[0].frame_no == place]  # fmt: skip
        common = {id(step) for step in self._common()}
        spread = {int(k) for k in np.linspace(0, len(every) - 1, _STATES)}
        return [given for k, (given, step) in enumerate(every) if k in spread or id(step) in common]

    def _near(self, step: Step) -> Iterator[tuple[str, dict[str, object], set[bytes]]]:
        """Yield options that give a state, their words, and the actions that the data have there."""
        steps, state = self._steps(), dict(step.observation)
        fields = {name: np.asarray(value) for name, value in state.items()}
        same = packed(state)
        due = {packed(other.action) for other in steps if packed(other.observation) == same}
        yield "state", {"state": state}, due
        yield "state, tolerance 0", {"state": state, "tolerance": 0.0}, due
        if any(value.dtype.kind not in "biuf" for value in fields.values()):
            return
        far = [max(float(np.abs(np.asarray(other.observation[name], float) - value).max(initial=0.0))
                   for name, value in fields.items()) for other in steps]  # fmt: skip
        gaps = [(high - low, (high + low) / 2) for low, high in pairwise(sorted(set(far)))]
        if gaps:
            limit = max(gaps)[1]
            due = {packed(other.action) for other, distance in zip(steps, far, strict=True) if distance <= limit}
            for tolerance in (limit, dict.fromkeys(fields, limit)):
                yield f"state, tolerance {limit:g}", {"state": state, "tolerance": tolerance}, due

    def _state(self) -> tuple[_State, list[bytes]]:
        probe = self._probe
        table = probe.call("get_all_actions")
        name, number, actions = read_actions(table, probe.note)
        for field, layout in layout_of(table).items():
            if probe.layout.setdefault(field, layout) != layout:
                raise Failed(f"{field} is {layout[0]} of shape {layout[1]}, and {probe.layout[field][0]} of shape "
                             f"{probe.layout[field][1]} in steps", "a field has one type and shape")  # fmt: skip
        came = [packed(action) for action in actions]
        return _State(name, number, frozenset(came)), came

    def _check_actions(self, words: str, one: Trajectory | None = None) -> _State:
        """Compare the actions of the current state with those that the data hold for it."""
        state, came = self._state()
        name, number, actions = state
        twice = [count for count in Counter(came).values() if count > 1]
        if twice:
            raise Failed(f"{words}: an action is in the list {twice[0]} times", "the actions are distinct")
        data = self._probe.data
        steps, own = self._steps(), one.steps if one else ()
        here = (
            {packed(s.observation) for s in own if (s.env_id, s.frame_no) == (name, number)}
            or {packed(s.observation) for s in steps if (s.env_id, s.frame_no) == (name, number)}
        )  # fmt: skip
        if not here:
            last = any((one.env_id, one.steps[-1].frame_no + 1) == (name, number) for one in data.values())
            if not actions or last:
                return state  # the last frame of an episode, from which no action leads on
            raise Failed(f"{words}: env_id {name!r} and frame_no {number} are of no step", "they are the state's own")
        expected = [{packed(s.action) for s in steps if packed(s.observation) == observed} for observed in here]
        if actions not in expected:
            most = max(expected, key=lambda due: len(due & actions))
            raise Failed(f"{words}: {len(actions)} actions came, of which the data hold {len(most & actions)} in that "
                         f"state; they hold {len(most)}")  # fmt: skip
        return state

    # -- states --------------------------------------------------------------------------------------------

    @check(
        "states",
        "init sets the first or a given state, and returns nothing",
        "6.3.2.1-1 6.3.2.1-3",
        "actions",
        "ownership",
    )
    def states(self, probe: SourceProbe) -> None:
        answer = probe.init()
        if answer is not None:
            raise Failed(f"init returned {answer!r:.60}", "it returns nothing")
        first, given = self._state()[0], list[tuple[_Given, _State]]()
        for asked in self._given():
            try:
                state = probe.asked("init", partial(self._set, asked.episode, asked.frame))
            except Refused as reason:
                refused = str(reason)
                continue
            self._check_given(asked, state)
            given.append((asked, state))
        if not given:
            raise NotTried(f"a state can't be given: {refused}")
        self._check_ignored()
        for episode, frame in ((_FAR, 0), (given[0][0].episode, _FAR)):
            self._check_far(episode, frame)
        self._check_first(first, given)

    def _set(self, episode: int, frame: int) -> _State:
        self._probe.init(episode=episode, frame=frame)
        state, again = self._state()[0], self._state()[0]
        if again != state:
            raise Failed(f"the state is {state}, and {again} when it is asked for again",
                         "get_all_actions leaves the state as it is")  # fmt: skip
        return state

    @staticmethod
    def _check_given(asked: _Given, state: _State) -> None:
        if asked.one is None:
            return
        allowed = asked.frame, asked.one.steps[asked.frame].frame_no
        if state.env_id != asked.one.env_id or state.frame_no not in allowed:
            raise Failed(f"after init with {asked} the state is {state}",
                         f"that of the data has env_id {asked.one.env_id!r}, frame_no {allowed[1]}")  # fmt: skip

    def _check_ignored(self) -> None:
        """Check that the number of an episode, where it is taken, chooses one."""
        names = {one.env_id for one in self._probe.data.values()}
        try:
            states = {self._probe.asked("init", partial(self._set, number, 0))
                      for number in range(min(len(self._probe.data), 50))}  # fmt: skip
        except Refused:
            return
        if len(self._probe.data) <= 50 and len(states) == 1 < len(names):
            raise Failed(f"init took episodes 0 to {len(self._probe.data) - 1}, and the state is always "
                         f"{states.pop()}", "an option that is taken sets the state")  # fmt: skip

    def _check_far(self, episode: int, frame: int) -> None:
        try:
            state = self._set(episode, frame)
        except Failed:
            raise
        except Exception:
            return
        if state.actions:
            raise Failed(f"init took episode {episode}, frame {frame}, and the state is {state}",
                         "a state that the data lack is refused")  # fmt: skip

    def _check_first(self, first: _State, given: list[tuple[_Given, _State]]) -> None:
        """Check that init without a state goes back to the first one, with a seed and without options."""
        probe = self._probe
        others = {state: asked for asked, state in given if state != first}
        stays = list[bool]()
        for state, asked in list(others.items())[:3] * 2:
            self._set(asked.episode, asked.frame)
            probe.init()
            back = self._state()[0]
            if back != first:
                raise Failed(f"after init with {asked}, init without a state leaves {back}", f"the first was {first}")
            self._set(asked.episode, asked.frame)
            probe.call("init")
            stays.append(self._state()[0] == state)
        if len(others) > 2 and all(stays):
            raise Failed("init without options keeps the state that was given before", "it sets the first state")

    # -- statistics ----------------------------------------------------------------------------------------

    @check("statistics", "statistics agree with the samples", "6.3.2.5-1 6.3.2.5-3", "same steps")
    def statistics(self, probe: SourceProbe) -> None:
        check_statistics(probe, self._ask(), list(probe.data.values()))

    @check(
        "statistics of a part",
        "statistics of a part agree with the samples of that part",
        "6.3.2.5-2",
        "threshold",
        "statistics",
    )
    def of_a_part(self, probe: SourceProbe) -> None:
        limit = probe.middle_return
        try:
            told = probe.asked("statistics", lambda: self._ask(min_return=limit))
        except Refused as reason:
            raise NotTried(f"statistics of a part are refused: {reason}") from None
        check_statistics(probe, told, [one for one in probe.data.values() if one.total >= limit - 1e-9], {"min_return"})

    @check(
        "kinds of statistics", "each kind of statistics is what its name says", "6.3.2.5-2", "statistics", "ownership"
    )
    def kinds(self, probe: SourceProbe) -> None:
        data, tried = list(probe.data.values()), 0
        rows: list[tuple[dict[str, object], Callable[[Unchecked], None]]] = [
            ({"kind": "returns"}, lambda told: _check_returns(told, data, probe.numbered)),
            ({"kind": "episodes"}, lambda told: _check_episodes(told, data, probe.numbered)),
        ]
        for names, values in _figures(data).items():
            if names[0].partition(".")[0] in _GROUPS:
                rows += [({"kind": "histogram", "field": names[0], "bins": bins}, partial(_check_histogram, values))
                         for bins in (4, 7)]  # fmt: skip
        for options, compare in rows:
            try:
                told = probe.asked("statistics", partial(self._ask, **options))
            except Refused:
                continue
            tried += 1
            compare(told)
        if tried:
            self._check_unknown_kind()
        if not tried:
            raise NotTried("statistics of the kinds returns, episodes and histogram are refused")

    def _check_unknown_kind(self) -> None:
        """Check that a kind which there is not, where kinds are taken, is not the usual one."""
        try:
            told = self._probe.asked("statistics", partial(self._ask, kind="no such kind"))
        except Refused:
            return
        if not deep_difference(told, self._ask()):
            raise Failed("statistics of the kind 'no such kind' are those without a kind", "an unknown kind is refused")

    @check("plain statistics", "statistics are numbers, texts, lists and mappings of them", "contract", "statistics")
    def plain(self, probe: SourceProbe) -> None:
        """Write statistics as JSON; Tables 6, which hold arrays, are not compared."""
        told = self._ask()
        if not isinstance(told, Mapping):
            raise NotTried("statistics are no mapping")
        answers = {"": told}
        for kind in ("returns", "episodes"):
            with suppress(Refused):
                answers[f" of the kind {kind}"] = self._probe.asked("statistics", partial(self._ask, kind=kind))
        for words, answer in answers.items():
            if place := _not_plain(answer):
                raise Failed(f"statistics{words} hold a {place}", "they are data that JSON can hold")

    def _ask(self, **options: object) -> Unchecked:
        self._probe.init()
        return self._probe.call("statistics", **options)


_GROUPS = ("observation", "action", "reward")

_MOMENTS: Mapping[str, Callable[[np.ndarray], Unchecked]] = {
    "mean": lambda values: values.mean(axis=0),
    "std": lambda values: values.std(axis=0),
    "min": lambda values: values.min(axis=0),
    "max": lambda values: values.max(axis=0),
    "median": lambda values: np.median(values, axis=0),
}


def _not_plain(value: Unchecked, name: str = "") -> str:
    """Return the type and the name of the first value that JSON can't hold; empty if there is none."""
    if isinstance(value, Mapping):
        keys = (f"{type(key).__name__} as a key of {name or 'the whole'}" for key in value if not isinstance(key, str))
        return next(keys, "") or next(filter(None, (_not_plain(item, f"{name}.{key}".lstrip("."))
                                                    for key, item in value.items())), "")  # fmt: skip
    if isinstance(value, list | tuple):
        return next(filter(None, (_not_plain(item, name) for item in value)), "")
    return "" if value is None or isinstance(value, str | int | float) else f"{type(value).__name__} as {name}"


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
    compared = _compare_counts(told, data)
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
    for group in ("observation", "action"):
        for name, first in getattr(steps[0], group).items():
            if np.asarray(first).dtype.kind not in "biuf":  # texts have no moments
                continue
            values = np.stack([np.asarray(getattr(step, group)[name], float) for step in steps])
            figures[f"{group}.{name}", f"{group}_{name}"] = values
    return figures


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


def _check_returns(told: Unchecked, data: list[Trajectory], numbered: Mapping[int, Trajectory]) -> None:
    if isinstance(told, Mapping):
        returns = np.array([one.total for one in data])
        for key in ("return", "returns"):
            if isinstance(told.get(key), list | np.ndarray):
                _compare("returns", told[key], returns)
                totals = {number: one.total for number, one in numbered.items()}
                _check_numbered("return", told.get("episode"), told[key], totals)
        _compare("returns", {name: told.get(name) for name in _MOMENTS}, returns)


def _check_episodes(told: Unchecked, data: list[Trajectory], numbered: Mapping[int, Trajectory]) -> None:
    entries = told.get("episodes") if isinstance(told, Mapping) else told
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        return
    for key, values in (("length", [len(one.steps) for one in data]), ("return", [one.total for one in data])):
        if len(entries) != len(data) or all(isinstance(entry.get(key), int | float) for entry in entries):
            listed = [entry.get(key, 0) for entry in entries]
            _compare(f"{key}s", listed, np.array(values, float))
            due = {number: float(len(one.steps) if key == "length" else one.total) for number, one in numbered.items()}
            _check_numbered(key, [entry.get("episode") for entry in entries], listed, due)


def _check_histogram(values: np.ndarray, told: Unchecked) -> None:
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
