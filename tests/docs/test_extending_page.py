"""The example of docs/extending.md works in a folder of its own: checked, run, recorded, exported and served."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import rlenv_robot as rr
from hal import SourceError
from recorder.formats.registry import format_of, unregister_format
from recorder.table.load import load_runs
from rlenv_robot.cli.main import main
from rlenv_robot.config.profile import load_profile
from rlenv_robot.data.folder import _own_format
from rlenv_robot.registry import environment_names, unregister_task
from rlenv_robot.robot_models import robot_names, unregister_robot

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    module, *rest = blocks("python")
    (tmp_path / "my_slide.py").write_text(module)
    (tmp_path / "page.py").write_text("\n".join(rest))
    (tmp_path / "my_slide.toml").write_text(blocks("toml")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for module in ("my_slide", "my_format"):
        sys.modules.pop(module, None)
    _own_format.cache_clear()
    unregister_format("slides")
    unregister_task("my-slide-centre")
    unregister_robot("my-slide")


@pytest.mark.requirement("R6.6")
def test_a_fresh_reader_gets_through_the_page(folder: Path) -> None:
    check, run, _ = (line.split("#")[0].split()[1:] for line in blocks("sh")[0].splitlines())
    assert main(check) == 0
    assert main(run) == 0
    runpy.run_path("page.py")
    assert "my-slide-centre" in environment_names()
    assert "my-slide" in robot_names()
    assert main(["data", "export", "runs", "out.slides", "--to", "slides"]) == 0
    recorded, read = load_runs("runs"), format_of("slides").read(folder / "out.slides")
    assert (read.stops - read.starts).tolist() == [101, 101, 101]
    for name in ("observation_slide_position", "observation_target_position", "action_force", "reward"):
        np.testing.assert_allclose(read.rows[name], recorded.rows[name], rtol=1e-6, err_msg=name)
    assert recorded.layout.sensors.names


@pytest.fixture
def slides(folder: Path) -> str:
    """Two sets of the page's format, `out.slides` and `more.slides`, and `--format` with its place."""
    block = next(one for one in blocks("python") if "load_slides" in one)
    (folder / "my_format.py").write_text(block.replace("rr.register_format(SLIDES)\n", ""))
    run = ["run", "my_slide:Centre", "--policy", "random", "--episodes", "4", "--record", "runs"]
    assert main(run) == 0
    export, _ = (line.split()[1:] for line in blocks("sh")[1].splitlines())
    assert main(export) == 0
    assert main([*export[:3], "more.slides", *export[4:]]) == 0
    unregister_format("slides")
    return "--format my_format:SLIDES"


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize(
    "words",
    [
        "data ls", "data show out.slides", "data check out.slides", "data plot out.slides --out plot.png",
        "data replay out.slides --plot replay.png", "data export out.slides parquet --to parquet",
        "data cut out.slides new.slides --episodes 0", "data merge out.slides more.slides --to new.slides",
        "data select . --out all.selection.json", "data label out.slides 0 --verdict success",
    ],
)  # fmt: skip
def test_the_format_of_the_page_needs_no_package(
    folder: Path, slides: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), *slides.split()]) == 0
    assert not (words.startswith("data ls") and "out.slides" not in capsys.readouterr().out)
    written = [word for word in words.split() if word.startswith(("plot.", "replay.", "parquet", "new.", "all."))]
    assert all(Path(name).exists() for name in written if name != "parquet")


def test_python_names_the_format_too(folder: Path, slides: str) -> None:
    source = rr.open_source("out.slides", format="my_format:SLIDES")
    assert source.table.layout.action.fields[0].unit == "N"
    with pytest.raises(SourceError, match="recognises no data set at runs"):
        rr.open_source("runs", format="my_format:SLIDES")
    with pytest.raises(SourceError, match="did you mean 'SLIDES'"):
        rr.open_source("out.slides", format="my_format:SLIDE")
    with pytest.raises(SourceError, match="recognised by its files"):
        rr.open_source("out.slides", format="parquet")
    with pytest.raises(TypeError, match="module:name"):
        rr.open_source("out.slides", format=5)  # type: ignore[arg-type]


def test_the_profile_names_the_driver(folder: Path) -> None:
    robot = load_profile("my_slide.toml").robot
    assert (robot.kind, robot.driver) == ("my-slide", "my_slide:Slide")


def test_the_sensor_of_the_page_is_recorded(folder: Path) -> None:
    (folder / "my_scale.py").write_text(next(block for block in blocks("python") if "AddedSensor" in block))
    (folder / "scale.toml").write_text(next(block for block in blocks("toml") if "my_scale" in block))
    assert (
        main(
            [
                "run",
                "so101-reach",
                "--policy",
                "random",
                "--episodes",
                "1",
                "--profile",
                "scale.toml",
                "--record",
                "runs",
            ]
        )
        == 0
    )
    assert "grip_torque" in load_runs("runs").layout.sensors.names
    sys.modules.pop("my_scale", None)
