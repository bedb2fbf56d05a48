"""Load windows of observations and chunks of actions from any recorded set, and measure its normaliser."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from hal import Field, LogError, SourceError, Spec
from recorder.images.sources import ImageSources
from recorder.table.memory import RowSpool
from rlenv_learn.imitation.chunk_network import Scaling
from rlenv_learn.imitation.demonstrations import INTENDED
from rlenv_learn.imitation.set_fields import SetFields
from rlenv_robot.source import SourceData

__all__ = [
    "CAMERA", "SetBatch", "SetWindows", "camera_field_name", "camera_fields", "choose_anchors", "chosen_fields",
    "load_frames",
]  # fmt: skip

CAMERA = "_image"
"""End of the name of a camera's field, as in tasks with images."""

_BLOCK, _DECODED = 4096, 32
"""Windows, and images, that are read at once."""
_EXPLAINED = 0.25
"""Largest share of an action's variance that is left after subtracting a field from which it may be counted."""


class SetBatch(NamedTuple):
    """A batch of windows.

    Attributes:
        observation: name -> (B, H, ...), images included.
        action: name -> (B, K, ...).
        mask: bool (B, K), False for steps beyond the end of an episode.
    """

    observation: dict[str, torch.Tensor]
    action: dict[str, torch.Tensor]
    mask: torch.Tensor


# -- The fields of a set ---------------------------------------------------------------------------------------


def chosen_fields(source: SourceData, names: Sequence[str] | None) -> tuple[tuple[Field, ...], Spec]:
    """Return the numeric observation fields that a policy observes, and the spec of its action.

    Args:
        source: the set.
        names: the fields; None for all that are numbers.

    Raises:
        SourceError: the set has no actions, or a field is unknown, or not of numbers.
    """
    layout, origin = source.table.layout, source.table.origin
    if not len(layout.action):
        raise SourceError(f"{origin} has no actions, so there is nothing to imitate; name their columns with --columns")
    unfit = [field.name for field in layout.action if not _is_number(field)]
    if unfit:
        raise SourceError(f"the action {unfit[0]!r} is not of numbers, and imitation predicts numbers")
    numbers = {field.name: field for field in layout.observation if _is_number(field)}
    if names is None:
        return tuple(numbers.values()), layout.action
    unknown = [name for name in names if name not in numbers]
    if unknown:
        raise SourceError(
            f"there is no observation {unknown[0]!r} of numbers, allowed are {', '.join(numbers) or 'none'}"
        )
    return tuple(numbers[name] for name in names), layout.action


def _is_number(field: Field) -> bool:
    return not (field.is_text or field.is_image or field.counted_by)


def camera_fields(source: SourceData, cameras: Sequence[str] | None) -> dict[str, Field]:
    """Return camera -> its image field, in the size of its images.

    Args:
        source: the set.
        cameras: their names; None for all.

    Raises:
        SourceError: a camera is unknown, or its images can't be decoded.
    """
    recorded = {field.name.removesuffix(CAMERA): field for field in source.table.layout.observation if field.is_image}
    filmed = ImageSources(source.table).cameras()
    known = [*recorded, *(name for name in filmed if name not in recorded)]
    unknown = [name for name in cameras or () if name not in known]
    if unknown:
        reason = f"{source.table.origin} has {', '.join(known) or 'no images that can be read'}"
        raise SourceError(f"there is no camera {unknown[0]!r}: {reason}; --cameras none goes on without images")
    return {name: recorded.get(name) or _filmed(source, name) for name in (known if cameras is None else cameras)}


def _filmed(source: SourceData, camera: str) -> Field:
    shape = _decoded(source, np.zeros(1, np.int64), camera)[0].shape[1:]
    return Field(camera_field_name(camera), shape, "uint8", 0, 255, meaning=f"image of the camera {camera}")


def camera_field_name(camera: str) -> str:
    """Return the name of the field of a camera's images, such as ``top_image`` or ``observation_image``."""
    name = "_".join("".join(c if c.isalnum() else " " for c in camera.lower()).split()) or "camera"
    return name.removesuffix(CAMERA) + CAMERA


def _decoded(source: SourceData, positions: np.ndarray, camera: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        extra = source.steps_at(positions, {"images": {"cameras": [camera], "next": False}})["extra_info"]
    except (LogError, SourceError, OSError, ValueError) as error:
        raise SourceError(
            f"the images of camera {camera!r} can't be decoded: {error}; name the others with --cameras, or none"
        ) from error
    return extra["images"][camera], extra["images_mask"][camera]


def load_frames(
    source: SourceData, fields: SetFields, cameras: Mapping[str, str], progress: Callable[[int, int], None]
) -> dict[str, np.ndarray]:
    """Decode all images once, reduced to the size of the training: image field -> uint8 (N, height, width, 3).

    Args:
        source: the set.
        fields: its fields. Images that lie in the rows are not decoded, and missing here.
        cameras: image field -> its camera.
        progress: called with the number of frames so far and in all.

    Raises:
        SourceError: a camera's images can't be decoded, or all are missing.
    """
    rows = source.table.layout.observation
    frames, total = {}, len(source)
    jobs = [(cameras[field.name], field) for field in fields.images if field.name not in rows]
    for number, (camera, field) in enumerate(jobs):
        reduction, seen = fields.reductions[field.name], 0
        spool = RowSpool(np.dtype((np.void, 3 * reduction.size[0] * reduction.size[1])))
        for begin in range(0, total, _DECODED):
            images, mask = _decoded(source, np.arange(begin, min(begin + _DECODED, total)), camera)
            tensor = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
            small = reduction(tensor).permute(0, 2, 3, 1).to(torch.uint8).numpy()
            spool.add(np.ascontiguousarray(small).reshape(len(small), -1).view(_spool_type(small)).reshape(-1))
            seen += int(mask.sum())
            progress(number * total + begin, len(jobs) * total)
        if not seen:
            raise SourceError(f"not one image of camera {camera!r} can be decoded; leave it out with --cameras")
        frames[field.name] = spool.rows().view(np.uint8).reshape(total, *reduction.size, 3)
    return frames


def _spool_type(images: np.ndarray) -> np.dtype:
    """Return the type of one image as a row of bytes."""
    return np.dtype((np.void, int(np.prod(images.shape[1:]))))


# -- Windows ---------------------------------------------------------------------------------------------------


class SetWindows:
    """The windows of some episodes.

    Args:
        source: the set.
        fields: its fields.
        episodes: indices of the episodes.
        frames: decoded images (`load_frames`).

    Attributes:
        positions: position of each window in the source, (N,).

    Raises:
        SourceError: the chunk is longer than every episode.
    """

    def __init__(
        self, source: SourceData, fields: SetFields, episodes: Sequence[int], frames: Mapping[str, np.ndarray]
    ) -> None:
        self._source, self.fields, self._frames = source, fields, frames
        self.positions = source.positions({"episodes": list(episodes)})
        longest = int(source.transitions.lengths[list(episodes)].max())
        length = fields.execution.length
        if length > longest:
            raise SourceError(
                f"a chunk has {length} actions, and the longest episode has {longest}; give a smaller --chunk"
            )
        self._options = {"stack": fields.execution.history, "chunk": length}

    def __len__(self) -> int:
        return len(self.positions)

    def at(self, numbers: np.ndarray, images: bool = True) -> SetBatch:
        """Return the windows of some numbers from 0 to N - 1.

        Args:
            numbers: (B,).
            images: whether to load images too.
        """
        positions = self.positions[numbers]
        steps = self._source.steps_at(positions, self._options)
        extra = steps["extra_info"]
        wanted = [field.name for field in (self.fields.observation if images else self.fields.numbers)]
        observation = {name: steps["observation"][name] for name in wanted if name in steps["observation"]}
        if images and self._frames:
            back = np.arange(1 - self.fields.execution.history, 1)
            begin, _ = self._source.transitions.spans(positions)
            past = np.maximum(positions[:, None] + back, begin[:, None])
            observation |= {name: frames[past] for name, frames in self._frames.items()}
        intended = extra.get("behaviour_chunk", {})
        action = {name: intended.get(INTENDED + name, value) for name, value in steps["action"].items()}
        return SetBatch(_tensors(observation), _tensors(action), torch.from_numpy(extra["chunk_mask"]))

    def blocks(self) -> Iterator[tuple[np.ndarray, SetBatch]]:
        """Yield all windows in blocks without images, each with its numbers."""
        for begin in range(0, len(self), _BLOCK):
            numbers = np.arange(begin, min(begin + _BLOCK, len(self)))
            yield numbers, self.at(numbers, images=False)

    def measure(self, by: Scaling) -> None:
        """Set the scales of the fields from all windows.

        Args:
            by: how actions are scaled: the network's ``SCALING``.

        Raises:
            SourceError: a value is not finite.
        """
        observed, moved, acted = _Figures(), _Figures(), _Figures()
        for numbers, batch in self.blocks():
            self._check_finite(numbers, batch)
            if self.fields.numbers:
                value = self.fields.joined(batch.observation)
                observed.add(value[:, -1])
                moved.add((value - value[:, -1:]).flatten(0, 1))
            acted.add(self.fields.relative(batch.observation, batch.action))
        if self.fields.numbers:
            self.fields.normalise(observed.low, observed.high, moved.deviation)
        if by == "range":
            self.fields.scale_actions((acted.low + acted.high) / 2, (acted.high - acted.low) / 2)
        else:
            self.fields.scale_actions(acted.mean, acted.deviation)

    def _check_finite(self, numbers: np.ndarray, batch: SetBatch) -> None:
        for part, values in (("observation", batch.observation), ("action", batch.action)):
            for name, value in values.items():
                wrong = ~torch.isfinite(value.float()).flatten(1).all(1)
                if wrong.any():
                    first = self.positions[numbers[int(wrong.int().argmax())]]
                    episode = int(self._source.transitions.episodes(np.array([first]))[0])
                    advice = "leave the field out with --observation, or " if part == "observation" else ""
                    raise SourceError(
                        f"{part} {name!r} is not finite in episode {episode} of {self._source.table.origin}; {advice}"
                        "choose other episodes with --episodes"
                    )


class _Figures:
    """Smallest and largest value, mean and standard deviation along the first axis of blocks."""

    def __init__(self) -> None:
        self._count, self._sum, self._squares = 0, torch.zeros(()).double(), torch.zeros(()).double()

    def add(self, block: torch.Tensor) -> None:
        low, high, wide = block.amin(0), block.amax(0), block.double()
        if not self._count:
            self.low, self.high, self._origin = low, high, wide[0]
        self.low, self.high = torch.minimum(self.low, low), torch.maximum(self.high, high)
        self._count += len(block)
        self._sum = self._sum + (wide - self._origin).sum(0)
        self._squares = self._squares + (wide - self._origin).square().sum(0)

    @property
    def mean(self) -> torch.Tensor:
        return (self._origin + self._sum / self._count).float()

    @property
    def deviation(self) -> torch.Tensor:
        return (self._squares / self._count - (self._sum / self._count) ** 2).clamp(min=0).sqrt().float()


def _tensors(values: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in values.items()}


def choose_anchors(
    source: SourceData, numbers: Sequence[Field], action: Spec, episodes: Sequence[int]
) -> dict[str, str]:
    """Return action field -> the observed field from which the action is counted: the one that explains most of it.

    Where an observed field of the same shape leaves at most a quarter of the action's variance, such as a measured
    position of a position goal, the difference is easier to learn than the value.

    Args:
        source: the set.
        numbers: the observed fields.
        action: the spec of the action.
        episodes: indices of the training's episodes.
    """
    positions = source.positions({"episodes": list(episodes)})
    drawn = positions[:: max(1, len(positions) // 20_000)]
    seen, taken = source.transitions.rows(drawn), source.transitions.next_rows(drawn)
    anchors = {}
    for field in action:
        value = np.asarray(taken[f"action_{field.name}"], np.float64)
        left = {
            other.name: (value - seen[f"observation_{other.name}"]).var(0).sum()
            for other in numbers
            if other.shape == field.shape and other.unit == field.unit
        }
        best = min(left, key=lambda name: left[name], default=None)
        if best is not None and left[best] <= _EXPLAINED * value.var(0).sum():
            anchors[field.name] = best
    return anchors
