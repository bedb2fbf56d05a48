"""Anything that the command line names is checked: names, files, robots, environments of other projects; reports."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import rlenv_robot as rr
from hal import Guard
from plugins.kit.tests.frame_faults import NanLate
from plugins.kit.tests.plain import Sleds
from plugins.kit.tests.robot_faults import RealArm
from real import Server
from rlenv_kit import check_environment
from rlenv_kit.formats import write_report
from rlenv_kit.robot_probe import BoundedRobot, MotionBounds
from rlenv_kit.subject import subject_of
from rlenv_robot.cli import main as cli
from sim.robot import SimRobot
from sim.robots.so101 import so101

pytestmark = pytest.mark.requirement("R4.3")

Captured = pytest.CaptureFixture[str]
FAULTS = Path(__file__).with_name("robot_faults.py")


def _run(*arguments: str) -> int:
    try:
        return cli.main(list(map(str, arguments)))
    except SystemExit as over:
        return int(over.code or 0)


@pytest.mark.slow
def test_an_environment_by_name_is_checked_with_a_second_instance(capsys: Captured) -> None:
    assert _run("check", "so101-reach", "--verbose", "--steps", "10") == 0
    shown = capsys.readouterr().out
    assert "environment so101-reach: " in shown
    assert "two instances" in shown


def test_a_robot_in_a_file_is_checked_and_a_finding_reproduced(capsys: Captured) -> None:
    assert _run("check", f"{FAULTS}:OneSignIsWrong") == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILED")]
    number = line.split("#")[1].split()[0]
    assert "the sign is wrong" in line
    assert _run("check", f"{FAULTS}:OneSignIsWrong", "--reproduce", f"robot:{number}") == 1
    again = capsys.readouterr().out
    assert "the sign is wrong" in again
    assert "  step({'target':" in again


@pytest.mark.parametrize("section", ["", '[task]\nname = "so101-reach"\n'])
def test_a_profile_without_a_task_stands_for_its_driver(section: str, tmp_path: Path) -> None:
    profile = tmp_path / "arm.toml"
    where = f'kind = "arm"\nwhere = "driver"\ndriver = "{FAULTS.stem}:OneSignIsWrong"'
    (tmp_path / FAULTS.name).write_text(FAULTS.read_text())
    profile.write_text(f"{section}[robot]\n{where}\n")
    subject = subject_of(str(profile))
    assert (subject.make_environment is None) == (not section)


def test_a_real_robot_is_not_moved_without_a_confirmation(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert _run("check", f"{FAULTS}:RealArm") == 2
    shown = capsys.readouterr()
    assert "target: at most 0.2 rad from its start, at most 0.4 rad/s" in shown.out
    assert "--yes" in shown.err
    assert _run("check", f"{FAULTS}:RealArm", "--yes") == 0


def test_the_time_limit_is_said_before_a_real_robot_moves(capsys: Captured) -> None:
    assert _run("check", f"{FAULTS}:RealArm", "--yes", "--time-limit", "0.1") == 1, "not all checks were reached"
    announced, report = capsys.readouterr().out.split("ends the check", 1)
    assert "It moves for at most 0.1 s (--time-limit)" in announced
    assert "unreached" in report
    assert _run("check", f"{FAULTS}:RealArm", "--yes", "--time-limit", "-1") == 2
    assert "--time-limit is -1.0" in capsys.readouterr().err


def test_a_robot_that_is_served_on_this_machine_may_be_real(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("check", "so101-reach", "--robot", "tcp://127.0.0.1:1") == 2
    assert "confirm its motion with --yes" in capsys.readouterr().err


def test_bounds_hold_whatever_is_commanded() -> None:
    robot = BoundedRobot(RealArm(), MotionBounds(travel=0.05, speed=0.1))
    state = robot.reset({"seed": 0, "start": {"target": (1.5, 1.5, 1.5)}})
    home = state.applied["target"]
    before = home
    for _ in range(200):
        state = robot.step({"target": robot.spec.commands["target"].bounds[1]})
        assert (abs(state.applied["target"] - before) <= 0.4 / 50 + 1e-6).all(), "faster than 0.1 of 4 rad a second"
        before = state.applied["target"]
    assert (abs(before - home) <= 0.05 * 4 + 1e-6).all(), "farther than 0.05 of 4 rad"


def test_reports_are_written_in_each_format(tmp_path: Path) -> None:
    reports = [check_environment(NanLate, name="<sleds>"), check_environment(Sleds)]
    for ending in ("txt", "json", "xml", "html"):
        write_report(tmp_path / f"report.{ending}", reports)
    plain = json.loads((tmp_path / "report.json").read_text())
    assert [report["passed"] for report in plain] == [False, True]
    (finding,) = [check for check in plain[0]["checks"] if check["passed"] is False]
    assert finding["clause"] == "6.2.2.2-4 6.2.3.1-T1 6.2.3.3-T3"
    assert finding["calls"]
    suites = ElementTree.parse(tmp_path / "report.xml").getroot()
    assert [suite.get("failures") for suite in suites] == ["1", "0"]
    assert len(suites.findall(".//failure")) == 1
    assert "&lt;sleds&gt;" in (tmp_path / "report.html").read_text()
    assert "FAILED" in (tmp_path / "report.txt").read_text()
    with pytest.raises(ValueError, match=r"\.html"):
        write_report(tmp_path / "report.pdf", reports)


def test_what_is_no_environment_is_named() -> None:
    with pytest.raises(TypeError, match="makes a P"):
        subject_of("pathlib:Path")
    with pytest.raises(ValueError, match="no file"):
        subject_of("nowhere.py:make")


# -- other projects ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_gymnasiums_own_environments_are_not_accused(name: str) -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="needs Gymnasium: the extra gym")
    from rlenv_bridges.from_gymnasium import from_gymnasium

    check_environment(lambda: from_gymnasium(gymnasium.make(name)), name=name).raise_if_failed()


def _point() -> type[Any]:
    gymnasium = pytest.importorskip("gymnasium", reason="needs Gymnasium: the extra gym")
    import numpy as np

    class Point(gymnasium.Env):  # type: ignore[misc, name-defined]
        """A point on a line; ten steps."""

        observation_space = gymnasium.spaces.Box(-20, 20, (2,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.at, self.steps = self.np_random.normal(), 0
            return self.seen(), {}

        def seen(self) -> Any:
            return np.array([self.at, self.steps], np.float32)

        def step(self, action: Any) -> Any:
            self.at, self.steps = self.at + float(action[0]), self.steps + 1
            return self.seen(), self.reward(), False, self.steps >= 10, {}

        def reward(self) -> Any:
            return -abs(self.at)

    return Point


def _change(**members: Any) -> Callable[[], Any]:
    return lambda: type("Broken", (_point(),), members)()


def _unseeded(self: Any, *, seed: Any = None, options: Any = None) -> Any:
    import numpy as np

    self.at, self.steps = np.random.default_rng().normal(), 0
    return self.seen(), {}


FAULTS_OF_THEIRS: dict[str, Callable[[], Any]] = {
    "observation out of its space": _change(seen=lambda self: _array([99.0, 0.0])),
    "observation of another dtype": _change(seen=lambda self: _array([self.at, self.steps]).astype(float)),
    "observation of another shape": _change(seen=lambda self: _array([self.at])),
    "observation is a list": _change(seen=lambda self: [self.at, self.steps]),
    "observation is NaN": _change(seen=lambda self: _array([float("nan"), 0.0])),
    "reset gives no info": _change(reset=lambda self, *, seed=None, options=None: _array([0.0, 0.0])),
    "the seed does not count": _change(reset=_unseeded),
    "reset takes no seed": _change(reset=lambda self: (_array([0.0, 0.0]), {})),
    "step gives four": _change(step=lambda self, action: (_array([0.0, 0.0]), 0.0, True, {})),
    "terminated is a number": _change(step=lambda self, action: (_array([0.0, 0.0]), 0.0, 1, False, {})),
    "truncated is None": _change(step=lambda self, action: (_array([0.0, 0.0]), 0.0, False, None, {})),
    "info is a list": _change(step=lambda self, action: (_array([0.0, 0.0]), 0.0, False, False, [])),
    "reward is text": _change(reward=lambda self: "good"),
    "reward is an array": _change(reward=lambda self: _array([1.0])),
}


def _array(values: list[float]) -> Any:
    import numpy as np

    return np.array(values, np.float32)


@pytest.mark.parametrize("fault", FAULTS_OF_THEIRS)
def test_what_gymnasiums_checker_sees_is_seen(fault: str) -> None:
    """Each fault is one that `gymnasium.utils.env_checker.check_env` reports, and ours must, too."""
    pytest.importorskip("gymnasium", reason="needs Gymnasium: the extra gym")
    import warnings

    from gymnasium.utils.env_checker import check_env

    from rlenv_bridges.from_gymnasium import from_gymnasium

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            check_env(FAULTS_OF_THEIRS[fault](), skip_render_check=True)
            theirs = bool(told)
        except Exception:
            theirs = True
    assert theirs, "their checker sees nothing, so this fault compares nothing"
    assert not check_environment(lambda: from_gymnasium(FAULTS_OF_THEIRS[fault]())).passed


def test_the_point_is_a_good_environment_for_both() -> None:
    pytest.importorskip("gymnasium", reason="needs Gymnasium: the extra gym")
    from gymnasium.utils.env_checker import check_env

    from rlenv_bridges.from_gymnasium import from_gymnasium

    check_env(_point()(), skip_render_check=True)
    check_environment(lambda: from_gymnasium(_point()())).raise_if_failed()


def test_a_folder_of_runs_and_a_batch_are_checked_by_the_command(tmp_path: Path, capsys: Captured) -> None:
    runs = tmp_path / "runs"
    with rr.make("so101-reach", steps=12, record=runs) as env:
        for seed in range(3):
            table = env.reset({"seed": seed})
            while not (table["terminated"] or table["truncated"]):
                action = {"joint_target": table["observation"]["joint_goal"]}
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    assert _run("check", runs) == 0
    assert "source data" in capsys.readouterr().out
    assert _run("check", runs, "--reproduce", "source:3", "--verbose") == 0
    assert capsys.readouterr().out.count("#3 ") == 1
    assert _run("check", "so101-reach", "--vector", "2", "--reproduce", "batch:3") == 0
    assert "batch so101-reach: 1 passed" in capsys.readouterr().out
    assert _run("check", "go", "--vector", "2") == 2
    assert "can't be checked" in capsys.readouterr().err


@pytest.mark.slow
def test_a_robot_behind_keys_is_checked(tmp_path: Path, capsys: Captured) -> None:
    server, laptop = tmp_path / "server", tmp_path / "laptop"
    key = _key(capsys, "new", server)
    mine = _key(capsys, "new", laptop, "--server", key)
    assert _run("robot", "keys", "allow", server, mine, "--role", "operate", "--name", "laptop") == 0
    with Server(Guard(SimRobot(so101(looks=False))), keys=server, lockstep=True) as served:
        where = ("--robot", served.address, "--yes", "--steps", "5", "--reproduce", "robot:4")
        assert _run("check", "so101-reach", *where, "--keys", laptop) == 0
        assert "1 passed, 0 failed" in capsys.readouterr().out
        assert _run("check", "so101-reach", *where, "--keys", tmp_path / "nobody") != 0


def _key(capsys: Captured, *arguments: object) -> str:
    capsys.readouterr()
    assert _run("robot", "keys", *map(str, arguments)) == 0
    return capsys.readouterr().out.split()[-1]
