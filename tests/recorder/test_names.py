from __future__ import annotations

from pathlib import Path

import pytest

from recorder.names import cache_folder, data_folder


def test_folders_are_those_of_the_xdg_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "d"))
    assert (cache_folder(), data_folder()) == (tmp_path / "c" / "rlenv-robot", tmp_path / "d" / "rlenv-robot")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "rlenv-robot"
    assert data_folder() == tmp_path / ".local" / "share" / "rlenv-robot"
