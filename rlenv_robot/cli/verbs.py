"""Verbs of a command line: declared in a table, imported only when they are asked for."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rlenv_robot.config.plugins import PluginTable

__all__ = ["HelpFormatter", "Verb", "VerbAction", "add_verbs", "plugin_verbs"]


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Verb(NamedTuple):
    """A verb: the place of its definition, and its line in the help.

    Attributes:
        declaration: ``module`` or ``module:function``, of the function (``add`` unless it is named) that declares the
            arguments and sets the default of ``run``: the function that carries out the verb and returns the exit code.
            Empty for a verb that can't be used; the summary then says why.
        summary: a few words, in the imperative.
    """

    declaration: str
    summary: str


def plugin_verbs(group: str = "rlenv_robot.verbs") -> dict[str, Verb]:
    """Return the verbs that installed packages declare as entry points, by name.

    Each entry point names a `Verb`. One whose package can't be imported says so in the help, and when it is used.

    Args:
        group: the group of entry points; ``rlenv_robot.data_verbs`` has those of ``rlenv-robot data``.
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
    verbs: Mapping[str, Verb],
    default: str | None = None,
    absent: Mapping[str, str] = _NOTHING,
) -> None:
    """Give a parser its verbs. No verb's module is imported before the verb is parsed.

    Args:
        parser: of the command, or of a verb that has verbs of its own.
        verbs: by their names, in the order of the help.
        default: the verb that a path in a verb's place means; None allows verbs alone.
        absent: verb -> the package that brings it, for verbs of packages that are not installed. They need a default.
    """
    action = parser.add_subparsers(title="verbs", metavar="VERB", required=True, action=VerbAction)
    assert isinstance(action, VerbAction)
    action.declare(verbs, default, absent)


class HelpFormatter(argparse.HelpFormatter):
    """Wrap the paragraphs of a description or an epilog; leave indented lines, such as examples, as they are."""

    def add_argument(self, action: argparse.Action) -> None:
        """Make room for the verbs of an action in the first column, their indentation included."""
        super().add_argument(action)
        for verb in self._iter_indented_subactions(action):  # argparse measures them without it
            width = len(self._format_action_invocation(verb)) + self._current_indent
            self._action_max_length = max(self._action_max_length, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = textwrap.dedent(text).strip("\n").split("\n\n")
        return "\n\n".join(
            paragraph if paragraph.startswith(" ") else super(HelpFormatter, self)._fill_text(paragraph, width, indent)
            for paragraph in paragraphs
        )


class VerbAction(argparse._SubParsersAction):
    """The verbs of a parser, each completed with its arguments when it is parsed."""

    def declare(self, verbs: Mapping[str, Verb], default: str | None, absent: Mapping[str, str]) -> None:
        """Give every verb its line in the help, and an empty parser; `add_verbs` has the arguments."""
        self._verbs, self._default, self._absent = verbs, default, absent
        self._parsers = {
            name: self.add_parser(name, help=verb.summary, formatter_class=HelpFormatter)
            for name, verb in verbs.items()
        }
        if default is not None:
            # argparse refuses what is not among the choices before it asks this action.
            self.choices = None  # type: ignore[assignment]

    @property
    def has_default(self) -> bool:
        """Whether a path in a verb's place means a verb."""
        return self._default is not None

    def complete(self, verb: str) -> argparse.ArgumentParser:
        """Import a verb, and return its parser with its arguments.

        Raises:
            ValueError: the package that declares the verb can't be imported.
        """
        parser: argparse.ArgumentParser = self._parsers[verb]
        if not self._verbs[verb].declaration:
            raise ValueError(self._verbs[verb].summary)
        module, _, function = self._verbs[verb].declaration.partition(":")
        getattr(import_module(module), function or "add")(parser)
        return parser

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Complete the verb's parser, then let it parse what follows the verb."""
        words = [str(word) for word in values or ()]
        if self._default is not None and words[0] not in self._verbs:
            if words[0] in self._absent:
                package = self._absent[words[0]]
                raise ValueError(f"the verb {words[0]!r} is in the plug-in {package}, which is not installed here")
            if not _is_path(words[0]):
                parser.error(f"{words[0]!r} is neither a verb nor a path; verbs are {', '.join(self._verbs)}")
            words = [self._default, *words]
        self.complete(words[0])
        super().__call__(parser, namespace, words, option_string)


def _is_path(word: str) -> bool:
    from pathlib import Path

    return "/" in word or Path(word).exists()
