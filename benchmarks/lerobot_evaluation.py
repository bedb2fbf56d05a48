"""Record Meta-World by LeRobot's environment and recorder, and judge policies by LeRobot's own evaluation.

It runs with a Python 3.12 that has LeRobot, Meta-World and this project (see benchmarks/README.md):

    PYTHON benchmarks/lerobot_evaluation.py record drawer-open-v3 --out SET
    PYTHON -m rlenv_robot imitate SET --trainer lerobot --method act --out POLICY
    PYTHON benchmarks/lerobot_evaluation.py judge drawer-open-v3 POLICY [POLICY ...]

Meta-World needs MuJoCo 3.3: ``pip install --no-deps --target FOLDER mujoco==3.3.0``, and ``OLD_MUJOCO=FOLDER`` here.

Environment, camera and fields are those of ``lerobot.envs.metaworld``, with images of 96 x 96 in place of 480 x 480,
without shadows, and with at most 200 steps. With ``--blind``, the places of the objects are observed as numbers
(LeRobot's ``observation.environment_state``) in place of the image.

The judge is ``lerobot.scripts.lerobot_eval.eval_policy``, unchanged. A folder of LeRobot is judged with LeRobot's own
classes; any file that `rlenv_robot.load_policy` opens is judged by the same function, asked through an adapter that
renames fields alone. In place of a file, ``held`` lets the hand stay where it is, and ``script`` is Meta-World's own,
the demonstrator without its noise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("EGL_PLATFORM", "surfaceless")
sys.path[:0] = filter(None, [os.environ.get("OLD_MUJOCO")])
warnings.filterwarnings("ignore")

import gymnasium as gym  # noqa: E402
import metaworld  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # noqa: E402
from lerobot.envs import metaworld as lerobot_metaworld  # noqa: E402
from lerobot.policies.act.configuration_act import ACTConfig  # noqa: E402
from lerobot.policies.factory import get_policy_class, make_pre_post_processors  # noqa: E402
from lerobot.policies.pretrained import PreTrainedPolicy  # noqa: E402
from lerobot.processor import PolicyProcessorPipeline  # noqa: E402
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action  # noqa: E402
from lerobot.scripts.lerobot_eval import eval_policy  # noqa: E402

SIZE, LONGEST, AFTER, FIRST_JUDGED = 96, 200, 4, 100_000
"""Height and width of images, most steps of an episode, steps after a success, and seed of the first judged episode."""
PLACES = 35
"""Numbers of an observation of Meta-World besides the hand's position and opening."""
INTERVAL, NOISY, NOISE = 8, 1 / 3, 0.5
"""As in ``metaworld_episodes.py``: noise on the action that is carried out, in a third of the intervals."""


class SmallMetaworld(lerobot_metaworld.MetaworldEnv):
    """LeRobot's environment with small images, which a CPU draws in a few milliseconds, or with numbers alone."""

    def __init__(self, task: str, blind: bool) -> None:
        super().__init__(task, obs_type="pixels_agent_pos", observation_width=SIZE, observation_height=SIZE)
        self._max_episode_steps, self.blind = LONGEST, blind
        if blind:
            places = gym.spaces.Box(-1000.0, 1000.0, (PLACES,), np.float64)
            self.observation_space = gym.spaces.Dict({
                "agent_pos": self.observation_space["agent_pos"], "environment_state": places,
            })  # fmt: skip

    def _format_raw_obs(self, raw_obs: np.ndarray) -> dict[str, Any]:
        if not self.blind:
            return super()._format_raw_obs(raw_obs)
        return {"agent_pos": raw_obs[:4], "environment_state": raw_obs[4:]}

    def _ensure_env(self) -> None:
        if self._env is not None:
            return
        mt1 = metaworld.MT1(self._env_name, seed=42)
        env = mt1.train_classes[self._env_name](
            render_mode="rgb_array", camera_name=self.camera_name, width=SIZE, height=SIZE
        )
        env.model.vis.quality.shadowsize = env.model.vis.quality.offsamples = 0
        env.set_task(mt1.train_tasks[0])
        env.model.cam_pos[2] = [0.75, 0.075, 0.7]
        env.reset()
        env._freeze_rand_vec = False
        env.seeded_rand_vec = True
        self._env = env

    def reset(self, seed: int | None = None, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        answer = super().reset(seed, **kwargs)
        self.full = self._env._get_obs()
        return answer

    def expected(self) -> np.ndarray:
        """Return the action of Meta-World's script, float32 (4,)."""
        return np.clip(self.expert_policy.get_action(self.full), -1, 1).astype(np.float32)

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        answer = super().step(np.clip(action, -1, 1))
        self.full = self._env._get_obs()
        return answer


class Judged(PreTrainedPolicy):
    """A policy of another origin, as LeRobot's evaluation asks for one; nothing in it can be trained."""

    config_class, name = ACTConfig, "file"

    def __init__(self) -> None:
        super().__init__(ACTConfig(device="cpu"))

    def reset(self) -> None:
        """Begin an episode."""

    def get_optim_params(self) -> dict[str, Any]:
        raise NotImplementedError

    def predict_action_chunk(self, batch: dict[str, torch.Tensor], **_: Any) -> torch.Tensor:
        raise NotImplementedError

    def forward(self, batch: dict[str, torch.Tensor], **_: Any) -> Any:
        raise NotImplementedError


class Held(Judged):
    """Actions of 0: the hand stays where it is."""

    def select_action(self, batch: dict[str, torch.Tensor], **_: Any) -> torch.Tensor:
        return torch.zeros(1, 4)


class Script(Judged):
    """Meta-World's script, which reads where the objects are from the simulator."""

    def __init__(self, env: SmallMetaworld) -> None:
        super().__init__()
        self.env = env

    def select_action(self, batch: dict[str, torch.Tensor], **_: Any) -> torch.Tensor:
        return torch.from_numpy(self.env.expected()[None])


class OurFile(Judged):
    """A policy that this project opens."""

    def __init__(self, path: str) -> None:
        import rlenv_robot

        super().__init__()
        self.policy = rlenv_robot.load_policy(path)
        self.images = [field.name for field in self.policy.observation if field.is_image]

    def reset(self) -> None:
        self.policy.reset()

    def select_action(self, batch: dict[str, torch.Tensor], **_: Any) -> torch.Tensor:
        observed = {
            name.removeprefix("observation."): value.numpy() for name, value in batch.items() if "state" in name
        }
        for name in self.images:
            image = (batch["observation.image"] * 255).round().to(torch.uint8)
            observed[name] = image.permute(0, 2, 3, 1).numpy()
        return torch.from_numpy(np.asarray(self.policy.act(observed)["target"], np.float32).copy())


def demonstrate(env: SmallMetaworld, seed: int) -> list[dict[str, np.ndarray]] | None:
    """Return the frames of the script's episode; None if it failed."""
    rng, noise, frames = np.random.default_rng(seed), np.zeros(4), []
    observed, _ = env.reset(seed=seed)
    for step in range(LONGEST):
        if step % INTERVAL == 0:
            noise = (rng.random() < NOISY) * rng.normal(0, NOISE, 4)
        action = env.expected()
        names = {"pixels": "observation.image", "agent_pos": "observation.state"}
        seen = {names.get(name, f"observation.{name}"): value for name, value in observed.items()}
        frames.append({**seen, "action": action})
        observed, _, ended, _, info = env.step((action + noise).astype(np.float32))
        if ended:
            return frames if info["is_success"] else None
    return None


def record(args: argparse.Namespace) -> None:
    """Record episodes of Meta-World's script that succeeded, by LeRobot's own recorder."""
    env = SmallMetaworld(args.task, args.blind)
    vector = {"dtype": "float32", "shape": (4,), "names": ["x", "y", "z", "gripper"]}
    image = {"dtype": "image", "shape": (SIZE, SIZE, 3), "names": ["height", "width", "channels"]}
    places = {"dtype": "float32", "shape": (PLACES,), "names": [f"place_{number}" for number in range(PLACES)]}
    around = {"observation.environment_state": places} if args.blind else {"observation.image": image}
    features = {"observation.state": vector, **around, "action": vector}
    written = LeRobotDataset.create(
        "local/metaworld", 80, features, root=args.out, robot_type="sawyer", use_videos=False
    )
    seed = kept = steps = 0
    while kept < args.episodes:
        frames = demonstrate(env, seed)
        seed += 1
        for frame in frames or ():
            numbers = {name: value.astype(np.float32) for name, value in frame.items() if value.ndim == 1}
            written.add_frame({**frame, **numbers, "task": env.task_description})
        if frames:
            written.save_episode()
            kept, steps = kept + 1, steps + len(frames)
    written.finalize()
    print(f"{args.task}: {kept} of {seed} episodes succeeded, {steps} steps")


def opened(path: str, env: SmallMetaworld) -> tuple[PreTrainedPolicy, PolicyProcessorPipeline, PolicyProcessorPipeline]:
    """Return a policy with LeRobot's processors before and after it; those of our files do nothing."""
    if not Path(path).is_dir():
        converters = {"to_transition": policy_action_to_transition, "to_output": transition_to_policy_action}
        policy = {"held": Held, "script": lambda: Script(env)}.get(path, lambda: OurFile(path))()
        return policy, PolicyProcessorPipeline(steps=[]), PolicyProcessorPipeline(steps=[], **converters)
    model = get_policy_class(json.loads((Path(path) / "config.json").read_text())["type"]).from_pretrained(path)
    return model, *make_pre_post_processors(model.config, pretrained_path=path)


def judge(args: argparse.Namespace) -> None:
    """Print how many episodes of LeRobot's evaluation each policy succeeded in."""
    torch.set_num_threads(1)
    nothing = PolicyProcessorPipeline(steps=[])
    for path in args.policy:
        single = SmallMetaworld(args.task, args.blind)
        env = gym.vector.SyncVectorEnv([lambda single=single: single])
        policy, before, after = opened(path, single)
        began = time.process_time()
        info = eval_policy(
            env, policy, nothing, nothing, before, after, args.episodes, start_seed=FIRST_JUDGED + args.seed
        )
        succeeded = [bool(episode["success"]) for episode in info["per_episode"]]
        low, high = wilson(sum(succeeded), len(succeeded))
        rewards = [round(episode["sum_reward"], 3) for episode in info["per_episode"]]
        print(json.dumps({
            "task": args.task, "policy": path, "succeeded": sum(succeeded), "of": len(succeeded),
            "wilson": [round(low, 2), round(high, 2)], "processor_s": round(time.process_time() - began),
            "each": succeeded, "rewards": rewards,
        }), flush=True)  # fmt: skip


def wilson(count: int, number: int) -> tuple[float, float]:
    """Return the interval of Wilson at 95 %. Our own `wilson` would import our simulation, and so another MuJoCo."""
    z = 1.96
    share, room = count / number, z * z / number
    middle, half = share + room / 2, z * (share * (1 - share) / number + room / (4 * number)) ** 0.5
    return (middle - half) / (1 + room), (middle + half) / (1 + room)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("record")
    verb.set_defaults(run=record)
    verb.add_argument("task")
    verb.add_argument("--episodes", type=int, default=60)
    verb.add_argument("--out", type=Path, required=True)
    verb = verbs.add_parser("judge")
    verb.set_defaults(run=judge)
    verb.add_argument("task")
    verb.add_argument("policy", nargs="+", help="a folder of LeRobot, a file of this project, held or script")
    verb.add_argument("--episodes", type=int, default=25)
    verb.add_argument("--seed", type=int, default=0)
    for verb in verbs.choices.values():
        verb.add_argument("--blind", action="store_true", help="numbers in place of images")
    args = parser.parse_args(arguments)
    args.run(args)


if __name__ == "__main__":
    main()
