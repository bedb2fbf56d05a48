"""Recordings for Rerun, read by Rerun's own reader."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hal import SourceError
from plugins.formats.tests.test_images import film
from recorder.formats.registry import format_of, writable_format
from recorder.formats.runs import runs_of
from recorder.table.table import Table

pytest.importorskip("rerun", reason="pip install rlenv-robot[rerun]")


@pytest.mark.process
def test_each_run_is_a_recording_with_all_its_numbers(tmp_path: Path, make_table: Callable[..., Table]) -> None:
    from rerun.chunk import RrdReader

    table, path = make_table(), tmp_path / "set"
    writable_format("rerun")[1](table, path)
    runs, _ = runs_of(table)
    files = sorted(path.glob("*.rrd"))
    assert len(files) == len(runs) > 1
    verify = [sys.executable, "-m", "rerun", "rrd", "verify", *map(str, files)]
    verified = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert verified.returncode == 0, verified.stderr
    for file, run in zip(files, runs, strict=True):
        batches: dict[str, Any] = {}
        for chunk in RrdReader(file).stream():
            batches.setdefault(str(chunk.entity_path), []).append(chunk.to_record_batch())
        for group, spec in (("observation", table.layout.observation), ("action", table.layout.action)):
            for field in spec:
                expected = run.group(group, spec)[field.name]
                batch = next(b for b in batches[f"/{group}/{field.name}"] if "Scalars:scalars" in b.schema.names)
                values = np.array(batch.column("Scalars:scalars").to_pylist())
                np.testing.assert_allclose(values, np.asarray(expected, float).reshape(len(expected), -1))
                frames = batch.column("frame").to_pylist()
                assert frames == list(range(len(run.observed)))[-len(expected) :]
        (rewards,) = batches["/reward"]
        np.testing.assert_allclose(np.ravel(rewards.column("Scalars:scalars").to_pylist()), run.came["reward"])


def test_images_are_the_recorded_ones(tmp_path: Path, make_table: Callable[..., Table]) -> None:
    from rerun.chunk import RrdReader

    from recorder.formats.images import Film

    table = film(tmp_path / "filmed", make_table())
    writable_format("rerun")[1](table, tmp_path / "set")
    run = runs_of(table)[0][0]
    with Film(table) as films:
        expected = {camera: films.encoded(run, camera) for camera in films.cameras}
    assert expected
    for camera, images in expected.items():
        batches = [
            chunk.to_record_batch()
            for chunk in RrdReader(tmp_path / "set" / "episode_000000.rrd").stream()
            if str(chunk.entity_path) == f"/cameras/{camera}"
        ]
        written = [bytes(blob) for batch in batches for (blob,) in batch.column("EncodedImage:blob").to_pylist()]
        assert written == images


def test_a_folder_of_recordings_is_not_read(tmp_path: Path, make_table: Callable[..., Table]) -> None:
    writable_format("rerun")[1](make_table(), tmp_path / "set")
    assert not format_of("rerun").recognises(tmp_path / "set")
    with pytest.raises(SourceError, match="only written"):
        format_of("rerun").read(tmp_path / "set")
