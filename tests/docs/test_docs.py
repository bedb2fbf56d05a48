"""Every block of Python on the pages runs and every command line parses, here or in a page's own test."""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template

import numpy as np
import pytest

import rlenv_robot as rr
from hal import Camera, CameraSettings, WithCameras
from real import Server
from real.protocol.keys import Role, allow, new_pair
from rlenv_robot.cli import main as cli
from rlenv_robot.cli.verbs import VerbAction
from sim.robot import SimRobot
from sim.robots.so101 import so101

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in (ROOT / "README.md", *DOCS.rglob("*.md"), *ROOT.glob("plugins/*/README.md")))

OWN: Mapping[str, str] = {
    "README.md": "tests/house/test_project.py",
    "docs/extending.md": "tests/docs/test_extending_page.py",
    "docs/log.md": "tests/docs/test_log_page.py",
    "docs/models.md": "tests/docs/test_models_page.py",
    "docs/own-simulator.md": "tests/docs/test_own_simulator_page.py",
    "docs/sim-to-real.md": "tests/docs/test_sim_to_real_page.py",
    "docs/simulation.md": "tests/docs/test_simulation_page.py",
    "docs/source-data.md": "tests/docs/test_source_page.py",
    "docs/tasks": "tests/docs/test_tasks_pages.py",
    "docs/trainers.md": "tests/docs/test_trainers_page.py",
    "docs/tutorial-logs.md": "tests/docs/test_tutorials.py",
}
"""Page, or folder of pages -> the test that runs its Python."""

HERE = (
    "docs/bridge.md", "docs/cameras.md", "docs/chunks.md", "docs/conformance.md", "docs/data-tools.md",
    "docs/drivers.md", "docs/formats.md", "docs/gymnasium.md", "docs/kaiwu.md", "docs/language.md", "docs/resets.md",
    "docs/so101.md",
    "plugins",
)  # fmt: skip
"""Pages whose Python is run by this file."""


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


# -- Python --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=_shown)
def test_all_python_is_run_somewhere(page: Path) -> None:
    if not _blocks(page, "python"):
        return
    name = _shown(page)
    own = [test for place, test in OWN.items() if name == place or name.startswith(f"{place}/")]
    assert own or name.startswith(HERE), "no test runs the Python of this page: add it to HERE, or to OWN with its test"
    for test in own:
        assert (ROOT / test).exists(), test


def test_python_that_is_not_run_says_why() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for before in re.findall(r"([^\n]*\n[^\n]*)\n\n?```python no-run", text):
            assert before.strip().endswith(":"), f"{_shown(page)}: nothing says what this block needs"


def _robot(images: Path) -> WithCameras:
    eyes = [Camera(CameraSettings(str(images), name=name, width=64, height=48)) for name in ("top", "wrist")]
    return WithCameras(SimRobot(so101(), real_time=True, teleport=False), eyes)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
    folder, rng = tmp_path / "pictures", np.random.default_rng(0)
    folder.mkdir()
    for number in range(20):
        cv2.imwrite(str(folder / f"{number:02}.png"), rng.integers(0, 255, (48, 64, 3), np.uint8))
    return folder


@pytest.fixture
def recorded(tmp_path: Path, images: Path) -> Path:
    """A run of twelve frames with two cameras, in ``runs`` of the folder."""
    with rr.make("so101-reach", robot=_robot(images), record=tmp_path / "runs", steps=12) as env:
        seen = env.reset({"seed": 0})
        while not (seen["terminated"] or seen["truncated"]):
            action = {"joint_target": seen["observation"]["joint_goal"]}
            seen, _ = env.step({"env_id": env.env_id, "frame_no": seen["frame_no"], "action": action})
    assert seen["extra_info"]["truncated_by"] == "time"
    return tmp_path


@pytest.fixture
def served(tmp_path: Path, images: Path) -> Iterator[Server]:
    """A robot with keys, telemetry and pictures, of which a client's keys are in ``tablet-keys`` of the folder."""
    server = new_pair(tmp_path / "server")
    allow(tmp_path / "server", new_pair(tmp_path / "tablet-keys", server.public).public, Role.MOVE, "tablet")
    robot, free = _robot(images), "tcp://127.0.0.1:*"
    cameras, keys = robot.cameras, tmp_path / "server"
    with Server(robot, paced_by_robot=True, keys=keys, telemetry=free, cameras=cameras, images=free) as serving:
        for camera in cameras:  # a reset opens them; nobody asks for one here
            camera.open()
        yield serving


def _run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, places: Mapping[str, str] | None = None) -> None:
    code = "\n".join(_blocks(DOCS / page, "python"))
    for place, there in (places or {}).items():
        assert place in code, f"{page} does not speak of {place} any more"
        code = code.replace(place, there)
    script = folder / "page.py"
    script.write_text(code, encoding="utf-8")
    monkeypatch.chdir(folder)
    runpy.run_path(str(script))


@pytest.mark.requirement("R4.1")
@pytest.mark.parametrize("page", ["data-tools.md", "formats.md"])
def test_what_is_shown_of_recorded_data_runs(page: str, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow", reason="the extra 'parquet' is not installed")
    _run(page, recorded, monkeypatch)


@pytest.mark.parametrize("page", sorted(ROOT.glob("plugins/*/README.md")), ids=_shown)
def test_what_a_plug_in_s_page_shows_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(os.path.relpath(page, DOCS), tmp_path, monkeypatch)


@pytest.mark.requirement("R4.1")
def test_what_is_shown_of_verdicts_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run("resets.md", tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.requirement("R4.1", "R6.6")
def test_the_robot_of_ones_own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run("drivers.md", tmp_path, monkeypatch)


@pytest.mark.requirement("R4.1", "R6.6")
def test_what_is_shown_of_telemetry_runs(tmp_path: Path, served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"tcp://10.0.0.7:5555": served.address, "tcp://10.0.0.7:5556": served.telemetry}
    _run("bridge.md", tmp_path, monkeypatch, places)


@pytest.mark.requirement("R4.1", "R6.6")
def test_what_is_shown_of_images_runs(tmp_path: Path, served: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    _run("cameras.md", tmp_path, monkeypatch, {"tcp://10.0.0.7:5557": served.images})


# -- names ---------------------------------------------------------------------------------------------------


def test_the_nouns_are_where_the_page_says() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").split("## Nouns")[1].split("\n## ")[0]
    for names, owns in re.findall(r"^\| (`.*?) \| (.*) \|$", text, re.MULTILINE):
        places = [ROOT / place for place in re.findall(r"`([a-z_0-9/]+(?:\.py|/))`", owns)]
        assert places, names
        files = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])]
        code = "\n".join(file.read_text(encoding="utf-8") for file in files)
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^class {name}\b", code, re.MULTILINE), f"{name} is not in {owns}"


def test_every_folder_of_code_is_on_the_page() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8").split("## Folders")[1].split("\n## ")[0]
    for package in ("hal", "sim", "real", "recorder", "rlenv_robot"):
        assert f"`{package}/`" in text
        for folder in (ROOT / package).iterdir():
            if (folder / "__init__.py").exists():
                assert f"{folder.name}/`" in text, folder


def test_every_recipe_is_on_the_page_on_trainers() -> None:
    text = (DOCS / "trainers.md").read_text(encoding="utf-8")
    for recipe in (ROOT / "launch").glob("train_*.py"):
        assert f"| `{recipe.name}` |" in text, recipe.name


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.name == "README.md" or f"]({page.name})" in index, page.name


# -- commands ------------------------------------------------------------------------------------------------


def _command_lines(page: Path) -> list[str]:
    """Return the command lines of a page: in blocks of a shell, and after a prompt in any other block."""
    lines = [line for block in _blocks(page, "sh") for line in block.splitlines()]
    lines += re.findall(r"^\$ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    variables: dict[str, str] = {}
    for name, value in (line.split("=", 1) for line in lines if re.match(r"[A-Z]+=\S+$", line)):
        variables[name] = Template(value).safe_substitute(variables)
    lines = [Template(line).safe_substitute(variables) for line in lines]
    return [line for line in lines if line.startswith("rlenv-robot ")]


@pytest.mark.parametrize("page", [page for page in PAGES if _command_lines(page)], ids=_shown)
def test_command_lines_are_understood(page: Path) -> None:
    for line in _command_lines(page):
        words = [word for word in shlex.split(line, comments=True) if word != "&"]
        try:
            cli.command_parser().parse_args(words[1:])
        except SystemExit:
            pytest.fail(f"{_shown(page)}: {line}")


def _verb_of(parser: argparse.ArgumentParser, word: str) -> argparse.ArgumentParser | None:
    """Return the parser of a verb with its options, or None if the command has no such verb."""
    for action in parser._actions:
        if isinstance(action, VerbAction) and word in action._name_parser_map:
            return action.parser_of(word)
    return None


@pytest.mark.parametrize("page", PAGES, ids=_shown)
def test_verbs_and_options_in_the_text_exist(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for named in re.findall(r"`rlenv-robot ([^`|]+)`", text):
        parser, words = cli.command_parser(), named.split()
        while words and (verb := _verb_of(parser, words[0])):
            parser = verb
            words.pop(0)
        assert parser.prog != "rlenv-robot" or not words or words[0].isupper(), f"{named}: no such verb"
        for word in words:
            if word.startswith("--"):
                assert word in parser._option_string_actions, f"{named}: {parser.prog} has no {word}"
