"""Success of policies that were learned in simulation on arms other than the simulated one.

    pip install 'rlenv-robot[train,onnx]'
    python benchmarks/transfer.py [--seeds 3] [--steps 48000]

The recipe of Tianshou learns `so101-reach` twice for each seed: in the nominal simulation, and in that of
launch/any_so101.toml, whose servos, masses and delays are drawn anew for every episode. Each policy is then tried on
twins: arm 0 was fitted to recordings of a real one, the others are siblings of it that nothing was chosen by.
"""

from __future__ import annotations

import argparse

import numpy as np
from train import ROOT, recipe

import rlenv_robot
from rlenv_robot.policies.policy import Policy
from rlenv_robot.registry import task
from rlenv_robot.training.rollout import evaluate
from rlenv_robot.vector.env import VectorEnvironment
from sim.batch import SimBatch
from sim.robots.twin import so101_twin

TASK = "so101-reach"
EPISODES, TEST_SEED = 50, 2_000_000


def on_twin(policy: Policy, arm: int) -> tuple[float, float]:
    """Success from 0 to 1, and the median distance at the end, mm."""
    envs = VectorEnvironment(SimBatch(so101_twin(arm), EPISODES), task(TASK), seed=TEST_SEED, autoreset="disabled")
    outcomes = evaluate(envs, policy, TEST_SEED)
    envs.close()
    distances = [next(iter(outcome.metrics.values())) for outcome in outcomes]
    return float(np.mean([outcome.success for outcome in outcomes])), float(np.median(distances))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=48_000)
    parser.add_argument("--arms", type=int, default=8)
    given = parser.parse_args()
    varied = rlenv_robot.load_profile(ROOT / "launch" / "any_so101.toml")
    print("| simulation | seed | nominal | arm 0 | other arms, least to most | median distance on all arms |")
    print("|---|---|---|---|---|---|")
    for name, profile in (("nominal", None), ("varied", varied)):
        for seed in range(given.seeds):
            policy, curve = recipe("tianshou").train(TASK, given.steps, seed, quiet=True, profile=profile)
            tried = [on_twin(policy, arm) for arm in range(given.arms)]
            others = [success for success, _ in tried[1:]]
            print(
                f"| {name} | {seed} | {curve.points[-1].success:.0%} | {tried[0][0]:.0%} | "
                f"{min(others):.0%} to {max(others):.0%} | {np.median([gap for _, gap in tried]):.1f} mm |",
                flush=True,
            )


if __name__ == "__main__":
    main()
