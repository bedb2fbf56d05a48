"""The mappings on the page fit the embodiments that they are for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hal import Field, Spec
from hal.cameras.image_sensors import ImageSensor
from hal.robots.so101 import SO101
from rlenv_policy_servers.key_mapping import KeyMapping
from rlenv_policy_servers.policy_file import read_policy_file

PAGE = Path(__file__).resolve().parents[3] / "docs" / "policy-servers.md"


def images(*cameras: str) -> tuple[Field, ...]:
    return tuple(ImageSensor(camera, 320, 240).field for camera in cameras)


def numbers(name: str, elements: tuple[str, ...], high: float, unit: str = "rad") -> Field:
    return Field(name, (len(elements),), "float32", -high if high > 0.1 else 0.0, high, unit, name, elements)


JOINTS = tuple(f"joint_{n}" for n in range(1, 8))
POSE = ("x", "y", "z", "rx", "ry", "rz")
EMBODIMENTS = {
    "An SO-101 with two cameras": (
        Spec("o", (*SO101.sensors, *images("overhead", "wrist"))), Spec("a", SO101.commands.fields),
    ),
    "As in LIBERO": (
        Spec("o", (numbers("gripper_pose", POSE, 4.0, "1"), numbers("finger_position", ("left", "right"), 0.04, "m"),
                   *images("agentview", "wrist"))),
        Spec("a", (numbers("gripper_step", POSE, 0.5, "1"), numbers("gripper_command", ("grip",), 1.0, "1"))),
    ),
    "As in DROID": (
        Spec("o", (numbers("joint_position", JOINTS, 3.0), numbers("finger_position", ("fingers",), 0.08, "m"),
                   *images("left", "wrist"))),
        Spec("a", (numbers("joint_target", JOINTS, 3.0), numbers("finger_target", ("fingers",), 0.08, "m"))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", EMBODIMENTS)
def test_the_mapping_of_an_embodiment_fits_it(title: str, tmp_path: Path) -> None:
    found = re.search(
        rf"^### {title}\n.*?```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert found is not None
    (tmp_path / "policy.toml").write_text(found[1])
    observation, action = EMBODIMENTS[title]
    mapping = KeyMapping(read_policy_file(tmp_path / "policy.toml"), observation, action)
    described = mapping.requests.description()
    assert [one["shape"] for one in described.values() if one["dtype"] == "uint8"] == [[224, 224, 3]] * 2
    assert mapping.answers.widths == {"actions": {"An SO-101 with two cameras": 6, "As in LIBERO": 7}.get(title, 8)}
