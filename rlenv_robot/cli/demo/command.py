"""Run the stages of the demonstration one after another, and report their results."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from hal import RobotError
from hal.robots.so101 import SO101
from rlenv_robot.cli.demo import stages
from rlenv_robot.cli.demo.report import HEAD, Row, cells, html_report, write_figures
from rlenv_robot.cli.demo.stages import DemoSettings, Deployment
from rlenv_robot.cli.output import ProgressBars, counted, print_table, progress_bars, search_bar
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.training.learner import LEAST_EPISODES, Retraining, Training

__all__ = ["fresh_folder", "run"]


def run(args: argparse.Namespace) -> int:
    """Run all stages, then print the table and write the report."""
    if args.episodes < LEAST_EPISODES:
        raise ValueError(f"--episodes is {args.episodes}, a model of the arm needs at least {LEAST_EPISODES}")
    if not (args.train_s > 0 and args.retrain_s > 0):
        raise ValueError("--train-s and --retrain-s must be above 0")
    settings = DemoSettings(fresh_folder(Path(args.out)), args.seed, args.train_s, args.retrain_s, args.episodes)
    started = time.monotonic()
    with progress_bars() as bars:
        trained = _train(settings, bars)
        first_rows, deployed = _deploy_first(settings, trained, bars)
        retrained = _retrain(settings, trained, deployed, bars)
        second_rows, redeployed = _deploy_second(settings, retrained, bars)
    rows = [*first_rows, *second_rows]
    print()
    print_table("Results", HEAD, map(cells, rows))
    print(flush=True)
    _report(settings, rows, trained, retrained, (deployed, redeployed), time.monotonic() - started)
    return 0


def fresh_folder(folder: Path) -> Path:
    """Make an empty folder: the given one, or a numbered one beside it if that already holds files."""
    number, empty = 1, folder
    while empty.exists() and any(empty.iterdir()):
        number += 1
        empty = folder.with_name(f"{folder.name}-{number}")
    empty.mkdir(parents=True, exist_ok=True)
    return empty


def _train(settings: DemoSettings, bars: ProgressBars) -> Training:
    training = stages.train(settings, search_bar(bars, "1 train in simulation", settings.train_s))
    training.policy.save(settings.folder / "policy-1.npz", {"trained": "simulation", "steps": training.steps})
    return training


def _deploy(settings: DemoSettings, training: Training, name: str, title: str, bars: ProgressBars) -> Deployment:
    advance = bars.begin(title, settings.episodes)
    successes: list[bool] = []

    def progress(outcome: Any) -> None:
        successes.append(outcome.success)
        advance(
            len(successes),
            f"{sum(successes)} of {len(successes)} reached, the last within {outcome.distance_mm:.1f} mm",
        )

    return stages.deploy(settings, training.policy, name, progress)


def _deploy_first(settings: DemoSettings, trained: Training, bars: ProgressBars) -> tuple[list[Row], Deployment]:
    advance = bars.begin("  evaluate in simulation", 1)
    simulated = stages.simulate(settings, trained.policy)
    seed = stages.held_out_seed(settings)
    row = Row("trained in simulation", "simulation", seed, simulated)
    advance(1, f"{row.success:.0%} of {len(simulated)} reached")
    deployed = _deploy(settings, trained, "before", "2 serve, deploy and record on the twin", bars)
    return [row, Row("trained in simulation", "twin, over the network", seed, deployed.outcomes)], deployed


def _retrain(settings: DemoSettings, trained: Training, deployed: Deployment, bars: ProgressBars) -> Retraining:
    progress = search_bar(bars, "3 retrain from the record alone", settings.retrain_s)
    retrained = stages.retrain(settings, trained.policy, deployed.run, progress)
    metadata = {"trained": "from the record", "episodes": retrained.episodes[0]}
    retrained.training.policy.save(settings.folder / "policy-2.npz", metadata)
    return retrained


def _deploy_second(settings: DemoSettings, retrained: Retraining, bars: ProgressBars) -> tuple[list[Row], Deployment]:
    redeployed = _deploy(settings, retrained.training, "after", "4 deploy again", bars)
    simulated = stages.simulate(settings, retrained.training.policy)
    seed = stages.held_out_seed(settings)
    return [
        Row("retrained from the record", "twin, over the network", seed, redeployed.outcomes),
        Row("retrained from the record", "simulation", seed, simulated),
    ], redeployed


def _median_episode(deployment: Deployment) -> int:
    """Return the number of the episode with the median final distance."""
    order = np.argsort([outcome.distance_mm for outcome in deployment.outcomes])
    return int(order[len(order) // 2])


def _report(
    settings: DemoSettings,
    rows: list[Row],
    trained: Training,
    retrained: Retraining,
    deployments: tuple[Deployment, Deployment],
    seconds: float,
) -> None:
    from rlenv_robot.cli.demo.report import plot_distances, plot_learning, plot_model
    from rlenv_robot.rendering.show import render_history

    folder = settings.folder
    plot_distances(folder / "distances.png", rows, Reach().tolerance_m * 1e3)
    plot_learning(folder / "learning.png", [("in simulation", trained), ("from the record", retrained.training)])
    plot_model(folder / "model.png", retrained.error, retrained.unchanged, SO101.period_s)
    figures = [("Where every episode ended", folder / "distances.png", "All rows on the twin have the same targets.")]
    before, after = (deployment.run for deployment in deployments)
    notes = [f"{trained.steps:,} simulated control steps in {trained.elapsed_s[-1]:.0f} s of training.",
             f"The fixture was asked for {sum(d.fixture_asked for d in deployments)} resets.",
             f"The model was fitted to {len(retrained.episodes[0])} recorded episodes. On the "
             f"{counted(len(retrained.episodes[1]), 'other')}, after {len(retrained.error)} steps without "
             f"correction, its joint error is {retrained.error[-1]:.2f} degrees RMS."]  # fmt: skip
    number = _median_episode(deployments[1])
    for run, title in ((before, "before"), (after, "after")):
        render_history(run, number, plot=folder / f"episode-{title}.png")
    try:
        render_history(after, number, video=folder / "episode.mp4")
        title = f"Episode {number} after retraining, replayed from its record"
        figures.append((title, folder / "episode.mp4", "Its final distance is the median one. The ball is the target."))
    except RobotError as error:
        notes.append(f"No video was made: {error}")
    figures += [
        (
            "Learning",
            folder / "learning.png",
            "The episodes of each search. The second search moves a learned model of the robot.",
        ),
        ("The learned model", folder / "model.png", "On episodes that were held back from the fit."),
        (f"Episode {number} before", folder / "episode-before.png", "The first policy on the twin."),
        (f"Episode {number} after", folder / "episode-after.png", "The same target, by the retrained policy."),
    ]
    html_report(folder / "report.html", rows, figures, notes)
    write_figures(folder / "figures.json", rows, {"seconds": seconds, "steps": trained.steps, "notes": notes})
    print("\n".join(notes))
    print(f"{seconds:.0f} s in all. {folder} holds report.html, figures.json, the policies and the recorded runs.")
    print(f"Look at the record:  rlenv-robot data {before}")
    print(f"Run the policy:      rlenv-robot run so101-reach --policy {folder / 'policy-2.npz'} --robot sim")
