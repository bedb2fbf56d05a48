"""Check masks of legal actions, messages, and the further inputs of a step (R1.4, R2.1, R6.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from hal import Field
from rlenv_kit.illegal import illegal_values
from rlenv_kit.probe import Action, Frame, Probe, Table, draws, error_of, is_over
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import copied_values, deep_difference
from rlenv_robot.tables import step_extra_of
from rlenv_robot.tasks.agents import agents_of, messages
from rlenv_robot.world import ACTION_MASK

__all__ = ["extra_checks"]

_LEAST = 4
"""Fewest frames that show whether a value carries a message."""

_LETTERS = 24
"""Most letters of a message that is sent to see where it arrives."""

_FRAMES = 8
"""Frames of an episode at which masks are compared with what is accepted."""


def extra_checks(probe: Probe) -> list[PlannedCheck]:
    """Return the checks of masks, of messages, and of the ``extra_info`` that a step accepts."""
    return declared(vars(_Extras), _Extras(probe), probe)


class _Shares:
    """Find a share that keeps its first value in its player's turns, while the observation goes on in them."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[tuple[bytes, bytes]]] = {}

    def add(self, player: str, seen: Mapping[str, np.ndarray], observation: Mapping[str, np.ndarray]) -> None:
        for name in seen.keys() & observation.keys():
            pair = np.asarray(seen[name]).tobytes(), np.asarray(observation[name]).tobytes()
            self._values.setdefault((player, name), []).append(pair)

    def stale(self) -> str:
        for (player, name), pairs in self._values.items():
            own, whole = ({pair[k] for pair in pairs} for k in (0, 1))
            if len(own) == 1 and len(whole) >= _LEAST and pairs[0][0] == pairs[0][1]:
                return f"{name} of {player!r}"
        return ""


class _Extras:
    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    # -- masks -----------------------------------------------------------------------------------------

    @check(
        "masks",
        "masks have an element for each value, and masked actions are those that are refused",
        "contract",
        "equal episodes",
        "refusals",
    )
    def masks(self, probe: Probe) -> None:
        first = probe.reset()
        if self._masks(first) is None:
            raise NotTried("the environment provides no masks of legal actions")
        frames = probe.walk()
        for number, frame in enumerate(frames, 1):
            found = self._masks(frame.kept)
            if found is None and not is_over(frame.kept):
                raise Failed(f"frame {number} has no {ACTION_MASK}", "frame 0 has one")
        for seed in (probe.seed, probe.seed + 1):
            self._check_every_mask(seed)
        for number in np.unique(np.linspace(0, max(len(frames) - 1, 0), _FRAMES).astype(int)).tolist():
            self._check_agreement(frames[:number])

    def _check_every_mask(self, seed: int) -> None:
        """Check the mask of each frame of an episode: against what is carried out, and against what it forbids."""
        probe, spec, rng = self._probe, self._probe.env.action, draws(seed)
        table = probe.reset(seed)
        for number in range(2 * probe.steps):
            if is_over(table):
                return
            masks = {name: mask for name, mask in (self._masks(table) or {}).items() if _count(spec[name]) is not None}
            for name, mask in masks.items():
                low = int(spec[name].bounds[0])
                for place in _spread(np.flatnonzero(~mask), 2):
                    action = {**spec.sample(rng), name: np.array(low + place, spec[name].dtype)}
                    answer = probe.send(table, action)[0]
                    if error_of(answer) is None:
                        raise Failed(f"frame {number}: {ACTION_MASK} forbids {name} = {low + place}, and the action "
                                     "was accepted", "a masked action is illegal")  # fmt: skip
            frame = probe.legal_step(table, rng, number)
            for name, mask in masks.items():
                place = int(frame.action[name]) - int(spec[name].bounds[0])
                if not mask[place]:
                    raise Failed(f"frame {number}: {ACTION_MASK} forbids {name} = {int(frame.action[name])}, and the "
                                 "action was carried out", "a masked action is illegal")  # fmt: skip
            table = frame.table

    def _masks(self, table: Table) -> dict[str, np.ndarray] | None:
        """Return the masks of a table, or those of a game's rules, by the action's fields; None if there are none.

        Raises:
            Failed: a mask does not fit its field.
        """
        told = table.get("extra_info", {}).get(ACTION_MASK)
        legal = getattr(getattr(self._probe.env, "world", None), "legal", None)
        if told is None and callable(legal) and not is_over(table):
            told = legal()
        if not isinstance(told, Mapping):
            return None  # masks in another form are the environment's own
        return {name: self._mask(name, value) for name, value in told.items()}

    def _mask(self, name: str, value: object) -> np.ndarray:
        spec, mask = self._probe.env.action, np.asarray(value)
        if name not in spec:
            raise Failed(f"{ACTION_MASK} has {name!r}", f"the fields of the action are {', '.join(spec.names)}")
        values = _count(spec[name])
        if values is None:
            return mask
        if mask.shape != (values,) or mask.dtype.kind not in "biu" or not np.isin(mask, (0, 1)).all():
            raise Failed(f"{ACTION_MASK} of {name!r} is {mask.tolist()!r:.80} of shape {mask.shape}",
                         f"it is 0 or 1 for each of {values} values, from the lowest")  # fmt: skip
        return mask.astype(bool)

    def _check_agreement(self, frames: list[Frame]) -> None:
        """Check in one frame that what a mask forbids is refused, and, with a single field, that the rest is not."""
        probe, spec = self._probe, self._probe.env.action
        table = self._again(frames)
        masks = {name: mask for name, mask in (self._masks(table) or {}).items() if _count(spec[name]) is not None}
        if is_over(table):
            return
        for name, mask in masks.items():
            low = int(spec[name].bounds[0])
            for place in _spread(np.flatnonzero(~mask), 4):
                action = {**spec.sample(np.random.default_rng(place)), name: np.array(low + place, spec[name].dtype)}
                if error_of(probe.send(table, action)[0]) is None:
                    raise Failed(f"{ACTION_MASK} forbids {name} = {low + place}, and the action was accepted",
                                 "a masked action is illegal")  # fmt: skip
            if len(masks) > 1:
                continue  # what one field allows may depend on the others
            for place in _spread(np.flatnonzero(mask), 6):
                value = np.array(low + place, spec[name].dtype)
                if all(self._refuses(frames, {**spec.sample(np.random.default_rng(draw)), name: value})
                       for draw in range(1 if len(spec) == 1 else 12)):  # fmt: skip
                    raise Failed(f"{ACTION_MASK} allows {name} = {low + place}, and the action was refused",
                                 "a mask has a 1 for a legal value")  # fmt: skip

    def _refuses(self, frames: list[Frame], action: Action) -> bool:
        table = self._again(frames)
        return error_of(self._probe.send(table, action)[0]) is not None

    def _again(self, frames: list[Frame]) -> Table:
        """Reset, repeat some frames, and return the newest table."""
        if not frames:
            return self._probe.reset()
        return self._probe.repeat(frames)[-1].table

    # -- messages --------------------------------------------------------------------------------------

    @check("players", "each player sees a share of its own, and asking for it changes nothing", "6.2.3.1-3",
           "equal episodes")  # fmt: skip
    def players(self, probe: Probe) -> None:
        """Ask a turn-based world what each player sees, write into the answers, and ask for nobody's."""
        world = getattr(probe.env, "world", None)
        seen_by, players = getattr(world, "seen_by", None), getattr(world, "players", ())
        if not callable(seen_by) or not players:
            raise NotTried("the environment has no players who see something of their own")
        first = probe.walk()
        told, shares = 0, _Shares()

        def look(table: Table) -> None:
            nonlocal told
            for player in () if is_over(table) else players:
                seen = seen_by(player)
                if seen is None:
                    continue
                kept, told = copied_values(seen), told + 1
                if table.get("extra_info", {}).get("agent", player) == player:  # else it may show another's
                    shares.add(player, kept, table["observation"])
                for value in seen.values():
                    if isinstance(value, np.ndarray) and value.flags.writeable:
                        value[...] = np.array(7).astype(value.dtype)
                if place := deep_difference(kept, seen_by(player), "observation"):
                    raise Failed(f"{place} of {player!r} changed when an earlier answer was written into",
                                 "what seen_by returns is the caller's")  # fmt: skip

        look(probe.reset())
        if told:
            try:
                answer = seen_by("no such player")
            except Exception:
                pass
            else:
                raise Failed(f"seen_by of an unknown player returned {answer!r:.60}", "it raises KeyError")
        probe.compare(first, probe.repeat(first, between=look), "while players were asked for what they see")
        if stale := shares.stale():
            raise Failed(f"{stale} is that of the first frame throughout an episode", "it is what the player sees now")
        if not told:
            raise NotTried("all players share the observation")

    @check(
        "messages",
        "a message reaches the other agents as its sender's action holds it",
        "B.3.2-3",
        "equal episodes",
        "refusals",
    )
    def messages(self, probe: Probe) -> None:
        agents = agents_of(getattr(probe.env, "world", None))
        frames, told = probe.walk(), 0
        for number, frame in enumerate(frames, 1):
            extra = frame.kept.get("extra_info", {})
            sent, known = extra.get("messages"), extra.get("agents")
            if not isinstance(sent, Mapping) or not isinstance(known, Mapping):
                continue
            told += 1
            for receiver, inbox in sent.items():
                names = [receiver, *(inbox if isinstance(inbox, Mapping) else ())]
                for name in names:
                    if name not in known:
                        raise Failed(f"frame {number}: a message is to or from {name!r}",
                                     f"the agents are {', '.join(map(str, known))}")  # fmt: skip
                if receiver in names[1:]:
                    raise Failed(f"frame {number}: {receiver!r} gets its own message", "it reaches the other agents")
            if any(agent.message for agent in agents):
                place = deep_difference(messages(agents, frame.action), sent, "messages")
                if place:
                    raise Failed(f"frame {number}: {place} is not what the action before it holds",
                                 "a message is a part of its sender's action")  # fmt: skip
        if not told and not (frames and isinstance(frames[0].kept_reward, Mapping)):
            raise NotTried("no table has messages between agents")
        if not any(agent.message for agent in agents) and not self._check_carried() and not told:
            raise NotTried("no extra_info has a part of an agent's action")

    def _check_carried(self) -> int:
        """Check messages of which no description says where they come from: each arrives whole, and with its step.

        Each frame sends other texts and numbers. A value of ``extra_info`` that in most frames equals a field of an
        action, or the beginning of a text, carries that field.

        Returns:
            The number of values that carry one.
        """
        probe, rng = self._probe, np.random.default_rng(self._probe.seed)
        sent: list[Action] = []
        received: list[dict[str, Any]] = []
        table = probe.reset()
        for number in range(_FRAMES * 2):
            action = dict(probe.env.action.sample(rng))
            for field in probe.env.action:
                if field.is_text and not field.shape:
                    letters = rng.integers(97, 123, min(field.characters, _LETTERS)).astype(np.uint8)
                    action[field.name] = np.array(letters.tobytes().decode("ascii"), field.numpy_dtype)
            answer, _ = probe.send(table, action)
            if error_of(answer) is not None:
                return 0  # its own rules allow other messages alone
            sent.append(action)
            received.append(dict(_leaves(answer.get("extra_info"))))
            table = answer
            if number and is_over(table):
                break
        places = sorted(set().union(*received))
        return sum(self._carries(name, places, sent, received) for name in probe.env.action.names)

    @staticmethod
    def _carries(name: str, places: list[str], sent: list[Action], received: list[dict[str, Any]]) -> int:
        """Return how many places carry a field of the action.

        Raises:
            Failed: a place carries it in part, or each place carries it a step late.
        """
        values, late, carrying = [action[name] for action in sent], "", 0
        for place in places:
            pairs = [(number, parts[place]) for number, parts in enumerate(received) if place in parts]
            whole = sum(_same(got, values[number]) for number, got in pairs)
            for number, got in pairs if 3 * whole > 2 * len(pairs) else ():
                others = [other for other, value in sent[number].items() if other != name and _same(got, value)]
                if others and not _same(got, values[number]):
                    raise Failed(f"frame {number + 1}: {place} is {others[0]}, and {name} in other frames",
                                 "a message is of one sender")  # fmt: skip
            before = sum(number > 0 and _same(got, values[number - 1]) for number, got in pairs)
            cut = [number for number, got in pairs if _begins(got, values[number])]
            if len(pairs) < _LEAST or 2 * max(whole + len(cut), before) < len(pairs):
                continue
            if cut:
                raise Failed(f"frame {cut[0] + 1}: {place} is {str(received[cut[0]][place])!r}, and {name} "
                             f"{str(values[cut[0]])!r}", "a message arrives whole")  # fmt: skip
            carrying += whole > before
            late = late or (place if before > whole else "")
        if late and not carrying:
            raise Failed(f"{late} is {name} of the action before", "a message arrives with the step that sends it")
        return carrying

    # -- what a step takes -----------------------------------------------------------------------------

    @check(
        "step extra",
        "the further inputs of a step are checked as the action is",
        "6.2.2.2-3",
        "equal episodes",
        "refusals",
    )
    def step_extra(self, probe: Probe) -> None:
        env = probe.env
        fields = step_extra_of(getattr(env, "world", env)).fields
        if not len(fields):
            raise NotTried("the environment describes no fields that a step takes beside the action")
        legal: dict[str, Any] = dict(fields.sample(np.random.default_rng(probe.seed)))
        table = probe.reset()
        action = probe.env.action.sample(np.random.default_rng(probe.seed))
        for case in illegal_values(fields, legal, "extra_info"):
            if not isinstance(case.value, Mapping) or case.code not in ("range", "not_finite", "shape"):
                continue
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": action}
            plain = {name: value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value
                     for name, value in case.value.items()}  # fmt: skip
            for sent in (case.value, plain):
                self._check_refused(probe.log.call("step", env.step, request, sent), table, case.name)

    @staticmethod
    def _check_refused(answer: Any, table: Table, what: str) -> None:
        if error_of(answer[0]) is None:
            raise Failed(f"extra_info with {what} was accepted", "it is checked as the action is")
        if answer[0]["frame_no"] != table["frame_no"]:
            raise Failed(f"extra_info with {what} was refused, and frame_no is {answer[0]['frame_no']}",
                         "nothing is carried out")  # fmt: skip


def _leaves(value: object, where: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted place and the value of each entry of nested mappings."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{where}.{key}" if where else str(key))
    elif value is not None:
        yield where, value


def _same(got: object, sent: np.ndarray) -> bool:
    """Return whether a message is an action's value; single whole numbers are left out, since they repeat by chance."""
    one, other = np.asarray(got), np.asarray(sent)
    if one.dtype.kind == "U" or other.dtype.kind == "U":
        return str(got) == str(sent)
    distinct = other.size > 1 or other.dtype.kind == "f"
    return distinct and one.shape == other.shape and bool(np.allclose(one, other, rtol=1e-5, atol=0))


def _begins(got: object, sent: np.ndarray) -> bool:
    """Return whether a text is the beginning of another one, and not all of it."""
    text, whole = str(got), str(sent)
    return np.asarray(sent).dtype.kind == "U" and bool(text) and text != whole and whole.startswith(text)


def _spread(places: np.ndarray, most: int) -> list[int]:
    """Return some of the places, the first and the last among them."""
    if not len(places):
        return []
    return [int(places[place]) for place in np.unique(np.linspace(0, len(places) - 1, most).astype(int))]


def _count(field: Field) -> int | None:
    """Return how many values a whole number without axes may have; None for another field, or far too many."""
    if field.shape or field.is_text or field.numpy_dtype.kind == "f":
        return None
    low, high = field.bounds
    count = int(high) - int(low) + 1
    return count if count <= 100_000 else None
