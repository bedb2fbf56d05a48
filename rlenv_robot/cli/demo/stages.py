"""The stages of the demonstration: train, deploy, record, retrain; and the robot's side in a second process."""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hal import DeadlineExceeded, RobotError
from rlenv_robot.policies.feedback import FeedbackPolicy
from rlenv_robot.registry import make, make_vector
from rlenv_robot.tasks.reach import Reach
from rlenv_robot.training.learner import Progress, Retraining, Training, retrain_from_record, train_in_simulation
from rlenv_robot.training.rollout import Outcome, evaluate, run_episode

__all__ = [
    "DemoSettings", "Deployment", "FixtureStandIn", "Retraining", "RobotProcess", "deploy", "held_out_seed", "retrain",
    "simulate", "train", "write_twin_profile",
]  # fmt: skip


class FixtureStandIn:
    """Stand in for a fixture (`hal.reset.Fixture`): confirm each reset request at once.

    Attributes:
        asked: how many requests have come.
        address: where the fixture listens, on loopback.
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


class RobotProcess:
    """Run ``rlenv-robot serve`` as a child process on a free port of loopback.

    Args:
        profile: the TOML file to serve.
        log: the file for the process's output.

    Attributes:
        address: of the server, once it serves.

    Raises:
        RobotError: on entry: the server ended, or did not serve within 30 s.
    """

    def __init__(self, profile: Path, log: Path) -> None:
        self._profile, self._log = profile, log
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._addresses: queue.Queue[str] = queue.Queue()
        self.address = ""

    def __enter__(self) -> RobotProcess:
        command = [sys.executable, "-m", "rlenv_robot", "serve", str(self._profile), "--address", "tcp://127.0.0.1:*"]
        # In a session of its own, so that Ctrl-C reaches only the demonstration, which then ends the server properly.
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        try:
            self.address = self._addresses.get(timeout=30)
        except queue.Empty:
            self.__exit__()
            raise DeadlineExceeded("the robot's server did not start", 30, f"see {self._log}") from None
        if not self.address:
            self.__exit__()
            raise RobotError(f"the robot's server ended before it served: {_tail(self._log)}")
        return self

    def _read(self, stream: IO[str]) -> None:
        with stream, self._log.open("w", encoding="utf-8") as log:
            for line in stream:
                log.write(line)
                log.flush()
                match = re.search(r"at (tcp://\S+)", line)
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
