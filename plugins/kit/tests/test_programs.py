"""Programs get the verdicts of their Python originals, and each broken rule of the messages is a finding."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plugins.kit.tests import end_faults, frame_faults, good_ones, refusal_faults, seed_faults, source_faults
from plugins.kit.tests.plain import Pair, Sleds
from plugins.kit.tests.plain_source import Records
from rlenv_kit import Deadlines, JsonSubject, check_environment, check_source, judge
from rlenv_kit.report import Report
from rlenv_robot.cli import main as cli

pytestmark = [pytest.mark.requirement("R4.3", "6.4-a", "6.4-c"), pytest.mark.process]

PROGRAMS = Path(__file__).with_name("programs")
OURS = f"test={os.getpid()}"  # other processes may run the same tests
BREAKS_RULES = [sys.executable, "-S", "-E", "-X", OURS, str(PROGRAMS / "breaks_rules.py")]

ENVIRONMENTS: dict[str, Any] = {
    **{made.__name__: made for made in (Sleds, Pair, good_ones.FramesGoOn)},
    **{name: module.FAULTS[name].made for module, names in {
        frame_faults: (
            "NanLate", "FieldMissingLate", "EnvIdChanges", "LastFrameIsTheNextFirst", "IgnoresActions", "NoMapping",
        ),
        seed_faults: ("SeedCountsOnce", "HiddenStateSurvivesTheReset", "AllSeedsAreOne"),
        refusal_faults: (
            "MiddleElementIsNotChecked", "LateActionsAreNotChecked", "IllegalActionsDraw", "UpperBorderIsRefused",
        ),
        end_faults: ("RenderingMoves", "StepsOnAfterTheEnd", "SecondCloseFails"),
    }.items() for name in names},
}  # fmt: skip
"""Three good environments and 16 planted faults, which `sleds.cjs` and `sleds.c` have too."""

SOURCES: dict[str, Any] = {
    "Records": Records,
    **{name: source_faults.FAULTS[name].made for name in (
        "DoneIsTwo", "Backwards", "SeedIsForgotten", "ThresholdIsUpsideDown", "ActionsOfOneWalk", "CountsAreOff",
    )},
}  # fmt: skip
"""Good source data and six planted faults, which `records.cjs` and `records.c` have too."""

GOOD = {"Sleds", "Pair", "FramesGoOn", "Records"}


def _accused(report: Report) -> set[tuple[str, str]]:
    return {(check.key, check.clause) for check in report.failures}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[str]]:
    """Return what makes the command of a program in a language; it skips where the language is missing."""
    folder = tmp_path_factory.mktemp("programs")

    def command(language: str, name: str) -> list[str]:
        if language == "node":
            if shutil.which("node") is None:
                pytest.skip("no node here (Debian: apt-get install nodejs)")
            return ["node", str(PROGRAMS / f"{name}.cjs")]
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler here")
        built = folder / name
        if not built.exists():
            source = PROGRAMS / f"{name}.c"
            subprocess.run([compiler, "-std=gnu11", "-O1", "-o", str(built), str(source), "-lm"], check=True)
        return [str(built)]

    return command


@pytest.mark.slow
@pytest.mark.parametrize("language", ["node", "c"])
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_gets_the_verdict_of_its_original(
    name: str, language: str, program: Callable[[str, str], list[str]]
) -> None:
    command = program(language, "sleds")
    there = check_environment(JsonSubject([*command, name]))
    here = check_environment(lambda: ENVIRONMENTS[name]())
    left = {check.key for check in there.checks if check.passed is None}
    if left.isdisjoint(key for key, _ in _accused(here)):  # else another check sees the fault there
        assert _accused(there) == _accused(here), there.lines(verbose=False)
    assert there.passed == (name in GOOD)


@pytest.mark.slow
@pytest.mark.parametrize("language", ["node", "c"])
@pytest.mark.parametrize("name", SOURCES)
def test_a_source_gets_the_verdict_of_its_original(
    name: str, language: str, program: Callable[[str, str], list[str]]
) -> None:
    there = check_source(JsonSubject([*program(language, "records"), name]))
    here = check_source(SOURCES[name])
    assert _accused(there) == _accused(here), there.lines(verbose=False)
    assert there.passed == (name in GOOD)


@pytest.mark.parametrize("language", ["node", "c"])
@pytest.mark.parametrize(("name", "key"), [("Sleds", ""), ("AllSeedsAreOne", "seeds")])
def test_a_program_is_judged_while_one_works(
    name: str, key: str, language: str, program: Callable[[str, str], list[str]]
) -> None:
    report = check_environment(JsonSubject([*program(language, "sleds"), name]), steps=8, only=key or 0)
    assert [check.key for check in report.failures] == ([key] if key else [])


def test_what_shows_in_pythons_process_alone_is_not_tried(program: Callable[[str, str], list[str]]) -> None:
    report = check_environment(JsonSubject(BREAKS_RULES))
    report.raise_if_failed()
    left = {check.key: check.message for check in report.checks if check.passed is None}
    assert {"kept tables", "overwritten tables", "actions", "generators", "process"} <= left.keys()
    assert "no array is shared with it" in left["kept tables"]
    assert {"frames", "refusals", "two instances", "leftovers", "closed"}.isdisjoint(left)


# -- rules of the messages -----------------------------------------------------------------------------------


BROKEN = {
    "malformed": "is not JSON (",
    "nan": "NaN is no JSON",
    "wrong-id": "the answer of step has the id 10",
    "no-id": "the answer of step has the id None",
    "more-keys": "the answer of step has the keys debug, observation, reward",
    "prints-before": "the answer of step is not JSON (",
    "prints-after": "the program wrote a line that no request asked for: b'the arm is at 3'",
    "exits": "the program ended itself with exit code 3, in step",
    "exits-quietly": "the program ended itself with exit code 0, in step",
    "killed": "the program was ended by SIGKILL, in step",
    "closes-output": "the program closed its standard input or output and went on, in step",
    "closes-input": "the program closed its standard input or output and went on, in ",
    "odd-error": "it is an object with code and message",
    "stays": "it ends with its input",
    "fails-at-the-end": "the program ended itself with exit code 4 after close",
    "leaves-a-child": "the program left processes of its own behind",
    "greets": "the answer of describe is not JSON (",
    "no-close": "it lists close",
    "no-description": "observation in the answer of describe is no description",
}
"""What the program does -> the words of the finding."""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait 1 s for a program that does not end."""
    from rlenv_kit import program

    monkeypatch.setattr(program, "_END_S", 1.0)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_rule_is_one_finding_with_the_call(kind: str) -> None:
    before = _children()
    report = check_environment(JsonSubject([*BREAKS_RULES, kind]))
    assert BROKEN[kind] in report.failures[0].message, report.lines(verbose=False)
    assert len(report.failures) == 1
    if kind not in ("greets", "no-close", "no-description"):
        assert "call" in report.failures[0].how or "reset" in report.failures[0].how, "what came before"
    assert _children() == before, "the process group has ended with the check"


@pytest.mark.parametrize("kind", ["hangs", "is-deaf"])
def test_no_answer_is_a_finding_after_the_deadline(kind: str) -> None:
    before = _children()
    report = check_environment(JsonSubject([*BREAKS_RULES, kind]), deadlines=Deadlines(step=1.0, reset=1.5))
    (finding,) = report.failures
    assert "did not return within" in finding.message
    assert ("step" if kind != "is-deaf" else "make") in finding.message
    assert _children() == before


def _children() -> set[str]:
    """Return the programs of this test that run, by their number in /proc."""
    found = set()
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes()
        except OSError:
            continue
        if OURS.encode() in words.split(b"\0"):
            found.add(place.parent.name)
    return found


def test_what_a_program_describes_is_held_against_it() -> None:
    report = check_environment(JsonSubject([*BREAKS_RULES, "describes-otherwise"]), steps=8)
    assert [check.key for check in report.failures] == ["spec stays"]
    report = check_environment(JsonSubject([*BREAKS_RULES, "takes-more"]), steps=8)
    report.raise_if_failed()
    assert [check.passed for check in report.checks if check.key == "step extra"] == [True]
    report = check_environment(JsonSubject([*BREAKS_RULES, "own-null"]), steps=8)
    assert [check.key for check in report.failures] == ["agents"]
    report = check_environment(JsonSubject([*BREAKS_RULES, "hides"]), only="inference")
    assert report.passed
    assert report.checks[0].passed
    report = check_environment(JsonSubject([*BREAKS_RULES, "moves"]))
    assert "it is not simulated" in report.failures[0].message


def test_source_data_that_fail_are_accused_by_call_and_at_their_end() -> None:
    report = check_source(JsonSubject([*BREAKS_RULES, "breaks-a-source"]))
    words = [check.message for check in report.failures]
    assert "the program offers describe, sample_steps, sample_trajectories, close, not init" in words[0]
    assert any("exit code 4 after close" in message for message in words), words


def test_a_program_may_end_with_close() -> None:
    check_environment(JsonSubject([*BREAKS_RULES, "ends-with-close"])).raise_if_failed()


# -- doors ---------------------------------------------------------------------------------------------------


def _run(*arguments: str) -> int:
    try:
        return cli.main([*arguments])
    except SystemExit as over:
        return int(over.code or 0)


def test_the_command_judges_a_program_and_shows_its_errors_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert _run("check", f"exec:{' '.join(BREAKS_RULES)} killed", "--steps", "8") == 1
    shown = capfd.readouterr()
    assert "the program was ended by SIGKILL, in step" in shown.out
    assert "Traceback" not in shown.out + shown.err
    assert "digits: killed" in shown.err
    assert _run("check", "exec:no-such-program-anywhere") == 2
    assert "no-such-program-anywhere" in capfd.readouterr().err


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_program_that_hangs_ends_with_the_check_even_if_the_process_between_is_killed() -> None:
    before = _children()

    def kill_between() -> None:
        """Kill the process that makes the calls, once the program has hung for 3 s."""
        hanging = set[str]()
        while not hanging:
            found = _children() - before
            time.sleep(3)
            hanging = found & _children()
        os.kill(_parent(hanging.pop()), signal.SIGKILL)

    thread = threading.Thread(target=kill_between)
    thread.start()
    (report,) = judge.judge(f"exec:{' '.join(BREAKS_RULES)} hangs")
    thread.join()
    assert "was ended by SIGKILL" in report.failures[0].message
    assert _children() == before


def _parent(number: str) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_program_that_describes_nothing_is_a_finding_of_the_command() -> None:
    (report,) = judge.judge(f"exec:{' '.join(BREAKS_RULES)} no-description")
    assert "observation in the answer of describe is no description" in report.failures[0].message


@pytest.fixture
def listening() -> Iterator[str]:
    """Return the address of a program that makes an instance for each connection."""
    server = socket.create_server(("127.0.0.1", 0))
    over, programs = threading.Event(), list[subprocess.Popen[bytes]]()

    def accept() -> None:
        while not over.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                number = connection.fileno()
                programs.append(subprocess.Popen(BREAKS_RULES, stdin=number, stdout=number, stderr=subprocess.DEVNULL))

    thread = threading.Thread(target=accept)
    thread.start()
    yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
    over.set()
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()
    assert len(programs) > 3, "each instance has a connection of its own"
    for program in programs:
        program.wait(20)


def test_a_program_behind_a_socket_is_judged(listening: str) -> None:
    (report,) = judge.judge(listening, steps=8)
    report.raise_if_failed()
    with pytest.raises(ValueError, match=r"tcp://127\.0\.0\.1:5650"):
        JsonSubject("tcp://nowhere")()


@pytest.mark.slow
def test_our_own_tables_on_standard_output_pass_the_check() -> None:
    command = f"{sys.executable} -m rlenv_robot dev tables go --listen -"
    (report,) = judge.judge(f"exec:{command}", steps=8)
    report.raise_if_failed()


def test_a_command_is_given_as_words_or_as_text() -> None:
    for command in (BREAKS_RULES, " ".join(BREAKS_RULES)):
        made = JsonSubject(command)()
        assert made.env_id.startswith("digits-")
        made.close()
        made.close()
    with pytest.raises(ValueError, match="empty"):
        JsonSubject("")()
