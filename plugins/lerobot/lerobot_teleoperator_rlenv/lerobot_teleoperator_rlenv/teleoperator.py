"""The teleoperator that LeRobot makes from ``--teleop.type=rlenv``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from lerobot.teleoperators import Teleoperator, TeleoperatorConfig
from lerobot.utils.errors import DeviceAlreadyConnectedError, DeviceNotConnectedError

from hal.errors import RobotError
from hal.spec import Spec
from rlenv_lerobot.leaders import LeaderSource, RecordedActions, ServedLeader
from rlenv_lerobot.numbers import UNITS, CommandNumbers

__all__ = ["LeaderArm", "RlenvTeleoperator", "RlenvTeleoperatorConfig"]


class LeaderArm:
    """Follow a leader arm that is plugged in here, without torque (`rlenv_operate.teleop.leader.LeaderReader`).

    Args:
        profile: the profile whose ``[robot]`` names the leader's driver and options (docs/teleop.md).
    """

    def __init__(self, profile: str | Path) -> None:
        try:
            from rlenv_operate.teleop.leader import LeaderReader
            from rlenv_operate.teleop.session import leader_of_profile
        except ImportError as error:
            raise RobotError(
                f"a leader arm can't be read: {error}; install rlenv-robot with its plug-in `operate`"
            ) from None
        self._reader = LeaderReader(leader_of_profile(profile))

    def open(self) -> Spec:
        """Switch the leader's torque off, and start reading.

        Raises:
            RobotError: the leader can't be opened, or its torque is still on.
        """
        self._reader.open()
        return self._reader.spec.commands

    def next(self) -> Mapping[str, np.ndarray]:
        """Return the newest measured pose.

        Raises:
            OSError: the connection to the leader is lost, or its newest pose is older than 0.15 s.
        """
        reading = self._reader.newest()
        return {name: reading.sensors[sensor] for name, sensor in self._reader.spec.measured_by.items()}

    def close(self) -> None:
        """Release the leader. Safe to call more than once."""
        self._reader.close()


@TeleoperatorConfig.register_subclass("rlenv")
@dataclass(kw_only=True)
class RlenvTeleoperatorConfig(TeleoperatorConfig):
    """The settings of `RlenvTeleoperator`, as ``--teleop.<name>`` of LeRobot's commands. Exactly one source is named.

    Attributes:
        leader: profile of a leader arm that is plugged in here (docs/teleop.md).
        address: address of a served robot whose measured pose is the action; it is only read.
        keys: folder of this machine's keys, for ``address``; empty: no keys.
        recorded: folder of recorded data, of which an episode's actions are repeated.
        episode: number of that episode, from 0.
        units: units of the actions, as `lerobot_robot_rlenv.RlenvRobotConfig` has them.
        calibration: calibration file of the SO-101, for percent; empty takes the model's range.

    Raises:
        ValueError: no source is named, or more than one; or the units are unknown.
    """

    leader: str = ""
    address: str = ""
    keys: str = ""
    recorded: str = ""
    episode: int = 0
    units: str = "degrees"
    calibration: str = ""

    def __post_init__(self) -> None:
        named = [name for name in ("leader", "address", "recorded") if getattr(self, name)]
        if len(named) != 1:
            had = " and ".join(named) or "none"
            raise ValueError(f"the teleoperator rlenv takes one of leader, address and recorded, it was given {had}")
        if self.units not in UNITS:
            raise ValueError(f"units are {self.units!r}, allowed are {', '.join(UNITS)}")

    def source(self) -> LeaderSource:
        """Return the source of the actions, not opened.

        Raises:
            RobotError: the plug-in that reads leader arms is not installed.
            ValueError: the leader's profile can't be used.
        """
        if self.leader:
            return LeaderArm(self.leader)
        return ServedLeader(self.address, self.keys) if self.address else RecordedActions(self.recorded, self.episode)


class RlenvTeleoperator(Teleoperator):
    """A leader arm, a served robot or a recorded run, as LeRobot's commands use a teleoperator."""

    config_class = RlenvTeleoperatorConfig
    name = "rlenv"

    def __init__(self, config: RlenvTeleoperatorConfig) -> None:
        super().__init__(config)
        self.config = config
        self._source = config.source()
        self._numbers: CommandNumbers | None = None

    def _open(self) -> CommandNumbers:
        return CommandNumbers(self._source.open(), self.config.units, self.config.calibration)

    @property
    def action_features(self) -> dict[str, type]:
        """Name -> float of each number of an action; before `connect` the source is opened for a moment.

        Raises:
            RobotError: the source can't be opened.
        """
        numbers = self._numbers
        if numbers is None:
            try:
                numbers = self._open()
            finally:
                self._source.close()
                self._source = self.config.source()
        return dict.fromkeys(numbers.names, float)

    @property
    def feedback_features(self) -> dict[str, type]:
        """Nothing: a person's hand moves the leader, and nothing pushes back."""
        return {}

    @property
    def is_connected(self) -> bool:
        """Whether `connect` opened the source, and `disconnect` has not closed it."""
        return self._numbers is not None

    @property
    def is_calibrated(self) -> bool:
        """True: a leader's calibration is a file that its profile names."""
        return True

    def calibrate(self) -> None:
        """Do nothing: a leader is calibrated by ``rlenv-robot robot calibrate``."""

    def configure(self) -> None:
        """Do nothing: the leader's driver configures its motors."""

    def connect(self, calibrate: bool = True) -> None:
        """Open the source; a leader arm loses its torque.

        Raises:
            DeviceAlreadyConnectedError: it is connected.
            RobotError: the source can't be opened.
        """
        if self.is_connected:
            raise DeviceAlreadyConnectedError(f"{self} is connected already; call disconnect first")
        self._numbers = self._open()

    def get_action(self) -> dict[str, float]:
        """Return the newest action.

        Raises:
            DeviceNotConnectedError: `connect` was not called.
            RobotError: a served leader's pose is too old.
            OSError: the leader arm is lost, or its pose is too old.
        """
        return self._connected().from_command(self._source.next())

    def send_feedback(self, feedback: dict[str, Any]) -> None:
        """Refuse feedback: `feedback_features` has none.

        Raises:
            NotImplementedError: always, as LeRobot's own leaders without motors raise.
        """
        raise NotImplementedError("the teleoperator rlenv takes no feedback; its feedback_features are empty")

    def disconnect(self) -> None:
        """Close the source.

        Raises:
            DeviceNotConnectedError: `connect` was not called.
        """
        self._connected()
        self._numbers = None
        self._source.close()
        self._source = self.config.source()

    def _connected(self) -> CommandNumbers:
        if self._numbers is None:
            raise DeviceNotConnectedError(f"{self} is not connected: call connect first")
        return self._numbers
