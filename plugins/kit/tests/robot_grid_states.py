"""Cells of the grid of faults: readings, stamps, ages, images, and motion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hal import Fault, Image, RobotState
from plugins.kit.tests.robot_bench import BENCHES, PERIOD_NS, Bench, Change, Row, Wagon, after

# -- readings ------------------------------------------------------------------------------------------------------


def _entry(part: str, name: str, change: Callable[[Bench, np.ndarray], Any]) -> Change:
    def changed(robot: Bench, right: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        values = right()
        return {**values, name: change(robot, values[name])}

    return changed


def _without(name: str) -> Change:
    return after(lambda robot, values: {key: value for key, value in values.items() if key != name})


def _live(part: str, name: str) -> Change:
    """Return one array for ever, and write each new value into it."""

    def changed(robot: Any, right: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        values = right()
        buffers = robot.__dict__.setdefault("buffers", {})
        buffer = buffers.setdefault((part, name), values[name].copy())
        buffer[...] = values[name]
        return {**values, name: buffer}

    return changed


def _kept(part: str, name: str, age: int) -> Change:
    """Return the value of some ticks before; with an age beyond the run, the first value for ever."""

    def changed(robot: Any, right: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        values = right()
        line = robot.__dict__.setdefault("lines", {}).setdefault((part, name), [])
        line.append((robot.ticks, values[name].copy()))
        return {**values, name: next((value for ticks, value in reversed(line) if ticks <= robot.ticks - age),
                                     line[0][1])}  # fmt: skip

    return changed


def _last(change: Callable[[Any, Any], Any]) -> Callable[[Bench, np.ndarray], np.ndarray]:
    """Change the last element alone."""

    def changed(robot: Bench, value: np.ndarray) -> np.ndarray:
        value = np.array(value)
        value[..., -1] = change(robot, value)[..., -1]
        return value

    return changed


FORMS: dict[str, Callable[[Bench, np.ndarray], Any]] = {
    "None": lambda robot, value: None,
    "of another dtype": lambda robot, value: value.astype(np.float64 if value.dtype != np.float64 else np.float32),
    "of objects": lambda robot, value: value.astype(object),
    "with an axis more": lambda robot, value: value[None],
    "as text": lambda robot, value: value.astype(str),
}
NUMBERS: dict[str, Callable[[Bench, np.ndarray], Any]] = {
    "NaN": lambda robot, value: np.full_like(value, np.nan),
    "infinite": lambda robot, value: np.full_like(value, np.inf),
    "beyond the range": lambda robot, value: np.full_like(value, 3e7),
}


def _values(span: float) -> dict[str, Callable[[Bench, np.ndarray], Any]]:
    return {
        "negated": lambda robot, value: (-value).astype(value.dtype),
        "doubled": lambda robot, value: (2 * value).astype(value.dtype),
        "halved": lambda robot, value: (0.5 * value).astype(value.dtype),
        "in thousandths": lambda robot, value: (value / 1000).astype(value.dtype),
        "in degrees": lambda robot, value: np.rad2deg(value).astype(value.dtype),
        "with an offset": lambda robot, value: (value + 0.15 * span).astype(value.dtype),
        "in another order": lambda robot, value: value[::-1].copy(),
        "zero": lambda robot, value: np.zeros_like(value),
        "the last negated": _last(lambda robot, value: -value),
        "the last halved": _last(lambda robot, value: value / 2),
        "the last with an offset": _last(lambda robot, value: value + 0.15 * span),
        "the last as the first": _last(lambda robot, value: value[::-1]),
        "the last zero": _last(lambda robot, value: 0 * value),
    }


def reading_cells() -> Iterator[Row]:
    """Yield base, part, way, method and change."""
    for base in BENCHES:
        parts = [("sensors", field) for field in base.spec.sensors] + [
            ("applied", field) for field in base.spec.commands
        ]
        measured = set(base.spec.measured_by.values())
        rates = {"angle_rate", "wheel_place", "press_speed"}
        for part, field in parts:
            where = f"{part}.{field.name}"
            yield base, where, "missing", part, _without(field.name)
            yield base, where, "live", part, _live(part, field.name)
            for way, change in FORMS.items():
                yield base, where, way, part, _entry(part, field.name, change)
            if field.numpy_dtype.kind == "f":
                for way, change in NUMBERS.items():
                    yield base, where, way, part, _entry(part, field.name, change)
            if part == "sensors" and field.name not in measured | rates:
                continue
            yield base, where, "frozen", part, _kept(part, field.name, 10**6)
            yield base, where, "five ticks old", part, _kept(part, field.name, 5)
            if part == "applied":
                yield base, where, "one tick old", part, _kept(part, field.name, 1)
            span = float(np.max(np.subtract(*field.bounds[::-1]))) if np.max(field.bounds[1]) < 100 else 10.0
            for way, change in _values(span).items():
                if field.shape and field.numpy_dtype.kind == "f":
                    yield base, where, way, part, _entry(part, field.name, change)
        yield (
            base,
            "sensors",
            "with an unknown one",
            "sensors",
            after(lambda robot, values: {**values, "x": np.zeros(2)}),
        )
        yield (
            base,
            "applied",
            "with an unknown one",
            "applied",
            after(lambda robot, values: {**values, "x": np.zeros(2)}),
        )
        for part in ("sensors", "applied"):
            yield base, part, "a list", part, after(lambda robot, values: list(values.values()))
            yield base, part, "None", part, after(lambda robot, values: None)


def meta_cells() -> Iterator[Row]:
    """Yield cells of stamps, ages, images and faults."""
    stamps: dict[str, Callable[[Any, int], Any]] = {
        "a float": lambda robot, at: float(at),
        "seconds": lambda robot, at: at / 1e9,
        "milliseconds": lambda robot, at: at // 1_000_000,
        "None": lambda robot, at: None,
        "stands": lambda robot, at: robot.before.stamp_ns if robot.before is not None else at,
        "falls": lambda robot, at: at - 50 * PERIOD_NS,
        "a period behind": lambda robot, at: at - PERIOD_NS,
        "time of day": lambda robot, at: time.time_ns(),
        "runs twice as fast": lambda robot, at: 2 * at,
    }
    for way, change in stamps.items():
        yield Bench, "stamp", way, "stamp", after(change)
    ages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
        "negative": lambda robot, ages: {**ages, "current": -5},
        "a float": lambda robot, ages: {**ages, "current": 0.01},
        "none": lambda robot, ages: {},
        "older than allowed": lambda robot, ages: {**ages, "angle": 70_000_000},
        "of an unknown sensor": lambda robot, ages: {**ages, "smell": 0},
        "of a sample before": lambda robot, ages: {**ages, "angle": robot.ticks % 2 * 2 * PERIOD_NS},
        "growing": lambda robot, ages: {**ages, "angle": min(robot.frame, 4) * 12_000_000},
        "None": lambda robot, ages: None,
    }
    for way, change in ages.items():
        yield Bench, "ages", way, "ages", after(change)
    images: dict[str, Callable[[Any, Image], Any]] = {
        "of the future": lambda robot, image: image._replace(stamp_ns=image.stamp_ns + 4 * PERIOD_NS),
        "old": lambda robot, image: image._replace(stamp_ns=image.stamp_ns - 4 * 10**9),
        "of a wrong size": lambda robot, image: image._replace(data=image.data[:-1]),
        "of one channel": lambda robot, image: image._replace(data=image.data[..., 0]),
        "channels first": lambda robot, image: image._replace(data=image.data.transpose(2, 0, 1)),
        "of floats": lambda robot, image: image._replace(data=image.data / np.float32(255)),
        "called jpeg": lambda robot, image: image._replace(encoding="jpeg"),
        "called bgr8": lambda robot, image: image._replace(encoding="bgr8"),
        "a bare array": lambda robot, image: image.data,
        "None": lambda robot, image: None,
        "all alike": lambda robot, image: image._replace(data=np.full_like(image.data, 9)),
        "of float stamps": lambda robot, image: image._replace(stamp_ns=image.stamp_ns / 1.0),
        "with the state's stamp": lambda robot, image: image._replace(stamp_ns=robot.ticks * PERIOD_NS),
        "of one stamp": lambda robot, image: image._replace(stamp_ns=PERIOD_NS * 51),
    }
    for way, change in images.items():
        yield (
            Bench,
            "image",
            way,
            "images",
            after(lambda robot, images, change=change: {"top": change(robot, images["top"])}),
        )
    yield Bench, "image", "missing", "images", after(lambda robot, images: {})
    yield (
        Bench,
        "image",
        "of an unknown camera",
        "images",
        after(lambda robot, images: {**images, "side": images["top"]}),
    )

    def live(robot: Any, images: dict[str, Image]) -> dict[str, Image]:
        buffer = robot.__dict__.setdefault("film", np.array(images["top"].data))
        buffer[...] = images["top"].data
        return {"top": images["top"]._replace(data=buffer)}

    yield Bench, "image", "live", "images", after(live)
    wrong: tuple[Any, ...] = (3, "lift", "hot")
    for way, value in {"a list": [], "texts": ("hot",), "None": None, "without a message": (Fault("hot", "lift", ""),),
                       "numbers": (Fault(*wrong),)}.items():  # fmt: skip
        yield Bench, "faults", way, "faults", after(lambda robot, faults, value=value: value)
    for base in BENCHES:
        yield base, "state", "None", "answer", after(lambda robot, state: None)
        yield base, "state", "a plain tuple", "answer", after(lambda robot, state: tuple(state))
        yield base, "state", "a mapping", "answer", after(lambda robot, state: state._asdict())
        yield base, "state", "of the tick before", "answer", _state_before


def _state_before(robot: Any, right: Callable[[], RobotState]) -> RobotState:
    before, robot.last = getattr(robot, "last", None), right()
    return before or robot.last


# -- motion --------------------------------------------------------------------------------------------------------


def _told(change: Callable[[Any, str, np.ndarray], np.ndarray]) -> Change:
    """Change what the motors get of the main command."""
    return after(lambda robot, told: {**told, robot.main: change(robot, robot.main, np.array(told[robot.main], float))})


def _queue(periods: int) -> Change:
    def changed(robot: Any, right: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        line = robot.__dict__.setdefault("line", [])
        line.append(right())
        return line[max(-1 - periods, -len(line))]

    return changed


def _in_steps(robot: Any, name: str, told: np.ndarray) -> np.ndarray:
    step = np.max(robot.spec.commands[name].bounds[1]) / 10
    return np.asarray(np.round(told / step) * step)


def _saturated(robot: Any, name: str, told: np.ndarray) -> np.ndarray:
    low, high = (0.4 * np.asarray(bound, float) for bound in robot.spec.commands[name].bounds)
    return told.clip(low, high)


def motion_cells() -> Iterator[Row]:
    motors: dict[str, Callable[[Any, str, np.ndarray], np.ndarray]] = {
        "negated": lambda robot, name, told: -told,
        "halved": lambda robot, name, told: told / 2,
        "in degrees": lambda robot, name, told: np.rad2deg(told),
        "in another order": lambda robot, name, told: told[::-1],
        "not obeyed": lambda robot, name, told: robot.place if robot.main == "goal" else 0 * told,
        "the last negated": lambda robot, name, told: np.array([*told[:-1], -told[-1]]),
        "the last halved": lambda robot, name, told: np.array([*told[:-1], told[-1] / 2]),
        "the last not obeyed": lambda robot, name, told: np.array(
            [*told[:-1], robot.place[-1] if robot.main == "goal" else 0.0]),
        "the first takes the last along": lambda robot, name, told: np.array([*told[:-1], told[-1] + 0.5 * told[0]]),
        "saturated": _saturated,
        "in steps of a tenth": _in_steps,
    }  # fmt: skip
    for base in BENCHES:
        for way, change in motors.items():
            yield base, f"motor.{base.main}", way, "motors", _told(change)
        yield base, f"motor.{base.main}", "three periods late", "motors", _queue(3)
        yield base, "step", "two periods", "advance", lambda robot, right: (right(), right())[0]
        yield base, "step", "no period", "advance", lambda robot, right: None
        yield base, "step", "moves twice", "drive", lambda robot, right, told: (right(told), right(told))[0]
        yield base, "step", "the first tick only", "motors", after(
            lambda robot, told: told if robot.frame <= 1 else {**told, robot.main: 0 * told[robot.main]})  # fmt: skip
        yield base, "step", "keeps the command", "obey", _keeps_command
        yield base, "step", "clips the command in place", "legal", _clips_in_place
        yield base, "step", "takes from the command", "legal", _takes
        yield base, "step", "adds to the command", "legal", _adds
        yield base, "step", "returns the command as applied", "step", _returns_command
    yield Bench, "motor.claw", "inverted", "motors", after(lambda robot, told: {**told, "claw": 1 - told["claw"]})
    yield Bench, "motor.claw", "not obeyed", "motors", after(lambda robot, told: {**told, "claw": np.array(robot.grip)})
    yield Bench, "motor.claw", "with the joints", "motors", after(
        lambda robot, told: {**told, "claw": np.array(float(told["goal"][0] > 0.3))})  # fmt: skip
    for base, name in ((Bench, "lamp"), (Wagon, "horn")):
        yield (
            base,
            f"told.{name}",
            "not obeyed",
            "obey",
            after(
                lambda robot, nothing, name=name: robot.told.__setitem__(name, np.array(robot.spec.home[name], float))
            ),
        )
        yield (
            base,
            f"told.{name}",
            "at most half",
            "obey",
            after(
                lambda robot, nothing, name=name: robot.told.__setitem__(
                    name, np.minimum(robot.told[name], np.floor(robot.spec.commands[name].bounds[1] / 2 * 2) / 2)
                )
            ),
        )


def _keeps_command(robot: Any, right: Callable[..., None], values: dict[str, np.ndarray]) -> None:
    right(values)
    robot.told = {name: value if robot.begun else np.array(value, float) for name, value in values.items()}


def _clips_in_place(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    values = right()
    for value in values.values():
        if value.ndim and value.flags.writeable:
            value *= np.asarray(0.5, value.dtype)
    return values


def _takes(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    values = dict(right())
    if isinstance(command, dict):
        command.pop(robot.main, None)
    return values


def _adds(robot: Any, right: Callable[..., Any], command: Any) -> Any:
    values = dict(right())
    if isinstance(command, dict):
        command["seen"] = True
    return values


def _returns_command(robot: Any, right: Callable[..., RobotState], command: Any) -> RobotState:
    state = right()
    return state._replace(applied={**state.applied, robot.main: command[robot.main]})
