"""Whether the packages that belong to this project are the ones that Python would import."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["PACKAGES", "check_neighbours"]

PACKAGES = ("hal", "sim", "real", "recorder")
"""Short names, which other software uses too: LinuxCNC ships a ``hal``, CoppeliaSim a ``sim``."""

_HOME = Path(__file__).resolve().parents[2]


def check_neighbours() -> None:
    """Refuse to go on with a stranger's package under one of our names.

    Raises:
        ImportError: naming our package, the foreign file, and what to do.
    """
    for name in PACKAGES:
        found = _found(name)
        if found is None:
            raise ImportError(
                f"rlenv_robot: its package {name!r} is missing beside {_HOME / 'rlenv_robot'}; "
                "install rlenv-robot again",
                name=name,
            )
        if Path(found).resolve().parent != _HOME / name:
            raise ImportError(
                f"rlenv_robot: {found} shadows our package {_HOME / name}. Other software (LinuxCNC, CoppeliaSim) "
                f"also ships a {name!r}: take its folder out of PYTHONPATH and the working directory, or install "
                "rlenv-robot into a virtual environment of its own",
                name=name,
                path=found,
            )


def _found(name: str) -> str | None:
    """The file that is, or would be, imported under a name; a folder without ``__init__.py`` by its first place."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return getattr(loaded, "__file__", None) or f"a module {name!r} that is already loaded"
    spec = find_spec(name)
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    return spec.origin or (str(Path(places[0]) / "(no __init__.py)") if places else None)
