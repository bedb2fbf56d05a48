"""A policy meets the robot it is to move: in simulation, over a server, and on a virtual servo bus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rlenv_robot as rr
from hal import Automatic, Guard, Homing, RobotError, SpecMismatch
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import nominal_calibration
from hal.drivers.fitness import UnfitArm
from hal.robot import Actuation
from real import RemoteRobot, Server
from rlenv_robot.cli import main
from rlenv_robot.policies.deployment import check_deployment, deployed_spec, robot_of_training
from rlenv_robot.policies.feedback import FeedbackPolicy, load_arrays, save_arrays
from rlenv_robot.policies.policy import load_policy
from rlenv_robot.policies.reach import ReachVectors
from rlenv_robot.training.rollout import run_episode
from sim.robots.so101 import REST
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine, VirtualPort

ROOT = Path(__file__).parents[3]
DRAWN = str(ROOT / "launch" / "any_so101.toml")
STIFF = str(ROOT / "launch" / "stiff_so101.toml")


def policy_file(folder: Path, profile: str | None = None, name: str = "reach.npz") -> str:
    settings = {} if profile is None else {"profile": rr.load_profile(profile)}
    robot = robot_of_training("so101-reach", **settings)
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach", robot).save(folder / name, {"trained": "not at all"})
    return str(folder / name)


def old_file(folder: Path) -> str:
    FeedbackPolicy.zeros(ReachVectors(), "so101-reach").save(folder / "old.npz", {})
    return str(folder / "old.npz")


@contextmanager
def virtual_arm(**options: Any) -> Iterator[BusArm]:
    """The driver of an arm on a virtual bus, in the bus's own time."""
    servos = so101_servos(volts=7.4)
    arm = ServoArm(servos, pose=REST)
    port = VirtualPort(ServoLine(servos, before_request=arm.advance), on_time=arm.advance)
    driver = BusArm(port, nominal_calibration(), now=lambda: port.now_ns() / 1e9, sleep=port.sleep, **options)
    with closing(driver):
        yield driver


# -- in simulation -----------------------------------------------------------------------------------------------


def test_a_simulation_with_other_gains_refuses_a_policy_until_they_are_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "so101-reach", "--policy", policy_file(tmp_path), "--episodes", "1"]
    assert main.main(words) == 0
    assert capsys.readouterr().err == ""
    assert main.main([*words, "--profile", STIFF]) == 2
    refusal = capsys.readouterr().err
    assert "stiffness in the training 8.9, here 998" in refusal
    assert "--accept gains" in refusal
    assert main.main([*words, "--profile", STIFF, "--accept", "gains"]) == 0
    assert "accepted: gains" in capsys.readouterr().err
    assert main.main([*words, "--accept", "commands"]) == 2


def test_a_policy_of_drawn_gains_runs_on_the_nominal_simulation(tmp_path: Path) -> None:
    policy = load_policy(policy_file(tmp_path, DRAWN))
    with rr.make("so101-reach") as env:
        assert all(line.startswith("warning: delays") for line in check_deployment(policy, deployed_spec(env.world)))
    with rr.make("so101-reach", profile=rr.load_profile(DRAWN)) as env:
        assert check_deployment(policy, deployed_spec(env.world)) == []


def test_a_policy_of_an_identified_arm_runs_where_the_registers_are_the_same(tmp_path: Path) -> None:
    profile = tmp_path / "arm.toml"
    drawn = '"actuator.*.kp" = {{choice = [3.2], unit = "N m/rad"}}'
    figures = '[robot]\n{}\n[task]\nname = "so101-reach"\n[randomise]\n' + drawn
    profile.write_text(figures.format("gains = {p = 16, i = 0, d = 32, volts = 7.4}"))
    known = load_policy(policy_file(tmp_path, str(profile)))
    profile.write_text(figures.format(""))
    unknown = load_policy(policy_file(tmp_path, str(profile), "unknown.npz"))
    with virtual_arm(volts=7.4) as arm:
        declared = arm.spec
    assert not any("stiffness" in line for line in check_deployment(known, declared))
    with pytest.raises(SpecMismatch, match=r"stiffness in the training 3\.2, here 8\."):
        check_deployment(unknown, declared)


# -- on a virtual bus --------------------------------------------------------------------------------------------


def test_an_arm_with_other_registers_refuses_a_policy_before_its_port_is_opened(tmp_path: Path) -> None:
    policy = load_policy(policy_file(tmp_path))
    with virtual_arm(p=32) as arm, rr.make("so101-reach", arm) as env:
        with pytest.raises(SpecMismatch, match="p in the training 16, here 32"):
            check_deployment(policy, deployed_spec(env.world))
        assert arm.bus is None


def test_a_policy_of_drawn_gains_moves_an_arm_whose_gains_lie_in_their_range(tmp_path: Path) -> None:
    policy = load_policy(policy_file(tmp_path, DRAWN))
    with virtual_arm(p=32, volts=7.4) as arm:
        stiffness = arm.spec.actuation.gains["joint_target.gripper"]["stiffness"]  # type: ignore[union-attr]
        assert stiffness.low == pytest.approx(17.8, rel=0.01)  # BAM's figure at P = 32
        with rr.make("so101-reach", Homing(Guard(arm), Automatic()), steps=5) as env:
            notes = check_deployment(policy, deployed_spec(env.world))
            assert all(note.startswith("warning: delays") for note in notes)
            assert len(list(run_episode(env, policy, {"seed": 1}))) > 5
    with virtual_arm(p=160, volts=7.4) as arm, pytest.raises(SpecMismatch, match=r"2\.5 to 50, here 8[89]"):
        check_deployment(policy, arm.spec)


def test_an_arm_at_another_voltage_than_declared_is_not_switched_on() -> None:
    servos = so101_servos(volts=7.4)
    port = VirtualPort(ServoLine(servos))
    driver = BusArm(port, nominal_calibration(), volts=5.0, now=lambda: port.now_ns() / 1e9, sleep=port.sleep)
    with pytest.raises(UnfitArm, match="setting volts") as unfit:
        driver.reset({})
    assert {misfit.code for misfit in unfit.value.misfits} == {"declared_voltage"}
    assert all(servo.drive == "off" for servo in servos)


# -- over a server -----------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_served_arm_gives_its_gains_and_refuses_a_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rlenv_sim2real", reason="the verb manifest is in the plug-in sim2real")
    robot = rr.robot("so101", "twin")
    served = replace(robot.spec, actuation=Actuation.for_all(robot.spec.commands, {"p": 32, "volts": 7.4}))
    file = policy_file(tmp_path)
    with closing(robot), Server(_Described(robot, served), address="tcp://127.0.0.1:*") as server:
        words = ["run", "so101-reach", "--policy", file, "--robot", server.address]
        assert main.main(words) == 2
        assert "p in the training 16, here 32" in capsys.readouterr().err
        with closing(RemoteRobot(server.address, expect=robot.spec)) as remote:
            assert remote.served_spec().manifest_digest == served.manifest_digest
            assert server.about()["manifest"] == served.manifest_digest
        assert main.main(["sim2real", "manifest", file, "--robot", server.address]) == 1
        assert "refused: gains: all joints: p in the training 16, here 32" in capsys.readouterr().out


@pytest.mark.process
def test_a_server_that_comes_back_with_other_gains_is_refused() -> None:
    robot = rr.robot("so101", "twin")
    specs = [replace(robot.spec, actuation=Actuation.for_all(robot.spec.commands, {"p": p})) for p in (16, 32)]
    with closing(robot):
        with Server(_Described(robot, specs[0]), address="tcp://127.0.0.1:*") as server:
            address = server.address
            remote = RemoteRobot(address, expect=robot.spec, connect_timeout_s=5.0)
            assert remote.served_spec() == specs[0]
        changed = pytest.raises(SpecMismatch, match="p before 16, here 32")
        with Server(_Described(robot, specs[1]), address=address), closing(remote), changed:
            remote.reset({})


class _Described:
    """A robot under another description."""

    def __init__(self, robot: rr.Robot, spec: rr.RobotSpec) -> None:
        self._robot, self.spec = robot, spec

    def __getattr__(self, name: str) -> Any:
        return getattr(self._robot, name)

    def reset(self, options: Any) -> Any:
        return self._robot.reset(options)

    def step(self, command: Any) -> Any:
        return self._robot.step(command)

    def stop(self, reason: str) -> None:
        self._robot.stop(reason)

    def close(self) -> None:
        """The test closes the robot."""


# -- files -------------------------------------------------------------------------------------------------------


def test_an_old_file_is_noted_and_can_be_given_its_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rlenv_sim2real", reason="the verb manifest is in the plug-in sim2real")
    file = old_file(tmp_path)
    assert main.main(["run", "so101-reach", "--policy", file, "--episodes", "1"]) == 0
    assert "rlenv-robot sim2real manifest" in capsys.readouterr().err
    assert main.main(["sim2real", "manifest", file]) == 2
    assert main.main(["sim2real", "manifest", file, "--write", "so101", "--profile", DRAWN]) == 0
    assert "2.5 to 50" in capsys.readouterr().out
    assert load_policy(file).robot == robot_of_training("so101-reach", profile=rr.load_profile(DRAWN))  # type: ignore[attr-defined]
    assert main.main(["sim2real", "manifest", file, "--write", "so101"]) == 2
    assert main.main(["sim2real", "manifest", file, "--robot", "sim"]) == 0


def test_a_changed_manifest_is_a_damaged_file(tmp_path: Path) -> None:
    file = policy_file(tmp_path)
    header, arrays = load_arrays(file)
    header["robot"]["actuation"]["gains"]["joint_target.gripper"]["p"] = [32.0, 32.0]
    save_arrays(file, header, arrays)
    with pytest.raises(RobotError, match="digest of its manifest"):
        load_policy(file)
