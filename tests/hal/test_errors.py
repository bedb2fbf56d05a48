from __future__ import annotations

import pytest

import hal
from hal import errors

OTHERS = (
    errors.Fault,
    errors.StopReason,
    errors.Violation,
    errors.missing_plugin,
    errors.plugin_cure,
    errors.wrong_type,
)
"""The classes and functions of the module that are no exceptions."""


def test_all_exceptions_derive_from_one_base() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert kind in OTHERS or issubclass(kind, errors.RobotError)
        assert getattr(hal, name, kind) is kind


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errors.RobotStopped("a hand in the way"), ("a hand in the way", "clear_stop", "nothing moves")),
        (errors.DeadlineExceeded("no answer", 0.5, "is it on?"), ("no answer within 0.5 s", "is it on?")),
        (errors.StaleReading("gyro", 0.25, 0.1), ("'gyro'", "250.0 ms", "100.0 ms", "cable")),
        (errors.StaleReading("wrist", 0.25, 0.1, "camera 'wrist' is frozen"), ("camera 'wrist' is frozen",)),
        (errors.SpecMismatch("refused", ["rate_hz: 30 here, 50 there", "more"]), ("refused: rate_hz", "; more")),
        (errors.ProfileError("lab.toml", "robot.rate", "is -1"), ("lab.toml: robot.rate: is -1",)),
        (errors.ProfileError("lab.toml", "", "is empty"), ("lab.toml: is empty",)),
    ],
)
def test_messages_name_the_problem_and_the_next_step(error: errors.RobotError, says: tuple[str, ...]) -> None:
    for part in says:
        assert part in str(error)


def test_exceptions_derive_from_pythons_own_where_there_is_one() -> None:
    assert issubclass(errors.DeadlineExceeded, TimeoutError)
    assert issubclass(errors.ConnectionLost, ConnectionError)
    assert issubclass(errors.IllegalAction, ValueError)


def test_a_stop_reason_prints_as_its_text() -> None:
    closed = errors.StopReason("the server was closed", orderly=True)
    assert str(closed) == f"{closed}" == "the server was closed"
    assert errors.StopReason.of(closed) is closed
    assert errors.StopReason.of("a hand") == errors.StopReason("a hand", orderly=False)
    assert errors.RobotStopped(closed).reason == "the server was closed"


def test_a_fault_prints_as_its_message() -> None:
    assert str(errors.Fault("camera", "wrist", "camera 'wrist' is frozen")) == "camera 'wrist' is frozen"


def test_a_missing_plug_in_is_named_with_the_cure() -> None:
    assert errors.missing_plugin("rlenv_kit") == (
        "the plug-in rlenv_kit, which is not installed here: in a checkout, restore the folder plugins/kit and run "
        "launch/setup test; elsewhere, install rlenv-robot again, which contains it"
    )
