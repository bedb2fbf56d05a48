"""Who says that the scene is ready for the next episode, and how the last one went (clause B.6.2)."""

from hal.signals.command import Command
from hal.signals.fixture import Fixture
from hal.signals.signal import VERDICTS, Answer, Automatic, ResetConfirmation, ResetRequest, VerdictRequest, verdict_of
from hal.signals.terminal import Terminal

__all__ = [
    "VERDICTS",
    "Answer",
    "Automatic",
    "Command",
    "Fixture",
    "ResetConfirmation",
    "ResetRequest",
    "Terminal",
    "VerdictRequest",
    "verdict_of",
]  # fmt: skip
