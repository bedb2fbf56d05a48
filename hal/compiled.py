"""Range checks written out as Python source for one spec, as `dataclasses` writes out ``__init__``.

A command is checked up to three times on its way to a robot, and a simulated step takes 25 microseconds: unrolled
comparisons of Python floats take 0.4 microseconds for six numbers, three calls of numpy 2, a loop over fields 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hal.field import SHORT, Field

__all__ = ["Check", "compiled_check"]

Check = Callable[[Any], dict[str, np.ndarray] | None]
"""The values, or None."""


def compiled_check(fields: Sequence[Field]) -> Check | None:
    """A function that returns a new dictionary of the values if all are arrays of the very dtype, shape and range.

    It returns None for everything else, legal values of another type among them: then the thorough check decides.

    Args:
        fields: of a spec.

    Returns:
        None where a field is no short vector; those are checked faster by numpy, or rare.
    """
    if not fields or not all(len(field.shape) == 1 and field.size <= SHORT for field in fields):
        return None
    names: dict[str, Any] = {"ndarray": np.ndarray, "Error": (TypeError, KeyError, IndexError)}
    lines = ["def check(values):", "  try:", f"    if len(values) != {len(fields)}: return None"]
    for number, field in enumerate(fields):
        names[f"dtype{number}"], names[f"shape{number}"] = field.numpy_dtype, field.shape
        low, high = (bound.tolist() for bound in field.bounds)
        elements = [f"a{number}_{index}" for index in range(field.size)]
        for index, element in enumerate(elements):
            names[f"low_{element}"], names[f"high_{element}"] = low[index], high[index]
        inside = " and ".join(f"low_{element} <= {element} <= high_{element}" for element in elements)
        lines += [
            f"    value{number} = values[{field.name!r}]",
            f"    if value{number}.__class__ is not ndarray or value{number}.dtype is not dtype{number} "
            f"or value{number}.shape != shape{number}: return None",
            f"    {', '.join(elements)}, = value{number}.tolist()",
            f"    if not ({inside}): return None",  # NaN is not inside
        ]
    result = ", ".join(f"{field.name!r}: value{number}" for number, field in enumerate(fields))
    lines += ["  except Error: return None", f"  return {{{result}}}"]
    exec("\n".join(lines), names)  # field names are checked identifiers, numbers are bound, not written
    check: Check = names["check"]
    return check
