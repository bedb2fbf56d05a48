"""``rlenv-robot robot keys``, and a robot reached with what it makes."""

import re

import pytest

import rlenv_robot as rr
from hal import Guard
from real import Server
from rlenv_robot.cli import main as cli
from sim.robot import SimRobot
from sim.robots.so101 import so101


def _run(capsys, *arguments):
    code = cli.main(["robot", "keys", *map(str, arguments)])
    told = capsys.readouterr()
    return code, told.out + told.err


def test_new_show_allow_and_then_the_arm_moves(tmp_path, capsys):
    server, laptop = tmp_path / "server", tmp_path / "laptop"
    key = _run(capsys, "new", server)[1].split()[-1]
    mine = _run(capsys, "new", laptop, "--server", key)[1].split()[-1]
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert _run(capsys, "show", server) == (0, key + "\n")
    assert _run(capsys, "allow", server, mine, "--role", "move", "--name", "laptop") == (0, "laptop may move\n")
    assert re.search(rf"laptop +move +{mine}", _run(capsys, "show", server)[1])
    with (
        Server(Guard(SimRobot(so101(looks=False))), keys=server, lockstep=True) as served,
        rr.make("so101-reach", robot=served.address, keys=laptop) as env,
    ):
        obs = env.reset({"seed": 0})
        action = {"joint_target": obs["observation"]["joint_goal"]}
        obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
        assert obs["frame_no"] == 1


def test_an_end_a_list_and_a_revocation(tmp_path, capsys):
    server, key = tmp_path / "server", "ab" * 32
    _run(capsys, "new", server)
    for words, told in (
        (("--until", "2999-12-31"), "guest may watch until 3000-01-01 00:00 UTC\n"),
        (("--until", "2999-12-31T18:30+02:00"), "guest may watch until 2999-12-31 16:30 UTC\n"),
        (("--days", "0.5"), "guest may watch until "),
    ):
        code, text = _run(capsys, "allow", server, key, "--role", "watch", "--name", "guest", *words)
        assert code == 0
        assert text.startswith(told)
    _run(capsys, "allow", server, "cd" * 32, "--role", "stop", "--name", "button")
    _, text = _run(capsys, "list", server)
    head, guest, button = text.splitlines()
    assert head.split() == ["name", "role", "since", "until", "last", "seen", "key"]
    assert re.fullmatch(rf"guest +watch +20\S+ \S+ UTC +20\S+ \S+ UTC +unknown +{key}", guest)
    assert "never ends" in button
    assert _run(capsys, "revoke", server, "guest") == (0, f"revoked: guest (watch) {key}\n")
    assert key not in _run(capsys, "list", server)[1]
    for words, problem in (
        (("allow", server, key, "--role", "move", "--name", "a", "--until", "soon"), "--until is 'soon'"),
        (("allow", server, key, "--role", "move", "--name", "a", "--until", "9999-12-31"), "--until is '9999-12-31'"),
        (("allow", server, key, "--role", "move", "--name", "a", "--until", "2020-01-01"), "has passed"),
        (("allow", server, key, "--role", "move", "--name", "a", "--days", "nan"), "--days is nan"),
        (("revoke", server, "guest"), "on it: button"),
        (("revoke", tmp_path / "nowhere", "guest"), "keys new"),
    ):
        code, text = _run(capsys, *words)
        assert code == 2, words
        assert problem in text
        assert text.count("\n") == 1


def test_mistakes_are_one_line(tmp_path, capsys):
    assert _run(capsys, "new", tmp_path)[0] == 0
    for arguments, problem in (
        (("new", tmp_path), "would lock its owner out"),
        (("show", tmp_path / "nowhere"), "No such file"),
        (("allow", tmp_path, "12", "--role", "move", "--name", "a"), "not a key"),
    ):
        code, told = _run(capsys, *arguments)
        assert code == 2
        assert problem in told
        assert told.count("\n") == 1


def test_keys_are_for_robots_on_the_network(tmp_path):
    for where in ("sim", "twin"):
        with pytest.raises(ValueError, match="keys are for a robot on the network"):
            rr.make("so101-reach", robot=where, keys=tmp_path)
