"""Learning from a mixed log of 100,000 steps against the best policy in it.

    pip install 'rlenv-robot[train]' matplotlib
    python benchmarks/offline.py record runs/   # trains PPO; records a third each: random, half-trained, expert
    python benchmarks/offline.py learn runs/    # each method with each seed: benchmarks/offline.json
    python benchmarks/offline.py learn runs/ --methods td3bc bc --seeds 5
    python benchmarks/offline.py table
    python benchmarks/offline.py plot           # docs/curves/offline.png

The results of ``learn`` replace those in the file for the same method and seed. The share that is printed is the
learned policy's mean return over the best recorded policy's, each without exploration noise in the same 100 episodes
that no training saw.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from train import IMAGES, recipe

import rlenv_robot
from recorder.figures.style import QUIET, heading, saved, series, sheet
from rlenv_learn.offline_agents import METHODS
from rlenv_robot.adapters.flat import flat_for
from rlenv_robot.policies.policy import Policy
from rlenv_robot.registry import task as task_of
from rlenv_robot.training.rollout import LearningCurve

TASK = "so101-reach"
STEPS = 100_000
RESULTS = Path(__file__).parent / "offline.json"
NOISE = 0.3  # on the recorded policies' action vectors, as a learner's exploration


class Noisy:
    """A policy with Gaussian noise on its action vectors; without a policy, uniform ones."""

    def __init__(self, policy: Any, seed: int) -> None:
        self.policy, self.flat, self.rng = policy, flat_for(task_of(TASK)), np.random.default_rng(seed)

    def act(self, observation: Any) -> dict[str, np.ndarray]:
        if self.policy is None:
            return self.flat.act(self.rng.uniform(-1, 1, self.flat.action_size), observation)
        with torch.no_grad():
            vector = self.policy.actor(torch.from_numpy(self.flat.observe(observation)[None])).numpy()[0]
        return self.flat.act(vector + NOISE * self.rng.normal(size=vector.shape), observation)


def record(folder: Path) -> None:
    ppo = recipe("tianshou")
    half, _ = ppo.train(TASK, 12_000, 0)
    expert, _ = ppo.train(TASK, 120_000, 0)
    best = {}
    for place, (name, policy) in enumerate({"random": None, "half": half, "expert": expert}.items()):
        curve = LearningCurve(TASK, quiet=True)
        best[name] = curve.add(0, policy or Noisy(None, 5)).returns
        curve.close()
        begun = time.perf_counter()
        count = _record_one(folder, name, Noisy(policy, place), 1_000 + place)
        print(f"{name}: return {best[name]:.2f} without noise; {count:,} steps in {time.perf_counter() - begun:.1f} s")
    (folder / "best.json").write_text(json.dumps(best))


def _record_one(folder: Path, name: str, policy: Policy, seed: int) -> int:
    count = 0
    with rlenv_robot.make(TASK, record=folder, info={"policy": name, "source": name}) as env:
        options: dict[str, Any] = {"seed": seed}
        while count < STEPS // 3:
            table, options = env.reset(options), {}
            while not (table["terminated"] or table["truncated"]):
                request = {
                    "env_id": env.env_id,
                    "frame_no": table["frame_no"],
                    "action": policy.act(table["observation"]),
                }
                table, _ = env.step(request)
                count += 1
    return count


def learn(folder: Path, methods: Sequence[str], seeds: int, updates: int) -> None:
    offline, best = recipe("offline"), max(json.loads((folder / "best.json").read_text()).values())
    source = rlenv_robot.open_source(folder)
    for seed in range(seeds):
        for method in methods:
            _, curve = offline.train(source, TASK, method, updates, seed, quiet=True)
            last = curve.points[-1]
            _keep(
                {
                    "method": method,
                    "seed": seed,
                    "updates": updates,
                    "steps": len(source),
                    "best": best,
                    "points": [vars_of(p) for p in curve.points],
                }
            )
            print(
                f"{method} seed {seed}: return {last.returns:.2f}, {last.returns / best:.1%} of the best policy's "
                f"{best:.2f}; success {last.success:.0%}; {last.seconds:.0f} s",
                flush=True,
            )


def _keep(run: dict[str, Any]) -> None:
    def key(one: dict[str, Any]) -> tuple[str, int]:
        return one["method"], one["seed"]

    others = [one for one in _kept() if key(one) != key(run)]
    RESULTS.write_text(json.dumps(sorted([*others, run], key=key), indent=1) + "\n")


def _kept() -> list[dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def of_methods() -> dict[str, list[dict[str, Any]]]:
    """Method -> what was kept of each seed."""
    runs = _kept()
    return {method: [run for run in runs if run["method"] == method] for method in sorted({r["method"] for r in runs})}


def table() -> None:
    print("method   seeds  updates   return, of the best policy's: median (all)   success: median (all)")
    for method, runs in of_methods().items():
        shares = sorted(run["points"][-1]["returns"] / run["best"] for run in runs)
        rates = sorted(run["points"][-1]["success"] for run in runs)
        print(
            f"{method:<8} {len(runs):>5} {runs[0]['updates']:>8,}   {_spread(shares, '.1%')}   {_spread(rates, '.0%')}"
        )


def _spread(values: list[float], form: str) -> str:
    return f"{np.median(values):{form}} ({', '.join(format(value, form) for value in values)})"


def plot() -> None:
    figure, axes = sheet(1, 2, 9, 3.6)
    for index, (method, runs) in enumerate(of_methods().items()):
        for axis, key in zip(axes, ("success", "returns"), strict=True):
            style = series(index)
            rows = []
            for run in runs:
                whole = 1.0 if key == "success" else run["best"]
                x, y = (np.array([point[name] for point in run["points"]]) for name in ("steps", key))
                rows.append((x, 100 * y / whole))
                axis.plot(*rows[-1], color=style["color"], alpha=0.25, lw=0.8)
            shortest = min(len(x) for x, _ in rows)
            middle = np.median([y[:shortest] for _, y in rows], axis=0)
            axis.plot(rows[0][0][:shortest], middle, lw=1.8, label=f"{method} ({len(runs)} seeds)", **style)
    for axis, words in zip(axes, ("success, % of 100 episodes", "return, % of the best policy's"), strict=True):
        axis.set(xlabel="updates", ylabel=words, ylim=(-2, 106))
    axes[1].axhline(95, color=QUIET, lw=0.8, ls=":")
    axes[0].legend(fontsize=8, loc="lower right", frameon=False)
    heading(figure, "so101-reach, offline", ["thin: seeds, thick: medians"])
    saved(figure, IMAGES / "offline.png")


def vars_of(point: Any) -> dict[str, float]:
    return {name: getattr(point, name) for name in ("steps", "seconds", "success", "returns")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("record").add_argument("folder", type=Path)
    learning = verbs.add_parser("learn")
    learning.add_argument("folder", type=Path)
    learning.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    learning.add_argument("--seeds", type=int, default=3)
    learning.add_argument("--updates", type=int, default=6_000)
    for verb in ("table", "plot"):
        verbs.add_parser(verb)
    given = parser.parse_args()
    if given.verb == "record":
        record(given.folder)
    elif given.verb == "learn":
        learn(given.folder, given.methods, given.seeds, given.updates)
    else:
        {"table": table, "plot": plot}[given.verb]()


if __name__ == "__main__":
    main()
