"""Environments are made of names, places in modules, classes and objects; users add names of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import rlenv_robot as rr
from hal import Automatic, Homing, Spec
from hal.robots.so101 import SO101
from rlenv_robot import registry, robot_models
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.registry import find_task, register_task, robot, task
from rlenv_robot.robot_models import RobotModel, find_robot_model, load_robot_model, register_robot, robot_names
from rlenv_robot.tasks.reach import Reach
from sim.robot import SimRobot

REACH = "rlenv_robot.tasks.reach:Reach"


@pytest.fixture(autouse=True)
def own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove what a test registers when the test ends."""
    monkeypatch.setattr(registry._TASKS, "_registered", {})
    monkeypatch.setattr(robot_models._ROBOTS, "_registered", {})


@dataclass(frozen=True)
class NearReach(Reach):
    """A reach of another name."""

    @property
    def name(self) -> str:
        return "near-reach"


@pytest.mark.parametrize("name", ["so101-reach", REACH, Reach, Reach(), lambda: Reach()])
def test_a_task_comes_in_any_form(name: Any) -> None:
    with rr.make(name) as env:
        assert env.world.name == "so101-reach"
    envs = rr.make_vector(name, 2, seed=0)
    assert envs.reset()["observation"]["joint_position"].shape == (2, 6)
    envs.close()


@pytest.mark.parametrize("name", ["so101-reach", REACH, Reach])
def test_settings_reach_what_is_made_here(name: Any) -> None:
    assert task(name, tolerance_m=0.05).tolerance_m == 0.05  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="did you mean 'tolerance_m'"):
        task(name, tolerance=0.05)


def test_a_made_task_keeps_its_settings_and_takes_no_others() -> None:
    with rr.make(Reach(tolerance_m=0.07)) as env:
        assert env.world.task.tolerance_m == 0.07  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"Reach is an object already.*tolerance_m.*constructor"):
        rr.make(Reach(), tolerance_m=0.05)


def test_a_world_is_an_environment_in_any_form(slider: Any, slider_class: type) -> None:
    for name in (slider, slider_class):
        with rr.make(name) as env:
            assert env.reset()["frame_no"] == 0
    with pytest.raises(ValueError, match="no simulated robot to batch"):
        rr.make_vector(slider, 2)
    with pytest.raises(ValueError, match="environment without a robot"):
        task(slider)
    with pytest.raises(ValueError, match="leave out judge"):
        rr.make(slider, judge=Automatic())


@pytest.mark.parametrize("name", [None, 5, object(), int, "pathlib:Path"])
@pytest.mark.parametrize("call", [rr.make, lambda name: rr.make_vector(name, 2), task])
def test_what_is_no_task_is_refused_with_what_is_allowed(call: Any, name: Any) -> None:
    with pytest.raises(TypeError, match=r"neither a task nor a world.*so101-reach.*module:factory"):
        call(name)


def test_an_almost_complete_task_is_told_what_it_lacks() -> None:
    class Half:
        name, robot, observation, action, goal, state, steps = "half", "so101", *[None] * 5
        begin = command = observe = privileged = reward = terminated = lambda *_: None

        def success(self) -> None: ...

    with pytest.raises(TypeError, match=r"a Half.*it lacks .*metrics"):
        rr.make(Half())  # type: ignore[arg-type]


def test_a_registered_task_is_made_by_its_name() -> None:
    register_task("near-reach", NearReach)
    assert "near-reach" in rr.environment_names()
    with rr.make("near-reach", steps=3) as env:
        assert env.world.name == "near-reach"


def test_a_registered_task_brings_its_robot_along() -> None:
    model = RobotModel("my-arm", SO101, "sim.robots.so101:so101")
    register_task("near-reach", NearReach, robot=model)
    assert find_robot_model("my-arm") is model
    with pytest.raises(ValueError, match="'my-arm': its spec's name is 'so101'"):
        model.load_spec()
    register_task("far-reach", NearReach, robot=model)  # the same model again
    with pytest.raises(ValueError, match="robot 'my-arm' is already registered"):
        register_task("third-reach", NearReach, robot=RobotModel("my-arm", SO101))
    assert "third-reach" not in rr.environment_names(), "refused as a whole"


def test_taken_and_impossible_names_are_refused() -> None:
    with pytest.raises(ValueError, match="'so101-reach' is already part of rlenv_robot"):
        register_task("so101-reach", Reach)
    with pytest.raises(ValueError, match="are files"):
        register_task("my.xml", Reach)
    with pytest.raises(TypeError, match="factory is a Reach"):
        register_task("mine", Reach())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'so101' is already part of"):
        register_robot(RobotModel("so101", SO101))
    with pytest.raises(TypeError, match="takes a RobotModel"):
        register_robot("so101")  # type: ignore[arg-type]


# -- robots -----------------------------------------------------------------------------------------------------


class Arm(SimRobot):
    """Stands for a driver of one's own."""

    def __init__(self, port: str = "") -> None:
        super().__init__(find_robot_model("so101").make_sim_model(looks=False))
        self.port = port


def test_a_driver_is_made_of_a_model_and_its_options() -> None:
    driver = RobotModel("so101", SO101, driver=Arm).make_driver({"port": "/dev/ttyACM0"})
    assert (driver.port, driver.spec.name) == ("/dev/ttyACM0", "so101")  # type: ignore[attr-defined]
    driver.close()


@pytest.mark.parametrize(
    ("driver", "options", "problem"),
    [
        (None, {}, "has no driver"),
        ("no_such_module:Arm", {}, "ModuleNotFoundError"),
        ("pathlib:Path", {}, "expected a hal.Robot"),
        ("sys:path", {}, "is a list, expected a class or function"),
        (Arm, {"prot": 1}, "did you mean 'port'"),
        (lambda: SimRobot(find_robot_model("go2").make_sim_model()), {}, "drives a 'go2', expected 'so101'"),
    ],
)
def test_a_driver_that_cannot_be_made_is_one_clear_line(driver: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as error:
        RobotModel("so101", SO101, driver=driver).make_driver(options)
    assert "\n" not in str(error.value)


def test_a_driver_of_another_robot_of_the_same_name_is_told_so() -> None:
    arm = find_robot_model("so101").make_sim_model(looks=False)
    fields = [replace(field, high=40.0) if field.name == "joint_velocity" else field for field in SO101.sensors]
    other = replace(SO101, sensors=Spec(SO101.sensors.name, tuple(fields)))
    robot_model = RobotModel("so101", other, driver=lambda: SimRobot(arm))
    with pytest.raises(ValueError, match=r"another robot of this name: .*; give yours a name of its own$"):
        robot_model.make_driver({})


def test_an_environment_drives_a_robot_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from tests.rlenv_robot.test_registry import Arm\n"
    (tmp_path / "arm_in_the_working_folder.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    named = robot("so101", "arm_in_the_working_folder:Arm")
    assert isinstance(named, Homing), "a driver by name goes home at resets"
    named.close()
    with rr.make("so101-reach", Arm()) as env:
        assert env.reset({"seed": 0})["frame_no"] == 0


@pytest.mark.parametrize("where", [None, 3, Arm, object()])
def test_what_is_no_robot_is_refused(where: Any) -> None:
    with pytest.raises(TypeError, match=r"allowed are 'sim', 'twin', an address"):
        robot("so101", where)


def test_robot_names_are_ours_and_registered_ones() -> None:
    assert {"go2", "so101", "so101-cube"} <= set(robot_names())
    register_robot(RobotModel("my-arm", SO101))
    assert "my-arm" in robot_names()
    with pytest.raises(ValueError, match="'my-arm' has no simulation"):
        find_robot_model("my-arm").make_sim_model()


def test_a_device_belongs_to_the_engine_of_its_first_word(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def engine(*arguments: Any, **options: Any) -> str:
        asked.append((arguments[2:], options))
        return "its environments"

    engines = PluginTable("batch engine", "tests.no_such_group", {"mill": engine})
    monkeypatch.setattr(registry, "_ENGINES", engines)
    made: Any = rr.make_vector("so101-reach", 3, seed=5, device="mill:two", arrays="torch", autoreset="disabled")
    assert made == "its environments"
    assert asked == [((3, "two", "torch", {}), {"seed": 5, "autoreset": "disabled"})]
    with pytest.raises(ValueError, match="'warp:cuda:1' is in the plug-in rlenv_gpu, which is not installed here"):
        rr.make_vector("so101-reach", 3, device="warp:cuda:1")
    with pytest.raises(ValueError, match="'cuda' is unknown, allowed are 'cpu', 'mill'"):
        rr.make_vector("so101-reach", 3, device="cuda")
    with pytest.raises(ValueError, match="cameras need device='cpu'"):
        rr.make_vector("so101-reach", 3, device="mill", cameras=["overhead"])


def test_a_model_may_be_named_by_its_module() -> None:
    assert load_robot_model("tests.rlenv_robot.test_registry:OWN").name == "so101"
    with pytest.raises(ValueError, match="is a RobotSpec, expected an rlenv_robot"):
        load_robot_model("hal.robots.so101:SO101")


@pytest.mark.parametrize(
    "name", ["tests.rlenv_robot.test_registry:OWN", "os:abort", "pendulum.xml", "", "so101_follower"]
)
def test_a_name_of_data_is_a_registered_one_or_none(name: str) -> None:
    with pytest.raises(ValueError, match="is unknown"):
        find_robot_model(name)
    with pytest.raises(ValueError, match="is unknown"):
        find_task(name)


OWN = RobotModel("so101", SO101, "sim.robots.so101:so101")
