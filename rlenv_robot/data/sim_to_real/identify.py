"""Identify the servos of an arm from recorded motions, by least squares over batched simulation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from mujoco import minimize

from hal import SourceError
from recorder.json_data import JsonDict
from rlenv_robot.data.sim_to_real.gap import constant_delay_error
from rlenv_robot.data.sim_to_real.motion import RecordedMotion
from rlenv_robot.data.sim_to_real.servo_replay import KINDS, PER_JOINT, ServoReplay, ServoValues
from sim.model import SimModel

__all__ = ["DEFAULT_KINDS", "Estimate", "Identification", "Judgement", "identify", "judge", "profile_text"]

DEFAULT_KINDS = ("stiffness", "damping", "friction", "offset", "armature", "delay")
"""The kinds that are estimated unless others are named."""

SETTLE_S = 0.3
"""Beginning of each motion that does not count, seconds: the friction's state before it is not known."""

_STEPS = (3e-2, 1e-2, 3e-3)
"""Steps of the central differences in the three stages of the search, in units of `Kind.step`.

A joint that sticks makes the residuals rough in its friction. Wide steps see the slope behind that, narrow ones find
the end; with one-sided differences of one size a search stopped up to 10 % away from planted figures."""

_CORRELATED = 0.95
"""Correlation from which two estimates count as one."""

_MEMORY_S = 1.0
"""Time over which residuals count as correlated with each other, seconds (Newey and West, 1987)."""

_FAILED_RAD = 10.0
"""Residual of a variant whose physics failed."""

_NOISE_RAD = 2e-4
"""Smallest noise of a measured angle that is believed, rad; the rounding of a 12-bit encoder is 4.4e-4."""

_UNSEEN_RAD = 1e-5
"""A parameter whose typical change moves the angles by less (root mean square) is not in the data, rad."""

_RESOLVED = {"offset": math.radians(0.5), "delay": 0.005, "backlash": math.radians(0.5), "payload": 0.02}
"""Half of the widest 95 % interval of an estimate that counts as resolved; of positive kinds it is a tenth."""

_RESOLVED_SHARE = 0.1


@dataclass(frozen=True)
class Estimate:
    """One estimated number.

    Attributes:
        kind: one of `KINDS`.
        joint: the joint's name; empty for a kind that all joints share.
        value: in the kind's unit.
        low, high: its 95 % interval, given that the model holds; infinite where the data say nothing.
        nominal: the model's own number.
        resolved: whether the interval is narrow enough to use the value.
        at_bound: whether the value ended at the edge of what is allowed.
    """

    kind: str
    joint: str
    value: float
    low: float
    high: float
    nominal: float
    resolved: bool
    at_bound: bool

    @property
    def name(self) -> str:
        """The kind, with the joint before it."""
        return f"{self.joint}.{self.kind}" if self.joint else self.kind

    def to_dict(self) -> JsonDict:
        """Return plain data; an infinite end of the interval is None."""
        ends = [end if math.isfinite(end) else None for end in (self.low, self.high)]
        return {
            "kind": self.kind, "joint": self.joint, "value": self.value, "interval": ends, "nominal": self.nominal,
            "unit": KINDS[self.kind].unit, "resolved": self.resolved, "at_bound": self.at_bound,
        }  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """Errors of open-loop replays over motions that were not fitted, root mean squares for each joint, rad, (n,).

    Attributes:
        episodes: their numbers.
        names: of the n joints.
        identified: of the identified arm.
        nominal: of the model before.
        constant_delay: of the best prediction without a model (`rlenv_robot.data.sim_to_real.gap`).
        scale: rad for one of the log's own units, (n,); None where they are SI.
    """

    episodes: tuple[int, ...]
    names: tuple[str, ...]
    identified: np.ndarray
    nominal: np.ndarray
    constant_delay: np.ndarray
    scale: np.ndarray | None = None

    def to_dict(self) -> JsonDict:
        """Return plain data: in rad, and ``own`` in the log's units."""
        errors = {"identified": self.identified, "nominal": self.nominal, "constant_delay": self.constant_delay}
        data: JsonDict = {"episodes": list(self.episodes), "joints": list(self.names)}
        data |= {f"{key}_rad": value.tolist() for key, value in errors.items()}
        if self.scale is not None:
            data["own"] = {key: (value / np.abs(self.scale)).tolist() for key, value in errors.items()}
        return data


@dataclass(frozen=True)
class Identification:
    """The identified servos of an arm.

    Attributes:
        robot: name of the robot.
        joints: names of the n joints.
        fitted: the joints whose residuals counted.
        episodes: numbers of the episodes that were fitted.
        estimates: one for each estimated number.
        values: all figures of the arm, estimated or nominal, of one variant.
        warnings: what the data can't tell, a sentence each.
    """

    robot: str
    joints: tuple[str, ...]
    fitted: tuple[str, ...]
    episodes: tuple[int, ...]
    estimates: tuple[Estimate, ...]
    values: ServoValues
    warnings: tuple[str, ...]

    def to_dict(self) -> JsonDict:
        """Return plain data."""
        return {
            "robot": self.robot, "fitted_joints": list(self.fitted), "episodes": list(self.episodes),
            "estimates": [estimate.to_dict() for estimate in self.estimates], "warnings": list(self.warnings),
        }  # fmt: skip


def identify(
    sim_model: SimModel,
    motions: Sequence[RecordedMotion],
    kinds: Sequence[str] = DEFAULT_KINDS,
    leave_out: Sequence[str] = (),
    most_iterations: int = 15,
    threads: int = 0,
) -> Identification:
    """Fit the figures of an arm's servos so that a replay of the goals does what was measured.

    The sum of squared distances over all frames and joints is minimised by MuJoCo's own `mujoco.minimize`
    (Gauss-Newton with box bounds), every column of its Jacobian being one simulation of a batch. Intervals come from
    the Jacobian and from residuals that are correlated over `_MEMORY_S` (the estimate of Newey and West).

    Args:
        sim_model: the nominal arm, where the search begins.
        motions: to fit, each replayed from its own start.
        kinds: what to estimate (`rlenv_robot.data.sim_to_real.servo_replay.KINDS`); all else stays nominal.
        leave_out: joints whose residuals do not count and whose figures stay nominal, such as a gripper that holds
            something.
        most_iterations: of each of the three stages of the search.
        threads: native threads; 0 for one a processor.

    Raises:
        SourceError: no motion, an unknown kind or joint, or a motion of other joints.
    """
    replay = ServoReplay(sim_model, threads)
    names = replay.joints.names
    _check(motions, names, kinds, leave_out)
    fitted = np.array([name not in leave_out for name in names])
    problem = _Problem(replay, [motion.at_period(sim_model.spec.period_s) for motion in motions], kinds, fitted)
    start = np.clip(np.zeros(len(problem.layout)), *problem.bounds)
    solution = start
    for step in _STEPS:
        solution, _ = minimize.least_squares(
            solution, problem.residuals, problem.bounds, partial(problem.jacobian, step=step), x_scale="jac",
            max_iter=most_iterations, xtol=1e-4, verbose=minimize.Verbosity.SILENT,
        )  # fmt: skip
    covariance = problem.covariance(solution)
    estimates = problem.estimates(solution, covariance)
    return Identification(
        sim_model.spec.name,
        names,
        tuple(name for name, counts in zip(names, fitted, strict=True) if counts),
        tuple(motion.episode for motion in motions),
        estimates,
        {kind: value[0] for kind, value in problem.values(solution[:, None]).items()},
        (*_weak(estimates), *_alike(estimates, covariance)),
    )


def _check(
    motions: Sequence[RecordedMotion], names: Sequence[str], kinds: Sequence[str], leave_out: Sequence[str]
) -> None:
    if not motions:
        raise SourceError("there is no motion to identify an arm from")
    for motion in motions:
        if motion.names != tuple(names):
            raise SourceError(f"a motion has the joints {', '.join(motion.names)}, the model {', '.join(names)}")
    for kind in kinds:
        if kind not in KINDS:
            raise SourceError(f"there is no kind of parameter {kind!r}, allowed are {', '.join(KINDS)}")
    for joint in leave_out:
        if joint not in names:
            raise SourceError(f"there is no joint {joint!r} to leave out, joints are {', '.join(names)}")
    if not kinds or set(leave_out) >= set(names):
        raise SourceError("nothing is left to estimate: name at least one kind, and leave in at least one joint")


class _Problem:
    """The residuals of a fit as a function of scaled parameters, and what follows from them.

    Args:
        replay: simulates variants.
        motions: to fit, with the simulation's period.
        kinds: of the parameters.
        fitted: which joints count, bool, (n,).
    """

    def __init__(
        self, replay: ServoReplay, motions: Sequence[RecordedMotion], kinds: Sequence[str], fitted: np.ndarray
    ) -> None:
        self._replay, self._motions, self._fitted = replay, motions, fitted
        self._nominal = replay.nominal()
        self.layout: list[tuple[str, int]] = [
            (kind, joint)
            for kind in kinds
            for joint in (np.flatnonzero(fitted).tolist() if kind in PER_JOINT else [-1])
        ]
        bounds = [self._bounds(kind, joint) for kind, joint in self.layout]
        self.bounds = (np.array([low for low, _ in bounds]), np.array([high for _, high in bounds]))
        self._settled = [min(round(SETTLE_S / motion.period_s), len(motion) // 4) for motion in motions]

    def _base(self, kind: str, joint: int) -> float:
        nominal = float(self._nominal[kind][joint] if joint >= 0 else self._nominal[kind])
        return max(nominal, 1e-3) if KINDS[kind].positive else nominal

    def _bounds(self, kind: str, joint: int) -> tuple[float, float]:
        about, base = KINDS[kind], self._base(kind, joint)
        if about.positive:
            return math.log(about.lowest) / about.step, math.log(about.highest) / about.step
        return (about.lowest - base) / about.step, (about.highest - base) / about.step

    def values(self, scaled: np.ndarray) -> dict[str, np.ndarray]:
        """Return the figures of K variants for scaled parameters, (P, K)."""
        count = scaled.shape[1]
        values = {kind: np.array(np.broadcast_to(value, (count, *value.shape)), np.float64)
                  for kind, value in self._nominal.items()}  # fmt: skip
        for row, (kind, joint) in zip(scaled, self.layout, strict=True):
            number = self._number(kind, joint, row)
            if joint >= 0:
                values[kind][:, joint] = number
            else:
                values[kind][:] = number
        return values

    def _number(self, kind: str, joint: int, scaled: np.ndarray) -> np.ndarray:
        about, base = KINDS[kind], self._base(kind, joint)
        return np.asarray(base * np.exp(about.step * scaled) if about.positive else base + about.step * scaled)

    def residuals(self, scaled: np.ndarray) -> np.ndarray:
        """Return simulated minus measured angles, rad, (R, K), for scaled parameters, (P, K)."""
        values = self.values(scaled)
        parts = []
        for motion, settled in zip(self._motions, self._settled, strict=True):
            apart = (
                self._replay.run(values, motion)[:, settled:, self._fitted] - motion.measured[settled:, self._fitted]
            )
            parts.append(np.nan_to_num(apart, nan=_FAILED_RAD).reshape(scaled.shape[1], -1))
        return np.ascontiguousarray(np.concatenate(parts, axis=1).T)

    def jacobian(self, scaled: np.ndarray, residuals: np.ndarray, step: float) -> np.ndarray:
        """Return the derivatives of the residuals by central differences, (R, P), from one batch.

        Args:
            scaled: where, (P, 1).
            residuals: there; not needed.
            step: of the differences.
        """
        steps = step * np.eye(len(scaled))
        both = self.residuals(np.concatenate([scaled + steps, scaled - steps], axis=1))
        return np.ascontiguousarray((both[:, : len(scaled)] - both[:, len(scaled) :]) / (2 * step))

    def covariance(self, solution: np.ndarray) -> np.ndarray:
        """Return the covariance of the scaled parameters, (P, P); infinite where the data say nothing."""
        count = len(solution)
        residuals = self.residuals(solution[:, None])[:, 0]
        jacobian = self.jacobian(solution[:, None], residuals, _STEPS[-1])
        information = jacobian.T @ jacobian
        scale = np.sqrt(np.diag(information))
        seen = scale > _UNSEEN_RAD * math.sqrt(len(residuals))
        covariance = np.full((count, count), 0.0)
        covariance[np.diag_indices(count)] = np.inf
        part = np.ix_(seen, seen)
        inverse = np.linalg.pinv(information[part] / np.outer(scale[seen], scale[seen]), rcond=1e-12, hermitian=True)
        inverse /= np.outer(scale[seen], scale[seen])
        spread = self._score_spread(jacobian[:, seen], residuals)
        freedom = len(residuals) / max(len(residuals) - count, 1)
        spread += _NOISE_RAD**2 * information[part]
        covariance[part] = freedom * inverse @ spread @ inverse
        return covariance

    def _score_spread(self, jacobian: np.ndarray, residuals: np.ndarray) -> np.ndarray:
        """Return the sum of the scores' autocovariances, weighted by Bartlett's window, (P, P)."""
        joints, width = int(self._fitted.sum()), jacobian.shape[1]
        total = np.zeros((width, width))
        first = 0
        for motion, settled in zip(self._motions, self._settled, strict=True):
            frames = len(motion) - settled
            rows = slice(first, first + frames * joints)
            first = rows.stop
            scores = (jacobian[rows] * residuals[rows, None]).reshape(frames, joints, width).sum(axis=1)
            memory = min(round(_MEMORY_S / motion.period_s), frames - 1)
            total += scores.T @ scores
            for lag in range(1, memory + 1):
                product = scores[lag:].T @ scores[:-lag]
                total += (1 - lag / (memory + 1)) * (product + product.T)
        return total

    def estimates(self, solution: np.ndarray, covariance: np.ndarray) -> tuple[Estimate, ...]:
        """Return the estimates in natural units."""
        made = []
        for index, (kind, joint) in enumerate(self.layout):
            about = KINDS[kind]
            half = 1.96 * math.sqrt(max(float(covariance[index, index]), 0.0))
            center = float(solution[index])
            with np.errstate(over="ignore"):
                value, low, high = (
                    float(self._number(kind, joint, np.asarray(end))) for end in (center, center - half, center + half)
                )
            at_bound = bool(min(center - self.bounds[0][index], self.bounds[1][index] - center) < 1e-6)
            wide = about.step * half
            resolved = wide <= (_RESOLVED_SHARE if about.positive else _RESOLVED[kind])
            name = self._replay.joints.names[joint] if joint >= 0 else ""
            nominal = float(self._nominal[kind][joint] if joint >= 0 else self._nominal[kind])
            zero = kind in ("delay", "backlash") and value < 1e-9  # zero is no edge but an answer
            made.append(Estimate(kind, name, value, low, high, nominal, resolved, at_bound and not zero))
        return tuple(made)


def _weak(estimates: Sequence[Estimate]) -> list[str]:
    warnings = []
    for estimate in estimates:
        if estimate.at_bound:
            warnings.append(
                f"{estimate.name} ended at the edge of what is allowed, {estimate.value:.3g} "
                f"{KINDS[estimate.kind].unit}: the model does not fit this joint, or the data do not move it"
            )
        elif not estimate.resolved:
            warnings.append(
                f"{estimate.name} can't be told from these data: between {estimate.low:.3g} and {estimate.high:.3g} "
                f"{KINDS[estimate.kind].unit}; record more, faster and with turns (rlenv-robot excite)"
            )
    return warnings


def _alike(estimates: Sequence[Estimate], covariance: np.ndarray) -> list[str]:
    spread = np.sqrt(np.diag(covariance))
    warnings = []
    for one, other in itertools.combinations(range(len(estimates)), 2):
        if not (0 < spread[one] < np.inf and 0 < spread[other] < np.inf):
            continue
        correlation = covariance[one, other] / (spread[one] * spread[other])
        if abs(correlation) > _CORRELATED:
            together = "their ratio" if correlation > 0 else "their sum or product"
            warnings.append(
                f"{estimates[one].name} and {estimates[other].name} can't be told apart (correlation "
                f"{correlation:+.2f}): the data tell {together} better than either"
            )
    return warnings


def judge(sim_model: SimModel, values: ServoValues, motions: Sequence[RecordedMotion], threads: int = 0) -> Judgement:
    """Replay motions that were not fitted, over all their frames, with the identified figures and the nominal ones.

    Args:
        sim_model: the nominal arm.
        values: `Identification.values`.
        motions: to replay.
        threads: native threads; 0 for one a processor.
    """
    replay = ServoReplay(sim_model, threads)
    nominal = replay.nominal()
    both = {kind: np.stack([values[kind], nominal[kind]]) for kind in nominal}
    squares, delayed, frames = np.zeros((2, len(replay.joints.names))), np.zeros(len(replay.joints.names)), 0
    scale = None
    for recorded in motions:
        motion = recorded.at_period(sim_model.spec.period_s)
        squares += np.square(replay.run(both, motion) - motion.measured).sum(axis=1)
        delayed += np.square(constant_delay_error(motion)) * len(motion)
        frames += len(motion)
        scale = None if motion.own is None else motion.own.scale
    errors = np.sqrt(squares / frames)
    episodes = tuple(motion.episode for motion in motions)
    return Judgement(episodes, replay.joints.names, errors[0], errors[1], np.sqrt(delayed / frames), scale)


# -- The identified arm as a profile -------------------------------------------------------------------------


def profile_text(identification: Identification, sim_model: SimModel, origin: str, spread: bool = False) -> str:
    """Return a profile in which a simulation has the identified figures.

    Args:
        identification: the figures.
        sim_model: the nominal arm that they were fitted to.
        origin: of the data, for a comment.
        spread: whether each resolved figure is drawn from its 95 % interval, to train on what is not known, rather
            than set.
    """
    replay = ServoReplay(sim_model, 1)
    nominal, values = replay.nominal(), identification.values
    estimates = {(estimate.kind, estimate.joint): estimate for estimate in identification.estimates}
    changed = {kind for kind, _ in estimates}

    def line(path: str, kind: str, joint: str, value: float, unit: str) -> str:
        estimate = estimates.get((kind, joint))
        known = estimate is not None and estimate.resolved and estimate.low < estimate.high
        if spread and known and kind != "offset":
            assert estimate is not None
            return f'"{path}" = {{uniform = [{estimate.low:.6g}, {estimate.high:.6g}], unit = "{unit}"}}'
        return f'"{path}" = {{choice = [{value:.6g}], unit = "{unit}"}}'

    lines = []
    for number, name in enumerate(replay.joints.names):
        actuator, joint = replay.element_names(number)
        stiffness, offset = float(values["stiffness"][number]), float(values["offset"][number])
        if "stiffness" in changed:
            lines.append(line(f"actuator.{actuator}.kp", "stiffness", name, stiffness, "N m/rad"))
        if {"offset", "stiffness"} & changed and offset:
            lines.append(line(f"actuator.{actuator}.biasprm[0]", "offset", name, -stiffness * offset, "N m"))
        if "damping" in changed:
            lines.append(line(f"joint.{joint}.damping", "damping", name, float(values["damping"][number]), "N m s/rad"))
            if replay.has_speed_gain(number):
                lines.append(f'"actuator.{actuator}.kv" = {{choice = [0.0], unit = "N m s/rad"}}')
        if "friction" in changed:
            lines.append(
                line(f"joint.{joint}.frictionloss", "friction", name, float(values["friction"][number]), "N m")
            )
        if "armature" in changed:
            lines.append(line(f"joint.{joint}.armature", "armature", "", float(values["armature"]), "kg m^2"))
    payload = float(values["payload"])
    if payload:
        body = replay.payload_body
        mass = float(sim_model.model.body(body).mass[0]) + payload
        lines.append(f'"body.{body}.mass" = {{choice = [{mass:.6g}], unit = "kg"}}')
    timing = []
    if "delay" in changed and float(values["delay"]) != float(nominal["delay"]):
        timing.append(f"command_delay = {max(float(values['delay']), 0.0):.6g}")
    if float(values["backlash"]):
        plays = ", ".join(f"{command} = {float(values['backlash']):.6g}" for command in replay.joints.commands)
        timing.append(f"backlash = {{{plays}}}")
    episodes = ", ".join(map(str, identification.episodes))
    parts = [
        f"# Servos identified from {origin}, episodes {episodes}. rlenv-robot gap --model FILE says how well they fit.",
        f'\n[robot]\nkind = "{identification.robot}"\nwhere = "sim"',
    ]
    parts += ["\n[timing]\n" + "\n".join(timing)] if timing else []
    parts += ["\n[randomise]\n" + "\n".join(lines)] if lines else []
    return "\n".join(parts) + "\n"
