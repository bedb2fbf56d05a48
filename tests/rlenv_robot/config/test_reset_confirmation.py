from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hal import Automatic, Fixture, HomingSettings, Terminal
from hal.reset.command import Command
from hal.reset.gpio import Gpio
from rlenv_robot.config.profile import ResetSection, load_profile
from rlenv_robot.config.reset_confirmation import homing_settings, reset_confirmation


@pytest.mark.requirement("R6.6")
@pytest.mark.parametrize(
    ("text", "kind", "holds"),
    [
        ("", Automatic, {}),
        ("signal = 'terminal'", Terminal, {}),
        ("signal = 'fixture'\nfixture = 'ipc://f'", Fixture, {"address": "ipc://f"}),
        ("signal = 'command'\ncommand = ['/bin/true', '-x']", Command, {"argv": ("/bin/true", "-x")}),
        ("signal = 'gpio'\ngpio_chip = '/dev/gpiochip0'\ngpio_line = 4", Gpio, {"chip": "/dev/gpiochip0", "line": 4}),
    ],
)
def test_a_profile_names_who_resets_the_scene(tmp_path: Path, text: str, kind: type, holds: dict[str, Any]) -> None:
    (tmp_path / "lab.toml").write_text(f"[reset]\n{text}\n")
    signal = reset_confirmation(load_profile(tmp_path / "lab.toml").reset)
    assert type(signal) is kind
    for name, value in holds.items():
        assert getattr(signal, name) == value
    signal.close()


def test_how_it_moves_is_the_sections() -> None:
    section = ResetSection(velocity=0.5, tolerance=0.1, deadline_s=3.0, signal_deadline_s=4.0)
    assert homing_settings(section) == HomingSettings(
        velocity=0.5, tolerance=0.1, deadline_s=3.0, signal_deadline_s=4.0
    )
