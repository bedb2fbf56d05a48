from __future__ import annotations

import getpass

import pytest

from rlenv_robot.config.user import user_name


@pytest.mark.parametrize("error", [KeyError("uid"), OSError("no name")])
def test_a_user_without_a_name_has_another_text(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise error

    monkeypatch.setattr(getpass, "getuser", lambda: "ana")
    assert user_name("unknown") == "ana"
    monkeypatch.setattr(getpass, "getuser", nobody)
    assert user_name("unknown") == "unknown"
