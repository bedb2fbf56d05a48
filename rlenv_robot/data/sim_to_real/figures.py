"""Draw the gap of an episode, and the scores of policies in simulation against those on the robot."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from hal import LogError
from rlenv_robot.data.sim_to_real.gap import EpisodeGap
from rlenv_robot.data.sim_to_real.motion import RecordedMotion
from rlenv_robot.data.sim_to_real.open_loop import ReplayModel, fingertips
from rlenv_robot.data.sim_to_real.validity import Validity

__all__ = ["plot_gap", "plot_validity"]

_MEASURED, _SIMULATED, _GOAL, _TIP = "#1b6ca8", "#b3261e", "#b8b8b8", "#3c7a4b"
_INK, _QUIET = "#222222", "#8a8a8a"


def plot_gap(model: ReplayModel, motion: RecordedMotion, simulated: np.ndarray, gap: EpisodeGap, path: Path) -> Path:
    """Draw goals, measurements and simulation of every joint, and the distance of the fingertips, over time.

    Args:
        model: the simulation.
        motion: of the episode.
        simulated: as `rlenv_robot.data.sim_to_real.gap.measure_gap` returned it.
        gap: likewise.
        path: of the image, ending in ``.png``, ``.svg`` or ``.pdf``.

    Returns:
        The path.

    Raises:
        LogError: matplotlib is missing, or the image can't be written.
    """
    motion = motion.at_period(model.sim_model.spec.period_s)
    seconds = np.arange(len(motion)) * motion.period_s
    tips = fingertips(model.sim_model, motion.measured)
    count = len(motion.names)
    figure, axes = _sheet(count + bool(tips), 10.0, 0.6 + 1.05 * (count + bool(tips)))
    for number, (strip, joint) in enumerate(zip(axes, gap.joints, strict=False)):
        strip.step(seconds, np.degrees(motion.goals[:, number]), color=_GOAL, linewidth=1.0, where="post", label="goal")
        strip.plot(seconds, np.degrees(motion.measured[:, number]), color=_MEASURED, linewidth=1.3, label="measured")
        strip.plot(seconds, np.degrees(simulated[:, number]), color=_SIMULATED, linewidth=1.0, label="simulated")
        strip.set_ylabel("deg", color=_QUIET, fontsize=8)
        lag = "" if math.isnan(joint.lag.lag_s) else f", lag {1000 * joint.lag.lag_s:.0f} ms"
        offset = math.degrees(joint.lag.offset)
        strip.set_title(
            f"{joint.name}: {math.degrees(joint.rms):.2f} deg RMS, {math.degrees(joint.worst):.1f} at worst{lag}, "
            f"offset {offset:+.2f} deg", loc="left", fontsize=8, color=_INK,
        )  # fmt: skip
    if tips:
        simulated_tips = fingertips(model.sim_model, simulated)
        for name, position in tips.items():
            distance = 1000 * np.linalg.norm(position - simulated_tips[name], axis=1)
            axes[-1].plot(seconds, distance, color=_TIP, linewidth=1.3, label=name)
        axes[-1].set_title(
            f"fingertip: {gap.tip_rms_mm:.1f} mm RMS, {gap.tip_worst_mm:.1f} mm at worst", loc="left", fontsize=8,
            color=_INK,
        )  # fmt: skip
        axes[-1].set_ylabel("mm", color=_QUIET, fontsize=8)
        axes[-1].set_ylim(bottom=0)
    axes[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), fontsize=7, ncols=3, frameon=False)
    axes[-1].set_xlabel("s", color=_QUIET, fontsize=8)
    figure.suptitle(f"episode {gap.episode} against {gap.model}, open loop", fontsize=10, color=_INK, x=0.01, ha="left")
    return _saved(figure, path)


def plot_validity(result: Validity, score: str, path: Path) -> Path:
    """Draw each policy's mean score on the robot over that in simulation.

    Raises:
        LogError: matplotlib is missing, or the image can't be written.
    """
    figure, (axis,) = _sheet(1, 5.0, 5.0)
    simulated, real = np.array(list(result.means.values())).T
    low, high = float(min(simulated.min(), real.min())), float(max(simulated.max(), real.max()))
    margin = 0.08 * max(high - low, 1e-3)
    axis.plot([low, high], [low, high], color=_GOAL, linewidth=1.0)
    axis.scatter(simulated, real, color=_MEASURED, s=30, zorder=3)
    for name, (one, other) in result.means.items():
        axis.annotate(Path(name).stem, (one, other), xytext=(5, 5), textcoords="offset points", fontsize=8, color=_INK)
    axis.set_xlim(low - margin, high + 3 * margin)
    axis.set_ylim(low - margin, high + 2 * margin)
    axis.set_xlabel(f"{score} in simulation", fontsize=9)
    axis.set_ylabel(f"{score} on the robot", fontsize=9)
    correlation = "unknown" if math.isnan(result.pearson) else f"{result.pearson:.3f}"
    axis.set_title(
        f"correlation {correlation}, mean maximum rank violation {result.rank_violation:.3f}", loc="left", fontsize=9,
        color=_INK,
    )  # fmt: skip
    return _saved(figure, path)


def _sheet(count: int, width: float, height: float) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise LogError("plots need matplotlib: pip install 'rlenv-robot[demo]'") from None
    figure = Figure(figsize=(width, height), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(count, 1, sharex=count > 1)).tolist()
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=7, colors=_QUIET)
        axis.grid(color="#eeeeee", linewidth=0.6)
    return figure, axes


def _saved(figure: Any, path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise LogError(f"{path} can't be written: {error}") from error
    return path
