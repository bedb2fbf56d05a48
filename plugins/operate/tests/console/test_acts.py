"""Acts: each by right, each in the log with its name; a stop waits for nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from real import RemoteRobot, Server
from real.protocol.keys import Role
from rlenv_operate.console.access import Visitor
from rlenv_operate.console.acts import ActLog, Acts
from rlenv_operate.console.messages import ACTS, Act
from rlenv_operate.console.mover import Mover, MoverSettings
from rlenv_operate.console.questions import Question, QuestionBox
from tests.fakes import Integrator, until

PEOPLE = {role: Visitor(f"the {role}", role, f"{number}" * 64) for number, role in enumerate(Role)}


@pytest.fixture
def questions() -> QuestionBox:
    return QuestionBox()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ActLog]:
    log = ActLog(tmp_path / "logs" / "acts.jsonl")
    yield log
    log.close()


@pytest.fixture
def acts(served: Server, questions: QuestionBox, log: ActLog) -> Iterator[Acts]:
    mover = Mover(served.address, None, MoverSettings(), questions)
    acts = Acts(served.address, None, mover, questions, log, wall=lambda: 1_800_000_000.0)
    mover.start()
    acts.start()
    yield acts
    mover.close()
    acts.close()


def act(name: str, text: str = "", *, take: bool = False, stop_number: int | None = None) -> Act:
    return Act(t="act", id=1, act=name, text=text, take=take, stop_number=stop_number)  # type: ignore[arg-type]


def test_each_role_may_do_what_the_table_says_and_nothing_else(served: Server, acts: Acts, robot: Integrator) -> None:
    for role in (Role.WATCH, Role.STOP):
        for name in ACTS:
            if name != "stop":
                record = acts.carry_out(act(name, "please"), PEOPLE[role])
                assert not record.ok
                assert f"has the role {role} here, which does not allow" in record.outcome
    assert not acts.carry_out(act("arm", take=True), PEOPLE[Role.MOVE]).ok
    assert served.lifecycle.state == "disarmed"
    assert robot.resets == []
    assert all(acts.carry_out(act("stop"), PEOPLE[role]).ok for role in Role)
    assert served.lifecycle.state == "stopped"


def test_the_log_names_who_did_what(acts: Acts, log: ActLog, tmp_path: Path, served: Server) -> None:
    acts.carry_out(act("stop", "a cable\nis loose"), PEOPLE[Role.WATCH])
    acts.carry_out(act("reset_done"), PEOPLE[Role.MOVE])
    lines = [json.loads(line) for line in (tmp_path / "logs" / "acts.jsonl").read_text().splitlines()]
    assert [(line["name"], line["role"], line["act"], line["ok"]) for line in lines] == [
        ("the watch", "watch", "stop", True),
        ("the move", "move", "reset_done", False),
    ]
    assert lines[0]["wall_s"] == 1_800_000_000.0
    assert "\n" not in lines[0]["text"]
    assert "the watch at the console: a cable" in served.lifecycle.why
    assert [record.act for record in log.recent] == ["stop", "reset_done"]
    again = ActLog(tmp_path / "logs" / "acts.jsonl")  # adds, and never overwrites
    again.add(log.recent[0])
    again.close()
    assert len((tmp_path / "logs" / "acts.jsonl").read_text().splitlines()) == 3


def test_a_stopped_robot_is_armed_by_a_person_who_says_what_was_found(acts: Acts, served: Server) -> None:
    ann = PEOPLE[Role.OPERATE]
    acts.carry_out(act("stop", "one"), ann)
    status = RemoteRobot(served.address)
    number = status.status()["stop_number"]
    assert "say what was found" in acts.carry_out(act("arm", stop_number=number), ann).outcome
    acts.carry_out(act("stop", "two"), ann)
    late = acts.carry_out(act("arm", "looked at one", stop_number=number), ann)
    assert not late.ok
    assert "another stop has come" in late.outcome
    assert served.lifecycle.state == "stopped"
    newest = status.status()["stop_number"]
    assert acts.carry_out(act("arm", "looked at both", stop_number=newest), ann).ok
    assert served.lifecycle.state == "ready"
    status.close()


def test_hold_takes_the_robot_from_another_client_by_an_operator_alone(acts: Acts, served: Server) -> None:
    other = RemoteRobot(served.address)
    other.reset({})
    assert not acts.carry_out(act("hold"), PEOPLE[Role.MOVE]).ok
    assert served.lifecycle.state == "ready"
    assert acts.carry_out(act("hold", take=True), PEOPLE[Role.OPERATE]).ok
    until(lambda: served.lifecycle.state == "holding")
    other.close()


def test_a_stop_passes_an_arming_that_waits(acts: Acts, served: Server, robot: Integrator) -> None:
    begun, go_on = threading.Event(), threading.Event()
    robot.on_reset = lambda: (begun.set(), go_on.wait(20))
    records = []
    thread = threading.Thread(target=lambda: records.append(acts.carry_out(act("arm"), PEOPLE[Role.OPERATE])))
    thread.start()
    assert begun.wait(10)
    assert acts.carry_out(act("stop"), PEOPLE[Role.STOP]).ok
    assert not records
    go_on.set()
    thread.join(20)
    assert [record.ok for record in records] == [False]
    assert served.lifecycle.state == "stopped"


def test_answers_go_to_the_open_question(acts: Acts, questions: QuestionBox) -> None:
    questions.ask(Question("7", "reset", "cube to A", True, float("inf")))
    assert acts.carry_out(act("failure"), PEOPLE[Role.MOVE]).ok
    assert acts.carry_out(act("reset_done", "cube at A"), PEOPLE[Role.MOVE]).ok
    reply = questions.take_reply("7")
    assert reply is not None
    assert (reply.by, reply.ready, reply.note, reply.verdict) == ("the move", True, "cube at A", "failure")
    assert not acts.carry_out(act("discard"), PEOPLE[Role.MOVE]).ok


def test_a_server_that_is_gone_makes_a_stop_fail_in_words(robot: Integrator, log: ActLog) -> None:
    with Server(robot) as server:
        address = server.address
    questions = QuestionBox()
    acts = Acts(address, None, Mover(address, None, MoverSettings(), questions), questions, log)
    record = acts.carry_out(act("stop"), PEOPLE[Role.OPERATE])
    assert not record.ok
    assert "NOT confirmed" in record.outcome
    acts.close()
