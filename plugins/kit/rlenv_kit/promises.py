"""Hold an environment to what the sentences on its options and entries promise: ranges, defaults, lengths (6.4-b)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from rlenv_kit.probe import Frame, Probe, Table, draws, error_of, frame_of, is_over
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.tables import Unchecked, check_observation, check_reward, difference
from rlenv_robot.tables import step_extra_of

__all__ = ["Promise", "check_default", "check_length", "check_step_entries", "plain_number", "promise_of"]

_NUMBER = r"-?\d+(?:\.\d+)?"

_RANGE = re.compile(rf"(?<![\w.-])({_NUMBER}) (?:to|until|up to) ({_NUMBER})(?![\w.]*\d)")
"""A range in a sentence, such as "from 0 to 2.5"."""

_DEFAULT = re.compile(
    rf"\b(?:by default|default is|defaults to|default:?)(?: it is)? ({_NUMBER})(?: [\w/%]+)?\s*(?:[;,.)]|$)"
)

_UNIT = re.compile(r"\b(?:steps|frames)\b", re.IGNORECASE)

_LENGTH = re.compile(
    r"(?=.*\b(?:episode|limit|after)\b).*\btruncate|\btime limit\b|\bafter which\b[^;.]*\b(?:ends|is over)\b"
    r"|\blength of (?:an|the|this|each) episode\b|\bepisode (?:ends|lasts)\b|\b(?:most|maximum) (?:steps|frames) of\b",
    re.IGNORECASE,
)
"""Words of an option that is the length of an episode."""

_SPARE = 3
"""Frames beyond a promised end that are walked."""

_SEEDS = 3

_LONGEST = 60
"""Frames of an episode that are walked to compare a default."""

_GIVEN = 6
"""Steps of an episode that are given an entry."""


@dataclass(frozen=True)
class Promise:
    """Range and default that a sentence names for an option or an entry.

    Attributes:
        name: the option or entry.
        sentence: its description.
        low: the least value; NaN if the sentence names no range.
        high: the greatest value; NaN if the sentence names no range.
        default: the value by default; NaN if the sentence names none.
    """

    name: str
    sentence: str
    low: float
    high: float
    default: float

    @property
    def has_range(self) -> bool:
        """Whether the sentence names a range."""
        return self.low < self.high

    @property
    def outside(self) -> tuple[float, ...]:
        """Numbers outside the range; none if there is no range."""
        if not self.has_range:
            return ()
        return self.low - 1, self.high + 1, self.high + 100 * (self.high - self.low)


def promise_of(name: str, sentence: object) -> Promise:
    """Read the description of an option or an entry."""
    text = str(sentence)
    told, default = _RANGE.search(text), _DEFAULT.search(text)
    low, high = map(float, told.groups()) if told else (math.nan, math.nan)
    return Promise(name, text, low, high, float(default[1]) if default else math.nan)


def plain_number(number: float) -> float | int:
    """Return a number as an int if it is whole."""
    return int(number) if math.isfinite(number) and number == int(number) else number


# -- Options of reset ------------------------------------------------------------------------------------------


def check_default(probe: Probe, promise: Promise) -> None:
    """Check that an episode in which an option has its described default equals one without the option.

    Raises:
        Failed: the episodes differ.
    """
    if math.isnan(promise.default):
        return
    value = plain_number(promise.default)
    for seed in range(probe.seed, probe.seed + _SEEDS):
        first = probe.walk(_LONGEST, seed=seed, budget_s=2)
        options = {**probe.seed_option(seed), promise.name: value}
        try:
            probe.reset_with(options)
        except Exception:
            return  # what it takes, other checks look at
        again = probe.repeat(first, seed=seed, first=partial(probe.reset_with, options))
        if first and is_over(again[-1].kept) != is_over(first[-1].kept):
            raise Failed(f"frame {len(first)} is the last one with {promise.name!r} = {value} or without it, not both",
                         f"the description says {promise.sentence!r}")  # fmt: skip
        probe.compare(first, again, f"with {promise.name!r} = {value}, which it is by default")


def check_length(probe: Probe, promise: Promise) -> None:
    """Check that an option which is described as the length of an episode in steps or frames is that.

    Raises:
        Failed: episodes are longer or shorter, or end by another flag than the sentence says.
    """
    if not _UNIT.search(promise.sentence) or not _LENGTH.search(promise.sentence):
        return
    cuts = "truncat" in promise.sentence.lower()
    found = [(number, _ends(probe, promise.name, number)) for number in _lengths(promise)]
    found = [(number, ends) for number, ends in found if ends]
    if len(found) < 2:
        return  # the values are not taken, or all episodes end before
    late = [min(length - number for length, _ in ends) for number, ends in found]
    if min(late) > 0 and (max(late) == min(late)):
        raise Failed(f"with {promise.name!r} = {found[0][0]} an episode goes on after {found[0][0]} frames",
                     f"the description says {promise.sentence!r}")  # fmt: skip
    early = [max(length - number for length, _ in ends) for number, ends in found]
    if cuts and max(early) < 0 and all(was_cut for _, ends in found for _, was_cut in ends):
        raise Failed(f"with {promise.name!r} = {found[0][0]} episodes are truncated before frame {found[0][0]}",
                     f"the description says {promise.sentence!r}")  # fmt: skip
    exact = [was_cut for number, ends in found for length, was_cut in ends if length == number]
    if cuts and len(exact) > _SEEDS and not any(exact):
        raise Failed(f"with {promise.name!r} = {found[0][0]} an episode is terminated at frame {found[0][0]}, and "
                     "truncated is 0", f"the description says {promise.sentence!r}")  # fmt: skip


def _lengths(promise: Promise) -> list[int]:
    """Return two lengths that the option may take."""
    low, high = (promise.low, promise.high) if promise.has_range else (1.0, math.inf)
    first = math.ceil(max(low, 3.0))
    return [number for number in (first, first + 4) if number <= high]


def _ends(probe: Probe, name: str, number: int) -> list[tuple[int, bool]]:
    """Return length and truncation of episodes with a limit, without those that end before it by termination."""
    found = []
    for seed in range(probe.seed, probe.seed + _SEEDS):
        try:
            table = probe.reset_with({**probe.seed_option(seed), name: number})
        except Exception:
            return []
        if "agent" in table.get("extra_info", {}):
            return []  # agents in turn: what a step is, the environment says
        rng, length = draws(seed), 0
        while not is_over(table) and length < number + _SPARE:
            table, length = probe.legal_step(table, rng, length).table, length + 1
        if table["truncated"] or length >= number:
            found.append((length, bool(table["truncated"])))
    return found


# -- Entries of a step -----------------------------------------------------------------------------------------


def check_step_entries(probe: Probe) -> int:
    """Check entries of a step's ``extra_info`` that a sentence describes: their range, and what they are by default.

    Returns:
        The number of entries with a range that a step takes.

    Raises:
        Failed: a value outside the range is taken, a refusal has an effect, or an entry holds for later steps.
    """
    takes = step_extra_of(getattr(probe.env, "world", probe.env))
    first = probe.walk(_GIVEN)
    promises = [promise_of(name, text) for name, text in takes.structures.items()] if first else []
    tried = 0
    for promise in (one for one in promises if one.has_range):
        given: list[Mapping[str, object]] = [{promise.name: plain_number(end)} for end in (promise.low, promise.high)]
        if not all(_given(probe, first, [entry] * len(first)) for entry in given):
            continue  # the two numbers are no range of values
        tried += 1
        refused = [{promise.name: value} for value in _wrong_values(promise)]
        for entry in refused:
            _check_refused(probe, first[0], entry, promise)
        _check_nothing_done(probe, first, refused, promise)
        if not math.isnan(promise.default) and probe.repeatable:
            usual = {promise.name: plain_number(promise.default)}
            words = f"with {promise.name!r} = {usual[promise.name]} in each step, which it is by default"
            probe.compare(first, _given(probe, first, [usual] * len(first)), words)
            rest = len(first) - 1
            one, other = (_given(probe, first, [given[1], *[entry] * rest]) for entry in ({}, usual))
            if one and other:
                probe.compare(one, other, f"in steps after one with {promise.name!r} = {given[1][promise.name]}")
    return tried


def _wrong_values(promise: Promise) -> Iterator[object]:
    yield from map(plain_number, promise.outside)
    yield from (math.inf, -math.inf, math.nan)
    if re.search(r"\bnumber\b", promise.sentence):
        yield from ("one", [plain_number(promise.low)])
        if "whole number" in promise.sentence:
            yield promise.low + 0.5


def _send(probe: Probe, table: Table, frame: Frame, entry: Mapping[str, object]) -> Unchecked:
    action = {name: np.array(value) for name, value in frame.action.items()}
    request = {"env_id": probe.env.env_id, "frame_no": table["frame_no"], "action": action}
    return probe.log.call("step", probe.env.step, request, {**dict(*probe.extra), **entry})


def _given(probe: Probe, frames: Sequence[Frame], entries: Sequence[Mapping[str, object]]) -> list[Frame]:
    """Repeat frames with entries of ``extra_info``, up to one that is refused or ends the episode."""
    table, again = probe.reset(), list[Frame]()
    for frame, entry in zip(frames, entries, strict=True):
        try:
            answer, reward = _send(probe, table, frame, entry)
        except Exception:
            return again
        if error_of(answer) is not None:
            return again
        check_observation(answer, probe.env.observation, probe.note)
        check_reward(reward, probe.declared_reward, probe.note)
        again.append(frame_of(frame.action, answer, reward))
        table = answer
        if is_over(answer):
            break
    return again


def _check_refused(probe: Probe, frame: Frame, entry: Mapping[str, object], promise: Promise) -> None:
    table = probe.reset()
    shown = ", ".join(f"{name!r} = {value!r}" for name, value in entry.items())
    try:
        answer, reward = _send(probe, table, frame, entry)
    except Exception as error:
        probe.note("6.2.2.2-3", f"an illegal {promise.name!r} raises {type(error).__name__}; here it is an error")
        return
    if error_of(answer) is None:
        raise Failed(f"a step took {shown}", f"the description says {promise.sentence!r}; others are refused")
    if answer["frame_no"] != table["frame_no"] or difference(table["observation"], answer["observation"]):
        raise Failed(f"a step with {shown} was refused, and its frame is another one", "nothing is carried out")
    given = reward["reward"]
    if any(number != 0 for number in (given.values() if isinstance(given, Mapping) else [given])):
        raise Failed(f"a step with {shown} was refused, and its reward is {given!r:.60}", "a refused action earns 0")


def _check_nothing_done(
    probe: Probe, first: list[Frame], refused: Sequence[Mapping[str, object]], promise: Promise
) -> None:
    """Check that an episode goes on after refused entries as it does without them."""
    if not probe.repeatable:
        return

    def between(table: Table) -> None:
        for entry in refused:
            try:
                _send(probe, table, first[0], entry)
            except Exception:
                raise NotTried(f"an illegal {promise.name!r} raises an exception") from None

    try:
        again = probe.repeat(first, between)
    except NotTried:
        return
    probe.compare(first, again, f"after steps that were refused for {promise.name!r}")
