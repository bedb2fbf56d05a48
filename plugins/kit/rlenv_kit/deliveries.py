"""Find which field of an action each message carries, and messages that are late, altered or sent elsewhere (B.3.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from hal import Field
from rlenv_kit.probe import Action, Probe, Table, error_of, is_over
from rlenv_kit.report import Failed
from rlenv_kit.tables import Unchecked

__all__ = ["check_deliveries"]

_LEAST = 4
"""Fewest frames that show whether a value carries a message."""

_LETTERS = 24
"""Most letters of a message that is sent to see where it arrives."""

_FRAMES, _ADDRESSED = 16, 36
"""Frames of all episodes: usually, and where a field of the action may choose the receiver."""

_TRIES = 60
"""Random actions that the rules of a world may refuse in a frame."""

_MESSAGES = "messages."

_RECEIVER = frozenset({"receiver", "receivers", "addressee", "recipient", "addressed"})


@dataclass(frozen=True)
class _Sent:
    """An action, the one before it in its episode, and what the table after it holds in ``extra_info`` by place.

    Attributes:
        action: the action.
        before: the action before it; None for the first one of an episode.
        received: place -> value.
        is_plain: whether its texts are of small letters, as long as they may be.
    """

    action: Action
    before: Action | None
    received: Mapping[str, Unchecked]
    is_plain: bool


def check_deliveries(probe: Probe, agents: Sequence[str]) -> int:
    """Check messages of which no description says where they come from: each arrives whole, and with its step.

    Each frame sends other texts and numbers. A value of ``extra_info`` that in most frames equals a field of an
    action, or resembles it, carries that field. A whole number in the action chooses the receivers if they follow from
    it alone.

    Args:
        probe: drives the environment.
        agents: the names of the agents, in their order.

    Returns:
        The number of values that carry a field.

    Raises:
        Failed: a message is late, altered, of another agent, or for others than its receiver.
    """
    sent = _sent(probe, _ADDRESSED if any(_is_choice(field, agents) for field in probe.env.action) else _FRAMES)
    places = sorted(set().union(*(one.received for one in sent)))
    carrying = sum(_carries(name, places, sent, agents) for name in probe.env.action.names)
    if carrying and len(agents) > 1:
        choices = [field for field in probe.env.action if _is_choice(field, agents)]
        _check_receivers(choices, list(agents), sent)
    return carrying


# -- What is sent ----------------------------------------------------------------------------------------------


def _sent(probe: Probe, most: int) -> list[_Sent]:
    """Walk episodes in which each frame sends other texts; none if the world's rules refuse nearly all."""
    rng, sent = np.random.default_rng(probe.seed), list[_Sent]()
    for episode in range(most):
        table, before = probe.reset(probe.seed + episode), None
        while not is_over(table) and len(sent) < most:
            answered = _answered(probe, table, rng, len(sent))
            if answered is None:
                return sent
            action, table = answered
            received = dict(_leaves(table.get("extra_info")))
            sent.append(_Sent(action, before, received, _is_plain(len(sent))))
            before = action
        if len(sent) >= most:
            break
    return sent


def _answered(probe: Probe, table: Table, rng: np.random.Generator, number: int) -> tuple[Action, Table] | None:
    """Send actions until one is carried out; after some refusals with plain texts alone."""
    for attempt in range(_TRIES):
        action = dict(probe.env.action.sample(rng))
        for field in probe.env.action:
            if field.is_text and not field.shape:
                text = _text(rng, min(field.characters, _LETTERS), number if attempt < _TRIES // 2 else 0)
                action[field.name] = np.array(text, field.numpy_dtype)
        answer, _ = probe.send(table, action)
        if error_of(answer) is None:
            return action, answer
    return None


def _is_plain(number: int) -> bool:
    return number % 4 != 3


def _text(rng: np.random.Generator, length: int, number: int) -> str:
    """Return small letters; of every fourth number an odd text: spaces and capitals, few letters, other scripts."""
    letters = "".join(map(chr, rng.integers(97, 123, length)))
    if _is_plain(number) or length < 4:
        return letters
    kind = number // 4 % 3
    if kind == 0:
        return f" {letters[: length - 2].title()} "
    if kind == 1:
        return letters[: 1 + length // 4]
    return "".join(map(chr, rng.integers(0x4E00, 0x9FA0, length)))


# -- What it carries -------------------------------------------------------------------------------------------


def _carries(name: str, places: Sequence[str], sent: Sequence[_Sent], agents: Sequence[str]) -> int:
    """Return how many places carry a field of the action.

    Raises:
        Failed: a place carries it in part, or of another sender, or each place carries it a step late.
    """
    late, carrying = "", 0
    for place in places:
        is_message = place.startswith(_MESSAGES)
        pairs = [(number, one.received[place]) for number, one in enumerate(sent) if place in one.received]
        if not is_message:
            pairs = [pair for pair in pairs if sent[pair[0]].is_plain]
        whole = sum(_same(got, sent[number].action[name]) for number, got in pairs)
        for number, got in pairs if 3 * whole > 2 * len(pairs) else ():
            others = [other for other, value in sent[number].action.items() if other != name and _same(got, value)]
            if _same(got, sent[number].action[name]):
                continue
            if others:
                raise Failed(f"frame {number + 1}: {place} is {others[0]}, and {name} in other frames",
                             "a message is of one sender")  # fmt: skip
        for number, got in pairs if is_message and 3 * whole > len(pairs) else ():
            if _is_stale(got, name, sent[: number + 1]):
                raise Failed(f"frame {number + 1}: {place} is {name} of an earlier action",
                             "a message arrives with the step that sends it")  # fmt: skip
        earlier = [(number, got, sent[number].before) for number, got in pairs]
        before = sum(action is not None and _same(got, action[name]) for _, got, action in earlier)
        cut = [number for number, got in pairs if _is_altered(got, sent[number].action[name], is_message, whole)]
        if len(pairs) < _LEAST or 2 * max(whole + len(cut), before) < len(pairs):
            continue
        if cut:
            shown, whole_text = (str(value) for value in (sent[cut[0]].received[place], sent[cut[0]].action[name]))
            raise Failed(f"frame {cut[0] + 1}: {place} is {shown!r}, and {name} {whole_text!r}",
                         "a message arrives whole")  # fmt: skip
        if whole > before and is_message:
            _check_sender(place, name, agents)
        carrying += whole > before
        if before > whole:
            late = late or place
            if is_message:
                break
    if late and (not carrying or late.startswith(_MESSAGES)):
        raise Failed(f"{late} is {name} of the action before", "a message arrives with the step that sends it")
    return carrying


def _is_altered(got: object, sent: np.ndarray, is_message: bool, whole: int) -> bool:
    """Return whether a place holds a field in part, or a message is another one although others came whole."""
    if not is_message:
        return _begins(got, sent)
    return _resembles(got, sent) or (whole > 2 * _LEAST and not _same(got, sent))


def _is_stale(got: object, name: str, sent: Sequence[_Sent]) -> bool:
    """Return whether a message is not that of the newest action, and is that of one before."""
    newest = sent[-1].action[name]
    if np.asarray(newest).dtype.kind == "U" and len(str(got)) < _LEAST:
        return False  # it may be equal by chance
    return not _same(got, newest) and any(_same(got, one.action[name]) for one in sent[:-1])


def _check_sender(place: str, name: str, agents: Sequence[str]) -> None:
    """Check that a field with the name of one agent is not the message of another one."""
    sender = place.split(".")[-1]
    named = [agent for agent in agents if set(agent.lower().split("_")) <= set(name.lower().split("_"))]
    if sender in agents and len(named) == 1 and named[0] != sender:
        raise Failed(f"{place} is {name}", f"a message of {sender!r} is a part of the action of {sender!r}")


# -- Whom it reaches -------------------------------------------------------------------------------------------


def _is_choice(field: Field, agents: Sequence[str]) -> bool:
    """Return whether a field may choose one of the agents: a whole number of few values."""
    if field.shape or field.is_text or field.numpy_dtype.kind == "f" or len(agents) < 2:
        return False
    low, high = (int(bound) for bound in field.bounds)
    return len(agents) - 1 <= high - low <= len(agents) + 3


def _check_receivers(choices: Sequence[Field], agents: list[str], sent: Sequence[_Sent]) -> None:
    """Check that a value which chooses a receiver reaches that one alone, as the other values do.

    The values count the agents from 0 or from 1; which, most of them show. What a sender's own number does, and a
    number beyond the agents', is the environment's own.
    """
    met: dict[int, list[tuple[bool, str]]] = {0: [], 1: []}
    is_told = False
    for sender in agents:
        choice = _choice_of(choices, sender, agents, sent)
        if choice is None:
            continue
        field, reached = choice
        is_told = is_told or (bool(_words(field) & _RECEIVER) and bool(_words(field) & {"number", "index"}))
        for number, receivers in reached.items():
            for first in met:
                place = number - first
                if 0 <= place < len(agents) and agents[place] != sender:
                    words = (f"a message of {sender!r} with {field.name} = {number} reaches "
                             f"{', '.join(sorted(receivers)) or 'nobody'}")  # fmt: skip
                    met[first].append((receivers == {agents[place]}, words))
    first = max(met, key=lambda one: sum(is_due for is_due, _ in met[one]))
    due = sum(is_due for is_due, _ in met[first])
    wrong = [words for is_due, words in met[first] if not is_due]
    if due >= 2 and wrong and due > len(wrong):
        raise Failed(wrong[0], "other numbers choose the agent of that place in their order, alone")
    if not due and len(wrong) > len(agents) > 2 and is_told:
        raise Failed(wrong[0], "the description says that the number is the receiver's")


def _choice_of(
    choices: Sequence[Field], sender: str, agents: list[str], sent: Sequence[_Sent]
) -> tuple[Field, dict[int, frozenset[str]]] | None:
    """Return the field that chooses a sender's receivers, and the receivers by its value.

    Raises:
        Failed: a field that is described as the receiver's has no effect.
    """
    reached = [
        frozenset(agent for agent in agents if f"{_MESSAGES}{agent}.{sender}" in one.received) for one in sent
    ]  # fmt: skip
    found: list[tuple[Field, dict[int, frozenset[str]]]] = []
    everybody = frozenset(agents) - {sender}
    for field in choices:
        by_value: dict[int, set[frozenset[str]]] = {}
        for one, receivers in zip(sent, reached, strict=True):
            by_value.setdefault(int(one.action[field.name]), set()).add(receivers)
        if all(len(sets) == 1 for sets in by_value.values()) and len(set(map(frozenset, by_value.values()))) > 1:
            found.append((field, {number: next(iter(sets)) for number, sets in by_value.items()}))
        is_own = sender.lower() in field.name.lower().split("_")
        if (
            is_own
            and _words(field) & _RECEIVER
            and len(by_value) > 2
            and set(reached) == {everybody}
            and len(agents) > 2
        ):
            raise Failed(f"a message of {sender!r} reaches all others, whatever {field.name} is",
                         f"{field.name} is {field.meaning}")  # fmt: skip
    return found[0] if len(found) == 1 else None


def _words(field: Field) -> set[str]:
    return set(re.findall(r"[a-z]+", field.meaning.lower()))


# -- Values ----------------------------------------------------------------------------------------------------


def _leaves(value: object, where: str = "") -> Iterator[tuple[str, Unchecked]]:
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


def _resembles(got: object, sent: np.ndarray) -> bool:
    """Return whether a message is a text or numbers of an action that were changed on their way."""
    other = np.asarray(sent)
    if other.dtype.kind == "U":
        text, whole = str(got), str(sent)
        if not text or text == whole:
            return False
        one, two = text.casefold().strip(), whole.casefold().strip()
        if two in one:
            return one == two  # else there are words around it
        block = SequenceMatcher(None, one, two, False).find_longest_match()
        return (bool(one) and one in two) or 2 * block.size > len(two)
    one_array = np.asarray(got)
    if other.dtype.kind != "f" or one_array.dtype.kind not in "iuf" or one_array.shape != other.shape:
        return False
    near = np.abs(one_array - other) <= 0.1 * np.abs(other) + 0.01
    return bool(near.all()) and not _same(got, sent)
