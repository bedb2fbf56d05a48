"""Find constant offsets between a leader and its follower: goals and measurements, or two arms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from hal import SourceError
from hal.field import Field
from recorder.json_data import JsonDict
from recorder.table.table import Table
from rlenv_sim2real.motion import ArmJoints
from sim.model import SimModel

__all__ = ["LIMIT_RAD", "FollowedPair", "Offset", "find_offsets", "pair_named", "pairs_of"]

LIMIT_RAD = math.radians(5.0)
"""Offsets above this are alarms; sound real arms stay below it, including friction and servo errors."""

LIMIT_SHARE = 0.05
"""The limit for angles that are not in radians, as a share of the widest recorded range of a joint."""

_LONGEST_LAG_S = 0.5
"""Longest lag of the follower, in seconds."""

_BLOCK_S = 2.0
"""Length of the pieces whose estimates show how constant an offset is, in seconds."""

_SAG_SHARE, _SAG_SPREAD = 1.3, 0.5
"""Sag of real servos relative to that of the nominal ones, and its standard deviation.

The servos of a real SO-101 have 0.6 to 1 of the nominal stiffness (`sim.robots.twin.IDENTIFIED`). Without this prior,
an arm that always hangs to the same side could have any offset.
"""

_HUBER = 1.345
"""Residuals beyond so many standard deviations count less (Huber, 1964; 95 % as good as least squares for normal
errors)."""


@dataclass(frozen=True)
class FollowedPair:
    """Two recorded columns, of which one follows the other.

    Attributes:
        leader: name of the leader's column in the rows.
        follower: name of the follower's column in the rows.
        leads_row: number of rows from the moment at which a leader's value was sent to its row: 1 for an action, which
            is in the row of its result, else 0.
        field: field of the follower.
    """

    leader: str
    follower: str
    leads_row: int
    field: Field

    @property
    def name(self) -> str:
        """The names of both columns."""
        return f"{self.leader} -> {self.follower}"


@dataclass(frozen=True)
class Offset:
    """The constant offset of one joint in one episode.

    Attributes:
        pair: name of the two columns.
        joint: name of the element.
        episode: index of the episode.
        offset: follower minus leader, corrected for lag, friction and sag, in ``unit``.
        half_width: half of its 95 % interval, in ``unit``.
        lag_s: lag of the follower, seconds.
        limit: offsets above it are alarms, in ``unit``.
        unit: the unit of the values.
    """

    pair: str
    joint: str
    episode: int
    offset: float
    half_width: float
    lag_s: float
    limit: float
    unit: str

    @property
    def alarm(self) -> bool:
        """Whether the offset exceeds the limit with 95 % certainty."""
        return abs(self.offset) - self.half_width > self.limit

    def to_dict(self) -> JsonDict:
        """Return JSON data."""
        return {
            "pair": self.pair, "joint": self.joint, "episode": self.episode, "offset": self.offset,
            "half_width": self.half_width, "lag_s": self.lag_s, "limit": self.limit, "unit": self.unit,
            "alarm": self.alarm,
        }  # fmt: skip


def pairs_of(table: Table) -> list[FollowedPair]:
    """Return the pairs of commands and their measurements in a table, in SI units if both have them.

    Raises:
        SourceError: there is no such pair.
    """
    layout = table.layout
    leaders = [("applied", layout.applied, 1), ("action", layout.action, 1)]
    followers = [("sensor", layout.sensors), ("observation", layout.observation)]
    names = (("joint_target", "joint_position"), ("target", "state"))
    for (lead, leading, rows), (follow, following) in itertools.product(leaders, followers):
        found = [
            FollowedPair(f"{lead}_{goal.name}", f"{follow}_{state.name}", rows, state)
            for (goal_name, state_name), goal, state in itertools.product(names, leading, following)
            if goal.name.endswith(goal_name) and state.name.endswith(state_name)
            and goal.name.removesuffix(goal_name) == state.name.removesuffix(state_name) and goal.shape == state.shape
        ]  # fmt: skip
        if found:
            return found
    raise SourceError(
        f"{table.origin} has no command with a measurement of the same joints; name two columns with --pair LEADER "
        f"FOLLOWER, of {', '.join(_columns(table))}"
    )


def pair_named(table: Table, leader: str, follower: str) -> FollowedPair:
    """Return the pair of two named columns.

    Raises:
        SourceError: a column does not exist, or the shapes of the two differ.
    """
    fields = _columns(table)
    for name in (leader, follower):
        if name not in fields:
            raise SourceError(f"{table.origin} has no column {name!r}, it has {', '.join(fields)}")
    if fields[leader].shape != fields[follower].shape:
        raise SourceError(f"{leader} has shape {fields[leader].shape}, {follower} has {fields[follower].shape}")
    return FollowedPair(leader, follower, int(leader.startswith(("action_", "applied_"))), fields[follower])


def _columns(table: Table) -> dict[str, Field]:
    layout = table.layout
    groups = (("observation", layout.observation), ("action", layout.action),
              ("applied", layout.applied), ("sensor", layout.sensors))  # fmt: skip
    return {f"{prefix}_{field.name}": field for prefix, spec in groups for field in spec if len(field.shape) == 1}


def find_offsets(
    table: Table, pairs: Sequence[FollowedPair], sim_model: SimModel | None = None, limit: float | None = None
) -> list[Offset]:
    """Estimate the offset of every joint in every episode.

    Each joint of the follower is compared with the leader at an earlier time, the lag. The difference is modelled by a
    constant, the follower's speed, the sign of friction and, with a model of the arm, the sag of its servos under
    gravity. The regression has Huber's weights, so outliers such as a grasp have little influence. The interval comes
    from the estimates of pieces of the episode, and from the correlation of the terms.

    Args:
        table: the recorded data.
        pairs: the columns.
        sim_model: the arm, for the effect of gravity; None leaves the mean sag in the offset.
        limit: offsets above it are alarms, in the columns' unit; None for 5 degrees, or for 5 % of the widest joint's
            recorded range if the columns are not in radians.

    Raises:
        SourceError: no episode is long enough.
    """
    offsets = []
    for pair, episode in itertools.product(pairs, range(len(table.starts))):
        allowed = _default_limit(table, pair) if limit is None else limit
        rows = table.rows[table.starts[episode] : table.stops[episode]]
        seconds = (rows["stamp_ns"] - rows["stamp_ns"][0]) / 1e9
        if len(rows) < 30:
            continue
        period = float(np.median(np.diff(seconds)))
        leader = np.asarray(rows[pair.leader], np.float64)[pair.leads_row :]
        follower = np.asarray(rows[pair.follower], np.float64)[: len(leader)]
        sag = _nominal_sag(sim_model, pair, follower)
        unit = pair.field.unit if pair.field.unit not in ("", "1") else "log's units"
        for joint in range(leader.shape[1]):
            name = pair.field.elements[joint] if pair.field.elements else str(joint)
            estimate, half, lag = _estimate(leader[:, joint], follower[:, joint], sag[:, joint], period)
            offsets.append(Offset(pair.name, name, episode, estimate, half, lag * period, allowed, unit))
    if not offsets:
        raise SourceError(f"{table.origin} has no episode of 30 frames or more")
    return offsets


def _default_limit(table: Table, pair: FollowedPair) -> float:
    if pair.field.unit == "rad":
        return LIMIT_RAD
    widest = float(np.ptp(np.asarray(table.rows[pair.follower], np.float64), axis=0).max())
    return max(LIMIT_SHARE * widest, 1e-9)


def _nominal_sag(sim_model: SimModel | None, pair: FollowedPair, angles: np.ndarray) -> np.ndarray:
    """Return how far gravity makes the nominal servos give way, rad, (T, n); zeros where the model is not of them."""
    torque = np.zeros(angles.shape)
    if sim_model is None or pair.field.unit != "rad":
        return torque
    joints, model = ArmJoints.of(sim_model), sim_model.model
    sensor = pair.follower.partition("_")[2]
    command = next((name for name, measured in joints.sensors.items() if measured == sensor), None)
    if command is None:
        return torque
    columns = joints.commands[command]
    data = mujoco.MjData(model)
    if sim_model.keyframe >= 0:
        mujoco.mj_resetDataKeyframe(model, data, sim_model.keyframe)
    data.qvel[:] = 0
    for index, pose in enumerate(angles):
        data.qpos[joints.qpos[columns]] = pose
        mujoco.mj_forward(model, data)
        torque[index] = data.qfrc_bias[joints.qvel[columns]]
    return np.asarray(-torque / model.actuator_gainprm[joints.ctrl[columns], 0])


def _estimate(leader: np.ndarray, follower: np.ndarray, sag: np.ndarray, period_s: float) -> tuple[float, float, int]:
    """Return the offset, half of its 95 % interval, and the lag in frames."""
    lag = _lag(leader, follower, round(_LONGEST_LAG_S / period_s))
    apart = follower[lag:] - leader[: len(leader) - lag]
    speed = np.gradient(follower)[lag:]
    block = max(round(_BLOCK_S / period_s), 5)
    scale = max(float(np.abs(speed).mean()), 1e-9)
    terms = [np.ones(len(apart)), speed / scale, np.tanh(3 * speed / scale)]
    if sag.any():
        terms.append(sag[lag:])
        apart = apart - _SAG_SHARE * sag[lag:]  # what is left of the last term is near 0
    inputs = np.stack(terms, axis=1)
    known = np.array([math.inf, math.inf, math.inf, _SAG_SPREAD])[: len(terms)]
    fitted, weights, uncertainty = _robust(inputs, apart, known, block)
    residual = apart - inputs @ fitted
    pieces = [
        float(np.average(residual[first : first + block], weights=weights[first : first + block] + 1e-12))
        for first in range(0, len(residual) - block // 2, block)
    ]
    spread = float(np.std(pieces, ddof=1)) / math.sqrt(len(pieces)) if len(pieces) > 1 else math.inf
    return float(fitted[0]), 1.96 * math.hypot(spread, uncertainty), lag


def _lag(leader: np.ndarray, follower: np.ndarray, most: int) -> int:
    """Return the lag, in frames, that leaves the smallest spread; 0 for a joint that stands still."""
    if np.ptp(leader) < 1e-9:
        return 0
    spreads = []
    for lag in range(min(most, len(leader) // 4) + 1):
        apart = follower[lag:] - leader[: len(leader) - lag]
        low, high = np.quantile(apart, (0.1, 0.9))
        spreads.append(float(high - low))
    return int(np.argmin(spreads))


def _robust(
    inputs: np.ndarray, outputs: np.ndarray, known: np.ndarray, block: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the coefficients of a regression with Huber's weights, the weights, and the first one's deviation.

    Args:
        inputs: the inputs of the regression, (T, k).
        outputs: the outputs of the regression, (T,).
        known: standard deviation with which each coefficient is known to be 0; infinite for an unknown one.
        block: number of frames that count as one observation when they are weighed against what is known.
    """
    weights = np.ones(len(outputs))
    coefficients = np.zeros(inputs.shape[1])
    coefficients[0] = float(np.median(outputs))
    residual, rows = outputs - coefficients[0], inputs
    for _ in range(30):
        deviation = max(1.4826 * float(np.median(np.abs(residual))), 1e-9)
        weights = np.minimum(1.0, _HUBER * deviation / np.maximum(np.abs(residual), 1e-12))
        root = np.sqrt(weights)[:, None]
        priors = np.diag(deviation * math.sqrt(block) / known)
        rows, values = (
            np.concatenate([inputs * root, priors]),
            np.concatenate([outputs * root[:, 0], np.zeros(len(known))]),
        )
        fitted, *_ = np.linalg.lstsq(rows, values, rcond=1e-9)
        residual = outputs - inputs @ fitted
        if np.abs(fitted - coefficients).max() < 1e-9:
            break
        coefficients = fitted
    deviation = max(1.4826 * float(np.median(np.abs(residual))), 1e-9)
    covariance = deviation**2 * block * np.linalg.pinv(rows.T @ rows, hermitian=True)
    return coefficients, weights, math.sqrt(max(float(covariance[0, 0]), 0.0))
