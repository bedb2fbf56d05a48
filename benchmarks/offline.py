"""Learning from mixed logs: offline methods against cloning and against the recorded policies.

    pip install 'rlenv-robot[offline,train]' matplotlib, and d3rlpy (docs/trainers.md)
    python benchmarks/offline.py learn so101-pick-place    # each learner, three seeds: benchmarks/offline.json
    python benchmarks/offline.py learn so101-reach --learners iql bc --seeds 0 1 --updates 10000
    python benchmarks/offline.py table
    python benchmarks/offline.py plot                      # docs/curves/offline.png

A log has a third each of an expert's episodes, of a weak policy's and of random actions:

- ``so101-pick-place``: the script under disturbances; the script that in 60 % of the intervals of ten steps lets go and
  lifts the arm; random action vectors, each kept for ten steps.
- ``so101-reach``: PPO after 120,000 and after 12,000 steps, with noise of 0.3; random action vectors.

The results of ``learn`` replace those in the file for the same task, learner and seed. Each policy is tried in the same
100 episodes, which no training saw; the last one counts, and no trial chooses it or its settings.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recorder.figures.style import heading, saved, series, sheet
from recorder.formats.runs import EpisodeSpool, rows_of
from recorder.frame_layout import FrameLayout
from rlenv_learn.offline.trainer import train_offline
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.registry import make_vector
from rlenv_robot.registry import task as task_of
from rlenv_robot.source import SourceData
from rlenv_tabletop.scripted import SCRIPTS

TASKS = {"so101-pick-place": 80, "so101-reach": 550}
"""Task -> episodes of each third of its log."""
RESULTS = Path(__file__).parent / "offline.json"
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "curves"
NOISE = 0.3  # on the action vectors of the recorded policies of so101-reach, as a learner's exploration
INTERVAL, SLIPS, DISTURBED, DISTURBANCE = 10, 0.6, 0.3, 0.3  # mean length in steps; shares; size of the disturbance
SLIP = np.array([0, -0.8, 0, 0, 0, 1])  # the arm lifts, and the jaw opens
TRIALS, EPISODES = 5, 100
QUICK: dict[str, Any] = {"rate": 1e-3, "hidden": [128, 128]}
LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bc": ("bc", QUICK),
    "bc, best tenth": ("bc", {**QUICK, "best": 0.1}),
    "iql": ("iql", {**QUICK, "n_step": 10, "expectile": 0.8}),
    "awac": ("awac", {**QUICK, "n_step": 10, "lam": 0.33}),
    "td3bc": ("td3bc", {**QUICK, "n_step": 10}),
    "cql": ("cql", {**QUICK, "n_step": 10, "n_action_samples": 4}),
}
"""Name in the table -> method and settings."""


Chooser = Callable[[Mapping[str, np.ndarray], int], np.ndarray]
"""From observations of a batch and the number of the step to action vectors (B, A)."""


class Intervals:
    """Random vectors, each kept for some steps.

    Args:
        draw: makes vectors (count, A).
        steps: mean number of steps.
    """

    def __init__(self, draw: Callable[[int], np.ndarray], count: int, rng: np.random.Generator, steps: int) -> None:
        self.draw, self.rng, self.share, self.vectors = draw, rng, 1 / steps, draw(count)

    def next(self) -> np.ndarray:
        new = np.flatnonzero(self.rng.random(len(self.vectors)) < self.share)
        self.vectors[new] = self.draw(len(new))
        return self.vectors


def choosers(task: str, count: int, rng: np.random.Generator) -> dict[str, Chooser]:
    """Return the policies of the three thirds of a log, each for a batch of ``count`` episodes."""
    flat = flat_for(task_of(task))
    size = flat.action_size
    walk = Intervals(lambda n: rng.uniform(-1, 1, (n, size)), count, rng, INTERVAL if task in SCRIPTS else 1)
    if task not in SCRIPTS:
        from train import recipe

        def noisy(policy: Any) -> Chooser:
            def choose(observation: Mapping[str, np.ndarray], step: int) -> np.ndarray:
                with torch.no_grad():
                    vector = policy.actor(torch.from_numpy(flat.observe(observation))).numpy()
                return np.asarray(vector + NOISE * rng.normal(size=vector.shape))

            return choose

        trained = {name: recipe("tianshou").train(task, steps, 0)[0] for name, steps in PPO_STEPS.items()}
        return {name: noisy(policy) for name, policy in trained.items()} | {"random": lambda seen, step: walk.next()}

    def disturbances(n: int) -> np.ndarray:
        sizes = DISTURBANCE * rng.random((n, 1)) * (rng.random((n, 1)) < DISTURBED)
        return np.asarray(sizes * rng.normal(size=(n, size)))

    script, offsets = SCRIPTS[task](), Intervals(disturbances, count, rng, INTERVAL)
    slips = Intervals(lambda n: (rng.random((n, 1)) < SLIPS).astype(float), count, rng, INTERVAL)

    def expert(observation: Mapping[str, np.ndarray], step: int) -> np.ndarray:
        return np.asarray(flat.vector_of(script.act(observation), observation) + offsets.next())

    def weak(observation: Mapping[str, np.ndarray], step: int) -> np.ndarray:
        slipping = SLIP + 0.2 * rng.normal(size=(count, size))
        return np.asarray(np.where(slips.next() > 0, slipping, expert(observation, step)))

    return {"expert": expert, "weak": weak, "random": lambda seen, step: walk.next()}


PPO_STEPS = {"expert": 120_000, "weak": 12_000}


def mixed_log(task: str) -> SourceData:
    """Return a mixed log, in memory, and print the success rate and the mean return of its thirds."""
    count, rng, target = TASKS[task], np.random.default_rng(0), task_of(task)
    layout = FrameLayout(target.observation, target.action)
    spool, infos = EpisodeSpool(layout), list[dict[str, Any]]()
    for place, (name, choose) in enumerate(choosers(task, count, rng).items()):
        outcomes = []
        for rows, success in episodes_of(task, layout, choose, 1_000 + place):
            rows["episode"] = len(infos)
            spool.add(rows)
            infos.append({"source": name})
            outcomes.append((success, rows["reward"][1:].sum()))
        success, returns = np.mean(outcomes, axis=0)
        print(f"{name}: success {success:.0%}, return {returns:.1f}", flush=True)
    return SourceData(spool.table(infos, f"a mixed log of {task}", []))


def episodes_of(task: str, layout: FrameLayout, choose: Chooser, seed: int) -> list[tuple[np.ndarray, bool]]:
    """Run a batch of episodes; return the frame rows of each, and whether it succeeded."""
    flat, count = flat_for(task_of(task)), TASKS[task]
    seen, acted, rewards = list[Any](), list[Any](), list[Any]()
    stops, success, ended = np.zeros(count, int), np.zeros(count, bool), np.zeros(count, bool)
    with make_vector(task, count, seed=seed, autoreset="disabled") as envs:
        table = envs.reset({"seed": seed})
        while not stops.all():
            seen.append({name: np.array(value) for name, value in table["observation"].items()})
            acted.append(flat.act(choose(seen[-1], len(seen)), seen[-1]))
            table, reward = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": acted[-1]})
            rewards.append(np.array(reward["reward"]))
            final = table["extra_info"].get("final")
            if final is not None:
                at = np.asarray(final["index"])
                fresh = stops[at] == 0
                stops[at[fresh]], success[at[fresh]] = len(seen), np.asarray(final["success"])[fresh]
                ended[at[fresh]] = np.asarray(table["terminated"], bool)[at[fresh]]
        seen.append({name: np.array(value) for name, value in table["observation"].items()})
    found = []
    for env, stop in enumerate(stops.tolist()):
        rows = rows_of(
            layout, env,
            {name: np.stack([seen[step][name][env] for step in range(stop + 1)]) for name in seen[0]},
            {name: np.stack([acted[step][name][env] for step in range(stop)]) for name in acted[0]},
            np.array([rewards[step][env] for step in range(stop)]), (bool(ended[env]), not ended[env]),
            np.arange(stop + 1) * 33_333_333,
        )  # fmt: skip
        found.append((rows, bool(success[env])))
    return found


def learn(task: str, learners: list[str], seeds: list[int], updates: int, trials: int) -> None:
    source = mixed_log(task)
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
    tasks = [task for task in TASKS if by_learner(task)]
    figure, axes = sheet(len(tasks), 2, 9, 3.3 * len(tasks))
    for row, task in zip(np.reshape(axes, (len(tasks), 2)), tasks, strict=True):
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
    learning = verbs.add_parser("learn")
    learning.add_argument("task", choices=TASKS)
    learning.add_argument("--learners", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    learning.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    learning.add_argument("--updates", type=int, default=5_000)
    learning.add_argument("--trials", type=int, default=TRIALS)
    for verb in ("table", "plot"):
        verbs.add_parser(verb)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.verb == "learn":
        learn(given.task, given.learners, given.seeds, given.updates, given.trials)
    else:
        {"table": table, "plot": plot}[given.verb]()


if __name__ == "__main__":
    main()
