"""Show a served robot in Rerun: sensors and commands over time, its body in space, images, the lifecycle's state."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import rerun as rr

from hal import Field, RobotError, RobotSpec, Spec
from real import Snapshot
from recorder.log.image_codec import encoded
from rlenv_operate.live.session import LiveSession, LiveView
from rlenv_operate.solids import looks
from rlenv_robot.robot_models import find_robot_model
from rlenv_robot.serving.robot_feed import Look
from sim.body_frames import WORLD, BodyFrames

__all__ = ["RECORDING", "RerunView"]

RECORDING = ".rrd"
"""Extension of Rerun's files."""

_MOST_NUMBERS = 64
"""Numbers of a sensor up to which they are drawn as lines."""

_FLUSH_S = 5.0
_URL = "rerun"


class RerunView(LiveView):
    """Send the data of a session to a Rerun viewer, or write them to a file.

    Entities: ``sensors/<name>`` and ``commands/<name>`` (scalars), ``world/<body>/...`` (transforms relative to the
    parent, with meshes), ``cameras/<name>`` (encoded images), ``lifecycle`` (a line at each change). Timelines:
    ``wall`` (time of day) and ``robot`` (the robot's monotonic clock).

    Args:
        session: follows the robot; its owner starts and closes it.
        target: URL of a running viewer, such as ``rerun+http://127.0.0.1:9876/proxy``, or a new ``.rrd`` file.
        wall_ns: returns the time of day, nanoseconds since 1970.

    Raises:
        ValueError: the target is neither, or the file exists.
    """

    def __init__(self, session: LiveSession, target: str, wall_ns: Callable[[], int] = time.time_ns) -> None:
        super().__init__(session, wall_ns)
        self._spec: RobotSpec | None = None
        self._frames: BodyFrames | None = None
        self._paths: dict[str, str] = {}
        is_file = target.endswith(RECORDING)
        if is_file and Path(target).exists():
            raise ValueError(f"{target} exists, and nothing is overwritten; name another file")
        if not is_file and not target.startswith(_URL):
            raise ValueError(
                f"--rerun is {target!r}, it must be a viewer's URL such as rerun+http://127.0.0.1:9876/proxy, "
                f"or a new file ending in {RECORDING}"
            )
        self._recording = rr.RecordingStream("rlenv-robot", recording_id=uuid.uuid4())
        if is_file:
            self._recording.save(target)
        else:
            self._recording.connect_grpc(target)

    def close(self) -> None:
        """Send the remaining data for at most 5 s, then close. Safe to call more than once."""
        with suppress(RuntimeError, ValueError):  # the viewer has gone
            self._recording.flush(timeout_sec=_FLUSH_S)
        self._recording.disconnect()

    def _show_state(self, look: Look) -> None:
        snapshot = look.snapshot
        self._recording.set_time("wall", timestamp=np.datetime64(self._wall_ns(), "ns"))
        if snapshot is not None and snapshot.stamp_ns:
            self._recording.set_time("robot", duration=np.timedelta64(snapshot.stamp_ns, "ns"))
        self._tell(look)
        if look.spec is None or snapshot is None or look.problem:
            return
        if self._spec != look.spec:
            self._describe(look.spec)
        if snapshot.stamp_ns:
            self._send_snapshot(look.spec, snapshot)

    def _tell(self, look: Look) -> None:
        """Add a line when the state or its reason has changed."""
        line = self._new_line(look)
        if line is not None:
            text, is_warning = line
            level = rr.TextLogLevel.WARN if is_warning else rr.TextLogLevel.INFO
            self._recording.log("lifecycle", rr.TextLog(text, level=level))

    def _describe(self, spec: RobotSpec) -> None:
        """Send what stays the same: the names of the lines, and the robot's body."""
        self._spec, self._frames = spec, None
        for entity, field in _lines(spec):
            names = [str(name) for name in field.elements] or [str(index) for index in range(field.size)]
            self._recording.log(entity, rr.SeriesLines(names=names), static=True)
        with suppress(RobotError, ValueError):  # no model of this robot is known: there is no picture of it
            sim_model = find_robot_model(spec.name).make_sim_model()
            self._frames = BodyFrames(sim_model)
            self._paths = {WORLD: WORLD}
            for name, parent in self._frames.parents.items():
                self._paths[name] = f"{self._paths[parent]}/{name}"
            self._recording.log(WORLD, rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
            for body, name in enumerate(self._frames.names):
                for number, (colour, surface) in enumerate(looks(sim_model.model, body)):
                    mesh = rr.Mesh3D(
                        vertex_positions=surface.corners, triangle_indices=surface.faces, albedo_factor=colour
                    )
                    self._recording.log(f"{self._paths[name]}/look_{number}", mesh, static=True)

    def _send_snapshot(self, spec: RobotSpec, snapshot: Snapshot) -> None:
        values = {f"sensors/{name}": value for name, value in snapshot.sensors.items()}
        values |= {f"commands/{name}": value for name, value in snapshot.applied.items()}
        for entity, _ in _lines(spec):
            if entity in values:
                self._recording.log(entity, rr.Scalars(np.asarray(values[entity], np.float64).ravel()))
        for place in self._frames.places(snapshot.sensors) if self._frames is not None else ():
            w, x, y, z = place.quaternion.tolist()
            transform = rr.Transform3D(translation=place.position, quaternion=rr.Quaternion(xyzw=(x, y, z, w)))
            self._recording.log(self._paths[place.name], transform)

    def _show_images(self) -> None:
        for name, image in self._new_images():
            self._recording.set_time("wall", timestamp=np.datetime64(self._wall_ns(), "ns"))
            self._recording.set_time("robot", duration=np.timedelta64(image.stamp_ns, "ns"))
            ready = encoded(image, name)
            self._recording.log(
                f"cameras/{name}", rr.EncodedImage(contents=ready.data, media_type=f"image/{ready.encoding}")
            )


def _lines(spec: RobotSpec) -> list[tuple[str, Field]]:
    """Return the entity of each sensor and command that is drawn as lines, and its field."""

    def drawn(group: str, fields: Spec) -> list[tuple[str, Field]]:
        return [
            (f"{group}/{field.name}", field) for field in fields if not field.is_text and field.size <= _MOST_NUMBERS
        ]

    return drawn("sensors", spec.sensors) + drawn("commands", spec.commands)
