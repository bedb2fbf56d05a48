"""More than a hundred wrong calls of the Python names: each error says what is wrong, and what is allowed or to do.

They are those that users of Gymnasium, LeRobot, Tianshou and ROS would make. A refused action is no exception: `step`
answers with ``extra_info["error"]``, whose message is judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlenv_robot as rr

pytestmark = pytest.mark.plugin("bridges", "kit", "language", "learn", "policy_servers", "tabletop", "vision")

CALLS = """
rr.make("SO101-reach") | did you mean 'so101-reach'
rr.make("so101_reach") | did you mean 'so101-reach'
rr.make("CartPole-v1") | Known are frozen-lake
rr.make("so101-reach-v0") | did you mean 'so101-reach'
rr.make(7) | Allowed are a name
rr.make("so101-reach", render_mode="human") | to_gymnasium(env, render_mode=...)
rr.make("so101-reach", max_episode_steps=100) | the setting steps
rr.make("so101-reach", num_envs=4) | make_vector(name, num_envs)
rr.make("so101-reach", seed=0) | reset({'seed': 7})
rr.make("so101-reach", robot="real") | allowed are 'sim', 'twin', an address
rr.make("so101-reach", robot="/dev/ttyACM0") | a serial port stands in a profile
rr.make("so101-reach", robot="10.0.0.7:5555") | as 'tcp://10.0.0.7:5555'
rr.make("so101-reach", robot=5555) | robot is 5555 (int), allowed are 'sim'
rr.make("so101-reach", robot="tcp://10.0.0.7:5555") | rlenv-robot robot keys new
rr.make("so101-reach", steps="many") | allowed is a number such as its default
rr.make("so101-reach", steps=None) | allowed is a number such as its default
rr.make("so101-reach", tolerance_m="1cm") | tolerance_m is '1cm' (str), allowed is a number
rr.make("so101-reach", info="run 1") | allowed is a mapping
rr.make("so101-reach", timing=0.02) | a mapping such as {'command_delay'
rr.make("so101-reach", randomise=True) | a mapping such as {'mass'
rr.make("so101-reach", judge="me") | hal.Terminal()
rr.make("so101-reach", operator="keyboard") | teleop.keyboard.Keyboard
rr.make("so101-reach", behaviour="gauss") | a hal.Spec
rr.make("free", robot="so101") | rlenv-robot serve my_arm.toml
rr.make("so101-reach", steps=0) | a whole number of at least 1
rr.make("so101-reach", steps=2.5) | a whole number of at least 1
rr.make("so101-reach", tolerance=0.1) | did you mean 'tolerance_m'
rr.make("so101-reach", profile="missing.toml") | load_profile('robot.toml')
rr.make("so101-reach", profile={"task": {}}) | load_profile('robot.toml')
rr.make("so101-reach", record=True) | allowed is a folder
rr.make("so101-reach", mode="train") | 'training' and 'inference'
rr.load_profile("missing.toml") | launch/ holds profiles
rr.load_profile("unknown.toml") | did you mean 'robot'
rr.load_profile("broken.toml") | at line 1
rr.load_profile({"robot": {}}) | the path of a profile
env.reset(seed=0) | reset({'seed': 0})
env.reset(0) | a mapping of options
env.reset({"sed": 0}) | allowed are clear_stop, goal, seed
env.reset({"seed": "abc"}) | a whole number of at least 0
env.reset({"seed": -1}) | a whole number of at least 0
env.reset({"goal": [1, 2]}) | name to value of target_position
env.step(np.zeros(6)) | expected a mapping with env_id, frame_no, action
env.step([0, 0, 0, 0, 0, 0]) | expected a mapping with env_id, frame_no, action
env.step({"joint_target": np.zeros(6)}) | allowed are env_id, frame_no, action
env.step(None) | expected a mapping with env_id, frame_no, action
env.step(action(env, np.array(["left"] * 6))) | expected float32
env.step(action(env, np.zeros(5, np.float32))) | expected (6,)
env.step(action(env, np.full(6, np.nan, np.float32))) | expected a finite number
env.step(action(env, np.full(6, 99, np.float32))) | allowed
env.step({**action(env, np.zeros(6, np.float32)), "frame_no": 7}) | frame_no
env.step({**action(env, np.zeros(6, np.float32)), "env_id": "mine"}) | env_id
fresh.step(action(fresh, np.zeros(6, np.float32))) | call reset first
closed.reset({}) | make a new environment
env.action_space | env.action
env.observation_space | env.observation
env.unwrapped | env.world
env.spec | env.observation and env.action
env.seed(0) | env.reset({"seed": 7})
env.num_envs | make_vector(name, num_envs)
env.get_observation() | reset and step return the observation
env.send_action({}) | step({'env_id'
env.connect() | make connects to a robot
env.render("human") | a mapping of options
env.render(mode="human") | render({'mode': 'human'})
env.render({"mode": "rgb_array"}) | allowed are window, file
env.render({"mod": "window"}) | allowed are camera
gym.step(np.zeros(5, np.float32)) | expected (6,)
gym.step("left") | expected float32
gym.step(np.full(6, np.nan, np.float32)) | expected a finite number
gym.step(None) | expected float32
gym.reset(options={"sed": 1}) | allowed are clear_stop
gym.reset(seed="abc") | must be a python integer
rr.to_gymnasium("so101-reach") | expected an Environment (make)
rr.to_gymnasium(gym) | expected an Environment (make)
rr.to_gymnasium(env, flat=7) | flat_for(task)
rr.to_gymnasium(env, render_mode="ansi") | 'rgb_array'
rr.to_gymnasium_vector(env) | make_vector
rr.make_vector("so101-reach", 0) | allowed are 1 or more
rr.make_vector("so101-reach", "4") | '4' simulations on 0 threads: allowed are 1 or more
rr.make_vector("so101-reach", 2, device="cuda:9") | allowed are 'cpu'
rr.make_vector("so101-reach", 2, device=0) | 'cpu', or such as 'warp:cuda:0'
rr.make_vector("so101-reach", 2, threads="two") | 0 for one per processor
rr.make_vector("so101-reach", 2, cameras="wrist") | ['wrist']
rr.make_vector("so101-reach", 2, image_size=84) | (320, 240)
rr.make_vector("so101-reach", 2, record="runs") | make(name, record=...)
rr.make_vector("so101-reach", 2, robot="tcp://127.0.0.1:5555") | make(name, robot)
rr.open_source("missing") | does not exist
rr.open_source("empty") | looked for log.mcap
rr.open_source("notes.txt") | give the folder
rr.open_source(7) | a folder such as 'runs'
rr.open_source("runs", episodes="0") | such as [0, 1]
rr.open_source("runs", episodes=1) | such as [0, 1]
rr.open_source("lerobot/pusht") | 'hf://datasets/lerobot/pusht'
rr.open_source("runs", format="lerobot") | is recognised by its files: leave it out
rr.open_source("runs", task="so101-reech") | did you mean 'so101-reach'
data.sample(32) | sample_steps(batch_size)
data.sample_steps(0) | a whole number from 1
data.sample_steps(8, {"priority": "retrun"}) | one of return, reward
data.sample_steps(8, {"prioritise": "return"}) | allowed are priority
data.sample_trajectories(2, {"min_return": "high"}) | a finite number
data.sample_trajectories(2, {"min_return": 1e9}) | the highest return among them
data.episode(99) | has 0 to 1
data.episode("0") | a whole number
data.steps_at([99999]) | whole numbers from 0 to
data.split(2.0) | between 0 and 1
rr.robot(3) | a name such as 'so101'
rr.register_task(3, object) | 'my-arm-wipe'
rr.robot("so100") | did you mean 'so101'
rr.robot("so101", "/dev/ttyUSB0") | a serial port stands in a profile
rr.robot("so101", "tcp://127.0.0.1") | tcp://127.0.0.1:5555
rr.table(observation=np.zeros(3), action=np.zeros(3), episode=np.zeros(3)) | a mapping from names to arrays
rr.load_policy("missing.npz") | rlenv-robot train
rr.load_policy("notes.txt") | ends in .mjlab
rr.load_policy("http://x/p.onnx") | download the policy
rr.flat_for("so101-reach") | rlenv_robot.task('so101-reach')
rr.check_robot("so101") | a function that makes one
rr.from_gymnasium("CartPole-v1") | gymnasium.make('CartPole-v1')
rr.makee("so101-reach") | did you mean 'make'
"""
WRONG = [line.split(" | ") for line in CALLS.strip().splitlines()]


def action(env: rr.Environment, values: np.ndarray) -> dict[str, Any]:
    return {"env_id": env.env_id, "frame_no": 0, "action": {"joint_target": values}}


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("x")
    (folder / "broken.toml").write_text("[task\n")
    (folder / "unknown.toml").write_text("[robt]\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with rr.make("so101-reach", steps=2, record="runs") as recorded:
            for seed in range(2):
                obs = recorded.reset({"seed": seed})
                while not (obs["terminated"] or obs["truncated"]):
                    request = action(recorded, obs["observation"]["joint_position"])
                    obs, _ = recorded.step({**request, "frame_no": obs["frame_no"]})
        closed = rr.make("so101-reach")
        closed.close()
        data = rr.open_source("runs")
        env, fresh, gym = rr.make("so101-reach"), rr.make("so101-reach"), rr.to_gymnasium(rr.make("so101-reach"))
        gym.reset(seed=0)
        yield {**globals(), "closed": closed, "data": data, "env": env, "fresh": fresh, "gym": gym}
        for one in (env, fresh, gym):
            one.close()


def test_there_are_more_than_a_hundred() -> None:
    assert len({call for call, _ in WRONG}) == len(WRONG) > 100


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[call for call, _ in WRONG])
def test_the_error_says_what_to_do(names: dict[str, Any], call: str, words: str) -> None:
    if not call.startswith("env.step"):
        with pytest.raises(Exception, match=re.escape(words)):
            eval(call, names)
        return
    names["env"].reset({"seed": 0})
    assert words in eval(call, names)[0]["extra_info"]["error"]["message"]
