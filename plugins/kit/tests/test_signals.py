"""A signal that ends a real check process stops the robot, then closes it, in whichever call it comes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import until

pytestmark = [pytest.mark.requirement("R4.3", "R6.6"), pytest.mark.process, pytest.mark.slow]

DRIVER = '''
import time
from pathlib import Path
from plugins.kit.tests.gantry import Gantry

FILE, CALL, NUMBER = Path({file!r}), {call!r}, {number!r}


class Marked(Gantry):
    """Write each call into a file, and wait in one of them until a signal comes."""

    simulated = False
    counts = {{}}

    def mark(self, call):
        with FILE.open("a") as file:
            file.write(call + "\\n")
        self.counts[call] = self.counts.get(call, 0) + 1
        if call == CALL and self.counts[call] == NUMBER:
            with FILE.open("a") as file:
                file.write("waits\\n")
            time.sleep(5)

    def tick(self):
        super().tick()
        time.sleep(0.001)

    def reset(self, options):
        self.mark("reset")
        return super().reset(options)

    def step(self, command):
        self.mark("step")
        return super().step(command)

    def stop(self, reason):
        super().stop(reason)
        self.mark("stop")

    def close(self):
        super().close()
        self.mark("close")
'''


@pytest.mark.parametrize(
    ("number", "call", "count"),
    [
        (signal.SIGINT, "reset", 1),
        (signal.SIGINT, "step", 9),
        (signal.SIGTERM, "step", 30),
        (signal.SIGHUP, "reset", 5),
        (signal.SIGINT, "stop", 2),
    ],
    ids=lambda value: str(value),
)
def test_a_signal_stops_and_closes_the_robot(tmp_path: Path, number: signal.Signals, call: str, count: int) -> None:
    calls, driver = tmp_path / "calls", tmp_path / "marked_arm.py"
    calls.touch()
    driver.write_text(DRIVER.format(file=str(calls), call=call, number=count), encoding="utf-8")
    root = str(Path(__file__).resolve().parents[3])
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from rlenv_robot.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "check", f"{driver}:Marked", "--yes"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        until(lambda: "waits" in calls.read_text() or process.poll() is not None, 60)
        assert process.poll() is None, process.communicate()[0]
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    after = calls.read_text().split("waits\n")[1].split()
    assert process.returncode != 0, output
    assert after[-1] == "close", after
    assert "stop" in after, after
    assert "step" not in after, after
    assert "reset" not in after, after
