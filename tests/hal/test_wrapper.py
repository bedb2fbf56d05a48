"""What is around a robot is whatever that robot is: no wrapper may forget a part of it."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import (
    Automatic,
    Guard,
    Homing,
    WithCameras,
)
from hal.wrapper import OPTIONAL_MEMBERS, RobotWrapper, inner_robots
from real.client.cameras import RemoteCameras
from rlenv_robot.recording.controller_log import LoggedRobot
from tests.fakes import Everything

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hal", "sim", "real", "recorder", "rlenv_robot")


class Bare:
    """A robot and nothing else."""

    spec, reset, step = Everything.spec, Everything.reset, Everything.step
    stop, close, _robot_state, __init__ = (
        Everything.stop,
        Everything.close,
        Everything._robot_state,
        Everything.__init__,
    )


WRAPPERS: dict[type[RobotWrapper], Callable[[Any], RobotWrapper]] = {
    RobotWrapper: RobotWrapper,
    Guard: Guard,
    Homing: lambda robot: Homing(robot, Automatic()),
    WithCameras: lambda robot: WithCameras(robot, ()),
    LoggedRobot: lambda robot: LoggedRobot(robot, lambda *_: None, lambda: None, lambda _: None),
    RemoteCameras: RemoteCameras,
}
OWN = {
    *((Homing, name) for name in ("reset", "step", "last_reset", "judge")),  # its step comes after its reset
    *((kind, "guarded") for kind in (Guard, Homing)),
    *((LoggedRobot, name) for name in ("streams", "stream_to")),
}
"""What these do in their own way: one resets and asks, another guards, another writes down."""

ASKED: dict[str, Callable[[Any], Any]] = {
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
    "simulated": lambda robot: robot.simulated,
    "guarded": lambda robot: robot.guarded,
    "last_reset": lambda robot: robot.last_reset,
    "judge": lambda robot: robot.judge("is it in the box?", 5.0),
}
NOTHING = {
    "streams": (), "stream_to": None, "arm_watchdog": False, "disarm_watchdog": None, "simulated": False,
    "guarded": False, "last_reset": None, "judge": None,
}  # fmt: skip
"""What they say of a robot that is nothing besides."""


def _pairs(members: Mapping[str, Any]) -> list[Any]:
    pairs = [(kind, member) for kind in WRAPPERS for member in members if (kind, member) not in OWN]
    return [pytest.param(kind, member, id=f"{kind.__name__} {member}") for kind, member in pairs]


@pytest.mark.parametrize(("kind", "member"), _pairs(ASKED))
def test_all_that_a_robot_is_besides_is_passed_on(kind: type[RobotWrapper], member: str) -> None:
    plain, inner = Everything(), Everything()
    assert ASKED[member](WRAPPERS[kind](inner)) == ASKED[member](plain)
    assert inner.calls == plain.calls


@pytest.mark.parametrize(("kind", "member"), _pairs(NOTHING))
def test_a_robot_that_is_nothing_besides_stays_so(kind: type[RobotWrapper], member: str) -> None:
    inner = Bare()
    assert ASKED[member](WRAPPERS[kind](inner)) == NOTHING[member]
    assert inner.calls == []


def test_nothing_that_is_passed_on_is_left_out_here() -> None:
    public = {name for name in vars(RobotWrapper) if not name.startswith("_")}
    assert public - {"unwrapped"} == ASKED.keys()
    assert set(OPTIONAL_MEMBERS) <= ASKED.keys()


def test_defaults_for_a_robot_without_optional_members() -> None:
    wrapper = RobotWrapper(Bare())
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


def test_every_wrapper_is_in_this_test() -> None:
    wrappers = {each for package in PACKAGES for each in _classes(package) if issubclass(each, RobotWrapper)}
    assert wrappers == WRAPPERS.keys()


def test_what_takes_a_robot_and_is_one_is_made_from_around() -> None:
    """Found by what it looks like: made of a robot, and stepped by a command as one."""
    found = []
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ClassDef) and _takes_a_robot(node) and _steps_as_one(node):
                    found.append((node.name, [getattr(base, "id", "") for base in node.bases]))
    assert ("WithCameras", ["RobotWrapper"]) in found, "the search finds less than there is"
    assert {name for name, bases in found if bases != ["RobotWrapper"]} == {"RobotWrapper"}


def _takes_a_robot(node: ast.ClassDef) -> bool:
    made = _method(node, "__init__")
    words = [] if made is None else [ast.unparse(each.annotation) for each in made.args.args if each.annotation]
    return any(word.endswith("Robot") for word in words)


def _steps_as_one(node: ast.ClassDef) -> bool:
    step = _method(node, "step")
    return step is not None and [each.arg for each in step.args.args] == ["self", "command"]


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == name), None)


def test_what_is_inside_is_found() -> None:
    robot = Everything()
    guard = Guard(robot)
    assert list(inner_robots(Homing(guard, Automatic()))) == [guard, robot]
    assert list(inner_robots(robot)) == []
    assert Homing(guard, Automatic()).unwrapped is guard.unwrapped is robot


def _classes(package: str) -> Iterator[type]:
    """All classes of the modules that need no extra."""
    paths = importlib.import_module(package).__path__
    names = [
        package,
        *(each.name for each in pkgutil.walk_packages(paths, f"{package}.") if "__main__" not in each.name),
    ]
    for name in names:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for each in vars(module).values():
            if inspect.isclass(each) and each.__module__ == name:
                yield each
