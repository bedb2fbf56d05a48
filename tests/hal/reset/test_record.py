from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import Answer, DeadlineExceeded, EpisodeError, ResetFailed, RobotStopped
from hal.reset.record import ResetProgress, ResetRecord, ResetState

ALLOWED = {
    ("called", "asked"), ("called", "failed"), ("asked", "ready"), ("asked", "failed"), ("ready", "homing"),
    ("ready", "failed"), ("homing", "reached"), ("homing", "failed"), ("reached", "homing"), ("reached", "settled"),
    ("reached", "failed"),
}  # fmt: skip
WAY = ("called", "asked", "ready", "homing", "reached")


def at(state: str, **more: Any) -> ResetProgress:
    progress = ResetProgress(lambda *_: None, **more)
    if state == "settled":
        at_reached = at("reached")
        at_reached.done("")
        return at_reached
    if state == "failed":
        progress.failed(ResetFailed("no"))
        return progress
    for step in WAY[1 : WAY.index(state) + 1]:
        progress.go(ResetState(step))
    return progress


@pytest.mark.parametrize("here", ResetState)
@pytest.mark.parametrize("there", ResetState)
def test_only_transitions_of_the_state_machine_are_allowed(here: str, there: str) -> None:
    progress = at(here)
    if (here, there) in ALLOWED:
        progress.go(ResetState(there))
        assert progress.state == there
    else:
        with pytest.raises(EpisodeError, match=f"does not go from {here} to {there}"):
            progress.go(ResetState(there))


@pytest.mark.parametrize(
    ("state", "error", "outcome"),
    [
        ("asked", ResetFailed("no"), "refused"),
        ("asked", DeadlineExceeded("nobody", 1), "late"),
        ("asked", RobotStopped("smoke"), "stopped"),
        ("homing", ResetFailed("not reached"), "blocked"),
        ("reached", ResetFailed("not still"), "blocked"),
        ("homing", RobotStopped("smoke"), "stopped"),
        ("homing", OSError("unplugged"), "broken"),
        ("called", OSError("unplugged"), "broken"),
        ("called", RobotStopped("smoke"), "stopped"),
        ("asked", KeyboardInterrupt(), "refused"),
    ],
)
def test_each_kind_of_failure_has_its_outcome(state: str, error: BaseException, outcome: str) -> None:
    record = at(state).failed(error)
    assert record.outcome == outcome
    assert record.detail


def test_the_durations_of_all_visits_to_a_state_are_added() -> None:
    times = iter([0.0, 1.0, 3.0, 3.0, 7.0, 8.0, 9.0, 11.0])
    progress = ResetProgress(lambda *_: None, 7, 5, lambda: next(times))
    progress.go(ResetState.ASKED)
    progress.answered(Answer("terminal", "s", "success"))
    for state in (ResetState.HOMING, ResetState.REACHED, ResetState.HOMING, ResetState.REACHED):
        progress.go(state)
    record = progress.done("0.010 from the start")
    assert record.seconds == {"called": 1.0, "asked": 2.0, "ready": 0.0, "homing": 5.0, "reached": 3.0}
    assert (record.by, record.verdict, record.outcome) == ("terminal", "success", "done")
    assert (record.episode, record.judged) == (7, 5)
    assert ResetRecord.from_json(record.to_json()) == record


@given(st.text(), st.text(), st.text())
def test_a_record_with_any_texts_fits_into_an_event(by: str, note: str, detail: str) -> None:
    progress = at("asked")
    progress.answered(Answer(by * 300, note * 300, "discard"))
    text = progress.failed(ResetFailed(detail * 500)).to_json()
    assert len(text) <= 1000
    text.encode()
    assert "\n" not in text
    assert ResetRecord.from_json(text) == progress.record


@given(st.one_of(st.text(), st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps)))
def test_a_text_that_is_no_record_gives_none(text: str) -> None:
    assert ResetRecord.from_json(text) is None


@pytest.mark.parametrize(
    "change",
    [{"verdict": "maybe"}, {"episode": "1"}, {"judged": 0.5}, {"by": 3}, {"seconds": []}, {"seconds": {"asked": "x"}}],
)
def test_a_damaged_record_gives_none(change: dict[str, Any]) -> None:
    whole = ResetRecord("done").to_dict()
    assert ResetRecord.from_json(json.dumps(whole)) is not None
    assert ResetRecord.from_json(json.dumps({**whole, **change})) is None
