"""The page about profiles names every key there is, and its example is one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from hal.cameras.settings import CameraSettings
from rlenv_robot.config.profile import Profile, load_profile
from sim.latency import DelayModel

PAGE = Path(__file__).resolve().parents[2] / "docs" / "profiles.md"


def example() -> str:
    found = re.search(r"```toml\n(\[task\].*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert found is not None
    return found.group(1)


def test_the_example_is_a_profile(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text(example(), encoding="utf-8")
    profile = load_profile(tmp_path / "p.toml")
    assert profile.reset.signal == "fixture"
    assert list(profile.extensions) == ["power-cut"]
    assert list(profile.randomise) == ["body.*.mass", "actuator.*.kp", "opt.gravity[2]"]


def test_every_key_is_on_the_page() -> None:
    text = example()
    for section in dataclasses.fields(Profile):
        if section.metadata.get("internal") or section.name in ("file", "cameras", "randomise", "extensions"):
            continue
        part = text.split(f"[{section.name}]", 1)[1].split("\n[", 1)[0]
        value = DelayModel if section.name == "timing" else getattr(Profile(), section.name)
        keys = [key.name for key in dataclasses.fields(value)]
        assert re.findall(r"^(\w+) =", part, re.M) == [key for key in keys if (section.name, key) != ("robot", "guard")]
    part = text.split("[robot.guard]", 1)[1].split("\n[", 1)[0]
    assert re.findall(r"^(\w+) =", part, re.M) == [key.name for key in dataclasses.fields(Profile().robot.guard)]
    part = text.split("[cameras.wrist]", 1)[1].split("\n[", 1)[0]
    keys = [key.name for key in dataclasses.fields(CameraSettings) if key.name != "name"]
    assert re.findall(r"^(\w+) =", part, re.M) == keys
