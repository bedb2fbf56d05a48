"""What a robot is: descriptions, the robot interface, the guard, reset signals, clocks, robots and drivers."""

from hal.cadence import LoopTiming
from hal.camera import Camera, Look
from hal.camera_settings import CameraSettings
from hal.clock import Rate
from hal.errors import (
    CommandTooOld,
    ConnectionLost,
    DeadlineExceeded,
    EpisodeError,
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
    Violation,
    WireError,
)
from hal.field import Field
from hal.guard import Guard
from hal.homing import Homing, HomingSettings
from hal.limits import Limits
from hal.offset import ClockOffset, OffsetEstimator
from hal.reset_record import ResetRecord, ResetState
from hal.robot import CameraSpec, Image, Robot, RobotSpec, RobotState
from hal.signals.command import Command
from hal.signals.fixture import Fixture
from hal.signals.signal import VERDICTS, Answer, Automatic, ResetConfirmation, ResetRequest, VerdictRequest
from hal.signals.terminal import Terminal
from hal.spec import Spec
from hal.stream import SampleSink, Streaming, StreamSpec
from hal.watchdog import Watchdog
from hal.with_cameras import WithCameras

__all__ = [
    "VERDICTS",
    "Answer",
    "Automatic",
    "Camera",
    "CameraSettings",
    "CameraSpec",
    "ClockOffset",
    "Command",
    "CommandTooOld",
    "ConnectionLost",
    "DeadlineExceeded",
    "EpisodeError",
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
    "SampleSink",
    "SourceError",
    "Spec",
    "SpecError",
    "SpecMismatch",
    "StaleReading",
    "StreamSpec",
    "Streaming",
    "Terminal",
    "VerdictRequest",
    "Violation",
    "Watchdog",
    "WireError",
    "WithCameras",
]  # fmt: skip
