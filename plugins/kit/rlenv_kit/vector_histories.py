"""Compare the rows of a batch over histories that should not matter to them: refusals, resets, neighbours, forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import numpy as np

from hal.errors import EpisodeError
from rlenv_kit.observed_parts import ObservedParts
from rlenv_kit.ownership import alter
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import Unchecked, copied_values, deep_difference, difference
from rlenv_kit.vector_probe import (
    StandardVector,
    Table,
    VectorProbe,
    check_rows,
    is_over,
    left_difference,
    parts_of_row,
)
from rlenv_kit.vector_rows import illegal_rows
from rlenv_robot.world import ACTION_MASK

__all__ = ["history_checks", "last_checks"]

_LONG = 120
"""Steps up to which ends of episodes are awaited."""

_AFTER = 12
"""Steps after an end."""


def history_checks(probe: VectorProbe) -> list[PlannedCheck]:
    """Return the checks of resets of some rows."""
    return declared(vars(_Some), _Some(probe), probe)


def last_checks(
    probe: VectorProbe, make: Callable[[int], StandardVector], others: list[PlannedCheck]
) -> list[PlannedCheck]:
    """Return the check of histories, which says something while all others pass."""

    def histories() -> None:
        _Histories(probe, make).judge()

    return [PlannedCheck("histories", "a row's answers follow from its seed and actions alone", "contract", histories,
                         tuple(planned.key for planned in others))]  # fmt: skip


class _Some:
    """Check resets of some rows."""

    def __init__(self, probe: VectorProbe) -> None:
        self._probe = probe

    @check("some rows", "a reset of some begins these rows, and no other", "contract", "some")
    def some_rows(self, probe: VectorProbe) -> None:
        actions, last = probe.actions(6), probe.num - 1
        for ids in ([0], [0, last], list(range(1, probe.num)), list(range(probe.num)), (last,), np.array([0, last])):
            table = self._walked(actions)
            before, given = copied_values(table), copied_values(ids)
            try:
                table = probe.reset(ids=ids)
            except Exception as reason:
                if isinstance(ids, list):
                    raise NotTried(f"some rows alone can't be reset: {reason}") from None
                continue  # another form than a list may be refused
            rows = list(map(int, ids))
            if list(given) != list(ids):
                raise Failed(f"reset changed the caller's ids to {ids}", "they stay the caller's")
            self._check_begun(before, table, rows, f"a reset of the rows {rows}")
            table, _ = probe.step(probe.request(table, actions[3]))
        self._with_seed(actions, last)

    def _walked(self, actions: list[dict[str, np.ndarray]]) -> Table:
        probe = self._probe
        table = probe.reset()
        for action in actions[:3]:
            table, _ = probe.step(probe.request(table, action))
        return table

    def _check_begun(self, before: Table, table: Table, rows: list[int], words: str) -> None:
        probe = self._probe
        for row in range(probe.num):
            if row in rows:
                if table["frame_no"][row] != 0 or table["terminated"][row] or table["truncated"][row]:
                    raise Failed(f"row {row} has frame_no {int(table['frame_no'][row])}, or a flag, after {words}",
                                 "its episode begins")  # fmt: skip
                continue
            parts = [{key: value for key, value in parts_of_row(one, row).items() if key != "final"}
                     for one in (before, table)]  # fmt: skip
            moved = left_difference(before, table, row, probe.mode) or deep_difference(parts[0], parts[1], "extra_info")
            if moved:
                raise Failed(f"{moved} of row {row} changed with {words}", "the other rows stand")

    @check("orderly end", "an orderly end ends the rows that it names, and a refused one none", "contract", "ends")
    def orderly_end(self, probe: VectorProbe) -> None:
        end, last = getattr(probe.envs, "end", None), probe.num - 1
        if not callable(end) or not last:
            raise NotTried("the batch has no orderly end")
        actions = probe.actions(4)
        straight = probe.walk(actions)
        if any(is_over(table, row) for table, _ in straight for row in (0, last)):
            raise NotTried("an episode ends within 4 steps")
        before = copied_values(self._walked(actions))
        probe.rows.forget()
        try:
            table = probe.log.call("end", end, "a check of orderly ends", [last])
        except Exception as error:
            raise NotTried(f"end with a reason and the last row was refused: {error}") from None
        if not table["truncated"][last] or table["terminated"][last]:
            raise Failed(f"the flags of row {last} are terminated {table['terminated'][last]}, truncated "
                         f"{table['truncated'][last]} after its orderly end", "truncated is 1")  # fmt: skip
        check_rows(before, table, range(last), f"after the orderly end of row {last}", "the other rows stand")
        wrong = [[0, probe.num], [0, last]] if probe.mode != "same_step" else [[0, probe.num]]
        for ids in wrong:
            with suppress(EpisodeError, ValueError, IndexError):
                probe.log.call("end", end, "a check of refused ends", ids)
                raise Failed(f"end took the rows {ids}", f"there is no row {probe.num}, and row {last} has ended")
        table, _ = probe.step(probe.request(table, actions[3]))
        check_rows(straight[4][0], table, [0], "after refused orderly ends", "a refused end ends no row")

    def _with_seed(self, actions: list[dict[str, np.ndarray]], last: int) -> None:
        """Check that some rows begin as with a reset of all, where a seed is taken beside them."""
        probe = self._probe
        due = probe.row(probe.reset(seed=probe.seed + 4), last)["observation"]
        before = copied_values(self._walked(actions))
        try:
            table = probe.reset(ids=[last], seed=probe.seed + 4)
        except Exception:
            return
        self._check_begun(before, table, [last], "a reset of the last row with a seed")
        if problem := difference(due, probe.row(table, last)["observation"]):
            raise Failed(f"{problem} of row {last} differs after its reset with a seed, and a reset of all with it",
                         "a seed fixes the episodes")  # fmt: skip


class _Histories:
    """Walk through histories that should not matter, and judge the ledger of rows."""

    def __init__(self, probe: VectorProbe, make: Callable[[int], StandardVector]) -> None:
        self._probe, self._make = probe, make
        self._parts = [ObservedParts() for _ in range(probe.num)]
        self._first = probe.first_entries
        self._starts: list[list[dict[str, np.ndarray]]] = [[] for _ in range(probe.num)]

    def judge(self) -> None:
        probe = self._probe
        actions = self._plain(probe.actions(_LONG))
        for count in (1, probe.num + 2):
            self._other_size(count, len(actions))
        self._disturbed(actions)
        if probe.ledger.problem:
            raise Failed(probe.ledger.problem, "it follows from its seed and actions alone")

    # -- the plain walk --------------------------------------------------------------------------------

    def _plain(self, actions: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        """Walk until some steps after the second end, and return the actions up to there."""
        probe, over, stop, ended = self._probe, np.zeros(self._probe.num, bool), len(actions), 0
        probe.rows.words = "in a walk without disturbances"
        table = probe.reset()
        self._begin(table, range(probe.num))
        for number, action in enumerate(actions):
            if number >= stop:
                return actions[:number]
            mask = copied_values(table.get("extra_info", {}).get(ACTION_MASK))
            table, _ = probe.step(probe.request(table, action))
            self._check_mask(mask, table, action, over)
            self._check_parts(table)
            now = np.asarray(table["terminated"], bool) | np.asarray(table["truncated"], bool)
            begun = now if probe.mode == "same_step" else over if probe.mode == "next_step" else np.zeros_like(now)
            self._begin(table, np.flatnonzero(begun).tolist())
            ended, over = ended + int((now & ~over).any()), now
            if ended == 2 or (probe.mode == "disabled" and over.all()) or (number == 20 and not ended):
                stop = min(stop, number + _AFTER)
        return actions

    def _begin(self, table: Table, rows: Iterator[int] | range | list[int]) -> None:
        """Keep the first observations of episodes, and check that a row's later ones are not all alike."""
        for row in rows:
            one = {name: np.array(value[row]) for name, value in table["observation"].items()}
            self._starts[row].append(one)
        if all(len(starts) > 1 for starts in self._starts) and len({len(one) for one in self._starts}) == 1:
            first = [starts[0] for starts in self._starts]
            later = [starts[1] for starts in self._starts]
            differ = [difference(first[0], one) for one in first[1:]]
            if all(differ) and not any(difference(later[0], one) for one in later[1:]):
                raise Failed("the second episodes of all rows begin alike, and the first ones do not",
                             "each row draws its own episodes")  # fmt: skip
            if all(differ) and not any(difference(*starts[:2]) for starts in self._starts):
                raise Failed("the second episode of each row begins as its first one", "each episode is drawn anew")

    def _check_mask(self, mask: Unchecked, table: Table, action: Mapping[str, np.ndarray], over: np.ndarray) -> None:
        """Compare what the masks allow with what was refused."""
        if not isinstance(mask, Mapping):
            return
        error, spec = table.get("extra_info", {}).get("error") or {}, self._probe.envs.action
        known = [name for name in mask if name in spec and spec[name].shape == ()]
        for row in range(self._probe.num):
            allowed = True
            for name in known:
                values, place = np.asarray(mask[name]), int(action[name][row]) - int(spec[name].bounds[0])
                if values.ndim != 2 or values.shape[0] != self._probe.num or place >= values.shape[1]:
                    return
                allowed = allowed and bool(values[row, place])
            if over[row] or not known or (allowed and set(known) != set(spec.names)):
                continue
            if allowed == (row in error):
                raise Failed(f"{ACTION_MASK} {'allows' if allowed else 'forbids'} the action of row {row}, and it was "
                             f"{'refused' if allowed else 'accepted'}", "a mask tells what is legal")  # fmt: skip

    def _check_parts(self, table: Table) -> None:
        """Check what each agent observes in each row."""
        extra = table.get("extra_info", {})
        agents = extra.get("agents")
        if not isinstance(agents, Mapping):
            return
        for row, parts in enumerate(self._parts):
            shown = {
                agent: {name: part[row] for name, part in seen.items() if isinstance(part, np.ndarray) and part.ndim}
                for agent, seen in agents.items() if isinstance(seen, Mapping)
            }  # fmt: skip
            if found := parts.problem({name: np.asarray(value[row]) for name, value in table["observation"].items()},
                                      shown, None):  # fmt: skip
                raise Failed(f"row {row}: {found}", "an agent observes its own part of this frame")

    # -- other walks -----------------------------------------------------------------------------------

    def _other_size(self, count: int, steps: int) -> None:
        probe = self._probe
        other = self._make(count)
        try:
            theirs = VectorProbe(other, probe.length, probe.seed, probe.log, probe.ledger)
            theirs.rows.words = f"in a batch of {count}"
            table = theirs.reset()
            for action in probe.actions(steps, count):
                table, _ = theirs.step(theirs.request(table, action))
        finally:
            other.close()

    def _disturbed(self, actions: list[dict[str, np.ndarray]]) -> None:
        """Walk with refusals, other forms of the arrays, and writes into tables; odd rows act otherwise."""
        probe, rng = self._probe, np.random.default_rng([self._probe.seed, 7])
        forms = (_reversed, _read_only, _strided)
        for turn in range(2):
            probe.rows.words = f"in a walk with refused calls, and other actions of the {('odd', 'even')[turn]} rows"
            table = probe.reset()
            for number, action in enumerate(actions):
                changed = {name: value.copy() for name, value in action.items()}
                for row in range(1 - turn, probe.num, 2):
                    for name, value in probe.envs.action.sample(rng).items():
                        changed[name][row] = value
                request = probe.request(copied_values(table), forms[number % 3](changed))
                if number % 5 == 4:
                    self._illegal(request, row=(1 - turn) % probe.num, number=number)
                if number in (2, 4, 9):
                    self._refused(number)
                alter({name: table[name] for name in ("observation", "frame_no", "terminated", "truncated")})
                try:
                    table, _ = probe.step(request)
                except Failed:
                    raise
                except Exception as error:
                    if number % 3 == 0:
                        raise
                    probe.note("contract", f"an action of {forms[number % 3].__name__[1:]} arrays is refused: {error}")
                    return
            if probe.ledger.problem:
                return

    def _illegal(self, request: dict[str, Unchecked], row: int, number: int) -> None:
        ways = list(illegal_rows(self._probe, row))
        ways[number % len(ways)][1](request)

    def _refused(self, number: int) -> None:
        """Make calls that are refused as a rule; one that is not begins the rows, whose histories are then unknown."""
        probe = self._probe
        wrong: dict[int, dict[str, object]] = {
            2: {"ids": [0, probe.num]}, 4: {"seed": probe.seed + 5, "ids": [-1]},
            9: {"seed": probe.seed + 5, "no_such_option": 1},
        }  # fmt: skip
        options = wrong[number]
        with suppress(ValueError, TypeError, IndexError, KeyError):
            probe.log.call("reset", probe.envs.reset, options)
            probe.reset()  # it was taken
            probe.rows.forget()


def _reversed(action: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(reversed(action.items()))


def _read_only(action: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    for value in action.values():
        value.flags.writeable = False
    return action


def _strided(action: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.repeat(value, 2, axis=0)[::2] for name, value in action.items()}
