"""Check what an environment describes besides its specs: entries of ``extra_info``, options, parameters (6.2, 6.4)."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import numpy as np

from hal import Field, Spec
from rlenv_kit.episodes import check_tables
from rlenv_kit.probe import Action, Frame, Probe, Table, draws, error_of, frame_of, is_over
from rlenv_kit.promises import check_default, check_length, plain_number, promise_of
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import Unchecked, check_observation, check_structure, difference, objects_in
from rlenv_robot.world import ACTION_MASK

__all__ = ["described_checks", "illegal_options", "option_values"]

_UNKNOWN = "no_such_option"

_FRAMES = 60
"""Longest episode of which the last action is varied."""

_SEEDS = 4
"""Seeds of which one may give an episode that its time ends."""

_WALKED = 10
"""Frames of an episode that begins with an option at an end of its range."""

_DUE = 3
"""Fewest values of an option that the first observation shows, by which it is taken for the option's own."""

_VARIED = 3
"""Frames before the last one whose actions are varied too."""


def described_checks(probe: Probe) -> list[PlannedCheck]:
    """Return the checks of entries of ``extra_info``, of reset options, and of the calls' parameters."""
    return declared(vars(_Described), _Described(probe), probe)


class _Described:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    # -- extra_info ------------------------------------------------------------------------------------

    @check(
        "entries",
        "extra_info holds numbers, texts, arrays, lists and mappings, under names that are described",
        "6.4-b 6.2.3.1-T1.extra_info",
        "error passes",
        "masks",
    )
    def entries(self, probe: Probe) -> None:
        first = probe.reset()
        frames, refused = probe.walk(), dict[str, Unchecked]()
        with suppress(Exception):  # how it is refused, other checks look at
            refused = dict(probe.step({"env_id": probe.env.env_id, "frame_no": probe.reset()["frame_no"]})[0])
        for where, table in (("a reset", first), ("a refusal", refused),
                             *((f"frame {number}", frame.kept) for number, frame in enumerate(frames, 1))):  # fmt: skip
            self._check_entries(where, table.get("extra_info", {}))
        self._check_episode_info()

    def _check_episode_info(self) -> None:
        """Check that what a world tells of an episode for its record is JSON data."""
        tells = getattr(getattr(self._probe.env, "world", None), "episode_info", None)
        if not callable(tells):
            return
        info = tells()
        try:
            json.dumps(info)
        except (TypeError, ValueError) as error:
            raise Failed(f"the world's episode_info {info!r:.80} can't be written: {error}",
                         "it is data that JSON can hold") from error  # fmt: skip

    def _check_entries(self, where: str, extra: Mapping[str, Unchecked]) -> None:
        probe, known = self._probe, self._probe.described("extra_info")
        for place in objects_in(extra, "extra_info"):
            if hasattr(getattr(probe.env, "world", None), "foreign"):
                probe.note("6.4-b", f"{place}, which the adapted environment may hold")
                break
            raise Failed(f"{where}: {place}", "extra_info holds numbers, texts, arrays, lists and mappings of them")
        for key in extra.keys() - known.keys() - {"error"}:
            if known:
                raise Failed(f"{where}: extra_info has {key!r}",
                             f"the description lists {', '.join(map(str, known))}")  # fmt: skip
            if hasattr(probe.env, "description"):
                probe.note("6.4-b", f"extra_info[{key!r}] has no description")
        masks = getattr(getattr(probe.env, "world", None), "masks", None)
        if isinstance(masks, Spec) and len(masks) and ACTION_MASK in extra:
            if not isinstance(extra[ACTION_MASK], Mapping):
                raise Failed(f"{where}: {ACTION_MASK} is {extra[ACTION_MASK]!r:.60}", f"described are {masks.names}")
            check_structure(extra[ACTION_MASK], masks, ACTION_MASK, probe.note)
        probe.check_code(extra.get("error"))

    # -- options ---------------------------------------------------------------------------------------

    @check("reset options", "reset knows each option that is described", "6.4-b", "equal starts")
    def reset_options(self, probe: Probe) -> None:
        listed = {name: str(text) for name, text in probe.described("reset_options").items() if name != "seed"}
        if not listed or not probe.repeatable:
            raise NotTried("no reset option besides the seed is described, or a real machine would move")
        for name, sentence in listed.items():
            refusals = [self._refusal(name, value) for value in option_values(self._probe, name, sentence)]
            unknown = self._refusal(_UNKNOWN, 1)
            if unknown and name in (refusals[0] or "") and all(one and _less(one, name) == _less(unknown, name)
                                                               for one in refusals):  # fmt: skip
                raise Failed(f"the option {name!r} is refused as unknown: {refusals[0]}", "the description lists it")
            self._check_range(name, sentence)
            promise = promise_of(name, sentence)
            check_default(probe, promise)
            check_length(probe, promise)
            if name in probe.env.observation:
                self._check_effect(probe.env.observation[name])

    def _refusal(self, name: str, value: object) -> str | None:
        """Return how reset refuses an option; None if it takes it."""
        try:
            self._probe.reset_with({name: value})
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _check_range(self, name: str, sentence: str) -> None:
        """Check that a number outside the range that an option's sentence or field gives is refused, not clipped."""
        spec, promise = self._probe.env.observation, promise_of(name, sentence)
        field = spec[name] if name in spec and not spec[name].shape and not spec[name].is_text else None
        low, high = promise.low, promise.high
        if not promise.has_range and field is not None and np.isfinite([field.low, field.high]).all():
            low, high = (float(bound) for bound in field.bounds)
        if not low < high or any(self._refusal(name, plain_number(number)) is not None for number in (low, high)):
            return  # the two numbers are no range of values
        whole = "whole number" in sentence
        outside = [low - 1, high + 1, high + 100 * (high - low)]
        outside += [] if hasattr(self._probe.env, "describe_again") else [np.nan]  # JSON has no NaN
        outside += [low + 0.5] if whole else []
        for number in outside:
            if self._refusal(name, plain_number(number)) is None:
                kind = "whole numbers " if whole else ""
                raise Failed(
                    f"reset took {name!r} = {number:g}",
                    f"it is {kind}from {low:g} to {high:g}; others raise ValueError",
                )
        self._check_ends(name, (low, high))
        if name in spec and not spec[name].is_text:
            self._check_shown(spec[name], low, high, whole)

    def _check_ends(self, name: str, ends: tuple[float, float]) -> None:
        """Check the tables of episodes that begin with an option at the ends of its range."""
        probe = self._probe
        for number in ends:
            table, rng = probe.reset_with({**self._probe.seed_option(), name: plain_number(number)}), draws(probe.seed)
            check_observation(table, probe.env.observation, probe.note)
            for step in range(_WALKED):
                if is_over(table):
                    break
                frame = probe.legal_step(table, rng, step)
                check_tables(probe, frame, table, probe.env.observation)
                table = frame.table

    def _check_shown(self, field: Field, low: float, high: float, whole: bool) -> None:
        """Check an option with the name of an observed field: if the start shows most of its values, it shows all."""
        due, wrong = 0, list[tuple[float | int, Unchecked]]()
        shares = (0.0, 0.25, 0.5, 0.75, 1.0)
        for number in {
            round(low + s * (high - low)) if whole else plain_number(low + s * (high - low)) for s in shares
        }:
            try:
                table = self._probe.reset_with({**self._probe.seed_option(), field.name: number})
                seen = table["observation"][field.name]
            except Exception:
                continue  # what the option takes is its own
            value = np.asarray(seen, float)
            if np.allclose(value, number, rtol=1e-5):
                due += 1
            else:
                wrong.append((number, value.tolist()))
        if wrong and due >= _DUE and due > len(wrong):
            raise Failed(f"with {field.name!r} = {wrong[0][0]} the first observation shows {wrong[0][1]!r}",
                         "it shows other values of the option as they are given")  # fmt: skip

    def _check_effect(self, field: Field) -> None:
        """Check that an option with the name of an observed number changes the start."""
        if field.shape or field.is_text or not np.isfinite([field.low, field.high]).all():
            return
        probe, starts = self._probe, list[Table]()
        low, high = (float(bound) for bound in field.bounds)
        for share in (0.25, 0.75):
            number = low + share * (high - low)
            try:
                starts.append(probe.reset_with({
                    **self._probe.seed_option(),
                    field.name: number if field.numpy_dtype.kind == "f" else round(number),
                }))  # fmt: skip
            except Exception:
                return  # what the option takes is its own
        if round(high) > round(low) and not difference(starts[0]["observation"], starts[1]["observation"]):
            raise Failed(f"the option {field.name!r} has no effect on the first observation",
                         "the observation shows a number of its name")  # fmt: skip

    @check(
        "refused reset",
        "a reset that is refused leaves the running episode alone, or ends it",
        "contract",
        "clock",
        "error passes",
    )
    def refused_reset(self, probe: Probe) -> None:
        wrong = [options for options in illegal_options(probe) if self._refuses(options)]
        if not wrong:
            raise NotTried("reset refuses no option")
        first, again, table = probe.walk(8), list[Frame](), probe.reset()
        for number, frame in enumerate(first):
            for options in wrong[number :: len(first)] or [wrong[number % len(wrong)]]:
                self._refuses(options)
            try:
                answer, reward = probe.step(_request(probe, table, frame.action))
            except Exception:
                break  # the episode is over
            if error_of(answer) is not None:
                if answer["frame_no"] != table["frame_no"] or difference(table["observation"], answer["observation"]):
                    raise Failed(f"the frame after frame {number} is another one after a reset that was refused",
                                 "the episode goes on, or is over")  # fmt: skip
                break
            again.append(frame_of(frame.action, answer, reward))
            table = answer
        probe.compare(first[: len(again)], again, "after resets that were refused")

    def _refuses(self, options: object) -> bool:
        try:
            self._probe.reset_with(options)
        except Exception:
            return True
        return False

    # -- parameters ------------------------------------------------------------------------------------

    @check(
        "parameters",
        "the calls take their parameters by the standard's names, and as what they are",
        "6.2.2.1-2 6.2.2.2-2 6.2.2.2-3",
        "clock",
        "error passes",
    )
    def parameters(self, probe: Probe) -> None:
        first, again = probe.walk(6), list[Frame]()
        env: Unchecked = probe.env
        seed = probe.seed_option()
        given = dict(zip(("extra_info",), probe.extra, strict=False)) or {"extra_info": {}}

        def reset(options: object) -> Unchecked:
            return env.reset(options=options)

        def step(request: object) -> Unchecked:
            return env.step(action=request, **given)

        table = _named(probe, "reset", reset, seed)
        for frame in first:
            answer, reward = _named(probe, "step", step, _request(probe, table, frame.action))
            again.append(frame_of(frame.action, answer, reward))
            table = answer
        probe.compare(first, again, "with parameters by their names")
        self._check_kinds(probe)

    def _check_kinds(self, probe: Probe) -> None:
        """Note where a step takes an extra_info that is no mapping, or has an entry that nobody knows."""
        env: Unchecked = probe.env
        for value in (5, {"no_such_entry": 1}):
            table = probe.reset()
            if is_over(table):
                return
            try:
                answer, _ = probe.log.call("step", env.step, _request(probe, table, _any(probe)), value)
            except Exception:
                continue
            if error_of(answer) is None:
                probe.note("6.2.2.2-3", f"a step takes the extra_info {value!r}, so a mistake goes unnoticed")

    # -- the last action -------------------------------------------------------------------------------

    @check(
        "last answer",
        "an episode's last observation answers its last action",
        "6.2.2.2-1",
        "error passes",
        "last frame",
    )
    def last_answer(self, probe: Probe) -> None:
        """Vary the last action of an episode that its time ends, and those before it."""
        frozen = list[tuple[frozenset[str], Frame]]()
        for seed in range(probe.seed, probe.seed + _SEEDS):
            frames = self._cut_by_time(seed)
            if not frames:
                continue
            names = self._frozen(seed, frames)
            if not names:
                return
            frozen.append((names, frames[-1]))
            if len(frozen) == 2:
                break
        if not frozen:
            raise NotTried(f"no episode that its time ends within {_FRAMES} frames")
        names = frozenset.intersection(*(fields for fields, _ in frozen))
        # What is cleared at the end is no fault; what is drawn anew is.
        drawn = [name for name in sorted(names) if len({_bytes(frame, name) for _, frame in frozen}) > 1]
        if drawn:
            raise Failed(f"{drawn[0]} of an episode's last frame is the same after other actions, and another one in "
                         f"another episode; in the {_VARIED} frames before it changes with their actions",
                         "it is what the last action led to")  # fmt: skip

    def _frozen(self, seed: int, frames: list[Frame]) -> frozenset[str]:
        """Return observed fields that actions change in the frames before the last one, and not in the last one.

        Raises:
            Failed: no action changes the last observation, and each of those before it changes.
        """
        usual: frozenset[str] | None = None
        for place in range(len(frames) - _VARIED - 1, len(frames) - 1):
            varied = self._varied(seed, frames[:place], frames[place]) or frozenset()
            usual = varied if usual is None else usual & varied
            if not usual:
                return frozenset()
        last = self._varied(seed, frames[:-1], frames[-1], usual or frozenset())
        if last is not None and not last:
            raise Failed(f"the observation of the last frame, {len(frames)}, is the same after other actions; those of "
                         f"the {_VARIED} frames before change with their actions",
                         "it is what the last action led to")  # fmt: skip
        return frozenset() if last is None or usual is None else usual - last

    def _cut_by_time(self, seed: int) -> list[Frame]:
        """Return an episode that its time ends; empty if that of the seed ends otherwise."""
        frames = self._probe.walk(_FRAMES, seed=seed) if self._probe.repeatable else []
        if len(frames) < _VARIED + 2 or not frames[-1].kept["truncated"] or "agent" in _extra(frames[-1]):
            return []
        return frames

    def _varied(
        self, seed: int, before: list[Frame], frame: Frame, usual: frozenset[str] = frozenset()
    ) -> frozenset[str] | None:
        """Return observed fields that other actions change, all of the usual ones or any; None if none was compared."""
        probe, compared, changed = self._probe, 0, set[str]()
        for draw in range(6 if usual else 3):
            table = probe.repeat(before, seed=seed)[-1].table if before else probe.reset(seed)
            action = probe.env.action.sample(np.random.default_rng([seed, draw]))
            answer, _ = probe.send(table, action)
            if error_of(answer) is None and is_over(answer) == is_over(frame.kept):
                compared += 1
                seen = answer["observation"]
                changed |= {name for name, value in frame.observation.items()
                            if difference({name: value}, {name: seen[name]})}  # fmt: skip
                if changed and changed >= usual:
                    break
        return frozenset(changed) if compared >= 3 or changed else None


def _bytes(frame: Frame, name: str) -> bytes:
    return np.asarray(frame.observation[name]).tobytes()


def illegal_options(probe: Probe) -> list[object]:
    """Return options of ``reset`` that it should refuse: unknown and wrong ones, alone and beside legal ones."""
    seed, wrong = probe.seed_option(probe.seed + 9), list[dict[str, object]]()
    legal: dict[str, object] = {}
    for name, sentence in probe.described("reset_options").items():
        promise = promise_of(name, sentence)
        if name != "seed" and promise.has_range:
            wrong += [{name: plain_number(promise.outside[1])}, {name: "one"}, {name: plain_number(promise.outside[0])}]
            legal[name] = plain_number(promise.low)
    beside: list[object] = [{**seed, **options} for options in wrong[:2] if seed]
    beside += [{**legal, **seed, _UNKNOWN: 1}, {**legal, "seed": -1}, {**legal, "seed": "one"}]
    beside += [{**legal, **options} for options in wrong if len(legal) > 1]
    return [{_UNKNOWN: 1}, {"seed": -1}, {"seed": "one"}, 5, *wrong, *beside]


def option_values(probe: Probe, name: str, sentence: str) -> Iterator[object]:
    """Yield values of several kinds for a reset option, those that its sentence names among them."""
    for spec in (probe.env.observation, probe.env.action):
        if name in spec:
            yield spec[name].sample(np.random.default_rng(0)).tolist()
    yield from (1, 0.5, 0, 2, -1, [1], {}, True)
    for word in re.findall(r"[\w.-]*\w", sentence):
        yield word
        with suppress(ValueError):
            yield float(word) if "." in word else int(word)


def _named(probe: Probe, name: str, call: Callable[[object], Unchecked], value: object) -> Unchecked:
    try:
        return probe.log.call(name, call, value)
    except TypeError as error:
        if "argument" not in str(error):
            raise
        called = getattr(probe.env, name)
        if any(one.kind is one.VAR_POSITIONAL for one in inspect.signature(called).parameters.values()):
            probe.note("6.2.2.1-2", f"{name} does not take its parameters by name")
            raise NotTried(f"{name} takes any parameters, by their place") from None
        raise Failed(f"{name} does not take its parameters by name: {error}",
                     "they are reset(options), step(action, extra_info)") from error  # fmt: skip


def _request(probe: Probe, table: Table, action: Action) -> dict[str, object]:
    copies = {name: np.array(value) for name, value in action.items()}
    return {"env_id": probe.env.env_id, "frame_no": table["frame_no"], "action": copies}


def _less(text: str, name: str) -> str:
    """Return a refusal without the names and the values in it."""
    return re.sub(rf"{_UNKNOWN}|{re.escape(name)}", "*", text)


def _any(probe: Probe) -> Action:
    return probe.env.action.sample(np.random.default_rng(probe.seed))


def _extra(frame: Frame) -> Mapping[str, Unchecked]:
    extra: Mapping[str, Unchecked] = frame.kept.get("extra_info", {})
    return extra
