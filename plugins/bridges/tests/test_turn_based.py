"""Agents act one at a time, the joint action happens after the last of them, and other turns are refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Field, SourceError, Spec, SpecError
from recorder.figures.plot import pick_lines
from recorder.frame_layout import FrameLayout
from recorder.read.reader import LogReader
from recorder.table.load import load_runs
from rlenv_bridges.turn_based import OneAtATime, one_at_a_time
from rlenv_curate.checks.table import check_table
from rlenv_kit import check_environment
from rlenv_robot.cli.main import main
from rlenv_robot.env import Environment
from rlenv_robot.registry import task
from rlenv_robot.tasks.agents import Agent, messages, observed_fields
from rlenv_robot.world import EnvDescription, TimeStep

pytestmark = pytest.mark.requirement("R6.3")


@pytest.mark.requirement("B.3.2-2")
def test_the_joint_action_happens_when_the_last_has_chosen() -> None:
    with one_at_a_time(rr.make("so101-pair-lift", message_size=1)) as env:
        table = env.reset({"seed": 4})
        assert table["extra_info"]["agent"] == "left"
        start = table["observation"]["joint_position"]
        action = {"joint_target": table["observation"]["joint_goal"] + np.float32(0.05), "message": np.float32([0.5])}
        table, reward = env.step({"env_id": env.env_id, "frame_no": 0, "action": action})
        assert table["extra_info"]["agent"] == "right"
        assert reward["reward"] == {"left": 0.0, "right": 0.0}
        assert "messages" not in table["extra_info"], "it is not said before all have chosen"
        action = {"joint_target": table["observation"]["joint_goal"], "message": np.float32([-0.5])}
        table, reward = env.step({"env_id": env.env_id, "frame_no": 1, "action": action})
        assert table["extra_info"]["agent"] == "left"
        np.testing.assert_array_equal(table["extra_info"]["messages"]["right"], [-0.5])
        assert reward["reward"]["left"] != 0
        assert np.abs(table["observation"]["joint_position"] - start).max() > 0.005


def test_an_illegal_choice_is_asked_for_again() -> None:
    with one_at_a_time(rr.make("so101-pair-lift")) as env:
        env.reset({"seed": 4})
        far = {"joint_target": np.full(6, 9, np.float32)}
        table, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": far})
        assert table["extra_info"]["agent"] == "left"
        assert table["extra_info"]["error"]["code"] == "range"


def test_the_page_tells_one_agents_part() -> None:
    with one_at_a_time(rr.make("so101-pair-lift")) as env:
        assert "left" not in "".join(field.meaning + field.name for field in (*env.observation, *env.action))
        assert "whose turn" in env.description.extra_info["agent"]


def test_one_agent_takes_no_turns() -> None:
    with pytest.raises(ValueError, match="'go' has no agents"):
        OneAtATime(rr.make("go", size=3).world)


class Stage(rr.World):
    """An arm and a lamp: the arm sees where it is, the lamp how bright it is; the lamp tells the arm a number."""

    observation = Spec(
        "stage",
        (
            Field("place", (2,), "float32", -9, 9, "m", "of the arm"),
            Field("glow", (), "float32", 1, 9, "lx", "of the lamp"),
            Field("time", (), "int32", 0, 9, "1", "steps so far"),
        ),
    )
    action = Spec(
        "stage_action",
        (
            Field("push", (2,), "float32", -1, 1, "m", "of the arm"),
            Field("level", (), "int8", 1, 9, "1", "of the lamp"),
            Field("word", (), "float32", 0, 1, "1", "of the lamp, to the arm or to nobody"),
            Field("to", (), "int8", -1, 1, "1", "whom the word is for"),
        ),
    )
    agents = (
        Agent("arm", {"place": "place", "time": "time"}, {"act": "push"}),
        Agent("lamp", {"glow": "glow", "time": "time"}, {"act": "level", "word": "word", "to": "to"}, "word", "to"),
    )
    description = EnvDescription("A stage.", Field("reward", (), "float64", 0, 9, meaning="brightness"))

    @property
    def layout(self) -> FrameLayout:
        return FrameLayout(self.observation, self.action, ("arm", "lamp"))

    def reset(self, options: Mapping[str, object]) -> TimeStep:
        if set(options) - {"seed"}:
            raise ValueError(f"{sorted(options)}: allowed is seed")
        self.at, self.glow, self.time = np.zeros(2, np.float32), np.float32(1), 0
        return self.seen({})

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        self.at = np.clip(self.at + action["push"], -9, 9).astype(np.float32)
        self.glow, self.time = np.float32(action["level"]), self.time + 1
        return self.seen(messages(self.agents, action))

    def seen(self, sent: dict[str, dict[str, np.ndarray]]) -> TimeStep:
        observed = {"place": self.at, "glow": np.array(self.glow), "time": np.array(self.time, np.int32)}
        extra = {"agents": observed_fields(self.agents), **({"messages": sent} if any(sent.values()) else {})}
        glow = float(self.glow)
        return TimeStep(observed, {"arm": 0.0, "lamp": glow}, False, self.time >= 5, extra)


def test_agents_that_are_unlike_act_one_at_a_time() -> None:
    with Environment(OneAtATime(Stage())) as env:
        assert env.action.names == ("arm_act", "lamp_act", "word", "to")
        assert env.observation.names == ("place", "time", "glow")
        table = env.reset({"seed": 1})
        assert table["extra_info"]["agent"] == "arm"
        assert table["extra_info"]["fields"] == {"observation": ["place", "time"], "action": ["arm_act"]}
        assert table["observation"]["glow"] == 1, "padding is what lies next to zero in the field's range"
        action = {"arm_act": [0.5, 0], "lamp_act": 7, "word": 0.9, "to": 0}
        table, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": action})
        assert table["extra_info"]["fields"]["action"] == ["lamp_act", "word", "to"]
        action = {"arm_act": [1, 1], "lamp_act": 4, "word": 0.25, "to": 0}
        table, reward = env.step({"env_id": env.env_id, "frame_no": 1, "action": action})
        np.testing.assert_array_equal(table["observation"]["place"], [0.5, 0])
        assert reward["reward"] == {"arm": 0.0, "lamp": 4.0}, "each agent's own fields count in its own turn"
        assert table["extra_info"]["messages"] == {"lamp": np.float32(0.25)}
    check_environment(lambda: Environment(OneAtATime(Stage()))).raise_if_failed()


def test_turns_of_unlike_agents_are_recorded_and_served(tmp_path: Path) -> None:
    with one_at_a_time(Environment(Stage()), record=tmp_path) as env:
        table, rng = env.reset({"seed": 1}), np.random.default_rng(0)
        while not table["truncated"]:
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": env.action.sample(rng)}
            table, _ = env.step(request)
    data = rr.open_source(tmp_path)
    assert set(data.sample_steps(40)["extra_info"]["agent"].tolist()) == {0, 1}


@pytest.mark.requirement("B.3.2-3")
@pytest.mark.parametrize(
    ("to", "reached"), [(0, {"arm"}), (-1, {"arm", "crowd"}), (2, {"crowd"}), (3, {"arm", "crowd"})]
)
def test_a_message_reaches_its_addressee_alone(to: int, reached: set[str]) -> None:
    agents = (*Stage.agents, Agent("crowd", {"time": "time"}))
    sent = messages(agents, {"word": np.float32(0.5), "to": np.array(to)})
    assert {receiver for receiver, told in sent.items() if told} == reached


def test_rows_of_a_batch_have_addressees_of_their_own() -> None:
    agents = (*Stage.agents, Agent("crowd", {"time": "time"}))
    sent = messages(agents, {"word": np.float32([0.1, 0.2, 0.3]), "to": np.array([0, 2, -1])})
    np.testing.assert_array_equal(sent["arm"]["lamp"], np.float32([0.1, 0, 0.3]))
    np.testing.assert_array_equal(sent["crowd"]["lamp"], np.float32([0, 0.2, 0.3]))


def test_an_addressee_without_a_message_is_refused() -> None:
    with pytest.raises(SpecError, match="sends no message"):
        Agent("lamp", {}, {"to": "to"}, addressee="to")


def _recorded(folder: Path, episodes: int = 3, steps: int = 6) -> Path:
    """A run by turns in which each agent moves in steps of its own length."""
    whole = rr.make("so101-pair-lift", steps=steps)
    stride = {"left": np.float32(0.01), "right": np.float32(0.02)}
    with one_at_a_time(whole, record=folder, info={"source": "script"}) as env:
        for seed in range(episodes):
            table = env.reset({"seed": seed})
            while not (table["terminated"] or table["truncated"]):
                target = table["observation"]["joint_goal"] + stride[table["extra_info"]["agent"]]
                action = {"joint_target": target.clip(*env.action["joint_target"].bounds)}
                table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
    return folder


def test_turns_are_recorded_with_whose_they_were(tmp_path: Path) -> None:
    run = _recorded(tmp_path / "runs")
    table = load_runs(run)
    assert table.layout.turns
    assert tuple(table.layout.agents) == ("left", "right")
    for start, stop in zip(table.starts, table.stops, strict=True):
        rows = table.rows[start:stop]
        assert rows["agent"].tolist() == [frame % 2 for frame in range(13)]
        chosen = rows["action_joint_target"][1:, 0] - rows["observation_joint_goal"][:-1, 0]
        np.testing.assert_allclose(chosen, [0.01, 0.02] * 6, atol=1e-6)
        assert (rows["reward_left"][1::2] == 0).all(), "until all have chosen"
        assert (rows["reward_left"][2::2] != 0).all()
    (folder,) = run.iterdir()
    said = LogReader(folder).metadata
    assert said["task"]["name"] == "so101-pair-lift"
    assert "seed" in said
    assert said["robot_spec"]["name"] == "so101-pair"


def test_recorded_turns_are_drawn_each_with_its_agent(tmp_path: Path) -> None:
    data = rr.open_source(_recorded(tmp_path / "runs"))
    batch = data.sample_steps(64)
    agent, stride = batch["extra_info"]["agent"], np.array([0.01, 0.02])
    assert set(agent.tolist()) == {0, 1}
    moved = batch["action"]["joint_target"][:, 0] - batch["observation"]["joint_goal"][:, 0]
    np.testing.assert_allclose(moved, stride[agent], atol=1e-6)
    own = data.sample_steps(64, {"n_step": 2})  # as many as agents: what the same one sees next
    whole = own["extra_info"]["steps"] == 2
    goal = {name: table["joint_goal"][whole, 0] for name, table in (("before", own["observation"]),
                                                                    ("after", own["next_observation"]))}  # fmt: skip
    np.testing.assert_allclose(goal["after"] - goal["before"], stride[own["extra_info"]["agent"][whole]], atol=1e-6)
    (trajectory,) = data.sample_trajectories(1)
    assert trajectory["steps_set"]["extra_info"]["agent"].tolist() == [0, 1] * 6
    mapping = trajectory["extra_info"]["agents"]
    assert mapping.keys() == {"left", "right"}
    assert all(set(names.values()) <= set(batch["observation"]) for names in mapping.values())
    with pytest.raises(SourceError, match="a task rewards joint actions"):
        rr.open_source(tmp_path / "runs", task=task("so101-pair-lift"))


def test_a_log_of_turns_is_listed_checked_cut_and_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'demo' is not installed")
    run = _recorded(tmp_path / "runs", steps=40)
    (folder,) = run.iterdir()
    assert main(["data", "ls", str(run)]) == 0
    capsys.readouterr()
    assert main(["data", "show", str(run)]) == 0
    assert "timing: 30 Hz" in capsys.readouterr().out
    kinds = {finding.kind for finding in check_table(load_runs(run))}
    assert kinds <= {"frozen", "clipped"}, "a bar that lies still, joints at their limits; nothing of turns"
    assert main(["data", "cut", str(folder), str(tmp_path / "part"), "--episodes", "1"]) == 0
    assert main(["data", "replay", str(run), "--plot", str(tmp_path / "turns.svg")]) == 0
    assert load_runs(tmp_path / "part").layout.turns
    lines = pick_lines(load_runs(run).layout, load_runs(run).rows)
    assert lines.field.name.startswith("sensor_"), "not what one agent after the other saw"


def test_what_records_joint_actions_is_not_made_into_turns(tmp_path: Path) -> None:
    with (
        rr.make("so101-pair-lift", record=tmp_path) as env,
        pytest.raises(ValueError, match=r"one_at_a_time\(env, record"),
    ):
        one_at_a_time(env)
