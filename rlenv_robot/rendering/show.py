"""Showing a state, live or from history (R1.5). Nothing here takes part in a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlenv_robot.rendering.drawing import window, write_image
from rlenv_robot.rendering.history import render_history
from rlenv_robot.tables import VisualisationTable
from rlenv_robot.world import World

__all__ = ["show"]

_MODES = ("window", "file", "call", "history")
_HISTORY = ("run", "episode", "video", "plot", "montage", "step", "frames")
_OPTIONS = frozenset({"mode", "path", "to", "camera", "width", "height", "fine", *_HISTORY})


def show(env_id: str, frame_no: int, world: World, options: Mapping[str, Any]) -> None:
    """Show the present state of a world, or history.

    Args:
        env_id, frame_no: of the environment whose world it is.
        world: what is shown.
        options: ``mode``: ``window`` (default) on this machine's screen; ``file`` writes a picture to ``path``;
            ``call`` hands Table 4 to the function ``to``, for a monitor of one's own; ``history`` shows a recorded
            ``run``, with the options of `rlenv_robot.rendering.history.render_history`. For the first three also
            ``camera``, ``width``, ``height``, ``fine``.

    Raises:
        ValueError: an unknown option or mode, or one that is missing.
        RobotError: there is no screen or no way to draw, with what to do.
    """
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise ValueError(f"render option {sorted(unknown)[0]!r} is unknown, allowed are {', '.join(sorted(_OPTIONS))}")
    mode = options.get("mode", "window")
    if mode not in _MODES:
        raise ValueError(f"render mode is {mode!r}, allowed are {', '.join(_MODES)}")
    if mode == "history":
        render_history(
            _wanted(options, "run"), options.get("episode", -1), options.get("video"), options.get("plot"),
            montage=bool(options.get("montage")), step=options.get("step"), frames=options.get("frames"),
            fine=options.get("fine"),
        )  # fmt: skip
        return
    image = world.image(options)
    if mode == "call":
        table: VisualisationTable = {"env_id": env_id, "frame_no": frame_no, "frame_data": {"image": image}}
        _wanted(options, "to")(table)
    elif mode == "file":
        write_image(Path(_wanted(options, "path")), image)
    else:
        window(env_id, image)


def _wanted(options: Mapping[str, Any], name: str) -> Any:
    if options.get(name) is None:
        raise ValueError(f"render mode {options.get('mode')!r} needs the option {name!r}")
    return options[name]
