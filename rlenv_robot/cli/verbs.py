"""Declare the verbs of a command line in a table, and import each verb's module on first use."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Generator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rlenv_robot.config.plugins import PluginTable

__all__ = [
    "FIELD_WORDS",
    "Group",
    "HelpFormatter",
    "Verb",
    "VerbAction",
    "add_act_examples",
    "add_verbs",
    "plugin_verbs",
]

FIELD_WORDS = {
    "eval": "run", "evaluate": "run", "rollout": "run", "play": "run", "deploy": "run", "infer": "run",
    "record": "run --record", "teleoperate": "operate teleop", "list": "data ls", "info": "data show",
    "inspect": "data show", "convert": "data export", "visualize": "data replay", "finetune": "retrain",
    "upload": "data push", "server": "serve", "halt": "stop", "describe": "protocol",
}  # fmt: skip
"""Verbs of other projects -> what does the same here, for the error about an unknown verb."""


class Verb(NamedTuple):
    """A verb: the location of its definition, and its line in the help.

    Attributes:
        declaration: ``module`` or ``module:function`` of the function (``add`` by default) that declares the arguments
            and sets the default of ``run``, the function that executes the verb and returns the exit code. Empty for an
            unavailable verb; the summary then says why.
        summary: a few words, in the imperative.
        group: the first word of a two-word verb, such as ``operate`` in ``operate teleop``; empty for one word.
        example: the words after the verb in an example. It ends the verb's help, unless the module has it there among
            others; that of the default verb, or else of the first one that has any, ends the help of its group.
        heading: where the help lists the verb, such as ``robots``; headings come in the order of their first verbs.
    """

    declaration: str
    summary: str
    group: str = ""
    example: str = ""
    heading: str = ""


class Group(NamedTuple):
    """Verbs with a common first word.

    Attributes:
        verbs: the second words.
        summary: a few words, in the imperative.
        default: the verb that is used if a path follows the first word; None allows verbs only.
        names: whether any other word, or none, selects the default too.
        heading: as of `Verb`.
    """

    verbs: dict[str, Verb]
    summary: str
    default: str | None = None
    names: bool = False
    heading: str = ""


def plugin_verbs(group: str = "rlenv_robot.verbs") -> dict[str, Verb]:
    """Return the verbs that installed packages declare as entry points, by name.

    Each entry point names a `Verb`. A verb of a package that can't be imported says so in the help, and on use.

    Args:
        group: the group of entry points; ``rlenv_robot.data_verbs`` holds those of ``rlenv-robot data``.
    """
    from rlenv_robot.config.plugins import PluginTable

    table = PluginTable("verb", group, {})
    return {name: _declared(table, name) for name in table.names()}


def _declared(table: PluginTable, name: str) -> Verb:
    try:
        verb = table.load(name)
    except ValueError as error:
        return Verb("", str(error))
    if not isinstance(verb, Verb):
        return Verb("", f"the entry point of the verb {name!r} names a {type(verb).__name__}, it must name a Verb")
    return verb


def add_verbs(
    parser: argparse.ArgumentParser,
    verbs: Mapping[str, Verb | Group],
    default: str | None = None,
    names: bool = False,
    former: Sequence[str] = (),
) -> None:
    """Add verbs to a parser. A verb's module is imported when the verb is parsed.

    Args:
        parser: the parser of the command, or of a verb with subordinate verbs.
        verbs: by name, in the order of the help.
        default: the verb that is used if a path is given instead of a verb; None allows verbs only.
        names: whether any other word, or none, selects the default too.
        former: verbs of the groups that are still accepted without their group.
    """
    action = parser.add_subparsers(title="verbs", metavar="VERB", required=not names, action=VerbAction)
    assert isinstance(action, VerbAction)
    action.declare(verbs, default, names, former)
    if names and default is not None:
        parser.set_defaults(run=lambda _: _run_default(action, default))


def _run_default(action: VerbAction, verb: str) -> int:
    args = action.parser_of(verb).parse_args([])
    return args.run(args)


def add_act_examples(parser: argparse.ArgumentParser, examples: Mapping[str, Sequence[str]]) -> None:
    """End the help of a verb with all examples of its acts, and the help of each act with its own.

    Args:
        parser: of the verb, whose acts are plain subparsers.
        examples: name of an act -> the words after it in each example.
    """
    acts = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    lines = {name: [f"{name} {words}" for words in examples[name]] for name in acts.choices}
    for name, act in acts.choices.items():
        act.epilog, act.formatter_class = _example_text(parser.prog, lines[name]), HelpFormatter
    parser.epilog = _example_text(parser.prog, [line for act in lines.values() for line in act])


def _example_text(prog: str, lines: Sequence[str]) -> str:
    title = "Example" if len(lines) == 1 else "Examples"
    return f"{title}:\n\n" + "\n".join(f"  {prog} {line}" for line in lines)


class HelpFormatter(argparse.HelpFormatter):
    """Wrap the paragraphs of a description or an epilog, but keep indented lines, such as examples, as they are."""

    def add_argument(self, action: argparse.Action) -> None:
        """Widen the first column for the verbs of an action, including their indentation."""
        width = self._action_max_length
        super().add_argument(action)
        if isinstance(action, VerbAction):
            self._action_max_length = width
            self._measure(action)

    def _iter_indented_subactions(self, action: argparse.Action) -> Generator[argparse.Action, None, None]:
        if not isinstance(action, VerbAction):  # completion asks argparse itself, which knows no headings
            yield from super()._iter_indented_subactions(action)
            return
        self._indent()
        yield from action.help_lines()
        self._dedent()

    def _measure(self, action: argparse.Action) -> None:
        for inner in self._iter_indented_subactions(action):  # argparse measures them without it
            if inner.help:  # a heading has a line of its own
                width = len(self._format_action_invocation(inner)) + self._current_indent
                self._action_max_length = max(self._action_max_length, width)
            self._measure(inner)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = textwrap.dedent(text).strip("\n").split("\n\n")
        return "\n\n".join(
            paragraph if paragraph.startswith(" ") else super(HelpFormatter, self)._fill_text(paragraph, width, indent)
            for paragraph in paragraphs
        )


class _Heading(argparse.Action):
    """A line above some verbs in the help."""

    def __init__(self, text: str, verbs: Sequence[argparse.Action]) -> None:
        super().__init__([], text, metavar=f"{text}:")
        self._verbs = verbs

    def _get_subactions(self) -> Sequence[argparse.Action]:
        return self._verbs


class VerbAction(argparse._SubParsersAction):
    """The verbs of a parser; the arguments of each are declared when it is parsed."""

    def declare(
        self, verbs: Mapping[str, Verb | Group], default: str | None, names: bool, former: Sequence[str]
    ) -> None:
        """Add each verb with its line in the help and an empty parser; for the arguments see `add_verbs`."""
        self._default, self._names = default, names
        self._verbs: dict[str, Verb | Group] = dict(verbs)
        for name, verb in verbs.items():
            self.add_parser(name, help=verb.summary, formatter_class=HelpFormatter)
        self._new_names: dict[str, str] = {}
        for group, definition in verbs.items():
            inner = definition.verbs if isinstance(definition, Group) else {}
            for name in inner.keys() & set(former):
                self._verbs[name], self._new_names[name] = inner[name], f"{group} {name}"
                self.add_parser(name, prog=f"{self._prog_prefix} {group} {name}", formatter_class=HelpFormatter)
        # argparse refuses what is not among the choices before it asks this action.
        self.choices = None  # type: ignore[assignment]

    def help_lines(self) -> Sequence[argparse.Action]:
        """Return the lines of the help: those of the verbs, below headings where a verb has one."""
        lines = {line.dest: line for line in self._choices_actions}
        headings: dict[str, list[argparse.Action]] = {}
        for name in self.verbs:
            headings.setdefault(self._verbs[name].heading, []).append(lines[name])
        if len(headings) <= 1:
            return self._choices_actions
        rest = headings.pop("", [])
        return [_Heading(text, verbs) for text, verbs in headings.items()] + (
            [_Heading("others", rest)] if rest else []
        )

    @property
    def verbs(self) -> list[str]:
        """The names of the verbs, without former names."""
        return [name for name in self._verbs if name not in self._new_names]

    def parser_of(self, verb: str) -> argparse.ArgumentParser:
        """Import a verb's module to declare its arguments, and return its parser.

        Raises:
            ValueError: the package that declares the verb can't be imported.
        """
        parser: argparse.ArgumentParser = self._name_parser_map[verb]
        definition = self._verbs[verb]
        if isinstance(definition, Group):
            parser.description = f"{definition.summary[0].upper()}{definition.summary[1:]}."
            parser.epilog = f"{parser.prog} VERB --help explains a verb, with examples."
            if definition.default is not None:
                word = "NAME" if definition.names else "PATH"
                parser.epilog += f" {parser.prog} {word} is short for {parser.prog} {definition.default} {word}."
            first = sorted(definition.verbs, key=lambda name: name != definition.default)
            examples = [f"{name} {words}" for name in first if (words := definition.verbs[name].example)]
            if examples:
                parser.epilog += "\n\n" + _example_text(parser.prog, examples[:1])
            add_verbs(parser, definition.verbs, definition.default, definition.names)
            return parser
        if not definition.declaration:
            raise ValueError(definition.summary)
        module, _, function = definition.declaration.partition(":")
        getattr(import_module(module), function or "add")(parser)
        own = textwrap.dedent(parser.epilog or "").strip()
        if definition.example and f"  {parser.prog} {definition.example}" not in own:
            parser.epilog = "\n\n".join(filter(None, [own, _example_text(parser.prog, [definition.example])]))
        return parser

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Declare the verb's arguments, then parse the words after the verb."""
        words = [str(word) for word in values or ()]
        if words[0] not in self._verbs:
            near = self._near(words[0])
            if self._default is None or not (_is_path(words[0]) or (self._names and not near)):
                what = "is neither a verb nor a path" if self._default is not None else "is no verb"
                hint = f", did you mean {near!r}?" if near else _environment_hint(words[0])
                parser.error(f"{words[0]!r} {what}{hint} verbs are {', '.join(self.verbs)}")
            words = [self._default, *words]
        elif words[0] in self._new_names and sys.stderr.isatty():
            new = self._new_names[words[0]]
            print(f"{self._prog_prefix}: {words[0]!r} is {new!r} now; the short form goes with the next version",
                  file=sys.stderr)  # fmt: skip
        self.parser_of(words[0])
        super().__call__(parser, namespace, words, option_string)

    def _near(self, word: str) -> str:
        """Return the verb that a mistyped word most likely means, with its group; empty if there is none."""
        import difflib

        if word in FIELD_WORDS:
            return FIELD_WORDS[word]
        names = {name: self._new_names.get(name, name) for name in self._verbs}
        for group, definition in self._verbs.items():
            if isinstance(definition, Group):
                names |= {name: f"{group} {name}" for name in definition.verbs if name not in names}
        return next((names[name] for name in difflib.get_close_matches(word, names, 1, 0.7)), "")


def _environment_hint(word: str) -> str:
    """Return what follows in a message about a word that is no verb: how to run the environment that it may mean."""
    import difflib

    from rlenv_robot.registry import environment_names

    for name in difflib.get_close_matches(word, environment_names(), 1, 0.7):
        verb = f"'rlenv-robot run {name}'"
        return f", it is an environment: {verb} runs it;" if name == word else f", did you mean {verb}?"
    return ";"


def _is_path(word: str) -> bool:
    from pathlib import Path

    return "/" in word or Path(word).exists()
