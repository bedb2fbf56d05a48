"""Every mistake in a profile is told with file, key and what is allowed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from hal import HomingSettings, ProfileError
from rlenv_robot.config.profile import Profile, load_profile, profile_schema

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = ROOT / "docs" / "profile.schema.json"
LAUNCH = ROOT / "launch"

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


@pytest.mark.requirement("R5", "5-d")
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
        ("[serve]\ndatagrams = false", "serve.datagrams", "is gone, remove it: steps go by ZeroMQ alone"),
        ("[robt]\nwhere='sim'", "robt", "is unknown; did you mean 'robot'? allowed are task, robot, reset"),
        (
            "[robot]\nwere='sim'",
            "robot.were",
            "is unknown; did you mean 'where'? allowed are kind, where",
        ),
        ("robot = 'sim'", "robot", "is 'sim', it must be a table: [robot]"),
        ("[robot]\nseed = 1.5", "robot.seed", "is 1.5 (float), it must be an integer"),
        ("[robot]\nseed = true", "robot.seed", "is True (bool), it must be an integer"),
        ("[robot]\nwhere = 3", "robot.where", "is 3 (int), it must be a string"),
        (
            "[reset]\nsignal = 'bell'",
            "reset.signal",
            "'bell' is unknown. Known are automatic, command, fixture, gpio, terminal, module:name",
        ),
        ("[reset]\nvelocity = 'fast'", "reset.velocity", "is 'fast' (str), it must be a number"),
        ("[reset]\nvelocity = 0", "reset.velocity", "is 0, it must be above 0"),
        ("[reset]\nvelocity = -1.0", "reset.velocity", "is -1.0, it must be above 0"),
        ("[reset]\nvelocity = nan", "reset.velocity", "is nan, it must be above 0"),
        ("[reset]\nsignal = 'fixture'", "reset.fixture", "is missing"),
        ("[reset]\nsignal = 'command'", "reset.command", "is missing: signal is 'command', so give program and"),
        ("[reset]\nsignal = 'gpio'", "reset.gpio_chip", "is missing"),
        ("[reset]\ncommand = ['a', 3]", "reset.command[1]", "is 3 (int), it must be a string"),
        ("[reset]\ncommand = ['']", "reset.command[0]", "is empty"),
        ("[reset]\ngpio_line = -1", "reset.gpio_line", "is -1, it must be 0 or above"),
        ("[reset]\nverdicts = 1", "reset.verdicts", "is 1 (int), it must be true or false"),
        ("[serve]\nwatchdog_s = false", "serve.watchdog_s", "is False (bool), it must be a number"),
        ("[task]\noptions = 3", "task.options", "is 3 (int), it must be a table"),
        ("[serve]\npriority = 100", "serve.priority", "is 100, it must be 0 to 99"),
        ("file = 'x.toml'", "file", "is unknown"),
        ("names_task = true", "names_task", "is unknown"),
        ("[robot.guard]\nmax_jerk = {a = 'much'}", "robot.guard.max_jerk.a", "is 'much', it must be a number above 0"),
        ("[robot.guard]\nmax_lead = {a = [1, -1]}", "robot.guard.max_lead.a", "is [1, -1], it must be a number above"),
        ("[robot.guard]\neffort_s = -1", "robot.guard.effort_s", "is -1, it must be 0 or above"),
        ("[record]\nfolder = ['runs']", "record.folder", "it must be a string"),
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


def test_a_file_without_an_end_is_no_profile() -> None:
    with pytest.raises(ProfileError, match="more than 4 MiB"):
        load_profile("/dev/zero")


def test_a_missing_file_is_told(file: Path) -> None:
    with pytest.raises(ProfileError, match="no such file"):
        load_profile(file)


def test_a_folder_is_no_profile(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="not readable"):
        load_profile(tmp_path)


def test_a_driver_is_served_unless_the_profile_says_otherwise(file: Path) -> None:
    file.write_text("[robot]\ndriver = 'my_arm:Arm'\noptions = {port = '/dev/ttyACM0'}")
    robot = load_profile(file).robot
    assert (robot.where, robot.driver, robot.options) == ("driver", "my_arm:Arm", {"port": "/dev/ttyACM0"})
    file.write_text("[robot]\ndriver = 'my_arm:Arm'\nwhere = 'sim'")
    assert load_profile(file).robot.where == "sim", "the simulation, because its word stands there"


def test_reading_profiles_is_what_imports_the_validator() -> None:
    code = "import sys, rlenv_robot.config.profile; assert 'pydantic' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- the JSON schema ----------------------------------------------------------------------------------------------


def test_the_schema_in_the_docs_is_the_profiles() -> None:
    stored = json.loads(SCHEMA.read_text(encoding="utf-8"))
    current = json.loads(json.dumps(profile_schema()))
    assert stored == current, "run: rlenv-robot dev profile --schema docs/profile.schema.json"


def test_the_schema_knows_every_key_with_a_description() -> None:
    schema = profile_schema()
    assert list(schema["properties"]) == [
        field.name for field in dataclasses.fields(Profile) if not field.metadata.get("internal")
    ]
    for name, part in schema["$defs"].items():
        assert part["additionalProperties"] is False, name
        for key, value in part["properties"].items():
            assert value.get("description"), f"{name}.{key}"


@pytest.mark.parametrize("profile", sorted(LAUNCH.glob("*.toml")), ids=lambda path: path.name)
def test_our_profiles_name_the_schema(profile: Path) -> None:
    first = profile.read_text(encoding="utf-8").splitlines()[0]
    assert (profile.parent / first.removeprefix("#:schema ")).resolve() == SCHEMA
    load_profile(profile)
