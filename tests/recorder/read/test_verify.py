"""The chain of a run: every changed byte is found, and a run that nobody touched is never accused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import LogError
from recorder.log.chain import Chain, link_line, linked
from recorder.log.labels import add_labels
from recorder.log.mcap_writer import LogFile
from recorder.log.rotation import Limits
from recorder.log.signing import canonical
from recorder.log.writer import LogWriter
from recorder.names import CHAIN, segment_name
from recorder.read.recover import recover
from recorder.read.verify import add_signature, timestamp_request, verify_run
from tests.recorder.conftest import proven_row, record, small_layout

ROOT = Path(__file__).parents[3]


def test_each_changed_byte_is_found(tmp_path: Path) -> None:
    """In the chain and its signature every byte, one bit of it; in the log one bit of each thirteenth byte."""
    record(tmp_path, [3, 4], key=tmp_path.parent / f"{tmp_path.name}.key")
    assert verify_run(tmp_path).unchanged
    for name, stride in ((CHAIN, 1), ("log.mcap", 13)):
        path = tmp_path / name
        content = path.read_bytes()
        for place in range(0, len(content), stride):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            path.write_bytes(changed)
            assert not verify_run(tmp_path).unchanged, (name, place)
        for wrong in (content[:-1], content + b"\n", content[1:], b"", content + content):
            path.write_bytes(wrong)
            assert not verify_run(tmp_path).unchanged, name
        path.write_bytes(content)
    assert verify_run(tmp_path).unchanged


@given(st.integers(0, 2**60), st.integers(1, 2**40), st.integers(0, 99999), st.binary(min_size=32, max_size=32))
def test_the_line_of_a_link_is_that_of_plain_data(place: int, length: int, file: int, raw: bytes) -> None:
    name, digest, before = segment_name(file), raw.hex(), raw[::-1].hex()
    line = linked({"at": place, "bytes": length, "file": name, "sha256": digest}, before)
    assert link_line(place, length, name, digest, before) == (canonical(line) + b"\n", line["chain"])


def test_a_file_that_takes_a_part_of_each_write_is_covered_whole(tmp_path: Path) -> None:
    chain = Chain(tmp_path, "run")
    file = LogFile(tmp_path, chain=chain)
    whole = file._file

    class Slow:
        """Takes at most 7 bytes at once."""

        def write(self, data: bytes | memoryview) -> int:
            return whole.write(data[:7])

    file._file = Slow()  # type: ignore[assignment]
    assert file.write(bytes(range(100))) == 100
    chain.end()
    whole.close()
    assert (tmp_path / "log.mcap").read_bytes() == bytes(range(100))
    assert file.size == 100
    assert verify_run(tmp_path).unchanged


def test_a_finding_names_the_bytes(tmp_path: Path) -> None:
    record(tmp_path, [30])
    path = tmp_path / "log.mcap"
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    (finding,) = verify_run(tmp_path).findings
    first, last = (int(word) for word in finding.split() if word.isdigit())
    assert first <= len(content) - 100 <= last


def test_files_and_lines_that_are_missing_or_strange(tmp_path: Path) -> None:
    layout = small_layout()
    with LogWriter(tmp_path, layout, limits=Limits(file_s=0.0)) as log:
        for episode in range(3):
            log.begin({})
            log.frame(proven_row(layout, episode, 0))
            log.sync()
            log.end({})
    assert verify_run(tmp_path).unchanged
    second = tmp_path / "log-0001.mcap"
    content = second.read_bytes()
    second.unlink()
    assert "log-0001.mcap is missing" in verify_run(tmp_path).findings
    second.write_bytes(content)
    stranger = tmp_path / "log-0099.mcap"
    shutil.copy(second, stranger)
    verification = verify_run(tmp_path)
    assert (verification.unchanged, verification.uncovered) == (False, len(content))
    stranger.unlink()
    lines = (tmp_path / CHAIN).read_bytes().splitlines(keepends=True)
    for wrong in (lines[:1] + lines[2:], lines[:-1], [lines[0], lines[2], lines[1], *lines[3:]], lines[1:]):
        (tmp_path / CHAIN).write_bytes(b"".join(wrong))
        assert not verify_run(tmp_path).unchanged
    (tmp_path / CHAIN).unlink()
    with pytest.raises(LogError, match=CHAIN):
        verify_run(tmp_path)


def test_labels_are_added_later_and_change_nothing(tmp_path: Path) -> None:
    record(tmp_path, [3])
    add_labels(tmp_path, [0], {"verdict": "success"}, "somebody")
    assert verify_run(tmp_path).unchanged


def test_signatures_come_at_the_end_or_later(tmp_path: Path) -> None:
    run, keys = tmp_path / "run", [tmp_path / "one.key", tmp_path / "two.key"]
    record(run, [3], key=keys[0])
    (first,) = verify_run(run).keys
    second = add_signature(run, keys[1])
    assert verify_run(run).keys == (first, second)
    assert add_signature(run, keys[1]) == second
    assert verify_run(run).keys == (first, second)
    (run / "log.mcap").write_bytes((run / "log.mcap").read_bytes() + b"x")
    with pytest.raises(LogError, match="not signed"):
        add_signature(run, keys[1])


def test_a_chain_written_anew_without_the_key_has_no_signature(tmp_path: Path) -> None:
    """The attack that a chain without a key can't show, and a key does."""
    honest, forged = tmp_path / "honest", tmp_path / "forged"
    record(honest, [3], key=tmp_path / "key")
    record(forged, [2])
    with (forged / CHAIN).open("ab") as file:
        file.write((honest / CHAIN).read_bytes().splitlines(keepends=True)[-1])
    verification = verify_run(forged)
    assert (verification.unchanged, verification.keys) == (False, ())


def test_a_key_that_cannot_be_used_is_said_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(LogError, match="64 hexadecimal"):
        LogWriter(tmp_path / "run", small_layout(), key=tmp_path / "key").open()


@pytest.mark.process
def test_a_killed_run_is_covered_up_to_its_last_sync_and_whole_after_recovery(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys, time
        from recorder.log.writer import LogWriter
        from tests.recorder.conftest import proven_row, small_layout
        layout = small_layout()
        log = LogWriter(sys.argv[1], layout).open()
        log.begin({})
        for frame in range(50):
            log.frame(proven_row(layout, 0, frame))
        log.sync(timeout_s=30)
        for frame in range(50, 100):
            log.frame(proven_row(layout, 0, frame))
        print("written", flush=True)
        time.sleep(60)
    """)
    run = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", program, run], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    torn = verify_run(run)
    assert (torn.findings, torn.ended) == ((), False)
    assert torn.covered > 1000
    assert recover(run).rows == 100
    assert verify_run(run).unchanged
    for name in ("log.mcap", "log.mcap.torn"):
        content = (run / name).read_bytes()
        (run / name).write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
        assert verify_run(run).findings
        (run / name).write_bytes(content)


def test_openssl_reads_the_request_for_a_time_stamp(tmp_path: Path) -> None:
    record(tmp_path, [3])
    verification = verify_run(tmp_path)
    (tmp_path / "run.tsq").write_bytes(timestamp_request(verification))
    command = ["openssl", "ts", "-query", "-in", str(tmp_path / "run.tsq"), "-text"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    digest = "".join(
        word for line in answer.splitlines() if "    " in line[:12] and " - " in line
        for word in line.split(" - ", 1)[1].split("   ")[0].replace("-", " ").split()
    )  # fmt: skip
    assert "sha256" in answer
    assert "Certificate required: yes" in answer
    assert digest == verification.digest


def test_the_chain_is_what_its_description_says(tmp_path: Path) -> None:
    """Digests recomputed from the documented rule alone, with the file read once more."""
    import hashlib

    record(tmp_path, [20])
    before, total = "", 0
    log = (tmp_path / "log.mcap").read_bytes()
    for line in (tmp_path / CHAIN).read_text().splitlines():
        entry = json.loads(line)
        digest = entry.pop("chain")
        assert digest == hashlib.sha256(before.encode() + b"\n" + canonical(entry)).hexdigest()
        if "sha256" in entry:
            piece = log[entry["at"] : entry["at"] + entry["bytes"]]
            assert entry["sha256"] == hashlib.sha256(piece).hexdigest()
            total += len(piece)
        before = digest
    assert total == len(log)
