"""The life of a stop (tests/real/stop_machine.py) with a console among those that stop and clear."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from hal import RobotError
from real.protocol.keys import Role
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.acts import ActLog, Acts
from rlenv_operate.console.messages import Act
from tests.real.page_client import DONE, ERROR, STATUS, STOP
from tests.real.stop_machine import WHO, LifeOfAStop, play

pytestmark = pytest.mark.requirement("R6.6")


class Connection:
    """Stand in for the console's connections: its stops, looks and resets are messages of the played wire."""

    def __init__(self, life: WithConsole) -> None:
        self.life, self.button = life, life.robot.client(b"console")
        self.meanwhile: Callable[[], None] | None = None

    def stop(self, reason: str) -> None:
        assert self.button.ask(STOP, {"reason": reason, "orderly": False})[0] == DONE

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.button.ask(STATUS)[1]
        if self.meanwhile is not None:
            self.meanwhile()
        return status

    def check(self, kind: str, by: Any) -> None:
        """Allow everything: rights are tested in test_rights.py."""

    def arm(
        self, by: Any, clear_stop: str = "", stop_number: int | None = None, *, take: bool = False, run: None = None
    ) -> str:
        client = self.life._hold(0)
        kind, detail = client.receive(client.reset(clear_stop or None, stop_number))
        if kind == ERROR:
            raise RobotError(detail[2])
        return "armed"


class WithConsole(LifeOfAStop):
    """The same machine; a person at the console stops, and clears what the page shows."""

    def _begin(self) -> None:
        super()._begin()
        self.connection = connection = Connection(self)
        self.acts = Acts("tcp://127.0.0.1:1", None, connection, SimpleNamespace(pending=None), ActLog(None))  # type: ignore[arg-type]
        self.acts._stopper = connection  # type: ignore[assignment]

    def _act(self, act: str, text: str, number: int | None = None) -> Any:
        message = {"t": "act", "id": 1, "act": act, "text": text, "stop_number": number}
        return self.acts.carry_out(Act.model_validate(message), Visitor("Ada", Role.OPERATE))

    @rule()
    def stop_at_the_console(self) -> None:
        """The page says that the robot has confirmed the stop."""
        record = self._act("stop", "a hand")
        assert record.ok, record
        assert "the robot confirmed" in record.outcome
        self._expect_stop()
        self.moved = self.robot.moves
        assert self.latched

    @rule(text=st.sampled_from(["looked", ""]), behind=st.integers(0, 2), races=st.booleans(), who=WHO)
    def clear_at_the_console(self, text: str, behind: int, races: bool, who: int) -> None:
        """The page showed this stop or an earlier one; another may come while the console looks."""
        was_latched, hung, shown = self.latched, bool(self.robot.hanging), self.newest - behind
        if races:
            self.connection.meanwhile = lambda: self._stop(self.buttons[who])
        record = self._act("arm", text, shown)
        if races or hung or (was_latched and (behind or not text)):
            assert not record.ok, record
        elif record.ok:
            self.latched = ""
        else:
            self._take_reset(ERROR, record)
        self.connection.meanwhile = None


def test_a_console_among_others_loses_no_stop() -> None:
    assert play(WithConsole, 10)["steps"] > 500


def _arm_with_the_number_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console clears the stop that it reads, and not the one that the page showed."""
    arm = Acts._arm

    def armed(acts: Acts, act: Act, visitor: Any, text: str) -> str:
        return arm(acts, act.model_copy(update={"stop_number": acts._stopper.status()["stop_number"]}), visitor, text)

    monkeypatch.setattr(Acts, "_arm", armed)


def _confirm_before_the_robot_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Acts, "_stop", lambda acts, name, text: "stopped; the robot confirmed")


@pytest.mark.slow
@pytest.mark.parametrize("plant", [_arm_with_the_number_of_now, _confirm_before_the_robot_does])
def test_the_machine_sees_a_fault_of_the_console(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play(WithConsole, 100)
