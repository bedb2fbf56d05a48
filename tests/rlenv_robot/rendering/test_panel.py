"""Show what the agent saw beside a picture: live and from history, for every shipped world."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import rlenv_robot as rr
from hal import Field, Image, Spec
from rlenv_robot.env import Environment
from rlenv_robot.rendering import drawing, show
from rlenv_robot.rendering.panel import Line, beside, field_lines, info_lines
from rlenv_robot.world import TimeStep
from tests.shipped import SHIPPED_TASKS

pytestmark = pytest.mark.requirement("R1.5")


@pytest.fixture
def _no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grey pictures in place of the simulated robot's, which take a renderer."""

    def draw(robot: Any, sensors: Any, goal: Any, options: Any) -> Iterator[np.ndarray]:
        some = next(value for name, value in sensors.items() if name.endswith("position"))
        for _ in range(len(some) if np.ndim(some) > 1 else 1):
            yield np.full((480, 640, 3), 90, np.uint8)

    monkeypatch.setattr(show, "draw", draw)
    monkeypatch.setattr(drawing, "draw", draw)


def walked(name: str, folder: Path, steps: int = 4) -> Any:
    rng, env = np.random.default_rng(0), rr.make(name, record=folder)
    table = env.reset({"seed": 1})
    while table["frame_no"] < steps and not table["truncated"]:
        request = {"env_id": env.env_id, "frame_no": table["frame_no"], "action": env.action.sample(rng)}
        table, _ = env.step(request)
    return env, table


@pytest.mark.requirement("6.2.2.3-1", "6.2.2.3-2", "6.2.2.3-6", "6.2.3.4-T4")
@pytest.mark.usefixtures("_no_drawing")
@pytest.mark.parametrize("name", SHIPPED_TASKS)
def test_every_shipped_world_shows_what_the_agent_saw_live_and_from_history(name: str, tmp_path: Path) -> None:
    env, table = walked(name, tmp_path / "runs")
    tables: list[Any] = []
    env.render({"mode": "file", "path": str(tmp_path / "with.png")})
    env.render({"mode": "file", "path": str(tmp_path / "alone.png"), "panel": False})
    env.render({"mode": "call", "to": tables.append})
    env.close()
    wide, alone = cv2.imread(str(tmp_path / "with.png")), cv2.imread(str(tmp_path / "alone.png"))
    factor = max(1, 480 // alone.shape[0])  # a small picture is enlarged beside its panel
    picture = tables[0]["frame_data"]["image"]
    alone = alone.repeat(factor, axis=0).repeat(factor, axis=1)
    assert wide.shape[0] == alone.shape[0] >= 240
    assert wide.shape[1] > alone.shape[1]
    np.testing.assert_array_equal(wide[:, : alone.shape[1]], alone)
    panel = wide[:, alone.shape[1] :]
    assert (panel.max(axis=2) > 150).sum() > 500, "something is written there"
    (shown,) = tables
    assert (shown["env_id"], shown["frame_no"]) == (env.env_id, table["frame_no"])
    assert picture.shape[0] * factor == alone.shape[0]
    for field, value in table["observation"].items():
        np.testing.assert_array_equal(shown["frame_data"]["observation"][field], value)
    assert shown["frame_data"]["extra_info"].keys() == table["extra_info"].keys()
    env.render({"mode": "history", "run": tmp_path / "runs", "frames": tmp_path / "frames"})
    frames = sorted((tmp_path / "frames").iterdir())
    assert len(frames) == table["frame_no"] + 1
    first, last = (cv2.imread(str(frame)) for frame in (frames[0], frames[-1]))
    assert last.shape[1] >= first.shape[1]
    assert not np.array_equal(first, last[:, : first.shape[1]])


def test_a_world_without_a_picture_shows_the_panel_alone_and_refusals(slider_class: type, tmp_path: Path) -> None:
    class Blind(slider_class):  # type: ignore[misc]
        image = rr.World.image

    env = Environment(Blind())
    env.reset({"seed": 0})
    path = tmp_path / "blind.png"
    env.render({"mode": "file", "path": str(path)})
    before = cv2.imread(str(path))
    env.step({"env_id": env.env_id, "frame_no": 0, "action": {"push": [9.0, 0.0], "gear": 1}})
    env.render({"mode": "file", "path": str(path)})
    after = cv2.imread(str(path))
    assert not np.array_equal(before, after), "why the action was refused is written there"
    with pytest.raises(rr.RobotError, match="no image"):
        env.render({"mode": "file", "path": str(path), "panel": False})


def test_the_table_of_a_call_is_the_receivers_own(slider_class: type) -> None:
    class Told(slider_class):  # type: ignore[misc]
        def timestep(self, reward: float) -> TimeStep:
            return super().timestep(reward)._replace(extra_info={"list": [1, 2]})

    env, tables = Environment(Told()), list[Any]()
    table = env.reset({"seed": 0})
    env.render({"mode": "call", "to": tables.append})
    tables[0]["frame_data"]["observation"]["position"][:] = 99
    tables[0]["frame_data"]["extra_info"]["list"].clear()
    env.render({"mode": "call", "to": tables.append})
    np.testing.assert_array_equal(tables[1]["frame_data"]["observation"]["position"], table["observation"]["position"])
    assert tables[1]["frame_data"]["extra_info"] == {"list": [1, 2]}


def test_lines_name_elements_units_texts_and_entries_that_count() -> None:
    spec = Spec(
        "seen",
        (
            Field("angle", (2,), "float32", -1, 1, "rad", "of the joints", ("hip", "knee")),
            Field("open", (), "float64", 0),
            Field("picture", (8, 8), "uint8"),
            Field("instruction", (), "text", characters=80),
            Field("objects", (3, 2), "float32", counted_by="count"),
            Field("count", (), "int32", 0, 3),
        ),
    )
    values = spec.validate(
        spec.padded({"angle": [0.5, -1], "open": 3.0, "picture": np.ones((8, 8), np.uint8),
                     "instruction": "put the small red cup on the large blue plate", "objects": [[1, 2]]})
    )  # fmt: skip
    lines = list(field_lines("observation", spec, values))
    assert lines[0] == Line("observation", strong=True)
    assert [line.text for line in lines[1:5]] == [
        "angle[hip] 0.5 rad", "angle[knee] -1 rad", "open 3", "picture [8, 8]: 1 to 1",
    ]  # fmt: skip
    assert [line.share for line in lines[1:4]] == [0.75, 0.0, None]
    assert " ".join(line.text.strip() for line in lines[5:7]) == f"instruction: {values['instruction']}"
    assert [line.text for line in lines[7:]] == ["objects[0,0] 1", "objects[0,1] 2", "count 1"]
    extra = {"state": {"bar": np.array([1.0, 2.5])}, "images": {"top": 1}, "agents": {}, "why": "time", "goal": [0.25]}
    lines = list(info_lines("further", {**extra, "frame": Image(b"", "png", 0)}))
    assert [line.text for line in lines] == ["further", "state.bar: 1 2.5", "why: time", "goal: 0.25"]
    assert list(info_lines("further", {"agents": {"left": {}}})) == []


def test_lines_that_have_no_room_are_counted() -> None:
    picture = np.zeros((300, 300, 3), np.uint8)
    assert beside(picture, [Line("one")]).shape == (300, 630, 3)
    assert beside(picture, [Line(str(n)) for n in range(20)]).shape == (300, 960, 3)
    assert beside(picture[:100, :100], []).shape == (400, 730, 3)
    full = beside(picture, [Line(str(n)) for n in range(500)])
    assert full.shape == (300, 300 + 3 * 330, 3)
    np.testing.assert_array_equal(full[:, :300], picture)
    assert beside(None, []).shape == (480, 330, 3)


def test_pictures_of_a_video_have_one_width_whatever_their_lines() -> None:
    picture = np.zeros((120, 160, 3), np.uint8)
    few, many = [Line("one")], [Line(str(number)) for number in range(60)]
    assert beside(picture, few, len(many)).shape == beside(picture, many, len(many)).shape
    assert beside(picture, few).shape[1] < beside(picture, many).shape[1]
