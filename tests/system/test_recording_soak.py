"""The soak program at work: short here, an hour with ``--soak``."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from recorder.log.rotation import Limits
from recorder.log.writer import LogWriter


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    pytest.importorskip("cv2", reason="the cameras' pixels are encoded with OpenCV")
    path = Path(__file__).parents[2] / "benchmarks" / "soak.py"
    spec = importlib.util.spec_from_file_location("soak", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_seconds(soak: ModuleType, tmp_path: Path) -> None:
    soak.record(tmp_path, 3, limits=Limits(file_bytes=200_000))
    assert len(list(tmp_path.glob("*.mcap"))) > 1
    assert soak.verify(tmp_path) == []


def test_a_lost_sample_would_be_seen(soak: ModuleType, tmp_path: Path) -> None:
    soak.record(tmp_path, 1)
    report = json.loads((tmp_path / "soak.json").read_text())
    report["samples"] += 1
    report["memory"] = [{"mib": 100 + 10 * n} for n in range(8)]
    (tmp_path / "soak.json").write_text(json.dumps(report))
    wrong = " ".join(soak.verify(tmp_path))
    assert "imu: " in wrong
    assert "memory grew" in wrong


def test_wrong_values_would_be_seen(soak: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = LogWriter.frame

    def turned(self: LogWriter, row: np.ndarray) -> None:
        row["sensor_position"][3] += 1e-3
        original(self, row)

    monkeypatch.setattr(LogWriter, "frame", turned)
    soak.record(tmp_path, 1)
    assert soak.verify(tmp_path) == ["frames: wrong sensor_position"]


@pytest.mark.soak
@pytest.mark.timeout(4000)
def test_an_hour(soak: ModuleType, tmp_path: Path) -> None:
    report = soak.record(tmp_path, 3600)
    assert report["dropped"] == 0
    assert soak.verify(tmp_path) == []
