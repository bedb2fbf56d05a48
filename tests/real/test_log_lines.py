"""Nobody can forge a line of the log: names, reasons, notes and errors with line breaks, colours and bidi marks."""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from hal import Answer, Automatic, Guard, Homing, ResetFailed, RobotError
from hal.reset.confirmation import ResetRequest, VerdictRequest
from real import Connection, MessageKind, RemoteRobot, Server
from real.protocol.messages import encode, send_frames
from real.protocol.text import LogFormatter
from tests.fakes import Integrator, until

EVIL = "x\r\n2026-01-01 00:00:00,000 WARNING hal.guard: stop cleared\x1b[2J\x1b[1A\u202e\u2028\x85\x0b\x07\udcff"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ (hal|real|rlenv_robot)[\w.]*: ")
BAR = "  | "


class Person(Automatic):
    """Confirms with a note, refuses and fails with the same text."""

    refuses = False

    def ask(self, request: ResetRequest) -> Answer:
        if self.refuses:
            raise ResetFailed(EVIL)
        return Answer(EVIL, EVIL)

    def judge(self, request: VerdictRequest) -> Answer:
        raise OSError(EVIL)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


def check(log: io.StringIO) -> list[str]:
    lines = log.getvalue().split("\n")[:-1]
    for line in lines:
        assert line.isprintable(), repr(line)
        assert LINE.match(line) or line.startswith(BAR), repr(line)
        assert not line.startswith("2026-01-01"), repr(line)
    return lines


def hello(move: bool, take: str = "no") -> dict[str, object]:
    return {
        "digest": "",
        "name": EVIL.replace("\udcff", ""),
        "move": move,
        "replaces": 0,
        "take": take,
        "resume": False,
    }


@pytest.mark.requirement("R6.6")
def test_no_text_from_elsewhere_begins_a_line_of_the_log(
    log: io.StringIO, robot: Integrator, tmp_path: Path, target: Callable[..., dict[str, object]]
) -> None:
    person = Person()
    homing = Homing(Guard(robot), person)
    evil = EVIL.replace("\udcff", "")
    (tmp_path / "latch").mkdir()
    with ExitStack() as ends:
        server = ends.enter_context(Server(homing, watchdog_s=20, max_command_age_s=None, latch=tmp_path / "latch"))
        with closing(RemoteRobot(server.address)) as remote:
            with closing(Connection(server.address)) as rival:
                rival.session = rival.ask(MessageKind.HELLO, hello(True), (), 5).session  # the lease's holder
                with closing(Connection(server.address)) as other:
                    send_frames(other.socket, encode(MessageKind.HELLO, 0, 1, hello(True, "ask")))
                    until(lambda: " asks " in log.getvalue())
                    rival.ask(MessageKind.CONSENT, {"yes": False}, (), 5)
                rival.ask(MessageKind.RELEASE, None, (), 5)
            remote.reset({})
            with pytest.raises(RobotError):
                remote.judge(evil, 2.0)
            person.refuses = True
            with pytest.raises(ResetFailed):
                remote.reset({})
            person.refuses = False
            remote.stop(EVIL)
            remote.reset({"clear_stop": evil})

            def fails() -> None:
                raise OSError(EVIL)

            robot.on_step = fails
            with pytest.raises(RobotError):
                remote.step(target(0.1, 0))
            robot.on_step = lambda: None

            def stop(reason: str) -> None:
                raise OSError(EVIL)

            robot.stop = stop  # type: ignore[method-assign]
            with suppress(RobotError):
                remote.stop(EVIL)
            server.report(EVIL, EVIL)
            logging.getLogger("real.server.server").warning("%s", EVIL)
            time.sleep(0.1)
    lines = check(log)
    assert sum("stop cleared" in line for line in lines) >= 5, "the text itself is there, escaped"
    assert any(line.startswith(BAR) for line in lines), "tracebacks have a bar"


def test_a_damaged_or_forged_file_of_a_stop_forges_no_line(log: io.StringIO, robot: Integrator, tmp_path: Path) -> None:
    import json

    stored = {"reason": EVIL.replace("\udcff", ""), "since": "now\nERROR"}
    (tmp_path / f"stop-{robot.spec.name}.json").write_text(json.dumps(stored))
    with Server(robot, latch=tmp_path) as server:
        assert server.stopped is not None
    assert check(log)


def test_a_message_and_a_traceback_are_formatted_line_by_line() -> None:
    formatter = LogFormatter("%(levelname)s %(message)s")
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        record = logging.LogRecord("real", logging.ERROR, "x", 1, "met %s", (EVIL,), (type(error), error, None))
    first, *rest = formatter.format(record).split("\n")
    assert first.startswith("ERROR met x\\r\\n2026")
    assert first.isprintable()
    assert rest
    assert all(line.startswith(BAR) and line.isprintable() for line in rest)
