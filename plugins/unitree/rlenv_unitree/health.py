"""Judge a state of the robot: its tilt, its joints' ranges, its motors' temperature, its battery."""

from __future__ import annotations

import numpy as np

from hal import RobotError
from hal.field import JsonDict
from rlenv_unitree.messages import Record
from rlenv_unitree.motors import MotorTable

__all__ = ["MAX_TILT", "RANGE_MARGIN", "Health"]

MAX_TILT = 0.8
"""Angle between the trunk's axis and the vertical from which on the robot counts as falling, rad."""

RANGE_MARGIN = 0.15
"""Allowed excess of a measured joint angle over its range, rad: stops yield, and zero positions differ by robot."""


class Health:
    """Judge states of one robot.

    Args:
        table: its motors.
        min_charge: least charge of the battery, percent.
        max_temperature_c: highest temperature of a motor, degrees Celsius.

    Raises:
        ValueError: a limit is not allowed.
    """

    def __init__(self, table: MotorTable, min_charge: float, max_temperature_c: float) -> None:
        if not 0 <= min_charge <= 100:
            raise ValueError(f"min_charge is {min_charge}, allowed are 0 to 100 percent")
        if not 0 < max_temperature_c <= 150:
            raise ValueError(f"max_temperature_c is {max_temperature_c}, allowed are more than 0 to 150")
        self._joints, self._low, self._high = table.joints, *table.spec.commands["joint_target"].bounds
        self._has_battery = table.messages == "go"
        self._min_charge, self._max_temperature_c = min_charge, max_temperature_c

    def problem(self, record: Record) -> str | None:
        """Return what makes the robot unfit to move, as a sentence; None if nothing does.

        Raises:
            RobotError: the orientation is no quaternion.
        """
        _, x, y, _ = self.orientation(record).astype(np.float64)
        tilt = float(np.arccos(np.clip(1.0 - 2.0 * (x * x + y * y), -1.0, 1.0)))
        if tilt > MAX_TILT:
            return f"it is tilted by {tilt:.2f} rad, allowed are {MAX_TILT:g}; set it upright"
        position = self._motors(record)["q"]
        beyond = np.maximum(self._low - position, position - self._high)
        worst = int(np.argmax(beyond))
        if not beyond[worst] <= RANGE_MARGIN:  # True for NaN too
            return (
                f"joint {self._joints[worst]} is measured at {position[worst]:.3f} rad, its range is "
                f"{self._low[worst]:.3f} to {self._high[worst]:.3f}; look at the leg, and calibrate the robot's joints"
            )
        hottest = self._temperatures(record)
        worst = int(np.argmax(hottest))
        if hottest[worst] > self._max_temperature_c:
            return (
                f"motor {self._joints[worst]} has {hottest[worst]} degrees Celsius, allowed are "
                f"{self._max_temperature_c:g}; let it cool down"
            )
        return None

    def battery_problem(self, record: Record) -> str | None:
        """Return that the battery is low, as a sentence; None if it is not, or for a G1, whose states do not tell."""
        if not self._has_battery or record["bms_state"]["soc"] >= self._min_charge:
            return None
        return (
            f"the battery has {record['bms_state']['soc']} percent, at least {self._min_charge:g} are needed; charge "
            "it, or set min_charge"
        )

    def orientation(self, record: Record) -> np.ndarray:
        """Return the unit quaternion w, x, y, z, float32.

        Raises:
            RobotError: its length is not about 1.
        """
        quaternion = record["imu_state"]["quaternion"].astype(np.float64)
        length = float(np.linalg.norm(quaternion))
        if not 0.9 < length < 1.1:
            raise RobotError(
                f"the robot's IMU gives the orientation {quaternion}, which is no unit quaternion; restart it"
            )
        return np.clip(quaternion / length, -1.0, 1.0).astype(np.float32)

    def report(self, record: Record) -> JsonDict:
        """Return charge (percent), voltage (V) and the hottest motor (degrees Celsius), as far as states tell."""
        report: JsonDict = {"hottest_c": int(self._temperatures(record).max())}
        if self._has_battery:
            report |= {"charge_percent": int(record["bms_state"]["soc"]), "volts": round(float(record["power_v"]), 2)}
        return report

    def _motors(self, record: Record) -> Record:
        motors: Record = record["motor_state"][: len(self._joints)]
        return motors

    def _temperatures(self, record: Record) -> np.ndarray:
        """Return each motor's temperature; a G1's motors have two sensors, of which the hotter counts."""
        temperatures: np.ndarray = self._motors(record)["temperature"]
        return temperatures if temperatures.ndim == 1 else temperatures.max(axis=1)
