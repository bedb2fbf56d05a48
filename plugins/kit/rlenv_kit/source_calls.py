"""Check what calls of a source-data environment leave alone, and its options together (R3.2 to R3.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from rlenv_kit.report import Failed, NotTried
from rlenv_kit.source_probe import Refused, SourceProbe
from rlenv_kit.source_tables import packed, read_actions, read_steps
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import Unchecked, copied_values, deep_difference

__all__ = ["call_checks", "last_checks"]

_FAR = 10**7
"""Number of an episode and of a frame that no data have."""

_WITH: tuple[dict[str, object], ...] = (
    {"priority": "return"}, {"priority": "reward"}, {"priority": "advantage"}, {"priority": "td_error"},
    {"priority": "return", "alpha": 0.5, "beta": 1.0}, {"n_step": 2}, {"stack": 2}, {"privileged": True},
)  # fmt: skip
"""Options of a draw that leave a filter what it is."""


def call_checks(probe: SourceProbe) -> list[PlannedCheck]:
    """Return the checks of calls beside one another, and of options together."""
    return declared(vars(_Calls), _Calls(probe), probe)


def last_checks(probe: SourceProbe, others: list[PlannedCheck]) -> list[PlannedCheck]:
    """Return the check of all draws of the others, which says something while all of them pass."""

    def every_draw() -> None:
        probe.ledger.judge(probe.contents)

    return [PlannedCheck("every draw", "a step and a trajectory are the same in every draw, whatever the options",
                         "6.3.2.2-1 6.3.2.3-1", every_draw, tuple(planned.key for planned in others))]  # fmt: skip


class _Calls:
    def __init__(self, probe: SourceProbe) -> None:
        self._probe = probe

    # -- what calls leave alone ----------------------------------------------------------------------------

    def _drawn(self) -> list[object]:
        """Return the draws that follow, and the current state."""
        probe = self._probe
        drawn: list[object] = [step.content for step in probe.steps(6)]
        drawn += [one.key for one in probe.trajectories(2)]
        name, number, actions = read_actions(probe.call("get_all_actions"))
        return [*drawn, name, number, frozenset(map(packed, actions))]

    @check("refused calls", "a refused call changes neither the draws nor the state", "contract", "seed", "sizes")
    def refused_calls(self, probe: SourceProbe) -> None:
        starts: list[dict[str, object]] = [{}]
        with suppress(Refused):
            number = max(probe.numbered, default=1)
            probe.asked("init", partial(probe.init, episode=number, frame=0))
            starts.append({"episode": number, "frame": 0})
        for start in starts:
            probe.init(**start)
            due = self._drawn()
            for words, call in self._wrong():
                probe.init(**start)
                try:
                    call()
                except Failed:
                    raise
                except Exception:
                    if self._drawn_after(words) not in (None, due):
                        raise Failed(f"{words} was refused, and the draws or the state after it are others",
                                     "a refused call changes nothing") from None  # fmt: skip

    def _drawn_after(self, words: str) -> list[object] | None:
        """Return the draws that follow a refused call, and the state; None if a refused state left none."""
        try:
            return self._drawn()
        except Failed:
            raise
        except Exception:
            if words.startswith("init of"):
                return None
            raise

    def _wrong(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """Yield calls that are refused as a rule, with their words; a refused state may leave none."""
        probe = self._probe
        wrong: dict[str, object] = {"no_such_option": 1}
        yield f"init({wrong})", partial(probe.call, "init", seed=probe.seed + 7, **wrong)
        for number in list(probe.numbered)[:1]:
            yield f"init of frame {_FAR}", partial(probe.call, "init", episode=number, frame=_FAR)
        for name in ("sample_steps", "sample_trajectories"):
            yield f"{name}(0)", partial(probe.call, name, 0)
            for options in (wrong, {"min_return": 1e12}, {"episodes": [_FAR]}, {"source": "no such label"}):
                if name not in probe.ignoring:
                    yield f"{name}(2, {options})", partial(probe.call, name, 2, **options)
            if name not in probe.ignoring:
                yield f"{name} of too many", partial(probe.call, name, 10**5, replace=False)
        for name in ("get_all_actions", "statistics"):
            yield f"{name}({wrong})", partial(probe.call, name, **wrong)

    @check("questions", "statistics and actions change no draw, and draws change no statistics and no state",
           "6.3.2.4-1 6.3.2.5-1", "seed", "ownership")  # fmt: skip
    def questions(self, probe: SourceProbe) -> None:
        """Ask questions between draws, and draw between questions."""
        probe.init()
        due = [step.content for size in (6, 5) for step in probe.steps(size)]
        keys = [one.key for one in probe.trajectories(2)]
        told = self._told()
        probe.init()
        first = [step.content for step in probe.steps(6)]
        self._ask()
        second = [step.content for step in probe.steps(5)]
        self._ask()
        if first + second != due or [one.key for one in probe.trajectories(2)] != keys:
            raise Failed("draws are others with statistics and actions asked for between them",
                         "only draws draw from the generator")  # fmt: skip
        after = self._told()
        probe.call("init", seed=probe.seed + 3)
        for late in (after, self._told()):
            if problem := deep_difference(told, late):
                raise Failed(f"{problem} differs after draws, or another seed", "it is of the data, not of the draws")

    def _told(self) -> dict[str, Unchecked]:
        """Return statistics, and the actions of the current state in any order."""
        probe = self._probe
        name, number, actions = read_actions(probe.call("get_all_actions"))
        came = {"env_id": name, "frame_no": number, "actions": sorted(packed(action).hex() for action in actions)}
        return {"statistics": copied_values(probe.call("statistics")), "get_all_actions": came}

    def _ask(self) -> None:
        probe = self._probe
        for name, options in (("statistics", {}), ("get_all_actions", {}), ("statistics", {"kind": "returns"}),
                              ("get_all_actions", {"tolerance": 0.1})):  # fmt: skip
            with suppress(Refused):
                probe.asked(name, partial(probe.call, name, **options))

    @check("edges of states", "a state just outside the data is refused, and no other one", "6.3.2.1-1", "states")
    def edges(self, probe: SourceProbe) -> None:
        if not probe.numbered:
            raise NotTried("steps do not tell the number of their episode")
        for number, one in list(probe.numbered.items())[:6]:
            after = max(len(one.steps), one.steps[-1].frame_no - one.steps[0].frame_no + 1)
            for episode, frame in ((number, after + 1), (number, -1), (max(probe.numbered) + 1, 0)):
                try:
                    probe.init(episode=episode, frame=frame)
                    table = probe.call("get_all_actions")
                except Exception:
                    continue
                if len(read_actions(table)[2]):
                    raise Failed(f"init took episode {episode}, frame {frame}, and its state has actions",
                                 f"the data have the episodes 0 to {max(probe.numbered)}, and frames from 0; episode "
                                 f"{number} has {len(one.steps)} steps")  # fmt: skip

    @check("other object", "what is done to one object changes nothing of another", "6.3.2.1-2", "instances")
    def other_object(self, probe: SourceProbe) -> None:
        """Set a state and errors in a second object of the same data, and close it."""
        other = None if probe.make is None else probe.log.call("make", probe.make)
        if other is None or other is probe.source:
            raise NotTried("the factory makes no second object")
        twin = SourceProbe(other, probe.seed, probe.log)
        probe.init()
        due, told = self._drawn(), copied_values(probe.call("statistics"))
        errors = self._by_error()
        probe.init()
        for options in ({"seed": probe.seed + 9, "episode": 1, "frame": 1}, {"seed": probe.seed + 9}):
            with suppress(Exception):
                twin.call("init", **options)
        twin.steps(7)
        with suppress(Exception):
            index = np.unique(twin.batch(64)["extra_info"]["index"])
            twin.call("update_priorities", index[:1], np.array([1e6]))
        getattr(other, "close", lambda: None)()
        if self._drawn() != due or deep_difference(told, probe.call("statistics")):
            raise Failed("draws, the state or statistics differ after another object was set to a state, and closed",
                         "an object has its own state")  # fmt: skip
        if self._by_error() != errors:
            raise Failed("draws by TD error follow the errors of another object", "an object has its own errors")

    def _by_error(self) -> list[bytes]:
        self._probe.init()
        with suppress(Refused):
            return [step.content for step in self._probe.asked("sample_steps", partial(
                self._probe.steps, 32, priority="td_error"))]  # fmt: skip
        return []

    # -- options together ----------------------------------------------------------------------------------

    @check("filters with options", "a filter holds beside the other options of its draw", "contract", "filters", "once")
    def filters_with_options(self, probe: SourceProbe) -> None:
        if "sample_steps" in probe.ignoring or len(probe.data) < 2:
            raise NotTried("sample_steps takes no options, or there is one trajectory")
        tried = sum(self._check_together(options, keys) for options, keys in self._parts())
        if not tried:
            raise NotTried("no filter is taken beside another option")

    def _parts(self) -> Iterator[tuple[dict[str, object], frozenset[tuple[str, int]]]]:
        """Yield filters, and the trajectories that fit them."""
        probe, limit = self._probe, self._probe.middle_return
        chosen = sorted(probe.numbered)[1::2]
        fits = frozenset(one.key for number, one in probe.numbered.items() if number in chosen)
        if fits:
            yield {"episodes": chosen}, fits
        yield {"min_return": limit}, frozenset(key for key, one in probe.data.items() if one.total >= limit - 1e-9)
        for name in ("source", "policy", "verdict"):
            words = {one.extra_info.get(name) for one in probe.data.values()}
            for word in sorted(word for word in words if isinstance(word, str))[:1]:
                yield {name: word}, frozenset(
                    key for key, one in probe.data.items() if one.extra_info.get(name) == word)  # fmt: skip

    def _check_together(self, options: dict[str, object], keys: frozenset[tuple[str, int]]) -> int:
        probe, data, tried = self._probe, self._probe.data, 0
        inside = Counter(step.content for key in keys for step in data[key].steps)
        places = {(step.env_id, step.frame_no) for key in keys for step in data[key].steps}
        words = ", ".join(f"{name}={value!r:.40}" for name, value in options.items())
        for more in _WITH:
            probe.init()
            with suppress(Refused):
                batch = probe.asked("sample_steps", partial(probe.batch, 48, **options, **more))
                tried += 1
                if not isinstance(batch, Mapping):
                    continue
                if {"n_step", "stack"} & more.keys():
                    came = set(zip(map(str, batch["env_id"]), map(int, batch["frame_no"]), strict=True))
                    wrong = len(came - places)
                else:
                    wrong = sum(step.content not in inside for step in read_steps(batch))
                if wrong:
                    raise Failed(f"sample_steps with {words} and {more} gave {wrong} steps that do not fit the filter")
        probe.init()
        with suppress(Refused):
            steps = probe.asked("sample_steps", partial(probe.steps, sum(inside.values()), **options, replace=False))
            tried += 1
            if Counter(step.content for step in steps) != inside:
                raise Failed(f"{len(steps)} draws without replacement and with {words} are not the {len(steps)} steps "
                             "that fit it", "each of them comes once")  # fmt: skip
        for extra in ({"replace": False}, {"priority": "return"}):
            with suppress(Refused):
                count = len(keys) if "replace" in extra else 12
                drawn = probe.asked("sample_trajectories", partial(probe.trajectories, count, **options, **extra))
                came_keys = {one.key for one in drawn}
                tried += 1
                if came_keys - keys or ("replace" in extra and came_keys != keys):
                    raise Failed(f"sample_trajectories with {words} and {extra} gave {sorted(came_keys)!r:.100}",
                                 f"{sorted(keys)!r:.100} fit the filter")  # fmt: skip
        return tried
