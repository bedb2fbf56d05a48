"""Add the cameras' images to a batch's ``extra_info``, as in a live step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from hal import SourceError
from recorder.images.images import Images
from recorder.images.sources import ImageSources
from recorder.json_data import JsonDict
from recorder.table.transitions import Transitions
from rlenv_robot.data.frame_stack import Windows
from rlenv_robot.data.options import CheckedOptions
from rlenv_robot.tables import StepTable

__all__ = ["ImageChoice", "ImageLoader"]

_OPENED = 4
"""Choices whose decoded images are kept, each in a cache of its own."""


@dataclass(frozen=True)
class ImageChoice:
    """The checked value of the option ``images``.

    Attributes:
        cameras: their names; empty for all.
        crop: as for `recorder.images.images.Images`.
        size: as for `recorder.images.images.Images`.
        order: as for `recorder.images.images.Images`.
        layout: as for `recorder.images.images.Images`.
        cache_bytes: as for `recorder.images.images.Images`.
        how: as for `recorder.images.images.Images.at`.
        max_age_s: as for `recorder.images.images.Images.at`.
        stack: number of frames in a stack; None takes the batch's ``stack``.
        missing: ``mask`` returns a black image if there is none, ``error`` refuses the batch.
        next: whether to add images of the next observation too.
    """

    cameras: tuple[str, ...] = ()
    crop: tuple[int, int, int, int] | None = None
    size: tuple[int, int] | None = None
    order: str = "rgb"
    layout: str = "hwc"
    cache_bytes: int = 256 << 20
    how: str = "latest"
    max_age_s: float = np.inf
    stack: int | None = None
    missing: str = "mask"
    next: bool = True

    @staticmethod
    def of(value: object) -> ImageChoice:
        """Convert a checked value: True, names of cameras, or a mapping."""
        if value is True:
            return ImageChoice()
        settings: JsonDict = dict(value) if isinstance(value, Mapping) else {"cameras": value}
        if isinstance(settings.get("cameras"), str):
            settings["cameras"] = (settings["cameras"],)
        for name in ("cameras", "crop", "size"):
            if settings.get(name) is not None:
                settings[name] = tuple(settings[name])
        return ImageChoice(**{name: one for name, one in settings.items() if one is not None})

    @property
    def decoding(self) -> JsonDict:
        """Return the settings for `recorder.images.images.Images`."""
        names = ("crop", "size", "order", "layout", "cache_bytes")
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name in names}


class ImageLoader:
    """Load the images of batches.

    Args:
        transitions: the recorded transitions.
        windows: windows around the same transitions.
    """

    def __init__(self, transitions: Transitions, windows: Windows) -> None:
        self._transitions, self._windows = transitions, windows
        self._opened: dict[Hashable, Images] = {}

    @cached_property
    def _sources(self) -> ImageSources:
        return ImageSources(self._transitions.table)

    def add(self, table: StepTable, options: CheckedOptions) -> None:
        """Add the images of ``options["images"]`` to a batch's ``extra_info``.

        ``images`` and ``next_images``, and with the option ``future`` also ``future_images``: camera -> uint8 of shape
        (B, H, W, 3), or (B, k, H, W, 3) for a stack, oldest first, in which the first frame of an episode is repeated
        before its beginning. ``images_mask`` and so on: camera -> bool (B,) or (B, k), False if there is no image.

        Raises:
            SourceError: there are no images of a camera; sizes differ and none was given; or an image is missing and
                ``missing`` is ``error``.
            LogError: an image can't be decoded.
        """
        choice, extra = ImageChoice.of(options["images"]), table["extra_info"]
        index, stack = extra["index"], choice.stack or options.get("stack", 1)
        parts = {"images": self._windows.before(index, stack)}
        if choice.next:
            parts["next_images"] = self._windows.before(index, stack, extra["steps"])
        if "future" in options:
            parts["future_images"] = self._windows.after(index, options["future"])
        for name in parts:
            extra[name], extra[f"{name}_mask"] = {}, {}
        cameras = choice.cameras or self._sources.cameras()
        if not cameras:
            raise SourceError(f"images: {self._transitions.table.origin} has no images")
        for camera in cameras:
            for name, (images, mask) in self._decode(choice, camera, parts).items():
                extra[name][camera], extra[f"{name}_mask"][camera] = images, mask

    def _decode(
        self, choice: ImageChoice, camera: str, parts: Mapping[str, np.ndarray]
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return name -> images and mask for each part's row numbers, decoded all at once."""
        rows, places = _join_rows(parts)
        images, mask = self._images(choice).at(rows, camera, choice.how, choice.max_age_s)
        if choice.missing == "error" and not mask.all():
            self._refuse(rows[~mask], camera)
        decoded = {}
        for name, numbers in parts.items():
            shape = numbers.shape if numbers.ndim > 1 and numbers.shape[1] > 1 else numbers.shape[:1]
            part = places[name]
            decoded[name] = images[part].reshape(*shape, *images.shape[1:]), mask[part].reshape(shape)
        return decoded

    def _refuse(self, rows: np.ndarray, camera: str) -> None:
        row, starts = int(rows[0]), self._transitions.table.starts
        episode = int(np.searchsorted(starts, row, "right")) - 1
        raise SourceError(
            f"images: camera {camera!r} has no image of {len(rows)} of the frames that were drawn, such as frame "
            f'{row - int(starts[episode])} of episode {episode}; with "missing": "mask" they are black and masked'
        )

    def _images(self, choice: ImageChoice) -> Images:
        key = tuple(choice.decoding.items())
        if key not in self._opened:
            while len(self._opened) >= _OPENED:
                self._opened.pop(next(iter(self._opened))).close()
            self._opened[key] = Images(self._transitions.table, sources=self._sources, **choice.decoding)
        return self._opened[key]


def _join_rows(parts: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, slice]]:
    """Return all row numbers joined, and the slice of each part. A frame that two parts share comes once."""
    flat = {name: numbers.reshape(-1) for name, numbers in parts.items()}
    here, there = flat["images"], flat.get("next_images")
    if len(parts) == 2 and there is not None and (here[1:] == there[:-1]).all():
        return np.append(here, there[-1]), {"images": slice(0, len(here)), "next_images": slice(1, len(here) + 1)}
    stops = np.cumsum([len(numbers) for numbers in flat.values()]).tolist()
    places = {name: slice(stop - len(flat[name]), stop) for name, stop in zip(flat, stops, strict=True)}
    return np.concatenate(list(flat.values())), places
