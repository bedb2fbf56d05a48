"""The comparison of two manifests: each part's difference is named, and refuses or warns as the table says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hal import RobotSpec, Spec
from hal.guarding.manifest_check import GAIN_MARGIN, ManifestReport, compare_manifests
from hal.robot import Actuation, Range
from hal.robots.so101 import SO101

GAINS = {"stiffness": 8.9, "p": 16.0, "i": 0.0, "d": 32.0, "volts": 7.4}
TRAINED = replace(SO101, actuation=Actuation(Actuation.for_all(SO101.commands, GAINS).gains, {"command": Range(0, 0)}))


def with_gains(delay_s: float | None = None, **gains: float | tuple[float, float]) -> RobotSpec:
    delays = {} if delay_s is None else {"command": Range(delay_s, delay_s)}
    return replace(SO101, actuation=Actuation(Actuation.for_all(SO101.commands, gains).gains, delays))


def with_command(**changes: Any) -> RobotSpec:
    field = replace(SO101.commands["joint_target"], **changes)
    return replace(TRAINED, commands=Spec("so101_commands", (field,)))


def words(report: ManifestReport) -> set[tuple[str, bool]]:
    return {(each.part, each.refuses) for each in report.differences}


def test_equal_manifests_have_one_digest_and_no_difference() -> None:
    again = RobotSpec.from_dict(json.loads(json.dumps(TRAINED.to_dict())))
    assert again.manifest_digest == TRAINED.manifest_digest != SO101.manifest_digest
    assert again.digest == SO101.digest  # gains do not change what crosses the wire
    assert compare_manifests(TRAINED, again).differences == ()


_ELEMENTS = SO101.commands["joint_target"].elements
_SWAPPED = (_ELEMENTS[1], _ELEMENTS[0], *_ELEMENTS[2:])


@pytest.mark.parametrize(
    ("deployed", "part", "refuses", "named"),
    [
        (with_command(elements=_SWAPPED), "commands", True, "shoulder_lift"),
        (with_command(convention="mirrored"), "commands", True, "mirrored"),
        (with_command(unit="degrees"), "commands", True, "degrees"),
        (with_command(high=2.5), "commands", True, "high"),
        (replace(TRAINED, rate_hz=50.0), "rate", True, "50 Hz"),
        (replace(TRAINED, home={"joint_target": (0.1, *SO101.home["joint_target"][1:])}), "home", True, "joint_target"),
        (replace(TRAINED, home={}), "home", True, "in the training alone"),
        (replace(TRAINED, limits=SO101.limits.merged(max_velocity={"joint_target": 1.0})), "limits", False, "1.0"),
        (replace(TRAINED, name="other"), "name", False, "other"),
        (with_gains(0.0, **{**GAINS, "p": 32.0}), "gains", True, "p in the training 16, here 32"),
        (with_gains(0.0, **{**GAINS, "i": 1.0}), "gains", True, "i in the training 0, here 1"),
        (with_gains(0.0, **{**GAINS, "volts": 12.0}), "gains", True, "volts in the training 7.4, here 12"),
        (with_gains(0.0, **{**GAINS, "volts": 6.6}), "gains", False, "volts"),
        (with_gains(0.0, p=16.0, i=0.0, d=32.0), "gains", False, "volts 7.4 in the training (V), not declared here"),
        (with_gains(0.0, stiffness=998.0), "gains", True, "stiffness in the training 8.9, here 998"),
        (with_gains(0.0), "gains", False, "stiffness 8.9 in the training"),
        (with_gains(0.02, **GAINS), "delays", False, "here 0.02 s"),
        (with_gains(0.05, **GAINS), "delays", True, "here 0.05 s"),
        (with_gains(None, **GAINS), "delays", False, "not declared here"),
    ],
)  # fmt: skip
def test_every_part_is_named_and_refuses_or_warns(deployed: RobotSpec, part: str, refuses: bool, named: str) -> None:
    assert deployed.manifest_digest != TRAINED.manifest_digest
    report = compare_manifests(TRAINED, deployed)
    assert words(report) == {(part, refuses)}, report
    assert any(named in str(each) for each in report.differences), report


def test_one_joint_alone_is_named() -> None:
    gains = {**TRAINED.actuation.gains, "joint_target.elbow_flex": {**GAINS, "p": 32.0}}  # type: ignore[union-attr]
    deployed = replace(TRAINED, actuation=replace(TRAINED.actuation, gains=gains))
    (difference,) = compare_manifests(TRAINED, deployed).differences
    assert "joint_target.elbow_flex: p in the training 16, here 32" in difference.text


def test_sensors_that_differ_refuse_and_further_ones_warn() -> None:
    fewer = Spec("so101_sensors", SO101.sensors.fields[:-1])
    turned = Spec("so101_sensors", (replace(SO101.sensors.fields[0], unit="degrees"), *SO101.sensors.fields[1:]))
    assert words(compare_manifests(TRAINED, replace(TRAINED, sensors=fewer))) == {("sensors", False)}
    assert words(compare_manifests(TRAINED, replace(TRAINED, sensors=turned))) == {("sensors", True)}


@given(st.floats(1.0, 100.0), st.floats(1.0, 10.0), st.floats(0.05, 20.0))
def test_drawn_gains_take_every_arm_within_their_range(low: float, spread: float, share: float) -> None:
    high = low * spread
    value = low * share
    report = compare_manifests(with_gains(0.0, stiffness=(low, high)), with_gains(0.0, stiffness=value))
    outside = max(value / high - 1, 1 - value / low)
    if outside <= 0:
        assert report.differences == ()
    elif outside > GAIN_MARGIN + 1e-9:
        assert words(report) == {("gains", True)}
    elif 0.03 < outside < GAIN_MARGIN - 1e-9:
        assert words(report) == {("gains", False)}


def test_an_identified_arm_takes_policies_that_were_trained_on_its_figures() -> None:
    identified = with_gains(0.0, **{**GAINS, "stiffness": 3.2})  # as measured, at the same registers
    assert compare_manifests(identified, with_gains(0.0, **GAINS)).differences == ()
    unknown = with_gains(0.0, stiffness=3.2)
    assert words(compare_manifests(unknown, with_gains(0.0, **GAINS))) == {("gains", True)}
