"""Keep the table of a signed run, made from its verified log, in a folder that only this user can write.

Anybody who can write to a run's folder can change the table beside its log, and no signature covers that table. So
the table of a run with a signature at the end of its chain is never read from there. It lies in this user's cache,
under the SHA-256 of the whole chain, and ``proof.json`` beside it has size, times and inode of the log's files at the
time of verification. While these are the same, the log is not read again: only the administrator can set the time of
an inode's change.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hal import LogError
from hal.atomic_file import atomic_write
from recorder.names import CHAIN, cache_folder
from recorder.read.verify import annotation_keys, verify_run

__all__ = ["BYTES", "Proof", "known_proof", "own_folder", "prove", "save_proof", "stamps_of"]

BYTES = 10 << 30
"""Largest size of all tables in the cache, bytes; beyond it, the least recently used are removed."""
_PROOF = "proof.json"
_UNUSED_NS = 24 * 3600 * 10**9
"""Age of a proof at which a use is noted by its time."""

Stamps = dict[str, list[int]]


@dataclass(frozen=True)
class Proof:
    """The facts that a verification of a signed run has established.

    Attributes:
        place: the folder of its table.
        stamps: stamps of the log's files when they were verified.
        digest: digest of the end of its chain.
        keys: public keys that signed it.
    """

    place: Path
    stamps: Stamps
    digest: str
    keys: tuple[str, ...]

    def notes(self, run: Path) -> tuple[str, ...]:
        """Return a sentence for each file of labels or preferences that none of the keys covers."""
        signed = annotation_keys(run, self.digest)
        uncovered = [name for name, keys in signed.items() if not set(keys) & set(self.keys)]
        return tuple(f"{name}: no owner of a key that signed the run signed this file as it is" for name in uncovered)


def own_folder(cache: Path | None) -> Path | None:
    """Return a folder that only this user can write to, made if missing; None if that is impossible.

    Args:
        cache: a chosen folder for tables; None for this user's, by the XDG Base Directory Specification.
    """
    try:
        folder = (cache_folder() if cache is None else cache) / "signed"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat(follow_symlinks=False)
    except (OSError, RuntimeError):  # no home
        return None
    owned = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return folder if owned else None


def stamps_of(run: Path, files: Mapping[int, Path]) -> Stamps:
    """Return size, times and inode of a run's log files and chain, which differ after a write to one of them."""
    stamps = {}
    for path in (*files.values(), run / CHAIN):
        status = path.stat()
        stamps[path.name] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev]
    return stamps


def known_proof(run: Path, files: Mapping[int, Path], cache: Path | None) -> Proof | None:
    """Return an earlier proof of a run; None if there is none, or if a file was written to since.

    Raises:
        LogError: the chain can't be read.
    """
    place = _place(run, cache)
    if place is None:
        return None
    path = place / _PROOF
    try:
        status, known = path.stat(), json.loads(path.read_text(encoding="utf-8"))
        proof = Proof(place, dict(known["stamps"]), str(known["digest"]), tuple(known["keys"]))
        if proof.stamps != stamps_of(run, files):
            return None
        if os.stat(place).st_mtime_ns - status.st_mtime_ns > _UNUSED_NS:
            path.touch()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return proof


def prove(run: Path, files: Mapping[int, Path], cache: Path | None) -> Proof | str:
    """Verify the log of a run that claims a signature; return the proof, or a sentence on why it fails.

    Raises:
        LogError: the chain can't be read.
    """
    place = _place(run, cache)
    if place is None:
        return ""
    stamps, verification = stamps_of(run, files), verify_run(run)
    if not verification.unchanged or not verification.keys:
        reason = "; ".join(verification.findings) or "its chain does not cover all of it"
        return f"the run claims a signature, and is not as it was signed: {reason}; see `rlenv-robot data verify`"
    return Proof(place, stamps, verification.digest, verification.keys)


def save_proof(proof: Proof, run: Path, files: Mapping[int, Path]) -> bool:
    """Save a proof after its table; return whether the log has stayed the same until now."""
    if stamps_of(run, files) != proof.stamps:
        shutil.rmtree(proof.place, ignore_errors=True)
        return False
    plain = {"stamps": proof.stamps, "digest": proof.digest, "keys": list(proof.keys)}
    with contextlib.suppress(OSError), atomic_write(proof.place / _PROOF) as part:  # without it: verified again
        part.write_text(json.dumps(plain), encoding="utf-8")
    _evict(proof.place)
    return True


def _place(run: Path, cache: Path | None) -> Path | None:
    root = own_folder(cache)
    try:
        digest = hashlib.sha256(os.fsencode(run.resolve()) + b"\0" + (run / CHAIN).read_bytes()).hexdigest()
    except OSError as error:
        raise LogError(f"{run / CHAIN} can't be read: {error}") from error
    return None if root is None else root / digest


def _evict(spared: Path) -> None:
    """Remove the tables that were not used for longest, while all together have more than `BYTES`."""
    entries = []
    for place in spared.parent.iterdir():
        with contextlib.suppress(OSError):
            size = sum(file.stat().st_size for file in place.iterdir())
            entries.append(((place / _PROOF).stat().st_mtime_ns, size, place))
    total = sum(size for _, size, _ in entries)
    for _, size, place in sorted(entries):
        if total <= BYTES:
            return
        if place != spared:
            shutil.rmtree(place, ignore_errors=True)
            total -= size
