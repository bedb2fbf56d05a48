"""Check that caller and environment share no arrays, and that harmless calls change nothing."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hal import Field, RobotError
from rlenv_kit.probe import Action, Frame, Probe, Table, draws, error_of, frame_of, is_over
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import (
    STANDARD_CODES,
    check_head,
    check_keys,
    copied_values,
    deep_difference,
    digest_of,
    elements_of,
)

__all__ = ["alter", "ownership_checks"]

_MOST_BORDERS = 32
"""Elements of a field of which both borders are tried."""

_TO_THE_END = 400
"""Frames up to which an episode is walked to show its last one."""

_SHOWN = 30
"""Frames of an episode that are shown as Table 4."""

_MOVED = 5
"""Different observations of an episode that all pictures of it can't show alike."""

_THEIR_STEPS = 5
"""Steps of an adapted environment whose arrays are compared."""

_RENDER_S = 1.5
"""Longest time of rendering; software that stands in for a graphics card takes a second for an image."""


def ownership_checks(probe: Probe) -> list[PlannedCheck]:
    """Return the checks of array ownership, of actions at the bounds, and of rendering."""
    return declared(vars(_Ownership), _Ownership(probe), probe)


class _Ownership:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    # -- tables ----------------------------------------------------------------------------------------

    @check("kept tables", "a returned table never changes", "contract", "error passes")
    def kept_tables(self, probe: Probe) -> None:
        first = probe.reset()
        copy = copied_values(first)
        frames = probe.walk(2 * probe.steps, budget_s=4)
        tables = [(0, "Table 1", first, copy)] + [
            (number, "Table 1", frame.table, frame.kept) for number, frame in enumerate(frames, 1)
        ]
        probe.walk(3, seed=probe.seed + 1)
        for number, name, table, kept in tables:
            place = deep_difference(table, kept)
            if place:
                raise Failed(f"{name} of frame {number}: {place} changed after it was returned")
        for number, frame in enumerate(frames, 1):
            place = deep_difference(frame.reward.get("reward"), frame.kept_reward, "reward")
            if place:
                raise Failed(f"Table 3 of frame {number}: {place} changed after it was returned")
        for number, (observation, kept, _, _) in enumerate(_their_steps(probe)):
            place = deep_difference(observation, kept, "observation")
            if place:
                raise Failed(f"observation {number} of the adapted environment: {place} changed with a later step",
                             "an observation is a new array, or a copy", how="reset, step of it")  # fmt: skip

    @check("kept refusals", "a refusal's table never changes", "contract", "refusals", "kept tables")
    def kept_refusals(self, probe: Probe) -> None:
        """Check that the answer to an illegal action does not change while the episode goes on."""
        frames = probe.walk(1)
        if not frames or is_over(frames[-1].kept):
            raise NotTried("the episode is over after one step")
        table, _ = probe.step({"env_id": probe.env.env_id, "frame_no": frames[-1].table["frame_no"]})
        kept = copied_values(table)
        probe.legal_step(frames[-1].table, np.random.default_rng(probe.seed))
        place = deep_difference(table, kept)
        if place:
            raise Failed(f"{place} of a refusal's Table 1 changed after it was returned")

    @check(
        "overwritten tables",
        "writing into a returned table changes nothing",
        "contract",
        "refusals late",
        "kept tables",
    )
    def overwritten_tables(self, probe: Probe) -> None:
        """Write into each table, and into a refusal's; once what was in it is changed, and once it is emptied."""
        first = probe.walk()
        for spoil in (alter, _spoil):
            again: list[Frame] = []
            table = probe.reset()
            for number, frame in enumerate(first, 1):
                numbered = {"frame_no": table["frame_no"]}
                spoil(table)
                with suppress(Exception):  # how it is refused, other checks look at
                    spoil(probe.step({"env_id": probe.env.env_id, **numbered})[0])
                answer, reward = probe.send(numbered, {name: np.array(value) for name, value in frame.action.items()})
                if error_of(answer) is not None:
                    raise Failed(f"frame {number}: the action was refused after the table before it was written into")
                again.append(frame_of(frame.action, answer, reward))
                spoil(reward)
                table = answer
                if is_over(again[-1].kept):
                    break
            probe.compare(first, again, "after the tables before were written into", probe.steady)

    # -- actions ---------------------------------------------------------------------------------------

    @check(
        "actions", "an action stays the caller's: it is neither changed nor kept", "contract", "clock", "error passes"
    )
    def actions(self, probe: Probe) -> None:
        first, sent = probe.walk(), list[tuple[dict[str, Any], dict[str, Any]]]()

        def request(table: Table, action: Action) -> object:
            arrays = {name: np.array(value) for name, value in action.items()}
            asked = {"env_id": probe.env.env_id, "frame_no": table["frame_no"], "action": arrays}
            sent.append((asked, copied_values(asked)))
            return asked

        def spoil(table: Table) -> None:
            for asked, copy in sent[-1:]:
                place = deep_difference(asked, copy)
                if place or asked.keys() != copy.keys():
                    raise Failed(f"step changed the caller's {place or 'table'}")
                kept = copied_values(table)
                _spoil(asked["action"])
                _check_not_held(table, kept, "action")

        probe.compare(
            first, probe.repeat(first, spoil, request=request), "after the sent actions were written into", probe.steady
        )

        def frozen(table: Table, action: Action) -> object:
            for value in action.values():
                value.setflags(write=False)
            return {"env_id": probe.env.env_id, "frame_no": table["frame_no"], "action": action}

        probe.compare(first, probe.repeat(first, request=frozen), "with actions that are read-only", probe.steady)
        for _, _, action, kept in _their_steps(probe):
            place = deep_difference(action, kept, "action")
            if place:
                raise Failed(f"step of the adapted environment changed the caller's {place}",
                             how="reset, step of it")  # fmt: skip

    @check(
        "forms", "an action's order of keys and layout in memory do not matter", "6.2.2.2-2", "clock", "error passes"
    )
    def forms(self, probe: Probe) -> None:
        first = probe.walk()

        def backwards(table: Table, action: Action) -> object:
            named = {name: _strided(action[name]) for name in reversed(list(action))}
            return {"action": named, "frame_no": table["frame_no"], "env_id": probe.env.env_id}

        probe.compare(
            first, probe.repeat(first, request=backwards), "with keys in another order, arrays in strides", probe.steady
        )

    @check(
        "options", "options stay the caller's: they are neither changed nor kept", "contract", "clock", "error passes"
    )
    def options(self, probe: Probe) -> None:
        first = probe.walk()
        given = probe.seed_option()
        options = dict(given)

        def reset() -> Table:
            table = probe.reset_with(options)
            if options != given:
                raise Failed(f"reset changed the caller's options to {options}")
            options["seed"] = probe.seed + 5
            options.clear()
            return table

        probe.compare(
            first, probe.repeat(first, first=reset), "after the options were changed by their caller", probe.steady
        )
        if not first:
            return  # an episode that is over with its first frame
        entries: tuple[dict[str, object], ...] = (
            {}, {"no_such_entry": [1, {"a": 2}], "noted": {"b": [3]}}, {"log_probability": -0.5, "intervention": False},
        )  # fmt: skip
        for given in entries:
            self._check_extra({**dict(*probe.extra), **given}, first)

    def _check_extra(self, given: dict[str, object], frames: list[Frame]) -> None:
        """Check that steps, and a refused one, leave the extra_info of their caller as it is."""
        probe, table = self._probe, self._probe.reset()
        for number, frame in enumerate(frames):
            action = {name: np.array(value) for name, value in frame.action.items()}
            for sent in ({}, {"action": action}):
                if not sent and number % 4:
                    continue
                extra, request = deepcopy(given), {"env_id": probe.env.env_id, "frame_no": table["frame_no"], **sent}
                try:
                    answer, _ = probe.log.call("step", probe.env.step, request, extra)
                except Exception:
                    return  # it knows no such entry
                if extra.keys() != given.keys() or deep_difference(given, extra):
                    raise Failed(f"step changed the caller's extra_info to {extra!r:.80}", "it stays the caller's")
                kept = copied_values(answer)
                _spoil(extra)
                _check_not_held(answer, kept, "extra_info")
                table = table if error_of(answer) is not None else answer
            if error_of(answer) is not None or is_over(answer):
                return

    # -- borders ---------------------------------------------------------------------------------------

    @check("borders", "every border of the legal ranges is accepted", "6.2.1-3 6.4-b", "extremes", "error passes")
    def borders(self, probe: Probe) -> None:
        if not probe.repeatable:
            raise NotTried("a real machine is not driven to its limits")
        counts = {field.counted_by for field in probe.env.action}
        for field in probe.env.action:
            if field.is_text or field.counted_by or field.name in counts:
                continue  # a text has no range, and a count's range depends on the entries
            for index in elements_of(field, _MOST_BORDERS):
                for side in (0, 1):
                    self._check_border(field, index, side)

    def _check_border(self, field: Field, index: tuple[int, ...], side: int) -> None:
        """Check one border in the first frames of episodes; a game's own rules may refuse it in some of them."""
        first_error = None
        for steps in range(3):
            error = self._try(field, index, field.bounds[side][index], steps)
            if error is None or (isinstance(error, Mapping) and error.get("code") not in STANDARD_CODES):
                return  # accepted, or against a rule of the world's own
            if steps == 0:
                first_error = error
        if self._try(field, index, _inside(field, index, side), 0) is not None:
            return  # what is well inside the range is refused too, by some rule
        name = f"{field.name}{list(index) if index else ''}"
        raise Failed(f"action {name} = {field.bounds[side][index]} was refused: {first_error}",
                     f"the description allows {field.bounds[0][index]} to {field.bounds[1][index]}")  # fmt: skip

    def _try(self, field: Field, index: tuple[int, ...], number: Any, steps: int) -> Any:
        """Send an action with a number in one element after some legal steps; return the error, or None."""
        probe = self._probe
        frames = probe.walk(steps)
        if frames and is_over(frames[-1].kept):
            return None
        table = frames[-1].table if frames else probe.reset()
        action = probe.env.action.sample(np.random.default_rng([probe.seed, steps]))
        value = np.array(action[field.name])
        value[index] = number
        return error_of(probe.send(table, {**action, field.name: value})[0])

    # -- rendering -------------------------------------------------------------------------------------

    @check(
        "render",
        "rendering between steps returns nothing and changes nothing",
        "6.2.2.3-3 6.2.2.3-4 6.2.2.3-5",
        "clock",
        "error passes",
    )
    def render(self, probe: Probe) -> None:
        env = probe.env
        show = getattr(env, "render", None)
        image = getattr(getattr(env, "world", None), "image", None)
        if not callable(show) and not callable(image):
            raise NotTried("the environment has no render")
        first = probe.walk(12)
        with TemporaryDirectory() as folder:
            modes = self._modes(show, image, folder)
            if not modes:
                raise NotTried("nothing can be rendered here")

            end = probe.clock() + _RENDER_S

            def draw(table: Table) -> None:
                if probe.clock() < end:
                    kept = copied_values(table)
                    modes[table["frame_no"] % len(modes)]()
                    place = deep_difference(table, kept)
                    if place:
                        raise Failed(
                            f"render changed {place} of a table that was returned before", "it changes nothing"
                        )

            probe.compare(first, probe.repeat(first, draw), "with renderings between the steps", probe.steady)
            self._draw_alone(modes)
        if callable(show):
            self._check_shown(show)

    def _check_shown(self, show: Any) -> None:
        """Check Table 4 of the frames of two episodes: whose it is, that it stays, and that it shows its frame."""
        probe = self._probe
        shown: list[tuple[int, Any, Any, Any]] = []  # episode, observation, frame_data, its copy
        now: list[tuple[int, Table]] = []

        def take(table: Any) -> None:
            _check_frame_data(table)
            number, current = now[-1]
            for key in ("env_id", "frame_no"):
                if table[key] != current[key]:
                    raise Failed(f"{key} of Table 4 is {table[key]!r}", f"that of Table 1 is {current[key]!r}")
            data = table["frame_data"]
            if data is None:
                raise Failed("frame_data of Table 4 is None", "it is what is shown of the frame")
            shown.append((number, copied_values(current["observation"]), data, deepcopy(data)))

        def draw(table: Table, episode: int) -> bool:
            now.append((episode, table))
            try:
                probe.log.call("render", show, {"mode": "call", "to": take})
            except Failed:
                raise
            except Exception:
                return False  # it has no such mode
            return True

        end = probe.clock() + _RENDER_S
        for episode in range(2):
            table, rng = probe.reset(probe.seed + episode), draws(probe.seed)
            while draw(table, episode) and not is_over(table) and probe.clock() < end and len(now) < 2 * _SHOWN:
                table = probe.legal_step(table, rng).table
            if not shown:
                return
            del now[:]
        _check_kept_frames(shown)

    def _draw_alone(self, modes: list[Callable[[], None]]) -> None:
        """Check that the last frame can be shown too, and that pictures leave the process's generators alone."""
        frames = self._probe.walk(_TO_THE_END)
        before = random.getstate(), np.random.get_state(legacy=True)
        random.seed(20250102)
        np.random.seed(20250102)
        set_to = random.getstate(), np.random.get_state(legacy=True)
        try:
            for mode in modes:
                try:
                    mode()
                except (RobotError, NotImplementedError) as reason:
                    self._probe.note("6.2.2.3-2", f"the last frame can't be shown: {reason}")
            after = np.random.get_state(legacy=True)
            if frames and is_over(frames[-1].kept):
                self._check_still_over(frames[-1])
            if random.getstate() != set_to[0] or deep_difference(list(set_to[1]), list(after), "state"):
                raise Failed("render changes the state of the process's generators", "it changes nothing")
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])

    def _check_still_over(self, last: Frame) -> None:
        try:
            answer, _ = self._probe.send({"frame_no": last.kept["frame_no"]}, dict(last.action))
        except Exception:
            return  # it is refused, as without a rendering
        if error_of(answer) is None:
            raise Failed("a step after the end was carried out once the last frame had been shown",
                         "render begins no episode")  # fmt: skip

    def _modes(self, show: Any, image: Any, folder: str) -> list[Callable[[], None]]:
        """Return the ways to render that work here, each as a call that checks what it returns."""
        probe, modes = self._probe, list[Callable[[], None]]()
        probe.reset()
        is_ours = callable(image)
        if callable(show):
            _check_default(show)
            path = str(Path(folder) / "state.png")
            ours: list[dict[str, object]] = [{"mode": "file", "path": path}, {"mode": "call", "to": _check_frame_data}]
            modes += [call for options in (ours if is_ours else [{}]) if (call := self._shows(show, options))]
            plain_works = bool(modes)
            if not is_ours:  # the standard names no modes; these are usual
                usual = [*ours, *(dict[str, object](mode=mode) for mode in ("human", "rgb_array", "ansi", "text"))]
                modes += [call for options in usual if (call := self._shows(show, options, guess=True))]
            if not is_ours and modes:
                if plain_works and self._shows(show, {}, guess=True) is None:
                    raise Failed(
                        "render() works, and render({}) raises", "its options are a dictionary, by default empty"
                    )
                self._try_unknown_option(show)
        if is_ours:

            def draw() -> None:
                _check_image(probe.log.call("image", image, {}))

            try:
                draw()
                modes.append(draw)
            except (RobotError, NotImplementedError) as error:
                if not callable(show):  # else its note says so
                    probe.note("6.2.2.3-2", f"no image can be made here: {error}")
        return modes

    def _try_unknown_option(self, show: Any) -> None:
        try:
            self._probe.log.call("render", show, {"no_such_option": 1})
        except Exception:
            return
        self._probe.note("contract", "an unknown option of render is ignored")

    def _shows(self, show: Any, options: dict[str, object], guess: bool = False) -> Callable[[], None] | None:
        """Return a call that renders with these options, which may be a guess; None if it can't be made."""
        probe = self._probe

        def call() -> None:
            given = dict(options)
            answer = probe.log.call("render", show, *([given] if options or guess else []))
            if given != options:
                raise Failed(f"render changed the caller's options to {given}")
            if answer is not None:
                raise Failed(f"render({options or ''}) returned a {type(answer).__name__}", "it must return nothing")

        try:
            call()
        except Failed:
            raise
        except Exception as error:
            if guess:
                return None
            if not isinstance(error, RobotError | NotImplementedError | ImportError | OSError):
                raise
            probe.note("6.2.2.3-1", f"render can't be tried here: {error}")
            return None
        return call


def _check_not_held(table: Table, kept: Table, what: str) -> None:
    """Check that a table is as it was before its step's arguments were written into."""
    place = deep_difference(kept, table)
    if place:
        raise Failed(f"{place} of a step's Table 1 changed when the {what} was written into",
                     "a table holds none of the caller's arrays")  # fmt: skip


def _their_steps(probe: Probe) -> list[tuple[Any, Any, Any, Any]]:
    """Step an adapted environment of another project without its adapter, which copies its arrays.

    Returns:
        For each step the observation before it and the action, each as it is after all steps, followed by its copy from
        before the step; nothing for an environment that is not adapted, or whose agents take turns.
    """
    theirs = getattr(getattr(probe.env, "world", None), "foreign", None)
    if theirs is None or hasattr(theirs, "agent_iter"):
        return []
    taken = []
    observation = theirs.reset(seed=probe.seed)[0]
    for _ in range(_THEIR_STEPS):
        if hasattr(theirs, "possible_agents"):
            action = {agent: theirs.action_space(agent).sample() for agent in theirs.agents}
        else:
            action = theirs.action_space.sample()
        taken.append((observation, deepcopy(observation), action, deepcopy(action)))
        observation, _, terminated, truncated, _ = probe.log.call("step", theirs.step, action)
        over = (terminated, truncated) if isinstance(action, dict) else ({0: terminated}, {0: truncated})
        if any(any(flags.values()) for flags in over if isinstance(flags, dict)):
            break
    return taken


def _check_default(show: Any) -> None:
    """Check that the options of render have a default; its modes may need a display, so that it is not called here."""
    try:
        inspect.signature(show).bind()
    except TypeError:
        raise Failed("render() needs an argument", "its options are a dictionary, by default empty") from None
    except ValueError:
        return  # it has no signature


def _check_kept_frames(shown: list[tuple[int, Any, Any, Any]]) -> None:
    """Check that what was shown of frames stays, and that it follows the frames if it differs between episodes."""
    for _, _, data, copy in shown:
        if digest_of(data) != digest_of(copy):
            raise Failed("frame_data of a Table 4 changed after it was shown", "it is of its own frame")
    digests = [(episode, digest_of(data), digest_of(seen)) for episode, seen, data, _ in shown]
    pictures = {episode: {data for number, data, _ in digests if number == episode} for episode in (0, 1)}
    moved = min(len({seen for number, _, seen in digests if number == episode}) for episode in (0, 1))
    alike = all(len(one) == 1 for one in pictures.values())
    scenes, drawn = ({digest_of(_images(one[place])) for one in shown} for place in (1, 2))
    if len(scenes) >= _MOVED and len(drawn) == 1 and _images(shown[0][2]):
        raise Failed("the image in frame_data is the same in all frames of two episodes, and observed images differ",
                     "render shows the present state")  # fmt: skip
    if moved >= _MOVED and alike and pictures[0] != pictures[1]:
        raise Failed("frame_data is the same in all frames of an episode, and another one in the next episode",
                     "render shows the present state")  # fmt: skip


def _images(values: Any) -> list[np.ndarray]:
    """Return the images, uint8 of shape (height, width, channels), among the entries of a mapping, or the value."""
    entries = values.values() if isinstance(values, Mapping) else [values]
    return [one for one in entries if isinstance(one, np.ndarray) and one.dtype == np.uint8 and one.ndim == 3]


def _check_frame_data(table: Mapping[str, Any]) -> None:
    check_head(check_keys(table, frozenset({"env_id", "frame_no", "frame_data"}), (), "Table 4"), "Table 4")


def _check_image(image: object) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        shape = f"{image.dtype}{list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise Failed(f"image is {shape}", "it must be uint8 of shape (height, width, 3)")


def alter(value: Any) -> None:
    """Overwrite everything writable in a structure, which keeps its keys and gets a new one."""
    if isinstance(value, Mapping | MutableSequence):
        pairs = list(value.items() if isinstance(value, Mapping) else enumerate(value))
        for key, item in pairs:
            if isinstance(item, np.ndarray | Mapping | MutableSequence):
                alter(item)
            elif isinstance(value, MutableMapping | MutableSequence):
                value[key] = "altered"
        if isinstance(value, MutableMapping):
            value["altered"] = 0
    else:
        _spoil(value)


def _spoil(value: Any) -> None:
    """Overwrite everything writable in a structure, and empty it."""
    if isinstance(value, np.ndarray):
        if value.flags.writeable and value.dtype != object:
            value[...] = np.zeros((), value.dtype) if value.any() else np.ones((), value.dtype)
    elif isinstance(value, Mapping):
        for item in list(value.values()):
            _spoil(item)
        if isinstance(value, MutableMapping):
            value.clear()
    elif isinstance(value, MutableSequence):
        for item in list(value):
            _spoil(item)
        del value[:]


def _inside(field: Field, index: tuple[int, ...], side: int) -> Any:
    """Return a number well inside the range, near a border where that is a whole number."""
    low, high = field.bounds[0][index], field.bounds[1][index]
    if field.numpy_dtype.kind == "f":
        return low / 2 + high / 2
    return low + 1 if side == 0 and low < high else high - 1 if low < high else low


def _strided(value: np.ndarray) -> np.ndarray:
    """Return equal values with strides of another kind."""
    if value.ndim == 0:
        return value
    wide = np.zeros((*value.shape[:-1], value.shape[-1] * 2), value.dtype)
    wide[..., ::2] = value
    return wide[..., ::2]
