"""Each fault of set E's batches shows in calls; their correct originals keep the laws that the faults break."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plugins.kit.faults import vector_e
from plugins.kit.faults.fault_set_e.common import ENTRIES, FOLDER, write_manifest

assert vector_e
BATCHES = {name: entry for name, entry in ENTRIES.items() if entry.part == "vector"}
FAULTS = [name for name, entry in BATCHES.items() if not entry.good]
GOOD = [name for name, entry in BATCHES.items() if entry.good]
Trace = list[Any]


def plain(value: Any, names: list[str]) -> Any:
    """Return a comparable copy; a batch's own names become their numbers."""
    if hasattr(value, "keys"):
        return sorted((str(name), plain(value[name], names)) for name in value)
    if isinstance(value, list | tuple):
        return [plain(item, names) for item in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype.kind), value.shape, value.tolist()
    return names.index(value) if value in names else value


class Player:
    """Calls a batch with actions that depend on nothing but their number, and keeps what came."""

    def __init__(self, batch: Any, seed: int = 1) -> None:
        self.batch, self.rng, self.trace = batch, np.random.default_rng(seed), []
        self.kept: list[Any] = []
        self.table: Any = None

    def call(self, function: Callable[[], Any]) -> Any:
        try:
            came = function()
        except Exception as error:
            self.trace.append(type(error).__name__)
            return None
        self.kept.append(came)
        self.trace.append(plain(came, self.batch.env_ids))
        return came

    def reset(self, options: Any = None) -> None:
        table = self.call(lambda: self.batch.reset(*([] if options is None else [options])))
        self.table = table if table is not None else self.table

    def action(self) -> dict[str, Any]:
        n = self.batch.num_envs
        last = self.table["extra_info"].get("action_mask", {})
        fields = {}
        for field in self.batch.action:
            fields[field.name] = field.sample(self.rng, (n,))
            if field.name in last:
                allowed = [self.rng.choice(np.flatnonzero(row)) for row in last[field.name]]
                fields[field.name] = np.array(allowed, np.int32)
        return {"env_id": self.batch.env_ids, "frame_no": self.table["frame_no"].copy(), "action": fields}

    def step(self, change: Callable[[dict[str, Any]], None] = lambda table: None) -> None:
        given = self.action()
        change(given)
        answer = self.call(lambda: self.batch.step(given))
        self.trace.append(plain(given["action"], []))
        if answer is not None:
            self.table = answer[0]

    def finish(self) -> Trace:
        self.trace.append(plain(self.kept, self.batch.env_ids))
        return self.trace


def illegal(number: int) -> Callable[[dict[str, Any]], None]:
    """Return a change of Table 2 to something illegal."""

    def change(table: dict[str, Any]) -> None:
        row, first = number % 3, next(iter(table["action"]))
        field, kind = table["action"][first], number % 6
        if kind == 0:
            field[row] = 77
        elif kind == 1:
            table["frame_no"][row] -= 1
        elif kind == 2:
            last = list(table["action"])[-2 if "south_call" in table["action"] else -1]
            table["action"][last][row] = 4 if last == "vent" else 9
        elif kind == 3 and field.dtype.kind == "f":
            field[row, 1] = 3
        elif kind == 4 and field.dtype.kind == "f":
            field[row] = np.nan
        elif kind == 5:
            del table["action"][first]

    return change


def walk(make: Any) -> Trace:
    player = Player(make(3))
    player.reset({"seed": 0})
    for _ in range(40):
        player.step()
    return player.finish()


def walk_with_refusals(make: Any) -> Trace:
    player = Player(make(3))
    player.reset({"seed": 5})
    for number in range(80):
        player.step(illegal(number // 2) if number % 2 else lambda table: None)
    return player.finish()


def long_games(make: Any) -> Trace:
    """Refusals of row 0 between its frames, up to its time limit."""
    player = Player(make(1), seed=4)
    for seed in range(12):
        player.reset({"seed": seed})
        for number in range(30):
            player.step(illegal(0) if number % 2 else lambda table: None)
    return player.trace


def twice(make: Any) -> Trace:
    """A call that the mask excludes, in every frame."""
    player = Player(make(3))
    player.reset({"seed": 2})
    before: dict[str, Any] = {}

    def again(table: dict[str, Any]) -> None:
        for name, value in before.items():
            if name.endswith("call"):
                table["action"][name] = value

    for number in range(12):
        player.step(again if number % 2 else lambda table: before.update(table["action"]))
    return player.finish()


def resets(make: Any) -> Trace:
    player = Player(make(3))
    player.reset({"ids": [1]})
    player.table = {"frame_no": np.zeros(3, np.int32), "extra_info": {}}
    player.step()
    seeded = {"seed": 0}
    for options in (seeded, {"ids": [0]}, {"ids": []}, {"ids": [0, 2]}, {"ids": [-1]}, {"ids": [2, 1]}, {"lamp": 1},
                    {"ids": [7]}, {"seed": 4}, {"seed": 0}, {"ids": [1]}):  # fmt: skip
        player.reset(options)
        for _ in range(14):
            player.step()
    player.trace.append(dict(seeded))
    return player.finish()


def writes(make: Any) -> Trace:
    """Whatever a receiver writes into its tables."""
    player = Player(make(3))
    player.reset({"seed": 0})
    for _ in range(20):
        player.step()
        for value in player.table["observation"].values():
            if value.flags.writeable:
                value[:] = 0
    return player.trace


def extras(make: Any) -> Trace:
    player = Player(make(3))
    player.reset({"seed": 3})
    if not hasattr(player.batch, "snapshot"):
        return player.finish()
    for _ in range(3):
        player.step()
    kept = player.batch.snapshot()
    for _ in range(5):
        player.step()
    player.table = player.call(lambda: player.batch.restore(kept))
    for _ in range(30):
        player.step()
    for reason, ids in (("enough", [0]), ("", [1]), ("twice", [1, 0]), ("late", [1, 2]), ("all", [0, 1, 2])):
        player.call(lambda reason=reason, ids=ids: player.batch.end(reason, ids))
    player.reset({"seed": 3})
    player.call(lambda: player.batch.end("a row", [2]))
    player.call(lambda: player.batch.end("two rows", [1, 2]))
    player.reset({"ids": [0]})
    return player.finish()


def closes(make: Any) -> Trace:
    player = Player(make(3))
    player.reset({"seed": 0})
    player.call(player.batch.close)
    player.call(player.batch.close)
    player.step()
    player.reset({"seed": 0})
    player.step()
    return player.finish()


SCRIPTS = [walk, walk_with_refusals, long_games, twice, resets, writes, extras, closes]


# -- Laws, for faults whose episodes differ from the original's anyway


def first_tables(make: Any, n: int = 3, seed: int = 0, steps: int = 60) -> list[Any]:
    player = Player(make(n))
    player.reset({"seed": seed})
    for _ in range(steps):
        player.step()
    return player.trace


def starts(make: Any, n: int, seed: int) -> list[list[Any]]:
    """Return the first observations of three episodes of each row."""
    player = Player(make(n))
    rows: list[list[Any]] = [[] for _ in range(n)]
    for options in ({"seed": seed}, {"ids": list(range(n))}, {"ids": list(range(n))}):
        player.reset(options)
        for row in range(n):
            rows[row].append([value[row].tolist() for value in player.table["observation"].values()])
    return rows


def a_row_does_not_depend_on_their_number(name: str) -> bool:
    make = BATCHES[name].make
    fixed = [[{field.name: field.sample(np.random.default_rng(step * 9 + row)) for field in make(1).action}
              for row in range(3)] for step in range(30)]  # fmt: skip
    seen = []
    for n in (1, 3):
        batch = make(n)
        table, rows = batch.reset({"seed": 0}), []
        for step in range(30):
            action = {key: np.array([fixed[step][row][key] for row in range(n)]) for key in fixed[0][0]}
            table, _ = batch.step({"env_id": batch.env_ids, "frame_no": table["frame_no"], "action": action})
            rows.append([value[0].tolist() for value in table["observation"].values()])
        seen.append(rows)
    return seen[0] == seen[1]


def each_start_is_another(name: str) -> bool:
    rows = starts(BATCHES[name].make, 2, 0)
    flat = [str(start) for row in rows for start in row]
    return len(set(flat)) == len(flat)


def equal_seeds_are_equal(name: str) -> bool:
    return starts(BATCHES[name].make, 3, 5) == starts(BATCHES[name].make, 3, 5)


def the_process_draws_alone(name: str) -> bool:
    traces = []
    for seed in (1, 2):
        np.random.seed(seed)
        traces.append(first_tables(BATCHES[name].make))
    return traces[0] == traces[1]


def processes_agree(name: str) -> bool:
    module = "plugins.kit.tests.test_fault_set_e_batches"
    code = f"from {module} import *; print(starts(BATCHES[{name!r}].make, 2, 0))"
    outputs = set()
    for seed in ("1", "2"):
        command = [sys.executable, "-c", code]
        outputs.add(subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=FOLDER.parents[2],
                                   capture_output=True, text=True, check=True).stdout)  # fmt: skip
    return len(outputs) == 1


def batches_play_apart(name: str) -> bool:
    make = BATCHES[name].make
    alone = Player(make(3))
    beside, noise = Player(make(3)), Player(make(3), seed=8)
    alone.reset({"seed": 0})
    for _ in range(9):
        alone.step()
    beside.reset({"seed": 0})
    noise.reset({"seed": 9})
    for _ in range(9):
        noise.step()
        beside.step()
    names = not set(beside.batch.env_ids) & set(noise.batch.env_ids)
    return names and alone.trace == beside.trace


LAWS = {
    "ev_gusts_from_one_stream": a_row_does_not_depend_on_their_number,
    "ev_every_episode_the_same": each_start_is_another,
    "ev_neighbouring_seeds_meet": each_start_is_another,
    "ev_gusts_of_the_process": the_process_draws_alone,
    "ev_names_of_the_row_alone": batches_play_apart,
    "ev_seeds_with_the_name": equal_seeds_are_equal,
    "ev_seeds_by_hash": processes_agree,
    "ev_games_from_the_pool": batches_play_apart,
}


@lru_cache(None)
def original(base: type, script: Callable[[Any], Trace]) -> str:
    return str(script(base))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_differs_from_its_original(name: str) -> None:
    entry, law = BATCHES[name], LAWS.get(name)
    if law:
        assert not law(name)
    elif name == "ev_names_of_forty":
        assert max(map(len, entry.make(2).env_ids)) > 36
    else:
        assert any(str(script(entry.make)) != original(entry.base, script) for script in SCRIPTS)


@pytest.mark.parametrize("name", GOOD)
def test_a_correct_batch_repeats_itself(name: str) -> None:
    make = BATCHES[name].make
    for script in (walk, resets):
        assert str(script(make)) == str(script(make)), script.__name__
    for law in (equal_seeds_are_equal, the_process_draws_alone, batches_play_apart, processes_agree):
        assert law(name), law.__name__


def test_rows_of_the_kilns_are_their_own() -> None:
    assert a_row_does_not_depend_on_their_number("ev_kilns")
    assert each_start_is_another("ev_kilns")


def test_the_manifest_is_what_the_classes_say() -> None:
    assert (Path(FOLDER) / "vector_e.json").read_text(encoding="utf-8") == write_manifest("vector")
