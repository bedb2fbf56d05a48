"""Run a Kaiwu project on Ray: workflows, actors and a learner in processes of their own, between two pools."""

from __future__ import annotations

import os
import random
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import ray

from rlenv_kaiwu.agent import Method, bind, original
from rlenv_kaiwu.models import ModelPool, read_model, zip_model
from rlenv_kaiwu.pools import BOARD, Board, Handle, Models, Samples, settle
from rlenv_kaiwu.project import Project
from rlenv_kaiwu.remote_env import EnvironmentLost, EnvironmentProcess, RemoteEnv
from rlenv_kaiwu.run import MakeEnv, View, Workplace, begin_with, fresh_folder, open_workplace
from rlenv_kaiwu.samples import PoolCounts
from rlenv_kaiwu.session import Budget, Finished
from rlenv_kaiwu.settings import AppSettings

__all__ = ["DistributedOutcome", "run_distributed"]

_PATIENCE_S = 0.5
"""The longest wait for a batch, or for room in the pool, before a process looks whether the run is over."""

_RESTART_S = 0.5
"""Pause before a workflow asks for an environment whose process was killed."""

_REPORT_S = 0.2
"""Seconds between two reports of a workflow's steps."""


@dataclass(frozen=True)
class DistributedOutcome:
    """The result of a distributed run.

    Attributes:
        ended: why it ended.
        steps, episodes, updates: of this run; the steps with those that were refused.
        train_step: calls of ``learn``, earlier runs included.
        learned: samples in all batches that the learner has confirmed.
        left: samples in the pool at the end, kept for ``resume``.
        counts: of the sample pool.
        seconds: from the first step to the end.
        started: role -> how often a process of that role was started; one more than planned for each that was killed.
        cpu_s: role -> seconds of processor time of its processes, imports left out.
        models: numbers of the models in the pool.
        out: its folder.
        refused: steps whose action was illegal, so that nothing moved.
    """

    ended: str
    steps: int
    episodes: int
    updates: int
    train_step: int
    learned: int
    left: int
    counts: PoolCounts
    seconds: float
    started: Mapping[str, int]
    cpu_s: Mapping[str, float]
    models: Sequence[int]
    out: Path
    refused: int = 0


# -- actors: learner, predictors, workflows ------------------------------------------------------------------


@dataclass(frozen=True)
class _Site:
    """What every process of a run knows."""

    project: Project
    out: Path
    board: Handle
    samples: Handle
    models: Handle
    seed: int
    predictors: Sequence[Handle] = field(default_factory=tuple)


class _Learner:
    """Learn from batches until the run is over; after a kill, go on from the newest model."""

    def __init__(self, site: _Site) -> None:
        self._site = site

    def run(self) -> int:
        site, settings = self._site, self._site.project.settings
        ray.get(site.board.start.remote("learner", os.getpid()))
        _seed(site.seed)
        with open_workplace(site.project, site.out, "learner") as place:
            (agent,) = place.make_agents(1, "learner")
            step = begin_with([agent], site.project, ModelPool(site.out / "ckpt", 50))
            learn, codec, number, stop = original(agent, "learn"), place.algorithm.codec, 0, ""
            updates = 0
            began = time.process_time()
            while True:
                batch = ray.get(site.samples.next_batch.remote(number, 0.0 if stop else _PATIENCE_S))
                if stop and (batch is None or not _drains(settings) or stop.endswith("updates")):
                    break
                if batch is None:
                    stop = ray.get(site.board.state.remote())["stop"]
                    continue
                number, rows = batch
                result = learn(codec.decode(list(rows)))
                step, updates = step + 1, updates + 1
                if isinstance(result, Mapping):
                    place.monitor.put_data({os.getpid(): cast("Mapping[str, object]", result)})
                if step % settings.dump_model_freq == 0:
                    self._publish(agent, step)
                learned = number * len(rows)  # all batches have this size
                stop = ray.get(site.board.learn.remote(os.getpid(), updates, step, learned))
                if settings.learner_train_sleep_seconds:
                    time.sleep(settings.learner_train_sleep_seconds)
            self._publish(agent, step)
            ray.get(site.board.spend.remote("learner", time.process_time() - began))
        return step

    def _publish(self, agent: object, step: int) -> None:
        folder = self._site.out / "learner" / f"save-{os.getpid()}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            original(agent, "save_model")(path=str(folder), id=str(step))
            ray.get(self._site.models.put.remote(step, read_model(folder, step)))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _drains(settings: AppSettings) -> bool:
    """Whether the learner uses up the pool at the end: only where every sample is used once."""
    return settings.on_policy or settings.sampler == "Fifo"


class _Predictor:
    """Choose actions for workflows with the newest model."""

    def __init__(self, site: _Site, name: str) -> None:
        ray.get(site.board.start.remote("actor", os.getpid()))
        _seed(site.seed + 1000)
        self._context = open_workplace(site.project, site.out, name)
        place = self._context.__enter__()
        (self._agent,) = place.make_agents(1, "actor")
        self._newest = _Newest(site, self._agent, name)
        self._predict = original(self._agent, "predict")

    def predict(self, arguments: tuple[object, ...], named: dict[str, object]) -> tuple[object, int]:
        self._newest.load()
        return self._predict(*arguments, **named), self._newest.number


class _Newest:
    """Load models of the pool into an agent: the newest, at most once in ``model_file_sync_per_minutes``, or another.

    With 0 minutes a request waits in the model pool for a newer model, so that looking costs no answer of the pool.
    """

    def __init__(self, site: _Site, agent: object, name: str) -> None:
        self._site, self._agent, self._folder = site, agent, site.out / name / f"model-{os.getpid()}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._looked, self.number = -np.inf, 0
        self._awaited: Any = None
        self._rng = random.Random(site.seed)

    def load(self, wanted: object = "latest") -> None:
        if wanted == "latest":
            if self._may_be_newer() and (newer := ray.get(self._site.models.newer.remote(self.number))) is not None:
                self._take(*newer)
            return
        numbers = ray.get(self._site.models.numbers.remote())
        if wanted == "random" and numbers:
            number = self._rng.choice(numbers)
        elif str(wanted).isdigit() and int(str(wanted)) in numbers:
            number = int(str(wanted))
        else:
            there = ", ".join(map(str, numbers)) or "none"
            raise ValueError(f"model {wanted!r} is not in the model pool, there are {there}")
        try:
            files = ray.get(self._site.models.get.remote(number))
        except ray.exceptions.RayTaskError:  # it was deleted meanwhile, for a newer one
            return
        self._take(number, files)

    def _may_be_newer(self) -> bool:
        pause = 60.0 * self._site.project.settings.model_file_sync_per_minutes
        if pause > 0:
            due = time.monotonic() - self._looked >= pause
            self._looked = time.monotonic() if due else self._looked
            return due
        if self._awaited is None:
            self._awaited = self._site.models.wait_for_newer.remote(self.number)
        ready = bool(ray.wait([self._awaited], timeout=0)[0])
        if ready:
            self._awaited = None
        return ready

    def _take(self, number: int, files: Mapping[str, bytes]) -> None:
        for path in self._folder.iterdir():
            path.unlink()
        for name, content in files.items():
            (self._folder / name).write_bytes(content)
        original(self._agent, "load_model")(path=str(self._folder), id=str(number))
        self.number = number


class _RemoteRun:
    """A workflow's part of a distributed run: what its agent does when the workflow calls it."""

    def __init__(self, site: _Site, agent: object, name: str, codec: Any) -> None:
        self._site, self._codec, self._name = site, codec, name
        self._source = f"{name}-{uuid.uuid4().hex[:8]}"
        self._newest = _Newest(site, agent, name)
        self._sent = self.steps = self.refusals = self.episodes = 0
        self._reported = 0.0
        self._predictor = random.Random(self._source).choice(site.predictors) if site.predictors else None
        self.models = ModelPool(site.out / "ckpt", 50)

    def metrics(self) -> dict[str, float]:
        state = ray.get(self._site.board.state.remote())
        counts = ray.get(self._site.samples.counts.remote())
        return {
            "train_global_step": float(state["train_step"]), "episode_cnt": float(state["episodes"]),
            "sample_receive_cnt": float(counts.inserted),
            "actor_predict_succ_cnt": float(state["steps"] - state["refused"]),
            "sample_production_and_consumption_ratio": counts.sampled / max(counts.inserted, 1),
        }  # fmt: skip

    def stepped(self, count: int = 1) -> None:
        self.steps += count
        if time.monotonic() - self._reported > _REPORT_S:
            self.report()

    def refused(self, count: int = 1) -> None:
        self.refusals += count

    def began_episode(self) -> None:
        self.episodes += 1

    def report(self) -> None:
        self._reported = time.monotonic()
        stop = ray.get(self._site.board.report.remote(self._source, self.steps, self.episodes, self.refusals))
        if stop:
            raise Finished(stop)

    def learn(self, agent: object, method: Method, samples: object) -> None:
        if not isinstance(samples, list | tuple):
            raise ValueError(
                f"learn got a {type(samples).__name__}, expected a list of samples: a workflow whose agent keeps its "
                "own storage runs in one process, without --distributed"
            )
        self.send(agent, samples)

    def send(self, agent: object, samples: object) -> None:
        rows, size = self._codec.encode(samples), self._site.project.settings.send_sample_size
        sent = 0
        while sent < len(rows):
            part: Any = rows[sent : sent + size]
            if self._codec.makes_rows:
                part = np.stack(part)
            taken = ray.get(self._site.samples.insert.remote(self._source, self._sent, part, _PATIENCE_S))
            sent, self._sent = sent + taken, self._sent + taken
            if taken < len(part):  # the pool is full: the learner comes first
                self.report()
        self.report()

    def predict(self, agent: object, method: Method, arguments: tuple[object, ...], named: dict[str, object]) -> object:
        if self._predictor is None:
            actions, number = method(*arguments, **named), self._newest.number
        else:
            actions, number = ray.get(self._predictor.predict.remote(arguments, named))
        return (actions, number) if self._site.project.style == "2025" else actions

    def save(self, agent: object, method: Method, path: str | None, number: object) -> None:
        if path is not None:
            method(path=path, id="1" if number is None else number)
            return
        numbers = ray.get(self._site.models.numbers.remote())
        if not numbers:
            return  # nothing is learned yet
        newest, project = numbers[-1], self._site.project
        target = self._site.out / "models" / f"{project.name}-{newest}.zip"
        if not target.exists():
            files = ray.get(self._site.models.get.remote(newest))
            zip_model(target, project.folder, files, {"project": project.name, "train_step": newest})

    def load(self, agent: object, method: Method, path: str | None, number: object) -> object:
        if path is not None:
            return method(path=path, id=number)
        if self._predictor is None or number != "latest":
            self._newest.load(number)
        return None

    def load_opponent(self, agent: object, number: object) -> object:
        return self.load(agent, original(agent, "load_model"), None, number)


class _Workflow:
    """Run the project's workflow over an environment until the run is over.

    A workflow whose environment has a process of its own begins anew where that process was killed.
    """

    def __init__(self, site: _Site, make: MakeEnv, number: int, environment: Handle | None = None) -> None:
        self._site, self._make, self._number, self._environment = site, make, number, environment

    def run(self) -> str:
        site, name = self._site, f"aisrv-{self._number}"
        ray.get(site.board.start.remote("workflow", os.getpid()))
        _seed(site.seed + 1 + self._number)
        while True:
            try:
                with open_workplace(site.project, site.out, name) as place:
                    return self._carry_out(place, name)
            except EnvironmentLost:
                time.sleep(_RESTART_S)

    def _carry_out(self, place: Workplace, name: str) -> str:
        site, counter = self._site, _Counted()
        view = self._view(counter)
        began, runs = time.process_time(), list[_RemoteRun]()
        try:
            agents = place.make_agents(max(1, len(view.agents)))
            begin_with(agents, site.project, ModelPool(site.out / "ckpt", 50))
            runs = [_RemoteRun(site, agent, name, place.algorithm.codec) for agent in agents]
            for agent, run in zip(agents, runs, strict=True):
                bind(agent, run)
            counter.run = place.names.run = runs[0]
            runs[0].report()
            began = time.process_time()
            place.algorithm.workflow([view], agents, place.logger, place.monitor)
            ended = "the workflow returned"
        except Finished as finished:
            ended = str(finished)
        finally:
            view.close()
        ray.get(site.board.spend.remote("workflow", time.process_time() - began))
        with suppress(Finished):
            runs[0].report()
        return ended

    def _view(self, counter: _Counted) -> View:
        if self._environment is None:
            return self._make(counter, self._site.project.style, self._site.seed + self._number)
        return RemoteEnv(self._environment, counter)


class _Counted:
    """Pass counts on to a run that begins after its environment was made."""

    def __init__(self) -> None:
        self.run: _RemoteRun | None = None

    def stepped(self, count: int = 1) -> None:
        if self.run is not None:
            self.run.stepped(count)

    def refused(self, count: int = 1) -> None:
        if self.run is not None:
            self.run.refused(count)

    def began_episode(self) -> None:
        if self.run is not None:
            self.run.began_episode()


def _seed(seed: int) -> None:
    np.random.seed(seed % 2**32)  # projects draw from NumPy's global generator
    random.seed(seed)
    from importlib.util import find_spec

    if find_spec("torch") is not None:
        import torch

        torch.manual_seed(seed)


# -- the driver ----------------------------------------------------------------------------------------------


@contextmanager
def _cluster(address: str | None) -> Any:
    """Connect to a cluster, or start one on this machine and end it afterwards."""
    ours = not ray.is_initialized()
    if ours:
        options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 256 * 2**20}
        ray.init(address=address, log_to_driver=False, **({} if address else options))
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def run_distributed(
    project: Project, make: MakeEnv, *, out: str | Path, workflows: int = 1, predictors: int = 0,
    budget: Budget | None = None, resume: bool = False, seed: int = 0, address: str | None = None,
    board_name: str | None = None, environments_apart: bool = False,
) -> DistributedOutcome:  # fmt: skip
    """Run a project's workflow in several processes beside its learner.

    Any process that is killed is started again by Ray. A workflow begins anew with the newest model, as does that of a
    killed environment; the learner goes on from the newest model with the batch that it had not confirmed; the sample
    pool goes on from its journal, the board from its file, and the model pool from the models' files.

    Args:
        project: the project.
        make: makes the project's view of an environment, in the process of each workflow; sent there by Ray.
        out: the folder of models, logs, metrics and samples.
        workflows: how many run.
        predictors: actors that choose actions for the workflows; 0 lets each workflow choose its own, unless
            ``predict_local_or_remote`` is ``remote`` (then there is one).
        budget: ends the run.
        resume: go on from the newest model and the samples that were left.
        seed: workflow i draws its episodes from ``seed + i``.
        address: of a Ray cluster; None starts Ray on this machine.
        board_name: a name under which `Board` can be found in Ray, to watch the run.
        environments_apart: whether each environment has a process of its own; otherwise it runs in its workflow's,
            where a step is faster.

    Raises:
        ValueError: the folder has models of another run, or there is none to resume from.
        ray.exceptions.RayTaskError: a process of the project failed by an error of its own.
    """
    out, settings = Path(out).absolute(), project.settings
    fresh_folder(out, resume)
    out.mkdir(parents=True, exist_ok=True)
    settle(settings, out, resume)
    predictors = predictors or int(settings.predict_remotely)
    with _cluster(address):
        lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        named = {"name": board_name} if board_name else {}
        board = ray.remote(Board).options(**lasting, **named).remote(budget or Budget(), str(out / BOARD))
        samples = ray.remote(Samples).options(**lasting).remote(settings, seed, str(out), board)
        models = (
            ray.remote(Models)
            .options(**lasting)
            .remote(str(out / "ckpt"), settings.modelpool_max_save_model_count, board)
        )
        site = _Site(project, out, board, samples, models, seed)
        chosen = [
            ray.remote(_Predictor).options(**lasting).remote(site, f"actor-{number}") for number in range(predictors)
        ]
        learner = ray.remote(_Learner).options(**lasting).remote(site)
        site = _Site(project, out, board, samples, models, seed, tuple(chosen))
        apart = [
            ray.remote(EnvironmentProcess)
            .options(num_cpus=0, max_restarts=-1)  # a step is not repeated: its episode is lost with the process
            .remote(project, make, out, board, seed + number, number)
            for number in range(workflows if environments_apart else 0)
        ]
        running = [
            ray.remote(_Workflow)
            .options(**lasting)
            .remote(site, make, number, apart[number] if environments_apart else None)
            for number in range(workflows)
        ]
        learning, waiting = learner.run.remote(), [workflow.run.remote() for workflow in running]
        try:
            ended = _wait(waiting, learning)
            ray.get(board.stop.remote(ended))
            ray.get([*waiting, learning])
            state, counts = ray.get(board.state.remote()), ray.get(samples.counts.remote())
            left, numbers = ray.get(samples.keep.remote()), ray.get(models.numbers.remote())
        finally:
            for actor in (*running, *apart, *chosen, learner, samples, models, board):
                ray.kill(actor)
    return DistributedOutcome(
        state["stop"], state["steps"], state["episodes"], state["updates"], state["train_step"], state["learned"],
        left, counts, state["seconds"], state["started"], state["cpu_s"], numbers, out,
        state["refused"],
    )  # fmt: skip


def _wait(workflows: Sequence[Handle], learning: Handle) -> str:
    """Wait until every workflow is over, or the learner is, and return why the first workflow ended."""
    waiting = [*workflows, learning]
    while any(task in waiting for task in workflows) and learning in waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        ray.get(done)  # an error of the project's ends the run here
    finished = [task for task in workflows if task not in waiting]
    return str(ray.get(finished[0])) if finished else "the learner is done"
