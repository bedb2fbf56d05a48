"""Try a world of language and sets of objects in tables, log, source data, exports, JSON, trainers and the kit."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rlenv_robot as rr
from hal import Field, RobotSpec, RobotState, Spec
from real.protocol.rows import RobotStateCodec, RowCodec
from recorder.formats.registry import writable_format
from recorder.table.load import build
from rlenv_bridges.from_gymnasium import from_gymnasium
from rlenv_bridges.table_server import RequestHandler
from rlenv_kit.protocol_page import protocol_document
from rlenv_robot.adapters.json_schema import protocol_schema
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.vector.env import VectorEnvironment
from sim.batch import SimBatch
from sim.robots.so101 import so101

pytestmark = pytest.mark.requirement("R6.4")

WORDS = ("cup", "Teller", "Жук", "机器", "🤖 arm")


class Tidy(rr.World):
    """Name the object that lies farthest to the right. The answer is a text, and points at some of the objects."""

    observation = rr.Spec(
        "tidy_observation",
        (
            Field("instruction", (), "text", meaning="what to do", characters=60),
            Field("objects", (4, 2), "float32", -1, 1, "m", "where they lie", ("x", "y"), counted_by="count"),
            Field("labels", (4,), "text", meaning="what they are", characters=12, counted_by="count"),
            Field("count", (), "int32", 0, 4, meaning="of objects"),
        ),
    )
    action = rr.Spec(
        "tidy_action",
        (
            Field("answer", (), "text", meaning="the object's name", characters=12),
            Field("sure", (), "float32", 0, 1, "1", "how sure the agent is"),
        ),
    )
    description = rr.EnvDescription(__doc__, Field("reward", (), "int32", 0, 1, meaning="1: the answer is right"),
                                    {"seed": "whole number"})  # fmt: skip

    def __init__(self) -> None:
        self.rng = np.random.default_rng()

    def reset(self, options: Any) -> rr.TimeStep:
        if set(options) - {"seed"}:
            raise ValueError(f"reset options are {sorted(options)}, allowed is seed")
        if options.get("seed") is not None:
            self.rng = np.random.default_rng(options["seed"])
        self.steps = 0
        return self.seen(0)

    def step(self, action: Any, extra_info: Any) -> rr.TimeStep:
        right = self.labels[int(np.argmax(self.places[:, 0]))] if len(self.labels) else ""
        self.steps += 1
        return self.seen(int(action["answer"].item() == right))

    def seen(self, reward: int) -> rr.TimeStep:
        count = int(self.rng.integers(0, 5))
        self.places = self.rng.uniform(-1, 1, (count, 2)).astype(np.float32)
        self.labels = [WORDS[int(n)] for n in self.rng.integers(0, len(WORDS), count)]
        told = {
            "instruction": f"number {self.steps}: what is farthest right?",
            "objects": self.places,
            "labels": self.labels,
        }
        observation = self.observation.validate(self.observation.padded(told))
        return rr.TimeStep(observation, reward, False, self.steps >= 8, {})


def ask(env: Any, table: Any, answer: Any) -> Any:
    action = {"answer": answer, "sure": 0.5}
    return env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})


def best(table: Any) -> str:
    seen = Tidy.observation.entries(table["observation"])
    return str(seen["labels"][np.argmax(seen["objects"][:, 0])]) if len(seen["labels"]) else ""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any], list[str]]:
    """One episode of right answers: the folder of its run, the tables, and the answers."""
    folder = tmp_path_factory.mktemp("runs")
    with rr.make(Tidy, record=folder) as env:
        tables, answers = [env.reset({"seed": 3})], []
        while not tables[-1]["truncated"]:
            answers.append(best(tables[-1]))
            table, reward = ask(env, tables[-1], answers[-1])
            assert reward["reward"] == 1
            tables.append(table)
    return folder, tables, answers


def test_a_record_gives_back_the_same_texts_and_sets(recorded: Any) -> None:
    folder, tables, answers = recorded
    source = rr.open_source(folder)
    steps = source.sample_trajectories(1)[0]["steps_set"]
    for name in Tidy.observation.names:
        expected = np.stack([table["observation"][name] for table in tables])
        np.testing.assert_array_equal(steps["observation"][name], expected[:-1])
        np.testing.assert_array_equal(steps["next_observation"][name], expected[1:])
        assert steps["observation"][name].dtype == Tidy.observation[name].numpy_dtype
    assert steps["action"]["answer"].tolist() == answers
    batch = source.sample_steps(64, {"priority": "reward"})
    assert batch["observation"]["objects"].shape == (64, 4, 2)
    source.init({"episode": 0, "frame": 2})
    assert source.get_all_actions()["action"]["answer"].tolist() == [answers[2]]
    near = {"state": tables[2]["observation"], "tolerance": {"objects": 0.1}}
    assert source.get_all_actions(near)["action"]["answer"].tolist() == [answers[2]]
    fields = source.statistics()["fields"]
    assert fields["action.answer"]["distinct"] == len(set(answers))
    rr.check_source(source).raise_if_failed()


@pytest.mark.parametrize(
    ("name", "needs"), [("parquet", "pyarrow"), ("lerobot", "pyarrow"), ("minari", "h5py"), ("robomimic", "h5py")]
)
def test_exports_hold_texts_or_say_that_they_do_not(recorded: Any, name: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    table = build(next(recorded[0].iterdir()))
    _, write = writable_format(name)
    path = tmp_path / {"minari": "out-v0", "robomimic": "out.hdf5"}.get(name, "out")
    lost = write(table, path)
    again = rr.open_source(path).table
    if name == "parquet":
        assert not lost
        assert again.layout == table.layout
        assert again.rows.tobytes() == table.rows[table.starts[0] : table.stops[0]].tobytes()
    else:
        assert "no place for texts: observation_instruction, observation_labels, action_answer" in lost[0]
        assert set(again.layout.observation.names) == {"objects", "count"}
        objects = again.rows["observation_objects"]
        np.testing.assert_array_equal(objects, table.rows["observation_objects"][table.starts[0] : table.stops[0]])
        np.testing.assert_array_equal(
            again.rows["observation_count"], table.rows["observation_count"][table.starts[0] : table.stops[0]]
        )


def test_sets_reach_the_libraries_of_hdf5_as_padded_arrays_with_their_counts(
    recorded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h5py = pytest.importorskip("h5py")
    table, tables = build(next(recorded[0].iterdir())), recorded[1]
    expected = {name: np.stack([one["observation"][name] for one in tables]) for name in ("objects", "count")}
    writable_format("robomimic")[1](table, tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        demo = file["data/demo_0"]
        assert set(demo["obs"]) == set(expected)
        assert set(demo["action_dict"]) == {"sure"}
        for name, values in expected.items():
            np.testing.assert_array_equal(demo[f"obs/{name}"], values[:-1])
            np.testing.assert_array_equal(demo[f"next_obs/{name}"], values[1:])
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    writable_format("minari")[1](table, tmp_path / "tidy-v0")
    (episode,) = minari.load_dataset("tidy-v0").iterate_episodes()
    assert set(episode.observations) == set(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(episode.observations[name], values)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=14))
def test_the_process_border_carries_any_text_and_refuses_what_the_environment_does(text: str) -> None:
    with rr.make(Tidy) as env:
        server = RequestHandler(env)
        table = json.loads(server.answer(b'{"call": "reset", "options": {"seed": 1}}'))["observation"]
        seen = table["observation"]
        assert isinstance(seen["instruction"], str)
        assert len(seen["labels"]) == 4
        action = {"env_id": env.env_id, "frame_no": 0, "action": {"answer": text, "sure": 1}}
        answer = json.loads(server.answer(json.dumps({"call": "step", "action": action}).encode()))["observation"]
        legal = len(text) <= 12 and "\0" not in text
        assert answer["frame_no"] == int(legal)
        assert ("error" in answer["extra_info"]) != legal


def test_the_pages_and_the_schema_describe_texts_and_counts() -> None:
    with rr.make(Tidy) as env:
        page, tables = protocol_document(env), protocol_schema(env)["$defs"]
    assert "| `answer` | text | up to 12 characters | 1 | the object's name |" in page
    assert "`count` entries count, those behind are 0" in page
    seen = tables["table_1"]["properties"]["observation"]["properties"]
    assert (seen["instruction"]["type"], seen["instruction"]["maxLength"]) == ("string", 60)
    assert seen["labels"]["items"] == {"type": "string", "maxLength": 12, "pattern": "^[^\\u0000]*$"}
    assert seen["objects"]["x-counted-by"] == "count"
    assert tables["table_2"]["properties"]["action"]["properties"]["answer"]["maxLength"] == 12


def test_trainers_get_texts_as_gymnasium_has_them() -> None:
    class Asking(Tidy):
        observation = rr.Spec("asking", (Tidy.observation["instruction"],))

        def seen(self, reward: int) -> rr.TimeStep:
            self.labels, self.places = ["cup"], np.zeros((1, 2), np.float32)
            observation = {"instruction": np.array("what?", self.observation["instruction"].numpy_dtype)}
            return rr.TimeStep(observation, reward, False, self.steps >= 8, {})

    env = rr.to_gymnasium(rr.make(Asking))
    obs, _ = env.reset(seed=1)
    assert obs == {"instruction": "what?"}
    assert env.observation_space.contains(obs)
    obs, reward, *_ = env.step({"answer": "cup", "sure": np.float32(1)})
    assert reward == 1
    with pytest.raises(ValueError, match="array of texts"):
        rr.to_gymnasium(rr.make(Tidy))
    env.close()


@dataclass(frozen=True)
class Told(Reach):
    """Reach, told in words, with a list of hints; an answer in words earns 1 more."""

    @cached_property
    def told(self) -> tuple[Field, ...]:
        return (
            Field("instruction", (), "text", meaning="what to do", characters=12),
            Field("hints", (3,), "text", meaning="how", characters=8, counted_by="count"),
            Field("count", (), "int32", 0, 3, meaning="of hints"),
        )

    @cached_property
    def observation(self) -> Spec:
        return Spec("told_observation", (*Reach().observation, *self.told))

    @cached_property
    def action(self) -> Spec:
        return Spec("told_action", (*Reach().action, Field("answer", (), "text", meaning="reply", characters=12)))

    @cached_property
    def goal(self) -> Spec:
        return Spec("told_goal", (*Reach().goal, *self.told))

    def begin(self, rng: np.random.Generator, options: Any) -> Any:
        episode, count = super().begin(rng, options), int(rng.integers(0, 4))
        words = Spec("told", self.told)
        told = words.padded({"instruction": str(rng.choice(WORDS)), "hints": list(rng.choice(WORDS, count))})
        return replace(episode, goal={**episode.goal, **words.validate(told)})

    def command(self, action: Any, sensors: Any) -> Any:
        return {"joint_target": action["joint_target"]}

    def observe(self, sensors: Any, goal: Any) -> Any:
        leading = sensors["gripper_position"].shape[:-1]
        own = {field.name: np.broadcast_to(goal[field.name], (*leading, *field.shape)) for field in self.told}
        return {**super().observe(sensors, goal), **own}

    def reward(self, sensors: Any, action: Any, following: Any, goal: Any) -> Any:
        return super().reward(sensors, action, following, goal) + (action["answer"] == goal["instruction"])


def test_rows_of_a_batch_carry_texts_as_single_environments_do() -> None:
    task, num, rng = Told(steps=4), 3, np.random.default_rng(0)
    envs = VectorEnvironment(SimBatch(so101(), num, 1), task, seed=3, streams=np.zeros(num, np.int64))
    singles = [rr.make(task) for _ in range(num)]
    with envs:
        many, ones = envs.reset(), [env.reset({"seed": 3}) for env in singles]
        for _ in range(10):
            target = rng.uniform(-0.1, 0.1, (num, 6)).astype(np.float32)
            answer = np.array([many["observation"]["instruction"][0], "no", "x" * 13])  # right, wrong, too long
            table = {"env_id": envs.env_ids, "frame_no": many["frame_no"]}
            many, rewards = envs.step({**table, "action": {"joint_target": target, "answer": answer}})
            for row, env in enumerate(singles):
                action = {"joint_target": target[row], "answer": str(answer[row])}
                request = {"env_id": env.env_id, "frame_no": ones[row]["frame_no"], "action": action}
                one, reward = env.step(request)
                assert rewards["reward"][row] == pytest.approx(reward["reward"], rel=1e-6)
                assert many["extra_info"].get("error", {}).get(row) == one["extra_info"].get("error")
                ones[row] = env.reset() if one["truncated"] else one
                for name, value in ones[row]["observation"].items():
                    np.testing.assert_array_equal(many["observation"][name][row], value, err_msg=name)
    assert [one["frame_no"] for one in ones] == [2, 2, 0]
    for env in singles:
        env.close()
    with pytest.raises(ValueError, match="array of texts"):
        rr.to_gymnasium_vector(envs)


class Parrot(gymnasium.Env[Any, Any]):
    """Theirs: repeat a text."""

    observation_space = gymnasium.spaces.Text(20)
    action_space = gymnasium.spaces.Text(20)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.text = f"say {self.np_random.integers(9)}"
        return self.text, {}

    def step(self, action: str) -> Any:
        return self.text, float(action == self.text), True, False, {}


def test_texts_of_gymnasiums_environments_come_in() -> None:
    with from_gymnasium(Parrot()) as env:
        table = env.reset({"seed": 1})
        (name,), (answer,) = env.observation.names, env.action.names
        said = table["observation"][name].item()
        request = {"env_id": env.env_id, "frame_no": 0, "action": {answer: said}}
        _, reward = env.step(request)
        assert (said[:4], reward["reward"]) == ("say ", 1.0)
        env.reset({"seed": 1})
        for wrong in ({"wind": 1}, {"seed": "x"}):
            with pytest.raises(ValueError, match=r"unknown|whole number"):
                env.reset(wrong)
        _, reward = env.step(request)
        assert reward["reward"] == 1.0, "the refused resets left the episode alone"


def test_the_kit_passes_the_world_and_flat_vectors_refuse_it() -> None:
    rr.check_environment(lambda: rr.make(Tidy)).raise_if_failed()
    with pytest.raises(ValueError, match="is a text"):
        rr.FlattenObservation(Tidy.observation, Tidy.action)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=10), st.integers(0, 2**32 - 1))
def test_a_robots_texts_cross_the_wires_rows(text: str, seed: int) -> None:
    sensors = Spec("heard", (Field("level", (3,), "float32"), Field("speech", (), "text", characters=10)))
    spec = RobotSpec("listener", sensors, Spec("said", (Field("say", (2,), "text", characters=10),)), 30.0)
    values = sensors.sample(np.random.default_rng(seed)) | {"speech": sensors["speech"].validate(text)}
    command = spec.commands.validate({"say": [text, ""]})
    row = RowCodec(spec.commands).pack_command({"say": [text, ""]})
    np.testing.assert_array_equal(spec.commands.unpack(row)["say"], command["say"])
    codec = RobotStateCodec(spec)
    decoded = codec.decode(*codec.encode(RobotState(values, command, 5)))
    assert decoded.sensors["speech"].item() == text
    np.testing.assert_array_equal(decoded.sensors["level"], values["level"])
    np.testing.assert_array_equal(decoded.applied["say"], command["say"])
