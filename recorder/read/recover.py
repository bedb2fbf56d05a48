"""Repair a torn run: add the messages of the tail to its last file, and the index that closing would have written.

Reading a log with this software needs no repair: a torn log opens as it is. Other software may refuse a file without
an index. The tail (`recorder.log.tail`) has the messages that a killed process had not written to its file yet.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from mcap.opcode import Opcode
from mcap.records import Channel, Schema
from mcap.writer import CompressionType, IndexType, Writer

from hal import LogError
from hal.atomic_file import atomic_write
from recorder.json_data import to_json
from recorder.log.chain import add_recovered
from recorder.log.ros2 import EPISODE, EVENT, HEADER, MessageType, message_type, read_note
from recorder.log.tail import TailMessage, read_tail, remove_tail
from recorder.metadata_copy import checked_copy
from recorder.names import COPY, DESCRIPTION, EPISODE_TOPIC, EVENT_TOPIC, FRAME_TOPIC, TORN_SUFFIX, log_files
from recorder.read.mcap_reader import open_files, open_mcap
from recorder.read.reader import LogReader
from recorder.read.scan import Scan

__all__ = ["Recovered", "recover"]

_RECOVERED = DESCRIPTION + "_recovered"
"""The metadata record that lists what was lost."""


@dataclass(frozen=True)
class Recovered:
    """The result of `recover` for one run.

    Attributes:
        run: the run's folder.
        rows: number of rows that can be read.
        episodes: number of episodes that can be read.
        repaired: names of the repaired files; the originals are beside them, ending in ``.torn``.
        lost: a sentence for each loss.
        added: number of rows that came from the tail.
    """

    run: Path
    rows: int
    episodes: int
    repaired: tuple[str, ...]
    lost: tuple[str, ...]
    added: int = 0

    def __str__(self) -> str:
        """Return a few lines for a person."""
        done = f"written anew: {', '.join(self.repaired)}" if self.repaired else "nothing to repair"
        added = f"; {self.added} rows added from the tail" if self.added else ""
        head = f"{self.run}: {self.episodes} episodes, {self.rows} rows; {done}{added}"
        return "\n".join([head, *(f"  {note}" for note in self.lost)])


def recover(path: Path | str) -> Recovered:
    """Repair the run in a folder. A complete run is left alone; a torn file is kept under another name.

    The repaired file has every message that can be trusted, in order, and then those that only the tail has. It is read
    back and compared. The tail must be read on the machine of the recording, before it is started again.

    Args:
        path: the run's folder or its ``log.mcap``.

    Raises:
        LogError: there is no log, its description was lost, the run is being recorded, or nothing can be written there.
    """
    reader = LogReader(path)
    run = reader.path.parent
    messages = read_tail(run)
    missing = _missing(reader, messages)
    before, notes = _summary(reader)
    ended = {read_note(message.data)[1] for message in missing if message.topic == EPISODE_TOPIC and _ends(message)}
    lost = tuple(note for note in notes if not any(note.startswith(f"episode {number} ") for number in ended))
    torn = [file for file in log_files(run).values() if _torn(file)]
    last = [*log_files(run).values()][-1]
    repaired = torn if last in torn or not missing else [*torn, last]
    for file in repaired:
        try:
            _repair(file, lost, missing if file == last else [], _types(reader))
        except OSError as error:
            raise LogError(f"{file} can't be repaired: {error}; copy the run to another disk and try there") from error
    added = sum(message.topic == FRAME_TOPIC for message in missing)
    after = _summary(LogReader(run), before.rows)[0] if repaired else before
    if after.rows != before.rows + added or after.checksum != before.checksum:
        raise LogError(f"{run}: the repaired log differs from the torn one, which is still there, ending in .torn")
    if repaired and not add_recovered(run, repaired):
        lost += ("the chain of digests ended before the damage, so `data verify` goes on to report a change",)
    remove_tail(run)
    return Recovered(run, after.rows, after.episodes, tuple(file.name for file in repaired), lost, added)


def _ends(message: TailMessage) -> bool:
    return read_note(message.data)[0] == "end"


def _missing(reader: LogReader, messages: Sequence[TailMessage]) -> list[TailMessage]:
    """Return the messages of the tail that the log does not have and can describe, in their order."""
    if not messages:
        return []
    known, types = dict.fromkeys(messages), _types(reader)
    since_ns = min(message.time_ns for message in messages)
    for _, file in open_files(reader.files):
        for chunk in file.chunks():
            channels = [channel for channel in chunk.offsets if file.topics.get(channel) in types]
            if any((chunk.heads(channel)["time_ns"] >= since_ns).any() for channel in channels):
                for topic, time_ns, data in file.messages_of(chunk, types):
                    known.pop(TailMessage(topic, time_ns, bytes(data)), None)
    row_bytes = len(HEADER) + reader.layout.spec.row_dtype.itemsize
    sound = (message for message in known if message.topic != FRAME_TOPIC or len(message.data) == row_bytes)
    return [message for message in sound if message.topic in types]


def _types(reader: LogReader) -> Mapping[str, MessageType]:
    """Return the topics that a tail can have, with the types of their messages."""
    streams = {stream.topic: stream.message for stream in reader.streams.values()}
    return {FRAME_TOPIC: message_type(reader.layout.spec), EPISODE_TOPIC: EPISODE, EVENT_TOPIC: EVENT, **streams}


class _Summary(NamedTuple):
    """Numbers of rows and episodes, and a checksum of all rows."""

    rows: int
    episodes: int
    checksum: str


def _summary(reader: LogReader, most: int | None = None) -> tuple[_Summary, tuple[str, ...]]:
    """Read a log once; return its summary, with a checksum of the first ``most`` rows, and what is lost."""
    scan, count, checksum = Scan(), 0, hashlib.sha256()
    for rows in scan.run(reader.files, reader.layout.spec.row_dtype):
        checksum.update(rows[: None if most is None else max(most - count, 0)].tobytes())
        count += len(rows)
    return _Summary(count, len(scan.episodes), checksum.hexdigest()), scan.notes()


def _torn(file: Path) -> bool:
    try:
        reader = open_mcap(file)
    except LogError:
        return False  # nothing in the file can be saved
    for _ in reader.chunks():
        pass  # damage is found on the way
    return not reader.complete or bool(reader.notes)


def _repair(file: Path, lost: Sequence[str], missing: Sequence[TailMessage], types: Mapping[str, MessageType]) -> None:
    with atomic_write(file) as repaired:
        with repaired.open("wb") as stream:
            _copy(file, stream, lost, missing, types)
        torn = file.with_name(file.name + TORN_SUFFIX)
        torn.unlink(missing_ok=True)
        os.link(file, torn)


def _copy(
    file: Path,
    stream: IO[bytes],
    lost: Sequence[str],
    missing: Sequence[TailMessage],
    types: Mapping[str, MessageType],
) -> None:
    """Copy every message that can be trusted, with the definitions that it needs, and the descriptions; add others."""
    writer = Writer(stream, index_types=IndexType.ALL, compression=CompressionType.LZ4, enable_data_crcs=False)
    writer.start(profile="ros2", library="rlenv-robot recover")
    schemas: dict[int, int] = {}
    channels: dict[int, int] = {}
    reader = open_mcap(file)
    for name, texts in reader.metadata(DESCRIPTION):
        writer.add_metadata(name, texts)
        writer.add_metadata(COPY + name, checked_copy(texts))
    writer.add_metadata(_RECOVERED, {"lost": to_json(list(lost), "what is lost")})
    for chunk in reader.chunks():
        for definition in chunk.definitions:
            if definition.kind == Opcode.SCHEMA:
                schema = Schema.read(chunk.stream(definition))
                schemas[schema.id] = writer.register_schema(schema.name, schema.encoding, schema.data)
            else:
                channel = Channel.read(chunk.stream(definition))
                channels[channel.id] = writer.register_channel(
                    channel.topic, channel.message_encoding, schemas.get(channel.schema_id, 0), channel.metadata
                )
        for number, offset, sequence, time_ns in chunk.in_order(chunk.offsets.keys() & channels.keys()):
            writer.add_message(channels[number], time_ns, bytes(chunk.payload(offset)), time_ns, sequence)
    _add(
        writer,
        missing,
        types,
        {topic: channels[number] for number, topic in reader.topics.items() if number in channels},
    )
    writer.finish()


def _add(
    writer: Writer, messages: Sequence[TailMessage], types: Mapping[str, MessageType], channels: dict[str, int]
) -> None:
    """Add messages of the tail. The joint states of its frames are not made again: viewers alone need them."""

    def channel(topic: str, kind: MessageType) -> int:
        if topic not in channels:
            schema = writer.register_schema(kind.name, "ros2msg", kind.definition.encode())
            channels[topic] = writer.register_channel(topic, "cdr", schema)
        return channels[topic]

    for message in messages:
        writer.add_message(channel(message.topic, types[message.topic]), message.time_ns, message.data, message.time_ns)
