"""Each fault of set E's source data shows in calls; correct source data repeat themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from plugins.kit.faults import source_e
from plugins.kit.faults.fault_set_e.common import ENTRIES, FOLDER, write_manifest

assert source_e
SOURCES = {name: entry for name, entry in ENTRIES.items() if entry.part == "source"}
FAULTS = [name for name, entry in SOURCES.items() if not entry.good]
GOOD = [name for name, entry in SOURCES.items() if entry.good]
Trace = list[Any]
OPTIONS: list[dict[str, Any]] = [
    {}, {"source": "expert"}, {"source": ["random", "mixed"]}, {"source": "human"}, {"episodes": [1, 2]},
    {"episodes": slice(1, 4)}, {"priority": "return"}, {"priority": "reward"}, {"priority": "advantage"},
    {"priority": "return", "alpha": 2, "beta": 0.5}, {"priority": "td_error", "source": "mixed"}, {"replace": False},
    {"expert": False}, {"success": False}, {"top_fraction": 0.3}, {"top_fraction": 0.5, "source": "random"},
    {"min_return": 1.5}, {"min_steps": 5}, {"max_steps": 5}, {"n_step": 3}, {"stack": 3}, {"source": "nobody"},
    {"lamp": 1}, {},
]  # fmt: skip


def plain(value: Any) -> Any:
    """Return a comparable copy."""
    if hasattr(value, "keys"):
        return sorted((name, plain(value[name])) for name in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.dtype.kind, value.shape, value.tolist()
    return value


class Reader:
    """Calls source data and keeps what came."""

    def __init__(self, source: Any) -> None:
        self.source, self.trace, self.kept = source, [], []
        self.call("init", {"seed": 3})

    def call(self, name: str, *arguments: Any) -> Any:
        try:
            came = getattr(self.source, name)(*arguments)
        except Exception as error:
            self.trace.append(type(error).__name__)
            return None
        self.kept.append(came)
        self.trace.append([plain(came), plain([item for item in arguments if isinstance(item, dict)])])
        return came

    def finish(self) -> Trace:
        self.trace.append(plain(self.kept))
        return self.trace


def draws(make: Any) -> Trace:
    reader = Reader(make())
    for options in OPTIONS:
        reader.call("sample_steps", 7, dict(options))
        reader.call("sample_trajectories", 9, dict(options))
        reader.call("statistics", dict(options))
    returns = getattr(reader.source, "returns", lambda: np.array([1.0]))()
    reader.call("sample_steps", 40, {"min_return": float(sorted(returns)[len(returns) // 2])})
    for length in (2, 3):
        reader.call("sample_trajectories", 20, {"length": length})
    return reader.finish()


def states(make: Any) -> Trace:
    reader = Reader(make())
    for options in ({}, {"episode": 1, "frame": 1}, {"episode": 0, "frame": 1}, {}, {"episode": 3, "frame": 99},
                    {"seed": 3}, {"episode": 6}, {"lamp": 1}):  # fmt: skip
        reader.call("init", {"seed": 3, **options})
        for further in ({}, {"tolerance": 0.3}, {"tolerance": 3}, {"source": "expert"}):
            reader.call("get_all_actions", further)
        reader.call("sample_trajectories", 3)
    return reader.finish()


def errors(make: Any) -> Trace:
    reader = Reader(make())
    if not hasattr(reader.source, "update_priorities"):
        return reader.trace
    asked = {"priority": "td_error", "beta": 1.0}
    for index, sizes in (([1, 2, 3], [0.5, -4.0, 0.1]), ([4, 4], [9.0, 0.1]), ([5, 6], [77.0, np.nan]), ([2], [0.2])):
        reader.call("update_priorities", np.array(index), np.array(sizes))
        reader.call("sample_steps", 30, asked)
    reader.call("sample_steps", 30, {**asked, "source": "mixed"})
    reader.call("init", {"seed": 3})
    reader.call("sample_steps", 30, asked)
    return reader.finish()


def further(make: Any) -> Trace:
    reader = Reader(make())
    for options in ({}, {"by": "success"}, {"min_margin": 0.2}):
        reader.call("sample_pairs", 12, options)
    for kind in ("summary", "returns", "episodes"):
        for part in ({}, {"source": "human"}, {"source": "expert"}):
            reader.call("statistics", {"kind": kind, **part})
    reader.call("statistics", {"kind": "histogram", "field": "reward", "bins": 3, "source": "expert"})
    return reader.finish()


def writes(make: Any) -> Trace:
    reader = Reader(make())
    for _ in range(12):
        for table in reader.call("sample_trajectories", 3):
            for value in (
                table["steps_set"]["reward"].values()
                if hasattr(table["steps_set"]["reward"], "keys")
                else [table["steps_set"]["reward"]]
            ):
                if value.flags.writeable:
                    value[:] = -7
    return reader.trace


SCRIPTS: list[Callable[[Any], Trace]] = [draws, states, errors, further, writes]


def seeds_repeat(make: Any) -> bool:
    reader = Reader(make())
    for _ in range(2):
        reader.call("init", {"seed": 3})
        reader.call("sample_trajectories", 9)
        reader.call("sample_steps", 9)
    return str(reader.trace[1:4]) == str(reader.trace[4:7])


def the_process_draws_alone(make: Any) -> bool:
    reader = Reader(make())
    state = random.getstate()
    first = reader.call("sample_steps", 20)
    return random.getstate() == state and first is not None


LAWS = {"es_trajectories_unseeded": seeds_repeat, "es_seed_goes_on": seeds_repeat,
        "es_draws_of_the_process": the_process_draws_alone}  # fmt: skip


@lru_cache(None)
def original(base: type, script: Callable[[Any], Trace]) -> str:
    return str(script(base))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_differs_from_its_original(name: str) -> None:
    entry, law = SOURCES[name], LAWS.get(name)
    if law:
        assert not law(entry.make)
    else:
        assert any(str(script(entry.make)) != original(entry.base, script) for script in SCRIPTS)


@pytest.mark.parametrize("name", GOOD)
def test_correct_source_data_repeat_themselves(name: str) -> None:
    make = SOURCES[name].make
    for script in SCRIPTS:
        assert str(script(make)) == str(script(make)), script.__name__
    assert seeds_repeat(make)
    assert the_process_draws_alone(make)


def test_the_manifest_is_what_the_classes_say() -> None:
    assert (FOLDER / "source_e.json").read_text(encoding="utf-8") == write_manifest("source")
