from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from recorder.user import cache_folder, data_folder, user_name


def test_folders_are_those_of_the_xdg_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))
    assert (cache_folder(), data_folder()) == (tmp_path / "c" / "rlenv-robot", tmp_path / "d" / "rlenv-robot")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "rlenv-robot"
    assert data_folder() == tmp_path / ".local" / "share" / "rlenv-robot"


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no name")])
def test_a_user_without_a_name_has_another_text(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", lambda: "ana")
    assert user_name("unknown") == "ana"
    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_name("unknown") == "unknown"
