"""Check states, actions and statistics of a source-data environment against its data (R3.2, R3.5, R3.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rlenv_kit.report import Failed, NotTried
from rlenv_kit.source_probe import Refused, SourceProbe
from rlenv_kit.source_statistics import check_statistics, kinds_of
from rlenv_kit.source_tables import Step, Trajectory, layout_of, packed, read_actions
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import Unchecked, deep_difference

__all__ = ["fact_checks"]

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
        probe.init()
        present = self._state()[0]
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
                if (state := self._state()[0]) != present:
                    raise Failed(f"the state is {state} after get_all_actions({how}), and was {present}",
                                 "a state that is asked for is not set")  # fmt: skip

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
        self._check_left_out(given)
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

    def _check_left_out(self, given: list[tuple[_Given, _State]]) -> None:
        """Check that an episode without a frame begins at its first one, whatever frame was set before."""
        probe, last = self._probe, given[-1][0].episode
        for before in [asked for asked, _ in given if asked.frame > 0][:3]:
            with suppress(Refused):
                due = self._set(last, 0)
                probe.init(episode=before.episode, frame=before.frame)
                probe.asked("init", partial(probe.init, episode=last))
                if (state := self._state()[0]) != due:
                    raise Failed(f"after init with {before}, and then with episode {last} alone, the state is {state}",
                                 f"it is that of frame 0: {due}")  # fmt: skip

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
        for options, compare in kinds_of(data, probe.numbered):
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


def _not_plain(value: Unchecked, name: str = "") -> str:
    """Return the type and the name of the first value that JSON can't hold; empty if there is none."""
    if isinstance(value, Mapping):
        keys = (f"{type(key).__name__} as a key of {name or 'the whole'}" for key in value if not isinstance(key, str))
        return next(keys, "") or next(filter(None, (_not_plain(item, f"{name}.{key}".lstrip("."))
                                                    for key, item in value.items())), "")  # fmt: skip
    if isinstance(value, list | tuple):
        return next(filter(None, (_not_plain(item, name) for item in value)), "")
    return "" if value is None or isinstance(value, str | int | float) else f"{type(value).__name__} as {name}"
