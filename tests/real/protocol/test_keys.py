"""Key pairs and the list of clients, as files."""

import os
import stat
import string
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from real.protocol.keys import Allowed, Role, allow, last_seen, load_pair, load_server, new_pair, note_seen, revoke

KEY = "0123456789abcdef" * 4


def test_a_pair_is_made_once_and_its_secret_is_its_owners_alone(tmp_path):
    pair = new_pair(tmp_path / "a")
    assert load_pair(tmp_path / "a") == pair
    assert stat.S_IMODE(os.stat(tmp_path / "a" / "secret.key").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o700
    assert pair.secret not in repr(pair)
    with pytest.raises(ValueError, match="would lock its owner out"):
        new_pair(tmp_path / "a")
    assert load_pair(tmp_path / "a") == pair


def test_a_secret_that_others_can_read_is_refused(tmp_path):
    new_pair(tmp_path)
    (tmp_path / "secret.key").chmod(0o640)
    with pytest.raises(ValueError, match=r"mode 0640.*chmod 600"):
        load_pair(tmp_path)


@pytest.mark.parametrize("text", ["", "xyz", KEY.upper(), KEY + "0"])
def test_what_is_no_key_is_said_with_the_file(tmp_path, text):
    new_pair(tmp_path, KEY)
    assert load_server(tmp_path) == KEY
    for file, load in (("secret.key", load_pair), ("server.key", load_server)):
        (tmp_path / file).write_text(text)
        with pytest.raises(ValueError, match=f"{file} is not a key") as caught:
            load(tmp_path)
        assert text == "" or text not in str(caught.value), "a secret does not belong into a message"
    with pytest.raises(ValueError, match="the server's public key is not a key"):
        new_pair(tmp_path / "b", text)


def test_missing_files_say_what_makes_them(tmp_path):
    with pytest.raises(ValueError, match=r"No such file.*rlenv-robot robot keys new"):
        load_pair(tmp_path)
    with pytest.raises(ValueError, match="keys show"):
        load_server(tmp_path)


def test_the_list_grows_changes_and_is_taken_up(tmp_path):
    allowed = Allowed(tmp_path)
    assert allowed.find(KEY) is None
    allow(tmp_path, KEY, Role.WATCH, "tablet")
    assert allowed.refresh()
    assert allowed.find(KEY).role is Role.WATCH
    assert not allowed.refresh()
    allow(tmp_path, KEY, Role.MOVE, "tablet")
    allow(tmp_path, KEY[::-1], Role.STOP, "button")
    allowed.refresh()
    assert [(entry.role, entry.name) for entry in allowed] == [(Role.MOVE, "tablet"), (Role.STOP, "button")]
    (tmp_path / "allowed.keys").unlink()
    allowed.refresh()
    assert list(allowed) == []
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_list_that_is_damaged_later_lets_nobody_in(tmp_path):
    allow(tmp_path, KEY, Role.MOVE, "tablet")
    allowed = Allowed(tmp_path)
    (tmp_path / "allowed.keys").write_text(f"# ours\n{KEY} admin tablet\n")
    allowed.refresh()
    assert allowed.find(KEY) is None
    assert "allowed.keys, line 2: expected" in allowed.problem
    with pytest.raises(ValueError, match="line 2"):
        Allowed(tmp_path)
    with pytest.raises(ValueError, match="line 2"):
        allow(tmp_path, KEY, Role.MOVE, "tablet")


@given(st.text().filter(lambda name: not (name.isascii() and name.replace("-", "a").isalnum()) or len(name) > 64))
def test_what_a_list_takes_it_reads_back_and_the_rest_is_refused(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("list")
    if set(name) <= set("._@-" + string.ascii_letters + string.digits) and 0 < len(name) <= 64:
        allow(folder, KEY, Role.MOVE, name)
        assert [entry.name for entry in Allowed(folder)] == [name]
    else:
        with pytest.raises(ValueError, match="1 to 64 Latin letters"):
            allow(folder, KEY, Role.MOVE, name)


# -- ends, revocations, writers ---------------------------------------------------------------------------------

NOW_S = 1_800_000_000.0


def test_a_key_ends_at_its_time_and_a_clock_that_was_set_back_revives_none(tmp_path):
    until = datetime.fromtimestamp(NOW_S + 60, UTC)
    allow(tmp_path, KEY, Role.MOVE, "guest", until, now=lambda: NOW_S)
    allow(tmp_path, KEY[::-1], Role.MOVE, "desk", now=lambda: NOW_S)
    clock = [NOW_S]
    allowed = Allowed(tmp_path, now=lambda: clock[0])
    (guest, desk) = allowed
    assert (guest.since, guest.until) == (datetime.fromtimestamp(NOW_S, UTC), until)
    assert desk.until is None
    for at_s, valid in ((0, True), (59.9, True), (60, False), (1e6, False), (-1, False)):
        clock[0] = NOW_S + at_s
        assert (allowed.find(KEY) is not None) is valid, at_s
        assert (allowed.refusal(KEY) is None) is valid, at_s
        assert allowed.find(KEY[::-1]) == desk
    with pytest.raises(ValueError, match="has passed"):
        allow(tmp_path, KEY, Role.MOVE, "guest", until, now=lambda: NOW_S + 61)
    with pytest.raises(ValueError, match="no time zone"):
        allow(tmp_path, KEY, Role.MOVE, "guest", datetime(2100, 1, 1), now=lambda: NOW_S)


def test_lists_of_earlier_versions_and_comments_stay(tmp_path):
    (tmp_path / "allowed.keys").write_text(f"# the desk's\n{KEY} move desk\n\n{KEY[::-1]} stop button\n")
    (tmp_path / "allowed.keys").chmod(0o600)
    entries = {entry.name: entry for entry in Allowed(tmp_path)}
    assert entries["desk"].since is None
    assert entries["desk"].until is None
    allow(tmp_path, KEY, Role.WATCH, "desk", now=lambda: NOW_S)
    revoke(tmp_path, "button")
    lines = (tmp_path / "allowed.keys").read_text().splitlines()
    assert lines == ["# the desk's", f"{KEY} watch desk since=2027-01-15T08:00:00Z", ""]


@pytest.mark.parametrize(
    "words", ["until=soon", "until=", "since", "till=2027-01-01", "2027-01-01", "until=2027-13-01"]
)
def test_a_line_with_anything_else_is_damaged(tmp_path, words):
    (tmp_path / "allowed.keys").write_text(f"{KEY} move desk {words}\n")
    (tmp_path / "allowed.keys").chmod(0o600)
    with pytest.raises(ValueError, match="line 1"):
        Allowed(tmp_path)


def test_a_name_is_revoked_with_all_its_keys(tmp_path):
    allow(tmp_path, KEY, Role.MOVE, "laptop")
    allow(tmp_path, KEY[::-1], Role.WATCH, "laptop")
    allow(tmp_path, "a" * 64, Role.STOP, "button")
    with pytest.raises(ValueError, match=r"no client 'desk' is on the list .*: button, laptop"):
        revoke(tmp_path, "desk")
    assert {entry.key for entry in revoke(tmp_path, "laptop")} == {KEY, KEY[::-1]}
    assert [entry.name for entry in Allowed(tmp_path)] == ["button"]
    assert [entry.name for entry in revoke(tmp_path, "a" * 64)] == ["button"]
    with pytest.raises(ValueError, match="on it: nobody"):
        revoke(tmp_path, "button")


def test_what_others_can_write_is_refused_with_the_command_that_mends_it(tmp_path):
    folder = tmp_path / "keys"
    new_pair(folder, KEY)
    allow(folder, KEY, Role.MOVE, "desk")
    allowed = Allowed(folder)
    for path, loads in (
        (folder / "server.key", [load_server]),
        (folder / "allowed.keys", [Allowed, lambda at: allow(at, KEY, Role.MOVE, "a"), lambda at: revoke(at, "desk")]),
        (folder, [load_pair, load_server, Allowed, lambda at: revoke(at, "desk")]),
    ):
        before = stat.S_IMODE(path.stat().st_mode)
        for mode in (0o020, 0o002):
            path.chmod(before | mode)
            for load in loads:
                with pytest.raises(ValueError, match=f"so others can .* run chmod go-w {path}$"):
                    load(folder)
            if Allowed in loads:
                allowed.refresh()
                assert allowed.find(KEY) is None, "a running server lets nobody in either"
        path.chmod(before)
        for load in (load_pair, load_server, Allowed):
            load(folder)
        allowed.refresh()
        assert allowed.find(KEY) is not None
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(ValueError, match=r"chmod go-w"):
        new_pair(shared)
    assert list(shared.iterdir()) == [], "no secret is written there"


ALLOW = """
import sys
from real.protocol.keys import Role, allow
sys.stdin.readline()
for number in range(10):
    allow(sys.argv[1], f"{int(sys.argv[2]) * 10 + number:064x}", Role.WATCH, f"client-{sys.argv[2]}-{number}")
"""


@pytest.mark.process
def test_allows_of_many_processes_at_once_are_all_kept(tmp_path):
    processes = [
        subprocess.Popen([sys.executable, "-c", ALLOW, tmp_path, str(number)], stdin=subprocess.PIPE)
        for number in range(6)
    ]
    for process in processes:
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    assert {entry.name for entry in Allowed(tmp_path)} == {f"client-{p}-{n}" for p in range(6) for n in range(10)}
    assert [path.name for path in tmp_path.iterdir()] == ["allowed.keys"], "no draft is left"


def test_the_last_connection_is_remembered_where_the_folder_can_be_written(tmp_path):
    assert last_seen(tmp_path, KEY) is None
    note_seen(tmp_path, KEY)
    assert abs(last_seen(tmp_path, KEY).timestamp() - time.time()) < 60
    note_seen(tmp_path / "nowhere", KEY)
    assert last_seen(tmp_path / "nowhere", KEY) is None
