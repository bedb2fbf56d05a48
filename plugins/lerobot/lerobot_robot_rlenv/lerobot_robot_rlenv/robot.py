"""The robot that LeRobot makes from ``--robot.type=rlenv``."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

from lerobot.cameras import CameraConfig
from lerobot.cameras.utils import make_cameras_from_configs
from lerobot.robots import Robot, RobotConfig
from lerobot.utils.errors import DeviceAlreadyConnectedError, DeviceNotConnectedError

from hal.errors import IllegalAction, Violation
from rlenv_lerobot.numbers import CommandNumbers
from rlenv_lerobot.session import ServedSession, SessionSettings

__all__ = ["RlenvRobot", "RlenvRobotConfig"]

_log = logging.getLogger(__name__)


@RobotConfig.register_subclass("rlenv")
@dataclass(kw_only=True)
class RlenvRobotConfig(RobotConfig):
    """The settings of `RlenvRobot`, as ``--robot.<name>`` of LeRobot's commands.

    Attributes:
        address: address of the server; without keys it must be loopback.
        keys: folder of this machine's keys (``rlenv-robot robot keys new``); empty: no keys.
        take: how to proceed if another client holds the robot: ``no`` gives up, ``ask`` asks it, ``force`` takes it.
        units: units of joints: ``degrees`` (LeRobot's ``use_degrees=true``), ``percent`` (``use_degrees=false``) or
            ``radians``. A gripper is 0 to 100 under the first two.
        calibration: calibration file of the served SO-101, for percent; empty takes the model's range.
        sensors: further sensors of the served robot in the observation, in SI units.
        images: whether the observation has the images of the server's cameras.
        cameras: LeRobot's cameras on this machine, as for its own robots.
        out_of_range: what happens to a goal outside the robot's range: ``clip`` sends the nearest one and warns;
            ``refuse`` raises an error.
        approach: fastest motion after connecting and after each pause, rad/s, until the first goals are reached.
        max_reading_age_s: age from which an observation is read anew, seconds.
        at_end: ``hold`` releases the robot at the end, ``stop`` latches a stop too. Both hold the arm.
        clear_stop: why a latched stop may end when LeRobot connects; empty clears none.
        stop_number: number of that stop, which the error of a refused connection says.
        robot_type: type of the robot in data sets. With ``so101_follower`` they mix with those of LeRobot's own arm.
    """

    address: str = "tcp://127.0.0.1:5555"
    keys: str = ""
    take: str = "no"
    units: str = "degrees"
    calibration: str = ""
    sensors: list[str] = field(default_factory=list)
    images: bool = True
    cameras: dict[str, CameraConfig] = field(default_factory=dict)
    out_of_range: str = "clip"
    approach: float = 1.0
    max_reading_age_s: float = 0.05
    at_end: str = "hold"
    clear_stop: str = ""
    stop_number: int | None = None
    robot_type: str = "rlenv"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out_of_range not in ("clip", "refuse"):
            raise ValueError(f"out_of_range is {self.out_of_range!r}, allowed are 'clip' and 'refuse'")
        self.session()

    def session(self) -> SessionSettings:
        """Return the settings of the session with the server.

        Raises:
            ValueError: a value is not allowed.
        """
        settings = SessionSettings(
            address=self.address,
            keys=self.keys,
            take=cast('Literal["no", "ask", "force"]', self.take),  # both are checked there
            images=self.images,
            approach=self.approach,
            max_reading_age_s=self.max_reading_age_s,
            clear_stop=self.clear_stop,
            stop_number=self.stop_number,
            at_end=cast('Literal["hold", "stop"]', self.at_end),
        )
        settings.client()
        return settings


class RlenvRobot(Robot):
    """A robot that rlenv-robot serves, as LeRobot's commands use it. docs/lerobot.md says what happens in each case.

    The guard beside the motors judges and limits every command, and the server's watchdog holds the arm if LeRobot
    falls silent. A stop stays latched. The features are the server's answer to the first call that asks for them.
    """

    config_class = RlenvRobotConfig
    name = "rlenv"

    def __init__(self, config: RlenvRobotConfig) -> None:
        self.name = config.robot_type  # of this robot's data sets
        super().__init__(config)
        self.config = config
        self._session = ServedSession(config.session())
        self._own_cameras = make_cameras_from_configs(config.cameras)
        self._clipped: set[str] = set()  # names whose clipping was logged

    @cached_property
    def _numbers(self) -> CommandNumbers:
        return CommandNumbers(self._session.spec.commands, self.config.units, self.config.calibration)

    @cached_property
    def _sensors(self) -> dict[str, tuple[str, ...]]:
        """Further sensor -> the names of its numbers."""
        spec = self._session.spec
        measured = {*spec.measured_by.values()}
        names = list(self.config.sensors) or ([] if measured else [one.name for one in spec.sensors if not one.is_text])
        unknown = [name for name in names if name not in spec.sensors.names]
        if unknown:
            allowed = ", ".join(spec.sensors.names)
            raise ValueError(f"sensors names {', '.join(unknown)}, the robot {spec.name!r} has {allowed}")
        numbers = {}
        for name in names:
            sensor = spec.sensors[name]
            elements = sensor.elements if len(sensor.elements) == sensor.size else range(sensor.size)
            numbers[name] = (name,) if sensor.size == 1 else tuple(f"{name}_{element}" for element in elements)
        return numbers

    @cached_property
    def cameras(self) -> dict[str, Any]:
        """LeRobot's cameras of this machine, and the size of each served one; LeRobot counts the entries."""
        served = self._session.cameras
        both = sorted(served.keys() & self._own_cameras.keys())
        if both:
            raise ValueError(f"cameras {', '.join(both)} exist here and on the server; give those here other names")
        return {**self._own_cameras, **served}

    @cached_property
    def observation_features(self) -> dict[str, type | tuple[int, int, int]]:
        """Name -> float of each measured command and further sensor, then camera -> (height, width, 3).

        Raises:
            ConnectionLost: the server does not answer, or refuses this key.
            ValueError: a setting does not fit the served robot.
        """
        measured = self._numbers.names_of(list(self._session.spec.measured_by))
        numbers = (*measured, *(name for names in self._sensors.values() for name in names))
        images = {name: (one.height, one.width, 3) for name, one in self._own_cameras.items()}
        images |= {name: (*size, 3) for name, size in self.cameras.items() if name not in self._own_cameras}
        return {**dict.fromkeys(numbers, float), **images}

    @cached_property
    def action_features(self) -> dict[str, type]:
        """Name -> float of each number of a command."""
        return dict.fromkeys(self._numbers.names, float)

    @property
    def is_connected(self) -> bool:
        """Whether `connect` took the robot, and `disconnect` has not released it."""
        return self._session.connected

    @property
    def is_calibrated(self) -> bool:
        """True: an arm is calibrated on its controller (``rlenv-robot robot calibrate``), which checks it."""
        return True

    def calibrate(self) -> None:
        """Do nothing: an arm is calibrated on its controller."""

    def configure(self) -> None:
        """Do nothing: the server's profile and driver configure the motors."""

    def connect(self, calibrate: bool = True) -> None:
        """Take the robot and open the cameras; the arm is switched on where it is, and holds.

        Raises:
            DeviceAlreadyConnectedError: it is connected.
            RobotStopped: a stop is latched, and ``clear_stop`` with ``stop_number`` does not clear it.
            ConnectionLost: the server does not answer, or another client holds the robot.
        """
        if self.is_connected:
            raise DeviceAlreadyConnectedError(f"{self} is connected already; call disconnect first")
        self.observation_features  # noqa: B018  # what does not fit is refused before anything is switched on
        opened = []
        try:
            for camera in self._own_cameras.values():
                camera.connect()
                opened.append(camera)
            self._session.connect()
        except BaseException:
            for camera in opened:
                camera.disconnect()
            raise
        self._clipped.clear()

    def get_observation(self) -> dict[str, Any]:
        """Return the numbers and images of `observation_features`; the newest reading, at most one period in waiting.

        Raises:
            DeviceNotConnectedError: `connect` was not called.
            RobotStopped: the robot is stopped.
            ConnectionLost: the server does not answer, or another client holds the robot.
            RobotError: an image is missing, or the episode can't go on.
        """
        self._check_connected()
        state = self._session.observe()
        spec = self._session.spec
        measured = {name: state.sensors[sensor] for name, sensor in spec.measured_by.items()}
        observation: dict[str, Any] = dict(self._numbers.from_command(measured))
        for sensor, names in self._sensors.items():
            values = state.sensors[sensor].reshape(-1)
            observation |= {name: float(value) for name, value in zip(names, values, strict=True)}
        for name, camera in self._own_cameras.items():
            observation[name] = camera.async_read()
        return {**observation, **self._session.images(state)}

    def send_action(self, action: dict[str, Any]) -> dict[str, float]:
        """Command the robot for one control period, and return the action that its motors received.

        Raises:
            DeviceNotConnectedError: `connect` was not called.
            IllegalAction: a number is missing, unknown, not finite, or out of range where that is refused. Nothing
                moved.
            RobotStopped: the robot is stopped.
            ConnectionLost: the server does not answer, or another client holds the robot.
            RobotError: the episode can't go on.
        """
        self._check_connected()
        command, clipped = self._numbers.within_range(self._numbers.to_command(action))
        new = [name for name in clipped if name not in self._clipped]
        if new:
            wished = ", ".join(f"{name} = {float(action[name]):.2f}" for name in new)
            if self.config.out_of_range == "refuse":
                text = f"the goal is outside the robot's range: {wished}; nothing was sent. out_of_range=clip allows it"
                raise IllegalAction(Violation("range", new[0], (), text))
            self._clipped.update(new)
            _log.warning("the goal is outside the robot's range, so the nearest one is sent: %s (logged once)", wished)
        return self._numbers.from_command(self._session.command(command).applied)

    def disconnect(self) -> None:
        """Release the robot and the cameras; the arm holds where it is.

        Raises:
            DeviceNotConnectedError: `connect` was not called.
            RobotError: with ``at_end = "stop"``, the stop was not confirmed.
        """
        self._check_connected()
        try:
            self._session.close()
        finally:
            for camera in self._own_cameras.values():
                if camera.is_connected:
                    camera.disconnect()

    def _check_connected(self) -> None:
        if not self.is_connected:
            raise DeviceNotConnectedError(f"{self} is not connected: call connect first")
