"""Describe what is wrong with the form of a robot's states: their parts, dtypes, ages, images and faults."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from hal import Fault, IllegalAction, Image, RobotSpec, RobotState, Spec
from rlenv_kit.report import Failed

__all__ = ["IMAGE_AGE_S", "age_problem", "check_image", "check_parts", "state_problem"]

IMAGE_AGE_S = 2.0
"""Oldest image that counts as live."""

_MAGIC = {"jpeg": b"\xff\xd8", "png": b"\x89PNG"}


def state_problem(
    spec: RobotSpec,
    robot_state: RobotState,
    streams: Collection[str],
    tolerated: str = "",
    seen: Collection[str] | None = None,
) -> str:
    """Describe what is wrong with any state of a run; empty if nothing is.

    Args:
        spec: the spec of the robot.
        robot_state: the state.
        streams: the names of the robot's streams.
        tolerated: ``range`` where a jump may leave the sensors' ranges, ``age`` where samples grow old between steps.
        seen: cameras of which an earlier state had an image; None for all. The very first image of a camera may be
            newer than its state, since a reset waits for it.
    """
    stamp_ns = robot_state.stamp_ns
    if not isinstance(stamp_ns, int | np.integer) or isinstance(stamp_ns, bool):
        return f"stamp_ns is a {type(stamp_ns).__name__}; it must be whole nanoseconds"
    try:
        check_parts(spec, robot_state, streams, with_ages=tolerated != "age")
        for name, image in robot_state.images.items():
            camera = next(camera for camera in spec.cameras if camera.name == name)
            size, is_first = (camera.height, camera.width), seen is not None and name not in seen
            check_image(f"image {name!r}", image, size, robot_state.stamp_ns, decoded=False, is_first=is_first)
        for part, fields in ((robot_state.sensors, spec.sensors), (robot_state.applied, spec.commands)):
            _check_dtypes(part, fields)
            fields.validate(part)
    except IllegalAction as wrong:
        return "" if tolerated == "range" and wrong.violation.code == "range" else str(wrong)
    except Failed as wrong:
        return str(wrong)
    return ""


def _check_dtypes(part: Mapping[str, object], fields: Spec) -> None:
    for field in fields:
        value = part.get(field.name)
        if isinstance(value, np.ndarray) and not field.is_text and value.dtype != field.numpy_dtype:
            raise Failed(f"{field.name} is of {value.dtype}", f"it must be an array of {field.dtype}")


def _problems(spec: RobotSpec, robot_state: RobotState, streams: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the parts of a state that a robot may leave out, and what is allowed."""
    unknown = set(robot_state.images) - {camera.name for camera in spec.cameras}
    if unknown:
        yield f"images are of {sorted(unknown)}", "only cameras of the spec give images"
    if not isinstance(robot_state.faults, tuple) or not all(isinstance(fault, Fault) for fault in robot_state.faults):
        yield f"faults are {robot_state.faults!r}", "they must be a tuple of hal.Fault(code, subject, message)"
    for fault in robot_state.faults:
        if not all(isinstance(text, str) for text in (fault.code, fault.subject, fault.message)) or not fault.message:
            yield f"a fault is {fault!r}", "code, subject and message are texts, and the message says what is wrong"
    unknown = set(robot_state.used) - set(streams)
    if unknown:
        yield f"used names {sorted(unknown)}", "only streams that the robot offers are used"


def check_parts(spec: RobotSpec, robot_state: RobotState, streams: Collection[str], with_ages: bool = True) -> None:
    """Check the parts of a state that a robot may leave out.

    Args:
        spec: the spec of the robot.
        robot_state: the state.
        streams: the names of the robot's streams.
        with_ages: whether samples must not exceed ``spec.max_age_s``.

    Raises:
        Failed: a part is wrong.
    """
    for part in ("age_ns", "images", "used"):
        if not isinstance(getattr(robot_state, part), Mapping):
            raise Failed(f"{part} is a {type(getattr(robot_state, part)).__name__}", "it must be a mapping")
    unknown = robot_state.age_ns.keys() - set(spec.sensors.names)
    if unknown:
        raise Failed(f"age_ns names {sorted(unknown)}", f"the sensors are {', '.join(spec.sensors.names)}")
    age = age_problem(spec, robot_state) if with_ages else ""
    if age:
        raise Failed(age)
    for found, allowed in _problems(spec, robot_state, streams):
        raise Failed(found, allowed)


def age_problem(spec: RobotSpec, robot_state: RobotState) -> str:
    """Describe what is wrong with the sample ages in a state; empty if nothing is."""
    for sensor, age in robot_state.age_ns.items():
        if not isinstance(age, int | np.integer) or isinstance(age, bool):
            return f"age_ns of {sensor} is {age!r}; it must be whole nanoseconds"
        if age < 0:
            return f"age_ns of {sensor} is {age}; an age can't be negative"
        allowed = spec.max_age_s.get(sensor)
        if allowed is not None and age > allowed * 1e9:
            return f"{sensor} is {age / 1e9:.4g} s old; max_age_s allows {allowed:g} s, and a step raises then"
    return ""


def check_image(
    what: str, image: object, size: tuple[int, int], stamp_ns: int, decoded: bool = True, is_first: bool = False
) -> None:
    """Check the form, the size and the age of an image.

    Args:
        what: the image, for the message.
        image: the image.
        size: its rows and columns by the spec.
        stamp_ns: the stamp of its state.
        decoded: whether an encoded image is decoded to see its size.
        is_first: whether it is the first image of its camera, which may be newer than its state.

    Raises:
        Failed: the image is wrong.
    """
    if not isinstance(image, Image):
        raise Failed(f"{what} is a {type(image).__name__}", "it must be a hal.Image")
    if image.encoding not in ("rgb8", "jpeg", "png"):
        raise Failed(f"{what} has the encoding {image.encoding!r}", "allowed are rgb8, jpeg and png")
    if image.encoding == "rgb8":
        data = image.data
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (*size, 3):
            shape = f"{data.dtype}{list(data.shape)}" if isinstance(data, np.ndarray) else type(data).__name__
            raise Failed(f"{what} is {shape}", f"the spec's camera gives uint8{[*size, 3]}")
    else:
        data = image.data.tobytes() if isinstance(image.data, np.ndarray) else image.data
        if not isinstance(data, bytes | bytearray | memoryview) or not bytes(data[:4]).startswith(
            _MAGIC[image.encoding]
        ):
            raise Failed(f"{what} does not begin as a {image.encoding} file does", "its bytes are of its encoding")
        rows_and_columns = _decoded_size(bytes(data)) if decoded else None
        if rows_and_columns not in (None, size):
            raise Failed(f"{what} has {rows_and_columns} rows and columns", f"the spec's camera has {size}")
    if not isinstance(image.stamp_ns, int | np.integer):
        raise Failed(f"{what} has the stamp {image.stamp_ns!r}", "it must be whole nanoseconds")
    age_s = (stamp_ns - image.stamp_ns) / 1e9
    if age_s < (-IMAGE_AGE_S if is_first else 0):
        raise Failed(f"{what} was taken {-age_s:.3g} s after its state", "an image is not from the future")
    if decoded and age_s > IMAGE_AGE_S:
        raise Failed(f"{what} is {age_s:.3g} s old", f"a live image is at most {IMAGE_AGE_S:g} s old")


def _decoded_size(data: bytes) -> tuple[int, int] | None:
    """Return rows and columns of an encoded image; None where nothing here can decode it."""
    try:
        import cv2
    except ImportError:
        return None
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    if image is None:
        raise Failed("an image can't be decoded")
    return int(image.shape[0]), int(image.shape[1])
