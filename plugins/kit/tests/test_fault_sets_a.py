"""The planted faults of `faults/fault_set_a`: each differs from the correct subject that it was made from.

The correct subjects are compared with their own descriptions. Nothing here uses the conformance kit.
"""

from __future__ import annotations

import importlib.util
import json
import random
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FAULTS = Path(__file__).resolve().parents[1] / "faults"
STATEMENTS = FAULTS.parent / "rlenv_kit" / "t_ccf_0002.json"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"faults_{name}", FAULTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FRONTS = {part: load(part) for part in ("environment", "vector")}

from fault_set_a.batch_calls import VECTOR, BatchCaller  # noqa: E402  (a front makes the package known)
from fault_set_a.calls import ENVIRONMENT, Caller  # noqa: E402
from fault_set_a.registry import PREVENTED, SUBJECTS, manifest  # noqa: E402

SECTIONS = {"environment": ENVIRONMENT, "vector": VECTOR}
BASES = [one for one in SUBJECTS if "-base-" in one.id]
GOOD = [one for one in SUBJECTS if one.good]


def named(subjects):
    marks = {
        "in_a_child": [pytest.mark.process],
        "huge_image": [pytest.mark.slow],  # 12 million bounds
        "global_generator": [pytest.mark.filterwarnings("default")],
    }
    return [pytest.param(one, id=one.id, marks=marks.get(one.id.rpartition("-")[2], [])) for one in subjects]


@cache
def answers(make, part: str, section: str) -> str:
    return repr(SECTIONS[part][section](make))


@pytest.mark.parametrize("subject", named(one for one in SUBJECTS if not one.good))
def test_a_fault_shows_in_the_section_that_it_names(subject) -> None:
    right = answers(subject.original, subject.part, subject.shows)
    assert (repr(SECTIONS[subject.part][subject.shows](subject.make)) == right) == (subject.id in PREVENTED)


@pytest.mark.parametrize("subject", named(BASES))
def test_scripts_repeat_themselves_on_correct_subjects(subject) -> None:
    for name, section in SECTIONS[subject.part].items():
        if name != "render" or hasattr(subject.make(), "render"):
            assert repr(section(subject.make)) == answers(subject.make, subject.part, name), name


@pytest.mark.parametrize("subject", named(one for one in GOOD if one.part == "environment"))
def test_a_correct_environment_is_as_described(subject) -> None:
    caller = Caller(subject.make())
    env = caller.env
    seeds = "seed" in getattr(getattr(env, "description", None), "reset_options", {"seed": ""})
    seen = []
    for _ in range(2):
        caller.rng = np.random.default_rng(7)
        caller.reset(**({"seed": 4} if seeds else {}))
        as_described(env, caller.last, 0)
        for _ in range(12):
            if caller.over:
                break
            table, reward = caller.act()
            as_described(env, table, caller.frame)
            rewarded(env, table, reward)
        seen.append(caller.record[:])
        caller.record.clear()
    assert seen[0] == seen[1]
    assert not any(isinstance(line, str) for line in seen[0]), "a call raised"
    env.close()
    env.close()


def as_described(env, table, frame) -> None:
    assert table["env_id"] == env.env_id
    assert 1 <= len(env.env_id) <= 36
    assert table["frame_no"] == frame
    assert type(table["terminated"]) is type(table["truncated"]) is int
    assert {table["terminated"], table["truncated"]} <= {0, 1}
    env.observation.validate(table["observation"])
    described = getattr(getattr(env, "description", None), "extra_info", {})
    assert set(table.get("extra_info", {})) <= {*described, "error"}


def rewarded(env, table, reward) -> None:
    assert reward["env_id"] == env.env_id
    assert reward["frame_no"] == table["frame_no"]
    value = reward["reward"]
    description = getattr(env, "description", None)
    for one in value.values() if isinstance(value, Mapping) else [value]:
        if description is not None:
            description.reward.validate(one)
    agents = getattr(getattr(env, "world", env), "agents", None)
    assert not agents or set(value) == {agent.name for agent in agents} == set(table["extra_info"]["agents"])


@pytest.mark.parametrize("subject", named(one for one in GOOD if one.part == "vector"))
def test_a_correct_batch_is_as_described(subject) -> None:
    caller = BatchCaller(subject.make(3))
    envs = caller.envs
    caller.reset(seed=4)
    for place in range(30):
        table, reward = caller.act()
        assert table["env_id"] == envs.env_ids == reward["env_id"]
        assert len(set(envs.env_ids)) == 3
        assert max(map(len, envs.env_ids)) <= 36
        for name in ("frame_no", "terminated", "truncated"):
            assert table[name].dtype == np.int32
            assert table[name].shape == (3,)
        for row in range(3):
            envs.observation.validate({name: value[row] for name, value in table["observation"].items()})
        value = reward["reward"]
        for one in value.values() if isinstance(value, dict) else [value]:
            assert one.shape == (3,)
            for number in one.tolist():
                envs.description.reward.validate(number)
        if envs.autoreset == "disabled" and caller.flags.all() and place < 29:
            caller.reset(ids=[0, 1, 2])
    assert not any(isinstance(line, str) for line in caller.record), "a call raised"
    envs.close()
    envs.close()


def test_a_fault_breaks_a_statement_of_the_standard_or_the_contract() -> None:
    known = {one["id"] for one in json.loads(STATEMENTS.read_text(encoding="utf-8"))["statements"]} | {"contract"}
    assert {one.statement for one in SUBJECTS if not one.good} <= known
    assert all(one.what and not one.statement for one in GOOD)


def test_the_manifests_name_every_subject() -> None:
    for part, front in FRONTS.items():
        entries = json.loads((FAULTS / f"{part}.json").read_text(encoding="utf-8"))
        assert entries == manifest(part), "run plugins/kit/faults/write_manifests.py"
        assert all(callable(getattr(front, entry["factory"].partition(":")[2])) for entry in entries)
        assert max(Counter(entry["id"] for entry in entries).values()) == 1
        assert max(Counter(entry["factory"] for entry in entries).values()) == 1


def test_a_third_of_the_faults_is_open() -> None:
    drawn = []
    for part in FRONTS:
        ids = sorted(one.id for one in SUBJECTS if one.part == part and not one.good)
        drawn += random.Random(30).sample(ids, len(ids) // 3)
    assert json.loads((FAULTS / "open_a.json").read_text(encoding="utf-8")) == sorted(set(drawn) - PREVENTED)
