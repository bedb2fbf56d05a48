from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from hal import SourceError
from recorder.read import addresses
from recorder.read.addresses import MARK, fetched, is_address, mirror


class Shelf:
    """Readers of addresses that note what they were asked."""

    asked: ClassVar[list[object]] = []

    @classmethod
    def mirror(cls, address: str, folder: Path | None, capacity: int, options: object) -> Path:
        cls.asked.append((address, folder, capacity, options))
        return Path("shelf")

    @classmethod
    def fetched(cls, path: Path) -> Path:
        cls.asked.append(path)
        return path


class OtherShelf(Shelf):
    asked: ClassVar[list[object]] = []


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Make entry points of names and the values, in the place of the installed ones."""

    def declare(**places: str) -> None:
        points = [EntryPoint(name, value, addresses.GROUP) for name, value in places.items()]
        monkeypatch.setattr(addresses, "entry_points", lambda group: points)
        addresses._declared.cache_clear()
        Shelf.asked.clear()
        OtherShelf.asked.clear()

    monkeypatch.setattr(addresses, "Shelf", Shelf, raising=False)
    monkeypatch.setattr(addresses, "OtherShelf", OtherShelf, raising=False)
    yield declare
    addresses._declared.cache_clear()


def test_a_scheme_has_its_reader_and_others_have_the_general_one(declared: Callable[..., None]) -> None:
    declared(any="recorder.read.addresses:Shelf", tape="recorder.read.addresses:OtherShelf")
    assert mirror("s3://bucket/set", Path("cache"), 5, {"key": 1}) == Path("shelf")
    assert mirror("tape://deck/set") == Path("shelf")
    assert Shelf.asked == [("s3://bucket/set", Path("cache"), 5, {"key": 1})]
    assert OtherShelf.asked == [("tape://deck/set", None, addresses.BYTES, None)]


def test_a_file_beside_a_mark_is_fetched_and_no_other(declared: Callable[..., None], tmp_path: Path) -> None:
    declared(any="recorder.read.addresses:Shelf")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / MARK).write_text(json.dumps({"address": "s3://bucket/set"}))
    inside, outside = tmp_path / "set" / "data" / "a.mp4", tmp_path / "b.mp4"
    assert [fetched(path) for path in (inside, outside)] == [inside, outside]
    assert Shelf.asked == [inside]


def test_an_address_without_a_reader_names_the_plug_in(declared: Callable[..., None]) -> None:
    declared()
    with pytest.raises(SourceError, match="read by the plug-in rlenv_formats, which is not installed here"):
        mirror("hf://datasets/lerobot/pusht")
    declared(any="no_such_module:reader")
    with pytest.raises(SourceError, match="no_such_module"):
        mirror("hf://datasets/lerobot/pusht")


def test_addresses_are_told_from_paths() -> None:
    texts = ("hf://a/b", "s3://b", "https://h/x", "/a/b", "a:b", "C:/x", "./x")
    assert [is_address(text) for text in texts] == [True, True, True, False, False, False, False]
