"""Call a source-data environment under test, and collect its data (clause 6.3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from rlenv_kit.report import Failed, Note, NotTried
from rlenv_kit.source_tables import Step, Trajectory, read_steps, read_trajectory
from rlenv_kit.supervisor import CallLog
from rlenv_kit.tables import Unchecked

__all__ = ["BATCH", "Refused", "SourceProbe", "StandardSource"]

BATCH = 64
"""Number of steps in a usual batch."""

_MOST_STEPS = 3000
"""Steps of a data set up to which all of them are compared one by one."""


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
    """

    def __init__(self, source: StandardSource, seed: int, log: CallLog) -> None:
        self.source, self.seed, self.log = source, seed, log
        self.notes: dict[tuple[str, str], Note] = {}
        self.ignoring: set[str] = set()
        self._too_many = ""

    def note(self, clause: str, text: str) -> None:
        """Record a remark on something that the standard leaves open, once."""
        self.notes.setdefault((clause, text), Note(clause, text))

    def init(self, **options: object) -> None:
        """Set the data set to a state; by default to its first state, with the probe's seed."""
        self.log.call("init", self.source.init, {"seed": self.seed, **options})

    def batch(self, size: object, **options: object) -> Unchecked:
        """Return a batch of steps as the source returned it."""
        arguments = (size, options) if options else (size,)
        return self.log.call("sample_steps", self.source.sample_steps, *arguments)

    def steps(self, size: int, **options: object) -> list[Step]:
        """Draw a batch, check its form, and return its steps."""
        return read_steps(self.batch(size, **options), size, self.note)

    def tables(self, size: object, **options: object) -> Unchecked:
        """Return a batch of trajectories as the source returned it."""
        arguments = (size, options) if options else (size,)
        return self.log.call("sample_trajectories", self.source.sample_trajectories, *arguments)

    def trajectories(self, size: int, **options: object) -> list[Trajectory]:
        """Draw trajectories, check their form, and return them."""
        tables = self.tables(size, **options)
        if not isinstance(tables, Sequence) or isinstance(tables, str | bytes):
            raise Failed(f"sample_trajectories returned a {type(tables).__name__}", "it must be a batch of Tables 6")
        if len(tables) != size:
            raise Failed(f"{len(tables)} trajectories came, {size} were asked for")
        return [read_trajectory(table, self.note) for table in tables]

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
                self._too_many = f"there are more than {_MOST_STEPS} steps; not all trajectories were compared"
                raise NotTried(self._too_many)
        return known

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
