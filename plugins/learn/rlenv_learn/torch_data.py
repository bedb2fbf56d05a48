"""Adapt recorded data to PyTorch: a `Dataset` of transitions with windows and images, its loader, and a normaliser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from recorder.json_data import JsonDict
from recorder.table.selection import within
from recorder.table.table import Table
from rlenv_learn.shuffle import Shuffle
from rlenv_robot.data.options import FILTERS
from rlenv_robot.source import SourceData, open_source
from rlenv_robot.tables import Options, StepTable

__all__ = ["Normalizer", "TransitionDataset", "make_loader"]

Arrays: TypeAlias = "Mapping[str, np.ndarray | Arrays]"
Tensors: TypeAlias = "JsonDict"
"""Name -> tensor, list of strings, or further such mappings."""

_Figures = Mapping[str, Mapping[str, np.ndarray]]

_MASKS = ("stack_mask", "next_stack_mask", "chunk_mask", "future_mask")
_IMAGES = ("images", "next_images", "future_images")
_BLOCK = 1 << 14
"""Number of positions drawn at once."""
_STATISTICS_FRAMES = 256
"""Frames from which the statistics of images are computed."""


class TransitionDataset(Dataset["Tensors"]):
    """A map-style dataset of transitions, gathered from the table on access.

    An item is a dictionary of tensors: ``observation``, ``next_observation`` and ``action`` (name -> tensor),
    ``reward`` (several agents: agent -> tensor), ``terminated`` and ``truncated`` (bool). A list of positions gives a
    whole batch in one gather, which is many times faster than item by item; `make_loader` loads batches this way.

    With options, an item also has windows and images: ``stack``, ``chunk`` and ``future`` of
    `rlenv_robot.data.frame_stack.Windows` with their masks, ``behaviour_chunk`` where it is recorded, ``images``
    (camera -> uint8) with their masks, and ``task``, the text of the episode's task.

    Args:
        source: recorded data.
        options: windows, images and filters, as `rlenv_robot.source.SourceData.sample_steps` takes them; filters select
            the transitions. None gives plain transitions.

    Raises:
        SourceError: there is no transition, an option is wrong, or no transition passes the filters.
    """

    def __init__(self, source: SourceData | Table, options: Options | None = None) -> None:
        self._source = source if isinstance(source, SourceData) else SourceData(source)
        table = self._source.table
        self._options = None if options is None else dict(options)
        filters, self._wider = _divided(self._options or {})
        self._positions = self._source.positions(filters) if filters else None
        self._count = len(self._source) if self._positions is None else len(self._positions)
        if self._wider:
            self._source.steps_at(np.zeros(1, np.int64), self._wider)  # a wrong option is refused here, not in a worker
        self._tasks = np.array([str(record.get("task") or "") for record in table.episodes], object)

    def __getstate__(self) -> JsonDict:
        """Return what a worker process needs: how to open the data again, if that is known, and not the data."""
        if self._source.opened is None:
            return self.__dict__
        return {"opened": self._source.opened, "options": self._options}

    def __setstate__(self, state: JsonDict) -> None:
        """Open the data again."""
        if "opened" not in state:
            self.__dict__.update(state)
            return
        positional, named = state["opened"]
        self.__dict__.update(TransitionDataset(open_source(*positional, **named), state["options"]).__dict__)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int | Sequence[int] | np.ndarray) -> Tensors:
        """Return one transition, or a batch of them.

        Raises:
            IndexError: there is no such position.
        """
        asked = np.asarray(index)
        flat = np.atleast_1d(asked).astype(np.int64, copy=False)
        if not within(flat, self._count):
            if flat.min() < -self._count or flat.max() >= self._count:
                raise IndexError(f"position {index} is out of range, there are {self._count} transitions")
            flat = flat % self._count
        positions = flat if self._positions is None else self._positions.take(flat)
        tensors = self._tensors(self._source.steps_at(positions, self._wider))
        return tensors if asked.ndim else _first(tensors)

    def _tensors(self, steps: StepTable) -> Tensors:
        extra = steps["extra_info"]
        values: JsonDict = {name: steps[name] for name in ("observation", "action", "reward", "next_observation")}
        values |= {name: extra[name].astype(bool) for name in ("terminated", "truncated")}
        if self._options is None:
            return _tensors(values)
        values |= {
            name: extra[name]
            for name in (*_MASKS, "future_observation", "behaviour_chunk", "discount")
            if name in extra
        }
        for name in _IMAGES:
            if name in extra:
                values |= {name: extra[name], f"{name}_mask": extra[f"{name}_mask"]}
        return {**_tensors(values), "task": self._tasks.take(extra["episode"]).tolist()}


def _divided(options: Options) -> tuple[JsonDict, JsonDict]:
    """Return the filters among options, and the others."""
    filters = {name: value for name, value in options.items() if name in FILTERS}
    return filters, {name: value for name, value in options.items() if name not in FILTERS}


def _tensors(values: Arrays) -> Tensors:
    return {
        k: _tensors(v) if isinstance(v, dict) else torch.from_numpy(np.ascontiguousarray(v)) for k, v in values.items()
    }


def _first(tensors: Tensors) -> Tensors:
    return {k: _first(v) if isinstance(v, dict) else v[0] for k, v in tensors.items()}


# -- A loader ------------------------------------------------------------------------------------------------


def make_loader(
    source: SourceData | Table,
    batch_size: int,
    options: Options | None = None,
    *,
    workers: int = 0,
    seed: int = 0,
    normalizer: Normalizer | None = None,
) -> DataLoader[Tensors]:
    """Return a `DataLoader` of shuffled batches, such as ACT and diffusion policies train on::

        loader = make_loader(open_source("my-set"), 32, {"chunk": 50, "images": {"layout": "chw", "next": False}})

    Args:
        source: recorded data. With workers it must come from `rlenv_robot.open_source`, so that they can open it
            themselves.
        batch_size: transitions in a batch; a last, smaller batch is dropped.
        options: as for `TransitionDataset`.
        workers: number of loading processes; 0 loads in this process.
        seed: seed of the shuffling.
        normalizer: applied to each batch.

    Raises:
        SourceError: as `TransitionDataset`.
    """
    dataset = TransitionDataset(source, options)
    return _Loader(
        dataset,
        sampler=_ShuffledBatches(len(dataset), batch_size, seed),
        batch_size=None,
        num_workers=workers,
        multiprocessing_context="spawn" if workers else None,  # a fork of threads that decode images would hang
        collate_fn=partial(_collated, normalizer),
        persistent_workers=workers > 0,
    )


class _ShuffledBatches(Sampler[np.ndarray]):
    """Yields the positions of batches, in another order in each epoch; a last, smaller batch is left out."""

    def __init__(self, count: int, size: int, seed: int) -> None:
        self._count, self._size, self._seed, self._epoch = count, size, seed, 0

    def __len__(self) -> int:
        return self._count // self._size

    def __iter__(self) -> Iterator[np.ndarray]:
        order = Shuffle(self._count, (self._seed, self._epoch))
        self._epoch += 1
        block = max(_BLOCK // self._size, 1) * self._size
        for begin in range(0, len(self) * self._size, block):
            positions = order.at(begin, min(begin + block, len(self) * self._size))
            yield from positions.reshape(-1, self._size)


class _Loader(DataLoader["Tensors"]):
    """Loads batches; in this process without what PyTorch's own iterator does beside it, a third of the time."""

    def __iter__(self) -> Iterator[Tensors]:
        if self.num_workers:
            yield from super().__iter__()
            return
        for positions in self.sampler:
            yield self.collate_fn(self.dataset[positions])


def _collated(normalizer: Normalizer | None, batch: Tensors) -> Tensors:
    """Return a batch as it is, or normalised; PyTorch's own function looks at every text of it."""
    return batch if normalizer is None else normalizer(batch)


# -- Normalisation -------------------------------------------------------------------------------------------


class Normalizer:
    """Normalise observations, actions and images to mean 0 and standard deviation 1, and convert actions back.

    Args:
        mean: ``observation``, ``action`` and ``images`` -> name -> float32 array. For images it is (3,), one value for
            each channel in the range 0 to 1.
        std: arrays of the same names and shapes.
    """

    LEAST = 1e-6
    """Lower bound of the standard deviation in divisions; a constant element becomes 0."""

    def __init__(
        self, mean: Mapping[str, Mapping[str, np.ndarray]], std: Mapping[str, Mapping[str, np.ndarray]]
    ) -> None:
        self.mean, self.std = (
            {part: {name: torch.from_numpy(np.asarray(v, np.float32)) for name, v in values.items()}
             for part, values in some.items()}
            for some in (mean, std)
        )  # fmt: skip

    @staticmethod
    def of(source: SourceData, options: Options | None = None, seed: int = 0) -> Normalizer:
        """Return the normaliser that recorded data give.

        Args:
            source: the data.
            options: filters and ``images`` as for training; image statistics come from 256 frames.
            seed: seed of the drawn frames.

        Raises:
            SourceError: an option is wrong, or no transition passes the filters.
        """
        filters, wider = _divided(options or {})
        positions = source.positions(filters)
        transitions, layout = source.transitions, source.table.layout
        sums: dict[str, dict[str, _Moments]] = {
            part: {field.name: _Moments(field.shape) for field in spec}
            for part, spec in (("observation", layout.observation), ("action", layout.action))
        }
        for begin in range(0, len(positions), 1 << 16):
            some = positions[begin : begin + (1 << 16)]
            for part, rows in (("observation", transitions.rows(some)), ("action", transitions.next_rows(some))):
                for name, moments in sums[part].items():
                    moments.add(rows[f"{part}_{name}"])
        if "images" in wider:
            drawn = np.random.default_rng(seed).choice(
                positions, min(len(positions), _STATISTICS_FRAMES), replace=False
            )
            sums["images"] = _image_moments(source, np.sort(drawn), {"images": wider["images"]})
        parts = {part: {name: moments.result() for name, moments in values.items()} for part, values in sums.items()}
        mean, std = ({part: {name: both[k] for name, both in v.items()} for part, v in parts.items()} for k in (0, 1))
        return Normalizer(mean, std)

    def __call__(self, batch: Tensors) -> Tensors:
        """Return a batch with normalised fields; images become float32, with their channels where they were."""
        result = dict(batch)
        for name in ("observation", "next_observation", "future_observation"):
            if name in batch:
                result[name] = self._scaled(batch[name], "observation")
        result["action"] = self._scaled(batch["action"], "action")
        for name in _IMAGES:
            if name in batch and "images" in self.mean:
                result[name] = {camera: self._image(camera, value) for camera, value in batch[name].items()}
        return result

    def _scaled(self, fields: Tensors, part: str) -> Tensors:
        return {
            name: (value.float() - self.mean[part][name]) / self.std[part][name].clamp(min=self.LEAST)
            for name, value in fields.items()
        }

    def _image(self, camera: str, value: torch.Tensor) -> torch.Tensor:
        shape = (3, 1, 1) if value.shape[-3] == 3 else (3,)
        mean, std = (some["images"][camera].view(shape) for some in (self.mean, self.std))
        return (value.float() / 255 - mean) / std.clamp(min=self.LEAST)

    def actions(self, normalized: Tensors) -> Tensors:
        """Convert normalised actions, name -> (..., *shape), back to their units."""
        part = "action"
        return {
            name: value * self.std[part][name].clamp(min=self.LEAST) + self.mean[part][name]
            for name, value in normalized.items()
        }


class _Moments:
    """Mean and standard deviation of values that come in blocks (Chan, Golub, LeVeque 1983)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._count = 0
        self._mean, self._squares = np.zeros(shape), np.zeros(shape)

    def add(self, values: np.ndarray) -> None:
        block = values.astype(np.float64)
        count, mean = len(block), block.mean(0)
        gap, total = mean - self._mean, self._count + count
        self._squares += np.square(block - mean).sum(0) + np.square(gap) * (self._count * count / total)
        self._mean = self._mean + gap * (count / total)
        self._count = total

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        return self._mean, np.sqrt(self._squares / max(self._count, 1))


def _image_moments(source: SourceData, positions: np.ndarray, options: Options) -> dict[str, _Moments]:
    moments: dict[str, _Moments] = {}
    for begin in range(0, len(positions), 16):
        images = source.steps_at(positions[begin : begin + 16], options)["extra_info"]["images"]
        for camera, values in images.items():
            channels = np.moveaxis(values, -3, -1) if values.shape[-3] == 3 else values
            moments.setdefault(camera, _Moments((3,))).add(channels.reshape(-1, 3) / 255)
    return moments
