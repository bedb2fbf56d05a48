"""One environment contract for a simulation, a real robot on the network, and the logs that both record.

Import this package first. It imports its modules on first use of their names, so importing it is fast. Its names are
listed in ``__init__.pyi``. Installed packages add further ones in the entry-point group ``rlenv_robot.names``.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlenv_robot.adapters.gymnasium_registry import register_with_gymnasium
from rlenv_robot.config.import_check import PACKAGES, claim_packages

if TYPE_CHECKING:
    from rlenv_robot.config.plugins import PluginTable

claim_packages()  # before the first import of one of them
register_with_gymnasium()


def _public_names() -> dict[str, str]:
    """Return each public name with the module that defines it."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


_MODULE_OF = _public_names()
__all__ = sorted([*_MODULE_OF, "__version__"])


def _hint(name: str) -> str:
    """Return the end of a message about an unknown name; empty for Python's own, which libraries look for."""
    if name.startswith("_"):
        return ""
    import difflib

    elsewhere = {"load": "open_source", "load_dataset": "open_source", "envs": "environment_names"}
    near = elsewhere.get(name) or next(iter(difflib.get_close_matches(name, __all__, 1)), "")
    return f"; did you mean {near!r}?" if near else "; help(rlenv_robot) and docs/reference list its names"


@cache
def _plugin_names() -> PluginTable:
    from rlenv_robot.config.plugins import PluginTable

    return PluginTable("public name", "rlenv_robot.names", {})


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name, "")
    package = module.partition(".")[0]
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("rlenv-robot")
    elif package in (*PACKAGES, __name__):
        value = _from_core(name, module)
    elif not name.startswith("_") and name in _plugin_names():
        try:
            value = _plugin_names().load(name)
        except ValueError as error:
            raise ImportError(str(error), name=package) from error
    elif module:
        from hal.errors import missing_plugin

        raise ModuleNotFoundError(f"rlenv_robot.{name} is in {missing_plugin(package)}", name=package)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")
    globals()[name] = value
    return value


def _from_core(name: str, module: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        message = f"rlenv_robot.{name} needs gymnasium: pip install 'rlenv-robot[gym]'"
        raise ModuleNotFoundError(message, name=error.name) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
