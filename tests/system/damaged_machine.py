"""Scenes with a served arm and a recorded run on a machine that is damaged: each a program in namespaces of its own.

    unshare -m --propagation private python -m tests.system.damaged_machine full /tmp/here

Each scene checks the same four points as `test_faults.py`. It runs as root, and changes mounts that only it can see.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import rlenv_robot as rr
from hal import LogError, RobotStopped
from real import RemoteRobot
from recorder.names import TABLE_FOLDER
from recorder.read.reader import LogReader
from recorder.table.load import load_runs
from tests.fakes import looked, until
from tests.real.page_client import DONE, PageClient

SERVER = """
import sys
from real import Server
from sim.robot import SimRobot
from sim.robots.so101 import so101
options = {"watchdog_s": 5.0, "max_command_age_s": None, "priority": int(sys.argv[2])}
with Server(SimRobot(so101()), latch=sys.argv[1], **options) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""


class Serving:
    """A server in a process of its own, whose stops are kept in a folder."""

    def __init__(self, latch: Path, priority: int = 0, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(latch), str(priority)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, **(environment or {})},
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        if self.address:  # else it has refused to serve, and ends
            self.page = PageClient(self.address)

    def stop(self, why: str) -> str | None:
        """Stop the robot at the endpoint for stops; return why the stop may be lost, or None."""
        kind, detail = self.page.stop_endpoint().stop(why)
        assert kind == DONE
        trouble: str | None = detail["trouble"]
        return trouble

    @property
    def status(self) -> dict[str, Any]:
        """Return what the other side learns."""
        return self.page.status()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


class Run:
    """A recorded run of a served arm; it remembers how often the environment has answered."""

    def __init__(self, address: str, folder: Path) -> None:
        self.warnings: list[str] = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: self.warnings.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("rlenv_robot").addHandler(handler)
        self.folder = folder
        self.robot = RemoteRobot(address, connect_timeout_s=60, step_timeout_s=30)
        self.env = rr.make("so101-reach", robot=self.robot, record=folder, steps=100_000)
        self.state = self.env.reset({"seed": 1})
        self.answered = 1

    def steps(self, count: int) -> None:
        for _ in range(count):
            now = {name: self.state[name] for name in ("env_id", "frame_no")}
            action = {"joint_target": self.state["observation"]["joint_goal"]}
            self.state, _ = self.env.step({**now, "action": action})
            assert not self.state["truncated"], self.state["extra_info"]
            self.answered += 1

    def log(self) -> LogReader:
        (run,) = [file.parent for file in self.folder.rglob("log.mcap")]
        return LogReader(run)


def mount(place: Path, size: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(place)], check=True)


def fill(place: Path, left: int = 0) -> None:
    """Fill a disk to the last byte, or to so many bytes less."""
    with suppress(OSError), open(place / f"filler-{left}", "wb", buffering=0) as file:
        while (free := shutil.disk_usage(place).free - left) > 0:
            file.write(bytes(min(free, 1 << 20)))


# -- scenes --------------------------------------------------------------------------------------------------


def full(folder: Path) -> None:
    """The disk of the log and of the stop fills up, to the last byte."""
    disk = folder / "disk"
    mount(disk, "280m")
    serving = Serving(disk / "latch")
    run = Run(serving.address, disk / "runs")
    run.steps(20)
    fill(disk, left=200 << 20)  # the log keeps 256 MiB of a disk free
    while not run.warnings:
        run.steps(5)
    assert "MiB left and 256 MiB are kept free; recording stops. Make room" in run.warnings[0]
    before = run.answered
    run.steps(5)  # the robot goes on under its policy
    fill(disk)
    assert shutil.disk_usage(disk).free == 0
    assert serving.stop("a hand") is None, "the file was filled to its size before"
    assert serving.status["state"] == "stopped"
    with suppress(LogError):  # which has been said
        run.env.close()
    serving.kill()
    log = run.log()
    assert log.complete
    frames = log.frames()["frame_no"]
    np.testing.assert_array_equal(frames, np.arange(len(frames)))
    assert 21 <= len(frames) <= before
    assert "kept free" in str(log.episodes()[0].end)
    again = Serving(disk / "latch")
    assert "a hand (since" in again.status["why"]
    with suppress(RobotStopped):
        again_robot = RemoteRobot(again.address)
        again_robot.reset({})
        raise AssertionError("a reset without a reason has cleared the stop")
    again_robot.reset(looked(again_robot))
    assert again.status["state"] == "ready"
    again.kill()
    made = Serving(disk / "other")  # no room for a file at all
    assert made.status["state"] == "stopped"
    assert "a stop would be lost" in made.status["why"]
    assert "No space left" in made.status["why"]
    made.kill()


def vanished(folder: Path) -> None:
    """The disk of the log and of the stop is gone in mid-motion, and comes back without what was not synced."""
    disk = folder / "disk"
    mount(disk, "300m")
    serving = Serving(disk / "latch")
    run = Run(serving.address, disk / "runs")
    run.steps(20)
    subprocess.run(["umount", "-l", str(disk)], check=True)
    while not run.warnings:
        run.steps(5)
    assert "is gone, or its disk: No such file or directory; recording stops" in run.warnings[0]
    assert "Attach it again" in run.warnings[0]
    run.steps(5)
    stop_file = disk / "latch" / "stop-so101.json"
    until(stop_file.exists)  # made anew under the mount, within a second
    until(lambda: serving.status["stop_file"]["failure"] is None)
    assert serving.stop("a hand") is None
    assert serving.status["state"] == "stopped"
    serving.kill()
    again = Serving(disk / "latch")
    assert "a hand (since" in again.status["why"]
    mount(disk, "300m")  # an empty one, over the file that holds the stop
    until(lambda: again.status["stop_file"]["failure"] is None and stop_file.exists())
    again.kill()
    once_more = Serving(disk / "latch")
    assert once_more.status["state"] == "stopped"
    once_more.kill()


def slow(folder: Path) -> None:
    """Every sync takes as long as it likes: steps and stops wait for none of them."""
    environment, gate = preloaded(folder), folder / "gate"
    serving = Serving(folder / "latch", environment=environment)
    gate.touch()
    run = Run(serving.address, folder / "runs")  # its disk works: the stop's file is what matters here
    run.steps(20)
    assert serving.stop("a hand") is None, "a killed process loses nothing that the system has"
    assert serving.status["state"] == "stopped"
    serving.kill()
    run.env.close()
    assert len(run.log().frames()) == run.answered
    gate.unlink()
    again = Serving(folder / "latch")
    assert again.status["state"] == "stopped"
    again.kill()
    recorded_slowly(folder, environment, gate)


def recorded_slowly(folder: Path, environment: Mapping[str, str], gate: Path) -> None:
    """The same disk under a recorded run: its steps are answered, and are in the log once the disk has caught up."""
    client = subprocess.Popen(
        [sys.executable, "-m", "tests.system.damaged_machine", "records", str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment},
    )  # fmt: skip
    assert client.stdout is not None
    answered = int(client.stdout.readline())
    gate.unlink()
    assert client.stdin is not None
    client.stdin.close()
    assert client.wait(60) == 0
    (run,) = [file.parent for file in (folder / "slowly").rglob("log.mcap")]
    assert len(LogReader(run).frames()) == answered


def records(folder: Path) -> None:
    """Record 200 steps in this process on a disk that turns slow, and close the run when the input ends."""
    env = rr.make("so101-reach", record=folder / "slowly", steps=100_000)
    state = env.reset({"seed": 1})
    (folder / "gate").touch()
    for _ in range(200):
        now = {name: state[name] for name in ("env_id", "frame_no")}
        state, _ = env.step({**now, "action": {"joint_target": state["observation"]["joint_goal"]}})
    print(201, flush=True)
    sys.stdin.read()
    env.close()


def clock(folder: Path) -> None:
    """The clock of the server's machine jumps by an hour and a day, both ways, in mid-motion and over a restart."""
    offset = folder / "offset"
    offset.write_text("0")
    serving = Serving(folder / "latch", environment=preloaded(folder))
    run = Run(serving.address, folder / "runs")
    for seconds in (3600, -3600, 86_400, -86_400, 0):
        offset.write_text(str(seconds))
        run.steps(20)
        assert serving.status["state"] == "running"
    assert serving.stop("a hand") is None
    number = serving.status["stop_number"]
    offset.write_text("-86400")
    serving.kill()
    again = Serving(folder / "latch", environment=preloaded(folder))
    assert again.status["state"] == "stopped"
    assert again.status["stop_number"] > number, "a number of yesterday would be seen again"
    run.env.close()
    stamps = run.log().frames()["stamp_ns"]
    assert len(stamps) == run.answered
    assert (np.diff(stamps) > 0).all()
    again.kill()


def preloaded(folder: Path) -> Mapping[str, str]:
    """Return the environment of a process whose disk and clock obey the files ``gate`` and ``offset``."""
    source, library = folder / "damage.c", folder / "damage.so"
    if not library.exists():
        source.write_text(DAMAGE)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "DAMAGE_GATE": str(folder / "gate"), "DAMAGE_OFFSET": str(folder / "offset")}


DAMAGE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static void wait_for_disk(void) {
    const char *gate = getenv("DAMAGE_GATE");
    while (gate && access(gate, F_OK) == 0) usleep(10000);
}
int fsync(int fd) { wait_for_disk(); return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd); }
int fdatasync(int fd) { wait_for_disk(); return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd); }
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    const char *path = getenv("DAMAGE_OFFSET");
    if (clock == CLOCK_REALTIME && path && !failed) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, text, 31) > 0) now->tv_sec += atol(text);
            close(file);
        }
    }
    return failed;
}
"""


def read_only(folder: Path) -> None:
    """Nothing can be written but one small folder: no home, no cache, no temporary files."""
    disk = folder / "disk"
    mount(disk, "300m")
    subprocess.run(["mount", "--bind", "/", "/"], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", "/"], check=True)
    for place in (Path.home(), Path("/tmp"), Path("/var")):
        with suppress(OSError):
            (place / "written").touch()
            raise AssertionError(f"{place} can be written")
    everyday(disk, disk)
    run = next(disk.rglob("log.mcap")).parent
    before = load_runs(run).rows
    shutil.rmtree(run / TABLE_FOLDER)
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)  # open files keep the other mount busy
    subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
    assert load_runs(run).rows.tobytes() == before.tobytes()
    unkept = Serving(Path("/latch"))
    assert unkept.process.wait(60) != 0
    assert unkept.address == ""


def without_root(folder: Path) -> None:
    """An ordinary user without a home, and without a right to real time."""
    os.environ.pop("HOME", None)
    os.environ["XDG_CACHE_HOME"] = ""
    everyday(folder, folder, priority=40)


def everyday(latch: Path, runs: Path, priority: int = 0) -> None:
    """Serve, record, stop, kill, start again and read the run."""
    serving = Serving(latch / "latch", priority)
    if priority:
        assert "not" in serving.status["real_time"], serving.status["real_time"]
    run = Run(serving.address, runs / "runs")
    run.steps(20)
    assert serving.stop("a hand") is None
    run.env.close()
    serving.kill()
    assert run.log().complete
    assert len(run.log().frames()) == run.answered
    assert len(load_runs(runs / "runs").rows) == run.answered, "without a cache of tables"
    again = Serving(latch / "latch", priority)
    assert "a hand (since" in again.status["why"]
    robot = RemoteRobot(again.address)
    robot.reset(looked(robot))
    robot.close()
    again.end()
    assert Serving(latch / "latch", priority).status["state"] == "disarmed"


SCENES: Mapping[str, Callable[[Path], None]] = {
    scene.__name__: scene for scene in (full, vanished, slow, records, clock, read_only, without_root)
}


if __name__ == "__main__":
    began = time.monotonic()
    SCENES[sys.argv[1]](Path(sys.argv[2]))
    print(f"{sys.argv[1]}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    os._exit(0)  # servers that this scene has left end with it
