"""A torque that lasts is a contact, named with its joint; a jump of an encoder is a measurement; gaps are said."""

from __future__ import annotations

import numpy as np
import pytest

from hal.drivers.contact_model import ContactModel
from hal.drivers.contact_watch import Contact, ContactWatch

POSE = np.array([0.2, -0.4, 0.5, 0.6, -1.5, 0.3])
DUTY = np.full(6, 0.2)
CONSTANT = 1.2116


def still(
    model: ContactModel, readings: int, extra: dict[int, float], late: tuple[int, ...] = ()
) -> list[Contact | None]:
    """Return the verdicts on an arm at rest whose shoulder pan carries so many N m more at some readings."""
    watch = ContactWatch(model, 1 / 30)
    verdicts = []
    for number in range(readings):
        current = model.carrying(POSE)
        current[0] += extra.get(number, 0.0) / CONSTANT
        if number in late:
            watch.skip(number / 30)
            continue
        verdicts.append(watch.look(number / 30, POSE, current, DUTY))
    return verdicts


def test_a_lasting_torque_is_a_contact_within_two_periods(contact_model: ContactModel) -> None:
    verdicts = still(contact_model, 20, dict.fromkeys(range(10, 20), -1.2))
    first = next(number for number, verdict in enumerate(verdicts) if verdict)
    contact = verdicts[first]
    assert first <= 12
    assert contact is not None
    assert (contact.joint, contact.code) == ("shoulder_pan", "contact")
    assert contact.measured < -0.5 < contact.expected
    assert str(contact).startswith("contact at shoulder_pan: it measures -")


@pytest.mark.parametrize("size", [0.25, -0.25])
def test_what_friction_and_the_threshold_allow_is_none(contact_model: ContactModel, size: float) -> None:
    assert still(contact_model, 20, dict.fromkeys(range(10, 20), size)) == [None] * 20


def test_one_wrong_current_is_no_contact(contact_model: ContactModel) -> None:
    assert still(contact_model, 20, {10: 0.6}) == [None] * 20


def test_a_small_jump_of_an_encoder_is_a_wrong_measurement(contact_model: ContactModel) -> None:
    """Three degrees within a period, which the servo's rate and acceleration would allow."""
    watch, found = ContactWatch(contact_model, 1 / 30), []
    for number in range(20):
        angle = POSE + np.array([0, 0, 0, np.radians(3.0) if number >= 10 else 0.0, 0, 0])
        found.append(watch.look(number / 30, angle, contact_model.carrying(POSE), DUTY))
    (contact, *_) = [one for one in found if one]
    assert (contact.code, contact.joint) == ("measurement", "wrist_flex")
    assert str(contact).startswith("implausible: wrist_flex jumped")


def test_lost_readings_are_bridged_and_a_long_gap_is_blindness(contact_model: ContactModel) -> None:
    pushed = dict.fromkeys(range(10, 30), -1.2)
    assert any(still(contact_model, 20, pushed, late=(9, 11, 13)))
    watch = ContactWatch(contact_model, 1 / 30)
    for number in range(3):
        watch.look(number / 30, POSE, contact_model.carrying(POSE), DUTY)
    for number in range(3, 20):
        watch.skip(number / 30)
    assert watch.is_blind
    for number in range(20, 24):
        watch.look(number / 30, POSE, contact_model.carrying(POSE), DUTY)
    assert not watch.is_blind


def test_servos_without_currents_are_noticed(contact_model: ContactModel) -> None:
    watch = ContactWatch(contact_model, 1 / 30)
    for number in range(12):
        watch.look(number / 30, POSE, np.zeros(6), DUTY)
    assert watch.silent
    watch.begin()
    for number in range(12):
        watch.look(number / 30, POSE, np.zeros(6), np.zeros(6))
    assert not watch.silent, "nothing is driven"
