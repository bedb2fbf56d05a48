"""Units of MuJoCo's sensors (XML reference, "sensor"): lengths in metres, angles in radians, as in MJCF itself."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["SENSOR_UNITS"]

SENSOR_UNITS: Mapping[str, str] = {
    "touch": "N", "accelerometer": "m/s^2", "velocimeter": "m/s", "gyro": "rad/s", "force": "N", "torque": "N m",
    "magnetometer": "T", "rangefinder": "m", "framepos": "m", "framelinvel": "m/s", "frameangvel": "rad/s",
    "framelinacc": "m/s^2", "frameangacc": "rad/s^2", "ballangvel": "rad/s", "subtreecom": "m",
    "subtreelinvel": "m/s", "subtreeangmom": "kg m^2/s", "tendonpos": "m", "tendonvel": "m/s", "geomdist": "m",
    "e_potential": "J", "e_kinetic": "J", "clock": "s",
}  # fmt: skip
"""Sensor type -> unit, where it is the same for every object. Others (a joint's, an actuator's) depend on theirs."""
