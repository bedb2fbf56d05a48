"""Commands print progress and counts, and SIGINT and SIGTERM end a wait at whatever instant they come."""

import subprocess
import sys

import pytest

from rlenv_robot.cli.output import counted, progress, progress_bars

PROGRAM = """
import os, random, signal, sys, time
from rlenv_robot.cli.output import StopSignals

ear, mouth = os.pipe()
if (other := os.fork()) == 0:  # sends a signal some instants after it is told to
    os.close(mouth)
    dice = random.Random(1)
    while os.read(ear, 1):
        due = time.perf_counter() + dice.uniform(0, 2e-4)
        while time.perf_counter() < due:
            pass
        os.kill(os.getppid(), dice.choice((signal.SIGINT, signal.SIGTERM)))
    os._exit(0)
os.close(ear)
for n in range(int(sys.argv[1])):
    ending = StopSignals()
    os.write(mouth, b"!")
    while not ending.wait(5e-5):
        pass
os.close(mouth)
os.waitpid(other, 0)
print("ended", n + 1, "times, again:", ending.wait(0))
"""


@pytest.mark.process
@pytest.mark.requirement("R6.6")
def test_a_signal_at_any_instant_of_a_wait_ends_it():
    """A thousand; an event that is set by the handler hung after some fifty."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, "1000"], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "ended 1000 times, again: False\n"


def test_progress_without_a_terminal_is_a_line_for_a_stage_or_nothing(capsys):
    with progress_bars() as bars:
        advance = bars.begin("train", 10)
        advance(4, "halfway")
        advance(10, "done")
    assert capsys.readouterr().out == "train\n  done\n"
    with progress("copying") as report:
        report(1, 2)
        report(2, 2)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_a_count_has_its_noun():
    assert [counted(count, "episode") for count in (0, 1, 2)] == ["0 episodes", "1 episode", "2 episodes"]
