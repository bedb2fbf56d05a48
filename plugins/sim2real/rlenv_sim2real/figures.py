"""Plot the gap of an episode, and the scores of policies in simulation against those on the robot."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from recorder.figures.style import BLUE, GREEN, INK, QUIET, RED, heading, saved, sheet
from rlenv_sim2real.gap import EpisodeGap
from rlenv_sim2real.motion import RecordedMotion
from rlenv_sim2real.open_loop import ReplayModel, fingertips
from rlenv_sim2real.validity import Validity

__all__ = ["plot_gap", "plot_validity"]

_GOAL = "#b8b8b8"


def plot_gap(model: ReplayModel, motion: RecordedMotion, simulated: np.ndarray, gap: EpisodeGap, path: Path) -> Path:
    """Plot goals, measurements and simulation of every joint, and the distance between the fingertips, over time.

    Args:
        model: the simulation.
        motion: the motion of the episode.
        simulated: as `rlenv_sim2real.gap.measure_gap` returned it.
        gap: as `rlenv_sim2real.gap.measure_gap` returned it.
        path: the path of the image, ending in ``.png``, ``.svg`` or ``.pdf``.

    Returns:
        The path.

    Raises:
        LogError: matplotlib is missing, or the image can't be written.
    """
    motion = motion.at_period(model.sim_model.spec.period_s)
    seconds = np.arange(len(motion)) * motion.period_s
    tips = fingertips(model.sim_model, motion.measured)
    count = len(motion.names)
    figure, axes = sheet(count + bool(tips), 1, 10.0, 0.6 + 1.05 * (count + bool(tips)), sharex=True)
    for number, (strip, joint) in enumerate(zip(axes, gap.joints, strict=False)):
        strip.step(seconds, np.degrees(motion.goals[:, number]), color=_GOAL, linewidth=1.0, where="post", label="goal")
        strip.plot(seconds, np.degrees(motion.measured[:, number]), color=BLUE, linewidth=1.3, label="measured")
        strip.plot(seconds, np.degrees(simulated[:, number]), color=RED, linewidth=1.0, label="simulated")
        strip.set_ylabel("deg", color=QUIET, fontsize=8)
        lag = "" if math.isnan(joint.lag.lag_s) else f", lag {1000 * joint.lag.lag_s:.0f} ms"
        offset = math.degrees(joint.lag.offset)
        strip.set_title(
            f"{joint.name}: {math.degrees(joint.rms):.2f} deg RMS, {math.degrees(joint.worst):.1f} at worst{lag}, "
            f"offset {offset:+.2f} deg", loc="left", fontsize=8, color=INK,
        )  # fmt: skip
    if tips:
        simulated_tips = fingertips(model.sim_model, simulated)
        for name, position in tips.items():
            distance = 1000 * np.linalg.norm(position - simulated_tips[name], axis=1)
            axes[-1].plot(seconds, distance, color=GREEN, linewidth=1.3, label=name)
        axes[-1].set_title(
            f"fingertip: {gap.tip_rms_mm:.1f} mm RMS, {gap.tip_worst_mm:.1f} mm at worst", loc="left", fontsize=8,
            color=INK,
        )  # fmt: skip
        axes[-1].set_ylabel("mm", color=QUIET, fontsize=8)
        axes[-1].set_ylim(bottom=0)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=7, ncols=3, frameon=False)
    axes[-1].set_xlabel("s", color=QUIET, fontsize=8)
    heading(figure, f"episode {gap.episode} against {gap.model}, open loop")
    return saved(figure, path)


def plot_validity(result: Validity, score: str, path: Path) -> Path:
    """Plot each policy's mean score on the robot over its mean score in simulation.

    Raises:
        LogError: matplotlib is missing, or the image can't be written.
    """
    figure, (axis,) = sheet(1, 1, 5.0, 5.0)
    simulated, real = np.array(list(result.means.values())).T
    low, high = float(min(simulated.min(), real.min())), float(max(simulated.max(), real.max()))
    margin = 0.08 * max(high - low, 1e-3)
    axis.plot([low, high], [low, high], color=_GOAL, linewidth=1.0)
    axis.scatter(simulated, real, color=BLUE, s=30, zorder=3)
    for name, (one, other) in result.means.items():
        axis.annotate(Path(name).stem, (one, other), xytext=(5, 5), textcoords="offset points", fontsize=8, color=INK)
    axis.set_xlim(low - margin, high + 3 * margin)
    axis.set_ylim(low - margin, high + 2 * margin)
    axis.set_xlabel(f"{score} in simulation", fontsize=9)
    axis.set_ylabel(f"{score} on the robot", fontsize=9)
    correlation = "unknown" if math.isnan(result.pearson) else f"{result.pearson:.3f}"
    axis.set_title(
        f"correlation {correlation}, mean maximum rank violation {result.rank_violation:.3f}", loc="left", fontsize=9,
        color=INK,
    )  # fmt: skip
    return saved(figure, path)
