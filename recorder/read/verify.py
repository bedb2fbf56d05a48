"""Verify that the files of a run are the bytes that were recorded: compare them with the run's chain of digests.

A chain (`recorder.log.chain`) reveals changes by anybody without its key. It proves nothing against the owner of the
key, who could record and sign anything; a time stamp of a third party over the chain's digest (`timestamp_request`)
at least proves the time since which the chain has not changed.

Labels and preferences are written after the log. ``signatures.jsonl`` has a line for each signature over one of these
files: the file's name, its SHA-256, the digest of the run's chain, and the signature over these three. A line is valid
while the file is unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hal import LogError
from recorder.json_data import JsonDict, append_lines, read_lines
from recorder.log import signing
from recorder.log.chain import CHAIN_FORMAT, linked, signed_content
from recorder.names import ANNOTATIONS, CHAIN, SIGNATURES, TORN_SUFFIX, log_files

__all__ = ["Verification", "add_signature", "annotation_keys", "claims_signature", "timestamp_request", "verify_run"]

_BLOCK = 1 << 20
_LONGEST = 4096
"""Bytes of the longest line that a chain has: a link, with room to spare."""
_SIGNATURE = b'{"signature":'
_ANNOTATION_FORMAT = b"rlenv_robot annotation 1\n"
"""The beginning of an annotation's signed bytes, so that its signature fits nothing else."""


@dataclass(frozen=True)
class Verification:
    """The result of `verify_run` for one run.

    Attributes:
        run: the run's folder.
        identifier: identifier of the run from its chain's first line; a substituted run has another.
        digest: digest of the chain's last line that has one, 64 hexadecimal digits; it represents all covered bytes.
        covered: number of bytes of the files that the chain covers.
        uncovered: number of bytes of the files that it does not cover.
        ended: whether the chain has its end, which closing the log writes.
        keys: public keys that signed the digest, 64 hexadecimal digits each.
        findings: a sentence for each difference.
        recovered: names of the files that were repaired after a kill, before the end.
        annotations: file of labels or preferences in the run -> public keys that signed its present content.
    """

    run: Path
    identifier: str
    digest: str
    covered: int
    uncovered: int
    ended: bool
    keys: tuple[str, ...]
    findings: tuple[str, ...]
    recovered: tuple[str, ...] = ()
    annotations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def is_signed_by(self, key: str) -> bool:
        """Return whether the run is unchanged and signed by a key, including its labels and preferences."""
        signed = all(key in keys for keys in self.annotations.values())
        return self.unchanged and key in self.keys and signed

    @property
    def unchanged(self) -> bool:
        """Whether every byte of the log is unchanged since the recording."""
        return self.ended and not self.uncovered and not self.findings


def verify_run(run: Path, report: Callable[[int, int], None] = lambda done, total: None) -> Verification:
    """Compare the files of a run with its chain.

    Data made from the log (``table/``) is not compared here; `recorder.table.comparison` does that.

    Args:
        run: the run's folder.
        report: called with the number of bytes read so far, and their total.

    Raises:
        LogError: the run has no chain, or a file can't be read.
    """
    lines = _Lines(run)
    files, findings = log_files(run), list(lines.findings)
    names = {path.name for path in files.values()}
    total = sum(path.stat().st_size for path in files.values())
    done = covered = uncovered = 0
    for name in sorted(names | lines.links.keys() | lines.recovered.keys()):
        path = run / name
        if name in lines.recovered:
            findings += _whole(path, *lines.recovered[name])
            torn = run / (name + TORN_SUFFIX)
            if not torn.exists():
                findings.append(f"{torn.name} is missing: the file as it was before its recovery")
                continue
            path = torn
        if not path.exists():
            findings.append(f"{name} is missing")
            continue
        links, size = lines.links.get(name, []), path.stat().st_size
        before = done
        for finding, read in _links(path, links):
            findings += [finding] if finding else []
            done = before + read
            report(min(done, total), total)
        end = min(sum(length for length, _ in links), size)
        covered += end
        if path == run / name:
            uncovered += size - end
    keys = () if lines.findings else tuple(lines.keys)  # of a chain with a wrong line nobody knows what they signed
    return Verification(
        run, lines.identifier, lines.digest, covered, uncovered, lines.ended, keys, tuple(findings),
        tuple(sorted(lines.recovered)), annotation_keys(run, lines.digest),
    )  # fmt: skip


def add_signature(run: Path, key: Path) -> str:
    """Sign the end of a run's chain, and its present labels and preferences; return the public key.

    Args:
        run: the run's folder, whose log is unchanged since it was recorded.
        key: file of the private key, as for `recorder.log.signing.sign`.

    Raises:
        LogError: the run has no chain, was changed, or can't be written.
        ValueError: the key can't be used.
    """
    verification = verify_run(run)
    if not verification.unchanged:
        reason = "; ".join(verification.findings) or "its chain does not cover all of it"
        raise LogError(f"{run} is not signed, since it is not as it was recorded: {reason}")
    signature = signing.sign(signed_content(verification.digest), key)
    if signature["key"] not in verification.keys:
        with (run / CHAIN).open("ab") as file:
            file.write(signing.canonical({"signature": signature}) + b"\n")
    for name, keys in verification.annotations.items():
        if signature["key"] not in keys:
            line = _annotation(run / name, verification.digest)
            signed = signing.sign(_ANNOTATION_FORMAT + signing.canonical(line), key)
            append_lines(run / SIGNATURES, [{**line, "signature": signed}])
    return signature["key"]


def annotation_keys(run: Path, digest: str) -> dict[str, tuple[str, ...]]:
    """Return each file of labels or preferences in a run, and the public keys that signed its present content.

    Args:
        run: the run's folder.
        digest: digest of the end of its chain.

    Raises:
        LogError: a file can't be read.
    """
    files = [run / name for name in ANNOTATIONS if (run / name).exists()]
    lines = read_lines(run / SIGNATURES) if files else []
    keys_by_file = {}
    for file in files:
        expected = _annotation(file, digest)
        content = _ANNOTATION_FORMAT + signing.canonical(expected)
        keys: dict[str, None] = {}
        for line in lines:
            signature = line.get("signature")
            if isinstance(signature, dict) and line == {**expected, "signature": signature}:
                with suppress(ValueError):
                    keys[signing.verify(content, signature)] = None
        keys_by_file[file.name] = tuple(keys)
    return keys_by_file


def _annotation(file: Path, digest: str) -> JsonDict:
    """Return what a signature over a file of annotations covers."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise LogError(f"{file} can't be read: {error}") from error
    return {"chain": digest, "file": file.name, "sha256": hashlib.sha256(content).hexdigest()}


def claims_signature(run: Path) -> bool:
    """Return whether the last line of a run's chain is a signature, valid or not."""
    try:
        descriptor = os.open(f"{run}/{CHAIN}", os.O_RDONLY)  # joining paths would be half of the time
    except OSError:
        return False
    try:
        size = os.fstat(descriptor).st_size
        end = os.pread(descriptor, _LONGEST, max(size - _LONGEST, 0))
    finally:
        os.close(descriptor)
    return end[end.rfind(b"\n", 0, -1) + 1 :].startswith(_SIGNATURE)


def timestamp_request(verification: Verification) -> bytes:
    """Return a request for a time stamp over the chain's digest (RFC 3161 §2.4.1, DER), for any authority.

    It requests the certificate in the answer, and has no nonce: an answer is compared with the digest, not with the
    request.
    """
    version = bytes.fromhex("020101")
    sha256 = bytes.fromhex("300d06096086480165030402010500")  # AlgorithmIdentifier, RFC 5754 §2.2
    digest = bytes.fromhex(verification.digest)
    imprint = sha256 + bytes((0x04, len(digest))) + digest
    body = version + bytes((0x30, len(imprint))) + imprint + bytes.fromhex("0101ff")
    return bytes((0x30, len(body))) + body


# -- The chain -------------------------------------------------------------------------------------------------------


class _Lines:
    """The lines of a chain, each checked against the one before.

    Attributes:
        links: length in bytes and SHA-256 of each piece of a file, in order, by the file's name.
        recovered: length and SHA-256 of each file that a recovery rewrote, by name.
        identifier: as in `Verification`.
        digest: as in `Verification`.
        ended: as in `Verification`.
        keys: as in `Verification`.
        findings: as in `Verification`.
    """

    def __init__(self, run: Path) -> None:
        self.identifier = ""
        self.links: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self.recovered: dict[str, tuple[int, str]] = {}
        self.digest, self.ended = "", False
        self.keys: list[str] = []
        self.findings: list[str] = []
        self._count = self._bytes = 0
        path = run / CHAIN
        try:
            with path.open("rb") as file:
                for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 1):
                    reason = self._take(line)
                    if reason is not None:
                        self.findings.append(f"{CHAIN}: line {number} {reason}; what follows it was not checked")
                        return
        except FileNotFoundError:
            raise LogError(
                f"{run} has no {CHAIN}: it was recorded by an older version, or the file was removed"
            ) from None
        except OSError as error:
            raise LogError(f"{path} can't be read: {error}") from error
        if not self.digest:
            self.findings.append(f"{CHAIN} is empty")

    def _take(self, line: bytes) -> str | None:
        """Take a line; return what is wrong with it, or None."""
        if not line.endswith(b"\n"):
            return "has no end"
        try:
            content = json.loads(line)
            if not isinstance(content, dict) or signing.canonical(content) + b"\n" != line:
                return "was changed"
            if "signature" in content:
                return self._signature(content["signature"])
            if self.ended:  # so each key signed the digest of the last line
                return "follows the end, and nothing but signatures may"
            before, self.digest = self.digest, str(content.pop("chain"))
            if linked(content, before)["chain"] != self.digest:
                return "was changed, or the line before it"
            return self._content(content, first=not before)
        except (KeyError, TypeError, ValueError, RecursionError):
            return "was changed"

    def _signature(self, signature: dict[str, Any]) -> str | None:
        if not self.ended:
            return "signs a chain without an end"
        try:
            self.keys.append(signing.verify(signed_content(self.digest), signature))
        except ValueError as error:
            return f"holds a signature that is not valid: {error}"
        return None

    def _content(self, content: dict[str, Any], first: bool) -> str | None:
        if first or "format" in content:
            known = first and content["format"] == CHAIN_FORMAT
            self.identifier = str(content.get("run", ""))
            return None if known else f"names the format {content.get('format')!r}, known is {CHAIN_FORMAT!r}"
        if "recovered" in content:
            self.recovered[str(content["recovered"])] = (int(content["bytes"]), str(content["sha256"]))
        elif "end" in content:
            self.ended = True
            if content["end"] != {"bytes": self._bytes, "links": self._count}:
                return f"counts {content['end']}, there are {self._count} links over {self._bytes} bytes"
        else:
            links, length = self.links[str(content["file"])], int(content["bytes"])
            if content["at"] != sum(length for length, _ in links):
                return f"is a link at byte {content['at']}, the link before it ends elsewhere"
            links.append((length, str(content["sha256"])))
            self._count, self._bytes = self._count + 1, self._bytes + length
        return None


# -- The files -------------------------------------------------------------------------------------------------------


def _links(path: Path, links: list[tuple[int, str]]) -> Iterator[tuple[str | None, int]]:
    """Yield, for each piece of a file, the difference or None, and the bytes of the file that were read so far."""
    place = 0
    with path.open("rb") as file:
        for length, expected in links:
            digest, read = _digest(file.read, length)
            first, place = place, place + read
            if read < length:
                yield f"{path.name} ends at byte {place}, {first + length} were recorded", place
                return
            difference = f"{path.name}: bytes {first} to {place - 1} are not those that were recorded"
            yield (None if digest == expected else difference), place


def _whole(path: Path, length: int, expected: str) -> list[str]:
    if not path.exists():
        return [f"{path.name} is missing"]
    with path.open("rb") as file:
        digest, read = _digest(file.read, path.stat().st_size)
    return [] if (digest, read) == (expected, length) else [f"{path.name} is not the file that its recovery wrote"]


def _digest(read: Callable[[int], bytes], length: int) -> tuple[str, int]:
    """Return the SHA-256 of the next bytes of a file, and how many there were."""
    digest, left = hashlib.sha256(), length
    while left:
        block = read(min(left, _BLOCK))
        if not block:
            break
        digest.update(block)
        left -= len(block)
    return digest.hexdigest(), length - left
