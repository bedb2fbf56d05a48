"""Names come from three places: built in, registered by a call, declared by installed packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlenv_robot.config.plugins import PluginTable, load_object, unknown_name

BUILTIN = {"arm": "collections:OrderedDict", "leg": 7}


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Put a package with one module and its entry points on the path, as an installer leaves it there."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(package: str, entries: str, source: str = "") -> None:
        (tmp_path / f"{package}.py").write_text(source)
        info = tmp_path / f"{package}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[test.group]\n{entries}\n")

    return put


def table() -> PluginTable:
    return PluginTable("limb", "test.group", BUILTIN)


def test_builtin_objects_are_imported_when_asked_for() -> None:
    assert table().load("arm").__name__ == "OrderedDict"
    assert table().load("leg") == 7


def test_registered_objects_join_the_names() -> None:
    limbs = table()
    limbs.register("tail", "collections:deque")
    assert limbs.names() == ["arm", "leg", "tail"]
    assert limbs.load("tail").__name__ == "deque"
    assert "tail" not in table(), "each table has its own names"


@pytest.mark.parametrize("name", ["", " tail", "a:b", 3])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        table().register(name, 1)


def test_taken_names_are_refused_with_their_owner(install) -> None:
    install("acme_limbs", "fin = acme_limbs:Fin")
    limbs = table()
    limbs.register("tail", 1)
    for name, owner in (("arm", "part of rlenv_robot"), ("tail", "registered"), ("fin", "the package acme_limbs 1.2")):
        with pytest.raises(ValueError, match=f"{name}' is already .*{owner}.*another name"):
            limbs.register(name, 2)


def test_a_package_declares_names(install) -> None:
    install("acme_limbs", "fin = acme_limbs:Fin", "class Fin: pass")
    limbs = table()
    assert limbs.names() == ["arm", "fin", "leg"]
    assert "acme_limbs" not in sys.modules, "only asking for the object imports the package"
    assert limbs.load("fin").__name__ == "Fin"


def test_a_broken_package_is_named_when_it_is_asked_for_and_hinders_nobody(install) -> None:
    install("torn_limbs", "stump = torn_limbs:Stump", "import no_such_library")
    install("whole_limbs", "wing = whole_limbs:Wing", "class Wing: pass")
    limbs = table()
    assert limbs.names() == ["arm", "leg", "stump", "wing"]
    assert limbs.load("wing").__name__ == "Wing"
    with pytest.raises(ValueError, match=r"'stump' is in the package torn_limbs 1.2 .*no_such_library.*Repair"):
        limbs.load("stump")


def test_two_packages_with_one_name_are_both_named(install) -> None:
    install("limbs_one", "fin = limbs_one:Fin", "class Fin: pass")
    install("limbs_two", "fin = limbs_two:Fin", "class Fin: pass")
    with pytest.raises(ValueError, match=r"limbs_one 1.2 and limbs_two 1.2: uninstall"):
        table().load("fin")


def test_a_package_cannot_take_over_a_builtin_name(install) -> None:
    install("bold_limbs", "leg = bold_limbs:Leg", "class Leg: pass")
    limbs = table()
    with pytest.warns(UserWarning, match="'leg' of the package bold_limbs 1.2 is ignored"):
        assert limbs.names() == ["arm", "leg"]
    assert limbs.load("leg") == 7


def test_an_object_is_found_by_module_and_name() -> None:
    assert load_object("pathlib:Path.cwd") == Path.cwd
    assert load_object(Path) is Path


def test_a_module_in_a_given_folder_is_found_and_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "limb_beside_the_profile.py").write_text("class Limb: pass")
    (tmp_path / "json.py").write_text("loads = None")
    before = list(sys.path)
    try:
        assert load_object("limb_beside_the_profile:Limb", tmp_path).__name__ == "Limb"
        assert load_object("json:loads", tmp_path) is not None
    finally:
        sys.path[:] = before


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("json", "write module:name"),
        ("json:", "write module:name"),
        ("my-arm:Arm", "write module:name"),
        ("no_such_module:Arm", "ModuleNotFoundError"),
        ("json:lods", "did you mean 'loads'"),
    ],
)
def test_what_cannot_be_imported_is_said(source: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as error:
        load_object(source)
    assert repr(source) in str(error.value)


def test_an_unknown_name_suggests_the_nearest() -> None:
    assert "did you mean 'arm'?" in str(unknown_name("amr", "limb", ["leg", "arm"]))
    assert "did you mean" not in str(unknown_name("xyz", "limb", ["leg", "arm"]))
