"""Add the plug-ins to the distribution: every folder of ``plugins/``, with the entry points that it declares.

A folder that is removed takes its packages and its entry points along. Everything else is in pyproject.toml.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from pathlib import Path

from setuptools import find_packages, setup

CORE = ["hal*", "sim*", "real*", "recorder*", "rlenv_robot*"]

packages = find_packages(include=CORE)
folders: dict[str, str] = {}
entry_points: defaultdict[str, list[str]] = defaultdict(list)
entry_points["console_scripts"] = ["rlenv-robot = rlenv_robot.cli.main:main"]
for plugin in sorted(Path("plugins").glob("*/entry_points.toml")):
    for package in find_packages(str(plugin.parent), include=["rlenv_*"]):
        packages.append(package)
        if "." not in package:
            folders[package] = f"{plugin.parent.as_posix()}/{package}"
    declared = tomllib.loads(plugin.read_text(encoding="utf-8")).get("entry-points", {})
    for group, points in declared.items():
        entry_points[group] += [f"{name} = {place}" for name, place in points.items()]

setup(packages=packages, package_dir=folders, entry_points=dict(entry_points))
