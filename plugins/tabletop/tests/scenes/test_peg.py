from __future__ import annotations

import mujoco
import numpy as np
import pytest

from hal.robots.so101 import HOME, JOINTS
from rlenv_tabletop.robots.peg import PEG_AREA, PEG_HALF, RIM_Z, SOCKET_AREA, SOCKET_TURN
from rlenv_tabletop.scenes.peg import PLAY_M, so101_peg, so101_peg_twin
from sim.batch import SimBatch
from sim.robots.so101 import so101
from sim.robots.twin import thing_factors


def dropped(play_m: float, aside_m: float, turn: float = 0.0) -> np.ndarray:
    """Return where a peg comes to rest that falls from 3 mm above the socket's rim, this far from its middle."""
    model = so101_peg(False, play_m).model
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.qpos[:6] = data.ctrl[:6] = HOME
    socket = data.qpos[6:8].copy()
    data.joint("peg").qpos = (
        socket[0] + aside_m, socket[1], RIM_Z + PEG_HALF[2] + 0.003, np.cos(turn / 2), 0, 0, np.sin(turn / 2),
    )  # fmt: skip
    mujoco.mj_step(model, data, 480)
    place: np.ndarray = data.joint("peg").qpos[:3] - (*socket, PEG_HALF[2])
    return place


def test_the_arm_is_the_single_arm() -> None:
    with_peg, arm = so101_peg().model, so101().model
    assert [with_peg.joint(name).id for name in JOINTS] == list(range(6)), "commands are columns 0 to 5"
    np.testing.assert_array_equal(with_peg.actuator_gainprm, arm.actuator_gainprm)
    np.testing.assert_array_equal(with_peg.opt.timestep, arm.opt.timestep)


@pytest.mark.parametrize("play_m", [0.0005, PLAY_M, 0.006])
def test_a_peg_that_is_let_go_above_the_socket_falls_to_its_ground(play_m: float) -> None:
    """There it stands on the table, and within the socket's play; the walls do not hold it up."""
    place = dropped(play_m, 0.0)
    assert abs(place[2]) < 2e-4
    assert np.abs(place[:2]).max() <= play_m / 2 + 1e-4


def test_the_slope_leads_a_peg_in_and_the_rim_does_not() -> None:
    assert abs(dropped(PLAY_M, 0.0015)[2]) < 2e-4, "half a millimetre beyond the play, the slope leads it in"
    assert np.linalg.norm(dropped(PLAY_M, 0.012)) > 0.01, "12 mm aside it tips over"
    assert dropped(PLAY_M, 0.0, np.pi / 4)[2] > 0.5 * RIM_Z, "turned by an eighth, a square peg does not fit"


def test_a_peg_stands_still_and_is_pressed_into_the_table_less_than_a_fifth_of_a_millimetre() -> None:
    batch = SimBatch(so101_peg(looks=False), 8, 1)
    first = batch.reset(seeds=range(8))
    for _ in range(60):
        state = batch.step(first.applied)
    np.testing.assert_allclose(state.sensors["peg_position"][:, 2], PEG_HALF[2], atol=2e-4)
    np.testing.assert_allclose(state.sensors["peg_position"][:, :2], first.sensors["peg_position"][:, :2], atol=2e-4)


def test_a_seed_places_peg_and_socket_on_different_sides() -> None:
    sensors = SimBatch(so101_peg(looks=False), 64, 1).reset(seeds=range(64)).sensors
    peg, socket = sensors["peg_position"], sensors["socket_position"]
    assert (np.sign(peg[:, 1]) == -np.sign(socket[:, 1])).all()
    assert 0.2 < (peg[:, 1] > 0).mean() < 0.8
    for place, (ahead, aside) in ((peg, PEG_AREA), (socket, SOCKET_AREA)):
        for values, low, high in ((place[:, 0], *ahead), (np.abs(place[:, 1]), *sorted(np.abs(aside)))):
            margin = 0.1 * (high - low)
            assert low - 1e-6 <= values.min() < low + margin < high - margin < values.max() <= high + 1e-6
    assert 0.9 * SOCKET_TURN < np.abs(sensors["socket_yaw"]).max() <= SOCKET_TURN


def test_a_play_out_of_range_is_refused() -> None:
    for play in (0.0, 0.02):
        with pytest.raises(ValueError, match="play_m is"):
            so101_peg(play_m=play)


def test_a_siblings_peg_is_its_own() -> None:
    first, other = (so101_peg_twin(seed).model for seed in (0, 2))
    mass, friction = thing_factors(2)
    np.testing.assert_allclose(other.body("peg").mass, mass * first.body("peg").mass)
    np.testing.assert_allclose(other.geom("peg").friction[0], friction * first.geom("peg").friction[0])
    assert so101_peg_twin(2).spec.digest == so101_peg().spec.digest
