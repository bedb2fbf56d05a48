"""The servos that a table of joints may name: ours, and those that installed packages declare."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from hal.drivers.servo_family import ServoModel
from hal.drivers.sts3215 import STS3215

__all__ = ["find_servo", "servo_models"]


@cache
def servo_models() -> dict[str, ServoModel]:
    """Return every model of servo by its name: the STS3215, and those of the entry points ``rlenv_robot.servos``.

    Raises:
        ValueError: a package's servo can't be imported, or is no `hal.drivers.servo_family.ServoModel`.
    """
    models = {STS3215.name: STS3215}
    for point in entry_points(group="rlenv_robot.servos"):
        try:
            model = point.load()
        except Exception as error:  # whatever a stranger's module raises
            raise ValueError(
                f"servo {point.name!r} ({point.value}) can't be imported: {type(error).__name__}: {error}. Repair or "
                "uninstall its package"
            ) from error
        if not isinstance(model, ServoModel):
            raise ValueError(f"servo {point.name!r} ({point.value}) is a {type(model).__name__}, expected a ServoModel")
        models.setdefault(point.name, model)
    return models


def find_servo(name: str) -> ServoModel:
    """Return a model of servo by its name.

    Raises:
        ValueError: there is none of this name.
    """
    if name == STS3215.name:  # without a look for packages
        return STS3215
    models = servo_models()
    if name not in models:
        raise ValueError(f"servo {name!r} is unknown, known are {', '.join(models)}")
    return models[name]
