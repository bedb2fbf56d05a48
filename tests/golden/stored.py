"""Golden values as JSON files: how they are written, read and compared."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "data"
DECIMALS = 6
TOLERANCE = 1e-5
"""Absolute and relative: another processor or math library may round differently."""
_SHOWN, _LINE = 40, 160


def plain(value: Any) -> Any:
    """Return a value as JSON holds it: arrays as lists, floats rounded, bytes in hexadecimal.

    Raises:
        TypeError: it is something else, whose text may differ from run to run.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return round(value, DECIMALS) + 0.0 if math.isfinite(value) else value  # -0.0 becomes 0.0
    if value is None or isinstance(value, str | int | bool):
        return value
    raise TypeError(f"{value!r} is no plain data; choose what of it is stable")


def key_paths(value: Any, path: str = "") -> list[str]:
    """The paths of all keys in nested mappings and lists of mappings, such as ``cameras[].name``, sorted.

    Those of a `hal.Field` as plain data are left out, as there are many; they are in the file ``digests``.
    """
    return sorted({each for each in _key_paths(value, path) if "fields[]." not in each})


def _key_paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            below = f"{path}.{key}" if path else str(key)
            yield below
            yield from _key_paths(one, below)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _key_paths(one, f"{path}[]")


def write(name: str, value: Any) -> Path:
    """Write one golden file; a list of numbers takes one line."""
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(plain(value), indent=1, sort_keys=True, ensure_ascii=False)
    for inner in (r"[^\[\]]", r"(?:[^\[\]]|\[[^\[\]]*\])"):  # lists of numbers, then lists of such lists
        text = re.sub(r'\[\n(?:(?![{}"])' + inner + r")*?\]", _on_one_line, text)
    path = FOLDER / f"{name}.json"
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _on_one_line(found: re.Match[str]) -> str:
    line = re.sub(r"\s+", "", found[0]).replace(",", ", ")
    return line if "[" not in line[1:] or len(line) <= _LINE else found[0]


def check(name: str, value: Any) -> None:
    """Compare with the golden file of this name.

    Raises:
        AssertionError: listing what differs, a line each.
    """
    expected = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(plain(value)))
    lines = list(differences(expected, found))
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"... and {len(lines) - _SHOWN} more"]
    assert not lines, f"{name} differs from the golden file:\n" + "\n".join(lines)


def differences(expected: Any, found: Any, path: str = "") -> Iterator[str]:
    """Return a line for each difference."""
    where = path or "(top)"
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(expected.keys() | found.keys()):
            below = f"{path}.{key}" if path else key
            if key not in found:
                yield f"{below}: missing, was {_short(expected[key])}"
            elif key not in expected:
                yield f"{below}: new, is {_short(found[key])}"
            else:
                yield from differences(expected[key], found[key], below)
    elif isinstance(expected, list) and isinstance(found, list):
        yield from _list_differences(expected, found, where)
    elif _is_number(expected) and _is_number(found):
        if not np.isclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            yield f"{where}: was {expected!r}, is {found!r}"
    elif type(expected) is not type(found) or expected != found:
        yield f"{where}: was {_short(expected)}, is {_short(found)}"


def _list_differences(expected: list[Any], found: list[Any], where: str) -> Iterator[str]:
    texts = all(isinstance(one, str) for one in (*expected, *found))
    if texts and len({*expected}) == len(expected) and expected != found:
        gone, new = [one for one in expected if one not in found], [one for one in found if one not in expected]
        yield f"{where}: missing {gone}, new {new}" if gone or new else f"{where}: another order, {_short(found)}"
    elif len(expected) != len(found):
        yield f"{where}: had {len(expected)} entries, has {len(found)}"
    else:
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")


def _is_number(value: Any) -> bool:
    """Whether it is compared with a tolerance; whole numbers and truth values are compared exactly."""
    return isinstance(value, float)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
