"""Train a policy of action chunks on any recorded set, and save it with the set's names, units and normaliser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from hal import RobotError, RobotSpec, SourceError, Spec
from recorder.json_data import JsonDict, JsonObject
from rlenv_learn.imitation.act import ACT, ActSettings
from rlenv_learn.imitation.camera_network import CameraNetwork, shifted
from rlenv_learn.imitation.chunk_network import ChunkNetworkPolicy
from rlenv_learn.imitation.denoiser import ChunkDenoiser, DenoiserSettings
from rlenv_learn.imitation.diffusion import DiffusionPolicy, DiffusionSettings
from rlenv_learn.imitation.flow import FlowPolicy
from rlenv_learn.imitation.learning import ChunkLearner
from rlenv_learn.imitation.nearest import Frames, NearestFrame, NearestLearner
from rlenv_learn.imitation.set_fields import SetFields, TaskFields
from rlenv_learn.imitation.set_windows import (
    SetWindows,
    camera_fields,
    choose_anchors,
    chosen_fields,
    load_frames,
)
from rlenv_learn.policies.chunks import ChunkExecution
from rlenv_learn.training_state import TrainingState
from rlenv_robot.policies.lineage import LINEAGE, Lineage
from rlenv_robot.source import SourceData
from rlenv_robot.tasks.task import Task

__all__ = ["METHODS", "SetSettings", "SetTraining", "described", "recorded_rate_hz"]

_SHORTEST = 96
"""Height or width, whichever is smaller, to which larger images are reduced by default, pixels."""


class _Defaults(NamedTuple):
    history: int
    updates: int
    width: int
    layers: int


METHODS: Mapping[str, _Defaults] = {
    "act": _Defaults(history=2, updates=3000, width=96, layers=1),
    "diffusion": _Defaults(history=2, updates=4000, width=64, layers=4),
    "flow": _Defaults(history=2, updates=4000, width=64, layers=4),
    "nearest": _Defaults(history=1, updates=1, width=128, layers=1),
}
"""Methods, with the settings that a user leaves out."""

_FRAMES, _MOST_FRAMES = 256, 50_000
"""Frames that are read at once, and most frames that are remembered, by the method nearest."""


@dataclass(frozen=True)
class SetSettings:
    """Settings of a training.

    Attributes:
        method: one of `METHODS`.
        chunk: K, number of actions in a chunk.
        history: H, number of observations that the policy takes.
        execute: number of actions of a chunk that are executed before the next prediction; 0: temporal ensembling.
        updates: number of updates.
        batch: windows in each update.
        rate: largest step size of the optimiser.
        width: width of the network; of nearest: most principal components of an image.
        layers: layers of ACT's encoder, or blocks of the other networks.
        relative: whether actions are counted from an observed field of their shape; None where that explains most of
            them (`rlenv_learn.imitation.set_windows.choose_anchors`).
        observation: numeric observation fields; None for all.
        cameras: cameras; None for all.
        size: height and width to which images are reduced; None keeps their shape, and reduces the shorter side to 96.
        noise: standard deviation of noise on the newest observation in training, in half its range; None for one that
            falls with the number of steps (`SetFields.NOISE`).
        seed: seed of all random draws.

    Raises:
        ValueError: a number is out of range, or the method is unknown.
    """

    method: str
    chunk: int
    history: int
    execute: int
    updates: int
    batch: int
    rate: float
    width: int
    layers: int
    relative: bool | None = None
    observation: tuple[str, ...] | None = None
    cameras: tuple[str, ...] | None = None
    size: tuple[int, int] | None = None
    noise: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"the method is {self.method!r}, allowed are {', '.join(METHODS)}")
        for name in ("updates", "batch", "layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it must be at least 1")
        if self.noise is not None and not 0 <= self.noise < 1:
            raise ValueError(f"noise is {self.noise}, it must be at least 0 and below 1")
        if self.method == "nearest" and (self.updates, self.history) != (1, 1):
            raise ValueError("the method nearest takes 1 update and a history of 1 observation")
        if self.width < 8 or self.width % 8:
            raise ValueError(f"width is {self.width}, it must be a multiple of 8")
        if not 0 < self.rate < 1:
            raise ValueError(f"rate is {self.rate}, it must be above 0 and below 1")
        if self.size is not None and not (len(self.size) == 2 and min(self.size) >= 16 and max(self.size) <= 2048):
            raise ValueError(f"size is {self.size}, it must be a height and a width from 16 to 2048 pixels")
        _ = self.execution

    @property
    def execution(self) -> ChunkExecution:
        """The shape of the chunks, and how they are executed."""
        return ChunkExecution(self.chunk, self.history, min(self.execute, self.chunk))


class SetTraining:
    """Train a policy on some episodes of a set.

    Args:
        source: the set.
        episodes: indices of the episodes to learn from.
        settings: the settings.
        task: a task to which the set belongs, whose hints are used; None for any set.
        progress: called with the number of decoded frames so far and in all.

    Attributes:
        fields: the conversion of the set's fields.
        windows: the windows of the training.
        noise: standard deviation of the noise on the newest observation.
        learner: the network and its optimiser.

    Raises:
        SourceError: the set has no actions, a field or a camera is unknown, its images can't be decoded, a value is not
            finite, or a chunk is longer than every episode.
    """

    def __init__(
        self,
        source: SourceData,
        episodes: Sequence[int],
        settings: SetSettings,
        task: Task | None = None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        torch.manual_seed(settings.seed)
        self.source, self.episodes, self.settings, self._task = source, list(episodes), settings, task
        self.fields, cameras = self._fields()
        self.frames = load_frames(source, self.fields, cameras, progress)
        self.windows = SetWindows(source, self.fields, episodes, self.frames)
        self.noise = self.fields.noise(len(self.windows)) if settings.noise is None else settings.noise
        model = self._network()
        self.windows.measure(model.SCALING)
        self.learner: ChunkLearner | NearestLearner
        if isinstance(model, NearestFrame):
            self.learner = NearestLearner(model, self._every)
        else:
            self.learner = ChunkLearner(model, settings.updates, settings.rate)
        self._rows = np.random.default_rng(settings.seed)
        self._shift = torch.Generator().manual_seed(settings.seed)

    def _fields(self) -> tuple[SetFields, dict[str, str]]:
        settings = self.settings
        numbers, action = chosen_fields(self.source, settings.observation)
        images = camera_fields(self.source, settings.cameras)
        if not numbers and not images:
            raise SourceError(f"{self.source.table.origin} has no observation of numbers and no camera to learn from")
        sizes = {field.name: settings.size or _reduced(field.shape[:2]) for field in images.values()}
        cameras = {field.name: camera for camera, field in images.items()}
        if self._task is not None:
            return TaskFields(self._task, settings.execution, sizes), cameras
        observation = Spec("observation", (*numbers, *images.values()))
        anchors = {}
        if settings.relative is not False:
            anchors = choose_anchors(self.source, numbers, action, self.episodes)
            if settings.relative and not anchors:
                raise SourceError("no observed field has the shape of the action, from which it could be counted")
        return SetFields(observation, action, settings.execution, anchors, sizes), cameras

    def _network(self) -> ACT | ChunkDenoiser | NearestFrame:
        settings, fields = self.settings, self.fields
        if settings.method == "nearest":
            sizes = {field.name: fields.reductions[field.name].size for field in fields.images}
            return NearestFrame(fields.size, sizes, settings.width)
        if fields.images and settings.batch * settings.history < 2:
            raise ValueError("batch is 1; a network that sees images is trained on at least 2 windows at once")
        vision = {field.name: CameraNetwork() for field in fields.images}
        size = next((network.size for network in vision.values()), 0)
        shape = fields.size, fields.action_size, settings.execution
        if settings.method == "act":
            return ACT(*shape, ActSettings(settings.width, layers=settings.layers), vision, size)
        if settings.method == "diffusion":
            return DiffusionPolicy(*shape, DiffusionSettings(settings.width, settings.layers), vision, size)
        return FlowPolicy(*shape, DenoiserSettings(settings.width, settings.layers), vision, size)

    def update(self) -> float:
        """Take one update, and return its loss."""
        if isinstance(self.learner, NearestLearner):
            return self.learner.update()
        numbers = self._rows.integers(len(self.windows), size=self.settings.batch)
        batch, fields = self.windows.at(numbers), self.fields
        images = {name: shifted(image, self._shift) for name, image in fields.image_tensors(batch.observation).items()}
        chunk = fields.scaled(fields.relative(batch.observation, batch.action))
        vectors = fields.vectors(batch.observation)
        vectors[:, -1] += self.noise * torch.randn_like(vectors[:, -1])
        return self.learner.update(vectors, images, chunk, batch.mask)

    def _every(self) -> Iterator[Frames]:
        """Yield frames of all windows, or of `_MOST_FRAMES` of them that are spread evenly."""
        count, fields = len(self.windows), self.fields
        numbers = np.unique(np.linspace(0, count - 1, min(count, _MOST_FRAMES)).round().astype(np.int64))
        for begin in range(0, len(numbers), _FRAMES):
            batch = self.windows.at(numbers[begin : begin + _FRAMES])
            chunk = fields.scaled(fields.relative(batch.observation, batch.action))
            yield fields.vectors(batch.observation), fields.image_tensors(batch.observation), chunk

    @property
    def policy(self) -> ChunkNetworkPolicy:
        """The policy so far."""
        return ChunkNetworkPolicy(self.learner.mean, self.fields, self.settings.seed)

    # -- files ---------------------------------------------------------------------------------------------

    @cached_property
    def _lineage(self) -> Lineage:
        return Lineage.of(self.source, self.episodes)

    def save(self, path: Path, about: JsonObject) -> None:
        """Write the policy as an ONNX file, with the set's names, units and normaliser.

        Args:
            path: ending in ``.onnx``.
            about: JSON data about the training, for readers of the file.

        Raises:
            RobotError: the packages onnx or onnxscript are missing.
        """
        origin = Path(self.source.table.origin).name
        name = origin if self._task is None else self._task.name
        about = {**about, LINEAGE: self._lineage.to_dict()}
        self.policy.save_onnx(path, name, about, _recorded_robot(self.source), {"set": self.description()})

    def description(self) -> JsonDict:
        """Return what a policy's file says of its set: name, robot, rate, tasks, joint units and the normaliser."""
        return {**described(self.source, self.episodes), "normaliser": self.fields.normaliser()}

    def state(self) -> TrainingState:
        """Return the state of the training."""
        rows, shift = json.dumps(self._rows.bit_generator.state), self._shift.get_state()
        return TrainingState(self._identity(), {**self.learner.state(), "rows": rows, "shift": shift})

    def restore(self, state: TrainingState, path: Path) -> None:
        """Go on from a state.

        Args:
            state: the state.
            path: its file, for messages.

        Raises:
            RobotError: it is the state of another training.
        """
        state.check(self._identity(), path)
        try:
            self.learner.restore(state.tensors)
            self._rows.bit_generator.state = json.loads(state.tensors["rows"])
            self._shift.set_state(state.tensors["shift"])
        except (KeyError, RuntimeError, ValueError, TypeError) as error:
            raise RobotError(f"{path} is damaged: {error}; leave out --resume to begin anew") from error

    def _identity(self) -> JsonDict:
        settings = {name: json.loads(json.dumps(value)) for name, value in asdict(self.settings).items()}
        return {**settings, "rows": self._lineage.rows}


def described(source: SourceData, episodes: Sequence[int]) -> JsonDict:
    """Return what a policy's file says of its set: name, robot, rate, tasks and joint units."""
    table = source.table
    infos = [table.episodes[number] for number in episodes]
    known: JsonDict = {"name": Path(table.origin).name, "rate_hz": recorded_rate_hz(source)}
    for name in ("robot", "joints"):
        values = [info.get(name) for info in infos]
        if values[0] is not None and all(value == values[0] for value in values):
            known[name] = values[0]
    tasks = list(dict.fromkeys(str(info["task"]) for info in infos if info.get("task")))
    return {**known, "tasks": tasks[:100], "task_count": len(tasks)}


def recorded_rate_hz(source: SourceData) -> float | None:
    """Return the rate of a set's frames: that of its description, else of the median period between its stamps.

    None where the set stores no time, so that its stamps count frames as seconds, or where the stamps do not rise.
    """
    described = [info.get("fps") for info in source.table.episodes[:1]]
    if described and described[0]:
        return float(described[0])
    begin, end = int(source.table.starts[0]), int(source.table.stops[0])
    periods_ns = np.diff(source.table.rows["stamp_ns"][begin:end])
    if (periods_ns == 10**9).all():
        return None
    period_ns = float(np.median(periods_ns))
    return round(1e9 / period_ns, 2) if period_ns > 0 else None


def _recorded_robot(source: SourceData) -> RobotSpec | None:
    """Return the robot on which all runs of a set were recorded; None if they differ, or do not say."""
    from hal import LogError
    from recorder.read.reader import LogReader

    table = source.table
    if table.open_images is not None:
        return None
    robots = []
    for run in {str(info.get("run", table.origin)) for info in table.episodes}:
        try:
            robots.append(RobotSpec.from_dict(LogReader(Path(run)).metadata["robot_spec"]))
        except (LogError, KeyError, OSError, RobotError, ValueError, TypeError):
            return None
    return robots[0] if robots and all(robot == robots[0] for robot in robots) else None


def _reduced(shape: tuple[int, ...]) -> tuple[int, int]:
    share = min(1.0, _SHORTEST / min(shape))
    return max(1, round(shape[0] * share)), max(1, round(shape[1] * share))
