"""The servo models that a table of joints may name: ours, and those that installed packages declare."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from hal.drivers.servo_family import ServoModel
from hal.drivers.sts3215 import STS3215

__all__ = ["find_servo", "servo_models"]


@cache
def _declared() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group="rlenv_robot.servos") if point.name != STS3215.name}


@cache
def find_servo(name: str) -> ServoModel:
    """Return a servo model by its name: the STS3215, or one of the entry points ``rlenv_robot.servos``.

    Raises:
        ValueError: there is no model of this name, its package can't be imported, or it is not a `ServoModel`.
    """
    if name == STS3215.name:  # without a look for packages
        return STS3215
    point = _declared().get(name)
    if point is None:
        raise ValueError(f"servo {name!r} is unknown, known are {', '.join([STS3215.name, *_declared()])}")
    try:
        model: object = point.load()
    except Exception as error:  # whatever a stranger's module raises
        raise ValueError(
            f"servo {name!r} ({point.value}) can't be imported: {type(error).__name__}: {error}. Repair or uninstall "
            "its package"
        ) from error
    if not isinstance(model, ServoModel):
        raise ValueError(f"servo {name!r} ({point.value}) is a {type(model).__name__}, expected a ServoModel")
    return model


def servo_models() -> dict[str, ServoModel]:
    """Return all servo models by name. Raises as `find_servo` does."""
    return {name: find_servo(name) for name in (STS3215.name, *_declared())}
