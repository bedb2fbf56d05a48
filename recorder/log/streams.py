"""Describe a sensor stream that is recorded at its own rate: its samples, its topic and its message type."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from hal import Field, LogError, Spec, SpecError, StreamSpec
from recorder.json_data import JsonDict, JsonObject
from recorder.log.ros2 import MessageType, message_type
from recorder.names import SENSOR_TOPIC

__all__ = ["Stream"]

_HEAD = (
    Field("stamp_ns", (), "int64", unit="ns", meaning="robot's clock at capture"),
    Field("wall_ns", (), "int64", unit="ns", meaning="recording machine's clock at receipt, since 1970"),
    Field("sequence", (), "int64", meaning="number of the sample in this run, from 0; one that is missing was dropped"),
)


@dataclass(frozen=True)
class Stream(StreamSpec):
    """A stream in a log, on the topic ``/sensor/<name>``.

    Raises:
        LogError: the name, the rate or a field's name is not allowed.
    """

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except SpecError as error:
            raise LogError(str(error)) from error
        taken = [field.name for field in _HEAD if field.name in self.spec]
        if taken:
            raise LogError(f"stream {self.name!r}: the log fills {', '.join(taken)} itself; rename these fields")

    @cached_property
    def row(self) -> Spec:
        """The fields of one sample: stamps, sequence and values."""
        return Spec.joined(self.name, (Spec("head", _HEAD), self.spec))

    @property
    def topic(self) -> str:
        """The stream's topic in the log."""
        return SENSOR_TOPIC + self.name

    @property
    def message(self) -> MessageType:
        """The ROS 2 type of the samples, ``rlenv_robot_msgs/msg/<Name>Sample``."""
        return message_type(self.row, "".join(part.capitalize() for part in self.name.split("_")) + "Sample")

    def to_dict(self) -> JsonDict:
        """Return the description as plain data, for a log's metadata."""
        return {"name": self.name, "spec": self.spec.to_dict(), "rate_hz": self.rate_hz, "digest": self.row.digest}

    @staticmethod
    def from_dict(plain: JsonObject) -> Stream:
        """Make a stream from the plain data of `to_dict`.

        Raises:
            LogError: the data does not describe a stream, or the checksum is wrong.
        """
        try:
            stream = Stream(str(plain["name"]), Spec.from_dict(plain["spec"]), float(plain["rate_hz"]))
        except (KeyError, TypeError, ValueError) as error:
            raise LogError(f"not a stream's description: {error!r}") from error
        if stream.row.digest != plain.get("digest"):
            raise LogError(f"the description of stream {stream.name!r} is damaged, its checksum does not fit")
        return stream
