"""The policy file ``NAME.toml``."""

from __future__ import annotations

from pathlib import Path

import pytest

from hal import ProfileError, RobotError
from rlenv_policy_servers.client import ServerPolicy
from rlenv_policy_servers.policy_file import parse_address, read_policy_file, read_token
from rlenv_robot.policies.chunks import ChunkPredictor
from rlenv_robot.policies.policy import load_policy

GOOD = """
server = "openpi://127.0.0.1:8000"
horizon = 25
prompt = "lift the cube"

[[observation]]
key = "observation/state"
field = "joint_position"
elements = ["pan", 1]
unit = "deg"

[[observation]]
key = "observation/image"
field = "overhead_image"
size = [224, 224]

[[action]]
key = "actions"
field = "joint_target"
theirs = [0, 100]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "policy.toml"
    path.write_text(text)
    return path


def test_a_file_is_a_policy_that_predicts_chunks(tmp_path: Path) -> None:
    policy = load_policy(written(tmp_path, GOOD))
    assert isinstance(policy, ServerPolicy)
    assert isinstance(policy, ChunkPredictor)
    assert policy.length == 25
    assert policy.settings.observation[0].elements == ("pan", 1)
    assert policy.settings.action[0].theirs == (0, 100)
    policy.close()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("openpi://127.0.0.1:8000", "http://x", "server: is 'http://x', allowed are openpi://HOST:PORT, openpis://"),
        ("horizon = 25", "horizon = 0", "horizon: is 0, it must be 1 to 1000"),
        ("horizon = 25", "", "horizon"),
        ('prompt = "lift the cube"', 'promt = "x"', "promt: is unknown; did you mean 'prompt'"),
        ('unit = "deg"', 'unit = "turns"', r"observation\[0\].unit: is 'turns', allowed are '', 'deg'"),
        ('prompt = "lift the cube"', 'prompt = "x"\nprompt_field = "y"', "give one of them"),
        ('prompt = "lift the cube"', "timeout_s = 0.0", "timeout_s: is 0.0, it must be above 0"),
        ('[[action]]\nkey = "actions"\nfield = "joint_target"\ntheirs = [0, 100]', "", "belong together"),
        ("server =", "server", "is not TOML"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(ProfileError, match=words):
        read_policy_file(written(tmp_path, GOOD.replace(old, new)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RobotError, match="can't be read"):
        read_policy_file(tmp_path / "none.toml")


def test_addresses_have_the_makers_ports() -> None:
    assert str(parse_address("openpi://localhost")) == "openpi://localhost:8000"
    assert str(parse_address("groot://[::1]:7/")) == "groot://[::1]:7"
    assert parse_address("lerobot://10.0.0.7").port == 8080
    for wrong in ("openpi://", "openpi://a:99999", "openpi://a/b", "groot://a b", "x"):
        with pytest.raises(ValueError, match="allowed are"):
            parse_address(wrong)


def test_tokens_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("secret\n")
    with pytest.raises(RobotError, match="can be read by other users; run chmod 600"):
        read_token(path)
    path.chmod(0o600)
    assert read_token(path) == "secret"
    monkeypatch.setenv("OUR_TOKEN", "other")
    assert read_token(variable="OUR_TOKEN") == "other"
    monkeypatch.setenv("OUR_TOKEN", "two words")
    with pytest.raises(RobotError, match="holds no token") as caught:
        read_token(variable="OUR_TOKEN")
    assert "two words" not in str(caught.value)
    assert read_token() == ""
