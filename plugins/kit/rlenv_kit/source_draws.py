"""Check how a source-data environment draws: seeds, probabilities, priorities, thresholds (R3.3, R3.4, R6.2)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import pairwise

import numpy as np

from rlenv_kit.report import Failed, NotTried
from rlenv_kit.source_priorities import (
    SIGMAS,
    all_alike,
    by_powers,
    check_once,
    check_part,
    check_step_chances,
    check_trajectory_chances,
    unlikely,
)
from rlenv_kit.source_probe import BATCH, Refused, SourceProbe
from rlenv_kit.source_tables import read_steps, read_trajectory
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import deep_difference

__all__ = ["draw_checks"]

_ENOUGH = 40
"""Draws for each step of the data set, so that one that can come does come, but for one case in e**40."""

_FLOOR = 0.02
"""Share of the largest priority that a step with hardly any error may have, so that it can still come."""

_BATCHES = 16
"""Batches that are drawn after one init."""

_WAYS: tuple[dict[str, object], ...] = (
    {"priority": "return"}, {"priority": "td_error"}, {"replace": False}, {"min_return": -1e9},
)  # fmt: skip
"""Options that may take another way to a generator than draws without options."""


def draw_checks(probe: SourceProbe) -> list[PlannedCheck]:
    """Return the checks of draws."""
    return declared(vars(_Draws), _Draws(probe), probe)


class _Draws:
    def __init__(self, probe: SourceProbe) -> None:
        self._probe = probe

    def _drawn(self, init: bool = True, **options: object) -> list[object]:
        """Return draws of every kind after an init with the options, or without one."""
        probe = self._probe
        if init:
            probe.init(**options)
        drawn: list[object] = [step.content for step in probe.steps(BATCH)]
        for size in (2, 1):
            for one in probe.trajectories(min(size, probe.few)):
                drawn += [one.key, *(step.content for step in one.steps)]
        for asked in _WAYS:
            with suppress(Refused):
                drawn += [step.content for step in probe.asked("sample_steps", partial(probe.steps, 8, **asked))]
            if probe.few > 1:
                with suppress(Refused):
                    drawn += [
                        one.key for one in probe.asked("sample_trajectories", partial(probe.trajectories, 1, **asked))
                    ]
        return drawn

    @check("seed", "a seed fixes all draws that follow", "6.3.2.1-1 6.3.2.1-2", "trajectories", "unknown option")
    def seed(self, probe: SourceProbe) -> None:
        """Check that a seed fixes and chooses the draws."""
        first = self._drawn()
        if self._drawn() != first:
            raise Failed(f"two draws after init with seed {probe.seed} differ", "a seed fixes the draws that follow")
        self._drawn(seed=probe.seed + 5)
        probe.steps(11)
        if self._drawn() != first:
            raise Failed(f"draws after init with seed {probe.seed} differ after draws of another seed")
        probe.init()
        batches = [[step.content for step in probe.steps(BATCH)] for _ in range(_BATCHES)]
        known = len(set(batches[0]))
        if known > 3 and any(one == other for one, other in pairwise(batches)):
            raise Failed("two batches after one init are the same, in the same order", "each call draws anew")
        numbers = [[one.key for one in probe.trajectories(probe.few)] for _ in range(4)]
        if len(set(numbers[0])) > 3 and all(one == numbers[0] for one in numbers):
            raise Failed("four batches of trajectories after one init are the same", "each call draws anew")
        others = [self._drawn(seed=probe.seed + number) for number in range(1, 4)]
        if all(other == first for other in others) and known > 1:
            raise Failed("four seeds give the same draws", "a seed chooses the draws")

    @check("generators", "the process's generators neither influence draws nor are used", "contract", "seed")
    def generators(self, probe: SourceProbe) -> None:
        """Check that draws and the process's generators leave each other alone."""
        before = random.getstate(), np.random.get_state(legacy=True)
        try:
            random.seed(1)
            np.random.seed(1)
            first = self._drawn()
            random.seed(2)
            np.random.seed(2)
            states = random.getstate(), np.random.get_state(legacy=True)
            if self._drawn() != first:
                raise Failed("the draws depend on the process's generators", "a source has its own generator")
            after = np.random.get_state(legacy=True)
            if random.getstate() != states[0] or deep_difference(list(states[1]), list(after), "state"):
                raise Failed("drawing changes the state of the process's generators")
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])

    @check(
        "instances", "an object's draws are its own, and equal seeds give equal ones", "6.3.2.1-2", "seed", "ownership"
    )
    def instances(self, probe: SourceProbe) -> None:
        """Check that a second object of the same data neither disturbs the first one nor draws otherwise."""
        other = None if probe.make is None else probe.log.call("make", probe.make)
        if other is None or other is probe.source:
            raise NotTried("the factory makes no second object")
        twin = SourceProbe(other, probe.seed, probe.log)
        try:
            first = self._drawn()
            probe.init()
            twin.init(seed=probe.seed + 5)
            twin.steps(BATCH)
            if self._drawn(init=False) != first:
                raise Failed(
                    "draws differ after another object was initialised, and drew", "each has its own generator"
                )
            twin.init()
            drawn = [step.content for step in twin.steps(BATCH)]
            if drawn != first[: len(drawn)] and set(drawn) <= probe.contents.keys():
                raise Failed(f"two objects with the same data draw differently after init with seed {probe.seed}",
                             "a seed fixes the draws that follow")  # fmt: skip
        finally:
            getattr(other, "close", lambda: None)()

    @check("every step", "every step and trajectory can be drawn", "6.3.2.2-1 6.3.2.3-1", "same steps")
    def every_step(self, probe: SourceProbe) -> None:
        """Check that every step of the data comes."""
        known = probe.contents
        total = sum(known.values())
        probe.init()
        drawn = Counter(step.content for step in probe.steps(min(_ENOUGH * total, 40_000)))
        missing = [content for content in known if content not in drawn]
        if missing and _ENOUGH * total <= 40_000:
            place = next(
                (one.trajectory_id, place)
                for one in probe.data.values() for place, step in enumerate(one.steps) if step.content == missing[0]
            )  # fmt: skip
            raise Failed(f"step {place[1]} of trajectory {place[0]} did not come in {sum(drawn.values())} draws",
                         "every step can be drawn")  # fmt: skip
        if unlikely(drawn, {content: count / total for content, count in known.items()}):
            probe.note("contract", "draws without a priority are not uniform over the steps")

    @check("once", "without replacement, each step comes once", "contract", "same steps", "unknown option")
    def once(self, probe: SourceProbe) -> None:
        """Check draws without replacement."""
        known = probe.contents
        total = sum(known.values())
        probe.init()
        try:
            drawn = probe.asked("sample_steps", lambda: probe.steps(total, replace=False))
        except Refused as reason:
            raise NotTried(f"draws without replacement are refused: {reason}") from None
        if Counter(step.content for step in drawn) != known:
            raise Failed(f"{total} draws without replacement are not the {total} steps of the data",
                         "each step comes once")  # fmt: skip
        for call, most in ((probe.batch, total), (probe.tables, len(probe.data))):
            if not _is_refused(partial(call, most + 1, replace=False)):
                raise Failed(f"{most + 1} draws without replacement came, the data have {most}")
        with suppress(Refused):
            tables = probe.asked("sample_trajectories", partial(probe.trajectories, len(probe.data), replace=False))
            if len({one.key for one in tables}) < len(tables):
                raise Failed(f"{len(tables)} trajectories without replacement are not as many different ones",
                             "each trajectory comes once")  # fmt: skip

    @check("positions", "an index stands for one step", "contract", "same steps")
    def positions(self, probe: SourceProbe) -> None:
        probe.init()
        steps: dict[int, bytes] = {}
        for _ in range(3):
            batch = probe.batch(4 * BATCH)
            extra = batch.get("extra_info") if isinstance(batch, Mapping) else None
            index = np.asarray(extra.get("index") if isinstance(extra, Mapping) else None)
            if index.dtype.kind not in "iu" or index.ndim != 1:
                raise NotTried("extra_info of a batch has no index of its steps")
            for place, step in zip(index.tolist(), read_steps(batch), strict=True):
                if steps.setdefault(place, step.content) != step.content:
                    raise Failed(f"extra_info['index'] is {place} for two steps",
                                 "update_priorities takes it, so it stands for one")  # fmt: skip

    # -- priorities ------------------------------------------------------------------------------------

    @check(
        "priority",
        "draws by return prefer high returns, as their weights say",
        "6.3.2.3-3 B.2.2.1-1",
        "unknown option",
        "every step",
    )
    def priority(self, probe: SourceProbe) -> None:
        """Check draws by return, by reward and by advantage, and their importance weights."""
        refused = self._check_trajectories()
        priorities = ["return", "reward", "advantage"]
        if not _is_refused(partial(probe.batch, 2, priority="no_such_priority")):
            probe.note("contract", "sample_steps ignores an unknown priority, so a misspelt one goes unnoticed")
            priorities = priorities[:1]
        taken = False
        for priority in priorities:
            probe.init()
            if check_step_chances(probe, priority):
                taken = True
                self._check_alpha(priority)
                check_part(probe, priority)
                check_once(probe, priority)
        if refused and not taken:
            raise NotTried(f"priorities are refused: {refused}")

    def _check_trajectories(self) -> str:
        """Check draws of trajectories by return; return why there are none."""
        probe, data = self._probe, self._probe.data
        totals = {key: one.total for key, one in data.items()}
        if len(data) < 2 or max(totals.values()) == min(totals.values()):
            return "all trajectories have one return"
        refused = ""
        for priority, each in (("return", 200), ("reward", 60)):
            probe.init()
            count = min(4000, each * len(data))
            for options in ({"priority": priority, "beta": 1.0}, {"priority": priority}):
                try:
                    drawn = probe.asked("sample_trajectories", partial(probe.trajectories, count, **options))
                except Refused as reason:
                    refused = refused or str(reason)
                    continue
                if priority == "return":
                    self._check_mean("return", [totals[one.key] for one in drawn], list(totals.values()))
                check_trajectory_chances(probe, priority, drawn)
                return ""
            if not _is_refused(partial(probe.tables, 2, priority="no_such_priority")):
                break
        return refused

    @staticmethod
    def _check_mean(priority: str, drawn: list[float], values: list[float]) -> None:
        """Check that the mean of draws by a priority is above that of the data."""
        low, spread, count = min(values), float(np.std(values)), math.sqrt(len(drawn))
        mean, all_mean = float(np.mean(drawn)), float(np.mean(values))
        shift = spread**2 / all_mean if low > 0 else math.inf  # where chances are in proportion to the values
        if mean < all_mean + (3 * spread / count if shift > 6 * spread / count else -4 * spread / count):
            raise Failed(f"the mean {priority} of {len(drawn)} draws by {priority} is {mean:.6g}, that of the data "
                         f"{all_mean:.6g}", f"priority={priority!r} prefers high ones")  # fmt: skip

    def _check_alpha(self, priority: str) -> None:
        """Check that an exponent of priorities, where it is taken, changes the draws, and is their power."""
        probe, drawn, chances = self._probe, list[list[bytes]](), list[dict[bytes, float]]()
        if all_alike(list(probe.data.values()), priority):
            return  # equal priorities have equal powers
        beta: dict[str, object] = {"beta": 1.0}
        for alpha in ({"alpha": 0.0}, {"alpha": 1.0}, {"alpha": 6.0}, {}):
            for more in (beta, {}):
                probe.init()
                options = {"priority": priority, **alpha, **more}
                with suppress(Refused):
                    batch = probe.asked("sample_steps", partial(probe.batch, 512, **options))
                    break
            else:
                return
            contents = [step.content for step in read_steps(batch, 512)]
            drawn.append(contents)
            extra = batch.get("extra_info") if isinstance(batch, Mapping) else None
            weights = extra.get("weights") if more and isinstance(extra, Mapping) else None
            if weights is not None:
                known = probe.contents
                chances.append({content: 1 / weight for content, weight in zip(
                    contents, np.asarray(weights, float).tolist(), strict=True) if known[content] == 1 and weight > 0
                })  # fmt: skip
        if drawn[0] == drawn[1] == drawn[2] and len(set(drawn[0])) > 1:
            raise Failed(f"draws by {priority} are the same with alpha 0, 1 and 6, which were all accepted",
                         "chances are priorities to the power of alpha")  # fmt: skip
        if len(chances) == 4:
            for words, other, power in (("0", chances[0], 0.0), ("6", chances[2], 6.0), ("left out", chances[3], 1.0)):
                if not by_powers(chances[1], other, power):
                    raise Failed(f"by their weights, draws by {priority} with alpha {words} have other chances than "
                                 f"those with alpha 1 to the power of {power:g}",
                                 "chances are priorities to the power of alpha, 1 by default")  # fmt: skip

    @check("td errors", "draws by TD error follow the errors", "6.3.2.2-3 B.2.2.2-2", "same steps", "unknown option")
    def td_errors(self, probe: SourceProbe) -> None:
        """Check draws by TD error."""
        update = getattr(probe.source, "update_priorities", None)
        if update is None:
            raise NotTried("the source takes no TD errors")
        probe.init()
        total = sum(probe.contents.values())
        try:
            batch = probe.asked("sample_steps", lambda: probe.batch(min(20_000, _ENOUGH * total), priority="td_error"))
        except Refused as reason:
            raise NotTried(f"draws by TD error are refused: {reason}") from None
        if "index" not in (batch.get("extra_info", {}) if isinstance(batch, Mapping) else {}):
            raise NotTried("extra_info of a batch has no index for update_priorities")
        index = np.unique(np.asarray(batch["extra_info"]["index"]))
        count, few = min(20_000, 60 * len(index)), index[::2]
        asked: dict[str, object] = {"priority": "td_error"}
        with suppress(Refused):
            probe.asked("sample_steps", partial(probe.batch, 1, **asked, alpha=1.0))
            asked["alpha"] = 1.0
        for turn, chosen in enumerate((few, index)):
            is_large = (np.arange(len(chosen)) + turn * (len(chosen) > 2)) % 3 == 0
            sizes = np.where(is_large, 3.0, 1e-3)
            sizes[np.flatnonzero(is_large)[1::2]] /= 1 + turn
            probe.log.call("update_priorities", update, chosen, sizes * np.where(np.arange(len(chosen)) % 2, -1, 1))
            came = Counter(np.asarray(probe.batch(count, **asked)["extra_info"]["index"]).tolist())
            large, small = chosen[is_large].tolist(), chosen[~is_large].tolist()
            worst = _unlike(came, dict(zip(large, (sizes[is_large] / sizes[is_large].sum()).tolist(), strict=True)))
            floor = _FLOOR * len(small) / len(large) * sum(came[place] for place in large)
            often = sum(came[place] for place in small)
            if worst or often > floor + SIGMAS * math.sqrt(floor) + 2:
                number, due = worst or (often, floor)
                raise Failed(f"{'a step' if worst else 'steps with small errors'} came {number} times in {count} draws "
                             f"by TD error, by its error {'' if worst else 'at most '}{due:.1f} times",
                             "chances are in proportion to the absolute errors")  # fmt: skip
            self._check_new(came, large, index[~np.isin(index, chosen)].tolist())
        for wrong in (-1, 10**9):
            with suppress(ValueError, IndexError, KeyError):
                probe.log.call("update_priorities", update, np.array([wrong]), np.array([1e5]))
                came = Counter(np.asarray(probe.batch(64, priority="td_error")["extra_info"]["index"]).tolist())
                place, often = came.most_common(1)[0]
                if often > 32 and len(index) > 2:
                    raise Failed(f"update_priorities took the index {wrong} for {place}",
                                 "an index of no step is refused")  # fmt: skip
        probe.init()
        again = Counter(np.asarray(probe.batch(count, priority="td_error")["extra_info"]["index"]).tolist())
        if unlikely(again, dict.fromkeys(index.tolist(), 1 / len(index))):
            raise Failed("TD errors outlast an init", "init sets the data set to its first state")

    @staticmethod
    def _check_new(came: Counter[int], large: list[int], new: list[int]) -> None:
        """Check that steps without an error come as often as those with the largest one so far."""
        known = sum(came[place] for place in large)
        due = known / len(large) * len(new)
        if new and known > 30 and not 0.5 * due <= sum(came[place] for place in new) <= 2 * due:
            raise Failed(f"{len(new)} steps without a TD error came {sum(came[place] for place in new)} times, and "
                         f"{len(large)} steps with the largest one {known} times",
                         "a step without one gets the largest one set so far")  # fmt: skip

    @check("pairs", "of a preference pair the chosen trajectory is better, by the margin", "contract", "same steps")
    def pairs(self, probe: SourceProbe) -> None:
        """Check preference pairs by return, where the source draws them."""
        draw = getattr(probe.source, "sample_pairs", None)
        if not callable(draw):
            raise NotTried("the source draws no preference pairs")
        probe.init()
        try:
            drawn = probe.log.call("sample_pairs", draw, 8)
        except ValueError as reason:
            raise NotTried(f"pairs are refused: {reason}") from None
        if len(drawn) != 8:
            raise Failed(f"{len(drawn)} pairs came, 8 were asked for")
        for pair in drawn:
            chosen, rejected = (read_trajectory(pair[name]) for name in ("chosen", "rejected"))
            difference = chosen.total - rejected.total
            if any(isinstance(one.steps[0].reward, Mapping) for one in (chosen, rejected)):
                raise NotTried("several agents have several returns")
            if difference <= 0 or not math.isclose(pair["margin"], difference, rel_tol=1e-6, abs_tol=1e-6):
                raise Failed(f"a pair has the returns {chosen.total:.6g} and {rejected.total:.6g}, and the margin "
                             f"{pair['margin']!r:.30}", "the chosen return is larger, by the margin")  # fmt: skip

    @check(
        "threshold",
        "a return threshold lets through what reaches it, and nothing else",
        "6.3.2.3-3 B.2.2.1-2",
        "same steps",
        "unknown option",
    )
    def threshold(self, probe: SourceProbe) -> None:
        """Check draws above a return threshold."""
        data = probe.data
        totals = sorted(one.total for one in data.values())
        if len(totals) < 2 or totals[0] == totals[-1]:
            raise NotTried("all trajectories have one return")
        limit = probe.middle_return
        probe.init()
        try:
            drawn = probe.asked(
                "sample_trajectories", lambda: probe.trajectories(min(256, 12 * len(data)), min_return=limit)
            )
        except Refused as reason:
            raise NotTried(f"a return threshold is refused: {reason}") from None
        for one in drawn:
            if one.total < limit - 1e-9:
                raise Failed(f"min_return={limit:g} gave a trajectory of return {one.total:g}")
        good = {step.content for one in data.values() if one.total >= limit - 1e-9 for step in one.steps}
        for step in probe.steps(4 * BATCH, min_return=limit):
            if step.content not in good:
                raise Failed(f"min_return={limit:g} gave a step of a trajectory below it")
        came = {(one.env_id, one.trajectory_id) for one in drawn}
        due = {key for key, one in data.items() if one.total >= limit - 1e-9}
        if len(due) <= 20 and due - came:
            raise Failed(f"min_return={limit:g} left out trajectory {min(due - came)[1]}, whose return reaches it")
        try:
            answer = probe.trajectories(1, min_return=totals[-1] + 1.0)
        except Exception:
            return
        raise Failed(f"a return threshold above all returns gave a trajectory of return {answer[0].total:g}")


def _is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except Exception:
        return True
    return False


def _unlike(came: Counter[int], chances: Mapping[int, float]) -> tuple[int, float] | None:
    """Return count and expected count of an index, or of those with one chance, that came too often or too seldom."""
    alike: dict[float, list[int]] = {}
    for place, chance in chances.items():
        alike.setdefault(chance, []).append(place)
    groups = {str(chance): chance * len(places) for chance, places in alike.items()}
    together = Counter({str(chance): sum(came[place] for place in places) for chance, places in alike.items()})
    return unlikely(Counter({place: came[place] for place in chances}), chances) or unlikely(together, groups)
