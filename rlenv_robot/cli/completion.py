"""``rlenv-robot dev completion``: print a script that completes verbs, options and their values in a shell."""

from __future__ import annotations

import argparse

from rlenv_robot.cli.verbs import VerbAction

__all__ = ["SHELLS", "add", "script"]

SHELLS = ("bash", "zsh", "fish")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Print a script that completes verbs, options and their values in a shell."
    parser.epilog = """
The script knows the verbs of this version; write it again after an update. Examples:

  rlenv-robot dev completion bash > ~/.local/share/bash-completion/completions/rlenv-robot
  rlenv-robot dev completion zsh > ~/.rlenv-robot.zsh; echo source ~/.rlenv-robot.zsh >> ~/.zshrc
  rlenv-robot dev completion fish > ~/.config/fish/completions/rlenv-robot.fish
"""
    parser.add_argument("shell", choices=SHELLS)


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell, one of `SHELLS`, that completes what a parser takes."""
    import shtab

    _declare_all(parser)
    completion: str = shtab.complete(parser, shell)
    return completion


def _declare_all(parser: argparse.ArgumentParser) -> None:
    """Complete every verb's parser, and say where a path may stand, as shtab reads it."""
    import shtab

    for action in parser._actions:
        if isinstance(action, VerbAction):
            action.choices = {name: action.parser_of(name) for name in action.verbs}
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                _declare_all(inner)
        elif action.choices is not None:
            action.choices = list(action.choices)  # shtab takes a mapping for verbs
        elif action.nargs != 0:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
