"""Write a chain of digests over the bytes of a log, beside the log, so that any later change can be detected.

The file ``chain.jsonl`` in a run's folder has one JSON object a line, each in canonical form (`recorder.log.signing`):

- the head: the format, and an identifier of the run;
- a link for each piece of a file that reached the disk: its file, its place, and the SHA-256 of its bytes;
- an entry for each file that was repaired after a kill; the links before it cover the original, which is kept beside
it; - an end, once the log was closed: the numbers of links and bytes;
- a signature over the end's digest for each key that signed. Nothing but signatures follows an end.

Each line but a signature has the digest ``chain``: the SHA-256 of the line's other content and of the digest before
it. So no line can be changed, removed or moved without a change of all that follow. The reader is
`recorder.read.verify`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from hal import LogError
from hal.atomic_file import atomic_write
from recorder.log.signing import canonical, sign
from recorder.names import CHAIN

__all__ = ["CHAIN_FORMAT", "Chain", "add_recovered", "link_line", "linked", "signed_content"]

CHAIN_FORMAT = "rlenv_robot chain 1"


class Chain:
    """Write the chain of a log, in a file that is made with the log's first file. For one thread at a time.

    Args:
        folder: the run's folder, without a chain.
        run: an identifier that all files of the run share.
        key: file of the private key that signs the end (`recorder.log.signing.sign`); None for no signature.

    Raises:
        LogError: the key can't be used.
    """

    def __init__(self, folder: Path, run: str, key: Path | None = None) -> None:
        self.path, self._key = folder / CHAIN, key
        self._links = self._bytes = 0
        self._digest = ""
        self._file_name, self._place = "", 0
        self._pending, self._hash = 0, hashlib.sha256()
        self._file: IO[bytes] | None = None
        self._run = run
        if key is not None:
            try:
                sign(b"", key)  # a key that can't be used is said now, not at the end of the run
            except (ValueError, OSError) as error:
                raise LogError(f"the log can't be signed: {error}") from error

    def begin(self, file: Path) -> None:
        """Begin a file of the log; bytes added from now on are its content from the beginning.

        Raises:
            LogError: a chain already exists, or it can't be written.
        """
        try:
            if self._file is None:
                self._file = self.path.open("xb", buffering=0)  # each line reaches the system at once
                self._append({"format": CHAIN_FORMAT, "run": self._run})
            self.link()
        except OSError as error:
            raise LogError(f"{self.path} can't be written: {error}; use another folder") from error
        self._file_name, self._place = file.name, 0

    def add(self, data: bytes) -> None:
        """Add bytes that were appended to the file to the running digest."""
        self._hash.update(data)
        self._pending += len(data)

    def link(self) -> None:
        """Write a link over the bytes since the last one. Call it once they are on the disk.

        Raises:
            OSError: the link can't be written.
        """
        if not self._pending:
            return
        sha256 = self._hash.hexdigest()
        line, self._digest = link_line(self._place, self._pending, self._file_name, sha256, self._digest)
        self._put(line)
        self._links, self._bytes = self._links + 1, self._bytes + self._pending
        self._place += self._pending
        self._pending, self._hash = 0, hashlib.sha256()

    def end(self) -> None:
        """Write the end and, with a key, its signature; close the file. Safe to call more than once.

        Raises:
            OSError: the end can't be written.
            ValueError: the key can't be read.
        """
        if self._file is None or self._file.closed:
            return
        try:
            self.link()
            self._append({"end": {"bytes": self._bytes, "links": self._links}})
            if self._key is not None:
                self._write({"signature": sign(signed_content(self._digest), self._key)})
            os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file without an end."""
        if self._file is not None:
            self._file.close()

    def _append(self, content: dict[str, Any]) -> None:
        line = linked(content, self._digest)
        self._digest = line["chain"]
        self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        self._put(canonical(line) + b"\n")

    def _put(self, line: bytes) -> None:
        assert self._file is not None
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, "a line was cut short", str(self.path))


def link_line(place: int, length: int, file: str, sha256: str, before: str) -> tuple[bytes, str]:
    """Return the line of a link and its digest, as `linked` and `canonical` would, in a fifth of their time.

    Args:
        place: offset of the bytes in the file.
        length: number of bytes.
        file: name of the file, of characters that JSON does not escape.
        sha256: SHA-256 of the bytes, hexadecimal digits.
        before: digest of the line before.
    """
    head, tail = f'{{"at":{place},"bytes":{length},', f'"file":"{file}","sha256":"{sha256}"}}'
    digest = hashlib.sha256(f"{before}\n{head}{tail}".encode()).hexdigest()
    return f'{head}"chain":"{digest}",{tail}\n'.encode(), digest


def linked(content: dict[str, Any], before: str) -> dict[str, Any]:
    """Return a line of the chain: its content, and the digest over it and over the digest before it."""
    return {**content, "chain": hashlib.sha256(before.encode() + b"\n" + canonical(content)).hexdigest()}


def signed_content(digest: str) -> bytes:
    """Return the bytes that a signature covers: the chain's format and the digest of its end."""
    return f"{CHAIN_FORMAT}\n{digest}".encode()


def add_recovered(run: Path, files: Sequence[Path]) -> bool:
    """Add the files that a recovery has repaired, and an end, to a run's chain.

    A last line that the kill truncated is removed. A run without a chain is left alone, and so is a chain with an end:
    its log was closed, so the repaired damage came later.

    Returns:
        Whether the chain covers the repaired files, or does not exist.

    Raises:
        LogError: the chain can't be read or written.
    """
    path = run / CHAIN
    try:
        content = path.read_bytes()
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        known = [json.loads(line) for line in lines]
        if any("end" in line for line in known):
            return False
        last, links = known[-1], [line for line in known if "at" in line]
        entries: list[dict[str, Any]] = [
            {"bytes": file.stat().st_size, "recovered": file.name, "sha256": _sha256(file)} for file in files
        ]
        entries.append({"end": {"bytes": sum(link["bytes"] for link in links), "links": len(links)}})
        for entry in entries:
            last = linked(entry, last["chain"])
            lines.append(canonical(last) + b"\n")
        with atomic_write(path) as part:
            part.write_bytes(b"".join(lines))
        return True
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise LogError(f"{path} can't take the recovered files: {error!r}; the run itself is repaired") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
