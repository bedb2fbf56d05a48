"""Run the stages of the demonstration (train, deploy, record, retrain, deploy), and report their results."""

from __future__ import annotations

import argparse
import json
import math
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from hal import DeadlineExceeded, RobotError, RobotStopped, StaleReading
from hal.robots.so101 import SO101
from real.client.connection import ClientSettings
from real.client.robot import RemoteRobot
from rlenv_robot.cli.demo.report import HEAD, Row, cells, html_report, write_figures
from rlenv_robot.cli.output import ProgressBars, counted, print_table, progress_bars, search_bar, warn_of_limit_cycles
from rlenv_robot.env import Environment
from rlenv_robot.policies.deployment import check_deployment, deployed_spec
from rlenv_robot.policies.feedback import SearchedPolicy
from rlenv_robot.registry import make, make_vector
from rlenv_robot.tables import Options
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.training.learner import (
    LEAST_EPISODES,
    Progress,
    Retraining,
    Training,
    retrain_from_record,
    train_in_simulation,
)
from rlenv_robot.training.rollout import Outcome, evaluate, run_episode

__all__ = [
    "DemoSettings", "Deployment", "FixtureStandIn", "Retraining", "ServingProcess", "deploy", "fresh_folder",
    "held_out_seed", "retrain", "run", "serving", "simulate", "train", "virtual_arm", "write_robot_profile",
]  # fmt: skip


class FixtureStandIn:
    """Replace a fixture (`hal.reset.Fixture`): confirm each reset request at once.

    Attributes:
        asked: number of requests received.
        address: address on which the fixture listens, on loopback.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.address = ""
        self._over = threading.Event()
        self._bound: queue.Queue[str] = queue.Queue()
        self._thread = threading.Thread(target=self._answer, name="fixture", daemon=True)

    def __enter__(self) -> FixtureStandIn:
        self._thread.start()
        self.address = self._bound.get(timeout=5)
        return self

    def _answer(self) -> None:
        import zmq

        with zmq.Context() as context, context.socket(zmq.REP) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind("tcp://127.0.0.1:*")
            self._bound.put(socket.getsockopt_string(zmq.LAST_ENDPOINT))
            while not self._over.is_set():
                if socket.poll(100):
                    request = json.loads(socket.recv())
                    self.asked += 1
                    socket.send(json.dumps({"id": request["id"], "ready": True, "note": "scene is set"}).encode())

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join(5)


class ServingProcess:
    """Run a serving module as a child process.

    Args:
        words: the module's name and its arguments.
        pattern: matches the line in which the process prints its address, which is the first group.
        log: the file for the process's output.

    Attributes:
        words: the module's name and its arguments.
        address: address at which the process serves, once it does.

    Raises:
        RobotError: on entry: the process ended, or did not serve within 30 s.
    """

    def __init__(self, words: Sequence[str], pattern: str, log: Path) -> None:
        self.words, self._pattern, self._log = tuple(words), re.compile(pattern), log
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._addresses: queue.Queue[str] = queue.Queue()
        self.address = ""

    def __enter__(self) -> ServingProcess:
        # In a session of its own, so that Ctrl-C reaches only the demonstration, which then ends it properly.
        self._process = subprocess.Popen(
            [sys.executable, "-m", *self.words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        try:
            self.address = self._addresses.get(timeout=30)
        except queue.Empty:
            self.__exit__()
            raise DeadlineExceeded(f"{' '.join(self.words[:2])} did not start", 30, f"see {self._log}") from None
        if not self.address:
            self.__exit__()
            raise RobotError(f"{' '.join(self.words[:2])} ended before it served: {_tail(self._log)}")
        return self

    def _read(self, stream: IO[str]) -> None:
        with stream, self._log.open("w", encoding="utf-8") as log:
            for line in stream:
                log.write(line)
                log.flush()
                match = self._pattern.search(line)
                if match:
                    self._addresses.put(match.group(1))
        self._addresses.put("")

    def __exit__(self, *exc: Any) -> None:
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        if self._reader is not None:
            self._reader.join(5)


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(encoding="utf-8").splitlines()[-3:])


# -- Stages: functions from files and numbers to files and numbers -------------------------------------------


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """The settings of the demonstration.

    Attributes:
        folder: for all results.
        seed: seeds all random draws.
        train_steps: control steps of the first search.
        retrain_steps: control steps of the second search.
        episodes: number of episodes in each deployment.
        simulated: number of episodes of each evaluation in simulation.
        robot: ``bus``, a virtual arm behind a serial bus and the driver of a real arm; or ``twin``, without these.
        real_time: whether the arm moves in real time, rather than in virtual time.
    """

    folder: Path
    seed: int = 0
    train_steps: int = 1_500_000
    retrain_steps: int = 2_000_000
    episodes: int = 20
    simulated: int = 200
    robot: str = "bus"
    real_time: bool = False

    @property
    def place(self) -> str:
        """The robot's name in the table of results."""
        arm = {"bus": "virtual arm", "twin": "twin"}[self.robot]
        return f"{arm}, over the network" + (" in real time" if self.real_time else "")


@dataclass(frozen=True)
class Deployment:
    """The episodes of a policy deployed on the robot.

    Attributes:
        outcomes: how each episode ended.
        run: the folder of the recorded run.
        fixture_asked: number of resets requested from the fixture.
    """

    outcomes: list[Outcome]
    run: Path
    fixture_asked: int


def train(settings: DemoSettings, progress: Progress) -> Training:
    """Stage 1: train in many simulated environments at once."""
    return train_in_simulation("so101-reach", math.inf, settings.seed, progress, steps=settings.train_steps)


def simulate(settings: DemoSettings, policy: SearchedPolicy) -> list[Outcome]:
    """Evaluate a policy in simulation, on episodes that no training used."""
    with make_vector("so101-reach", settings.simulated, autoreset="disabled") as envs:
        return evaluate(envs, policy, seed=held_out_seed(settings))


def held_out_seed(settings: DemoSettings) -> int:
    """Return the seed of all evaluations, which is never used for training."""
    return 7_000_000 + settings.seed


def write_robot_profile(settings: DemoSettings, fixture: str) -> Path:
    """Write the profile of the served robot, with a fixture that confirms resets."""
    path = settings.folder / "robot.toml"
    if settings.robot == "twin":
        robot = f'where = "twin"\nseed = {settings.seed}\n'
    else:
        port, calibration = (json.dumps(str(settings.folder.resolve() / name)) for name in ("arm", "arm.json"))
        options = f"port = {port}, calibration = {calibration}, latency_s = 0.1, volts = 7.4"
        robot = f'driver = "feetech"\noptions = {{{options}}}\n'
    path.write_text(
        "# Written by rlenv-robot demo. To serve it again, start a fixture at this address"
        + (", the virtual arm" if settings.robot == "bus" else "")
        + f', then rlenv-robot serve.\n[robot]\nkind = "so101"\n{robot}\n'
        f'[reset]\nsignal = "fixture"\nfixture = "{fixture}"\nsignal_deadline_s = 10\n',
        encoding="utf-8",
    )
    return path


def virtual_arm(settings: DemoSettings, name: str) -> ServingProcess:
    """Return the process, not yet started, of a virtual arm behind the serial port ``arm`` in the folder."""
    port, calibration = (str(settings.folder.resolve() / file) for file in ("arm", "arm.json"))
    options = ("--link", port, "--calibration", calibration, "--seed", str(settings.seed))
    words = ("rlenv_robot", "robot", "twin", "so101", "--bus", *options)
    return ServingProcess(words, r"^virtual so101 at (\S+):", settings.folder / f"{name}-arm.log")


def serving(settings: DemoSettings, profile: Path, log: Path) -> ServingProcess:
    """Return the process, not yet started, that serves the arm on a free port of loopback."""
    if settings.real_time:
        words: tuple[str, ...] = ("rlenv_robot", "serve", str(profile), "--address", "tcp://127.0.0.1:*")
    else:
        seed = ("--seed", str(settings.seed))
        words = ("rlenv_robot.cli.demo.virtual_time", str(profile), "--robot", settings.robot, *seed)
    return ServingProcess(words, r"at (tcp://\S+)", log)


def deploy(
    settings: DemoSettings, policy: SearchedPolicy, name: str, progress: Callable[[Outcome], None]
) -> Deployment:
    """Stages 2 and 4: serve the arm in other processes, run the policy on it over the network, and record the run."""
    folder = settings.folder / name
    outcomes: list[Outcome] = []
    with FixtureStandIn() as fixture, ExitStack() as ends:
        profile = write_robot_profile(settings, fixture.address)
        if settings.robot == "bus" and settings.real_time:
            ends.enter_context(virtual_arm(settings, name))
        with (
            serving(settings, profile, settings.folder / f"{name}-server.log") as server,
            make(
                "so101-reach", _client(settings, server.address), mode="inference", record=folder,
                info={"policy": name, "source": name},
            ) as env,
        ):  # fmt: skip
            check_deployment(policy, deployed_spec(env.world))
            for episode in range(settings.episodes):
                options = {"seed": held_out_seed(settings)} if episode == 0 else {}
                outcome = _run_episode(env, policy, options)
                outcomes.append(outcome)
                progress(outcome)
        asked = fixture.asked
    return Deployment(outcomes, folder, asked)


def _client(settings: DemoSettings, address: str) -> RemoteRobot:
    """Return the client of a served arm. In virtual time an answer may take as long as a busy machine needs."""
    patience = ClientSettings() if settings.real_time else ClientSettings(step_timeout_s=60.0, connect_timeout_s=60.0)
    return RemoteRobot(address, expect=SO101, settings=patience)


def _run_episode(env: Environment, policy: SearchedPolicy, options: Options, resets: int = 5) -> Outcome:
    """Run one episode; clear the stop that an episode before it left, such as one of a machine that was too busy.

    Nobody has to look at this arm first, since it is simulated.
    """
    try:
        *_, outcome = run_episode(env, policy, options)
    except (DeadlineExceeded, RobotStopped, StaleReading) as stop:
        if resets == 0:
            raise
        time.sleep(1.0)  # what keeps the machine busy may end
        return _run_episode(env, policy, {**options, "clear_stop": f"a simulated arm: {stop}"}, resets - 1)
    assert outcome is not None
    return outcome


def retrain(settings: DemoSettings, start: SearchedPolicy, runs: Path, progress: Progress) -> Retraining:
    """Stage 3: improve the policy from the recorded data only, through the source-data adapter."""
    return retrain_from_record(runs, start, Reach(), math.inf, settings.seed, progress, steps=settings.retrain_steps)


# -- command ---------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    """Run all stages, print the table of results, and write the report."""
    if args.episodes < LEAST_EPISODES:
        raise ValueError(f"--episodes is {args.episodes}, a model of the arm needs at least {LEAST_EPISODES}")
    for name, steps in (("train", args.train_steps), ("retrain", args.retrain_steps)):
        if getattr(args, f"{name}_s") is not None:
            raise ValueError(f"--{name}-s was removed, since its result depended on this machine's load: "
                             f"use --{name}-steps, such as {steps}")  # fmt: skip
        if steps < 1:
            raise ValueError(f"--{name}-steps is {steps}, it must be at least 1")
    settings = DemoSettings(
        fresh_folder(Path(args.out)), args.seed, args.train_steps, args.retrain_steps, args.episodes,
        robot=args.robot, real_time=args.real_time,
    )  # fmt: skip
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
    warn_of_limit_cycles([outcome.limit_cycle_deg for row in rows for outcome in row.outcomes])
    _report(settings, rows, trained, retrained, (deployed, redeployed), time.monotonic() - started)
    return 0


def fresh_folder(folder: Path) -> Path:
    """Create an empty folder: the given one, or a numbered one beside it if that contains files."""
    number, empty = 1, folder
    while empty.exists() and any(empty.iterdir()):
        number += 1
        empty = folder.with_name(f"{folder.name}-{number}")
    empty.mkdir(parents=True, exist_ok=True)
    return empty


def _train(settings: DemoSettings, bars: ProgressBars) -> Training:
    training = train(settings, search_bar(bars, "1 train in simulation"))
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

    return deploy(settings, training.policy, name, progress)


def _deploy_first(settings: DemoSettings, trained: Training, bars: ProgressBars) -> tuple[list[Row], Deployment]:
    advance = bars.begin("  evaluate in simulation", 1)
    simulated = simulate(settings, trained.policy)
    seed = held_out_seed(settings)
    row = Row("trained in simulation", "simulation", seed, simulated)
    advance(1, f"{row.success:.0%} of {len(simulated)} reached")
    deployed = _deploy(settings, trained, "before", "2 serve, deploy and record", bars)
    return [row, Row("trained in simulation", settings.place, seed, deployed.outcomes)], deployed


def _retrain(settings: DemoSettings, trained: Training, deployed: Deployment, bars: ProgressBars) -> Retraining:
    progress = search_bar(bars, "3 retrain from the recording only")
    retrained = retrain(settings, trained.policy, deployed.run, progress)
    metadata = {"trained": "from the record", "episodes": retrained.episodes[0]}
    retrained.training.policy.save(settings.folder / "policy-2.npz", metadata)
    return retrained


def _deploy_second(settings: DemoSettings, retrained: Retraining, bars: ProgressBars) -> tuple[list[Row], Deployment]:
    redeployed = _deploy(settings, retrained.training, "after", "4 deploy again", bars)
    simulated = simulate(settings, retrained.training.policy)
    seed = held_out_seed(settings)
    return [
        Row("retrained from the record", settings.place, seed, redeployed.outcomes),
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
    figures = [
        ("Where every episode ended", folder / "distances.png", "All rows over the network have the same targets.")
    ]
    before, after = (deployment.run for deployment in deployments)
    repeats = (
        "The arm moved in real time: its rows, and what was retrained from them, depend on this machine's load."
        if settings.real_time
        else "The arm ran in virtual time: the same seed gives the same table, however busy the machine is."
    )
    notes = [f"{trained.steps:,} simulated control steps in {trained.elapsed_s[-1]:.0f} s of training, "
             f"{retrained.training.steps:,} in the learned model in {retrained.training.elapsed_s[-1]:.0f} s.",
             repeats,
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
            "The return of each search's median candidate, with the search's noise; the table has the policies' own. "
            "The second search moves a learned model of the robot. Oscillating targets reduce the return.",
        ),
        ("The learned model", folder / "model.png", "On episodes that were held back from the fit."),
        (f"Episode {number} before", folder / "episode-before.png", f"The first policy on the {settings.place}."),
        (f"Episode {number} after", folder / "episode-after.png", "The same target, by the retrained policy."),
    ]
    html_report(folder / "report.html", rows, figures, notes)
    write_figures(folder / "figures.json", rows, {"seconds": seconds, "steps": trained.steps, "notes": notes})
    print("\n".join(notes))
    print(f"{seconds:.0f} s in all. {folder} holds report.html, figures.json, the policies and the recorded runs.")
    print(f"Look at the record:  rlenv-robot data {before}")
    print(f"Run the policy:      rlenv-robot run so101-reach --policy {folder / 'policy-2.npz'} --robot sim")
