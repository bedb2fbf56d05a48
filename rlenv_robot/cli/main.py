"""Run the command ``rlenv-robot``."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rlenv_robot.cli.data import VERBS as DATA_VERBS
from rlenv_robot.cli.output import INTERRUPTED, one_line
from rlenv_robot.cli.verbs import Group, HelpFormatter, Verb, VerbAction, add_verbs, plugin_verbs
from rlenv_robot.config.plugin_names import PLUGINS, VERB_GROUPS, missing_plugins

__all__ = ["FORMER_VERBS", "SHELLS", "VERBS", "add_completion", "command_parser", "completion_script", "main"]

SHELLS = ("bash", "zsh", "fish")
"""Shells that `completion_script` supports."""

_POLICIES, _ROBOTS, _OWN = "train and run policies", "robots", "build and check"

VERBS: dict[str, Verb | Group] = {
    "demo": Verb(
        "rlenv_robot.cli.demo",
        "the main job end to end: train, deploy, record, retrain, deploy",
        example="--seed 1",
        heading=_POLICIES,
    ),
    "train": Verb(
        "rlenv_robot.cli.train",
        "train a policy in simulation",
        example="so101-reach --out policy.npz",
        heading=_POLICIES,
    ),
    "run": Verb("rlenv_robot.cli.run", "run a trained policy", heading=_POLICIES),
    "retrain": Verb(
        "rlenv_robot.cli.train:add_retrain",
        "improve a policy from recorded runs",
        example="runs --policy policy.npz --out better.npz",
        heading=_POLICIES,
    ),
    "serve": Verb(
        "rlenv_robot.cli.serve",
        "serve a robot on the network",
        example="launch/robot.toml --record runs",
        heading=_ROBOTS,
    ),
    "stop": Verb("rlenv_robot.cli.served:add_stop", "stop a served robot", heading=_ROBOTS),
    "robot": Group(
        {
            "show": Verb(
                "rlenv_robot.cli.robot",
                "describe a robot model, or write it as URDF",
                example="so101",
                heading="describe and watch",
            ),
            "status": Verb(
                "rlenv_robot.cli.served:add_status", "show the state of a served robot", heading="describe and watch"
            ),
        },
        "describe, watch, connect and calibrate robots",
        default="show",
        names=True,
        heading=_ROBOTS,
    ),
    "operate": Group({}, "teleoperate and view a served robot", heading=_ROBOTS),
    "sim2real": Group({}, "bring a simulation closer to a real robot", heading=_ROBOTS),
    "data": Group(
        DATA_VERBS,
        "list, describe, check, replay, cut, label and export recorded data",
        default="show",
        heading="recorded data",
    ),
    "dev": Group(
        {
            "profile": Verb(
                "rlenv_robot.cli.profile",
                "check a profile, or write the JSON schema of profiles",
                example="launch/robot.toml",
            ),
            "completion": Verb("rlenv_robot.cli.main:add_completion", "print a script that completes words in a shell"),
        },
        "write new projects, check profiles, and act from other languages",
        heading=_OWN,
    ),
    "policy": Group(
        {}, "list ready-made policies, and serve policies to clients of other projects", heading="other projects"
    ),
}
"""The core's verbs, in the order of the help. Packages declare further verbs (`plugin_verbs`)."""

FORMER_VERBS = (
    "replay", "status", "watch", "keys", "twin", "camera", "ports", "calibrate", "certify", "manifest", "excite", "gap",
    "regress", "identify", "offsets", "validity", "teleop", "latency", "view", "console", "tokens", "new", "profile",
    "completion", "tables",
)  # fmt: skip
"""Verbs that had no group in the previous version; in this version the group may still be omitted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments without the program's name; by default those of this process.

    Returns:
        0 for success; 1 if ``check``, ``data check`` or ``doctor`` found a fault, or a server ended because of one; 2
        for wrong usage or an error that the user can correct, with one line on standard error; 130 if interrupted; 141
        if the reader of the output has gone.
    """
    args = argparse.Namespace()
    try:
        args = _parsed(argv)
        if (getattr(args, "seed", None) or 0) < 0:
            raise ValueError(f"--seed is {args.seed}, it must be 0 or above")
        if getattr(args, "own_format", None) is not None:
            from rlenv_robot.data.folder import use_format

            use_format(args.own_format)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone. What is still buffered must not complain when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        if not _is_mendable(error):
            raise
        print(f"rlenv-robot: {_stopped(error, args) or one_line(error)}", file=sys.stderr)
        return 2


def _stopped(error: Exception, args: argparse.Namespace) -> str:
    """Return the message about a stopped robot of a verb with ``--clear-stop`` that was not given; else nothing."""
    from hal import RobotStopped

    if not isinstance(error, RobotStopped) or getattr(args, "clear_stop", None) != "":
        return ""
    return (
        f'the robot is stopped: {error.reason}. Look at it, then add --clear-stop "WHAT YOU FOUND" to the command; '
        "nothing moves before that"
    )


def _is_mendable(error: Exception) -> bool:
    """Return whether the user can mend the error. Anything else is a bug and keeps its traceback."""
    from hal import RobotError

    return isinstance(error, RobotError | ValueError | OSError)


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    words = sys.argv[1:] if argv is None else argv
    verb = words[0] if words else None
    if verb not in VERBS or isinstance(VERBS[verb], Group):
        _check_installed(words)
    try:
        parser = command_parser(verb)
        args, unknown = parser.parse_known_args(argv)
        if unknown:
            _refuse(parser, words, unknown)
        return args
    except SystemExit:
        sys.stdout.flush()  # the help: a reader that has gone shows here, not when Python exits
        raise


def _refuse(parser: argparse.ArgumentParser, words: Sequence[str], unknown: Sequence[str]) -> NoReturn:
    """End the program with the arguments that a verb does not have, the nearest option, and the verb's help."""
    for word in words:
        inner = next((one for one in parser._actions if isinstance(one, VerbAction)), None)
        if inner is None or word not in inner._name_parser_map:
            break
        parser = inner._name_parser_map[word]
    option = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
    near = _near_option(option, parser)
    hint = f"did you mean {near!r}? " if near else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}; {hint}{parser.prog} --help lists them")


def _near_option(option: str, parser: argparse.ArgumentParser) -> str:
    """Return the option that a mistyped one most likely means; empty if there is none."""
    near = difflib.get_close_matches(option, parser._option_string_actions, 1, 0.8)
    return near[0] if near else ""


def _check_installed(words: Sequence[str]) -> None:
    """Refuse a verb of one of this repository's plug-ins that is not installed."""
    asked = {words[0], " ".join(words[:2])} if words else set()
    groups_of_plugins = {name for name, group in VERBS.items() if isinstance(group, Group) and not group.verbs}
    for package in missing_plugins():
        verbs = [verb for group in VERB_GROUPS for verb in PLUGINS[package].get(group, ())]
        groups = groups_of_plugins & {verb.split()[0] for verb in verbs}
        for verb in [*verbs, *groups]:
            word = verb.split()[-1]
            if verb in asked or word in asked & set(FORMER_VERBS):
                from hal.errors import missing_plugin

                raise ValueError(f"the verb {word!r} is in {missing_plugin(package)}")


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``completion``."""
    parser.description = "Print a script that completes verbs, options and their values in a shell."
    parser.epilog = """
The script knows the verbs of this version; write it again after an update. Examples:

  rlenv-robot dev completion bash > ~/.local/share/bash-completion/completions/rlenv-robot
  rlenv-robot dev completion zsh > ~/.rlenv-robot.zsh; echo source ~/.rlenv-robot.zsh >> ~/.zshrc
  rlenv-robot dev completion fish > ~/.config/fish/completions/rlenv-robot.fish
"""
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=_completion)


def _completion(args: argparse.Namespace) -> int:
    print(completion_script(command_parser(), args.shell))
    return 0


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the completion script of a parser for a shell, one of `SHELLS`."""
    import shtab

    _declare_all(parser)
    return shtab.complete(parser, shell)


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
            vars(action)["complete"] = shtab.FILE


def command_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command, which declares the arguments of a verb when the verb is parsed.

    Args:
        verb: the only verb that is needed, if known: for a verb of the core, no other package is searched.
    """
    parser = _Parser(
        prog="rlenv-robot",
        description="One environment for a simulated robot, the real one, and the logs of both.",
        epilog="rlenv-robot VERB --help explains a verb. Begin with: rlenv-robot demo",
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action=_Version)
    verbs = VERBS if isinstance(VERBS.get(verb or ""), Verb) else _all_verbs()
    add_verbs(parser, verbs, former=FORMER_VERBS)
    return parser


class _Parser(argparse.ArgumentParser):
    """Report a mistake in one line: the usage of a verb, which argparse prints before it, has up to thirty."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Keep the words for the message about a mistake."""
        self._words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End the program with the mistake, and where the arguments are explained."""
        if message.startswith("the following arguments are required"):  # a mistyped one is why another is missing
            for word in (word.partition("=")[0] for word in self._words if word.startswith("--")):
                if word not in self._option_string_actions and (near := _near_option(word, self)):
                    message = f"{word} is no option, did you mean {near!r}? {message[0].upper()}{message[1:]}"
                    break
        hint = "" if "--help" in message else f"; {self.prog} --help explains the arguments"
        self.exit(2, f"{self.prog}: {message}{hint}\n")


def _all_verbs() -> dict[str, Verb | Group]:
    """Return the core's verbs and those of installed packages, without groups that have no verb."""
    verbs = {
        name: verb._replace(verbs=dict(verb.verbs)) if isinstance(verb, Group) else verb for name, verb in VERBS.items()
    }
    data = verbs["data"]
    if isinstance(data, Group):
        data.verbs.update(plugin_verbs("rlenv_robot.data_verbs"))
    for name, verb in plugin_verbs().items():
        if not verb.group:
            verbs[name] = verb
            continue
        group = verbs.setdefault(verb.group, Group({}, f"verbs of {verb.group}"))
        if isinstance(group, Group):
            group.verbs[name] = verb
    return {name: verb for name, verb in verbs.items() if isinstance(verb, Verb) or verb.verbs}


class _Version(argparse.Action):
    """Print the version, which is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from rlenv_robot import __version__

        print(f"rlenv-robot {__version__}")
        parser.exit()
