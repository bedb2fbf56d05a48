"""Run a Kaiwu project's workflow in one process, and test it as its ``train_test.py`` does."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from rlenv_kaiwu.agent import Counter, bind, original
from rlenv_kaiwu.env import Bridge, KaiwuEnv
from rlenv_kaiwu.models import ModelPool
from rlenv_kaiwu.names import FrameworkNames, framework_modules
from rlenv_kaiwu.project import Algorithm, Project, load_algorithm, open_project, read_train_test
from rlenv_kaiwu.session import Budget, Finished, LocalRun, Monitor, Style, make_logger
from rlenv_robot.env import Environment

__all__ = [
    "EnvLike", "MakeEnv", "Outcome", "View", "Workplace", "begin_with", "check_project", "fresh_folder", "make_env",
    "open_workplace", "run_project",
]  # fmt: skip


class View(Protocol):
    """A project's view of environments, with the ``reset`` and ``step`` of its year."""

    @property
    def agents(self) -> Sequence[str]:
        """The names of the agents; empty for a single agent."""
        ...

    def close(self) -> None:
        """Close the environments."""
        ...


MakeEnv: TypeAlias = Callable[[Counter, Style, int | None], View]
"""Function that makes an environment in a style; it reports steps to the counter and starts from the seed."""

EnvLike: TypeAlias = Environment | MakeEnv
"""An environment of this project, or a function that makes a Kaiwu project's view of one."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes:
        ended: the reason for the end.
        steps: number of steps of this run, including refused ones.
        episodes: number of episodes of this run.
        updates: number of calls of ``learn`` in this run.
        refused: number of steps with an illegal action, in which nothing moved.
        train_step: number of calls of ``learn``, including earlier runs.
        seconds: duration of the workflow without imports, seconds.
        models: numbers of the models in the run's pool.
        out: the run's folder.
    """

    ended: str
    steps: int
    episodes: int
    updates: int
    train_step: int
    seconds: float
    models: Sequence[int]
    out: Path
    refused: int = 0

    @property
    def refused_share(self) -> float:
        """The share of refused steps; 0 without steps."""
        return self.refused / max(self.steps, 1)


@dataclass(frozen=True)
class Workplace:
    """A project with imported modules, its agent's class, logger and monitor."""

    project: Project
    algorithm: Algorithm
    names: FrameworkNames
    logger: logging.Logger
    monitor: Monitor
    out: Path

    def make_agents(self, count: int, agent_type: str = "player") -> list[object]:
        """Make this many agents in the framework's way, one for each agent of the environment."""
        device = _device()
        return [self.algorithm.agent(agent_type, device, self.logger, self.monitor) for _ in range(count)]


def _device() -> object:
    """Return PyTorch's processor; None without PyTorch. A project that wants a GPU chooses it itself."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        return None
    import torch

    return torch.device("cpu")


@contextmanager
def open_workplace(project: Project, out: Path, process: str = "aisrv") -> Iterator[Workplace]:
    """Import a project's modules, and remove them when the block ends.

    Args:
        project: the project.
        out: the folder of logs and metrics; created if missing.
        process: the process's name for the log, such as ``aisrv`` or ``learner``.
    """
    out = out.absolute()
    logger, monitor = make_logger(process, out / "log"), Monitor(out / "monitor.jsonl")

    def run_test(**named: object) -> None:
        logger.error("run_train_test inside a run does nothing: use rlenv-robot kaiwu test")

    with framework_modules(project.folder, project.app, logger, run_test) as names:
        names.monitor = monitor
        if project.settings.torch_num_threads and _device() is not None:
            import torch

            torch.set_num_threads(project.settings.torch_num_threads)
        yield Workplace(project, load_algorithm(project, names.attached), names, logger, monitor, out)


def make_env(
    env: EnvLike,
    style: Style,
    counter: Counter,
    seed: int | None,
    bridge: Callable[[Environment], Bridge] | None = None,
) -> View:
    """Return the project's view of an environment."""
    if isinstance(env, Environment):
        return KaiwuEnv(env, style, None if bridge is None else bridge(env), counter, seed)
    return env(counter, style, seed)


def run_project(
    folder: str | Path | Project, env: EnvLike, *, out: str | Path, budget: Budget | None = None,
    bridge: Callable[[Environment], Bridge] | None = None, through_pool: bool = False, resume: bool = False,
    seed: int | None = None,
) -> Outcome:  # fmt: skip
    """Run a project's workflow over an environment, in this process, until it returns or the budget is used up.

    Args:
        folder: the project, or its directory.
        env: the environment, which is closed at the end.
        out: the folder of models (``ckpt/``, ``models/``), logs and metrics.
        budget: limits that end the run; None leaves the end to the workflow.
        bridge: translates observations and actions for a project written for another environment.
        through_pool: whether ``learn`` sends its samples to a sample pool with the rules of ``configure_app.toml``, as
            in a distributed run, instead of training on them at once.
        resume: whether to continue from the newest model in ``out``.
        seed: seed of the first episode.

    Raises:
        ValueError: the project can't be read or imported, or there is no model to resume from.
    """
    project = folder if isinstance(folder, Project) else open_project(folder)
    fresh_folder(Path(out), resume)
    with ExitStack() as stack:
        if isinstance(env, Environment):
            stack.callback(env.close)
        place = stack.enter_context(open_workplace(project, Path(out)))
        run = LocalRun(
            project.style, project.settings, place.algorithm.codec, place.out, project.folder, project.name,
            place.monitor, budget=budget, through_pool=through_pool, seed=seed or 0,
        )  # fmt: skip
        place.names.run = run
        view = make_env(env, project.style, run, seed, bridge)
        stack.callback(view.close)
        agents = place.make_agents(max(1, len(view.agents)))
        for agent in agents:
            bind(agent, run)
        run.train_step = begin_with(agents, project, run.models)
        ended, began = "the workflow returned", time.monotonic()
        try:
            place.algorithm.workflow([view], agents, place.logger, place.monitor)
        except Finished as finished:
            ended = str(finished)
            run.publish(agents[0], original(agents[0], "save_model"))
        seconds = time.monotonic() - began
        return Outcome(
            ended, run.steps, run.episodes, run.updates, run.train_step, seconds, run.models.numbers(), place.out,
            run.refusals,
        )  # fmt: skip


def fresh_folder(out: Path, resume: bool) -> None:
    """Check that a folder has no models of another run, or with ``resume`` that it has a model to resume from.

    Raises:
        ValueError: the folder is not suitable; the message names it.
    """
    newest = ModelPool(out / "ckpt").latest
    if resume and newest is None:
        raise ValueError(f"{out / 'ckpt'} has no model to resume from; run without --resume first")
    if not resume and newest is not None:
        raise ValueError(f"{out / 'ckpt'} has models of an earlier run: go on with --resume, or name another --out")


def begin_with(agents: Sequence[object], project: Project, models: ModelPool) -> int:
    """Load the newest model of the pool, or else the preloaded one, and return its number; 0 if there is neither.

    Raises:
        ValueError: the project requests a preloaded model that does not exist.
    """
    settings, newest = project.settings, models.latest
    if newest is not None:
        folder, number = models.folder, newest
    elif settings.preload_model:
        folder, number = project.preload_folder, settings.preload_model_id
        if not any(folder.glob(f"model.ckpt-{number}.*")):
            raise ValueError(f"preload_model is true, but {folder} has no model.ckpt-{number}.*")
    else:
        return 0
    for agent in agents:
        original(agent, "load_model")(path=str(folder), id=str(number))
    return 0 if newest is None else number


@contextmanager
def _collected(logger: logging.Logger) -> Iterator[list[str]]:
    """Collect the errors that a project logs."""
    errors: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(record.getMessage())

    handler = Collector(logging.ERROR)
    logger.addHandler(handler)
    try:
        yield errors
    finally:
        logger.removeHandler(handler)


def check_project(
    folder: str | Path, env: EnvLike, *, out: str | Path, algorithm: str | None = None, style: Style | None = None,
    bridge: Callable[[Environment], Bridge] | None = None, seconds: float = 300.0,
    overrides: Mapping[str, object] | None = None,
) -> Outcome:  # fmt: skip
    """Test a project as its ``train_test.py`` does: it must call ``learn``, save a model and log no error.

    The sample pool and the batch are as small as ``train_test.py`` makes them.

    Raises:
        ValueError: the workflow ended or ``seconds`` ran out before the agent learned, an error was logged, or the
            agent saved no model.
    """
    small = {"replay_buffer_capacity": 10, "preload_ratio": 0.2, "train_batch_size": 2, "dump_model_freq": 1}
    asked = read_train_test(Path(folder))
    project = open_project(
        folder, algorithm or asked.algorithm or None, style, {**(asked.overrides or small), **(overrides or {})}
    )
    logger, place = logging.getLogger("rlenv_robot.kaiwu.aisrv"), Path(out) / "train_test"
    shutil.rmtree(place, ignore_errors=True)
    with _collected(logger) as errors:
        outcome = run_project(project, env, out=place, budget=Budget(updates=1, seconds=seconds), bridge=bridge)
    if errors:
        raise ValueError(f"the project logged an error: {errors[0]}")
    if outcome.updates == 0:
        raise ValueError(f"the agent never learned: {outcome.ended} after {outcome.steps} steps")
    if not outcome.models:
        raise ValueError(f"the agent saved no model to {outcome.out / 'ckpt'}")
    return outcome
