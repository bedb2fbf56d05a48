"""The extra information that a step takes beside the action: checked, used, recorded and described (clause 6.2.2.2)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import Field, IllegalAction, Spec, SpecError
from hal.robots.so101 import SO101
from rlenv_bridges.table_server import TableServer
from rlenv_kit.protocol_page import protocol_document, protocol_html
from rlenv_robot.adapters.json_schema import protocol_schema
from rlenv_robot.tables import StepExtra
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.tasks.task import Arrays

pytestmark = pytest.mark.requirement("R1.4")

CHARGE = Field("charge", (), "float32", 0, 1, "1", "the battery's charge, of 1")
LOAD = Field("load", (2,), "int32", 0, 9, "kg", "what the arm holds", ("left", "right"))
GAUSSIAN = Spec(
    "gaussian",
    (
        Field("mean", (6,), "float32", unit="rad", meaning="of the joint targets"),
        Field("std", (6,), "float32", 0, 10, "rad", "standard deviation"),
    ),
)


@dataclass(frozen=True)
class BatteryReach(Reach):
    """Reach with a battery: an emptier one moves the arm a smaller part of the way, and costs reward."""

    step_extra = StepExtra(Spec("battery", (CHARGE, LOAD)), {"charge": 1.0, "load": [0, 0]})

    def command(self, action: Arrays, sensors: Arrays) -> Arrays:
        here = sensors["joint_goal"]
        way = (action["joint_target"] - here) * np.asarray(action["charge"])[..., None]
        return {"joint_target": np.clip((here + way).astype(np.float32), *SO101.commands["joint_target"].bounds)}

    def reward(self, sensors: Arrays, action: Arrays, following: Arrays, goal: Arrays) -> np.ndarray:
        cost = 0.25 * (1 - action["charge"]) + 0.01 * action["load"].sum(axis=-1)
        return np.asarray(super().reward(sensors, action, following, goal) - cost)


def _ask(env: Any, table: Any, target: Any, **extra: Any) -> Any:
    request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"joint_target": target}}
    return env.step(request, extra)


WRONG = [
    ({"charg": 1.0}, "unknown", "extra_info.charg"),
    ({"charge": 1.25}, "range", "extra_info.charge"),
    ({"charge": -0.01}, "range", "extra_info.charge"),
    ({"charge": math.nan}, "not_finite", "extra_info.charge"),
    ({"charge": "full"}, "dtype", "extra_info.charge"),
    ({"charge": [1.0]}, "shape", "extra_info.charge"),
    ({"load": [1, 10]}, "range", "extra_info.load"),
    ({"load": [0.5, 1]}, "dtype", "extra_info.load"),
    ({"behaviour": {"mean": 0.0}}, "unknown", "extra_info.behaviour"),
]


@pytest.mark.requirement("R1.2")
@pytest.mark.parametrize(("extra", "code", "field"), WRONG)
def test_wrong_extra_information_refuses_the_step(extra: dict[str, Any], code: str, field: str) -> None:
    with rr.make(BatteryReach()) as env:
        table = env.reset({"seed": 1})
        before = table["observation"]["joint_position"].copy()
        answer, reward = _ask(env, table, before + 0.02, **extra)
        error = answer["extra_info"]["error"]
        assert (error["code"], error["field"]) == (code, field), error["message"]
        assert (answer["frame_no"], reward["reward"]) == (0, 0.0)
        np.testing.assert_array_equal(answer["observation"]["joint_position"], before)
        answer, _ = _ask(env, table, before, charge=0.5)
        assert answer["frame_no"] == 1, "the refusal changed nothing"


def test_a_step_without_a_field_takes_the_default_and_a_field_without_one_must_be_given() -> None:
    @dataclass(frozen=True)
    class Required(BatteryReach):
        step_extra = StepExtra(Spec("battery", (CHARGE, LOAD)), {"load": [0, 0]})

    goal = np.zeros(6, np.float32)
    with rr.make(BatteryReach()) as env, rr.make(Required()) as strict:
        plain, reward = _ask(env, env.reset({"seed": 3}), goal)
        table = strict.reset({"seed": 3})
        refused, _ = _ask(strict, table, goal)
        assert refused["extra_info"]["error"]["code"] == "missing"
        full, same = _ask(strict, table, goal, charge=1)
        np.testing.assert_array_equal(full["observation"]["joint_position"], plain["observation"]["joint_position"])
        assert same["reward"] == reward["reward"]


def test_the_caller_keeps_its_arrays_and_the_task_its_defaults() -> None:
    kept: list[np.ndarray] = []

    class Greedy(BatteryReach):
        def command(self, action: Arrays, sensors: Arrays) -> Arrays:
            kept.append(np.asarray(action["load"]))
            action["load"][...] = 9
            return super().command(action, sensors)

    mine = np.array([1, 2], np.int32)
    with rr.make(Greedy()) as env:
        table, _ = _ask(env, env.reset({"seed": 1}), np.zeros(6, np.float32), load=mine)
        _ask(env, table, np.zeros(6, np.float32))
    assert mine.tolist() == [1, 2]
    assert Greedy.step_extra.defaults["load"].tolist() == [0, 0]  # type: ignore[union-attr]


def test_names_that_are_taken_and_defaults_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SpecError, match="log_probability"):
        StepExtra(Spec("x", (Field("log_probability"),)))
    with pytest.raises(SpecError, match="allowed"):
        StepExtra(Spec("x", (CHARGE,)), {"charge": 2.0})

    class Clash(BatteryReach):
        step_extra = StepExtra(Spec("x", (Field("joint_target", (6,)),)))

    with pytest.raises(SpecError, match="joint_target"):
        rr.make(Clash())


# -- vectors ---------------------------------------------------------------------------------------------------------


def test_rows_of_a_vector_equal_single_environments_and_a_wrong_row_is_refused_alone() -> None:
    charges = np.array([1.0, 0.5, 0.25], np.float32)
    loads = np.array([[0, 0], [1, 2], [9, 9]], np.int32)
    goal = np.full((3, 6), 0.01, np.float32)
    with rr.make_vector(BatteryReach(), 3, seed=5) as envs:
        table = envs.reset()
        request = {"env_id": table["env_id"], "frame_no": table["frame_no"], "action": {"joint_target": goal}}
        table, reward = envs.step(request, {"charge": charges, "load": loads})
        request["frame_no"] = table["frame_no"]
        after, later = envs.step(request, {"charge": np.array([1.0, np.nan, 2.0]), "load": loads})
        assert after["frame_no"].tolist() == [2, 1, 1]
        assert {row: error["code"] for row, error in after["extra_info"]["error"].items()} == {
            1: "not_finite", 2: "range",
        }  # fmt: skip
        assert later["reward"][1:].tolist() == [0, 0]
        with pytest.raises(IllegalAction, match="unknown"):
            envs.step({**request, "frame_no": after["frame_no"]}, {"charg": charges})
        with pytest.raises(IllegalAction, match="shape"):
            envs.step({**request, "frame_no": after["frame_no"]}, {"charge": 1.0})
    with rr.make(BatteryReach()) as env:  # row 0 of a vector does what a single environment does
        obs, paid = _ask(env, env.reset({"seed": 5}), goal[0], charge=1.0, load=loads[0])
        np.testing.assert_array_equal(obs["observation"]["joint_position"], table["observation"]["joint_position"][0])
        assert paid["reward"] == pytest.approx(reward["reward"][0], abs=1e-12)


# -- records ---------------------------------------------------------------------------------------------------------


def _record(folder: Path, steps: int = 20) -> tuple[list[float], list[np.ndarray]]:
    rng, rewards, means = np.random.default_rng(0), [], []
    with rr.make(BatteryReach(steps=steps), record=folder, behaviour=GAUSSIAN) as env:
        table = env.reset({"seed": 2})
        while not (table["terminated"] or table["truncated"]):
            mean = table["observation"]["joint_goal"]
            means.append(mean)
            target = np.clip(rng.normal(mean, 0.02), *env.action["joint_target"].bounds).astype(np.float32)
            extra: dict[str, Any] = {"charge": rng.random()}
            if len(means) % 5:
                extra["behaviour"] = {"mean": mean, "std": np.full(6, 0.02, np.float32)}
            table, reward = _ask(env, table, target, **extra)
            assert "error" not in table["extra_info"]
            rewards.append(float(reward["reward"]))
    return rewards, means


def test_steps_are_recorded_read_back_and_rewarded_anew_with_what_they_took(tmp_path: Path) -> None:
    rewards, means = _record(tmp_path)
    source = rr.open_source(tmp_path)
    trajectory = source.sample_trajectories(1)[0]["steps_set"]
    given_ = trajectory["extra_info"]["step_extra"]
    assert given_["charge"].shape == (20,)
    assert given_["charge"].dtype == np.float32
    assert len(np.unique(given_["charge"])) == 20
    assert given_["load"].tolist() == [[0, 0]] * 20
    behaviour = trajectory["extra_info"]["behaviour"]
    assert (behaviour["mean"].shape, behaviour["std"].shape) == ((20, 6), (20, 6))
    unknown = np.arange(1, 21) % 5 == 0
    assert np.isnan(behaviour["std"]).all(axis=1).tolist() == unknown.tolist()
    np.testing.assert_array_equal(behaviour["mean"][~unknown], np.stack(means)[~unknown])
    again = rr.open_source(tmp_path, task=BatteryReach(steps=20))
    np.testing.assert_allclose(again.sample_trajectories(1)[0]["steps_set"]["reward"], rewards, atol=1e-6)
    assert source.table.layout.behaviour == GAUSSIAN
    assert source.table.layout.extra.names == ("charge", "load")


def test_data_without_the_field_get_the_default_or_are_refused(tmp_path: Path) -> None:
    with rr.make(Reach(steps=3), record=tmp_path) as env:
        table = env.reset({"seed": 2})
        while not table["truncated"]:
            table, _ = _ask(env, table, table["observation"]["joint_goal"])
    plain = rr.open_source(tmp_path).sample_trajectories(1)[0]["steps_set"]["reward"]
    full = rr.open_source(tmp_path, task=BatteryReach(steps=3)).sample_trajectories(1)[0]["steps_set"]["reward"]
    np.testing.assert_allclose(full, plain, atol=1e-6)

    class Required(BatteryReach):
        step_extra = StepExtra(Spec("battery", (CHARGE, LOAD)))

    with pytest.raises(rr.SourceError, match="charge"):
        rr.open_source(tmp_path, task=Required(steps=3))


def test_turns_record_what_each_of_them_was_given(tmp_path: Path) -> None:
    spec = Spec("own", (Field("spread", (), "float64", 0, 1),))
    env = rr.one_at_a_time(rr.make("so101-pair-lift", behaviour=spec), record=tmp_path)
    with env:
        table = env.reset({"seed": 0})
        for number in range(4):
            action = {field.name: np.clip(np.zeros(field.shape, field.numpy_dtype), *field.bounds)
                      for field in env.action}  # fmt: skip
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": action}
            table, _ = env.step(request, {"behaviour": {"spread": number / 10}, "log_probability": -float(number)})
            assert "error" not in table["extra_info"]
    steps = rr.open_source(tmp_path).sample_trajectories(1)[0]["steps_set"]["extra_info"]
    assert steps["behaviour"]["spread"].tolist() == [0.0, 0.1, 0.2, 0.3]
    assert steps["log_probability"].tolist() == [0, -1, -2, -3]


def test_an_integer_behaviour_field_is_refused() -> None:
    with pytest.raises(SpecError, match="float"):
        rr.make("go", behaviour=Spec("logits", (Field("logits", (3,), "int32"),)))


# -- descriptions and the process border -----------------------------------------------------------------------------


@pytest.mark.requirement("R4.2")
def test_the_protocol_pages_and_the_schema_describe_the_fields() -> None:
    with rr.make(BatteryReach(), behaviour=GAUSSIAN) as env:
        page, schema = protocol_document(env), protocol_schema(env)
    assert "| `charge` | float32 | 0 to 1 | 1 | the battery's charge, of 1 |" in page
    assert "| `load` | [0, 0] |" in page
    assert "Fields of `behaviour`" in page
    assert "<td><code>charge</code></td>" in protocol_html(page)
    step = next(one for one in schema["$defs"]["request"]["oneOf"] if one["properties"]["call"]["const"] == "step")
    extra = step["properties"]["extra_info"]
    assert extra["additionalProperties"] is False
    assert extra["required"] == []
    charge = extra["properties"]["charge"]
    assert (charge["type"], charge["minimum"], charge["maximum"], charge["default"]) == ("number", 0, 1, 1)
    assert extra["properties"]["load"]["items"]["type"] == "integer"
    assert extra["properties"]["behaviour"]["required"] == ["mean", "std"]


@settings(max_examples=60, deadline=None)
@given(charge=st.one_of(st.floats(-2, 2), st.integers(-2, 2), st.text(max_size=3), st.none(), st.just([0.5])))
def test_the_process_border_takes_and_refuses_as_the_environment_does(charge: Any) -> None:
    server = _SERVER
    first = json.loads(server.answer(b'{"call": "reset", "options": {"seed": 1}}'))["observation"]
    request = {
        "call": "step",
        "action": {"env_id": first["env_id"], "frame_no": 0, "action": {"joint_target": [0.0] * 6}},
        "extra_info": {"charge": charge},
    }
    table = json.loads(server.answer(json.dumps(request).encode()))["observation"]
    fits = isinstance(charge, float | int) and not isinstance(charge, bool) and 0 <= np.float32(charge) <= 1
    assert (table["frame_no"] == 1) == fits
    assert ("error" in table["extra_info"]) != fits
    if not fits:
        assert table["extra_info"]["error"]["field"] == "extra_info.charge"


@pytest.fixture(scope="module", autouse=True)
def _served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    global _SERVER
    _SERVER = TableServer(rr.make(BatteryReach()), f"ipc://{tmp_path_factory.mktemp('tables')}/socket")
    yield
    _SERVER.close()


_SERVER: TableServer


def test_the_conformance_kit_passes_a_task_with_extra_information() -> None:
    class Required(BatteryReach):
        step_extra = StepExtra(Spec("battery", (CHARGE, LOAD)), {"load": [0, 0]})

    for task in (BatteryReach(steps=20), Required(steps=20)):
        with rr.make(task) as env:
            rr.check_environment(env).raise_if_failed()
