"""Change modules in small ways, and find the changes that no test notices.

    python tests/mutation/run.py                          # every complete module, ten minutes of processor time
    python tests/mutation/run.py hal/limits.py            # one module
    python tests/mutation/run.py hal/guard.py --function Guard.step
    python tests/mutation/run.py --dangerous              # only the changes of dangerous.toml, seconds

A change is killed when a test of its module fails. One that survives is printed, and is an error unless
``explained.toml`` says why no test can or should notice it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:1] = [str(ROOT)] if Path(sys.path[0] or ".").resolve() == Path(__file__).parent else sys.path[:1]

import pytest  # noqa: E402

from tests.mutation.mutants import Mutant, mutants_of  # noqa: E402

_MODULES = tomllib.loads((Path(__file__).parent / "modules.toml").read_text())

COMPLETE: tuple[str, ...] = tuple(_MODULES["complete"])
"""The modules of which every change is noticed or explained."""

TESTS: dict[str, tuple[str, ...]] = {
    module: tuple(files) for table in _MODULES.values() for module, files in table.items()
}
"""The modules, and the tests that must notice a change of each."""

KINDS = {"equivalent", "speed", "wording", "defence"}
"""Reasons for which a test need not notice a change."""

LEAST_CPU_S = 10.0
"""Processor time that the tests of a change may always take, seconds; more than ten times their usual one is hung."""

IDLE_S = 20.0
"""Time without any use of the processor after which tests wait in vain, seconds."""


@dataclass
class Result:
    """The result of one change.

    Attributes:
        mutant: the change.
        killed_by: the test that failed, or how the tests ended; empty where all of them passed.
        cpu_s: processor time of its tests, seconds.
    """

    mutant: Mutant
    killed_by: str
    cpu_s: float


@dataclass
class Explained:
    """Changes of one function that no test can or should notice, and why."""

    module: str
    function: str
    kind: str
    why: str
    mutants: list[str]


def explained() -> dict[tuple[str, str], Explained]:
    """Return the explanation of each change that has one, by module and key."""
    found = {}
    for table in tomllib.loads((Path(__file__).parent / "explained.toml").read_text()).get("explained", []):
        explanation = Explained(**table)
        for text in explanation.mutants:
            found[explanation.module, f"{explanation.function}: {text}"] = explanation
    return found


# -- the tests of one module, which run once in the order of the file, and then for each change ----------------


@dataclass
class _Baseline:
    """The lines and times of the unchanged module's tests.

    Attributes:
        lines: the lines of the module that each test runs, by the test's number.
        seconds: processor time of each test.
    """

    lines: list[set[int]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def tests_of(self, mutant: Mutant) -> list[int]:
        """Return the tests that run a changed statement, fast ones first; all of them for what runs at import."""
        changed = range(mutant.first_line, mutant.last_line + 1)
        numbers = range(len(self.lines))
        hit = numbers if mutant.at_import else [n for n in numbers if not self.lines[n].isdisjoint(changed)]
        return sorted(hit, key=lambda number: self.seconds[number])


class _Plugin:
    """Run tests for one change after the other, each in a process of its own that is forked after the collection."""

    def __init__(self, path: Path, run: Callable[[_Plugin, list[pytest.Item]], None]) -> None:
        self._path, self._run = path, run
        self.failed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutation", parent=settings(), phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutation")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Failed("the tests can't be collected")
        self._run(self, session.items)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    def run(self, items: Sequence[pytest.Item]) -> str:
        """Run tests up to the first that fails, and return its name."""
        for item, next_item in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            if self.failed:
                break
        return self.failed

    def measure(self, items: Sequence[pytest.Item]) -> _Baseline:
        """Run all tests, and return the lines and the time of each."""
        baseline, path = _Baseline(), str(self._path)
        lines: set[int] = set()

        def on_line(frame: FrameType, event: str, argument: object) -> Any:
            lines.add(frame.f_lineno)
            return on_line

        def on_call(frame: FrameType, event: str, argument: object) -> Any:
            return on_line if frame.f_code.co_filename == path else None

        for item, next_item in zip(items, [*items[1:], None], strict=True):
            began = time.process_time()
            sys.settrace(on_call)
            threading.settrace(on_call)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            baseline.lines.append(set(lines))
            baseline.seconds.append(time.process_time() - began)
            lines.clear()
        return baseline


def _pytest(module: str, plugin: _Plugin) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-n", "0", f"--basetemp=/tmp/mutation-{os.getpid()}"]
    pytest.main([*options, "--no-header", *TESTS[module]], plugins=[plugin])


def _forked(work: Callable[[], object], cpu_s: float) -> tuple[str, Any, float]:
    """Do some work in a process of its own.

    Returns:
        How the process ended (empty: well), what the work returned, and its processor time in seconds.
    """
    with tempfile.TemporaryFile("w+") as answer:
        child = os.fork()
        if not child:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 3))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                json.dump(work(), answer)
                answer.flush()
            finally:
                os._exit(0)
        ended = _wait(child)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        usage = os.wait4(child, 0)[2]
        answer.seek(0)
        text = answer.read()
    return ended, json.loads(text) if text else None, usage.ru_utime + usage.ru_stime


def _wait(child: int) -> str:
    """Wait for a process, and return how it ended: empty where it ended by itself."""
    used, since, pause_s = -1, time.monotonic(), 0.002
    while True:
        info = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is not None:
            return "" if info.si_code == os.CLD_EXITED else f"signal {info.si_status}"
        ticks = sum(map(int, Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        if ticks > used + 2:
            used, since = ticks, time.monotonic()
        elif time.monotonic() - since > IDLE_S:
            return "waits in vain"
        time.sleep(pause_s)
        pause_s = min(1.5 * pause_s, 0.1)


# -- how a change gets into the running module ---------------------------------------------------------------


class _Transplant:
    """Replace the code of functions that are there already, so that nothing is imported anew."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._functions: dict[tuple[str, int], list[FunctionType]] = defaultdict(list)
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename == self._path:
                self._functions[thing.__code__.co_qualname, thing.__code__.co_firstlineno].append(thing)

    def put(self, code: CodeType) -> None:
        """Give each function its changed code.

        Raises:
            ValueError: a function has other free variables now.
        """
        for inner in _codes(code):
            for function in self._functions.get((inner.co_qualname, inner.co_firstlineno), ()):
                function.__code__ = inner


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


class _Finder:
    """Import a changed module in place of the one on disk."""

    def __init__(self, module: str, path: Path, code: CodeType) -> None:
        self._name, self._path, self._code = module.removesuffix(".py").replace("/", "."), path, code

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)  # type: ignore[arg-type]

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)


# -- running -------------------------------------------------------------------------------------------------


def run(
    module: str, mutants: Sequence[Mutant], tell: Callable[[Result], None], *, only_tests: Iterable[str] = ()
) -> None:
    """Run the tests of a module for each of its changes.

    Args:
        module: path of its source, relative to the repository.
        mutants: its changes.
        tell: gets each result as soon as it is there.
        only_tests: names of tests that suffice; by default all that run a changed line.

    Raises:
        RuntimeError: a test fails without any change.
    """
    path = ROOT / module
    names = tuple(only_tests)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _silence()
        with os.fdopen(writing, "w", buffering=1) as out:
            _pytest(module, _Plugin(path, lambda plugin, items: _run_inside(plugin, items, path, mutants, names, out)))
        os._exit(0)
    os.close(writing)
    baseline, later = None, []
    with os.fdopen(reading) as results:
        for line in results:
            message = json.loads(line)
            if "baseline" in message:
                baseline = message
            elif message["killed_by"] is None:
                later.append(mutants[message["number"]])
            else:
                tell(Result(mutants[message["number"]], message["killed_by"], message["cpu_s"]))
    os.waitpid(child, 0)
    if baseline is None or baseline["baseline"]:
        raise RuntimeError(f"the tests of {module} fail without any change: {baseline and baseline['baseline']}")
    for mutant in later:
        tell(_run_from_import(module, path, mutant, names, baseline["cpu_s"]))


def _silence() -> None:
    null = os.open(os.environ.get("MUTATION_LOG", os.devnull), os.O_RDWR | os.O_CREAT)
    for number in (0, 1, 2):
        os.dup2(null, number)


def _selected(items: list[pytest.Item], names: tuple[str, ...]) -> list[pytest.Item]:
    return [item for item in items if not names or item.nodeid.split("::")[-1].split("[")[0] in names]


def _run_inside(
    plugin: _Plugin, items: list[pytest.Item], path: Path, mutants: Sequence[Mutant], names: tuple[str, ...], out: Any
) -> None:
    items = _selected(items, names)

    def measured() -> object:
        baseline = plugin.measure(items)
        return plugin.failed, [sorted(lines) for lines in baseline.lines], baseline.seconds

    ended, answer, cpu_s = _forked(measured, 3600.0)
    if answer is None or answer[0] or not items:
        print(json.dumps({"baseline": ended or (answer and answer[0]) or "no tests"}), file=out)
        return
    baseline = _Baseline([set(lines) for lines in answer[1]], answer[2])
    print(json.dumps({"baseline": "", "cpu_s": cpu_s}), file=out)
    transplant = _Transplant(path)
    for number, mutant in enumerate(mutants):
        if mutant.at_import:
            print(json.dumps({"number": number, "killed_by": None}), file=out)
            continue
        numbers = baseline.tests_of(mutant)
        chosen = [items[i] for i in numbers]
        allowed_s = LEAST_CPU_S + 10.0 * sum(baseline.seconds[i] for i in numbers)

        def tried(mutant: Mutant = mutant, chosen: list[pytest.Item] = chosen) -> str | None:
            try:
                transplant.put(mutant.compile(path))
            except ValueError:
                return None
            return plugin.run(chosen)

        ended, killed_by, cpu_s = _forked(tried, allowed_s) if chosen else ("", "", 0.0)
        print(json.dumps({"number": number, "killed_by": ended or killed_by, "cpu_s": cpu_s}), file=out)


def _run_from_import(module: str, path: Path, mutant: Mutant, names: tuple[str, ...], usual_s: float) -> Result:
    """Import the changed module, with all tests of it."""

    def tried() -> str:
        _silence()
        sys.meta_path.insert(0, _Finder(module, path, mutant.compile(path)))  # type: ignore[arg-type]
        killed_by = "the tests can't be collected"

        def run_tests(plugin: _Plugin, items: list[pytest.Item]) -> None:
            nonlocal killed_by
            killed_by = plugin.run(_selected(items, names))

        _pytest(module, _Plugin(path, run_tests))
        return killed_by

    ended, killed_by, cpu_s = _forked(tried, LEAST_CPU_S + 10.0 * usual_s)
    return Result(mutant, ended or killed_by or "", cpu_s)


def warm_up() -> None:
    """Import what every test module imports: nothing of this project, and no plug-in of pytest."""
    for name in ("numpy", "mujoco", "zmq", "msgpack"):
        importlib.import_module(name)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the changes of the modules named, and return 1 if one survives that is not explained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("modules", nargs="*", help="paths of modules; default: the complete ones of modules.toml")
    parser.add_argument("--function", action="append", help="only changes of functions of which this is a part")
    parser.add_argument("--sample", type=int, help="only so many changes of each module, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dangerous", action="store_true", help="only the changes of dangerous.toml")
    parser.add_argument("--results", type=Path, help="file to add results to; changes killed in it are not run again")
    parser.add_argument("--list", action="store_true", help="print the changes and run nothing")
    args = parser.parse_args(arguments)
    os.chdir(ROOT)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    warm_up()
    dangerous = tomllib.loads((Path(__file__).parent / "dangerous.toml").read_text()) if args.dangerous else {}
    failed = False
    for module in args.modules or dangerous or COMPLETE:
        mutants = mutants_of(ROOT / module, module)
        names: list[str] = []
        if args.dangerous:
            changes, names = dangerous[module]["changes"], dangerous[module]["tests"]
            unknown = set(changes) - {mutant.key for mutant in mutants}
            if unknown:
                parser.error(f"{module} has no changes {sorted(unknown)}; correct dangerous.toml")
            mutants = [mutant for mutant in mutants if mutant.key in changes]
        if args.function:
            mutants = [mutant for mutant in mutants if any(part in mutant.function for part in args.function)]
        if args.sample:
            mutants = random.Random(args.seed).sample(mutants, min(args.sample, len(mutants)))
        if args.list:
            print("\n".join(f"{mutant.module}:{mutant.first_line} {mutant.key}" for mutant in mutants))
        else:
            failed |= _judge(module, mutants, args.results, names)
    return int(failed)


def _judge(module: str, mutants: list[Mutant], kept: Path | None, names: Sequence[str]) -> bool:
    before = _killed_before(kept, module)
    reasons, results = explained(), []
    with open(kept or os.devnull, "a", buffering=1) as file:

        def tell(result: Result) -> None:
            results.append(result)
            row = {"module": module, "key": result.mutant.key, "killed_by": result.killed_by, "cpu_s": result.cpu_s}
            print(json.dumps(row), file=file)

        run(module, [mutant for mutant in mutants if mutant.key not in before], tell, only_tests=names)
    survivors = [result.mutant for result in results if not result.killed_by]
    unexplained = [mutant for mutant in survivors if (module, mutant.key) not in reasons]
    for mutant in unexplained:
        print(f"{module}:{mutant.first_line} {mutant.key}")
    for result in results:
        if result.killed_by and (module, result.mutant.key) in reasons:
            print(f"explained, but {result.killed_by} notices it: {result.mutant.key}")
    print(
        f"{module}: {len(mutants)} changes, {len(mutants) - len(survivors)} killed, "
        f"{len(survivors) - len(unexplained)} explained, {len(unexplained)} not; "
        f"{sum(result.cpu_s for result in results):.0f} s of processor time",
        flush=True,
    )
    return bool(unexplained)


def _killed_before(kept: Path | None, module: str) -> set[str]:
    if kept is None or not kept.exists():
        return set()
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    return {row["key"] for row in rows if row["module"] == module and row["killed_by"]}


if __name__ == "__main__":
    sys.exit(main())
