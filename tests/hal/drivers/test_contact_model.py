"""Averages of readings are those of the motion, and a contact model's file is read whole or refused in a line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hal.drivers.contact_model import (
    ContactModel,
    ContactModelError,
    average,
    confirmed,
    load_contact_model,
    save_contact_model,
)


@pytest.mark.parametrize("count", [3, 7])
@pytest.mark.parametrize("uneven", [0.0, 0.3])
def test_averages_of_a_parabola_are_exact(count: int, uneven: float) -> None:
    """Angle 1 + 2 t + 3 t^2 / 2 and current 4 + 5 t: acceleration 3, and both means at the hat's mean time."""
    times = np.linspace(-1.0, 1.0, count) / 30
    times[1 : count // 2] -= uneven / 300
    times[-1] += uneven / 60
    motion = average(times, (1 + 2 * times + 1.5 * times**2)[:, None], (4 + 5 * times)[:, None])
    before, after = -times[0], times[-1]
    mean = (after - before) / 3  # of a triangle over unequal sides
    assert motion.acceleration[0] == pytest.approx(3.0)
    assert motion.current[0] == pytest.approx(4 + 5 * mean)
    assert motion.speed[0] == pytest.approx(2 + 3 * (after - before) / 2)


def test_a_payload_and_the_friction_of_rest_are_expected(contact_model: ContactModel) -> None:
    """At rest with a level arm: any friction, and the weight of up to 100 g on top, are no excess; 200 g are."""
    angle = np.array([0.0, 1.2, -0.6, -0.3, -1.5, 0.3])
    times = np.arange(3) / 30
    lever = contact_model.torques(average(times, np.tile(angle, (3, 1)), np.zeros((3, 6))))[6]
    assert abs(lever[1]) > 2.0, "N m for each kilogram"
    for share, excess in ((-0.6, False), (0.0, False), (0.1, False), (0.7, True)):
        current = contact_model.carrying(angle) + share * lever / 1.2116
        motion = average(times, np.tile(angle, (3, 1)), np.tile(current, (3, 1)))
        expectation = contact_model.expect(motion)
        assert (abs(expectation.excess(motion.current)[1]) > 0.6 / 1.2116) == (excess or share < 0), share
    assert (expectation.low <= expectation.middle).all()


def test_an_excess_counts_if_it_lasts() -> None:
    now, before = np.array([2.0, 2.0, 2.0, -1.0, 2.0]), np.array([1.0, 0.1, -3.0, -1.0, 0.0])
    np.testing.assert_allclose(confirmed(now, before), [2.0, 0.4, 0.0, -1.0, 0.0])


def test_a_model_comes_back_from_its_file(contact_model: ContactModel, tmp_path: Path) -> None:
    save_contact_model(contact_model, tmp_path / "arm.contact.json")
    assert load_contact_model(tmp_path / "arm.contact.json") == contact_model


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: plain | {"version": 2},
        lambda plain: plain | {"payload_kg": -1.0},
        lambda plain: plain | {"window_s": 1e9},
        lambda plain: plain | {"tool_link": 6},
        lambda plain: plain | {"joints": plain["joints"][:5]},
        lambda plain: plain | {"links": [{**plain["links"][0], "mass": True}, *plain["links"][1:]]},
        lambda plain: plain | {"joints": [{**plain["joints"][0], "threshold": 0.0}, *plain["joints"][1:]]},
        lambda plain: plain | {"joints": [{**plain["joints"][0], "coulomb": "NaN"}, *plain["joints"][1:]]},
        lambda plain: [plain],
    ],
)
def test_a_damaged_file_is_refused_in_a_line(contact_model: ContactModel, tmp_path: Path, damage: object) -> None:
    file = tmp_path / "arm.contact.json"
    file.write_text(json.dumps(damage(contact_model.to_dict())))
    with pytest.raises(ContactModelError, match="json: no contact model") as refused:
        load_contact_model(file)
    assert "\n" not in str(refused.value)
    with pytest.raises(ContactModelError, match="sim2real contact"):
        load_contact_model(tmp_path / "missing.json")


def test_thresholds_of_joints_that_grip_are_infinite(contact_model: ContactModel) -> None:
    assert np.isinf(replace(contact_model).thresholds).tolist() == [False] * 5 + [True]
