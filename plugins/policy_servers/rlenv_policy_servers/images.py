"""Change images to the size, axes and type that a policy server expects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hal import RobotError

__all__ = ["changed_image", "resized", "restored_image"]


def changed_image(image: np.ndarray, size: Sequence[int], pad: bool, layout: str, dtype: str) -> np.ndarray:
    """Return an image as a server expects it.

    Args:
        image: uint8, shape (height, width, 3), RGB.
        size: height and width of the result, pixels; empty keeps the size.
        pad: whether the image keeps its proportions, with black bars.
        layout: ``hwc``, or ``chw`` for (3, height, width).
        dtype: ``float32`` for 0 to 1; otherwise uint8.

    Raises:
        RobotError: the image has to be resized, and Pillow is missing.
    """
    changed = resized(image, size[0], size[1], pad) if size else image
    changed = np.moveaxis(changed, -1, 0) if layout == "chw" else changed
    return np.ascontiguousarray(changed.astype(np.float32) / 255 if dtype == "float32" else changed)


def restored_image(image: np.ndarray, layout: str, dtype: str) -> np.ndarray:
    """Return the image of `changed_image` in its own size, uint8 (height, width, 3).

    Raises:
        RobotError: a number of a ``float32`` image is not between 0 and 1.
    """
    restored = np.moveaxis(image, 0, -1) if layout == "chw" and image.ndim == 3 else image
    if dtype != "float32":
        return np.ascontiguousarray(restored)
    if not ((restored >= 0) & (restored <= 1)).all():  # False for NaN too
        raise RobotError("an image of float32 has a number that is not between 0 and 1")
    return np.ascontiguousarray(np.rint(restored * 255).astype(np.uint8))


def resized(image: np.ndarray, height: int, width: int, pad: bool) -> np.ndarray:
    """Resize an image as ``openpi_client.image_tools.resize_with_pad`` does, or stretch it.

    The interpolation is Pillow's bilinear one, which models were trained with. The tests compare the bytes with those
    of openpi-client 0.1.2.

    Raises:
        RobotError: Pillow is missing.
    """
    if image.shape[:2] == (height, width):
        return image
    try:
        from PIL import Image
    except ImportError as error:
        raise RobotError("resizing images needs Pillow: pip install 'rlenv-robot[policy-servers]'") from error
    if not pad:
        return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    ratio = max(image.shape[1] / width, image.shape[0] / height)
    inner_height, inner_width = int(image.shape[0] / ratio), int(image.shape[1] / ratio)
    inner = np.asarray(Image.fromarray(image).resize((inner_width, inner_height), Image.Resampling.BILINEAR))
    padded = np.zeros((height, width, 3), np.uint8)
    top, left = int((height - inner_height) / 2), int((width - inner_width) / 2)
    padded[top : top + inner_height, left : left + inner_width] = inner
    return padded
