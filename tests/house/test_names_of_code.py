"""Few modules can turn a text into code. Each is listed here with the person or table that the text comes from.

A name that data, a log, a policy's file or a peer gives is looked up in a registry (`find_robot_model`, `find_task`).
Python offers no way to one of these functions but to name it, so a module that does not name one can't call it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.house import SOURCES, listing, shown, tree

IMPORTERS = {
    "importlib", "import_module", "__import__", "exec_module", "module_from_spec", "spec_from_file_location",
    "spec_from_loader", "runpy", "pkgutil", "exec", "eval", "compile", "pickle", "dill", "marshal", "shelve",
    "entry_points", "load_object", "load_robot_model", "make_driver", "use_format", "format_name",
}  # fmt: skip
"""Names of functions that turn a text or bytes into code that runs."""

ARGUMENT = "a person's argument, a profile or Python"
OWN = "fixed names of our own modules, or of packages that we depend on"
INSTALLED = "entry points of installed packages"
PLACES = {
    "hal/__init__.py": OWN,
    "hal/drivers/servo_models.py": INSTALLED,
    "sim/robots/servo_motors.py": "the place that a ServoModel gives, which is code of ours or of a package",
    "real/__init__.py": OWN,
    "recorder/formats/registry.py": INSTALLED,
    "recorder/read/addresses.py": INSTALLED,
    "rlenv_robot/__init__.py": OWN,
    "rlenv_robot/adapters/gymnasium_registry.py": OWN,
    "plugins/kaiwu/rlenv_kaiwu/names.py": OWN,
    "plugins/kaiwu/rlenv_kaiwu/project.py": "the project of a person, whose code runs by its purpose",
    "plugins/kit/rlenv_kit/__init__.py": OWN,
    "plugins/language/rlenv_language/roll.py": OWN,
    "plugins/kit/rlenv_kit/bench/child.py": ARGUMENT,
    "plugins/kit/rlenv_kit/bench/session.py": ARGUMENT,
    "plugins/kit/rlenv_kit/cli/check.py": ARGUMENT,
    "plugins/sim2real/rlenv_sim2real/cli/arm_log.py": ARGUMENT,
    "plugins/sim2real/rlenv_sim2real/cli/contact.py": ARGUMENT,
    "plugins/sim2real/rlenv_sim2real/cli/excite.py": ARGUMENT,
    "plugins/kaiwu/rlenv_kaiwu/cli/kaiwu.py": ARGUMENT,
    "plugins/arms/rlenv_arms/cli/calibrate.py": ARGUMENT,
    "plugins/sim2real/rlenv_sim2real/cli/manifest.py": ARGUMENT,
    "rlenv_robot/cli/robot.py": ARGUMENT,
    "plugins/vision/rlenv_vision/cli.py": ARGUMENT,
    "plugins/arms/rlenv_arms/cli/twin.py": ARGUMENT,
    "rlenv_robot/cli/verbs.py": OWN,
    "plugins/operate/rlenv_operate/cli/doctor.py": "lists entry points, and loads none of them",
    "rlenv_robot/config/plugins.py": "the functions themselves",
    "plugins/kit/rlenv_kit/instances.py": ARGUMENT,
    "plugins/kit/rlenv_kit/subject.py": ARGUMENT,
    "rlenv_robot/data/folder.py": ARGUMENT,
    "plugins/sim2real/rlenv_sim2real/open_loop.py": ARGUMENT,
    "plugins/sim2real/rlenv_sim2real/regression.py": ARGUMENT,
    "rlenv_robot/cli/data/export.py": ARGUMENT,
    "rlenv_robot/cli/data/selection.py": ARGUMENT,
    "rlenv_robot/cli/main.py": ARGUMENT,
    "plugins/curate/rlenv_curate/cli/edit.py": ARGUMENT,
    "rlenv_robot/registry.py": ARGUMENT,
    "rlenv_robot/robot_models.py": ARGUMENT,
    "rlenv_robot/serving/robot_server.py": ARGUMENT,
    "rlenv_robot/tasks/free.py": ARGUMENT,
    "plugins/operate/rlenv_operate/teleop/latency/devices.py": ARGUMENT,
    "plugins/operate/rlenv_operate/teleop/session.py": ARGUMENT,
    "plugins/learn/rlenv_learn/trackers.py": OWN,
    "sim/rendering/egl.py": OWN,
    "plugins/vision/rlenv_vision/filament.py": OWN,
    "sim/rendering/camera.py": INSTALLED,
}  # fmt: skip


def _named(node: ast.AST) -> Iterator[str]:
    """Yield each name that an expression or import refers to, under which an importing function may be."""
    if isinstance(node, ast.Import):
        yield from (part for alias in node.names for part in alias.name.split("."))
    elif isinstance(node, ast.ImportFrom):
        yield from (part for part in (node.module or "").split(".") if part != "importlib")  # its parts are named below
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute) and not _of_an_own_method(node):
        yield node.attr
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value  # getattr(module, "load_object")


def _of_an_own_method(node: ast.Attribute) -> bool:
    """Whether an attribute is a method that bears such a name by chance: ``re.compile``, ``network.eval``."""
    return node.attr in ("compile", "eval", "make_driver")


def _importers(source: ast.AST) -> set[str]:
    return {name for node in ast.walk(source) for name in _named(node)} & IMPORTERS


def test_names_become_code_in_listed_places_alone() -> None:
    found = {shown(path): _importers(tree(path)) for path in SOURCES}
    named = {place: names for place, names in found.items() if names}
    new = [f"{place}: {', '.join(sorted(names))}" for place, names in named.items() if place not in PLACES]
    assert not new, "names that become code; if they can come from data, look them up in a registry\n" + listing(new)
    assert not (gone := sorted(PLACES.keys() - named.keys())), f"no longer needed in the list: {gone}"


@pytest.mark.parametrize(
    "text",
    [
        "from rlenv_robot.config.plugins import load_object as fetch",
        "from rlenv_robot.config import plugins\nplugins.load_object(name)",
        "import rlenv_robot.robot_models as models\nmodels.load_robot_model(name)",
        "getattr(models, 'load_robot_model')(name)",
        "import importlib as i\ni.import_module(name)",
        "__import__(name)",
        "eval(name)",
        "import pickle",
    ],
)
def test_each_way_to_code_is_seen(text: str) -> None:
    assert _importers(ast.parse(text))
