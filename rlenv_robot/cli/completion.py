"""``rlenv-robot completion``: print a script that completes verbs, options and their values in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from rlenv_robot.cli.verbs import VerbAction

__all__ = ["SHELLS", "add", "script"]

_PROGRAM = "rlenv-robot"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = "Print a script that completes verbs, options and their values in a shell."
    parser.epilog = """
Examples:

  rlenv-robot completion bash > ~/.local/share/bash-completion/completions/rlenv-robot
  rlenv-robot completion zsh > ~/.rlenv-robot.zsh; echo source ~/.rlenv-robot.zsh >> ~/.zshrc
  rlenv-robot completion fish > ~/.config/fish/completions/rlenv-robot.fish

The script knows the verbs of this version; write it again after an update.
"""
    parser.add_argument("shell", choices=SHELLS)


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script for a shell, one of `SHELLS`, that completes what a parser takes."""
    return SHELLS[shell](list(_commands(parser, ())))


@dataclass(frozen=True)
class _Command:
    """One command: its verbs, and what may follow them.

    Attributes:
        verbs: that lead to it; none for the program itself.
        options: each option with its help.
        values: option -> the values that it allows.
        following: each verb that may follow, with its help.
        files: whether a path may follow.
    """

    verbs: tuple[str, ...]
    options: dict[str, str]
    values: dict[str, tuple[str, ...]]
    following: dict[str, str]
    files: bool


def _commands(parser: argparse.ArgumentParser, verbs: tuple[str, ...]) -> Iterator[_Command]:
    options, values, following, files = {}, {}, {}, False
    inner: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            following = {choice.dest: choice.help or "" for choice in action._choices_actions}
            inner = {
                name: action.complete(name) if isinstance(action, VerbAction) else action.choices[name]
                for name in following
            }
            files = files or (isinstance(action, VerbAction) and action.has_default)
        elif action.option_strings:
            text = "" if action.help in (None, argparse.SUPPRESS) else _plain(str(action.help))
            options.update({option: text for option in action.option_strings if option.startswith("--")})
            if action.choices is not None:
                values.update({option: tuple(map(str, action.choices)) for option in action.option_strings})
        elif action.choices is not None:
            following = {str(choice): "" for choice in action.choices}
        else:
            files = True
    yield _Command(verbs, options, values, following, files)
    for name, one in inner.items():
        yield from _commands(one, (*verbs, name))


def _plain(text: str) -> str:
    return " ".join(text.replace("%%", "%").split()).partition("%(")[0].rstrip(" (")


# -- Shells ----------------------------------------------------------------------------------------------------


def _bash(commands: list[_Command]) -> str:
    """Return a function for bash that looks for the verbs before the cursor."""
    cases = []
    for command in commands:
        values = "".join(
            f'      {option}) _rlenv_robot_reply "{" ".join(choices)}"; return ;;\n'
            for option, choices in command.values.items()
        )
        inner = f'    case "$prev" in\n{values}    esac\n' if values else ""
        cases.append(
            f'  "{" ".join(command.verbs)}")\n{inner}'
            f'    options="{" ".join(command.options)}" following="{" ".join(command.following)}" '
            f"files={int(command.files)} ;;\n"
        )
    known = " ".join("_".join(command.verbs) for command in commands if command.verbs)
    return (
        f"# Completion of {_PROGRAM} for bash.\n"
        "_rlenv_robot_reply() {\n"
        '  COMPREPLY=($(compgen -W "$1" -- "$cur"))\n'
        "}\n\n"
        "_rlenv_robot() {\n"
        '  local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}"\n'
        '  local verbs="" word options="" following="" files=1 place\n'
        f'  local known=" {known} "\n'
        "  for ((place = 1; place < COMP_CWORD; place++)); do\n"
        '    word="${COMP_WORDS[place]}"\n'
        '    if [[ "$known" == *" ${verbs:+${verbs// /_}_}$word "* ]]; then verbs="${verbs:+$verbs }$word"; fi\n'
        "  done\n"
        '  case "$verbs" in\n'
        f"{''.join(cases)}"
        "  esac\n"
        '  if [[ "$cur" == -* ]]; then\n'
        '    _rlenv_robot_reply "$options"\n'
        "  else\n"
        '    _rlenv_robot_reply "$following"\n'
        '    if [[ $files == 1 ]]; then COMPREPLY+=($(compgen -f -- "$cur")); fi\n'
        "  fi\n"
        "}\n\n"
        f"complete -o filenames -F _rlenv_robot {_PROGRAM}\n"
    )


def _zsh(commands: list[_Command]) -> str:
    """Return the function for bash, with zsh's own support of such functions."""
    return (
        f"# Completion of {_PROGRAM} for zsh.\n"
        "autoload -Uz compinit bashcompinit\n"
        "(( $+functions[compdef] )) || compinit\n"
        "bashcompinit\n\n"
    ) + _bash(commands)


def _fish(commands: list[_Command]) -> str:
    """Return one line for each verb, option and value."""
    lines = [
        f"# Completion of {_PROGRAM} for fish.",
        "function __rlenv_robot_at",
        "    set -l words (commandline -opc)[2..]",
        "    set -l verbs (string match -rv '^-' -- $words)",
        "    test (count $verbs) -ge (count $argv); or return 1",
        "    for number in (seq (count $argv))",
        "        test $verbs[$number] = $argv[$number]; or return 1",
        "    end",
        "end",
        f"complete -c {_PROGRAM} -f",
    ]
    for command in commands:
        here = " ".join(("__rlenv_robot_at", *command.verbs))
        alone = f"{here}; and test (count (string match -rv '^-' -- (commandline -opc)[2..])) -eq {len(command.verbs)}"
        head = f"complete -c {_PROGRAM}"
        lines += [
            f"{head} -n {_quoted(alone)} -a {name} -d {_quoted(text)}" for name, text in command.following.items()
        ]
        for option, text in command.options.items():
            values = command.values.get(option)
            arguments = f" -x -a {_quoted(' '.join(values))}" if values else ""
            lines.append(f"{head} -n {_quoted(here)} -l {option.removeprefix('--')}{arguments} -d {_quoted(text)}")
        if command.files and command.verbs:
            lines.append(f"{head} -n {_quoted(here)} -F")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""Shell -> the function that writes its script."""
