"""Repair a torn run: its last file gets the index that closing would have given it.

Reading a log with this software needs no repair: a torn log opens as it is. Other software may refuse a file without
an index.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from mcap.opcode import Opcode
from mcap.records import Channel, Schema
from mcap.writer import CompressionType, IndexType, Writer

from hal import LogError
from recorder.json_data import to_json
from recorder.names import DESCRIPTION, log_files
from recorder.read.mcap_reader import open_mcap
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
        rows, episodes: how many can be read.
        repaired: names of the files that were written anew; the old files are beside them, ending in ``.torn``.
        lost: what is lost, a sentence each.
    """

    run: Path
    rows: int
    episodes: int
    repaired: tuple[str, ...]
    lost: tuple[str, ...]

    def __str__(self) -> str:
        """Return a few lines for a person."""
        done = f"written anew: {', '.join(self.repaired)}" if self.repaired else "nothing to repair"
        head = f"{self.run}: {self.episodes} episodes, {self.rows} rows; {done}"
        return "\n".join([head, *(f"  {note}" for note in self.lost)])


def recover(path: Path | str) -> Recovered:
    """Repair the run in a folder. A complete run is left alone; a torn file is kept under another name.

    The run must not be recording. The repaired file has every message that can be trusted, in order. It is read back
    and compared.

    Args:
        path: the run's folder or its ``log.mcap``.

    Raises:
        LogError: there is no log, its description was lost, or nothing can be written there.
    """
    reader = LogReader(path)
    run = reader.path.parent
    before, lost = _summary(reader)
    repaired = [file for file in log_files(run).values() if _torn(file)]
    for file in repaired:
        try:
            _repair(file, lost)
        except OSError as error:
            raise LogError(f"{file} can't be repaired: {error}; copy the run to another disk and try there") from error
    if repaired and _summary(LogReader(run))[0] != before:
        raise LogError(f"{run}: the repaired log differs from the torn one, which is still there, ending in .torn")
    return Recovered(run, before.rows, before.episodes, tuple(file.name for file in repaired), lost)


class _Summary(NamedTuple):
    """Numbers of rows and episodes, and a checksum of all rows."""

    rows: int
    episodes: int
    checksum: str


def _summary(reader: LogReader) -> tuple[_Summary, tuple[str, ...]]:
    """Read a log once; return its summary, and what is lost."""
    scan, count, checksum = Scan(), 0, hashlib.sha256()
    for rows in scan.run(reader.files, reader.layout.spec.row_dtype):
        count += len(rows)
        checksum.update(rows.tobytes())
    return _Summary(count, len(scan.episodes), checksum.hexdigest()), scan.notes()


def _torn(file: Path) -> bool:
    try:
        reader = open_mcap(file)
    except LogError:
        return False  # nothing in the file can be saved
    for _ in reader.chunks():
        pass  # damage is found on the way
    return not reader.complete or bool(reader.notes)


def _repair(file: Path, lost: Sequence[str]) -> None:
    repaired = file.with_suffix(".repaired")
    with repaired.open("wb") as stream:
        _copy(file, stream, lost)
        stream.flush()
        os.fsync(stream.fileno())
    torn = file.with_name(file.name + ".torn")
    torn.unlink(missing_ok=True)
    os.link(file, torn)
    os.replace(repaired, file)


def _copy(file: Path, stream: IO[bytes], lost: Sequence[str]) -> None:
    """Copy every message that can be trusted, with the definitions that it needs, and the descriptions."""
    writer = Writer(stream, index_types=IndexType.ALL, compression=CompressionType.LZ4, enable_data_crcs=False)
    writer.start(profile="ros2", library="rlenv-robot recover")
    schemas: dict[int, int] = {}
    channels: dict[int, int] = {}
    reader = open_mcap(file)
    for name, texts in reader.metadata(DESCRIPTION):
        writer.add_metadata(name, texts)
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
    writer.finish()
