"""Provide the modules that projects import from Kaiwu's framework, only while a project runs."""

from __future__ import annotations

import logging
import os
import random
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import ModuleType, SimpleNamespace

from rlenv_kaiwu import agent
from rlenv_kaiwu.data import Frame, create_cls
from rlenv_kaiwu.env import handle_disaster_recovery
from rlenv_kaiwu.session import Monitor

__all__ = [
    "FRAMEWORK",
    "FrameworkNames",
    "MonitorConfigBuilder",
    "Validity",
    "framework_modules",
    "read_usr_conf",
]

FRAMEWORK = ("kaiwu_agent", "kaiwudrl", "common_python", "arena_proto", "kaiwu_env")
"""The framework's packages. Importing a module in them that is not provided raises an error that lists the provided
ones."""


class Validity(tuple[bool, str]):
    """The result of ``check_usr_conf``: a pair for projects of 2026, with a truth value for earlier projects."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return self[0]


def read_usr_conf(usr_conf_file: str, logger: logging.Logger) -> dict[str, object] | None:
    """Return a project's environment configuration. If it can't be read, log an error and return None."""
    try:
        return tomllib.loads(Path(usr_conf_file).read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        logger.error("%s can't be read: %s", usr_conf_file, error)
        return None


def _check_usr_conf(usr_conf: object, *arguments: object, **named: object) -> Validity:
    if isinstance(usr_conf, Mapping):
        return Validity((True, ""))
    return Validity((False, f"usr_conf is a {type(usr_conf).__name__}, expected a dictionary"))


class FrameworkNames:
    """The content of every provided module for one run.

    Args:
        project: the project's directory.
        app: the project's ``[app]`` settings for ``CONFIG``.
        logger: logger for code that requests the framework's logger.
        run_test: implementation of ``run_train_test``.

    Attributes:
        attached: name -> object that the project decorated with ``attached``.
        run: the run with the counters and the model pool, after it has begun.
        monitor: the monitor that receives the metrics, once there is one.
        modules: module -> its content by name.
    """

    def __init__(
        self, project: Path, app: Mapping[str, object], logger: logging.Logger, run_test: Callable[..., object]
    ) -> None:
        self.attached: dict[str, object] = {}
        self.run: agent.Run | None = None
        self.monitor: Monitor | None = None
        common = {"Frame": Frame, "attached": self._attach, "create_cls": create_cls}
        config = {"CONFIG": SimpleNamespace(**{**app, "run_mode": "train", "svr_name": "aisrv"})}
        self.modules: Mapping[str, Mapping[str, object]] = {
            "kaiwu_agent": {
                "logger": logger, "monitor": SimpleNamespace(put_data=self._put), "random_generator": random.Random(),
            },
            "kaiwu_agent.utils.common_func": common,
            "kaiwu_agent.agent.base_agent": {
                "BaseAgent": agent.DecoratedAgent, **{name: getattr(agent, name) for name in _DECORATORS},
            },
            "kaiwu_agent.agent.protocol.protocol": {"__getattr__": self._attached},
            "common_python.utils.common_func": common,
            "common_python.utils.workflow_disaster_recovery": {"handle_disaster_recovery": handle_disaster_recovery},
            "common_python.logging.kaiwu_logger": {"KaiwuLogger": lambda *arguments, **named: logger},
            "common_python.config.config_control": config,
            "kaiwudrl.interface.agent": {"BaseAgent": agent.BaseAgent},
            "kaiwudrl.common.config.config_control": config,
            "kaiwudrl.common.utils.kaiwudrl_define": {"KaiwuDRLDefine": SimpleNamespace(**_DEFINE)},
            "kaiwudrl.common.utils.train_test_utils": {"run_train_test": run_test},
            "kaiwudrl.common.monitor.monitor_config_builder": {"MonitorConfigBuilder": MonitorConfigBuilder},
            "kaiwudrl.common.monitor.metrics_utils": {"collect_training_metrics": self._collect},
            "tools.train_env_conf_validate": {"read_usr_conf": read_usr_conf, "check_usr_conf": _check_usr_conf},
            "tools.metrics_utils": {"get_training_metrics": lambda: {"basic": dict(self._counters())}},
            "tools.model_pool_utils": {"get_valid_model_pool": self._model_pool},
            **_isaac_lab(),
        }  # fmt: skip

    def _attach(self, target: object) -> object:
        """Return a project's function or class as it is, and remember it by its name; the document's ``attached``."""
        name = getattr(target, "__name__", None)
        if name is None:
            raise TypeError(f"attached got a {type(target).__name__}, it decorates a function or a class")
        self.attached[name] = target
        return target

    def _attached(self, name: str) -> object:
        if name in self.attached:
            return self.attached[name]
        raise AttributeError(
            f"kaiwu_agent.agent.protocol.protocol has no {name!r}: the project's definition.py must define it with "
            f"@attached; attached are {', '.join(self.attached) or 'none'}"
        )

    def _put(self, data: Mapping[object, Mapping[str, object]]) -> None:
        if self.monitor is not None:
            self.monitor.put_data(data)

    def _counters(self) -> Mapping[str, float]:
        latest = {} if self.monitor is None else self.monitor.latest
        numbers = {name: value for name, value in latest.items() if isinstance(value, int | float)}
        return {**numbers, **(self.run.metrics() if self.run is not None else {})}

    def _collect(self, groups: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, float]]:
        counters = self._counters()
        chosen = {
            group: {name: counters[name] for name in names if name in counters} for group, names in groups.items()
        }
        return {group: metrics for group, metrics in chosen.items() if metrics}

    def _model_pool(self, *arguments: object, **named: object) -> list[int]:
        return [] if self.run is None else self.run.models.numbers()


_DECORATORS = (
    "check_hasattr", "exploit_wrapper", "learn_wrapper", "load_model_wrapper", "load_opponent_agent_wrapper",
    "predict_wrapper", "reset_wrapper", "save_model_wrapper",
)  # fmt: skip

_DEFINE = {
    "RUN_MODE_TRAIN": "train", "RUN_MODE_EVAL": "eval", "RUN_MODE_EXAM": "exam", "SERVER_AISRV": "aisrv",
    "SERVER_LEARNER": "learner", "SERVER_ACTOR": "actor", "WRAPPER_LOCAL": "local", "WRAPPER_REMOTE": "remote",
    "WRAPPER_NONE": "none", "KAIWU_MODEL_CKPT": "model.ckpt",
}  # fmt: skip
"""The constants of the framework's ``KaiwuDRLDefine``."""


def _isaac_lab() -> dict[str, dict[str, object]]:
    """Return the class of Isaac Lab that observation and reward code of the legged track imports, if it is absent."""
    if find_spec("isaaclab") is not None or find_spec("torch") is None:
        return {}
    from rlenv_kaiwu.lab import SceneEntityCfg

    return {"isaaclab.managers": {"SceneEntityCfg": SceneEntityCfg}}


class _Finder(MetaPathFinder, Loader):
    """Find the served modules, and refuse the framework's others by name."""

    def __init__(self, modules: Mapping[str, Mapping[str, object]], project: Path) -> None:
        self._modules = modules
        self._packages = {name.rpartition(".")[0] for name in modules} | {"tools"}
        for name in list(self._packages):
            while name := name.rpartition(".")[0]:
                self._packages.add(name)
        self._project = project
        self.found: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a served module, unless the project's directory has a module of that name."""
        if self._lies_in_project(fullname):
            return None
        if fullname in self._modules or fullname in self._packages:
            self.found.add(fullname)
            return spec_from_loader(fullname, self, is_package=fullname in self._packages)
        if fullname.partition(".")[0] in FRAMEWORK or fullname.startswith("tools."):
            served = ", ".join(sorted(self._modules))
            raise ModuleNotFoundError(
                f"the project asks for {fullname!r} of Kaiwu's framework, which rlenv-robot does not have; it has "
                f"{served}. Put a module of that name into {self._project}, or take the import out",
                name=fullname,
            )
        return None

    def _lies_in_project(self, fullname: str) -> bool:
        place = self._project.joinpath(*fullname.split("."))
        return place.with_name(place.name + ".py").is_file() or place.is_dir()

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python to make the module."""
        return

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module with its names; a package between has none."""
        vars(module).update(self._modules.get(module.__name__, {}))


@contextmanager
def framework_modules(
    project: Path, app: Mapping[str, object], logger: logging.Logger, run_test: Callable[..., object]
) -> Iterator[FrameworkNames]:
    """Let a project import the framework's modules, and run in its directory, until the block ends.

    The project's own modules take precedence over the framework's. After the block ``sys.path``, ``sys.modules`` and
    the working directory are restored, so that another project's ``conf`` or ``tools`` can be imported next.

    Args:
        project: the project's directory.
        app: the project's ``[app]`` settings for ``CONFIG``.
        logger: logger for code that requests the framework's logger.
        run_test: implementation of ``run_train_test``.

    Raises:
        ValueError: a module of the framework is already imported, from the real framework or by a block that has not
            ended.
    """
    taken = sorted({name.partition(".")[0] for name in sys.modules} & set(FRAMEWORK))
    if taken:
        raise ValueError(f"{', '.join(taken)} is imported already: run one project at a time, in a process of its own")
    names = FrameworkNames(project, app, logger, run_test)
    finder, before, folder = _Finder(names.modules, project), dict(sys.modules), Path.cwd()
    sys.meta_path.insert(0, finder)
    sys.path.insert(0, os.fspath(project))
    os.chdir(project)
    try:
        yield names
    finally:
        os.chdir(folder)
        sys.path.remove(os.fspath(project))
        sys.meta_path.remove(finder)
        for name, module in list(sys.modules.items()):
            if name not in before and (name in finder.found or _comes_from(module, project)):
                del sys.modules[name]


def _comes_from(module: ModuleType, project: Path) -> bool:
    # By its dictionary: some modules answer every attribute with an object of their own.
    file, folders = vars(module).get("__file__"), vars(module).get("__path__")
    places = [file, *(list(folders) if isinstance(folders, Iterable) else ())]
    return any(isinstance(place, str) and Path(place).is_relative_to(project) for place in places)


class MonitorConfigBuilder:
    """Describe groups of panels of metrics by chained calls, for a project's ``monitor_builder.py``.

    The result is plain data and is not drawn here: metrics go to ``monitor.jsonl``.
    """

    def __init__(self) -> None:
        self._config: dict[str, object] = {}
        self._groups: list[dict[str, object]] = []
        self._panels: list[dict[str, object]] = []
        self._metrics: list[dict[str, object]] = []
        self._open: list[str] = []

    def title(self, title: str) -> MonitorConfigBuilder:
        """Set the title of all panels."""
        self._config["title"] = title
        return self

    def add_group(self, group_name: str = "", group_name_en: str = "", **more: object) -> MonitorConfigBuilder:
        """Begin a group of panels."""
        self._begin("group", "")
        self._panels = []
        self._groups.append({"name": group_name, "name_en": group_name_en, "panels": self._panels, **more})
        return self

    def add_panel(self, name: str = "", name_en: str = "", type: str = "line", **more: object) -> MonitorConfigBuilder:
        """Begin a panel in the current group. Further settings are kept as they are given."""
        self._begin("panel", "group")
        self._metrics = []
        self._panels.append({"name": name, "name_en": name_en, "type": type, "metrics": self._metrics, **more})
        return self

    def add_metric(self, metrics_name: str = "", expr: str = "", **more: object) -> MonitorConfigBuilder:
        """Add a metric to the current panel."""
        if self._open[-1:] != ["panel"]:
            raise ValueError(f"add_metric({metrics_name!r}) outside a panel: call add_panel first")
        self._metrics.append({"name": metrics_name, "expr": expr, **more})
        return self

    def end_panel(self) -> MonitorConfigBuilder:
        """End the current panel, so that another one or `end_group` can follow."""
        return self._end("panel")

    def end_group(self) -> MonitorConfigBuilder:
        """End the current group, so that another one or `build` can follow."""
        return self._end("group")

    def build(self) -> dict[str, object]:
        """Return the description of all groups as plain data.

        Raises:
            ValueError: a group or a panel was not ended.
        """
        if self._open:
            raise ValueError(f"build before end_{self._open[-1]}: end every panel and group first")
        return {**self._config, "groups": self._groups}

    def _begin(self, what: str, inside: str) -> None:
        if (self._open[-1:] or [""]) != [inside]:
            raise ValueError(f"add_{what} inside {self._open or 'nothing'}: end what is open, or begin a {inside}")
        self._open.append(what)

    def _end(self, what: str) -> MonitorConfigBuilder:
        if self._open[-1:] != [what]:
            raise ValueError(f"end_{what} without a {what} that is open")
        self._open.pop()
        return self
