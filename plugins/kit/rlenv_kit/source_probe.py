"""Call a source-data environment under test, and collect its data (clause 6.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from rlenv_kit.report import Failed, Note, NotTried
from rlenv_kit.source_ledger import Ledger
from rlenv_kit.source_tables import Step, Trajectory, packed, read_steps, read_trajectory
from rlenv_kit.supervisor import CallLog
from rlenv_kit.tables import Unchecked, copied_values, deep_difference

__all__ = ["BATCH", "Refused", "SourceProbe", "StandardSource"]

BATCH = 64
"""Number of steps in a usual batch."""

_MOST_STEPS = 3000
"""Steps of a data set up to which all of them are compared one by one."""

_TOO_MANY = f"there are more than {_MOST_STEPS} steps; not all trajectories were compared"


class StandardSource(Protocol):
    """Declare the interfaces of the standard's source-data environment (clause 6.3.2)."""

    def init(self, options: Mapping[str, object] = ...) -> None:
        """Set the data set to its first state, or to the state that the options give."""
        ...

    def sample_steps(self, batch_size: int, extra_info: Mapping[str, object] = ...) -> Unchecked:
        """Return a batch of Table 5."""
        ...

    def sample_trajectories(self, trajectory_size: int, extra_info: Mapping[str, object] = ...) -> Sequence[Unchecked]:
        """Return a batch of Table 6."""
        ...

    def get_all_actions(self, extra_info: Mapping[str, object] = ...) -> Unchecked:
        """Return all actions of the current state as Table 2."""
        ...

    def statistics(self, extra_info: Mapping[str, object] = ...) -> Unchecked:
        """Return trajectories or scalars."""
        ...


class Refused(Exception):
    """Say that an option that the standard leaves open was refused, and why."""


class SourceProbe:
    """Call the source under test, and collect its data.

    Args:
        source: the source under test.
        seed: the seed of all draws.
        log: records the calls.
        make: makes another such source; None if there is but this one.

    Attributes:
        notes: remarks made so far.
        ignoring: functions that ignore an unknown option.
        changed: function -> an option that it changed in its caller's dictionary.
        ledger: what was drawn so far.
        layout: dtype and shape of the steps' fields, as far as they are known.
    """

    def __init__(
        self, source: StandardSource, seed: int, log: CallLog, make: Callable[[], StandardSource] | None = None
    ) -> None:
        self.source, self.seed, self.log, self.make = source, seed, log, make
        self.notes: dict[tuple[str, str], Note] = {}
        self.ignoring: set[str] = set()
        self.changed: dict[str, str] = {}
        self.ledger = Ledger()
        self.layout: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._too_many = ""

    def note(self, clause: str, text: str) -> None:
        """Record a remark on something that the standard leaves open, once."""
        self.notes.setdefault((clause, text), Note(clause, text))

    def call(self, name: str, *arguments: object, **options: object) -> Unchecked:
        """Call a function of the source with options, if there are any, and record the ones that it changes."""
        kept = copied_values(options)
        answer = self.log.call(name, getattr(self.source, name), *arguments, *((options,) if options else ()))
        if place := deep_difference(kept, options):
            self.changed.setdefault(name, place)
        return answer

    def init(self, **options: object) -> Unchecked:
        """Set the data set to a state; by default to its first state, with the probe's seed."""
        return self.call("init", **{"seed": self.seed, **options})

    def batch(self, size: object, **options: object) -> Unchecked:
        """Return a batch of steps as the source returned it."""
        return self.call("sample_steps", size, **options)

    def steps(self, size: int, **options: object) -> list[Step]:
        """Draw a batch, check its form, and return its steps."""
        batch = self.batch(size, **options)
        steps = read_steps(batch, size, self.note)
        self.ledger.take_steps(batch, steps, options)
        return steps

    def tables(self, size: object, **options: object) -> Unchecked:
        """Return a batch of trajectories as the source returned it."""
        return self.call("sample_trajectories", size, **options)

    def trajectories(self, size: int, **options: object) -> list[Trajectory]:
        """Draw trajectories, check their form, and return them."""
        tables = self.tables(size, **options)
        if not isinstance(tables, Sequence) or isinstance(tables, str | bytes):
            raise Failed(f"sample_trajectories returned a {type(tables).__name__}", "it must be a batch of Tables 6")
        if len(tables) != size:
            raise Failed(f"{len(tables)} trajectories came, {size} were asked for")
        read = [read_trajectory(table, self.note) for table in tables]
        if any(len(one.steps) > _MOST_STEPS for one in read):
            self._too_many = self._too_many or _TOO_MANY
        self.ledger.take_trajectories(tables, read, options)
        return read

    def found(self, batch: Mapping[str, Unchecked], part: int | None = None) -> Iterator[tuple[int, Trajectory, int]]:
        """Yield the rows of a batch whose step is found by frame and action, with its trajectory and place.

        Args:
            batch: a Table 5 with a leading axis.
            part: which of a row's actions is the step's own, where it has several; a row in which it is another action
                is found by its observation. None where a row has one action.
        """
        for row, (env_id, frame_no) in enumerate(zip(batch["env_id"], batch["frame_no"], strict=True)):
            action = {name: np.asarray(value[row] if part is None else value[row][part])
                      for name, value in batch["action"].items()}  # fmt: skip
            found = self._places.get((str(env_id), int(frame_no), packed(action)), [])
            if not found and part is not None:
                seen = packed({name: np.asarray(value[row]) for name, value in batch["observation"].items()})
                found = [place for key, places in self._places.items() if key[:2] == (str(env_id), int(frame_no))
                         for place in places if packed(place[0].steps[place[1]].observation) == seen]  # fmt: skip
            if len(found) == 1:
                yield row, *found[0]

    @cached_property
    def _places(self) -> dict[tuple[object, ...], list[tuple[Trajectory, int]]]:
        """The trajectories and places of steps, by their env_id, frame and action; without trajectories with gaps."""
        known: dict[tuple[object, ...], list[tuple[Trajectory, int]]] = {}
        for one in (one for one in self.data.values() if one.is_gapless):
            for place, step in enumerate(one.steps):
                known.setdefault((step.env_id, step.frame_no, packed(step.action)), []).append((one, place))
        return known

    def asked(self, name: str, call: Callable[[], Unchecked]) -> Unchecked:
        """Make a call with options that the standard leaves open.

        Args:
            name: the name of the call, for the message.
            call: makes the call.

        Raises:
            Refused: the source does not accept the options, or ignores unknown ones.
        """
        if name in self.ignoring:
            raise Refused(f"{name} ignores options that it does not know")
        try:
            return call()
        except Failed:
            raise
        except Exception as error:
            raise Refused(str(error) or type(error).__name__) from error

    @cached_property
    def data(self) -> dict[tuple[str, int], Trajectory]:
        """All trajectories, by their env_id and number.

        Raises:
            NotTried: there are too many of them.
        """
        if self._too_many:
            raise NotTried(self._too_many)
        self.init()
        known: dict[tuple[str, int], Trajectory] = {}
        idle, size = 0, 8
        while idle < 4:
            before = len(known)
            for one in self.trajectories(size):
                self._add(known, one)
            idle = 0 if len(known) > before else idle + 1
            size = min(256, max(size, 12 * len(known)))  # four such rounds miss one but for one case in e**48
            if sum(len(one.steps) for one in known.values()) > _MOST_STEPS:
                self._too_many = _TOO_MANY
                raise NotTried(self._too_many)
        return known

    @property
    def few(self) -> int:
        """The number of trajectories in a usual draw: 8, or 1 if a single one is too long to be compared."""
        return 1 if self._too_many else 8

    @cached_property
    def numbered(self) -> dict[int, Trajectory]:
        """The trajectories by the number of their episode; empty if steps do not tell it."""
        found = {one.steps[0].episode: one for one in self.data.values()}
        return {number: one for number, one in found.items() if number is not None and len(found) == len(self.data)}

    @cached_property
    def middle_return(self) -> float:
        """A return that about half of the trajectories reach: one of theirs if its sum is exact in any order."""
        one = sorted(self.data.values(), key=lambda one: one.total)[len(self.data) // 2]
        totals = [other.total for other in self.data.values()]
        below = max((total for total in totals if total < one.total - 1e-9), default=one.total - 1.0)
        parts = [float(step.reward) for step in one.steps if not isinstance(step.reward, Mapping)]
        is_exact = len(parts) == len(one.steps) and all(part * 1024 == round(part * 1024) for part in parts)
        told = one.extra_info.get("return")
        return float(one.total if is_exact else told if isinstance(told, float) else (one.total + below) / 2)

    @staticmethod
    def _add(known: dict[tuple[str, int], Trajectory], one: Trajectory) -> None:
        key = one.env_id, one.trajectory_id
        if key in known and [step.content for step in one.steps] != [step.content for step in known[key].steps]:
            raise Failed(f"trajectory {key[1]} of {key[0]!r} came with two contents",
                         "a trajectory_id stands for one trajectory")  # fmt: skip
        known[key] = one

    @cached_property
    def contents(self) -> Counter[bytes]:
        """Number of occurrences of each step in the data, by its content (`Step.content`)."""
        return Counter(step.content for one in self.data.values() for step in one.steps)
