"""Run ordinary commands of ``rlenv-robot`` as processes, follow their progress, and end them in an orderly way."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hal.field import JsonDict
from rlenv_operate.console import child

__all__ = ["Job", "Jobs"]

_log = logging.getLogger(__name__)

_LOOK_S = 0.2
"""Time between two looks at the processes and at their progress, in seconds."""

_MOST_POINTS = 150
"""Points of a curve that a page is sent at most."""

_TAIL_BYTES, _TAIL_LINES = 4096, 6
_PACES, _FEWEST_PACES, _REPLAYED_S = 20, 3, 0.02
"""Newest steps of a progress from which the time left is estimated, fewest of them, and the time below which a step was
not worked for but repeated from an interrupted training, seconds."""


@dataclass(slots=True)
class Job:
    """One process of an ordinary command.

    Attributes:
        step: the step of the flow that it carries out, such as ``train``.
        words: the words after ``rlenv-robot``.
        by: the name of the person who started it.
        process: the process.
        lifeline: end of a pipe; when this process and all that inherited it have closed it, the job's process ends
            itself (`rlenv_operate.console.child`).
        log: file of its output.
        progress: file of its progress (``--progress``).
        about: further data of the job, for who started it.
        needs: a step whose job ends after this one when all end.
        began_s: time of day when it was started, seconds since 1970.
        state: ``running``, ``done``, ``stopped`` (by a person) or ``failed``.
        newest: the newest report of its progress.
        curve: points of a curve, the completed share and a return or a success rate.
        drawn: the figures of the curve's last point.
        paces: time and share of the newest steps of the progress.
    """

    step: str
    words: Sequence[str]
    by: str
    process: subprocess.Popen[bytes]
    lifeline: int
    log: Path
    progress: Path
    about: Mapping[str, object]
    needs: str = ""
    began_s: float = field(default_factory=time.time)
    state: str = "running"
    newest: JsonDict = field(default_factory=dict)
    curve: list[tuple[float, float]] = field(default_factory=list)
    drawn: Mapping[str, float] = field(default_factory=dict)
    paces: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_PACES))
    read: int = 0
    ending: bool = False

    @property
    def left_s(self) -> float | None:
        """The time that the running stage will still take at its newest pace, seconds; None while it is unknown."""
        share = self.newest.get("share")
        if self.state != "running" or share is None or len(self.paces) < _FEWEST_PACES:
            return None
        seconds, shares = (sum(column) for column in zip(*self.paces, strict=True))
        return float((1.0 - share) * seconds / shares)

    @property
    def command(self) -> str:
        """The command as a person would type it, without the option for the progress."""
        words = list(self.words)
        if "--progress" in words:
            at = words.index("--progress")
            del words[at : at + 2]
        return shlex.join(["rlenv-robot", *words])

    @property
    def tail(self) -> str:
        """The last lines of the output."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-_TAIL_LINES:])

    def view(self) -> JsonDict:
        """Return the job for a page, as plain data."""
        stride = -(-len(self.curve) // _MOST_POINTS) or 1
        curve = [point for at, point in enumerate(self.curve) if at % stride == 0 or at + 1 == len(self.curve)]
        return {
            "step": self.step, "command": self.command, "by": self.by, "state": self.state, "tail": self.tail,
            "share": self.newest.get("share"), "remark": self.newest.get("remark", ""),
            "ask": self.newest.get("ask", "") if self.state == "running" else "",
            "began_s": self.began_s, "left_s": self.left_s, "curve": curve,
        }  # fmt: skip

    def look(self) -> bool:
        """Read what is new of the progress and of the process; return whether something was."""
        changed = self._read()
        code = self.process.poll()
        if self.state == "running" and code is not None:
            self._read()
            self.state = "done" if code == 0 else "stopped" if self.ending else "failed"
            os.close(self.lifeline)
            if self.process.stdin is not None:
                with suppress(OSError):  # an answer that was not read
                    self.process.stdin.close()
            changed = True
        return changed

    def _read(self) -> bool:
        try:
            with self.progress.open("rb") as file:
                file.seek(self.read)
                data = file.read()
        except OSError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self.read += len(whole)
        for line in whole.splitlines():
            before, self.newest = self.newest, json.loads(line)
            self._pace(before)
            figures, share = self.newest["figures"], self.newest["share"]
            value = figures.get("success", figures.get("return"))
            # Reports repeat the newest evaluation.
            if value is not None and share is not None and figures != self.drawn:
                self.drawn = figures
                self.curve.append((share, value))
        return bool(whole)

    def _pace(self, before: JsonDict) -> None:
        """Take the pace of the newest step, from the report before it."""
        if before.get("stage") != self.newest["stage"]:
            self.paces.clear()
        elif before["share"] is not None and self.newest["share"] is not None:
            seconds, share = self.newest["wall_s"] - before["wall_s"], self.newest["share"] - before["share"]
            if seconds > _REPLAYED_S and share > 0:
                self.paces.append((seconds, share))


class Jobs:
    """The processes of a console, at most one of each step. All methods are thread-safe.

    Args:
        folder: the working folder of the commands; outputs and progress are kept in its folder ``jobs``.

    Attributes:
        on_change: called after each change of a job; must not block.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept = folder / "jobs"
        self._kept.mkdir(parents=True, exist_ok=True)
        self._jobs: dict[str, Job] = {}
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._closing = threading.Event()
        self.on_change: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="rlenv-robot console jobs", daemon=True)

    def begin(self) -> None:
        """Begin to follow the processes."""
        self._thread.start()

    def get(self, step: str) -> Job | None:
        """Return the newest job of a step, or None."""
        return self._jobs.get(step)

    def runs(self, step: str) -> bool:
        """Return whether a job of this step runs."""
        job = self._jobs.get(step)
        return job is not None and job.process.poll() is None

    def view(self) -> list[JsonDict]:
        """Return the newest job of each step, as plain data."""
        return [job.view() for job in list(self._jobs.values())]

    def start(
        self,
        step: str,
        words: Sequence[str],
        by: str,
        about: Mapping[str, object] | None = None,
        *,
        progress: bool,
        needs: str = "",
    ) -> Job:
        """Start a command. It ends as after Ctrl-C when this process has gone, however it went.

        Args:
            step: the step of the flow that it carries out.
            words: the words after ``rlenv-robot``.
            by: the name of the person.
            about: further data of the job.
            progress: whether the command takes the option ``--progress``.
            needs: a step whose job, if it runs, ends after this one when all end; empty for none.

        Raises:
            ValueError: a job of this step runs.
            OSError: the process can't be started.
        """
        with self._lock:
            if self._closing.is_set():
                raise ValueError("the console is ending")
            if self.runs(step):
                raise ValueError(f"{step} runs already, started by {self._jobs[step].by}; stop it first")
            self.end(step)  # which takes up that it has ended
            stem = self._kept.absolute() / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{step}"
            log, report = stem.with_suffix(".log"), stem.with_suffix(".jsonl")
            if progress:
                words = [*words, "--progress", str(report)]
            needed = [self._jobs[needs].lifeline] if self.runs(needs) else []
            pipe, lifeline = os.pipe()
            try:
                with log.open("wb") as output:
                    process = subprocess.Popen(
                        [sys.executable, "-m", child.__name__, str(pipe), *words], cwd=self.folder,
                        stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, pass_fds=(pipe, *needed),
                        start_new_session=True,  # Ctrl-C at the console's terminal reaches the console alone
                        env={**os.environ, "PYTHONUNBUFFERED": "1"},
                    )  # fmt: skip
            except OSError:
                os.close(lifeline)
                raise
            finally:
                os.close(pipe)
            job = Job(step, words, by, process, lifeline, log, report, about or {}, needs)
            self._jobs[step] = job
        self.on_change()
        return job

    def end(self, step: str) -> bool:
        """End a job as Ctrl-C does, and wait for its end; return whether it ran.

        A process that does not end in time is terminated, and then killed.
        """
        job = self._jobs.get(step)
        if job is None:
            return False
        if job.process.poll() is not None:
            self._look(job)
            return False
        job.ending = True
        for number, patience_s in child.ENDINGS:
            job.process.send_signal(number)
            try:
                job.process.wait(patience_s)
                break
            except subprocess.TimeoutExpired:
                _log.warning("%s did not end within %g s after %s", job.command, patience_s, number.name)
        self._look(job)
        self.on_change()
        return True

    def enter(self, step: str) -> None:
        """Answer the request of a job, as a person at its terminal does by Enter.

        Raises:
            ValueError: no such job waits for an answer.
        """
        job = self._jobs.get(step)
        if job is None or job.process.poll() is not None or not job.newest.get("ask") or job.process.stdin is None:
            raise ValueError(f"{step} asks for nothing now")
        try:
            job.process.stdin.write(b"\n")
            job.process.stdin.flush()
        except OSError as error:
            raise ValueError(f"{step} has ended: {error}") from None

    def close(self) -> None:
        """End all jobs. Safe to call more than once."""
        with self._lock:
            self._closing.set()
        needed = {job.needs for job in self._jobs.values()}
        for steps in (self._jobs.keys() - needed, self._jobs.keys() & needed):
            enders = [threading.Thread(target=self.end, args=(step,)) for step in steps]
            for ender in enders:
                ender.start()
            for ender in enders:
                ender.join()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(_LOOK_S):
            if sum(self._look(job) for job in list(self._jobs.values())):
                self.on_change()

    def _look(self, job: Job) -> bool:
        with self._reading:
            return job.look()
