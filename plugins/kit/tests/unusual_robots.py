"""Correct robots of unusual kinds, which no check may accuse: each is a bench of the grid with one peculiarity."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hal import CameraSpec, Field, RobotSpec, Spec
from plugins.kit.tests.planting import with_sensor
from plugins.kit.tests.robot_bench import JOINTS, PERIOD_NS, Bench, Press, Wagon


class SlowBus(Bench):
    """The bus reads the angles in every third period, and says how old they are."""

    taken = (np.zeros(3), np.zeros(3), 50)

    def measure(self) -> None:
        super().measure()
        if self.frame % 3 == 0:
            self.taken = (self.place.copy(), self.speed.copy(), self.ticks)

    def sensors(self) -> dict[str, Any]:
        right = super().sensors()
        return {**right, "angle": self.taken[0].astype(np.float32), "angle_rate": self.taken[1].astype(np.float32)}

    def ages(self) -> dict[str, Any]:
        age = (self.ticks - self.taken[2]) * PERIOD_NS
        return {**super().ages(), "angle": age, "angle_rate": age}


class Sagging(Bench):
    """The joints give way by gravity, the more the farther they reach."""

    def drive(self, told: dict[str, np.ndarray]) -> None:
        super().drive({**told, "goal": told["goal"] - 0.04 * np.cos(told["goal"])})

    def begin(self, start: dict[str, Any]) -> None:
        super().begin(start)
        for _ in range(20):
            self.drive(self.told)


class FastJoints(Bench):
    """A camera of 5 Hz beside joints of 100 Hz."""

    spec = replace(Bench.spec, rate_hz=100.0)

    def stamp(self) -> int:
        return self.ticks * PERIOD_NS // 2

    def drive(self, told: dict[str, np.ndarray]) -> None:
        super().drive(told)
        self.speed = self.speed * 2

    def measure(self) -> None:
        super().measure()
        if self.frame % 20 == 0:
            self.slow = self.film._replace(stamp_ns=self.stamp())

    def ages(self) -> dict[str, Any]:
        return {"current": super().ages()["current"] // 2}

    def images(self) -> dict[str, Any]:
        return {"top": self.slow._replace(data=self.slow.data.copy())}


def _one(field: Field) -> Field:
    low, high = (bound[:1] if isinstance(bound, tuple) else bound for bound in (field.low, field.high))
    return replace(field, shape=(1,), low=low, high=high, elements=JOINTS[:1])


class OneJoint(Bench):
    """A single joint, and nothing else."""

    spec = RobotSpec(
        "one-joint",
        Spec("one_sensors", tuple(_one(Bench.spec.sensors[name]) for name in ("angle", "angle_rate"))),
        Spec("one_commands", (_one(Bench.spec.commands["goal"]),)),
        50.0, home={"goal": (0.2,)}, measured_by={"goal": "angle"},
    )  # fmt: skip

    def begin(self, start: dict[str, Any]) -> None:
        self.obey({name: np.array(value) for name, value in start.items()})
        self.place, self.speed = self.told["goal"].copy(), np.zeros(1)

    def drive(self, told: dict[str, np.ndarray]) -> None:
        super().drive({**told, "claw": np.array(0.0)})

    def sensors(self) -> dict[str, Any]:
        return {"angle": self.place.astype(np.float32), "angle_rate": self.speed.astype(np.float32)}

    ages, images = Wagon.ages, Wagon.images


class Mixed(Bench):
    """Commands of a sliding lift, in metres, and of a turning joint, in radians."""

    spec = RobotSpec(
        "mixed",
        Spec("mixed_sensors", (
            Field("lift_place", (), "float32", -0.1, 0.6, "m", "height"),
            Field("turn_angle", (), "float64", -3.5, 3.5, "rad", "angle"),
        )),
        Spec("mixed_commands", (
            Field("lift", (), "float32", 0.0, 0.5, "m", "height"),
            Field("turn", (), "float64", -3.0, 3.0, "rad", "angle"),
        )),
        50.0, home={"lift": 0.1, "turn": 0.0}, measured_by={"lift": "lift_place", "turn": "turn_angle"},
    )  # fmt: skip
    main = "lift"

    def __init__(self) -> None:
        super().__init__()
        self.place = np.array([0.0, 0.0])

    def brake(self) -> None:
        self.told = {"lift": np.clip(self.place[0], 0, 0.5), "turn": np.array(self.place[1])}

    def begin(self, start: dict[str, Any]) -> None:
        self.obey({name: np.array(value) for name, value in start.items()})
        self.place = np.array([self.told["lift"], self.told["turn"]])

    def drive(self, told: dict[str, np.ndarray]) -> None:
        goal = np.array([told["lift"], told["turn"]])
        self.place = self.place + np.clip(0.5 * (goal - self.place), -0.2, 0.2)

    def sensors(self) -> dict[str, Any]:
        return {"lift_place": np.array(self.place[0], np.float32), "turn_angle": np.array(self.place[1])}

    ages, images = Wagon.ages, Wagon.images


class RunsOut(Wagon):
    """The wheels of a heavy base run out after a stop, while it is read."""

    def hold(self) -> None:
        self.told["speed"] = np.zeros(2)

    def look(self) -> Any:
        if self.why is not None:
            self.advance()
        return self.state()


class Bare(Wagon):
    """A reset leaves the wagon where it is, horn included, whatever start it is given."""

    ready = False

    def begin(self, start: dict[str, Any]) -> None:
        if not self.ready:
            super().begin({name: np.array(value) for name, value in self.spec.home.items()})
        self.ready = True
        self.brake()


class Wrapping(Wagon):
    """The places of the wheels are angles within a turn, as their bounds say."""

    spec = with_sensor(Wagon.spec, wheel_place=replace(Wagon.spec.sensors["wheel_place"], low=-3.1416, high=3.1416))

    def sensors(self) -> dict[str, Any]:
        place = (self.place + np.pi) % (2 * np.pi) - np.pi
        return {**super().sensors(), "wheel_place": place.astype(np.float32)}


class Played(Bench):
    """The joints have a play of 1.5 % of their range, and the speeds are those of the joints."""

    def __init__(self) -> None:
        super().__init__()
        self.motor = self.place.copy()

    def begin(self, start: dict[str, Any]) -> None:
        super().begin(start)
        self.motor = self.place.copy()

    def brake(self) -> None:
        self.told["goal"] = np.clip(self.motor, *self.spec.commands["goal"].bounds)

    def drive(self, told: dict[str, np.ndarray]) -> None:
        before = self.place
        self.motor = self.motor + np.clip(0.6 * (told["goal"] - self.motor), -0.15, 0.15)
        self.place = np.clip(before, self.motor - 0.02, self.motor + 0.02)
        self.speed, self.grip = (self.place - before) * 50, float(told["claw"])


class HomesAtReset(Bench):
    """A reset drives to a reference switch and then to the start, which takes seconds of its clock."""

    def begin(self, start: dict[str, Any]) -> None:
        aim = {name: np.array(value, float) for name, value in start.items()}
        for goal in (np.array([-1.4, -0.9, -1.9]), aim["goal"]):
            for _ in range(60):
                self.drive({**aim, "goal": goal})
                self.ticks += 1
        self.told, self.speed = aim, np.zeros(3)


class Quantised(Bench):
    """An encoder of 4,096 steps a turn, whose differences are the speeds."""

    def drive(self, told: dict[str, np.ndarray]) -> None:
        before = self.place
        super().drive(told)
        step = 2 * np.pi / 4096
        self.speed = (np.round(self.place / step) - np.round(before / step)) * step * 50

    def sensors(self) -> dict[str, Any]:
        step = 2 * np.pi / 4096
        return {**super().sensors(), "angle": (np.round(self.place / step) * step).astype(np.float32)}


class Filtered(Bench):
    """The speeds come from a filter that lags by some periods."""

    slow = np.zeros(3)

    def drive(self, told: dict[str, np.ndarray]) -> None:
        super().drive(told)
        self.slow = self.slow + 0.4 * (self.speed - self.slow)

    def begin(self, start: dict[str, Any]) -> None:
        super().begin(start)
        self.slow = np.zeros(3)

    def sensors(self) -> dict[str, Any]:
        return {**super().sensors(), "angle_rate": self.slow.astype(np.float32)}


class Ideal(Bench):
    """Each joint is at its goal within a period, and has no speed at its end."""

    def drive(self, told: dict[str, np.ndarray]) -> None:
        self.place, self.speed, self.grip = told["goal"].copy(), np.zeros(3), float(told["claw"])


class Pendulum(Press):
    """Two pendulums that weight pulls down, with a small noise in their sensors of force."""

    def drive(self, told: dict[str, np.ndarray]) -> None:
        for _ in range(4):
            self.speed = self.speed + (told["force"] - 2.0 * self.speed - 6.0 * np.sin(self.place)) / 2.0 / 200
            self.place = self.place + self.speed / 200

    def sensors(self) -> dict[str, Any]:
        right = super().sensors()
        return {**right, "press_force": right["press_force"] + self.rng.normal(0, 0.02, 2).astype(np.float32)}


class Paused(Press):
    """The time of a simulation stands still while it is stopped, and goes on where it was."""

    def hold(self) -> None:
        pass

    def stay(self) -> None:
        pass


class Late(Bench):
    """A command reaches the motors two periods later, and the state says what they got."""

    resetting = True

    def begin(self, start: dict[str, Any]) -> None:
        self.resetting = True
        super().begin(start)
        self.line, self.resetting = [dict(self.told), dict(self.told)], False

    def brake(self) -> None:
        super().brake()
        self.line = [dict(self.told), dict(self.told)]

    def obey(self, values: dict[str, np.ndarray]) -> None:
        if self.resetting:
            super().obey(values)
            return
        self.line.append({name: np.array(value, float) for name, value in values.items()})
        self.told = self.line.pop(0)


class DarkCamera(Bench):
    """The camera's cover is on: the images are black, with noise."""

    cameras = (CameraSpec("top", 16, 12),)

    def images(self) -> dict[str, Any]:
        (film,) = super().images().values()
        data = np.random.default_rng(film.stamp_ns).integers(0, 4, film.data.shape).astype(np.uint8)
        return {"top": film._replace(data=data)}


ROBOTS: tuple[type[Bench], ...] = (
    SlowBus, Sagging, FastJoints, OneJoint, Mixed, RunsOut, Bare, Wrapping, Played, HomesAtReset, Quantised, Filtered,
    Ideal, Pendulum, Paused, Late, DarkCamera,
)  # fmt: skip
