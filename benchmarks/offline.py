"""Learning from mixed logs: offline methods against cloning and against the recorded behaviours.

    pip install 'rlenv-robot[offline,train]' matplotlib, and d3rlpy (docs/trainers.md)
    python benchmarks/offline.py learn so101-pick-place    # each learner, three seeds: benchmarks/offline.json
    python benchmarks/offline.py learn so101-reach --learners iql bc --seeds 0 1 --updates 10000
    python benchmarks/offline.py table
    python benchmarks/offline.py plot                      # docs/curves/offline.png

A log has equally many episodes of each behaviour, and no observation tells which one acts:

- ``so101-pick-place``: the script under disturbances (``expert``); the script that sees the cube 2 cm beside its place
  (``misplaced``), that lets go and lifts the arm in 60 % of intervals of ten steps (``dropping``), that moves at 40 %
  of its speed (``slow``), or that brings the cube to the target of another episode (``elsewhere``), all four disturbed
  likewise; random action vectors, each kept for ten steps (``random``).
- ``so101-reach``: PPO after 76,800 steps (``expert``) and after 11,520 (``half-trained``), with noise of 0.3; random
  action vectors.

Seed N learns from log N, whose draws are its own. The settings were chosen on log 100 and the trials of the learning
curve. Each final policy is tested in the same 100 episodes, which no log and no trial has. The results of ``learn``
replace those in the file for the same task, learner and seed.
"""

from __future__ import annotations

import argparse
import functools
import json
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
from rlenv_learn.policies.network import NetworkPolicy
from rlenv_learn.ppo import improve_by_ppo, ppo_settings
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.registry import make_vector
from rlenv_robot.registry import task as task_of
from rlenv_robot.source import SourceData
from rlenv_robot.training.rollout import evaluate
from rlenv_tabletop.scripted import SCRIPTS

TASKS = {"so101-pick-place": 150, "so101-reach": 300}
"""Task -> episodes of each behaviour in its log."""
RESULTS = Path(__file__).parent / "offline.json"
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "curves"
PPO_STEPS = {"expert": 76_800, "half-trained": 11_520}
NOISE = 0.3  # on the action vectors of PPO, as a learner's exploration
INTERVAL, SLIPS, DISTURBED, DISTURBANCE = 10, 0.6, 0.3, 0.3  # mean length in steps; shares; size of the disturbance
SLIP = np.array([0, -0.8, 0, 0, 0, 1])  # the arm lifts, and the jaw opens
MISPLACED_M, SLOW = 0.02, 0.4
TRIALS, EPISODES, TEST_SEED = 4, 100, 2_000_000
LEARNERS = {"bc": "bc", "bc, best 30 %": "bc", "iql": "iql", "awac": "awac", "td3bc": "td3bc", "cql": "cql"}
"""Name in the table -> method."""
NETWORKS: dict[str, dict[str, Any]] = {
    "so101-pick-place": {"rate": 1e-3, "hidden": [128, 128]},
    "so101-reach": {"rate": 1e-3, "hidden": [64, 64]},
}
"""Task -> settings of every learner."""
_FAR: dict[str, Any] = {"gamma": 0.98, "n_step": 10, "tau": 0.02}
_NEAR: dict[str, Any] = {"gamma": 0.95, "n_step": 3, "tau": 0.02}
_TD3BC: dict[str, Any] = {"layer_norm": True, "update_actor_interval": 1}
_CQL: dict[str, Any] = {"layer_norm": True, "n_action_samples": 4}
CHOSEN: dict[str, dict[str, dict[str, Any]]] = {
    "so101-pick-place": {
        "bc, best 30 %": {"best": 0.3},
        "iql": _FAR,
        "awac": {"gamma": 0.99, "n_step": 40, "tau": 0.02, "lam": 0.33},
        "td3bc": {**_FAR, **_TD3BC},
        "cql": {**_FAR, **_CQL, "conservative_weight": 0.3},
    },
    "so101-reach": {
        "bc, best 30 %": {"best": 0.3},
        "iql": _NEAR,
        "awac": {**_NEAR, "lam": 0.33},
        "td3bc": {**_NEAR, **_TD3BC},
        "cql": {**_NEAR, **_CQL},
    },
}
"""Task -> learner -> further settings: of those tried on log 100 (docs/training-results.md) the best by return."""


def settings_of(task: str, learner: str) -> dict[str, Any]:
    return NETWORKS[task] | CHOSEN[task].get(learner, {})


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


def random_vectors(size: int, count: int, rng: np.random.Generator, steps: int) -> Chooser:
    walk = Intervals(lambda n: rng.uniform(-1, 1, (n, size)), count, rng, steps)
    return lambda observation, step: walk.next()


def pick_place_behaviours(task: str, count: int, rng: np.random.Generator) -> dict[str, Chooser]:
    """Return name -> behaviour, each for a batch of ``count`` episodes."""
    flat, script = flat_for(task_of(task)), SCRIPTS[task]()
    size = flat.action_size

    def draw_disturbances(n: int) -> np.ndarray:
        sizes = DISTURBANCE * rng.random((n, 1)) * (rng.random((n, 1)) < DISTURBED)
        return np.asarray(sizes * rng.normal(size=(n, size)))

    disturbances = Intervals(draw_disturbances, count, rng, INTERVAL)
    slips = Intervals(lambda n: (rng.random((n, 1)) < SLIPS).astype(float), count, rng, INTERVAL)
    angle = rng.uniform(0, 2 * np.pi, count)
    beside = MISPLACED_M * np.stack([np.cos(angle), np.sin(angle), np.zeros(count)], axis=-1).astype(np.float32)

    def scripted(observation: Mapping[str, np.ndarray], speed: float = 1.0, **believed: np.ndarray) -> np.ndarray:
        action = script.act({**observation, **believed})
        return np.asarray(speed * flat.vector_of(action, observation) + disturbances.next())

    def dropping(observation: Mapping[str, np.ndarray], step: int) -> np.ndarray:
        slipping = SLIP + 0.2 * rng.normal(size=(count, size))
        return np.asarray(np.where(slips.next() > 0, slipping, scripted(observation)))

    return {
        "expert": lambda seen, step: scripted(seen),
        "misplaced": lambda seen, step: scripted(seen, cube_position=seen["cube_position"] + beside),
        "dropping": dropping,
        "slow": lambda seen, step: scripted(seen, SLOW),
        "elsewhere": lambda seen, step: scripted(seen, target_position=np.roll(seen["target_position"], 1, axis=0)),
        "random": random_vectors(size, count, rng, INTERVAL),
    }


@functools.cache
def trained_by_ppo(task: str) -> dict[str, NetworkPolicy]:
    settings, policies = ppo_settings(task_of(task)), dict[str, NetworkPolicy]()
    with make_vector(task, settings.num_envs, seed=0) as envs:
        for steps, policy, _ in improve_by_ppo(envs, settings, max(PPO_STEPS.values()), 0):
            policies |= {name: policy for name, asked in PPO_STEPS.items() if asked == steps}
    return policies


def reach_behaviours(task: str, count: int, rng: np.random.Generator) -> dict[str, Chooser]:
    """Return name -> behaviour, each for a batch of ``count`` episodes."""

    def noisy(policy: NetworkPolicy) -> Chooser:
        def choose(observation: Mapping[str, np.ndarray], step: int) -> np.ndarray:
            vector = policy.action_vector(observation)
            return np.asarray(vector + NOISE * rng.normal(size=vector.shape))

        return choose

    size = flat_for(task_of(task)).action_size
    return {name: noisy(policy) for name, policy in trained_by_ppo(task).items()} | {
        "random": random_vectors(size, count, rng, 1)
    }


def mixed_log(task: str, seed: int) -> tuple[SourceData, dict[str, dict[str, float]]]:
    """Return a mixed log, in memory, and for each behaviour the mean success and return of its episodes."""
    count, rng, target = TASKS[task], np.random.default_rng(seed), task_of(task)
    layout = FrameLayout(target.observation, target.action)
    spool, infos, results = EpisodeSpool(layout), list[dict[str, Any]](), dict[str, dict[str, float]]()
    behaviours = pick_place_behaviours if task in SCRIPTS else reach_behaviours
    for place, (name, choose) in enumerate(behaviours(task, count, rng).items()):
        outcomes = []
        for rows, success in episodes_of(task, layout, choose, 10_000 * (seed + 1) + place):
            rows["episode"] = len(infos)
            spool.add(rows)
            infos.append({"source": name})
            outcomes.append((success, rows["reward"][1:].sum()))
        success, returns = np.mean(outcomes, axis=0).tolist()
        results[name] = {"success": success, "returns": returns}
        print(f"log {seed}, {name}: success {success:.0%}, return {returns:.1f}", flush=True)
    return SourceData(spool.table(infos, f"a mixed log of {task}", [])), results


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
    with make_vector(task, EPISODES, seed=TEST_SEED, autoreset="disabled") as test:
        for seed in seeds:
            source, behaviours = mixed_log(task, seed)
            for name, figures in behaviours.items():
                keep({"task": task, "learner": f"{LOGGED}{name}", "seed": seed, "updates": 0, "test": figures})
            for name in learners:
                method, options = LEARNERS[name], settings_of(task, name)
                begun = time.process_time()
                trained = train_offline(
                    method, source, None, task=task, updates=updates, seed=seed, options=options, trials=trials
                )
                spent = time.process_time() - begun
                outcomes = evaluate(test, trained.policy, TEST_SEED)
                figures = {
                    "success": float(np.mean([one.success for one in outcomes])),
                    "returns": float(np.mean([one.total for one in outcomes])),
                }
                points = [{key: getattr(one, key) for key in ("steps", "success", "returns")} for one in trained.points]
                keep({
                    "task": task, "learner": name, "seed": seed, "updates": updates, "settings": options,
                    "steps": len(source), "cpu_s": round(spent), "points": points, "test": figures,
                })  # fmt: skip
                print(f"{task} {name} seed {seed}: {figures}, {spent:.0f} s of processor time", flush=True)


LOGGED = "log: "
"""Before the names of behaviours in the results."""


def keep(run: dict[str, Any]) -> None:
    def key(one: dict[str, Any]) -> tuple[str, str, int]:
        return one["task"], one["learner"], one["seed"]

    others = [one for one in kept() if key(one) != key(run)]
    RESULTS.write_text(json.dumps(sorted([*others, run], key=key), indent=1) + "\n")


def kept() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def by_learner(task: str) -> dict[str, list[dict[str, Any]]]:
    """Behaviour or learner -> what was kept of each seed."""
    runs = [run for run in kept() if run["task"] == task]
    names = [*dict.fromkeys(run["learner"] for run in runs if run["learner"].startswith(LOGGED)), *LEARNERS]
    found = {name: [run for run in runs if run["learner"] == name] for name in names}
    return {name: runs for name, runs in found.items() if runs}


def table() -> None:
    for task in TASKS:
        print(f"\n{task}\n| policy | updates | success, median (all) | return, median (all) |\n|---|---|---|---|")
        for name, runs in by_learner(task).items():
            rates, returns = ([run["test"][key] for run in runs] for key in ("success", "returns"))
            updates = f"{runs[0]['updates']:,}" if runs[0]["updates"] else ""
            print(
                f"| {name} | {updates} | {np.median(rates):.0%} ({', '.join(f'{100 * one:.0f}' for one in rates)}) | "
                f"{np.median(returns):.1f} ({', '.join(f'{one:.1f}' for one in returns)}) |"
            )


def plot() -> None:
    """Draw the curves: line: median of the seeds; band: their range; dashed: mean of all episodes of the logs."""
    tasks = [task for task in TASKS if by_learner(task)]
    figure, axes = sheet(len(tasks), 2, 9, 3.3 * len(tasks))
    for row, task in zip(np.reshape(axes, (len(tasks), 2)), tasks, strict=True):
        runs_of = by_learner(task)
        recorded = [run["test"] for name, runs in runs_of.items() if name.startswith(LOGGED) for run in runs]
        learners = [(name, runs) for name, runs in runs_of.items() if not name.startswith(LOGGED)]
        for axis, key, words in zip(row, ("success", "returns"), ("success, %", "return"), strict=True):
            factor = 100 if key == "success" else 1
            mean = factor * float(np.mean([one[key] for one in recorded]))
            axis.axhline(mean, color="0.5", lw=1, ls="--", label="the log")
            for index, (name, runs) in enumerate(learners):
                style = series(index)
                steps = [point["steps"] for point in runs[0]["points"]]
                values = factor * np.array([[point[key] for point in run["points"]] for run in runs])
                axis.fill_between(steps, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.15, lw=0)
                axis.plot(steps, np.median(values, axis=0), lw=1.6, marker="o", ms=3, label=name, **style)
            axis.set(xlabel="updates", ylabel=words, title=task)
    lines = dict[str, Any]()
    for axis in np.ravel(axes):
        handles, labels = axis.get_legend_handles_labels()
        lines |= dict(zip(labels, handles, strict=True))
    legend = {"loc": "outside lower center", "ncols": len(lines), "fontsize": 8, "frameon": False}
    figure.legend(list(lines.values()), list(lines), **legend)
    heading(figure, "Learning from mixed logs", ["median and range of three seeds, 100 trial episodes each"])
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
