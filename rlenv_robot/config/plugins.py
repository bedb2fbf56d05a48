"""Keep tables of names that users extend by a call, or by the entry points of an installed package."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlenv_robot.config.plugin_names import plugin_of

__all__ = ["PluginTable", "UnknownSetting", "load_object", "unknown_name"]


class PluginTable:
    """Objects of one kind by name: built in, registered by a call, or declared by an installed package.

    An object may be given as ``module:name`` and is then imported on first use. So a package that can't be imported
    causes an error only when one of its names is used.

    Args:
        kind: the kind of objects, for messages, such as ``task``.
        group: the entry-point group in which packages declare objects, such as ``rlenv_robot.tasks``.
        builtin: name -> object, or ``module:name``.
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, object]) -> None:
        self.kind, self.group = kind, group
        self._builtin = dict(builtin)
        self._registered: dict[str, object] = {}

    def register(self, name: str, value: object) -> None:
        """Add an object, or ``module:name``, under a new name.

        Raises:
            ValueError: the name is taken, or not a valid name.
        """
        self.check_new(name)
        self._registered[name] = value

    def check_new(self, name: str) -> None:
        """Refuse a name that can't be registered.

        Raises:
            ValueError: the name is taken, or not a valid name.
        """
        if not isinstance(name, str) or not name or ":" in name or name != name.strip():
            raise ValueError(f"{self.kind} name {name!r} is not allowed: give a text without colons, such as 'my-arm'")
        if name in self:
            raise ValueError(f"{self.kind} {name!r} is already {self._origin(name)}: register it under another name")

    def unregister(self, name: str) -> None:
        """Remove a registered object. An unknown name is allowed."""
        self._registered.pop(name, None)

    def _origin(self, name: str) -> str:
        if name in self._builtin:
            return "part of rlenv_robot"
        if name in self._registered:
            return "registered"
        return f"declared by the package {_package(self._declared[name][0])}"

    def names(self) -> list[str]:
        """Return all names in alphabetical order, without importing anything."""
        return sorted({*self._builtin, *self._registered, *self._declared})

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._registered or name in self._declared

    def unknown(self, name: str, kind: str = "", forms: Iterable[str] = ()) -> ValueError:
        """Return the error about a name that is not in the table: of a plug-in that is missing, or of no one.

        Args:
            name: that was asked for.
            kind: what the name should be one of, for the message; by default the table's own kind.
            forms: what is allowed besides the names.
        """
        kind = kind or self.kind
        package = plugin_of(self.group, name)
        if package is None or find_spec(package) is not None:
            return unknown_name(name, kind, [*self.names(), *forms])
        from hal.errors import missing_plugin

        return ValueError(f"{kind} {name!r} is in {missing_plugin(package)}")

    def load(self, name: str) -> object:
        """Return the object with a name, importing it if needed.

        Raises:
            KeyError: the name is unknown.
            ModuleNotFoundError: a dependency is missing; the message names the extra that installs it.
            ValueError: a package's object can't be imported, or two packages declare the name.
        """
        if name in self._builtin:
            return load_object(self._builtin[name])
        if name in self._registered:
            return load_object(self._registered[name])
        points = self._declared[name]
        if len(points) > 1:
            packages = " and ".join(sorted(map(_package, points)))
            raise ValueError(f"{self.kind} {name!r} is declared by {packages}: uninstall all but one of them")
        try:
            loaded: object = points[0].load()
        except Exception as error:  # whatever a stranger's module raises
            if isinstance(error, ModuleNotFoundError) and points[0].extras:
                extra = f"{_package(points[0]).split(' ')[0]}[{','.join(points[0].extras)}]"
                message = f"{self.kind} {name!r} needs {error.name}: pip install {extra!r}"
                raise ModuleNotFoundError(message, name=error.name) from error
            raise ValueError(
                f"{self.kind} {name!r} is in the package {_package(points[0])} ({points[0].value}), which can't be "
                f"imported: {type(error).__name__}: {error}. Repair or uninstall that package"
            ) from error
        return loaded

    @cached_property
    def _declared(self) -> dict[str, list[EntryPoint]]:
        """The entry points of installed packages by name. Our own names can't be taken over by one."""
        declared: dict[str, dict[str, EntryPoint]] = {}
        for point in entry_points(group=self.group):
            if point.name in self._builtin:
                warnings.warn(
                    f"{self.kind} {point.name!r} of the package {_package(point)} is ignored: rlenv_robot has one of "
                    "that name; rename it in that package's entry points",
                    stacklevel=2,
                )
            else:  # the same distribution may be found twice on the path: the first one counts, as for imports
                declared.setdefault(point.name, {}).setdefault(_package(point).split(" ")[0], point)
        return {name: list(points.values()) for name, points in declared.items()}


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "(unknown)"


def load_object(source: object, folder: Path | None = None) -> Any:
    """Import the object of a ``module:name`` text; return any other value unchanged.

    Args:
        source: such as ``my_arm:Arm``, or the object itself.
        folder: an additional location of the module, such as the folder of a profile. It is appended to Python's path,
            so it hides no installed module.

    Raises:
        ValueError: the text has another form, the module can't be imported, or it lacks the name.
    """
    if not isinstance(source, str):
        return source
    module_name, _, name = source.partition(":")
    if not module_name or not all(part.isidentifier() for part in (*module_name.split("."), *name.split("."))):
        address = f", or an address as 'tcp://{source}'" if name.isdecimal() else ""
        raise ValueError(f"{source!r} can't be imported: write module:name, such as 'my_arm:Arm'{address}")
    if folder is not None and _lies_in(folder, module_name) and str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        target: object = import_module(module_name)
    except Exception as error:  # whatever a user's module raises
        raise ValueError(f"{source!r} can't be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(target, part):
            names = [member for member in vars(target) if not member.startswith("_")]
            near = difflib.get_close_matches(part, names, 1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{source!r} can't be imported: {module_name} has no {part!r}{hint}")
        target = getattr(target, part)
    return target


def _lies_in(folder: Path, module_name: str) -> bool:
    first = folder / module_name.partition(".")[0]
    return first.is_dir() or first.with_suffix(".py").is_file()


class UnknownSetting(ValueError, TypeError):
    """Say that a factory has no setting of a name.

    It is a TypeError too, as for an unknown keyword of a function: some libraries try further keywords, and catch that.

    Args:
        message: names the setting and the allowed ones.
        setting: the unknown name.
    """

    def __init__(self, message: str, setting: str = "") -> None:
        super().__init__(message)
        self.setting = setting


def unknown_name(name: str, kind: str, allowed: Iterable[str]) -> ValueError:
    """Return the error that lists the allowed names, and suggests the nearest one."""
    names = list(allowed)
    near = difflib.get_close_matches(name, names, 1)
    hint = f", did you mean {near[0]!r}?" if near else "."
    return ValueError(f"{kind} {name!r} is unknown{hint} Known are {', '.join(names)}")
