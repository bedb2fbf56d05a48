"""The formats that the plug-in declares: each fits the contract, is found by its looks, and stands on its page."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from hal import SourceError
from recorder.formats.registry import format_of, register_format, writable_names
from rlenv_formats.bag_mapping import EXAMPLE

NAMES = ("bags", "lerobot", "mapped", "minari", "parquet", "rerun", "rlds", "robomimic", "zarr")


@pytest.mark.parametrize("name", NAMES)
def test_every_format_fits_the_contract(name: str) -> None:
    known = format_of(name)
    assert known.name == name
    if known.write is not None:
        parameters = inspect.signature(known.write).parameters
        asked = ["table", "path", "filming"][: 3 if known.holds_images else 2]
        assert list(parameters)[: len(asked)] == asked
        own = [each for name, each in parameters.items() if name not in asked]
        assert all(each.default is not inspect.Parameter.empty for each in own), "a format's own settings have defaults"


def test_a_name_that_a_package_declares_is_taken() -> None:
    with pytest.raises(SourceError, match="'bags' is registered already"):
        register_format(format_of("bags"))


def test_the_page_names_them_all() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "formats.md").read_text()
    for name in writable_names():
        assert f"| `{name}` |" in page
    assert EXAMPLE in page
