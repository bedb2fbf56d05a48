"""A corridor as a world, and projects of each year written out for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from hal import Field, RobotError, Spec
from recorder.frame_layout import FrameLayout
from rlenv_robot.env import Environment
from rlenv_robot.tasks.agents import Agent
from rlenv_robot.world import EnvDescription, TimeStep

LENGTH = 6


class Corridor:
    """Walk along six cells to the last one: move 0 is back, 1 is forth; reward 1 at the end, else -0.01."""

    name = "corridor"
    observation = Spec("corridor_observation", (Field("cell", (), "int32", 0, LENGTH - 1),))
    action = Spec("corridor_action", (Field("move", (), "int32", 0, 1),))
    layout = FrameLayout(observation, action)
    description = EnvDescription(
        "A corridor.",
        Field("reward"),
        {"seed": "changes nothing", "start": "the first cell"},
        extra_info={"steps": "n"},
    )

    def __init__(self) -> None:
        self.cell = self.steps = 0
        self.seeds: list[object] = []
        self.fails = 0
        self.ended_by = ""

    def reset(self, options: Mapping[str, object]) -> TimeStep:
        if self.fails > 0:
            self.fails -= 1
            raise RobotError("the corridor is blocked")
        self.seeds.append(options.get("seed"))
        self.cell, self.steps = int(str(options.get("start", 0))), 0
        return self._timestep(0.0)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        if self.fails > 0:
            self.fails -= 1
            raise RobotError("the corridor fell in")
        self.cell = max(0, self.cell + (1 if action["move"] else -1))
        self.steps += 1
        return self._timestep(1.0 if self.cell == LENGTH - 1 else -0.01)

    def _timestep(self, reward: float) -> TimeStep:
        extra = {"steps": self.steps}
        done, late = self.cell == LENGTH - 1, self.steps >= 40
        return TimeStep({"cell": np.array(self.cell, np.int32)}, reward, done, late and not done, extra)

    def end(self, reason: str) -> dict[str, object]:
        self.ended_by = reason
        return {"success": False}

    def episode_info(self) -> dict[str, object]:
        return {"task": self.name}

    def image(self, options: Mapping[str, object]) -> np.ndarray:
        raise RobotError("no image")

    def stop(self, reason: str) -> None: ...

    def close(self) -> None: ...


class Duel(Corridor):
    """Two walk along corridors of their own, until one is at its end: reward 1 for the winner, -1 for the other."""

    name = "duel"
    observation = Spec("duel_observation", (Field("blue_cell", (), "int32", 0, LENGTH - 1),
                                            Field("red_cell", (), "int32", 0, LENGTH - 1)))  # fmt: skip
    action = Spec("duel_action", (Field("blue_move", (), "int32", 0, 1), Field("red_move", (), "int32", 0, 1)))
    agents = tuple(Agent(name, {"cell": f"{name}_cell"}, {"move": f"{name}_move"}) for name in ("blue", "red"))
    layout = FrameLayout(observation, action, agents=("blue", "red"))

    def reset(self, options: Mapping[str, object]) -> TimeStep:
        self.cells = {"blue": 1, "red": 0}
        return super().reset(options)

    def step(self, action: Mapping[str, np.ndarray], extra_info: Mapping[str, object]) -> TimeStep:
        self.steps += 1
        self.cells = {name: max(0, cell + (1 if action[f"{name}_move"] else -1)) for name, cell in self.cells.items()}
        return self._timestep(0.0)

    def _timestep(self, reward: float) -> TimeStep:
        won = {name for name, cell in self.cells.items() if cell == LENGTH - 1}
        rewards = {name: 0.0 if not won else 1.0 if name in won else -1.0 for name in self.cells}
        shown = {f"{name}_cell": np.array(cell, np.int32) for name, cell in self.cells.items()}
        return TimeStep(shown, rewards, bool(won), self.steps >= 40 and not won, {"steps": self.steps})


@pytest.fixture
def corridor() -> Corridor:
    return Corridor()


@pytest.fixture
def corridor_env(corridor: Corridor) -> Environment:
    return Environment(corridor)


AGENT = """
import json
{imports}

class Agent(BaseAgent):
    def __init__(self, agent_type="player", device=None, logger=None, monitor=None):
        super().__init__(agent_type, device, logger, monitor)
        self.table = [[0.0, 0.0] for _ in range(6)]
        self.turn = 0

    {predict}
    def predict(self, list_obs_data):
        self.turn += 1
        rows = [self.table[data.feature] for data in list_obs_data]
        if self.turn % 2:  # explore, in a fixed order
            return [ActData(act=int(self.turn // 2 % 5 > 1)) for row in rows]
        return [ActData(act=1 if row[1] >= row[0] else 0) for row in rows]

    {learn}
    def learn(self, list_sample_data):
        for sample in list_sample_data:
            old = self.table[int(sample.obs)][int(sample.act)]
            best = max(self.table[int(sample._obs)])
            target = float(sample.rew) + 0.9 * best * (1 - float(sample.done))
            self.table[int(sample.obs)][int(sample.act)] = old + 0.5 * (target - old)
        return {{"loss": 1.0 / (1 + len(list_sample_data))}}

    def observation_process(self, obs, state=None):
        return ObsData(feature=int({cell}))

    {save}
    def save_model(self, path=None, id="1"):
        with open(f"{{path}}/model.ckpt-{{id}}.json", "w") as file:
            json.dump(self.table, file)

    {load}
    def load_model(self, path=None, id="1"):
        with open(f"{{path}}/model.ckpt-{{id}}.json") as file:
            self.table = json.load(file)
"""

DECORATED = """
from kaiwu_agent.agent.base_agent import (
    BaseAgent, learn_wrapper, load_model_wrapper, predict_wrapper, save_model_wrapper,
)
from kaiwu_agent.utils.common_func import create_cls
from agent_q.feature.definition import ActData, ObsData
"""

UNDECORATED = """
from kaiwudrl.interface.agent import BaseAgent
from agent_q.feature.definition import ActData, ObsData
"""

DEFINITION = """
import numpy as np
from kaiwu_agent.utils.common_func import attached, create_cls

ObsData = create_cls("ObsData", feature=None)
ActData = create_cls("ActData", act=None)
SampleData = create_cls("SampleData", obs=None, _obs=None, act=None, rew=None, done=None)

@attached
def sample_process(list_game_data):
    return [SampleData(**frame.__dict__) for frame in list_game_data]

@attached
def SampleData2NumpyData(g_data):
    return np.array([g_data.obs, g_data._obs, g_data.act, g_data.rew, g_data.done], np.float32)

@attached
def NumpyData2SampleData(s_data):
    return SampleData(obs=s_data[0], _obs=s_data[1], act=s_data[2], rew=s_data[3], done=s_data[4])
"""

DEFINITION_2026 = """
from common_python.utils.common_func import create_cls

ObsData = create_cls("ObsData", feature=None)
ActData = create_cls("ActData", act=None)
SampleData = create_cls("SampleData", obs=1, _obs=1, act=1, rew=1, done=1)

def sample_process(list_game_data):
    return [SampleData(**frame.__dict__) for frame in list_game_data]
"""

WORKFLOW = """
import os
from {common} import Frame
from agent_q.feature.definition import sample_process
{more}

def workflow(envs, agents, logger=None, monitor=None, *args, **kwargs):
    env, agent = envs[0], agents[0]
    while True:
        {reset}
        if {failed}:
            continue
        agent.load_model(id="latest")
        obs_data = agent.observation_process(obs)
        collector, done = [], False
        while not done:
            {predict}
            {step}
            if _obs is None:
                break
            _obs_data = agent.observation_process(_obs)
            done = terminated or truncated
            collector.append(Frame(obs=obs_data.feature, _obs=_obs_data.feature, act=act.act, rew=score, done=done))
            obs_data = _obs_data
        if collector:
            monitor.put_data({{os.getpid(): {{"episode_length": len(collector)}}}})
            {learn}
"""

SIX = "frame_no, _obs, score, terminated, truncated, state = env.step(act.act)"
TABLES = """reward, _obs = env.step(act.act)
            if not handle_disaster_recovery(_obs, logger):
                score, terminated, truncated = reward["reward"], _obs["terminated"], _obs["truncated"]"""
YEARS: dict[str, dict[str, str]] = {
    "document": {
        "imports": DECORATED, "cell": 'obs["cell"]', "reset": "obs, state = env.reset(usr_conf={})",
        "predict": "act = agent.predict(list_obs_data=[obs_data])[0]", "step": SIX, "failed": "obs is None",
        "learn": "agent.learn(sample_process(collector))",
    },
    "2024": {
        "imports": DECORATED, "cell": 'obs["cell"]', "reset": "obs = env.reset(usr_conf={})",
        "predict": "act = agent.predict(list_obs_data=[obs_data])[0]", "step": SIX, "failed": "obs is None",
        "learn": "agent.learn(sample_process(collector))",
    },
    "2025": {
        "imports": DECORATED, "cell": 'obs["cell"]', "reset": "obs, state = env.reset(usr_conf={})",
        "predict": "acts, model_version = agent.predict(list_obs_data=[obs_data]); act = acts[0]", "step": SIX,
        "failed": "obs is None", "learn": "agent.learn(sample_process(collector))",
    },
    "2026": {
        "imports": UNDECORATED, "cell": 'obs["observation"]["cell"]', "reset": "obs = env.reset({})",
        "predict": "act = agent.predict([obs_data])[0]", "step": TABLES,
        "failed": "handle_disaster_recovery(obs, logger)",
        "learn": "agent.send_sample_data(sample_process(collector))",
        "more": "from common_python.utils.workflow_disaster_recovery import handle_disaster_recovery",
    },
}  # fmt: skip

CONF = {
    "2024": ("nature_algo_corridor.yaml", "q:\n  actor_model: {agent}\n  train_workflow: {workflow}\n"),
    "2025": ("algo_conf_corridor.toml", '[q]\nactor_model = "{agent}"\ntrain_workflow = "{workflow}"\n'),
    "2026": ("algo_conf_corridor.toml", '[q]\nactor_agent = "{agent}"\ntrain_workflow = "{workflow}"\n'),
}

SETTINGS = """
[app]
replay_buffer_capacity = 64
preload_ratio = 0.25
train_batch_size = 8
dump_model_freq = 2
reverb_sampler = "reverb.selectors.Fifo"
modelpool_max_save_model_count = 3
"""


def write(folder: Path, year: str) -> Path:
    """Write a project of a year that learns to walk the corridor."""
    words = {"more": "", **YEARS[year]}
    decorated = year != "2026"
    marks = {name: f"@{name}_wrapper" if decorated else "" for name in ("learn", "predict")}
    marks |= {name: f"@{name}_model_wrapper" if decorated else "" for name in ("save", "load")}
    common = "kaiwu_agent.utils.common_func" if decorated else "common_python.utils.common_func"
    files = {
        "agent_q/agent.py": AGENT.format(**{**words, **marks}),
        "agent_q/feature/definition.py": DEFINITION if decorated else DEFINITION_2026,
        "agent_q/workflow/train_workflow.py": WORKFLOW.format(**{**words, "common": common}),
        "conf/configure_app.toml": SETTINGS,
    }
    if year in CONF:
        name, text = CONF[year]
        places = {"agent": "agent_q.agent.Agent", "workflow": "agent_q.workflow.train_workflow.workflow"}
        files[f"conf/{name}"] = text.format(**places)
    for name in ("agent_q", "agent_q/feature", "agent_q/workflow", "conf"):
        files[f"{name}/__init__.py"] = ""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    return folder


@pytest.fixture
def write_project(tmp_path: Path) -> Callable[[str], Path]:
    return lambda year: write(tmp_path / f"project_{year}", year)
