"""Makes a run that was torn whole again: its last file gets the index that closing would have given it.

Nothing is needed of this to read a log here, where a torn one opens as it is. It is for other software, some of which
refuses a file without an index.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mcap.opcode import Opcode
from mcap.records import Channel, Schema
from mcap.writer import CompressionType, IndexType, Writer

from hal import LogError
from recorder.json_data import to_json
from recorder.names import DESCRIPTION, log_files
from recorder.read.mcap_reader import open_mcap
from recorder.read.reader import LogReader

__all__ = ["Recovered", "recover"]

_RECOVERED = DESCRIPTION + "_recovered"
"""The name of the metadata record that says what was lost."""


@dataclass(frozen=True)
class Recovered:
    """What became of one run.

    Attributes:
        run: its folder.
        rows, episodes: how many can be read.
        repaired: names of the files that were written anew; the old ones are beside them, ending in ``.torn``.
        lost: what is lost, a sentence each.
    """

    run: Path
    rows: int
    episodes: int
    repaired: tuple[str, ...]
    lost: tuple[str, ...]

    def __str__(self) -> str:
        """A few lines for a person."""
        done = f"written anew: {', '.join(self.repaired)}" if self.repaired else "nothing to repair"
        head = f"{self.run}: {self.episodes} episodes, {self.rows} rows; {done}"
        return "\n".join([head, *(f"  {note}" for note in self.lost)])


def recover(path: Path | str) -> Recovered:
    """Repair the run in a folder. A run that is whole is left alone; a torn file is kept under another name.

    The run must not be recording. What is written anew has every message that can be trusted, in order, and is
    read back and compared.

    Args:
        path: the run's folder or its ``log.mcap``.

    Raises:
        LogError: there is no log, its description was lost, or nothing can be written there.
    """
    reader = LogReader(path)
    run = reader.path.parent
    rows, checksum = _summed(reader)
    episodes, lost = len(reader.episodes()), reader.notes
    repaired = [file for file in log_files(run).values() if _torn(file)]
    for file in repaired:
        try:
            _repair(file, lost)
        except OSError as error:
            raise LogError(f"{file} can't be repaired: {error}; copy the run to another disk and try there") from error
    if repaired:
        again = LogReader(run)
        if _summed(again) != (rows, checksum) or len(again.episodes()) != episodes:
            raise LogError(f"{run}: the repaired log differs from the torn one, which is still there, ending in .torn")
    return Recovered(run, rows, episodes, tuple(file.name for file in repaired), lost)


def _summed(reader: LogReader) -> tuple[int, str]:
    """How many rows there are, and a checksum of them all."""
    count, checksum = 0, hashlib.sha256()
    for rows in reader.frame_blocks():
        count += len(rows)
        checksum.update(rows.tobytes())
    return count, checksum.hexdigest()


def _torn(file: Path) -> bool:
    try:
        reader = open_mcap(file)
    except LogError:
        return False  # nothing in the file can be saved
    for _ in reader.chunks():
        pass  # damage is found on the way
    return not reader.complete or bool(reader.notes)


def _repair(file: Path, lost: Sequence[str]) -> None:
    fresh = file.with_suffix(".repaired")
    with fresh.open("wb") as stream:
        _copy(file, stream, lost)
        stream.flush()
        os.fsync(stream.fileno())
    kept = file.with_name(file.name + ".torn")
    kept.unlink(missing_ok=True)
    os.link(file, kept)
    os.replace(fresh, file)


def _copy(file: Path, stream: IO[bytes], lost: Sequence[str]) -> None:
    """Every message that can be trusted, with the definitions that it needs, and the descriptions."""
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
