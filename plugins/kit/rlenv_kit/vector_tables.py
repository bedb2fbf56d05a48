"""Judge each table of some episodes of a batch: after refusals, resets of some rows, ends, and in a second episode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from hal import IllegalAction
from rlenv_kit.report import Failed
from rlenv_kit.supervisor import PlannedCheck
from rlenv_kit.tables import ALWAYS, Unchecked, copied_values, deep_difference, difference
from rlenv_kit.vector_probe import Table, VectorProbe, left_difference, parts_of_row, reward_of
from rlenv_kit.vector_rows import illegal_rows
from rlenv_robot.world import ACTION_MASK

__all__ = ["later_checks"]

_STEPS = 130
"""Steps of a batch whose tables are judged."""

_ENDS: Mapping[object, int] = {"same_step": 2, "disabled": 3}
"""Mode -> tables with an ended row after which an episode is left."""

_STEADY = (*ALWAYS, ACTION_MASK)


def later_checks(
    probe: VectorProbe, check_table: Callable[[Unchecked], None], check_rewards: Callable[[Unchecked, Table], None],
    others: Iterable[PlannedCheck],
) -> list[PlannedCheck]:  # fmt: skip
    """Return the check of every table, which says something while all others pass.

    Args:
        probe: drives the batch.
        check_table: checks a Table 1 by itself.
        check_rewards: checks a Table 3 with its Table 1.
        others: the other checks.
    """
    judge = partial(_every_table, probe, check_table, check_rewards)
    return [PlannedCheck("every table", "each table keeps its form, and follows from the one before",
                         "6.2.3.1-T1 6.2.3.3-T3", judge, tuple(planned.key for planned in others))]  # fmt: skip


def _every_table(
    probe: VectorProbe, check_table: Callable[[Unchecked], None], check_rewards: Callable[[Unchecked, Table], None]
) -> None:
    audit = _Audit(probe, check_table, check_rewards)
    for seed in (probe.seed + 2, probe.seed):
        table, ends = probe.reset(seed=seed), 0
        audit.take("a reset", table)
        for number, action in enumerate(probe.actions(_STEPS)):
            if number in (5, 12):
                with suppress(ValueError):
                    table = probe.reset(ids=[0])
                    audit.take("a reset of row 0", table, began=(0,))
            request = probe.request(table, dict(action))
            rows = set[int]()
            if number % 6 == 2 and not audit.over.any():
                row = number % probe.num
                ways = list(illegal_rows(probe, row))
                ways[number % len(ways)][1](request)
                rows = {row}
            table, reward = probe.step(request)
            audit.take("a refusal" if rows else "a step", table, reward, refused=rows)
            ends += bool(audit.over.any())
            if number > 14 and ends and ends >= _ENDS.get(probe.mode, 1):
                break
    audit.check_kept()


class _Audit:
    """Compare each table of a batch with the one before."""

    def __init__(
        self, probe: VectorProbe, check_table: Callable[[Unchecked], None],
        check_rewards: Callable[[Unchecked, Table], None],
    ) -> None:  # fmt: skip
        self._probe, self._check_table, self._check_rewards = probe, check_table, check_rewards
        self._before: Table | None = None
        self._kept: list[tuple[Unchecked, Unchecked]] = []
        self._forms: dict[tuple[str, ...], object] = {}
        first = probe.first_entries
        self._has: dict[str, bool] = {} if first is None else {key: key in first for key in _STEADY}
        self.over = np.zeros(probe.num, bool)

    def take(
        self,
        kind: str,
        table: Table,
        reward: Table | None = None,
        began: Iterable[int] = (),
        refused: Iterable[int] = (),
    ) -> None:
        """Judge a table.

        Args:
            kind: of the call, in words.
            table: Table 1.
            reward: Table 3; None after a reset.
            began: the rows that were reset; after a reset of all it is empty.
            refused: the rows whose action was illegal.
        """
        told = table.get("extra_info", {}).get("error") if isinstance(table, Mapping) else None
        forbidden = {row for row in told if isinstance(row, int)} if isinstance(told, Mapping) else set()
        try:
            self._take(table, reward, frozenset(began), frozenset(refused) | forbidden)
        except Failed as finding:
            raise Failed(f"{kind}: {finding.found}", finding.allowed) from finding

    def _take(self, table: Table, reward: Table | None, began: frozenset[int], refused: frozenset[int]) -> None:
        probe, was_over = self._probe, self.over
        self._check_table(table)
        if reward is not None:
            self._check_rewards(reward, table)
            for agent, column in (reward["reward"].items() if isinstance(reward["reward"], Mapping)
                                  else (("", reward["reward"]),)):  # fmt: skip
                self._check_form(("reward", str(agent)), column)
            for row in refused:
                given = reward_of(reward, row)
                if any(given.values()) if isinstance(given, dict) else given:
                    raise Failed(f"refused row {row} earned {given}", "an illegal action earns 0")
        self.over = np.asarray(table["terminated"], bool) | np.asarray(table["truncated"], bool)
        stays = was_over if probe.mode == "disabled" else np.zeros(probe.num, bool)
        self._check_extra(table, self.over & ~stays, is_step=reward is not None)
        if self._before is not None and (reward is not None or began):
            self._check_rows(self._before, table, reward is None, was_over, began, refused)
        elif reward is None and not began and np.asarray(table["frame_no"]).any() and self._before is None:
            raise Failed(f"frame_no of a reset is {np.asarray(table['frame_no']).tolist()}", "episodes begin at 0")
        if reward is None and probe.mode == "same_step" and self.over[sorted(began) or slice(None)].any():
            raise Failed("a row that was reset has a flag", "its episode begins")
        self._before = copied_values(table)
        self._kept += [(part, copied_values(part)) for part in (table, reward) if part is not None]

    def _check_rows(
        self, before: Table, table: Table, is_reset: bool, was_over: np.ndarray, began: frozenset[int],
        refused: frozenset[int],
    ) -> None:  # fmt: skip
        probe = self._probe
        for row in range(probe.num):
            now, old = int(table["frame_no"][row]), int(before["frame_no"][row])
            stands = row in refused or (is_reset and row not in began) or (was_over[row] and probe.mode == "disabled")
            if row in began or (not is_reset and was_over[row] and probe.mode == "next_step"):
                due = 0
            elif stands:
                due = old
            elif self.over[row] and probe.mode == "same_step":
                due = 0
            else:
                due = old + 1
            if now != due:
                raise Failed(f"frame_no of row {row} is {now}", f"it was {old} before, so it is {due}")
            if stands and row not in began:
                moved = left_difference(before, table, row, probe.mode)
                if moved == "truncated" and row in refused and self.over[row]:
                    continue  # refusals may count towards the limit of steps
                moved = moved or deep_difference(_standing(before, row), _standing(table, row), "extra_info")
                if moved:
                    raise Failed(f"{moved} of row {row} changed", "the row stands")

    def _check_extra(self, table: Table, ended: np.ndarray, *, is_step: bool) -> None:
        extra: Mapping[str, Unchecked] = table.get("extra_info", {})
        for key in _STEADY:
            if self._has.setdefault(key, key in extra) != (key in extra):
                raise Failed(f"extra_info {'has' if key in extra else 'lacks'} {key!r}", "other tables differ in that")
        for key in (one for one in (*_STEADY, "applied") if one in extra):
            for place, leaf in _leaves(extra[key], (key,)):
                self._check_form(place, leaf)
                if isinstance(leaf, np.ndarray) and leaf.shape[:1] != (self._probe.num,):
                    raise Failed(f"extra_info's {'.'.join(place)} has shape {leaf.shape}",
                                 f"its leading axis is {self._probe.num}")  # fmt: skip
        final = extra.get("final")
        if final is None and not ended.any():
            return
        if not ended.any():
            raise Failed("extra_info has 'final'", "no row has ended")
        if is_step and self._has.setdefault("final", final is not None) != (final is not None):
            raise Failed(f"extra_info {'lacks' if final is None else 'has'} 'final' at an end of the rows "
                         f"{np.flatnonzero(ended).tolist()}", "at another end it was otherwise")  # fmt: skip
        if self._probe.mode == "same_step" or final is not None:
            self._check_final(final, np.flatnonzero(ended))
            self._check_last(final, table)

    def _check_last(self, final: Unchecked, table: Table) -> None:
        """Check that the table of an end shows the last frame, where the next episode begins later."""
        if self._probe.mode == "same_step":
            return
        for place, row in enumerate(np.ravel(final["index"]).tolist()):
            here = {name: value[row] for name, value in table["observation"].items()}
            last = {name: np.asarray(value)[place] for name, value in final["observation"].items()}
            if name := difference(here, last):
                raise Failed(f"at the end of row {row} {name} of the observation and of extra_info['final'] differ",
                             "both are the last frame; the next episode begins later")  # fmt: skip

    def _check_final(self, final: Unchecked, rows: np.ndarray) -> None:
        spec = self._probe.envs.observation
        if not isinstance(final, Mapping) or not {"index", "observation"} <= final.keys():
            raise Failed(f"extra_info['final'] is {final!r:.60}", "it holds index and observation of the ended rows")
        if not np.array_equal(final["index"], rows):
            raise Failed(f"extra_info['final']['index'] is {final['index']}", f"the rows {rows.tolist()} ended")
        shown = final["observation"]
        for place, row in enumerate(rows.tolist()):
            try:
                one = {name: np.asarray(value)[place] for name, value in shown.items()}
                spec.validate(one, f"the final observation of row {row}")
            except (IllegalAction, IndexError, AttributeError) as error:
                raise Failed(f"the final observation of row {row} is wrong: {error}") from error
        for path, leaf in _leaves(final, ("final",)):
            each = (isinstance(leaf, np.ndarray) and leaf.ndim > 0) or path[-1] == "success"
            if each and np.shape(leaf)[:1] != (len(rows),):
                raise Failed(f"extra_info's {'.'.join(path)} has shape {np.shape(leaf)}",
                             f"its leading axis is that of the {len(rows)} ended rows")  # fmt: skip
        for name, value in shown.items():
            self._check_form(("final", str(name)), value)
            if not spec[name].is_text and isinstance(value, np.ndarray) and value.dtype != spec[name].numpy_dtype:
                raise Failed(f"the final {name} is of {value.dtype}", f"it is described as {spec[name].dtype}")

    def _check_form(self, place: tuple[str, ...], value: Unchecked) -> None:
        form = (str(value.dtype) if value.dtype.kind != "U" else "text", value.ndim) if isinstance(
            value, np.ndarray) else type(value).__name__  # fmt: skip
        if self._forms.setdefault(place, form) != form:
            raise Failed(f"{'.'.join(place)} is {form}", f"in other tables it is {self._forms[place]}")

    def check_kept(self) -> None:
        """Check that the tables are still what they were."""
        for table, copy in self._kept:
            if place := deep_difference(table, copy):
                raise Failed(f"{place} of a table changed after it was returned", "a returned table never changes")


def _standing(table: Table, row: int) -> dict[str, Unchecked]:
    """Return what stays of a row that stands; its final frame is in the table of its last step alone."""
    return {key: value for key, value in parts_of_row(table, row).items() if key != "final"}


def _leaves(value: Unchecked, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Unchecked]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*place, str(key)))
    else:
        yield place, value
