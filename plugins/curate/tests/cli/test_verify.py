"""``data verify``: its exit codes, its words and its files."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from recorder.log.labels import add_labels
from recorder.table.load import build
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import load_profile
from rlenv_robot.registry import make
from tests.recorder.conftest import record
from tests.recorder.read.test_signed_runs import forge_rewards


def test_runs_are_verified_signed_and_asked_for_a_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, key = tmp_path / "runs", str(tmp_path / "lab.key")
    for name in ("one", "two"):
        record(runs / name, [3])
    assert main(["data", "verify", str(runs)]) == 0
    assert capsys.readouterr().out.count("not signed") == 2
    assert main(["data", "verify", str(runs / "one"), "--sign", key, "--json"]) == 0
    (public,) = json.loads(capsys.readouterr().out)["keys"]
    assert main(["data", "verify", str(runs / "one"), "--key", public.upper()]) == 0
    assert main(["data", "verify", str(runs), "--key", public]) == 1
    capsys.readouterr()
    log = runs / "two" / "log.mcap"
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    assert main(["data", "verify", str(runs), "--json"]) == 1
    one, two = map(json.loads, capsys.readouterr().out.splitlines())
    assert (one["unchanged"], two["unchanged"]) == (True, False)
    assert "log.mcap" in two["findings"][0]
    assert main(["data", "verify", str(runs / "two"), "--sign", key]) == 2


def test_a_key_is_asked_for_all_that_training_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A forged table is a finding, and labels that the owner of the key did not sign are named."""
    run, key = tmp_path / "run", str(tmp_path / "lab.key")
    record(run, [3])
    assert main(["data", "verify", str(run), "--sign", key, "--json"]) == 0
    public = json.loads(capsys.readouterr().out)["keys"][0]
    add_labels(run, [0], {"verdict": "success"}, "somebody")
    assert main(["data", "verify", str(run)]) == 0
    assert "labels.jsonl: not covered by any signature" in capsys.readouterr().out
    assert main(["data", "verify", str(run), "--key", public]) == 1
    assert f"not signed by {public}, who signed the log without labels.jsonl" in capsys.readouterr().out
    assert main(["data", "verify", str(run), "--sign", key, "--key", public]) == 0
    copy = tmp_path / "copy"
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns("chain.jsonl"))
    build(copy)
    forge_rewards(copy)
    shutil.copytree(copy / "table", run / "table")
    os.utime(run / "log.mcap", ns=((copy / "log.mcap").stat().st_atime_ns, (copy / "log.mcap").stat().st_mtime_ns))
    capsys.readouterr()
    assert main(["data", "verify", str(run), "--key", public]) == 1
    assert "table/ holds other rows" in capsys.readouterr().out


def test_a_request_for_a_time_stamp_is_of_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        record(tmp_path / "runs" / name, [3])
    request = tmp_path / "run.tsq"
    assert main(["data", "verify", str(tmp_path / "runs"), "--request", str(request)]) == 2
    assert main(["data", "verify", str(tmp_path / "runs" / "one"), "--request", str(request)]) == 0
    digest = capsys.readouterr().out.split("digest ")[1].split()[0]
    assert bytes.fromhex(digest) in request.read_bytes()


def test_a_profile_signs_what_an_environment_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(f'[record]\nkey = "{tmp_path / "lab.key"}"\n')
    with make("so101-reach", record=tmp_path / "runs", profile=load_profile(profile), steps=2) as env:
        env.reset()
    assert main(["data", "verify", str(tmp_path / "runs")]) == 0
    assert "signed with the key" in capsys.readouterr().out
