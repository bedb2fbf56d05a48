"""Scenes on the SO-101's table: they are where sensors say, stay where they are left, and a twin has others."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from hal.robots.so101 import CHAIN, HIGH, HOME, JOINTS, LOW, forward_kinematics
from rlenv_robot.robot_models import find_robot_model
from rlenv_tabletop.robots import (
    APART,
    BAR_HALF,
    BOX_AREA,
    BOX_TURN,
    CABINET_AREA,
    CABINET_TURN,
    GRIP_HALF,
    HANDLE_HALF,
    PEG_AREA,
    PEG_HALF,
    RIM_Z,
    SIDES,
    SO101_PAIR,
    SOCKET_AREA,
    SOCKET_TURN,
    TRAVEL,
    TRAYS,
    WIDEST,
    grip_position,
    handle_position,
    lid_normal,
)
from rlenv_tabletop.scenes import (
    BAR_AREA,
    BAR_TURN,
    PLAY_M,
    so101_box,
    so101_cabinet,
    so101_pair,
    so101_pair_twin,
    so101_peg,
    so101_table,
    so101_table_twin,
)
from sim.batch import SimBatch
from sim.robot import SimRobot
from sim.robots.so101 import so101
from sim.robots.twin import IDENTIFIED, so101_cube_twin, thing_factors

SCENES = ["so101-box", "so101-cabinet", "so101-peg", "so101-table-3", "so101-pair"]


@pytest.mark.parametrize("name", SCENES)
def test_the_arms_are_the_single_arm(name: str) -> None:
    scene, arm = find_robot_model(name).make_sim_model().model, so101().model
    for option in ("timestep", "integrator", "cone", "impratio", "gravity"):
        np.testing.assert_array_equal(getattr(scene.opt, option), getattr(arm.opt, option), err_msg=option)
    for side in ("left_", "right_") if name == "so101-pair" else ("",):
        joints = [scene.joint(f"{side}{joint}").id for joint in JOINTS]
        if not side:
            assert joints == list(range(6)), "commands are columns 0 to 5"
        np.testing.assert_array_equal(scene.jnt_range[joints], arm.jnt_range)
        actuators = [scene.actuator(f"{side}{joint}").id for joint in JOINTS]
        np.testing.assert_array_equal(scene.actuator_gainprm[actuators], arm.actuator_gainprm)
        np.testing.assert_array_equal(scene.actuator_forcerange[actuators], arm.actuator_forcerange)
        for body in ("gripper", "jaw"):
            np.testing.assert_array_equal(scene.body(f"{side}{body}").mass, arm.body(body).mass)


@pytest.mark.parametrize("name", SCENES)
def test_the_motion_is_the_same_without_visual_parts(name: str) -> None:
    robot, rng = find_robot_model(name), np.random.default_rng(2)
    batches = [SimBatch(robot.make_sim_model(looks=looks), 4, 1) for looks in (True, False)]
    for batch in batches:
        batch.reset(seeds=range(4))
    for _ in range(30):
        commands = batches[0].spec.commands.sample(rng, (4,))
        with_looks, without = (batch.step(commands).sensors for batch in batches)
    for sensor, value in with_looks.items():
        np.testing.assert_array_equal(value, without[sensor], err_msg=sensor)


@pytest.mark.parametrize(
    ("name", "things", "parts"),
    [
        ("so101-box", (), ("lid",)), ("so101-cabinet", (), ("drawer",)), ("so101-peg", ("peg",), ()),
        ("so101-pair", ("bar",), ()), ("so101-table-3", ("red_cube", "green_cube", "blue_cube"), ()),
    ],
)  # fmt: skip
def test_a_siblings_things_are_its_own(name: str, things: tuple[str, ...], parts: tuple[str, ...]) -> None:
    robot = find_robot_model(name)
    nominal, first, other = (model.model for model in (robot.make_sim_model(), robot.make_twin(0), robot.make_twin(2)))
    mass, friction = thing_factors(2)
    for body in (*things, *parts):
        np.testing.assert_array_equal(first.body(body).mass, nominal.body(body).mass)
        np.testing.assert_allclose(other.body(body).mass, mass * first.body(body).mass)
    for geom in things:
        np.testing.assert_allclose(other.geom(geom).friction[0], friction * first.geom(geom).friction[0])
    for joint in parts:
        own, before = (model.dof_frictionloss[model.joint(joint).dofadr[0]] for model in (other, first))
        np.testing.assert_allclose(own, friction * before)
    assert robot.make_twin(2).spec.digest == robot.load_spec().digest


@pytest.mark.parametrize(
    ("make", "thing", "place", "area", "turn", "drawn"),
    [
        (so101_box, "box", "lid_angle", BOX_AREA, BOX_TURN, (0.2, 0.6)),
        (so101_cabinet, "cabinet", "drawer_opening", CABINET_AREA, CABINET_TURN, (0.02, 0.06)),
    ],
    ids=["box", "cabinet"],
)
def test_a_seed_places_a_clamped_thing_and_its_part(
    make: Any, thing: str, place: str, area: Any, turn: float, drawn: tuple[float, float]
) -> None:
    batch = SimBatch(make(False, drawn), 64, 1)
    state = batch.reset(seeds=range(64))
    position, yaw = state.sensors[f"{thing}_position"], state.sensors[f"{thing}_yaw"][:, 0]
    for axis, (low, high) in enumerate(area):
        values, margin = position[:, axis], 0.1 * (high - low)
        assert low - 1e-6 <= values.min() < low + margin < high - margin < values.max() <= high + 1e-6
    heading = np.arctan2(position[:, 1], position[:, 0] - CHAIN[0].offset[0])
    assert 0.9 * turn < np.abs(yaw - heading).max() <= turn + 1e-6
    places, (low, high), margin = state.sensors[place], drawn, 0.125 * (drawn[1] - drawn[0])
    assert low <= places.min() < low + margin < high - margin < places.max() <= high
    for _ in range(15):
        state = batch.step(state.applied)
    np.testing.assert_allclose(state.sensors[f"{thing}_position"], position, atol=1e-5)
    for wrong in ((high, low), (low, 2.0)):
        with pytest.raises(ValueError, match=" is "):
            make(False, wrong)


# -- A box ---------------------------------------------------------------------------------------------------


def box_model() -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = so101_box(looks=False).model
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.qpos[:6] = data.ctrl[:6] = HOME  # out of the lid's way
    return model, data


def test_the_handle_of_a_lid_is_where_marker_and_encoder_say() -> None:
    """The place and the direction that task and script go by are those of the solid which the fingers touch."""
    model, data = box_model()
    for angle in (0.0, 0.5, WIDEST):
        for joint, change in (("box_x", 0.02), ("box_y", -0.03), ("box_yaw", 0.2)):
            data.joint(joint).qpos += change
        data.joint("lid").qpos = angle
        mujoco.mj_kinematics(model, data)
        x, y, yaw = (data.joint(joint).qpos for joint in ("box_x", "box_y", "box_yaw"))
        told = grip_position(np.concatenate([x, y]), yaw, np.array([angle]))
        np.testing.assert_allclose(data.geom("handle").xpos, told, atol=1e-9)
        upwards = data.geom("handle").xmat.reshape(3, 3)[:, 2]
        np.testing.assert_allclose(lid_normal(yaw, np.array([angle])), upwards, atol=1e-9)
    np.testing.assert_allclose(model.geom("handle").size, GRIP_HALF)


def test_a_lid_stays_where_it_is_left() -> None:
    """Less than a degree in ten seconds, from the angle where gravity pulls the most on."""
    model, data = box_model()
    for angle in (0.1, 0.6, 1.0):
        data.joint("lid").qpos, data.joint("lid").qvel = angle, 0.0
        mujoco.mj_step(model, data, 2400)
        assert abs(data.joint("lid").qpos[0] - angle) < np.radians(1.0)


def test_a_newton_metre_turns_the_lid_less_than_a_degree_beyond_its_stops() -> None:
    model, data = box_model()
    for torque, end in ((1.0, WIDEST), (-1.0, 0.0)):
        data.qfrc_applied[model.joint("lid").dofadr[0]] = torque
        mujoco.mj_step(model, data, 480)
        assert abs(data.joint("lid").qpos[0] - end) < np.radians(1.0)


# -- A cabinet -----------------------------------------------------------------------------------------------


ENDS = (("cabinet_x", 0.02), ("cabinet_y", -0.03), ("cabinet_yaw", 0.2))


def drawer_model() -> tuple[mujoco.MjModel, mujoco.MjData]:
    model = so101_cabinet(looks=False).model
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    data.qpos[:6] = data.ctrl[:6] = HOME  # out of the drawer's way
    return model, data


def test_the_handle_is_where_marker_and_encoder_say() -> None:
    """The place that the task judges by is that of the solid which the fingers touch."""
    model, data = drawer_model()
    for opening in (0.0, 0.03, TRAVEL):
        for joint, change in ENDS:
            data.joint(joint).qpos += change
        data.joint("drawer").qpos = opening
        mujoco.mj_kinematics(model, data)
        x, y, yaw = (data.joint(joint).qpos for joint, _ in ENDS)
        told = handle_position(np.concatenate([x, y]), yaw, np.array([opening]))
        np.testing.assert_allclose(data.geom("handle").xpos, told, atol=1e-9)
    np.testing.assert_allclose(model.geom("handle").size, HANDLE_HALF)


def test_a_force_below_its_friction_moves_the_drawer_less_than_a_millimetre_in_ten_seconds() -> None:
    model, data = drawer_model()
    data.joint("drawer").qpos = 0.05
    data.qfrc_applied[model.joint("drawer").dofadr[0]] = 0.5
    mujoco.mj_step(model, data, 2400)
    assert abs(data.joint("drawer").qpos[0] - 0.05) < 1e-3


def test_ten_newtons_press_the_drawer_less_than_a_millimetre_into_its_stops() -> None:
    model, data = drawer_model()
    for force, end in ((10.0, TRAVEL), (-10.0, 0.0)):
        data.qfrc_applied[model.joint("drawer").dofadr[0]] = force
        mujoco.mj_step(model, data, 480)
        assert abs(data.joint("drawer").qpos[0] - end) < 1e-3


def test_the_arm_cannot_push_the_cabinet_away() -> None:
    """Ten seconds of 30 N at the front, about what the shoulder's 3.25 N m give at 0.1 m."""
    model, data = drawer_model()
    before = data.qpos[6:9].copy()
    data.body("cabinet").xfrc_applied[:] = (30.0, 30.0, 0.0, 0.0, 0.0, 3.0)
    mujoco.mj_step(model, data, 2400)
    np.testing.assert_allclose(data.qpos[6:9], before, atol=5e-4)


def test_a_closed_drawer_stays_closed() -> None:
    batch = SimBatch(so101_cabinet(looks=False), 64, 1)
    state = batch.reset(seeds=range(64))
    for _ in range(15):
        state = batch.step(state.applied)
    np.testing.assert_allclose(state.sensors["drawer_opening"], 0.0, atol=1e-4)


# -- A peg ---------------------------------------------------------------------------------------------------


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


# -- Cubes ---------------------------------------------------------------------------------------------------


def test_trays_are_squares_of_70_mm_that_nothing_touches() -> None:
    models = [so101_table(2, looks=looks, trays=trays) for looks, trays in ((True, True), (True, False), (False, True))]
    with_trays, without, bare = (sim_model.model for sim_model in models)
    assert with_trays.ngeom == without.ngeom + len(TRAYS)
    assert all(mujoco.mj_name2id(bare, mujoco.mjtObj.mjOBJ_GEOM, f"{name}_tray") < 0 for name in TRAYS)
    for name, (x, y) in TRAYS.items():
        tray = with_trays.geom(f"{name}_tray")
        np.testing.assert_allclose([*tray.pos[:2], *tray.size[:2]], [x, y, 0.035, 0.035])
        assert not tray.contype[0]
        assert not tray.conaffinity[0]
    states = []
    for sim_model in models:
        batch = SimBatch(sim_model, 2, 1)
        batch.reset(seeds=(1, 2))
        for _ in range(10):
            state = batch.step({"joint_target": np.tile(np.float32(HOME), (2, 1))})
        states.append(state.sensors)
    for other in states[1:]:
        for name, values in states[0].items():
            np.testing.assert_array_equal(values, other[name])


@pytest.mark.parametrize("seed", [0, 3])
def test_a_twin_at_a_table_is_the_arm_of_that_seed(seed: int) -> None:
    twin, same_arm = so101_table_twin(3, seed=seed).model, so101_cube_twin(seed).model
    np.testing.assert_array_equal(twin.dof_damping[:6], same_arm.dof_damping[:6])
    np.testing.assert_array_equal(twin.actuator_gainprm, same_arm.actuator_gainprm)


# -- Two arms ------------------------------------------------------------------------------------------------


def test_each_gripper_position_is_in_the_frame_of_its_own_base() -> None:
    robot, rng = SimRobot(so101_pair()), np.random.default_rng(0)
    for _ in range(20):
        start = {f"{side}_joint_target": rng.uniform(LOW, HIGH).astype(np.float32) for side in SIDES}
        sensors = robot.reset({"start": start}).sensors
        for side in SIDES:
            wanted = forward_kinematics(start[f"{side}_joint_target"].astype(float))
            np.testing.assert_allclose(sensors[f"{side}_gripper_position"], wanted, atol=1e-6)


def test_the_right_base_is_ahead_and_faces_back() -> None:
    model = so101_pair().model
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    np.testing.assert_allclose(data.body("right_base").xpos, [APART, 0, 0], atol=1e-9)
    np.testing.assert_allclose(data.body("right_base").xmat.reshape(3, 3)[:, 0], [-1, 0, 0], atol=1e-9)


def test_the_arms_collide_with_each_other() -> None:
    """Both reach for the middle of the table: on it there is room for one."""
    robot = SimRobot(so101_pair(looks=False))
    robot.reset({"seed": 1})
    goal = np.float32([0.0, 0.2, 0.2, 0.4, 0.0, 0.0])
    for _ in range(60):
        sensors = robot.step({f"{side}_joint_target": goal for side in SIDES}).sensors
    alone = forward_kinematics(goal.astype(float))
    assert 2 * alone[0] > APART + 0.02, "they would pass through each other"
    errors = [np.abs(sensors[f"{side}_joint_position"] - goal).max() for side in SIDES]
    assert min(errors) > 0.02, "they hold each other off"


def test_a_seed_places_the_bar() -> None:
    batch = SimBatch(so101_pair(), 64, 1)
    robot_state = batch.reset(seeds=range(64))
    place, turn = robot_state.sensors["bar_position"], robot_state.sensors["bar_orientation"]
    for axis, (low, high) in enumerate(BAR_AREA):
        assert low <= place[:, axis].min() < low + 0.01 < high - 0.01 < place[:, axis].max() <= high
    assert np.abs(2 * np.arcsin(turn[:, 3])).max() <= BAR_TURN + 1e-6
    for _ in range(10):
        held = {name: robot_state.applied[name] for name in SO101_PAIR.commands.names}
        robot_state = batch.step(held)
    np.testing.assert_allclose(robot_state.sensors["bar_position"][:, 2], BAR_HALF[2], atol=1e-3)
    np.testing.assert_allclose(robot_state.sensors["bar_velocity"], 0, atol=1e-3)


def test_arms_of_a_pair_have_their_own_bits() -> None:
    """Links of one arm collide with that arm's by their boxes, and with the other arm's by their solids."""
    pair = so101_pair(looks=False).model
    kinds = {
        (pair.geom(name).contype[0] & 24, pair.geom(name).conaffinity[0] & 24)
        for name in ("left_shoulder_shell", "left_wrist_shell", "right_shoulder_shell", "right_wrist_shell")
    }
    assert kinds == {(8, 0), (0, 8), (16, 0), (0, 16)}
    for side, bits in (("left", (1, 4 + 8)), ("right", (5, 16))):
        pad = pair.geom(f"{side}_jaw_finger")
        assert (pad.contype[0], pad.conaffinity[0]) == bits


def test_the_two_arms_of_a_pair_are_two_arms() -> None:
    same, different = so101_pair_twin().model, so101_pair_twin(3).model
    assert so101_pair_twin(3).spec.digest == SO101_PAIR.digest
    for model, equal in ((same, True), (different, False)):
        gains = [[model.actuator(f"{side}_{name}").gainprm[0] for name in ("elbow_flex", "gripper")] for side in SIDES]
        assert (gains[0] == gains[1]) is equal
    wanted = [IDENTIFIED.stiffness[2], IDENTIFIED.stiffness[5]]
    assert [same.actuator(f"left_{name}").gainprm[0] for name in ("elbow_flex", "gripper")] == wanted


def test_the_guard_lets_no_command_ask_for_more_than_the_motors_make() -> None:
    for command, velocity in SO101_PAIR.limits.max_velocity.items():
        assert velocity <= SO101_PAIR.max_rate[SO101_PAIR.measured_by[command]]
