"""Success of `so101-reach` on virtual arms: trained in simulation, after identification, after offline retraining.

    python benchmarks/reach_on_bus.py [--seeds 5] [--episodes 50] [--json FILE]

Each seed is an arm of its own: six virtual STS3215 with friction, rotors, supply, masses and zeros of their own, behind
the serial bus and the driver of a real arm, byte for byte. Bus, driver, guard and homing run in the virtual line's own
time, in lockstep, several times faster than real time: no network and no server are between, and no packet is lost.

before         trained in the nominal simulation
identified     the first policy, trained on in the simulation that `identify` fitted to 30 s of `excite` on this arm
retrained      the first policy, improved from its own recorded episodes alone (model-based, offline)

All stages get the same targets. Intervals are Wilson's, 95 %, over all episodes, and the range of the seeds. At the
end, the scores of all policies in the nominal and in the identified simulation are compared with those on the arm:
Pearson's correlation and the mean maximum rank violation.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import rlenv_robot
from hal import Automatic, Guard, Homing, RobotStopped
from hal.drivers.bus_arm import BusArm
from hal.drivers.calibration import Calibration, nominal_calibration
from hal.robots.so101 import JOINTS
from rlenv_robot.policies.feedback import SearchedPolicy
from rlenv_robot.registry import task
from rlenv_robot.training.evolution import SearchSettings
from rlenv_robot.training.learner import improve, recipe_for, retrain_from_record, train_in_simulation
from rlenv_robot.training.rollout import evaluate, run_episode
from rlenv_robot.training.trials import wilson
from rlenv_sim2real.excite import ExcitationSettings, excitation
from rlenv_sim2real.identify import identify, profile_text
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.validity import PolicyScores, validity
from sim.robots.so101 import REST, so101
from sim.servo_bus.arm import ServoArm, so101_servos
from sim.servo_bus.line import ServoLine, VirtualPort

TASK, STAGES = "so101-reach", ("before", "identified", "retrained")
TEST_SEED = 8_000_000
RETRAIN_S = 30.0
EXCITE_S = 30.0


class VirtualArm:
    """A virtual SO-101 whose motors, gears and links differ from the nominal ones, in a time of its own."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        zeros = rng.integers(300, 3800, 6).tolist()
        servos = so101_servos(zeros)
        self.arm = ServoArm(servos, zeros, REST)
        model, dofs = self.arm.model, [self.arm.model.joint(name).dofadr[0] for name in JOINTS]
        model.dof_frictionloss[dofs] *= rng.uniform(0.6, 2.0, 6)
        model.dof_armature[dofs] *= rng.uniform(0.7, 1.3)
        model.body_mass[1:] *= rng.uniform(0.9, 1.3)
        model.body_inertia[1:] *= rng.uniform(0.9, 1.3)
        self.arm.set_supply(float(rng.uniform(6.2, 7.4)))
        self.shift = np.radians(rng.uniform(-1.0, 1.0, 6))  # what a calibration leaves
        for servo, shift in zip(servos, self.shift, strict=True):
            servo.set("homing_offset", servo.get("homing_offset") + round(shift / (2 * math.pi) * 4096))
        self.line = ServoLine(servos, before_request=self.arm.advance, seed=seed)
        self.port = VirtualPort(self.line, on_time=self.arm.advance)
        joints = {
            name: replace(joint, homing_offset=servo.get("homing_offset"))
            for (name, joint), servo in zip(nominal_calibration().joints.items(), servos, strict=True)
        }
        self.calibration = Calibration(joints)

    def seconds(self) -> float:
        return self.port.now_ns() / 1e9

    def robot(self) -> Homing:
        arm = BusArm(self.port, self.calibration, now=self.seconds, sleep=self.port.sleep)
        return Homing(Guard(arm, now=self.seconds), Automatic())


def excited(robot: Homing, seed: int) -> RecordedMotion:
    """Return the identification's motion on the arm."""
    goals = excitation(so101(looks=False), ExcitationSettings(seconds=EXCITE_S), seed).goals
    state = robot.reset({})
    held, measured, sent = state.applied["joint_target"], [], []
    for goal in goals:
        measured.append(np.array(state.sensors["joint_position"], np.float64))
        state = robot.step({"joint_target": goal.astype(np.float32)})
        sent.append(np.array(state.applied["joint_target"], np.float64))
    return RecordedMotion(0, robot.spec.period_s, JOINTS, np.array(sent), np.array(measured), np.float64(held))


def trained_on(policy: SearchedPolicy, seed: int, steps: int, settings: Mapping[str, Any]) -> SearchedPolicy:
    """Return the policy after so many more control steps in a simulation, by the search that also retrains."""
    streams = np.tile(np.arange(8), 32)
    with closing(
        rlenv_robot.make_vector(TASK, len(streams), seed=seed, streams=streams, autoreset="disabled", **settings)
    ) as envs:
        recipe = recipe_for(envs.task)
        generations = max(1, steps // (len(streams) * round(recipe.horizon_s / envs.batch.spec.period_s)))
        search = SearchSettings(population=32, sigma=0.05, seconds=math.inf, generations=generations, seed=seed)
        return improve(envs, policy, search, recipe.horizon_s, smoothness=recipe.smoothness).policy


def on_arm(robot: Homing, policy: SearchedPolicy, episodes: int, record: Path | None = None) -> list[bool]:
    successes = []
    with closing(rlenv_robot.make(TASK, robot=robot, mode="inference", record=record)) as env:
        options: dict[str, Any] = {"seed": TEST_SEED}
        for _ in range(episodes):
            try:
                *_, outcome = run_episode(env, policy, options)
            except RobotStopped as stop:  # the arm pushed against itself or its table: no success
                outcome, options = None, {"clear_stop": str(stop)}
            else:
                options = {}
            successes.append(outcome is not None and outcome.success)
    return successes


def in_simulation(policy: SearchedPolicy, episodes: int, **settings: Any) -> list[bool]:
    with closing(rlenv_robot.make_vector(TASK, episodes, autoreset="disabled", **settings)) as envs:
        return [outcome.success for outcome in evaluate(envs, policy, TEST_SEED)]


def one_seed(seed: int, episodes: int, steps: int, folder: Path) -> dict[str, Any]:
    """All stages on one arm: stage -> successes on the arm, in the nominal and in the identified simulation."""
    begun = time.monotonic()
    quiet = lambda generation: None  # noqa: E731
    nominal = train_in_simulation(TASK, math.inf, seed, quiet, steps=steps).policy
    arm = VirtualArm(seed)
    motion = excited(arm.robot(), seed)
    found = identify(so101(looks=False), [motion], most_iterations=6)
    profile_file = folder / f"arm-{seed}.toml"
    profile_file.write_text(profile_text(found, so101(looks=False), f"virtual arm {seed}"), encoding="utf-8")
    settings = {"profile": rlenv_robot.load_profile(profile_file)}
    identified = trained_on(nominal, seed, steps // 4, settings)
    runs = folder / f"runs-{seed}"
    scores = {"before": on_arm(VirtualArm(seed).robot(), nominal, episodes, runs)}
    retraining = retrain_from_record(runs, nominal, task(TASK), RETRAIN_S, seed, quiet)
    policies = {"before": nominal, "identified": identified, "retrained": retraining.training.policy}
    for name in STAGES[1:]:
        scores[name] = on_arm(VirtualArm(seed).robot(), policies[name], episodes)
    result = {
        name: {
            "arm": scores[name],
            "nominal": in_simulation(policy, episodes),
            "identified": in_simulation(policy, episodes, **settings),
        }
        for name, policy in policies.items()
    }
    took = time.monotonic() - begun
    line = ", ".join(f"{name} {np.mean(scores[name]):.0%}" for name in STAGES)
    print(f"seed {seed}: {line} on the arm; {arm.seconds():.0f} s of motion; {took:.0f} s", flush=True)
    return result


def report(results: dict[int, dict[str, Any]]) -> None:
    print("| policy | on the arm | seeds | nominal simulation | identified simulation |\n|---|---|---|---|---|")
    for name in STAGES:
        hits = np.array([result[name]["arm"] for result in results.values()])
        low, high = wilson(int(hits.sum()), hits.size)
        seeds = hits.mean(axis=1)
        where = [np.mean([result[name][side] for result in results.values()]) for side in ("nominal", "identified")]
        print(
            f"| {name} | {hits.mean():.1%} ({low:.1%} to {high:.1%}) | {seeds.min():.0%} to {seeds.max():.0%} | "
            f"{where[0]:.1%} | {where[1]:.1%} |"
        )
    for side in ("nominal", "identified"):
        scores = [
            PolicyScores(f"{name} {seed}", np.float64(result[name][side]), np.float64(result[name]["arm"]))
            for seed, result in results.items()
            for name in STAGES
        ]
        agreement = validity(scores)
        (low, high), (least, most) = agreement.pearson_interval, agreement.rank_violation_interval
        print(
            f"{side} simulation against the arm, {len(scores)} policies: Pearson {agreement.pearson:.2f} "
            f"({low:.2f} to {high:.2f}), mean maximum rank violation {agreement.rank_violation:.3f} "
            f"({least:.3f} to {most:.3f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1_000_000, help="control steps of the first training")
    parser.add_argument("--json", type=Path, help="write the successes there")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            results[seed] = one_seed(seed, given.episodes, given.steps, Path(folder))
            if given.json:
                given.json.write_text(json.dumps(results))
    report(results)


if __name__ == "__main__":
    main()
