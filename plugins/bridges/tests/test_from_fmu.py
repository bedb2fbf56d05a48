"""An FMU, compiled here from C, as an environment: its variables become fields, and its numbers are the physics'."""

from __future__ import annotations

import math
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fmpy", reason="FMPy is not installed: the extra fmu")

from hal import SourceError
from rlenv_bridges.from_fmu import from_fmu
from rlenv_kit import check_environment

pytestmark = pytest.mark.requirement("R6.5")

DESCRIPTION = """<?xml version="1.0" encoding="UTF-8"?>
<fmiModelDescription fmiVersion="2.0" modelName="Tank" guid="{8c4e810f-3df3-4a00-8276-176fa3c9f9e0}">
  <CoSimulation modelIdentifier="tank" canHandleVariableCommunicationStepSize="true"/>
  <UnitDefinitions><Unit name="m"/><Unit name="m3/s"/></UnitDefinitions>
  <ModelVariables>
    <ScalarVariable name="level" valueReference="0" description="height of the water" causality="output"
      variability="continuous" initial="exact"><Real unit="m" min="0" max="10" start="1"/></ScalarVariable>
    <ScalarVariable name="inFlow.rate" valueReference="1" description="into the tank" causality="input"
      variability="continuous"><Real unit="m3/s" min="0" max="0.5" start="0"/></ScalarVariable>
    <ScalarVariable name="outflow" valueReference="2" causality="output" variability="continuous"><Real unit="m3/s"/>
    </ScalarVariable>
  </ModelVariables>
  <ModelStructure><Outputs><Unknown index="1"/><Unknown index="3"/></Outputs></ModelStructure>
</fmiModelDescription>
"""


@pytest.fixture(scope="module")
def tank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler here")
    folder = tmp_path_factory.mktemp("fmu")
    source = Path(__file__).with_name("tank.c")
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", source, "-lm", "-o", folder / "tank.so"], check=True)
    return _packed(folder / "Tank.fmu", DESCRIPTION, folder / "tank.so")


def _packed(path: Path, description: str, library: Path | None = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("modelDescription.xml", description)
        if library is not None:
            archive.write(library, "binaries/linux64/tank.so")
    return path


def _made(path: Path) -> Any:
    return from_fmu(path, lambda values: -abs(values["level"] - 2.0), step_s=1.0, steps=40)


@pytest.mark.requirement("B.5.2-1", "B.5.2-2")
def test_variables_become_fields_and_numbers_are_the_physics(tank: Path) -> None:
    with _made(tank) as env:
        level, outflow = env.observation
        assert (level.name, level.unit, level.low, level.high, level.meaning) == (
            "level",
            "m",
            0,
            10,
            "height of the water",
        )
        assert (outflow.low, outflow.meaning) == (-math.inf, "outflow of the model")
        (inflow,) = env.action
        assert (inflow.name, inflow.unit, inflow.high) == ("inflow_rate", "m3/s", 0.5)
        table = env.reset({"start": {"level": 4.0}})
        assert table["observation"]["level"] == 4.0
        for _ in range(10):  # without inflow the root of the level falls by 0.1 / (2 * 2) a second
            request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": {"inflow_rate": 0.0}}
            table, reward = env.step(request)
        expected = (2.0 - 10 * 0.1 / 4) ** 2
        assert table["observation"]["level"] == pytest.approx(expected, rel=1e-3)
        assert reward["reward"] == pytest.approx(-abs(expected - 2.0), rel=1e-2)
        assert env.reset({})["observation"]["level"] == 1.0


@pytest.mark.parametrize("wrong", [{"wind": 1}, {"start": 3}, {"start": {"depth": 1.0}}, {"start": {"level": "high"}}])
def test_a_refused_option_leaves_the_running_model_alone(tank: Path, wrong: dict[str, Any]) -> None:
    with _made(tank) as env:
        env.reset({"start": {"level": 4.0}})
        with pytest.raises(ValueError, match=r"unknown|expected"):
            env.reset(wrong)
        table, _ = env.step({"env_id": env.env_id, "frame_no": 0, "action": {"inflow_rate": 0.0}})
        assert (table["frame_no"], round(float(table["observation"]["level"]), 1)) == (1, 3.9)


def test_the_model_passes_the_kit_and_leaves_nothing(tank: Path) -> None:
    check_environment(lambda: _made(tank)).raise_if_failed()


def test_what_is_no_model_of_that_kind_is_refused(tank: Path, tmp_path: Path) -> None:
    (tmp_path / "text.fmu").write_text("no archive")
    with pytest.raises(SourceError, match="can't be read as an FMU"):
        _made(tmp_path / "text.fmu")
    whole = DESCRIPTION.replace('<Real unit="m" min="0" max="10" start="1"/>', '<Integer start="1"/>')
    alone = DESCRIPTION.replace('causality="input"', 'causality="local"').replace('start="0"', "")
    for description, text in ((whole, "of type Integer"), (alone, "no input"), (DESCRIPTION, "can't be loaded")):
        with pytest.raises(SourceError, match=text):
            _made(_packed(tmp_path / "other.fmu", description))
    with _made(tank) as env, pytest.raises(ValueError, match="'height' is unknown, allowed are level"):
        env.reset({"start": {"height": np.float64(1)}})
