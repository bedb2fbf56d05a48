"""Learn an errand of one cube in language, and sweep the mix of demonstrations and interaction.

    python benchmarks/language.py                    # 3 seeds of PPO and RLOO from 40 demonstrations
    python benchmarks/language.py --sweep            # demonstrations against episodes at one budget

A demonstrator brings the cube to a tray, and half of the time to the wrong one. Its episodes are recorded, read back as
chats, and imitated by a small transformer of random weights with a tokenizer trained on them; then PPO or RLOO improves
it. The share of success is that of 30 held-out seeds, with the most likely tokens. Needs PyTorch and tokenizers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import rlenv_robot as rr
from rlenv_robot.adapters.gem import GemEnv
from rlenv_robot.adapters.text.view import TextRules, to_text
from rlenv_robot.env import Environment
from rlenv_robot.robot_env.skills import SkillWorld
from rlenv_robot.training.chat.learner import ChatLearner, LearnerSettings, Rehearsal, train_tokenizer
from rlenv_robot.training.chat.tokens import render
from rlenv_robot.training.chat.transcripts import Transcript, read_transcripts

HELD_OUT = range(10_000, 10_030)
TRAINING = range(24)
BATCH_SEEDS = 8


def make(record: str | None = None) -> GemEnv:
    env = Environment(SkillWorld(rr.make("so101-errand", errand="fetch", cubes=1).world))
    return GemEnv(to_text(env, TextRules(turns=3), record=record))


def demonstrate(count: int, right: float, seed: int) -> list[Transcript]:
    """Record demonstrations and read them back."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        env = make(folder)
        for number in range(count):
            text, _ = env.reset(seed=5000 + number)
            tray, other = ("left", "right") if "left tray" in text else ("right", "left")
            answers = ("grasp(red)", f"put({tray if rng.random() < right else other})", "release")
            for answer in answers:
                _, _, terminated, truncated, _ = env.step(f"<answer>{answer}</answer>")
                if terminated or truncated:
                    break
        env.close()
        return read_transcripts(rr.open_source(Path(folder)))


def learn(
    demonstrations: list[Transcript], episodes: int, settings: LearnerSettings, world: Rehearsal
) -> dict[str, float]:
    """Fine-tune, improve, and return shares of success on held-out seeds."""
    learner = ChatLearner(train_tokenizer([render(one.messages)[0] for one in demonstrations]), settings)
    begin = time.perf_counter()
    learner.fine_tune(demonstrations)
    shares = {"imitated": share(learner, world)}
    rng = np.random.default_rng(settings.seed)
    for _ in range(episodes // (BATCH_SEEDS * settings.group)):
        seeds = rng.choice(TRAINING, BATCH_SEEDS, replace=False).tolist()
        learner.update(learner.play(world, seeds * settings.group))
    return {**shares, "learned": share(learner, world), "seconds": time.perf_counter() - begin}


def share(learner: ChatLearner, world: Rehearsal) -> float:
    return float(np.mean([bool(one.success) for one in learner.play(world, list(HELD_OUT), greedy=True)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", action="store_true", help="demonstrations against episodes at one budget")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=256)
    args = parser.parse_args()
    world = Rehearsal(make)
    print("method  seed  demonstrations  their share  episodes  imitated  learned  seconds", flush=True)
    mixes = [(8, 288), (40, 256), (104, 192), (296, 0)] if args.sweep else [(40, args.episodes)]
    for method in ("ppo",) if args.sweep else ("ppo", "rloo"):
        for demonstrations, episodes in mixes:
            for seed in range(args.seeds):
                chats = demonstrate(demonstrations, 0.5, seed)
                shown = float(np.mean([bool(one.success) for one in chats]))
                settings = LearnerSettings(method=method, seed=seed)  # type: ignore[arg-type]
                shares = learn(chats, episodes, settings, world)
                print(
                    f"{method:6} {seed:5} {demonstrations:15} {shown:12.2f} {episodes:9} {shares['imitated']:9.2f} "
                    f"{shares['learned']:8.2f} {shares['seconds']:8.0f}",
                    flush=True,
                )
    world.close()


if __name__ == "__main__":
    main()
