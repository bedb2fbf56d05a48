"""The least-squares problem of an identification: residuals, derivatives, uncertainty and cross-validation."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.servo_replay import KINDS, PER_JOINT, ServoReplay

__all__ = ["FRICTION_MODELS", "NOISE_RAD", "ROUNDING_RAD", "FitProblem", "FrictionModel"]

SETTLE_S = 0.3
"""Ignored beginning of each motion, in seconds, since the state of the friction before it is unknown."""

_MEMORY_S = 1.0
"""Time over which residuals count as correlated with each other, seconds (Newey and West, 1987)."""

_FAILED_RAD = 10.0
"""Residual of a variant whose physics failed."""

NOISE_RAD = 2e-4
"""Smallest noise of a measured angle that is believed, rad; the rounding of a 12-bit encoder is 4.4e-4."""

ROUNDING_RAD = 2 * math.pi / 4096 / math.sqrt(12)
"""Standard deviation of the rounding of a 12-bit encoder, rad."""

_FINER = 4
"""Factor of the finer physics by which the error of the physics step is measured."""

_FOLDS = 5
"""Pieces of the motions that are left out in turn."""


@dataclass(frozen=True)
class FrictionModel:
    """A model of the friction in a servo.

    Source: Rhoban's BAM (Duclusaud et al., "Extended friction models for the physics simulation of servo actuators",
    ICRA 2025), models M1 to M6; `sim.randomize.load_friction` has the formula.

    Attributes:
        kinds: kinds of parameters to estimate in addition to ``friction`` and ``damping``.
        tied: kind -> the kind that it equals.
        meaning: a description for people.
    """

    kinds: tuple[str, ...]
    tied: Mapping[str, str]
    meaning: str


_STRIBECK = ("stribeck_friction", "stribeck_speed", "stribeck_shape")
_LOADED = ("load_friction", *_STRIBECK, "stribeck_load_friction")
_DIRECTED = (*_LOADED, "external_friction", "stribeck_external_friction")
_SAME = {"external_friction": "load_friction", "stribeck_external_friction": "stribeck_load_friction"}

FRICTION_MODELS: Mapping[str, FrictionModel] = {
    "m1": FrictionModel((), {}, "Coulomb and viscous"),
    "m2": FrictionModel(_STRIBECK, {}, "and more at rest (Stribeck)"),
    "m3": FrictionModel(("load_friction",), _SAME, "Coulomb, viscous, and a share of the load"),
    "m4": FrictionModel(_LOADED, _SAME, "and more at rest, of both"),
    "m5": FrictionModel(_DIRECTED, {}, "with a share of its own for the motor's torque and for gravity's"),
    "m6": FrictionModel(
        (*_DIRECTED, "load_quadratic_friction", "external_quadratic_friction"), {}, "and by the torque squared"
    ),
}
"""Friction models by name. Each extends the one before, except that M3 lacks the extension of M2."""


class FitProblem:
    """Compute the residuals of a fit as a function of scaled parameters, and quantities derived from them.

    Args:
        replay: simulates variants of the arm.
        motions: the motions to fit, with the simulation's period.
        kinds: kinds of parameters, without those of the friction model.
        fitted: the joints that count, bool, (n,).
        friction: name of the friction model, one of `FRICTION_MODELS`.

    Attributes:
        layout: kind and joint of each parameter; joint -1 for a kind that all joints share.
        bounds: lowest and highest scaled parameters, (P,) each.
        begin: initial parameters of a search, (P,).
        weight: the weight of the distance from the nominal arm, rad^2, equal to the squared noise. A parameter that is
            one `Kind.prior` away from its nominal value costs as much as one residual of this size.
    """

    def __init__(
        self,
        replay: ServoReplay,
        motions: Sequence[RecordedMotion],
        kinds: Sequence[str],
        fitted: np.ndarray,
        friction: str = "m1",
    ) -> None:
        self._replay, self._motions, self._fitted = replay, motions, fitted
        self._nominal = replay.nominal()
        self._tied = FRICTION_MODELS[friction].tied
        kinds = (*kinds, *(kind for kind in FRICTION_MODELS[friction].kinds if kind not in kinds))
        self.layout: list[tuple[str, int]] = [
            (kind, joint)
            for kind in kinds
            for joint in (np.flatnonzero(fitted).tolist() if kind in PER_JOINT else [-1])
        ]
        bounds = [self._bounds(kind, joint) for kind, joint in self.layout]
        self.bounds = (np.array([low for low, _ in bounds]), np.array([high for _, high in bounds]))
        self.begin = np.clip([KINDS[kind].begin for kind, _ in self.layout], *self.bounds)
        self.weight = 0.0
        self._prior = np.array([KINDS[kind].prior for kind, _ in self.layout])
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
        """Return the servo values of K variants for scaled parameters, (P, K)."""
        count = scaled.shape[1]
        values = {kind: np.array(np.broadcast_to(value, (count, *value.shape)), np.float64)
                  for kind, value in self._nominal.items()}  # fmt: skip
        for row, (kind, joint) in zip(scaled, self.layout, strict=True):
            number = self._number(kind, joint, row)
            if joint >= 0:
                values[kind][:, joint] = number
            else:
                values[kind][:] = number
        for kind, other in self._tied.items():
            values[kind] = values[other]
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

    def finer_residuals(self, solution: np.ndarray) -> np.ndarray:
        """Return the residuals for scaled parameters, (P,), that an infinitely small step of the physics would give.

        They are extrapolated from the model's step and a quarter of it, as its integrators are of first order.
        """
        finer = copy.copy(self)
        finer._replay = self._replay.finer(_FINER)
        coarse, fine = (problem.residuals(solution[:, None])[:, 0] for problem in (self, finer))
        return np.asarray(fine + (fine - coarse) / (_FINER - 1))

    def objective(self, scaled: np.ndarray) -> np.ndarray:
        """Return the residuals, followed by the distances from the nominal arm, (R + P, K)."""
        distance = math.sqrt(self.weight) * scaled / self._prior[:, None]
        return np.ascontiguousarray(np.concatenate([self.residuals(scaled), distance]))

    def slope(self, scaled: np.ndarray, residuals: np.ndarray, step: float) -> np.ndarray:
        """Return the derivatives of `objective`, (R + P, P); for the arguments see `jacobian`."""
        distance = np.diag(math.sqrt(self.weight) / self._prior)
        return np.ascontiguousarray(np.concatenate([self.jacobian(scaled, residuals, step), distance]))

    def weigh(self, scaled: np.ndarray, strength: float = 1.0) -> None:
        """Set the weight of the nominal arm from the residuals at scaled parameters, (P,).

        Neighbouring residuals are correlated, so their variance is that of their sum over many frames (Newey and West),
        averaged over the joints.

        Args:
            scaled: parameters of a fit.
            strength: 1 for the weight by Bayes's rule; 0 for none.
        """
        joints = int(self._fitted.sum())
        rows = self.residuals(scaled[:, None])[:, 0].reshape(-1, joints)
        variance, first = 0.0, 0
        for motion, settled in zip(self._motions, self._settled, strict=True):
            frames = len(motion) - settled
            part = rows[first : first + frames]
            first += frames
            variance += float(np.trace(_long_run(part, self._memory(motion, settled)))) / joints
        self.weight = strength * max(variance / len(rows), NOISE_RAD**2)

    @property
    def window(self) -> float:
        """The time over which residuals count as correlated, as a share of the data's duration."""
        memories = [self._memory(motion, settled) for motion, settled in zip(self._motions, self._settled, strict=True)]
        return max(memories) / sum(map(len, self._motions))

    def _memory(self, motion: RecordedMotion, settled: int) -> int:
        return min(round(_MEMORY_S / motion.period_s), len(motion) - settled - 1)

    def validate(self, solution: np.ndarray, step: float) -> np.ndarray:
        """Return the errors in pieces of the motions that were left out of the fit one at a time, rad, (n fitted,).

        Each motion is cut into five pieces. For each of them, one Gauss-Newton step from the solution removes the piece
        from the fit, and the whole motion is simulated with the result.

        Args:
            solution: the fit to all pieces, scaled, (P,).
            step: the step of the finite differences.
        """
        joints = int(self._fitted.sum())
        residuals = self.residuals(solution[:, None])[:, 0]
        jacobian = self.jacobian(solution[:, None], residuals, step)
        pieces = np.concatenate([
            np.repeat(np.arange(len(motion) - settled) * _FOLDS // (len(motion) - settled), joints)
            for motion, settled in zip(self._motions, self._settled, strict=True)
        ])  # fmt: skip
        prior = self.weight / self._prior**2
        free = (solution > self.bounds[0] + 1e-9) & (solution < self.bounds[1] - 1e-9)
        variants = np.tile(solution[:, None], (1, _FOLDS))
        for piece in range(_FOLDS):
            kept = pieces != piece
            part = jacobian[kept][:, free]
            normal = part.T @ part + np.diag(prior[free])
            normal += 1e-9 * np.trace(normal) / max(len(normal), 1) * np.eye(len(normal))
            gradient = part.T @ residuals[kept] + (prior * solution)[free]
            variants[free, piece] -= np.linalg.solve(normal, gradient)
        variants = np.clip(variants, *(bound[:, None] for bound in self.bounds))
        left_out = self.residuals(variants)[np.arange(len(pieces)), pieces]
        return np.asarray(np.sqrt(np.square(left_out.reshape(-1, joints)).mean(axis=0)))

    def jacobian(self, scaled: np.ndarray, residuals: np.ndarray, step: float) -> np.ndarray:
        """Return the derivatives of the residuals, (R, P), from one batch of central differences, one-sided at a bound.

        At a bound the step goes inwards only: a friction below 0 acts like one above 0, and would seem to have no
        effect.

        Args:
            scaled: where to differentiate, (P, 1).
            residuals: residuals there; unused.
            step: the step of the finite differences.
        """
        steps, (low, high) = step * np.eye(len(scaled)), self.bounds
        above, below = np.minimum(scaled + steps, high[:, None]), np.maximum(scaled - steps, low[:, None])
        both = self.residuals(np.concatenate([above, below], axis=1))
        return np.ascontiguousarray((both[:, : len(scaled)] - both[:, len(scaled) :]) / np.diag(above - below))

    def score_spread(self, jacobian: np.ndarray, residuals: np.ndarray) -> np.ndarray:
        """Return the sum of the scores' autocovariances, weighted by Bartlett's window, (P, P)."""
        joints, width = int(self._fitted.sum()), jacobian.shape[1]
        total = np.zeros((width, width))
        first = 0
        for motion, settled in zip(self._motions, self._settled, strict=True):
            frames = len(motion) - settled
            rows = slice(first, first + frames * joints)
            first = rows.stop
            scores = (jacobian[rows] * residuals[rows, None]).reshape(frames, joints, width).sum(axis=1)
            total += _long_run(scores, self._memory(motion, settled))
        return total

    def turning_error(self, residuals: np.ndarray) -> np.ndarray:
        """Return the part of an encoder's rounding that follows the directions of motion, (R, n fitted), rad.

        After a turn a joint stands still, and the rounding of where it stands is in many frames alike. Over the turns
        of a joint these errors average out as those of independent numbers do. What is left acts as a play.

        Args:
            residuals: at the solution, (R,).
        """
        joints, first, parts, turns = int(self._fitted.sum()), 0, [], 0
        for motion, settled in zip(self._motions, self._settled, strict=True):
            frames = len(motion) - settled
            apart = residuals[first : first + frames * joints].reshape(frames, joints)
            first += frames * joints
            parts.append(np.sign(np.gradient(motion.measured[settled:, self._fitted] + apart, axis=0)))
            rising = np.diff(motion.goals[:, self._fitted], axis=0) > 0
            turns = turns + (rising[1:] != rising[:-1]).sum(axis=0)
        left = ROUNDING_RAD / np.sqrt(np.maximum(turns, 1))
        return np.concatenate([(part[:, :, None] * np.diag(left)).reshape(-1, joints) for part in parts])

    def natural(self, index: int, scaled: float) -> float:
        """Convert a scaled parameter to its kind's unit."""
        kind, joint = self.layout[index]
        with np.errstate(over="ignore"):
            return float(self._number(kind, joint, np.asarray(scaled)))

    def nominal(self, index: int) -> float:
        """Return the nominal value of a parameter, in its kind's unit."""
        kind, joint = self.layout[index]
        return float(self._nominal[kind][joint] if joint >= 0 else self._nominal[kind])


def _long_run(rows: np.ndarray, memory: int) -> np.ndarray:
    """Return the sum of the autocovariances of rows, (T, W), weighted by Bartlett's window, (W, W)."""
    total = rows.T @ rows
    for lag in range(1, memory + 1):
        product = rows[lag:].T @ rows[:-lag]
        total += (1 - lag / (memory + 1)) * (product + product.T)
    return np.asarray(total)
