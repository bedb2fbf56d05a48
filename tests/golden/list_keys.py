"""Every name that users write down: in profiles, options, command lines and Python."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import rlenv_robot as rr
from rlenv_robot.cli import main as cli
from rlenv_robot.cli.verbs import VerbAction
from rlenv_robot.data import options
from rlenv_robot.data import statistics as figures
from rlenv_robot.tasks.task import task_world
from sim.latency import DelayModel
from sim.randomize.distribution import distribution
from tests.shipped import SHIPPED_ROBOTS, SHIPPED_TASKS

PROFILE = """
[cameras.wrist]
source = "/dev/video0"
"""


def profile_keys() -> dict[str, Any]:
    """Section -> key -> default value."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.toml"
        path.write_text(PROFILE, encoding="utf-8")
        sections = rr.load_profile(path).to_dict()
    sections.pop("file")
    timing = sorted(field.name for field in dataclasses.fields(DelayModel))
    return {**sections, "timing": timing, "distributions": _distributions()}


def _distributions() -> list[str]:
    """The words for distributions, which the message about a wrong one lists."""
    try:
        distribution({})
    except ValueError as error:
        return sorted(re.findall(r"\{(\w+) = ", str(error)))
    raise AssertionError("an empty table is no distribution")


def environment_keys() -> dict[str, Any]:
    """Environment -> the names in its manual, and its settings with their defaults."""
    told = {}
    for name in SHIPPED_TASKS:
        with rr.make(name) as env:
            description, made = env.description, env.world
            keys = ("reset_options", "step_extra", "extra_info", "error_codes")
            told[name] = {key: sorted(getattr(description, key)) for key in keys}
            robot = task_world(made)
            of = type(made) if robot is None else type(robot.task)
            told[name]["settings"] = {key: each.default for key, each in inspect.signature(of).parameters.items()}
    return {"environments": told, "robots": SHIPPED_ROBOTS}


def source_keys() -> dict[str, Any]:
    """Kinds of statistics and what each takes; the options of each way to draw."""
    kinds = {
        name: {"options": sorted(kind.options), "required": sorted(kind.required)}
        for name, kind in ((name, figures.load_kind(name)) for name in figures.kind_names())
    }
    tables: dict[str, Mapping[str, Any]] = {
        "init": options.INIT, "sample_steps": options.STEPS, "sample_trajectories": options.TRAJECTORIES,
        "sample_pairs": options.PAIRS, "get_all_actions": options.ACTIONS, "filters": options.FILTERS,
        "images": options.IMAGES,
    }  # fmt: skip
    return {"kinds": kinds, "options": {name: _choices(table) for name, table in tables.items()}}


def _choices(table: Mapping[str, options.Check]) -> dict[str, list[str]]:
    """Option -> the words that it may be, which the message about a wrong value lists; none where it is no word."""
    told = {name: check(object()) or "" for name, check in table.items()}
    return {
        name: text.removeprefix("one of ").split(", ") if text.startswith("one of ") else []
        for name, text in told.items()
    }


def command_lines() -> dict[str, Any]:
    """Verb -> its options with their choices and defaults, and its arguments in order."""
    told: dict[str, Any] = {}
    _walk(cli.command_parser(), "rlenv-robot", told)
    return told


def _walk(parser: argparse.ArgumentParser, name: str, told: dict[str, Any]) -> None:
    arguments, named = [], {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, below in action._name_parser_map.items():
                _walk(action.parser_of(verb) if isinstance(action, VerbAction) else below, f"{name} {verb}", told)
        elif action.option_strings:
            named[", ".join(action.option_strings)] = _argument(action)
        else:
            arguments.append({"name": action.metavar or action.dest, **_argument(action)})
    told[name] = {"options": named, "arguments": arguments}


def _argument(action: argparse.Action) -> dict[str, Any]:
    parts = {"default": action.default, "choices": action.choices, "takes": action.nargs, "required": action.required}
    return {key: _stable(value) for key, value in parts.items() if value is not None and value is not False}


def _stable(value: Any) -> Any:
    """Plain data as they are, a path as its text, anything else by the name of its class."""
    if isinstance(value, Mapping | list | tuple):
        return list(value)
    if isinstance(value, Path):
        return value.as_posix()
    return value if isinstance(value, str | int | float) else type(value).__name__


def public_names() -> list[str]:
    """Return the names that the package exports."""
    return sorted(rr.__all__)


def public_signatures() -> dict[str, Any]:
    """Parameters of the public functions and classes, and the public members of the classes."""
    told = {}
    for name in sorted(rr.__all__):
        if name == "FlatPolicy":  # a torch module: most of its members are torch's
            continue
        public = getattr(rr, name)
        if inspect.isclass(public):
            told[name] = {"parameters": _parameters(public), "members": _members(public)}
        elif callable(public):
            told[name] = {"parameters": _parameters(public)}
    return told


def _parameters(of: Callable[..., Any]) -> list[str]:
    if inspect.isclass(of) and not any(map(inspect.isfunction, (of.__init__, of.__new__))):
        return []  # a built-in constructor, which differs with Python's version
    parameters = inspect.signature(of).parameters.values()
    told = [str(each.replace(annotation=inspect.Parameter.empty)) for each in parameters]
    return [re.sub(r" at 0x[0-9a-f]+", "", text) for text in told]  # a function's place in memory


def _members(of: type) -> list[str]:
    ours = [each for each in of.__mro__ if each.__module__.split(".")[0] not in sys.stdlib_module_names]
    names = {name for each in ours for name in (*vars(each), *getattr(each, "__dataclass_fields__", ()))}
    return sorted(name for name in names if not name.startswith("_"))


FILES: dict[str, Callable[[], Any]] = {
    "profile_keys": profile_keys,
    "environment_keys": environment_keys,
    "source_keys": source_keys,
    "command_lines": command_lines,
    "public_names": public_names,
    "public_signatures": public_signatures,
}
