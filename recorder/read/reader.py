"""Read the log of a run, complete or torn."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from hal import Image, LogError, RobotError, Spec
from recorder.frame_layout import FrameLayout, used_field
from recorder.json_data import JsonObject, from_json
from recorder.log.ros2 import read_compressed_image
from recorder.log.streams import Stream
from recorder.names import CAMERA_TOPIC, DESCRIPTION, FORMAT, LOG_NAME, STREAM, files_of
from recorder.read.mcap_reader import McapReader, Message, open_files, open_mcap
from recorder.read.scan import Event, LoggedEpisode, Scan

__all__ = ["HOW", "Aligned", "Event", "LogReader", "LoggedEpisode", "align", "by_number"]

HOW = ("latest", "nearest", "interpolated")
"""Ways to choose the sample for a moment."""


@dataclass(frozen=True)
class Aligned:
    """The values of a stream at N moments.

    Attributes:
        values: name -> (N, ...), of the field's dtype; where ``valid`` is False floats are NaN, whole numbers 0.
        sample: (N,) int64, the row of the stream that was taken (interpolated: the one before), -1 for none.
        age_ns: (N,) int64, moment minus the sample's stamp: negative if the sample is from after the moment.
            Interpolated: the distance to the farther of the two.
        valid: (N,) bool.
    """

    values: Mapping[str, np.ndarray]
    sample: np.ndarray
    age_ns: np.ndarray
    valid: np.ndarray


def align(
    moments: np.ndarray,
    rows: np.ndarray,
    spec: Spec,
    how: str = "latest",
    max_age_ns: int | None = None,
    refuse: bool = False,
) -> Aligned:
    """Return the values of a stream at given moments.

    ``latest`` takes the last sample at or before the moment, as a control loop would have seen it; ``nearest`` takes
    the nearest one, of two the earlier; ``interpolated`` interpolates linearly between the samples around the moment,
    element by element (so quaternions must be normalised afterwards), and takes whole numbers from the one before.

    Args:
        moments: (N,) int64, nanoseconds on the clock of the stream's ``stamp_ns``, in any order.
        rows: the stream's samples, structured, with ``stamp_ns``, in any order.
        spec: the fields of the stream's values.
        how: one of `HOW`.
        max_age_ns: greatest distance of a sample from the moment, nanoseconds; None for any distance.
        refuse: whether to raise if a moment has no sample, instead of returning NaN and a mask.

    Raises:
        LogError: ``how`` is unknown; or a moment has no sample, and ``refuse`` is set.
    """
    if how not in HOW:
        raise LogError(f"alignment {how!r} is unknown, allowed are {', '.join(HOW)}")
    moments, stamps = np.asarray(moments, np.int64), np.ascontiguousarray(rows["stamp_ns"])
    if len(stamps) and (np.diff(stamps) < 0).any():
        order = np.argsort(stamps, kind="stable")
        rows, stamps = rows[order], stamps[order]
    else:
        order = np.arange(len(stamps))
    before = np.searchsorted(stamps, moments, side="right") - 1
    after = np.searchsorted(stamps, moments, side="left")
    taken, age, valid = _choose(how, moments, stamps, before, after)
    if max_age_ns is not None:
        valid &= np.abs(age) <= max_age_ns
    if refuse and not valid.all():
        raise _refusal(moments, valid, age, max_age_ns)
    values = {field.name: _masked(rows[field.name], taken, valid) for field in spec}
    if how == "interpolated":
        _blend(values, rows, moments, (before, after), valid)
    sample = np.where(valid, order[taken] if len(order) else -1, -1)
    return Aligned(values, sample, np.where(valid, age, 0), valid)


def by_number(moments: np.ndarray, numbers: np.ndarray, rows: np.ndarray, spec: Spec) -> Aligned:
    """Return the samples with given sequence numbers, by which frames name the samples that they used.

    Args:
        moments: (N,) int64, nanoseconds, for the ages.
        numbers: (N,) int64, the ``sequence`` of each sample; -1 for none.
        rows: the stream's samples, sorted by ``sequence``; dropped samples are missing.
        spec: the fields of the stream's values.
    """
    sequence = rows["sequence"]
    row = np.minimum(np.searchsorted(sequence, numbers), max(len(rows) - 1, 0))
    valid = sequence[row] == numbers if len(rows) else np.zeros(len(numbers), bool)
    values = {field.name: _masked(rows[field.name], row, valid) for field in spec}
    age = np.asarray(moments, np.int64) - rows["stamp_ns"][row] if len(rows) else np.zeros(len(numbers), np.int64)
    return Aligned(values, np.where(valid, row, -1), np.where(valid, age, 0), valid)


def _choose(
    how: str, moments: np.ndarray, stamps: np.ndarray, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the row for each moment, its age, and whether there is one."""
    count = len(stamps)
    if not count:
        nothing = np.zeros(len(moments), np.int64)
        return nothing, nothing, np.zeros(len(moments), bool)
    has_before, has_after = before >= 0, after < count
    since = moments - stamps[np.maximum(before, 0)]
    until = stamps[np.minimum(after, count - 1)] - moments
    if how == "latest":
        return np.maximum(before, 0), since, has_before
    if how == "interpolated":
        return np.maximum(before, 0), np.maximum(since, until), has_before & has_after
    later = has_after & (~has_before | (until < since))
    return np.where(later, after, np.maximum(before, 0)), np.where(later, -until, since), np.ones(len(moments), bool)


def _masked(column: np.ndarray, taken: np.ndarray, valid: np.ndarray) -> np.ndarray:
    if not len(column):
        column = np.zeros((1, *column.shape[1:]), column.dtype)
    values = np.array(column[taken])
    values[~valid] = np.nan if column.dtype.kind == "f" else 0
    return values


def _blend(
    values: dict[str, np.ndarray],
    rows: np.ndarray,
    moments: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray],
    at: np.ndarray,
) -> None:
    """Move floats, where ``at`` is set, from the sample before towards the one after, in float64."""
    before, after = (pair[at] for pair in pairs)
    first, last = rows["stamp_ns"][before], rows["stamp_ns"][after]
    share = np.where(last > first, (moments[at] - first) / np.maximum(last - first, 1), 0.0)
    for name, array in values.items():
        if array.dtype.kind == "f":
            low, high = rows[name][before].astype(float), rows[name][after].astype(float)
            array[at] = low + (high - low) * share.reshape(-1, *[1] * (array.ndim - 1))


def _refusal(moments: np.ndarray, valid: np.ndarray, age: np.ndarray, max_age_ns: int | None) -> LogError:
    first = int(np.flatnonzero(~valid)[0])
    allowed = "any age" if max_age_ns is None else f"at most {max_age_ns / 1e6:g} ms"
    return LogError(
        f"{int((~valid).sum())} of {len(moments)} moments have no sample, the first is number {first} at "
        f"{moments[first]} ns (age {age[first] / 1e6:g} ms, allowed is {allowed}); ask for a mask instead, or "
        "allow older samples"
    )


# -- logs -----------------------------------------------------------------------------------------------------------


class LogReader:
    """Read all files of a run's log, or only one file if the path is not the log's first.

    Opening costs nothing: files are read on demand. Everything in complete chunks is read. `notes` lists losses, and no
    wrong data is returned: a chunk with a wrong checksum is left out.

    Args:
        path: the run's folder or its ``log.mcap``.
    """

    def __init__(self, path: Path | str) -> None:
        self._folder_or_file = Path(path)
        self._rows: np.ndarray | None = None
        self._scanned: Scan | None = None

    @property
    def path(self) -> Path:
        """The log's first file.

        Raises:
            LogError: there is none.
        """
        path = self._folder_or_file / LOG_NAME if self._folder_or_file.is_dir() else self._folder_or_file
        if not path.is_file():
            raise LogError(f"there is no log at {path}; name the folder of a run or its {LOG_NAME}")
        return path

    @property
    def files(self) -> Mapping[int, Path]:
        """The log's files by number.

        Raises:
            LogError: there is none.
        """
        return files_of(self.path)

    # ---- description ----

    @cached_property
    def metadata(self) -> JsonObject:
        """Metadata from the beginning of the run, by name; ours are format, layout, digest, versions and file.

        Raises:
            LogError: the file is not a log of ours, was torn before its description, or has a newer format.
        """
        file = open_mcap(self.path)
        texts = next((texts for name, texts in file.metadata(DESCRIPTION) if name == DESCRIPTION), None)
        if texts is None:
            why = f" ({file.unfinished})" if file.unfinished else ""
            raise LogError(f"{file.name} has no description, so its rows can't be understood{why}")
        values = {key: from_json(text, f"{self.path}: metadata {key!r}") for key, text in texts.items()}
        if values.get("format") != FORMAT:
            raise LogError(f"{self.path} has format {values.get('format')}, this software reads {FORMAT}")
        return values

    @cached_property
    def layout(self) -> FrameLayout:
        """The layout of the frame rows.

        Raises:
            LogError: as `metadata`, or the layout's checksum is wrong.
        """
        try:
            layout = FrameLayout.from_dict(self.metadata["layout"])
        except (KeyError, TypeError, RobotError) as error:
            if isinstance(error, LogError):
                raise
            raise LogError(f"{self.path}: its layout can't be read: {error}") from error
        if layout.spec.digest != self.metadata.get("digest"):
            raise LogError(f"{self.path}: its layout is damaged, the checksum does not fit")
        return layout

    # ---- rows, episodes, events ----

    def frame_blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows as `frames` returns them, one chunk at a time, for logs larger than memory.

        Each call reads the log in its present state.

        Raises:
            LogError: the first file is not a log, or has no layout.
        """
        return Scan().run(self.files, self.layout.spec.row_dtype)

    def frames(self) -> np.ndarray:
        """Return all rows in the order of recording: shape (R,), of the layout's row type, read-only.

        Raises:
            LogError: as `frame_blocks`.
        """
        if self._rows is None:
            scan, dtype = Scan(), self.layout.spec.row_dtype
            self._rows = np.concatenate([np.zeros(0, dtype), *scan.run(self.files, dtype)])
            self._rows.setflags(write=False)
            self._scanned = scan
        return self._rows

    def scan(self) -> Scan:
        """Scan the log for everything except the rows, only once, and return the result.

        Raises:
            LogError: as `frame_blocks`.
        """
        if self._scanned is None:
            scan = Scan()
            for _ in scan.run(self.files, self.layout.spec.row_dtype):
                pass  # the rows are not kept: a log may be larger than memory
            self._scanned = scan
        return self._scanned

    @property
    def complete(self) -> bool:
        """Whether the log was closed."""
        return self.scan().complete

    @property
    def notes(self) -> tuple[str, ...]:
        """Losses, a sentence each; empty for a complete log that was closed."""
        return self.scan().notes()

    def episodes(self) -> tuple[LoggedEpisode, ...]:
        """Return the episodes that began, in order."""
        return tuple(self.scan().episodes.values())

    def events(self) -> tuple[Event, ...]:
        """Return the events, in order."""
        return tuple(self.scan().events)

    def _column(self, name: str) -> np.ndarray:
        """Return one field of all rows, without holding the others."""
        dtype = self.layout.spec.row_dtype[name]
        return np.concatenate([np.zeros(0, dtype), *(block[name].copy() for block in self.frame_blocks())])

    # ---- streams ----

    @cached_property
    def streams(self) -> Mapping[str, Stream]:
        """The sensors that were recorded at their own rates, by name.

        Raises:
            LogError: a description is damaged.
        """
        streams: dict[str, Stream] = {}
        for file in self._readers():
            for name, texts in file.metadata(STREAM):
                stream = Stream.from_dict(from_json(texts.get("stream", ""), f"{file.name}: metadata {name!r}"))
                streams[stream.name] = stream
        return streams

    def samples(self, stream: str) -> np.ndarray:
        """Return all samples of a stream as recorded: ``stamp_ns``, ``wall_ns``, ``sequence`` and values, read-only.

        Raises:
            LogError: there is no such stream.
        """
        rows = np.concatenate([*self.sample_blocks(stream)])
        rows.setflags(write=False)
        return rows

    def sample_blocks(self, stream: str) -> Iterator[np.ndarray]:
        """Yield all samples as `samples` returns them, one chunk at a time, for logs larger than memory.

        Raises:
            LogError: there is no such stream.
        """
        if stream not in self.streams:
            raise LogError(f"{self.path} has no stream {stream!r}, it has {', '.join(self.streams) or 'none'}")
        row, topic = self.streams[stream].row.row_dtype, self.streams[stream].topic
        yield np.zeros(0, row)
        for file in self._readers():
            for chunk in file.chunks():
                for channel in chunk.offsets:
                    if file.topics.get(channel) == topic:
                        yield chunk.rows(channel, row)[0]

    def at_frames(
        self, stream: str, how: str = "latest", max_age_ns: int | None = None, refuse: bool = False
    ) -> Aligned:
        """Return a stream's values at the capture time of every frame, as `recorder.read.reader.align` does.

        Raises:
            LogError: the stream or ``how`` is unknown; or a frame has no sample, and ``refuse`` is set.
        """
        samples = self.samples(stream)
        return align(self._column("stamp_ns"), samples, self.streams[stream].spec, how, max_age_ns, refuse)

    def used(self, stream: str) -> Aligned:
        """Return the values of a stream from which each frame was made, by the sample numbers in the frames.

        Raises:
            LogError: the stream is unknown, or the frames don't name the samples that they used.
        """
        field = used_field(stream)
        if field not in self.layout.spec:
            raise LogError(f"the frames of {self.path} don't say which samples of {stream!r} they used")
        moments, numbers = self._column("stamp_ns"), self._column(field)
        return by_number(moments, numbers, self.samples(stream), self.streams[stream].spec)

    # ---- messages and images ----

    def _readers(self) -> Iterator[McapReader]:
        return (reader for _, reader in open_files(self.files))

    def messages(self, topics: Container[str] | None = None) -> Iterator[Message]:
        """Yield the undecoded messages of all files, of some topics or of all, in the order of recording."""
        for file in self._readers():
            yield from file.messages(topics)

    @cached_property
    def _cameras(self) -> tuple[str, ...]:
        topics: set[str] = set()
        for file in self._readers():
            for _ in file.chunks():
                pass  # the topics of their channels are learned on the way
            topics |= set(file.topics.values())
        return tuple(sorted(topic.removeprefix(CAMERA_TOPIC) for topic in topics if topic.startswith(CAMERA_TOPIC)))

    def cameras(self) -> tuple[str, ...]:
        """Return the names of the cameras with images in the log."""
        return self._cameras

    def images(self, camera: str) -> Iterator[Image]:
        """Yield a camera's images as encoded bytes, in order (see `recorder.log.image_codec.decoded`).

        Raises:
            LogError: there is no such camera.
        """
        if camera not in self.cameras():
            raise LogError(f"{self.path} has no camera {camera!r}, it has {', '.join(self.cameras()) or 'none'}")
        for message in self.messages((CAMERA_TOPIC + camera,)):
            yield read_compressed_image(message.data)
