"""Check several instances of an environment: side by side, in another process, and for leaked resources."""

from __future__ import annotations

import gc
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from hal import Spec
from rlenv_kit.probe import COMPARED, Frame, Probe, StandardEnvironment, Table, is_over
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.supervisor import CallLog, Deadlines, PlannedCheck, check, declared
from rlenv_kit.tables import digest_of
from rlenv_kit.vector_probe import VectorProbe

__all__ = [
    "Factory", "Leftovers", "changed_state", "compare_processes", "digest_of_walk", "factory_of", "instance_checks",
    "place_of", "process_state",
]  # fmt: skip

Factory = Callable[[], StandardEnvironment]

_CYCLES = 2
_SETTLE_S = 10.0
"""Longest time in which threads end after a close; generous, since a busy machine is no fault of theirs."""

_PROCESS_S = 90.0

_CHILD = """
import sys
sys.path[:0] = {path!r}
from rlenv_kit.instances import digest_of_walk
print(digest_of_walk({module!r}, {file!r}, {name!r}, {seed!r}, {steps!r}, {num!r}))
"""


def factory_of(env: StandardEnvironment) -> Factory | None:
    """Return a function that makes another environment like this one, or None if its class needs arguments."""
    if _takes_nothing(type(env)):
        return type(env) if _alike(env, type(env)) else None
    world, kind = getattr(env, "world", None), cast("Callable[[object], StandardEnvironment]", type(env))
    if world is not None and _takes_nothing(type(world)) and _alike(world, type(world)):
        return lambda: kind(type(world)())  # an Environment takes its world
    return None


def _alike(one: object, made: Callable[[], object]) -> bool:
    """Return whether an object made without arguments has the same settings, as far as its attributes tell."""
    try:
        other = made()
    except Exception:
        return False
    close = getattr(other, "close", None)
    mine, theirs = (_settings(subject) for subject in (one, other))
    if callable(close):
        close()
    return mine == theirs


def _settings(subject: object) -> dict[str, object]:
    kept = {name: value for name, value in getattr(subject, "__dict__", {}).items()
            if isinstance(value, int | float | str | tuple | None) and name != "env_id"}  # fmt: skip
    specs = (getattr(subject, name, None) for name in ("observation", "action"))
    return {**kept, "specs": [spec.to_dict() if isinstance(spec, Spec) else None for spec in specs]}


def _takes_nothing(made: type) -> bool:
    try:
        parameters = inspect.signature(made).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(
        parameter.default is not parameter.empty or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in parameters
    )


def place_of(factory: object) -> tuple[str, str, str] | None:
    """Return module, file and qualified name of a factory that another process can import, or None if it can't be."""
    name, module = getattr(factory, "__qualname__", ""), getattr(factory, "__module__", "")
    owner = getattr(factory, "__self__", None)
    if isinstance(owner, type):  # a class method, which a subclass may have inherited
        name, module = f"{owner.__qualname__}.{getattr(factory, '__name__', '')}", owner.__module__
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    if not name or "<" in name or not module or (module == "__main__" and not file):
        return None
    return module, file, name


def instance_checks(probe: Probe, factory: Factory | None) -> list[PlannedCheck]:
    """Return the checks of several instances.

    Args:
        probe: drives the environment under test.
        factory: makes another instance; None marks these checks as not tried.
    """
    return declared(vars(_Instances), _Instances(probe, factory), probe)


class _Instances:
    def __init__(self, probe: Probe, factory: Factory | None) -> None:
        self._probe, self._factory = probe, factory
        self._state: Table | None = None

    def _make(self) -> Probe:
        probe = self._probe
        if self._factory is None:
            raise NotTried("give a factory, such as module:function, instead of an environment object")
        return Probe(self._factory(), probe.steps, probe.seed, probe.repeatable, log=probe.log)

    @check(
        "two instances",
        "two instances do not influence each other, and equal seeds give equal episodes",
        "6.2.3.1-T1.env_id",
        "clock",
        "error passes",
    )
    def side_by_side(self, probe: Probe) -> None:
        if not probe.repeatable:
            raise NotTried("a real machine exists only once")
        first, second = probe.walk(), probe.walk(seed=probe.seed + 7)
        other = self._make()
        try:
            again = other.repeat(second, seed=probe.seed + 7)
            probe.compare(second, again, "in a second instance, whose first episode it is")
            if other.env.env_id == probe.env.env_id:
                raise Failed(f"two instances have the same env_id {probe.env.env_id!r}",
                             "it is unique among instances")  # fmt: skip
            probe.compare(first, other.repeat(first), "in a second instance")

            def between(table: Table) -> None:
                self._advance(other)

            self._state = None
            probe.compare(first, probe.repeat(first, between), "while a second instance steps")
            self._check_named(probe.walk(3))
            self._state = None
            probe.compare(first, other.repeat(first, lambda table: self._advance(probe)),
                          "in a second instance, while the first one steps")  # fmt: skip
            other.reset()
        finally:
            other.close()
        probe.compare(first, probe.repeat(first), "after a second instance was closed")

    def _check_named(self, frames: list[Frame]) -> None:
        """Check that tables bear the instance's own name while there is another one."""
        for frame in frames:
            if frame.kept["env_id"] != self._probe.env_id:
                raise Failed(f"env_id is {frame.kept['env_id']!r} beside a second instance",
                             f"that of the instance is {self._probe.env_id!r}")  # fmt: skip

    def _advance(self, other: Probe) -> None:
        if self._state is None or is_over(self._state):
            self._state = other.reset(other.seed + 4)
        else:
            self._state = other.legal_step(self._state, np.random.default_rng(1)).table

    @check("process", "another process gives the same episode", "contract", "two instances")
    def another_process(self, probe: Probe) -> None:
        if not probe.repeatable:
            raise NotTried("a real machine exists only once")
        compare_processes(self._factory, _digests(probe.walk()), probe.seed, probe.steps)

    @check("leftovers", "nothing is left behind after close", "contract", "frames")
    def leftovers(self, probe: Probe) -> None:
        """Open and close several instances, and look for threads, files and settings that stay."""
        if self._factory is None:
            raise NotTried("give a factory, such as module:function, instead of an environment object")
        closed = [self._cycle()]  # the first one loads libraries, which stay
        problem, counts = changed_state(self._probe.state_before), []
        with Leftovers() as left:
            # Kept, so that what only the last reference closes shows.
            for _ in range(_CYCLES):
                closed.append(self._cycle())
                counts.append(left.descriptors())
            problem = problem or left.problem()
        if not problem and counts[0] > 0 and counts[1] > counts[0]:
            problem = f"{counts[1]} more files, pipes or sockets are open after {_CYCLES} instances were closed"
        if problem:
            raise Failed(problem, "close releases everything", how="make, reset, a few steps, close")

    def _cycle(self) -> Probe:
        other = self._make()
        try:
            other.walk(5)
        finally:
            other.close()
        return other


def compare_processes(factory: object, here: Sequence[str], seed: int, steps: int, num: int = 0) -> None:
    """Check that another process gives the same episode.

    Args:
        factory: makes the environment or the batch; None if it is not known.
        here: digests of the frames in this process.
        seed: the seed of the walk.
        steps: maximum length of the walk.
        num: number of environments of a batch; 0 for a single environment.

    Raises:
        NotTried: another process can't make it.
        Failed: the frames differ, or the process ended.
    """
    place = None if factory is None else place_of(factory)
    if place is None:
        raise NotTried("another process can't import the factory; give it as module:function")
    module, file, name = place
    code = _CHILD.format(path=[*sys.path], module=module, file=file, name=name, seed=seed, steps=steps, num=num)
    own_seed = os.environ.get("PYTHONHASHSEED", "")
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "2" if own_seed == "1" else "1"},
        text=True, capture_output=True, timeout=_PROCESS_S, check=False,
    )  # fmt: skip
    if result.returncode < 0 or (result.returncode == 0 and not result.stdout.strip()):
        raise Failed(f"another process that made it ended early, with the exit code {result.returncode}",
                     "no call ends the process")  # fmt: skip
    if result.returncode != 0:
        raise NotTried("another process can't make it: " + (result.stderr.strip().splitlines() or [""])[-1])
    for number, (one, other) in enumerate(zip(here, json.loads(result.stdout.splitlines()[-1]), strict=False), 1):
        if one != other:
            raise Failed(f"frame {number} differs in another process", "equal seeds give equal episodes anywhere")


def _digests(frames: list[Frame]) -> list[str]:
    def told(frame: Frame) -> list[object]:
        extra = frame.kept.get("extra_info", {})
        kept = {key: extra[key] for key in COMPARED if key in extra}
        return [frame.observation, frame.kept_reward, frame.kept["terminated"], frame.kept["truncated"], kept]

    return [digest_of(told(frame)) for frame in frames]


def digest_of_walk(module: str, file: str, name: str, seed: int, steps: int, num: int = 0) -> str:
    """Walk an environment or a batch in this process, and return the digests of its frames as JSON.

    Args:
        module: module of the factory.
        file: the file of that module, if it can't be imported by name.
        name: dotted name of the factory in its module.
        seed: the seed of the walk.
        steps: maximum length of the walk.
        num: number of environments of a batch; 0 for a single environment.
    """
    made: Any = _module(module, file)
    for part in name.split("."):
        made = getattr(made, part)
    env = made(num) if num else made()
    try:
        if num:
            return json.dumps(VectorProbe(env, steps, seed, CallLog(Deadlines())).digests())
        return json.dumps(_digests(Probe(env, steps, seed, True).walk()))
    finally:
        env.close()


def _module(module: str, file: str) -> object:
    try:
        return importlib.import_module(module)
    except ImportError:
        spec = importlib.util.spec_from_file_location(module, file)
        if spec is None or spec.loader is None:
            raise
        loaded = importlib.util.module_from_spec(spec)
        sys.modules[module] = loaded
        spec.loader.exec_module(loaded)
        return loaded


# -- What is left behind ---------------------------------------------------------------------------------------


class _Writes:
    """Record the files that this process opens for writing while a `Leftovers` is entered."""

    def __init__(self) -> None:
        self.active: list[set[str]] = []
        self._installed = False

    def install(self) -> None:
        """Add an audit hook that records opened files. It can't be removed, and does nothing without a `Leftovers`."""
        if not self._installed:
            sys.addaudithook(self._hear)
            self._installed = True

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active or event not in ("open", "os.mkdir"):
            return
        if event == "open":
            path, mode, flags = arguments
            written = any(letter in (mode or "") for letter in "wax+") or bool((flags or 0) & (os.O_WRONLY | os.O_RDWR))
            if not written or (isinstance(path, str | bytes | os.PathLike) and os.path.isdir(path)):
                return  # a folder is the place of a file without a name
        else:
            path = arguments[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str | os.PathLike):
            for seen in self.active:
                seen.add(os.path.abspath(path))


_writes = _Writes()


def process_state() -> dict[str, object]:
    """Return the process-wide settings that an environment must not change."""
    return {
        "the working directory": os.getcwd(),
        "NumPy's handling of errors": np.geterr(),
        "the handler of SIGINT": signal.getsignal(signal.SIGINT),
        "the handler of SIGTERM": signal.getsignal(signal.SIGTERM),
    }


def changed_state(before: dict[str, object]) -> str:
    """Describe the first setting that differs from an earlier `process_state`; empty if none does."""
    for name, value in process_state().items():
        if value != before.get(name, value):
            return f"{name} is {value}, it was {before[name]}"
    return ""


class Leftovers:
    """Find the threads, files and settings that a ``with`` block leaves behind."""

    def __enter__(self) -> Leftovers:
        self._threads = set(threading.enumerate())
        self._state, self._environment = process_state(), dict(os.environ)
        self._files: set[str] = set()
        self._children = _children()
        self._descriptors = _descriptors()
        _writes.install()
        _writes.active.append(self._files)
        return self

    def __exit__(self, *exc: object) -> None:
        _writes.active.remove(self._files)

    def begin_thread(self) -> None:
        """Record the settings of the thread that makes the subject, since NumPy's error handling is set per thread."""
        self._state = process_state()

    def variables(self) -> list[str]:
        """Return the names of environment variables that were set or changed, which libraries do when they load."""
        return sorted(name for name, value in os.environ.items() if self._environment.get(name) != value)

    def descriptors(self) -> int:
        """Return the increase in the number of open file descriptors."""
        gc.collect()
        return _descriptors() - self._descriptors

    def problem(self) -> str:
        """Describe the threads, processes, files or settings that are left; empty if there are none."""
        end = time.monotonic() + _SETTLE_S
        while time.monotonic() < end and self._more_threads():
            time.sleep(0.02)
        state = changed_state(self._state)
        threads = self._more_threads()
        if state:
            return state
        if threads:
            return f"threads are left: {', '.join(sorted(thread.name for thread in threads))}"
        children = _children() - self._children
        if children:
            return f"processes are left: {sorted(children)}"
        files = sorted(path for path in self._files if _is_left(path))
        if files:
            return f"files are left: {', '.join(files[:4])}"
        return ""

    def _more_threads(self) -> list[threading.Thread]:
        return [
            thread for thread in threading.enumerate()
            if thread not in self._threads and thread is not threading.current_thread() and thread.is_alive()
            and not thread.name.startswith("conformance ")  # of these checks, such as of a stop that hangs
        ]  # fmt: skip


def _is_left(path: str) -> bool:
    if path.startswith(("/dev/", "/proc/", "/sys/")) or "__pycache__" in path:
        return False
    if sys.pycache_prefix is not None and Path(path).is_relative_to(sys.pycache_prefix):
        return False  # Python's bytecode, not the subject's file
    return Path(path).exists()


def _descriptors() -> int:
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def _children() -> set[int]:
    """Return the numbers of this process's children, where the system tells them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            found |= set(map(int, task.read_text().split()))
        except OSError:
            continue
    return found
