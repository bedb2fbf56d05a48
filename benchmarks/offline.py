"""Learning from mixed logs: offline methods against cloning and against the recorded policies.

    pip install 'rlenv-robot[offline,train]' matplotlib, and d3rlpy (docs/trainers.md)
    python benchmarks/offline.py record so101-reach runs/       # trains PPO; a third each: random, half-trained, expert
    python benchmarks/offline.py record so101-pick-place runs/  # likewise: script, script that sees 2 cm beside, random
    python benchmarks/offline.py learn so101-pick-place runs/   # each learner, three seeds: benchmarks/offline.json
    python benchmarks/offline.py learn so101-pick-place runs/ --learners iql bc --seeds 5 --updates 10000
    python benchmarks/offline.py table
    python benchmarks/offline.py plot                           # docs/curves/offline.png

The results of ``learn`` replace those in the file for the same task, learner and seed. Each policy is tried in the same
100 episodes, which no training saw; the last one counts, and no trial chooses it or its settings.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rlenv_robot
from recorder.figures.style import heading, saved, series, sheet
from rlenv_learn.imitation.demonstrations import Disturbance, DisturbedDemonstrator
from rlenv_learn.offline.trainer import train_offline
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.policy import Policy
from rlenv_robot.registry import make_vector
from rlenv_robot.registry import task as task_of
from rlenv_robot.training.rollout import evaluate, run_episode
from rlenv_tabletop.scripted import SCRIPTS

TASKS = {"so101-reach": 33_000, "so101-pick-place": 19_200}
"""Task -> steps of each third of its log."""
RESULTS = Path(__file__).parent / "offline.json"
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "curves"
NOISE = 0.3  # on the action vectors of the recorded policies of so101-reach, as a learner's exploration
CAMERA_ERROR_M = 0.02
TRIALS, EPISODES, SEED = 5, 100, 1_000_000
QUICK: dict[str, Any] = {"rate": 3e-3, "hidden": [128, 128], "noise": 0.02}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", QUICK),
    "bc, best tenth": ("bc", {**QUICK, "best": 0.1}),
    "iql": ("iql", {**QUICK, "n_step": 10, "expectile": 0.8}),
    "awac": ("awac", {**QUICK, "n_step": 10, "lam": 0.33}),
    "td3bc": ("td3bc", {**QUICK, "n_step": 10}),
    "cql": ("cql", {**QUICK, "n_step": 10, "n_action_samples": 4}),
}
"""Name in the table -> method and settings."""


class Noisy:
    """A policy with Gaussian noise on its action vectors."""

    def __init__(self, policy: Any, task: str, seed: int) -> None:
        self.policy, self.flat, self.rng = policy, flat_for(task_of(task)), np.random.default_rng(seed)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with torch.no_grad():
            vector = self.policy.actor(torch.from_numpy(self.flat.observe(observation)[None])).numpy()[0]
        return self.flat.act(vector + NOISE * self.rng.normal(size=vector.shape), observation)


class RandomWalk:
    """Random action vectors, each kept for ten steps on average."""

    def __init__(self, task: str, seed: int, steps: float = 10.0) -> None:
        self.flat, self.rng, self.share = flat_for(task_of(task)), np.random.default_rng(seed), 1 / steps
        self.reset()

    def reset(self) -> None:
        self.vector = np.zeros(self.flat.action_size)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self.rng.random() < self.share:
            self.vector = self.rng.uniform(-1, 1, self.flat.action_size)
        return self.flat.act(self.vector, observation)


class Executed:
    """A disturbed demonstrator, of which the log has the executed actions alone."""

    def __init__(self, demonstrator: DisturbedDemonstrator) -> None:
        self.demonstrator = demonstrator

    def reset(self) -> None:
        self.demonstrator.reset()

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.demonstrator.draw(observation).action


class Misled:
    """The script of a rig whose camera sees the cube beside its place."""

    def __init__(self, task: str) -> None:
        self.script, self.error = SCRIPTS[task](), np.array([CAMERA_ERROR_M, 0, 0], np.float32)

    def act(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.script.act({**observation, "cube_position": observation["cube_position"] + self.error})


def recorded_policies(task: str) -> Iterator[tuple[str, Policy]]:
    """The policies of the three thirds of a log."""
    if task == "so101-reach":
        from train import recipe

        for place, (name, steps) in enumerate({"half": 12_000, "expert": 120_000}.items(), 1):
            yield name, Noisy(recipe("tianshou").train(task, steps, 0)[0], task, place)
        yield "random", RandomWalk(task, 0, 1)
        return
    for place, (name, script) in enumerate({"expert": SCRIPTS[task](), "misled": Misled(task)}.items()):
        yield name, Executed(DisturbedDemonstrator(script, flat_for(task_of(task)), Disturbance(), place))
    yield "random", RandomWalk(task, 2)


def record(task: str, folder: Path) -> None:
    for place, (name, policy) in enumerate(recorded_policies(task)):
        begun, count, outcomes = time.perf_counter(), 0, []
        with rlenv_robot.make(task, record=folder, info={"policy": name, "source": name}) as env:
            while count < TASKS[task]:
                *steps, outcome = run_episode(env, policy, {} if outcomes else {"seed": 1_000 + place})
                count += len(steps)
                outcomes.append(outcome)
        rate, returns = (np.mean([getattr(one, key) for one in outcomes]) for key in ("success", "total"))
        seconds = time.perf_counter() - begun
        print(f"{name}: success {rate:.0%}, return {returns:.1f}; {count:,} steps in {seconds:.0f} s", flush=True)


def learn(task: str, folder: Path, learners: list[str], seeds: list[int], updates: int, trials: int) -> None:
    source = rlenv_robot.open_source(folder)
    for seed in seeds:
        for name in learners:
            method, options = LEARNERS[name]
            begun = time.process_time()
            trained = train_offline(
                method, source, None, task=task, updates=updates, seed=seed, options=options, trials=trials
            )
            points = [{key: getattr(point, key) for key in ("steps", "success", "returns")} for point in trained.points]
            run = {
                "task": task, "learner": name, "seed": seed, "updates": updates, "settings": options,
                "steps": len(source), "cpu_s": round(time.process_time() - begun), "points": points,
            }  # fmt: skip
            keep(run)
            print(f"{task} {name} seed {seed}: {points[-1]}", flush=True)


def ceiling(task: str) -> None:
    """Try the recorded scripts themselves, without disturbance, in the episodes of the trials."""
    with make_vector(task, EPISODES, seed=SEED, autoreset="disabled") as envs:
        for name, script in {"script": SCRIPTS[task](), "misled script": Misled(task)}.items():
            outcomes = evaluate(envs, script, SEED)
            success, returns = (float(np.mean([getattr(one, key) for one in outcomes])) for key in ("success", "total"))
            keep({"task": task, "learner": name, "seed": 0, "updates": 0,
                  "points": [{"steps": 0, "success": success, "returns": returns}]})  # fmt: skip
            print(f"{name}: success {success:.0%}, return {returns:.1f}")


def keep(run: dict[str, Any]) -> None:
    def key(one: dict[str, Any]) -> tuple[str, str, int]:
        return one["task"], one["learner"], one["seed"]

    others = [one for one in kept() if key(one) != key(run)]
    RESULTS.write_text(json.dumps(sorted([*others, run], key=key), indent=1) + "\n")


def kept() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def by_learner(task: str) -> dict[str, list[dict[str, Any]]]:
    """Learner -> what was kept of each seed."""
    runs = [run for run in kept() if run["task"] == task]
    return {name: [run for run in runs if run["learner"] == name] for name in sorted({run["learner"] for run in runs})}


def wilson(hits: float, trials: int) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson 1927)."""
    rate, z2 = hits / trials, 1.96**2
    middle, spread = rate + z2 / (2 * trials), 1.96 * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return (middle - spread) / (1 + z2 / trials), (middle + spread) / (1 + z2 / trials)


def table() -> None:
    for task in TASKS:
        print(
            f"\n{task}\n| learner | seeds | updates | success (95 % interval) | of each seed | return, of each seed |"
        )
        print("|---|---|---|---|---|---|")
        for name, runs in by_learner(task).items():
            ends = [run["points"][-1] for run in runs]
            rates, returns = ([end[key] for end in ends] for key in ("success", "returns"))
            low, high = wilson(EPISODES * sum(rates), EPISODES * len(rates))
            print(
                f"| {name} | {len(runs)} | {runs[0]['updates']:,} | {np.mean(rates):.0%} ({low:.0%} to {high:.0%}) | "
                f"{', '.join(f'{rate:.0%}' for rate in rates)} | {', '.join(f'{value:.1f}' for value in returns)} |"
            )


def plot() -> None:
    """Draw the curves: line: mean of the seeds; band: their range."""
    figure, axes = sheet(2, 2, 9, 6.6)
    for row, task in zip(axes, TASKS, strict=True):
        learners = [(name, runs) for name, runs in by_learner(task).items() if runs[0]["updates"]]
        for axis, key, words in zip(row, ("success", "returns"), ("success, %", "return"), strict=True):
            for index, (name, runs) in enumerate(learners):
                style, factor = series(index), 100 if key == "success" else 1
                steps = [point["steps"] for point in runs[0]["points"]]
                values = factor * np.array([[point[key] for point in run["points"]] for run in runs])
                axis.fill_between(steps, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.15, lw=0)
                axis.plot(steps, values.mean(axis=0), lw=1.6, marker="o", ms=3, label=name, **style)
            axis.set(xlabel="updates", ylabel=words, title=task)
        row[0].legend(fontsize=8, frameon=False)
    heading(figure, "Learning from mixed logs", ["line: mean of the seeds, band: their range; 100 episodes each"])
    saved(figure, IMAGES / "offline.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("record", "learn", "ceiling"):
        one = verbs.add_parser(verb)
        one.add_argument("task", choices=TASKS)
        if verb != "ceiling":
            one.add_argument("folder", type=Path)
        if verb == "learn":
            one.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
            one.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
            one.add_argument("--updates", type=int, default=2_500)
            one.add_argument("--trials", type=int, default=TRIALS)
    for verb in ("table", "plot"):
        verbs.add_parser(verb)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.verb == "record":
        record(given.task, given.folder)
    elif given.verb == "learn":
        learn(given.task, given.folder, given.learners, given.seeds, given.updates, given.trials)
    elif given.verb == "ceiling":
        ceiling(given.task)
    else:
        {"table": table, "plot": plot}[given.verb]()


if __name__ == "__main__":
    main()
