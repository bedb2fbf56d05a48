"""Kinds of robots by name: what each is, and how it is simulated. A line of the table below adds one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hal import Robot, RobotSpec

if TYPE_CHECKING:
    from sim.model import SimModel

__all__ = ["KINDS", "Kind", "kind", "loaded", "unknown"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of robot. Each attribute is ``module:name``, imported when it is first needed.

    Attributes:
        spec: a `hal.RobotSpec` of the kind's name.
        model: a function that makes its `sim.model.SimModel`; takes ``looks`` (bool): whether with the parts that
            are only looked at.
        twin: a function of a seed that makes a `sim.model.SimModel` with a real robot's faults, or None.
    """

    spec: str
    model: str
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
            conditions: its timing and randomisation (`rlenv_robot.conditions.conditions`). As it is never put back to
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
            from sim.rate import at_rate

            model = at_rate(model, rate_hz)
        return SimRobot(model, real_time=True, teleport=False, **conditions)


KINDS: Mapping[str, Kind] = {
    "go2": Kind("hal.robots.go2:GO2", "sim.go2:go2"),
    "so101": Kind("hal.robots.so101:SO101", "sim.so101:so101", "sim.twin:so101_twin"),
    "so101-cube": Kind("hal.robots.so101_cube:SO101_CUBE", "sim.so101:so101_cube"),
    "so101-pair": Kind("hal.robots.so101_pair:SO101_PAIR", "sim.so101_pair:so101_pair"),
}
"""Every kind there is, by ``RobotSpec.name``."""


def kind(name: str) -> Kind:
    """A kind by name.

    Raises:
        ValueError: unknown; the message lists the known ones.
    """
    if name not in KINDS:
        raise unknown(name, "robot", KINDS)
    return KINDS[name]


def loaded(path: str) -> Any:
    """What ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def unknown(name: str, what: str, known: Iterable[str]) -> ValueError:
    """The error that says which names there are, and which of them may be meant."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f", did you mean {near[0]!r}?" if near else "."
    return ValueError(f"{what} {name!r} is unknown{hint} Known are {', '.join(names)}")
