"""Each fault of set F differs from its correct base in answers to calls."""

import importlib
import json

import pytest

from plugins.kit.faults.fault_set_f.common import ENTRIES, FOLDER, REGISTER

PARTS = ("environment", "robot", "vector", "source")
MODULES = {part: importlib.import_module(f"plugins.kit.faults.{part}_f") for part in PARTS}
CALLS = {
    cls: calls
    for part in PARTS
    for cls, calls in importlib.import_module(f"plugins.kit.faults.fault_set_f.{part}_calls").CALLS.items()
}
FAULTS = [entry for entry in ENTRIES.values() if not entry.good]


@pytest.mark.parametrize("entry", FAULTS, ids=lambda entry: entry.id)
def test_fault_differs_from_its_base(entry):
    calls = CALLS[entry.make]
    assert calls(entry.base) == calls(entry.base)
    assert calls(entry.make) != calls(entry.base)


@pytest.mark.parametrize("part", PARTS)
def test_manifest_lists_what_the_factories_make(part):
    listed = json.loads((FOLDER / f"{part}_f.json").read_text("utf-8"))
    assert (FOLDER / f"{part}_f.json").read_text("utf-8") == REGISTER.write_manifest(part)
    assert all(hasattr(MODULES[part], entry["id"]) for entry in listed)
    assert sum(entry["good"] for entry in listed) >= 4
    assert sum(not entry["good"] for entry in listed) >= 30
