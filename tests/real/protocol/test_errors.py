"""What is raised there is raised here."""

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
    Violation,
    WireError,
)
from real.protocol.errors import from_dict, to_dict


@pytest.mark.parametrize(
    ("error", "attribute"),
    [
        (IllegalAction(Violation("range", "command.target", (1,), "command.target[1] is 5")), "violation"),
        (RobotStopped("a hand"), "reason"),
        (DeadlineExceeded("nothing came", 0.5, "look"), "seconds"),
        (StaleReading("joint_position", 0.3, 0.1), "sensor"),
        (EpisodeError("step before reset"), None),
        (ResetFailed("no"), None),
        (ConnectionLost("gone"), None),
        (WireError("odd"), None),
        (RobotError("any"), None),
    ],
)
def test_type_text_and_attribute_travel(error, attribute):
    there = from_dict(to_dict(error))
    assert type(there) is type(error)
    assert str(there) == str(error)
    if attribute:
        assert getattr(there, attribute) == getattr(error, attribute)


def test_what_is_not_ours_becomes_a_robot_error_that_names_it():
    class Odd(RobotError):
        pass

    for error in (ZeroDivisionError("by zero"), Odd("by zero")):
        there = from_dict(to_dict(error))
        assert type(there) is RobotError
        assert str(there) == f"{type(error).__name__}: by zero"


def test_a_drivers_endless_text_is_cut():
    assert len(to_dict(OSError("x" * 10**6))["message"]) == 8000


junk = st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=2)
names = st.sampled_from(["IllegalAction", "RobotStopped", "SystemExit"]) | junk
values = junk | st.dictionaries(st.text(max_size=5), junk)
named = st.fixed_dictionaries({"type": names, "message": junk, "value": values})


@given(junk | named)
def test_damaged_errors_are_wire_errors_and_nothing_else_is_made(plain):
    assert isinstance(from_dict(plain), RobotError)
