"""The place and the size of modules, and the direction of their imports."""

from __future__ import annotations

import sys

from tests.house.house import PACKAGES, ROOT, SOURCES, circles, importers, listing, modules, run, shown

MOST_ENTRIES = {"hal": 16, "sim": 14, "real": 8, "recorder": 12, "rlenv_robot": 22}
"""Most modules and folders at the top of a package; ``__init__`` is not counted."""

MOST_LINES = 600
FEWEST_LINES_FOR_ONE_IMPORTER = 80

SMALL_FOR_A_REASON: dict[str, str] = {
    "rlenv_gpu.launches": "the benchmark and the tests count launches with it",
    "real.telemetry.clock_stream": "a stream of its own, which telemetry does not need",
    "recorder.formats.checked_table": "rules of a whole table, apart from the list of formats",
    "recorder.table.comparison": "reads logs anew, which the table itself never does",
    "rlenv_learn.imitation.flow": "one method of imitation, as act and diffusion are",
    "rlenv_learn.shuffle": "needs no PyTorch, unlike the loader that uses it",
    "rlenv_formats.lerobot.so101": "facts of one robot's data sets, apart from the format",
    "rlenv_operate.console.child": "the program of a process of its own",
    "rlenv_policy_servers.images": "needs Pillow, unlike the mapping that uses it",
    "rlenv_robot.adapters.gymnasium_version": "needs nothing that an old Gymnasium lacks",
    "rlenv_robot.config.import_check": "runs before anything else is imported",
    "rlenv_data_browser.shown": "what paths and selections show, apart from questions about it",
    "rlenv_kit.contract": "the test classes that users subclass",
    "rlenv_tabletop.models": "entry points name its robot models, and it imports no simulation",
    "real.server.frame_paths": "which connections of a session count, apart from the handling of messages",
    "rlenv_robot.serving.extension": "the interface that packages implement, apart from the assembly of a server",
    "sim.robots.variations": "robot models name its functions, and it is plain data without a simulation",
    "sim.randomize.pushes": "acts during episodes, while randomise changes models at their resets",
}
"""Module below 80 lines that one module imports -> why it is a module."""


TESTS_WITHOUT_A_MODULE: dict[str, str] = {
    "tests/hal/drivers/test_foreign_servos.py": "the driver on servos of another author",
    "tests/hal/test_foreign_bus.py": "the emulator of those servos, which is a part of the tests",
    "tests/hal/reset/test_giving_up.py": "every confirmation, and homing that asks it, when nobody wants the answer",
    "tests/hal/reset/test_late_answers.py": "every confirmation, a stranger's too, that answers after the deadline",
    "tests/hal/robots/test_so101_official.py": "the maker's own numbers, apart from tests of our functions",
    "tests/sim/test_gymnasium_values.py": "the benchmarks' models against Gymnasium's, through all of sim",
}
"""Test file of `hal` or `sim` that mirrors no module -> why it is a file."""


def test_imports_follow_the_layers() -> None:
    run(sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")


def test_no_modules_import_one_another() -> None:
    offenders = [" <-> ".join(circle) for circle in circles()]
    assert not offenders, listing(offenders)


def test_the_top_of_a_package_shows_its_architecture() -> None:
    offenders = []
    for package in PACKAGES:
        folder = ROOT / package
        entries = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
        entries |= {path.parent.name for path in folder.glob("*/*") if path.suffix in (".py", ".xml")}
        if len(entries) > MOST_ENTRIES[package]:
            offenders.append(f"{package}: {len(entries)} entries, at most {MOST_ENTRIES[package]}: {sorted(entries)}")
    assert not offenders, listing(offenders)


def test_a_module_holds_one_concept() -> None:
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    offenders = [
        f"{name}: {count} lines: is that two concepts?" for name, count in lengths.items() if count > MOST_LINES
    ]
    assert not offenders, listing(offenders)


def test_a_small_module_with_one_importer_has_a_reason() -> None:
    small = {
        name
        for name, path in modules().items()
        if path.name not in ("__init__.py", "__main__.py")
        and len(importers()[name]) == 1
        and len(path.read_text(encoding="utf-8").splitlines()) < FEWEST_LINES_FOR_ONE_IMPORTER
    }
    offenders = [
        f"{name}: only {min(importers()[name])} imports it: merge them, or give a reason in SMALL_FOR_A_REASON"
        for name in sorted(small - SMALL_FOR_A_REASON.keys())
    ]
    offenders += [f"{name}: no such module, take it off" for name in SMALL_FOR_A_REASON.keys() - modules().keys()]
    assert not offenders, listing(offenders)


def test_tests_of_robots_and_simulation_mirror_the_modules() -> None:
    files = {shown(path): path for package in ("hal", "sim") for path in (ROOT / "tests" / package).rglob("test_*.py")}
    offenders = [
        f"{name}: there is no such module; merge it into its module's test, or give a reason in TESTS_WITHOUT_A_MODULE"
        for name, path in sorted(files.items())
        if name not in TESTS_WITHOUT_A_MODULE
        and not (ROOT / path.parent.relative_to(ROOT / "tests") / f"{path.stem.removeprefix('test_')}.py").exists()
    ]
    offenders += [f"{name}: no such file, take it off" for name in sorted(TESTS_WITHOUT_A_MODULE.keys() - files.keys())]
    assert len(files) > 30, "the search misses files"
    assert not offenders, listing(offenders)
