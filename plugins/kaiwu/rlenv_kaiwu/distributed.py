"""Run a Kaiwu project on Ray, with workflows, actors, the learner and the sample pool in separate processes."""

from __future__ import annotations

import os
import random
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import ray

from rlenv_kaiwu.agent import Counter, Method, Run, bind, original
from rlenv_kaiwu.data import SampleCodec
from rlenv_kaiwu.models import ModelPool, read_model, zip_model
from rlenv_kaiwu.pools import Handle, PoolProcess, settle
from rlenv_kaiwu.project import Project
from rlenv_kaiwu.remote_env import EnvironmentLost, EnvironmentProcess, RemoteEnv
from rlenv_kaiwu.run import MakeEnv, Outcome, Workplace, begin_with, fresh_folder, open_workplace
from rlenv_kaiwu.samples import PoolCounts
from rlenv_kaiwu.session import Budget, Finished

__all__ = ["DistributedOutcome", "run_distributed"]

_PATIENCE_S = 0.5
"""Longest wait for a batch, or for room in the pool, before a process checks whether the run is over, in seconds."""

_RESTART_S = 0.5
"""Pause before a workflow requests an environment again after its process was killed, in seconds."""

_REPORT_S = 0.2
"""Seconds between two reports of a workflow's steps."""


@dataclass(frozen=True, kw_only=True)
class DistributedOutcome(Outcome):
    """The result of a distributed run.

    Attributes:
        learned: number of samples in all batches that the learner has confirmed.
        left: number of samples in the pool at the end, kept for ``resume``.
        counts: counts of the sample pool.
        started: role -> number of process starts, including the restarts of killed processes.
    """

    learned: int
    left: int
    counts: PoolCounts
    started: Mapping[str, int]


# -- processes: learner, predictors, workflows ----------------------------------------------------------------


@dataclass(frozen=True)
class _Site:
    """The facts of a run that all its processes share."""

    project: Project
    out: Path
    pool: Handle
    seed: int
    predictors: Sequence[Handle] = ()

    @property
    def models(self) -> ModelPool:
        return ModelPool(self.out / "ckpt", self.project.settings.modelpool_max_save_model_count)

    def begin(self, role: str, seed: int) -> None:
        """Report the process of a role to the pool, and seed what the project draws from."""
        ray.get(self.pool.start.remote(role, os.getpid()))
        _seed(self.seed + seed)


class _Learner:
    """Learn from batches until the run is over; after a kill, go on from the newest model."""

    def __init__(self, site: _Site) -> None:
        self._site = site

    def run(self) -> int:
        site, settings = self._site, self._site.project.settings
        site.begin("learner", 0)
        with open_workplace(site.project, site.out, "learner") as place:
            (agent,) = place.make_agents(1, "learner")
            step = begin_with([agent], site.project, site.models)
            learn, codec, number = original(agent, "learn"), place.algorithm.codec, 0
            while True:
                stop, number, rows = ray.get(site.pool.next_batch.remote(number, step, _PATIENCE_S))
                if rows is None and stop:
                    break
                if rows is None:
                    continue
                result = learn(codec.decode(list(rows)))
                step += 1
                if isinstance(result, Mapping):
                    place.monitor.put_data({os.getpid(): cast("Mapping[str, object]", result)})
                if step % settings.dump_model_freq == 0:
                    self._publish(agent, step)
                if settings.learner_train_sleep_seconds:
                    time.sleep(settings.learner_train_sleep_seconds)
            self._publish(agent, step)
        return step

    def _publish(self, agent: object, step: int) -> None:
        folder = self._site.out / "learner" / f"save-{os.getpid()}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            original(agent, "save_model")(path=str(folder), id=str(step))
            self._site.models.put(step, read_model(folder, step))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


class _Predictor:
    """Choose actions for workflows with the newest model."""

    def __init__(self, site: _Site, name: str) -> None:
        site.begin("actor", 1000)
        self._context = open_workplace(site.project, site.out, name)
        (self._agent,) = self._context.__enter__().make_agents(1, "actor")
        self._newest = _Loader(site, self._agent, name)
        self._predict = original(self._agent, "predict")

    def predict(self, arguments: tuple[object, ...], named: dict[str, object]) -> tuple[object, int]:
        self._newest.load()
        return self._predict(*arguments, **named), self._newest.number


class _Loader:
    """Load models of the pool into an agent: the newest, at most once in ``model_file_sync_per_minutes``, or another.

    Attributes:
        number: the number of the loaded model; 0 before the first one.
    """

    def __init__(self, site: _Site, agent: object, name: str) -> None:
        self._models, self._agent = site.models, agent
        self._folder = site.out / name / f"model-{os.getpid()}-{id(agent)}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._pause_s = 60.0 * site.project.settings.model_file_sync_per_minutes
        self._looked, self.number = -np.inf, 0
        self._rng = random.Random(site.seed)

    def load(self, number: object = "latest") -> None:
        if number == "latest":
            if time.monotonic() - self._looked < self._pause_s:
                return
            self._looked = time.monotonic()
            if (self._models.latest or 0) <= self.number:
                return
        loaded, files = self._models.read(number, self._rng)
        for path in self._folder.iterdir():
            path.unlink()
        for name, content in files.items():
            (self._folder / name).write_bytes(content)
        original(self._agent, "load_model")(path=str(self._folder), id=str(loaded))
        self.number = loaded


class _RemoteRun(Run):
    """A workflow's part of a distributed run: what its agents do when the workflow calls them."""

    def __init__(self, site: _Site, name: str, codec: SampleCodec) -> None:
        super().__init__(site.project.style, site.models)
        self._site, self._codec, self._name = site, codec, name
        self._source = f"{name}-{uuid.uuid4().hex[:8]}"
        self._loaders: dict[int, _Loader] = {}
        self._sent, self._reported = 0, 0.0
        self._predictor = random.Random(self._source).choice(site.predictors) if site.predictors else None

    def attach(self, agents: Sequence[object]) -> None:
        """Make agents part of the run."""
        for agent in agents:
            self._loaders[id(agent)] = _Loader(self._site, agent, self._name)
            bind(agent, self)

    def metrics(self) -> dict[str, float]:
        progress, counts, _ = ray.get(self._site.pool.progress.remote())
        return {
            "train_global_step": float(progress.train_step), "episode_cnt": float(progress.total(1)),
            "sample_receive_cnt": float(counts.inserted),
            "actor_predict_succ_cnt": float(progress.total(0) - progress.total(2)),
            "sample_production_and_consumption_ratio": counts.sampled / max(counts.inserted, 1),
        }  # fmt: skip

    def stepped(self, count: int = 1) -> None:
        super().stepped(count)
        if time.monotonic() - self._reported > _REPORT_S:
            self.report()

    def report(self) -> None:
        """Report the counts to the pool, and end the workflow where the run is over."""
        self._reported = time.monotonic()
        stop = ray.get(self._site.pool.report.remote(self._source, self.steps, self.episodes, self.refusals))
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
        rows, size = self._codec.encode(cast("Sequence[object]", samples)), self._site.project.settings.send_sample_size
        sent = 0
        while sent < len(rows):
            part: Any = rows[sent : sent + size]
            if self._codec.makes_rows:
                part = np.stack(part)
            taken = ray.get(self._site.pool.insert.remote(self._source, self._sent, part, _PATIENCE_S))
            sent, self._sent = sent + taken, self._sent + taken
            if taken < len(part):  # the pool is full: the learner comes first
                self.report()
        self.report()

    def choose(
        self, agent: object, method: Method, arguments: tuple[object, ...], named: dict[str, object]
    ) -> tuple[object, int]:
        if self._predictor is None:
            return method(*arguments, **named), self._loaders[id(agent)].number
        actions, number = ray.get(self._predictor.predict.remote(arguments, named))
        return actions, number

    def publish(self, agent: object, method: Method) -> None:
        newest, project = self.models.latest, self._site.project
        target = self._site.out / "models" / f"{project.name}-{newest}.zip"
        if newest is None or target.exists():  # nothing is learned yet, or nothing since
            return
        newest, files = self.models.read()
        target = target.with_name(f"{project.name}-{newest}.zip")
        zip_model(target, project.folder, files, {"project": project.name, "train_step": newest})

    def fetch(self, agent: object, method: Method, number: object) -> None:
        if self._predictor is None or number != "latest":
            self._loaders[id(agent)].load(number)


class _Workflow:
    """Run the project's workflow over an environment until the run is over.

    A workflow whose environment has a process of its own starts again where that process was killed.
    """

    def __init__(self, site: _Site, make: MakeEnv, number: int, environment: Handle | None = None) -> None:
        self._site, self._make, self._number, self._environment = site, make, number, environment

    def run(self) -> str:
        name = f"aisrv-{self._number}"
        self._site.begin("workflow", 1 + self._number)
        while True:
            try:
                with open_workplace(self._site.project, self._site.out, name) as place:
                    return self._carry_out(place, name)
            except EnvironmentLost:
                time.sleep(_RESTART_S)

    def _carry_out(self, place: Workplace, name: str) -> str:
        run = place.names.run = _RemoteRun(self._site, name, place.algorithm.codec)
        view = self._view(run)
        try:
            agents = place.make_agents(max(1, len(view.agents)))
            begin_with(agents, self._site.project, run.models)
            run.attach(agents)
            run.report()
            place.algorithm.workflow([view], agents, place.logger, place.monitor)
            ended = "the workflow returned"
        except Finished as finished:
            ended = str(finished)
        finally:
            view.close()
        with suppress(Finished):
            run.report()
        return ended

    def _view(self, counter: Counter) -> Any:
        if self._environment is None:
            return self._make(counter, self._site.project.style, self._site.seed + self._number)
        return RemoteEnv(self._environment, counter)


def _seed(seed: int) -> None:
    np.random.seed(seed % 2**32)  # projects draw from NumPy's global generator
    random.seed(seed)
    from importlib.util import find_spec

    if find_spec("torch") is not None:
        import torch

        torch.manual_seed(seed)


# -- the driver ----------------------------------------------------------------------------------------------


@contextmanager
def _cluster(address: str | None) -> Iterator[None]:
    """Connect to a cluster, or start one on this machine and end it afterwards."""
    starts = not ray.is_initialized()
    if starts:
        options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 256 * 2**20}
        ray.init(address=address, log_to_driver=False, **({} if address else options))
    try:
        yield
    finally:
        if starts:
            ray.shutdown()


def run_distributed(
    project: Project, make: MakeEnv, *, out: str | Path, workflows: int = 1, predictors: int = 0,
    budget: Budget | None = None, resume: bool = False, seed: int = 0, address: str | None = None,
    pool_name: str | None = None, environments_apart: bool = False,
) -> DistributedOutcome:  # fmt: skip
    """Run several processes of a project's workflow with one learner.

    Ray restarts any process that is killed. A workflow starts again with the newest model, also if its environment was
    killed. The learner continues from the newest model with the batch that it had not confirmed. The sample pool and
    the run's counts continue from their journal. The models' files are the model pool.

    Args:
        project: the project.
        make: makes the project's view of an environment. Ray sends it to the process of each workflow.
        out: the folder of models, logs, metrics and samples.
        workflows: number of workflow processes.
        predictors: number of actors that choose actions for the workflows. With 0 each workflow chooses its own
            actions, unless ``predict_local_or_remote`` is ``remote``, which starts one actor.
        budget: limits that end the run.
        resume: whether to continue from the newest model and the remaining samples.
        seed: workflow i draws its episodes from ``seed + i``.
        address: address of a Ray cluster; None starts Ray on this machine.
        pool_name: name of the pool's process in Ray, for monitoring the run.
        environments_apart: whether each environment has a separate process; otherwise it runs in its workflow's
            process, where a step is faster.

    Raises:
        ValueError: the folder has models of another run, or no model to resume from.
        ray.exceptions.RayTaskError: the project's code raised an error in a process.
    """
    out, settings = Path(out).absolute(), project.settings
    fresh_folder(out, resume)
    out.mkdir(parents=True, exist_ok=True)
    settle(settings, out, resume)
    predictors = predictors or int(settings.predict_remotely)
    with _cluster(address):
        actors: list[Handle] = []

        def start(kind: type, *arguments: object, **options: object) -> Handle:
            # An actor that is killed is made anew, and the call that it was carrying out is repeated.
            lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
            actors.append(ray.remote(kind).options(**{**lasting, **options}).remote(*arguments))
            return actors[-1]

        pool = start(PoolProcess, settings, seed, out, budget or Budget(), **({"name": pool_name} if pool_name else {}))
        site = _Site(project, out, pool, seed)
        site = replace(site, predictors=[start(_Predictor, site, f"actor-{number}") for number in range(predictors)])
        learner, running = start(_Learner, site), list[Handle]()
        for number in range(workflows):
            environment = None
            if environments_apart:  # a step is not repeated: its episode is lost with the process
                environment = start(
                    EnvironmentProcess, project, make, out, pool, seed + number, number, max_task_retries=0
                )
            running.append(start(_Workflow, site, make, number, environment))
        learning, waiting = learner.run.remote(), [workflow.run.remote() for workflow in running]
        try:
            ended = _wait(waiting, learning)
            ray.get(pool.stop.remote(ended))
            ray.get([*waiting, learning])
            progress, counts, updates = ray.get(pool.progress.remote())
            left = ray.get(pool.end.remote())
        finally:
            for actor in reversed(actors):
                ray.kill(actor)
    return DistributedOutcome(
        progress.stop, progress.total(0), progress.total(1), updates, progress.train_step, progress.seconds,
        site.models.numbers(), out, progress.total(2), learned=updates * settings.train_batch_size, left=left,
        counts=counts, started={role: len(processes) for role, processes in progress.processes.items()},
    )  # fmt: skip


def _wait(workflows: Sequence[Handle], learning: Handle) -> str:
    """Wait until every workflow is over, or the learner is, and return why the first workflow ended."""
    waiting = [*workflows, learning]
    while any(task in waiting for task in workflows) and learning in waiting:
        done, waiting = ray.wait(waiting, num_returns=1)
        ray.get(done)  # an error of the project's ends the run here
    finished = [task for task in workflows if task not in waiting]
    return str(ray.get(finished[0])) if finished else "the learner is done"
