"""Run a project in one process: carry out its agents' methods, and keep its models, metrics and budget."""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

import numpy as np

from rlenv_kaiwu.agent import Method, Run, original
from rlenv_kaiwu.data import SampleCodec
from rlenv_kaiwu.models import ModelPool, read_model, zip_model
from rlenv_kaiwu.samples import SamplePool
from rlenv_kaiwu.settings import AppSettings

__all__ = ["Budget", "Finished", "LocalRun", "Monitor", "Style", "make_logger"]

Style: TypeAlias = Literal["document", "2024", "2025", "2026", "batch"]
"""The shapes of observations and actions for projects of a year; see `rlenv_kaiwu.env`."""


class Finished(BaseException):
    """The run has used up its budget. A workflow's ``except Exception`` does not catch it."""


@dataclass
class Budget:
    """Limits of a run, which ends at the first one reached. None sets no limit.

    Attributes:
        steps: number of steps of all environments.
        updates: number of calls of ``learn``.
        episodes: number of episodes begun.
        seconds: wall-clock time, seconds.
    """

    steps: int | None = None
    updates: int | None = None
    episodes: int | None = None
    seconds: float | None = None

    def check(self, steps: int, updates: int, episodes: int, seconds: float) -> None:
        """End the run if a limit is reached.

        Raises:
            Finished: a limit is reached; the message names it.
        """
        counts = (("steps", steps), ("updates", updates), ("episodes", episodes), ("seconds", seconds))
        for name, count in counts:
            limit = getattr(self, name)
            if limit is not None and count >= limit:
                raise Finished(f"{count:g} of {limit:g} {name}")


class Monitor:
    """The monitor to which a workflow reports its metrics. It writes one line per report to a file.

    Args:
        file: file of JSON lines ``{"time", "process", "metrics"}``, to which reports are appended.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        self.latest: dict[str, object] = {}

    def put_data(self, data: Mapping[object, Mapping[str, object]]) -> None:
        """Write a report of metrics, ``{process: {name: value}}``.

        Raises:
            ValueError: the report has another form.
        """
        if not isinstance(data, Mapping) or not all(isinstance(value, Mapping) for value in data.values()):
            raise ValueError(f"put_data got {data!r:.80}, expected {{os.getpid(): {{name: value}}}}")
        with self._file.open("a", encoding="utf-8") as stream:
            for process, metrics in data.items():
                plain = {str(name): _plain(value) for name, value in metrics.items()}
                self.latest |= plain
                line = {"time": round(time.time(), 3), "process": str(process), "metrics": plain}
                stream.write(json.dumps(line) + "\n")


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | bool | int | float):
        return value
    try:
        return float(np.asarray(value, np.float64).mean())
    except (TypeError, ValueError):
        return str(value)


def make_logger(name: str, folder: Path) -> logging.Logger:
    """Return a run's logger, which writes to a file in the run's folder and also passes on warnings and errors."""
    folder.mkdir(parents=True, exist_ok=True)
    logger = logging.getLogger(f"rlenv_robot.kaiwu.{name}")
    for old in [handler for handler in logger.handlers if isinstance(handler, logging.FileHandler)]:
        logger.removeHandler(old)
        old.close()
    handler = logging.FileHandler(folder / f"{name}.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


class LocalRun(Run):
    """A run in one process: the workflow, its environments, its agent and the learner.

    ``learn`` with samples trains at once, unless ``through_pool`` sends them to a sample pool in this process, as a
    distributed run does; ``send_sample_data`` always does. All batches that the pool's rules allow are learned before
    the workflow continues, so that a run with a seed is reproducible.

    Args:
        style: the project's year, which determines what a decorated ``predict`` returns.
        settings: settings of the project.
        codec: converts samples to rows.
        out: the folder of models, logs and metrics.
        project: the project's directory, which every model's zip contains.
        name: names of the project and its algorithm, for the zip.
        monitor: receives the learner's metrics.
        budget: limits that end the run.
        through_pool: whether ``learn`` sends samples to the pool.
        train_step: number of calls of ``learn`` in the earlier runs that this one continues.
        seed: seed of the pool and of random models.
    """

    def __init__(
        self, style: Style, settings: AppSettings, codec: SampleCodec, out: Path, project: Path, name: str,
        monitor: Monitor, *, budget: Budget | None = None, through_pool: bool = False, train_step: int = 0,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(style, ModelPool(out / "ckpt", settings.modelpool_max_save_model_count))
        self.settings, self.codec, self.out, self.project = settings, codec, out, project
        self.name, self.monitor, self.budget = name, monitor, budget or Budget()
        self.pool = SamplePool(settings, seed)
        self.through_pool, self.train_step = through_pool, train_step
        self.updates = 0
        self._rng = random.Random(seed)
        self._inside = False
        self._began = time.monotonic()

    # -- what environments report ------------------------------------------------------------------------

    def stepped(self, count: int = 1) -> None:
        """Count steps of environments.

        Raises:
            Finished: the budget is used up.
        """
        super().stepped(count)
        self._check()

    def began_episode(self) -> None:
        """Count the beginning of an episode.

        Raises:
            Finished: the budget is used up.
        """
        self._check()
        super().began_episode()

    def _check(self) -> None:
        self.budget.check(self.steps, self.updates, self.episodes, time.monotonic() - self._began)

    # -- what agents ask for -----------------------------------------------------------------------------

    def learn(self, agent: object, method: Method, samples: object) -> object:
        """Train on samples at once, or send them to the pool."""
        if self._inside or not _is_list(samples):
            return self._train(method, samples)
        if self.through_pool:
            self.send(agent, samples)
            return None
        if not samples:
            return None
        return self._train(method, self.codec.decode(self.codec.encode(cast("Sequence[object]", samples))))

    def send(self, agent: object, samples: object) -> None:
        """Put samples into the pool, and learn every batch that its rules allow."""
        if not _is_list(samples):
            raise ValueError(f"send_sample_data got a {type(samples).__name__}, expected a list of SampleData")
        rows = self.codec.encode(cast("Sequence[object]", samples))
        method, sent = original(agent, "learn"), 0
        while True:
            sent += self.pool.insert(rows[sent:])
            learned = False
            while self._may_learn() and (batch := self.pool.next_batch()) is not None:
                number, drawn = batch
                self._train(method, self.codec.decode(drawn))
                self.pool.confirm(number)
                learned = True
                if self.updates % self.settings.dump_model_freq == 0:
                    self.publish(agent, original(agent, "save_model"))
            if sent == len(rows):
                return
            if not learned:
                raise ValueError(
                    f"the sample pool takes no more ({len(self.pool)} of {self.settings.capacity}) and has no batch of "
                    f"{self.settings.train_batch_size} to learn from: raise replay_buffer_capacity or "
                    "reverb_error_buffer, or lower train_batch_size"
                )

    def _may_learn(self) -> bool:
        """Let a learner without a limiter use each sample once on average: in one process it would never end."""
        counts, size = self.pool.counts, self.settings.train_batch_size
        return self.settings.rate_limiter != "MinSize" or self.pool.once or counts.sampled + size <= counts.inserted

    def _train(self, method: Method, samples: object) -> object:
        if self._inside:
            return method(samples)
        self._inside = True
        try:
            result = method(samples)
        finally:
            self._inside = False
        self.train_step += 1
        self.updates += 1
        if isinstance(result, Mapping):
            self.monitor.latest |= {str(name): _plain(value) for name, value in result.items()}
        if self.settings.learner_train_sleep_seconds:
            time.sleep(self.settings.learner_train_sleep_seconds)
        self._check()
        return result

    def choose(
        self, agent: object, method: Method, arguments: tuple[object, ...], named: dict[str, object]
    ) -> tuple[object, int]:
        """Return the agent's actions, and the number of calls of ``learn``."""
        return method(*arguments, **named), self.train_step

    def publish(self, agent: object, method: Method) -> None:
        """Save a model under the number of training steps, and as a zip with the code."""
        step = self.train_step
        method(path=str(self.models.folder), id=str(step))
        files = read_model(self.models.folder, step)
        self.models.prune(step)
        about = {"project": self.name, "train_step": step, "environment_steps": self.steps}
        zip_model(self.out / "models" / f"{self.name}-{step}.zip", self.project, files, about)

    def fetch(self, agent: object, method: Method, number: object) -> object:
        """Load a model by number. The newest needs no loading, as the agent is itself the learner."""
        if number == "latest":
            return None
        return method(path=str(self.models.folder), id=str(self.models.find(number, self._rng)))

    def metrics(self) -> dict[str, float]:
        """Return the framework's own counters."""
        counts = self.pool.counts
        return {
            "train_global_step": float(self.train_step),
            "episode_cnt": float(self.episodes),
            "sample_receive_cnt": float(counts.inserted),
            "sample_production_and_consumption_ratio": counts.sampled / max(counts.inserted, 1),
            "actor_predict_succ_cnt": float(self.steps - self.refusals),
            "actor_load_last_model_succ_cnt": 0.0,
        }


def _is_list(samples: object) -> bool:
    return isinstance(samples, list | tuple)
