"""Servos are known by their names: ours, and those of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hal.drivers import servo_models as servo_module
from hal.drivers.servo_models import find_servo, servo_models
from hal.drivers.sts3215 import STS3215

SOURCE = """
from dataclasses import replace

from hal.drivers.sts3215 import STS3215

STS3250 = replace(STS3215, name="sts3250", max_rate=5000)
NUMBER = 7
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose entry points a test writes."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "servos_of_a_stranger.py").write_text(SOURCE)
    info = tmp_path / "servos_of_a_stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: servos-of-a-stranger\nVersion: 1.0\n")
    for function in (servo_module._declared, servo_module.find_servo):
        function.cache_clear()
    yield info / "entry_points.txt"
    for function in (servo_module._declared, servo_module.find_servo):
        function.cache_clear()
    sys.modules.pop("servos_of_a_stranger", None)


def test_a_package_declares_its_servo(package: Path) -> None:
    package.write_text("[rlenv_robot.servos]\nsts3250 = servos_of_a_stranger:STS3250\n")
    assert find_servo("sts3250").max_rate == 5000
    assert find_servo("sts3215") is STS3215
    assert {"sts3215", "sts3250"} <= servo_models().keys()


def test_nobody_takes_the_name_of_our_servo(package: Path) -> None:
    package.write_text("[rlenv_robot.servos]\nsts3215 = servos_of_a_stranger:STS3250\n")
    assert servo_models()["sts3215"] is STS3215


@pytest.mark.parametrize(
    ("entry", "problem"),
    [("x = no_such_module:X", "can't be imported"), ("x = servos_of_a_stranger:NUMBER", "expected a ServoModel")],
)
def test_a_broken_servo_is_named_and_hinders_no_other(package: Path, entry: str, problem: str) -> None:
    package.write_text(f"[rlenv_robot.servos]\n{entry}\nsts3250 = servos_of_a_stranger:STS3250\n")
    assert find_servo("sts3215") is STS3215
    assert find_servo("sts3250").max_rate == 5000
    with pytest.raises(ValueError, match=f"'x'.*{problem}"):
        find_servo("x")


def test_an_unknown_servo_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match="'xl320' is unknown, known are sts3215"):
        find_servo("xl320")
