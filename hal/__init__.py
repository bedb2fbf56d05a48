"""Robots without any world: their descriptions, their interface, the guard, resets, cameras, clocks and errors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hal.clock import ClockOffset, LoopTiming, OffsetEstimator, Rate, Watchdog
from hal.drivers.added_sensor import AddedSensor, SensorReader, WithSensors
from hal.errors import (
    CommandTooOld,
    ConnectionLost,
    DeadlineExceeded,
    EpisodeError,
    Fault,
    IllegalAction,
    LogError,
    ProfileError,
    ResetFailed,
    RobotError,
    RobotStopped,
    SourceError,
    SpecError,
    SpecMismatch,
    StaleReading,
    StopReason,
    Violation,
    WireError,
)
from hal.field import Field
from hal.guard import Guard
from hal.guarding.stop_latch import check_clears
from hal.homing import Homing, HomingSettings
from hal.limits import Limits
from hal.reset.command import Command
from hal.reset.confirmation import VERDICTS, Answer, Automatic, ResetConfirmation, ResetRequest, VerdictRequest
from hal.reset.fixture import Fixture
from hal.reset.record import ResetRecord, ResetState
from hal.reset.terminal import Terminal
from hal.robot import (
    BatchState,
    CameraSpec,
    Image,
    Robot,
    RobotSpec,
    RobotState,
    SampleSink,
    StreamSpec,
    check_reset_options,
)
from hal.spec import Spec
from hal.wrapper import RobotWrapper, Streaming

if TYPE_CHECKING:
    from hal.cameras.camera import Camera, Look
    from hal.cameras.settings import CameraSettings
    from hal.cameras.wrapper import WithCameras

__all__ = [
    "VERDICTS",
    "AddedSensor",
    "Answer",
    "Automatic",
    "BatchState",
    "Camera",
    "CameraSettings",
    "CameraSpec",
    "ClockOffset",
    "Command",
    "CommandTooOld",
    "ConnectionLost",
    "DeadlineExceeded",
    "EpisodeError",
    "Fault",
    "Field",
    "Fixture",
    "Guard",
    "Homing",
    "HomingSettings",
    "IllegalAction",
    "Image",
    "Limits",
    "LogError",
    "Look",
    "LoopTiming",
    "OffsetEstimator",
    "ProfileError",
    "Rate",
    "ResetConfirmation",
    "ResetFailed",
    "ResetRecord",
    "ResetRequest",
    "ResetState",
    "Robot",
    "RobotError",
    "RobotSpec",
    "RobotState",
    "RobotStopped",
    "RobotWrapper",
    "SampleSink",
    "SensorReader",
    "SourceError",
    "Spec",
    "SpecError",
    "SpecMismatch",
    "StaleReading",
    "StopReason",
    "StreamSpec",
    "Streaming",
    "Terminal",
    "VerdictRequest",
    "Violation",
    "Watchdog",
    "WireError",
    "WithCameras",
    "WithSensors",
    "check_clears",
    "check_reset_options",
]  # fmt: skip

_CAMERA_MODULES = {
    "Camera": "hal.cameras.camera",
    "CameraSettings": "hal.cameras.settings",
    "Look": "hal.cameras.camera",
    "WithCameras": "hal.cameras.wrapper",
}
"""Name -> its module, imported when the name is first used: cameras need an HTTP client."""


def __getattr__(name: str) -> Any:
    if name not in _CAMERA_MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_CAMERA_MODULES[name]), name)
    globals()[name] = value
    return value
