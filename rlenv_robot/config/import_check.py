"""Make Python import this project's packages, even if other software on its path uses the same names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

__all__ = ["PACKAGES", "claim_packages"]

PACKAGES = ("hal", "sim", "real", "recorder")
"""Names that other software uses too: LinuxCNC contains a ``hal``, CoppeliaSim a ``sim``."""

_HOME = Path(__file__).resolve().parents[2]
"""The folder that holds rlenv_robot and its packages."""


class _PackageFinder(MetaPathFinder):
    """Find this project's packages beside rlenv_robot, ahead of the working directory and PYTHONPATH."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of one of our packages; None leaves every other module to Python's own finders."""
        return PathFinder.find_spec(fullname, [str(_HOME)]) if fullname in PACKAGES else None


def claim_packages() -> None:
    """Make Python import this project's packages from the folder of rlenv_robot.

    Python searches the working directory before the installed packages, so a folder ``sim`` there would shadow this
    project's. A package that is already imported can't be replaced, since its importer relies on it.

    Raises:
        ImportError: a foreign package of the same name is already imported, or a package of this project is missing.
    """
    for name in PACKAGES:
        _refuse_foreign(name)
        spec = PathFinder.find_spec(name, [str(_HOME)])
        if spec is None or spec.origin is None:  # no origin: a folder without __init__.py
            raise ImportError(
                f"rlenv_robot: its package {name!r} is missing in {_HOME}; install rlenv-robot again", name=name
            )
    if not any(isinstance(finder, _PackageFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PackageFinder())


def _refuse_foreign(name: str) -> None:
    loaded = sys.modules.get(name)
    if loaded is None:
        return
    file = getattr(loaded, "__file__", None)
    if file is None or Path(file).resolve().parent != _HOME / name:
        source = file or f"a package {name!r} without a file"
        raise ImportError(
            f"rlenv_robot: {source} was imported first and shadows our package {_HOME / name}. Other software "
            f"(LinuxCNC, CoppeliaSim) also ships a {name!r}. Import rlenv_robot before it, take its folder out of "
            "PYTHONPATH and the working directory, or run the two in separate processes",
            name=name,
            path=file,
        )
