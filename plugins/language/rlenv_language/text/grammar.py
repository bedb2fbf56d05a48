"""Parse and write actions as text, with a grammar derived from the action's `Spec`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hal import Field, IllegalAction, Spec, Violation
from rlenv_robot.tasks.text_hints import TextCommand

__all__ = ["FORMAT", "IGNORED", "Grammar", "ParsedText"]

FORMAT = "format"
"""Violation code: the text is not a command of the grammar."""

_WORD = re.compile(r"[A-Za-z]\w*", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d{1,40}", re.ASCII)

IGNORED = ("<|im_start|>", "<|im_end|>")
"""Marks of chat templates that stand around an answer."""

_CUT = "\n[...]\n"
"""Stands in a shortened text for what was left out."""

_THOUGHT_END = "</think>"

_SHOWN = 60
"""Most characters of an agent's text in an error message."""


@dataclass(frozen=True, slots=True)
class ParsedText:
    """An action parsed from text.

    Attributes:
        action: the validated action by field.
        command: the command's name.
        content: the text between the tags.
        thought: the text between ``think`` tags before the command; empty if there is none.
    """

    action: Mapping[str, np.ndarray]
    command: str
    content: str
    thought: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a text has its command.

    Attributes:
        start: the first character of tags or match.
        end: the character behind them.
        command: first character of the command, and the one behind it.
        thought: the thought.
    """

    start: int
    end: int
    command: tuple[int, int]
    thought: str


class Grammar:
    """The grammar of texts that stand for actions: one command between two tags, with or without other text around it.

    A command is written ``name``, ``name(value, value)`` or ``name(field=value)``. A value is a number, a word if the
    field has words, or numbers in brackets such as ``[0.2, 0.05, 0.1]``, row by row for an array of several axes. Case
    does not matter in commands and words. What stands before the last ``</think>`` is thought; after it the last pair
    of tags counts.

    Args:
        spec: the action's spec.
        commands: see `TextCommand`; if empty, a single command, ``command``, takes every field.
        names: field -> a word for each of its values, in increasing order.
        tag: the tags' name, such as ``answer`` in ``<answer>...</answer>``.
        longest: most characters of a text; a longer text is refused.
        ignored: marks of a chat template that are removed from a text before parsing.
        pattern: a regular expression in place of the tags; its last group is the command, a group before it the
            thought. The first place of a text that fits counts, and ``.`` matches line breaks too.

    Raises:
        ValueError: the pattern is not a regular expression with a group; a command or a word can't be written or is
            ambiguous, or a field is unknown.
    """

    def __init__(
        self,
        spec: Spec,
        commands: Sequence[TextCommand] = (),
        names: Mapping[str, Sequence[str]] | None = None,
        tag: str = "answer",
        longest: int = 4096,
        ignored: Sequence[str] = IGNORED,
        pattern: str = "",
    ) -> None:
        self.spec, self.tag, self.longest, self.ignored = spec, tag, longest, tuple(ignored)
        self._pattern = _compiled(pattern) if pattern else None
        self.commands = tuple(commands) or (TextCommand("command", spec.names, {}, "the whole action"),)
        self.names = {field: tuple(words) for field, words in (names or {}).items()}
        self._open, self._close = f"<{tag}>", f"</{tag}>"
        self._by_name = {command.name.lower(): command for command in self.commands}
        self._values = {
            field: {word.lower(): int(spec[field].bounds[0]) + number for number, word in enumerate(words)}
            for field, words in self.names.items()
        }
        self._check()
        self._defaults = {
            field.name: np.clip(np.zeros(field.shape, field.numpy_dtype), *field.bounds) for field in spec
        }
        self._filled = {command.name: self._fill(command) for command in self.commands}

    def _check(self) -> None:
        if not _WORD.fullmatch(self.tag):
            raise ValueError(f"tag is {self.tag!r}, expected letters, digits and underscores, a letter first")
        if len(self._by_name) != len(self.commands):
            raise ValueError(f"two commands have one name: {', '.join(command.name for command in self.commands)}")
        for field, words in self.names.items():
            described = self.spec[field]
            count = int(described.bounds[1]) - int(described.bounds[0]) + 1 if not described.shape else 0
            if described.numpy_dtype.kind == "f" or count != len(words) or len(self._values[field]) != len(words):
                raise ValueError(
                    f"field {field!r} has {len(words)} words, expected a different one for each whole number"
                )
            if not all(_WORD.fullmatch(word) for word in words):
                raise ValueError(f"field {field!r}: {words} must be letters, digits and underscores, a letter first")
        for command in self.commands:
            if not _WORD.fullmatch(command.name):
                raise ValueError(f"command {command.name!r} must be letters, digits and underscores, a letter first")
            unknown = [field for field in (*command.arguments, *command.fixed) if field not in self.spec]
            if unknown:
                has = ", ".join(self.spec.names)
                raise ValueError(f"command {command.name!r}: the action has no field {unknown[0]!r}, it has {has}")

    def _fill(self, command: TextCommand) -> dict[str, np.ndarray]:
        """Return the values of the fields that a command's text does not give."""
        fixed = {field: self.spec[field].validate(value, command.name) for field, value in command.fixed.items()}
        return {
            name: fixed.get(name, default) for name, default in self._defaults.items() if name not in command.arguments
        }

    # -- reading -----------------------------------------------------------------------------------------

    def parse(self, text: str) -> ParsedText:
        """Parse a text into an action.

        Raises:
            IllegalAction: the text is not a command of the grammar (code ``format``), or a value violates the spec
                (codes as for `hal.Spec.validate`).
        """
        if len(text) > self.longest:
            raise self._wrong(f"the text has {len(text)} characters, allowed are {self.longest}")
        for mark in self.ignored:
            if mark in text:
                text = text.replace(mark, "")
        place = self._find(text)
        if place is None:
            raise self._wrong(f"{_ends(text)} has no command {self._form}")
        content = text[slice(*place.command)].strip()
        command, values = self._read(content)
        action = {name: value.copy() for name, value in self._filled[command.name].items()}
        for name, value in values.items():
            action[name] = self.spec[name].validate(value, "action")
        ordered = {name: action[name] for name in self.spec.names}
        return ParsedText(ordered, command.name, content, place.thought)

    def shorten(self, text: str) -> str:
        """Return a text of at most ``longest`` characters with the same command: the middle of the rest is left out."""
        if len(text) <= self.longest:
            return text
        room = self.longest - len(_CUT)
        head, tail = room // 4, room - room // 4
        place = self._find(text)
        if place is not None and head < place.end and place.start < len(text) - tail:
            if place.end - place.start <= room:
                before = min(room - (place.end - place.start), place.start)
                return text[place.start - before : place.end] + _CUT
            text = text[place.start : place.end]
        return text[:head] + _CUT + text[-tail:]

    def _find(self, text: str) -> _Place | None:
        if self._pattern is not None:
            match = self._pattern.search(text)
            if match is None:
                return None
            thought = match.group(1).strip() if self._pattern.groups > 1 else ""
            return _Place(*match.span(), match.span(self._pattern.groups), thought)
        after = text.rfind(_THOUGHT_END)
        end = text.rfind(self._close, max(after, 0))
        start = text.rfind(self._open, max(after, 0), end) if end >= 0 else -1
        if start < 0:
            return None
        inside = start + len(self._open), end
        return _Place(start, end + len(self._close), inside, _between(text[:start], "<think>", _THOUGHT_END))

    @property
    def _form(self) -> str:
        if self._pattern is not None:
            return f"that fits {self._pattern.pattern}"
        return f"between {self._open} and {self._close}"

    def _read(self, content: str) -> tuple[TextCommand, dict[str, object]]:
        """Return a command and the unchecked values of its fields."""
        word, bracket, rest = content.partition("(")
        command = self._by_name.get(word.strip().lower())
        if command is None:
            listed = ", ".join(other.name for other in self.commands)
            raise self._wrong(f"{_short(word.strip())} is no command, allowed are {listed}")
        if bracket and not rest.endswith(")"):
            raise self._wrong(f"{_short(content)} has no closing bracket")
        parts = _split(rest[:-1]) if bracket else []
        if parts is None:
            raise self._wrong(f"the brackets in {_short(content)} do not match")
        values: dict[str, object] = {}
        for number, part in enumerate(parts):
            name, value = self._argument(command, number, part)
            if name in values:
                raise self._wrong(f"{command.name} got {name} twice")
            values[name] = self._value(self.spec[name], value)
        missing = [name for name in command.arguments if name not in values]
        if missing:
            raise self._wrong(f"{command.name} lacks {', '.join(missing)}: write {self.form(command)}")
        return command, values

    def _argument(self, command: TextCommand, number: int, part: str) -> tuple[str, str]:
        """Return the field and the text of a command's argument."""
        name, equals, value = part.partition("=")
        if equals:
            name = name.strip().lower()
            if name not in command.arguments:
                raise self._wrong(f"{command.name} has no argument {_short(name)}: write {self.form(command)}")
            return name, value.strip()
        if number >= len(command.arguments):
            raise self._wrong(f"{command.name} takes {len(command.arguments)} values: write {self.form(command)}")
        return command.arguments[number], part.strip()

    def _value(self, field: Field, text: str) -> object:
        """Return a number, or nested numbers, unchecked against the field's range."""
        word = self._values.get(field.name, {}).get(text.lower())
        if word is not None:
            return word
        if not field.shape:
            return self._number(field, text)
        if not (text.startswith("[") and text.endswith("]")):
            raise self._wrong(f"{field.name} is {_short(text)}, expected {field.size} numbers in brackets")
        inside = text[1:-1].replace("[", " ").replace("]", " ").split(",") if text[1:-1].strip() else []
        numbers = [self._number(field, number.strip()) for number in inside]
        if len(numbers) != field.size:
            raise self._wrong(f"{field.name} has {len(numbers)} numbers, expected {field.size}")
        if field.numpy_dtype.kind == "f":
            return np.array(numbers, float).reshape(field.shape)
        try:
            return np.array(numbers, field.numpy_dtype if all(isinstance(n, int) for n in numbers) else float).reshape(
                field.shape
            )
        except OverflowError:  # the spec says what is allowed
            return np.array(numbers, float).reshape(field.shape)

    def _number(self, field: Field, text: str) -> float | int:
        if not _NUMBER.fullmatch(text):
            words = self.names.get(field.name)
            expected = f"one of {', '.join(words)}" if words else "a number"
            raise self._wrong(f"{field.name} is {_short(text)}, expected {expected}")
        whole = field.numpy_dtype.kind != "f" and _WHOLE.fullmatch(text)
        return int(text) if whole else float(text)

    def _wrong(self, message: str) -> IllegalAction:
        return IllegalAction(Violation(FORMAT, "action.text", (), message))

    # -- writing -----------------------------------------------------------------------------------------

    def _around(self, call: str) -> str:
        """Return a command within tags, or as far as possible in another form that the pattern takes."""
        tagged = f"{self._open}{call}{self._close}"
        for text in (tagged, call, f"<think></think>{tagged}"):
            place = self._find(text)
            if place is not None and text[slice(*place.command)].strip() == call:
                return text
        return tagged

    def write(self, action: Mapping[str, object]) -> str:
        """Return the text of a legal action, with its tags, which `parse` converts back to the same action.

        Raises:
            IllegalAction: the action violates the spec.
            ValueError: no command gives these values.
        """
        values = self.spec.validate(action, "action")
        for command in self.commands:
            filled = self._filled[command.name]
            if all(np.array_equal(values[name], value) for name, value in filled.items()):
                return self._around(self._call(command, values))
        raise ValueError(f"no command gives the action {dict(values)!r:.200}; the commands are {', '.join(self.forms)}")

    def _call(self, command: TextCommand, values: Mapping[str, np.ndarray]) -> str:
        if not command.arguments:
            return command.name
        return f"{command.name}({', '.join(f'{name}={self._shown(name, values[name])}' for name in command.arguments)})"

    def _shown(self, name: str, value: np.ndarray) -> str:
        if name in self.names:
            return self.names[name][int(value) - int(self.spec[name].bounds[0])]
        if not value.shape:
            return str(value[()])  # a NumPy scalar's text is the shortest that gives the same number in its dtype
        return f"[{', '.join(str(number) for number in value.ravel())}]"

    def sample(self, rng: np.random.Generator) -> str:
        """Return the text of a random command with random legal values."""
        command = self.commands[int(rng.integers(len(self.commands)))]
        drawn = {name: self.spec[name].sample(rng) for name in command.arguments}
        return self._around(self._call(command, {**self._filled[command.name], **drawn}))

    # -- describing --------------------------------------------------------------------------------------

    def form(self, command: TextCommand) -> str:
        """Return the written form of a command, such as ``move_to(position=[x, y, z])``."""
        if not command.arguments:
            return command.name
        return (
            f"{command.name}({', '.join(f'{name}={self._placeholder(self.spec[name])}' for name in command.arguments)})"
        )

    def _placeholder(self, field: Field) -> str:
        if field.name in self.names:
            return "|".join(self.names[field.name])
        if not field.shape:
            return "number"
        return f"[{', '.join(field.elements)}]" if field.elements else f"[{field.size} numbers]"

    @cached_property
    def forms(self) -> tuple[str, ...]:
        """The written form of each command."""
        return tuple(self.form(command) for command in self.commands)

    @cached_property
    def instructions(self) -> str:
        """The commands and the tags, as sentences for the agent."""
        lines = [
            f"- {form}: {command.meaning}" if command.meaning else f"- {form}"
            for form, command in zip(self.forms, self.commands, strict=True)
        ]
        ranges = [_range_of(self.spec[name]) for name in dict.fromkeys(
            name for command in self.commands for name in command.arguments if name not in self.names)]  # fmt: skip
        head = f"Answer with one command {self._form}. The commands are:"
        return "\n".join([head, *lines, *ranges])


def _range_of(field: Field) -> str:
    """Return a sentence on the values of a field."""
    low, high = field.bounds
    unit = "" if field.unit == "1" else f" {field.unit}"
    lows, highs = (
        {f"{value:.4g}" for value in low.ravel().tolist()},
        {f"{value:.4g}" for value in high.ravel().tolist()},
    )
    if len(lows) == len(highs) == 1:
        span = f"{lows.pop()} to {highs.pop()}{unit}"
    else:
        pairs = zip(low.ravel().tolist(), high.ravel().tolist(), strict=True)
        span = f"{', '.join(f'{one:.4g} to {other:.4g}' for one, other in pairs)}{unit}"
    about = f": {field.meaning}" if field.meaning else ""
    return f"{field.name}{about}; {span}."


def _split(text: str) -> list[str] | None:
    """Split arguments at the commas that are in no brackets; None where brackets do not match."""
    parts, depth, begin = [], 0, 0
    for place, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
            if depth < 0:
                return None
        elif character == "," and not depth:
            parts.append(text[begin:place])
            begin = place + 1
    if depth:
        return None
    return [*parts, text[begin:]] if parts or text.strip() else []


def _between(text: str, begin: str, end: str) -> str:
    start = text.find(begin)
    stop = text.find(end, start)
    return text[start + len(begin) : stop].strip() if 0 <= start < stop else ""


def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern for commands.

    Raises:
        ValueError: it is no regular expression with a group.
    """
    try:
        compiled = re.compile(pattern, re.DOTALL)
    except (re.error, TypeError) as error:
        raise ValueError(f"pattern is {pattern!r}, expected a regular expression: {error}") from None
    if not compiled.groups:
        raise ValueError(f"pattern is {pattern!r}, expected a group around the command, such as <answer>(.*?)</answer>")
    return compiled


def _ends(text: str) -> str:
    """Return a text's two ends, since an agent's command stands at the end."""
    return repr(text if len(text) <= 2 * _SHOWN else f"{text[:_SHOWN]}...{text[-_SHOWN:]}")


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
