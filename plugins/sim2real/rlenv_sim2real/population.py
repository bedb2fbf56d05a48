"""Identify recorded arms one by one, as the rows of a population (`rlenv_robot.config.population`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hal import SourceError
from rlenv_robot.config.population import Population, PopulationArm, ReplayError, ServoRow
from rlenv_sim2real.gap import constant_delay_error
from rlenv_sim2real.identify import DEFAULT_KINDS, identify, judge
from rlenv_sim2real.motion import ArmJoints, RecordedMotion
from rlenv_sim2real.servo_replay import PER_JOINT, ServoReplay
from sim.model import SimModel, at_rate

__all__ = ["ArmFit", "arm_row", "empty_population", "joint_names", "next_held_out"]

_FEWEST_S = 3.0
"""Shortest time to fit, and to judge, seconds."""

_PIECES = 4
"""Fewest pieces of a recording to fit, and to judge, if it has so many episodes."""

_MOVED_RAD = 0.1
"""A joint whose measured angles span less than this in the fitted episodes counts as still, rad."""

_FEWEST_MOVED = 3
"""Fewest joints that move; below, masses and gains can't be told apart."""

_FOLLOWED_RAD = 2e-3
"""Goals from which all measured angles differ by less, after the best delay, are no goals but the angles, rad."""

_OUTSIDE_RAD = 0.35
"""Largest distance of a measured angle from the model's range; a larger one means other units, signs or zeros, rad."""

_LOST_RAD = 0.3
"""A joint whose angles differ by more from its goals after the best delay does not follow them, rad."""

_BETTER = 0.9
"""Share of the nominal error that the identified servos must reach on the episodes that judge. A fit that gains less
tells nothing about its arm: the nominal servos would do."""

_STUCK = 0.25
"""Largest share of a servo's torque that its friction may be; `sim.robots.twin.IDENTIFIED` has 0.07 at most."""

_SHARED = ("armature", "delay", "backlash")


@dataclass(frozen=True)
class ArmFit:
    """Settings of the identification of each arm.

    Attributes:
        kinds: the kinds of parameters to estimate (`rlenv_sim2real.servo_replay.KINDS`).
        leave_out: joints that keep their nominal values, such as a gripper that holds something.
        most_s: longest time to fit, and to judge, from episodes all over the recording, seconds.
        threads: native threads; 0 for one per processor.
    """

    kinds: Sequence[str] = DEFAULT_KINDS
    leave_out: Sequence[str] = ()
    most_s: float = 25.0
    threads: int = 0


def joint_names(sim_model: SimModel) -> tuple[str, ...]:
    """Return the joints of a population of this robot.

    Raises:
        SourceError: a population can't describe the robot: it has several arms, or servos with a gain on the speed.
    """
    replay = ServoReplay(sim_model, 1)
    names = replay.joints.names
    commands = [command for command in sim_model.spec.commands if command.name in replay.joints.commands]
    if len(commands) != 1 or commands[0].name != "joint_target" or tuple(commands[0].elements or ()) != names:
        raise SourceError(
            f"a population is of arms with one command joint_target that names its joints, and "
            f"{sim_model.spec.name!r} has {', '.join(command.name for command in commands)}"
        )
    if any(replay.has_speed_gain(number) for number in range(len(names))):
        raise SourceError(f"the servos of {sim_model.spec.name!r} have a gain on the speed, which a population has not")
    return names


def empty_population(sim_model: SimModel) -> Population:
    """Return a population of a robot without arms; for errors see `joint_names`."""
    return Population(sim_model.spec.name, list(joint_names(sim_model)))


def next_held_out(population: Population, share: float) -> bool:
    """Return whether the next arm is held out, so that this share of the arms is; earlier arms keep their place.

    Args:
        population: the arms so far.
        share: 0 to 1.
    """
    return len(population.held_out.arms) < int(share * (len(population.arms) + 1) + 1e-9)


def arm_row(
    sim_model: SimModel, motions: Sequence[RecordedMotion], name: str, source: str, settings: ArmFit | None = None
) -> PopulationArm:
    """Identify an arm on every second of its episodes, and judge the result on the others.

    A single episode is fitted in its first half and judged in its second.

    Args:
        sim_model: the nominal arm.
        motions: the recorded motions of the arm.
        name: a name for the arm.
        source: a description of the data.
        settings: of the fit; None for the defaults.

    Raises:
        SourceError: the data have too few frames or no motion, their goals are no goals, their angles are not those of
            the model, the error of the identified servos on the episodes that judge is not a tenth below that of the
            nominal ones, or a friction is impossible.
    """
    settings = settings or ArmFit()
    joints = joint_names(sim_model)
    fitted, judging = _divided(motions, settings.most_s)
    _check_angles(sim_model, (*fitted, *judging))
    away = np.max([constant_delay_error(motion) for motion in (*fitted, *judging)], axis=0)
    if away.max() < _FOLLOWED_RAD:
        raise SourceError("the goals are the measured angles, at the same or another time: no goals were recorded")
    sim_model = _at_recorded_rate(sim_model, fitted)
    spans = np.ptp(np.concatenate([motion.measured for motion in fitted]), axis=0)
    still = [joint for joint, span in zip(joints, spans, strict=True) if span < _MOVED_RAD]
    still += [joint for joint, error in zip(joints, away, strict=True) if error > _LOST_RAD]
    leave_out = [joint for joint in joints if joint in settings.leave_out or joint in still]
    if len(joints) - len(leave_out) < min(_FEWEST_MOVED, len(joints)):
        raise SourceError(
            f"only {len(joints) - len(leave_out)} joints move by {_MOVED_RAD:g} rad or more, follow their goals "
            f"and are not left out; {_FEWEST_MOVED} are needed"
        )
    found = identify(sim_model, fitted, settings.kinds, leave_out, threads=settings.threads)
    judgement = judge(sim_model, found.values, judging, settings.threads)
    counts = np.array([joint not in leave_out for joint in joints])
    identified, nominal = (
        float(np.sqrt(np.square(errors[counts]).mean())) for errors in (judgement.identified, judgement.nominal)
    )
    if not identified < _BETTER * nominal:
        raise SourceError(
            f"the identified servos replay other episodes with an error of {1000 * identified:.1f} mrad, the nominal "
            f"servos with {1000 * nominal:.1f}; a tenth less is needed"
        )
    stuck = found.values["friction"] > _STUCK * _largest_torque(sim_model)
    if stuck.any():
        joint = int(np.flatnonzero(stuck)[0])
        friction = float(found.values["friction"][joint])
        raise SourceError(
            f"the best fit gives {joints[joint]} a friction of {friction:.2f} N m, with which no servo moves: the "
            "model does not describe these motions"
        )
    row = ServoRow(
        *(found.values[kind].tolist() for kind in PER_JOINT), *(max(float(found.values[kind]), 0.0) for kind in _SHARED)
    )
    return PopulationArm(
        name, source, len(fitted), sum(map(len, fitted)), [joint for joint in joints if joint not in leave_out], row,
        ReplayError(identified, nominal),
    )  # fmt: skip


def _largest_torque(sim_model: SimModel) -> np.ndarray:
    """Return the largest torque of each joint's servo, N m, (n,); infinite where the model does not limit it."""
    model, ctrl = sim_model.model, ArmJoints.of(sim_model).ctrl
    limited = model.actuator_forcelimited[ctrl].astype(bool)
    return np.where(limited, model.actuator_forcerange[ctrl, 1], np.inf)


def _divided(motions: Sequence[RecordedMotion], most_s: float) -> tuple[list[RecordedMotion], list[RecordedMotion]]:
    """Return the motions to fit and those to judge."""
    if len(motions) == 1:
        middle = len(motions[0]) // 2
        motions = [motions[0].cut(0, middle), motions[0].cut(middle)] if middle >= 10 else motions
    fitted, judging = (_pieces(part, most_s) for part in (motions[0::2], motions[1::2]))
    for what, part in (("fit", fitted), ("judge", judging)):
        seconds = sum(len(motion) * motion.period_s for motion in part)
        if seconds < _FEWEST_S:
            raise SourceError(f"there are {seconds:.1f} s to {what}, {_FEWEST_S:g} are needed")
    return fitted, judging


def _pieces(motions: Sequence[RecordedMotion], most_s: float) -> list[RecordedMotion]:
    """Return motions from all over the recording, of this duration at most; of long ones the part that moves most."""
    if not motions:
        return []
    mean_s = sum(len(motion) * motion.period_s for motion in motions) / len(motions)
    count = min(max(round(most_s / mean_s), _PIECES), len(motions))
    pieces = []
    for index in np.linspace(0, len(motions) - 1, count).round().astype(int):
        motion = motions[index]
        frames = min(max(int(most_s / count / motion.period_s), 10), len(motion))
        path = np.cumsum(np.abs(np.diff(motion.goals, axis=0, prepend=motion.goals[:1])).sum(axis=1))
        first = int(np.argmax(path[frames - 1 :] - path[: len(motion) - frames + 1]))
        pieces.append(motion.cut(first, first + frames))
    return pieces


def _at_recorded_rate(sim_model: SimModel, motions: Sequence[RecordedMotion]) -> SimModel:
    """Return the model with periods as short as the recorded ones, so that a replay sends each goal at its time."""
    physics_hz = round(1 / sim_model.model.opt.timestep)
    recorded_hz = 0.99 / min(motion.period_s for motion in motions)
    if recorded_hz <= sim_model.spec.rate_hz:
        return sim_model
    rates = [physics_hz / steps for steps in range(1, physics_hz + 1) if physics_hz % steps == 0]
    return at_rate(sim_model, min((rate for rate in rates if rate >= recorded_hz), default=float(physics_hz)))


def _check_angles(sim_model: SimModel, motions: Sequence[RecordedMotion]) -> None:
    """Refuse angles that can't be those of the model, and angles or goals that are no numbers."""
    model = sim_model.model
    measured = np.concatenate([motion.measured for motion in motions])
    if not all(np.isfinite(motion.measured).all() and np.isfinite(motion.goals).all() for motion in motions):
        raise SourceError("an angle or a goal is not a finite number")
    for column, joint in enumerate(motions[0].names):
        low, high = model.joint(joint).range
        outside = max(low - measured[:, column].min(), measured[:, column].max() - high)
        if model.joint(joint).limited and outside > _OUTSIDE_RAD:
            raise SourceError(
                f"{joint} was measured {np.degrees(outside):.0f} degrees beyond the model's range: its units, sign or "
                "zero are others than the model's"
            )
