"""Learning from a mixed log of 100,000 steps against the best policy in it.

    pip install 'rlenv-robot[train]'
    python benchmarks/offline.py record runs/   # trains PPO; records a third each: random, half-trained, expert
    python benchmarks/offline.py learn runs/    # TD3+BC, BCQ, CQL, cloning of the best tenth: benchmarks/offline.json

The share that is told is the learned policy's mean return over the best recorded policy's, each without exploration
noise in the same 100 episodes that no training saw.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from train import recipe

import rlenv_robot
from rlenv_robot.catalogue import task as task_of
from rlenv_robot.interop.flat import flat_for
from rlenv_robot.learning.curve import Curve
from rlenv_robot.policy import Policy

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
        curve = Curve(TASK, quiet=True)
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


def learn(folder: Path, seeds: int, updates: int) -> None:
    offline, best = recipe("offline"), max(json.loads((folder / "best.json").read_text()).values())
    source, found = rlenv_robot.open_source(folder), []
    for method in offline.METHODS:
        for seed in range(seeds):
            _, curve = offline.train(source, TASK, method, updates, seed, quiet=True)
            last = curve.points[-1]
            found.append({"method": method, "seed": seed, "best": best, "points": [vars_of(p) for p in curve.points]})
            print(
                f"{method} seed {seed}: return {last.returns:.2f}, {last.returns / best:.1%} of the best policy's "
                f"{best:.2f}; success {last.success:.0%}; {last.seconds:.0f} s",
                flush=True,
            )
            RESULTS.write_text(json.dumps({"steps": len(source), "updates": updates, "runs": found}, indent=1) + "\n")


def vars_of(point: Any) -> dict[str, float]:
    return {name: getattr(point, name) for name in ("steps", "seconds", "success", "returns")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("verb", choices=("record", "learn"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=20_000)
    given = parser.parse_args()
    if given.verb == "record":
        record(given.folder)
    else:
        learn(given.folder, given.seeds, given.updates)


if __name__ == "__main__":
    main()
