"""Simulate one robot."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Any

import numpy as np

from hal.clock import Rate
from hal.errors import EpisodeError, RobotError, RobotStopped
from hal.guarding.stop_latch import check_clears
from hal.robot import CameraSpec, Image, RobotSpec, RobotState, SampleSink, StreamSpec, starts_here
from hal.spec import Spec
from sim.batch import SimBatch
from sim.latency.delays import DelayModel
from sim.model import SimModel
from sim.randomize.actuation import Gains, configured_spec
from sim.randomize.distribution import check_rows
from sim.randomize.randomise import Randomise, with_own_draws
from sim.snapshot import BatchSnapshot

__all__ = ["Sampler", "SimRobot"]

_NOTHING: Mapping[str, Any] = MappingProxyType({})

_new = tuple.__new__  # what a named tuple's constructor calls, at half its time


class SimRobot:
    """A `hal.Robot` that is a `SimBatch` of one: the same numbers, bit for bit, as anywhere in a larger batch.

    Args:
        sim_model: the model to simulate.
        real_time: whether each step takes the time of a control period and is stamped by this machine's monotonic
            clock. If not, steps run as fast as possible, and stamps are simulated time since the first reset.
        cameras: names of cameras of the spec to add to every reading; none by default, since an image costs a
            thousand times as much as a step.
        teleport: whether a reset puts the robot at its start. If not, the first reset finds it in the pose of the
            model's keyframe, later ones where it is, and `hal.Homing` moves it to the start, like a real arm.
        timing: delays, losses and resolution of commands and sensors; None for none. They do not affect streams.
        randomise: the parts of the model that each reset draws; None for none.
        validate: whether a step checks its command; False if a guard around the robot already has.
        streams: names of sensors that are also sampled after every physics step, for the sinks of `stream_to`.
        gains: as for `sim.randomize.actuation.configured_spec`, for the manifest; they do not affect the simulation.

    Raises:
        RobotError: the spec has no camera or sensor of that name.
        SpecError: timing or randomisation don't fit the model.
    """

    def __init__(
        self,
        sim_model: SimModel,
        *,
        real_time: bool = False,
        cameras: tuple[str, ...] = (),
        teleport: bool = True,
        streams: tuple[str, ...] = (),
        timing: DelayModel | None = None,
        randomise: Randomise | None = None,
        validate: bool = True,
        gains: Gains | None = None,
    ) -> None:
        self._sim_model, self._teleport = sim_model, teleport
        self._validate = sim_model.spec.commands.validate if validate else None
        self._rate = Rate(sim_model.spec.rate_hz) if real_time else None
        self._camera_specs = [_camera(sim_model.spec, name) for name in cameras]
        self._timing, self._given = timing, randomise
        self._randomise = with_own_draws(sim_model.draws, randomise)
        self._delayed = timing is not None
        self._check_conditions()
        self._spec = configured_spec(sim_model, None if timing is None else timing.ranges, self._randomise, gains)
        self._sampler = Sampler(sim_model.spec, streams, sim_model.substeps)
        self._after_physics: Callable[[], None] | None = None
        self._plain = self._is_plain()
        self._cameras: dict[str, Any] = {}
        self._batch: SimBatch | None = None
        self._found: RobotState | None = None  # by a look before the first reset
        self._stopped: str | None = None
        self._closed = False
        self._blocked = True  # stopped, closed or never reset: one flag, as every step asks

    def __repr__(self) -> str:
        return f"<SimRobot {self._spec.name!r}>"

    @property
    def spec(self) -> RobotSpec:
        """The robot's description, with its gains and delays."""
        return self._spec

    @property
    def sim_model(self) -> SimModel:
        """The simulated model."""
        return self._sim_model

    @property
    def streams(self) -> tuple[StreamSpec, ...]:
        """The requested streams, at the rate of the physics."""
        return self._sampler.streams

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Send the samples of streams to sinks, with each step and from the thread that steps."""
        self._sampler.stream_to(sinks)
        self._after_physics = self._hold if self._sampler.active else None
        self._plain = self._is_plain()

    def reset(self, options: Mapping[str, Any]) -> RobotState:
        """Reset the simulation. ``seed`` seeds the random parts of the start; ``start`` has the commands to start from.

        With `hal.robot.PRESENT` as start it stays as it is, unless this is the first reset; commanded speeds and
        efforts end.

        Raises:
            IllegalAction: the start breaks the spec.
            ValueError: ``start`` is neither that nor a mapping, or ``seed`` is not a whole number; nothing moved.
            RobotStopped: a stop is latched and ``clear_stop`` gives no reason to clear it.
            EpisodeError: after `close`.
        """
        if self._closed:
            raise EpisodeError("reset after close: make a new robot")
        check_clears(self._stopped, options)
        here = starts_here(options)
        starts, seeds = {} if here else self._starts(options.get("start", {})), _seeds(options.get("seed"))
        self._stopped = None
        batch, is_first = self._batch, self._batch is None
        if batch is None:
            batch = self._batch = self._open()
        if (self._teleport and not here) or is_first:
            batch.reset(None, seeds, starts)
        elif here:
            batch.end_motion()
        self._blocked = self._stopped is not None  # a stop may have come meanwhile
        if self._rate is not None:
            self._rate.restart()  # the schedule begins with this reading
        applied = {name: value[0] for name, value in batch.batch_state().applied.items()}
        return self._full_reading(applied, batch.stamp_ns, first=True)

    def _check_conditions(self) -> None:
        model = self._sim_model.model
        check_rows(timing=self._timing, randomise=self._randomise)
        if self._timing is not None:
            self._timing.check_fit(self._sim_model.spec, model.opt.timestep)
        if self._randomise is not None:
            self._randomise.check_fit(model)

    @property
    def conditions(self) -> dict[str, tuple[tuple[str, str, str], ...]]:
        """The numbers that differ between episodes, under ``timing`` and ``randomise``: path, distribution, unit."""
        lines = {}
        if self._timing is not None:
            lines["timing"] = tuple(self._timing.lines(self.spec))
        if self._randomise is not None:
            lines["randomise"] = tuple(self._randomise.lines())
        return lines

    @property
    def drawn(self) -> dict[str, float]:
        """The numbers drawn for the present episode: path -> number; empty before a reset."""
        return {} if self._batch is None else {name: float(value[0]) for name, value in self._batch.drawn.items()}

    def about(self) -> dict[str, Any]:
        """Return the `conditions`, and the numbers `drawn` for the episode under ``randomisation``."""
        if not self.conditions:
            return {}
        lines = {kind: [list(line) for line in lines] for kind, lines in self.conditions.items()}
        return {"conditions": lines, "randomisation": self.drawn}

    def snapshot(self) -> BatchSnapshot:
        """Return the simulation's state, as `SimBatch.snapshot` does for a batch.

        Raises:
            EpisodeError: before the first reset, or after `close`.
        """
        if self._batch is None:
            raise EpisodeError("snapshot after close" if self._closed else "snapshot before reset: call reset first")
        return self._batch.snapshot()

    def restore(self, snapshot: BatchSnapshot) -> RobotState:
        """Restore a state, as `SimBatch.restore` does for a batch. A latched stop stays.

        Raises:
            ValueError: the snapshot does not fit.
            EpisodeError: after `close`.
        """
        if self._closed:
            raise EpisodeError("restore after close: make a new robot")
        batch = self._batch if self._batch is not None else self._open()
        restored = batch.restore(snapshot)
        self._batch, self._blocked = batch, self._stopped is not None
        return self._full_reading({name: value[0] for name, value in restored.applied.items()}, batch.stamp_ns, True)

    def _open(self) -> SimBatch:
        batch = SimBatch(self._sim_model, 1, 1, teleport=self._teleport, timing=self._timing, randomise=self._given)
        self._read = batch.readers(0).read
        writers = batch.writers(0)
        self._targets = tuple((name, target, index) for name, target, index, _, _ in writers)
        self._open_cameras()
        return batch

    def _is_plain(self) -> bool:
        """Return whether a step is physics alone: no real time, images, streams or late readings."""
        late = self._timing is not None and self._timing.changes_readings
        return self._rate is None and not self._camera_specs and not self._sampler.active and not late

    def _open_cameras(self) -> None:
        if self._camera_specs:
            from sim.rendering.camera import open_camera  # looks for OpenGL

            for camera in self._camera_specs:
                self._cameras[camera.name] = open_camera(self._sim_model, camera.name, camera.width, camera.height)

    def _starts(self, start: object) -> dict[str, np.ndarray]:
        commands = self.spec.commands
        if not isinstance(start, Mapping):
            names = ", ".join(commands.names)
            raise ValueError(f"reset option 'start' is {start!r:.80}, expected a mapping from name to value of {names}")
        return {name: commands[name].validate(value, "start")[None] for name, value in start.items()}

    def step(self, command: Mapping[str, np.ndarray]) -> RobotState:
        """Run the physics for one control period, then read all sensors.

        Raises:
            IllegalAction: the command breaks the spec; nothing moved.
            RobotStopped: a stop is latched.
            EpisodeError: before the first reset, or after `close`.
        """
        if self._blocked:
            self._refuse()
        values = command if self._validate is None else self._validate(command, "command")
        batch = self._batch
        assert batch is not None  # a robot that was never reset is blocked
        if self._delayed:
            return self._step_delayed(batch, values)
        applied = {}
        for name, target, index in self._targets:
            applied[name] = value = values[name].copy()
            target[index] = value
        stamp_ns = batch.advance(None, self._after_physics)
        if self._plain and not batch.any_broken:
            return _new(RobotState, (self._read(), applied, stamp_ns, _NOTHING, _NOTHING, (), _NOTHING))
        return self._full_reading(applied, stamp_ns)

    def read(self) -> RobotState | None:
        """Read the sensors without running the physics: nothing moves, and no episode begins.

        Returns:
            The reading, without images; None after `close`. Before the first reset it shows the pose in which that
            reset finds the nominal robot.
        """
        if self._closed:
            return None
        stamp_ns = time.monotonic_ns() if self._rate is not None or self._batch is None else self._batch.stamp_ns
        if self._batch is None:
            self._found = self._found or self._look_first()
            return self._found._replace(stamp_ns=stamp_ns)
        shown = self._batch.batch_state()
        sensors = {name: value[0] for name, value in shown.sensors.items()}
        applied = {name: value[0] for name, value in shown.applied.items()}
        ages = {name: int(age[0]) for name, age in shown.age_ns.items()} if self._timing is not None else _NOTHING
        return RobotState(sensors, applied, stamp_ns, ages, faults=self._batch.faults(0))

    def _look_first(self) -> RobotState:
        """Return a reading of a copy of the simulation in its first pose; the simulation itself begins with a reset."""
        with closing(SimBatch(self._sim_model, 1, 1, teleport=self._teleport)) as batch:
            batch.reset(None, [0], {})
            shown = batch.batch_state()
            sensors = {name: value[0].copy() for name, value in shown.sensors.items()}
            applied = {name: value[0].copy() for name, value in shown.applied.items()}
        return RobotState(sensors, applied, 0)

    simulated = True
    """Whether the robot is simulated: True."""

    def _step_delayed(self, batch: SimBatch, values: Mapping[str, np.ndarray]) -> RobotState:
        """Run one control period with delays."""
        commands = {name: value[None] for name, value in values.items()}
        stamp_ns = batch.step_late(commands, None, self._after_physics)
        if self._plain and not batch.any_broken:
            return _new(RobotState, (self._read(), batch.applied_to(0), stamp_ns, _NOTHING, _NOTHING, (), _NOTHING))
        return self._full_reading(batch.applied_to(0), stamp_ns)

    def _hold(self) -> None:
        self._sampler.hold(self._read())

    def _refuse(self) -> None:
        if self._stopped is not None:
            raise RobotStopped(self._stopped)
        raise EpisodeError("step after close" if self._closed else "step before reset: call reset first")

    def _full_reading(self, applied: dict[str, np.ndarray], stamp_ns: int, first: bool = False) -> RobotState:
        assert self._batch is not None
        if self._rate is not None:
            self._rate.wait()
            stamp_ns = time.monotonic_ns()
        images = self._images(stamp_ns) if self._cameras else _NOTHING
        sensors, ages = _NOTHING, _NOTHING
        if self._timing is not None:
            shown = self._batch.batch_state()
            sensors = {name: value[0] for name, value in shown.sensors.items()}
            ages = {name: int(age[0]) for name, age in shown.age_ns.items()}
        else:
            sensors = self._read()
        used = _NOTHING if self._after_physics is None else self._samples(sensors, stamp_ns, first)
        faults = self._batch.faults(0) if first or self._batch.any_broken else ()
        return RobotState(sensors, applied, stamp_ns, ages, images, faults, used)

    def _samples(self, sensors: Mapping[str, np.ndarray], stamp_ns: int, first: bool) -> dict[str, int]:
        if first:  # the time before an episode is nobody's
            self._sampler.restart(stamp_ns)
            self._sampler.hold(sensors)
        return self._sampler.hand_over(stamp_ns)

    def _images(self, stamp_ns: int) -> dict[str, Image]:
        assert self._batch is not None
        from sim.rendering.camera import seen

        qpos = self._batch.open_batch.bind("qpos")[0]
        for camera in self._cameras.values():
            camera.set_model({name: values[0] for name, values in seen(self._batch.models).items()})
        return {name: Image(camera.render(qpos), "rgb8", stamp_ns) for name, camera in self._cameras.items()}

    def stop(self, reason: str) -> None:
        """Refuse every further step until a reset clears the stop. The first reason stays."""
        if self._stopped is None:
            self._stopped = reason
        self._blocked = True

    def close(self) -> None:
        """Free the simulation and the cameras. Safe to call more than once."""
        self._closed = self._blocked = True
        for camera in self._cameras.values():
            camera.close()
        self._cameras.clear()
        if self._batch is not None:
            self._batch.close()
            self._batch = None


def _seeds(seed: object) -> list[int] | None:
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"reset option 'seed' is {seed!r:.80}, expected a whole number of at least 0")
    return [int(seed)]


def _camera(spec: RobotSpec, name: str) -> CameraSpec:
    for camera in spec.cameras:
        if camera.name == name:
            return camera
    raise RobotError(f"{spec.name} has no camera {name!r}, it has {', '.join(c.name for c in spec.cameras) or 'none'}")


# -- Sensors of a simulated robot at the rate of its physics -------------------------------------------------


class Sampler:
    """Send the values of some sensors to sinks after every physics step.

    Args:
        spec: the robot's description.
        names: names of sensors; each is a separate stream with the sensor as its only field.
        substeps: physics steps in a control period.

    Raises:
        SpecError: the robot has no such sensor.
    """

    def __init__(self, spec: RobotSpec, names: tuple[str, ...], substeps: int) -> None:
        rate_hz = spec.rate_hz * substeps
        self.streams = tuple(StreamSpec(name, Spec(name, (spec.sensors[name],)), rate_hz) for name in names)
        self._sinks: Mapping[str, SampleSink] = {}
        self._held: list[Mapping[str, np.ndarray]] = []
        self._before_ns = 0

    @property
    def active(self) -> bool:
        """Whether any stream has a sink."""
        return bool(self._sinks)

    def stream_to(self, sinks: Mapping[str, SampleSink]) -> None:
        """Send the samples of streams to these sinks, by name."""
        self._sinks = {stream.name: sinks[stream.name] for stream in self.streams if stream.name in sinks}

    def hold(self, sensors: Mapping[str, np.ndarray]) -> None:
        """Keep the present values until `hand_over` gives them their time stamps."""
        self._held.append(sensors)

    def restart(self, stamp_ns: int) -> None:
        """Begin an episode: the next samples follow this moment."""
        self._held.clear()
        self._before_ns = stamp_ns

    def hand_over(self, stamp_ns: int) -> dict[str, int]:
        """Send the kept values with stamps spread evenly over the time since the last call, the last at ``stamp_ns``.

        In real time, the physics of a period is computed at once, before waiting for the end of the period. The stamps
        are the moments that the samples stand for, not those of their computation.

        Returns:
            The number of each stream's last sample.
        """
        before, count = self._before_ns, len(self._held)
        used: dict[str, int] = {}
        for number, sensors in enumerate(self._held, 1):
            at = before + (stamp_ns - before) * number // count
            for name, sink in self._sinks.items():
                used[name] = sink.write({name: sensors[name]}, at)
        self.restart(stamp_ns)
        return used
