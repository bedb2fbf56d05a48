"""Judge the motion that an arm's servos measure: implausible encoders, and contacts; and stream what they measure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from hal.drivers.arm_table import ArmTable
from hal.drivers.bus import Reply
from hal.drivers.calibration import Calibration
from hal.drivers.contact_model import ContactModel, load_contact_model
from hal.drivers.contact_watch import ContactWatch
from hal.drivers.encoder_check import EncoderCheck
from hal.drivers.registers import Feedback
from hal.errors import Fault
from hal.field import Field
from hal.robot import SampleSink, StreamSpec
from hal.spec import Spec

__all__ = ["STREAM", "MotionWatch", "servo_stream"]

STREAM = "servos"
"""Name of the stream of measurements from which a contact model is fitted."""

_EFFORTS = ("current", "load")

_HOLD_RAD = 0.1764
"""Farthest that a held goal lies from the position, rad (10 degrees): a servo carries a load by its error."""


def servo_stream(arm: ArmTable, rate_hz: float) -> StreamSpec:
    """Return the description of the servos' own measurements: angle, current, duty cycle and supply voltage."""
    count = (len(arm.names),)

    def field(name: str, unit: str, meaning: str) -> Field:
        return Field(name, count, "float32", unit=unit, meaning=meaning, elements=arm.names)

    fields = (
        field("servo_position", "rad", "measured joint angles"),
        field("servo_current", "A", "motor currents in the directions of the joints"),
        field("servo_duty", "1", "duty cycles in the directions of the joints"),
        field("servo_volts", "V", "supply voltages at the servos"),
    )
    return StreamSpec(STREAM, Spec("servos", fields), rate_hz, used=False)


class MotionWatch:
    """Judge each control period's measurements of all servos. Not thread-safe.

    Args:
        arm: the table of joints.
        gains: contents of the registers ``p``, ``i`` and ``d`` by joint.
        rate_hz: control periods a second.
        contact: the model of free motion, or its file; None does not look for contacts.
        on_contact: whether a contact stops the arm or lets it yield.

    Attributes:
        yielded: goals at which the arm has yielded to a contact, rad, (n,); None while it follows its commands.

    Raises:
        ContactModelError: the file holds no contact model.
        ValueError: the model is of another arm or of other gains, the servos measure no current, or ``on_contact`` is
            not allowed.
    """

    def __init__(
        self,
        arm: ArmTable,
        gains: Mapping[str, Mapping[str, int]],
        rate_hz: float,
        contact: str | Path | ContactModel | None,
        on_contact: Literal["stop", "yield"],
    ) -> None:
        if on_contact not in ("stop", "yield"):
            raise ValueError(f"the setting on_contact is {on_contact!r}, allowed are 'stop' and 'yield'")
        if on_contact == "yield" and contact is None:
            raise ValueError("on_contact is 'yield', which needs contact: a file of rlenv-robot sim2real contact")
        model = contact if contact is None or isinstance(contact, ContactModel) else load_contact_model(contact)
        if model is not None:
            _check(model, arm, gains)
        self._arm, self._yields, self._model = arm, on_contact == "yield", model
        self._encoders = EncoderCheck(arm, 1 / rate_hz)
        self._contacts = None if model is None else ContactWatch(model, 1 / rate_hz)
        self._stiffness = np.array([(j.model.stiffness or 0.0) * gains[j.name]["p"] * j.gear**2 for j in arm.joints])
        self.yielded: np.ndarray | None = None
        self._reason: str | None = None
        self._distrusted = False
        self.sink: SampleSink | None = None

    def begin(self) -> None:
        """Forget all readings and a contact, at a reset."""
        self._encoders.begin()
        if self._contacts is not None:
            self._contacts.begin()
        self.yielded = self._reason = None
        self._distrusted = False

    def look(
        self, calibration: Calibration, newest: Mapping[int, Reply], measured: Mapping[str, Feedback]
    ) -> tuple[str | None, tuple[Fault, ...]]:
        """Judge a reading, and hand it to the sink.

        Args:
            calibration: the calibration of the arm.
            newest: servo id -> its newest answer.
            measured: the newest measurements of each joint.

        Returns:
            Why the arm must stop, or None; and the faults. After a contact, `yielded` is set.
        """
        feedbacks = [measured[name] for name in self._arm.names]
        times_ns = np.array([newest[servo].stamp_ns for servo in calibration.ids])
        angle = calibration.angles([one.position for one in feedbacks])
        problem = self._encoders.check(angle.tolist(), (times_ns / 1e9).tolist())
        if problem is not None:
            return self._implausible(problem)
        watch = self._contacts
        if watch is None and self.sink is None:
            return None, ()
        current, duty = (np.array([getattr(one, key) for one in feedbacks]) * calibration.signs for key in _EFFORTS)
        volts = np.array([one.voltage for one in feedbacks])
        now_ns, complete = int(times_ns.max()), bool((times_ns == times_ns[0]).all())
        if self.sink is not None and complete:
            values = {"servo_position": angle, "servo_current": current, "servo_duty": duty, "servo_volts": volts}
            self.sink.write({name: part.astype(np.float32) for name, part in values.items()}, now_ns)
        if watch is None:
            return None, ()
        if complete:
            contact = watch.look(now_ns / 1e9, angle, current, duty)
            if contact is not None and contact.code == "measurement":
                return self._implausible(str(contact))
            if contact is not None:
                self._reason, self.yielded = str(contact), self._resting(angle, volts)
                if not self._yields:
                    return self._reason, (Fault("contact", contact.joint, self._reason),)
        else:
            watch.skip(now_ns / 1e9)
        if watch.silent:
            return "the servos report no current although they are driven, so no contact can be noticed", ()
        faults: tuple[Fault, ...] = ()
        if watch.is_blind:
            text = f"contacts were not judged for {watch.blind_s:.1f} s: readings are lost, late or rare"
            faults += (Fault("contact_blind", "", text),)
        if self._reason is not None:
            faults += (Fault("contact", "", f"{self._reason}; the arm has yielded and takes no goal until a reset"),)
        return None, faults

    def _implausible(self, problem: str) -> tuple[str, tuple[Fault, ...]]:
        self._distrusted = True
        return problem, (Fault("measurement", "", problem),)

    def hold(self, calibration: Calibration, present: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """Return the goals with which a stop holds the arm, steps, (n,).

        After a contact they push against nothing. After an implausible measurement they stay as they are.

        Args:
            calibration: the calibration of the arm.
            present: measured positions, steps, (n,).
            goals: the goals that the servos hold, steps, (n,).
        """
        if self._distrusted:
            return goals
        if self.yielded is not None:
            return np.asarray(calibration.steps(self.yielded))
        most = np.rint(_HOLD_RAD / self._arm.step_rad)
        return np.asarray(present + np.clip(goals - present, -most, most))

    def _resting(self, angle: np.ndarray, volts: np.ndarray) -> np.ndarray:
        """Return the goals with which the servos carry the arm where it is and push against nothing, rad."""
        model = self._model
        assert model is not None  # a contact was found with it
        scale = np.array([joint.torque_constant for joint in model.joints])
        stiffness = self._stiffness * volts
        lead = np.divide(model.carrying(angle) * scale, stiffness, out=np.zeros(len(angle)), where=stiffness > 0)
        return np.asarray(np.clip(angle + np.clip(lead, -_HOLD_RAD, _HOLD_RAD), self._arm.low, self._arm.high))


def _check(model: ContactModel, arm: ArmTable, gains: Mapping[str, Mapping[str, int]]) -> None:
    again = "; make the file again with rlenv-robot sim2real contact"
    if not arm.family.measures_current:
        raise ValueError(f"contact needs servos that measure a current, {arm.family.name} servos here measure none")
    names = tuple(joint.name for joint in model.joints)
    if model.arm != arm.name or names != arm.names:
        raise ValueError(f"the contact model is of {model.arm!r} ({', '.join(names)}), the arm is {arm.name!r}{again}")
    for name, own in gains.items():
        theirs = dict(model.gains.get(name, {}))
        if theirs != dict(own):
            raise ValueError(
                f"the contact model holds for gains {theirs} of {name}, the driver sets {dict(own)}{again}"
            )
