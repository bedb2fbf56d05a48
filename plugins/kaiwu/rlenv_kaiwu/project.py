"""Read a Kaiwu project's directory: its algorithm, year, settings, agent and workflow."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from rlenv_kaiwu.data import SampleCodec
from rlenv_kaiwu.session import Style
from rlenv_kaiwu.settings import HONOURED, AppSettings, read_settings
from rlenv_robot.config.plugins import unknown_name

__all__ = ["Algorithm", "Project", "TrainTest", "load_algorithm", "load_processors", "open_project", "read_train_test"]

_LEGGED = "legged_robot"
"""Part of the name of ``algo_conf_*.toml`` in the track whose workflows step batches of robots."""

_KEYS = ("learner_agent", "learner_model", "aisrv_agent", "aisrv_model", "actor_agent", "actor_model")
"""Keys of ``algo_conf_*`` that name the agent's class, in the order of the search."""


@dataclass(frozen=True)
class Project:
    """A project's directory.

    Attributes:
        folder: the absolute path.
        name: names of the project and the chosen algorithm, for files.
        algorithm: the chosen algorithm.
        algorithms: algorithm -> its agent and its workflow, each as ``package.module.name``.
        style: the year whose interface the project expects.
        settings: settings of ``conf/configure_app.toml``.
        app: these settings as written in the file, for ``CONFIG``.
        environment: the environment that the project names for rlenv-robot; empty if it names none.
    """

    folder: Path
    name: str
    algorithm: str
    algorithms: Mapping[str, tuple[str, str]]
    style: Style
    settings: AppSettings
    app: Mapping[str, object]
    environment: str

    @property
    def agent_package(self) -> str:
        """The agent's folder, such as ``agent_ppo``."""
        return self.algorithms[self.algorithm][0].partition(".")[0]

    @property
    def preload_folder(self) -> Path:
        """The folder of the model with which a run begins."""
        text = self.settings.preload_model_dir.replace("{agent_name}", self.agent_package)
        return self.folder / text


@dataclass(frozen=True)
class Algorithm:
    """The parts of a project that a run needs.

    Attributes:
        agent: the agent's class.
        workflow: the training workflow.
        codec: converts samples to rows.
    """

    agent: Callable[..., object]
    workflow: Callable[..., object]
    codec: SampleCodec


@dataclass(frozen=True)
class TrainTest:
    """The settings of a project's ``train_test.py``.

    Attributes:
        algorithm: the algorithm to test; empty if the file does not name it.
        overrides: key of ``[app]`` -> value during the test.
    """

    algorithm: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)


def open_project(
    folder: str | Path, algorithm: str | None = None, style: Style | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Project:  # fmt: skip
    """Read a project's directory without running its code.

    Args:
        folder: the directory with ``conf/`` and one folder for each agent.
        algorithm: one of the project's algorithms; by default the one in ``configure_app.toml`` or ``train_test.py``,
            or the only one.
        style: the project's year; by default detected from ``kaiwu.json`` and ``conf/``.
        overrides: key of ``[app]`` -> value.

    Raises:
        ValueError: there is no project or no such algorithm, or a setting is refused.
    """
    path = Path(folder).absolute()
    if not path.is_dir():
        raise ValueError(f"{folder} is not a directory; a Kaiwu project has conf/ and a folder for each agent")
    algorithms, found_style = _algorithms(path)
    manifest = _manifest(path)
    section = manifest.get("rlenv_robot", {})
    section = section if isinstance(section, dict) else {}
    file = path / "conf" / "configure_app.toml"
    settings = read_settings(file, overrides)
    choices = (algorithm, settings.algorithm or None, read_train_test(path).algorithm or None, next(iter(algorithms)))
    chosen = next(choice for choice in choices if choice is not None)
    if chosen not in algorithms:
        raise unknown_name(chosen, "algorithm", algorithms)
    named = style or section.get("style") or found_style
    if named not in get_args(Style):
        raise ValueError(f"style {named!r} is unknown, allowed are {', '.join(get_args(Style))}")
    app = tomllib.loads(file.read_text(encoding="utf-8")).get("app", {}) if file.is_file() else {}
    code = str(manifest.get("project_code", path.name))
    return Project(
        path, f"{code}-{chosen}", chosen, algorithms, cast("Style", named), settings,
        {**app, **(overrides or {}), "algo": chosen, "app": code}, str(section.get("environment", "")),
    )  # fmt: skip


def _manifest(folder: Path) -> dict[str, Any]:
    file = folder / "kaiwu.json"
    if not file.is_file():
        return {}
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    return manifest if isinstance(manifest, dict) else {}


def _algorithms(folder: Path) -> tuple[dict[str, tuple[str, str]], Style]:
    """Return each algorithm's agent and workflow, and the year whose layout the project has."""
    for file in sorted((folder / "conf").glob("algo_conf_*.toml")):
        plain = tomllib.loads(file.read_text(encoding="utf-8"))
        style: Style = "2026" if any("actor_agent" in section for section in plain.values()) else "2025"
        return _places(plain, file), "batch" if _LEGGED in file.name else style
    for file in sorted((folder / "conf").glob("*algo*.y*ml")):
        return _places(_plain_yaml(file), file), "2024"
    places = {
        agent.parent.name.removeprefix("agent_"): (
            f"{agent.parent.name}.agent.Agent", f"{agent.parent.name}.workflow.train_workflow.workflow"
        )
        for agent in sorted(folder.glob("*/agent.py"))
        if (agent.parent / "workflow" / "train_workflow.py").is_file()
    }  # fmt: skip
    if not places and _of_2022(folder):
        raise ValueError(
            f"{folder} is a project of 2022, with actor and learner inside the project and TensorFlow's models: "
            "move the agent into agent_NAME/agent.py (PyTorch, observation_process, predict, learn, "
            "save_model, load_model) and the loop of episodes into agent_NAME/workflow/train_workflow.py; rlenv-robot "
            "kaiwu new writes both to begin with"
        )
    if not places:
        raise ValueError(
            f"{folder} is not a Kaiwu project: it has neither conf/algo_conf_*.toml nor a folder with agent.py and "
            "workflow/train_workflow.py; rlenv-robot kaiwu new writes one"
        )
    return places, "document"


def _of_2022(folder: Path) -> bool:
    return any((folder / name).exists() for name in ("actor", "actor_learner", "learner", "aisrv", "code/actor"))


def _places(plain: Mapping[str, Any], file: Path) -> dict[str, tuple[str, str]]:
    places = {}
    for name, section in plain.items():
        agent = next((section[key] for key in _KEYS if key in section), None)
        workflow = section.get("train_workflow")
        if agent is None or workflow is None:
            raise ValueError(f"{file}: [{name}] must name learner_agent (or learner_model) and train_workflow")
        places[name] = (str(agent), str(workflow))
    if not places:
        raise ValueError(f"{file} names no algorithm")
    return places


def _plain_yaml(file: Path) -> dict[str, dict[str, str]]:
    """Read the two levels of ``key: value`` that these files have; YAML itself is no dependency of ours."""
    sections: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        match = re.match(r"(\s*)([\w-]+):\s*([^#]*)", line)
        if match is None:
            continue
        indent, key, value = match[1], match[2], match[3].strip().strip("'\"")
        if not indent:
            section = sections.setdefault(key, {})
        else:
            section[key] = value
    return {name: values for name, values in sections.items() if values}


def read_train_test(folder: Path) -> TrainTest:
    """Read the settings in a project's ``train_test.py`` without running it.

    Projects of 2026 call ``run_train_test`` with ``env_vars``; earlier ones write these settings into ``os.environ``.
    Variables that are no settings of ``configure_app.toml`` are for the platform's processes, and are left out.
    """
    file = folder / "train_test.py"
    if not file.is_file():
        return TrainTest()
    algorithm, overrides = "", {}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"), str(file))):
        if isinstance(node, ast.Assign) and any(getattr(name, "id", "") == "algorithm_name" for name in node.targets):
            algorithm = str(_literal(node.value) or "")
        elif isinstance(node, ast.Dict):
            plain = _literal(node)
            if isinstance(plain, dict) and "train_batch_size" in plain:
                # The others are variables of the platform's processes, such as max_frame_no.
                overrides = {str(key): str(value) for key, value in plain.items() if key in HONOURED}
    return TrainTest(algorithm, overrides)


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def load_algorithm(project: Project, attached: Mapping[str, object]) -> Algorithm:
    """Import a project's agent and workflow, inside `rlenv_kaiwu.names.framework_modules`.

    Args:
        project: the project.
        attached: name -> object that the project decorates with ``attached``; a live mapping that the imports fill.

    Raises:
        ValueError: a module can't be imported or lacks the name; the message gives the file and the reason.
    """
    agent_place, workflow_place = project.algorithms[project.algorithm]
    agent, workflow = _load(agent_place, project), _load(workflow_place, project)
    definition = sys.modules.get(f"{project.agent_package}.feature.definition")
    names = {**attached, **(vars(definition) if definition is not None else {})}
    return Algorithm(agent, workflow, SampleCodec(names))


_PROCESSORS = {
    "policy": "policy_observation_process.PolicyObservationProcess",
    "critic": "critic_observation_process.CriticObservationProcess",
    "reward": "reward_process.RewardProcess",
}


def load_processors(project: Project) -> dict[str, object]:
    """Return the observation and reward code of a project of the legged track, as far as it has some.

    Raises:
        ValueError: a module can't be imported or lacks the class.
    """
    feature = project.folder / project.agent_package / "feature"
    return {
        name: _load(f"{project.agent_package}.feature.{place}", project)()
        for name, place in _PROCESSORS.items()
        if (feature / f"{place.partition('.')[0]}.py").is_file()
    }


def _load(place: str, project: Project) -> Callable[..., object]:
    module, _, name = place.rpartition(".")
    try:
        target = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        hint = (
            ""
            if missing in str(error) and "rlenv-robot" in str(error)
            else f"; if {missing!r} is a package, install it"
        )
        raise ValueError(f"{project.folder.name}: {place} can't be imported: {error}{hint}") from error
    except Exception as error:  # whatever a stranger's module raises
        raise ValueError(
            f"{project.folder.name}: {place} can't be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(target):
        raise ValueError(f"{project.folder.name}: {place} is a {type(target).__name__}, expected a class or a function")
    return cast("Callable[..., object]", target)
