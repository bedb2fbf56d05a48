"""Encode and decode the images of a log: JPEG or PNG bytes. OpenCV is imported only on use."""

from __future__ import annotations

from types import ModuleType

import numpy as np

from hal import Image, LogError

__all__ = ["check_image", "decode_bytes", "decoded", "encoded", "opencv"]

_QUALITY = 90
"""JPEG's quality, 0 to 100."""


def opencv(what: str) -> ModuleType:
    """Return the module cv2.

    Args:
        what: the purpose of OpenCV, as a clause for the message.

    Raises:
        LogError: OpenCV is not installed.
    """
    try:
        import cv2
    except ImportError:
        raise LogError(f"{what} needs OpenCV: pip install 'rlenv-robot[headless]', or [vision] with windows") from None
    return cv2


def check_image(image: Image, camera: str) -> int:
    """Check that an image can be recorded; return its size in bytes.

    Raises:
        LogError: the image can't be recorded, or OpenCV is needed and missing.
    """
    if isinstance(image.data, bytes):
        if image.encoding not in ("jpeg", "png"):
            raise LogError(f"camera {camera!r}: bytes encoded as {image.encoding!r}, expected jpeg or png")
        return len(image.data)
    pixels = image.data
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise LogError(
            f"camera {camera!r}: pixels of type {pixels.dtype} and shape {pixels.shape}, "
            "expected uint8 of shape (height, width, 3)"
        )
    opencv(f"recording the pixels of camera {camera!r} as JPEG")
    return pixels.nbytes


def encoded(image: Image, camera: str) -> Image:
    """Return the image as JPEG, or unchanged if it is encoded already. It must have passed `check_image`."""
    if isinstance(image.data, bytes):
        return image
    cv2 = opencv("JPEG")
    done, data = cv2.imencode(".jpg", image.data[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    if not done:
        raise LogError(f"camera {camera!r}: an image of shape {image.data.shape} could not be encoded as JPEG")
    return Image(data.tobytes(), "jpeg", image.stamp_ns)


def decoded(image: Image) -> np.ndarray:
    """Return an image's pixels, uint8 of shape (height, width, 3), RGB.

    Raises:
        LogError: the bytes are not an image, or OpenCV is missing.
    """
    if isinstance(image.data, np.ndarray):
        return image.data
    pixels = decode_bytes(image.data, True)
    if pixels is None:
        raise LogError(f"{len(image.data)} bytes of {image.encoding} are no image")
    return pixels


def decode_bytes(data: bytes | memoryview, rgb: bool) -> np.ndarray | None:
    """Decode JPEG or PNG bytes: uint8 of shape (height, width, 3), RGB or BGR; None if the bytes are not an image.

    Raises:
        LogError: OpenCV is missing.
    """
    cv2 = opencv("decoding images")
    direct = getattr(cv2, "IMREAD_COLOR_RGB", None)  # since OpenCV 4.11
    if not len(data):
        return None
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), direct if rgb and direct is not None else cv2.IMREAD_COLOR)
    if pixels is not None and rgb and direct is None:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)
    return None if pixels is None else np.asarray(pixels)
