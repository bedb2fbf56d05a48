"""The stages of the main job, each a function from files and numbers to files and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlenv_robot.catalogue import make, make_vector
from rlenv_robot.demo.learned import ArmModel, LearnedBatch, fit, open_loop_error
from rlenv_robot.demo.policy import ReachPolicy
from rlenv_robot.demo.robot_process import FixtureStandIn, RobotProcess
from rlenv_robot.demo.rollout import Outcome, evaluate, run_episode
from rlenv_robot.demo.search import Generation, SearchSettings
from rlenv_robot.demo.train import Training, improve
from rlenv_robot.source import open_source
from rlenv_robot.tasks.reach import Reach

__all__ = [
    "DemoSettings",
    "Deployment",
    "Retraining",
    "deploy",
    "held_out_seed",
    "retrain",
    "simulate",
    "train",
    "write_twin_profile",
]

Progress = Callable[[Generation], None]


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """What the demonstration does.

    Attributes:
        folder: where everything is left.
        seed: of everything.
        train_s, retrain_s: wall time of the two searches, seconds.
        episodes: of each deployment.
        simulated: episodes of the evaluation in simulation.
    """

    folder: Path
    seed: int = 0
    train_s: float = 60.0
    retrain_s: float = 15.0
    episodes: int = 20
    simulated: int = 200


@dataclass(frozen=True)
class Deployment:
    """Episodes on the robot, where they were recorded, and how often the fixture was asked."""

    outcomes: list[Outcome]
    run: Path
    fixture_asked: int


@dataclass(frozen=True)
class Retraining:
    """The second policy, and what the model it was trained in is worth on episodes it has not seen."""

    training: Training
    model: ArmModel
    episodes: tuple[list[int], list[int]]
    error_deg: np.ndarray
    unchanged_deg: np.ndarray


def train(settings: DemoSettings, progress: Progress) -> Training:
    """Stage 1: train in simulation, many environments at once."""
    from sim.batch import SimBatch
    from sim.so101 import so101

    search = SearchSettings(seconds=settings.train_s, seed=settings.seed)
    # Shorter than the task: what is not near after 1.3 s is a bad candidate already.
    short = Reach(steps=40)
    return improve(lambda count: SimBatch(so101(looks=False), count), short, search, progress=progress)


def simulate(settings: DemoSettings, policy: ReachPolicy) -> list[Outcome]:
    """What a policy does in simulation, on episodes that no training saw."""
    with make_vector("so101-reach", settings.simulated, autoreset="disabled") as envs:
        return evaluate(envs, policy, seed=held_out_seed(settings))


def held_out_seed(settings: DemoSettings) -> int:
    """The seed of all evaluations, which no training uses."""
    return 7_000_000 + settings.seed


def write_twin_profile(settings: DemoSettings, fixture: str) -> Path:
    """The profile of the served robot: a twin, reset by a fixture's signal."""
    path = settings.folder / "twin.toml"
    path.write_text(
        "# Written by rlenv-robot demo: serve it again with rlenv-robot serve, once a fixture answers there.\n"
        '[robot]\nkind = "so101"\nwhere = "twin"\n'
        f"seed = {settings.seed}\n\n"
        f'[reset]\nsignal = "fixture"\nfixture = "{fixture}"\nsignal_deadline_s = 10\n',
        encoding="utf-8",
    )
    return path


def deploy(settings: DemoSettings, policy: ReachPolicy, name: str, progress: Callable[[Outcome], None]) -> Deployment:
    """Stages 2 to 4: serve the twin in a second process, run the policy on it over the network, record it all."""
    folder = settings.folder / name
    outcomes: list[Outcome] = []
    with FixtureStandIn() as fixture:
        profile = write_twin_profile(settings, fixture.address)
        with (
            RobotProcess(profile, settings.folder / f"{name}-server.log") as server,
            make(
                "so101-reach", server.address, mode="inference", record=folder, info={"policy": name, "source": name}
            ) as env,
        ):
            for episode in range(settings.episodes):
                options = {"seed": held_out_seed(settings)} if episode == 0 else {}
                *_, outcome = run_episode(env, policy, options)
                assert outcome is not None
                outcomes.append(outcome)
                progress(outcome)
        asked = fixture.asked
    return Deployment(outcomes, folder, asked)


def retrain(settings: DemoSettings, start: ReachPolicy, runs: Path, progress: Progress) -> Retraining:
    """Stage 5: from the record alone, through the source-data adapter.

    Model-based (clause B.2.2.3): a model of the arm is fitted to most episodes and judged on the others, and the
    first policy is improved inside it by the task's own reward.
    """
    data = open_source(runs, task="so101-reach")
    data.init({"seed": settings.seed})
    known, unseen = data.split(held_out=0.2, seed=settings.seed)
    drawn = [data.sample_trajectories(len(part), {"episodes": part, "replace": False}) for part in (known, unseen)]
    model = fit(drawn[0], seed=settings.seed)
    error, unchanged = open_loop_error(model, drawn[1])
    search = SearchSettings(seconds=settings.retrain_s, seed=settings.seed + 1, sigma=0.05, population=32)
    training = improve(
        lambda count: LearnedBatch(model, count), Reach(), search, start=start.parameters, episodes=8, progress=progress
    )
    return Retraining(training, model, (known, unseen), error, unchanged)
