"""Serving as a function: drivers of profiles, servers of scripts, and signals that end a wait at any instant."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rlenv_robot as rr
from hal import Automatic, Fixture, Guard, Homing, HomingSettings, ProfileError, Terminal
from hal.reset.command import Command
from hal.reset.fixture import Gpio
from hal.robots.so101 import SO101
from rlenv_robot.config.profile import RESET_SIGNALS, Profile, ResetSection, load_profile
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.serving import build_robot, build_server, homing_settings, reset_confirmation, serve
from sim.robot import SimRobot

PROGRAM = """
import os, random, signal, sys, time
from rlenv_robot.serving import TerminationSignals

ear, mouth = os.pipe()
if (other := os.fork()) == 0:  # sends a signal some instants after it is told to
    os.close(mouth)
    dice = random.Random(1)
    while os.read(ear, 1):
        due = time.perf_counter() + dice.uniform(0, 2e-4)
        while time.perf_counter() < due:
            pass
        os.kill(os.getppid(), dice.choice((signal.SIGINT, signal.SIGTERM)))
    os._exit(0)
os.close(ear)
for n in range(int(sys.argv[1])):
    ending = TerminationSignals()
    os.write(mouth, b"!")
    while not ending.wait(5e-5):
        pass
os.close(mouth)
os.waitpid(other, 0)
print("ended", n + 1, "times, again:", ending.wait(0))
"""


@pytest.mark.process
@pytest.mark.requirement("R6.6")
def test_a_signal_at_any_instant_of_a_wait_ends_it():
    """A thousand; an event that is set by the handler hung after some fifty."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, "1000"], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ended 1000 times, again: False\n"


# -- A driver of one's own, from a profile ------------------------------------------------------------------------

ARM = """
from rlenv_robot.robot_models import find_robot_model
from sim.robot import SimRobot

class Arm(SimRobot):
    def __init__(self, port="", kind="so101"):
        if port == "missing":
            raise OSError("no such port")
        super().__init__(find_robot_model(kind).make_sim_model(looks=False), real_time=True, teleport=False)
        self.port = port

class NoRobot:
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a driver's module, which lies on Python's path for no longer than the test."""
    (tmp_path / "arm_of_the_profile.py").write_text(ARM)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("arm_of_the_profile", None)


def profile_of(folder: Path, text: str) -> Profile:
    (folder / "lab.toml").write_text(text)
    return load_profile(folder / "lab.toml")


@pytest.mark.parametrize("kind", ["so101", "go2"])
def test_a_driver_beside_the_profile_is_guarded_and_homed(folder: Path, kind: str) -> None:
    options = f'options = {{port = "/dev/ttyACM0", kind = "{kind}"}}'
    robot = build_robot(profile_of(folder, f'[robot]\nkind = "{kind}"\ndriver = "arm_of_the_profile:Arm"\n{options}'))
    assert isinstance(robot, Homing)
    assert isinstance(robot._robot, Guard)
    assert robot.spec.name == kind
    robot.close()


DRIVER = '[robot]\ndriver = "arm_of_the_profile:Arm"\n'


@pytest.mark.parametrize(
    ("text", "key", "problem"),
    [
        ('[robot]\ndriver = "no_such_module:Arm"', "robot.driver", "No module named 'no_such_module'"),
        ('[robot]\ndriver = "arm_of_the_profile:Amr"', "robot.driver", "did you mean 'Arm'"),
        ('[robot]\ndriver = "arm_of_the_profile"', "robot.driver", "arm_of_the_profile"),
        ('[robot]\ndriver = "arm_of_the_profile:NoRobot"', "robot.driver", "expected a hal.Robot"),
        (f'{DRIVER}options = {{prot = "x"}}', "robot.options", "did you mean 'port'"),
        (f'{DRIVER}options = {{port = "missing"}}', "robot.driver", "OSError: no such port"),
        (f'{DRIVER}options = {{kind = "go2"}}', "robot.driver", "drives a 'go2', expected 'so101'"),
        (f'{DRIVER}kind = "my-arm"', "robot.kind", "the driver's robot is 'so101'"),
        (f'{DRIVER}[task]\nname = "go2-walk"', "task.name", "a task of 'go2'; the driver moves 'so101'"),
        ('[robot]\nwhere = "driver"', "robot.driver", "has no driver"),
        ('[robot]\nwhere = "my_arm:Arm"', "robot.where", "write driver = 'my_arm:Arm'"),
        ('[robot]\nkind = "so11"\nwhere = "sim"', "robot.kind", "did you mean 'so101'"),
    ],
)
def test_a_driver_that_cannot_be_served_is_one_line_with_file_and_key(
    folder: Path, text: str, key: str, problem: str
) -> None:
    profile = profile_of(folder, text)
    with pytest.raises(ProfileError, match=problem) as error:
        build_robot(profile)
    assert (error.value.file, error.value.key) == (profile.file, key)
    assert "\n" not in str(error.value)


def test_the_limits_of_a_profile_are_those_of_its_guard(folder: Path) -> None:
    guard = "[robot.guard]\nmax_velocity = {joint_target = [1, 2, 2, 2, 2, 4]}\nmax_acceleration = {joint_target = 9}\n"
    robot = build_robot(profile_of(folder, f'[robot]\nkind = "so101"\nwhere = "sim"\n{guard}'))
    limits = robot.spec.limits
    assert limits.max_velocity == {"joint_target": (1.0, 2.0, 2.0, 2.0, 2.0, 4.0)}
    assert limits.max_acceleration == {"joint_target": 9.0}
    assert limits.max_lead == SO101.limits.max_lead
    robot.close()


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("max_velocity = {joint = 1.0}", "no field 'joint'"),
        ("max_velocity = {joint_target = [1.0, 2.0]}", "max_velocity.joint_target has 2 numbers"),
        ("max_jerk = {joint_target = 1.0}", "max_jerk.joint_target needs max_acceleration.joint_target"),
        ("max_effort = {motor_current = 1.0}", "no field 'motor_current'"),
        ("keep_out = [[0, 0, 0, 1, 1, 0]]", r"keep_out\[0\] is .*, it must be the lowest x, y, z"),
    ],
)
def test_a_limit_that_does_not_fit_the_robot_is_a_mistake_in_the_profile(folder: Path, keys: str, problem: str) -> None:
    profile = profile_of(folder, f'[robot]\nkind = "so101"\nwhere = "sim"\n[robot.guard]\n{keys}\n')
    with pytest.raises(ProfileError, match=problem) as error:
        build_robot(profile)
    assert (error.value.file, error.value.key) == (profile.file, "robot.guard")


def test_the_motion_of_a_profile_is_checked_by_its_model(folder: Path) -> None:
    boxes = "keep_in = [[-0.3, -0.4, -0.02, 0.3, 0.4, 0.4]]"
    robot = build_robot(
        profile_of(folder, f'[robot]\nkind = "so101"\nwhere = "sim"\n[robot.guard]\nself_collision = true\n{boxes}\n')
    )
    assert robot.about()["guard"] == {"held_back": 0, "last": ""}
    robot.close()


def test_a_robot_without_a_model_can_not_be_checked(folder: Path) -> None:
    (folder / "own_arm.py").write_text("from tests.fakes import Puppet as Arm\n")
    text = '[robot]\nkind = "two_joints"\ndriver = "own_arm:Arm"\n[robot.guard]\nself_collision = true\n'
    with pytest.raises(ProfileError, match="no model of 'two_joints' is known; register a RobotModel") as error:
        build_robot(profile_of(folder, text))
    assert error.value.key == "robot.guard"


def test_a_robot_is_handed_in_bare_and_made() -> None:
    with pytest.raises(TypeError, match=r"expected a hal\.Robot"):
        build_robot(Profile(), SimRobot)  # type: ignore[arg-type]
    guarded = Guard(SimRobot(find_robot_model("so101").make_sim_model(looks=False)))
    with pytest.raises(ValueError, match="pass the driver itself"):
        build_robot(Profile(), guarded)
    guarded.close()


# -- Serving from a script ----------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_script_serves_its_robot_until_it_says_so(folder: Path) -> None:
    """A script does all that the command does: announced address, controller's log, reset, step, orderly end."""
    pytest.importorskip("rlenv_operate", reason="the plug-in with the controller's log is not installed")
    text = '[serve]\naddress = "tcp://127.0.0.1:*"\nwatchdog_s = 5.0\nlower_s = 0.2\nrecord = "{}"\n'
    profile = profile_of(folder, text.format((folder / "runs").as_posix()))
    over, lines = threading.Event(), queue.SimpleQueue[str]()
    model = find_robot_model("so101").make_sim_model(looks=False)
    arm = SimRobot(model, real_time=True, teleport=False)
    codes: list[int] = []

    def run() -> None:
        codes.append(serve(profile, arm, until=over, announce=lines.put))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert lines.get(timeout=30).startswith(f"recording into {folder / 'runs'}")
        address = lines.get(timeout=30).removeprefix("serving so101 (SimRobot) at ")
        with rr.make("so101-reach", robot=address, steps=3) as env:
            obs = env.reset({"seed": 1})
            while not obs["truncated"]:
                action = {"joint_target": obs["observation"]["joint_goal"]}
                obs, _ = env.step({"env_id": env.env_id, "frame_no": obs["frame_no"], "action": action})
            assert obs["extra_info"]["truncated_by"] == "time"
    finally:
        over.set()
        thread.join(60)
    assert codes == [0]
    assert lines.get(timeout=1).startswith("closing")
    (run_folder,) = filter(Path.is_dir, (folder / "runs").iterdir())
    assert list(run_folder.glob("*.mcap"))


def test_a_server_is_built_from_a_profile_without_being_started(folder: Path) -> None:
    server = build_server(profile_of(folder, f'{DRIVER}[serve]\naddress = "tcp://127.0.0.1:*"\nloop_hz = 30.0\n'))
    with pytest.raises(rr.RobotError, match="before start"):
        _ = server.address
    with server:
        assert server.address.startswith("tcp://127.0.0.1:")


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize(
    ("text", "kind", "holds"),
    [
        ("", Automatic, {}),
        ("signal = 'terminal'", Terminal, {}),
        ("signal = 'fixture'\nfixture = 'ipc://f'", Fixture, {"address": "ipc://f"}),
        ("signal = 'command'\ncommand = ['/bin/true', '-x']", Command, {"argv": ("/bin/true", "-x")}),
        ("signal = 'gpio'\ngpio_chip = '/dev/gpiochip0'\ngpio_line = 4", Gpio, {"chip": "/dev/gpiochip0", "line": 4}),
    ],
)
def test_a_profile_names_who_resets_the_scene(tmp_path: Path, text: str, kind: type, holds: dict[str, Any]) -> None:
    (tmp_path / "lab.toml").write_text(f"[reset]\n{text}\n")
    signal = reset_confirmation(load_profile(tmp_path / "lab.toml").reset)
    assert type(signal) is kind
    for name, value in holds.items():
        assert getattr(signal, name) == value
    signal.close()


BUTTON = """
from hal import Answer, Automatic

class Button(Automatic):
    def __init__(self, pin=0):
        self.pin = pin

    def ask(self, request):
        return Answer("button", f"pin {self.pin}")
"""


@pytest.fixture
def button(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A stranger's package with a reset signal: one module and one declaration, as an installer leaves them."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    info = tmp_path / "site" / "button_of_a_stranger-1.0.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "button_of_a_stranger.py").write_text(BUTTON)
    (tmp_path / "button_beside.py").write_text(BUTTON)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: button-of-a-stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[rlenv_robot.reset_signals]\nbutton = button_of_a_stranger:Button\n")
    monkeypatch.setattr(RESET_SIGNALS, "_declared", type(RESET_SIGNALS)("x", RESET_SIGNALS.group, {})._declared)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for module in ("button_of_a_stranger", "button_beside"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize("signal", ["button", "button_beside:Button"])
def test_a_strangers_signal_confirms_the_resets_of_a_served_robot(button: Path, signal: str) -> None:
    profile = profile_of(button, f"[reset]\nsignal = '{signal}'\noptions = {{pin = 4}}\n[robot]\nwhere = 'twin'\n")
    robot = build_robot(profile)
    try:
        robot.reset({})
        record = robot.last_reset
    finally:
        robot.close()
    assert (record.by, record.note) == ("button", "pin 4")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("signal = 'button'\noptions = {pan = 4}", "'pan' is unknown"),
        ("signal = 'no_such_module:Button'", "can't be imported"),
        ("signal = 'math:sqrt'\noptions = {x = 1}", "math:sqrt"),
        ("signal = 'pathlib:Path'", "has no ask, judge, close"),
        ("signal = 'bottun'", "did you mean 'button'"),
    ],
)
def test_a_signal_that_can_not_be_made_is_one_line_with_file_and_key(button: Path, text: str, problem: str) -> None:
    with pytest.raises(ProfileError, match=rf"reset.*{problem}"):
        build_robot(profile_of(button, f"[reset]\n{text}\n[robot]\nwhere = 'twin'\n"))


def test_how_it_moves_is_the_sections() -> None:
    section = ResetSection(velocity=0.5, tolerance=0.1, deadline_s=3.0, signal_deadline_s=4.0)
    assert homing_settings(section) == HomingSettings(
        velocity=0.5, tolerance=0.1, deadline_s=3.0, signal_deadline_s=4.0
    )
