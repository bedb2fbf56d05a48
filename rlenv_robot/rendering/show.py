"""Show the state of a world, or a recorded episode (R1.5), without touching the simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hal.field import JsonObject
from rlenv_robot.rendering.drawing import show_window, write_image
from rlenv_robot.rendering.history import render_history
from rlenv_robot.tables import VisualisationTable
from rlenv_robot.world import World

__all__ = ["show"]

_MODES = ("window", "file", "call", "history")
_HISTORY = ("run", "episode", "video", "plot", "montage", "step", "frames")
_OPTIONS = frozenset({"mode", "path", "to", "camera", "width", "height", "fine", *_HISTORY})


def show(env_id: str, frame_no: int, world: World, options: JsonObject) -> None:
    """Show the state of a world, or a recorded episode.

    Args:
        env_id, frame_no: of the environment.
        world: to show.
        options: ``mode`` is ``window`` (default), which shows the state on this machine's screen; ``file``, which
            writes an image to ``path``; ``call``, which calls the function ``to`` with Table 4; or ``history``, which
            shows a recorded ``run``, with the options of `rlenv_robot.rendering.history.render_history`. The first
            three also take ``camera``, ``width``, ``height`` and ``fine``.

    Raises:
        ValueError: an option or the mode is unknown, or an option is missing.
        RobotError: there is no screen, or this machine can't render; the message says what to do.
    """
    unknown = options.keys() - _OPTIONS
    if unknown:
        raise ValueError(f"render option {sorted(unknown)[0]!r} is unknown, allowed are {', '.join(sorted(_OPTIONS))}")
    mode = options.get("mode", "window")
    if mode not in _MODES:
        raise ValueError(f"render mode is {mode!r}, allowed are {', '.join(_MODES)}")
    if mode == "history":
        render_history(
            _required(options, "run"), options.get("episode", -1), options.get("video"), options.get("plot"),
            montage=bool(options.get("montage")), step=options.get("step"), frames=options.get("frames"),
            fine=options.get("fine"),
        )  # fmt: skip
        return
    image = world.image(options)
    if mode == "call":
        table: VisualisationTable = {"env_id": env_id, "frame_no": frame_no, "frame_data": {"image": image}}
        _required(options, "to")(table)
    elif mode == "file":
        write_image(Path(_required(options, "path")), image)
    else:
        show_window(env_id, image)


def _required(options: JsonObject, name: str) -> Any:
    if options.get(name) is None:
        raise ValueError(f"render mode {options.get('mode')!r} needs the option {name!r}")
    return options[name]
