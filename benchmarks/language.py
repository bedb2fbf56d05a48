"""Learn an errand of one cube in language, and sweep the mix of demonstrations and interaction.

    python benchmarks/language.py                               # 3 seeds of RLOO from 120 demonstrations
    python benchmarks/language.py --methods ppo --seeds 0       # one of PPO
    python benchmarks/language.py --sweep --plot sweep.png      # demonstrations against episodes at one budget

A demonstrator brings the cube to a tray, and half of the time to the wrong one. Its episodes are recorded, read back as
chats, and imitated by a small transformer of random weights with a tokenizer trained on them; then PPO or RLOO improves
it for a fixed number of episodes.

The rule of comparison: the learner with its most likely tokens, and the demonstrator with its own chance of the right
tray, both play the same 100 held-out seeds once. The learner is ahead where the lower end of its 95 % interval (Wilson
1927) is above the upper end of the demonstrator's. No held-out seed has a part in training, in the choice of a setting
or in the decision when to stop; ``--tune`` plays 50 other seeds for that. Needs PyTorch and tokenizers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

import rlenv_robot as rr
from recorder.figures.style import QUIET, heading, saved, series, sheet
from rlenv_language.chat.learner import CachedEnv, ChatLearner, LearnerSettings, train_tokenizer
from rlenv_language.chat.tokens import render
from rlenv_language.chat.transcripts import Transcript, read_transcripts
from rlenv_language.gem import GemEnv
from rlenv_language.text.view import TextRules, to_text
from rlenv_robot.env import Environment
from rlenv_robot.training.trials import wilson
from rlenv_tabletop.skills import SkillWorld

HELD_OUT = range(10_000, 10_100)
TUNING = range(20_000, 20_050)
TRAINING = range(96)
BATCH_SEEDS = 16
RIGHT = 0.5
DEMONSTRATIONS, EPISODES = 120, 1280
MIXES = ((20, 620), (80, 560), (160, 480), (320, 320), (640, 0))


def make(record: str | None = None) -> GemEnv:
    env = Environment(SkillWorld(rr.make("so101-errand", errand="fetch", cubes=1).world))
    return GemEnv(to_text(env, TextRules(turns=3), record=record))


def demonstrated(text: str, rng: np.random.Generator) -> tuple[str, ...]:
    """Return the demonstrator's answers to a first observation."""
    tray, other = ("left", "right") if "left tray" in text else ("right", "left")
    chosen = tray if rng.random() < RIGHT else other
    return tuple(f"<answer>{answer}</answer>" for answer in ("grasp(red)", f"put({chosen})", "release"))


def demonstrate(count: int, seed: int) -> list[Transcript]:
    """Record demonstrations and read them back."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        env = make(folder)
        for number in range(count):
            text, _ = env.reset(seed=5000 + number)
            for answer in demonstrated(text, rng):
                _, _, terminated, truncated, _ = env.step(answer)
                if terminated or truncated:
                    break
        env.close()
        return read_transcripts(rr.open_source(Path(folder)))


def demonstrator_successes(world: CachedEnv, seeds: Sequence[int], seed: int) -> int:
    """Return on how many seeds the demonstrator succeeds."""
    rng, total = np.random.default_rng([seed, 1]), 0
    for one in seeds:
        answers = demonstrated(world.reset(one), rng)
        for number in range(len(answers)):
            _, _, terminated, truncated, success = world.step(one, answers[: number + 1])
            if terminated or truncated:
                break
        total += success
    return total


def learn(
    demonstrations: list[Transcript],
    episodes: int,
    settings: LearnerSettings,
    world: CachedEnv,
    seeds: Sequence[int],
    progress: bool = False,
) -> tuple[int, int, float]:
    """Fine-tune and improve; return the successes before and after the improvement, and the seconds it all took."""
    learner = ChatLearner(train_tokenizer([render(one.messages)[0] for one in demonstrations]), settings)
    begin = time.perf_counter()
    learner.fine_tune(demonstrations)
    imitated = successes(learner, world, seeds)
    rng = np.random.default_rng(settings.seed)
    for number in range(episodes // (BATCH_SEEDS * settings.group)):
        drawn = rng.choice(TRAINING, BATCH_SEEDS, replace=False).tolist()
        figures = learner.update(learner.play(world, drawn * settings.group))
        if progress:
            print(f"    {number:3} {time.perf_counter() - begin:6.1f} s {figures}", flush=True)
    return imitated, successes(learner, world, seeds), time.perf_counter() - begin


def successes(learner: ChatLearner, world: CachedEnv, seeds: Sequence[int]) -> int:
    return sum(bool(one.success) for one in learner.play(world, list(seeds), greedy=True))


def shown(count: int, total: int) -> str:
    low, high = wilson(count, total)
    return f"{100 * count / total:3.0f} % ({100 * low:2.0f} to {100 * high:3.0f})"


def plot(path: Path, rows: Iterable[tuple[int, int, float]]) -> None:
    """Draw the share of success over the number of demonstrations: the mean, a dot for each seed, and their range."""
    table = list(rows)
    figure, (axes,) = sheet(1, 1, 6, 3.5)
    counts = sorted({demonstrations for demonstrations, _, _ in table})
    shares = [[share for number, _, share in table if number == count] for count in counts]
    line = series(0)
    axes.plot(counts, [np.mean(one) for one in shares], label="mean", **line)
    axes.fill_between(counts, list(map(min, shares)), list(map(max, shares)), color=line["color"], alpha=0.2, lw=0)
    axes.scatter([row[0] for row in table], [row[2] for row in table], color=line["color"], s=16, label="one seed")
    axes.axhline(RIGHT, color=QUIET, linestyle=":", label="demonstrator's choice of tray")
    axes.set(xscale="log", ylim=(0, 1.02), ylabel="success on held-out seeds",
             xlabel=f"demonstrations among {sum(MIXES[0])} episodes; the others are interaction",
             xticks=counts, xticklabels=list(map(str, counts)))  # fmt: skip
    axes.minorticks_off()
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    heading(
        figure, "Demonstrations and interaction", [f"{len({seed for _, seed, _ in table})} seeds, band: all of them"]
    )
    saved(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", action="store_true", help="demonstrations against episodes at one budget")
    parser.add_argument("--plot", type=Path, help="draw the sweep into this file; needs matplotlib")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--methods", default="rloo", help="of the improvement: rloo, ppo, or both with a comma")
    parser.add_argument("--progress", action="store_true", help="print each batch's share of success in training")
    parser.add_argument("--tune", action="store_true", help="play the seeds for tuning instead of the held-out ones")
    args = parser.parse_args()
    torch.set_num_threads(1)
    seeds, world = list(TUNING if args.tune else HELD_OUT), CachedEnv(make)
    mixes = MIXES if args.sweep else ((DEMONSTRATIONS, EPISODES),)
    print("method  seed  demonstrations  episodes    demonstrator      imitated          learned           ahead  s")
    rows = []
    for method in args.methods.split(",")[: 1 if args.sweep else None]:
        for demonstrations, episodes in mixes:
            for seed in map(int, args.seeds.split(",")):
                settings = LearnerSettings(method=method, seed=seed)
                theirs = demonstrator_successes(world, seeds, seed)
                before, after, seconds = learn(
                    demonstrate(demonstrations, seed), episodes, settings, world, seeds, progress=args.progress
                )
                ahead = wilson(after, len(seeds))[0] > wilson(theirs, len(seeds))[1]
                rows.append((demonstrations, seed, after / len(seeds)))
                print(
                    f"{method:6} {seed:5} {demonstrations:15} {episodes:9}   "
                    + "  ".join(shown(count, len(seeds)) for count in (theirs, before, after))
                    + f"  {'yes' if ahead else 'no':5} {seconds:4.0f}",
                    flush=True,
                )
    if args.plot is not None:
        plot(args.plot, rows)
    world.close()


if __name__ == "__main__":
    main()
