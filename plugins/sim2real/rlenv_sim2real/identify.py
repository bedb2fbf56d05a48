"""Identify the servos of an arm from recorded motions, by a least-squares fit of batched simulations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from mujoco import minimize

from hal import SourceError
from hal.robot import Actuation, Range
from recorder.json_data import JsonDict
from rlenv_sim2real.estimates import Combination, Estimate, alike, combinations_of, estimates_of, warnings_of
from rlenv_sim2real.fit_problem import FRICTION_MODELS, FitProblem
from rlenv_sim2real.gap import constant_delay_error
from rlenv_sim2real.intervals import uncertainty
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.servo_replay import KINDS, ServoReplay, ServoValues
from sim.model import SimModel
from sim.randomize.load_friction import TERMS

__all__ = [
    "DEFAULT_KINDS", "Combination", "Estimate", "Identification", "Judgement", "identify", "judge", "profile_text",
]  # fmt: skip

DEFAULT_KINDS = ("stiffness", "damping", "friction", "offset", "armature", "delay")
"""The kinds of parameters that are estimated by default."""

_STEPS = (3e-2, 1e-2, 3e-3)
"""Steps of the central differences in the three stages of the search, in units of `Kind.step`.

A joint that sticks makes the residuals rough in its friction. Wide steps see the slope behind that, narrow ones find
the end; with one-sided differences of one size a search stopped up to 10 % away from planted figures."""

_LOADED_STEPS = (1e-1, 1e-2)
"""The same where a friction of more parameters begins at the result of a simpler one."""

_WARM_START = {"m2": "m1", "m3": "m1", "m4": "m3", "m5": "m4", "m6": "m5"}
"""Model of friction -> the model at whose result its search begins."""

_STRENGTHS = (0.0, 4.0)
"""Weights of the nominal arm that are tried beside 1, by Bayes's rule."""

_BETTER = 0.99
"""Share of a simpler fit's error that a fit with more parameters must reach to be chosen."""


@dataclass(frozen=True)
class Judgement:
    """Errors of open-loop replays of motions outside the fit, root mean squares for each joint, rad, (n,).

    Attributes:
        episodes: their numbers.
        names: the names of the n joints.
        identified: the errors of the identified arm.
        nominal: the errors of the nominal model.
        constant_delay: the errors of the best prediction without a model (`rlenv_sim2real.gap`).
        scale: rad per native unit of the log, (n,); None if the log is in SI units.
    """

    episodes: tuple[int, ...]
    names: tuple[str, ...]
    identified: np.ndarray
    nominal: np.ndarray
    constant_delay: np.ndarray
    scale: np.ndarray | None = None

    def to_dict(self) -> JsonDict:
        """Return JSON data in rad, and ``own`` in the log's units."""
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
        fitted: the joints whose residuals were used.
        episodes: numbers of the fitted episodes.
        estimates: one for each estimated parameter.
        values: all parameters of the arm, estimated or nominal, as one variant.
        warnings: sentences on what the data can't determine.
        friction: name of the friction model (`FRICTION_MODELS`).
        validation: friction model -> cross-validation error of its fit, mean of the joints, rad; empty unless several
            models were tried.
        combinations: friction and play together, for the joints of which the data do not resolve both.
    """

    robot: str
    joints: tuple[str, ...]
    fitted: tuple[str, ...]
    episodes: tuple[int, ...]
    estimates: tuple[Estimate, ...]
    values: ServoValues
    warnings: tuple[str, ...]
    friction: str = "m1"
    validation: Mapping[str, float] = field(default_factory=dict)
    combinations: tuple[Combination, ...] = ()

    def to_dict(self) -> JsonDict:
        """Return JSON data."""
        return {
            "robot": self.robot, "fitted_joints": list(self.fitted), "episodes": list(self.episodes),
            "estimates": [estimate.to_dict() for estimate in self.estimates], "warnings": list(self.warnings),
            "friction": self.friction, "validation_rad": dict(self.validation),
            "combinations": [combination.to_dict() for combination in self.combinations],
        }  # fmt: skip


def identify(
    sim_model: SimModel,
    motions: Sequence[RecordedMotion],
    kinds: Sequence[str] = DEFAULT_KINDS,
    leave_out: Sequence[str] = (),
    most_iterations: int = 15,
    threads: int = 0,
    friction: str | Sequence[str] = "m1",
) -> Identification:
    """Fit the parameters of an arm's servos so that a replay of the goals reproduces the measurements.

    The sum of squared residuals over all frames and joints is minimised by `mujoco.minimize` (Gauss-Newton with box
    bounds); every column of its Jacobian is one simulation of a batch. The nominal arm counts as an observation with
    the spread of real arms (`Kind.prior`), so that parameters that a motion does not determine stay near it. The
    intervals are profile likelihoods of the data alone (`rlenv_sim2real.intervals`).

    Args:
        sim_model: the nominal arm, where the search begins.
        motions: the motions to fit, each replayed from its start.
        kinds: what to estimate (`rlenv_sim2real.servo_replay.KINDS`); all other kinds stay nominal.
        leave_out: joints whose residuals are ignored and whose parameters stay nominal, such as a gripper that holds
            something.
        most_iterations: maximum for each of the three stages of the search.
        threads: native threads; 0 for one per processor.
        friction: the friction model, one of `FRICTION_MODELS`; or several, or ``auto`` for all, of which the one with
            the smallest cross-validation error is used. The weight of the nominal arm is then chosen in the same way.

    Raises:
        SourceError: there is no motion, a kind, joint or friction model is unknown, or a motion has other joints.
    """
    replay = ServoReplay(sim_model, threads)
    names = replay.joints.names
    _check(motions, names, kinds, leave_out)
    if friction == "auto":
        friction = tuple(FRICTION_MODELS)
    models = (friction,) if isinstance(friction, str) else tuple(friction)
    for model in models:
        if model not in FRICTION_MODELS:
            raise SourceError(f"there is no friction {model!r}, allowed are {', '.join(FRICTION_MODELS)} and auto")
    fitted = np.array([name not in leave_out for name in names])
    even = [motion.at_period(sim_model.spec.period_s) for motion in motions]

    def problem_of(model: str) -> FitProblem:
        return FitProblem(replay, even, kinds, fitted, model)

    if len(models) > 1:
        best = _chosen(problem_of, models, most_iterations)
    elif models == ("m1",):
        best = _fit("m1", problem_of("m1"), None, _STEPS, most_iterations)
    else:
        best = _with_load(problem_of, models[0], most_iterations)
    known = uncertainty(best.problem, best.solution, _STEPS[1])
    estimates = estimates_of(best.problem, best.solution, known, names)
    combinations = combinations_of(best.problem, best.solution, known, estimates, names)
    return Identification(
        sim_model.spec.name,
        names,
        tuple(name for name, counts in zip(names, fitted, strict=True) if counts),
        tuple(motion.episode for motion in motions),
        estimates,
        {kind: value[0] for kind, value in best.problem.values(best.solution[:, None]).items()},
        tuple(warnings_of(estimates, alike(estimates, known), combinations)),
        best.friction,
        best.errors,
        combinations,
    )


@dataclass(frozen=True)
class _Fit:
    """A fit with one model of the friction."""

    friction: str
    problem: FitProblem
    solution: np.ndarray
    errors: Mapping[str, float] = field(default_factory=dict)


def _fit(
    friction: str,
    problem: FitProblem,
    before: _Fit | None,
    steps: Sequence[float],
    most_iterations: int,
    strength: float = 1.0,
) -> _Fit:
    """Fit from the result of another fit, or from the nominal arm."""
    solution = problem.begin
    if before is not None:
        known = dict(zip(before.problem.layout, before.solution, strict=True))
        for kind, other in FRICTION_MODELS[before.friction].tied.items():
            known.setdefault((kind, -1), known.get((other, -1), 0.0))
        solution = np.array([known.get(key, begin) for key, begin in zip(problem.layout, problem.begin, strict=True)])
        problem.weigh(solution, strength)
    for step in steps:
        solution, _ = minimize.least_squares(
            solution, problem.objective, problem.bounds, partial(problem.slope, step=step), x_scale="jac",
            max_iter=most_iterations, xtol=1e-4, verbose=minimize.Verbosity.SILENT,
        )  # fmt: skip
        problem.weigh(solution, strength)
    return _Fit(friction, problem, solution)


def _with_load(problem_of: Callable[[str], FitProblem], friction: str, most_iterations: int) -> _Fit:
    """Fit the simplest friction first, and from its result one more general after the other."""
    if friction == "m1":
        return _fit("m1", problem_of("m1"), None, _STEPS[:2], most_iterations)
    before = _with_load(problem_of, _WARM_START[friction], most_iterations)
    return _fit(friction, problem_of(friction), before, _LOADED_STEPS, most_iterations)


def _chosen(problem_of: Callable[[str], FitProblem], models: Sequence[str], most_iterations: int) -> _Fit:
    """Return the fit with the smallest error in what was left out; of similar ones the simpler."""
    fits = {"m1": _with_load(problem_of, "m1", most_iterations)}
    needed = {model for name in models for model in (name, *_simpler(name))}
    for name, before in _WARM_START.items():
        if name not in needed:
            continue
        fits[name] = _fit(name, problem_of(name), fits[before], _LOADED_STEPS, most_iterations)
    errors = {
        name: float(fit.problem.validate(fit.solution, _STEPS[1]).mean())
        for name, fit in fits.items()
        if name in models
    }
    best = fits[_smallest(errors)]
    weighed = {f"{best.friction}, nominal arm by Bayes": best}
    for strength in _STRENGTHS:
        name = f"{best.friction}, nominal arm {strength:g} times"
        weighed[name] = _fit(best.friction, problem_of(best.friction), best, _STEPS[1:2], most_iterations, strength)
        errors[name] = float(weighed[name].problem.validate(weighed[name].solution, _STEPS[1]).mean())
    errors[next(iter(weighed))] = errors[best.friction]
    return replace(weighed[_smallest({name: errors[name] for name in weighed})], errors=errors)


def _simpler(name: str) -> list[str]:
    """Return the models at whose results the search for a model begins, the nearest first."""
    before = _WARM_START.get(name)
    return [] if before is None else [before, *_simpler(before)]


def _smallest(errors: Mapping[str, float]) -> str:
    best, *others = errors
    for name in others:
        if errors[name] < _BETTER * errors[best]:
            best = name
    return best


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


def judge(sim_model: SimModel, values: ServoValues, motions: Sequence[RecordedMotion], threads: int = 0) -> Judgement:
    """Replay motions outside the fit over all their frames, with the identified and with the nominal parameters.

    Args:
        sim_model: the nominal arm.
        values: `Identification.values`.
        motions: the motions to replay.
        threads: native threads; 0 for one per processor.
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


def profile_text(
    identification: Identification,
    sim_model: SimModel,
    origin: str,
    spread: bool = False,
    gains: Mapping[str, Range] | None = None,
) -> str:
    """Return a profile of a simulation with the identified parameters.

    Args:
        identification: the identified parameters.
        sim_model: the nominal arm of the fit.
        origin: the origin of the data, for a comment.
        spread: whether each resolved parameter is drawn from its 95 % interval, to train under the remaining
            uncertainty, instead of set to its value.
        gains: the servos' registers and voltage during the recording, for the manifest of policies that are trained
            with the profile; None assumes those of the nominal arm, and says so.
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
        for term in TERMS:
            value, unit = float(values[term]), KINDS[term].unit
            if value != TERMS[term].default:
                lines.append(f'"joint.{joint}.{term}" = {{choice = [{value:.6g}], unit = "{unit}"}}')
        if "armature" in changed:
            lines.append(line(f"joint.{joint}.armature", "armature", "", float(values["armature"]), "kg m^2"))
    payload = float(values["payload"])
    if payload:
        lines += replay.carrier.loaded(payload).lines(replay.carrier.name)
    timing = []
    if "delay" in changed and float(values["delay"]) != float(nominal["delay"]):
        timing.append(f"command_delay = {max(float(values['delay']), 0.0):.6g}")
    if float(values["backlash"]):
        plays = ", ".join(f"{command} = {float(values['backlash']):.6g}" for command in replay.joints.commands)
        timing.append(f"backlash = {{{plays}}}")
    episodes = ", ".join(map(str, identification.episodes))
    parts = [
        f"# Servos identified from {origin}, episodes {episodes}. "
        "rlenv-robot sim2real gap --model FILE says how well they fit.",
        f'\n[robot]\nkind = "{identification.robot}"\nwhere = "sim"',
    ]
    parts += [_gains_text(sim_model, gains)] if "stiffness" in changed else []
    parts += ["\n[timing]\n" + "\n".join(timing)] if timing else []
    parts += ["\n[randomise]\n" + "\n".join(lines)] if lines else []
    return "\n".join(parts) + "\n"


def _gains_text(sim_model: SimModel, gains: Mapping[str, Range] | None) -> str:
    """Return the profile's line of gains; a comment where they are not known."""
    assumed = gains is None
    if gains is None:
        actuation = sim_model.spec.actuation or Actuation()
        gains = next(iter(actuation.gains.values()), {})
    registers = {name: ends for name, ends in gains.items() if name in ("p", "i", "d", "volts")}
    if not registers:
        return "# gains = {p = ..., volts = ...}: those of the servos when the data were recorded, for the manifest"
    table = ", ".join(
        f"{name} = {ends.low:g}" if ends.low == ends.high else f"{name} = [{ends.low:g}, {ends.high:g}]"
        for name, ends in registers.items()
    )
    origin = "assumed as in the nominal arm, since the log does not contain them" if assumed else "as the log says"
    return f"gains = {{{table}}}  # of the servos while the data were recorded, {origin}"
