"""Serve recorded data through the standard's source-data environment (T/CCF 0002-2025, 6.3; R3, R6.2)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
from numpy.typing import ArrayLike

from hal import SourceError
from hal.errors import missing_plugin, wrong_type
from recorder.formats.registry import Format
from recorder.frame_layout import FrameLayout
from recorder.json_data import JsonDict
from recorder.read.addresses import BYTES, is_address, mirror
from recorder.table.memory import RowSpool, scratch_folder
from recorder.table.selection import within
from recorder.table.table import Table
from recorder.table.transitions import Transitions, columns
from rlenv_robot.config.plugins import PluginTable, UnknownSetting, unknown_name
from rlenv_robot.data.batches import Batches
from rlenv_robot.data.filters import select
from rlenv_robot.data.folder import read_folder
from rlenv_robot.data.frame_stack import WINDOWS, Windows
from rlenv_robot.data.images import ImageLoader
from rlenv_robot.data.options import ACTIONS, FILTERS, INIT, STEPS, CheckedOptions, check_size, read
from rlenv_robot.data.relabel import Goal, Sensors, relabelled
from rlenv_robot.data.sampling import PreferencePair, RequestSampler, Sample
from rlenv_robot.data.splits import split_episodes
from rlenv_robot.data.state_index import StateIndex
from rlenv_robot.data.statistics import statistics
from rlenv_robot.rendering.notebook import RecordedEpisode, notebook_html
from rlenv_robot.tables import ActionTable, Options, StepTable, TrajectoryTable
from rlenv_robot.tasks.task import Task

__all__ = ["SourceData", "open_source"]

_WIDER = frozenset({"goals", "images", *WINDOWS})
_STEPS_AT = {name: STEPS[name] for name in ("n_step", "privileged", "images", *WINDOWS)}

_BLOCK_BYTES = 32 << 20
"""Bytes of rows that are copied at once."""

_BUFFERS = {
    "sample": "sample_steps(batch_size) and sample_trajectories(trajectory_size) draw from the data",
    "shuffle": "sample_steps draws at random; positions() are those of all transitions",
    "episodes": "recorded.episodes describes them, and episode(number) shows one",
}
"""Attributes of other projects' buffers and data sets -> what does the same here."""

_NOTHING: Options = MappingProxyType({})


class SourceData:
    """Recorded episodes, accessible through the standard's five functions.

    Args:
        table: the frames.
        task: recomputes observation and reward from the recorded sensors (R3.1); None uses the recorded ones.
        goal: for the task: ``recorded``, ``hindsight`` or a mapping (`rlenv_robot.data.relabel.Goal`).
        discount: the discount of one step, 0 to 1; for n-step sums, returns to go, advantages and evaluations.
        mode: ``training``, or ``inference``, which hides sensors, and with them all privileged state.
        sensors: computes the task's sensors for data without them (`rlenv_robot.data.relabel.Sensors`).
        ends: ``recorded``, or ``task``, which ends episodes where the task would have ended
            (`rlenv_robot.data.relabel`).

    Attributes:
        table: the frames that an agent may see.
        transitions: the transitions of the table.
        opened: the arguments of `open_source` that created this object; None if it was created otherwise.

    Raises:
        TypeError: ``table`` is not a table of frames. If it is a folder, open it with `open_source`.
        SourceError: there is no transition, or the task does not fit the data.
    """

    def __init__(
        self,
        table: Table,
        task: Task | None = None,
        goal: Goal = "recorded",
        discount: float = 0.99,
        mode: str = "training",
        sensors: Sensors | None = None,
        ends: str = "recorded",
    ) -> None:
        if not isinstance(table, Table):
            raise TypeError(
                f"SourceData takes a table of frames, this is {table!r:.80}; rlenv_robot.open_source opens a folder, a "
                "file or a data set by its name"
            )
        if mode not in ("training", "inference"):
            raise SourceError(f"mode is {mode!r}, allowed are 'training' and 'inference'")
        if not 0 <= discount <= 1:
            raise SourceError(f"discount is {discount}, it must be from 0 to 1")
        if task is None and (goal != "recorded" or ends != "recorded" or sensors is not None):
            raise SourceError("goal, ends and sensors are for a task that recomputes rewards: give task= too")
        visible = table if task is None else relabelled(table, task, goal, sensors, ends)
        self.table = visible if mode == "training" else _public(visible)
        self.transitions = Transitions.of(self.table)
        if not len(self.transitions):
            raise SourceError(
                f"{table.origin} has {len(table.episodes)} episodes but not one transition: "
                "two neighbouring frames with an executed action between them"
            )
        self.discount, self.mode = discount, mode
        self._recorded = table if mode == "training" else None
        self.opened: tuple[tuple[object, ...], JsonDict] | None = None
        self._task = task
        self._batches = Batches(self.transitions, discount, self._privileged)
        self.init()

    def __repr__(self) -> str:
        episodes = len(self.table.episodes)
        return f"<SourceData of {self.table.origin}: {episodes} episodes, {len(self)} transitions, mode {self.mode!r}>"

    if not TYPE_CHECKING:  # a checker of types would take every misspelt name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse an unknown attribute; one of other projects' buffers with what stands in its place."""
            hint = f": {_BUFFERS[name]}" if name in _BUFFERS else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __len__(self) -> int:
        """Return the number of transitions."""
        return len(self.transitions)

    @property
    def recorded(self) -> Table:
        """The frames as they were recorded, before a task made their observations and rewards anew.

        Raises:
            SourceError: the data are open for inference, and must not lead to what an agent must not see.
        """
        if self._recorded is None:
            raise SourceError("recorded: the data are opened for inference; open them for training")
        return self._recorded

    def episode(self, number: int) -> RecordedEpisode:
        """Return a recorded episode, which displays itself in a notebook: a video, its signals, and its metadata.

        Args:
            number: its index; negative numbers count from the end.

        Raises:
            SourceError: there is no such episode.
            TypeError: the index is no whole number.
        """
        count = len(self.table.starts)
        if not hasattr(number, "__index__"):
            raise wrong_type("episode", number, f"a whole number, 0 to {count - 1}, or -1")
        if not -count <= number < count:
            raise SourceError(f"there is no episode {number}, {self.table.origin} has 0 to {count - 1}, or -1")
        return RecordedEpisode(self.table, number % count)

    def _repr_html_(self) -> str | None:
        """Return the data as HTML; Jupyter calls it."""
        return notebook_html("source", self.table, len(self))

    def init(self, options: Options = _NOTHING) -> None:
        """Set the data to the first state or to a given one; discard all TD errors (R3.2).

        Args:
            options: ``seed`` determines all sampling that follows; ``episode`` and ``frame`` (counted from 0 in
                the episode) set the current state of `get_all_actions`; both are 0 by default.

        Raises:
            SourceError: an option is unknown or out of range.
        """
        checked = read(options, INIT, "init")
        episode, frame = checked.get("episode", 0), checked.get("frame", 0)
        count = len(self.table.starts)
        if episode >= count:
            raise SourceError(f"init: there is no episode {episode}, {self.table.origin} has 0 to {count - 1}")
        length = int(self.table.stops[episode] - self.table.starts[episode])
        if frame >= length:
            raise SourceError(f"init: episode {episode} has no frame {frame}, it has 0 to {length - 1}")
        self._episode, self._row = int(episode), int(self.table.starts[episode]) + int(frame)
        self._sampler = RequestSampler(self.transitions, self.discount, checked.get("seed"), self._batches.plan)

    def sample_steps(self, batch_size: int, extra_info: Options = _NOTHING) -> StepTable:
        """Draw transitions (R3.3), by default with replacement.

        Args:
            batch_size: number of transitions, B, at least 1.
            extra_info: the filters of `rlenv_robot.data.filters.select`, and

                * ``priority``: ``return`` (discounted return from the step on, as in self-imitation),
                  ``reward``, ``advantage`` (its positive part; baseline: see `recorder.table.sampler.advantages`),
                  or ``td_error`` (see `update_priorities`); several agents: of the sum of their rewards;
                * ``alpha``: exponent of the priorities, 1 by default;
                * ``beta``: how far the weights compensate for the priorities: 0 (the default, all 1) to 1 (entirely);
                * ``replace``: False draws each transition at most once;
                * ``n_step``: n-step transitions: the reward is the discounted sum over n steps or fewer,
                  ``next_observation`` and ``done`` belong to the last of them;
                * ``stack``, ``chunk``, ``future``: frames before, actions from here on and frames after, with masks
                  at the ends (`rlenv_robot.data.frame_stack.Windows`);
                * ``goals``: ``future`` or ``final``, and ``goal_share``: goals that were reached in place of those
                  that were set (`rlenv_learn.hindsight.relabel_goals`);
                * ``images``: images of the cameras: True, names, or a mapping
                  (`rlenv_robot.data.images.ImageChoice`);
                * ``privileged``: True adds the task's hidden state, in training only.

        Returns:
            Table 5 with a leading axis: ``env_id`` (B,) of str, ``frame_no`` int32 (B,), ``observation``,
            ``action`` and ``next_observation`` (name -> (B, ...)), ``reward`` float64 (B,) or agent -> (B,), ``done``
            int32 (B,), and ``extra_info`` with, each (B,): ``index`` (for `update_priorities`), ``weights``,
            ``episode``, ``terminated``, ``truncated``, ``discount`` (factor of the next observation's value:
            ``discount**steps``, 0 if terminated, so a truncated end still bootstraps), ``steps``, ``log_probability``
            (NaN if not recorded), ``intervention``; if recorded, ``step_extra`` (the environment's inputs beside the
            action) and ``behaviour`` (the parameters of the distribution that the action was drawn from, NaN if
            unknown), each name -> (B, ...), and ``answers`` (frame number of the observation that the action answers,
            int32 (B,), -1 for none); with several agents ``agents``, the mapping of Table 1 (6.2.3.1), if all episodes
            have the same; if requested, ``state`` and ``next_state``, ``images`` and ``next_images``
            (`rlenv_robot.data.images.ImageLoader.add`).

        Raises:
            SourceError: an option is unknown or wrong, needs data that were not recorded, or leaves nothing.
        """
        check_size(batch_size, "batch_size", "sample_steps")
        sample, options = self._sampler.steps(batch_size, extra_info)
        table = self._batches.steps(sample, options.get("n_step", 1), self._wants_privileged(options))
        if not options.keys().isdisjoint(_WIDER):
            self._widen(table, options)
        return table

    def steps_at(self, index: ArrayLike, extra_info: Options = _NOTHING) -> StepTable:
        """Return the transitions at given positions, in their order, as data loaders of other libraries require.

        Args:
            index: (B,) positions from 0 to ``len(self) - 1``.
            extra_info: options that widen steps (``n_step``, ``stack``, ``chunk``, ``future``, ``images``,
                ``privileged``), as for `sample_steps`.

        Raises:
            SourceError: an option is unknown or wrong, or a position is out of range.
        """
        positions = np.asarray(index)
        fits = positions.ndim == 1 and positions.dtype.kind in "iu" and positions.size
        flat = positions.astype(np.int64, copy=False)
        if not fits or not within(flat, len(self)):
            raise SourceError(
                f"steps_at: index is {positions!s:.60} of shape {positions.shape}, allowed are whole numbers from 0 "
                f"to {len(self) - 1}, (B,)"
            )
        options = read(extra_info, _STEPS_AT, "steps_at")
        sample = Sample(flat, np.ones(len(flat)), None)
        table = self._batches.steps(sample, options.get("n_step", 1), self._wants_privileged(options))
        if not options.keys().isdisjoint(_WIDER):
            self._widen(table, options)
        return table

    def positions(self, extra_info: Options = _NOTHING) -> np.ndarray:
        """Return the positions of the transitions that pass filters, (M,) int64, in order.

        Args:
            extra_info: the filters of `rlenv_robot.data.filters.select`.

        Raises:
            SourceError: a filter is unknown or wrong, needs data that were not recorded, or leaves nothing.
        """
        return np.asarray(select(self.transitions, read(extra_info, FILTERS, "positions")))

    def sample_trajectories(self, trajectory_size: int, extra_info: Options = _NOTHING) -> list[TrajectoryTable]:
        """Draw whole episodes (R3.4), by default with replacement.

        Args:
            trajectory_size: number of trajectories, at least 1.
            extra_info: as for `sample_steps`, without the options that widen steps; ``priority`` is ``return``
                (undiscounted). A filter on steps selects the episodes that have at least one such step. ``length``:
                pieces of that many consecutive steps instead of whole episodes; every step that passes the filters is
                equally likely as the first one, and ``return`` is that of the piece.

        Returns:
            Table 6 each: ``env_id``, ``trajectory_id`` (the episode's number), ``steps_set`` (a Table 5 along
            time), and ``extra_info`` with ``start`` and ``end`` (positions of its transitions, end excluded),
            ``length``, ``return`` (undiscounted; several agents: one each), ``terminated``, ``truncated``,
            ``lost`` (the number of steps that begin at a missing frame and are left out), ``weight``, and as recorded
            ``source``, ``policy``, ``expert``, ``success``, ``verdict``, ``end_reason``, ``goal``, ``seed``, ``task``
            (None if unknown); with several agents ``agents``, the mapping of Table 1 (6.2.3.1), where recorded.

        Raises:
            SourceError: as for `sample_steps`.
        """
        check_size(trajectory_size, "trajectory_size", "sample_trajectories")
        (numbers, weights, _), options = self._sampler.episodes(trajectory_size, extra_info)
        hidden, length = self._wants_privileged(options), options.get("length")
        drawn = zip(numbers.tolist(), weights.tolist(), strict=True)
        if length is not None:
            trajectories = [self._batches.piece(start, length, weight, hidden) for start, weight in drawn]
        else:
            trajectories = [self._batches.trajectory(number, weight, hidden) for number, weight in drawn]
        if "images" in options:
            for trajectory in trajectories:
                self._images.add(trajectory["steps_set"], options)
        return trajectories

    def sample_pairs(self, pair_size: int, extra_info: Options = _NOTHING) -> list[PreferencePair]:
        """Draw pairs of episodes, of which one is preferred (R6.4), with replacement.

        Args:
            pair_size: number of pairs, at least 1.
            extra_info: the filters; ``by``: ``return`` (default), ``success`` (of verdicts) or ``person`` (preferences
                that people gave at the console); ``min_margin``: minimum difference; ``priority``:
                ``controversy`` for disputed pairs.

        Returns:
            ``chosen`` and ``rejected``, each a Table 6, and ``margin``.

        Raises:
            SourceError: as for `sample_steps`, or no two episodes differ.
        """
        check_size(pair_size, "pair_size", "sample_pairs")
        draw: Callable[..., list[PreferencePair]] = _from_plugin("rlenv_robot.pair_samplers", "pairs", "rlenv_curate")
        return draw(
            self.transitions, pair_size, extra_info, self._sampler.rng, lambda e: self._batches.trajectory(e, 1.0)
        )

    def get_all_actions(self, extra_info: Options = _NOTHING) -> ActionTable:
        """Return all distinct actions that were taken in the current state (R3.5).

        Args:
            extra_info: ``tolerance`` (a number, or one per field; 0 by default, for equal states only): maximum
                difference of an element of the observation from the current state's; ``state``: an observation (or some
                of its fields) instead of the current state that `init` set; and the filters.

        Returns:
            Table 2 of the current state, with ``action`` as name -> (K, ...), in no particular order; K is 0 if the
            data contain no action for this state.

        Raises:
            SourceError: an option is unknown or wrong, or a filter leaves nothing.
        """
        options = read(extra_info, ACTIONS, "get_all_actions")
        layout = self.table.layout
        row = self.table.rows[self._row]
        state = options.get("state") or {name: row[f"observation_{name}"] for name in layout.observation.names}
        positions = self._states.positions(state, options.get("tolerance", 0.0))
        if not options.keys().isdisjoint(FILTERS):
            _, passing = select(self.transitions, options).places(positions)
            positions = positions if passing is None else positions[passing]
        taken = columns(self.transitions.next_rows(positions), layout.action, "action")
        packed = layout.action.rows(len(positions))
        layout.action.pack_into(packed, taken)
        distinct = np.unique(packed) if len(layout.action) else packed[:0]
        return {
            "env_id": self._batches.env_id(self._episode),
            "frame_no": int(row["frame_no"]),
            "action": {name: np.ascontiguousarray(distinct[name]) for name in layout.action.names},
        }

    def statistics(self, extra_info: Options = _NOTHING) -> JsonDict | None:
        """Compute statistics of the data that pass the filters, as JSON data (R3.6).

        Args:
            extra_info: the filters, and ``kind``:

                * ``summary`` (default), ``returns``, ``episodes``, ``timing``, ``advantage``;
                * ``coverage`` of the actions, with ``bins``;
                * ``off_policy`` with ``log_probability``, a function of observation and action; with ``agent``, which
                returns the same policy's actions from observations, doubly robust too;
                * ``fitted_q`` with ``agent``; both with ``features`` and ``iterations`` of the linear fit;
                * ``model_error`` with ``model`` and ``horizon``: the error of a dynamics model on held-out episodes;
                * ``model_return`` with ``model``, ``agent``, ``reward``, ``horizon``: a policy's return inside the
                model.

                For their results see `rlenv_robot.data.statistics`, `rlenv_curate.off_policy`, `rlenv_curate.dynamics`.
                Installed packages may declare further kinds (`rlenv_robot.data.statistics.StatisticsKind`).

        Raises:
            SourceError: as for `sample_steps`.
        """
        return statistics(self.transitions, extra_info, self.discount, self.mode == "training")

    def update_priorities(self, index: ArrayLike, td_error: ArrayLike) -> None:
        """Set the priorities of ``priority: td_error``; transitions without one count as the largest known.

        Args:
            index: (B,), from a batch's ``extra_info``. If an index is repeated, its last error counts.
            td_error: (B,), finite, of any sign: its size counts.

        Raises:
            SourceError: the shapes differ, an index is out of range, or an error is not finite.
        """
        self._sampler.update(index, td_error)

    def split(self, held_out: float = 0.2, seed: int = 0, runs: bool | None = None) -> tuple[list[int], list[int]]:
        """Split the episodes into training and test episodes, for the option ``episodes``.

        Copies of an episode, its parts and its cuts stay on one side, and tasks, outcomes and sources are spread over
        both (`rlenv_robot.data.splits.split_episodes`).

        Args:
            held_out: the share of test episodes, between 0 and 1; at least one episode remains on either side.
            seed: the same seed gives the same split.
            runs: whether the episodes of a run stay together; None: if there are at least ``2 / held_out`` runs.

        Raises:
            SourceError: the share is out of range, there are not two episodes with transitions, or all of them are
                copies or parts of one episode.
        """
        usable = np.flatnonzero(self.transitions.lengths)
        return split_episodes(self.table, usable.tolist(), held_out, seed, runs)

    @cached_property
    def _states(self) -> StateIndex:
        return StateIndex(self.transitions)

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.transitions, self._batches.rows)

    @cached_property
    def _images(self) -> ImageLoader:
        return ImageLoader(self.transitions, self._windows)

    def _widen(self, table: StepTable, options: CheckedOptions) -> None:
        """Add other goals, windows and images to a batch."""
        if "goals" in options:
            others = [name for name in ("n_step", "stack", "future", "privileged") if options.get(name, False)]
            if others:
                raise SourceError(f"goals: another goal is computed for single steps; leave out {', '.join(others)}")
            relabel = _from_plugin("rlenv_robot.relabellers", "goals", "rlenv_learn")
            relabel(table, self.transitions, self._task, options, self._sampler.rng, self.discount)
        self._windows.add(table, options)
        if "images" in options:
            self._images.add(table, options)

    def _wants_privileged(self, options: CheckedOptions) -> bool:
        """Return whether privileged state is requested, and refuse where it is forbidden or unavailable."""
        if not options.get("privileged"):
            return False
        if self.mode == "inference":
            raise SourceError("privileged: the data are opened for inference, hidden state is for training only")
        if self._task is None:
            raise SourceError(
                "privileged: the hidden state is computed by a task; give one: open_source(path, task=...)"
            )
        if not len(self.table.layout.sensors):
            raise SourceError(f"privileged: {self.table.origin} has no recorded sensors to compute hidden state from")
        return True

    def _privileged(self, rows: np.ndarray, episode: np.ndarray) -> dict[str, np.ndarray]:
        assert self._task is not None  # _wants_privileged was there first
        sensors = columns(rows, self.table.layout.sensors, "sensor")
        return dict(self._task.privileged(sensors, self._task.goal.view(self._goals[episode])))

    @cached_property
    def _goals(self) -> np.ndarray:
        """(E,): the goal of each episode, packed; `relabelled` put one into every record."""
        assert self._task is not None
        goals = self._task.goal.rows(len(self.table.episodes))
        for row, record in zip(goals, self.table.episodes, strict=True):
            self._task.goal.pack_into(row, record.get("goal", {}))
        return goals


@cache
def _from_plugin(group: str, name: str, plugin: str) -> Callable[..., Any]:
    """Return the function that an entry point names.

    Args:
        group: the group of the entry point.
        name: the name of the entry point.
        plugin: the plug-in of this repository that declares it, for the message where it is not installed.
    """
    functions = PluginTable("function of source data", group, {})
    if name not in functions:
        raise SourceError(f"{name}: they are in {missing_plugin(plugin)}")
    return cast("Callable[..., Any]", functions.load(name))


def _public(table: Table) -> Table:
    """Return a copy with what an agent may see alone; no view of it leads back to anything else."""
    layout = FrameLayout(table.layout.observation, table.layout.action, table.layout.agents)
    spool = RowSpool(layout.spec.row_dtype)
    block = max(1, _BLOCK_BYTES // table.rows.dtype.itemsize)
    for begin in range(0, len(table.rows), block):
        visible = table.rows[begin : begin + block]
        rows = layout.spec.rows(len(visible))
        for name in layout.spec.names:
            rows[name] = visible[name]
        spool.add(rows)
    return replace(table, layout=layout, rows=spool.rows())


def open_source(
    path: str | Path | Sequence[str | Path],
    task: Task | str | None = None,
    *,
    episodes: Sequence[int] | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    keep_last: bool | None = None,
    units: str | None = None,
    calibration: str | Path | None = None,
    robot: str | None = None,
    time_unit: str | None = None,
    header: bool | None = None,
    rate_hz: float | None = None,
    swap_red_blue: bool | None = None,
    cache: str | Path | None = None,
    world: str | None = None,
    cache_bytes: int = BYTES,
    storage_options: Mapping[str, Any] | None = None,
    format: str | Format | None = None,
    **options: Any,
) -> SourceData:
    """Open recorded data in the format that the folder contains.

    Args:
        path: a run of this project, or a folder of runs (``log.mcap`` below it); a data set of another format
            (`recorder.formats.registry`); a folder of such data sets; the address of one, such as
            ``hf://datasets/lerobot/pusht``, ``s3://bucket/set`` or ``https://host/set``; or several of these, which
            must contain the same fields.
        task: a task, or the name of one; None uses the recorded observation and reward.
        episodes: numbers of the episodes to read, as in the data set; over several paths the numbers continue.
        columns: the columns of observation and action, if the data set has other names: for LeRobot
            ``{"observation.state": "state", "action": "actions"}``; for tables and HDF5 files of any layout see
            `rlenv_formats.mapped`.
        keep_last: for a LeRobot data set or mapped columns, whether the last observation and action of an episode
            become a row, for imitation. Their result was not recorded; the row repeats the observation.
        units: the units of the joints of an SO-101 that LeRobot recorded, ``degrees`` or ``percent``. Without them, and
            without a declaration in the data set (``rlenv-robot data units``), it has no SI columns.
        calibration: LeRobot's calibration file of the arm that recorded the data.
        robot: the robot of the mapped columns, such as ``so101``. A column with the name of one of its fields
            (``observation.joint_position``, ``action.joint_target``) is assumed to have the field's unit, signs and
            zeros, so that a task of the robot can compute rewards.
        time_unit: the unit of mapped columns' ``time``: ``s``, ``ms``, ``us`` or ``ns``; None guesses it, with a note.
        header: whether mapped text tables (CSV) name their columns; None decides by their first row.
        rate_hz: frames a second of mapped columns and zarr without a time, and of ALOHA's files.
        swap_red_blue: whether encoded images in HDF5 hold blue where JPEG has red; None for those of ACT++ alone.
        cache: a folder for tables that can't lie beside their logs or do not fit into memory, and for downloads from an
            address; None uses the system's temporary folder for tables, and the user's cache for downloads.
        world: selects this project's runs of one world, such as ``so101-reach``; None selects those of the task if the
            others have other fields.
        cache_bytes: maximum size of the downloads to keep, bytes; the least recently used are deleted first.
        storage_options: the storage options of the file system of an address, as fsspec takes them, such as
            ``endpoint_url`` of S3.
        format: a format of your own: ``module:name`` of a `Format`, or the `Format`; others are found by their files.
        options: the options of `SourceData`: ``goal``, ``discount``, ``mode``, ``sensors``, ``ends``.

    Raises:
        ValueError: the units are unknown, or the calibration can't be read.
        SourceError: the folder is missing or empty, has no known layout, or the task does not fit.
        TypeError: ``path`` is neither a path nor several.
        UnknownSetting: there is no such option.
        SpecMismatch: several paths contain different fields.
        LogError: a log can't be read.
    """
    reading: dict[str, Any] = {
        "units": units, "calibration": calibration, "columns": columns, "keep_last": keep_last, "robot": robot,
        "time_unit": time_unit, "header": header, "rate_hz": rate_hz, "swap_red_blue": swap_red_blue,
        "format": format,
    }  # fmt: skip
    known = (*list(inspect.signature(SourceData).parameters)[2:], *reading)
    for name in options:
        if name not in known:
            raise UnknownSetting(str(unknown_name(name, "option of open_source", known)), name)
    if not isinstance(path, str | Path | Sequence):
        raise wrong_type("path", path, "a folder such as 'runs', an address, or several of these")
    if isinstance(episodes, str) or not (episodes is None or hasattr(episodes, "__iter__")):
        raise wrong_type("episodes", episodes, "a list of their numbers, such as [0, 1]")
    folder = None if cache is None else Path(cache)
    places = [path] if isinstance(path, str | Path) else path
    folders = [_place(one, folder, cache_bytes, storage_options) for one in places]
    where = folders[0] if isinstance(path, str | Path) else folders
    if isinstance(task, str):
        from rlenv_robot.registry import task as task_by_name

        task = task_by_name(task)
    preferred = None if task is None else task.name
    table = read_folder(where, folder, episodes, world=world, preferred=preferred, **reading)
    with scratch_folder(folder):
        source = SourceData(table, task, **options)
    fetching = {"cache": cache, "cache_bytes": cache_bytes, "storage_options": storage_options}
    source.opened = (path, task), {"episodes": episodes, **reading, **fetching, "world": world, **options}
    return source


def _place(path: str | Path, cache: Path | None, cache_bytes: int, options: Mapping[str, Any] | None) -> Path:
    """Return a path of this machine; of an address, the folder that stands for it."""
    if isinstance(path, Path) or not is_address(path):
        if re.fullmatch(r"[\w.-]+/[\w.-]+", str(path)) and not Path(path).parent.exists():
            raise SourceError(f"{path} does not exist here; from the Hub it is opened as 'hf://datasets/{path}'")
        return Path(path)
    return mirror(path, None if cache is None else cache / "remote", cache_bytes, options)
