"""``rlenv-robot dev profile``: check a profile, or write the JSON schema of profiles for editors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

__all__ = ["add", "run"]


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Check a profile: the first mistake is reported with file and key. With --schema, write the JSON schema of "
        "profiles. An editor completes and checks a profile that begins with '#:schema' and the schema's path."
    )
    parser.add_argument("profile", nargs="?", metavar="FILE", help="the profile to check")
    parser.add_argument("--schema", metavar="FILE", help="write the JSON schema of profiles there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the profile, write the schema, or both."""
    from rlenv_robot.config.profile import load_profile, profile_schema

    if args.profile is None and args.schema is None:
        raise ValueError("nothing to do: name a profile to check, or give --schema FILE")
    if args.schema is not None:
        Path(args.schema).write_text(json.dumps(profile_schema(), indent=2) + "\n", encoding="utf-8")
    if args.profile is not None:
        load_profile(args.profile)
        print(f"{args.profile}: every key and value is allowed")
    return 0
