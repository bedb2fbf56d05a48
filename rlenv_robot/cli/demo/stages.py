"""The stages of the main job, each a function from files and numbers to files and numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlenv_robot.cli.demo.robot_process import FixtureStandIn, RobotProcess
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.registry import make, make_vector
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.training.learner import Progress, Retraining, Training, retrain_from_record, train_in_simulation
from rlenv_robot.training.rollout import Outcome, evaluate, run_episode

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


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How the demonstration runs.

    Attributes:
        folder: for all results.
        seed: of everything random.
        train_s, retrain_s: wall time of the two searches, seconds.
        episodes: the number in each deployment.
        simulated: the number of episodes of each evaluation in simulation.
    """

    folder: Path
    seed: int = 0
    train_s: float = 50.0
    retrain_s: float = 12.0
    episodes: int = 20
    simulated: int = 200


@dataclass(frozen=True)
class Deployment:
    """The episodes of a policy on the robot.

    Attributes:
        outcomes: how each episode ended.
        run: the folder of their record.
        fixture_asked: how many resets the fixture was asked for.
    """

    outcomes: list[Outcome]
    run: Path
    fixture_asked: int


def train(settings: DemoSettings, progress: Progress) -> Training:
    """Stage 1: train in simulation, many environments at once."""
    return train_in_simulation("so101-reach", settings.train_s, settings.seed, progress)


def simulate(settings: DemoSettings, policy: FeedbackPolicy) -> list[Outcome]:
    """Evaluate a policy in simulation, on episodes that no training used."""
    with make_vector("so101-reach", settings.simulated, autoreset="disabled") as envs:
        return evaluate(envs, policy, seed=held_out_seed(settings))


def held_out_seed(settings: DemoSettings) -> int:
    """Return the seed of all evaluations, which no training uses."""
    return 7_000_000 + settings.seed


def write_twin_profile(settings: DemoSettings, fixture: str) -> Path:
    """Write the profile of the served robot: a twin whose resets a fixture confirms."""
    path = settings.folder / "twin.toml"
    path.write_text(
        "# Written by rlenv-robot demo. To serve it again, start a fixture at this address, then rlenv-robot serve.\n"
        '[robot]\nkind = "so101"\nwhere = "twin"\n'
        f"seed = {settings.seed}\n\n"
        f'[reset]\nsignal = "fixture"\nfixture = "{fixture}"\nsignal_deadline_s = 10\n',
        encoding="utf-8",
    )
    return path


def deploy(
    settings: DemoSettings, policy: FeedbackPolicy, name: str, progress: Callable[[Outcome], None]
) -> Deployment:
    """Stages 2 and 4: serve the twin in a second process, run the policy on it over the network, and record it."""
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


def retrain(settings: DemoSettings, start: FeedbackPolicy, runs: Path, progress: Progress) -> Retraining:
    """Stage 3: improve the policy from the record alone, through the source-data adapter."""
    return retrain_from_record(runs, start, Reach(), settings.retrain_s, settings.seed, progress)
