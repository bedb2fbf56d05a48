"""Check the clock, values, actions and episodes of a table for problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from hal import Field
from hal.guarding.limit_cycle import LARGEST_DEG, SLOWEST_HZ, WINDOW_S, joint_targets, limit_cycle
from recorder.json_data import JsonDict, JsonObject
from recorder.table.pairing import UNPAIRED, pair_elements
from recorder.table.table import Table

__all__ = ["ADVICE", "DataSet", "Finding", "check_table", "element_of", "group_of", "runs_of", "values_of"]


class DataSet:
    """Properties of a whole data set that the checks of an episode need, such as its period and the ranges of values.

    Args:
        table: the table to check.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.spec = table.layout.spec

    def episodes(self) -> Iterator[np.ndarray]:
        """Yield the rows of each episode, without the unused rows between episodes."""
        for start, stop in zip(self.table.starts, self.table.stops, strict=True):
            yield self.table.rows[start:stop]

    @cached_property
    def period_s(self) -> float | None:
        """Median time between frames, in seconds; None if the data have no clock."""
        steps = np.concatenate([np.zeros(0, np.int64), *(np.diff(rows["stamp_ns"]) for rows in self.episodes())])
        steps = steps[steps > 0]
        return float(np.median(steps)) / 1e9 if len(steps) else None

    @cached_property
    def steps(self) -> float:
        """Median length of an episode, steps."""
        return float(np.median(self.table.stops - self.table.starts - 1)) if len(self.table.starts) else 0.0

    @cached_property
    def spread(self) -> dict[str, np.ndarray]:
        """Field -> highest minus lowest of each element, shape (n,), finite values only."""
        return {name: np.maximum(high - low, 0) for name, (low, high) in self.extremes.items()}  # 0: none is finite

    @cached_property
    def extremes(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Field of a float type -> lowest and highest of each element, each of shape (n,)."""
        groups = ("observation", "sensor", "action", "applied")
        fields = [field for field in self.spec if field.numpy_dtype.kind == "f" and group_of(field) in groups]
        bounds = {field.name: (np.full(field.size, np.inf), np.full(field.size, -np.inf)) for field in fields}
        for rows in self.episodes():
            for field in fields:
                flat, (low, high) = values_of(rows, field), bounds[field.name]
                finite = np.isfinite(flat)
                np.minimum(low, np.min(flat, 0, where=finite, initial=np.inf), out=low)
                np.maximum(high, np.max(flat, 0, where=finite, initial=-np.inf), out=high)
        return bounds

    @cached_property
    def measured(self) -> list[Field]:
        """The measurements: sensors if there are any, otherwise observations that change in some episode.

        An observation that is constant in every episode but differs between episodes is a goal.
        """
        group = "sensor" if len(self.table.layout.sensors) else "observation"
        fields = [field for field in self.spec if field.name in self.spread and group_of(field) == group]
        return fields if group == "sensor" else [field for field in fields if self._moves(field)]

    def _moves(self, field: Field) -> bool:
        return any((rows[field.name][1:] != rows[field.name][:1]).any() for rows in self.episodes())

    @cached_property
    def commands(self) -> list[Field]:
        """The commands: the applied commands if recorded, otherwise the actions."""
        fields = [field for field in self.spec if field.name in self.spread]
        applied = [field for field in fields if group_of(field) == "applied"]
        return applied or [field for field in fields if group_of(field) == "action"]

    @property
    def command(self) -> Field | None:
        """The first command, or None if there are none."""
        return self.commands[0] if self.commands else None

    def command_of(self, measured: Field) -> Field | None:
        """Return the command that moves a measurement: of several that fit, the one whose name is most alike.

        The position of the left arm belongs to the target of the left arm, although the joints of both have one name.
        A field whose name has less in common with the command than another measurement's has none: as many positions
        of cubes as there are joints, for example.
        """
        best = max(self._fitting(measured), key=lambda one: _common(measured, one), default=None)
        if best is None or any(
            _common(other, best) > _common(measured, best) for other in self.measured if best in self._fitting(other)
        ):
            return None
        return best

    def _fitting(self, measured: Field) -> list[Field]:
        return [one for one in self.commands if one is not measured and pair_elements(measured, one) is not None]

    @cached_property
    def liveliness(self) -> dict[str, np.ndarray]:
        """Measurement -> share of the frames in which each element changes, (n,)."""
        changes = {field.name: np.zeros(field.size) for field in self.measured}
        frames = 0
        for rows in self.episodes():
            frames += max(len(rows) - 1, 0)
            for field in self.measured:
                flat = values_of(rows, field)
                changes[field.name] += (flat[1:] != flat[:-1]).sum(0)
        return {name: some / max(frames, 1) for name, some in changes.items()}


def _common(measured: Field, command: Field) -> int:
    """Return how many words the names of two fields have in common, besides their groups."""
    return len(set(measured.name.split("_")[1:]) & set(command.name.split("_")[1:]))


def group_of(field: Field) -> str:
    """Return ``observation``, ``action``, ``applied`` or ``sensor``; for other fields the first part of the name."""
    return field.name.split("_", 1)[0]


def values_of(rows: np.ndarray, field: Field) -> np.ndarray:
    """Return a field's values, shape (T, n)."""
    return np.asarray(rows[field.name]).reshape(len(rows), -1)


def element_of(field: Field, index: int) -> str:
    """Return a field's name with the name of one of its elements."""
    if field.size == 1:
        return field.name
    names = field.elements if len(field.elements) == field.size else ()
    return f"{field.name}[{names[index] if names else index}]"


def runs_of(flags: np.ndarray) -> np.ndarray:
    """Return the runs of true flags, (k, 2): the first index of each run, and one past its last."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    return np.stack([np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)], 1)


# ---- findings ----


GAP = 2.5
"""Control periods between two frames above which at least one frame is missing."""
JITTER, JITTER_TIMES = 0.12, 4.0
"""Standard deviation of the time between frames that is reported, as a share of the period, and of the usual one."""
RATE = 0.05
"""Largest relative difference between an episode's rate and that of all episodes."""
FROZEN_S, FROZEN_FRAMES = 1.0, 10
"""Shortest time in seconds and number of frames of a frozen measurement: one that stays equal to the last bit while the
robot is commanded to move. A measurement at 0 or at its lowest or highest value is exempt, since a joint rests there or
is at its stop."""
LIVELY = 0.8
"""Share of the frames in which a measurement that no command moves directly changes, so that it may be frozen."""
STEADY = 0.2
"""Largest share by which a velocity that stands may differ from its position's mean speed."""
MOVED = 0.25
"""Share of a command's range in the data by which the command must change to count as movement."""
CLIPPED = 0.05
"""Share of an episode's actions at a limit above which a finding is reported."""
SHORT, SHORT_STEPS = 0.1, 5
"""An episode is short if it has less than this share of the median steps, or fewer than this number."""
UNCHANGED, UNCHANGED_SHARE = 3, 0.02
"""Fewest frames without a new measurement while the command changes, and their share of the episode, that are reported;
fewer may be chance."""
STEP = 0.005
"""Step, as a share of a range, above which a robot moves: frames that repeat the one before are counted between two of
them, since a joint starts late, and stands within its encoder's resolution, while its command already changes."""

ADVICE: Mapping[str, str] = {
    "gap": "look for what held the loop up; cut the episode there, or leave it out of training",
    "clock": "the stamps must rise; look at the clock or the driver that makes them",
    "jitter": "record with the robot's own clock, or resample; a policy takes the rows as evenly spaced",
    "rate": "leave it out, or train on data of one rate",
    "frozen": "look at the sensor, its cable and its driver; leave the episode out",
    "clipped": "a policy learns the limit here; widen it, or ask for less",
    "limited": "what was asked for was not what was done; train on applied_*, or ask for less",
    "limit_cycle": "this wears gears: train the policy again, with a price on unsteady targets; leave the episode out",
    "duplicate": "something answers with an old value; look at the sensor's rate and at caches in its driver",
    "short": "leave it out: rlenv-robot data cut, or label it discard",
    "no_end": "it counts as truncated; label it, or leave it out",
    "not_finite": "leave the episode out, and find out who wrote it",
    "range": "the description of the field or the value is wrong; both can't be right",
    "lost": "rlenv-robot data recover says more",
    "camera": "look at the camera's clock, cable and exposure",
    "blank": "look at the camera's cable and cover; leave the episode out, or train without this camera",
    "exposure": "fix exposure and light; leave the episode out, or augment brightness in training",
    "blurred": "fix the focus, and clean the lens; leave the episode out",
    "colour": "exchange red and blue when reading, or leave the episode out; look at the recorder's order of colours",
    "mixed": "give the episode its own images back, or leave it out; look at what names and numbers the videos",
    "turned": "turn the images back when reading, or leave the episode out; look at the camera's mount and settings",
    "glitch": "look at the camera's cable and the decoder; replace the images by their neighbours",
    "swapped": "exchange the cameras of the episode; name cameras by their serial number, not by their port",
    "moved": "fasten the camera; leave the episode out, or augment crops in training",
    "shaken": "fasten the camera; leave the episode out",
    "lag": "shift the images against the rows, or leave the episode out; look at buffers and stamps of the camera",
    "doubled": "the recorder was faster than the camera or lost images; leave the episode out",
    "dropped": "images were lost on their way; leave the episode out",
    "copy": "leave it out, or keep it on the original's side of a split",
    "padded": "cut the copies off; if rows are missing in its midst too, leave the episode out",
    "skipped": "look for what lost rows, and for stamps that were counted; cut the episode there, or leave it out",
    "stall": "cut the pause out, or leave the episode out: a policy learns to stand",
    "idle": "cut the rest off: a policy learns to stand",
    "reversed": "look at the sign and the calibration of the joint; leave the episode out, or change its sign",
    "shifted": "move the commands against the measurements, or leave the episode out; look at the recorder's order",
    "spike": "look at the sensor and its bus; replace the value by its neighbours, or leave the episode out",
    "jump": "look at the device that commands; leave the episode out",
}
"""Kind of finding -> advice on what to do about it."""


@dataclass(frozen=True)
class Finding:
    """One problem in a data set.

    Attributes:
        kind: one of `ADVICE`.
        episode: the episode's index in the table; -1 for the whole data set.
        field: the field with its element, or the camera; may be empty.
        first: the first frame, counted from 0 in the episode; -1 if the problem is not at certain frames.
        last: the last frame, counted in the same way.
        message: the problem, with its numbers.
        advice: what to do about it.
    """

    kind: str
    episode: int
    field: str
    first: int
    last: int
    message: str
    advice: str = ""

    def to_dict(self) -> JsonDict:
        """Return the finding as plain data, for JSON."""
        return asdict(self) | {"advice": self.advice or ADVICE[self.kind]}


def check_table(table: Table, data_set: DataSet | None = None) -> list[Finding]:
    """Check the rows and the ends of episodes.

    Args:
        table: a table of this project's logs or of another format.
        data_set: the properties of the table, if they are known already.

    Returns:
        The findings: those of the whole data set first, then episode by episode.
    """
    data_set = data_set or DataSet(table)
    findings = [Finding("lost", -1, "", -1, -1, note) for note in table.notes if _is_loss(note)]
    findings += _jitters(data_set)
    for number in range(len(table.starts)):
        rows = table.rows[table.starts[number] : table.stops[number]]
        for check in (_timing, _values, _frozen, _duplicates, _actions, _limit_cycles):
            findings += check(data_set, number, rows)
        findings += _ends(data_set, number, rows, table.episodes[number])
    return findings


_LOSSES = ("torn", "damaged", "missing", "lost", "dropped", "left out", "cut in two", "of its")


def _is_loss(note: str) -> bool:
    return any(word in note for word in _LOSSES) and "folder videos" not in note


# ---- time ----


def _carried_out(data_set: DataSet, rows: np.ndarray) -> np.ndarray:
    """Return whether an action was carried out before each frame; if agents take turns, once all have chosen."""
    acted: np.ndarray = rows["acted"][1:] != 0
    return acted & (rows["agent"][1:] == 0) if data_set.table.layout.turns else acted


def _jitters(data_set: DataSet) -> Iterator[Finding]:
    """Find episodes whose time stamps scatter, and a set in which most do."""
    period = data_set.period_s
    if period is None or data_set.table.layout.turns:
        return
    scatter = np.array([_scatter(rows, period) for rows in data_set.episodes()])
    usual = float(np.median(scatter)) if len(scatter) > 2 else 0.0
    high = np.flatnonzero(scatter > np.maximum(JITTER, JITTER_TIMES * usual))
    what = "time stamps scatter: the time between frames varies by"
    if usual > JITTER:
        yield Finding("jitter", -1, "stamp_ns", -1, -1, f"{what} {usual:.0%} of {period * 1e3:.1f} ms in the median")
    for number in high.tolist():
        last = int(data_set.table.stops[number] - data_set.table.starts[number]) - 1
        text = f"{what} {scatter[number]:.0%} of {period * 1e3:.1f} ms; {usual:.0%} is usual"
        yield Finding("jitter", number, "stamp_ns", 0, last, text)


def _scatter(rows: np.ndarray, period: float) -> float:
    """Return the standard deviation of the time between frames in units of the period, from its 5 and 95% quantiles."""
    steps = np.diff(rows["stamp_ns"]) / 1e9
    steps = steps[steps > 0]
    low, high = np.quantile(steps, (0.05, 0.95)) if len(steps) >= 20 else (0.0, 0.0)
    return float(high - low) / 3.29 / period


def _timing(data_set: DataSet, number: int, rows: np.ndarray) -> Iterator[Finding]:
    period = data_set.period_s
    if period is None or len(rows) < 2:
        return
    steps = np.diff(rows["stamp_ns"]) / 1e9
    acted = _carried_out(data_set, rows)  # a refused action takes no time, nor does an action that was lost
    for index in np.flatnonzero(steps > GAP * period)[:5]:
        yield Finding("gap", number, "", int(index), int(index) + 1,
                      f"{steps[index] * 1e3:.0f} ms between two frames, {period * 1e3:.1f} ms are usual")  # fmt: skip
    back = np.flatnonzero((steps < 0) | ((steps == 0) & acted))
    if len(back):
        yield Finding("clock", number, "stamp_ns", int(back[0]), int(back[-1]) + 1,
                      f"{len(back)} stamps do not rise, the first at frame {back[0] + 1}")  # fmt: skip
    rising = steps[steps > 0]
    if len(rising) and abs(np.median(rising) / period - 1) > RATE:
        yield Finding("rate", number, "", -1, -1,
                      f"{1 / np.median(rising):.4g} Hz, the data set has {1 / period:.4g} Hz")  # fmt: skip


# ---- values ----


def _values(data_set: DataSet, number: int, rows: np.ndarray) -> Iterator[Finding]:
    for name in data_set.extremes:
        field = data_set.spec[name]
        flat = values_of(rows, field)
        bad = ~np.isfinite(flat)
        if bad.any():
            where = np.flatnonzero(bad.any(1))
            yield Finding("not_finite", number, element_of(field, int(np.flatnonzero(bad.any(0))[0])), int(where[0]),
                          int(where[-1]), f"{bad.sum()} values are NaN or infinite")  # fmt: skip
        low, high = (bound.ravel() for bound in field.bounds)
        outside = (flat < low) | (flat > high)
        outside[0] &= group_of(field) not in ("action", "applied")  # row 0 has no action, and zeros in its place
        if outside.any():
            element = int(np.flatnonzero(outside.any(0))[0])
            where = np.flatnonzero(outside.any(1))
            worst = flat[outside[:, element], element]
            yield Finding("range", number, element_of(field, element), int(where[0]), int(where[-1]),
                          f"{outside.sum()} values outside {low[element]:.4g} to {high[element]:.4g}, "
                          f"such as {worst[0]:.4g}")  # fmt: skip


def _frozen(data_set: DataSet, number: int, rows: np.ndarray) -> Iterator[Finding]:
    if data_set.command is None or len(rows) < FROZEN_FRAMES:
        return
    period = data_set.period_s or 0.0
    least = max(FROZEN_FRAMES, round(FROZEN_S / period) if period else 0)
    for field in data_set.measured:
        flat, spread = values_of(rows, field), data_set.spread[field.name]
        mover = data_set.command_of(field)
        if mover is None and group_of(field) == "observation":
            continue  # nothing says which of them the command moves
        pairs = None if mover is None else pair_elements(field, mover)
        mover = mover or data_set.command
        command, moved = values_of(rows, mover), data_set.spread[mover.name] * MOVED
        for element in np.flatnonzero(spread > 0):
            if pairs is not None and pairs[element] == UNPAIRED:
                continue
            if pairs is None and data_set.liveliness[field.name][element] < LIVELY:
                continue  # such as an object that lies still until it is carried
            rest = (0.0, *(float(side[element]) for side in data_set.extremes[field.name]))
            for first, last in runs_of(flat[1:, element] == flat[:-1, element]):  # frames first to last are equal
                if last - first < least or flat[first, element] in rest:
                    continue
                if pairs is None and first == 0 and last < len(rows) - 1:
                    continue  # an object that lies still until it is touched
                # A joint follows late: for the shortest time that counts it stands after the command has moved.
                moves = np.ptp(command[first + 1 : max(last + 1 - least, first + 2)], axis=0) > moved
                if pairs is not None:
                    moves = moves[pairs[element]]
                if not moves.any() or _turns_steadily(data_set, rows, field, int(element), int(first), int(last)):
                    continue
                lasted = f"{(last - first) * period:.1f} s" if period else f"{last - first} frames"
                text = f"stands at {flat[first, element]:.6g} for {lasted} while it is commanded to move"
                yield Finding("frozen", number, element_of(field, int(element)), int(first), int(last), text)


def _turns_steadily(data_set: DataSet, rows: np.ndarray, field: Field, element: int, first: int, last: int) -> bool:
    """Return whether a field is a velocity that its position confirms, as at a limit of the speed."""
    name = field.name.replace("velocity", "position")
    if name == field.name or name not in data_set.spread or data_set.spec[name].size != field.size:
        return False
    place, seconds = values_of(rows, data_set.spec[name])[:, element], rows["stamp_ns"] / 1e9
    speed = values_of(rows, field)[first, element]
    travel = float(place[last] - place[first]) - speed * (seconds[last] - seconds[first])
    return bool(abs(travel) < STEADY * abs(speed) * (seconds[last] - seconds[first]))


def _duplicates(data_set: DataSet, number: int, rows: np.ndarray) -> Iterator[Finding]:
    """Find frames whose measurements repeat to the last bit while the command changes and the robot moves."""
    if data_set.command is None or not data_set.measured or len(rows) < 3:
        return
    same = _carried_out(data_set, rows)
    travel = np.zeros(len(rows) - 1)
    for field in data_set.measured:
        flat, spread = values_of(rows, field), data_set.spread[field.name]
        same = same & (flat[1:] == flat[:-1]).all(1)
        steps = np.abs(np.diff(flat.astype(float), axis=0)) / np.where(spread > 0, spread, np.inf)
        travel = np.maximum(travel, np.nan_to_num(steps).max(1, initial=0))
    same &= _moving(travel)
    command = values_of(rows, data_set.command)
    same[0] = False  # row 0 has no command
    same[1:] &= (np.abs(np.diff(command[1:], axis=0)) > data_set.spread[data_set.command.name] * 1e-3).any(1)
    count = int(same.sum())
    if count >= max(UNCHANGED, UNCHANGED_SHARE * len(rows)):
        where = np.flatnonzero(same) + 1
        yield Finding("duplicate", number, "", int(where[0]), int(where[-1]),
                      f"{count} of {len(rows)} frames repeat the one before while the command changes")  # fmt: skip


def _moving(travel: np.ndarray) -> np.ndarray:
    """Return whether the last step that is not 0 before each one, and the next after it, are both motion, (T,)."""
    moved = np.flatnonzero(travel)
    if not len(moved):
        return np.zeros(len(travel), bool)
    place = np.searchsorted(moved, np.arange(len(travel)))
    before, after = np.maximum(place - 1, 0), np.minimum(place, len(moved) - 1)
    inside = (place > 0) & (place < len(moved))
    return np.asarray(inside & (np.minimum(travel[moved[before]], travel[moved[after]]) > STEP))


def _actions(data_set: DataSet, number: int, rows: np.ndarray) -> Iterator[Finding]:
    """Find actions at the limits of their description, and actions that were not carried out as asked."""
    if len(rows) < 2:
        return
    for field in data_set.table.layout.action:
        name = f"action_{field.name}"
        if name not in data_set.spread:
            continue
        requested = values_of(rows, data_set.spec[name])[1:]
        low, high = (bound.ravel() for bound in field.bounds)
        at_limit = ((requested <= low) | (requested >= high)) & (data_set.spread[name] > 0)
        yield from _often(
            "clipped", data_set.spec[name], number, at_limit, "actions are at the limit of what may be asked"
        )
        done = f"applied_{field.name}"
        if done in data_set.spread and data_set.spread[done].shape == data_set.spread[name].shape:
            applied = values_of(rows, data_set.spec[done])[1:]
            other = np.abs(applied - requested) > 1e-3 * np.maximum(data_set.spread[name], 1e-9)
            yield from _often("limited", data_set.spec[name], number, other & (rows["acted"][1:, None] != 0),
                              "actions were limited before they were carried out")  # fmt: skip


def _often(kind: str, field: Field, number: int, flags: np.ndarray, what: str) -> Iterator[Finding]:
    share = flags.mean(0)
    worst = int(np.argmax(share))
    if share[worst] >= CLIPPED:
        where = np.flatnonzero(flags[:, worst]) + 1
        others = int((share >= CLIPPED).sum()) - 1
        more = f" (and of {others} more elements)" if others else ""
        yield Finding(kind, number, element_of(field, worst), int(where[0]), int(where[-1]),
                      f"{share[worst]:.0%} of the {what}{more}")  # fmt: skip


def _limit_cycles(data_set: DataSet, number: int, rows: np.ndarray) -> Iterator[Finding]:
    """Find joint targets that go to and fro in any `WINDOW_S` of an episode; half of a window lies in the next one."""
    period = data_set.period_s
    if period is None:
        return
    window = round(WINDOW_S / period)
    for field in joint_targets(data_set.commands):
        targets = values_of(rows, field)[1:]  # row 0 has no command
        end = max(0, len(targets) - window)
        starts = np.append(np.arange(0, end, max(1, window // 2)), end)
        cycles = np.degrees([limit_cycle(targets[start : start + window], period) for start in starts])
        worst = np.unravel_index(np.argmax(cycles), cycles.shape)
        if cycles[worst] > LARGEST_DEG:
            element = int(worst[1])
            ill = starts[cycles[:, element] > LARGEST_DEG]
            last = min(int(ill[-1]) + window, len(targets))
            yield Finding("limit_cycle", number, element_of(field, element), int(ill[0]) + 1, last,
                          f"the target goes to and fro by {cycles[worst]:.1f} degrees to either side, at "
                          f"{SLOWEST_HZ:g} Hz or faster")  # fmt: skip


# ---- episodes ----


def _ends(data_set: DataSet, number: int, rows: np.ndarray, info: JsonObject) -> Iterator[Finding]:
    steps = len(rows) - 1
    if steps < max(SHORT_STEPS, SHORT * data_set.steps) and steps < data_set.steps:
        yield Finding("short", number, "", 0, steps, f"{steps} steps, the median is {data_set.steps:.0f}")
    end = str(info.get("end", ""))
    if end in ("torn", "gap", "interrupted"):
        yield Finding("no_end", number, "", steps, steps, f"it has no end of its own: {end}")
