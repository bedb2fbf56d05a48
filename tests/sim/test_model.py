from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import mujoco
import numpy as np
import pytest

from hal import Field, Spec, SpecError
from sim.batch import SimBatch
from sim.mjcf.robot import from_mjcf
from sim.model import Columns, SimModel, as_slice, at_rate
from sim.robot import SimRobot
from sim.robots.so101 import so101
from sim.state import SensorReader, _in_rows


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ((3,), slice(3, 4, 1)),
        ((2, 3, 4), slice(2, 5, 1)),
        ((0, 2, 4), slice(0, 5, 2)),
        ((2, 0), (2, 0)),
        ((0, 1, 3), (0, 1, 3)),
        ((), ()),
        (slice(1, 4), slice(1, 4)),
    ],
)
def test_evenly_spaced_columns_become_a_slice(indices: Any, expected: Any) -> None:
    assert as_slice(indices) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"substeps": 4}, r"4 substeps of 0.01 s are 0.04 s, .* 20 Hz is 0.05 s; change the timestep .* to 0.0125"),
        ({"substeps": 0}, "0 substeps"),
        ({"sensors": {}}, "sensors are given for"),
        ({"commands": {"torque": (0, 2)}}, "commands are given for"),
        ({"commands": {"torque": (0, 3), "bend": (1,)}}, r"commands.torque picks \[0, 3\] of the 3 numbers in ctrl"),
        ({"commands": {"torque": (0,), "bend": (1,)}}, "expected 2 of them"),
        ({"start": {"bend": (7,)}}, "start.bend picks"),
        ({"start": {"bent": (1,)}}, "start names"),
        ({"keyframe": 1}, "keyframe 1 is not in the model, it has 1"),
    ],
)
def test_parts_that_contradict_each_other_are_refused(pendulum: SimModel, change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        replace(pendulum, **change)


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (Columns("qpso"), "sensor 'angles' reads 'qpso'.*qpos"),
        (Columns("qpos", (2, 0, 9)), "which has 3"),
        (Columns("qpos", slice(0, 2)), r"is read with shape \(2, 2\), the spec says \(2, 3\)"),
    ],
)
def test_a_sensor_of_a_missing_field_or_shape_is_refused(pendulum: SimModel, reader: Columns, message: str) -> None:
    broken = replace(pendulum, sensors={**pendulum.sensors, "angles": reader})
    with pytest.raises(SpecError, match=message):
        SimBatch(broken, 2, 1)


@pytest.mark.parametrize(
    ("derived", "sensors", "needs_own_model"),
    [
        ("fresh", {}, True),  # a step begins where the one before computed site_xmat
        ("as_stepped", {}, False),
        ("as_stepped", {"angles": Columns("qacc")}, True),
        ("fresh", {"frame": Columns("qpos", (0,) * 9)}, False),
    ],
)
def test_simulations_have_models_of_their_own_only_where_needed(
    pendulum: SimModel, derived: Literal["fresh", "as_stepped"], sensors: dict[str, Columns], needs_own_model: bool
) -> None:
    assert (
        replace(pendulum, derived=derived, sensors={**pendulum.sensors, **sensors}).needs_own_model == needs_own_model
    )


TOUCHED = """
<mujoco>
  <worldbody>
    <body name="ball" pos="0 0 1"><freejoint/><geom size="0.1"/><site name="skin" size="0.2"/></body>
    <body><joint name="rail" type="slide"/><geom size="0.1"/></body>
  </worldbody>
  <actuator><motor name="drive" joint="rail" ctrlrange="-1 1"/></actuator>
  <sensor><touch site="skin"/><framepos objtype="site" objname="skin"/></sensor>
</mujoco>
"""


@pytest.mark.parametrize(
    ("field", "columns", "size", "refreshed"),
    [
        ("qvel", slice(0, 6), 6, "nothing"),
        ("sensordata", (0,), 1, "nothing"),  # a force: it belongs to the step that computed it
        ("sensordata", (0, 3), 2, "all"),
        ("site_xpos", slice(None), 3, "poses"),
        ("cvel", slice(6, 12), 6, "all"),
    ],
)
def test_only_what_sensors_read_is_derived_again(field: str, columns: Any, size: int, refreshed: str) -> None:
    model = from_mjcf(TOUCHED, rate_hz=500)
    read = Field("read", (size,), "float32", -1e6, 1e6, "1")
    spec = replace(model.spec, sensors=Spec("sensors", (read,)))
    changed = replace(model, spec=spec, sensors={"read": Columns(field, columns)})
    assert changed.refreshed == refreshed
    assert replace(changed, derived="as_stepped").refreshed == "nothing"


def test_simulations_of_a_model_that_sleeps_have_models_of_their_own(pendulum: SimModel, pendulum_xml: str) -> None:
    option = '<option timestep="0.01" integrator="implicitfast"'
    asleep = pendulum_xml.replace(f"{option}/>", f'{option}><flag sleep="enable"/></option>')
    sleeping = replace(pendulum, model=mujoco.MjModel.from_xml_string(asleep), derived="as_stepped")
    assert sleeping.needs_own_model
    SimBatch(sleeping, 2, 1).reset()


def test_eight_steps_at_240_hz_equal_one_at_30_hz() -> None:
    slow, fast = SimRobot(so101(looks=False)), SimRobot(at_rate(so101(looks=False), 240.0))
    assert fast.spec.rate_hz == 240
    command = {"joint_target": np.array([0.2, -1.0, 1.0, 0.5, 0.1, 0.3], np.float32)}
    slow.reset({"seed": 1})
    fast.reset({"seed": 1})
    for _ in range(10):
        robot_state = slow.step(command)
        for _ in range(8):
            fast_state = fast.step(command)
        for name, value in robot_state.sensors.items():
            np.testing.assert_array_equal(value, fast_state.sensors[name])
    slow.close()
    fast.close()


@pytest.mark.parametrize("rate_hz", [500.0, 100.0, 0.0, -1.0])
def test_a_rate_that_the_timestep_does_not_divide_is_refused_with_those_allowed(rate_hz: float) -> None:
    with pytest.raises(SpecError, match="240, 120, 80, 60"):
        at_rate(so101(looks=False), rate_hz)


@pytest.mark.parametrize(
    ("columns", "shape", "is_view"),
    [
        ((0, 1, 2, 4, 5, 6), (2, 3), True),  # as positions of free bodies
        ((1, 3, 2, 4), (2, 2), True),
        ((0, 1, 3, 4, 5, 6), (2, 3), False),
        ((4, 5, 6, 0, 1, 2), (2, 3), False),
        ((0, 1, 2, 4, 5, 6), (6,), False),
    ],
)
def test_columns_in_even_rows_are_read_as_they_are_by_number(
    columns: tuple[int, ...], shape: tuple[int, ...], is_view: bool
) -> None:
    model = from_mjcf(TOUCHED, rate_hz=500)
    read = Field("read", shape, "float32", -1e6, 1e6, "1")
    changed = replace(
        model, spec=replace(model.spec, sensors=Spec("sensors", (read,))), sensors={"read": Columns("qpos", columns)}
    )
    assert changed.model.nq == 8
    for row in (None, 1):
        batch = SimBatch(changed, 3, 1)
        batch.reset()
        qpos = batch.open_batch.bind("qpos")
        qpos[:] = np.arange(24).reshape(3, 8)
        reader = SensorReader(batch.open_batch, changed, row)
        expected = qpos[:, columns].reshape(3, *shape)
        np.testing.assert_array_equal(reader.read()["read"], expected if row is None else expected[row])
        assert (_in_rows(qpos, np.array(columns), shape) is not None) == is_view
