"""What a robot is: descriptions, the robot interface, the guard, reset signals, clocks, robots and drivers."""

from hal.cameras.camera import Camera, Look
from hal.cameras.settings import CameraSettings
from hal.cameras.wrapper import WithCameras
from hal.clock import LoopTiming, Rate, Watchdog
from hal.clock_sync import ClockOffset, OffsetEstimator
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
from hal.limits import Limits
from hal.reset.command import Command
from hal.reset.confirmation import VERDICTS, Answer, Automatic, ResetConfirmation, ResetRequest, VerdictRequest
from hal.reset.fixture import Fixture
from hal.reset.homing import Homing, HomingSettings
from hal.reset.record import ResetRecord, ResetState
from hal.reset.terminal import Terminal
from hal.robot import CameraSpec, Image, Robot, RobotSpec, RobotState
from hal.spec import Spec
from hal.wrapper import SampleSink, Streaming, StreamSpec

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
    "SampleSink",
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
]  # fmt: skip
