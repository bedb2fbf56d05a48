"""Environments, episodes and source data in a notebook: complete, bounded, and shown by Jupyter itself."""

from __future__ import annotations

import base64
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import rlenv_robot as rr
from rlenv_robot.config.plugins import PluginTable
from rlenv_robot.rendering import notebook
from rlenv_robot.rendering.notebook import RecordedEpisode
from rlenv_vision.notebook import episode_html, source_html

MOST_BYTES = 4_500_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two short recorded episodes."""
    folder = tmp_path_factory.mktemp("runs")
    with rr.make("so101-reach", record=folder, steps=12) as env:
        for seed in (1, 2):
            obs = env.reset({"seed": seed})
            while not (obs["terminated"] or obs["truncated"]):
                action = {"joint_target": np.float32(obs["observation"]["joint_position"] + 0.02)}
                obs, _ = env.step({"env_id": obs["env_id"], "frame_no": obs["frame_no"], "action": action})
    return folder


def well_formed(html: str) -> ElementTree.Element:
    """Parse it as XML, which is stricter than a browser."""
    xhtml = re.sub(r"<img ([^>]*)>", r"<img \1/>", html)
    return ElementTree.fromstring(xhtml.replace("controls loop muted", "").replace("details open", "details"))


def test_an_environment_shows_its_picture_and_its_fields() -> None:
    with rr.make("so101-reach") as env:
        before = env._repr_html_() or ""
        assert "reset first" in before
        env.reset({"seed": 7})
        html = env._repr_html_() or ""
    root = well_formed(html)
    text = "".join(root.itertext())
    for name in ("joint_target", "joint_position", "rad", env.env_id):
        assert name in text
    (picture,) = root.iter("img")
    assert base64.b64decode(picture.get("src", "").partition(",")[2]).startswith(b"\xff\xd8")
    assert len(html) < MOST_BYTES / 10


def test_source_data_show_numbers_plots_and_episodes(runs: Path) -> None:
    data = rr.open_source(runs)
    root = well_formed(data._repr_html_() or "")
    text = "".join(root.itertext())
    assert "so101-reach" in text
    assert "24" in text, "transitions"
    assert len(list(root.iter("svg"))) == 2


def test_an_episode_shows_a_video_and_its_signals(runs: Path) -> None:
    data = rr.open_source(runs)
    episode = data.episode(1)
    assert len(episode) == 13
    assert repr(episode).startswith("<episode 1 of ")
    html = episode._repr_html_() or ""
    root = well_formed(html)
    shown = [*root.iter("video"), *root.iter("img")]
    assert len(shown) == 1
    assert len(list(root.iter("svg"))) >= 3
    assert len(html) < MOST_BYTES
    assert data.episode(-1).number == 1
    with pytest.raises(rr.SourceError, match="no episode 2"):
        data.episode(2)


def test_what_is_recorded_is_escaped_and_nan_is_left_out(runs: Path) -> None:
    data = rr.open_source(runs)
    rows = np.array(data.table.rows)
    rows["reward"][3] = np.nan
    infos = tuple({**info, "task": "<script>alert(1)</script>", "robot": "nobody"} for info in data.table.episodes)
    table = replace(data.table, rows=rows, episodes=infos)
    for html in (source_html(table, 24), episode_html(RecordedEpisode(table, 0))):
        assert "<script>" not in html
        well_formed(html)


def test_without_a_package_that_makes_html_jupyter_shows_text(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    monkeypatch.setattr(notebook, "_views", lambda: PluginTable("view in a notebook", "tests.no_such_group", {}))
    data = rr.open_source(runs)
    with rr.make("so101-reach") as env:
        assert env._repr_html_() is data._repr_html_() is data.episode(0)._repr_html_() is None


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("nbclient", "nbformat", "ipykernel")),
    reason="pip install nbclient nbformat ipykernel",
)
def test_jupyter_shows_all_three(runs: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    cells = [
        "import rlenv_robot as rr",
        "env = rr.make('so101-reach'); env.reset({'seed': 7}); env",
        f"data = rr.open_source({str(runs)!r}); data",
        "data.episode(0)",
    ]
    pages = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(pages, timeout=100, kernel_name="python3").execute()
    shown = [cell.outputs[-1].data for cell in pages.cells[1:]]
    assert all("text/html" in data for data in shown)
    assert "joint_target" in shown[0]["text/html"]
    assert "<video" in shown[2]["text/html"] or "<img" in shown[2]["text/html"]
