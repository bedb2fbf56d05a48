"""Wrappers pass every member of a robot on: no wrapper may forget one."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from hal import Automatic, Field, Guard, Homing, RobotSpec, Spec, Streaming, StreamSpec, WithCameras, WithSensors
from hal.cameras.image_sensors import WithImageSensors
from hal.wrapper import OPTIONAL_MEMBERS, RobotWrapper, inner_robots, pass_on, streams_of
from real.client.cameras import RemoteCameras
from rlenv_kit.robot_probe import BoundedRobot, MotionBounds
from rlenv_operate.controller_log import LoggedRobot
from rlenv_operate.teleop.latency.chain import StampedDriver
from rlenv_power_cut.trial_host import HangingRobot
from rlenv_robot.cli.demo.virtual_time import VirtualTime
from rlenv_vision.tag_wrapper import WithCubeTags
from rlenv_vision.tags import CubePose, TagDetector
from sim.robot import SimRobot
from sim.robots.so101 import so101
from tests.fakes import Everything
from tests.house.house import SOURCES, modules

PACKAGES = sorted({name.partition(".")[0] for name in modules()})


class Bare:
    """A robot without optional members."""

    spec, reset, step = Everything.spec, Everything.reset, Everything.step
    stop, close, _robot_state, __init__ = (
        Everything.stop,
        Everything.close,
        Everything._robot_state,
        Everything.__init__,
    )


class Steady:
    """Finds the cube at one place, whatever the images."""

    cameras: tuple[str, ...] = ()

    def measure(self, images: Mapping[str, Any]) -> CubePose:
        return CubePose(np.zeros(3), np.array([1.0, 0, 0, 0]), 0.0, 1, 0)


STEADY = cast(TagDetector, Steady())


def _with_cube(spec: RobotSpec) -> RobotSpec:
    cube = (Field("cube_position", (3,), unit="m"), Field("cube_orientation", (4,)))
    return replace(spec, sensors=Spec(spec.sensors.name, (*spec.sensors, *cube)))


WRAPPERS: dict[type[RobotWrapper], Callable[[Any], RobotWrapper]] = {
    RobotWrapper: RobotWrapper,
    Guard: Guard,
    Homing: lambda robot: Homing(robot, Automatic()),
    WithCameras: lambda robot: WithCameras(robot, ()),
    LoggedRobot: lambda robot: LoggedRobot(robot, lambda *_: None, lambda: None, lambda _: None),
    RemoteCameras: RemoteCameras,
    BoundedRobot: lambda robot: BoundedRobot(robot, MotionBounds()),
    StampedDriver: StampedDriver,
    WithImageSensors: lambda robot: WithImageSensors(robot, ()),
    WithSensors: lambda robot: WithSensors(robot, ()),
    VirtualTime: VirtualTime,
    HangingRobot: HangingRobot,
    WithCubeTags: lambda robot: WithCubeTags(
        robot, cast(TagDetector, Steady()), _with_cube(robot.spec), background=False
    ),
}
OVERRIDDEN = {
    *(
        (Homing, name) for name in ("reset", "step", "last_reset", "cancel_reset", "judge", "cancel_judge", "read")
    ),  # its step comes after its reset
    *((BoundedRobot, name) for name in ("reset", "step")),
    *((kind, "guarded") for kind in (Guard, Homing)),
    *((LoggedRobot, name) for name in ("streams", "stream_to")),
    *((WithCubeTags, name) for name in ("about", "read")),  # what it measured itself is added
    *((VirtualTime, name) for name in ("read", "simulated")),  # a simulation that is read by its steps alone
}
"""(wrapper, member) that the wrapper implements itself instead of passing the call on."""

CALLS: dict[str, Callable[[Any], Any]] = {
    "spec": lambda robot: robot.spec.name,
    "step": lambda robot: (robot.reset({}), robot.step({"to": np.ones(1, np.float32)}))[1].stamp_ns,
    "reset": lambda robot: robot.reset({"seed": 3}).stamp_ns,
    "stop": lambda robot: robot.stop("smoke"),
    "close": lambda robot: robot.close(),
    "streams": lambda robot: robot.streams,
    "stream_to": lambda robot: robot.stream_to({"current": None}),
    "about": lambda robot: robot.about()["temperature"],
    "arm_watchdog": lambda robot: robot.arm_watchdog(0.2),
    "disarm_watchdog": lambda robot: robot.disarm_watchdog(),
    "damp": lambda robot: robot.damp(),
    "read": lambda robot: (robot.reset({}), robot.read())[1].stamp_ns,
    "simulated": lambda robot: robot.simulated,
    "guarded": lambda robot: robot.guarded,
    "last_reset": lambda robot: robot.last_reset,
    "cancel_reset": lambda robot: robot.cancel_reset("nobody waits"),
    "cancel_judge": lambda robot: robot.cancel_judge(),
    "judge": lambda robot: robot.judge("is it in the box?", 5.0),
    "end_episode": lambda robot: robot.end_episode("done"),
    "hold_on_close": lambda robot: robot.hold_on_close(),
}
DEFAULTS = {
    "streams": (), "stream_to": None, "arm_watchdog": False, "disarm_watchdog": None, "simulated": False,
    "damp": False,
    "guarded": False, "last_reset": None, "cancel_reset": None, "judge": None, "cancel_judge": None,
    "end_episode": None, "hold_on_close": None,
}  # fmt: skip
"""The answers for a robot without optional members."""


def _pairs(members: Mapping[str, Any]) -> list[Any]:
    pairs = [(kind, member) for kind in WRAPPERS for member in members if (kind, member) not in OVERRIDDEN]
    return [pytest.param(kind, member, id=f"{kind.__name__} {member}") for kind, member in pairs]


@pytest.mark.parametrize(("kind", "member"), _pairs(CALLS))
def test_every_member_of_a_robot_is_passed_on(kind: type[RobotWrapper], member: str) -> None:
    plain, inner = Everything(), Everything()
    assert CALLS[member](WRAPPERS[kind](inner)) == CALLS[member](plain)
    assert inner.calls == plain.calls


@pytest.mark.parametrize(("kind", "member"), _pairs(DEFAULTS))
def test_optional_members_have_defaults_in_every_wrapper(kind: type[RobotWrapper], member: str) -> None:
    inner = Bare()
    assert CALLS[member](WRAPPERS[kind](inner)) == DEFAULTS[member]
    assert inner.calls == []


def test_every_public_member_is_tested_here() -> None:
    public = {name for name in vars(RobotWrapper) if not name.startswith("_")}
    assert public - {"unwrapped"} == CALLS.keys()
    assert set(OPTIONAL_MEMBERS) <= CALLS.keys()


def test_further_defaults_of_a_robot_without_optional_members() -> None:
    wrapper = RobotWrapper(Bare())
    assert wrapper.read() is None
    assert (wrapper.about(), wrapper.streams, wrapper.simulated) == ({}, (), False)


@pytest.mark.parametrize("missing", ["spec", "reset", "step", "stop", "close"])
def test_a_class_without_a_required_member_is_named(missing: str) -> None:
    members = {name: getattr(Everything, name) for name in ("spec", "reset", "step", "stop", "close")}
    del members[missing]
    with pytest.raises(TypeError, match=rf"test_wrapper\.MyArm .* no '{missing}'"):
        RobotWrapper(type("MyArm", (), {**members, "__module__": __name__})())


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("arm_watch_dog", "arm_watchdog"), ("stream_too", None), ("simulate", "simulated"), ("last_rest", "last_reset")],
)
def test_a_misspelt_member_is_an_error_that_names_both(typo: str, meant: str | None) -> None:
    robot = type("MyArm", (Bare,), {typo: True})()
    if meant is None:  # an ending behind a whole name is a word of its own
        RobotWrapper(robot)
        return
    with pytest.raises(TypeError, match=rf"MyArm has '{typo}'.*'{meant}'"):
        RobotWrapper(robot)


def test_a_misspelt_override_is_an_error_where_the_class_is_defined() -> None:
    with pytest.raises(TypeError, match=r"'rest'.*'reset'"):
        type("Filter", (RobotWrapper,), {"rest": lambda self, options: None})


def test_one_member_of_a_pair_alone_is_an_error() -> None:
    with pytest.raises(TypeError, match="MyArm has 'arm_watchdog' but no 'disarm_watchdog'"):
        RobotWrapper(type("MyArm", (Bare,), {"arm_watchdog": lambda self, timeout_s: True})())


def test_every_wrapper_is_tested_here() -> None:
    wrappers = {kind for package in PACKAGES for kind in _classes(package) if issubclass(kind, RobotWrapper)}
    assert wrappers == WRAPPERS.keys()


@pytest.mark.slow
def test_every_class_that_takes_a_robot_and_is_one_derives_from_the_wrapper() -> None:
    """The search looks for classes whose constructor takes a robot and whose step takes a command.

    One of them drives a robot and is none: `rlenv_kit.robot_probe.RobotProbe`.
    """
    robots = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and _takes_a_robot(node) and _steps_as_one(node):
                robots.append((node.name, [getattr(base, "id", "") for base in node.bases]))
    assert ("WithCameras", ["RobotWrapper"]) in robots, "the search misses classes"
    assert {name for name, bases in robots if bases != ["RobotWrapper"]} == {"RobotWrapper", "RobotProbe"}


def _takes_a_robot(node: ast.ClassDef) -> bool:
    constructor = _method(node, "__init__")
    arguments = [] if constructor is None else constructor.args.args
    types = [ast.unparse(argument.annotation) for argument in arguments if argument.annotation]
    return any(name.endswith("Robot") for name in types)


def _steps_as_one(node: ast.ClassDef) -> bool:
    step = _method(node, "step")
    return step is not None and [argument.arg for argument in step.args.args] == ["self", "command"]


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((member for member in node.body if isinstance(member, ast.FunctionDef) and member.name == name), None)


def test_inner_robots_are_listed_from_the_outermost_inwards() -> None:
    robot = Everything()
    guard = Guard(robot)
    assert list(inner_robots(Homing(guard, Automatic()))) == [guard, robot]
    assert list(inner_robots(robot)) == []
    assert Homing(guard, Automatic()).unwrapped is guard.unwrapped is robot


def _classes(package: str) -> Iterator[type]:
    """Yield all classes of the modules that need no extra."""
    paths = importlib.import_module(package).__path__
    submodules = [module.name for module in pkgutil.walk_packages(paths, f"{package}.")]
    names = [package, *(name for name in submodules if "__main__" not in name)]
    for name in names:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for member in vars(module).values():
            if inspect.isclass(member) and member.__module__ == name:
                yield member


# -- streams ---------------------------------------------------------------------------------------------------


IMU = StreamSpec("imu", Spec("imu", (Field("gyro", (3,)),)), 500)


def test_wrappers_pass_streams_and_sinks_on(puppet: Callable[..., Any]) -> None:
    robot, received = puppet(), []
    robot.streams, robot.stream_to = (IMU,), received.append
    wrapped = Homing(Guard(robot), Automatic())
    assert isinstance(wrapped, Streaming)
    assert streams_of(wrapped) == (IMU,)
    sinks: dict[str, Any] = {"imu": object()}
    pass_on(wrapped, sinks)
    assert received == [sinks]


def test_a_robot_without_streams_offers_none(puppet: Callable[..., Any]) -> None:
    robot = puppet()
    assert not isinstance(robot, Streaming)
    assert streams_of(robot) == ()
    assert streams_of(Guard(robot)) == ()
    pass_on(Guard(robot), {})


# -- a watchdog in the motors ------------------------------------------------------------------------------------


class WatchedArm(SimRobot):
    """Record the calls to the watchdog of its motors; a stand-in for a bus with a watchdog."""

    def __init__(self) -> None:
        super().__init__(so101(looks=False))
        self.calls: list[float | None] = []

    def arm_watchdog(self, timeout_s: float) -> bool:
        self.calls.append(timeout_s)
        return True

    def disarm_watchdog(self) -> None:
        self.calls.append(None)

    def about(self) -> Mapping[str, Any]:
        return {"bus": "quiet"}


def test_guard_and_homing_pass_the_motors_watchdog_on() -> None:
    arm = WatchedArm()
    wrapped = Homing(Guard(arm), Automatic())
    assert wrapped.arm_watchdog(0.25)
    wrapped.disarm_watchdog()
    assert arm.calls == [0.25, None]
    assert wrapped.about() == {"bus": "quiet"}


def test_a_robot_without_a_watchdog_arms_none() -> None:
    plain = Guard(SimRobot(so101(looks=False)))
    assert not plain.arm_watchdog(0.25)
    plain.disarm_watchdog()
    assert plain.about() == {}
