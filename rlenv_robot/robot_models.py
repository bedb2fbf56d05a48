"""Kinds of robots by name: what each is, and how it is simulated. A line of the table adds one; so does a file."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hal import Robot, RobotSpec

if TYPE_CHECKING:
    from rlenv_robot.tasks.task import Task
    from sim.model import SimModel

__all__ = [
    "MODEL_FILE",
    "ROBOT_MODELS",
    "RobotModel",
    "is_model_file",
    "loaded",
    "robot_model",
    "robot_model_for",
    "robot_model_of_file",
    "unknown",
]

MODEL_FILE = ".xml"
"""How the name of a kind ends that is the file of a MuJoCo model."""


@dataclass(frozen=True, slots=True)
class RobotModel:
    """A kind of robot. Each attribute is the thing itself or ``module:name``, imported when it is first needed.

    Attributes:
        spec: a `hal.RobotSpec` of the kind's name.
        model: a function that makes its `sim.model.SimModel`; takes ``looks`` (bool): whether with the parts that
            are only looked at.
        twin: a function of a seed that makes a `sim.model.SimModel` with a real robot's faults, or None.
    """

    spec: str | RobotSpec
    model: str | Callable[..., SimModel]
    twin: str | None = None

    def robot_spec(self) -> RobotSpec:
        """What it is."""
        spec: RobotSpec = loaded(self.spec)
        return spec

    def simulated(self, looks: bool = True) -> SimModel:
        """The nominal simulation model, as one trains in it."""
        model: SimModel = loaded(self.model)(looks=looks)
        return model

    def served(
        self,
        where: str,
        seed: int = 0,
        rate_hz: float | None = None,
        conditions: Mapping[str, Any] = MappingProxyType({}),
    ) -> Robot:
        """A simulated robot in real time that begins where it lies, as hardware does.

        Args:
            where: ``sim``, the nominal model, or ``twin``, one with a real robot's faults.
            seed: draws a twin's faults.
            rate_hz: of its steps; by default that of its spec.
            conditions: its timing and randomisation (`rlenv_robot.config.sim_settings.conditions`). As it is never
            put back to
                its start, its model is drawn once, by its first reset.

        Raises:
            ValueError: another word, a kind that has no twin, or a rate that its physics does not have.
        """
        from sim.robot import SimRobot

        if where not in ("sim", "twin"):
            raise ValueError(f"a simulated robot is 'sim' or 'twin', this is {where!r}")
        if where == "twin" and self.twin is None:
            raise ValueError(f"there is no twin of {self.robot_spec().name!r}, use 'sim'")
        model = loaded(str(self.twin))(seed) if where == "twin" else self.simulated()
        if rate_hz is not None:
            from sim.model import at_rate

            model = at_rate(model, rate_hz)
        return SimRobot(model, real_time=True, teleport=False, **conditions)


ROBOT_MODELS: Mapping[str, RobotModel] = {
    "go2": RobotModel("hal.robots.go2:GO2", "sim.robots.go2:go2"),
    "so101": RobotModel("hal.robots.so101:SO101", "sim.robots.so101:so101", "sim.robots.twin:so101_twin"),
    "so101-cube": RobotModel("hal.robots.so101:SO101_CUBE", "sim.robots.so101:so101_cube"),
    "so101-pair": RobotModel("hal.robots.so101_pair:SO101_PAIR", "sim.robots.so101_pair:so101_pair"),
}
"""Every kind there is, by ``RobotSpec.name``."""


def robot_model(name: str) -> RobotModel:
    """A kind by name, or of a MuJoCo model: the path of its file, which ends in ``.xml``.

    Raises:
        ValueError: unknown; the message lists the known ones.
        SpecError: the file is missing, or no model of a robot.
    """
    if is_model_file(name):
        return robot_model_of_file(name)
    if name not in ROBOT_MODELS:
        raise unknown(name, "robot", [*ROBOT_MODELS, f"the path of a MuJoCo model ({MODEL_FILE})"])
    return ROBOT_MODELS[name]


def robot_model_for(task: Task) -> RobotModel:
    """The kind of robot that a task is for: its own ``robot_model``, if it brings one along, or else that of its
    ``robot``.

    Raises:
        ValueError, SpecError: as for `robot_model`.
    """
    own: RobotModel | None = getattr(task, "robot_model", None)
    return robot_model(task.robot) if own is None else own


def is_model_file(name: str) -> bool:
    """Whether this is the name of a file rather than of a kind."""
    return name.endswith(MODEL_FILE)


def robot_model_of_file(path: str, start_noise: float = 0.0) -> RobotModel:
    """The robot of a MuJoCo model.

    Args:
        path: of the file. A file that has changed is read anew.
        start_noise: as for `sim.mjcf.file.mjcf_file`.

    Raises:
        SpecError: the file is missing, or no model of a robot.
    """
    file = Path(path)
    stamp = file.stat().st_mtime_ns if file.is_file() else 0
    return _of_file(str(file.absolute()), stamp, start_noise)


@cache
def _of_file(path: str, stamp: int, start_noise: float) -> RobotModel:
    from sim.mjcf.file import mjcf_file

    model = mjcf_file(path, start_noise)
    return RobotModel(model.spec, lambda looks=True: model)


def loaded(path: Any) -> Any:
    """What ``module:name`` names; anything but a text is there already."""
    if not isinstance(path, str):
        return path
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def unknown(name: str, what: str, known: Iterable[str]) -> ValueError:
    """The error that says which names there are, and which of them may be meant."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f", did you mean {near[0]!r}?" if near else "."
    return ValueError(f"{what} {name!r} is unknown{hint} Known are {', '.join(names)}")
