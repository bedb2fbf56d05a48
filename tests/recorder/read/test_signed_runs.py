"""Whoever can write to a run's folder, without the key, can't have other content verified as signed by its owner."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hal import LogError, RobotError
from recorder.log.chain import linked
from recorder.log.labels import add_labels
from recorder.log.preferences import EpisodeId, add_judgement
from recorder.log.rotation import Limits
from recorder.log.signing import canonical
from recorder.log.writer import LogWriter
from recorder.names import ANNOTATIONS, CHAIN, LABELS, log_files
from recorder.read.reader import LogReader
from recorder.read.recover import recover
from recorder.read.verify import add_signature, verify_run
from recorder.table.comparison import table_findings
from recorder.table.load import build
from recorder.table.store import load_or_build
from tests.recorder.conftest import proven_row, record, small_layout


class Signed(NamedTuple):
    """The runs of one owner, and what the owner signed by the run's identifier: log, annotations and rows."""

    key: str
    folders: Sequence[Path]
    content: dict[str, tuple[dict[str, bytes], dict[str, bytes], bytes]]


def content_of(run: Path, cache: Path) -> tuple[dict[str, bytes], dict[str, bytes], bytes]:
    """All that training reads of a run."""
    logs = {file.name: file.read_bytes() for file in log_files(run).values()}
    notes = {name: (run / name).read_bytes() for name in ANNOTATIONS if (run / name).exists()}
    return logs, notes, build(run, cache).rows.tobytes()


def torn_chain(run: Path) -> None:
    """Make of a closed run what a kill leaves: no end, and a part of the last link's bytes."""
    lines = (run / CHAIN).read_bytes().splitlines(keepends=True)
    (run / CHAIN).write_bytes(b"".join(lines[:-1]))
    log = run / "log.mcap"
    log.write_bytes(log.read_bytes()[:-300])
    last = json.loads(lines[-2])
    assert last["at"] + last["bytes"] > log.stat().st_size
    (run / CHAIN).write_bytes(b"".join(lines[:-2]))


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    root = tmp_path_factory.mktemp("signed")
    key, runs = root / "owner.key", [root / name for name in ("clean", "other", "segments", "recovered", "labelled")]
    record(runs[0], [3, 4], key=key)
    record(runs[1], [5])
    layout = small_layout()
    with LogWriter(runs[2], layout, limits=Limits(file_s=0.0)) as log:
        for episode in range(3):
            log.begin({})
            log.frame(proven_row(layout, episode, 0))
            log.sync()
            log.end({})
    record(runs[3], [6, 6, 6])
    torn_chain(runs[3])
    assert recover(runs[3]).repaired
    record(runs[4], [2, 2])
    add_labels(runs[4], [0], {"verdict": "failure"}, "ann")
    add_judgement(EpisodeId(str(runs[4]), 0), EpisodeId(str(runs[4]), 1), "left", "ann")
    public = {add_signature(run, key) for run in runs}
    content = {}
    for run in runs:
        build(run, root / "cache")
        verification = verify_run(run)
        assert verification.is_signed_by(*public), verification
        assert verification.recovered == (("log.mcap",) if run.name == "recovered" else ())
        content[verification.identifier] = content_of(run, root / "cache")
    record(root / "unsigned", [4], key=None)
    assert len(content) == 5
    return Signed(public.pop(), [*runs, root / "unsigned"], content)


# -- An attacker without the key -------------------------------------------------------------------------------------


def _forge_chain(run: Path, source: Path) -> None:
    """Add a recovery of the log as it is now and an end to a chain, correctly linked: no key is needed for that."""
    lines = (run / CHAIN).read_bytes().splitlines(keepends=True)
    known = [json.loads(line) for line in lines]
    before = next(line["chain"] for line in reversed(known) if "chain" in line)
    links = [line for line in known if "at" in line]
    log = (run / "log.mcap").read_bytes()
    entries: list[dict[str, object]] = [
        {"bytes": len(log), "recovered": "log.mcap", "sha256": hashlib.sha256(log).hexdigest()},
        {"end": {"bytes": sum(line["bytes"] for line in links), "links": len(links)}},
    ]
    for entry in entries:
        line = linked(dict(entry), before)
        before = line["chain"]
        lines.append(canonical(line) + b"\n")
    (run / CHAIN).write_bytes(b"".join(lines))


def _swap_log(run: Path, source: Path) -> None:
    """Keep the log as a torn one, and put another one there."""
    os.replace(run / "log.mcap", run / "log.mcap.torn")
    shutil.copy(source / "log.mcap", run / "log.mcap")


def _recovered_log(run: Path, source: Path) -> None:
    """The attack as it was found: another log as the recovered one."""
    _swap_log(run, source)
    _forge_chain(run, source)


def _take(name: str) -> Callable[[Path, Path], None]:
    def take(run: Path, source: Path) -> None:
        shutil.copy(source / name, run / name)

    return take


def _add_segment(run: Path, source: Path) -> None:
    shutil.copy(source / "log.mcap", run / f"log-{len(log_files(run)):04d}.mcap")


def _second_name(run: Path, source: Path) -> None:
    shutil.copy(source / "log.mcap", run / "log-00001.mcap")


def _chain_of(run: Path, source: Path) -> None:
    with (run / CHAIN).open("ab") as file:
        file.write((source / CHAIN).read_bytes())


def _last_line(run: Path, source: Path) -> None:
    with (run / CHAIN).open("ab") as file:
        file.write((source / CHAIN).read_bytes().splitlines(keepends=True)[-1])


def _cut_chain(run: Path, source: Path) -> None:
    lines = (run / CHAIN).read_bytes().splitlines(keepends=True)
    (run / CHAIN).write_bytes(b"".join(lines[:-1]))


def _cut_log(run: Path, source: Path) -> None:
    log = run / "log.mcap"
    log.write_bytes(log.read_bytes()[:-40])


def _longer_log(run: Path, source: Path) -> None:
    with (run / "log.mcap").open("ab") as file:
        file.write((source / "log.mcap").read_bytes())


def _forge_label(run: Path, source: Path) -> None:
    add_labels(run, [0], {"verdict": "success"}, "somebody")


def _forge_rows(run: Path, source: Path) -> None:
    """Set all rewards in a table beside the log, and the checksums that it carries."""
    reader = LogReader(run)
    load_or_build(reader.files, reader.layout, run / "table")
    forge_rewards(run)


def _all_of(run: Path, source: Path) -> None:
    """Put another whole run there."""
    shutil.rmtree(run)
    shutil.copytree(source, run)


def _remove(name: str) -> Callable[[Path, Path], None]:
    return lambda run, source: (run / name).unlink()


ATTACKS = [
    _forge_chain, _swap_log, _recovered_log, _add_segment, _second_name, _chain_of, _last_line, _cut_chain, _cut_log,
    _longer_log, _forge_label, _forge_rows, _all_of, *map(_take, ("log.mcap", CHAIN, LABELS, "signatures.jsonl")),
    *map(_remove, (CHAIN, LABELS, "signatures.jsonl", "log-0001.mcap", "log.mcap.torn")),
]  # fmt: skip


def forge_rewards(run: Path, reward: float = 100.0) -> None:
    """Write other rewards into the table beside a log, with its checksums and times made right."""
    rows_file, index_file = run / "table" / "rows.bin", run / "table" / "episodes.json"
    head, _, body = index_file.read_text().partition("\n")
    index, kind = json.loads(body), small_layout().spec.row_dtype
    rows = np.fromfile(rows_file, kind)
    rows["reward"] = reward
    count = max(1, (1 << 20) // kind.itemsize)
    rows_file.write_bytes(rows.tobytes())
    index["sums"] = [zlib.crc32(rows[at : at + count].tobytes()) for at in range(0, len(rows), count)]
    index["stamp"] = [rows_file.stat().st_size, rows_file.stat().st_mtime_ns]
    body = json.dumps(index)
    index_file.write_text(f"{head.split()[0]} {zlib.crc32(body.encode())}\n{body}\n")


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(target=st.integers(0, 5), moves=st.lists(st.tuples(st.sampled_from(ATTACKS), st.integers(0, 5)), max_size=4))
def test_nothing_but_what_the_owner_signed_verifies_as_signed(
    signed: Signed, tmp_path_factory: pytest.TempPathFactory, target: int, moves: list[tuple[object, int]]
) -> None:
    root = tmp_path_factory.mktemp("attack")
    run = root / "run"
    shutil.copytree(signed.folders[target], run)
    for move, source in moves:
        try:
            move(run, signed.folders[source])  # type: ignore[operator]
        except (OSError, RobotError, ValueError, KeyError, StopIteration):
            continue  # such as a file that is not there
    try:
        verification = verify_run(run)
        accepted = verification.is_signed_by(signed.key) and not table_findings(run)
    except LogError:
        accepted = False
    if accepted:
        logs, notes, rows = content_of(run, root / "cache")
        signed_logs, signed_notes, signed_rows = signed.content[verification.identifier]
        assert (logs, rows) == (signed_logs, signed_rows)
        assert notes in (signed_notes, {}, *({name: signed_notes[name]} for name in signed_notes))
    elif not moves:
        assert target == 5, "an honest run verifies"
    shutil.rmtree(root)


def test_rows_that_were_forged_beside_a_signed_log_are_found_and_not_read(signed: Signed, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(signed.folders[0], run)
    _forge_rows(run, run)
    assert np.all(np.fromfile(run / "table" / "rows.bin", small_layout().spec.row_dtype)["reward"] == 100)
    assert table_findings(run)
    assert build(run, tmp_path / "cache").rows.tobytes() == signed.content[verify_run(run).identifier][2]


@pytest.mark.parametrize("attack", [_recovered_log, _add_segment, _second_name, _chain_of, _forge_chain])
def test_no_line_and_no_file_is_added_to_a_signed_run(
    signed: Signed, tmp_path: Path, attack: Callable[[Path, Path], None]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(signed.folders[0], run)
    attack(run, signed.folders[1])
    verification = verify_run(run)
    assert not verification.unchanged or attack is _second_name, "a second file of a number is none of the log"
    assert not verification.is_signed_by(signed.key) or attack is _second_name
    if attack in (_recovered_log, _chain_of, _forge_chain):
        assert verification.keys == ()
        assert "follows the end" in verification.findings[0]


def test_the_output_says_which_run_lies_there(signed: Signed, tmp_path: Path) -> None:
    """A whole signed run in another one's place is what the owner signed, and its identifier shows which run it is."""
    shutil.copytree(signed.folders[1], tmp_path / signed.folders[0].name)
    verification = verify_run(tmp_path / signed.folders[0].name)
    assert verification.is_signed_by(signed.key)
    clean, other = (verify_run(folder).identifier for folder in signed.folders[:2])
    assert verification.identifier == other != clean


def test_labels_count_as_signed_while_they_are_as_they_were(signed: Signed, tmp_path: Path) -> None:
    run, key = tmp_path / "run", tmp_path / "key"
    record(run, [3], key=key)
    (public,) = verify_run(run).keys
    assert verify_run(run).is_signed_by(public)
    add_labels(run, [0], {"verdict": "success"}, "ann")
    assert verify_run(run).annotations == {LABELS: ()}
    assert verify_run(run).unchanged
    assert not verify_run(run).is_signed_by(public)
    add_signature(run, key)
    assert verify_run(run).annotations == {LABELS: (public,)}
    assert verify_run(run).is_signed_by(public)
    other = tmp_path / "other"
    record(other, [3], key=key)
    for name in (LABELS, "signatures.jsonl"):  # the signature of one run's labels does not fit another run
        shutil.copy(run / name, other / name)
    assert verify_run(other).annotations == {LABELS: ()}
    add_labels(run, [0], {"verdict": "failure"}, "mallory")
    assert not verify_run(run).is_signed_by(public)


def test_a_log_that_was_closed_is_not_recovered_into_its_chain(tmp_path: Path) -> None:
    """Its damage came after the end, so the chain goes on to show it."""
    record(tmp_path, [3, 30], key=tmp_path.parent / f"{tmp_path.name}.key")
    chain, log = (tmp_path / CHAIN).read_bytes(), tmp_path / "log.mcap"
    log.write_bytes(log.read_bytes()[:-300])
    found = recover(tmp_path)
    assert found.repaired == ("log.mcap",)
    assert "data verify" in found.lost[-1]
    assert (tmp_path / CHAIN).read_bytes() == chain
    assert not verify_run(tmp_path).unchanged
