"""Check whole episodes: tables of every frame, seeds, repeated episodes, and calls that must not affect an episode."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from hal import Spec
from rlenv_kit.probe import (
    ALWAYS,
    COMPARED,
    Action,
    Chooser,
    Frame,
    Probe,
    Table,
    at_random,
    check_over,
    draws,
    frame_difference,
    frame_of,
    is_over,
)
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import check_observation, check_reward, deep_difference, difference, field_names

__all__ = ["MAX_FRAMES", "at_highest", "at_lowest", "check_tables", "episode_checks", "field_names"]

MAX_FRAMES = 5000
"""Number of frames after which an episode is abandoned, whether it has ended or not."""

_LATE = 400
"""Frames up to which equal episodes are compared."""

_SEEDS = 3
_STARTS = 8

_AT_THE_END = re.compile(r"\b(?:empty|blank) (?:at|in|with) the (?:end|last frame)\b")
"""Words of a text's meaning on the last frame of an episode."""

_IF_TRUNCATED = re.compile(r"\b(?:if|when) (?:(?:it|the episode) (?:is|was) )?truncated\b|\bwhy\b.*\btruncated\b")
"""Words of a description on the frames that have ``truncated_by``."""


def episode_checks(probe: Probe) -> list[PlannedCheck]:
    """Return the checks of whole episodes."""
    return declared(vars(_Episodes), _Episodes(probe), probe)


def check_tables(probe: Probe, frame: Frame, before: Table, spec: Spec) -> None:
    """Check Tables 1 and 3 of a frame: form, ranges, frame number and env_id.

    Args:
        probe: takes notes.
        frame: the frame to check.
        before: Table 1 of the previous frame.
        spec: the spec of the observation.
    """
    check_observation(frame.table, spec, probe.note)
    check_reward(frame.reward, probe.declared_reward, probe.note)
    expected = before["frame_no"] + 1
    for name, table in (("Table 1", frame.table), ("Table 3", frame.reward)):
        if table["frame_no"] != expected:
            raise Failed(f"frame_no in {name} is {table['frame_no']}", f"it must be {expected}, one more than before")
        if table["env_id"] != probe.env_id:
            raise Failed(f"env_id in {name} is {table['env_id']!r}", f"it must be {probe.env_id!r}")


def _of_walked(function: Callable[[_Episodes, Probe], None]) -> Callable[[_Episodes, Probe], None]:
    """Return a check of the episodes walked before, whose finding says so."""

    def checked(episodes: _Episodes, probe: Probe) -> None:
        try:
            function(episodes, probe)
        except Failed as finding:
            raise Failed(
                str(finding),
                how=finding.how or f"episodes of seeds {probe.seed} to {probe.seed + _SEEDS - 1}, random actions",
            ) from finding

    return checked


class _Episodes:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._episodes: list[tuple[Table, list[Frame]]] = []

    # -- every frame -----------------------------------------------------------------------------------

    def _checked(self, seed: int, choose: Chooser = at_random, frames: int = MAX_FRAMES) -> list[Frame]:
        """Walk through an episode and check each frame as it comes."""
        probe, spec, end = self._probe, self._probe.env.observation, self._probe.clock() + 6.0
        rng, first = draws(seed), probe.reset(seed)
        check_observation(first, spec, probe.note)
        table, walked = first, list[Frame]()
        kept_first = frame_of({}, first, {"reward": 0.0}).kept
        for step in range(frames):
            if is_over(table) or probe.clock() > end:
                break
            frame = probe.legal_step(table, rng, step, choose)
            check_tables(probe, frame, table, spec)
            walked.append(frame)
            table = frame.table
        if walked and is_over(walked[-1].kept):
            self._step_on(walked[-1])
        self._episodes.append((kept_first, walked))
        return walked

    def _step_on(self, last: Frame) -> None:
        """Step after an episode's end, of which there may be several kinds; another check tells what it shows."""
        probe = self._probe
        try:
            check_over(probe, last, 1)
        except Failed as finding:
            probe.out_of_turn = probe.out_of_turn or Failed(finding.found, finding.allowed, probe.log.how())
        except Exception:
            return

    @check(
        "frames", "every frame up to an episode's end keeps Tables 1 and 3", "6.2.2.2-4 6.2.3.1-T1 6.2.3.3-T3", "reset"
    )
    def every_frame(self, probe: Probe) -> None:
        for number in range(_SEEDS if probe.repeatable else 1):
            frames = self._checked(probe.seed + number)
            if frames and not is_over(frames[-1].kept):
                text = f"no end within {len(frames)} frames of an episode; later frames were not looked at"
                probe.note("6.2.3.1-T1.terminated", text)
                break
        self._check_shown_order()

    def _check_shown_order(self) -> None:
        """Check that the fields of an observation keep their order, by which many callers make vectors."""
        orders = {tuple(frame.kept["observation"]) for _, frames in self._episodes for frame in frames}
        orders |= {tuple(first["observation"]) for first, _ in self._episodes}
        if len(orders) > 1:
            raise Failed(f"the fields of an observation come in {len(orders)} orders: {sorted(orders)[:2]}",
                         "they keep one order")  # fmt: skip

    @check("extremes", "frames keep the tables under the smallest and the largest actions", "6.2.2.2-4", "frames")
    def extremes(self, probe: Probe) -> None:
        if not self._probe.repeatable:
            raise NotTried("a real machine is not driven to its limits")
        mixed = (partial(_opposed, 0), partial(_opposed, 1)) if len(self._probe.env.action) > 1 else ()
        for choose in (at_lowest, at_highest, _alternating, *mixed):
            self._checked(self._probe.seed, choose, 1000)

    @check("last frame", "the last frame is the episode's own, and as complete as the others", "6.2.3.1-T1", "frames")
    @_of_walked
    def last_frame(self, probe: Probe) -> None:
        ended = [(first, frames) for first, frames in self._episodes if frames and is_over(frames[-1].kept)]
        if not ended:
            raise NotTried(f"no episode ended within {MAX_FRAMES} frames")
        self._check_said_of_the_end([frames[-1].kept for _, frames in ended])
        firsts_again = 0
        for first, frames in ended:
            self._check_keys(first, frames)
            last, others = frames[-1].kept, [frame.kept for frame in frames[:-1]]
            is_first = not difference(first["observation"], last["observation"])
            repeats = any(not difference(first["observation"], other["observation"]) for other in others)
            firsts_again += len(others) >= 3 and is_first and not repeats
            if firsts_again >= min(2, len(ended)):  # once, a world of few states may come back to its start
                raise Failed("the last frame's observation is that of the first frame",
                             "it must be what the last action led to")  # fmt: skip
            self._check_time_limit(len(frames), last)

    def _check_said_of_the_end(self, lasts: list[Table]) -> None:
        """Check what the description says of last frames: a text "empty at the end", and what truncated them."""
        for field in self._probe.env.observation:
            shown = [str(table["observation"][field.name]) for table in lasts] if field.is_text else []
            if shown and not field.shape and all(shown) and _AT_THE_END.search(field.meaning):
                raise Failed(f"observation.{field.name} of the last frame is {shown[0]!r}",
                             f"the description says {field.meaning!r}")  # fmt: skip
        reason = str(self._probe.described("extra_info").get("truncated_by", ""))
        for table in lasts if _IF_TRUNCATED.search(reason) else ():
            if table["truncated"] and not table.get("extra_info", {}).get("truncated_by"):
                raise Failed("extra_info of a truncated frame has no 'truncated_by'", f"it is described as {reason!r}")

    def _check_keys(self, first: Table, frames: list[Frame]) -> None:
        """Check that no information disappears in the course of an episode."""
        extras = [frame.kept.get("extra_info", {}) for frame in frames]
        steady = set(extras[0]).intersection(*extras[:-1]) if len(extras) > 1 else set()
        lost = steady - extras[-1].keys()
        if lost - set(ALWAYS):
            listed = ", ".join(sorted(map(str, lost)))
            self._probe.note(
                "6.2.3.1-T1.extra_info", f"extra_info of the last frame lacks {listed}, which all frames before have"
            )
        for key in ALWAYS:
            having = [key in extra for extra in (first.get("extra_info", {}), *extras)]
            if any(having) and not all(having):
                raise Failed(f"extra_info lacks {key!r} in frame {having.index(False)}", "other frames have it")

    def _check_time_limit(self, frames: int, last: Table) -> None:
        """Check an episode's length against the limit that its task declares, where it has a task."""
        limit = getattr(getattr(getattr(self._probe.env, "world", None), "task", None), "steps", None)
        players = getattr(getattr(self._probe.env, "world", None), "players", ())
        if not isinstance(limit, int) or players:
            return
        by_time = last["truncated"] and last.get("extra_info", {}).get("truncated_by") == "time"
        if frames > limit or (by_time and frames != limit):
            raise Failed(f"an episode has {frames} frames", f"its task declares {limit} steps")

    # -- agents ----------------------------------------------------------------------------------------

    @check(
        "agents",
        "several agents: rewards and mapping name the same agents in every frame",
        "6.2.3.1-3 6.2.3.3-2",
        "last frame",
    )
    @_of_walked
    def agents(self, probe: Probe) -> None:
        for first, frames in self._episodes:
            mapping = first.get("extra_info", {}).get("agents")
            forms = {} if not isinstance(mapping, Mapping) else {name: _form(seen) for name, seen in mapping.items()}
            for number, frame in enumerate(frames, 1):
                self._check_agents(frames, frame, number)
                self._check_own(forms, frame.kept.get("extra_info", {}).get("agents"), number)

    def _check_own(self, forms: dict[Any, Any], mapping: object, number: int) -> None:
        """Check that an agent's own observation keeps its form in every frame, and holds finite numbers."""
        for agent, seen in mapping.items() if isinstance(mapping, Mapping) else ():
            form = _form(seen)
            if forms.setdefault(agent, form) != form:
                raise Failed(f"frame {number}: what agent {agent!r} observes has the form {form}",
                             f"it was {forms[agent]} before")  # fmt: skip
            if not _is_finite(seen):
                raise Failed(f"frame {number}: agent {agent!r} observes a number that is not finite")

    def _check_agents(self, frames: list[Frame], frame: Frame, number: int) -> None:
        reward, extra = frame.kept_reward, frame.kept.get("extra_info", {})
        mapping = extra.get("agents")
        players = getattr(getattr(self._probe.env, "world", None), "players", ())
        if players and "agent" in extra and extra["agent"] not in players:
            raise Failed(f"frame {number}: the turn is that of {extra['agent']!r}",
                         f"the players are {', '.join(map(str, players))}")  # fmt: skip
        if isinstance(reward, Mapping) != isinstance(frames[0].kept_reward, Mapping):
            raise Failed(
                f"frame {number}: reward is {reward!r:.80}", f"that of frame 1 is {frames[0].kept_reward!r:.80}"
            )
        if not isinstance(reward, Mapping):
            if isinstance(mapping, Mapping) and len(mapping) > 1:
                known = ", ".join(map(str, mapping))
                raise Failed(f"frame {number}: the agents are {known}, and the reward is {reward!r:.80}",
                             "with several agents it is a dictionary from agent to reward")  # fmt: skip
            return
        if mapping is None:
            if "agent" not in extra:
                raise Failed(f"frame {number}: rewards are of agents, and extra_info has no mapping 'agents'",
                             "with several agents it says what each of them observes")  # fmt: skip
            return
        if not isinstance(mapping, Mapping):
            raise Failed(f"frame {number}: extra_info['agents'] is {mapping!r:.80}", "it must be a mapping by agent")
        if mapping.keys() != reward.keys():
            raise Failed(f"frame {number}: rewards are of {sorted(map(str, reward))}",
                         f"the mapping is of {sorted(map(str, mapping))}")  # fmt: skip
        for agent, seen in mapping.items():
            unknown = [name for name in field_names(seen) if name not in frame.kept["observation"]]
            if unknown:
                raise Failed(f"frame {number}: agent {agent!r} observes {unknown[0]!r}",
                             f"the observation has {', '.join(frame.kept['observation'])}")  # fmt: skip

    # -- answers ---------------------------------------------------------------------------------------

    @check("responds", "an observation answers the action before it", "6.2.2.2-1", "frames")
    @_of_walked
    def responds(self, probe: Probe) -> None:
        """Check for observations that are a frame late, and for actions without any effect."""
        late = 0
        for first, frames in self._episodes[:_SEEDS]:
            if "agent" in first.get("extra_info", {}):
                continue  # agents in turn: a frame may wait for the others' choices
            observations = [first["observation"], *(frame.observation for frame in frames[:12])]
            same = [not difference(one, other) for one, other in itertools.pairwise(observations)]
            late += len(same) >= 6 and same[0] and not any(same[1:])
        if late and late == len(self._episodes[:_SEEDS]):
            raise Failed("the observation of frame 1 is that of frame 0, and all later frames differ",
                         "a frame shows what its own action led to")  # fmt: skip
        if self._probe.repeatable:
            self._check_effect()

    def _check_effect(self) -> None:
        """Check that different actions make some difference."""
        probe = self._probe
        if all(not field.is_text and (field.bounds[0] == field.bounds[1]).all() for field in probe.env.action):
            return
        walks = [self._free_walk(draw) for draw in range(4)]
        length = min(map(len, walks))
        if length < 2:
            return
        base = walks[0][:length]
        if all(not frame_difference(*pair) for other in walks[1:] for pair in zip(base, other[:length], strict=True)):
            raise Failed(f"four episodes of one seed with different actions are equal over {length} frames",
                         "an action has an effect on observations, rewards or ends")  # fmt: skip

    def _free_walk(self, draw: int) -> list[Frame]:
        probe, frames = self._probe, list[Frame]()
        table, rng = probe.reset(), np.random.default_rng([probe.seed, draw])
        while len(frames) < 40 and not is_over(table):
            frames.append(probe.legal_step(table, rng))
            table = frames[-1].table
        return frames

    # -- seeds -----------------------------------------------------------------------------------------

    @check(
        "equal starts",
        "equal seeds give equal first observations, whatever came before",
        "6.2.2.1-3",
        "plain reset",
        "frames",
    )
    def equal_starts(self, probe: Probe) -> None:
        first = frame_of({}, probe.reset(), {"reward": 0.0}).kept
        if not probe.repeatable:
            raise NotTried("equal seeds need not give equal episodes here")
        histories: dict[str, Callable[[], object]] = {
            "right after": tuple,
            "in the middle of an episode": partial(probe.walk, 7, seed=probe.seed + 1),
            "after a reset without options": probe.reset_with,
            "after an episode of another seed": partial(probe.walk, MAX_FRAMES, seed=probe.seed + 2, budget_s=5),
        }
        for when, history in histories.items():
            history()
            again = probe.reset()
            name = difference(first["observation"], again["observation"])
            if name:
                raise Failed(
                    f"two resets with seed {probe.seed} differ in {name} ({when}): "
                    f"{again['observation'].get(name)}, it was {first['observation'].get(name)}"
                )
            sent = again.get("extra_info", {}).get("messages")
            if isinstance(sent, Mapping) and any(sent.values()):
                raise Failed(f"extra_info of a reset has messages ({when})", "no action came before")
            for key in COMPARED:
                told = [table.get("extra_info", {}).get(key) for table in (first, again)]
                if (told[0] is None) != (told[1] is None) or deep_difference(told[0], told[1], key):
                    raise Failed(f"two resets with seed {probe.seed} differ in extra_info[{key!r}] ({when})")

    @check("equal episodes", "equal seeds and actions give equal episodes, up to their end", "contract", "equal starts")
    def equal_episodes(self, probe: Probe) -> None:
        first = probe.walk(_LATE)
        probe.compare(first, probe.repeat(first), "in a second episode of the same seed and actions")
        probe.walk(_LATE, seed=probe.seed + 1)
        probe.compare(first, probe.repeat(first), "after an episode of another seed")
        probe.walk(5, seed=probe.seed + 2)
        probe.compare(first, probe.repeat(first), "after an abandoned episode")
        for seed in (probe.seed, probe.seed + 1) if probe.repeatable else ():  # where rules of the world refuse most
            first = probe.walk(2 * probe.steps, seed=seed, choose=_at_corners)
            probe.compare(first, probe.repeat(first, seed=seed), "without the actions that were refused")

    def _check_illegal_seeds(self) -> None:
        """Check that -1, a fraction and a word are refused as seeds where the description lists seeds."""
        probe = self._probe
        for seed in (-1, 1.5, "one"):
            try:
                probe.reset_with({"seed": seed})
            except Exception:
                continue
            text = f"reset took the seed {seed!r}"
            if "seed" in probe.described("reset_options"):
                raise Failed(text, "a seed is a whole number from 0; others raise ValueError")
            probe.note("6.2.2.1-3", f"{text}; here a seed is a whole number from 0")

    @check("seeds", "a seed fixes the start, and other seeds give other episodes", "6.2.2.1-3", "equal episodes")
    def seeds(self, probe: Probe) -> None:
        if not probe.repeatable:
            raise NotTried("equal seeds need not give equal episodes here")
        for seed in (probe.seed + 12, 2**31 - 1):
            one, other = probe.reset(seed), probe.reset(seed)
            name = difference(one["observation"], other["observation"])
            if name:
                raise Failed(f"two resets with seed {seed} differ in {name}")
        seeded = [_signature(probe.walk(6, seed=probe.seed + number, choose=_fixed)) for number in range(_STARTS)]
        unseeded = []
        for _ in range(_STARTS):
            table = probe.reset_with({})
            unseeded.append(_signature([frame_of({}, table, {"reward": 0.0})]))
        starts = []
        for number in range(_STARTS):
            table = probe.reset(probe.seed + number)
            starts.append(_signature([frame_of({}, table, {"reward": 0.0})]))
        if len(set(unseeded)) > 1 and len(set(starts)) == 1 and len(set(seeded)) == 1:
            raise Failed(f"{_STARTS} seeds give the same episode, and resets without a seed give different starts",
                         "a seed chooses the start")  # fmt: skip
        if len(set(starts)) > 1:
            self._check_illegal_seeds()
        if len(set(starts)) > 1 and len(set(unseeded)) == 1:
            probe.note("6.2.2.1-3", f"{_STARTS} resets without a seed give the same start; seeds give different ones")
        if len(set(seeded)) == 1:
            probe.note("6.2.2.1-3", "no seed changes anything; a world without chance may do so")

    # -- what must not matter --------------------------------------------------------------------------

    @check(
        "generators",
        "the process's own random generators neither matter nor are touched",
        "6.2.2.1-3",
        "equal episodes",
    )
    def global_generators(self, probe: Probe) -> None:
        first = probe.walk()
        before = random.getstate(), np.random.get_state(legacy=True)

        def disturb(table: Table) -> None:
            random.seed(int(table["frame_no"]) + 99)
            np.random.seed(int(table["frame_no"]) % 2**31 + 99)
            random.random()
            np.random.random()

        try:
            probe.compare(first, probe.repeat(first, disturb), "while others use the process's generators")
            self._check_untouched(first)
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])

    def _check_untouched(self, frames: list[Frame]) -> None:
        random.seed(20250101)
        np.random.seed(20250101)
        before = random.getstate(), np.random.get_state(legacy=True)
        self._probe.repeat(frames)
        after = np.random.get_state(legacy=True)
        for name, touched in (("random", random.getstate() != before[0]),
                              ("numpy.random", deep_difference(list(before[1]), list(after), "state"))):  # fmt: skip
            if touched:
                raise Failed(f"reset and step change the state of the process's generator {name}",
                             "an environment has its own generator")  # fmt: skip

    @check("clock", "the time of day and pauses between calls do not matter", "contract", "generators")
    def clocks(self, probe: Probe) -> None:
        if not probe.repeatable:
            raise NotTried("a real machine runs by the clock")
        first, paused = probe.walk(), set(range(0, probe.steps, max(1, probe.steps // 4)))

        def pause(table: Table) -> None:
            if table["frame_no"] in paused:
                time.sleep(0.03)

        walks = [first, probe.repeat(first, pause)]
        probe.compare(first, walks[1], "with pauses between the steps")
        with _another_day():
            walks.append(probe.repeat(first))
        probe.compare(first, walks[2], "on another day, by time.time")
        probe.steady = _steady(walks)


@contextmanager
def _another_day() -> Iterator[None]:
    """Set the process's time of day four days ahead, in the block."""
    real, real_ns, shift = time.time, time.time_ns, 4.2 * 86400
    with (
        mock.patch.object(time, "time", lambda: real() + shift),  # noqa: PT008  (it goes on)
        mock.patch.object(time, "time_ns", lambda: real_ns() + int(shift * 1e9)),  # noqa: PT008
    ):
        yield


def _form(seen: object) -> Any:
    """Return the names of an agent's own observation, with type and number of axes of each part."""
    if isinstance(seen, Mapping):
        return {str(name): _form(part) for name, part in seen.items()}
    if isinstance(seen, str) or seen is None:
        return type(seen).__name__
    if isinstance(seen, list | tuple) and any(isinstance(part, Mapping) for part in seen):
        return [_form(part) for part in seen]
    if isinstance(seen, list | tuple) and any(isinstance(part, str) for part in seen):
        return "1 axes"  # as of an empty list
    array = np.asarray(seen)
    return f"{array.dtype} of {array.ndim} axes" if isinstance(seen, np.ndarray | np.generic) else f"{array.ndim} axes"


def _is_finite(seen: object) -> bool:
    if isinstance(seen, Mapping):
        return all(map(_is_finite, seen.values()))
    array = np.asarray(seen)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _steady(walks: list[list[Frame]]) -> frozenset[str]:
    """Return the keys of ``extra_info`` that are equal in equal walks.

    A single number is left out, since it may be a time that goes slowly.
    """
    first, *others = [[frame.kept.get("extra_info", {}) for frame in frames] for frames in walks]

    def is_steady(key: str) -> bool:
        values = [extra[key] for extra in first if key in extra]
        if not all(isinstance(value, str | Mapping | list | tuple) or np.ndim(value) for value in values):
            return False
        told = [extra.get(key) for extra in first]
        return not any(deep_difference(told, [extra.get(key) for extra in other]) for other in others)

    return frozenset(filter(is_steady, set[str]().union(*first)))


def _signature(frames: list[Frame]) -> bytes:
    parts = [np.asarray(value).tobytes() for frame in frames for value in frame.observation.values()]
    return b"".join([*parts, repr([frame.kept_reward for frame in frames]).encode()])


def at_lowest(spec: Spec, rng: np.random.Generator, step: int) -> Action:
    """Return the action at the lowest ends of its ranges; it is a `Chooser`."""
    return _at_ends(spec, rng, 0)


def at_highest(spec: Spec, rng: np.random.Generator, step: int) -> Action:
    """Return the action at the highest ends of its ranges; it is a `Chooser`."""
    return _at_ends(spec, rng, 1)


def _alternating(spec: Spec, rng: np.random.Generator, step: int) -> Action:
    return _at_ends(spec, rng, step // 9 % 2)


def _opposed(first: int, spec: Spec, rng: np.random.Generator, step: int) -> Action:
    """Return an action whose fields are at the lowest and the highest ends of their ranges by turns."""
    ends = [_at_ends(spec, rng, side) for side in (0, 1)]
    return {name: ends[(number + first) % 2][name] for number, name in enumerate(spec.names)}


def _at_corners(spec: Spec, rng: np.random.Generator, step: int) -> Action:
    """Return an action of which each field is at one end of its range or the other."""
    ends = [_at_ends(spec, rng, side) for side in (0, 1)]
    return {name: ends[int(rng.integers(2))][name] for name in spec.names}


def _at_ends(spec: Spec, rng: np.random.Generator, side: int) -> Action:
    """Return an action at one end of its ranges; fields without a range, or with a count, are as drawn."""
    drawn = spec.sample(rng)
    counts = {field.counted_by for field in spec}
    free = {field.name for field in spec if field.is_text or field.counted_by or field.name in counts}
    return {name: value if name in free else _end(spec[name].bounds[side], value) for name, value in drawn.items()}


def _fixed(spec: Spec, rng: np.random.Generator, step: int) -> Action:
    return spec.sample(np.random.default_rng(step))


def _end(bound: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Return the bound, or the drawn value where the bound is the end of the type."""
    if bound.dtype.kind != "f":
        return np.array(bound)
    limits = np.finfo(bound.dtype)
    return np.where((bound > limits.min) & (bound < limits.max), bound, drawn).astype(bound.dtype)
