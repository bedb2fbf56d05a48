"""Compare windows of steps, pieces of trajectories, weights and look-ups of a source with its data (R3.3, R3.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from rlenv_kit.report import Failed, NotTried
from rlenv_kit.source_probe import BATCH, Refused, SourceProbe
from rlenv_kit.source_tables import Step, Trajectory, discount_of, packed, read_steps, read_trajectory
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import Unchecked

__all__ = ["window_checks"]

_LONG = 9
"""Frames of a window that reaches beyond the end of short episodes."""


def window_checks(probe: SourceProbe) -> list[PlannedCheck]:
    """Return the checks of windows, pieces, weights and look-ups."""
    return declared(vars(_Windows), _Windows(probe), probe)


class _Windows:
    def __init__(self, probe: SourceProbe) -> None:
        self._probe = probe

    def _batch(self, name: str, size: int, **options: object) -> Mapping[str, Unchecked]:
        """Return a batch that an option shows otherwise.

        Raises:
            Refused: the option is refused, or the batch is no single Table 5.
        """
        probe = self._probe
        probe.init()
        batch = probe.asked("sample_steps", partial(probe.batch, size, **options))
        if not isinstance(batch, Mapping) or not isinstance(batch.get("action"), Mapping):
            raise Refused(f"a batch with {name} is no single Table 5")
        return batch

    @check("windows", "chunks, future frames, masks and n-step factors are those of the step's episode", "contract",
           "stacks", "n steps")  # fmt: skip
    def windows(self, probe: SourceProbe) -> None:
        compared, factor = 0, None
        with suppress(Refused):
            factor = discount_of(self._batch("no option", BATCH))
        for name, counts, compare, part in (
            ("chunk", (3, _LONG), _check_chunk, 0), ("future", (2, _LONG), _check_future, None),
            ("stack", (2, _LONG), _check_stack, None), ("n_step", (2, _LONG), partial(_check_factor, factor), None),
        ):  # fmt: skip
            for count in counts:
                with suppress(Refused):
                    batch = self._batch(name, BATCH, **{name: count})
                    for row, one, place in probe.found(batch, part):
                        compared += 1
                        compare(batch, row, one.steps, place, count)
        with suppress(Refused):
            self._check_both()
        if not compared:
            raise NotTried("sample_steps takes none of chunk, future, stack and n_step")

    def _check_both(self) -> None:
        """Check stacks of n-step transitions."""
        probe, plain = self._probe, dict[tuple[object, ...], tuple[Unchecked, int]]()
        batches = [self._batch("n_step", BATCH, **options, n_step=3) for options in ({}, {"stack": 2})]
        for batch, is_plain in zip(batches, (True, False), strict=True):
            if not {"done", "next_observation"} <= batch.keys() or isinstance(batch["reward"], Mapping):
                return
            for row, one, place in probe.found(batch):
                came = (float(batch["reward"][row]), int(batch["done"][row]))
                if is_plain:
                    plain[(*one.key, place)] = came
                elif plain.get((*one.key, place), came) != came:
                    raise Failed(f"reward and done of 3 steps from {place} of {len(one.steps)} are {came} with a stack",
                                 f"they are {plain[(*one.key, place)]} without it")  # fmt: skip
                elif one.steps[-1].next_observation is not None:
                    _check_next_stack(batch, row, one.steps, min(place + 3, len(one.steps)) - 1, 2)

    @check("pieces", "a piece of a trajectory has as many consecutive steps as asked for", "contract", "same steps",
           "unknown option")  # fmt: skip
    def pieces(self, probe: SourceProbe) -> None:
        longest = max(len(one.steps) for one in probe.data.values())
        firsts: dict[bytes, list[tuple[Trajectory, int]]] = {}
        for one in probe.data.values():
            for place, step in enumerate(one.steps):
                firsts.setdefault(step.content, []).append((one, place))
        refused = list[str]()
        for length, size in ((1, 16), (2, 8 * BATCH // 4), (longest + 3, 16)):
            probe.init()
            try:
                tables = probe.asked("sample_trajectories", partial(probe.trajectories, size, length=length))
            except Refused as reason:
                refused.append(str(reason))  # a source may refuse a length that no episode has
                continue
            for piece in tables:
                if len(piece.steps) > length:
                    raise Failed(f"a piece of {length} steps has {len(piece.steps)}")
                contents = [step.content for step in piece.steps]
                begun = firsts.get(contents[0], [])
                whole = [one.steps[place : place + length] for one, place in begun]
                if contents not in [[step.content for step in steps] for steps in whole]:
                    raise Failed(f"a piece of {length} steps from frame {piece.steps[0].frame_no} of {piece.env_id!r} "
                                 f"has the frames {[step.frame_no for step in piece.steps]!r:.80}",
                                 "they are the steps from there on, up to the episode's end")  # fmt: skip
            if length == 2 and (begins := [found[0] for found in firsts.values() if len(found) == 1]):
                _check_begins([found[0] for piece in tables if len(found := firsts[piece.steps[0].content]) == 1],
                              [(one, place) for one, place in begins if place + 2 <= len(one.steps)])  # fmt: skip
        if len(refused) == 3:
            raise NotTried(f"sample_trajectories takes no length: {refused[0]}")

    @check("weights", "weights are as even as the draws, and beta is their power", "contract", "priority", "td errors")
    def weights(self, probe: SourceProbe) -> None:
        """Compare weights of even draws, of alpha 0, and of two exponents."""
        try:
            told = self._weights(BATCH)
        except Refused:
            told = None
        if told is None:
            raise NotTried("extra_info of a batch has no weights")
        rows: list[tuple[str, Mapping[str, object]]] = [
            ("without a priority", {}), ("with beta=0", {"priority": "return", "beta": 0.0}),
                ("with alpha=0", {"priority": "return", "alpha": 0.0, "beta": 1.0}),
        ]  # fmt: skip
        for words, options in rows:
            with suppress(Refused):
                values = self._weights(BATCH, **options)
                if values is not None and np.ptp(list(values.values())) > 1e-6:
                    raise Failed(f"weights {words} are from {min(values.values()):.4g} to {max(values.values()):.4g}",
                                 "they are equal")  # fmt: skip
        for priority in ("return", "reward", "advantage"):
            with suppress(Refused):
                half = self._weights(4 * BATCH, priority=priority, beta=0.5) or {}
                full = self._weights(4 * BATCH, priority=priority, beta=1.0) or {}
                self._compare_powers(priority, half, full)

    def _weights(self, size: int, **options: object) -> dict[bytes, float] | None:
        """Return the weights of a batch by the content of their steps; None if it tells none."""
        batch = self._batch("weights", size, **options)
        told = batch.get("extra_info", {}).get("weights")
        if told is None:
            return None
        contents = [step.content for step in read_steps(batch)]
        return dict(zip(contents, np.asarray(told, float).tolist(), strict=True))

    def _compare_powers(self, priority: str, half: Mapping[bytes, float], full: Mapping[bytes, float]) -> None:
        shared = [content for content in half.keys() & full.keys() if half[content] > 0 and full[content] > 0]
        gaps = [2 * math.log(half[content]) - math.log(full[content]) for content in shared]
        if gaps and max(gaps) - min(gaps) > 1e-3:
            raise Failed(f"weights of draws by {priority} with beta=1 are not the squares of those with beta=0.5",
                         "beta is the power of the weights")  # fmt: skip

    @check("errors", "TD errors count by their size, the last one of an index, and wrong ones are refused", "B.2.2.2-2",
           "td errors")  # fmt: skip
    def errors(self, probe: SourceProbe) -> None:
        update = getattr(probe.source, "update_priorities", None)
        if update is None:
            raise NotTried("the source takes no TD errors")
        probe.init()
        try:
            batch = probe.asked("sample_steps", partial(probe.batch, 4 * BATCH, priority="td_error"))
        except Refused as reason:
            raise NotTried(f"draws by TD error are refused: {reason}") from None
        extra = batch.get("extra_info", {}) if isinstance(batch, Mapping) else {}
        index = np.unique(np.asarray(extra.get("index", ())))
        if len(index) < 3:
            raise NotTried("fewer than 3 steps have an index")
        call = partial(probe.log.call, "update_priorities", update)
        call(index, np.full(len(index), 1e-3))
        given, values = np.repeat(index[:2], 2), np.array([5.0, 1e-3, 1e-3, -5.0])
        call(given, values)
        given[:], values[:] = index[2], 9.0
        counts = self._counts(index)
        most, often = max(counts.items(), key=lambda item: item[1])
        if most != int(index[1]) or counts.get(int(index[0]), 0) > 0.3 * often:
            raise Failed(f"after the errors 5, 0.001 of index {index[0]} and 0.001, -5 of index {index[1]}, these came "
                         f"{counts.get(int(index[0]), 0)} and {counts.get(int(index[1]), 0)} times",
                         "the last error of an index counts, by its size")  # fmt: skip
        self._check_filtered(call)
        call(index, np.full(len(index), 1e-3))
        call(given := np.array([index[0], index[1]]), np.array([1e-3, -5.0]))
        wrong = (
            ("two errors for three steps", index[:3], np.array([9.0, 9.0])),
            ("a far index beside a known one", np.array([index[2], 10**9]), np.array([9.0, 9.0])),
            ("a NaN beside a number", index[1:3], np.array([9.0, np.nan])),
        )  # fmt: skip
        for words, places, sizes in wrong:
            try:
                call(places, sizes)
            except Exception:
                if len(places) == len(sizes) and (now := self._most(index)) != most:
                    raise Failed(f"{words} was refused, and index {now} comes most often after it",
                                 "a refusal changes nothing") from None  # fmt: skip
                continue
            if len(places) != len(sizes):
                raise Failed(f"update_priorities took {words}", "each index has its error")
            probe.note("contract", f"update_priorities takes {words}; here it is refused")
            return

    def _check_filtered(self, call: Callable[..., Unchecked]) -> None:
        """Check that errors stay those of their steps where a filter leaves a part."""
        probe = self._probe
        for number in list(probe.numbered)[-1:]:
            with suppress(Refused):
                part = {"episodes": [number]}
                batch = probe.asked("sample_steps", partial(probe.batch, 4 * BATCH, **part))
                inside = np.unique(batch["extra_info"]["index"])
                if len(inside) < 3 or len(inside) < len(probe.numbered[number].steps) or probe.ignoring:
                    return
                call(inside, np.where(inside == inside[-2], 50.0, 1e-3))
                batch = probe.asked("sample_steps", partial(probe.batch, 4 * BATCH, priority="td_error", **part))
                numbers, counts = np.unique(batch["extra_info"]["index"], return_counts=True)
                if (most := int(numbers[np.argmax(counts)])) != int(inside[-2]):
                    raise Failed(f"index {inside[-2]} has the largest error, and draws by TD error from episode "
                                 f"{number} give index {most} most often",
                                 "a filter leaves each step its error")  # fmt: skip

    def _most(self, among: np.ndarray) -> int:
        """Return the index that draws by TD error give most often, among some."""
        counts = self._counts(among)
        return max(counts, key=counts.__getitem__)

    def _counts(self, among: np.ndarray) -> dict[int, int]:
        """Return how often draws by TD error give each index, among some; others may have the largest error."""
        index = np.asarray(self._probe.batch(4 * BATCH, priority="td_error")["extra_info"]["index"])
        numbers, counts = np.unique(index[np.isin(index, among)], return_counts=True)
        if not len(numbers):
            raise NotTried("among so many steps those with an error are not drawn")
        return dict(zip(numbers.tolist(), counts.tolist(), strict=True))

    @check("pairs of the data", "preference pairs are trajectories of the data, within margin and filter", "contract",
           "pairs")  # fmt: skip
    def pairs(self, probe: SourceProbe) -> None:
        draw = getattr(probe.source, "sample_pairs", None)
        if not callable(draw):
            raise NotTried("the source draws no preference pairs")
        totals = sorted({one.total for one in probe.data.values()})
        if len(totals) < 3:
            raise NotTried("there are fewer than 3 returns")
        gap, limit = (totals[-1] - totals[0]) / 2, totals[len(totals) // 3]
        for options, fits in (
            ({}, lambda one, other: True), ({"min_margin": gap}, lambda one, other: one - other >= gap - 1e-9),
            ({"min_return": limit}, lambda one, other: min(one, other) >= limit - 1e-9),
        ):  # fmt: skip
            probe.init()
            try:
                drawn = probe.log.call("sample_pairs", draw, 12, options)
            except ValueError:
                continue
            for pair in drawn:
                one, other = (read_trajectory(pair[name]) for name in ("chosen", "rejected"))
                if not all(self._is_known(each) for each in (one, other)):
                    raise Failed(f"a pair with {options} has a trajectory that is not in the data")
                if not fits(one.total, other.total):
                    raise Failed(f"a pair with {options} has the returns {one.total:.6g} and {other.total:.6g}")
        self._check_success(draw)
        for size in (0, -1, 1.5):
            with suppress(Exception):
                probe.log.call("sample_pairs", draw, size)
                probe.note("contract", f"sample_pairs takes the size {size}")

    def _check_success(self, draw: Callable[..., Unchecked]) -> None:
        """Check that of a pair by success the chosen one succeeded, and the other one failed, as they tell."""
        probe = self._probe
        probe.init()
        try:
            drawn = probe.log.call("sample_pairs", draw, 32, {"by": "success"})
        except ValueError:
            return
        told = [(pair["chosen"]["extra_info"], pair["rejected"]["extra_info"]) for pair in drawn]
        labels = [name for name in ("verdict", "success") if all({name} <= a.keys() & b.keys() for a, b in told)]
        if labels and not any(all(_succeeded(a[name]) is True and _succeeded(b[name]) is False for a, b in told)
                              for name in labels):  # fmt: skip
            raise Failed(f"of {len(told)} pairs by success some are of trajectories whose {' and '.join(labels)} do "
                         "not say success of the chosen one and failure of the other one",
                         "an unknown outcome is no failure")  # fmt: skip

    def _is_known(self, one: Trajectory) -> bool:
        contents = [step.content for step in one.steps]
        return any([step.content for step in known.steps] == contents for known in self._probe.data.values())

    @check("look-ups", "positions and steps_at lead to the steps of an index", "contract", "positions")
    def look_ups(self, probe: SourceProbe) -> None:
        steps_at, positions = (getattr(probe.source, name, None) for name in ("steps_at", "positions"))
        if not callable(steps_at):
            raise NotTried("the source has no steps_at")
        probe.init()
        batch = probe.batch(BATCH)
        index = np.asarray(batch["extra_info"]["index"])
        due = [step.content for step in read_steps(batch)]
        came = [step.content for step in read_steps(probe.log.call("steps_at", steps_at, index))]
        if came != due:
            raise Failed("steps_at gives other steps for the index of a batch", "an index stands for one step")
        with suppress(Refused):
            options = {"n_step": 2}
            widened = self._batch("n_step", BATCH, **options)
            again = probe.asked("steps_at", partial(probe.log.call, "steps_at", steps_at,
                                                    np.asarray(widened["extra_info"]["index"]), options))  # fmt: skip
            if [step.content for step in read_steps(again)] != [step.content for step in read_steps(widened)]:
                raise Failed(f"steps_at with {options} gives other steps for the index of a batch with it")
        total = sum(probe.contents.values())
        for wrong in ([-1], [total]):
            try:
                probe.log.call("steps_at", steps_at, wrong)
            except Exception:
                continue
            raise Failed(f"steps_at took the index {wrong}", f"allowed are 0 to {total - 1}")
        if callable(positions):
            told = np.asarray(probe.log.call("positions", positions)).tolist()
            if sorted(told) != list(range(total)):
                raise Failed(f"positions has {len(told)} of {total} steps", "they are those of all steps")
            limit = probe.middle_return
            with suppress(Refused):
                part = probe.asked("positions", partial(probe.log.call, "positions", positions, {"min_return": limit}))
                came = [step.content for step in read_steps(probe.log.call("steps_at", steps_at, np.asarray(part)))]
                inside = [step.content for one in probe.data.values() if one.total >= limit - 1e-9
                          for step in one.steps]  # fmt: skip
                if sorted(came) != sorted(inside):
                    raise Failed(f"positions with min_return={limit:g} are of {len(came)} steps",
                                 f"{len(inside)} fit the filter")  # fmt: skip


def _succeeded(label: Unchecked) -> bool | None:
    """Return what a label says of an outcome; None if it says nothing."""
    outcomes = {"success": True, "failure": False}
    return bool(label) if isinstance(label, bool | np.bool_ | int) else outcomes.get(str(label))


_Begin = tuple[Trajectory, int]


def _check_begins(came: list[_Begin], may: list[_Begin]) -> None:
    """Check that pieces of two steps begin in every trajectory, at every kind of place.

    Args:
        came: the trajectories and places at which pieces began.
        may: those at which one may begin.
    """
    half = (max((place for _, place in may), default=0) + 1) / 2
    kinds: dict[str, Callable[[_Begin], bool]] = {
        "after the first step of its trajectory": lambda begin: begin[1] > 0,
        "before the last two steps of its trajectory": lambda begin: begin[1] + 2 < len(begin[0].steps),
        "at an odd step": lambda begin: begin[1] % 2 == 1, "at an even step": lambda begin: begin[1] % 2 == 0,
        "in the first half": lambda begin: begin[1] < half, "in the second half": lambda begin: begin[1] >= half,
        **{f"in trajectory {one.trajectory_id} of {one.env_id!r}": partial(_is_in, one.key) for one, _ in may},
    }  # fmt: skip
    for words, fits in kinds.items() if len(came) >= BATCH else ():
        share = sum(map(fits, may)) / len(may) if may else 0.0
        if (1 - share) ** len(came) < 1e-7 and not any(map(fits, came)):
            raise Failed(f"none of {len(came)} pieces of 2 steps begins {words}, where {share:.0%} may begin",
                         "every step is equally likely as the first one of a piece")  # fmt: skip


def _is_in(key: tuple[str, int], begin: _Begin) -> bool:
    return begin[0].key == key


def _last(steps: tuple[Step, ...], place: int) -> int:
    return min(place, len(steps) - 1)


def _check_mask(batch: Mapping[str, Unchecked], name: str, row: int, due: list[bool]) -> None:
    mask = batch.get("extra_info", {}).get(name)
    if mask is not None and np.asarray(mask)[row].tolist() != due:
        raise Failed(f"{name} is {np.asarray(mask)[row].tolist()}", f"it is {due}: False where the episode has no step")


def _check_own(batch: Mapping[str, Unchecked], row: int, step: Step, names: tuple[str, ...], words: str) -> None:
    """Check that a window leaves other parts of a step as they are."""
    for name in names:
        value = batch.get(name)
        if name in ("observation", "next_observation"):
            due = getattr(step, name)
            if not isinstance(value, Mapping) or due is None:
                continue
            came = {field: np.asarray(column[row]) for field, column in value.items()}
            is_own = packed(came) == packed(due)
        else:
            due = getattr(step, name)
            if value is None or due is None or isinstance(value, Mapping):
                continue
            is_own = math.isclose(float(value[row]), float(due), rel_tol=1e-6, abs_tol=1e-6)
        if not is_own:
            raise Failed(f"{name} of a step with {words} is not that of the same step without it")


def _check_chunk(batch: Mapping[str, Unchecked], row: int, steps: tuple[Step, ...], place: int, count: int) -> None:
    for name, value in batch["action"].items():
        came = [packed({name: np.asarray(part)}) for part in value[row]]
        if came != [packed({name: steps[_last(steps, place + k)].action[name]}) for k in range(count)]:
            raise Failed(
                f"action.{name} in a chunk of {count} is not that of the steps from {place} of {len(steps)} on"
            )
    _check_own(batch, row, steps[place], ("observation",), f"a chunk of {count}")
    _check_mask(batch, "chunk_mask", row, [place + k < len(steps) for k in range(count)])


def _check_future(batch: Mapping[str, Unchecked], row: int, steps: tuple[Step, ...], place: int, count: int) -> None:
    told, last = batch.get("extra_info", {}).get("future_observation"), steps[-1].next_observation
    _check_own(batch, row, steps[place], ("observation", "reward", "done", "next_observation"), f"future={count}")
    if not isinstance(told, Mapping) or last is None:
        return
    frames = [*(step.observation for step in steps), last]
    for name, value in told.items():
        came = [packed({name: np.asarray(part)}) for part in value[row]]
        if came != [packed({name: frames[min(place + 1 + k, len(steps))][name]}) for k in range(count)]:
            raise Failed(
                f"future_observation.{name} of {count} frames is not what follows step {place} of {len(steps)}"
            )
    _check_mask(batch, "future_mask", row, [place + 1 + k <= len(steps) for k in range(count)])


def _check_stack(batch: Mapping[str, Unchecked], row: int, steps: tuple[Step, ...], place: int, count: int) -> None:
    for name, value in batch["observation"].items():
        came = [packed({name: np.asarray(part)}) for part in value[row]]
        if came != [packed({name: steps[max(0, place - count + 1 + k)].observation[name]}) for k in range(count)]:
            raise Failed(f"observation.{name} in a stack of {count} is not that of the steps up to {place}")
    _check_own(batch, row, steps[place], ("reward", "done"), f"a stack of {count}")
    _check_mask(batch, "stack_mask", row, [place - count + 1 + k >= 0 for k in range(count)])
    following = batch.get("next_observation")
    if isinstance(following, Mapping) and steps[place].next_observation is not None:
        _check_next_stack(batch, row, steps, place, count)


def _check_next_stack(
    batch: Mapping[str, Unchecked], row: int, steps: tuple[Step, ...], place: int, count: int
) -> None:
    """Check the frames up to that of the next observation, or this one alone where it is not stacked."""
    frames = [*(step.observation for step in steps[: place + 1]), steps[place].next_observation or {}]
    is_stacked = False
    for name, value in batch["next_observation"].items():
        came, own = np.asarray(value[row]), np.asarray(frames[-1][name])
        is_stacked = came.ndim > own.ndim
        due = [np.asarray(frames[max(0, place + 2 - count + k)][name]) for k in range(count)] if is_stacked else [own]
        if [packed({name: part}) for part in (came if is_stacked else [came])] != [packed({name: one}) for one in due]:
            raise Failed(f"next_observation.{name} in a stack of {count} is not that of the steps up to {place + 1}",
                         "it is what the action led to, and the frames before it")  # fmt: skip
    if is_stacked:
        _check_mask(batch, "next_stack_mask", row, [place + 2 - count + k >= 0 for k in range(count)])


def _check_factor(
    factor: float | None, batch: Mapping[str, Unchecked], row: int, steps: tuple[Step, ...], place: int, count: int
) -> None:
    extra, taken = batch.get("extra_info", {}), min(count, len(steps) - place)
    told = np.asarray(extra.get("discount"))
    due = None if factor is None else factor**taken
    is_told = told.dtype.kind == "f" and told.ndim == 1 and told[row] > 0  # it is 0 after a terminated step
    if due is not None and is_told and not math.isclose(told[row], due, rel_tol=1e-5):
        raise Failed(f"extra_info['discount'] is {told[row]:.6g} of {count} steps from {place} of {len(steps)}",
                     f"it is {factor:g} to the power of {taken}, {due:.6g}")  # fmt: skip
    if "steps" in extra and int(np.asarray(extra["steps"])[row]) != taken:
        raise Failed(f"extra_info['steps'] is {np.asarray(extra['steps'])[row]} of {count} steps from {place} of "
                     f"{len(steps)}", f"there are {taken}")  # fmt: skip
    if taken < count and "done" in batch and steps[-1].done is not None and int(batch["done"][row]) != steps[-1].done:
        raise Failed(f"done of {count} steps from {place} of {len(steps)} is {int(batch['done'][row])}",
                     f"that of the last step is {steps[-1].done}")  # fmt: skip
