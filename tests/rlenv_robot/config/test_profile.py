"""Every mistake in a profile is told with file, key and what is allowed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hal import HomingSettings, ProfileError
from rlenv_robot.config.profile import Profile, load_profile

GOOD = """
[task]
name = "so101-reach"
options = { tolerance_m = 0.02 }
[robot]
kind = "so101"
where = "twin"
seed = 3
[reset]
signal = "fixture"
fixture = "tcp://127.0.0.1:6000"
velocity = 1
[serve]
address = "tcp://127.0.0.1:5556"
watchdog_s = 0.5
[record]
folder = "runs"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lab.toml"


@pytest.mark.requirement("R5")
def test_a_profile_is_read(file: Path) -> None:
    file.write_text(GOOD)
    profile = load_profile(file)
    assert profile.task.options == {"tolerance_m": 0.02}
    assert (profile.robot.where, profile.robot.seed) == ("twin", 3)
    assert profile.reset.velocity == 1.0
    assert type(profile.reset.velocity) is float
    assert profile.serve.watchdog_s == 0.5
    assert profile.record.folder == "runs"
    assert profile.file == str(file)


def test_an_empty_profile_is_the_defaults(file: Path) -> None:
    file.write_text("")
    assert dataclasses.replace(load_profile(file), file="defaults") == Profile()


def test_the_defaults_of_a_reset_are_homings() -> None:
    reset, homing = Profile().reset, HomingSettings()
    for name in ("velocity", "tolerance", "deadline_s", "signal_deadline_s"):
        assert getattr(reset, name) == getattr(homing, name)


@pytest.mark.parametrize(
    ("text", "key", "told"),
    [
        ("[robt]\nwhere='sim'", "robt", "is unknown; did you mean 'robot'? allowed are task, robot, reset"),
        ("[robot]\nwere='sim'", "robot.were", "is unknown; did you mean 'where'? allowed are kind, where, seed"),
        ("robot = 'sim'", "robot", "is 'sim', it must be a table: [robot]"),
        ("[robot]\nseed = 1.5", "robot.seed", "is 1.5 (float), it must be a int"),
        ("[robot]\nseed = true", "robot.seed", "is True (bool), it must be a int"),
        ("[robot]\nwhere = 3", "robot.where", "is 3 (int), it must be a str"),
        (
            "[reset]\nsignal = 'bell'",
            "reset.signal",
            "is 'bell', allowed are 'automatic', 'terminal', 'fixture', 'com",
        ),
        ("[reset]\nvelocity = 'fast'", "reset.velocity", "is 'fast' (str), it must be a float"),
        ("[reset]\nvelocity = 0", "reset.velocity", "is 0, it must be above 0"),
        ("[reset]\nvelocity = -1.0", "reset.velocity", "is -1.0, it must be above 0"),
        ("[reset]\nvelocity = nan", "reset.velocity", "is nan, it must be above 0"),
        ("[reset]\nsignal = 'fixture'", "reset.fixture", "is missing"),
        ("[reset]\nsignal = 'command'", "reset.command", "is missing: signal is 'command', so give program and"),
        ("[reset]\nsignal = 'gpio'", "reset.gpio_chip", "is missing"),
        ("[reset]\ncommand = ['a', 3]", "reset.command", "is ['a', 3], it must be a list of texts, none empty"),
        ("[reset]\ngpio_line = -1", "reset.gpio_line", "is -1, it must be 0 or above"),
        ("[reset]\nverdicts = 1", "reset.verdicts", "is 1 (int), it must be a bool"),
        ("[serve]\nwatchdog_s = false", "serve.watchdog_s", "is False (bool), it must be a float"),
        ("[task]\noptions = 3", "task.options", "is 3 (int), it must be a dict"),
        ("[record]\nfolder = ['runs']", "record.folder", "it must be a str"),
    ],
)
def test_a_mistake_is_told_with_its_key(file: Path, text: str, key: str, told: str) -> None:
    file.write_text(text)
    with pytest.raises(ProfileError) as error:
        load_profile(file)
    assert (error.value.file, error.value.key) == (str(file), key)
    assert str(error.value).startswith(f"{file}: {key}: ")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"), [(b"[robot", "not readable as TOML"), (b"\xff\xfe", "not readable as TOML")]
)
def test_what_is_no_toml_is_told(file: Path, content: bytes, told: str) -> None:
    file.write_bytes(content)
    with pytest.raises(ProfileError, match=told):
        load_profile(file)


def test_a_missing_file_is_told(file: Path) -> None:
    with pytest.raises(ProfileError, match="there is no such file; launch/ holds profiles"):
        load_profile(file)


def test_a_folder_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="not readable"):
        load_profile(tmp_path)
