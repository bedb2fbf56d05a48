"""Key pairs and the list of clients, as files."""

import os
import stat
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from real.protocol.keys import Allowed, Role, allow, load_pair, load_server, new_pair

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
    with pytest.raises(ValueError, match=r"No such file.*rlenv-robot keys new"):
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
    assert "allowed.keys, line 2: wanted is" in allowed.problem
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
