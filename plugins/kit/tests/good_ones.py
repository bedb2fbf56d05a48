"""Environments and robots that keep their contracts in styles of their own: none of them may be accused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

import rlenv_robot
from hal import EpisodeError, Field, IllegalAction, Limits, RobotSpec, RobotState, RobotStopped, Spec, Violation
from plugins.kit.tests.plain import Pair, Sleds
from plugins.kit.tests.robot_faults import Arm, RealArm, Sampled
from rlenv_robot.env import Environment
from tests.fakes import Slider


class Lists(Sleds):
    """Gives lists and plain numbers."""

    def observed(self) -> Any:
        return {name: value.tolist() for name, value in super().observed().items()}

    def extra(self) -> Any:
        return {"heat": [float(value) for value in np.abs(self.velocity)]}


class NoSeeds(Sleds):
    """Takes no options, and its chance can't be fixed."""

    def seed(self, options: Mapping[str, Any]) -> None:
        if options:
            raise ValueError(f"options are {dict(options)}, none is allowed")
        self.rng = np.random.default_rng()


class FramesGoOn(Sleds):
    """Counts frames over its life."""

    def start(self) -> None:
        super().start()
        self.first = getattr(self, "last", 0)
        self.frame_no = self.last = self.first

    def ends(self) -> Any:
        self.last = self.frame_no
        return 0, int(self.frame_no - self.first >= self.horizon)

    def observed(self) -> Any:
        return {**super().observed(), "left": np.array(20 - (self.frame_no - self.first), np.int32)}

    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        table = super().reset(options)
        self.frame_no = self.first
        return {**table, "frame_no": self.first}


class OtherErrors(Sleds):
    """Raises exceptions of its own."""

    def reset(self, options: Mapping[str, Any] = {}) -> Any:
        try:
            return super().reset(options)
        except EpisodeError as error:
            raise RuntimeError("it is closed") from error

    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        try:
            return super().step(action, extra_info)
        except EpisodeError as error:
            raise AssertionError(str(error)) from error


class ErrorsAsMapping(Sleds):
    """Tells of errors in a form of its own."""

    def refusal(self, error: Any) -> Any:
        return super().refusal({"reason": error, "severity": 2})


class AnswersAfterTheEnd(Sleds):
    """Answers a step after the end with an error."""

    def step(self, action: Any, extra_info: Any = {}) -> Any:  # noqa: B006
        if self.phase == "ended":
            table, reward = self.refusal("the episode is over")
            return {**table, "truncated": 1}, reward
        return super().step(action, extra_info)


class FrozenTables(Sleds):
    """Gives tables and arrays that nobody can write into."""

    def observed(self) -> Any:
        observed = super().observed()
        for value in observed.values():
            value.setflags(write=False)
        return MappingProxyType(observed)

    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        return {**super().table(terminated, truncated), "extra_info": {}}


class NoExtras(Sleds):
    """Has no extra information but errors, no render, and an integer reward."""

    render = None  # type: ignore[assignment]
    description = None  # type: ignore[assignment]

    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        table = super().table(terminated, truncated)
        del table["extra_info"]
        return table

    def refusal(self, error: Any) -> Any:
        return {**self.table(), "extra_info": {"error": error}}, {**self.rewarded(), "reward": 0}

    def value(self) -> Any:
        return -round(np.abs(self.velocity).sum())


class NumpyNumbers(Sleds):
    """Counts and flags in NumPy's types."""

    def table(self, terminated: int = 0, truncated: int = 0) -> Any:
        table = super().table(terminated, truncated)
        return {
            **table,
            "frame_no": np.int32(self.frame_no),
            "terminated": np.int32(0),
            "truncated": np.int8(truncated),
        }

    def value(self) -> Any:
        return np.float32(super().value())

    def error(self, request: Any) -> str:
        if isinstance(request, dict) and isinstance(request.get("frame_no"), np.integer):
            request = {**request, "frame_no": int(request["frame_no"])}
        return super().error(request)


class NoChance(Sleds):
    """Begins alike for every seed, without any noise."""

    def start(self) -> None:
        self.rng = np.random.default_rng(0)
        super().start()


class EndsByItself(Sleds):
    """Ends at random, by its task."""

    def ends(self) -> Any:
        return (1, 0) if self.rng.random() < 0.1 else super().ends()


class QuietEnd(Sleds):
    """Has no extra information in its last table, which says both that it ended and that it was cut."""

    def ends(self) -> Any:
        return (1, 1) if self.frame_no >= self.horizon else (0, 0)

    def extra(self) -> Any:
        return super().extra() if self.frame_no < 20 else {}


class Bandit(Sleds):
    """Shows nothing of its state: the reward alone answers the action."""

    observation = Spec("bandit_observation", (Field("arm_count", (), "int32", 3, 3, "1", "how many there are"),))

    def observed(self) -> Any:
        return {"arm_count": np.array(3, np.int32)}


def _slider() -> Environment:
    return Environment(Slider())


def _reach() -> Environment:
    return rlenv_robot.make("so101-reach")


def _small_go() -> Environment:
    return rlenv_robot.make("go", size=3)


ENVIRONMENTS: tuple[Callable[[], Any], ...] = (
    Sleds, Pair, Lists, NoSeeds, FramesGoOn, OtherErrors, ErrorsAsMapping, AnswersAfterTheEnd, FrozenTables, NoExtras,
    NumpyNumbers, NoChance, EndsByItself, QuietEnd, Bandit, _slider, _reach, _small_go,
)  # fmt: skip


class LateArm(Arm):
    """Carries out each command a period late, and says so."""

    def taken(self, command: Any) -> Any:
        self.waiting, target = super().taken(command).copy(), getattr(self, "waiting", self.target)
        return np.array(target)

    def reset(self, options: Any) -> RobotState:
        robot_state = super().reset(options)
        self.waiting = self.target.copy()
        return robot_state


class CoarseArm(Arm):
    """Measures by an encoder of 4,096 ticks."""

    def measured(self) -> Any:
        tick = np.float32(2 * np.pi / 4096)
        return (np.round(super().measured() / tick) * tick).astype(np.float32)


class LimitsItself(Arm):
    """Limits speeds, and says what it applied."""

    guarded = True

    def taken(self, command: Any) -> Any:
        stride = np.float32(2.0 / 50)
        return self.target + np.clip(super().taken(command) - self.target, -stride, stride)


class OwnErrors(Arm):
    """Raises ValueErrors, and refuses unknown options."""

    def taken(self, command: Any) -> Any:
        try:
            return super().taken(command)
        except IllegalAction as error:
            raise ValueError(str(error)) from error

    def reset(self, options: Any) -> RobotState:
        unknown = set(options) - {"seed", "start", "clear_stop"}
        if unknown:
            raise ValueError(f"unknown: {unknown}")
        return super().reset(options)


class Gripper:
    """Has one whole number to command, and no home; a reset reads it where it is."""

    spec = RobotSpec(
        "gripper",
        Spec("gripper_sensors", (Field("grip", (), "int8", 0, 1, "1", "1 is closed"),)),
        Spec("gripper_commands", (Field("close", (), "int8", 0, 1, "1", "1 closes"),)),
        10.0, Limits(),
    )  # fmt: skip

    def __init__(self) -> None:
        self.grip, self.now, self.state, self.stopped = 0, 5, "new", False

    def _read(self) -> RobotState:
        self.now += 100_000_000
        return RobotState({"grip": np.array(self.grip, "i1")}, {"close": np.array(self.grip, "i1")}, self.now)

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        if self.state == "closed":
            raise EpisodeError("closed")
        if self.stopped and not (options.get("clear_stop") or "").strip():
            raise RobotStopped("stopped")
        self.stopped, self.state = False, "running"
        return self._read()

    def step(self, command: Mapping[str, Any]) -> RobotState:
        if self.stopped:
            raise RobotStopped("stopped")
        if self.state != "running":
            raise EpisodeError(self.state)
        values = self.spec.commands.validate(command, "command")
        if values["close"].ndim:
            raise IllegalAction(Violation("shape", "command.close", (), "one number"))
        self.grip = int(values["close"])
        return self._read()

    def stop(self, reason: str) -> None:
        self.stopped = True

    def close(self) -> None:
        self.state = "closed"


ROBOTS: tuple[Callable[[], Any], ...] = (
    Arm, RealArm, LateArm, CoarseArm, LimitsItself, OwnErrors, Gripper, Sampled,
)  # fmt: skip
