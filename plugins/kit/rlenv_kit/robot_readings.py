"""Check readings against each other: speeds and places, ages, readings after a reset, ``read``, and images."""

from __future__ import annotations

import inspect
import itertools
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hal import Field, Image, RobotSpec, RobotState
from hal.robot import is_driven, is_effort
from rlenv_kit.report import Failed, NotTried
from rlenv_kit.robot_probe import RobotProbe, copied, pairs_of_speeds, resolution, span_of, write_into
from rlenv_kit.robot_stops import away
from rlenv_kit.supervisor import PlannedCheck, check, declared
from rlenv_kit.tables import difference, elements_of

__all__ = ["content_of", "reading_checks"]

_RATE = (0.6, 1.6)
"""Smallest and largest share of a steady change that a measured speed may say."""

_TOLD = 0.005
"""Largest difference of an applied value in a state and in the reading after it, as a share of the range."""

_LEAST_STEADY = 5
"""Periods of steady motion by which a speed is judged."""

_SAME_SAMPLE = 0.01
"""Largest difference between times of capture that count as one, as a share of the period."""

_OPEN = 1e6
"""Size from which a limit is none."""

_MOST_ELEMENTS = 8

_LONG = 400
"""Steps of a motion over many turns."""

_TURN = 2 * np.pi

_UNBOUNDED = 1e30
"""Bounds from which on a field has none."""

_SLIP = 0.2
"""Largest difference of a way from the integral of its speed, as a share of it."""


def reading_checks(probe: RobotProbe) -> list[PlannedCheck]:
    """Return the checks of readings."""
    return declared(globals(), probe)


def content_of(image: Image) -> int:
    """Return a checksum of an image's data."""
    data = image.data
    return zlib.crc32(data.tobytes() if isinstance(data, np.ndarray) else bytes(data))


# -- speeds ----------------------------------------------------------------------------------------------------


@check("rates", "each measured speed is the change of its place in a second", "robot", "periods", "states", "follows")
def _rates(probe: RobotProbe) -> None:
    """Move one element after another, and compare where places change steadily."""
    spec = probe.robot.spec
    pairs = [(place, speed) for place, speed in pairs_of_speeds(spec) if spec.sensors[place].numpy_dtype.kind == "f"]
    if not pairs:
        raise NotTried("no sensor measures the speed of another one")
    held = {sensor: name for name, sensor in spec.measured_by.items() if not is_driven(spec.commands[name])}
    for field in spec.commands:
        if field.numpy_dtype.kind != "f":
            continue
        for index in elements_of(field, _MOST_ELEMENTS):
            rest, moving = _motion(probe, field.name, index)
            for pair in pairs:
                _check_rate(spec, pair, rest, moving, held.get(pair[0]))
        if not probe.is_quick:
            continue
        for periods, limit in ((40, None), *((8, bound) for bound in field.bounds)):
            if limit is None or (np.abs(np.asarray(limit, float)) < _OPEN).all():
                with probe.tolerating("range" if limit is not None else ""):
                    rest, moving = _motion(probe, field.name, index, periods, limit)
                for pair in pairs:
                    _check_rate(spec, pair, rest, moving, held.get(pair[0]))
    if not probe.is_quick:
        return
    away(probe, probe.reset())
    robot_state = probe.reset()
    states = [copied(robot_state), *(copied(probe.step(probe.hold(robot_state))) for _ in range(4))]
    for pair in pairs:
        _check_first(spec, pair, states)


def _check_first(spec: RobotSpec, pair: tuple[str, str], states: list[RobotState]) -> None:
    """Check that the speed of a reset's state is no other than how its place changes then."""
    place, speed = pair
    places, speeds = (np.array([state.sensors[name] for state in states], float) for name in pair)
    first, change = np.abs(speeds[0]), np.abs(np.diff(places, axis=0)).max(axis=0) / spec.period_s
    later = np.abs(speeds[1:]).max(axis=0)
    span = np.minimum(span_of(spec.sensors[speed]), 2 * np.pi)
    if (first > 3 * np.maximum(change, later) + 0.02 * span).any():
        raise Failed(f"{speed} is {first.max():.4g} {spec.sensors[speed].unit} after a reset, and {place} rests",
                     "a reset reads the robot at its start")  # fmt: skip


def _motion(
    probe: RobotProbe, name: str, index: tuple[int, ...], periods: int = 8, limit: ArrayLike | None = None
) -> tuple[list[RobotState], list[RobotState]]:
    """Hold still, then move an element away stride by stride, or to a limit at once; return the states of both."""
    field, robot_state = probe.robot.spec.commands[name], probe.reset()
    rest, moving = [copied(robot_state)], list[RobotState]()
    for _ in range(periods):
        robot_state = probe.step(probe.hold(robot_state))
        rest.append(copied(robot_state))
    hold = probe.hold(robot_state)
    for _ in range(int(np.clip(0.6 * probe.robot.spec.rate_hz, 16, 90))):
        value = np.array(hold[name])
        aim = probe.onwards(field, robot_state) if limit is None else np.broadcast_to(limit, field.shape)
        value[index] = aim[index]
        robot_state = probe.step({**hold, name: value})
        moving.append(copied(robot_state))
    return rest, moving


def _check_rate(
    spec: RobotSpec, pair: tuple[str, str], rest: list[RobotState], moving: list[RobotState], command: str | None
) -> None:
    """Compare a place with its speed in a steady motion.

    Args:
        spec: the spec of the robot.
        pair: the names of both sensors.
        rest: states at rest.
        moving: states in motion.
        command: the command that the place measures, if it is a place too.
    """
    place, speed = pair
    places, speeds, still = (np.array([state.sensors[name] for state in states], float) for name, states in
                             ((place, moving), (speed, moving), (place, rest)))  # fmt: skip
    passed_s = np.diff([state.stamp_ns for state in moving]) / 1e9
    if (passed_s <= 0).any():
        return
    passed_s = passed_s.reshape(-1, *([1] * (places.ndim - 1)))
    change, told = np.diff(places, axis=0) / passed_s, (speeds[1:] + speeds[:-1]) / 2
    noise = np.ptp(still, axis=0) / spec.period_s
    for index in np.ndindex(places.shape[1:]):
        one, peak = change[(..., *index)], np.abs(change[(..., *index)]).max()
        steady = np.abs(one) > max(0.4 * peak, 8 * noise[index], 1e-6)
        steady[1:] &= np.abs(np.diff(one)) < 0.2 * peak
        steady[0] = False
        where = list(index) if index else ""
        way = float(np.abs(told[(..., *index)] @ np.ravel(passed_s)))
        if command is None and peak <= 1e-9 and way > min(0.05 * float(np.ravel(span_of(spec.sensors[place]))[0]), 0.5):
            raise Failed(f"{place}{where} stays where it is, and {speed}{where} adds up to {way:.4g}",
                         f"{speed} is the speed of {place}")  # fmt: skip
        if steady.sum() < _LEAST_STEADY:
            continue
        share = float(np.median(told[(..., *index)][steady] / one[steady]))
        if _RATE[0] <= share <= _RATE[1] or (
            command is not None and abs(share) < 0.3 and _arrives(command, place, rest, moving, index)
        ):
            continue  # a joint that arrives within each period has no speed at its end; another check looks at it
        raise Failed(f"{place}{where} changes by {np.median(one[steady]):.4g} {spec.sensors[speed].unit}, and "
                     f"{speed}{where} says {np.median(told[(..., *index)][steady]):.4g}",
                     f"{speed} is the speed of {place}, and a step is one control period")  # fmt: skip


@check("places of speeds", "over a long motion a place is the sum of its speed", "robot", "rates")
def _places_of_speeds(probe: RobotProbe) -> None:
    """Drive each element of a speed or an effort for many turns, and compare the way with the integral of the speed."""
    spec = probe.robot.spec
    pairs = [pair for pair in pairs_of_speeds(spec) if _goes_on_over_turns(spec.sensors[pair[0]])]
    driven = [field for field in spec.commands if is_driven(field) and field.numpy_dtype.kind == "f"]
    if not pairs or not driven or not probe.is_quick:
        raise NotTried("no place has a speed that a command keeps up in simulation, and bounds of more than two turns")
    for field in driven:
        for index in elements_of(field, _MOST_ELEMENTS // 2):
            states = _long_motion(probe, field, index, pairs)
            for pair in pairs:
                _check_way(spec, pair, states)


def _goes_on_over_turns(place: Field) -> bool:
    """Return whether a place goes on where it is, and is not an angle within a turn or two, by its unit and bounds."""
    low, high = (np.asarray(bound, float) for bound in place.bounds)
    is_bounded = bool((np.abs([low, high]) < _UNBOUNDED).all())
    return place.numpy_dtype.kind == "f" and (
        place.unit == "m" or (place.unit == "rad" and is_bounded and bool((high - low > 2 * _TURN).all()))
    )


def _long_motion(
    probe: RobotProbe, field: Field, index: tuple[int, ...], pairs: list[tuple[str, str]]
) -> list[RobotState]:
    """Keep an element of a speed or an effort up, until a place is near the end of its range."""
    spec, state = probe.robot.spec, probe.reset()
    states, hold = [copied(state)], probe.hold(state)
    for _ in range(_LONG):
        value = np.array(hold[field.name])
        value[index] = probe.onwards(field, state)[index]
        with probe.tolerating("range"):
            state = probe.step({**hold, field.name: value})
        states.append(copied(state))
        for place, _ in pairs:
            low, high = (np.asarray(bound, float) for bound in spec.sensors[place].bounds)
            now, margin = np.asarray(state.sensors[place], float), 0.1 * span_of(spec.sensors[place])
            if ((now < low + margin) | (now > high - margin)).any():
                return states
    return states


def _check_way(spec: RobotSpec, pair: tuple[str, str], states: list[RobotState]) -> None:
    """Compare where a place ends with the integral of its speed by the trapezoidal rule."""
    places, speeds = (np.array([state.sensors[name] for state in states], float) for name in pair)
    passed_s = np.diff([state.stamp_ns for state in states]) / 1e9
    passed_s = passed_s.reshape(-1, *([1] * (places.ndim - 1)))
    ways = (speeds[1:] + speeds[:-1]) / 2 * passed_s
    due, way, total = ways.sum(axis=0), places[-1] - places[0], np.abs(ways).sum(axis=0)
    wrong = np.abs(way - due) > np.maximum(_SLIP * total, 4 * np.abs(ways).max(axis=0)) + 1e-3
    if wrong.any():
        raise Failed(f"{pair[0]} changed by {way[wrong][0]:.4g} {spec.sensors[pair[0]].unit} while {pair[1]} adds up "
                     f"to {due[wrong][0]:.4g}", "a place goes on with its speed; an angle within a turn has bounds of "
                     "one turn")  # fmt: skip


def _arrives(
    command: str, place: str, rest: list[RobotState], moving: list[RobotState], index: tuple[int, ...]
) -> bool:
    """Return whether a joint stands in each state where it was told to be, at once or up to three periods late."""
    told, places, at_rest = (np.array([getattr(state, part)[name][index] for state in states], float)
                             for part, name, states in (("applied", command, moving), ("sensors", place, moving),
                                                        ("sensors", place, rest)))  # fmt: skip
    offset, stride = at_rest[-1] - float(rest[-1].applied[command][index]), np.abs(np.diff(told)).max()
    apart = [np.abs(places[3:] - told[3 - late : len(told) - late] - offset).max() for late in range(4)]
    return bool(min(apart) < 0.15 * stride)


@check("efforts", "an effort moves its own element, in its direction", "robot", "periods", "states", "jumps")
def _efforts(probe: RobotProbe) -> None:
    """Push each element to both sides: the difference of both ways has the sign of the effort, whatever else acts."""
    spec = probe.robot.spec
    pairs = [(field, place) for field in spec.commands for place, _ in pairs_of_speeds(spec)
             if is_effort(field) and spec.sensors[place].shape == field.shape and field.shape
             and spec.sensors[place].unit == ("m" if field.unit == "N" else "rad")
             and spec.sensors[place].elements == field.elements]  # fmt: skip
    if not probe.simulated or not pairs:
        raise NotTried("no simulated place is moved by an effort")
    for field, place in pairs if len({field.name for field, _ in pairs}) == len(pairs) else ():
        ways, most = {}, 0.0
        for index in elements_of(field, 4):
            for wait in (0, 6):
                ends = [_pushed(probe, field.name, value, place, wait)
                        for value in itertools.islice(probe.excursions(field, probe.reset()), 99)
                        if value[index] != probe.hold(probe.reset())[field.name][index]]  # fmt: skip
                if len(ends) == 2:
                    way = ends[0] - ends[1]
                    ways[index, wait], most = float(way[index]), max(most, float(np.abs(way).max()))
        for (index, _), way in ways.items():
            if way <= 1e-3 * most:
                raise Failed(f"{place}{list(index)} goes {way:.4g} {spec.sensors[place].unit} farther to "
                             f"one side of {field.name} than to the other",
                             "an effort moves its own element, in its direction")  # fmt: skip


def _pushed(probe: RobotProbe, name: str, value: np.ndarray, place: str, wait: int) -> np.ndarray:
    """Reset, hold still, and push for a while; return how far the places went meanwhile."""
    robot_state = probe.reset()
    for _ in range(wait):
        robot_state = probe.step(probe.hold(robot_state))
    hold, before = probe.hold(robot_state), np.array(robot_state.sensors[place], float)
    for _ in range(int(np.clip(0.2 * probe.robot.spec.rate_hz, 4, 20))):
        robot_state = probe.step({**hold, name: value})
    return np.asarray(robot_state.sensors[place], float) - before


# -- ages ------------------------------------------------------------------------------------------------------


@check("ages", "ages tell when each sample was taken", "robot", "every period", "still")
def _ages(probe: RobotProbe) -> None:
    """Move everything by uneven strides, and compare samples with the times at which they were taken."""
    spec, rng = probe.robot.spec, np.random.default_rng(probe.seed)
    robot_state = probe.reset()
    states = [copied(robot_state)]
    for _ in range(48 if probe.is_quick or not probe.simulated else 24):
        command = probe.hold(robot_state)
        for field in spec.commands:
            if field.numpy_dtype.kind == "f":
                way = probe.onwards(field, robot_state) - np.asarray(command[field.name], field.numpy_dtype)
                value = command[field.name] + way * rng.uniform(0.05, 0.4, field.shape)
                command[field.name] = value.astype(field.numpy_dtype).clip(*field.bounds)
        robot_state = probe.step(command)
        states.append(copied(robot_state))
    period_ns = spec.period_s * 1e9
    for camera in spec.cameras:
        images = [state.images[camera.name] for state in states if camera.name in state.images]
        contents = np.flatnonzero(np.diff(np.array([content_of(image) for image in images], float)))
        runs, stamps = np.diff(contents), np.diff([image.stamp_ns for image in images])
        if len(runs) > 6 and runs.min() > 1 and not np.ptp(runs) and (stamps > 0.5 * period_ns).all():
            text = f"image {camera.name!r} is a new one every {runs.mean():.3g} states, and its stamp in each"
            if probe.simulated:
                raise Failed(text, "an image's stamp is the time of its capture")
            probe.note(text)
    for sensor in spec.sensors:
        values = [state.sensors[sensor.name] for state in states]
        taken = np.array([state.stamp_ns - int(state.age_ns.get(sensor.name, 0)) for state in states], float)
        advance = np.diff(taken) / period_ns
        told = f"by its ages {sensor.name} was sampled"
        if (advance < -_SAME_SAMPLE).any():
            raise Failed(f"{told} {-advance.min():.3g} periods before the sample of the state before",
                         "a state has the same sample as the one before or a newer one")  # fmt: skip
        for number in np.flatnonzero(advance < _SAME_SAMPLE):
            if not np.array_equal(values[number], values[number + 1]):
                raise Failed(f"{told} at one time in states {number} and {number + 1}, and its values differ",
                             "one sample has one value")  # fmt: skip
        if sensor.numpy_dtype.kind == "f" and (advance > 0.5).all():
            _check_repeated(probe, sensor.name, np.array(values, float))


def _check_repeated(probe: RobotProbe, sensor: str, values: np.ndarray) -> None:
    """Check that a sensor whose samples are all new does not repeat them in turn, as a slow one does."""
    for index in np.ndindex(values.shape[1:]):
        one = values[(..., *index)]
        changed = np.flatnonzero(np.diff(one))
        if len(changed) < 6:
            continue
        runs = np.diff(changed)
        if runs.min() < 2 or np.ptp(runs) > 1 or resolution(one):
            continue
        text = (f"{sensor}{list(index) if index else ''} has a new value every {runs.mean():.3g} states, and age_ns "
                "says that each is fresh")  # fmt: skip
        if probe.simulated:
            raise Failed(text, "a repeated sample has an age")
        probe.note(text)


# -- readings after a reset ------------------------------------------------------------------------------------


@check("fresh", "the state of a reset is measured after it, images too", "robot", "places", "images", "overwritten")
def _fresh(probe: RobotProbe) -> None:
    """Reset from afar: what the state before showed, and none after, was not measured anew."""
    spec = probe.robot.spec
    if not probe.simulated or not probe.reset_moves or not spec.home:
        raise NotTried("only a simulation that begins at home at once shows this")
    stale: list[set[str]] = []
    for _ in range(2):
        robot_state = away(probe, probe.reset())[-1]
        for _ in range(12):
            robot_state = probe.step(probe.hold(robot_state))
        before, robot_state = _shown(robot_state), probe.reset()
        after = [_shown(robot_state)]
        for _ in range(3):
            robot_state = probe.step(probe.hold(robot_state))
            after.append(_shown(robot_state))
        names = [name for name in after[0] if name in before and not _ends(spec, name)]
        stale.append({name for name in names if _is_old(before[name], [each[name] for each in after if name in each])})
    names = sorted(set.intersection(*stale))
    if names:
        raise Failed(f"after a reset {names[0]} is what it was before, and changes while the robot holds still",
                     "a reset reads the robot at its start")  # fmt: skip


def _ends(spec: RobotSpec, name: str) -> bool:
    """Return whether a sensor measures a speed, an effort or a current, which are the same at rest wherever that is."""
    return name in spec.sensors.names and (is_driven(spec.sensors[name]) or spec.sensors[name].unit in ("A", "V", "W"))


def _shown(robot_state: RobotState) -> dict[str, np.ndarray]:
    """Return the fresh sensors and the images (as checksums) of a state; an old sample says so by its age."""
    fresh = {name: np.array(value) for name, value in robot_state.sensors.items() if not robot_state.age_ns.get(name)}
    images = {f"image {name!r}": image for name, image in robot_state.images.items()}
    return fresh | {name: np.array(content_of(image)) for name, image in images.items()
                    if image.stamp_ns == robot_state.stamp_ns}  # fmt: skip


def _is_old(before: np.ndarray, after: Sequence[np.ndarray]) -> bool:
    """Return whether a value is that of the state before and another one, which stays, from the next state on."""
    first, last = after[0], after[-1]
    if len(after) < 4 or not np.array_equal(before, first) or np.array_equal(first, last):
        return False
    if first.dtype.kind != "f":
        return all(np.array_equal(value, last) for value in after[1:])
    return bool((np.abs(after[-2] - last) <= 0.05 * np.abs(first - last)).all())


# -- read ------------------------------------------------------------------------------------------------------


@check("reads", "read moves nothing, and shows what the robot measures", "robot", "overwritten")
def _reads(probe: RobotProbe) -> None:
    with probe.tolerating("age"):  # a sensor that is slow may be older after so many readings than between steps
        _check_reads(probe)


def _check_reads(probe: RobotProbe) -> None:
    spec = probe.robot.spec
    robot_state = probe.reset()
    reading = _read(probe)
    if reading is None:
        raise NotTried("it offers no read")
    for _ in range(4):
        later = _read(probe)
        for place, speed in pairs_of_speeds(spec) if later is not None else ():
            assert later is not None
            moved = np.abs(np.asarray(later.sensors[place], float) - np.asarray(reading.sensors[place], float))
            far = 3 * np.abs(np.asarray(later.sensors[speed], float)) * max(later.stamp_ns - reading.stamp_ns, 0) / 1e9
            if (moved > far + 0.05 + 1e-3 * np.abs(np.asarray(later.sensors[place], float))).any():
                raise Failed(f"{place} moved by {moved.max():.4g} {spec.sensors[place].unit} while it was read",
                             "read moves nothing")  # fmt: skip
    kept, count, moving = list[tuple[RobotState, RobotState]](), 0, away(probe, robot_state)[-1]
    reading = probe.read()
    if reading is None:
        raise Failed("read returned no state between two steps, and it did after a reset")
    if probe.simulated:
        near = 0.005 if reading.stamp_ns == moving.stamp_ns else 0.05
        for place, speed in pairs_of_speeds(spec) if near < 0.05 else ():
            values = [np.asarray(state.sensors[speed], float) for state in (reading, moving)]
            if (np.abs(np.subtract(*values)) > 0.2 * np.abs(values[1]).max() + 1e-3).any():
                raise Failed(f"{speed} is {values[1]} in a step's state and {values[0]} in read at the same time",
                             f"both measure the speed of {place}")  # fmt: skip
        for name, sensor in spec.measured_by.items():
            field = spec.commands[name]
            apart = np.abs(np.asarray(reading.sensors[sensor], float) - np.asarray(moving.sensors[sensor], float))
            if not field.is_text and (apart > near * span_of(field) + 1e-9).any():
                raise Failed(f"{sensor} is {apart.max():.4g} {field.unit} apart in a step's state and in read after it",
                             "both measure the robot")  # fmt: skip
    for field in spec.commands:
        name, pair = field.name, (moving.applied[field.name], reading.applied[field.name])
        if (field.is_text or field.numpy_dtype.kind != "f") and np.array_equal(*pair):
            continue
        if field.numpy_dtype.kind != "f" or (np.abs(np.subtract(*pair)) > _TOLD * span_of(field) + 1e-9).any():
            raise Failed(f"applied {name} of read is not that of the step before", "read applies nothing")
    if reading.stamp_ns < moving.stamp_ns:
        raise Failed("read is stamped before the state of the step before it", "the robot's clock never falls")
    probe.walk()
    first = [copied(state) for state in probe.walk()]

    def disturb(state: RobotState) -> None:
        nonlocal count
        count += 1
        now = probe.read_itself()
        if now is not None and count % 2:
            kept.append((now, copied(now)))
        elif now is not None:
            write_into(spec, now)

    second = probe.walk(disturb)
    if probe.is_quick:
        away(probe, probe.reset())
        probe.read_itself()
    for now, copy in kept:
        name = difference(copy.sensors, now.sensors) or difference(copy.applied, now.applied)
        if name:
            raise Failed(f"{name} of a reading changed after it was returned", "a reading stays its caller's")
    if probe.repeatable is False or not probe.simulated:
        return
    measured = set(spec.measured_by.values())
    one, other = ([state._replace(sensors={name: state.sensors[name] for name in measured}) for state in walk]
                  for walk in (first, second))  # fmt: skip
    probe.compare(one, other, "after readings between the steps, which were written into", slack=0.01)


def _read(probe: RobotProbe) -> RobotState | None:
    """Read a robot that was just reset, and that says None where it can't be read."""
    call: Any = getattr(probe.robot, "read", None)
    try:
        inspect.signature(call).bind()
    except (TypeError, ValueError):
        return None  # it has none, or a method of its own that is called so
    try:
        probe.log.call("read", call)
    except NotImplementedError:
        return None
    except Exception as error:
        raise Failed(f"read raises {type(error).__name__} after a reset: {error!s:.120}",
                     "it returns a state, or None") from error  # fmt: skip
    return probe.read()


# -- chance ----------------------------------------------------------------------------------------------------


@check("chance", "its chance is its own: the caller's random numbers change nothing", "robot", "overwritten")
def _chance(probe: RobotProbe) -> None:
    """Draw from Python's and NumPy's global generators between the steps."""
    if probe.repeatable is False or not probe.simulated:
        raise NotTried("equal seeds need not give equal states here")
    probe.walk()
    first = [copied(state) for state in probe.walk()]
    draws: tuple[Callable[[], object], ...] = (random.random, np.random.random)

    def draw(state: RobotState) -> None:
        for one in draws:
            one()

    probe.compare(first, probe.walk(draw), "after random numbers that the caller drew")
