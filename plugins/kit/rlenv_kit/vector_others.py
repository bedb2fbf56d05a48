"""Compare a batch with others made alike, with other processes, and with a single environment."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from rlenv_kit.instances import compare_processes
from rlenv_kit.probe import StandardEnvironment
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import copied_values, difference
from rlenv_kit.vector_probe import (
    StandardVector,
    Table,
    VectorProbe,
    check_axes,
    check_rows,
    compare_rows,
    reward_of,
    row_difference,
)

__all__ = ["MOST_STEPS", "other_checks"]

MOST_STEPS = 1200
"""Steps after which a batch is left, whether an episode ended or not."""

_FAR = 120
"""Steps after which no episode's end is awaited any more."""

_CLOSE = 1e-6
"""Relative difference of two rewards that count as equal: sums over rows may be taken in another order."""


def other_checks(
    probe: VectorProbe, make: Callable[[int], StandardVector], single: Callable[[], StandardEnvironment] | None
) -> list[PlannedCheck]:
    """Return the checks that make further batches, or a single environment."""
    return declared(vars(_Others), _Others(probe, make, single), probe)


class _Others:
    def __init__(
        self,
        probe: VectorProbe,
        make: Callable[[int], StandardVector],
        single: Callable[[], StandardEnvironment] | None,
    ) -> None:
        self._probe, self._make, self._single = probe, make, single

    @check("size", "a row does not depend on the number of rows", "contract", "ownership")
    def size(self, probe: VectorProbe) -> None:
        first = probe.walk(probe.actions(probe.length))
        for count in (1, probe.num + 2):
            other = self._make(count)
            try:
                frames = probe.walk(probe.actions(probe.length, count), other)
                shared = set(other.env_ids) & set(probe.envs.env_ids)
            finally:
                other.close()
            if shared:
                raise Failed(f"two batches have the env_ids {sorted(shared)[:3]}", "they are unique among instances")
            for answer in frames:
                check_axes(answer, count)
            for number, ((one, _), (two, _)) in enumerate(zip(first, frames, strict=True)):
                for row in range(min(count, probe.num)):
                    problem = row_difference(one, two, row)
                    if problem:
                        raise Failed(f"frame {number}: {problem} of row {row} differs in a batch of {count}",
                                     "a row does not depend on the others")  # fmt: skip

    @check("snapshots", "all goes on alike from a snapshot, however often it is restored", "contract", "size")
    def snapshots(self, probe: VectorProbe) -> None:
        """Keep a batch in mid-episode, and compare walks from there over an episode's end."""
        snapshot, restore = (getattr(probe.envs, name, None) for name in ("snapshot", "restore"))
        if not callable(snapshot) or not callable(restore):
            raise NotTried("the batch has no snapshot and restore")
        actions, table = probe.actions(MOST_STEPS), probe.reset()
        for action in actions[:3]:
            table, _ = probe.step(probe.request(table, action))
        here, kept = copied_values(table), probe.log.call("snapshot", snapshot)
        first = self._walk_on(table, actions[3:])
        for words, before in (("", lambda: None), (" after a reset", probe.reset), (" again", lambda: None)):
            before()
            probe.rows.forget()
            table = probe.log.call("restore", restore, kept)
            check_rows(here, table, range(probe.num), f"in the table of a restored snapshot{words}", "it is as it was")
            for number, (one, two) in enumerate(zip(first, self._walk_on(table, actions[3:]), strict=True), 1):
                check_rows(one, two, range(probe.num), f"{number} steps after a snapshot was restored{words}",
                           "all goes on as it did")  # fmt: skip

    def _walk_on(self, table: Table, actions: list[dict[str, np.ndarray]]) -> list[Table]:
        """Walk from a table to some steps after the first end of an episode, and return the tables."""
        tables, stop = list[Table](), len(actions)
        for number, action in enumerate(actions):
            if number == stop:
                break
            table, _ = self._probe.step(self._probe.request(table, action))
            tables.append(copied_values(table))
            if np.any(table["terminated"]) or np.any(table["truncated"]):
                stop = min(stop, number + 4)
            elif number >= 4 * self._probe.length and number >= _FAR:
                break
        return tables

    @check("single", "row 0 is a single environment", "contract", "size")
    def single(self, probe: VectorProbe) -> None:
        """Compare row 0 with a single environment up to its episode's end."""
        if self._single is None:
            raise NotTried("no single environment was given to compare with")
        env = self._single()
        try:
            self._follow(env, probe.each_action(MOST_STEPS))
        finally:
            env.close()

    def _follow(self, env: StandardEnvironment, actions: Iterable[dict[str, np.ndarray]]) -> None:
        probe = self._probe
        table, one = probe.reset(), env.reset({"seed": probe.seed})
        self._same(table, one, 0)
        for number, action in enumerate(actions, 1):
            table, reward = probe.step(probe.request(table, action))
            own = {name: value[0] for name, value in action.items()}
            one, gained = env.step({"env_id": env.env_id, "frame_no": one["frame_no"], "action": own})
            ended = bool(one["terminated"] or one["truncated"])
            self._same(table, one, number)
            rewards = [reward_of(reward, 0), gained["reward"]]
            pairs = [list(value.values()) if isinstance(value, Mapping) else [value] for value in rewards]
            if not np.allclose(pairs[0], pairs[1], rtol=_CLOSE, atol=_CLOSE):
                raise Failed(f"frame {number}: row 0 earned {rewards[0]}, a single environment {rewards[1]}")
            if ended:
                return
            if number >= 4 * probe.length and number >= 300:
                return

    def _same(self, table: Table, one: Table, number: int) -> None:
        observation = {name: value[0] for name, value in table["observation"].items()}
        ended = bool(one["terminated"] or one["truncated"])
        for key in ("terminated", "truncated"):
            if int(table[key][0]) != int(one[key]):
                shown = int(table[key][0])
                raise Failed(f"frame {number}: {key} of row 0 is {shown}, of a single environment {one[key]}")
        final = table.get("extra_info", {}).get("final")
        if ended and isinstance(final, Mapping):
            place = np.asarray(final["index"]).tolist().index(0)
            observation = {name: np.asarray(value)[place] for name, value in final["observation"].items()}
        name = difference(one["observation"], observation)
        if name:
            raise Failed(f"frame {number}: {name} of row 0 is {observation.get(name)}",
                         f"that of a single environment is {one['observation'].get(name)}")  # fmt: skip

    @check("two batches", "another batch and the process's generators do not matter", "6.2.2.1-3", "size")
    def two_batches(self, probe: VectorProbe) -> None:
        actions, other = probe.actions(min(12, probe.length)), self._make(probe.num)
        first, number = probe.walk(actions), 0
        state = random.getstate(), np.random.get_state(legacy=True)
        try:
            theirs = VectorProbe(other, probe.length, probe.seed + 1, probe.log)

            def disturb() -> None:
                nonlocal number
                number += 1
                random.seed(number)
                np.random.seed(number)
                theirs.walk(actions[:2])
                self._check_untouched()

            disturb()
            again = probe.walk(actions, between=disturb)
        finally:
            other.close()
            random.setstate(state[0])
            np.random.set_state(state[1])
        compare_rows(
            first, again, range(probe.num), "while another batch steps, and others use the process's generators"
        )

    def _check_untouched(self) -> None:
        """Check that a walk leaves the process's generators as they are."""
        probe = self._probe
        before = random.getstate(), repr(np.random.get_state(legacy=True))
        other = self._make(2)
        try:
            VectorProbe(other, probe.length, probe.seed, probe.log).walk(probe.actions(2, 2))
        finally:
            other.close()
        if (random.getstate(), repr(np.random.get_state(legacy=True))) != before:
            raise Failed("reset and step change the state of the process's generators", "a batch has its own")

    @check("process", "another process gives the same episodes", "contract", "size")
    def another_process(self, probe: VectorProbe) -> None:
        compare_processes(self._make, probe.digests(), probe.seed, probe.length, probe.num)

    @check("sizes", "a batch has a number of rows", "contract")
    def sizes(self, probe: VectorProbe) -> None:
        for count in (0, -1, True, 1.5):
            try:
                self._make(count).close()  # type: ignore[arg-type]
            except Exception:
                continue
            probe.note("contract", f"a batch of {count} is made; here that is an error")

    @check("some too early", "a reset of some before one of all is refused", "contract")
    def some_too_early(self, probe: VectorProbe) -> None:
        other = self._make(probe.num)
        try:
            other.reset({"ids": [0]})
        except Exception:
            return
        finally:
            other.close()
        raise Failed("a reset of row 0 was accepted before the first reset of all", "it must raise EpisodeError")

    @check("closed", "close may be called twice, and no step or reset follows it", "contract")
    def closed(self, probe: VectorProbe) -> None:
        other = self._make(2)
        theirs = VectorProbe(other, probe.length, probe.seed, probe.log)
        table = theirs.reset()
        other.close()
        other.close()
        for what, call in (("step", lambda: theirs.step(theirs.request(table, theirs.actions(1)[0]))),
                           ("reset", theirs.reset)):  # fmt: skip
            try:
                call()
            except Failed:
                raise
            except Exception:
                continue
            raise Failed(f"a {what} after close was accepted", "it must raise EpisodeError")
