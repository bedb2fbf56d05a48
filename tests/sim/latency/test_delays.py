"""Delays, rates, steps, play and loss are those that were asked for, to the substep; and off they cost nothing."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import pytest

from hal import Field, Guard, RobotSpec, Spec, SpecError, StaleReading
from sim.batch import SimBatch
from sim.latency import LONGEST_S, DelayModel
from sim.model import Columns, SimModel
from sim.randomize.seeds import uniform
from sim.robot import SimRobot

SUBSTEPS, TIMESTEP = 5, 0.01

CLOCK = f"""
<mujoco>
  <option timestep="{TIMESTEP}" gravity="0 0 0"/>
  <worldbody>
    <body><joint name="slide" type="slide" axis="1 0 0"/><geom size="0.1" mass="1"/></body>
    <body><joint name="hand" type="slide" axis="0 1 0"/><geom size="0.1" mass="1" contype="0" conaffinity="0"/></body>
  </worldbody>
  <actuator><motor joint="slide"/><motor joint="hand" gear="0"/></actuator>
</mujoco>
"""


def _clock_model() -> SimModel:
    """A cart, and a hand that moves with 1 m/s: where it is tells when it was looked at."""

    def started(generator: np.random.Generator, qpos: np.ndarray, qvel: np.ndarray) -> None:
        qvel[1] = 1.0

    spec = RobotSpec(
        "clock",
        Spec("clock_sensors", (Field("hand", (), "float64", unit="m"), Field("speed", (), "float64", unit="m/s"),
                               Field("told", (2,), "float64", unit="N"))),
        Spec("clock_commands", (Field("force", (2,), "float64", -10, 10, "N"),)),
        rate_hz=1 / (SUBSTEPS * TIMESTEP),
    )  # fmt: skip
    return SimModel(
        spec,
        mujoco.MjModel.from_xml_string(CLOCK),
        SUBSTEPS,
        sensors={"hand": Columns("qpos", (1,)), "speed": Columns("qvel", (0,)), "told": Columns("ctrl")},
        commands={"force": (0, 1)},
        scatter=started,
    )


MODEL = _clock_model()


def batch_of(plain: dict[str, Any], num: int = 1, threads: int = 1) -> SimBatch:
    return SimBatch(MODEL, num, threads, timing=DelayModel.from_dict(plain))


def push(batch: SimBatch, force: float = 1.0) -> Any:
    return batch.step({"force": np.full((batch.num, 2), force)})


def test_a_model_without_delays_changes_nothing_bit_for_bit(pendulum: SimModel) -> None:
    plain, late = SimBatch(pendulum, 3, 1), SimBatch(pendulum, 3, 2, timing=DelayModel())
    plain.reset(seeds=[1, 2, 3])
    late.reset(seeds=[1, 2, 3])
    for step in range(20):
        rng = np.random.default_rng(step)
        command = {"torque": rng.uniform(-1, 1, (3, 2)), "bend": rng.uniform(-2, 2, 3).astype(np.float32)}
        one, other = plain.step(command), late.step(command)
        for name, value in {**one.sensors, **one.applied}.items():
            np.testing.assert_array_equal({**other.sensors, **other.applied}[name], value, err_msg=name, strict=True)
        assert other.age_ns == {}


@pytest.mark.parametrize("delay_ms", [0, 4, 10, 20, 50, 70, 123, 200])
def test_a_command_acts_after_its_delay_exact_to_the_substep(delay_ms: int) -> None:
    """A mass of 1 kg under 1 N: its speed is the time for which the force acted."""
    batch = batch_of({"command_delay": delay_ms / 1000})
    batch.reset()
    for period in range(1, 7):
        robot_state = push(batch)
        acted = max(0.0, period * SUBSTEPS * TIMESTEP - round(delay_ms / 1000 / TIMESTEP) * TIMESTEP)
        assert robot_state.sensors["speed"][0] == pytest.approx(acted, abs=1e-12)


def test_each_simulation_of_a_batch_has_its_own_delay() -> None:
    batch = batch_of({"command_delay": {"choice": [0.0, 0.01, 0.02, 0.06]}}, 40, 2)
    batch.reset(seeds=np.arange(40))
    for _ in range(4):
        speed = push(batch).sensors["speed"]
    delays = batch.drawn["timing.command_delay"]
    assert sorted(set(delays.tolist())) == [0.0, 0.01, 0.02, 0.06]
    np.testing.assert_allclose(speed, 4 * SUBSTEPS * TIMESTEP - delays, atol=1e-12)


@pytest.mark.parametrize("delay_ms", [0, 10, 30, 50, 130])
def test_a_delayed_sensor_shows_the_past_and_its_age(delay_ms: int) -> None:
    batch = batch_of({"reading_delay": delay_ms / 1000})
    batch.reset()
    for period in range(1, 7):
        robot_state = push(batch)
        now = period * SUBSTEPS * TIMESTEP
        assert robot_state.sensors["hand"][0] == pytest.approx(max(0.0, now - delay_ms / 1000), abs=1e-12)
        if delay_ms:
            assert robot_state.age_ns["hand"].tolist() == [delay_ms * 1_000_000]


def test_each_sensor_has_its_own_delay_and_rate() -> None:
    """Sampled every 30 ms and held: the age goes round, and is what the value says."""
    batch = batch_of({"sensor_rate": {"hand": 1 / 0.03}, "sensor_delay": {"hand": 0.02}})
    batch.reset()
    ages = []
    for period in range(1, 13):
        robot_state = push(batch)
        now = period * SUBSTEPS * TIMESTEP
        age = robot_state.age_ns["hand"].item() / 1e9
        ages.append(round(age * 100))
        assert robot_state.sensors["hand"][0] == pytest.approx(max(0.0, now - age), abs=1e-12)
        taken = (now - age) / 0.03
        assert taken == pytest.approx(round(taken), abs=1e-9), "at a multiple of the sensor's period"
        assert 0.02 <= age + 1e-9 < 0.05
        assert robot_state.age_ns["speed"].item() == 0
        assert robot_state.sensors["speed"][0] == pytest.approx(now)
    assert set(ages) == {2, 3, 4}


def test_a_rate_between_substeps_is_kept_on_average() -> None:
    batch = batch_of({"sensor_rate": {"hand": 40.0}, "sensor_phase": 0.5})
    batch.reset()
    taken = [round(push(batch).sensors["hand"].item() / TIMESTEP) for _ in range(20)]
    own = 1 / 40 / TIMESTEP  # 2.5 steps
    for period, at in enumerate(taken, 1):
        number = np.floor(period * SUBSTEPS / own - 0.5)
        assert at == int(np.floor((number + 0.5) * own + 1e-9)), period


def test_jitter_changes_no_order_and_newer_commands_win() -> None:
    batch = batch_of({"command_jitter": {"uniform": [0.0, 0.2]}, "reading_jitter": {"uniform": [0.0, 0.2]}}, 20)
    batch.reset(seeds=np.arange(20))
    last_told, last_hand = np.zeros(20), np.full(20, -1.0)
    waits = []
    for period in range(60):
        robot_state = batch.step({"force": np.full((20, 2), [0.0, period / 60])})
        ctrl = batch.open_batch.bind("ctrl")[:, 1].copy()
        assert (ctrl >= last_told).all()
        assert (robot_state.sensors["hand"] >= last_hand).all()
        last_told, last_hand = ctrl, robot_state.sensors["hand"]
        waits.append(period / 60 - ctrl)
    assert np.ptp(waits[20:]) > 0.03, "some came late"
    assert max(map(np.max, waits[20:])) <= 5 / 60 + 1e-9, "none more than 0.2 s and a period"


def test_a_lost_command_never_acts_and_the_last_one_is_held() -> None:
    batch = batch_of({"command_loss": 0.5}, 50)
    batch.reset(seeds=np.arange(50))
    lost = 0
    before = np.zeros(50)
    for period in range(1, 21):
        robot_state = batch.step({"force": np.full((50, 2), period / 10)})
        applied = robot_state.applied["force"][:, 1]
        np.testing.assert_array_equal(applied, batch.open_batch.bind("ctrl")[:, 1])
        assert set(np.unique(applied - period / 10).tolist()) - {0.0} or period == 1
        np.testing.assert_array_equal(applied[applied != period / 10], before[applied != period / 10])
        lost += int((applied != period / 10).sum())
        before = applied
    assert 400 < lost < 600  # of 1000; six deviations are 95


def test_a_lost_reading_repeats_the_last_one_with_a_greater_age() -> None:
    batch = batch_of({"reading_loss": 0.5}, 50)
    batch.reset(seeds=np.arange(50))
    lost = 0
    for period in range(1, 21):
        robot_state = push(batch)
        age = robot_state.age_ns["hand"] / 1e9
        np.testing.assert_allclose(robot_state.sensors["hand"], period * 0.05 - age, atol=1e-9)
        assert (np.rint(age / 0.05 * 1000) % 1000 == 0).all()
        lost += int((age > 0).sum())
    assert 400 < lost < 600


def test_quantisation_rounds_to_the_nearest_step() -> None:
    batch = batch_of({"quantisation": {"hand": 0.04}})
    batch.reset()
    for period in range(1, 9):
        hand = push(batch).sensors["hand"].item()
        assert hand == pytest.approx(0.04 * round(period * 0.05 / 0.04), abs=1e-12)


def test_backlash_is_a_play_operator() -> None:
    """Half the gap behind on the way up, the whole gap of silence at the turn, half the gap behind on the way down."""
    batch = batch_of({"backlash": {"force": 0.4}})
    batch.reset()
    seen = []
    for wanted in (0.1, 0.5, 1.0, 0.8, 0.7, 0.6, 0.0):
        robot_state = push(batch, wanted)
        assert robot_state.applied["force"].tolist() == [[wanted, wanted]]
        seen.append(robot_state.sensors["told"][0, 0].item())
    np.testing.assert_allclose(seen, [0.0, 0.3, 0.8, 0.8, 0.8, 0.8, 0.2], atol=1e-12)


LATE = {
    "command_delay": {"uniform": [0.0, 0.12]},
    "command_jitter": {"log_uniform": [0.001, 0.05]},
    "command_loss": {"uniform": [0.0, 0.3]},
    "reading_delay": {"normal": [0.02, 0.02, 0.0, 0.08]},
    "reading_jitter": {"measured": [0.0, 0.001, 0.03]},
    "reading_loss": 0.1,
    "sensor_delay": {"angles": {"choice": [0.0, 0.03]}},
    "sensor_rate": {"middle": {"uniform": [15.0, 60.0]}},
    "sensor_phase": {"uniform": [0.0, 0.99]},
    "quantisation": {"angles": {"uniform": [0.001, 0.1]}},
    "backlash": {"bend": {"uniform": [0.0, 0.2]}},
}


@pytest.mark.requirement("R1.3")
@pytest.mark.parametrize(("num", "threads"), [(1, 1), (4, 2), (9, 1)])
def test_a_single_simulation_equals_one_of_a_batch_bit_for_bit(pendulum: SimModel, num: int, threads: int) -> None:
    """With all of it at once, staggered resets, and some that don't move."""
    timing = DelayModel.from_dict(LATE)
    alone, batch = SimRobot(pendulum, timing=timing), SimBatch(pendulum, num, threads, timing=timing)
    place = num - 1
    one, many = alone.reset({"seed": 5}), batch.reset(seeds=np.arange(5 - place, 6) % 2**31)
    for step in range(40):
        for name, value in {**one.sensors, **one.applied}.items():
            np.testing.assert_array_equal(
                value, {**many.sensors, **many.applied}[name][place], err_msg=f"{step} {name}"
            )
        assert one.age_ns == {name: age[place] for name, age in many.age_ns.items()}
        if step % 5 == 1 and num > 1:
            batch.reset([0])
        if step % 13 == 12:
            alone.reset({})
            batch.reset([place])
        rng = np.random.default_rng(step)
        torque, bend = rng.uniform(-1, 1, (num, 2)), rng.uniform(-2, 2, num).astype(np.float32)
        moving = np.ones(num, bool)
        moving[:-1] = rng.random(num - 1) < 0.8
        many = batch.step({"torque": torque, "bend": bend}, moving)
        one = alone.step({"torque": torque[place], "bend": bend[place]})


def test_a_guard_refuses_samples_that_are_too_old() -> None:
    spec = MODEL.spec
    strict = RobotSpec(spec.name, spec.sensors, spec.commands, spec.rate_hz, max_age_s={"hand": 0.1})
    model = SimModel(strict, MODEL.model, SUBSTEPS, MODEL.sensors, MODEL.commands, scatter=MODEL.scatter)
    Guard(SimRobot(model, timing=DelayModel.from_dict({"reading_delay": 0.1}))).reset({})
    with pytest.raises(StaleReading, match="hand"):
        Guard(SimRobot(model, timing=DelayModel.from_dict({"reading_delay": 0.12}))).reset({})


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"command_delay": 2.01}, r"a command may be 2.01 s late.*2 s is the longest"),
        ({"command_delay": 1.5, "command_jitter": {"uniform": [0, 0.6]}}, "a command may be 2.1 s late"),
        ({"sensor_rate": {"hand": 0.1}}, "a reading may be 10 s late"),
        ({"sensor_rate": {"hand": 101.0}}, r"timing.sensor_rate.hand may be 101 Hz.*100 steps a second"),
        ({"sensor_rate": {"hand": 0}}, "must be above 0"),
        ({"command_delay": -0.01}, "timing.command_delay may be -0.01, it must be at least 0"),
        ({"command_loss": 1.0}, "timing.command_loss may be 1, it must be below 1"),
        ({"command_lag": 1.0}, "timing.command_lag is unknown, allowed are command_delay"),
        ({"sensor_delay": {"foot": 0.1}}, "timing.sensor_delay.foot: 'clock' has hand, speed, told"),
        ({"backlash": {"torque": 0.1}}, "timing.backlash.torque: 'clock' has force"),
        ({"sensor_delay": 0.1}, "it must be a table"),
        ({"command_delay": {"uniform": [0.2, 0.1]}}, "timing.command_delay: uniform is from 0.2 to 0.1"),
        ({"command_delay": {"even": [0.2, 0.1]}}, "no distribution, allowed are"),
        ({"command_delay": {"normal": [0.2, 0.1]}}, "timing.command_delay: normal is"),
        ({"command_delay": {"uniform": [0, float("nan")]}}, "two finite numbers"),
        ({"command_delay": True}, "no distribution"),
    ],
)
def test_impossible_values_are_refused(plain: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        SimRobot(MODEL, timing=DelayModel.from_dict(plain))


def test_an_engine_s_own_delay_beyond_its_buffer_is_refused() -> None:
    """MuJoCo itself would cut 60 ms to the 40 ms that four samples hold."""
    for kind, line in (
        (
            "actuator 'late'",
            '<actuator><motor name="late" joint="slide" delay="{}" nsample="4"/><motor joint="hand"/></actuator>',
        ),
        ("sensor 'late'", '<sensor><jointpos name="late" joint="hand" delay="{}" nsample="4"/></sensor>'),
    ):
        base = CLOCK if "sensor" in kind else CLOCK[: CLOCK.index("<actuator>")] + "</mujoco>"
        for delay, refused in ((0.04, False), (0.06, True)):
            model = mujoco.MjModel.from_xml_string(base.replace("</mujoco>", line.format(delay) + "</mujoco>"))
            arguments = (MODEL.spec, model, SUBSTEPS, MODEL.sensors, MODEL.commands)
            if not refused:
                SimModel(*arguments)
                continue
            with pytest.raises(SpecError, match=f"{kind} is to be 0.06 s late, its buffer of 4 samples holds 0.04 s"):
                SimModel(*arguments)


def test_delays_are_limited_and_the_error_names_the_limit() -> None:
    assert DelayModel.from_dict({"command_delay": LONGEST_S}).command_s == LONGEST_S


def test_the_counter_based_numbers_are_uniform_and_independent() -> None:
    keys = np.random.default_rng(0).integers(2**64, size=400, dtype=np.uint64)[:, None]
    numbers = np.stack([uniform(keys, np.arange(500)[None], channel) for channel in range(4)])
    assert (numbers >= 0).all()
    assert (numbers < 1).all()
    assert abs(numbers.mean() - 0.5) < 5 * np.sqrt(1 / 12 / numbers.size)
    flat = numbers.reshape(4, -1)
    assert np.abs(np.corrcoef(flat) - np.eye(4)).max() < 0.01
    assert abs(np.corrcoef(numbers[0, :, 1:].ravel(), numbers[0, :, :-1].ravel())[0, 1]) < 0.01
    counts, _ = np.histogram(numbers, 100)
    expected = numbers.size / 100
    assert ((counts - expected) ** 2 / expected).sum() < 170  # chi-squared, 99 degrees, p = 1e-5


def test_noise_is_normal_of_each_element_and_repeats_with_the_seed() -> None:
    batch = batch_of({"noise": {"told": 0.1}}, num=40)
    batch.reset(seeds=range(40))
    shown = np.array([push(batch).sensors["told"] for _ in range(100)])
    assert shown.mean() == pytest.approx(1.0, abs=0.01)
    assert shown.std() == pytest.approx(0.1, rel=0.05)
    first, second = shown[..., 0].ravel() - 1, shown[..., 1].ravel() - 1
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.05
    assert np.mean(np.abs(first) < 0.1) == pytest.approx(0.683, abs=0.03)  # one standard deviation of a normal draw
    batch.reset(seeds=range(40))
    np.testing.assert_array_equal(push(batch).sensors["told"], shown[0])


def test_a_sample_that_is_shown_again_has_the_same_noise_and_values_stay_in_range() -> None:
    slow = batch_of({"noise": {"hand": 0.5}, "sensor_rate": {"hand": 5.0}})
    slow.reset(seeds=[1])
    shown = [float(push(slow).sensors["hand"][0]) for _ in range(40)]
    assert len(set(shown)) == pytest.approx(10, abs=2), "5 samples a second in 40 periods of 0.05 s"
    for wrong, text in (({"noise": {"none": 1.0}}, "none"), ({"noise": {"told": -1.0}}, "at least 0")):
        with pytest.raises(SpecError, match=text):
            batch_of(wrong)
