"""`go2-walk`: what its functions say of postures and velocities that one can judge by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlenv_robot as rr
from hal.robots.go2 import GO2, STANCE
from recorder.read.reader import LogReader
from rlenv_robot.tasks.episode_rules import EpisodeRules, RecentReadings
from rlenv_robot.tasks.walk import Walk
from rlenv_robot.vector.env import VectorEnvironment, VectorSnapshot
from sim.batch import SimBatch
from sim.robots.go2 import go2

ROOT = Path(__file__).parents[3]
STILL = {"forward": (0, 0), "sideways": (0, 0), "turning": (0, 0)}


def posture(**changed: object) -> dict[str, np.ndarray]:
    """Standing still and upright."""
    sensors = {field.name: np.zeros(field.shape, field.numpy_dtype) for field in GO2.sensors}
    sensors["joint_position"][:] = sensors["joint_goal"][:] = STANCE
    sensors["orientation"][0], sensors["position"][2] = 1.0, 0.28
    return sensors | {name: np.asarray(value, np.float32) for name, value in changed.items()}


def commanded(forward: float = 0.0, left: float = 0.0, turn: float = 0.0) -> dict[str, np.ndarray]:
    return {
        "commanded_velocity": np.array([forward, left], np.float32),
        "commanded_turning": np.array([turn], np.float32),
    }


def reward(goal: dict[str, np.ndarray], **changed: object) -> float:
    return float(Walk().reward(posture(), {}, posture(**changed), goal))


def test_obeying_calmly_is_worth_the_most():
    assert reward(commanded()) == pytest.approx(1.5)
    walking = {"linear_velocity": (0.8, 0.1, 0.0), "angular_velocity": (0.0, 0.0, 0.4)}
    assert reward(commanded(0.8, 0.1, 0.4), **walking) == pytest.approx(1.5)
    assert reward(commanded(0.8)) == pytest.approx(np.exp(-4 * 0.64) + 0.5)
    assert reward(commanded(turn=0.5)) == pytest.approx(1.0 + 0.5 * np.exp(-1.0))


@pytest.mark.parametrize(
    ("changed", "less"),
    [
        ({"linear_velocity": (0, 0, 0.4)}, 0.5 * 0.16),
        ({"angular_velocity": (1.0, 0.5, 0)}, 0.02 * 1.25),
        ({"joint_torque": np.full(12, 10.0)}, 2e-5 * 1200),
        ({"joint_position": np.asarray(STANCE) + 0.5}, 0.02 * 12 * 0.25),
        ({"joint_goal": np.asarray(STANCE) + 0.25}, 0.01 * 12 * 0.25),
        ({"orientation": (np.cos(0.1), np.sin(0.1), 0, 0)}, np.sin(0.2) ** 2),
    ],
)
def test_each_kind_of_unrest_costs_what_the_task_says(changed, less):
    assert reward(commanded(), **changed) == pytest.approx(1.5 - less, abs=1e-5)


@pytest.mark.parametrize(
    ("turn", "down"),
    [((1, 0, 0, 0), (0, 0, -1)), ((0, 1, 0, 0), (0, 0, 1)), ((0.5**0.5, 0, 0.5**0.5, 0), (1, 0, 0)),
     ((0.5**0.5, 0.5**0.5, 0, 0), (0, -1, 0)), ((0.5**0.5, 0, 0, 0.5**0.5), (0, 0, -1))],
)  # fmt: skip
def test_gravity_is_seen_in_the_trunks_frame(turn, down):
    obs = Walk().observe(posture(orientation=turn), commanded())["projected_gravity"]
    assert np.allclose(obs, down, atol=1e-6)


def test_lying_or_leaning_ends_it():
    task = Walk()
    assert not task.terminated(posture(), commanded())
    assert task.terminated(posture(position=(0, 0, 0.1)), commanded())
    lean = np.deg2rad(65) / 2
    assert task.terminated(posture(orientation=(np.cos(lean), 0, np.sin(lean), 0)), commanded())


def test_an_action_comes_back_as_the_last_action():
    task = Walk()
    action = {"joint_offset": np.linspace(-1, 1, 12, dtype=np.float32)}
    held = task.command(action, posture())
    GO2.commands.validate(held, "command")
    obs = task.observe(posture(joint_goal=held["joint_target"]), commanded())
    task.observation.validate(obs, "observation")
    assert np.allclose(obs["last_action"], action["joint_offset"], atol=1e-6)


def test_three_commands_in_a_hundred_are_to_stand_and_all_keep_their_ranges():
    task = Walk(forward=(0.2, 0.8), sideways=(0.0, 0.0))
    rng = np.random.default_rng(0)
    goals = [task.begin(rng, {}).goal for _ in range(500)]
    velocity = np.stack([goal["commanded_velocity"] for goal in goals])
    moving = velocity[:, 0] != 0
    assert 0.95 < moving.mean() < 0.99
    assert velocity[moving, 0].min() >= 0.2
    assert velocity[:, 0].max() <= 0.8
    assert not velocity[:, 1].any()


@pytest.mark.parametrize(
    "wrong",
    [
        {"action_scale": 1.0},
        {"forward": (1.0, 0.5)},
        {"turning": (-3, 1)},
        {"steps": 0},
        {"tolerance": 0.0},
        {"turning_tolerance": -1.0},
    ],
)
def test_settings_that_could_not_work_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Walk(**wrong)


def test_standing_still_when_told_so_is_success():
    env = VectorEnvironment(SimBatch(go2(looks=False), 2, 1), Walk(steps=60, **STILL), seed=0)
    table = env.reset()
    for _ in range(60):
        still = {"joint_offset": np.zeros((2, 12), np.float32)}
        table, _ = env.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": still})
    final = table["extra_info"]["final"]
    assert final["success"].all()
    assert final["frame_no"].tolist() == [60, 60]
    assert set(table["extra_info"]["state"]) == {"linear_velocity", "height", "foot_force"}


def outcome(readings: list[dict[str, np.ndarray]], goal: dict[str, np.ndarray]) -> tuple[bool, dict[str, float]]:
    """Return success and metrics of an episode with these readings."""
    task, recent = Walk(), RecentReadings(Walk())
    for reading in readings:
        recent.add(reading)
    result = EpisodeRules(task, GO2, "training").outcome(readings[-1], goal, False, recent)
    return bool(result.success), {name: float(value) for name, value in result.metrics.items()}


def test_a_lucky_last_step_is_no_success():
    standing, obeying = posture(), posture(linear_velocity=(0.8, 0, 0))
    assert outcome([standing] * 99 + [obeying], commanded(0.8)) == (
        False, {"velocity_error_m_s": pytest.approx(0.8 * 0.99), "turning_error_rad_s": 0.0}
    )  # fmt: skip
    assert Walk().success(obeying, commanded(0.8)), "the last reading alone would be one"


def test_a_bad_last_step_and_a_slow_beginning_are_forgiven():
    slow, obeying = posture(), posture(linear_velocity=(0.8, 0, 0))
    good, means = outcome([slow] * 300 + [obeying] * 99 + [slow], commanded(0.8))
    assert good
    assert means["velocity_error_m_s"] == pytest.approx(0.008)


@pytest.mark.parametrize(("turning", "good"), [(0.15, True), (0.25, False)])
def test_turning_counts_as_much_as_velocity(turning, good):
    assert outcome([posture(angular_velocity=(0, 0, turning))] * 100, commanded())[0] == good


def test_a_fallen_robot_has_not_succeeded():
    assert not outcome([posture()] * 100 + [posture(position=(0, 0, 0.1))], commanded())[0]


@pytest.mark.slow
def test_standing_still_fulfils_at_most_one_command_in_ten():
    envs = VectorEnvironment(SimBatch(go2(looks=False), 400, 1), Walk(steps=110), seed=1)
    table = envs.reset()
    for _ in range(110):
        still = {"joint_offset": np.zeros((400, 12), np.float32)}
        table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": still})
    assert 0.02 < table["extra_info"]["final"]["success"].mean() <= 0.1


def test_the_average_goes_on_after_a_snapshot():
    rng, finals = np.random.default_rng(0), []
    envs = VectorEnvironment(SimBatch(go2(looks=False), 3, 1), Walk(steps=40), seed=1)
    table = envs.reset()
    actions = rng.uniform(-0.2, 0.2, (40, 3, 12)).astype(np.float32)
    for step in range(20):
        table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"],
                              "action": {"joint_offset": actions[step]}})  # fmt: skip
    kept = VectorSnapshot.from_bytes(envs.snapshot().to_bytes())
    for _ in range(2):
        table = envs.restore(kept)
        for step in range(20, 40):
            table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"],
                                  "action": {"joint_offset": actions[step]}})  # fmt: skip
        finals.append(table["extra_info"]["final"]["metrics"])
    for name, value in finals[0].items():
        np.testing.assert_array_equal(value, finals[1][name], err_msg=name)
    assert (finals[0]["velocity_error_m_s"] > 0).all()


# -- courses: terrain, scans, pushes, noise, commands that change ------------------------------------------


HOLD = {"command_hold_s": (0.5, 1.0), "steps": 300}


def stand(envs: VectorEnvironment, table: dict, steps: int) -> list[dict]:
    """Stand still for some steps and return the tables."""
    tables = []
    for _ in range(steps):
        still = {"joint_offset": np.zeros((envs.num_envs, 12), np.float32)}
        table, _ = envs.step({"env_id": table["env_id"], "frame_no": table["frame_no"], "action": still})
        tables.append(table)
    return tables


@given(low=st.integers(25, 200), more=st.integers(0, 3), cents=st.integers(0, 1), steps=st.integers(1, 700))
def test_every_draw_of_changing_commands_has_the_goal_s_shape(low: int, more: int, cents: int, steps: int):
    shortest = low / 50 + cents / 200  # a period's boundary, or a quarter beside it
    task = Walk(command_hold_s=(shortest, shortest + more / 50), steps=steps)
    for seed in range(3):
        task.goal.validate(dict(task.begin(np.random.default_rng(seed), {}).goal), "goal")


def test_the_command_changes_at_its_time_and_is_observed_and_rewarded():
    task = Walk(**HOLD)
    envs = rr.make_vector(task, 2, seed=3, threads=1)
    env = rr.make(Walk(**HOLD))
    table = envs.reset()
    goal = {name: value.copy() for name, value in envs.snapshot().goal.items()}
    assert goal["commanded_velocity"].shape == (2, task.commands, 2)
    changes = np.round(goal["command_until"] * 50).astype(int)
    single = env.reset({"seed": 0, "goal": {name: value[1] for name, value in goal.items()}})
    seen = [table["observation"], *(table["observation"] for table in stand(envs, table, 160))]
    held = [0, 0]
    for frame, observation in enumerate(seen):
        for row in range(2):
            held[row] += frame == changes[row, held[row]]
            for name in ("commanded_velocity", "commanded_turning"):
                assert np.array_equal(observation[name][row], goal[name][row, held[row]])
        assert np.array_equal(single["observation"]["commanded_velocity"], observation["commanded_velocity"][1])
        action = {"joint_offset": np.zeros(12, np.float32)}
        single, _ = env.step({"env_id": env.env_id, "frame_no": single["frame_no"], "action": action})
    assert min(held) >= 2, "it did change"
    sensors = posture(elapsed=[0.25], linear_velocity=(0.8, 0, 0), ground_height=[0.0])
    two = {
        "commanded_velocity": np.array([[0.8, 0], [0, 0]] + [[0, 0]] * (task.commands - 2), np.float32),
        "commanded_turning": np.zeros((task.commands, 1), np.float32),
        "command_until": np.array([0.24] + [6.0] * (task.commands - 1), np.float32),
    }
    earlier = sensors | {"elapsed": np.array([0.22], np.float32)}
    assert task.error(earlier, two) == pytest.approx(0.0)
    assert task.error(sensors, two) == pytest.approx(0.8)
    assert task.reward(earlier, {}, sensors, two) == pytest.approx(1.5), "the command that was acted on counts"


def test_changes_keep_their_ranges_and_leave_the_judged_end_alone():
    task, rng = Walk(**HOLD, forward=(0.2, 0.8)), np.random.default_rng(0)
    for _ in range(50):
        goal = task.begin(rng, {}).goal
        task.goal.validate(goal, "goal")
        until = goal["command_until"]
        length, changes = task.steps / 50, until[until < task.steps / 50]
        assert changes.max() <= length - 3.0 + 0.01
        gaps = np.diff(np.concatenate([[0.0], changes]))
        assert gaps.min() > 0.48
        assert gaps.max() < 1.02
    again = task.hindsight({
        "linear_velocity": np.full((4, 2, 3), 0.5), "angular_velocity": np.full((4, 2, 3), 0.1)
    })  # fmt: skip
    assert {name: value.shape for name, value in again.items()} == {
        "commanded_velocity": (2, task.commands, 2), "commanded_turning": (2, task.commands, 1),
        "command_until": (2, task.commands),
    }  # fmt: skip


def test_height_counts_from_the_ground_and_the_scan_is_where_the_task_says():
    envs = rr.make_vector("go2-walk", 3, seed=1, threads=1, terrain="stairs", terrain_height=0.15, height_scan=(5, 3),
                          height_scan_in="state", torques=True)  # fmt: skip
    table = envs.reset()
    state = table["extra_info"]["state"]
    assert list(state) == ["linear_velocity", "height", "foot_force", "joint_torque", "height_scan"]
    assert "height_scan" not in table["observation"]
    assert envs.task.observation == Walk().observation, "a policy trained there runs on flat ground"
    assert np.allclose(state["height"], 0.288, atol=0.01), "on a landing, whatever its height"
    assert not envs.task.terminated(posture(ground_height=[-0.5], position=(0, 0, -0.3)), commanded())
    env = rr.make("go2-walk", terrain="rough", height_scan=[5, 3])
    observation = env.reset({"seed": 1})["observation"]
    assert list(observation)[-1] == "height_scan"
    assert observation["height_scan"].shape == (5, 3)


def test_noise_of_a_sensor_has_the_stated_spread_in_one_robot_and_in_many():
    timing = {"noise": {"joint_position": 0.02}}
    envs, plain = (rr.make_vector("go2-walk", 50, seed=1, threads=1, **more) for more in ({"timing": timing}, {}))
    tables, exact = (stand(each, each.reset(), 3) for each in (envs, plain))
    change = [
        noisy["observation"]["joint_deviation"] - true["observation"]["joint_deviation"]
        for noisy, true in zip(tables, exact, strict=True)
    ]
    spread = np.std(change)
    assert spread == pytest.approx(0.02, rel=4 / np.sqrt(2 * np.size(change)))
    env, still = rr.make("go2-walk", timing=timing), rr.make("go2-walk")
    readings = []
    for seed in range(20):
        noisy, true = (each.reset({"seed": seed})["observation"]["joint_deviation"] for each in (env, still))
        readings.append(noisy - true)
    assert np.std(readings) == pytest.approx(0.02, rel=4 / np.sqrt(2 * np.size(readings)))


def test_the_settings_of_a_course_are_recorded_and_its_profile_is_taken(tmp_path: Path):
    profile = rr.load_profile(ROOT / "launch" / "rough_go2.toml")
    with rr.make(profile.task.name, record=tmp_path, profile=profile, **profile.task.options) as env:
        table = env.reset({"seed": 3})
        for _ in range(3):
            action = {"joint_offset": np.zeros(12, np.float32)}
            table, _ = env.step({"env_id": env.env_id, "frame_no": table["frame_no"], "action": action})
        env.end("enough")
    settings = LogReader(next(tmp_path.iterdir())).metadata["task"]["settings"]
    for name, value in profile.task.options.items():
        assert settings[name] == value
    assert list(table["observation"]) == list(Walk().observation.names)


@pytest.mark.parametrize(
    "wrong",
    [
        {"terrain": "sea"},
        {"terrain_height": 0.0},
        {"height_scan": (0, 3)},
        {"height_scan_in": "log"},
        {"push_speed": (1.0, 0.5)},
        {"push_every_s": 0.0},
        {"command_hold_s": (0.1, 1.0)},
    ],
)
def test_settings_of_a_course_that_could_not_work_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Walk(**wrong)


def test_a_course_is_for_simulation_alone():
    with pytest.raises(ValueError, match="no driver"):
        rr.make("go2-walk", robot="driver", push_speed=(0.5, 0.5))


@pytest.mark.slow
def test_it_passes_the_environments_own_checker_and_gymnasiums():
    gymnasium_checker = pytest.importorskip("gymnasium.utils.env_checker", reason="gymnasium is not installed")
    course = {"terrain": "rough", "height_scan": (3, 3), "push_speed": (0.1, 0.4), "command_hold_s": (0.5, 1.0)}
    for settings in ({"steps": 20}, {"steps": 180, **course, "command_hold_s": (0.5, 0.6)}):
        rr.check_environment(rr.make("go2-walk", **settings)).raise_if_failed()
    gymnasium_checker.check_env(rr.to_gymnasium(rr.make("go2-walk", steps=30)), skip_render_check=True)
