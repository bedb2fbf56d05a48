"""Replay a recording as a robot: it returns the recorded measurements, whatever it is commanded."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hal import EpisodeError, Fault, RobotSpec, RobotState, RobotStopped, SourceError
from hal.guarding.stop_latch import check_clears
from recorder.json_data import JsonObject
from recorder.table.table import Table

__all__ = ["ReplayRobot"]


class ReplayRobot:
    """Plays the episodes of a table one after another; each reset begins the next, and after the last the first.

    Commands are validated and otherwise ignored: measurements and applied commands are the recorded ones. After an
    episode's last frame every step repeats it with the fault ``the recording ended``.

    Args:
        table: recorded data with sensors and applied commands.
        name: the robot's model, for `RobotSpec.name`.
        rate_hz: control periods per second, as recorded.

    Raises:
        SourceError: the table has no episodes, or no sensors.
    """

    def __init__(self, table: Table, name: str, rate_hz: float) -> None:
        layout = table.layout
        if not len(table.starts):
            raise SourceError(f"{table.origin} has no episodes, so there is nothing to replay")
        if not len(layout.sensors):
            raise SourceError(f"{table.origin} has no sensors, so no robot can be replayed from it")
        self._table = table
        self._spec = RobotSpec(name, layout.sensors, layout.applied, rate_hz)
        self._next = 0
        self._row, self._last = -1, -1
        self._stopped: str | None = None

    @property
    def spec(self) -> RobotSpec:
        """Sensors and commands as recorded."""
        return self._spec

    def reset(self, options: JsonObject) -> RobotState:
        """Return the first frame of ``options["episode"]``, by default of the next episode.

        Raises:
            SourceError: there is no such episode.
        """
        check_clears(self._stopped, options)
        self._stopped = None
        count = len(self._table.starts)
        episode = int(options.get("episode", self._next % count))
        if not 0 <= episode < count:
            raise SourceError(f"episode {episode} is not in {self._table.origin}, which has 0 to {count - 1}")
        self._next = episode + 1
        self._row, self._last = int(self._table.starts[episode]), int(self._table.stops[episode]) - 1
        return self._robot_state(())

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Return the next recorded frame.

        Raises:
            RobotStopped: `stop` was called.
            EpisodeError: `reset` was not called before.
        """
        if self._stopped is not None:
            raise RobotStopped(self._stopped)
        if self._row < 0:
            raise EpisodeError("step before reset: reset chooses the episode that is replayed")
        self._spec.commands.validate(command, "command")
        if self._row == self._last:
            return self._robot_state((Fault("recording_ended", "", "the recording ended"),))
        self._row += 1
        return self._robot_state(())

    def _robot_state(self, faults: tuple[Fault, ...]) -> RobotState:
        row, layout = self._table.rows[self._row], self._table.layout
        sensors = {name: np.array(row[f"sensor_{name}"]) for name in layout.sensors.names}
        applied = {name: np.array(row[f"applied_{name}"]) for name in layout.applied.names}
        return RobotState(sensors, applied, int(row["stamp_ns"]), faults=faults)

    def stop(self, reason: str) -> None:
        """Latch the stop, as on every robot, although nothing moves here."""
        self._stopped = self._stopped or reason

    def close(self) -> None:
        """End the replay; `reset` begins it again."""
        self._row = -1
