"""The client raises the exception that the server raised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import (
    ConnectionLost,
    DeadlineExceeded,
    EpisodeError,
    IllegalAction,
    ResetFailed,
    RobotError,
    RobotStopped,
    StaleReading,
    StopReason,
    Violation,
    WireError,
)
from hal.errors import CommandTooOld, SpecError
from real.protocol.errors import error_from_list, error_to_list, stopped_by

ERRORS = [
    (IllegalAction(Violation("range", "command.target", (1,), "command.target[1] is 5")), ["violation"]),
    (RobotStopped("a hand"), ["reason", "orderly"]),
    (RobotStopped(StopReason("the server was closed", orderly=True)), ["reason", "orderly"]),
    (DeadlineExceeded("nothing came", 0.5, "look"), ["seconds"]),
    (CommandTooOld(0.3, 0.1), ["age_s", "max_age_s", "begun"]),
    (CommandTooOld(0.3, 0.1, "the rest was not executed", begun=True), ["age_s", "max_age_s", "begun"]),
    (StaleReading("joint_position", 0.3, 0.1), ["sensor", "age_s", "max_age_s"]),
    (EpisodeError("step before reset"), []),
    (ResetFailed("no"), []),
    (ConnectionLost("gone"), []),
    (WireError("odd"), []),
    (SpecError("two fields of one name"), []),
    (RobotError("any"), []),
]


@pytest.mark.parametrize(("error", "attributes"), ERRORS)
def test_type_text_and_attributes_travel(error, attributes):
    there = error_from_list(error_to_list(error))
    assert type(there) is type(error)
    assert str(there) == str(error)
    for attribute in attributes:
        assert getattr(there, attribute) == getattr(error, attribute)


def test_what_is_not_ours_becomes_a_robot_error_that_names_it():
    class Odd(RobotError):
        pass

    for error in (ZeroDivisionError("by zero"), Odd("by zero")):
        there = error_from_list(error_to_list(error))
        assert type(there) is RobotError
        assert str(there) == f"{type(error).__name__}: by zero"


def test_a_drivers_endless_text_is_cut():
    assert len(error_to_list(OSError("x" * 10**6))[2]) == 8000


@pytest.mark.parametrize(("error", "attributes"), ERRORS)
def test_the_client_of_a_stopped_robot_gets_the_same_error_and_what_to_do(error, attributes):
    there = stopped_by(error, 7)
    assert type(there) is type(error)
    assert str(there).startswith(str(error))
    assert "clear_stop" in str(there)


junk = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
codes = st.sampled_from(["IllegalAction", "RobotStopped", "StaleReading", "WireError", "SystemExit"]) | junk
values = junk | st.dictionaries(st.sampled_from(["code", "index", "reason", "orderly", "age_s"]), junk)


@given(junk | st.tuples(codes, junk, junk, values) | st.lists(junk, max_size=5))
def test_damaged_errors_are_wire_errors_and_nothing_else_is_made(data):
    assert isinstance(error_from_list(data), RobotError)
