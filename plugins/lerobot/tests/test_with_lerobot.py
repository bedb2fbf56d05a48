"""LeRobot's own commands drive a virtual arm that is served, in an interpreter of their own.

    RLENV_LEROBOT=/path/to/python RLENV_LEROBOT_EPISODES=50 pytest plugins/lerobot/tests/test_with_lerobot.py

That interpreter has LeRobot with its extras ``dataset`` and ``core-scripts``, rlenv-robot, and both distributions of
plugins/lerobot (docs/lerobot.md).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

import rlenv_robot as rr
from hal.robots.so101_units import JointUnits
from real import RemoteRobot
from tests.fakes import until

LEROBOT = os.environ.get("RLENV_LEROBOT", "")
EPISODES = int(os.environ.get("RLENV_LEROBOT_EPISODES", "3"))
EPISODE_S, RESET_S = 1.5, 0.5
PATIENCE_S = 240.0
"""Longest wait for a command of LeRobot, seconds: on a busy machine it takes a minute to import its packages."""

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not LEROBOT, reason="needs LeRobot: RLENV_LEROBOT names an interpreter that has it"),
]

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
POSES = ((0, -60, 60, 30, -87, 0), (20, -50, 50, 20, -80, 20), (-20, -70, 70, 40, -87, 40))
"""Poses in which the leader's person holds it, degrees."""


class Program:
    """A program whose output is kept in a file."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log, self.is_lerobots = log, LEROBOT in command or str(Path(LEROBOT).parent) in command[0]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(log.parent / "hf"), "OMP_NUM_THREADS": "1"}
        with log.open("w") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=file, stderr=subprocess.STDOUT, text=True, cwd=log.parent,
                env=environment,
            )  # fmt: skip

    @property
    def text(self) -> str:
        return self.log.read_text()

    def wait_for(self, pattern: str, seconds: float = PATIENCE_S) -> str:
        """Wait until a line of the output matches, and return its first group."""
        end_s = time.monotonic() + seconds
        while (match := re.search(pattern, self.text)) is None:
            assert time.monotonic() < end_s, f"no {pattern!r} in:\n{self.text[-3000:]}"
            assert self.process.poll() is None, f"it ended:\n{self.text[-3000:]}"
            time.sleep(0.1)
        return match[1] if match.groups() else match[0]

    def wait(self, seconds: float = PATIENCE_S) -> int:
        return self.process.wait(seconds)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        assert self.process.stdin is not None
        self.process.stdin.close()


class Lab:
    """A virtual leader and a virtual follower on serial buses, both served, and LeRobot's commands."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, list[Program]()
        pictures = folder / "pictures"
        pictures.mkdir()
        for number in range(60):
            image = np.full((120, 160, 3), 40, np.uint8)
            cv2.circle(image, (20 + 2 * number, 60), 15, (0, 200, 255), -1)
            cv2.imwrite(str(pictures / f"{number:02}.jpg"), image)
        self.hand = self._arm("leader")
        self._arm("follower")
        self.leader = self._serve("leader", "")
        self.leader_server = self.server
        self.start_follower()

    def _start(self, name: str, *command: str) -> Program:
        self.programs.append(Program(self.folder / f"{name}-{len(self.programs)}.log", *command))
        return self.programs[-1]

    def _start_arm(self, name: str, *command: str) -> Program:
        """Start a part of an arm; as on metal, it does not wait for other programs' processors, if that is allowed."""
        program = self._start(name, sys.executable, "-m", "rlenv_robot", *command)
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(program.process.pid, os.SCHED_RR, os.sched_param(41))
        return program

    def _arm(self, name: str) -> Program:
        verb = ("robot", "twin", "so101", "--bus", "--link", name, "--calibration", f"{name}.json")
        hand = ("--hand", *map(str, POSES[0])) if name == "leader" else ()
        program = self._start_arm(f"{name}-arm", *verb, *hand)
        program.wait_for(r"virtual so101 at")
        return program

    def _serve(self, name: str, more: str) -> str:
        (self.folder / f"{name}.toml").write_text(
            '[robot]\nkind = "so101"\ndriver = "feetech"\n'
            f'options = {{port = "{self.folder / name}", calibration = "{name}.json"}}\n'
            f'[serve]\naddress = "tcp://127.0.0.1:*"\ntelemetry = "tcp://127.0.0.1:*"\n{more}'
        )
        program = self._start_arm(f"{name}-server", "serve", f"{name}.toml")
        self.server = program
        return program.wait_for(r"serving so101 \(driver\) at (\S+)")

    def start_follower(self) -> None:
        camera = f'[cameras.top]\nsource = "{self.folder / "pictures"}"\nwidth = 160\nheight = 120\n'
        self.follower = self._serve("follower", camera)

    def move_hand(self, pose: tuple[float, ...]) -> None:
        assert self.hand.process.stdin is not None
        self.hand.process.stdin.write(f"hand {' '.join(map(str, pose))}\n")
        self.hand.process.stdin.flush()

    def lerobot(self, command: str, *options: str) -> Program:
        robot = ("--robot.type=rlenv", f"--robot.address={self.follower}", "--robot.robot_type=so101_follower")
        script = Path(LEROBOT).parent / command
        return self._start(command, str(script), *robot, *options)

    def record(self, name: str, episodes: int, *options: str, episode_s: float = EPISODE_S) -> Program:
        return self.lerobot(
            "lerobot-record", "--teleop.type=rlenv", f"--teleop.address={self.leader}", f"--dataset.repo_id=me/{name}",
            f"--dataset.root={self.folder / name}", "--dataset.no_stamp=true", "--dataset.push_to_hub=false",
            "--dataset.single_task=follow", "--play_sounds=false", f"--dataset.num_episodes={episodes}",
            f"--dataset.episode_time_s={episode_s}", f"--dataset.reset_time_s={RESET_S}", *options,
        )  # fmt: skip

    @contextlib.contextmanager
    def watching(self) -> Iterator[RemoteRobot]:
        with contextlib.closing(RemoteRobot(self.follower)) as robot:
            yield robot

    def state(self) -> tuple[str, str, str | None]:
        with self.watching() as robot:
            status = robot.status()
        return status["state"], status["why"], status["holder"]

    def clear(self) -> None:
        """Clear a stop of an earlier test, such as that of a driver which waited for a processor for a second."""
        with self.watching() as robot:
            status = robot.status()
            if status["state"] == "stopped":
                robot.reset({"start": "present", "clear_stop": "next test", "stop_number": status["stop_number"]})

    def close(self) -> None:
        for program in reversed(self.programs):
            program.end()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("lerobot"))
    try:
        yield lab
    finally:
        lab.close()


@pytest.fixture(autouse=True)
def clear(lab: Lab) -> Iterator[None]:
    if lab.server.process.poll() is None:
        lab.clear()
    yield
    for program in lab.programs:
        if program.is_lerobots:
            program.end()


@pytest.fixture(scope="module")
def recorded(lab: Lab) -> Path:
    """Record while the leader is moved to another pose in each episode."""
    program = lab.record("set", EPISODES)
    for number in range(EPISODES):
        program.wait_for(rf"Recording episode {number}\b")
        lab.move_hand(POSES[number % len(POSES)])
    assert program.wait() == 0, program.text[-3000:]
    return lab.folder / "set"


def read_by_lerobot(lab: Lab, folder: Path) -> dict[str, np.ndarray]:
    out = lab.folder / "read.npz"
    program = lab._start("reader", LEROBOT, str(Path(__file__).with_name("read_by_lerobot.py")), str(folder), str(out))
    assert program.wait() == 0, program.text[-3000:]
    with np.load(out) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def theirs(lab: Lab, recorded: Path) -> dict[str, np.ndarray]:
    """The recorded set as LeRobot's own reader returns it."""
    return read_by_lerobot(lab, recorded)


def test_record_writes_the_arms_angles(theirs: dict[str, np.ndarray]) -> None:
    assert str(theirs["robot_type"]) == "so101_follower"
    assert [str(name) for name in theirs["names"]] == [f"{joint}.pos" for joint in JOINTS]
    episodes = theirs["episode_index"]
    assert len(set(episodes.tolist())) == EPISODES
    frames = np.bincount(episodes)
    print(f"{EPISODES} episodes, {len(episodes)} frames, {frames.min()} to {frames.max()} in an episode")
    assert np.median(frames) >= 0.5 * 30 * EPISODE_S, "the loop was far slower than 30 frames a second"
    units = JointUnits("degrees")
    for number in range(EPISODES):
        pose = units.from_radians(np.radians(POSES[number % len(POSES)]))
        last = episodes == number
        np.testing.assert_allclose(theirs["action"][last][-1], pose, atol=0.2, err_msg=f"the leader's pose {number}")
        # Servos sag below their goals, and the last way may not be over after so short an episode.
        sag = np.abs(theirs["observation.state"][last][-1] - theirs["action"][last][-1])
        assert sag.max() < 12.0, f"episode {number}: {sag}"


def test_the_images_are_the_cameras(lab: Lab, theirs: dict[str, np.ndarray]) -> None:
    images = theirs["observation.images.top"]
    assert images.shape == (EPISODES, 3, 120, 160)
    served = np.stack([
        cv2.cvtColor(cv2.imread(str(file)), cv2.COLOR_BGR2RGB) for file in sorted((lab.folder / "pictures").glob("*"))
    ]) / 255.0  # fmt: skip
    for image in images:
        distance = np.abs(served - image.transpose(1, 2, 0)).mean(axis=(1, 2, 3))
        assert distance.min() < 0.02, f"it is none of the camera's images: {distance.min():.3f}"


def test_our_reader_reads_the_same_numbers(recorded: Path, theirs: dict[str, np.ndarray]) -> None:
    data = rr.open_source(recorded, units="degrees", keep_last=True)
    columns, _ = rr.table_columns(data.table)
    ours = {"observation.state": columns["observation"]["state"], "action": columns["action"]["target"]}
    first = {number: np.flatnonzero(theirs["episode_index"] == number) for number in range(EPISODES)}
    for number, rows in first.items():
        mine = np.flatnonzero(np.asarray(columns["episode"]) == number)[: len(rows)]
        np.testing.assert_array_equal(ours["observation.state"][mine], theirs["observation.state"][rows])
        np.testing.assert_array_equal(ours["action"][mine][:-1], theirs["action"][rows][: len(mine) - 1])


def test_replay_repeats_an_episode(lab: Lab, recorded: Path, theirs: dict[str, np.ndarray]) -> None:
    goal = theirs["action"][theirs["episode_index"] == 1][-1]
    options = ("--dataset.repo_id=me/set", f"--dataset.root={recorded}", "--dataset.episode=1", "--play_sounds=false")
    program = lab.lerobot("lerobot-replay", *options)
    assert program.wait() == 0, program.text[-3000:]
    state, why, holder = lab.state()
    assert (state, holder) == ("holding", None), why
    with lab.watching() as robot:
        held = np.asarray(robot.reset({"start": "present"}).applied["joint_target"])
    np.testing.assert_allclose(JointUnits("degrees").from_radians(held), goal, atol=0.3)


def test_teleoperate_follows_the_leader(lab: Lab) -> None:
    pose = (10, -55, 55, 25, -84, 10)
    lab.move_hand(pose)
    options = ("--teleop.type=rlenv", f"--teleop.address={lab.leader}", "--teleop_time_s=4")
    program = lab.lerobot("lerobot-teleoperate", *options)
    assert program.wait() == 0, program.text[-3000:]
    with lab.watching() as robot:
        held = np.asarray(robot.reset({"start": "present"}).applied["joint_target"])
    np.testing.assert_allclose(np.degrees(held), pose, atol=0.3)


def test_a_recorded_set_leads(lab: Lab, recorded: Path) -> None:
    options = ("--teleop.type=rlenv", f"--teleop.recorded={recorded}", "--teleop_time_s=3")
    program = lab.lerobot("lerobot-teleoperate", *options)
    assert program.wait() == 0, program.text[-3000:]


@pytest.mark.parametrize("stopper", ["button", "Ctrl-C"])
def test_a_stop_or_an_interruption_ends_lerobot_and_the_arm_holds(lab: Lab, stopper: str) -> None:
    program = lab.record(f"cut-{stopper}", 3, episode_s=20.0)
    program.wait_for(r"Recording episode 0")
    until(lambda: lab.state()[0] == "running", PATIENCE_S)
    time.sleep(1.0)
    if stopper == "button":
        with lab.watching() as robot:
            robot.stop("a hand is in the way")
            number = robot.last_stop
    else:
        program.process.send_signal(signal.SIGINT)
    assert program.wait() != 0
    state, why, holder = lab.state()
    assert holder is None
    if stopper == "Ctrl-C":
        assert state == "holding", why
        return
    assert (state, why) == ("stopped", "a hand is in the way")
    assert "RobotStopped: the robot is stopped: a hand is in the way" in program.text
    again = lab.record("refused", 1)
    assert again.wait() != 0
    assert "a hand is in the way" in again.text
    assert lab.state()[0] == "stopped"
    cleared = lab.record("cleared", 1, "--robot.clear_stop=the hand is gone", f"--robot.stop_number={number}")
    assert cleared.wait() == 0, cleared.text[-3000:]


def test_another_client_takes_the_robot(lab: Lab) -> None:
    program = lab.record("taken", 1, episode_s=20.0)
    until(lambda: lab.state()[0] == "running", PATIENCE_S)
    with contextlib.closing(RemoteRobot(lab.follower, take="force")) as robot:
        robot.reset({"start": "present"})
        assert program.wait() != 0
        assert "ConnectionLost" in program.text
        assert lab.state()[0] in ("ready", "running")


def test_the_async_client_gets_past_discovery(lab: Lab) -> None:
    program = lab._start(
        "robot-client", LEROBOT, "-m", "lerobot.async_inference.robot_client", "--robot.type=rlenv",
        f"--robot.address={lab.follower}", "--server_address=127.0.0.1:1", "--task=follow", "--policy_type=act",
        "--pretrained_name_or_path=none", "--actions_per_chunk=10", "--policy_device=cpu",
    )  # fmt: skip
    program.wait()
    assert "Robot connected and ready" in program.text, program.text[-3000:]
    assert "Failed to connect to policy server" in program.text, program.text[-3000:]


def test_the_server_dies(lab: Lab) -> None:
    program = lab.record("dead", 1, episode_s=20.0)
    until(lambda: lab.state()[0] == "running", PATIENCE_S)
    lab.server.process.kill()
    assert program.wait() != 0
    assert "ConnectionLost" in program.text


def test_a_leader_arm_on_this_machine_leads(lab: Lab) -> None:
    lab.leader_server.end()  # the leader's port is free then
    lab.start_follower()
    pose = (-10, -65, 65, 35, -84, 20)
    lab.move_hand(pose)
    options = ("--teleop.type=rlenv", f"--teleop.leader={lab.folder / 'leader.toml'}", "--teleop_time_s=6")
    program = lab.lerobot("lerobot-teleoperate", *options)
    assert program.wait() == 0, program.text[-3000:]
    with lab.watching() as robot:
        held = np.asarray(robot.reset({"start": "present"}).applied["joint_target"])
    np.testing.assert_allclose(np.degrees(held), pose, atol=0.3)
