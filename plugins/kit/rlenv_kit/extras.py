"""Check masks of legal actions, messages, and the further inputs of a step (R1.4, R2.1, R6.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hal import Field
from rlenv_kit.deliveries import check_deliveries
from rlenv_kit.illegal import illegal_values
from rlenv_kit.probe import Action, Frame, Probe, Table, draws, error_of, is_over
from rlenv_kit.promises import check_step_entries
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import copied_values, deep_difference
from rlenv_robot.tables import step_extra_of
from rlenv_robot.tasks.agents import agents_of, messages
from rlenv_robot.world import ACTION_MASK

__all__ = ["extra_checks"]

_LEAST = 4
"""Fewest different observations beside which an equal share is stale."""

_DRAWS = 8
"""Actions with a value that one of several masks allows, before it counts as refused."""

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
        marks = np.unique(np.linspace(0, max(len(frames) - 1, 0), _FRAMES).astype(int)).tolist()
        for number in marks:
            self._check_agreement(frames[:number])
        self._check_several([frames[:number] for number in marks[1::2]])

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

    def _check_several(self, walks: list[list[Frame]]) -> None:
        """Check values that one of several masks allows: some action with each of them is legal.

        What one field allows may depend on the others. So a refused value is a finding only if the error of each try
        names its field, and most allowed values are accepted.
        """
        refused, accepted = list[str](), 0
        for frames in walks:
            table = self._again(frames)
            masks = self._counted(table)
            if is_over(table) or len(masks) < 2:
                continue
            for name, mask in masks.items():
                for place in _spread(np.flatnonzero(mask), 2):
                    error = self._blames(table, masks, name, place)
                    if error is None:
                        accepted, table = accepted + 1, self._again(frames)
                    elif error:
                        value = int(self._probe.env.action[name].bounds[0]) + place
                        refused.append(f"frame {len(frames)}: {ACTION_MASK} allows {name} = {value}, and each action "
                                       f"with it was refused: {error}")  # fmt: skip
        if refused and accepted > len(refused):
            raise Failed(refused[0], "a mask has a 1 for a legal value")

    def _counted(self, table: Table) -> dict[str, np.ndarray]:
        """Return the masks of whole numbers that have few values."""
        spec = self._probe.env.action
        return {name: mask for name, mask in (self._masks(table) or {}).items() if _count(spec[name]) is not None}

    def _blames(self, table: Table, masks: Mapping[str, np.ndarray], name: str, place: int) -> str | None:
        """Return an error if a value is refused in each action because of its own field, None if one is accepted."""
        spec, problem = self._probe.env.action, ""
        for draw in range(_DRAWS):
            rng = np.random.default_rng(draw)
            action = dict(spec.sample(rng))
            for other, mask in masks.items():
                allowed = np.flatnonzero(mask)
                if len(allowed):
                    action[other] = _value(spec[other], int(allowed[0] if not draw else rng.choice(allowed)))
            action[name] = _value(spec[name], place)
            error = error_of(self._probe.send(table, action)[0])
            if error is None:
                return None
            if not isinstance(error, Mapping) or str(error.get("field")).rpartition(".")[2] != name:
                return ""
            problem = str(error.get("message") or error)
        return problem

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
        frames, told, known = probe.walk(), 0, list[str]()
        for number, frame in enumerate(frames, 1):
            extra = frame.kept.get("extra_info", {})
            sent, mapping = extra.get("messages"), extra.get("agents")
            if not isinstance(sent, Mapping) or not isinstance(mapping, Mapping):
                continue
            told, known = told + 1, known or [str(name) for name in mapping]
            for receiver, inbox in sent.items():
                names = [receiver, *(inbox if isinstance(inbox, Mapping) else ())]
                for name in names:
                    if name not in mapping:
                        raise Failed(f"frame {number}: a message is to or from {name!r}",
                                     f"the agents are {', '.join(map(str, mapping))}")  # fmt: skip
                if receiver in names[1:]:
                    raise Failed(f"frame {number}: {receiver!r} gets its own message", "it reaches the other agents")
            if any(agent.message for agent in agents):
                place = deep_difference(messages(agents, frame.action), sent, "messages")
                if place:
                    raise Failed(f"frame {number}: {place} is not what the action before it holds",
                                 "a message is a part of its sender's action")  # fmt: skip
        if not told and not (frames and isinstance(frames[0].kept_reward, Mapping)):
            raise NotTried("no table has messages between agents")
        if not any(agent.message for agent in agents) and not check_deliveries(probe, known) and not told:
            raise NotTried("no extra_info has a part of an agent's action")

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
        if not check_step_entries(probe) and not len(fields):
            raise NotTried("the environment describes nothing that a step takes beside the action")
        if not len(fields):
            return
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


def _spread(places: np.ndarray, most: int) -> list[int]:
    """Return some of the places, the first and the last among them."""
    if not len(places):
        return []
    return [int(places[place]) for place in np.unique(np.linspace(0, len(places) - 1, most).astype(int))]


def _value(field: Field, place: int) -> np.ndarray:
    return np.array(int(field.bounds[0]) + place, field.numpy_dtype)


def _count(field: Field) -> int | None:
    """Return how many values a whole number without axes may have; None for another field, or far too many."""
    if field.shape or field.is_text or field.numpy_dtype.kind == "f":
        return None
    low, high = field.bounds
    count = int(high) - int(low) + 1
    return count if count <= 100_000 else None
