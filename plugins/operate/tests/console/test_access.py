"""Tokens and origins: a stranger is refused whichever way in it tries."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from real.protocol import keys
from real.protocol.keys import Role, allow
from rlenv_operate.console.access import Origins, Tokens, Visitor, is_loopback, new_token, revoke_token


def test_a_token_admits_with_its_name_and_role(tmp_path: Path) -> None:
    made = {role: new_token(tmp_path / "tokens", f"p-{role}", role) for role in Role}
    tokens = Tokens(tmp_path / "tokens")
    assert tokens.own is None
    for role, token in made.items():
        visitor = tokens.admit(token)
        assert visitor is not None
        assert (visitor.name, visitor.role) == (f"p-{role}", role)
    assert len(set(made.values())) == 4
    listed = (tmp_path / "tokens" / "allowed.keys").read_text()
    assert not any(token in listed for token in made.values())


@given(st.text(max_size=200))
def test_any_other_text_is_refused(text: str) -> None:
    tokens = Tokens(None)
    assert tokens.own is not None
    assert tokens.admit(text) is None
    assert tokens.admit(tokens.own + text[:1]) is None or not text


def test_a_revoked_or_expired_token_loses_its_rights_while_a_page_is_open(tmp_path: Path) -> None:
    token = new_token(tmp_path, "guest", Role.WATCH)
    tokens = Tokens(tmp_path)
    visitor = tokens.admit(token)
    assert visitor is not None
    new_token(tmp_path, "other", Role.MOVE)
    assert revoke_token(tmp_path, "guest") == 1
    assert tokens.current(visitor) is None
    assert tokens.admit(token) is None
    until = datetime.now(UTC) + timedelta(seconds=30)
    short = new_token(tmp_path, "short", Role.OPERATE, until)
    assert tokens.admit(short) is not None
    assert Tokens(tmp_path).admit(short) is not None
    with pytest.raises(ValueError, match="has passed"):
        new_token(tmp_path, "late", Role.OPERATE, datetime.now(UTC) - timedelta(seconds=30))


def test_a_name_is_on_the_list_once(tmp_path: Path) -> None:
    new_token(tmp_path, "ann", Role.OPERATE)
    with pytest.raises(ValueError, match="has a 'ann' already"):
        new_token(tmp_path, "ann", Role.STOP)
    assert len((tmp_path / "allowed.keys").read_text().splitlines()) == 1
    revoke_token(tmp_path, "ann")
    assert new_token(tmp_path, "ann", Role.STOP)


def test_a_list_without_tokens_is_refused_since_nobody_could_log_in(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="tokens new"):
        Tokens(tmp_path / "nowhere")
    (tmp_path / "allowed.keys").write_text("# nobody\n")
    with pytest.raises(ValueError, match="nobody could log in"):
        Tokens(tmp_path)


def test_a_list_that_others_can_write_admits_nobody(tmp_path: Path) -> None:
    token = new_token(tmp_path, "ann", Role.OPERATE)
    tokens = Tokens(tmp_path)
    os.chmod(tmp_path / "allowed.keys", 0o666)
    assert tokens.admit(token) is None


def test_the_token_of_a_process_is_its_own() -> None:
    first, second = Tokens(None, "ann"), Tokens(None, "ann")
    assert first.own is not None
    assert first.own != second.own
    visitor = first.admit(first.own)
    assert visitor is not None
    assert (visitor.name, visitor.role) == ("ann", Role.OPERATE)
    assert first.current(visitor) == visitor
    assert first.current(Visitor("ann", Role.OPERATE, "0" * 64)) is None


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8400", True), ("localhost:8400", True), ("[::1]:8400", True), ("LOCALHOST:8400", True),
        ("127.0.0.1", False), ("127.0.0.1:80", False), ("evil.example:8400", False),
        ("localhost.evil.example:8400", False),
        ("", False), (None, False),
    ],
)  # fmt: skip
def test_only_our_own_names_are_served(host: str | None, served: bool) -> None:
    origins = Origins(["127.0.0.1"], 8400, tls=False)
    assert origins.serves(host) is served
    assert origins.trusts(None if host is None else f"http://{host}") is served
    assert not origins.trusts(f"https://{host}")
    assert not origins.trusts("null")


def test_the_usual_port_may_be_left_out() -> None:
    origins = Origins(["arm.lab", "10.0.0.7", "fe80::1"], 443, tls=True)
    for host in ("arm.lab", "arm.lab:443", "10.0.0.7", "[fe80::1]"):
        assert origins.serves(host)
        assert origins.trusts(f"https://{host}")
    assert not origins.serves("localhost")
    assert not origins.trusts("http://arm.lab")


def test_loopback_is_this_machine_alone() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.0.1", "localhost", "::1", "[::1]"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.7", "arm.lab", "", "127.0.0.1.evil.example"))


def test_no_thread_sees_old_rights_while_another_reads_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = new_token(tmp_path, "ann", Role.OPERATE)
    tokens = Tokens(tmp_path)
    visitor = tokens.admit(token)
    assert visitor is not None
    allow(tmp_path, visitor.digest, Role.WATCH, "ann")
    read, reading, go_on = keys._read_lines, threading.Event(), threading.Event()

    def slowly(path: Path) -> list[str]:
        reading.set()
        assert go_on.wait(10)
        return read(path)

    monkeypatch.setattr(keys, "_read_lines", slowly)
    seen: list[Visitor | None] = []
    threads = [threading.Thread(target=lambda: seen.append(tokens.current(visitor))) for _ in range(2)]
    threads[0].start()
    assert reading.wait(10)
    threads[1].start()
    threads[1].join(0.2)  # it waits for the one that reads, or has seen the old rights by now
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert [one.role for one in seen if one is not None] == [Role.WATCH, Role.WATCH]
