"""Judge every table that an environment returns in any check, each against the tables before it (R2, R1.2).

The checks of single behaviours look at some tables: those of seeded episodes, of first frames, of one refusal. What is
wrong in others alone, such as in an episode without a seed, after a refusal, or in the second episode, is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np

from hal import Spec
from rlenv_kit.observed_parts import ObservedParts
from rlenv_kit.report import Failed
from rlenv_kit.tables import (
    ALWAYS,
    Noter,
    Unchecked,
    check_observation,
    check_reward,
    copied_values,
    deep_difference,
    difference,
    error_of,
    is_over,
    objects_in,
)
from rlenv_robot.world import ACTION_MASK

__all__ = ["Sent", "TableAudit"]

_LARGE = 200_000
"""Bytes of an observation from which it is neither kept nor compared with later ones."""

_PINNED = 3
"""Of so many tables of one kind, one is kept to see whether it changes."""

Sent = tuple[Unchecked, Unchecked]
"""A value that a call was given, beside a copy of it from before the call."""


class TableAudit:
    """Keep the first thing that is wrong with any table of an environment.

    Args:
        observation: returns the spec of the observation.
        reward: checks Table 3; takes the table.
        known: keys of ``extra_info`` that are described; empty if none is.
        check_code: checks the code of an error.
        note: takes remarks.
        adapted: whether the environment is another project's, whose ``extra_info`` may hold any objects.

    Attributes:
        problem: the first finding, with the words of its call; None if there is none.
        active: whether tables are judged; those up to the end of the first episode are in any case.
    """

    def __init__(
        self,
        observation: Callable[[], Spec],
        reward: Unchecked,
        known: Mapping[str, object],
        check_code: Callable[[Unchecked], None],
        note: Noter,
        adapted: bool,
    ) -> None:
        self._spec, self._declared, self._known = observation, reward, known
        self._check_code, self._note, self._adapted = check_code, note, adapted
        self.problem: Failed | None = None
        self.active, self._learns = False, True  # until an episode has been stepped
        self._forms: set[Unchecked] = set()
        self._entry_forms: dict[Unchecked, Unchecked] = {}
        self._has: dict[str, bool] = {}
        self._newest = 0
        self._before: dict[str, Unchecked] | None = None  # of the running episode, as far as it is known
        self._kind, self._has_stepped = "", False
        self._pinned: dict[str, tuple[Unchecked, Unchecked]] = {}
        self._counts: dict[str, int] = {}
        self._agents: frozenset[object] | None = None
        self._parts = ObservedParts()

    # -- calls -----------------------------------------------------------------------------------------------

    def sent(self, *values: Unchecked) -> list[Sent]:
        """Return what a call is given with copies, to be compared after it; large arrays are left out."""
        return (
            []
            if not (self.active or self._learns)
            else [
                (value, copied_values(value)) for value in values if isinstance(value, dict) and _size(value) < _LARGE
            ]
        )

    def began(self, table: Unchecked, sent: list[Sent] = [], seeded: bool = True) -> None:  # noqa: B006
        """Take the table of a reset."""
        if self._learns and self._has_stepped:
            self._learns = False
            self._pinned.clear()  # other checks write into what they were given
        if not (self.active or self._learns):
            self._before = None
            return
        self._kind = "a reset" if seeded else "a reset without a seed"
        self._judge(lambda: self._reset(table, sent))

    def stepped(self, request: Unchecked, table: Unchecked, reward: Unchecked, sent: list[Sent] = []) -> None:  # noqa: B006
        """Take the tables of a step."""
        if not (self.active or self._learns):
            return
        self._has_stepped = True
        self._judge(lambda: self._step(request, table, reward, sent))

    def lost(self) -> None:
        """Forget the running episode: its next frame is not known."""
        self._before = None

    def _judge(self, look: Callable[[], None]) -> None:
        if self.problem is not None:
            return
        try:
            look()
        except Failed as finding:
            self.problem = Failed(f"{self._kind}: {finding.found}", finding.allowed)
        except Exception:
            self._before = None  # another check finds what can't even be read

    def _reset(self, table: Unchecked, sent: list[Sent]) -> None:
        _check_unchanged(sent, "reset")
        self._check_table(table)
        if error_of(table) is not None:
            raise Failed("the first table has an error", "no action came before")
        if 0 < table["frame_no"] < self._newest:
            raise Failed(f"frame_no is {table['frame_no']}, and was {self._newest} before",
                         "an episode begins at 0, or goes on over the instance's life")  # fmt: skip
        mapping = table.get("extra_info", {}).get("agents")
        self._agents = frozenset(mapping) if isinstance(mapping, Mapping) else None
        self._keep(table)

    def _step(self, request: Unchecked, table: Unchecked, reward: Unchecked, sent: list[Sent]) -> None:
        before, error = self._before, error_of(table)
        refused = error is not None
        over = is_over(table)
        self._kind = "a refusal" if refused else "a last frame" if over else "a frame"
        if before is not None and refused is False and _number(request) != before["frame_no"]:
            before = None  # a step of another check came between
        _check_unchanged(sent, "step")
        self._check_table(table)
        self._check_reward(table, reward, refused)
        if refused:
            self._check_error(error)
        if before is not None:
            self._check_order(before, table, refused)
        self._keep(table)

    # -- one table -------------------------------------------------------------------------------------------

    def _check_table(self, table: Unchecked) -> None:
        extra = table.get("extra_info", {})
        form = _form(table)
        if form not in self._forms or not self._is_in_range(table["observation"]):
            check_observation(table, self._spec(), self._note)
            self._check_entries(extra)
            if len(self._forms) < 500:
                self._forms.add(form)
        over = is_over(table)
        self._check_presence(extra, over)
        for key in ("agents", "agent", "state", "messages", "applied", ACTION_MASK):
            if key in extra:
                self._check_form(key, extra[key])
        mapping = extra.get("agents")
        if "agent" in extra and isinstance(mapping, Mapping) and mapping and extra["agent"] not in mapping and not over:
            raise Failed(f"the agent in turn is {extra['agent']!r}", f"the agents are {', '.join(map(str, mapping))}")
        mask = extra.get(ACTION_MASK)
        for name, value in mask.items() if isinstance(mask, Mapping) else ():
            if np.asarray(value).dtype.kind in "biu" and not np.isin(value, (0, 1)).all():
                raise Failed(f"{ACTION_MASK} of {name!r} is {np.asarray(value).tolist()!r:.60}", "it is of 0 and 1")
        problem = self._parts.problem(table["observation"], extra.get("agents"), extra.get("agent"))
        if problem:
            raise Failed(problem, "the mapping shows what each agent observes in this frame")

    def _is_in_range(self, values: Mapping[str, Unchecked]) -> bool:
        """Return whether the numbers of an observation of a known form are quickly seen to be in range."""
        if self._ranges is None:
            return False
        for name, low, high in self._ranges:
            value = values[name]
            if not isinstance(value, np.ndarray):
                return False
            if value.size and not (low <= value.min() and value.max() <= high):
                return False
        return True

    @cached_property
    def _ranges(self) -> list[tuple[str, Unchecked, Unchecked]] | None:
        """Name, least and greatest number of each numeric field; None if elements have ranges of their own."""
        fields = [field for field in self._spec() if not field.is_text]
        ranges = [(field.name, field.bounds[0].min(), field.bounds[1].max()) for field in fields]
        own = any((bound != bound.flat[0]).any() for field in fields for bound in field.bounds)
        return None if own else ranges

    def _check_entries(self, extra: Mapping[str, Unchecked]) -> None:
        if not self._adapted:
            for place in objects_in(extra, "extra_info"):
                raise Failed(place, "extra_info holds numbers, texts, arrays, lists and mappings of them")
        for key in extra.keys() - self._known.keys() - {"error"} if self._known else ():
            raise Failed(f"extra_info has {key!r}", f"the description lists {', '.join(map(str, self._known))}")

    def _check_presence(self, extra: Mapping[str, Unchecked], over: bool) -> None:
        for key in ALWAYS:
            if self._has.setdefault(key, key in extra) != (key in extra):
                has, others = ("has", "lack") if key in extra else ("lacks", "have")
                raise Failed(f"extra_info {has} {key!r}", f"other tables {others} it")
        if not over and self._has.setdefault(ACTION_MASK, ACTION_MASK in extra) and ACTION_MASK not in extra:
            raise Failed(f"extra_info lacks {ACTION_MASK!r}", "other tables have it")

    def _check_form(self, key: str, value: Unchecked) -> None:
        """Check that an entry keeps its type, its keys and the types of its parts in every table."""
        for place, form in _entry_forms(key, value):
            known = self._entry_forms.setdefault(place, form)
            if known == _EMPTY:
                self._entry_forms[place] = known = form
            if not _agree(known, form):
                shown = ".".join(map(str, place))
                raise Failed(f"extra_info's {shown} is {_words(form)}", f"in other tables it is {_words(known)}")

    # -- rewards, refusals, order ----------------------------------------------------------------------------

    def _check_reward(self, table: Unchecked, reward: Unchecked, refused: bool) -> None:
        check_reward(reward, None if refused else self._declared, self._note)
        for key in ("env_id", "frame_no"):
            if type(reward[key]) is not type(table[key]) and not isinstance(reward[key], int | np.integer):
                raise Failed(f"{key} of Table 3 is {reward[key]!r}", f"that of Table 1 is {table[key]!r}")
            if reward[key] != table[key]:
                raise Failed(f"{key} of Table 3 is {reward[key]!r}", f"that of Table 1 is {table[key]!r}")
        given = reward["reward"]
        mapping, names = table.get("extra_info", {}).get("agents"), given.keys() if isinstance(given, Mapping) else None
        if names is not None and isinstance(mapping, Mapping) and mapping.keys() != names:
            raise Failed(f"rewards are of {sorted(map(str, names))}", f"the mapping is of {sorted(map(str, mapping))}")
        if names is not None and self._agents is not None and not names <= self._agents:
            raise Failed(f"rewards are of {sorted(map(str, names))}",
                         f"at the episode's begin the agents were {sorted(map(str, self._agents))}")  # fmt: skip
        known = self._entry_forms.setdefault(("reward",), names is None)
        if known != (names is None):
            raise Failed(f"reward is {given!r:.60}", "it is either a number or a mapping by agent, in all tables")
        if refused and any(number != 0 for number in (given.values() if isinstance(given, Mapping) else [given])):
            raise Failed(f"the reward is {given!r:.60}", "an illegal action earns 0")

    def _check_error(self, error: Unchecked) -> None:
        self._check_code(error)
        form = "text" if isinstance(error, str) else frozenset(error) if isinstance(error, Mapping) else "other"
        if (form == "text" and not error.strip()) or not error:
            raise Failed(f"the error is {error!r}", "it says what is wrong with the action")
        message = error.get("message", "-") if isinstance(error, Mapping) else "-"
        if not isinstance(message, str) or not message.strip():
            raise Failed(f"the message of the error is {message!r}", "it says what is wrong with the action")
        kind = "a mapping" if isinstance(error, Mapping) else f"a {type(error).__name__}"
        if self._entry_forms.setdefault(("error",), kind) != kind:
            raise Failed(f"the error is {kind}", f"in other tables it is {self._entry_forms['error',]}")

    def _check_order(self, before: Mapping[str, Unchecked], table: Unchecked, refused: bool) -> None:
        due = before["frame_no"] + (not refused)
        if table["frame_no"] != due:
            raise Failed(f"frame_no is {table['frame_no']}", f"it was {before['frame_no']} before, so it is {due}")
        if table["env_id"] != before["env_id"]:
            raise Failed(f"env_id is {table['env_id']!r}", f"it was {before['env_id']!r} before")
        if not refused:
            return
        for key in ("terminated", "truncated"):
            if table[key] != before[key]:
                raise Failed(f"{key} is {table[key]!r}", f"it was {before[key]!r} before, and nothing was carried out")
        if before["observation"] is not None and (name := difference(before["observation"], table["observation"])):
            raise Failed(f"the observation's {name} changed", "an illegal action is not carried out")
        told, now = before["extra"], table.get("extra_info", {})
        for key in (*ALWAYS, ACTION_MASK):
            if key in told and deep_difference(told[key], now.get(key), key):
                raise Failed(f"extra_info[{key!r}] changed", "an illegal action is not carried out")

    # -- what is kept ----------------------------------------------------------------------------------------

    def _keep(self, table: Unchecked) -> None:
        self._newest = max(self._newest, table["frame_no"])
        extra, small = table.get("extra_info", {}), _size(table) < _LARGE
        self._before = {
            "frame_no": int(table["frame_no"]), "env_id": table["env_id"],
            "terminated": table["terminated"], "truncated": table["truncated"],
            "observation": copied_values(table["observation"]) if small else None,
            "extra": copied_values({key: extra[key] for key in (*ALWAYS, ACTION_MASK) if small and key in extra}),
        }  # fmt: skip
        if not small:
            self._pinned.clear()
            return
        kind = self._kind
        self._counts[kind] = count = self._counts.get(kind, -1) + 1
        if kind != "a frame" or count % _PINNED < 2:
            for name in (kind, "a frame") if kind == "a last frame" else (kind,):
                self._check_pinned(name)
            self._pinned[kind] = table, copied_values(table)

    def _check_pinned(self, kind: str) -> None:
        if kind in self._pinned:
            table, copy = self._pinned.pop(kind)
            if place := deep_difference(table, copy):
                raise Failed(f"{place} of {kind} changed after it was returned", "a returned table never changes")


def _number(request: Unchecked) -> object:
    return request.get("frame_no") if isinstance(request, Mapping) else None


def _check_unchanged(sent: list[Sent], name: str) -> None:
    for given, copy in sent:
        if given.keys() != copy.keys() or (place := deep_difference(given, copy)):
            what = place if given.keys() == copy.keys() else "dictionary"
            raise Failed(f"{name} changed the caller's {what}", "what a call is given stays the caller's")


def _size(value: Unchecked) -> int:
    """Return the number of bytes of the arrays in nested mappings."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_size, value.values()))
    return 8 * len(value) if isinstance(value, list | tuple) else 8


def _form(value: Unchecked) -> Unchecked:
    """Return types, keys and shapes of nested values, without the numbers."""
    if isinstance(value, np.ndarray):
        return value.dtype.kind if value.dtype.kind == "U" else value.dtype.str, value.shape
    if isinstance(value, Mapping):
        return frozenset([(str(key), _form(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return type(value), frozenset(map(_form, value))
    return type(value)


def _entry_forms(key: str, value: Unchecked) -> Iterator[tuple[tuple[Unchecked, ...], Unchecked]]:
    """Yield the places of an entry that have one form in all tables, and their forms."""
    yield (key,), "a mapping" if isinstance(value, Mapping) else _part_form(value)
    if not isinstance(value, Mapping) or key == "messages":
        return
    if key != "agents":  # agents may leave
        yield (key, "keys"), frozenset(map(str, value))
    for name, part in value.items():
        yield (key, name), _part_form(part)


def _part_form(value: Unchecked) -> Unchecked:
    if isinstance(value, Mapping):
        return frozenset((str(name), _part_form(part)) for name, part in value.items())
    if isinstance(value, np.ndarray | np.generic):
        return ("a text",) if value.dtype.kind == "U" else (str(value.dtype), np.ndim(value))
    if isinstance(value, bool | int | float):
        return ("a number",)
    if isinstance(value, str):
        return ("a text",)
    if isinstance(value, list | tuple) and not value:
        return _EMPTY
    if isinstance(value, list | tuple):
        is_nested = isinstance(value[0], list | tuple | Mapping | str)
        return ("a list",) if is_nested else (f"a {type(value).__name__} of {np.ndim(value[0])}",)
    return (type(value).__name__,)


_EMPTY = ("an empty list",)
"""The form of a list without entries, which agrees with that of any list."""


def _agree(one: Unchecked, other: Unchecked) -> bool:
    """Return whether two forms are equal, but for lists of which one is empty."""
    if one == other:
        return True
    if isinstance(one, frozenset) and isinstance(other, frozenset) and all(map(_is_named, one | other)):
        first, second = dict(one), dict(other)
        return first.keys() == second.keys() and all(_agree(first[name], second[name]) for name in first)
    return any(form == _EMPTY for form in (one, other)) and all(_is_list(form) for form in (one, other))


def _is_named(part: Unchecked) -> bool:
    return isinstance(part, tuple) and len(part) == 2


def _is_list(form: Unchecked) -> bool:
    return isinstance(form, tuple) and len(form) == 1 and str(form[0]).startswith(("a list", "a tuple", _EMPTY[0]))


def _words(form: Unchecked) -> str:
    if isinstance(form, frozenset):
        return f"a mapping of {', '.join(sorted(str(one[0] if isinstance(one, tuple) else one) for one in form))}"
    return " ".join(map(str, form)) if isinstance(form, tuple) else str(form)
