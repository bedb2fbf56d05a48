"""Generate a command's options from a section of the profile, with the type, choices and description of each key."""

from __future__ import annotations

import inspect
import re
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

__all__ = ["add_settings", "attribute_texts", "given_settings"]

_METAVARS = {"_hz": "HZ", "_mib": "MIB", "_s": "SECONDS"}
"""Unit at the end of a key -> what stands for its value in the help."""


def add_settings(parser: ArgumentParser, section: type) -> None:
    """Declare an option for each key of a section, with the key's description in the docstring as help.

    Args:
        parser: the parser of the command.
        section: a dataclass with fields of text, numbers, flags and choices.
    """
    hints, texts = get_type_hints(section), attribute_texts(section)
    for key in fields(section):
        kind, option = hints[key.name], f"--{key.name.replace('_', '-')}"
        text = texts[key.name].rstrip(".").replace("``", "").replace("%", "%%")
        if kind is bool:
            parser.add_argument(option, action=BooleanOptionalAction, help=text)
        elif get_origin(kind) is Literal:
            parser.add_argument(option, choices=get_args(kind), help=text)
        else:
            metavar = next((word for unit, word in _METAVARS.items() if key.name.endswith(unit)), None)
            parser.add_argument(option, type=kind, metavar=metavar, help=text)


def given_settings(args: Namespace, section: type) -> dict[str, Any]:
    """Return the keys of a section whose options were given, with their values."""
    values = {key.name: getattr(args, key.name) for key in fields(section)}
    return {name: value for name, value in values.items() if value is not None}


def attribute_texts(section: type) -> dict[str, str]:
    """Parse the ``Attributes:`` of a class's docstring: name -> description."""
    part = (inspect.getdoc(section) or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    entries = [entry.strip().partition(":") for entry in re.split(r"\n(?=    \w)", "\n" + part) if entry.strip()]
    return {name.strip(): " ".join(text.split()) for names, _, text in entries for name in names.split(",")}
