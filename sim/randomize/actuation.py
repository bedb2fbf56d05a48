"""Derive the gains and delays of a simulated robot for its manifest (`hal.guarding.manifest_check`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import mujoco
import numpy as np

from hal.robot import Actuation, Range, RobotSpec, elements_of
from sim.model import SimModel
from sim.randomize.randomise import Draw, Randomise, targets

__all__ = ["Gains", "configured_spec"]

Gains = Mapping[str, float | Sequence[float]]
"""Gain (`hal.robot.GAINS`) -> a number, or both ends of a range, for all joints."""

_FIELDS = {"actuator_gainprm": (0, "stiffness"), "actuator_biasprm": (2, "damping")}
"""Field of the model -> the one of an actuator's numbers in it that is a gain, and the gain."""


def configured_spec(
    sim_model: SimModel,
    delays: Mapping[str, Range] | None = None,
    randomise: Randomise | None = None,
    gains: Gains | None = None,
) -> RobotSpec:
    """Return a simulated robot's description with the ranges of its gains and delays.

    The gains are those that the model's own spec declares, or else those of its position servos. If a randomisation
    draws a servo's stiffness, the range of the draw replaces them, since the registers for such a stiffness are unknown
    unless ``gains`` gives them.

    Args:
        sim_model: the simulated model.
        delays: the simulation's delays (`sim.latency.DelayModel.ranges`); None for none besides the model's own.
        randomise: the parts of the model that are drawn; None for none.
        gains: the gains at which the randomisation's numbers were measured, as in a profile's ``[robot.gains]``.
    """
    spec = sim_model.spec
    declared = spec.actuation or Actuation()
    table = {element: dict(own) for element, own in declared.gains.items()} or _own_gains(sim_model)
    for draw in () if randomise is None else randomise.draws:
        _apply(draw, sim_model, table)
    if gains:
        named = Actuation.for_all(spec.commands, gains).gains
        table = {element: {**table.get(element, {}), **own} for element, own in named.items()}
    if not table and delays is None and spec.actuation is None:
        return spec
    return replace(spec, actuation=Actuation(table, _delays(sim_model, delays or {})))


def _actuators(sim_model: SimModel) -> dict[int, str]:
    """Return the elements of the commands by the number of the actuator that each of them drives."""
    every, numbers = np.arange(sim_model.model.nu), list[int]()
    for field in sim_model.spec.commands:
        columns = sim_model.commands[field.name]
        numbers += every[columns if isinstance(columns, slice) else list(columns)].tolist()
    return dict(zip(numbers, elements_of(sim_model.spec.commands), strict=True))


def _own_gains(sim_model: SimModel) -> dict[str, dict[str, Range]]:
    """Return the gains of the model's position servos: force = kp (ctrl - length) - kv velocity."""
    model, table = sim_model.model, dict[str, dict[str, Range]]()
    for number, element in _actuators(sim_model).items():
        gain, bias = model.actuator_gainprm[number], model.actuator_biasprm[number]
        affine = model.actuator_biastype[number] == mujoco.mjtBias.mjBIAS_AFFINE.value
        if affine and gain[0] > 0 and bias[1] == -gain[0]:
            table[element] = {"stiffness": Range.of(float(gain[0]))}
            if bias[2]:
                table[element]["damping"] = Range.of(float(-bias[2]))
    return table


def _apply(draw: Draw, sim_model: SimModel, table: dict[str, dict[str, Range]]) -> None:
    """Put the range of a drawn gain in the place of the model's own, and of what followed from that."""
    if not draw.path.startswith("actuator."):
        return
    model, actuators = sim_model.model, _actuators(sim_model)
    for target in targets(model, draw.path):
        if target.field not in _FIELDS:
            continue
        column, gain = _FIELDS[target.field]
        width = getattr(model, target.field).shape[1]
        for index in target.index.tolist():
            element = actuators.get(index // width)
            if index % width != column or element is None:
                continue
            sign = -1.0 if target.field == "actuator_biasprm" else 1.0
            nominal = sign * float(getattr(model, target.field).ravel()[index])
            ends = sorted(_changed(nominal, draw.how, end) for end in (draw.values.low, draw.values.high))
            own = table.setdefault(element, {})
            own[gain] = Range.of(ends)
            for register in ("p", "i", "d", "volts"):
                own.pop(register, None)


def _changed(nominal: float, how: str, value: float) -> float:
    return nominal * value if how == "scale" else nominal + value if how == "add" else value


def _delays(sim_model: SimModel, delays: Mapping[str, Range]) -> dict[str, Range]:
    own = float(np.max(sim_model.model.actuator_delay, initial=0.0))
    none = Range(0.0, 0.0)
    command = delays.get("command", none)
    return {"command": Range(own + command.low, own + command.high), "reading": delays.get("reading", none)}
