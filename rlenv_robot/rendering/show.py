"""Show the state of a world, or a recorded episode (R1.5), without affecting the simulation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hal import RobotError, SourceError, SpecError
from hal.field import JsonObject
from rlenv_robot.rendering.drawing import IMAGE_ENDINGS, draw, show_window, write_image
from rlenv_robot.rendering.panel import Line, beside, field_lines, info_lines, reward_lines, row_lines
from rlenv_robot.robot_models import RobotModel, find_robot_model, is_robot_file, robot_names
from rlenv_robot.tables import VisualisationTable
from rlenv_robot.world import NoImage, TimeStep, World

if TYPE_CHECKING:
    from recorder.images.images import Images
    from recorder.table.table import Table

__all__ = ["episode_frames", "find_episode", "frame_rate", "render_history", "show", "twin_images"]

_POSE_SUFFIXES = ("_position", "_orientation")
"""The ends of the names of sensors that may determine a pose."""


def episode_frames(
    path: str | Path, episode: int, options: JsonObject | None = None
) -> tuple[Iterator[np.ndarray], float]:
    """Return the images of a recorded episode, rendered from its poses, and their frame rate, Hz.

    Args:
        path: a run, a folder of runs, or another project's data set.
        episode: its number; negative ones count from the end.
        options: see `draw`.

    Raises:
        SourceError: the episode does not exist, or contains no poses.
    """
    table, number = find_episode(path, episode)
    return twin_images(table, number, options or {}), frame_rate(table, number)


def twin_images(table: Table, episode: int, options: JsonObject, frames: slice = slice(None)) -> Iterator[np.ndarray]:
    """Render the simulated twin in the measured poses of an episode, one image per frame.

    Args:
        table: the table with the episode.
        episode: its index in the table.
        options: see `draw`.
        frames: the frames of the episode to render.

    Raises:
        SourceError: the episode contains no joint positions, or the model file of its robot is missing.
    """
    rows, info = table.rows[table.starts[episode] : table.stops[episode]][frames], table.episodes[episode]
    sensors = _measured(rows) or (_measured(rows, "observation_") if "robot" in info else {})
    if not any(name.endswith(_POSE_SUFFIXES) for name in sensors):
        raise SourceError(
            f"{table.origin} records no joint_position of a known robot, so no image can be rendered from it; "
            "--plot FILE plots the numbers"
        )
    model = _model_of(table, info)
    recorded = table.layout.sensors if table.layout.sensors.names else table.layout.observation
    conflicts = model.load_spec().sensors.conflicting_conventions(recorded)
    if conflicts:
        raise SourceError(f"{table.origin} can't be drawn: {'; '.join(conflicts)}. --plot FILE draws the numbers")
    return draw(model, sensors, info.get("goal") or {}, options)


def _measured(rows: np.ndarray, prefix: str = "sensor_") -> dict[str, np.ndarray]:
    """Return the sensors by name; other projects' data sets hold them as observations."""
    return {name.removeprefix(prefix): rows[name] for name in rows.dtype.names or () if name.startswith(prefix)}


def _model_of(table: Table, info: JsonObject) -> RobotModel:
    """Return the model of the robot that recorded an episode; a run of a MuJoCo model names its file as the task."""
    robot, task = str(info.get("robot") or "so101"), str(info.get("task"))
    if robot in robot_names() or not is_robot_file(task):
        robot = robot.split("_")[0]  # LeRobot calls the arm so101_follower
        if robot not in robot_names():
            raise RobotError(f"robot {robot!r} can't be rendered, known are {', '.join(robot_names())}")
        return find_robot_model(robot)
    try:
        return RobotModel.from_file(task)
    except SpecError as error:
        raise SourceError(
            f"{table.origin} was recorded with the model {task}, which is needed to render its robot; run this in the "
            f"folder from which the path leads to the model: {error}"
        ) from error


def frame_rate(table: Table, episode: int) -> float:
    """Return the frame rate of an episode, Hz; `recorder.figures.montage.NO_CLOCK_HZ` for data without a clock."""
    from recorder.figures.montage import NO_CLOCK_HZ

    stamps = table.rows["stamp_ns"][table.starts[episode] : table.stops[episode]]
    span = float(stamps[-1] - stamps[0]) / 1e9
    return (len(stamps) - 1) / span if span > 0 else NO_CLOCK_HZ


def find_episode(path: str | Path, episode: int, world: str | None = None) -> tuple[Table, int]:
    """Return a table and the index of an episode in it; negative numbers count from the end.

    Args:
        path: a run, a folder of runs, or another project's data set.
        episode: its number.
        world: selects the runs of one world, if the folder contains several; None for no selection.

    Raises:
        SourceError: the episode does not exist, or there are no data.
    """
    from rlenv_robot.data.folder import read_folder

    table = read_folder(Path(path), world=world)
    count = len(table.starts)
    if not -count <= episode < count:
        raise SourceError(f"{path} has no episode {episode}, it has {count}: 0 to {count - 1}, or -1 for the last")
    return table, episode % count


def render_history(
    path: str | Path,
    episode: int = -1,
    video: str | Path | None = None,
    plot: str | Path | None = None,
    *,
    montage: bool = False,
    step: int | None = None,
    frames: str | Path | None = None,
    fine: bool | None = None,
    world: str | None = None,
    panel: bool = True,
    sgf: str | Path | None = None,
) -> tuple[str, ...]:
    """Show a recorded episode (R1.5): as files, or in a window if no file is named.

    Args:
        path: a run, a folder of runs, or another project's data set.
        episode: its number; negative ones count from the end.
        video: a file to write, ``.mp4`` (VP9, which browsers play).
        plot: a file to write: ``.png``, ``.svg`` or ``.pdf``, or ``.mp4`` for an animation.
        montage: whether the video shows all cameras, the simulated twin and the signals on one timeline, instead of the
            twin only.
        step: shows this frame of the episode only, counted from 0; negative numbers count from the end.
        frames: a folder for the images, ``000000.png`` and so on.
        fine: whether to draw the twin with shadows and smooth edges, which takes several times as long without a GPU;
            None does so for a single step only.
        world: selects the runs of one world, if the folder contains several; None for no selection.
        panel: whether to add observation, action, reward and further information beside each image; not in a montage,
            which has the signals.
        sgf: a file to write, for a game of Go.

    Returns:
        A sentence for each item that could not be shown.

    Raises:
        SourceError: the data, the episode or the step do not exist.
        RobotError: this machine can't render.
    """
    table, number = find_episode(path, episode, world)
    notes: list[str] = []
    if plot is not None:
        _plot(table, number, Path(plot))
    if sgf is not None:
        _write_sgf(table, number, Path(sgf))
    if (plot is not None or sgf is not None) and video is None and frames is None:
        return ()
    options = {"fine": step is not None if fine is None else fine}
    length = int(table.stops[number] - table.starts[number])
    if step is not None and not -length <= step < length:
        raise SourceError(f"episode {number} has no frame {step}, it has 0 to {length - 1}, or -1 for the last")
    selection = slice(None) if step is None else slice(step % length, step % length + 1)
    images: Iterator[np.ndarray]
    if montage:
        images = itertools.islice(_montage(table, number, notes, options), selection.start, selection.stop)
    else:
        images = _history_images(table, number, options, selection, panel)
        robot = table.episodes[number].get("robot")
        if panel and robot is not None and not _has_picture(table, number):
            notes.append(f"no simulated twin: no model of the robot {robot!r} is known")
    images = itertools.chain([next(images)], images)  # raises what can't be rendered before a file is begun
    if frames is not None:
        images = _written(images, Path(frames), (step or 0) % length)
    if video is not None:
        from recorder.images.video import write_video

        write_video(Path(video), images, frame_rate(table, number))
    elif frames is not None:
        for _ in images:
            pass
    else:
        _play(str(path), images, frame_rate(table, number), hold=step is not None)
    return tuple(notes)


def _history_images(
    table: Table, episode: int, options: JsonObject, frames: slice, panel: bool
) -> Iterator[np.ndarray]:
    """Yield the picture of each frame of an episode, with a panel of what was recorded of it.

    Args:
        table: with the episode.
        episode: its index in the table.
        options: see `draw`.
        frames: the frames of the episode.
        panel: whether there is a panel.

    Raises:
        SourceError: as `twin_images`, where there is neither a board nor a panel to show.
    """
    info = table.episodes[episode]
    rows = table.rows[table.starts[episode] : table.stops[episode]]
    pictures: Iterator[np.ndarray | None]
    if info.get("task") == "go" and "board" in table.layout.observation:
        pictures = _boards(rows[frames])
    elif panel and not _has_picture(table, episode):
        pictures = itertools.repeat(None, len(rows[frames]))
    else:
        pictures = twin_images(table, episode, options, frames)
    most = len(row_lines(table.layout, rows[-1], info, True)) if panel else 0  # the last frame has the end besides
    for number, (row, picture) in enumerate(zip(rows[frames], pictures, strict=True), frames.start or 0):
        if panel:
            yield beside(picture, row_lines(table.layout, row, info, number == len(rows) - 1), most)
        elif picture is not None:
            yield picture


def _write_sgf(table: Table, episode: int, path: Path) -> None:
    text = _episode_sgf(table, episode)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SourceError(f"{path} can't be written: {error}") from error


def _episode_sgf(table: Table, episode: int) -> str:
    """Return a recorded episode of Go as SGF.

    Raises:
        SourceError: it is no game of Go.
    """
    from rlenv_robot.tasks.go import sgf as go_sgf

    info = table.episodes[episode]
    if info.get("task") != "go" or "move" not in table.layout.action:
        raise SourceError(f"{table.origin}: episode {episode} is of {info.get('task')!r}, SGF holds games of Go only")
    rows = table.rows[table.starts[episode] : table.stops[episode]]
    played = rows[rows["acted"] == 1]
    reward = float(played["reward"][-1]) if len(played) else 0.0
    mover_is_white = len(played) % 2 == 0
    result = "?"
    if len(played) and played["terminated"][-1] and reward:
        result = "W+" if (reward > 0) == mover_is_white else "B+"
    moves = np.asarray(played["action_move"]).tolist()
    return go_sgf(moves, int(info["size"]), float(info["komi"]), result)


def _has_picture(table: Table, episode: int) -> bool:
    """Return whether the picture of a robot or of a board belongs to an episode's frames."""
    info = table.episodes[episode]
    if "robot" not in info and not len(table.layout.sensors):
        return info.get("task") == "go"
    robot = str(info.get("robot") or "so101").split("_")[0]
    return robot in robot_names() or is_robot_file(str(info.get("task")))


def _boards(rows: np.ndarray) -> Iterator[np.ndarray]:
    from rlenv_robot.tasks.go import board_image

    for row in rows:
        yield board_image(row["observation_board"], last=int(row["action_move"]) if row["acted"] else None)


def _plot(table: Table, episode: int, path: Path) -> None:
    if path.suffix != ".mp4":
        from recorder.figures.plot import plot_episode

        plot_episode(table, episode, path)
        return
    from recorder.figures.montage import Montage
    from recorder.images.video import write_video

    write_video(path, Montage(table, episode, {}).frames(), frame_rate(table, episode))


def _montage(table: Table, episode: int, notes: list[str], options: JsonObject) -> Iterator[np.ndarray]:
    """Render everything that can be shown of an episode; add a note for the rest."""
    from recorder.figures.montage import Montage

    tiles = {f"camera {name}": images for name, images in _cameras(table, episode, notes)}
    for title, camera in (("simulated twin", "view"), ("simulated twin, from above", "overhead"))[: 1 if tiles else 2]:
        try:
            images = twin_images(table, episode, {"camera": camera, **options})
            tiles[title] = itertools.chain([next(images)], images)
        except RobotError as error:
            notes.append(f"no simulated twin: {error}")
            break
    return Montage(table, episode, tiles).frames()


def _cameras(table: Table, episode: int, notes: list[str]) -> Iterator[tuple[str, Iterator[np.ndarray]]]:
    """Yield the name and the images, one for each frame, of each recorded camera."""
    from recorder.images.images import Images

    try:
        images = Images(table, cache_bytes=0)
        names = images.cameras_of(episode)
    except RobotError as error:
        notes.append(f"no camera images: {error}")
        return
    for name in names:
        yield name, _camera_images(images, name, range(int(table.starts[episode]), int(table.stops[episode])))


_BATCH = 32
"""Images that are decoded together."""


def _camera_images(images: Images, camera: str, rows: range) -> Iterator[np.ndarray]:
    for first in range(0, len(rows), _BATCH):
        yield from images.at(np.array(rows[first : first + _BATCH]), camera)[0]


def _written(images: Iterator[np.ndarray], folder: Path, first: int) -> Iterator[np.ndarray]:
    """Yield images, and write each to a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images, first):
        write_image(folder / f"{number:06d}.png", image)
        yield image


def _play(title: str, images: Iterator[np.ndarray], rate_hz: float, hold: bool = False) -> None:
    from hal import Rate

    rate = Rate(rate_hz)
    for image in images:
        rate.wait()
        show_window(title, image)
    if hold:
        _wait_for_key()


def _wait_for_key() -> None:
    from recorder.log.image_codec import opencv

    opencv("showing a window").waitKey(0)


# -- The render options of an environment --------------------------------------------------------------------


_MODES = ("window", "file", "call", "history")
_HISTORY = ("run", "episode", "video", "plot", "montage", "step", "frames")
_OPTIONS = frozenset({"mode", "path", "to", "camera", "width", "height", "fine", "panel", *_HISTORY})


def show(
    env_id: str,
    frame_no: int,
    world: World,
    timestep: TimeStep | None,
    options: JsonObject,
    error: JsonObject | None = None,
) -> None:
    """Show the state of a world with the agent's observation, or a recorded episode.

    Args:
        env_id: the id of the environment.
        frame_no: the frame number of the environment.
        world: the world to show.
        timestep: its last time step; None before the first reset.
        error: the error of the last step, if it was refused.
        options: ``mode`` is ``window`` (default), which shows the state on this machine's screen; ``file``, which
            writes an image to ``path``; ``call``, which calls the function ``to`` with Table 4; or ``history``, which
            shows a recorded ``run``, with the options of `rlenv_robot.rendering.show.render_history`. The first three
            also take ``camera``, ``width``, ``height`` and ``fine``. In a window or a file, the image has a panel with
            the agent's observation, the reward and further information beside it; ``panel`` False omits it.

    Raises:
        ValueError: an option or the mode is unknown or wrong, or an option is missing.
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
            fine=options.get("fine"), panel=bool(options.get("panel", True)),
        )  # fmt: skip
        return
    path, to = (
        _required(options, "path") if mode == "file" else "",
        _required(options, "to") if mode == "call" else None,
    )
    if mode == "file" and Path(path).suffix.lower() not in IMAGE_ENDINGS:
        raise ValueError(f"render option 'path' is {str(path)!r}, its name must end in {', '.join(IMAGE_ENDINGS)}")
    if mode == "call" and not callable(to):
        raise ValueError(f"render option 'to' is {to!r:.80}, expected a function that takes Table 4")
    picture = _picture(world, panel=options.get("panel", True) or mode == "call", options=options)
    if mode == "call":
        frame_data: dict[str, object] = {"image": picture}
        if timestep is not None:
            seen = {"observation": timestep.observation, "reward": timestep.reward, "extra_info": timestep.extra_info}
            frame_data |= deepcopy(seen)
        table: VisualisationTable = {"env_id": env_id, "frame_no": frame_no, "frame_data": frame_data}
        options["to"](table)
        return
    if options.get("panel", True) and timestep is not None:
        ends = [name for name in ("terminated", "truncated") if getattr(timestep, name)]
        lines = [Line(f"{env_id[:12]} frame {frame_no} {' '.join(ends)}".strip(), strong=True)]
        lines += field_lines("observation", world.observation, timestep.observation)
        lines += reward_lines(timestep.reward)
        refused = {} if error is None else {"error": error["message"]}
        lines += info_lines("further information", {**refused, **timestep.extra_info})
        picture = beside(picture, lines)
    assert picture is not None  # without a panel a world without an image was refused
    image = picture
    if mode == "file":
        write_image(Path(options["path"]), image)
    else:
        show_window(env_id, image)


def _picture(world: World, panel: bool, options: JsonObject) -> np.ndarray | None:
    """Return a world's picture; None for a world that has none, where a panel is shown in its place."""
    try:
        return world.image(options)
    except NoImage:
        if not panel:
            raise
        return None


def _required(options: JsonObject, name: str) -> Any:
    if options.get(name) is None:
        raise ValueError(f"render mode {options.get('mode')!r} needs the option {name!r}")
    return options[name]
